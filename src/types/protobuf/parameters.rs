//! Parameters: of the JSON types, the wire has booleans, numbers and strings.
//!
//! The original has booleans, signed integers and strings. The other numbers are those of Open Inference, which clients of
//! other servers send.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ReadError;
use super::messages::InferParameter;
use super::messages::infer_parameter::ParameterChoice;
use super::wire::{WireField, field_len, put_double, put_field, put_varint, varint_len};
use crate::types::Parameters;

const KEY: u32 = 1;
const VALUE: u32 = 2;
const BOOL: u32 = 1;
const INT64: u32 = 2;
const STRING: u32 = 3;
const DOUBLE: u32 = 4;
const UINT64: u32 = 5;

/// Reads one entry of a map. A parameter without a value is `null`, and so are NaN and infinities, which JSON does not have.
pub(super) fn read(entry: &WireField<'_>, parameters: &mut Map<String, Value>) -> Result<(), ReadError> {
    let (mut key, mut value) = ("", Value::Null);
    let mut entry = entry.message()?;
    while let Some(field) = entry.field()? {
        match field.number {
            KEY => key = field.text()?,
            VALUE => {
                let mut choices = field.message()?;
                while let Some(choice) = choices.field()? {
                    match choice.number {
                        BOOL => value = Value::from(choice.varint()? != 0),
                        INT64 => value = Value::from(choice.varint()?.cast_signed()),
                        STRING => value = Value::from(choice.text()?),
                        DOUBLE => value = Value::from(choice.double()?),
                        UINT64 => value = Value::from(choice.varint()?),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    parameters.insert(key.to_owned(), value);
    Ok(())
}

/// A parameter that has a form on the wire. Lists, objects and `null` have none.
#[derive(Clone, Copy)]
enum WireParameter<'a> {
    Bool(bool),
    Int64(i64),
    String(&'a str),
    Double(f64),
    /// Above the range of `Int64`.
    Uint64(u64),
}

impl<'a> WireParameter<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Number(number) => {
                let integer = number.as_i64().map(Self::Int64).or_else(|| number.as_u64().map(Self::Uint64));
                integer.or_else(|| number.as_f64().map(Self::Double))
            }
            Value::String(text) => Some(Self::String(text)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Bool(_) => 2,
            Self::Int64(value) => 1 + varint_len(value.cast_unsigned()),
            Self::String(text) => field_len(STRING, text.len()),
            Self::Double(_) => 9,
            Self::Uint64(value) => 1 + varint_len(value),
        }
    }

    fn write(self, buffer: &mut Vec<u8>) {
        let tag = |number: u32| u64::from(number << 3);
        match self {
            Self::Bool(value) => {
                put_varint(buffer, tag(BOOL));
                put_varint(buffer, u64::from(value));
            }
            Self::Int64(value) => {
                put_varint(buffer, tag(INT64));
                put_varint(buffer, value.cast_unsigned());
            }
            Self::String(text) => {
                put_field(buffer, STRING, text.len());
                buffer.extend_from_slice(text.as_bytes());
            }
            Self::Double(value) => put_double(buffer, DOUBLE, value),
            Self::Uint64(value) => {
                put_varint(buffer, tag(UINT64));
                put_varint(buffer, value);
            }
        }
    }
}

/// Returns the parameters that have a form on the wire.
fn choices(parameters: &Parameters) -> impl Iterator<Item = (&str, WireParameter<'_>)> {
    let content_type = parameters.content_type().map(|text| ("content_type", WireParameter::String(text)));
    let others = parameters.others.iter().filter_map(|(key, value)| Some((key.as_str(), WireParameter::of(value)?)));
    content_type.into_iter().chain(others)
}

const fn entry_len(key: &str, choice: WireParameter<'_>) -> usize {
    field_len(KEY, key.len()) + field_len(VALUE, choice.len())
}

/// Returns the size in bytes of the map as the field with this number.
pub(super) fn len(number: u32, parameters: &Parameters) -> usize {
    choices(parameters).map(|(key, choice)| field_len(number, entry_len(key, choice))).sum()
}

/// Writes the map as the field with this number. Like the original, it omits parameters that have no form on the wire.
pub(super) fn write(buffer: &mut Vec<u8>, number: u32, parameters: &Parameters) {
    for (key, choice) in choices(parameters) {
        put_field(buffer, number, entry_len(key, choice));
        put_field(buffer, KEY, key.len());
        buffer.extend_from_slice(key.as_bytes());
        put_field(buffer, VALUE, choice.len());
        choice.write(buffer);
    }
}

/// Converts parameters for a generated message. Omits those that have no form on the wire.
pub fn to_map(parameters: &Parameters) -> BTreeMap<String, InferParameter> {
    let convert = |(key, choice): (&str, WireParameter<'_>)| {
        let choice = match choice {
            WireParameter::Bool(value) => ParameterChoice::BoolParam(value),
            WireParameter::Int64(value) => ParameterChoice::Int64Param(value),
            WireParameter::String(text) => ParameterChoice::StringParam(text.to_owned()),
            WireParameter::Double(value) => ParameterChoice::DoubleParam(value),
            WireParameter::Uint64(value) => ParameterChoice::Uint64Param(value),
        };
        (key.to_owned(), InferParameter { parameter_choice: Some(choice) })
    };
    choices(parameters).map(convert).collect()
}
