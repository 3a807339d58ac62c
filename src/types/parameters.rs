//! The open maps that requests, responses and tensors carry in addition to their data.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Seldom;

const CONTENT_TYPE: &str = "content_type";
/// See [`Parameters::has_named_columns`].
const NAMED_COLUMNS: &str = "named_columns";

/// An open map of JSON values: the content type, which most of them have, and the rest in the order of the source.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    /// A separate field because nearly every response has one, and usually nothing else.
    pub content_type: Option<Cow<'static, str>>,
    /// Everything else.
    pub others: Seldom<Map<String, Value>>,
    /// Whether the source has an object without members, which models in Python distinguish from none.
    pub is_given: bool,
}

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        (&self.content_type, &self.others) == (&other.content_type, &other.others)
    }
}

impl Parameters {
    /// Returns an empty map, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a map that holds only a content type.
    pub fn with_content_type(content_type: impl Into<Cow<'static, str>>) -> Self {
        Self { content_type: Some(content_type.into()), ..Self::default() }
    }

    /// Returns the parameters of a request whose inputs are columns that the client has named: a table over the V1 protocol or of
    /// `mlserver infer`.
    pub fn of_columns() -> Self {
        let mut parameters = Self::with_content_type("pd");
        parameters.others.insert(NAMED_COLUMNS.to_owned(), true.into());
        parameters
    }

    /// Returns whether the client has named the columns. A model that knows none of the names then rejects the request, instead of
    /// taking the columns by position.
    pub fn has_named_columns(&self) -> bool {
        self.others.get(NAMED_COLUMNS).is_some_and(|value| value == true)
    }

    /// Returns an empty map that is written as an object without members.
    pub fn given() -> Self {
        Self { is_given: true, ..Self::default() }
    }

    /// Returns whether the map has no members and its source did not have it.
    pub fn is_absent(&self) -> bool {
        self.is_empty() && !self.is_given
    }

    pub fn is_empty(&self) -> bool {
        self.content_type.is_none() && self.others.is_empty()
    }

    /// Returns the content type, or `None` if there is none or it is not a string.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Returns the number of keys, including those of nested objects.
    pub(super) fn keys(&self) -> usize {
        usize::from(self.content_type.is_some()) + keys_of(&self.others)
    }
}

fn keys_of(members: &Map<String, Value>) -> usize {
    fn nested(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(nested).sum(),
            Value::Object(members) => keys_of(members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    members.len() + members.values().map(nested).sum::<usize>()
}

impl From<Map<String, Value>> for Parameters {
    fn from(mut others: Map<String, Value>) -> Self {
        let content_type = match others.get_mut(CONTENT_TYPE) {
            Some(Value::String(text)) => Some(Cow::Owned(std::mem::take(text))),
            _ => None,
        };
        if content_type.is_some() {
            others.shift_remove(CONTENT_TYPE);
        }
        Self { content_type, others: others.into(), is_given: false }
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Self::from(Map::deserialize(deserializer)?);
        // Members that the transport takes do not count.
        Ok(Self { is_given: read.is_empty(), ..read })
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(usize::from(self.content_type.is_some()) + self.others.len()))?;
        if let Some(content_type) = self.content_type() {
            map.serialize_entry(CONTENT_TYPE, content_type)?;
        }
        for (key, value) in self.others.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_write_the_content_type_first() {
        let parameters: Parameters = serde_json::from_str(r#"{"b":1,"content_type":"np","a":null}"#).unwrap();
        assert_eq!(parameters.content_type(), Some("np"));
        assert_eq!(serde_json::to_string(&parameters).unwrap(), r#"{"content_type":"np","b":1,"a":null}"#);
        let parameters: Parameters = serde_json::from_str(r#"{"content_type":1}"#).unwrap();
        assert_eq!(parameters.content_type(), None, "a content type is a string");
        assert_eq!(serde_json::to_string(&parameters).unwrap(), r#"{"content_type":1}"#);
    }
}
