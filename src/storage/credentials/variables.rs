//! The variables of the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The variables of the environment, which are never shown.
#[derive(Clone, Default)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Variables {
    pub(in crate::storage) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn first<'a>(&'a self, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
        names.iter().find_map(|&name| Some((name, self.get(name)?)))
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.get("HOME").map(Path::new)
    }
}

pub(in crate::storage) fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

pub(super) fn is_false(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_not_shown() {
        let variables = Variables(BTreeMap::from([("A".to_owned(), "hush".to_owned())]));
        assert!(!format!("{variables:?}").contains("hush"));
    }
}
