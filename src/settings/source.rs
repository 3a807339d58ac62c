//! Where a value came from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

/// The source that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// An argument of the command line, under the name its help uses.
    Argument(&'static str),
    /// A settings file.
    File(Arc<Path>),
    /// An environment variable, spelt as it is set.
    Environment(String),
    /// A variable of a `.env` file.
    Dotenv { path: Arc<Path>, name: String },
    /// The folder which holds the model's settings file.
    Folder,
    /// The repository of the user's own.
    Repository,
    /// Nothing set it.
    Default,
}

/// An effective value, its name, and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingEntry {
    /// The name, with the names of the objects that hold it: `parameters.uri`.
    pub key: String,
    pub value: Value,
    pub source: SettingSource,
}

impl SettingSource {
    /// Returns the form which `config show --format json` prints.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Argument(name) => json!({"kind": "argument", "name": name}),
            Self::File(path) => json!({"kind": "file", "path": path.to_string_lossy()}),
            Self::Environment(name) => json!({"kind": "environment", "name": name}),
            Self::Dotenv { path, name } => {
                json!({"kind": "dotenv", "path": path.to_string_lossy(), "name": name})
            }
            Self::Folder => json!({"kind": "folder"}),
            Self::Repository => json!({"kind": "repository"}),
            Self::Default => json!({"kind": "default"}),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => write!(f, "argument {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Dotenv { path, name } => write!(f, "{} {name}", path.display()),
            Self::Folder => f.write_str("folder of the file"),
            Self::Repository => f.write_str("model repository"),
            Self::Default => f.write_str("default"),
        }
    }
}
