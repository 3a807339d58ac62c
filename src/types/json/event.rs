//! The JSON of a `CloudEvent` in structured mode (CloudEvents 1.0, "JSON Event Format", and 0.3).

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::ReadError;
use super::cursor::Cursor;

/// The attributes that every event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// The maximum number of attributes of an event.
const MAX_ATTRIBUTES: usize = 64;
/// The maximum length of the names and values of all attributes, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 16 * 1024;

/// An event, whose data may be a slice of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructuredEvent {
    /// Names and values of all attributes but the data, in their order.
    pub attributes: Vec<(String, String)>,
    pub data: EventData,
}

/// The data of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventData {
    /// JSON at this position of the text.
    Json(Range<usize>),
    /// Binary data, which was base64.
    Binary(Vec<u8>),
}

/// Why a text is not an event.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EventError {
    #[error("the event is not valid JSON: {0}")]
    Json(#[from] ReadError),
    #[error("the event lacks `{attribute}`, which CloudEvents require")]
    Missing { attribute: &'static str },
    #[error("the event lacks `data`")]
    NoData,
    #[error("the event's `data_base64` is not base64")]
    Base64,
    #[error("the event has more than {MAX_ATTRIBUTES} attributes, or they are longer than {MAX_ATTRIBUTE_BYTES} bytes")]
    TooMany,
    #[error("batches of events (`{found}`) are not supported: send each event in a request of its own")]
    Batch { found: String },
}

/// Reads an event. Returns `None` for JSON without `specversion`, which is not an event.
///
/// # Errors
///
/// Fails if the text is not JSON, or if something that events require is missing.
pub fn read_event(text: &[u8]) -> Result<Option<StructuredEvent>, EventError> {
    let mut cursor = Cursor::of_document(text)?;
    if cursor.peek() != Some(b'{') {
        return Ok(None);
    }
    let mut attributes: Vec<(String, String)> = Vec::new();
    let mut bytes = 0_usize;
    let mut data = None;
    let mut encoded = None;
    let mut too_many = false;
    let mut has_version = false;
    cursor.object::<ReadError>(|cursor, key| {
        match key {
            b"data" => {
                let start = cursor.position;
                cursor.span()?;
                data = Some(start..cursor.position);
            }
            b"data_base64" if cursor.peek() == Some(b'"') => encoded = Some(cursor.string()?.into_owned()),
            _ => {
                let name = std::str::from_utf8(key).map_err(|_| cursor.syntax("a key in UTF-8 before this value"))?;
                let value = match cursor.peek() {
                    Some(b'"') => cursor.string()?.into_owned(),
                    Some(b'{' | b'[' | b'n') => {
                        // Attributes are scalars. Other members are ignored.
                        cursor.span()?;
                        return Ok(());
                    }
                    _ => String::from_utf8_lossy(cursor.span()?).into_owned(),
                };
                has_version |= name == REQUIRED[0];
                bytes = bytes.saturating_add(name.len() + value.len());
                if attributes.len() == MAX_ATTRIBUTES || bytes > MAX_ATTRIBUTE_BYTES {
                    too_many = true;
                    return Ok(());
                }
                attributes.push((name.to_owned(), value));
            }
        }
        Ok(())
    })?;
    if cursor.peek().is_some() {
        return Err(cursor.syntax("the end of the event").into());
    }
    let has = |wanted: &str| attributes.iter().any(|(name, _)| name == wanted);
    if !has_version {
        return Ok(None);
    }
    if too_many {
        return Err(EventError::TooMany);
    }
    if let Some(attribute) = REQUIRED.into_iter().find(|attribute| !has(attribute)) {
        return Err(EventError::Missing { attribute });
    }
    let data = match (data, encoded) {
        (Some(data), _) => EventData::Json(data),
        (None, Some(text)) => EventData::Binary(BASE64.decode(text).map_err(|_| EventError::Base64)?),
        (None, None) => return Err(EventError::NoData),
    };
    Ok(Some(StructuredEvent { attributes, data }))
}

/// Writes the beginning and the end of an event. Its data belongs between them.
///
/// `binary` is data that is not JSON; it is part of the beginning.
pub fn write_event(attributes: &[(String, String)], binary: Option<&[u8]>) -> (Vec<u8>, &'static [u8]) {
    let mut text = Vec::with_capacity(256);
    text.push(b'{');
    for (name, value) in attributes {
        super::writer::write_value(&mut text, name);
        text.push(b':');
        super::writer::write_value(&mut text, value);
        text.push(b',');
    }
    match binary {
        None => {
            text.extend_from_slice(b"\"data\":");
            (text, b"}")
        }
        Some(binary) => {
            text.extend_from_slice(b"\"data_base64\":\"");
            text.extend_from_slice(BASE64.encode(binary).as_bytes());
            (text, b"\"}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVENT: &str = r#"{"specversion":"1.0","id":"i","source":"s","type":"t","time":"now","count":3,"flag":true,"other":{"x":1},"data": {"instances":[1]} }"#;

    #[test]
    fn event_attributes_and_data_are_read() {
        let event = read_event(EVENT.as_bytes()).unwrap().unwrap();
        let EventData::Json(range) = event.data else { panic!("not JSON") };
        assert_eq!(&EVENT[range], r#"{"instances":[1]}"#);
        let names: Vec<_> = event.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(names, ["specversion=1.0", "id=i", "source=s", "type=t", "time=now", "count=3", "flag=true"]);
        let (begin, end) = write_event(&event.attributes, None);
        let text = [&begin, b"{}".as_slice(), end].concat();
        assert_eq!(read_event(&text).unwrap().unwrap().attributes, event.attributes);
        let (begin, end) = write_event(&event.attributes, Some(&[255, 0]));
        let binary = read_event(&[&begin, end].concat()).unwrap().unwrap();
        assert_eq!(binary.data, EventData::Binary(vec![255, 0]));
    }

    #[test]
    fn event_that_is_incomplete_is_named() {
        assert_eq!(read_event(br#"{"instances":[1]}"#), Ok(None));
        assert_eq!(read_event(b"[1]"), Ok(None));
        let base = r#"{"specversion":"1.0","source":"s","type":"t"}"#;
        assert_eq!(read_event(base.as_bytes()), Err(EventError::Missing { attribute: "id" }));
        let no_data = base.replace('{', r#"{"id":"i","#);
        assert_eq!(read_event(no_data.as_bytes()), Err(EventError::NoData));
        let wrong = no_data.replace('{', r#"{"data_base64":"?","#);
        assert_eq!(read_event(wrong.as_bytes()), Err(EventError::Base64));
        assert!(matches!(read_event(b"{"), Err(EventError::Json(_))));
    }

    #[test]
    fn event_attributes_are_limited() {
        let many: Vec<String> = (0..100).map(|index| format!(r#""a{index}":"x","#)).collect();
        let long = format!(r#""a":"{}","#, "x".repeat(20_000));
        for attributes in [many.concat(), long] {
            let text = EVENT.replacen('{', &format!("{{{attributes}"), 1);
            assert_eq!(read_event(text.as_bytes()), Err(EventError::TooMany));
        }
    }

    proptest! {
        #[test]
        fn event_reader_never_panics(text in r#"\{("(specversion|id|type|source|data|data_base64)":["\[\]{}:,a1]{0,6},?){0,6}\}?"#) {
            let _ = read_event(text.as_bytes());
        }
    }
}
