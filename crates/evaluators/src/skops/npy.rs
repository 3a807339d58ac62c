//! Arrays in NumPy's own file format.

use std::sync::Arc;

use bytes::Bytes;

use super::literal::{self, Literal};
use crate::pickle::{Dtype, DtypeField, ElementKind, NumpyArray};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header. NumPy reads no longer ones either, unless pickles are allowed.
const MAX_HEADER: usize = 10_000;
/// How deeply structures may be nested.
const MAX_DEPTH: usize = 8;

/// Reads an array. Its elements are a slice of the file.
///
/// The error says what was expected.
pub(super) fn read(file: &Bytes) -> Result<NumpyArray, &'static str> {
    let (text, start) = header(file)?;
    let wanted = "a header with `descr`, `fortran_order` and `shape`";
    let Some(Literal::Dict(entries)) = literal::parse(text) else { return Err(wanted) };
    let entry = |name| entries.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| value);
    let (Some(descr), Some(Literal::Bool(fortran)), Some(Literal::Tuple(dimensions))) =
        (entry("descr"), entry("fortran_order"), entry("shape"))
    else {
        return Err(wanted);
    };
    let dimension = |dimension: &Literal<'_>| match dimension {
        Literal::Count(count) => Some(*count),
        _ => None,
    };
    let shape: Option<Vec<usize>> = dimensions.iter().map(dimension).collect();
    let shape = shape.ok_or("a shape of integers")?;
    let dtype = dtype(descr, 0).ok_or("elements of a known type")?;
    if dtype.kind == ElementKind::Object {
        return Err("an array without Python objects");
    }
    NumpyArray::from_raw(Arc::new(dtype), shape, *fortran, file.slice(start..))
        .ok_or("as many bytes as elements of its shape take")
}

/// Returns the header of a file, and where it ends.
fn header(file: &[u8]) -> Result<(&str, usize), &'static str> {
    let wanted = "a file in NumPy's format, of version 1, 2 or 3";
    let after = file.strip_prefix(MAGIC).ok_or(wanted)?;
    let (length, rest) = match *after {
        [1, 0, low, high, ref rest @ ..] => (usize::from(u16::from_le_bytes([low, high])), rest),
        [2 | 3, 0, a, b, c, d, ref rest @ ..] => {
            (usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX), rest)
        }
        _ => return Err(wanted),
    };
    if length > MAX_HEADER {
        return Err("a header of at most 10000 bytes");
    }
    let text = rest.get(..length).ok_or("a complete header")?;
    let text = std::str::from_utf8(text).map_err(|_| "a header in UTF-8")?;
    Ok((text, file.len() - rest.len() + length))
}

fn dtype(descr: &Literal<'_>, depth: usize) -> Option<Dtype> {
    let fields = match descr {
        // The unit of times is in brackets.
        Literal::Text(code) => return Dtype::parse(code.split_once('[').map_or(*code, |(code, _)| code)),
        Literal::List(fields) if depth < MAX_DEPTH => fields,
        _ => return None,
    };
    let mut structure = Dtype { kind: ElementKind::Void, size: 0, big_endian: false, fields: Vec::new() };
    for field in fields {
        let Literal::Tuple(parts) = field else { return None };
        let (name, descr, shape) = match &parts[..] {
            [Literal::Text(name), descr] => (*name, descr, None),
            [Literal::Text(name), descr, Literal::Tuple(shape)] => (*name, descr, Some(shape)),
            _ => return None,
        };
        let mut dtype = dtype(descr, depth + 1)?;
        for dimension in shape.into_iter().flatten() {
            let Literal::Count(count) = dimension else { return None };
            // An array within a structure is not interpreted here.
            dtype = Dtype {
                kind: ElementKind::Void,
                size: dtype.size.checked_mul(*count)?,
                big_endian: false,
                fields: Vec::new(),
            };
        }
        if dtype.kind == ElementKind::Object {
            return Some(dtype);
        }
        let offset = structure.size;
        structure.size = offset.checked_add(dtype.size)?;
        // Padding has no name.
        if !name.is_empty() {
            structure.fields.push(DtypeField { name: name.into(), dtype: Arc::new(dtype), offset });
        }
    }
    Some(structure)
}
