//! Reads the rows of the input.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use csv::ByteRecord;

use super::fingerprint::RowFingerprint;
use super::lines::{InputBytes, InputLine, LineReader};
use super::open_topic;
use super::openai_batch;
use super::output::{AnsweredIds, OutputError};
#[cfg(feature = "parquet")]
use super::ranged::{RangedBlocks, TableFile};
use super::ranged::{RangedInput, RangedStream};
use super::request;
use super::stats::RunStats;
use super::table::{CsvTable, NpyTable, ObjectTable, TableColumn, TableRequest};
#[cfg(feature = "parquet")]
use super::table::{ParquetRows, ParquetTable};
use super::topic::{
    OffsetCommits, OpenTopic, PartitionOffsets, RecordBatch, RecordOrigins, RecordReader, RecordRow, TopicAddress,
    TopicError, TopicOptions,
};
use crate::remote::Observer;
use crate::types::Datatype;

/// The limit on the text of a batch, in bytes, not counting its last row. A batch of long rows has fewer of them.
const MAX_BATCH_TEXT: usize = 4 << 20;
/// How many rows are skipped at a time.
const SKIPPED_ROWS: u64 = 1000;

/// The format of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// A request as JSON in each line.
    Requests,
    /// A request of OpenAI's API in each line, with its route.
    OpenAi,
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
        !matches!(self, Self::Requests | Self::OpenAi)
    }
}

/// Where requests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputOrigin {
    /// A file, or standard input for `-`.
    File(PathBuf),
    Topic(TopicAddress),
}

/// Rows that are sent together.
#[derive(Debug)]
pub(super) struct InputBatch {
    /// The index of the first row in the input.
    pub(super) first: u64,
    pub(super) rows: InputRows,
    /// How many bytes of the input the rows took; offsets of a topic.
    pub(super) bytes: u64,
    /// How many bytes they take in memory.
    pub(super) memory: u64,
    /// The fingerprint of each row; empty for records of a topic.
    pub(super) fingerprints: Vec<RowFingerprint>,
}

/// The rows of a batch.
#[derive(Debug)]
pub(super) enum InputRows {
    /// One request per line, as text.
    Requests(Vec<InputLine>),
    /// One request of OpenAI's API per line, as text.
    OpenAi(Vec<InputLine>),
    /// One request per record of a topic.
    Records(Vec<RecordRow>, Option<RecordOrigins>),
    Delimited(Arc<[TableColumn]>, Vec<ByteRecord>),
    Objects(Arc<[TableColumn]>, Vec<InputLine>),
    /// Columns that need not be parsed.
    Table(Box<TableRequest>),
}

impl InputRows {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Requests(lines) | Self::OpenAi(lines) | Self::Objects(_, lines) => lines.len(),
            Self::Records(records, _) => records.len(),
            Self::Delimited(_, records) => records.len(),
            Self::Table(table) => table.rows(),
        }
    }

    /// Takes the origins of records.
    pub(super) fn take_origins(&mut self) -> Option<RecordOrigins> {
        if let Self::Records(_, origins) = self { origins.take() } else { None }
    }

    /// Returns the fingerprint of each row. Records of a topic have offsets instead.
    fn fingerprints(&self) -> Vec<RowFingerprint> {
        let of_line = |line: &InputLine| match line {
            InputLine::Text(text) => RowFingerprint::of([text.as_slice()]),
            InputLine::TooLong(length) => RowFingerprint::of([&length.to_le_bytes()[..]]),
        };
        match self {
            Self::Requests(lines) | Self::OpenAi(lines) | Self::Objects(_, lines) => {
                lines.iter().map(of_line).collect()
            }
            Self::Records(..) => Vec::new(),
            Self::Delimited(columns, records) => {
                let names = || columns.iter().map(|column| column.name.as_bytes());
                records.iter().map(|record| RowFingerprint::of(names().chain(record))).collect()
            }
            Self::Table(table) => table.fingerprints(),
        }
    }

    /// Returns the id of each row, `None` for one that is not known before it has been sent. Rows of tables have an empty one.
    fn ids(&self) -> Vec<Option<String>> {
        match self {
            Self::Requests(lines) => lines.iter().map(request::line_id).collect(),
            // A row without one has an empty one in the output.
            Self::OpenAi(lines) => {
                lines.iter().map(|line| Some(openai_batch::custom_id(line).unwrap_or_default())).collect()
            }
            table => vec![Some(String::new()); table.len()],
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
    /// In bytes, if it is known; of a topic, in offsets.
    size: Option<u64>,
    /// The next batch, if it has been read ahead.
    ahead: Option<InputBatch>,
    /// Where the progress is recorded, if it is not in the output alone.
    commits: Option<Arc<dyn OffsetCommits>>,
}

enum InputReader {
    Requests(LineReader),
    OpenAi(LineReader),
    Topic(Box<dyn RecordReader>),
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
    #[error("row {row} of {name} has {found}, but was answered with {wanted}: is this the same input?")]
    Other { name: String, row: u64, found: String, wanted: String },
    #[error("row {row} of {name} is not the row that was answered: is this the same input, in the same order?")]
    Changed { name: String, row: u64 },
    #[error(transparent)]
    Answers(#[from] OutputError),
    #[error("cannot read Parquet from standard input: name a file, as its end is read first")]
    ParquetFromStdin,
    #[error("this executable was built without Parquet support: build it with the feature `parquet`")]
    WithoutParquet,
    #[error(transparent)]
    Topic(#[from] TopicError),
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
        if is_stdin && format == SourceFormat::Parquet {
            return Err(InputError::ParquetFromStdin);
        }
        let file = if is_stdin {
            // A file of its own, as the standard library's standard input cannot be polled.
            File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?)
        } else {
            File::open(path).map_err(failed)?
        };
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let size = (metadata.is_file() && !is_stdin).then_some(metadata.len());
        let reader = match format {
            #[cfg(feature = "parquet")]
            SourceFormat::Parquet => {
                InputReader::Parquet(ParquetTable::open(TableFile::File(file), types).map_err(unreadable)?)
            }
            format => {
                let reader = InputReader::open(Box::new(file), format, types);
                reader.map_err(unreadable)?.ok_or(InputError::WithoutParquet)?
            }
        };
        Ok(Self { reader, rows: 0, name, size, ahead: None, commits: None })
    }

    /// Opens an input that is read by ranges, as [`InputSource::open`] does a file.
    ///
    /// # Errors
    ///
    /// Fails if its start, or the end of a Parquet file, cannot be read or is not what its format requires.
    pub fn open_ranged(
        input: Arc<dyn RangedInput>,
        format: SourceFormat,
        types: &[(String, Datatype)],
    ) -> Result<Self, InputError> {
        let (name, size) = (format!("`{}`", input.name()), Some(input.size()));
        let unreadable = |source| InputError::Read { name: name.clone(), rows: 0, source };
        let reader = match format {
            #[cfg(feature = "parquet")]
            SourceFormat::Parquet => {
                let file = TableFile::Ranged(RangedBlocks::new(input));
                InputReader::Parquet(ParquetTable::open(file, types).map_err(unreadable)?)
            }
            format => {
                let reader = InputReader::open(Box::new(RangedStream::new(input)), format, types);
                reader.map_err(unreadable)?.ok_or(InputError::WithoutParquet)?
            }
        };
        Ok(Self { reader, rows: 0, name, size, ahead: None, commits: None })
    }

    /// Opens a topic. `rows` were answered by earlier runs, up to the offsets of `answered`.
    ///
    /// # Errors
    ///
    /// Fails if the topic cannot be read.
    pub fn open_topic(
        address: &TopicAddress,
        options: &TopicOptions,
        rows: u64,
        answered: &PartitionOffsets,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, InputError> {
        let OpenTopic { reader, commits, offsets } = open_topic::reader(address, options, answered, observer)?;
        let (reader, name) = (InputReader::Topic(reader), format!("`{address}`"));
        Ok(Self { reader, rows, name, size: Some(offsets), ahead: None, commits: Some(commits) })
    }

    /// Returns where the progress is recorded, if it is not in the output alone.
    pub(super) fn commits(&self) -> Option<Arc<dyn OffsetCommits>> {
        self.commits.clone()
    }

    /// Returns what is odd about the datatypes of columns that were inferred.
    pub fn warnings(&self) -> &[String] {
        match &self.reader {
            InputReader::Delimited(table) => table.warnings(),
            _ => &[],
        }
    }

    /// Returns the size of the input in bytes, if it is known.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Skips rows that an earlier run has answered. `answered` are the ids of their answers.
    ///
    /// # Errors
    ///
    /// Fails if there are fewer rows, or one has another id than its answer.
    pub fn skip(&mut self, rows: u64, answered: &mut AnsweredIds, stats: &RunStats) -> Result<(), InputError> {
        while self.rows < rows {
            let max_rows = usize::try_from((rows - self.rows).min(SKIPPED_ROWS)).unwrap_or(1);
            let Some(batch) = self.next(max_rows)? else {
                return Err(InputError::TooShort { name: self.name.clone(), found: self.rows, wanted: rows });
            };
            stats.skipped_rows.fetch_add(batch.rows.len() as u64, Ordering::Relaxed);
            stats.skipped_bytes.fetch_add(batch.bytes, Ordering::Relaxed);
            let fingerprints = batch.fingerprints.iter().copied().map(Some).chain(std::iter::repeat(None));
            for ((row, found), fingerprint) in (batch.first..).zip(batch.rows.ids()).zip(fingerprints) {
                let wanted = answered.next_id(row)?;
                if let Some(found) = found.filter(|found| *found != wanted) {
                    let shown = |id: String| if id.is_empty() { "no id".to_owned() } else { format!("the id `{id}`") };
                    let (name, found, wanted) = (self.name.clone(), shown(found), shown(wanted));
                    return Err(InputError::Other { name, row, found, wanted });
                }
                // Rows that a run of an earlier version has answered have none.
                if let (Some(found), Some(wanted)) = (fingerprint, answered.next_fingerprint())
                    && found != wanted
                {
                    return Err(InputError::Changed { name: self.name.clone(), row });
                }
            }
        }
        Ok(())
    }

    /// Reads ahead, and reports whether there are more rows.
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read.
    pub fn has_more(&mut self, max_rows: usize) -> Result<bool, InputError> {
        if self.ahead.is_none() {
            self.ahead = self.next(max_rows)?;
        }
        Ok(self.ahead.is_some())
    }

    /// Returns the next rows, at most `max_rows` of them, or `None` at the end.
    pub(super) fn next(&mut self, max_rows: usize) -> Result<Option<InputBatch>, InputError> {
        if let Some(batch) = self.ahead.take() {
            return Ok(Some(batch));
        }
        let first = self.rows;
        let read = self.reader.next(max_rows);
        let read = read.map_err(|source| InputError::Read { name: self.name.clone(), rows: first, source })?;
        Ok(read.map(|(rows, bytes, memory)| {
            self.rows += rows.len() as u64;
            let fingerprints = rows.fingerprints();
            InputBatch { first, rows, bytes, memory, fingerprints }
        }))
    }
}

impl InputReader {
    /// Opens a format that can be read from start to end. Returns `None` for one that cannot.
    fn open(
        reader: Box<dyn InputBytes>,
        format: SourceFormat,
        types: &[(String, Datatype)],
    ) -> io::Result<Option<Self>> {
        Ok(Some(match format {
            SourceFormat::Requests => Self::Requests(LineReader::new(reader)),
            SourceFormat::OpenAi => Self::OpenAi(LineReader::new(reader)),
            SourceFormat::Objects => Self::Objects(ObjectTable::open(reader, types)?),
            SourceFormat::Delimited(delimiter) => Self::Delimited(CsvTable::open(reader, delimiter, types)?),
            SourceFormat::Npy => Self::Npy(NpyTable::open(reader)?),
            SourceFormat::Parquet => return Ok(None),
        }))
    }

    fn next(&mut self, max_rows: usize) -> io::Result<Option<(InputRows, u64, u64)>> {
        let text = |line: &InputLine| if let InputLine::Text(line) = line { line.len() } else { 0 };
        let sized = |(rows, bytes)| (rows, bytes, bytes);
        Ok(match self {
            Self::Topic(topic) => topic.next(max_rows, MAX_BATCH_TEXT).map_err(io::Error::other)?.map(|batch| {
                let RecordBatch { rows, origins, offsets, memory } = batch;
                (InputRows::Records(rows, Some(origins)), offsets, memory)
            }),
            Self::Requests(lines) => collect(max_rows, text, || lines.next())?
                .map(|(lines, bytes)| sized((InputRows::Requests(lines), bytes))),
            Self::OpenAi(lines) => {
                collect(max_rows, text, || lines.next())?.map(|(lines, bytes)| sized((InputRows::OpenAi(lines), bytes)))
            }
            Self::Objects(objects) => {
                let columns = objects.columns();
                collect(max_rows, text, || objects.next())?
                    .map(|(lines, bytes)| sized((InputRows::Objects(columns, lines), bytes)))
            }
            Self::Delimited(csv) => {
                let columns = csv.columns();
                let records = collect(max_rows, |record: &ByteRecord| record.as_slice().len(), || csv.next())?;
                records.map(|(records, bytes)| sized((InputRows::Delimited(columns, records), bytes)))
            }
            Self::Npy(npy) => npy.next(max_rows, MAX_BATCH_TEXT)?.map(|(tensor, bytes)| {
                let rows = tensor.rows().unwrap_or_default();
                sized((InputRows::Table(Box::new(TableRequest::of_tensors(vec![tensor], rows, false))), bytes))
            }),
            #[cfg(feature = "parquet")]
            Self::Parquet(parquet) => parquet
                .next(max_rows, MAX_BATCH_TEXT)?
                .map(|ParquetRows { table, bytes, memory }| (InputRows::Table(Box::new(table)), bytes, memory)),
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
        InputSource { reader, rows: 0, name: "it".to_owned(), size: None, ahead: None, commits: None }
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
        let skip = |ids: &'static [&str]| {
            let (mut input, stats) = (input(), RunStats::default());
            input.skip(ids.len() as u64, &mut AnsweredIds::of(ids), &stats).map(|()| stats.snapshot().skipped_bytes)
        };
        assert_eq!(skip(&["a"]).unwrap(), 23);
        assert_eq!(skip(&["a", "made up"]).unwrap(), 37);
        let error = |ids| skip(ids).unwrap_err().to_string();
        let other =
            |wanted| format!("row 0 of it has the id `a`, but was answered with {wanted}: is this the same input?");
        assert_eq!(error(&["b", "c"]), other("the id `b`"), "each id counts");
        assert_eq!(error(&[""]), other("no id"));
        assert_eq!(error(&["a", "b", "c"]), "it has 2 rows, but 3 were answered already: is this the same input?");
        let mut table = source("a\n1\n", SourceFormat::Delimited(b','));
        let error = table.skip(1, &mut AnsweredIds::of(&["b"]), &RunStats::default()).unwrap_err().to_string();
        assert_eq!(error, "row 0 of it has no id, but was answered with the id `b`: is this the same input?");
    }

    #[test]
    fn input_that_was_read_ahead_is_not_lost() {
        let mut source = source("a\nb\nc\n", SourceFormat::Requests);
        assert!(source.has_more(2).unwrap() && source.has_more(2).unwrap());
        let mut rows = || source.next(2).unwrap().map(|batch| (batch.first, batch.rows.len()));
        assert_eq!((rows(), rows(), rows()), (Some((0, 2)), Some((2, 1)), None));
        assert!(!source.has_more(1).unwrap());
    }

    #[test]
    fn input_sample_ends_when_the_input_pauses() {
        /// Has some bytes, and then a writer that writes nothing.
        struct Paused(&'static [u8], usize);

        impl io::Read for Paused {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(self.1 < self.0.len(), "this read would block");
                let taken = (self.0.len() - self.1).min(5).min(buffer.len());
                buffer[..taken].copy_from_slice(&self.0[self.1..self.1 + taken]);
                self.1 += taken;
                Ok(taken)
            }
        }

        impl InputBytes for Paused {
            fn wait(&self, _: std::time::Duration) -> bool {
                self.1 < self.0.len()
            }
        }

        let typed = [("a".to_owned(), Datatype::Int64)];
        for (text, format, types) in [
            ("a\n1\n2\n3\n", SourceFormat::Delimited(b','), &[][..]),
            ("a\r\n1\r\n2\r\n3\r\n", SourceFormat::Delimited(b','), &[]),
            ("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n", SourceFormat::Objects, &[]),
            // Nothing is left to infer.
            ("a\n", SourceFormat::Delimited(b','), &typed),
            ("{\"a\":1}\n", SourceFormat::Objects, &typed),
        ] {
            let reader = Paused(text.as_bytes(), 0);
            let mut reader = InputReader::open(Box::new(reader), format, types).unwrap().unwrap();
            if types.is_empty() {
                let (rows, ..) = reader.next(3).unwrap().unwrap();
                assert_eq!(rows.len(), 3, "{format:?}");
            }
        }
    }

    #[test]
    fn input_sample_of_long_rows_is_bounded() {
        /// Counts the bytes that are read.
        struct Counted(&'static [u8], Arc<std::sync::atomic::AtomicUsize>);

        impl io::Read for Counted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let taken = io::Read::read(&mut self.0, buffer)?;
                self.1.fetch_add(taken, Ordering::Relaxed);
                Ok(taken)
            }
        }

        impl InputBytes for Counted {
            fn wait(&self, _: std::time::Duration) -> bool {
                true
            }
        }

        for (start, format) in [("a\n", SourceFormat::Delimited(b',')), ("", SourceFormat::Objects)] {
            let row = "x".repeat(1 << 20);
            let row = if start.is_empty() { format!("{{\"a\":\"{row}\"}}\n") } else { format!("{row}\n") };
            let text: &'static str = format!("{start}{}", row.repeat(20)).leak();
            let count = Arc::default();
            let reader = Counted(text.as_bytes(), Arc::clone(&count));
            InputReader::open(Box::new(reader), format, &[]).unwrap();
            assert!(count.load(Ordering::Relaxed) < 6 << 20, "{format:?}");
        }
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
