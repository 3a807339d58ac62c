//! Python's formats: JSON with Python's extensions and error messages, and the `repr` of values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// How deep values may be nested. Tables and tensors are far less deep.
const MAX_DEPTH: usize = 100;

/// A JSON value, as Python reads it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, as it was written.
    Big(String),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Why a text is not valid JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonError {
    /// Contains the message of Python's `JSONDecodeError`.
    Syntax(String),
    Depth,
}

/// Parses a text as Python's `json.loads` does: `NaN` and `Infinity` are numbers, and the last of several equal keys counts.
pub(super) fn read(text: &str) -> Result<Json, JsonError> {
    let mut parser = JsonParser { text, position: 0 };
    parser.skip_space();
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.position < text.len() { Err(parser.error("Extra data", parser.position)) } else { Ok(value) }
}

struct JsonParser<'a> {
    text: &'a str,
    position: usize,
}

impl JsonParser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    fn error(&self, message: &str, at: usize) -> JsonError {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        JsonError::Syntax(format!("{message}: line {line} column {column} (char {})", before.chars().count()))
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::Depth);
        }
        let words = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
            ("NaN", Json::Float(f64::NAN)),
            ("Infinity", Json::Float(f64::INFINITY)),
            ("-Infinity", Json::Float(f64::NEG_INFINITY)),
        ];
        match self.peek() {
            Some(b'"') => self.string().map(Json::Text),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            _ => {
                if let Some((word, value)) = words.into_iter().find(|(word, _)| self.rest().starts_with(word)) {
                    self.position += word.len();
                    return Ok(value);
                }
                self.number().ok_or_else(|| self.error("Expecting value", self.position))
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let bytes = self.rest().as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let start = usize::from(bytes.first() == Some(&b'-'));
        let mut end = match bytes.get(start) {
            Some(b'0') => start + 1,
            Some(b'1'..=b'9') => start + digits(start),
            _ => return None,
        };
        let mut whole = true;
        if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
            whole = false;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if digits(end + 1 + sign) > 0 {
                end += 1 + sign + digits(end + 1 + sign);
                whole = false;
            }
        }
        let text = &self.rest()[..end];
        let number = if whole {
            text.parse().map_or_else(|_| Json::Big(text.to_owned()), Json::Int)
        } else {
            Json::Float(text.parse().ok()?)
        };
        self.position += end;
        Some(number)
    }

    fn list(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.position += 1;
        self.skip_space();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            match self.peek() {
                Some(b']') => {
                    self.position += 1;
                    return Ok(Json::List(items));
                }
                Some(b',') => self.position += 1,
                _ => return Err(self.error("Expecting ',' delimiter", self.position)),
            }
            self.skip_space();
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.position += 1;
        self.skip_space();
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(Json::Object(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.error("Expecting property name enclosed in double quotes", self.position));
            }
            let name = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.error("Expecting ':' delimiter", self.position));
            }
            self.position += 1;
            self.skip_space();
            let value = self.value(depth + 1)?;
            if let Some(&place) = places.get(&name) {
                entries[place].1 = value;
            } else {
                places.insert(name.clone(), entries.len());
                entries.push((name, value));
            }
            self.skip_space();
            match self.peek() {
                Some(b'}') => {
                    self.position += 1;
                    return Ok(Json::Object(entries));
                }
                Some(b',') => self.position += 1,
                _ => return Err(self.error("Expecting ',' delimiter", self.position)),
            }
            self.skip_space();
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        let start = self.position;
        self.position += 1;
        let mut text = String::new();
        loop {
            let plain = self.rest().find(|c: char| c == '"' || c == '\\' || c < ' ');
            let Some(length) = plain else { return Err(self.error("Unterminated string starting at", start)) };
            text.push_str(&self.rest()[..length]);
            self.position += length;
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.position += 1;
                    text.push(self.escape(start)?);
                }
                _ => return Err(self.error("Invalid control character at", self.position)),
            }
        }
    }

    /// Reads an escape sequence after its backslash. Lone surrogates, which are invalid in Rust's strings, are replaced.
    fn escape(&mut self, start: usize) -> Result<char, JsonError> {
        let Some(escaped) = self.rest().chars().next() else {
            return Err(self.error("Unterminated string starting at", start));
        };
        let known = "\"\\/bfnrt".find(escaped).and_then(|place| "\"\\/\u{8}\u{c}\n\r\t".chars().nth(place));
        if let Some(known) = known {
            self.position += 1;
            return Ok(known);
        }
        if escaped != 'u' {
            return Err(self.error("Invalid \\escape", self.position - 1));
        }
        let high = self.unit()?;
        if (0xD800..0xDC00).contains(&high) && self.rest().starts_with("\\u") {
            let before = self.position;
            self.position += 1;
            let low = self.unit()?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.position = before;
        }
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Reads the four hexadecimal digits after `u`.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.position + 1..self.position + 5);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("Invalid \\uXXXX escape", self.position))?;
        self.position += 5;
        Ok(code)
    }
}

impl Json {
    /// Returns the name of the class in Python.
    pub(super) const fn class(&self) -> &'static str {
        match self {
            Self::Null => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Big(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Object(_) => "dict",
        }
    }

    /// Formats the value as Python's `repr` does.
    pub(super) fn repr(&self) -> String {
        match self {
            Self::Null => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Int(value) => value.to_string(),
            Self::Big(digits) => digits.clone(),
            Self::Float(value) => float(*value),
            Self::Text(text) => repr(text),
            Self::List(items) => list(items.iter().map(Self::repr)),
            Self::Object(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(name, value)| format!("{}: {}", repr(name), value.repr())).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// Formats the value as Python's `str` does.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.repr(),
        }
    }
}

/// The most bytes of a request, and of a name in it, that messages repeat. Their escapes may be longer.
const MAX_ECHO: usize = 1024;
const MAX_NAME: usize = 128;

/// Cuts a text of a request for a message.
pub(super) fn echo(text: &str) -> Cow<'_, str> {
    cut(text, MAX_ECHO)
}

/// Cuts a name in a request for a message.
pub(super) fn echo_name(name: &str) -> Cow<'_, str> {
    cut(name, MAX_NAME)
}

/// Formats the bytes of a request for a message, as `repr` does.
pub(super) fn echo_bytes(bytes: &[u8]) -> String {
    match bytes.get(..MAX_ECHO) {
        Some(start) if bytes.len() > MAX_ECHO => format!("{}...", repr_bytes(start)),
        _ => repr_bytes(bytes),
    }
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}...", &text[..text.floor_char_boundary(most)]))
}

/// Formats a list of formatted items.
pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Writes a text as Python's `repr` does.
pub(super) fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut written = String::with_capacity(text.len() + 2);
    written.push(quote);
    for c in text.chars() {
        match c {
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            '\\' => written.push_str("\\\\"),
            c if c == quote => written.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(written, "\\x{:02x}", u32::from(c));
            }
            c => written.push(c),
        }
    }
    written.push(quote);
    written
}

/// Writes bytes as Python's `repr` does.
fn repr_bytes(bytes: &[u8]) -> String {
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { b'"' } else { b'\'' };
    let mut written = format!("b{}", char::from(quote));
    for &byte in bytes {
        match byte {
            b'\n' => written.push_str("\\n"),
            b'\r' => written.push_str("\\r"),
            b'\t' => written.push_str("\\t"),
            b'\\' => written.push_str("\\\\"),
            byte if byte == quote => written.extend(['\\', char::from(byte)]),
            b' '..=b'~' => written.push(char::from(byte)),
            byte => {
                let _ = write!(written, "\\x{byte:02x}");
            }
        }
    }
    written.push(char::from(quote));
    written
}

/// Formats a tuple of sizes.
pub(super) fn tuple<T: ToString>(sizes: &[T]) -> String {
    match sizes {
        [one] => format!("({},)", one.to_string()),
        _ => format!("({})", sizes.iter().map(T::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Formats a number as Python's `repr` does. Unlike in Python's JSON, special values are `nan` and `inf`.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) || value == 0.0 {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// Writes a number as Python's JSON does.
pub(super) fn write_float(out: &mut String, value: f64) {
    match value {
        value if value.is_nan() => out.push_str("NaN"),
        value if value.is_infinite() => out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
        value => out.push_str(&float(value)),
    }
}

/// Writes a text as Python's JSON does: characters outside of ASCII are escaped.
pub(super) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Parses a text as Python's `float` does.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    without_underscores(text.trim())?.parse().ok()
}

/// Parses a text as Python's `int` does, if the value has at most 64 bits.
pub(super) fn parse_int(text: &str) -> Option<i64> {
    without_underscores(text.trim())?.parse().ok()
}

/// Removes underscores. Returns `None` if one of them is not between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let between = |at: usize| {
        let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1))
    };
    let lone = bytes.iter().enumerate().any(|(at, byte)| *byte == b'_' && !between(at));
    (!lone).then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_json_matches_python() {
        let read = |text| read(text).map(|value| value.repr());
        let good = [
            ("[1, -2.5, 1e3, true, null]", "[1, -2.5, 1000.0, True, None]"),
            (" {\"a\": 1, \"b\": NaN, \"a\": [\"\\u00fc\\ud83d\\ude00'\"]} ", "{'a': [\"ü😀'\"], 'b': nan}"),
            ("36893488147419103232", "36893488147419103232"),
            ("[-Infinity, 1e-7, 1e16, 0.0001, -0.0]", "[-inf, 1e-07, 1e+16, 0.0001, -0.0]"),
            ("[]", "[]"),
            ("{}", "{}"),
        ];
        for (text, wanted) in good {
            assert_eq!(read(text).as_deref(), Ok(wanted), "{text}");
        }
        let bad = [
            ("", "Expecting value: line 1 column 1 (char 0)"),
            ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            ("[1,]", "Expecting value: line 1 column 4 (char 3)"),
            ("{\"ü\"\n 1}", "Expecting ':' delimiter: line 2 column 2 (char 6)"),
            ("[1 2]", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
            ("1 2", "Extra data: line 1 column 3 (char 2)"),
            ("\"a", "Unterminated string starting at: line 1 column 1 (char 0)"),
            ("\"\t\"", "Invalid control character at: line 1 column 2 (char 1)"),
            ("\"\\x\"", "Invalid \\escape: line 1 column 2 (char 1)"),
            ("\"\\u12\"", "Invalid \\uXXXX escape: line 1 column 3 (char 2)"),
        ];
        for (text, wanted) in bad {
            assert_eq!(read(text), Err(JsonError::Syntax(wanted.to_owned())), "{text}");
        }
        assert_eq!(read(&"[".repeat(1 << 20)), Err(JsonError::Depth));
    }

    #[test]
    fn echoes_are_cut_between_characters() {
        assert_eq!(echo("short"), "short");
        assert_eq!(echo_name(&"ü".repeat(100)), format!("{}...", "ü".repeat(64)));
        assert_eq!(echo_name(&format!("a{}", "ü".repeat(100))), format!("a{}...", "ü".repeat(63)));
        assert_eq!(echo_bytes(b"\xff"), "b'\\xff'");
        assert_eq!(echo_bytes(&[b'a'; 5000]).len(), 1024 + "b''...".len());
    }

    #[test]
    fn parse_float_and_parse_int_match_python() {
        let floats =
            [("1_0", Some(10.0)), (" .5 ", Some(0.5)), ("-INF", Some(f64::NEG_INFINITY)), ("_1", None), ("", None)];
        for (text, wanted) in floats {
            assert_eq!(parse_float(text), wanted, "{text}");
        }
        assert_eq!((parse_int(" +07 "), parse_int("1.0"), parse_int("1__0")), (Some(7), None, None));
    }
}
