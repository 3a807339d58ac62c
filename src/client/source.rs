//! Where rows come from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::ByteRecord;

use super::lines::{InputLine, LineReader};
use super::request;
#[cfg(feature = "parquet")]
use super::table::ParquetTable;
use super::table::{CsvTable, NpyTable, ObjectTable, TableColumn};
use crate::types::{Datatype, Tensor};

/// The most text of one piece beyond its first row, in bytes; a piece of longer rows has fewer of them.
const MAX_BATCH_TEXT: usize = 4 << 20;
/// Rows that are passed over at a time.
const SKIPPED_ROWS: u64 = 1000;

/// How the rows of an input are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// A request as JSON in each line.
    Requests,
    /// A JSON object in each line, whose keys are columns.
    Objects,
    /// Values with a comma, or this byte, between them, under a line with names.
    Delimited(u8),
    /// An array that NumPy has saved.
    Npy,
    Parquet,
}

impl SourceFormat {
    /// Tells the format by the name of the file.
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Self::Delimited(b','),
            "tsv" => Self::Delimited(b'\t'),
            "ndjson" => Self::Objects,
            "npy" => Self::Npy,
            "parquet" | "pq" => Self::Parquet,
            _ => Self::Requests,
        }
    }

    /// Tells whether each row has columns, of which a request can have as many as it likes.
    pub const fn is_table(self) -> bool {
        !matches!(self, Self::Requests)
    }
}

/// Rows that are asked for together.
#[derive(Debug)]
pub(super) struct InputBatch {
    /// The place of the first row in the input.
    pub(super) first: u64,
    pub(super) rows: InputRows,
    /// What they took of the input, in bytes.
    pub(super) bytes: u64,
}

/// The rows of a piece.
#[derive(Debug)]
pub(super) enum InputRows {
    /// A request each, as text.
    Requests(Vec<InputLine>),
    Delimited(Arc<[TableColumn]>, Vec<ByteRecord>),
    Objects(Arc<[TableColumn]>, Vec<InputLine>),
    /// Inputs that have so many rows, and whether they are columns of a frame.
    Tensors {
        inputs: Vec<Tensor>,
        rows: usize,
        frame: bool,
    },
}

impl InputRows {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Requests(lines) | Self::Objects(_, lines) => lines.len(),
            Self::Delimited(_, records) => records.len(),
            Self::Tensors { rows, .. } => *rows,
        }
    }
}

/// Reads an input from its start to its end.
pub struct InputSource {
    reader: InputReader,
    /// The rows that have been read.
    rows: u64,
    /// What the input is called in messages.
    name: String,
    /// In bytes, when it is known.
    size: Option<u64>,
}

enum InputReader {
    Requests(LineReader),
    Delimited(CsvTable),
    Objects(ObjectTable),
    Npy(NpyTable),
    #[cfg(feature = "parquet")]
    Parquet(ParquetTable),
}

/// An input that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("cannot open `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read {name} behind row {rows}")]
    Read { name: String, rows: u64, source: io::Error },
    #[error("{name} has {found} rows, fewer than the {wanted} that are answered already: is this the same input?")]
    TooShort { name: String, found: u64, wanted: u64 },
    #[error("row {row} of {name} has the id `{found}`, but was answered as `{wanted}`: is this the same input?")]
    Other { name: String, row: u64, found: String, wanted: String },
    #[error("Parquet is read from a file, whose end is needed first: standard input has none")]
    ParquetFromStdin,
    #[error("this executable was built without Parquet: build it with the feature `parquet`")]
    WithoutParquet,
}

impl InputSource {
    /// Opens a file, or standard input for `-`. Columns have the given types, by name, and the others those that they seem to have.
    ///
    /// # Errors
    ///
    /// Fails when there is no such file, it may not be read, or it does not begin as its format does.
    pub fn open(path: &Path, format: SourceFormat, types: &[(String, Datatype)]) -> Result<Self, InputError> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".to_owned() } else { format!("`{}`", path.display()) };
        let failed = |source| InputError::Open { path: path.to_owned(), source };
        let unreadable = |source| InputError::Read { name: name.clone(), rows: 0, source };
        if is_stdin {
            let reader = InputReader::open(Box::new(io::stdin()), format, types);
            let reader = reader.map_err(unreadable)?.ok_or(InputError::ParquetFromStdin)?;
            return Ok(Self { reader, rows: 0, name, size: None });
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.is_file().then_some(metadata.len());
        let reader = match format {
            #[cfg(feature = "parquet")]
            SourceFormat::Parquet => InputReader::Parquet(ParquetTable::open(file, types).map_err(unreadable)?),
            format => {
                let reader = InputReader::open(Box::new(file), format, types);
                reader.map_err(unreadable)?.ok_or(InputError::WithoutParquet)?
            }
        };
        Ok(Self { reader, rows: 0, name, size })
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
    pub fn skip(&mut self, rows: u64, id: Option<&str>) -> Result<u64, InputError> {
        let (mut bytes, mut last) = (0, None);
        while self.rows < rows {
            let most = usize::try_from((rows - self.rows).min(SKIPPED_ROWS)).unwrap_or(1);
            let Some(piece) = self.next(most)? else {
                return Err(InputError::TooShort { name: self.name.clone(), found: self.rows, wanted: rows });
            };
            bytes += piece.bytes;
            last = Some(piece.rows);
        }
        if let (Some(InputRows::Requests(lines)), Some(wanted)) = (last, id)
            && let Some(found) = lines.last().and_then(request::id)
            && found != wanted
        {
            let (name, wanted) = (self.name.clone(), wanted.to_owned());
            return Err(InputError::Other { name, row: rows - 1, found, wanted });
        }
        Ok(bytes)
    }

    /// Returns the next rows, at most `most` of them; nothing at the end.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<InputBatch>, InputError> {
        let first = self.rows;
        let read = self.reader.next(most);
        let read = read.map_err(|source| InputError::Read { name: self.name.clone(), rows: first, source })?;
        Ok(read.map(|(rows, bytes)| {
            self.rows += rows.len() as u64;
            InputBatch { first, rows, bytes }
        }))
    }
}

impl InputReader {
    /// Opens what can be read from its start to its end; nothing for what cannot.
    fn open(
        reader: Box<dyn Read + Send>,
        format: SourceFormat,
        types: &[(String, Datatype)],
    ) -> io::Result<Option<Self>> {
        Ok(Some(match format {
            SourceFormat::Requests => Self::Requests(LineReader::new(reader)),
            SourceFormat::Objects => Self::Objects(ObjectTable::open(reader, types)?),
            SourceFormat::Delimited(delimiter) => Self::Delimited(CsvTable::open(reader, delimiter, types)?),
            SourceFormat::Npy => Self::Npy(NpyTable::open(reader)?),
            SourceFormat::Parquet => return Ok(None),
        }))
    }

    fn next(&mut self, most: usize) -> io::Result<Option<(InputRows, u64)>> {
        let text = |line: &InputLine| if let InputLine::Text(line) = line { line.len() } else { 0 };
        Ok(match self {
            Self::Requests(lines) => {
                collect(most, text, || lines.next())?.map(|(lines, bytes)| (InputRows::Requests(lines), bytes))
            }
            Self::Objects(objects) => {
                let columns = objects.columns();
                collect(most, text, || objects.next())?
                    .map(|(lines, bytes)| (InputRows::Objects(columns, lines), bytes))
            }
            Self::Delimited(csv) => {
                let columns = csv.columns();
                let records = collect(most, |record: &ByteRecord| record.as_slice().len(), || csv.next())?;
                records.map(|(records, bytes)| (InputRows::Delimited(columns, records), bytes))
            }
            Self::Npy(npy) => npy.next(most, MAX_BATCH_TEXT)?.map(|(tensor, bytes)| {
                let rows = tensor.rows().unwrap_or_default();
                (InputRows::Tensors { inputs: vec![tensor], rows, frame: false }, bytes)
            }),
            #[cfg(feature = "parquet")]
            Self::Parquet(parquet) => parquet
                .next(most)?
                .map(|(inputs, rows, bytes)| (InputRows::Tensors { inputs, rows, frame: true }, bytes)),
        })
    }
}

/// Collects rows until there are enough of them, or of their text.
fn collect<T>(
    most: usize,
    text_of: impl Fn(&T) -> usize,
    mut next: impl FnMut() -> io::Result<Option<(T, u64)>>,
) -> io::Result<Option<(Vec<T>, u64)>> {
    let (mut rows, mut bytes, mut text) = (Vec::new(), 0, 0);
    while rows.len() < most && text < MAX_BATCH_TEXT {
        let Some((row, taken)) = next()? else { break };
        bytes += taken;
        text += text_of(&row);
        rows.push(row);
    }
    Ok((!rows.is_empty()).then_some((rows, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &'static str, format: SourceFormat) -> InputSource {
        let reader = InputReader::open(Box::new(text.as_bytes()), format, &[]).unwrap().unwrap();
        InputSource { reader, rows: 0, name: "it".to_owned(), size: None }
    }

    #[test]
    fn pieces_have_as_many_rows_as_asked_for() {
        for (text, format, bytes) in [
            ("a\nb\n\nc\n", SourceFormat::Requests, [5, 2]),
            ("x,y\n1,2\n3,4\n5,\n6,7", SourceFormat::Delimited(b','), [11, 3]),
            ("{\"x\":1}\n{}\n{\"x\":3}\n{\"y\":2}", SourceFormat::Objects, [19, 7]),
        ] {
            let mut source = source(text, format);
            let mut piece = || source.next(3).unwrap().map(|piece| (piece.first, piece.rows.len(), piece.bytes));
            assert_eq!(piece(), Some((0, 3, bytes[0])), "{format:?}");
            assert_eq!(piece(), Some((3, 1, bytes[1])), "{format:?}");
            assert_eq!(piece(), None);
        }
    }

    #[test]
    fn pieces_of_long_rows_have_fewer() {
        let text = format!("{0}\n{0}\n{0}\n", "x".repeat(3 << 20));
        let text: &'static str = text.leak();
        let mut source = source(text, SourceFormat::Requests);
        let counts: Vec<_> = std::iter::from_fn(|| source.next(100).unwrap()).map(|piece| piece.rows.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn only_the_same_input_is_resumed() {
        let input = || source("{\"id\":\"a\",\"inputs\":[]}\n{\"inputs\":[]}\n", SourceFormat::Requests);
        assert_eq!(input().skip(1, Some("a")).unwrap(), 23);
        assert_eq!(input().skip(2, Some("made up")).unwrap(), 37);
        let error = |rows, id| input().skip(rows, id).unwrap_err().to_string();
        assert_eq!(error(1, Some("b")), "row 0 of it has the id `a`, but was answered as `b`: is this the same input?");
        assert_eq!(
            error(3, None),
            "it has 2 rows, fewer than the 3 that are answered already: is this the same input?"
        );
    }

    #[test]
    fn formats_are_told_by_their_names() {
        let of = |name: &str| SourceFormat::of(Path::new(name));
        assert_eq!(
            (of("a.jsonl"), of("-"), of("a.CSV")),
            (SourceFormat::Requests, SourceFormat::Requests, SourceFormat::Delimited(b','))
        );
        assert_eq!(
            (of("a.tsv"), of("a.ndjson"), of("a.npy")),
            (SourceFormat::Delimited(b'\t'), SourceFormat::Objects, SourceFormat::Npy)
        );
        assert_eq!(of("a.parquet"), SourceFormat::Parquet);
    }
}
