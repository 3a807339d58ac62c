//! Writes columns as Parquet, compressed with snappy.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as PhysicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RowAccessor;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::{ColumnGroup, ColumnSink, ID, OutputElement, OutputRow, column_names, elements};
use crate::types::Datatype;

/// The limit on the values of a row group, which are kept in memory.
const MAX_GROUP_VALUES: usize = 1 << 20;
/// The metadata key for the number of failed rows.
const FAILED_KEY: &str = "mlserver.failed";

pub(super) struct ParquetSink {
    writer: SerializedFileWriter<File>,
    groups: Vec<ColumnGroup>,
    columns: Vec<ColumnValues>,
    rows: usize,
    /// The rows of a full row group.
    max_rows: usize,
}

/// The values of a column, and which rows have one.
struct ColumnValues {
    data: ColumnData,
    levels: Vec<i16>,
}

enum ColumnData {
    Bool(Vec<bool>),
    Int64(Vec<i64>),
    Single(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl ColumnValues {
    fn new(datatype: Datatype) -> Self {
        let data = match datatype {
            Datatype::Bool => ColumnData::Bool(Vec::new()),
            Datatype::Bytes => ColumnData::Text(Vec::new()),
            Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 => ColumnData::Single(Vec::new()),
            Datatype::Fp64 => ColumnData::Double(Vec::new()),
            _ => ColumnData::Int64(Vec::new()),
        };
        Self { data, levels: Vec::new() }
    }

    fn schema(&self, name: &str, is_unsigned: bool) -> Result<Type, ParquetError> {
        let (physical, converted) = match self.data {
            ColumnData::Bool(_) => (PhysicalType::BOOLEAN, ConvertedType::NONE),
            ColumnData::Int64(_) if is_unsigned => (PhysicalType::INT64, ConvertedType::UINT_64),
            ColumnData::Int64(_) => (PhysicalType::INT64, ConvertedType::NONE),
            ColumnData::Single(_) => (PhysicalType::FLOAT, ConvertedType::NONE),
            ColumnData::Double(_) => (PhysicalType::DOUBLE, ConvertedType::NONE),
            ColumnData::Text(_) => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let column = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        column.with_converted_type(converted).build()
    }

    fn push(&mut self, element: Option<OutputElement<'_>>) {
        let Some(element) = element else {
            self.levels.push(0);
            return;
        };
        match (&mut self.data, element) {
            (ColumnData::Bool(values), OutputElement::Bool(value)) => values.push(value),
            (ColumnData::Int64(values), OutputElement::Integer(value)) => values.push(value),
            (ColumnData::Int64(values), OutputElement::Unsigned(value)) => values.push(value.cast_signed()),
            (ColumnData::Single(values), OutputElement::Single(value)) => values.push(value),
            (ColumnData::Double(values), OutputElement::Double(value)) => values.push(value),
            (ColumnData::Text(values), OutputElement::Text(text)) => values.push(text.to_vec().into()),
            (ColumnData::Text(values), other) => values.push(other.to_text().into_bytes().into()),
            // The first pass has found a datatype for all values.
            _ => {
                self.levels.push(0);
                return;
            }
        }
        self.levels.push(1);
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.data {
            ColumnData::Bool(values) => values.clear(),
            ColumnData::Int64(values) => values.clear(),
            ColumnData::Single(values) => values.clear(),
            ColumnData::Double(values) => values.clear(),
            ColumnData::Text(values) => values.clear(),
        }
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(self.levels.as_slice());
        match (&self.data, writer) {
            (ColumnData::Bool(values), ColumnWriter::BoolColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)
            }
            (ColumnData::Int64(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)
            }
            (ColumnData::Single(values), ColumnWriter::FloatColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)
            }
            (ColumnData::Double(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)
            }
            (ColumnData::Text(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                writer.write_batch(values, levels, None)
            }
            _ => Err(ParquetError::General("a column is not of its schema's type".to_owned())),
        }
        .map(drop)
    }
}

impl ParquetSink {
    pub(super) fn new(file: File, groups: Vec<ColumnGroup>) -> io::Result<Self> {
        let mut columns = vec![ColumnValues::new(Datatype::Int64), ColumnValues::new(Datatype::Bytes)];
        let mut is_unsigned = vec![false, false];
        for group in &groups {
            for _ in 0..group.width {
                columns.push(ColumnValues::new(group.datatype));
                is_unsigned.push(group.datatype == Datatype::Uint64);
            }
        }
        columns.push(ColumnValues::new(Datatype::Bytes));
        is_unsigned.push(false);
        let names = column_names(&groups);
        let fields = names.iter().zip(&columns).zip(is_unsigned);
        let fields = fields.map(|((name, values), unsigned)| values.schema(name, unsigned));
        let fields = fields.map(|field| field.map(Arc::new)).collect::<Result<Vec<_>, _>>();
        let schema = fields.and_then(|fields| Type::group_type_builder("answers").with_fields(fields).build());
        let schema = Arc::new(schema.map_err(parquet_error)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).map_err(parquet_error)?;
        let max_rows = (MAX_GROUP_VALUES / columns.len()).max(1);
        Ok(Self { writer, groups, columns, rows: 0, max_rows })
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for values in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            values.write(column.untyped())?;
            column.close()?;
            values.clear();
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl ColumnSink for ParquetSink {
    fn row(&mut self, row: &OutputRow) -> io::Result<()> {
        let mut columns = self.columns.iter_mut();
        let mut push = |element| {
            if let Some(column) = columns.next() {
                column.push(element);
            }
        };
        push(Some(OutputElement::Integer(row.index)));
        push(Some(OutputElement::Text(row.id.as_bytes())));
        for group in &self.groups {
            let output = row.outputs.iter().find(|output| output.name == group.name);
            let elements = output.map(elements).unwrap_or_default();
            (0..group.width).for_each(|index| push(elements.get(index).copied()));
        }
        push(row.error.as_ref().map(|error| OutputElement::Text(error.as_bytes())));
        self.rows += 1;
        if self.rows == self.max_rows { self.flush().map_err(parquet_error) } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>, failed: u64) -> io::Result<()> {
        self.flush().map_err(parquet_error)?;
        self.writer.append_key_value_metadata(KeyValue::new(FAILED_KEY.to_owned(), failed.to_string()));
        self.writer.close().map_err(parquet_error).map(drop)
    }
}

fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

pub(super) fn count(path: &Path) -> io::Result<(u64, u64)> {
    let reader = SerializedFileReader::new(File::open(path)?).map_err(parquet_error)?;
    let about = reader.metadata().file_metadata();
    let failed = about.key_value_metadata().into_iter().flatten().find(|pair| pair.key == FAILED_KEY);
    let failed = failed.and_then(|pair| pair.value.as_ref()?.parse().ok());
    let failed = failed.ok_or_else(|| super::invalid_data("it is not the output of a complete run".to_owned()))?;
    Ok((u64::try_from(about.num_rows()).unwrap_or_default(), failed))
}

pub(super) fn ids(path: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<String>> + Send>> {
    let reader = SerializedFileReader::new(File::open(path)?).map_err(parquet_error)?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let id = fields.iter().find(|field| field.name() == ID).cloned();
    let id = id.ok_or_else(|| super::invalid_data("it has no column `id`".to_owned()))?;
    let projected = Type::group_type_builder("answers").with_fields(vec![id]).build().map_err(parquet_error)?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projected)).map_err(parquet_error)?;
    Ok(Box::new(rows.map(|row| {
        let row = row.map_err(parquet_error)?;
        row.get_string(0).cloned().map_err(parquet_error)
    })))
}
