//! No traces: everything here is empty, so that nothing of it is left in the executable.

use http::HeaderMap;

use super::{RequestPhase, TracesError};
use crate::types::TraceContext;

/// Where spans go: nowhere.
#[derive(Debug, Clone, Default)]
pub struct Traces(());

/// There are none.
#[derive(Debug)]
pub enum Span {}

impl Traces {
    /// Accepts any endpoint; that nothing is sent there is told where settings are read.
    ///
    /// # Errors
    ///
    /// None.
    pub fn start(_: Option<&str>, _: &str, _: &str) -> Result<Self, TracesError> {
        Ok(Self::default())
    }

    #[inline]
    pub fn request(&self, _: impl FnOnce() -> String, _: &HeaderMap) -> Option<Span> {
        None
    }

    #[inline]
    pub fn batch(&self, _: impl Iterator<Item = TraceContext>, _: usize, _: usize) -> Option<Span> {
        None
    }

    #[inline]
    pub fn record_phase(&self, _: Option<TraceContext>, _: RequestPhase) {}

    pub fn end(&self) {}
}

impl Span {
    pub const fn context(&self) -> TraceContext {
        match *self {}
    }

    pub const fn set(&mut self, _: &'static str, _: i64) {
        match *self {}
    }

    pub const fn fail(&mut self) {
        match *self {}
    }
}
