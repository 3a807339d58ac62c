//! Repositories of the user's own, which say themselves what models there are.

use std::fmt;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

/// A repository that is no folder.
pub trait CustomRepository: fmt::Debug + Send + Sync {
    /// Returns every version of every model that there is.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, CustomError>>;

    /// Returns every version of one model, none when there is no such model.
    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, CustomError>>;
}

/// A model that such a repository has: what its `model-settings.json` would say.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Listed {
    pub settings: Map<String, Value>,
    /// The file that the settings are from, if they are from one.
    pub source: Option<PathBuf>,
}

/// Why such a repository did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct CustomError {
    pub reason: String,
}
