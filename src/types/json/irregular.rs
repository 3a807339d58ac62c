//! Tensor data that is valid JSON, but not what the tensor declares.

use bytes::Bytes;

use super::cursor::Cursor;
use super::number;

/// How deep the data may nest, so that Python can read it.
const MAX_DEPTH: usize = 127;

/// Data of a tensor that does not have the tensor's datatype or shape, as its JSON text. Models in Python see it as it is.
#[derive(Debug, Clone)]
pub struct IrregularData {
    json: Bytes,
    /// The number of values that are not arrays, without those inside of objects.
    elements: usize,
    /// Why the data is not regular, for models that need it to be.
    reason: Box<str>,
}

impl IrregularData {
    /// Creates data from its JSON text.
    ///
    /// Returns `None` if the text is not one JSON value, nests deeper than 127 levels, or has a number beyond a double.
    pub fn new(json: Bytes, reason: impl Into<Box<str>>) -> Option<Self> {
        let mut cursor = Cursor::new(&json);
        cursor.span().ok()?;
        if cursor.peek().is_some() {
            return None;
        }
        let elements = count_elements(&json)?;
        Some(Self { json, elements, reason: reason.into() })
    }

    /// Returns the JSON text, in UTF-8.
    pub const fn json(&self) -> &Bytes {
        &self.json
    }

    /// Returns the number of values in the arrays.
    pub const fn elements(&self) -> usize {
        self.elements
    }

    /// Returns why the data is not regular.
    pub const fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the text if the data is one string.
    pub fn as_text(&self) -> Option<String> {
        serde_json::from_slice(&self.json).ok()
    }

    /// Copies the text out of a larger buffer.
    pub fn detach(&mut self) {
        self.json = Bytes::copy_from_slice(&self.json);
    }
}

impl PartialEq for IrregularData {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

/// Counts the elements of a valid JSON text, or returns `None` if Python could not read it.
fn count_elements(text: &[u8]) -> Option<usize> {
    let (mut position, mut elements, mut depth, mut objects) = (0, 0, 0_usize, 0_usize);
    while let Some(&byte) = text.get(position) {
        if objects == 0 && !matches!(byte, b'[' | b']' | b'}' | b',' | b':' | b' ' | b'\n' | b'\t' | b'\r') {
            elements += 1;
        }
        let length = match byte {
            b'[' | b'{' => {
                depth += 1;
                objects += usize::from(byte == b'{');
                if depth > MAX_DEPTH {
                    return None;
                }
                1
            }
            b']' | b'}' => {
                depth -= 1;
                objects -= usize::from(byte == b'}');
                1
            }
            b'"' => {
                let mut cursor = Cursor { text, position };
                cursor.string().ok()?;
                cursor.position - position
            }
            b'-' | b'0'..=b'9' => {
                let (number, length) = number::scan(&text[position..])?;
                if !number.to_f64().is_finite() {
                    return None;
                }
                length
            }
            b't' | b'n' => 4,
            b'f' => 5,
            _ => 1,
        };
        position += length;
    }
    Some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Option<usize> {
        IrregularData::new(Bytes::copy_from_slice(text.as_bytes()), "").map(|data| data.elements())
    }

    #[test]
    fn elements_are_the_values_of_arrays() {
        for (text, wanted) in [
            ("null", 1),
            ("[]", 0),
            ("[[],[ ]]", 0),
            (r#""a,b""#, 1),
            (r#"[["a]",1.5e3],[true , false,null]]"#, 5),
            (r#"[{"a":[1,2,{"b":3}]},-1,"\"{"]"#, 3),
            (r#"{"a":[1]}"#, 1),
        ] {
            assert_eq!(elements(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_python_could_not_read_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(elements(&nested(127)), Some(0));
        let long = "9".repeat(400);
        for text in ["", "[1] 2", "[1", "nul", "[1e400]", &long, r#"["\ud800"]"#, "[NaN]", &nested(128)] {
            assert_eq!(elements(text), None, "{text}");
        }
        assert!(IrregularData::new(Bytes::from_static(b"[\"\xff\"]"), "").is_none());
    }
}
