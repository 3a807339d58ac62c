//! Custom repositories, which list their models themselves.

use std::fmt;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

/// A repository that is not a folder.
pub trait CustomRepository: fmt::Debug + Send + Sync {
    /// Returns every version of every model.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, CustomError>>;

    /// Returns every version of one model; empty if there is no such model.
    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, CustomError>>;
}

/// A model of a custom repository, with the content of its `model-settings.json`.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Listed {
    pub settings: Map<String, Value>,
    /// The file that the settings were read from, if any.
    pub source: Option<PathBuf>,
}

/// A custom repository failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct CustomError {
    pub reason: String,
}
