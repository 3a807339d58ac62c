//! `.dockerignore`: which files of a folder stay out of its image.
//!
//! The rules are those of the engine's own client: patterns are rooted in the folder, what is below a match is matched
//! too, and the last pattern that matches a path decides, `!` taking it back in.

use globset::{GlobBuilder, GlobMatcher};

/// What the patterns of a file say.
#[derive(Debug, Default)]
pub struct IgnoreRules(Vec<IgnoreRule>);

#[derive(Debug)]
struct IgnoreRule {
    pattern: GlobMatcher,
    /// Whether a match is left out, or taken back in.
    excludes: bool,
}

/// Why a pattern is none.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` in line {line} is not a pattern of files")]
pub struct IgnoreError {
    pattern: String,
    line: usize,
    source: globset::Error,
}

impl IgnoreRules {
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
            let glob = GlobBuilder::new(&to_glob(&pattern)).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|source| IgnoreError { pattern: written.to_owned(), line, source })?;
            rules.push(IgnoreRule { pattern: glob.compile_matcher(), excludes });
        }
        Ok(Self(rules))
    }

    /// Tells whether a path, relative and with `/` between its parts, is left out.
    pub fn excludes(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let matches = |rule: &&IgnoreRule| prefixes.iter().any(|prefix| rule.pattern.is_match(prefix));
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

/// Writes a pattern in the syntax of `globset`, where braces are alternatives and Docker's are ordinary characters.
fn to_glob(pattern: &str) -> String {
    let (mut glob, mut is_in_set) = (String::with_capacity(pattern.len()), false);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => glob.extend(['\\'].into_iter().chain(characters.next())),
            '{' | '}' if !is_in_set => glob.extend(['\\', character]),
            _ => {
                is_in_set = character == '[' || is_in_set && character != ']';
                glob.push(character);
            }
        }
    }
    glob
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
    fn what_is_no_pattern_is_named_by_its_line() {
        let error = IgnoreRules::parse("ok\n\n[a").unwrap_err();
        assert_eq!(error.to_string(), "`[a` in line 3 is not a pattern of files");
    }
}
