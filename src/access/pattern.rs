//! Patterns for names of models: `*` stands for any text.

/// The most patterns of one principal.
pub(super) const MAX_PATTERNS: usize = 1000;
/// The longest pattern, in bytes.
pub(super) const MAX_PATTERN: usize = 256;

/// The models that a principal may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelPatterns {
    All,
    Some(Vec<String>),
}

impl ModelPatterns {
    /// Creates the patterns of a list; without a list, all models match.
    pub fn new(patterns: Option<Vec<String>>) -> Self {
        match patterns {
            Some(patterns) if !patterns.iter().any(|pattern| pattern == "*") => Self::Some(patterns),
            _ => Self::All,
        }
    }

    /// Reports whether a model matches one of the patterns.
    pub fn matches(&self, model: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(patterns) => patterns.iter().any(|pattern| matches(pattern, model)),
        }
    }
}

/// Matches a name in time proportional to the lengths of both: each part between stars is searched once, from left to right.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        match name.find(part) {
            Some(found) => name = &name[found + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn model_patterns_match_names() {
        let yes = [
            ("iris", "iris"),
            ("*", ""),
            ("iris-*", "iris-"),
            ("iris-*", "iris-a/b"),
            ("*-v1", "a-v1-v1"),
            ("a*b*c", "aXbYbZc"),
            ("a**c", "ac"),
            ("*é*", "caféx"),
        ];
        for (pattern, name) in yes {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        let no = [
            ("iris", "iris2"),
            ("iris-*", "iris"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "a"),
            ("*-v1", "v1"),
            ("?", "a"),
        ];
        for (pattern, name) in no {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        assert!(ModelPatterns::new(None).matches("a") && !ModelPatterns::new(Some(Vec::new())).matches("a"));
        assert_eq!(ModelPatterns::new(Some(vec!["a".to_owned(), "*".to_owned()])), ModelPatterns::All);
    }

    /// The definition.
    fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => (0..=name.len()).any(|skipped| matches_slowly(rest, &name[skipped..])),
            (Some((letter, rest)), Some((found, names))) => letter == found && matches_slowly(rest, names),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn model_pattern_matches_as_defined(pattern in "[ab*]{0,7}", name in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &name), matches_slowly(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
