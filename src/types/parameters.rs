//! The open maps that requests, responses and tensors carry beside their data.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An open map of JSON values, in the order they were written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parameters(pub Map<String, Value>);

impl Parameters {
    /// Returns an empty map, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a map that holds only a content type.
    pub fn with_content_type(content_type: &str) -> Self {
        let mut map = Map::new();
        map.insert("content_type".to_owned(), Value::from(content_type));
        Self(map)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the content type, when there is one and it is text.
    pub fn content_type(&self) -> Option<&str> {
        self.0.get("content_type")?.as_str()
    }
}
