//! Writes columns as comma- or tab-separated values.

use std::fs::File;
use std::io;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, Writer, WriterBuilder};

use super::{ColumnGroup, ColumnSink, OutputRow, elements};

/// The name of the last column, which has the reason why a row failed.
const ERROR: &str = "error";

pub(super) struct CsvSink {
    writer: Writer<File>,
    groups: Vec<ColumnGroup>,
    /// Reused for each row.
    record: ByteRecord,
}

impl CsvSink {
    pub(super) fn new(file: File, delimiter: u8, groups: Vec<ColumnGroup>) -> io::Result<Self> {
        let mut writer = WriterBuilder::new().delimiter(delimiter).buffer_capacity(256 << 10).from_writer(file);
        let names = ["batch_index".to_owned(), "id".to_owned()].into_iter();
        let names = names.chain(groups.iter().flat_map(ColumnGroup::names)).chain([ERROR.to_owned()]);
        writer.write_record(names.map(String::into_bytes)).map_err(io::Error::from)?;
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

pub(super) fn count(path: &Path, delimiter: u8) -> io::Result<(u64, u64)> {
    let mut reader = ReaderBuilder::new().delimiter(delimiter).from_path(path).map_err(io::Error::from)?;
    if reader.byte_headers().map_err(io::Error::from)?.iter().next_back() != Some(ERROR.as_bytes()) {
        return Err(super::invalid_data("it is not the output of a complete run".to_owned()));
    }
    let (mut rows, mut failed, mut record) = (0, 0, ByteRecord::new());
    while reader.read_byte_record(&mut record).map_err(io::Error::from)? {
        rows += 1;
        failed += u64::from(record.iter().next_back().is_some_and(|error| !error.is_empty()));
    }
    Ok((rows, failed))
}
