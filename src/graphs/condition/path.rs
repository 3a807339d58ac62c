//! GJSON paths as text: keys with wildcards and escapes, indexes, `#`, queries, `|`, `@this`, and multipaths (`[a,b]`, `{a,b}`) at
//! the start of a path. All other paths are errors.

use std::borrow::Cow;

use serde::Deserialize;

/// The maximum length of a path, in bytes.
const MAX_PATH: usize = 1024;
/// The maximum depth of queries and multipaths inside of each other.
const MAX_NESTED: usize = 8;
/// The maximum number of selectors in the multipaths of a path. A path may repeat the document once for each selector of each multipath.
const MAX_SELECTORS: usize = 8;

/// Why a path is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::graphs) enum ConditionError {
    #[error("invalid GJSON path: {0}")]
    Malformed(&'static str),
    #[error("{0} of GJSON are not supported")]
    Unsupported(&'static str),
    #[error(
        "the path has more than {MAX_PATH} bytes, more than {MAX_SELECTORS} selectors in multipaths, or queries nested deeper than \
         {MAX_NESTED}"
    )]
    TooLong,
}

const EMPTY_COMPONENT: ConditionError = ConditionError::Malformed("a component is empty");
const UNCLOSED: ConditionError = ConditionError::Malformed("a bracket or a quote is not closed");
const AFTER_BRACKET: ConditionError =
    ConditionError::Malformed("expected `.`, `|` or the end after `#` or a closing bracket");
const LAST_ESCAPE: ConditionError = ConditionError::Malformed("nothing follows a `\\`");

/// A component of a path.
#[derive(Debug, Clone)]
pub(super) struct PathPart {
    /// Whether the component follows a `|`, and so is applied to the result of those before it.
    pub(super) is_piped: bool,
    pub(super) kind: PathPartKind,
}

#[derive(Debug, Clone)]
pub(super) enum PathPartKind {
    Key(Pattern),
    /// `#`: each element, or the number of elements.
    Elements,
    /// `#(...)`, or `#(...)#` for all matches.
    Query {
        path: Vec<PathPart>,
        comparison: Option<Comparison>,
        all: bool,
    },
    /// `@this`
    This,
    /// `[a,b]`: an array of the values that exist.
    Array(Vec<Vec<PathPart>>),
    /// `{a,b}`: an object of the values that exist.
    Object(Vec<(String, Vec<PathPart>)>),
}

/// The right side of a query.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    pub(super) operator: Operator,
    pub(super) operand: Operand,
}

#[derive(Debug, Clone)]
pub(super) enum Operand {
    Text {
        text: String,
        /// The number that a number is compared with.
        number: f64,
        /// The pattern of `%` and `!%`.
        pattern: Pattern,
    },
    /// `~true` and the like. The value is first converted to whether it is like that.
    Like(Likeness),
}

/// What a value is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Likeness {
    True,
    False,
    Null,
    Existing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Like,
    NotLike,
}

/// The operators, longer ones before their prefixes.
const OPERATORS: [(&str, Operator); 9] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("!%", Operator::NotLike),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("%", Operator::Like),
];

/// A text with wildcards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pattern {
    items: Vec<PatternItem>,
    has_escapes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternItem {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
}

/// Reads a path.
///
/// # Errors
///
/// Fails if the path is too long, is malformed, or uses parts of GJSON that are not supported.
pub(super) fn parse_path(text: &str) -> Result<Vec<PathPart>, ConditionError> {
    if text.len() > MAX_PATH {
        return Err(ConditionError::TooLong);
    }
    PathParser { selectors: 0 }.path(text, 0)
}

/// Returns whether a path may lead into the value of a member of this name, and not only to it.
pub(super) fn may_enter(path: &[PathPart], name: &str) -> bool {
    fn enters(path: &[PathPart], name: &str, is_followed: bool) -> bool {
        path.iter().enumerate().any(|(index, part)| {
            let is_followed = is_followed || index + 1 < path.len();
            match &part.kind {
                PathPartKind::Key(pattern) => is_followed && pattern.matches(name),
                // A comparison reads the value of its path.
                PathPartKind::Query { path, comparison, .. } => enters(path, name, comparison.is_some()),
                PathPartKind::Array(paths) => paths.iter().any(|path| enters(path, name, is_followed)),
                PathPartKind::Object(paths) => paths.iter().any(|(_, path)| enters(path, name, is_followed)),
                PathPartKind::Elements | PathPartKind::This => false,
            }
        })
    }
    enters(path, name, false)
}

/// The state of reading a path.
struct PathParser {
    /// The number of selectors so far.
    selectors: usize,
}

impl PathParser {
    /// Reads a path inside of as many queries and multipaths as `depth`.
    fn path(&mut self, text: &str, depth: usize) -> Result<Vec<PathPart>, ConditionError> {
        if depth > MAX_NESTED {
            return Err(ConditionError::TooLong);
        }
        let mut parts: Vec<PathPart> = Vec::new();
        let mut rest = text;
        let mut is_piped = false;
        loop {
            let (kind, after) = self.part(rest, parts.is_empty(), depth)?;
            if matches!(kind, PathPartKind::This) && !parts.is_empty() && !is_piped {
                return Err(ConditionError::Unsupported("`@this` after a `.`"));
            }
            let consumed = &rest[..rest.len() - after.len()];
            if matches!(kind, PathPartKind::Query { .. }) && consumed.contains('|') && parts.iter().any(is_of_several) {
                return Err(ConditionError::Unsupported("`|` in queries after `#`, other queries or wildcards"));
            }
            parts.push(PathPart { is_piped, kind });
            let mut left = after.chars();
            match left.next() {
                None => return Ok(parts),
                Some('.') => is_piped = false,
                Some('|') => is_piped = true,
                Some(_) => return Err(AFTER_BRACKET),
            }
            if is_piped {
                check_pipe(&parts)?;
            }
            rest = left.as_str();
        }
    }

    /// Reads a component, and returns the text after it.
    fn part<'a>(
        &mut self,
        text: &'a str,
        is_first: bool,
        depth: usize,
    ) -> Result<(PathPartKind, &'a str), ConditionError> {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '|']);
        if let Some(rest) = text.strip_prefix("@this").filter(|rest| ends(rest)) {
            return Ok((PathPartKind::This, rest));
        }
        match text.as_bytes().first() {
            None | Some(b'.' | b'|') => return Err(EMPTY_COMPONENT),
            Some(b'@') => return Err(ConditionError::Unsupported("modifiers other than `@this`")),
            Some(b'[' | b'{') if is_first => return self.multipath(text, depth),
            Some(b'[' | b'{') => return Err(ConditionError::Unsupported("multipaths after the start of a path")),
            Some(b'!') => return Err(ConditionError::Unsupported("literals")),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("#(") {
            let end = outside(rest, |c| c == ')').ok_or(UNCLOSED)?;
            let (query, rest) = (&rest[..end], &rest[end + 1..]);
            let (all, rest) = rest.strip_prefix('#').map_or((false, rest), |rest| (true, rest));
            return Ok((self.query(query, all, depth)?, rest));
        }
        if let Some(rest) = text.strip_prefix('#') {
            return if ends(rest) { Ok((PathPartKind::Elements, rest)) } else { Err(AFTER_BRACKET) };
        }
        let end = unescaped(text, |c| c == '.' || c == '|').unwrap_or(text.len());
        Ok((PathPartKind::Key(Pattern::key(&text[..end])?), &text[end..]))
    }

    fn query(&mut self, text: &str, all: bool, depth: usize) -> Result<PathPartKind, ConditionError> {
        let (path, comparison) = match outside(text, |c| "!=<>%".contains(c)) {
            Some(start) => {
                let found = OPERATORS.iter().find(|(name, _)| text[start..].starts_with(name));
                let Some((name, operator)) = found else {
                    return Err(ConditionError::Malformed("expected `!=` or `!%` instead of `!`"));
                };
                let operand = Operand::parse(trimmed(&text[start + name.len()..]), *operator)?;
                (&text[..start], Some(Comparison { operator: *operator, operand }))
            }
            None => (text, None),
        };
        let path = trimmed(path);
        if path.is_empty() && comparison.is_none() {
            return Err(ConditionError::Malformed("a query is empty"));
        }
        let path = if path.is_empty() { Vec::new() } else { self.path(path, depth + 1)? };
        Ok(PathPartKind::Query { path, comparison, all })
    }

    /// Reads `[a,b]` or `{a,"name":b}`, and returns the text after it.
    fn multipath<'a>(&mut self, text: &'a str, depth: usize) -> Result<(PathPartKind, &'a str), ConditionError> {
        let is_object = text.starts_with('{');
        let mut rest = &text[1..];
        let mut selectors = Vec::new();
        loop {
            self.selectors += 1;
            if self.selectors > MAX_SELECTORS {
                return Err(ConditionError::TooLong);
            }
            let end = outside_of_all(rest, |c| ",)]}".contains(c)).ok_or(UNCLOSED)?;
            let selector = &rest[..end];
            let colon = outside_of_all(selector, |c| c == ':');
            let is_of_modifier = |colon: usize| [".@", "|@"].iter().any(|start| selector[..colon].contains(start));
            if colon.is_some_and(is_of_modifier) {
                return Err(ConditionError::Unsupported("modifiers other than `@this`"));
            }
            let (name, path) = match colon {
                Some(colon) => (Some(&selector[..colon]), &selector[colon + 1..]),
                None => (None, selector),
            };
            let name = match name {
                None => name_of_last(path).to_owned(),
                Some(name) if name.starts_with('"') => {
                    let text =
                        parse_text(name).ok_or(ConditionError::Malformed("the name of a selector is invalid"))?;
                    text.into_owned()
                }
                Some("") => return Err(ConditionError::Malformed("the name of a selector is empty")),
                Some(name) => name.to_owned(),
            };
            selectors.push((name, self.path(path, depth + 1)?));
            let after = &rest[end + 1..];
            match rest.as_bytes()[end] {
                b',' => rest = after,
                b'}' if is_object => return Ok((PathPartKind::Object(selectors), after)),
                b']' if !is_object => {
                    return Ok((PathPartKind::Array(selectors.into_iter().map(|(_, path)| path).collect()), after));
                }
                _ => return Err(UNCLOSED),
            }
        }
    }
}

/// Returns whether the components after this one may be applied to several values.
fn is_of_several(part: &PathPart) -> bool {
    is_of_elements(part) || matches!(&part.kind, PathPartKind::Key(pattern) if pattern.is_wild())
}

fn is_of_elements(part: &PathPart) -> bool {
    matches!(part.kind, PathPartKind::Elements | PathPartKind::Query { .. })
}

/// Checks that a `|` after these components is applied to the result of all of them. GJSON does not see some of those that follow
/// the elements of an array.
fn check_pipe(parts: &[PathPart]) -> Result<(), ConditionError> {
    let start = parts.iter().rposition(|part| part.is_piped).unwrap_or_default();
    let (last, before) = parts[start..].split_last().expect("a `|` follows a component");
    let of_all = |part: &PathPart| matches!(part.kind, PathPartKind::Query { all: true, .. });
    let is_hidden = matches!(last.kind, PathPartKind::Elements) && before.iter().any(is_of_elements);
    if is_hidden || before.iter().any(of_all) {
        return Err(ConditionError::Unsupported("`|` after `#.…#` and after `#(…)#.…`"));
    }
    Ok(())
}

/// Returns the name that a selector without a name has in an object.
fn name_of_last(path: &str) -> &str {
    let is_separator = |&(index, c): &(usize, char)| matches!(c, '.' | '|') && !path[..index].ends_with('\\');
    let start = path.char_indices().rev().find(is_separator).map_or(0, |(index, _)| index + 1);
    let name = &path[start..];
    let is_simple = !name.chars().any(|c| c < ' ' || "[]{}()#|!".contains(c));
    if is_simple { name } else { "_" }
}

/// Returns the position of the first character that is not escaped and fulfills the condition.
fn unescaped(text: &str, condition: impl Fn(char) -> bool) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(index, c)| {
        let is_found = !is_escaped && condition(c);
        is_escaped = !is_escaped && c == '\\';
        is_found.then_some(index)
    })
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Returns the first position in a query outside of quotes and brackets whose character fulfills the condition.
fn outside(text: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    outside_of(text, "([", ")]", stop)
}

/// Returns the first position in a multipath outside of quotes and brackets whose character fulfills the condition.
fn outside_of_all(text: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    outside_of(text, "([{", ")]}", stop)
}

fn outside_of(text: &str, open: &str, close: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (index, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        if !is_quoted && depth == 0 && stop(c) {
            return Some(index);
        }
        match c {
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            c if !is_quoted && open.contains(c) => depth += 1,
            c if !is_quoted && close.contains(c) => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

impl Operand {
    /// Parses the right side of a comparison: a quoted string, or any other text.
    fn parse(text: &str, operator: Operator) -> Result<Self, ConditionError> {
        if let Some(name) = text.strip_prefix('~') {
            let likeness = match name {
                "true" => Likeness::True,
                "false" => Likeness::False,
                "null" => Likeness::Null,
                "*" => Likeness::Existing,
                _ => return Err(ConditionError::Malformed("expected `~true`, `~false`, `~null` or `~*`")),
            };
            return Ok(Self::Like(likeness));
        }
        if text.is_empty() {
            return Err(ConditionError::Malformed("a comparison has no right side"));
        }
        let text = if text.starts_with('"') {
            let invalid = ConditionError::Malformed("the text in quotes is not a JSON string");
            parse_text(text).ok_or(invalid)?.into_owned()
        } else {
            text.to_owned()
        };
        if text.starts_with('~') {
            return Err(ConditionError::Unsupported("texts in quotes that begin with `~`"));
        }
        let unsigned = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
        if unsigned.starts_with("0x") && unsigned.contains('p') {
            return Err(ConditionError::Unsupported("hexadecimal numbers"));
        }
        // A text that is not a number is compared as 0.
        let number = text.parse().unwrap_or_default();
        if text.contains('_') && text.replace('_', "").parse::<f64>().is_ok() {
            return Err(ConditionError::Unsupported("numbers with `_`"));
        }
        let is_pattern = matches!(operator, Operator::Like | Operator::NotLike);
        let pattern = if is_pattern { Pattern::parse(&text)? } else { Pattern::default() };
        Ok(Self::Text { text, number, pattern })
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut items = Vec::new();
        let mut chars = text.chars();
        let mut has_escapes = false;
        while let Some(c) = chars.next() {
            items.push(match c {
                '\\' => {
                    has_escapes = true;
                    PatternItem::Char(chars.next().ok_or(LAST_ESCAPE)?)
                }
                '?' => PatternItem::One,
                '*' => PatternItem::Many,
                c => PatternItem::Char(c),
            });
        }
        Ok(Self { items, has_escapes })
    }

    /// Parses a component of a path. GJSON would take its escaped wildcards for wildcards if it has others.
    fn key(text: &str) -> Result<Self, ConditionError> {
        let pattern = Self::parse(text)?;
        let is_special = |item: &PatternItem| matches!(item, PatternItem::Char('*' | '?' | '\\'));
        if pattern.is_wild() && pattern.items.iter().any(is_special) {
            return Err(ConditionError::Unsupported("escaped wildcards beside other wildcards"));
        }
        // In arrays, it ends the component at an escaped separator.
        let ends = |separator| text.split(separator).skip(1).any(|rest| rest.starts_with(['@', '[', '{', '!']));
        if ends("\\.") || ends("\\|") {
            return Err(ConditionError::Unsupported("escaped separators before `@`, `[`, `{` and `!`"));
        }
        Ok(pattern)
    }

    pub(super) fn is_wild(&self) -> bool {
        self.items.iter().any(|item| matches!(item, PatternItem::One | PatternItem::Many))
    }

    /// Returns the number of characters and wildcards.
    pub(super) const fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the pattern as an index of an array.
    pub(super) fn index(&self) -> Option<usize> {
        let items = if self.has_escapes || self.items.is_empty() { return None } else { &self.items };
        items.iter().try_fold(0_usize, |index, item| {
            let PatternItem::Char(c) = item else { return None };
            index.checked_mul(10)?.checked_add(usize::try_from(c.to_digit(10)?).ok()?)
        })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let items = &self.items;
        let mut chars = text.chars();
        let mut item = 0;
        // The last `*`, and the text that it has not covered yet.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let mut ahead = chars.clone();
            match (items.get(item), ahead.next()) {
                (None, None) => return true,
                (Some(PatternItem::Many), _) => {
                    retry = Some((item, chars.clone()));
                    item += 1;
                    continue;
                }
                (Some(PatternItem::One), Some(_)) => {
                    (chars, item) = (ahead, item + 1);
                    continue;
                }
                (Some(PatternItem::Char(wanted)), Some(c)) if *wanted == c => {
                    (chars, item) = (ahead, item + 1);
                    continue;
                }
                _ => {}
            }
            let Some((star, left)) = &mut retry else { return false };
            if left.next().is_none() {
                return false;
            }
            (item, chars) = (*star + 1, left.clone());
        }
    }
}

pub(super) fn parse_text(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_that_are_not_evaluated_as_in_gjson_are_errors() {
        for path in [
            "",
            ".",
            "a..b",
            "a.",
            "|a",
            "#x",
            "#[a]",
            "a.#(",
            "a.#(b",
            "a.#()",
            "a.#(b==)",
            r#"a.#(b=="c)"#,
            r"a\",
            "a.#(b!c)",
            r#"a.#(b=="\*")"#,
            "a.#(b==~maybe)",
            "[a",
            "[a}",
            "[]",
            "[a,]",
            "{:a}",
            r#"{"a:b}"#,
            "[a]b",
        ] {
            assert!(matches!(parse_path(path), Err(ConditionError::Malformed(_))), "{path}");
        }
        for path in [
            "a.@reverse",
            "@pretty:{}",
            "[a.@keys:b]",
            "a.@this",
            "a.[b]",
            "a|{b}",
            r#"!"x""#,
            "a.#(b==1_0)",
            "a.#(b==0x1p4)",
            r#"a.#(b=="~true")"#,
            r"a\**",
            r"a\.@this",
            "a.#(b)#.c|0",
            "a.#.#|0",
            "a*.#(b|c)",
            "#.#(b|c)",
        ] {
            assert!(matches!(parse_path(path), Err(ConditionError::Unsupported(_))), "{path}");
        }
        let nested = |depth: usize| format!("{}a{}", "#(".repeat(depth), ")".repeat(depth));
        assert_eq!(parse_path(&nested(9)).unwrap_err(), ConditionError::TooLong);
        assert!(parse_path(&nested(8)).is_ok());
        assert_eq!(parse_path(&"a".repeat(MAX_PATH + 1)).unwrap_err(), ConditionError::TooLong);
        assert_eq!(parse_path(&"#(".repeat(500)).unwrap_err(), UNCLOSED);
        assert_eq!(parse_path("[a,b,c,d,e,f,g,h,i]").unwrap_err(), ConditionError::TooLong);
        assert!(parse_path("[a,b,c,d].#([e,f,g,h].0)").is_ok());
    }

    proptest! {
        #[test]
        fn patterns_match_as_a_recursive_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn matches(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.first(), text.first()) {
                    (None, _) => text.is_empty(),
                    (Some(b'*'), _) => matches(&pattern[1..], text) || (!text.is_empty() && matches(pattern, &text[1..])),
                    (Some(b'?'), Some(_)) => matches(&pattern[1..], &text[1..]),
                    (Some(wanted), Some(c)) => wanted == c && matches(&pattern[1..], &text[1..]),
                    (Some(_), None) => false,
                }
            }
            let expected = matches(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&text), expected);
        }
    }
}
