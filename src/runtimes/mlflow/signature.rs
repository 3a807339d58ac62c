//! The signature of a model: the schema of its inputs and outputs.

use std::fmt;

use serde_json::{Value, json};

use super::python::{repr, tuple};
use crate::evaluators::table::{Elements, IntType};
use crate::types::TensorMetadata;

/// The signature of a model.
#[derive(Debug, Default)]
pub(super) struct Signature {
    pub(super) input: InputSchema,
    pub(super) inputs: Vec<TensorMetadata>,
    pub(super) outputs: Vec<TensorMetadata>,
    /// The number of dimensions of the only output, if the signature declares it.
    pub(super) output_rank: Option<usize>,
}

/// The schema that inputs must match.
#[derive(Debug, Default)]
pub(super) enum InputSchema {
    /// The model has no signature.
    #[default]
    Any,
    /// A data frame.
    Columns(Vec<ColumnSpec>),
    /// An array of a shape in which -1 stands for any size.
    Tensor { kind: TensorType, shape: Vec<i64> },
}

#[derive(Debug)]
pub(super) struct ColumnSpec {
    pub(super) name: String,
    pub(super) kind: ColumnType,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    Boolean,
    Integer,
    Long,
    Float,
    Double,
    String,
}

/// The type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorType(pub(super) ColumnType);

impl ColumnType {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Boolean, "boolean", "bool"),
        (Self::Integer, "integer", "int32"),
        (Self::Long, "long", "int64"),
        (Self::Float, "float", "float32"),
        (Self::Double, "double", "float64"),
        (Self::String, "string", "object"),
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| kind)
    }

    /// Returns the name of the type in MLflow.
    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the datatype of the protocol for the type, and a value of it.
    pub(super) fn example(self) -> (&'static str, Value) {
        match self {
            Self::Boolean => ("BOOL", json!(true)),
            Self::Integer => ("INT32", json!(1)),
            Self::Long => ("INT64", json!(1)),
            Self::Float => ("FP32", json!(1.0)),
            Self::Double => ("FP64", json!(1.0)),
            Self::String => ("BYTES", json!("text")),
        }
    }

    /// Returns the type of a column with this datatype of the protocol.
    pub(super) fn from_datatype(datatype: &str) -> Option<Self> {
        Self::ALL.into_iter().map(|(kind, ..)| kind).find(|kind| kind.example().0 == datatype)
    }

    /// Returns the dtype of the column in a data frame.
    pub(super) fn pandas(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or("", |(.., dtype)| dtype)
    }

    /// Returns the dtype of an array.
    pub(super) fn numpy(self) -> &'static str {
        if self == Self::String { "<U0" } else { self.pandas() }
    }
}

impl TensorType {
    pub(super) fn from_dtype(dtype: &str) -> Option<Self> {
        let kind = ColumnType::ALL.into_iter().find(|(_, _, known)| *known == dtype).map(|(kind, ..)| kind);
        kind.filter(|kind| !matches!(kind, ColumnType::String | ColumnType::Boolean)).map(Self)
    }

    /// Returns the datatype in the V2 protocol of a tensor with this dtype in NumPy.
    pub(super) fn datatype(dtype: &str) -> Option<&'static str> {
        Some(match dtype {
            "bool" => "BOOL",
            "int8" => "INT8",
            "int16" => "INT16",
            "int32" => "INT32",
            "int64" => "INT64",
            "uint8" => "UINT8",
            "uint16" => "UINT16",
            "uint32" => "UINT32",
            "uint64" => "UINT64",
            "float16" => "FP16",
            "float32" => "FP32",
            "float64" => "FP64",
            "str" | "object" | "bytes" => "BYTES",
            _ => return None,
        })
    }
}

/// Formats the schema as MLflow does.
impl fmt::Display for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("None"),
            Self::Columns(columns) => {
                f.write_str("[")?;
                for (index, column) in columns.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}: {} (required)", repr(&column.name), column.kind.name())?;
                }
                f.write_str("]")
            }
            Self::Tensor { kind, shape } => write!(f, "[Tensor('{}', {})]", kind.0.numpy(), tuple(shape)),
        }
    }
}

/// Returns the name of the dtype of values in NumPy, its kind, and its size in bytes.
pub(super) const fn dtype(elements: &Elements<'_>) -> (&'static str, u8, usize) {
    match elements {
        Elements::F32(_) => ("float32", b'f', 4),
        Elements::F64(_) => ("float64", b'f', 8),
        Elements::Text(_) | Elements::PartialText(_) => ("object", b'O', 8),
        Elements::Int(_, IntType::Bool) => ("bool", b'b', 1),
        Elements::Int(_, IntType::I8) => ("int8", b'i', 1),
        Elements::Int(_, IntType::I16) => ("int16", b'i', 2),
        Elements::Int(_, IntType::I32) => ("int32", b'i', 4),
        Elements::Int(_, IntType::I64) => ("int64", b'i', 8),
        Elements::Int(_, IntType::U8) => ("uint8", b'u', 1),
        Elements::Int(_, IntType::U16) => ("uint16", b'u', 2),
        Elements::Int(_, IntType::U32) => ("uint32", b'u', 4),
        Elements::Int(_, IntType::U64) => ("uint64", b'u', 8),
    }
}
