//! Why a file could not be read as a skops file.

use thiserror::Error;

/// A file that is damaged, that needs something only Python can do, or that is too large.
#[derive(Debug, Error)]
pub enum SkopsError {
    #[error("the zip archive is damaged: {what}")]
    Archive { what: &'static str },
    #[error("`{entry}` in the archive is damaged: {what}")]
    Entry { entry: String, what: &'static str },
    #[error("the archive has no `{entry}`")]
    Missing { entry: String },
    /// Archives that Python may read, but that skops does not write.
    #[error("the archive is not one that skops writes: {what}")]
    UnusualArchive { what: &'static str },
    #[error("the archive is not one that skops writes: `{entry}` {what}")]
    UnusualEntry { entry: String, what: &'static str },
    #[error("the archive decompresses to more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
    #[error("`schema.json` cannot be read: {error}")]
    Json { error: serde_json::Error },
    #[error("`schema.json`: `{class}` has no {wanted}")]
    Schema { class: String, wanted: &'static str },
    #[error("the file was written with protocol {found} of skops; protocols 0 to {newest} are read")]
    Protocol { found: String, newest: i64 },
    /// A loader of a later version, or one that needs another library.
    #[error("`{class}` is stored as `{loader}`, which is not known to only hold data")]
    Loader { class: String, loader: String },
    /// The values of an object are not restored as they were, or in a way that is not known here.
    #[error("`{class}` cannot be read without Python: {what}")]
    Unsupported { class: String, what: &'static str },
    #[error("`{entry}` in the archive is not an array that can be read: expected {wanted}")]
    Array { entry: String, wanted: &'static str },
}

impl SkopsError {
    /// Returns whether Python may be able to load the file: it is not damaged, only not supported here.
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::Archive { .. } | Self::Entry { .. } | Self::Missing { .. })
    }
}
