//! Reads `.env` files as python-dotenv does, which the original uses.
//!
//! Other readers of the format differ in details that matter here: quotes inside an unquoted value are kept, so that
//! `MLSERVER_EXTENSIONS=["a", "b"]` is JSON; a comment after an unquoted value needs white space before its `#`; `${NAME}`
//! is replaced by an earlier variable of the file or of the environment.

/// The variables of a file in its order, and the numbers of the lines that are invalid or whose names no environment variable can have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Dotenv {
    pub(super) variables: Vec<(String, String)>,
    pub(super) bad_lines: Vec<usize>,
}

/// Parses the text of a file; `outer` looks a variable up in the environment.
pub(super) fn parse(text: &str, outer: impl Fn(&str) -> Option<String>) -> Dotenv {
    let mut parsed = Dotenv::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some((found, after)) = binding(rest) {
            if let Some((name, value)) = found {
                if !is_variable(&name) {
                    parsed.bad_lines.push(line_of(text, rest));
                }
                let value = interpolate(&value, |wanted| {
                    let inner = parsed.variables.iter().rev().find(|(name, _)| name == wanted);
                    inner.map(|(_, value)| value.clone()).or_else(|| outer(wanted))
                });
                parsed.variables.push((name, value));
            }
            rest = after;
        } else {
            parsed.bad_lines.push(line_of(text, rest));
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        }
        rest = rest.trim_start();
    }
    parsed
}

/// Returns whether an environment variable can have a name. Others can be set, but only later lines of the file can read them.
fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// Returns the number of the line on which `rest`, the end of `text`, starts.
fn line_of(text: &str, rest: &str) -> usize {
    let before = &text[..text.len() - rest.len()];
    1 + before.bytes().filter(|byte| *byte == b'\n').count()
}

type Binding = Option<(String, String)>;

/// Splits off one line, which may be a variable, a comment, or a name without a value. Returns `None` if it is invalid.
fn binding(text: &str) -> Option<(Binding, &str)> {
    if text.starts_with('#') {
        return Some((None, end_of_line(text)?));
    }
    let text = match text.strip_prefix("export") {
        Some(after) if after.starts_with([' ', '\t']) => skip_blanks(after),
        _ => text,
    };
    let (name, after) = if let Some(quoted) = text.strip_prefix('\'') {
        quoted.split_once('\'').filter(|(name, _)| !name.is_empty())?
    } else {
        let end = text.find(|c: char| c == '=' || c == '#' || c.is_whitespace()).unwrap_or(text.len());
        (end > 0).then(|| text.split_at(end))?
    };
    let after = skip_blanks(after);
    let Some(assigned) = after.strip_prefix('=') else {
        return Some((None, end_of_line(after)?));
    };
    let (value, after) = value(skip_blanks(assigned))?;
    Some((Some((name.to_owned(), value)), end_of_line(after)?))
}

/// Splits off a value, which is quoted and may span several lines, or else the rest of the line.
fn value(text: &str) -> Option<(String, &str)> {
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let (inner, after) = quoted(&text[1..], quote)?;
        return Some((unescape(inner, quote), after));
    }
    let end = text.find(['\r', '\n']).unwrap_or(text.len());
    let (line, after) = text.split_at(end);
    Some((without_comment(line).trim_end().to_owned(), after))
}

/// Splits at the closing quote, which is the first one without a backslash before it.
fn quoted(text: &str, quote: char) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return Some((&text[..at], &text[at + 1..]));
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// Replaces escapes: those of C in double quotes, only backslash and quote in single quotes.
fn unescape(text: &str, quote: char) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some(c @ ('\\' | '\'')) => plain.push(c),
            Some('"') if quote == '"' => plain.push('"'),
            Some('n') if quote == '"' => plain.push('\n'),
            Some('t') if quote == '"' => plain.push('\t'),
            Some('r') if quote == '"' => plain.push('\r'),
            Some('a') if quote == '"' => plain.push('\u{7}'),
            Some('b') if quote == '"' => plain.push('\u{8}'),
            Some('f') if quote == '"' => plain.push('\u{c}'),
            Some('v') if quote == '"' => plain.push('\u{b}'),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').find(|(at, _)| line[..*at].ends_with(char::is_whitespace));
    comment.map_or(line, |(at, _)| &line[..at])
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() && c != '\n' && c != '\r')
}

/// Skips a comment at the end of a line, or returns `None` if other text precedes the end.
fn end_of_line(text: &str) -> Option<&str> {
    let text = skip_blanks(text);
    let text = if text.starts_with('#') { &text[text.find(['\r', '\n']).unwrap_or(text.len())..] } else { text };
    (text.is_empty() || text.starts_with(['\r', '\n'])).then_some(text)
}

/// Replaces `${NAME}` and `${NAME:-default}`.
fn interpolate(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, tail)) = after.split_once('}') else {
            break;
        };
        whole.push_str(before);
        let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
        whole.push_str(&lookup(name).unwrap_or_else(|| default.to_owned()));
        rest = tail;
    }
    whole.push_str(rest);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Vec<(String, String)> {
        let parsed = parse(text, |name| (name == "HOME").then(|| "/home/me".to_owned()));
        assert_eq!(parsed.bad_lines, Vec::<usize>::new(), "{text}");
        parsed.variables
    }

    fn value_of(text: &str) -> String {
        let variables = variables(text);
        assert_eq!(variables.len(), 1, "{text}: {variables:?}");
        variables[0].1.clone()
    }

    #[test]
    fn values_are_read_as_python_dotenv_reads_them() {
        let cases = [
            ("A=b", "b"),
            ("A = b c ", "b c"),
            ("export A=b", "b"),
            ("A=", ""),
            ("A=b # comment", "b"),
            ("A=b#no comment", "b#no comment"),
            (r#"A=["a", "b"]"#, r#"["a", "b"]"#),
            (r#"A="b # c" # d"#, "b # c"),
            (r#"A="two\nlines""#, "two\nlines"),
            ("A=\"two\nlines\"", "two\nlines"),
            (r"A='raw\n\'quote'", r"raw\n'quote"),
            ("'A'=b", "b"),
            ("A=b\r\n", "b"),
            ("A=${HOME}/models", "/home/me/models"),
            ("A=${NOBODY:-x}${NOBODY}", "x"),
            ("A=${HOME", "${HOME"),
        ];
        for (text, expected) in cases {
            assert_eq!(value_of(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_blank_lines_and_bare_names_set_nothing() {
        assert_eq!(variables("# only\n\n  \nBARE\n"), []);
        let both = variables("A=1\n# between\nB=${A}2\n");
        assert_eq!(both, [("A".into(), "1".into()), ("B".into(), "12".into())]);
    }

    #[test]
    fn invalid_lines_do_not_affect_others() {
        let parsed = parse("A=1\nthis is none\nB='open\nC=3", |_| None);
        assert_eq!(parsed.bad_lines, [2, 3]);
        assert_eq!(parsed.variables, [("A".into(), "1".into()), ("C".into(), "3".into())]);
    }
}
