//! Settings with the sources of their values.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

/// The source that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// A command-line argument, with the name that the help uses.
    Argument(&'static str),
    /// The settings file of the operator.
    Operator(Arc<Path>),
    /// A settings file of the served folder.
    File(Arc<Path>),
    /// A settings file that was baked into an image, below the environment.
    Image(Arc<Path>),
    /// An environment variable, in its original spelling.
    Environment(String),
    /// A variable of a `.env` file.
    Dotenv { path: Arc<Path>, name: String },
    /// The folder of the model's settings file.
    Folder,
    /// A custom repository class.
    Repository,
    /// The script that is served.
    Script(Arc<Path>),
    /// The default, because no source set it.
    Default,
}

/// The effective value of a setting, with its name and source.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingEntry {
    /// The name, including those of the objects that contain it: `parameters.uri`.
    pub key: String,
    pub value: Value,
    pub source: SettingSource,
}

impl SettingSource {
    /// Returns the form that `config show --format json` prints.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Argument(name) => json!({"kind": "argument", "name": name}),
            Self::Operator(path) => json!({"kind": "operator", "path": path.to_string_lossy()}),
            Self::File(path) => json!({"kind": "file", "path": path.to_string_lossy()}),
            Self::Image(path) => json!({"kind": "image", "path": path.to_string_lossy()}),
            Self::Environment(name) => json!({"kind": "environment", "name": name}),
            Self::Dotenv { path, name } => {
                json!({"kind": "dotenv", "path": path.to_string_lossy(), "name": name})
            }
            Self::Folder => json!({"kind": "folder"}),
            Self::Repository => json!({"kind": "repository"}),
            Self::Script(path) => json!({"kind": "script", "path": path.to_string_lossy()}),
            Self::Default => json!({"kind": "default"}),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => write!(f, "argument {name}"),
            Self::File(path) | Self::Script(path) => write!(f, "{}", path.display()),
            Self::Operator(path) => write!(f, "{}, the settings file of the operator", path.display()),
            Self::Image(path) => write!(f, "{}, a default of the image", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Dotenv { path, name } => write!(f, "{} {name}", path.display()),
            Self::Folder => f.write_str("folder of the file"),
            Self::Repository => f.write_str("model repository"),
            Self::Default => f.write_str("default"),
        }
    }
}
