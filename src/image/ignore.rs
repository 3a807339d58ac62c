//! `.dockerignore`: which files of a folder are excluded from its image.
//!
//! The rules are those of Docker's client: patterns are relative to the folder, a match includes everything below it, and the last
//! pattern that matches a path decides. A `!` includes the path again.

use std::str::Chars;

use regex_lite::Regex;

/// The rules of an ignore file, in order.
#[derive(Debug, Default)]
pub struct IgnoreRules(Vec<IgnoreRule>);

#[derive(Debug)]
struct IgnoreRule {
    pattern: Regex,
    /// Whether a match is excluded or included again.
    excludes: bool,
}

/// Why an ignore file is invalid.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: invalid pattern `{pattern}`")]
pub struct IgnoreError {
    pattern: String,
    line: usize,
    source: regex_lite::Error,
}

impl IgnoreRules {
    /// Parses an ignore file.
    ///
    /// # Errors
    ///
    /// Fails if the brackets of a pattern do not match.
    pub fn parse(text: &str) -> Result<Self, IgnoreError> {
        let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let patterns = lines.filter(|(_, line)| !line.starts_with('#')).map(|(index, line)| (index + 1, line.trim()));
        let mut rules = Vec::new();
        for (line, written) in patterns {
            let (excludes, pattern) = match written.strip_prefix('!') {
                Some(rest) => (false, rest.trim()),
                None => (true, written),
            };
            let pattern = normalize(pattern);
            if pattern.is_empty() {
                continue;
            }
            let pattern = Regex::new(&to_regex(&pattern)).map_err(|source| IgnoreError {
                pattern: written.to_owned(),
                line,
                source,
            })?;
            rules.push(IgnoreRule { pattern, excludes });
        }
        Ok(Self(rules))
    }

    /// Reports whether a relative path, with `/` between its components, is excluded.
    pub fn excludes(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let matches = |rule: &&IgnoreRule| prefixes.iter().any(|prefix| rule.pattern.is_match(prefix));
        self.0.iter().rfind(matches).is_some_and(|rule| rule.excludes)
    }

    /// Reports whether paths below an excluded folder may be included again.
    pub fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| !rule.excludes)
    }
}

/// Removes `.`, `..`, double slashes and the leading slash from a pattern.
fn normalize(pattern: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Converts a pattern to a regular expression, as Docker's client does: only `*`, `?`, `[` and `\` are special.
fn to_regex(pattern: &str) -> String {
    let mut regex = "(?s)^".to_owned();
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        match character {
            '*' if rest.as_str().starts_with('*') => {
                rest.next();
                let is_folder = rest.as_str().starts_with('/') && rest.next().is_some();
                regex.push_str(if is_folder { "(.*/)?" } else { ".*" });
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => push_set(&mut regex, &mut rest),
            // A backslash at the end escapes the end of the expression, which is then invalid.
            '\\' => regex.push_str(&rest.next().map_or_else(|| "(".to_owned(), escape)),
            _ => regex.push_str(&escape(character)),
        }
    }
    regex + "$"
}

/// Adds a set of characters, such as `[a-c]`, whose opening bracket has been read.
fn push_set(regex: &mut String, rest: &mut Chars<'_>) {
    regex.push('[');
    if rest.as_str().starts_with('^') {
        regex.extend(rest.next());
    }
    while let Some(character) = rest.next() {
        match character {
            ']' | '-' => regex.push(character),
            '\\' => regex.push_str(&rest.next().map_or_else(String::new, escape)),
            _ => regex.push_str(&escape(character)),
        }
        if character == ']' {
            break;
        }
    }
}

fn escape(character: char) -> String {
    regex_lite::escape(character.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignore_rules_match_like_docker() {
        let cases = [
            ("*.pyc", "a.pyc", true),
            ("*.pyc", "deep/a.pyc", false),
            ("**/*.pyc", "deep/er/a.pyc", true),
            ("**/*.pyc", "a.pyc", true),
            ("build", "build/lib/x.py", true),
            ("build", "rebuild/x.py", false),
            ("/build/", "build", true),
            ("./a//b", "a/b/c", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b/c", true),
            ("a/**", "a/x/y", true),
            ("a/**", "ab", false),
            ("?.txt", "b.txt", true),
            ("?.txt", "bb.txt", false),
            ("[a-c].txt", "b.txt", true),
            ("[a-c].txt", "d.txt", false),
            ("a+(b)", "a+(b)", true),
            ("{a,b}", "{a,b}", true),
            ("{a,b}", "a", false),
            ("[{]x", "{x", true),
            ("[^a].txt", "b.txt", true),
            ("[^a].txt", "a.txt", false),
            ("**", "deep/x", true),
            ("**/a", "x/y/a/z", true),
            ("*", ".hidden/x", true),
            ("*.?", "a/b.c", false),
            ("x.y", "xzy", false),
            ("a/**/**/b", "a/b", true),
            ("[&&]", "&", true),
            ("[[]x", "[x", true),
            (r"[\]]x", "]x", true),
            ("a[^b-d]", "ac", false),
            ("a[^b-d]", "ae", true),
            ("a.$^|()", "a.$^|()", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("# no", "# no", false),
            ("*\n!README.md", "README.md", false),
            ("*\n!README.md", "models.py", true),
            ("data\n!data/keep", "data/keep/x", false),
            ("data\n!data/keep", "data/other", true),
            ("!a\na", "a", true),
            ("!data/keep\ndata", "data/keep/x", true),
        ];
        for (patterns, path, expected) in cases {
            assert_eq!(IgnoreRules::parse(patterns).unwrap().excludes(path), expected, "{patterns:?} on {path}");
        }
    }

    #[test]
    fn ignore_rules_invalid_pattern_names_its_line() {
        let error = IgnoreRules::parse("ok\n\n[a").unwrap_err();
        assert_eq!(error.to_string(), "line 3: invalid pattern `[a`");
        assert!(IgnoreRules::parse("a\\").is_err());
    }
}
