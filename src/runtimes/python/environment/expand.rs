//! Expands variables in paths, as shells do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Replaces a leading `~`, `$NAME` and `${NAME}` as shells do. Unknown names stay as they are.
pub(super) fn expand(path: &Path, variables: &BTreeMap<String, String>) -> PathBuf {
    let Some(text) = path.to_str() else { return path.to_owned() };
    let mut expanded = String::new();
    let mut rest = text;
    if let (Some(after), Some(home)) = (text.strip_prefix('~'), variables.get("HOME"))
        && (after.is_empty() || after.starts_with('/'))
    {
        expanded.push_str(home);
        rest = after;
    }
    while let Some(start) = rest.find('$') {
        expanded.push_str(&rest[..start]);
        let after = &rest[start + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, length) = if let Some((name, _)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            (name, name.len() + 2)
        } else {
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            (&after[..end], end)
        };
        match variables.get(name) {
            Some(value) => expanded.push_str(value),
            None => expanded.push_str(&rest[start..=start + length]),
        }
        rest = &after[length..];
    }
    expanded.push_str(rest);
    expanded.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand_replaces_home_and_variables() {
        let variables = [("HOME", "/home/me"), ("A", "x")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = variables.into();
        let cases = [
            ("~/env", "/home/me/env"),
            ("~other/env", "~other/env"),
            ("/a/$A/b", "/a/x/b"),
            ("${A}y/$NONE/${NONE}", "xy/$NONE/${NONE}"),
            ("$", "$"),
            ("a$A", "ax"),
        ];
        for (path, expected) in cases {
            assert_eq!(expand(Path::new(path), &variables), Path::new(expected), "{path}");
        }
    }
}
