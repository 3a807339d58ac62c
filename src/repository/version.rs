//! The version of a model that serves requests without a version.

use std::cmp::Ordering;

/// Orders two versions: as integers if both are numbers, else as text.
///
/// This is not a total order (`10` is above `2`, `2` above `1a`, and `1a` above `10`), so do not sort by it.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (Integer::parse(left), Integer::parse(right)) {
        (Some(left_number), Some(right_number)) => left_number.cmp(&right_number),
        _ => left.cmp(right),
    }
}

/// Returns the default version: the unversioned one if there is one, else the highest.
///
/// The order of `versions` does not matter.
pub fn default_version<'a>(versions: impl IntoIterator<Item = Option<&'a str>>) -> Option<Option<&'a str>> {
    let mut named = Vec::new();
    for version in versions {
        match version {
            Some(version) => named.push(version),
            None => return Some(None),
        }
    }
    named.sort_unstable();
    let highest = named.into_iter().reduce(
        |highest, version| {
            if compare_versions(version, highest).is_gt() { version } else { highest }
        },
    );
    highest.map(Some)
}

/// An integer of any length.
#[derive(PartialEq, Eq)]
struct Integer<'a> {
    negative: bool,
    /// The digits without leading zeros.
    digits: &'a str,
}

impl<'a> Integer<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = digits.trim_start_matches('0');
        Some(Self { negative: negative && !digits.is_empty(), digits })
    }
}

impl Ord for Integer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = || {
            let lengths = self.digits.len().cmp(&other.digits.len());
            lengths.then_with(|| self.digits.cmp(other.digits))
        };
        match (self.negative, other.negative) {
            (false, false) => size(),
            (true, true) => size().reverse(),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Integer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_comparison_is_numeric_for_numbers_else_textual() {
        let cases = [
            ("10", "2", Ordering::Greater),
            ("2", "10", Ordering::Less),
            ("02", "2", Ordering::Equal),
            ("-1", "1", Ordering::Less),
            ("-3", "-2", Ordering::Less),
            ("-0", "0", Ordering::Equal),
            ("v10", "v2", Ordering::Less),
            ("1.10", "1.9", Ordering::Less),
            ("10", "2a", Ordering::Less),
            ("99999999999999999999999", "99999999999999999999998", Ordering::Greater),
            ("100000000000000000000000", "99999999999999999999998", Ordering::Greater),
        ];
        for (left, right, expected) in cases {
            assert_eq!(compare_versions(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn default_version_is_unversioned_or_highest() {
        assert_eq!(default_version([]), None);
        assert_eq!(default_version([Some("1")]), Some(Some("1")));
        assert_eq!(default_version([Some("2"), Some("10"), Some("9")]), Some(Some("10")));
        assert_eq!(default_version([Some("2"), None, Some("10")]), Some(None));
        assert_eq!(default_version([Some("v2"), Some("v10")]), Some(Some("v2")));
    }

    #[test]
    fn default_version_does_not_depend_on_order() {
        let cycle = ["10", "2", "1a"];
        for start in 0..3 {
            let versions = (0..3).map(|step| Some(cycle[(start + step) % 3]));
            assert_eq!(default_version(versions), Some(Some("2")), "{start}");
        }
    }
}
