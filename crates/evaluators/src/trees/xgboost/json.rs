//! JSON as `XGBoost` writes it: standard JSON plus bare `NaN`, `Infinity` and `-Infinity`.
//!
//! Numbers are parsed directly into typed arrays, without a tree of values in between, and each is parsed as the type
//! it is used as: the shortest decimal form of an `f32`, if read as `f64` first, could be rounded twice.

use std::borrow::Cow;
use std::str::FromStr;

use super::document::{DEPTH, Document};
use crate::trees::error::{LoadError, quote_bytes};

/// A position in a JSON text.
#[derive(Debug)]
pub(super) struct Json<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
}

impl<'a> Json<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, depth: 0 }
    }

    fn space(&mut self) {
        while matches!(self.bytes.get(self.position), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self, reading: &'static str) -> Result<u8, LoadError> {
        self.space();
        let next = self.bytes.get(self.position).copied();
        next.ok_or(LoadError::Truncated { offset: self.bytes.len(), reading })
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), LoadError> {
        if self.peek(wanted)? != byte {
            return Err(self.unexpected(wanted));
        }
        self.position += 1;
        Ok(())
    }

    fn unexpected(&self, wanted: &'static str) -> LoadError {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        LoadError::Syntax { offset: self.position, wanted, found: quote_bytes(rest) }
    }

    fn enter(&mut self) -> Result<(), LoadError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(LoadError::Nesting { offset: self.position, limit: DEPTH });
        }
        Ok(())
    }

    /// Reads the items between brackets.
    fn items(
        &mut self,
        close: u8,
        wanted: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.position += 1;
        if self.peek(wanted)? == close {
            self.position += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            match self.peek(wanted)? {
                b',' => self.position += 1,
                byte if byte == close => {
                    self.position += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected(wanted)),
            }
        }
    }

    /// Returns the bytes of a string between its quotes, with escapes unresolved.
    fn raw_string(&mut self) -> Result<&'a [u8], LoadError> {
        self.expect(b'"', "a string")?;
        let start = self.position;
        loop {
            let rest = self.bytes.get(self.position..).unwrap_or_default();
            let Some(stop) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
                return Err(LoadError::Truncated { offset: self.bytes.len(), reading: "a string" });
            };
            self.position += stop;
            if rest[stop] == b'"' {
                let raw = &self.bytes[start..self.position];
                self.position += 1;
                return Ok(raw);
            }
            self.position += 2;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, LoadError> {
        let raw = self.raw_string()?;
        let text = String::from_utf8_lossy(raw);
        if text.contains('\\') { Ok(Cow::Owned(unescape(&text))) } else { Ok(text) }
    }

    /// Returns a number or a word: everything up to the next delimiter.
    fn token(&mut self, wanted: &'static str) -> Result<&'a str, LoadError> {
        self.peek(wanted)?;
        let rest = &self.bytes[self.position..];
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = rest.iter().position(|byte| !plain(byte)).unwrap_or(rest.len());
        let token = std::str::from_utf8(&rest[..len]).unwrap_or_default();
        if token.is_empty() {
            return Err(self.unexpected(wanted));
        }
        self.position += len;
        Ok(token)
    }

    /// Reads an array of numbers.
    fn numbers<N: FromStr>(
        &mut self,
        wanted: &'static str,
        other: impl Fn(&str) -> Option<N>,
    ) -> Result<Vec<N>, LoadError> {
        if self.peek("an array of numbers")? != b'[' {
            return Err(self.unexpected("an array of numbers"));
        }
        let mut numbers = Vec::new();
        self.items(b']', "`,` or `]`", |json| {
            let token = json.token(wanted)?;
            let number = token.parse().ok().or_else(|| other(token)).ok_or_else(|| {
                let offset = json.position - token.len();
                LoadError::Syntax { offset, wanted, found: quote_bytes(token.as_bytes()) }
            })?;
            numbers.push(number);
            Ok(())
        })?;
        Ok(numbers)
    }
}

impl Document for Json<'_> {
    fn object(&mut self, visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), LoadError>) -> Result<(), LoadError> {
        if self.peek("an object")? != b'{' {
            return Err(self.unexpected("an object"));
        }
        self.enter()?;
        self.items(b'}', "`,` or `}`", |json| {
            let key = json.string()?;
            json.expect(b':', "`:`")?;
            visit(json, &key)
        })?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, visit: &mut dyn FnMut(&mut Self) -> Result<(), LoadError>) -> Result<(), LoadError> {
        if self.peek("an array")? != b'[' {
            return Err(self.unexpected("an array"));
        }
        self.enter()?;
        self.items(b']', "`,` or `]`", visit)?;
        self.depth -= 1;
        Ok(())
    }

    fn text(&mut self) -> Result<String, LoadError> {
        if self.peek("a string")? == b'"' {
            return Ok(self.string()?.into_owned());
        }
        Ok(self.token("a string or a number")?.to_owned())
    }

    fn integers(&mut self) -> Result<Vec<i64>, LoadError> {
        self.numbers("an integer", |token| match token {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        })
    }

    fn floats(&mut self) -> Result<Vec<f32>, LoadError> {
        self.numbers("a number", |_| None)
    }

    fn skip(&mut self) -> Result<(), LoadError> {
        match self.peek("a value")? {
            b'{' => self.object(&mut |json, _| json.skip()),
            b'[' => self.array(&mut Self::skip),
            b'"' => self.raw_string().map(drop),
            _ => self.token("a value").map(drop),
        }
    }
}

/// Resolves the escapes of a JSON string. Invalid escapes are kept.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let (resolved, length) = match escape.as_bytes().first() {
            Some(b'n') => ('\n', 1),
            Some(b't') => ('\t', 1),
            Some(b'r') => ('\r', 1),
            Some(b'b') => ('\u{8}', 1),
            Some(b'f') => ('\u{c}', 1),
            Some(byte @ (b'"' | b'\\' | b'/')) => (char::from(*byte), 1),
            Some(b'u') => code_point(escape),
            _ => ('\\', 0),
        };
        plain.push(resolved);
        rest = &escape[length..];
    }
    plain.push_str(rest);
    plain
}

/// Resolves `uXXXX`, including surrogate pairs, and returns how many bytes it takes.
fn code_point(escape: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = escape.get(at..at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(high) = unit(1) else { return ('\\', 0) };
    if let (0xD800..=0xDBFF, Some("\\u"), Some(low @ 0xDC00..=0xDFFF)) = (high, escape.get(5..7), unit(7)) {
        let combined = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        return (char::from_u32(combined).unwrap_or(char::REPLACEMENT_CHARACTER), 11);
    }
    (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 5)
}

#[cfg(test)]
mod tests {
    use super::{Document, Json, unescape};

    #[test]
    fn json_string_resolves_escapes() {
        assert_eq!(unescape(r#"a\"b\\c\/d\n\t\r\b\f"#), "a\"b\\c/d\n\t\r\u{8}\u{c}");
        assert_eq!(unescape(r"\u00e9\ud83d\ude00\ud800x\u12"), "é😀\u{fffd}x\\u12");
        assert_eq!(unescape("ends in \\"), "ends in \\");
    }

    #[test]
    fn json_numbers_accept_nan_and_infinity() {
        let floats = Json::new(b" [ 5E-1, -0E0,NaN , Infinity,-Infinity ] ").floats().unwrap();
        assert_eq!(floats[..2], [0.5, -0.0]);
        assert!(floats[1].is_sign_negative() && floats[2].is_nan());
        assert_eq!(floats[3..], [f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!(Json::new(b"[1,-2,true,false]").integers().unwrap(), [1, -2, 1, 0]);
        assert!(Json::new(b"[1.5]").integers().is_err());
    }

    #[test]
    fn json_rejects_deep_nesting() {
        let deep = "[".repeat(1_000_000);
        let error = Json::new(deep.as_bytes()).skip().unwrap_err().to_string();
        assert_eq!(error, "byte 64: nested more than 64 levels deep");
    }

    #[test]
    fn json_errors_name_offset_and_expectation() {
        let error = |text: &str| {
            let mut json = Json::new(text.as_bytes());
            json.skip().unwrap_err().to_string()
        };
        assert_eq!(error(r#"{"a" 1}"#), "byte 5: expected `:`, found `1}`");
        assert_eq!(error("[1 2]"), "byte 3: expected `,` or `]`, found `2]`");
        assert_eq!(error("[1,"), "file ends at byte 3, inside a value");
        assert_eq!(error(r#"["a\"#), "file ends at byte 4, inside a string");
    }
}
