//! Comma- or tab-separated values below a header line.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::{
    ColumnTypeGuess, SAMPLE_PAUSE, SAMPLE_ROWS, SAMPLE_TEXT, TableBuilder, TableCell, TableColumn, TableRequest,
    apply_column_types, are_typed, check_unique,
};
use crate::client::lines::{InputBytes, MAX_LINE, invalid};
use crate::types::{Datatype, text};

/// A table of such rows.
pub(in crate::client) struct CsvTable {
    reader: Reader<RowSizeGuard>,
    columns: Arc<[TableColumn]>,
    /// The rows that datatypes were inferred from, with the bytes of each.
    sample: VecDeque<(ByteRecord, u64)>,
    position: u64,
    /// What is odd about the inferred datatypes.
    warnings: Vec<String>,
}

/// Fails if a row exceeds the size limit, as one without a closing quote does.
struct RowSizeGuard {
    inner: Box<dyn InputBytes>,
    /// The bytes that have been read since the last row.
    since: usize,
    /// The bytes that have been read.
    total: u64,
}

impl Read for RowSizeGuard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since > MAX_LINE {
            let message = format!("a row has more than {MAX_LINE} bytes: is a closing quote missing?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let mut read = self.inner.read(buffer)?;
        if self.total == 0 {
            // The bytes that show the encoding. A pipe may not have more yet: the shortest line of names has two.
            while read > 0 && read < 2.min(buffer.len()) {
                match self.inner.read(&mut buffer[read..])? {
                    0 => break,
                    more => read += more,
                }
            }
            text::without_mark(&buffer[..read]).map_err(invalid)?;
        }
        self.since += read;
        self.total += read as u64;
        Ok(read)
    }
}

impl CsvTable {
    pub(in crate::client) fn open(
        inner: Box<dyn InputBytes>,
        delimiter: u8,
        types: &[(String, Datatype)],
    ) -> io::Result<Self> {
        let guard = RowSizeGuard { inner, since: 0, total: 0 };
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).flexible(true).buffer_capacity(256 << 10).from_reader(guard);
        let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
        let names = reader.headers().map_err(|error| wrong(format!("cannot read the header line: {error}")))?.clone();
        if names.is_empty() {
            return Err(wrong("the header line with the names of columns is missing".to_owned()));
        }
        let names: Vec<String> = names.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
        check_unique(names.iter().map(String::as_str)).map_err(wrong)?;
        let columns = Arc::default();
        let position = reader.position().byte();
        let mut csv = Self { reader, columns, sample: VecDeque::new(), position, warnings: Vec::new() };
        let mut seen = vec![ColumnTypeGuess::default(); names.len()];
        let (is_typed, mut text) = (are_typed(names.iter().map(String::as_str), types), 0);
        while !is_typed && csv.sample.len() < SAMPLE_ROWS && text < SAMPLE_TEXT {
            if !csv.sample.is_empty() && !csv.wait() {
                break;
            }
            let Some(record) = csv.read()? else { break };
            if record.0.len() == names.len() {
                for (seen, cell) in seen.iter_mut().zip(cells(&record.0)) {
                    seen.add(cell);
                    if seen.has_text() && seen.first_text.is_none() {
                        seen.first_text = Some(csv.sample.len());
                    }
                }
            }
            text += record.0.as_slice().len();
            csv.sample.push_back(record);
        }
        let is_specified = |name: &str| types.iter().any(|(specified, _)| specified == name);
        let guesses = names.iter().zip(&seen).filter(|(name, _)| !is_specified(name));
        csv.warnings = guesses.filter_map(|(name, seen)| seen.warning(name)).collect();
        let columns = names.into_iter().zip(seen).map(|(name, seen)| {
            let datatype = seen.datatype();
            TableColumn { name, datatype, inferred: true }
        });
        let mut columns: Vec<TableColumn> = columns.collect();
        apply_column_types(&mut columns, types).map_err(wrong)?;
        csv.columns = columns.into();
        Ok(csv)
    }

    /// Waits for more rows. Returns false if the input pauses.
    fn wait(&self) -> bool {
        let guard = self.reader.get_ref();
        // The second byte of a line ending is left for the next row.
        guard.total > self.reader.position().byte() + 1 || guard.inner.wait(SAMPLE_PAUSE)
    }

    fn read(&mut self) -> io::Result<Option<(ByteRecord, u64)>> {
        let mut record = ByteRecord::new();
        if !self.reader.read_byte_record(&mut record).map_err(io::Error::from)? {
            return Ok(None);
        }
        self.reader.get_mut().since = 0;
        let end = self.reader.position().byte();
        let taken = end - self.position;
        self.position = end;
        Ok(Some((record, taken)))
    }

    /// Returns the next row and the bytes it took, or `None` at the end.
    pub(in crate::client) fn next(&mut self) -> io::Result<Option<(ByteRecord, u64)>> {
        match self.sample.pop_front() {
            Some(record) => Ok(Some(record)),
            None => self.read(),
        }
    }

    /// Returns what is odd about the inferred datatypes.
    pub(in crate::client) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(in crate::client) fn columns(&self) -> Arc<[TableColumn]> {
        Arc::clone(&self.columns)
    }
}

fn cells(record: &ByteRecord) -> impl Iterator<Item = TableCell<'_>> {
    // Invalid UTF-8 becomes text, so that the column gets the datatype BYTES. Such rows are rejected later, with a message.
    record.iter().map(|field| std::str::from_utf8(field).map_or(TableCell::Text("\u{fffd}"), TableCell::Untyped))
}

/// Builds the request for some rows.
pub(in crate::client) fn build_request(columns: &[TableColumn], records: &[ByteRecord]) -> TableRequest {
    let mut builder = TableBuilder::new(columns, records.len());
    for (position, record) in records.iter().enumerate() {
        if record.len() != columns.len() {
            let message = format!("the row has {} values, but the header line has {}", record.len(), columns.len());
            builder.reject(position, message);
        } else if std::str::from_utf8(record.as_slice()).is_err() {
            builder.reject(position, "the row is not UTF-8".to_owned());
        } else {
            builder.row(position, cells(record));
        }
    }
    builder.finish()
}
