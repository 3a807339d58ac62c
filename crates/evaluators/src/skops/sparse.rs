//! Sparse matrices of `SciPy`, each an archive of arrays.

use bytes::Bytes;

use super::archive::{Archive, Limits};
use super::{SkopsError, npy};
use crate::pickle::{ElementKind, NumpyArray};

/// The formats of sparse matrices.
const FORMATS: [&str; 5] = ["bsr", "coo", "csc", "csr", "dia"];

/// The content of a sparse matrix.
#[derive(Debug)]
pub(super) struct SparseMatrix {
    /// The full path of its class, such as `scipy.sparse._csr.csr_matrix`.
    pub(super) class: String,
    pub(super) shape: Vec<i64>,
    /// The other arrays, by the names of attributes of the class.
    pub(super) arrays: Vec<(String, NumpyArray)>,
    /// The decompressed size.
    pub(super) bytes: usize,
}

/// Reads a file that `scipy.sparse.save_npz` wrote.
pub(super) fn read(entry: &str, file: Bytes, limits: &mut Limits) -> Result<SparseMatrix, SkopsError> {
    let archive = Archive::open(file)?;
    let mut bytes = 0_usize;
    let mut array = |name: &str| {
        let content = archive.read(name, limits)?;
        bytes = bytes.saturating_add(content.len());
        npy::read(&content).map_err(|wanted| SkopsError::Array { entry: format!("{entry}/{name}"), wanted })
    };
    let unusual = |wanted| SkopsError::Array { entry: entry.to_owned(), wanted };
    let format = text(&array("format.npy")?);
    let format = FORMATS.into_iter().find(|known| format.as_deref() == Some(known));
    let format = format.ok_or_else(|| unusual("a matrix in the format bsr, coo, csc, csr or dia"))?;
    let is_array = archive.has("_is_array.npy")
        && array("_is_array.npy")?.numbers().and_then(|flag| flag.to_i64()?.first().copied()) == Some(1);
    let shape = array("shape.npy")?.numbers().and_then(|shape| shape.to_i64());
    let shape = shape.ok_or_else(|| unusual("a shape of integers"))?;
    let mut arrays = Vec::new();
    for name in archive.names() {
        let attribute = name.strip_suffix(".npy").unwrap_or(name);
        if !matches!(attribute, "format" | "shape" | "_is_array") {
            arrays.push((attribute.to_owned(), array(name)?));
        }
    }
    let kind = if is_array { "array" } else { "matrix" };
    Ok(SparseMatrix { class: format!("scipy.sparse._{format}.{format}_{kind}"), shape, arrays, bytes })
}

/// Returns the only text of an array, which may be one of bytes.
fn text(array: &NumpyArray) -> Option<String> {
    match array.dtype.kind {
        ElementKind::Text => array.texts()?.pop(),
        ElementKind::Bytes => {
            std::str::from_utf8(array.raw_bytes()?).ok().map(|text| text.trim_end_matches('\0').to_owned())
        }
        _ => None,
    }
}
