//! The JSON of a schema, with as many values as the file may have.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::SkopsError;

/// A value of a schema. Texts without escapes are slices of the file.
#[derive(Debug)]
pub(super) enum SchemaValue<'a> {
    Null,
    Bool,
    /// An integer that is not negative.
    Count(u64),
    Negative(i64),
    Float,
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// Members in the order of the file.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// Parses a schema with at most `limit` values. A member of an object counts twice.
pub(super) fn parse(bytes: &[u8], limit: usize) -> Result<SchemaValue<'_>, SkopsError> {
    let left = Cell::new(limit);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = ValueSeed { left: &left }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|error| match left.get() {
        0 => SkopsError::TooMany { what: "values in `schema.json`", limit },
        _ => SkopsError::Json { error },
    })
}

impl SchemaValue<'_> {
    /// Returns a member of an object. Of several with one name, the last counts, as in Python.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns a member that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// Reads a value, and counts it.
#[derive(Clone, Copy)]
struct ValueSeed<'c> {
    left: &'c Cell<usize>,
}

impl ValueSeed<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom("too many values"))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = SchemaValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SchemaValue<'de>, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = SchemaValue<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Bool)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Count(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Negative(value))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Float)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SchemaValue<'de>, E> {
        Ok(SchemaValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<SchemaValue<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(SchemaValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<SchemaValue<'de>, A::Error> {
        let mut object = Vec::new();
        while let Some(name) = members.next_key_seed(NameSeed)? {
            // A member takes as much memory as two values.
            self.count()?;
            object.push((name, members.next_value_seed(self)?));
        }
        Ok(SchemaValue::Object(object))
    }
}

/// Reads the name of a member.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// The limit on values relies on this size.
const _: () = assert!(size_of::<SchemaValue<'_>>() <= 32);
