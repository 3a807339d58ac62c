//! `mlserver.Select`: picks tensors and their columns, in any order and with any names.

use std::sync::atomic::AtomicBool;

use super::error::StepError;
use super::reader::{MAX_ITEMS, SettingReader};
use super::signature::Signature;
use super::{BLOCK, Operation, SettingProblem, StepInputs, StepOutput, check_stop};
use crate::types::{Tensor, TensorData};

/// Reads the setting `outputs`.
pub(super) fn outputs(extra: &SettingReader<'_>) -> Result<Vec<StepOutput>, SettingProblem> {
    extra.known(&["outputs"])?;
    extra.outputs(|output| {
        output.known(&["input", "columns", "name"])?;
        let input = output.required("input", "the name of an input")?.text()?;
        let name = output.optional("name").map_or(Ok(input.clone()), |name| name.text())?;
        let operation = match output.optional("columns") {
            Some(columns) => {
                Operation::Columns(columns.list(MAX_ITEMS, "column positions", SettingReader::position)?)
            }
            None => Operation::Pass,
        };
        Ok(StepOutput { name, inputs: StepInputs::Named(vec![input]), operation })
    })
}

const OPERATION: &str = "`columns`";

/// Returns the signature of a selection of columns.
///
/// # Errors
///
/// Fails if the tensor has no such column.
pub(super) fn signature(input: &str, signature: Signature, positions: &[i64]) -> Result<Signature, StepError> {
    if let Some(columns) = signature.columns(input, OPERATION)?
        && let Some(missing) = positions.iter().find(|&&position| index(position, columns).is_none())
    {
        return Err(signature.unsuitable(input, OPERATION, format!("a column {missing}")));
    }
    Ok(signature.with_columns(Some(positions.len())))
}

/// Returns the index of a position, which counts from the end if it is negative.
fn index(position: i64, columns: usize) -> Option<usize> {
    let index = match usize::try_from(position) {
        Ok(index) => index,
        Err(_) => columns.checked_sub(usize::try_from(position.unsigned_abs()).ok()?)?,
    };
    (index < columns).then_some(index)
}

/// Returns the columns of a tensor at positions that [`signature`] has checked.
pub(super) fn columns(tensor: &Tensor, positions: &[i64], stop: &AtomicBool) -> Result<TensorData, StepError> {
    let columns = tensor.shape.last().copied().unwrap_or_default();
    let indices: Vec<usize> = positions.iter().filter_map(|&position| index(position, columns)).collect();
    match &tensor.data {
        TensorData::Fixed(bytes) => {
            let bytes = match tensor.datatype.width() {
                Some(1) => pick::<1>(bytes, columns, &indices, stop),
                Some(2) => pick::<2>(bytes, columns, &indices, stop),
                Some(4) => pick::<4>(bytes, columns, &indices, stop),
                _ => pick::<8>(bytes, columns, &indices, stop),
            };
            Ok(TensorData::Fixed(bytes?.into()))
        }
        TensorData::Variable(elements) => {
            let rows = elements.len().checked_div(columns).unwrap_or_default();
            let all = (0..rows).flat_map(|row| indices.iter().map(move |index| row * columns + index));
            Ok(TensorData::Variable(elements.pick(all)))
        }
        TensorData::Irregular(data) => Ok(TensorData::Irregular(data.clone())),
    }
}

/// Copies the columns of elements of `W` bytes.
fn pick<const W: usize>(
    bytes: &[u8],
    columns: usize,
    indices: &[usize],
    stop: &AtomicBool,
) -> Result<Vec<u8>, StepError> {
    let (elements, _) = bytes.as_chunks::<W>();
    let rows = elements.len().checked_div(columns).unwrap_or_default();
    let mut picked = Vec::with_capacity(rows * indices.len() * W);
    for block in elements.chunks(columns.max(1).saturating_mul(BLOCK)) {
        check_stop(stop)?;
        for row in block.chunks_exact(columns.max(1)) {
            for &index in indices {
                picked.extend_from_slice(&row[index]);
            }
        }
    }
    Ok(picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_positions_count_from_the_end() {
        let found = [-4, -3, -1, 0, 2, 3, i64::MIN, i64::MAX].map(|position| index(position, 3));
        assert_eq!(found, [None, Some(0), Some(2), Some(0), Some(2), None, None, None]);
        assert_eq!(index(0, 0), None);
    }
}
