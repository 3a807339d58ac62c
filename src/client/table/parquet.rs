//! The columns of a Parquet file, as written by Spark, pandas and others.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::types::{BytesElements, Datatype, Parameters, Tensor, TensorData};

/// A Parquet file.
pub(in crate::client) struct ParquetTable {
    file: Arc<SerializedFileReader<File>>,
    columns: Vec<ParquetColumn>,
    group: usize,
    /// The columns of the row group that is being read.
    readers: Vec<ColumnReader>,
    /// The remaining rows of the group, and the bytes that each takes of the file.
    left: usize,
    row_bytes: u64,
}

/// A column, and the datatype it becomes.
struct ParquetColumn {
    name: String,
    datatype: Datatype,
    optional: bool,
    /// Whether integers are signed. They are stored as if they were, in any case.
    signed: bool,
}

impl ParquetTable {
    pub(in crate::client) fn open(file: File, types: &[(String, Datatype)]) -> io::Result<Self> {
        let file = SerializedFileReader::new(file).map_err(parquet_error)?;
        if let Some((name, _)) = types.first() {
            return Err(invalid_data(format!(
                "cannot apply --column-type to `{name}`: the columns of Parquet files have types"
            )));
        }
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let columns =
            schema.columns().iter().map(|column| ParquetColumn::of(column)).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { file: Arc::new(file), columns, group: 0, readers: Vec::new(), left: 0, row_bytes: 0 })
    }

    /// Returns the columns of the next rows, at most `max_rows` of them, with the number of rows and the bytes they took, or `None`
    /// at the end.
    pub(in crate::client) fn next(&mut self, max_rows: usize) -> io::Result<Option<(Vec<Tensor>, usize, u64)>> {
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            self.open_group().map_err(parquet_error)?;
        }
        let rows = max_rows.min(self.left);
        let mut tensors = Vec::with_capacity(self.columns.len());
        for (column, reader) in self.columns.iter().zip(&mut self.readers) {
            tensors.push(column.read(reader, rows)?);
        }
        self.left -= rows;
        Ok(Some((tensors, rows, self.row_bytes * rows as u64)))
    }

    fn open_group(&mut self) -> Result<(), ParquetError> {
        let group = self.file.get_row_group(self.group)?;
        let metadata = group.metadata();
        self.left = usize::try_from(metadata.num_rows()).unwrap_or_default();
        let bytes = u64::try_from(metadata.compressed_size()).unwrap_or_default();
        self.row_bytes = bytes / (self.left.max(1) as u64);
        self.readers = (0..self.columns.len()).map(|index| group.get_column_reader(index)).collect::<Result<_, _>>()?;
        self.group += 1;
        Ok(())
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
        let datatype = if optional && is_integer { Datatype::Fp64 } else { datatype };
        Ok(Self { name, datatype, optional, signed })
    }

    /// Reads the next rows.
    fn read(&self, reader: &mut ColumnReader, rows: usize) -> io::Result<Tensor> {
        let data = match reader {
            ColumnReader::BoolColumnReader(reader) => {
                let values = self.values::<BoolType>(reader, rows)?;
                let missing =
                    || invalid_data(format!("column `{}` has missing booleans, which no datatype can hold", self.name));
                let values: Option<Vec<u8>> = values.into_iter().map(|value| value.map(u8::from)).collect();
                TensorData::Fixed(values.ok_or_else(missing)?.into())
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
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "pandas does the same to integers of which some are missing"
                )]
                let wide = |value: i64| if self.signed { value as f64 } else { value.cast_unsigned() as f64 };
                if self.optional {
                    fixed(values, |value| value.map_or(f64::NAN, wide).to_le_bytes())
                } else {
                    fixed(values, |value| value.unwrap_or_default().to_le_bytes())
                }
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let values = self.values::<ByteArrayType>(reader, rows)?;
                let empty = Bytes::new();
                let texts = values.iter().map(|value| value.as_ref().map_or(&empty[..], |value| value.data()));
                TensorData::Variable(texts.collect::<BytesElements>())
            }
            _ => return Err(invalid_data(format!("column `{}` has an unsupported type", self.name))),
        };
        let is_text = self.datatype == Datatype::Bytes;
        let parameters = if is_text { Parameters::with_content_type("str") } else { Parameters::new() };
        Ok(Tensor {
            name: self.name.clone(),
            datatype: self.datatype,
            shape: vec![rows, 1],
            parameters,
            data,
            nested: false,
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

fn fixed<T, const N: usize>(values: Vec<Option<T>>, bytes: impl Fn(Option<T>) -> [u8; N]) -> TensorData {
    let bytes: Vec<u8> = values.into_iter().flat_map(bytes).collect();
    TensorData::Fixed(bytes.into())
}

fn invalid_data(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        // The crate's message names one of its features, which means nothing to users.
        ParquetError::General(what) if what.starts_with("Disabled feature") => {
            invalid_data(format!("unsupported compression: use snappy, gzip, or none ({what})"))
        }
        error => invalid_data(error.to_string()),
    }
}
