//! The form of data that models in Python see: full precision, nesting, and JSON that is not of its datatype.

use bytes::Bytes;
use half::{bf16, f16};

use super::cursor::Cursor;
use super::levels::Levels;
use super::{IrregularData, ReadError};
use crate::types::{Datatype, Tensor, TensorData, TensorError, short};

/// Data that has been read.
pub(super) struct ElementData {
    pub(super) data: TensorData,
    /// The elements in double precision, if the datatype has rounded one of them.
    pub(super) doubles: Option<Bytes>,
}

impl From<TensorData> for ElementData {
    fn from(data: TensorData) -> Self {
        Self { data, doubles: None }
    }
}

/// Rounds doubles to the elements of a shorter float, to the nearest. Returns `None` if one of them is beyond its range.
pub(super) fn narrowed(doubles: &Bytes, datatype: Datatype) -> Option<ElementData> {
    fn convert<const N: usize>(doubles: &[u8], narrow: impl Fn(f64) -> ([u8; N], f64)) -> Option<(Bytes, bool)> {
        // Without a branch, so that several elements are converted at once.
        let (mut is_exact, mut is_beyond) = (true, false);
        let convert = |&double: &[u8; 8]| {
            let double = f64::from_le_bytes(double);
            let (element, read) = narrow(double);
            is_beyond |= read.is_infinite() & double.is_finite();
            is_exact &= (read.to_bits() == double.to_bits()) | double.is_nan();
            element
        };
        let elements: Vec<[u8; N]> = doubles.as_chunks().0.iter().map(convert).collect();
        (!is_beyond).then(|| (elements.into_flattened().into(), is_exact))
    }
    #[expect(clippy::cast_possible_truncation, reason = "to round it")]
    let single = |double: f64| double as f32;
    let (buffer, is_exact) = match datatype {
        Datatype::Fp16 => convert(doubles, |double| {
            let element = f16::from_f64(double);
            (element.to_le_bytes(), element.to_f64())
        }),
        Datatype::Bf16 => convert(doubles, |double| {
            let element = bf16::from_f64(double);
            (element.to_le_bytes(), element.to_f64())
        }),
        _ => convert(doubles, |double| (single(double).to_le_bytes(), f64::from(single(double)))),
    }?;
    Some(ElementData { data: TensorData::Fixed(buffer), doubles: (!is_exact).then(|| doubles.clone()) })
}

/// Sets what models in Python see of the form of regular data, or makes the data irregular if its form would be lost.
///
/// `sent` is the shape in the request. `text` is before the data, unless that was binary.
pub(super) fn keep_form(
    tensor: &mut Tensor,
    sent: &[i64],
    text: Option<Cursor<'_>>,
    levels: &Levels,
) -> Result<(), ReadError> {
    if sent.iter().any(|&dimension| dimension < 0) {
        tensor.as_sent_mut().shape = Some(sent.to_vec());
    }
    let checked = match tensor.resolve_shape(sent) {
        Ok(shape) => {
            tensor.shape = shape;
            tensor.check()
        }
        Err(error @ TensorError::Inference { .. }) if text.is_some() => {
            tensor.shape = vec![tensor.len()];
            Err(error)
        }
        Err(error) => return Err(error.into()),
    };
    if matches!(tensor.data, TensorData::Irregular(_)) {
        return Ok(());
    }
    // Binary data must have the length of its shape, for models in Python, too.
    let Some(mut text) = text else { return checked.map_err(ReadError::from) };
    let depth = levels.depth();
    tensor.nested = depth > 1 && checked.is_ok() && levels.have(&tensor.shape);
    let is_open = matches!(checked, Err(TensorError::Inference { .. }));
    // A flat list of elements needs no shape, but one value without a list, and lists in lists, do.
    if depth == 0 || is_open || (depth > 1 && checked.is_err()) {
        let reason = checked.err().map_or_else(|| one_value(&tensor.name), |error| error.to_string());
        if let Some(data) = irregular(&mut text, reason)? {
            tensor.data = data;
            tensor.as_sent_mut().doubles = None;
        }
    } else if (depth > 1 && !tensor.nested) || levels.is_converted {
        let json = Bytes::copy_from_slice(text.span()?);
        // Not if Python could not read it.
        if IrregularData::new(json.clone(), "").is_some() {
            tensor.as_sent_mut().data = Some(json);
        }
    }
    Ok(())
}

fn one_value(input: &str) -> String {
    format!("input `{}`: the data is one value, expected an array", short(input))
}

/// Reads any JSON as irregular data, or returns `None` if Python could not read it.
#[cold]
pub(super) fn irregular(cursor: &mut Cursor<'_>, reason: String) -> Result<Option<TensorData>, ReadError> {
    let json = Bytes::copy_from_slice(cursor.span()?);
    Ok(IrregularData::new(json, reason).map(TensorData::Irregular))
}
