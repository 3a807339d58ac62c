//! `XGBoost` models: three file formats, one raw model, one evaluator.

mod binary;
mod document;
mod evaluator;
mod json;
mod linear;
mod objective;
mod raw;
mod schema;
mod trees;
mod ubjson;

pub(super) use self::evaluator::Evaluator;

use self::raw::RawModel;
use super::error::LoadError;

/// Reads a model. The format is detected from the first bytes, because suffixes are unreliable.
pub(super) fn read(bytes: &[u8]) -> Result<RawModel, LoadError> {
    let text = bytes.trim_ascii_start();
    match text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start) {
        Some([b'"' | b'}', ..] | []) => schema::read_json(bytes),
        Some([b'i' | b'U' | b'I' | b'l' | b'L', ..]) => schema::read_ubjson(bytes),
        _ => binary::read(bytes),
    }
}
