//! Reads the lines of a file of any size, one at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::types::text::{self, TextError};

/// The limit on the length of a line, in bytes without its line ending.
pub const MAX_LINE: usize = 32 << 20;

/// How much is read at a time.
const READ_BLOCK: usize = 256 << 10;

/// The bytes of an input, which may be a pipe whose writer is slow.
pub(super) trait InputBytes: Read + Send {
    /// Waits until more bytes can be read without blocking, or the end has been reached. Returns false if `limit` passes before.
    fn wait(&self, limit: Duration) -> bool;
}

impl InputBytes for File {
    fn wait(&self, limit: Duration) -> bool {
        let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        let limit = Timespec { tv_sec: seconds, tv_nsec: limit.subsec_nanos().into() };
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        // A file that cannot be polled can be read, or its reader reports why not.
        !matches!(poll(&mut fds, Some(&limit)), Ok(0))
    }
}

/// Returns the error for an input in another encoding.
pub(super) fn invalid(error: TextError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
impl<T: AsRef<[u8]> + Send> InputBytes for io::Cursor<T> {
    fn wait(&self, _: Duration) -> bool {
        true
    }
}

#[cfg(test)]
impl InputBytes for &[u8] {
    fn wait(&self, _: Duration) -> bool {
        true
    }
}

/// A line of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputLine {
    /// Without the line ending.
    Text(Vec<u8>),
    /// Longer than [`MAX_LINE`]: its length in bytes. Its content is not kept.
    TooLong(u64),
}

/// Reads lines that end with `\n`, which may be missing after the last one.
pub(super) struct LineReader {
    reader: BufReader<Box<dyn InputBytes>>,
    limit: usize,
    /// No line has been read yet.
    at_start: bool,
}

impl LineReader {
    pub(super) fn new(reader: Box<dyn InputBytes>) -> Self {
        Self { reader: BufReader::with_capacity(READ_BLOCK, reader), limit: MAX_LINE, at_start: true }
    }

    /// Waits until a part of the next line has arrived, or the end. Returns false if `limit` passes before.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        !self.reader.buffer().is_empty() || self.reader.get_ref().wait(limit)
    }

    /// Returns the next line and the bytes it took of the file, or `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<(InputLine, u64)>> {
        let mut text = Vec::new();
        let most = self.limit as u64 + 1;
        let mut taken = self.reader.by_ref().take(most).read_until(b'\n', &mut text)? as u64;
        if taken == 0 {
            return Ok(None);
        }
        if std::mem::take(&mut self.at_start) {
            let kept = text::without_mark(&text).map_err(invalid)?.len();
            text.drain(..text.len() - kept);
        }
        if text.last() == Some(&b'\n') {
            text.pop();
            return Ok(Some((InputLine::Text(text), taken)));
        }
        if taken < most {
            return Ok(Some((InputLine::Text(text), taken)));
        }
        drop(text);
        taken += self.reader.skip_until(b'\n')? as u64;
        // The count includes the line ending, if there is one.
        Ok(Some((InputLine::TooLong(taken), taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8]) -> Vec<(InputLine, u64)> {
        let mut lines = LineReader { limit: 4, ..LineReader::new(Box::new(text)) };
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    #[test]
    fn line_reader_returns_lines_with_their_size() {
        let text = |text: &str, taken| (InputLine::Text(text.as_bytes().to_vec()), taken);
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n"), [text("", 1)]);
        assert_eq!(lines(b"a\n\nbc"), [text("a", 2), text("", 1), text("bc", 2)]);
        assert_eq!(lines(b"abcd\nx"), [text("abcd", 5), text("x", 1)]);
    }

    #[test]
    fn line_reader_ignores_a_byte_order_mark() {
        let text = |text: &str, taken| (InputLine::Text(text.as_bytes().to_vec()), taken);
        assert_eq!(lines(b"\xef\xbb\xbf1\n\xef\xbb\xbf"), [text("1", 5), text("\u{feff}", 3)]);
    }

    #[test]
    fn line_reader_names_another_encoding() {
        let mut lines = LineReader::new(Box::new(&b"\xff\xfe{\0}\0\n\0"[..]));
        assert_eq!(lines.next().unwrap_err().to_string(), "it is UTF-16 text: save it as UTF-8");
    }

    #[test]
    fn line_reader_skips_only_the_line_that_is_too_long() {
        assert_eq!(lines(b"abcde\nx\n"), [(InputLine::TooLong(6), 6), (InputLine::Text(b"x".to_vec()), 2)]);
        assert_eq!(lines(b"abcdefgh"), [(InputLine::TooLong(8), 8)]);
    }
}
