//! A file and the current position in it.

use bytes::Bytes;

use super::PickleError;

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
