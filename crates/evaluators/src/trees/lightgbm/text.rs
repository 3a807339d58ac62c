//! The text format: `key=value` lines in a header, and in a section for each tree. Flags are lines without `=`.

use std::collections::HashMap;
use std::str::FromStr;

use crate::trees::error::{LoadError, TreeFault, quote};

/// A model file, split into lines.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) header: Section<'a>,
    pub(super) trees: Vec<Section<'a>>,
}

/// The values of a section by key.
#[derive(Debug, Default)]
pub(super) struct Section<'a> {
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Document<'a> {
    /// Splits a file into sections. What follows the trees is ignored.
    pub(super) fn parse(text: &'a str) -> Result<Self, LoadError> {
        let mut lines = text.lines().map(str::trim_end);
        if lines.next() != Some("tree") {
            let wanted = "a LightGBM text model, which begins with the line `tree`";
            return Err(LoadError::Syntax { offset: 0, wanted, found: quote(text) });
        }
        let mut document = Self { header: Section::default(), trees: Vec::new() };
        for line in lines {
            if line == "end of trees" {
                return Ok(document);
            }
            if line.starts_with("Tree=") {
                document.trees.push(Section::default());
            }
            let section = document.trees.last_mut().unwrap_or(&mut document.header);
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            section.values.insert(key, value);
        }
        // The library reads the trees that are there, even if the last one is incomplete.
        Err(LoadError::Unsupported { what: "a model", name: "without the line `end of trees`".to_owned() })
    }
}

impl<'a> Section<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).copied()
    }

    /// Returns a number of the header.
    pub(super) fn number<N: FromStr>(&self, field: &'static str) -> Result<N, LoadError> {
        let text = self.get(field).ok_or(LoadError::MissingField { field })?;
        let wrong = |_| {
            if is_number_in_c(text) {
                return LoadError::Unsupported { what: field, name: quote(text) };
            }
            LoadError::Field { field, wanted: "a number", found: quote(text) }
        };
        text.trim().parse().map_err(wrong)
    }

    /// Returns a number of a tree.
    pub(super) fn tree_number<N: FromStr>(&self, field: &'static str) -> Result<N, TreeFault> {
        let text = self.get(field).ok_or(TreeFault::MissingField { field })?;
        text.trim().parse().map_err(|_| wrong_number(field, "a number", text))
    }

    /// Returns `wanted` numbers of a tree.
    pub(super) fn list<N: FromStr>(&self, field: &'static str, wanted: usize) -> Result<Vec<N>, TreeFault> {
        let list = self.list_of_any_length(field)?;
        if list.len() == wanted {
            return Ok(list);
        }
        Err(TreeFault::Count { field, wanted, found: list.len() })
    }

    /// Returns a list of numbers of a tree.
    pub(super) fn list_of_any_length<N: FromStr>(&self, field: &'static str) -> Result<Vec<N>, TreeFault> {
        let text = self.get(field).ok_or(TreeFault::MissingField { field })?;
        let number = |word: &str| word.parse().map_err(|_| wrong_number(field, "a list of numbers", word));
        text.split_ascii_whitespace().map(number).collect()
    }
}

/// Returns the fault of a text that is no number here. The library reads it if it begins like one.
fn wrong_number(field: &'static str, wanted: &'static str, text: &str) -> TreeFault {
    if is_number_in_c(text) {
        return TreeFault::Unsupported { what: field, name: quote(text) };
    }
    TreeFault::Field { field, wanted, found: quote(text) }
}

/// Returns whether the functions of C that the library reads numbers with find one at the beginning of a text, such as `1.#INF`,
/// `-nan(ind)`, `0x1p-1`, and `1.5` for an integer.
fn is_number_in_c(text: &str) -> bool {
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text).to_ascii_lowercase();
    let digits = unsigned.strip_prefix('.').unwrap_or(&unsigned);
    digits.starts_with(|first: char| first.is_ascii_digit())
        || unsigned.starts_with("nan")
        || unsigned.starts_with("inf")
}

#[cfg(test)]
mod tests {
    use super::is_number_in_c;

    #[test]
    fn numbers_that_only_c_reads_are_left_to_the_library() {
        for text in ["1.#INF", "-nan(ind)", "0x1p-1", "1.5", ".5e", "+3x", "Infinity!"] {
            assert!(is_number_in_c(text), "{text}");
        }
        for text in ["abc", "", "-", ".", "e5", "n"] {
            assert!(!is_number_in_c(text), "{text}");
        }
    }
}
