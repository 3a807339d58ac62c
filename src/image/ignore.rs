//! `.dockerignore`: which files of a folder stay out of its image.
//!
//! The rules are those of the engine's own client: patterns are rooted in the folder, what is below a match is matched
//! too, and the last pattern that matches a path decides, `!` taking it back in.

use regex_lite::Regex;

/// What the patterns of a file say.
#[derive(Debug, Default)]
pub struct Ignore(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    pattern: Regex,
    /// Whether a match is left out, or taken back in.
    excludes: bool,
}

/// Why a pattern is none.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` in line {line} is not a pattern of files")]
pub struct IgnoreError {
    pattern: String,
    line: usize,
    source: regex_lite::Error,
}

impl Ignore {
    /// Reads the lines of a file of patterns.
    ///
    /// # Errors
    ///
    /// Fails when a pattern's brackets do not match.
    pub fn parse(text: &str) -> Result<Self, IgnoreError> {
        let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        let patterns = lines.filter(|(_, line)| !line.starts_with('#')).map(|(index, line)| (index + 1, line.trim()));
        let mut rules = Vec::new();
        for (line, written) in patterns {
            let (excludes, pattern) = match written.strip_prefix('!') {
                Some(rest) => (false, rest.trim()),
                None => (true, written),
            };
            let pattern = cleaned(pattern);
            if pattern.is_empty() {
                continue;
            }
            let regex = Regex::new(&to_regex(&pattern));
            let pattern = regex.map_err(|source| IgnoreError { pattern: written.to_owned(), line, source })?;
            rules.push(Rule { pattern, excludes });
        }
        Ok(Self(rules))
    }

    /// Tells whether a path, relative and with `/` between its parts, is left out.
    pub fn excludes(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let matches = |rule: &&Rule| prefixes.iter().any(|prefix| rule.pattern.is_match(prefix));
        self.0.iter().rfind(matches).is_some_and(|rule| rule.excludes)
    }

    /// Tells whether something below a folder that is left out may be taken back in.
    pub fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| !rule.excludes)
    }
}

/// Takes `.`, `..` and doubled slashes out of a pattern, and the slash in front.
fn cleaned(pattern: &str) -> String {
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

fn to_regex(pattern: &str) -> String {
    let mut regex = String::from("^");
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' if rest.peek() == Some(&'*') => {
                rest.next();
                // `**/` is any number of folders, none among them.
                let has_slash = rest.next_if_eq(&'/').is_some();
                regex += if has_slash || rest.peek().is_some() { "(.*/)?" } else { ".*" };
            }
            '*' => regex += "[^/]*",
            '?' => regex += "[^/]",
            // A set is written alike in both, up to its end.
            '[' => {
                regex.push('[');
                while let Some(member) = rest.next_if(|member| *member != ']') {
                    regex.push(member);
                }
            }
            ']' => regex.push(']'),
            '\\' => regex += &regex_lite::escape(&rest.next().map_or_else(|| "\\".to_owned(), String::from)),
            other => regex += &regex_lite::escape(&other.to_string()),
        }
    }
    regex + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched_as_the_engine_s_client_does() {
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
            ("x.y", "xzy", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("# no", "# no", false),
            ("*\n!README.md", "README.md", false),
            ("*\n!README.md", "models.py", true),
            ("data\n!data/keep", "data/keep/x", false),
            ("data\n!data/keep", "data/other", true),
            ("!a\na", "a", true),
        ];
        for (patterns, path, expected) in cases {
            assert_eq!(Ignore::parse(patterns).unwrap().excludes(path), expected, "{patterns:?} on {path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_named_by_its_line() {
        let error = Ignore::parse("ok\n\n[a").unwrap_err();
        assert_eq!(error.to_string(), "`[a` in line 3 is not a pattern of files");
    }
}
