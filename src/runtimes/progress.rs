//! When a prediction begins.

use std::fmt;

/// Is told how far a request has come.
pub trait Progress: fmt::Debug + Send + Sync + 'static {
    /// The request waits for nothing any more: its prediction begins. May be told more than once.
    fn begin(&self);
}

/// Nobody wants to know.
impl Progress for () {
    fn begin(&self) {}
}
