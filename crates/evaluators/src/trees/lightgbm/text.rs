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
        Err(LoadError::Truncated { offset: text.len(), reading: "the trees" })
    }
}

impl<'a> Section<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).copied()
    }

    /// Returns a number of the header.
    pub(super) fn number<N: FromStr>(&self, field: &'static str) -> Result<N, LoadError> {
        let text = self.get(field).ok_or(LoadError::MissingField { field })?;
        text.trim().parse().map_err(|_| LoadError::Field { field, wanted: "a number", found: quote(text) })
    }

    /// Returns a number of a tree.
    pub(super) fn tree_number<N: FromStr>(&self, field: &'static str) -> Result<N, TreeFault> {
        let text = self.get(field).ok_or(TreeFault::MissingField { field })?;
        text.trim().parse().map_err(|_| TreeFault::Field { field, wanted: "a number", found: quote(text) })
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
        let number = |word: &str| {
            let wanted = "a list of numbers";
            word.parse().map_err(|_| TreeFault::Field { field, wanted, found: quote(word) })
        };
        text.split_ascii_whitespace().map(number).collect()
    }
}
