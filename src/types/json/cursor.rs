//! A position in JSON text, and the parsing steps that all readers share.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::StreamDeserializer;
use serde_json::de::SliceRead;

use super::ReadError;
use crate::types::shape::MAX_DIMENSIONS;
use crate::types::text;

/// The maximum nesting of arrays of tensor data; few enough levels for the stack.
pub(super) const MAX_DEPTH: usize = MAX_DIMENSIONS;

/// A position in JSON text.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, position: 0 }
    }

    /// Returns the position at which a document starts, after a byte-order mark.
    pub(super) fn of_document(text: &'a [u8]) -> Result<Self, ReadError> {
        let position = text.len() - text::without_mark(text).map_err(ReadError::Encoding)?.len();
        Ok(Self { text, position })
    }

    pub(super) const fn syntax(&self, expected: &'static str) -> ReadError {
        ReadError::Syntax { offset: self.position, expected }
    }

    #[inline]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.position += 1;
        }
    }

    /// Skips white space and returns the byte after it without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    /// Consumes `wanted` after white space, or keeps the position and returns false.
    #[inline]
    pub(super) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.position += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, wanted: u8, expected: &'static str) -> Result<(), ReadError> {
        if self.take(wanted) { Ok(()) } else { Err(self.syntax(expected)) }
    }

    /// Consumes a literal such as `null`, or keeps the position and returns false.
    #[inline]
    pub(super) fn literal(&mut self, word: &str) -> bool {
        if self.peek() != word.bytes().next() {
            return false;
        }
        let found = self.text[self.position..].starts_with(word.as_bytes());
        if found {
            self.position += word.len();
        }
        found
    }

    /// Reads a string whose opening quote is next; borrowed unless it has escapes.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, ReadError> {
        self.expect(b'"', "a string")?;
        let start = self.position;
        let rest = &self.text[start..];
        match plain_length(rest) {
            Some(end) if rest[end] == b'"' => {
                let text = std::str::from_utf8(&rest[..end])
                    .map_err(|error| ReadError::Syntax { offset: start + error.valid_up_to(), expected: "UTF-8" })?;
                self.position = start + end + 1;
                Ok(Cow::Borrowed(text))
            }
            // Escapes are rare in names and ids, so the library handles them.
            Some(_) => {
                let span = self.span_from(start - 1)?;
                let text = serde_json::from_slice(span)
                    .map_err(|_| ReadError::Syntax { offset: start, expected: "a valid string" })?;
                Ok(Cow::Owned(text))
            }
            None => Err(ReadError::Syntax { offset: self.text.len(), expected: "the end of the string" }),
        }
    }

    /// Skips the next value and returns its text, which is known to be valid JSON.
    pub(super) fn span(&mut self) -> Result<&'a [u8], ReadError> {
        self.skip_space();
        self.span_from(self.position)
    }

    fn span_from(&mut self, start: usize) -> Result<&'a [u8], ReadError> {
        let rest = &self.text[start..];
        let mut values = StreamDeserializer::<_, IgnoredAny>::new(SliceRead::new(rest));
        match values.next() {
            Some(Ok(_)) => {
                let end = start + values.byte_offset();
                let span = &self.text[start..end];
                std::str::from_utf8(span)
                    .map_err(|error| ReadError::Syntax { offset: start + error.valid_up_to(), expected: "UTF-8" })?;
                self.position = end;
                Ok(span)
            }
            _ => Err(ReadError::Syntax { offset: start, expected: "a JSON value" }),
        }
    }

    /// Reads a key's bytes, which are valid JSON but not checked to be UTF-8.
    fn key(&mut self) -> Result<Cow<'a, [u8]>, ReadError> {
        let start = self.position + 1;
        let rest = self.text.get(start..).unwrap_or_default();
        match plain_length(rest) {
            Some(end) if rest[end] == b'"' => {
                self.position = start + end + 1;
                Ok(Cow::Borrowed(&rest[..end]))
            }
            _ => self.string().map(|key| match key {
                Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
                Cow::Owned(key) => Cow::Owned(key.into_bytes()),
            }),
        }
    }

    /// Skips the value of an unknown key.
    pub(super) fn skip_member(&mut self, key: &[u8]) -> Result<(), ReadError> {
        if std::str::from_utf8(key).is_err() {
            return Err(self.syntax("a key in UTF-8 before this value"));
        }
        self.span().map(drop)
    }

    /// Calls `member` with each key of an object; the cursor is then before the value. Stops at the first error.
    #[inline]
    pub(super) fn object<E: From<ReadError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes").into());
            }
            let key = self.key()?;
            self.expect(b':', "`:` after the key")?;
            self.skip_space();
            member(self, &key)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "`,` or `}`")?;
        }
    }

    /// Calls `element` with each index of an array; the cursor is then before the element. Stops at the first error.
    pub(super) fn array<E: From<ReadError>>(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "an array")?;
        if self.take(b']') {
            return Ok(());
        }
        for index in 0.. {
            self.skip_space();
            element(self, index)?;
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',', "`,` or `]`")?;
        }
        Ok(())
    }
}

/// Returns the number of bytes before the first that JSON escapes in a string: a quote, a backslash or a control character.
#[inline]
pub(super) fn plain_length(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let ends = string_ends(u64::from_le_bytes(*word));
        if ends != 0 {
            return Some(8 * index + (ends.trailing_zeros() / 8) as usize);
        }
    }
    let is_end = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    Some(8 * words.len() + rest.iter().position(is_end)?)
}

/// Sets the highest bit of the first of eight bytes that is a quote, a backslash or a control character. Of the bytes after it, that of
/// some others may be set, too.
const fn string_ends(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x80 * EACH;
    const fn is_less(bytes: u64, limit: u64) -> u64 {
        bytes.wrapping_sub(limit * EACH) & !bytes
    }
    let quote = bytes ^ (b'"' as u64 * EACH);
    let backslash = bytes ^ (b'\\' as u64 * EACH);
    (is_less(bytes, 0x20) | is_less(quote, 1) | is_less(backslash, 1)) & HIGHEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_length_is_that_of_a_comparison_of_each_byte(text in vec(prop_oneof![Just(b'a'), any::<u8>()], 0..40)) {
            let found = text.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
            prop_assert_eq!(plain_length(&text), found);
        }
    }

    #[test]
    fn plain_length_finds_every_byte_at_every_position() {
        for byte in 0..=u8::MAX {
            for position in 0..17 {
                // The neighbors differ by one, or have the highest bit.
                for other in [b'a', b'!', b'#', b'[', b']', b' ', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut text = [other; 17];
                    text[position] = byte;
                    let ends = byte == b'"' || byte == b'\\' || byte < 0x20;
                    assert_eq!(plain_length(&text), ends.then_some(position), "{byte} at {position} among {other}");
                }
            }
        }
    }
}
