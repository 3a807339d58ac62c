//! The columns of a Parquet file, as written by Spark, pandas and others.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::{TableRequest, check_unique};
use crate::client::ranged::{KEPT_BLOCKS, TableFile};
use crate::client::row::InvalidRow;
use crate::types::{BytesElements, Datatype, Parameters, Tensor, TensorData};

/// What a row's place in a column of text takes, in bytes, besides the text.
const TEXT_ENTRY: usize = size_of::<Option<ByteArray>>();
/// The limit on the numbers of a row group that are kept in memory, in bytes.
const MAX_GROUP: u64 = 512 << 20;
/// What a column takes that is read beside others, in bytes: a page and a dictionary, which writers limit to 1 MiB each.
const MAX_PAGES: u64 = 2 << 20;
/// What a row takes that cannot be sent, in bytes: the message about it.
const MESSAGE: u64 = 128;
/// How many values of a column are read at a time.
const READ_ROWS: usize = 8192;

/// A Parquet file.
///
/// Its rows need all columns, but a row group has one column after the other. A column that is read beside others keeps a page and
/// a dictionary, and of an object the blocks that they are in. Usually the values themselves take less: then each column of
/// numbers is read from start to end when the row group begins, and only its values are kept.
pub(in crate::client) struct ParquetTable {
    file: Arc<SerializedFileReader<TableFile>>,
    columns: Vec<ParquetColumn>,
    /// Whether the numbers of a row group are read when it begins.
    keeps_numbers: bool,
    group: usize,
    /// The columns of the row group that is being read.
    sources: Vec<ColumnSource>,
    /// The rows of the group that have been read, those that remain, and the bytes that each takes of the file.
    read: usize,
    left: usize,
    row_bytes: u64,
    /// Rows that have been read and not yet returned, if those before them were long.
    ahead: RowsAhead,
}

/// Rows that cannot be sent, with the reason.
type InvalidRows = BTreeMap<usize, String>;

/// A column of a row group.
enum ColumnSource {
    Reader(Box<ColumnReader>),
    /// All its numbers, of this width in bytes.
    Kept {
        bytes: Vec<u8>,
        width: usize,
        invalid: InvalidRows,
    },
}

/// The columns of some rows.
#[derive(Default)]
struct RowsAhead {
    columns: Vec<ColumnValues>,
    invalid: InvalidRows,
    next: usize,
    end: usize,
}

/// The values of a column. Text shares the memory of the page that it is in.
enum ColumnValues {
    Fixed { bytes: Vec<u8>, width: usize },
    Text(Vec<Option<ByteArray>>),
}

/// Rows, with the bytes that they take of the file and in memory.
pub(in crate::client) struct ParquetRows {
    pub(in crate::client) table: TableRequest,
    pub(in crate::client) bytes: u64,
    pub(in crate::client) memory: u64,
}

/// A column, and the datatype it becomes.
struct ParquetColumn {
    name: String,
    datatype: Datatype,
    optional: bool,
    /// Whether integers are signed. They are stored as if they were, in any case.
    signed: bool,
    /// Whether integers of 64 bits become FP64, which does not hold all of them.
    is_wide: bool,
}

impl ParquetTable {
    pub(in crate::client) fn open(file: TableFile, types: &[(String, Datatype)]) -> io::Result<Self> {
        let blocks = if let TableFile::Ranged(blocks) = &file { Some(blocks.clone()) } else { None };
        let file = SerializedFileReader::new(file).map_err(parquet_error)?;
        if let Some((name, _)) = types.first() {
            return Err(invalid_data(format!(
                "cannot apply --column-type to `{name}`: the columns of Parquet files have types"
            )));
        }
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let columns =
            schema.columns().iter().map(|column| ParquetColumn::of(column)).collect::<io::Result<Vec<_>>>()?;
        check_unique(columns.iter().map(|column| column.name.as_str())).map_err(invalid_data)?;
        let is_ranged = blocks.is_some();
        let keeps_numbers = file.metadata().row_groups().iter().all(|group| keeps_numbers(group, &columns, is_ranged));
        if let Some(blocks) = blocks {
            let groups = file.metadata().row_groups().iter();
            let largest = groups.map(compressed_size).max().unwrap_or_default();
            let is_beside_others = |column: &&ParquetColumn| !keeps_numbers || column.datatype == Datatype::Bytes;
            blocks.set_columns(columns.iter().filter(is_beside_others).count(), largest);
        }
        let (file, sources, ahead) = (Arc::new(file), Vec::new(), RowsAhead::default());
        Ok(Self { file, columns, keeps_numbers, group: 0, sources, read: 0, left: 0, row_bytes: 0, ahead })
    }

    /// Returns the next rows, at most `max_rows` of them, of which all but the last have less than `max_bytes` together. Returns
    /// `None` at the end.
    pub(in crate::client) fn next(&mut self, max_rows: usize, max_bytes: usize) -> io::Result<Option<ParquetRows>> {
        if self.ahead.next == self.ahead.end {
            while self.left == 0 {
                if self.group == self.file.num_row_groups() {
                    return Ok(None);
                }
                self.open_group()?;
            }
            self.read_ahead(max_rows, max_bytes)?;
        }
        let start = self.ahead.next;
        let (mut rows, mut memory) = (0, 0);
        while start + rows < self.ahead.end && rows < max_rows && memory < max_bytes {
            memory += self.ahead.size(start + rows);
            rows += 1;
        }
        self.ahead.next += rows;
        let table = self.ahead.request(&self.columns, start, rows);
        Ok(Some(ParquetRows { table, bytes: self.row_bytes * rows as u64, memory: memory as u64 }))
    }

    /// Reads rows whose numbers and entries of text take `max_bytes` at most.
    fn read_ahead(&mut self, max_rows: usize, max_bytes: usize) -> io::Result<()> {
        let row: usize = self.columns.iter().map(|column| column.datatype.width().unwrap_or(TEXT_ENTRY)).sum();
        let rows = max_rows.min(self.left).min(max_bytes / row.max(1)).max(1);
        let mut ahead = RowsAhead { end: rows, ..RowsAhead::default() };
        for (column, source) in self.columns.iter().zip(&mut self.sources) {
            let values = match source {
                ColumnSource::Reader(reader) => column.read(reader, 0, rows, &mut ahead.invalid)?,
                ColumnSource::Kept { bytes, width, invalid } => {
                    let range = self.read..self.read + rows;
                    for (row, message) in invalid.range(range.clone()) {
                        ahead.invalid.entry(row - self.read).or_insert_with(|| message.clone());
                    }
                    let bytes = bytes[range.start * *width..range.end * *width].to_vec();
                    ColumnValues::Fixed { bytes, width: *width }
                }
            };
            ahead.columns.push(values);
        }
        self.read += rows;
        self.left -= rows;
        self.ahead = ahead;
        Ok(())
    }

    fn open_group(&mut self) -> io::Result<()> {
        // The values of the group before are not needed while those of the next one are read.
        self.sources.clear();
        let group = self.file.get_row_group(self.group).map_err(parquet_error)?;
        let metadata = group.metadata();
        (self.read, self.left) = (0, usize::try_from(metadata.num_rows()).unwrap_or_default());
        self.row_bytes = compressed_size(metadata) / (self.left.max(1) as u64);
        for (index, column) in self.columns.iter().enumerate() {
            let reader = group.get_column_reader(index).map_err(parquet_error)?;
            self.sources.push(match column.datatype.width() {
                Some(width) if self.keeps_numbers => column.keep(reader, self.left, width)?,
                _ => ColumnSource::Reader(Box::new(reader)),
            });
        }
        self.group += 1;
        Ok(())
    }
}

fn compressed_size(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.compressed_size()).unwrap_or_default()
}

/// Reports whether the numbers of a row group take less memory than pages of its columns would.
fn keeps_numbers(group: &RowGroupMetaData, columns: &[ParquetColumn], is_ranged: bool) -> bool {
    let (mut row, mut pages) = (0, 0);
    for (column, chunk) in columns.iter().zip(group.columns()) {
        if let Some(width) = column.datatype.width() {
            row += width as u64;
            pages += u64::try_from(chunk.uncompressed_size()).unwrap_or_default().min(MAX_PAGES);
        }
    }
    if columns.iter().any(ParquetColumn::may_be_invalid) {
        row += MESSAGE;
    }
    let blocks = if is_ranged { compressed_size(group).min(KEPT_BLOCKS) } else { 0 };
    let rows = u64::try_from(group.num_rows()).unwrap_or_default();
    rows.saturating_mul(row) <= MAX_GROUP.min(pages + blocks)
}

impl RowsAhead {
    /// Returns the size of a row in memory.
    fn size(&self, row: usize) -> usize {
        let sizes = self.columns.iter().map(|column| match column {
            ColumnValues::Fixed { width, .. } => *width,
            ColumnValues::Text(texts) => {
                TEXT_ENTRY + texts.get(row).and_then(Option::as_ref).map_or(0, |text| text.data().len())
            }
        });
        sizes.sum()
    }

    /// Returns the request for some of the rows.
    fn request(&self, columns: &[ParquetColumn], start: usize, rows: usize) -> TableRequest {
        let range = start..start + rows;
        let invalid = self.invalid.range(range.clone());
        let invalid: Vec<InvalidRow> = invalid
            .map(|(row, message)| InvalidRow { position: row - start, id: None, message: message.clone() })
            .collect();
        let mut left_out = invalid.iter().map(|row| row.position).peekable();
        let positions: Vec<usize> = (0..rows).filter(|position| left_out.next_if_eq(position).is_none()).collect();
        let inputs = columns.iter().zip(&self.columns).map(|(column, values)| {
            let data = match values {
                ColumnValues::Fixed { bytes, width } if invalid.is_empty() => {
                    TensorData::Fixed(Bytes::copy_from_slice(&bytes[range.start * width..range.end * width]))
                }
                ColumnValues::Fixed { bytes, width } => {
                    let rows = positions.iter().map(|position| (start + position) * width);
                    let bytes: Vec<u8> = rows.flat_map(|at| &bytes[at..at + width]).copied().collect();
                    TensorData::Fixed(bytes.into())
                }
                ColumnValues::Text(texts) => {
                    let texts = positions.iter().map(|position| texts[start + position].as_ref());
                    let texts = texts.map(|text| text.map_or(&[][..], ByteArray::data));
                    TensorData::Variable(texts.collect::<BytesElements>())
                }
            };
            let is_text = column.datatype == Datatype::Bytes;
            let parameters = if is_text { Parameters::with_content_type("str") } else { Parameters::new() };
            let (name, shape) = (column.name.clone(), vec![positions.len(), 1]);
            Tensor { name, datatype: column.datatype, shape, parameters, data, nested: false, as_sent: None }
        });
        let inputs = inputs.collect();
        TableRequest { positions, invalid, ..TableRequest::of_tensors(inputs, 0, true) }
    }
}

impl ParquetColumn {
    fn of(column: &ColumnDescriptor) -> io::Result<Self> {
        let name = column.path().string();
        let refused =
            |what: &str| invalid_data(format!("column `{name}` is {what}: expected numbers, text or booleans"));
        if column.max_rep_level() > 0 || column.path().parts().len() > 1 || column.max_def_level() > 1 {
            return Err(refused("a list or a structure"));
        }
        let signed = !matches!(column.logical_type_ref(), Some(LogicalType::Integer(integer)) if !integer.is_signed);
        let is_number = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer(_)));
        let datatype = match (column.physical_type(), column.converted_type()) {
            (PhysicalType::BOOLEAN, _) => Datatype::Bool,
            (PhysicalType::FLOAT, _) => Datatype::Fp32,
            (PhysicalType::DOUBLE, _) => Datatype::Fp64,
            (PhysicalType::BYTE_ARRAY, ConvertedType::DECIMAL) => return Err(refused("a decimal")),
            (PhysicalType::BYTE_ARRAY, _) => Datatype::Bytes,
            (PhysicalType::INT32, _) if is_number && signed => Datatype::Int32,
            (PhysicalType::INT64, _) if is_number && signed => Datatype::Int64,
            (PhysicalType::INT32, _) if is_number => Datatype::Uint32,
            (PhysicalType::INT64, _) if is_number => Datatype::Uint64,
            _ => return Err(refused("a date, a time, a decimal or of a fixed length")),
        };
        let optional = column.self_type().get_basic_info().repetition() == Repetition::OPTIONAL;
        // Missing integers become NaN, as in pandas.
        let is_integer = !matches!(datatype, Datatype::Bool | Datatype::Bytes | Datatype::Fp32 | Datatype::Fp64);
        let is_wide = optional && matches!(datatype, Datatype::Int64 | Datatype::Uint64);
        let datatype = if optional && is_integer { Datatype::Fp64 } else { datatype };
        Ok(Self { name, datatype, optional, signed, is_wide })
    }

    /// Reports whether there may be rows whose values have no place in the datatype.
    const fn may_be_invalid(&self) -> bool {
        self.optional && matches!(self.datatype, Datatype::Bool) || self.is_wide
    }

    /// Reads all rows of a row group.
    fn keep(&self, mut reader: ColumnReader, rows: usize, width: usize) -> io::Result<ColumnSource> {
        let (mut all, mut invalid) = (Vec::with_capacity(rows * width), BTreeMap::new());
        let mut first = 0;
        while first < rows {
            let count = READ_ROWS.min(rows - first);
            if let ColumnValues::Fixed { bytes, .. } = self.read(&mut reader, first, count, &mut invalid)? {
                all.extend_from_slice(&bytes);
            }
            first += count;
        }
        Ok(ColumnSource::Kept { bytes: all, width, invalid })
    }

    /// Reads the next rows, of which `first` is the number of the first one, and records those that cannot be sent. The message
    /// of another column about the same row stays.
    fn read(
        &self,
        reader: &mut ColumnReader,
        first: usize,
        rows: usize,
        invalid: &mut InvalidRows,
    ) -> io::Result<ColumnValues> {
        Ok(match reader {
            ColumnReader::BoolColumnReader(reader) => {
                let values = self.values::<BoolType>(reader, rows)?;
                for (row, _) in (first..).zip(&values).filter(|(_, value)| value.is_none()) {
                    invalid.entry(row).or_insert_with(|| {
                        format!("column `{}`: a missing value is not a valid {}", self.name, self.datatype)
                    });
                }
                fixed(values, |value| [u8::from(value.unwrap_or_default())])
            }
            ColumnReader::FloatColumnReader(reader) => {
                fixed(self.values::<FloatType>(reader, rows)?, |value| value.unwrap_or(f32::NAN).to_le_bytes())
            }
            ColumnReader::DoubleColumnReader(reader) => {
                fixed(self.values::<DoubleType>(reader, rows)?, |value| value.unwrap_or(f64::NAN).to_le_bytes())
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let values = self.values::<Int32Type>(reader, rows)?;
                if self.optional {
                    let wide = |value: i32| if self.signed { value.into() } else { value.cast_unsigned().into() };
                    fixed(values, |value| value.map_or(f64::NAN, wide).to_le_bytes())
                } else {
                    fixed(values, |value| value.unwrap_or_default().to_le_bytes())
                }
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let values = self.values::<Int64Type>(reader, rows)?;
                if self.optional {
                    let exact = |value: i64| if self.signed { value.into() } else { value.cast_unsigned().into() };
                    for (row, value) in (first..).zip(&values) {
                        let value: i128 = value.map_or(0, exact);
                        if is_rounded(value) {
                            invalid.entry(row).or_insert_with(|| {
                                format!(
                                    "column `{}`: `{value}` would lose digits as FP64, the datatype of integers that may be \
                                     missing; declare the column as required, or store it as text",
                                    self.name
                                )
                            });
                        }
                    }
                    #[expect(clippy::cast_precision_loss, reason = "rows whose value would be rounded are invalid")]
                    fixed(values, |value| value.map_or(f64::NAN, |value| exact(value) as f64).to_le_bytes())
                } else {
                    fixed(values, |value| value.unwrap_or_default().to_le_bytes())
                }
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                ColumnValues::Text(self.values::<ByteArrayType>(reader, rows)?)
            }
            _ => return Err(invalid_data(format!("column `{}` has an unsupported type", self.name))),
        })
    }

    /// Reads the next values, of which some may be missing.
    fn values<T: DataType>(&self, reader: &mut ColumnReaderImpl<T>, rows: usize) -> io::Result<Vec<Option<T::T>>> {
        let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut read = 0;
        while read < rows {
            let levels = self.optional.then_some(&mut levels);
            let (records, ..) = reader.read_records(rows - read, levels, None, &mut values).map_err(parquet_error)?;
            if records == 0 {
                return Err(invalid_data(format!("column `{}` has fewer values than its group has rows", self.name)));
            }
            read += records;
        }
        if !self.optional {
            return Ok(values.into_iter().map(Some).collect());
        }
        let mut values = values.into_iter();
        Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
    }
}

fn fixed<T, const N: usize>(values: Vec<Option<T>>, bytes: impl Fn(Option<T>) -> [u8; N]) -> ColumnValues {
    let bytes: Vec<u8> = values.into_iter().flat_map(bytes).collect();
    ColumnValues::Fixed { bytes, width: N }
}

/// Reports whether FP64 does not hold an integer exactly.
fn is_rounded(value: i128) -> bool {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "the loss is what is looked for")]
    let back = value as f64 as i128;
    back != value
}

fn invalid_data(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        // The crate's message names one of its features, which means nothing to users.
        ParquetError::General(what) if what.starts_with("Disabled feature") => {
            invalid_data(format!("unsupported compression: use snappy, gzip, zstd, lz4, or none ({what})"))
        }
        error => invalid_data(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;

    use super::*;

    /// Writes an optional column of integers, and a column of text.
    fn table(numbers: &[Option<i64>], texts: &[&str]) -> ParquetTable {
        let column = |name: &str, physical, repetition| {
            Arc::new(Type::primitive_type_builder(name, physical).with_repetition(repetition).build().unwrap())
        };
        let fields = vec![
            column("n", PhysicalType::INT64, Repetition::OPTIONAL),
            column("t", PhysicalType::BYTE_ARRAY, Repetition::REQUIRED),
        ];
        let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build().unwrap());
        let file = tempfile::tempfile().unwrap();
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(file.try_clone().unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let levels: Vec<i16> = numbers.iter().map(|number| number.is_some().into()).collect();
        let numbers: Vec<i64> = numbers.iter().copied().flatten().collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None).unwrap();
        column.close().unwrap();
        let texts: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(*text)).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        ParquetTable::open(TableFile::File(file), &[]).unwrap()
    }

    #[test]
    fn parquet_batches_are_limited_by_their_size_in_memory() {
        let text = "x".repeat(100_000);
        // The file has the text once.
        let mut table = table(&[Some(1); 100], &[text.as_str(); 100]);
        let mut rows = Vec::new();
        while let Some(ParquetRows { table, bytes, memory }) = table.next(1000, 1 << 20).unwrap() {
            assert!(memory < (1 << 20) + 200_000 && memory > 100_000 && bytes < 100_000, "{memory} {bytes}");
            assert!(table.request.inputs.iter().all(|input| input.check().is_ok()));
            rows.push(table.rows());
        }
        assert_eq!((rows.iter().sum::<usize>(), rows[0]), (100, 11), "{rows:?}");
    }

    #[test]
    fn parquet_integers_that_lose_digits_fail_alone() {
        let exact = (1 << 53) + 2;
        let mut table = table(&[Some(exact), None, Some(exact - 1), Some(-exact)], &["a", "b", "c", "d"]);
        let ParquetRows { table, .. } = table.next(10, 1 << 20).unwrap().unwrap();
        assert_eq!(table.positions, [0, 1, 3]);
        assert_eq!((table.invalid.len(), table.invalid[0].position), (1, 2));
        assert!(table.invalid[0].message.starts_with("column `n`: `9007199254740993` would lose digits as FP64"));
        let numbers = table.request.inputs[0].elements::<f64>().unwrap().to_vec();
        assert!(numbers[1].is_nan() && numbers[0].to_bits() == (-numbers[2]).to_bits(), "{numbers:?}");
        let TensorData::Variable(texts) = &table.request.inputs[1].data else { unreachable!() };
        assert_eq!(texts.iter().collect::<Vec<_>>(), [b"a", b"b", b"d"]);
    }

    /// Writes required columns of doubles.
    fn doubles(columns: usize, rows: u32, value: impl Fn(u32) -> f64) -> ParquetTable {
        let fields = (0..columns).map(|column| {
            let name = format!("c{column}");
            let field = Type::primitive_type_builder(&name, PhysicalType::DOUBLE);
            Arc::new(field.with_repetition(Repetition::REQUIRED).build().unwrap())
        });
        let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields.collect()).build().unwrap());
        let file = tempfile::tempfile().unwrap();
        let mut writer = SerializedFileWriter::new(file.try_clone().unwrap(), schema, Arc::default()).unwrap();
        let values: Vec<f64> = (0..rows).map(value).collect();
        for _ in 0..2 {
            let mut group = writer.next_row_group().unwrap();
            while let Some(mut column) = group.next_column().unwrap() {
                column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
        ParquetTable::open(TableFile::File(file), &[]).unwrap()
    }

    /// Reads all rows, and returns each request with its invalid rows.
    fn read_all(mut table: ParquetTable, max_rows: usize) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(ParquetRows { table, .. }) = table.next(max_rows, 1 << 20).unwrap() {
            assert!(table.request.inputs.iter().all(|input| input.check().is_ok()));
            let invalid: Vec<_> = table.invalid.iter().map(|row| (row.position, &row.message)).collect();
            all.push(format!("{:?} {:?} {invalid:?}", table.request.inputs, table.positions));
        }
        all
    }

    #[test]
    fn parquet_numbers_that_are_kept_are_those_of_their_pages() {
        let rows = i64::try_from(READ_ROWS).unwrap() + 10;
        let numbers: Vec<_> = (0..rows).map(|row| (row % 7 > 0).then_some((1 << 53) + row % 3)).collect();
        let texts: Vec<String> = (0..rows).map(|row| row.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let read = |keeps_numbers| read_all(ParquetTable { keeps_numbers, ..table(&numbers, &texts) }, 1000);
        assert!(read(true) == read(false));
        let read = |keeps_numbers| read_all(ParquetTable { keeps_numbers, ..doubles(3, 2500, f64::from) }, 1000);
        assert!(read(true) == read(false));
        // The batches end with their groups.
        assert_eq!(read(true).len(), 6);
    }

    #[test]
    fn parquet_numbers_are_kept_if_they_are_smaller_than_pages() {
        assert!(doubles(20, 5000, f64::from).keeps_numbers);
        // A dictionary of one value and runs of it.
        assert!(!doubles(20, 5000, |_| 0.5).keeps_numbers);
        // Messages take more than numbers.
        assert!(!table(&[Some(1), Some(2), Some(3)], &["a", "b", "c"]).keeps_numbers);
    }
}
