//! Writes columns as comma- or tab-separated values.

use std::fs::File;
use std::io;
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder, Writer, WriterBuilder};

use super::{ColumnGroup, ColumnSink, ERROR, ID, INDEX, OutputRow, column_names, elements};

pub(super) struct CsvSink {
    writer: Writer<File>,
    groups: Vec<ColumnGroup>,
    /// Reused for each row.
    record: ByteRecord,
}

impl CsvSink {
    pub(super) fn new(file: File, delimiter: u8, groups: Vec<ColumnGroup>) -> io::Result<Self> {
        let mut writer = WriterBuilder::new().delimiter(delimiter).buffer_capacity(256 << 10).from_writer(file);
        writer.write_record(column_names(&groups)).map_err(io::Error::from)?;
        Ok(Self { writer, groups, record: ByteRecord::new() })
    }
}

impl ColumnSink for CsvSink {
    fn row(&mut self, row: &OutputRow) -> io::Result<()> {
        self.record.clear();
        self.record.push_field(row.index.to_string().as_bytes());
        self.record.push_field(row.id.as_bytes());
        for group in &self.groups {
            let output = row.outputs.iter().find(|output| output.name == group.name);
            let elements = output.map(elements).unwrap_or_default();
            for index in 0..group.width {
                let text = elements.get(index).map(|element| element.to_text()).unwrap_or_default();
                self.record.push_field(text.as_bytes());
            }
        }
        self.record.push_field(row.error.as_deref().unwrap_or_default().as_bytes());
        self.writer.write_byte_record(&self.record).map_err(io::Error::from)
    }

    fn finish(mut self: Box<Self>, _failed: u64) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Opens a file that [`CsvSink`] has written.
fn open(path: &Path, delimiter: u8) -> io::Result<Reader<File>> {
    let mut reader = ReaderBuilder::new().delimiter(delimiter).from_path(path).map_err(io::Error::from)?;
    let names = reader.byte_headers().map_err(io::Error::from)?;
    if (names.get(0), names.get(1)) != (Some(INDEX.as_bytes()), Some(ID.as_bytes()))
        || names.iter().next_back() != Some(ERROR.as_bytes())
    {
        return Err(super::invalid_data("it is not the output of a complete run".to_owned()));
    }
    Ok(reader)
}

pub(super) fn count(path: &Path, delimiter: u8) -> io::Result<(u64, u64)> {
    let mut reader = open(path, delimiter)?;
    let (mut rows, mut failed, mut record) = (0, 0, ByteRecord::new());
    while reader.read_byte_record(&mut record).map_err(io::Error::from)? {
        rows += 1;
        failed += u64::from(record.iter().next_back().is_some_and(|error| !error.is_empty()));
    }
    Ok((rows, failed))
}

pub(super) fn ids(path: &Path, delimiter: u8) -> io::Result<Box<dyn Iterator<Item = io::Result<String>> + Send>> {
    let records = open(path, delimiter)?.into_byte_records();
    Ok(Box::new(records.map(|record| {
        let record = record.map_err(io::Error::from)?;
        Ok(String::from_utf8_lossy(record.get(1).unwrap_or_default()).into_owned())
    })))
}
