//! Where requests come from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::lines::{Line, Lines};
use super::request;

/// The most text of one piece beyond its first row, in bytes; a piece of longer rows has fewer of them.
const PIECE: usize = 4 << 20;

/// Rows that are asked for together.
#[derive(Debug)]
pub(super) struct Piece {
    /// The place of the first row in the input.
    pub(super) first: u64,
    pub(super) rows: Rows,
    /// What they took of the input, in bytes.
    pub(super) bytes: u64,
}

/// The rows of a piece.
#[derive(Debug)]
pub(super) enum Rows {
    /// A request each, as text.
    Requests(Vec<Line>),
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Requests(lines) => lines.len(),
        }
    }
}

/// Reads an input from its start to its end.
pub struct Source {
    lines: Lines,
    /// The rows that have been read.
    rows: u64,
    /// What the input is called in messages.
    name: String,
    /// In bytes, when it is known.
    size: Option<u64>,
}

/// An input that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot open `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read {name} behind row {rows}")]
    Read { name: String, rows: u64, source: io::Error },
    #[error("{name} has {found} rows, fewer than the {wanted} that are answered already: is this the same input?")]
    TooShort { name: String, found: u64, wanted: u64 },
    #[error("row {row} of {name} has the id `{found}`, but was answered as `{wanted}`: is this the same input?")]
    Other { name: String, row: u64, found: String, wanted: String },
}

impl Source {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    ///
    /// Fails when there is no such file, or it may not be read.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        if path == Path::new("-") {
            return Ok(Self::new("standard input".to_owned(), Box::new(io::stdin()), None));
        }
        let failed = |source| SourceError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(format!("`{}`", path.display()), Box::new(file), size))
    }

    fn new(name: String, reader: Box<dyn Read + Send>, size: Option<u64>) -> Self {
        Self { lines: Lines::new(reader), rows: 0, name, size }
    }

    /// Returns the size of the input in bytes, when it is known.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Passes over rows that an earlier run has answered, the last of them under this id, and returns the bytes they took.
    ///
    /// # Errors
    ///
    /// Fails when there are not so many, or the last one has another id.
    pub fn skip(&mut self, rows: u64, id: Option<&str>) -> Result<u64, SourceError> {
        let mut bytes = 0;
        let mut last = None;
        while self.rows < rows {
            let Some((line, taken)) = self.next_line()? else {
                return Err(SourceError::TooShort { name: self.name.clone(), found: self.rows, wanted: rows });
            };
            bytes += taken;
            last = Some(line);
        }
        if let (Some(line), Some(wanted)) = (last, id)
            && let Some(found) = request::id(&line)
            && found != wanted
        {
            let (name, wanted) = (self.name.clone(), wanted.to_owned());
            return Err(SourceError::Other { name, row: rows - 1, found, wanted });
        }
        Ok(bytes)
    }

    /// Returns the next rows, at most `most` of them; nothing at the end.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<Piece>, SourceError> {
        let first = self.rows;
        let (mut lines, mut bytes, mut text) = (Vec::new(), 0, 0);
        while lines.len() < most && text < PIECE {
            let Some((line, taken)) = self.next_line()? else { break };
            bytes += taken;
            text += if let Line::Text(line) = &line { line.len() } else { 0 };
            lines.push(line);
        }
        Ok((!lines.is_empty()).then_some(Piece { first, rows: Rows::Requests(lines), bytes }))
    }

    fn next_line(&mut self) -> Result<Option<(Line, u64)>, SourceError> {
        let line = self.lines.next().map_err(|source| {
            let (name, rows) = (self.name.clone(), self.rows);
            SourceError::Read { name, rows, source }
        })?;
        self.rows += u64::from(line.is_some());
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &'static str) -> Source {
        Source::new("it".to_owned(), Box::new(text.as_bytes()), None)
    }

    #[test]
    fn pieces_have_as_many_rows_as_asked_for() {
        let mut source = source("a\nb\n\nc\n");
        let mut piece = || source.next(3).unwrap().map(|piece| (piece.first, piece.rows.len(), piece.bytes));
        assert_eq!(piece(), Some((0, 3, 5)));
        assert_eq!(piece(), Some((3, 1, 2)));
        assert_eq!(piece(), None);
    }

    #[test]
    fn pieces_of_long_rows_have_fewer() {
        let text = format!("{0}\n{0}\n{0}\n", "x".repeat(3 << 20));
        let mut source = Source::new("it".to_owned(), Box::new(io::Cursor::new(text)), None);
        let counts: Vec<_> = std::iter::from_fn(|| source.next(100).unwrap()).map(|piece| piece.rows.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn only_the_same_input_is_resumed() {
        let input = "{\"id\":\"a\",\"inputs\":[]}\n{\"inputs\":[]}\n";
        assert_eq!(source(input).skip(1, Some("a")).unwrap(), 23);
        assert_eq!(source(input).skip(2, Some("made up")).unwrap(), 37);
        let error = |rows, id| source(input).skip(rows, id).unwrap_err().to_string();
        assert_eq!(error(1, Some("b")), "row 0 of it has the id `a`, but was answered as `b`: is this the same input?");
        assert_eq!(
            error(3, None),
            "it has 2 rows, fewer than the 3 that are answered already: is this the same input?"
        );
    }
}
