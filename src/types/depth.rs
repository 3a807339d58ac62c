//! How many requests led to a request: graphs that ask each other over several servers would do so without an end.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The number of requests of which a request is a step, on all servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepDepth(pub usize);

impl StepDepth {
    /// The header, and the metadata of gRPC, with which the depth travels to another server.
    pub const HEADER: HeaderName = HeaderName::from_static("request-depth");

    /// Returns the depth that a caller gives; 0 if it gives none, or one that is not a number.
    pub fn of(headers: &HeaderMap) -> Self {
        let depth = headers.get(Self::HEADER).and_then(|depth| depth.to_str().ok()?.parse().ok());
        Self(depth.unwrap_or_default())
    }

    /// Sets the depth of a request that is sent to another server.
    pub fn set(self, headers: &mut HeaderMap) {
        headers.insert(Self::HEADER, HeaderValue::from(self.0));
    }
}
