//! What a model takes, as its signature says.

use std::fmt;

use super::python::{repr, tuple};
use crate::evaluators::sklearn::{Elements, IntType};
use crate::types::TensorMetadata;

/// What a model takes and gives.
#[derive(Debug, Default)]
pub(super) struct Signature {
    pub(super) input: Input,
    pub(super) inputs: Vec<TensorMetadata>,
    pub(super) outputs: Vec<TensorMetadata>,
    /// How many dimensions its one output has, where the signature says so.
    pub(super) output_rank: Option<usize>,
}

/// What a model takes.
#[derive(Debug, Default)]
pub(super) enum Input {
    /// There is no signature.
    #[default]
    Anything,
    /// A data frame.
    Columns(Vec<Column>),
    /// An array; -1 is any size.
    Tensor { kind: TensorKind, shape: Vec<i64> },
}

#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Integer,
    Long,
    Float,
    Double,
    String,
}

/// The type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorKind(pub(super) Kind);

impl Kind {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Boolean, "boolean", "bool"),
        (Self::Integer, "integer", "int32"),
        (Self::Long, "long", "int64"),
        (Self::Float, "float", "float32"),
        (Self::Double, "double", "float64"),
        (Self::String, "string", "object"),
    ];

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| kind)
    }

    /// Returns MLflow's name.
    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// Returns the type of the column in a data frame.
    pub(super) fn pandas(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or("", |(.., dtype)| dtype)
    }

    /// Returns the type of an array.
    pub(super) fn numpy(self) -> &'static str {
        if self == Self::String { "<U0" } else { self.pandas() }
    }
}

impl TensorKind {
    pub(super) fn of(dtype: &str) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|(_, _, known)| *known == dtype).map(|(kind, ..)| kind);
        kind.filter(|kind| !matches!(kind, Kind::String | Kind::Boolean)).map(Self)
    }

    /// Returns the datatype in the V2 protocol of a tensor of that type in NumPy.
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

/// As MLflow writes a schema.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("None"),
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

/// Returns the type of values in NumPy, its kind, and the bytes that each takes.
pub(super) const fn dtype(elements: &Elements<'_>) -> (&'static str, u8, usize) {
    match elements {
        Elements::F32(_) => ("float32", b'f', 4),
        Elements::F64(_) => ("float64", b'f', 8),
        Elements::Text(_) => ("object", b'O', 8),
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
