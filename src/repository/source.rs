//! What keeps the folder of a repository up to date, if its models are in a store.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::CustomError;

/// Fills the folder of a repository from elsewhere.
pub trait FolderSource: fmt::Debug + Send + Sync {
    /// Brings the folder up to date, unless that began within `age` before this call.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read. The folder stays as it was then.
    fn refresh(&self, age: Duration) -> BoxFuture<'_, Result<(), CustomError>>;

    /// Returns a hash of the state of all files at or below a path of the folder, or `None` if it is not known.
    fn state(&self, path: &Path) -> Option<blake3::Hash>;
}
