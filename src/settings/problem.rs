//! Problems with settings, which stop the server, and warnings, which do not.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::source::SettingSource;
use crate::types::text::TextError;
use crate::types::{HIDDEN, without_credentials};

/// The error for invalid settings, with all their problems.
#[derive(Debug, Error)]
pub struct SettingsError {
    pub problems: Vec<SettingsProblem>,
}

/// One reason why settings are invalid.
#[derive(Debug, Error)]
pub enum SettingsProblem {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: expected {expected}, found {}", place(key, source_of), as_written(value, source_of))]
    Invalid { key: String, value: Value, expected: String, source_of: SettingSource },
    #[error("{}: expected {expected} as JSON, found `{}`: {error}", place(key, source_of), shorten_text(text))]
    InvalidJson { key: String, text: String, expected: String, error: serde_json::Error, source_of: SettingSource },
    #[error("`{key}` is missing in {}{}", missing_in(file.as_deref()), variable_hint(variable.as_deref()))]
    Missing { key: String, file: Option<PathBuf>, variable: Option<String> },
    #[error("unknown key {}{}", place(key, source_of), nearest_hint(nearest.as_deref()))]
    UnknownKey { key: String, nearest: Option<String>, source_of: SettingSource },
    #[error(
        "{} is not allowed, because only `{}`, the settings file of the operator, may set it: remove it, or set it there",
        place(key, source_of),
        operator.display()
    )]
    OfOperator { key: String, source_of: SettingSource, operator: Arc<Path> },
    #[error("cannot read the settings file of the operator, from {origin}: `{}` does not exist", path.display())]
    NoOperatorFile { path: PathBuf, origin: &'static str },
}

/// Why a settings file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("cannot read `{}`: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("cannot read `{}`: {error}", path.display())]
    Text { path: PathBuf, error: TextError },
    #[error("`{}` is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("`{}` is not valid JSON: {error}", path.display())]
    Syntax { path: PathBuf, error: serde_json::Error },
    /// `found` is the kind of the value: the value may contain secrets.
    #[error("`{}`: expected a JSON object, found {found}", path.display())]
    NotAnObject { path: PathBuf, found: &'static str },
}

/// A suspicious setting that an operator should know about. It does not stop the server.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SettingsWarning {
    #[error("unknown key {}{}", place(key, source_of), nearest_hint(nearest.as_deref()))]
    UnknownKey { key: String, nearest: Option<String>, source_of: SettingSource },
    #[error("unknown {}{}", variable(source_of), nearest_hint(Some(nearest)))]
    UnknownVariable { source_of: SettingSource, nearest: String },
    #[error("{} has no effect: {reason}", place(key, source_of))]
    NoEffect { key: String, reason: &'static str, source_of: SettingSource },
    #[error("ignoring line {line} of `{}`: expected `NAME=value`", path.display())]
    DotenvLine { path: Arc<Path>, line: usize },
    #[error("model name `{name}` differs from the name of its folder `{}`", folder.display())]
    NameDiffers { name: String, folder: PathBuf },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.problems.as_slice() {
            return write!(f, "{problem}");
        }
        write!(f, "{} problems with the settings", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl From<SettingsProblem> for SettingsError {
    fn from(problem: SettingsProblem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// Describes a value by its key and source.
fn place(key: &str, source: &SettingSource) -> String {
    match source {
        SettingSource::Operator(path)
        | SettingSource::File(path)
        | SettingSource::Image(path)
        | SettingSource::Script(path) => format!("`{key}` in `{}`", path.display()),
        SettingSource::Environment(_) | SettingSource::Dotenv { .. } => {
            format!("`{key}` from {}", variable(source))
        }
        SettingSource::Argument(name) => format!("`{key}` from argument `{name}`"),
        SettingSource::Folder | SettingSource::Repository | SettingSource::Default => format!("`{key}`"),
    }
}

fn variable(source: &SettingSource) -> String {
    match source {
        SettingSource::Environment(name) => format!("environment variable `{name}`"),
        SettingSource::Dotenv { path, name } => format!("variable `{name}` of `{}`", path.display()),
        other => other.to_string(),
    }
}

fn missing_in(file: Option<&Path>) -> String {
    file.map_or_else(|| "the environment".to_owned(), |path| format!("`{}`", path.display()))
}

fn variable_hint(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(", and `{name}` is not set"))
}

fn nearest_hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// Quotes a value in the format of its source: variables are text, files are JSON.
fn as_written(value: &Value, source: &SettingSource) -> String {
    match (value, source) {
        (Value::String(text), _) if text == HIDDEN => format!("`{HIDDEN}`"),
        (Value::String(text), SettingSource::Environment(_) | SettingSource::Dotenv { .. }) => {
            format!("`{}`", shorten_text(text))
        }
        _ => shorten(value),
    }
}

fn shorten(value: &Value) -> String {
    format!("`{}`", shorten_text(&value.to_string()))
}

/// Truncates text of a user for a message, and hides credentials of a URL.
fn shorten_text(text: &str) -> String {
    const LONGEST: usize = 80;
    let text = if text.contains("://") { &*without_credentials(text) } else { text };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
