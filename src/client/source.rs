//! Reads the rows of the input.

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

/// The limit on the text of a batch, in bytes, not counting its last row. A batch of long rows has fewer of them.
const MAX_BATCH_TEXT: usize = 4 << 20;
/// How many rows are skipped at a time.
const SKIPPED_ROWS: u64 = 1000;

/// The format of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// A request as JSON in each line.
    Requests,
    /// A JSON object in each line, whose keys are columns.
    Objects,
    /// Values separated by this byte, below a header line.
    Delimited(u8),
    /// An array saved by NumPy.
    Npy,
    Parquet,
}

impl SourceFormat {
    /// Returns the format for a file's extension.
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

    /// Reports whether rows have columns, so that a request can hold any number of rows.
    pub const fn is_table(self) -> bool {
        !matches!(self, Self::Requests)
    }
}

/// Rows that are sent together.
#[derive(Debug)]
pub(super) struct InputBatch {
    /// The index of the first row in the input.
    pub(super) first: u64,
    pub(super) rows: InputRows,
    /// How many bytes of the input the rows took.
    pub(super) bytes: u64,
}

/// The rows of a batch.
#[derive(Debug)]
pub(super) enum InputRows {
    /// One request per line, as text.
    Requests(Vec<InputLine>),
    Delimited(Arc<[TableColumn]>, Vec<ByteRecord>),
    Objects(Arc<[TableColumn]>, Vec<InputLine>),
    /// Inputs with `rows` rows; `frame` if they are the columns of a data frame.
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
    /// The number of rows that have been read.
    rows: u64,
    /// The name of the input in messages.
    name: String,
    /// In bytes, if it is known.
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
    #[error("cannot read {name} after row {rows}")]
    Read { name: String, rows: u64, source: io::Error },
    #[error("{name} has {found} rows, but {wanted} were answered already: is this the same input?")]
    TooShort { name: String, found: u64, wanted: u64 },
    #[error("row {row} of {name} has the id `{found}`, but was answered as `{wanted}`: is this the same input?")]
    Other { name: String, row: u64, found: String, wanted: String },
    #[error("cannot read Parquet from standard input: name a file, as its end is read first")]
    ParquetFromStdin,
    #[error("this executable was built without Parquet support: build it with the feature `parquet`")]
    WithoutParquet,
}

impl InputSource {
    /// Opens a file, or standard input for `-`. `types` are the datatypes of columns by name; those of other columns are inferred.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened, or does not start as its format requires.
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

    /// Returns the size of the input in bytes, if it is known.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Skips rows that an earlier run has answered and returns the bytes they took. `id` is that of the last one's answer.
    ///
    /// # Errors
    ///
    /// Fails if there are fewer rows, or the last one has another id.
    pub fn skip(&mut self, rows: u64, id: Option<&str>) -> Result<u64, InputError> {
        let (mut bytes, mut last) = (0, None);
        while self.rows < rows {
            let max_rows = usize::try_from((rows - self.rows).min(SKIPPED_ROWS)).unwrap_or(1);
            let Some(batch) = self.next(max_rows)? else {
                return Err(InputError::TooShort { name: self.name.clone(), found: self.rows, wanted: rows });
            };
            bytes += batch.bytes;
            last = Some(batch.rows);
        }
        if let (Some(InputRows::Requests(lines)), Some(wanted)) = (last, id)
            && let Some(found) = lines.last().and_then(request::line_id)
            && found != wanted
        {
            let (name, wanted) = (self.name.clone(), wanted.to_owned());
            return Err(InputError::Other { name, row: rows - 1, found, wanted });
        }
        Ok(bytes)
    }

    /// Returns the next rows, at most `max_rows` of them, or `None` at the end.
    pub(super) fn next(&mut self, max_rows: usize) -> Result<Option<InputBatch>, InputError> {
        let first = self.rows;
        let read = self.reader.next(max_rows);
        let read = read.map_err(|source| InputError::Read { name: self.name.clone(), rows: first, source })?;
        Ok(read.map(|(rows, bytes)| {
            self.rows += rows.len() as u64;
            InputBatch { first, rows, bytes }
        }))
    }
}

impl InputReader {
    /// Opens a format that can be read from start to end. Returns `None` for one that cannot.
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

    fn next(&mut self, max_rows: usize) -> io::Result<Option<(InputRows, u64)>> {
        let text = |line: &InputLine| if let InputLine::Text(line) = line { line.len() } else { 0 };
        Ok(match self {
            Self::Requests(lines) => {
                collect(max_rows, text, || lines.next())?.map(|(lines, bytes)| (InputRows::Requests(lines), bytes))
            }
            Self::Objects(objects) => {
                let columns = objects.columns();
                collect(max_rows, text, || objects.next())?
                    .map(|(lines, bytes)| (InputRows::Objects(columns, lines), bytes))
            }
            Self::Delimited(csv) => {
                let columns = csv.columns();
                let records = collect(max_rows, |record: &ByteRecord| record.as_slice().len(), || csv.next())?;
                records.map(|(records, bytes)| (InputRows::Delimited(columns, records), bytes))
            }
            Self::Npy(npy) => npy.next(max_rows, MAX_BATCH_TEXT)?.map(|(tensor, bytes)| {
                let rows = tensor.rows().unwrap_or_default();
                (InputRows::Tensors { inputs: vec![tensor], rows, frame: false }, bytes)
            }),
            #[cfg(feature = "parquet")]
            Self::Parquet(parquet) => parquet
                .next(max_rows)?
                .map(|(inputs, rows, bytes)| (InputRows::Tensors { inputs, rows, frame: true }, bytes)),
        })
    }
}

/// Collects rows until there are `max_rows` of them or their text reaches the limit.
fn collect<T>(
    max_rows: usize,
    text_of: impl Fn(&T) -> usize,
    mut next: impl FnMut() -> io::Result<Option<(T, u64)>>,
) -> io::Result<Option<(Vec<T>, u64)>> {
    let (mut rows, mut bytes, mut text) = (Vec::new(), 0, 0);
    while rows.len() < max_rows && text < MAX_BATCH_TEXT {
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
    fn input_batches_have_the_requested_rows() {
        for (text, format, bytes) in [
            ("a\nb\n\nc\n", SourceFormat::Requests, [5, 2]),
            ("x,y\n1,2\n3,4\n5,\n6,7", SourceFormat::Delimited(b','), [11, 3]),
            ("{\"x\":1}\n{}\n{\"x\":3}\n{\"y\":2}", SourceFormat::Objects, [19, 7]),
        ] {
            let mut source = source(text, format);
            let mut batch = || source.next(3).unwrap().map(|batch| (batch.first, batch.rows.len(), batch.bytes));
            assert_eq!(batch(), Some((0, 3, bytes[0])), "{format:?}");
            assert_eq!(batch(), Some((3, 1, bytes[1])), "{format:?}");
            assert_eq!(batch(), None);
        }
    }

    #[test]
    fn input_batches_of_long_rows_are_smaller() {
        let text = format!("{0}\n{0}\n{0}\n", "x".repeat(3 << 20));
        let text: &'static str = text.leak();
        let mut source = source(text, SourceFormat::Requests);
        let counts: Vec<_> = std::iter::from_fn(|| source.next(100).unwrap()).map(|batch| batch.rows.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn input_skip_rejects_other_input() {
        let input = || source("{\"id\":\"a\",\"inputs\":[]}\n{\"inputs\":[]}\n", SourceFormat::Requests);
        assert_eq!(input().skip(1, Some("a")).unwrap(), 23);
        assert_eq!(input().skip(2, Some("made up")).unwrap(), 37);
        let error = |rows, id| input().skip(rows, id).unwrap_err().to_string();
        assert_eq!(error(1, Some("b")), "row 0 of it has the id `a`, but was answered as `b`: is this the same input?");
        assert_eq!(error(3, None), "it has 2 rows, but 3 were answered already: is this the same input?");
    }

    #[test]
    fn source_format_follows_the_extension() {
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
