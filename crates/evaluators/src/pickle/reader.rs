//! A file and the current position in it.

use bytes::Bytes;

use super::PickleError;

/// A file that is read beyond this position is a pickle, even if it is text.
const TEXT_POSITION: usize = 64;
/// How many bytes at the beginning of a file are checked, and how many characters of them are shown.
const TEXT_CHECKED: usize = 1 << 10;
const TEXT_SHOWN: usize = 60;
/// Shorter files are not called text: almost any few letters are opcodes of pickles.
const TEXT_LEAST: usize = 8;

/// Reads forwards. The returned bytes share the memory of the file.
#[derive(Debug)]
pub(super) struct Reader {
    file: Bytes,
    position: usize,
}

impl Reader {
    pub(super) const fn new(file: Bytes) -> Self {
        Self { file, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) fn left(&self) -> usize {
        self.file.len() - self.position
    }

    /// Takes the next `count` bytes. `reading` names them in errors.
    pub(super) fn take(&mut self, count: usize, reading: &'static str) -> Result<Bytes, PickleError> {
        if count > self.left() {
            return Err(PickleError::Truncated { offset: self.file.len(), reading });
        }
        let start = self.position;
        self.position += count;
        Ok(self.file.slice(start..self.position))
    }

    /// Takes as many bytes as a length field specifies.
    pub(super) fn take_long(&mut self, count: u64, reading: &'static str) -> Result<Bytes, PickleError> {
        self.take(usize::try_from(count).unwrap_or(usize::MAX), reading)
    }

    /// Takes the bytes of a number.
    pub(super) fn array<const N: usize>(&mut self, reading: &'static str) -> Result<[u8; N], PickleError> {
        let chunk = self.file[self.position..].first_chunk::<N>();
        let bytes = *chunk.ok_or(PickleError::Truncated { offset: self.file.len(), reading })?;
        self.position += N;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self, reading: &'static str) -> Result<u8, PickleError> {
        self.array::<1>(reading).map(|[byte]| byte)
    }

    /// Returns the first characters of a file that is text and was not read beyond its beginning, escaped. Pickles of protocol 0 are
    /// text, too: those that are damaged or refused further on keep their error.
    pub(super) fn text_at_start(&self) -> Option<String> {
        if self.position > TEXT_POSITION {
            return None;
        }
        let head = self.file.get(..TEXT_CHECKED).unwrap_or(&self.file);
        let head = match std::str::from_utf8(head) {
            Ok(text) => text,
            // A character may be cut at the end of what is checked.
            Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
            Err(_) => return None,
        };
        let is_text = |character: char| !character.is_control() || matches!(character, '\t' | '\n' | '\r' | '\x0c');
        if head.trim().len() < TEXT_LEAST || !head.chars().all(is_text) {
            return None;
        }
        let start: String = head.chars().take(TEXT_SHOWN).collect();
        Some(start.escape_debug().to_string())
    }

    /// Takes a line without its line break.
    pub(super) fn line(&mut self, reading: &'static str) -> Result<Bytes, PickleError> {
        let rest = &self.file[self.position..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let length = end.ok_or(PickleError::Truncated { offset: self.file.len(), reading })?;
        let line = self.take(length, reading)?;
        self.position += 1;
        Ok(line)
    }
}
