//! `mlserver.Concat`: joins tensors along an axis.

use std::sync::atomic::AtomicBool;

use super::error::{SettingProblem, StepError};
use super::numbers::{Number, numbers, promote, with_number};
use super::reader::{MAX_ITEMS, SettingReader};
use super::signature::Signature;
use super::{BLOCK, Operation, StepInputs, StepOutput, check_stop, is_stopped};
use crate::types::{BytesElements, Datatype, Tensor, TensorData, short};

/// The axis of columns.
const COLUMNS: usize = 1;

/// The largest axis, as many as tensors may have.
const MAX_AXIS: usize = 31;

/// Reads the settings `inputs`, `axis` and `name`.
pub(super) fn outputs(extra: &SettingReader<'_>) -> Result<Vec<StepOutput>, SettingProblem> {
    extra.known(&["inputs", "axis", "name"])?;
    let name = extra.required("name", "the name of the output")?.text()?;
    let inputs = match extra.optional("inputs") {
        Some(inputs) => StepInputs::Named(inputs.list(MAX_ITEMS, "names of inputs", SettingReader::text)?),
        None => StepInputs::All,
    };
    let axis = match extra.optional("axis") {
        Some(axis) => usize::try_from(axis.position()?)
            .ok()
            .filter(|axis| *axis <= MAX_AXIS)
            .ok_or_else(|| axis.unexpected(format!("an axis from 0 to {MAX_AXIS}")))?,
        None => COLUMNS,
    };
    Ok(vec![StepOutput { name, inputs, operation: Operation::Concat { axis } }])
}

/// Returns the signature of tensors that are joined.
///
/// # Errors
///
/// Fails if they differ in another dimension than the axis, or if only some are BYTES.
pub(super) fn signature(output: &str, inputs: &[(&str, Signature)], axis: usize) -> Result<Signature, StepError> {
    let datatypes: Vec<Datatype> = inputs.iter().map(|(_, signature)| signature.datatype).collect();
    let Some(datatype) = promote(&datatypes) else { return Err(mixed(inputs)) };
    let shapes: Vec<Vec<Option<usize>>> = inputs.iter().map(|(_, signature)| as_columns(signature, axis)).collect();
    let Some(first) = shapes.first() else { return Err(StepError::NoInputs) };
    let mut joined = first.clone();
    let Some(sum) = joined.get_mut(axis) else {
        let (name, signature) = &inputs[0];
        let expected = format!("an axis {axis}: more than {axis} dimensions");
        return Err(signature.unsuitable(name, "`axis`", expected));
    };
    *sum = Some(0);
    for (index, shape) in shapes.iter().enumerate() {
        let is_alike = shape.len() == joined.len()
            && (0..shape.len()).filter(|&dimension| dimension != axis).all(|dimension| {
                shape[dimension].is_none() || joined[dimension].is_none() || shape[dimension] == joined[dimension]
            });
        if !is_alike {
            let (first, second) = (&inputs[0], &inputs[index]);
            let name = |(name, _): &(&str, Signature)| short(name).to_owned();
            return Err(StepError::Alike {
                first: name(first),
                first_shape: first.1.to_string(),
                second: name(second),
                second_shape: second.1.to_string(),
                axis,
            });
        }
        for (dimension, &size) in shape.iter().enumerate() {
            if dimension != axis {
                joined[dimension] = joined[dimension].or(size);
            } else if let (Some(sum), Some(size)) = (joined[axis], size) {
                let too_large = || StepError::TooLarge { output: short(output).to_owned() };
                joined[axis] = Some(sum.checked_add(size).ok_or_else(too_large)?);
            } else {
                joined[axis] = None;
            }
        }
    }
    Ok(Signature { datatype, shape: joined })
}

/// Returns the shape of an input. Along the axis of columns, a tensor of one dimension is one column.
fn as_columns(signature: &Signature, axis: usize) -> Vec<Option<usize>> {
    let mut shape = signature.shape.clone();
    if axis == COLUMNS && shape.len() == 1 {
        shape.push(Some(1));
    }
    shape
}

fn mixed(inputs: &[(&str, Signature)]) -> StepError {
    let name = |is_bytes: bool| inputs.iter().find(|(_, input)| (input.datatype == Datatype::Bytes) == is_bytes);
    match (name(true), name(false)) {
        (Some((bytes, _)), Some((number, signature))) => StepError::Mixed {
            bytes: short(bytes).to_owned(),
            number: short(number).to_owned(),
            datatype: signature.datatype,
        },
        _ => StepError::NoInputs,
    }
}

/// Joins tensors to one of a datatype and shape that [`signature`] has returned.
pub(super) fn concat(
    inputs: &[&Tensor],
    datatype: Datatype,
    shape: &[usize],
    axis: usize,
    stop: &AtomicBool,
) -> Result<TensorData, StepError> {
    // The blocks that alternate: how many there are, and how many elements each input has in one.
    let blocks: usize = if shape.contains(&0) { 0 } else { shape[..axis].iter().product() };
    let lengths: Vec<usize> = inputs.iter().map(|input| input.len().checked_div(blocks).unwrap_or_default()).collect();
    let Some(width) = datatype.width() else {
        return texts(inputs, blocks, &lengths, stop);
    };
    let block: usize = lengths.iter().sum();
    let mut joined = vec![0_u8; blocks * block * width];
    let mut start = 0;
    for (input, &length) in inputs.iter().zip(&lengths) {
        let TensorData::Fixed(bytes) = &input.data else { continue };
        if length > 0 {
            let target = Target { joined: &mut joined, block: block * width, start: start * width };
            if input.datatype == datatype {
                target.copy(bytes, length * width, stop)?;
            } else {
                with_number!(input.datatype, S => with_number!(datatype, T => {
                    target.convert::<S, T>(bytes, length, stop)?;
                }, {}), {});
            }
        }
        start += length;
    }
    Ok(TensorData::Fixed(joined.into()))
}

/// The place of an input in the joined buffer: its part of every block.
struct Target<'a> {
    joined: &'a mut [u8],
    block: usize,
    start: usize,
}

impl Target<'_> {
    /// Copies the elements of the datatype of the result.
    fn copy(self, bytes: &[u8], length: usize, stop: &AtomicBool) -> Result<(), StepError> {
        let parts = self.joined.chunks_exact_mut(self.block).zip(bytes.chunks_exact(length));
        for (index, (block, part)) in parts.enumerate() {
            if index % BLOCK == 0 {
                check_stop(stop)?;
            }
            block[self.start..self.start + length].copy_from_slice(part);
        }
        Ok(())
    }

    /// Converts the elements of another datatype.
    fn convert<S: Number, T: Number>(self, bytes: &[u8], length: usize, stop: &AtomicBool) -> Result<(), StepError> {
        let parts = self.joined.chunks_exact_mut(self.block).zip(bytes.chunks_exact(length * size_of::<S>()));
        for (index, (block, part)) in parts.enumerate() {
            if index % BLOCK == 0 {
                check_stop(stop)?;
            }
            let part_of_block = &mut block[self.start..self.start + length * size_of::<T>()];
            for (element, number) in part_of_block.chunks_exact_mut(size_of::<T>()).zip(numbers::<S>(part)) {
                element.copy_from_slice(bytemuck::bytes_of(&T::from_number(number)));
            }
        }
        Ok(())
    }
}

/// Joins BYTES, which are text if all of them are.
fn texts(inputs: &[&Tensor], blocks: usize, lengths: &[usize], stop: &AtomicBool) -> Result<TensorData, StepError> {
    let inputs: Vec<&BytesElements> = inputs
        .iter()
        .filter_map(|input| match &input.data {
            TensorData::Variable(elements) => Some(elements),
            TensorData::Fixed(_) | TensorData::Irregular(_) => None,
        })
        .collect();
    let elements: BytesElements = (0..blocks)
        .take_while(|_| !is_stopped(stop))
        .flat_map(|block| inputs.iter().zip(lengths).map(move |(input, length)| (block, input, length)))
        .flat_map(|(block, input, length)| input.range(block * length..(block + 1) * length))
        .collect();
    check_stop(stop)?;
    let is_text = inputs.iter().all(|input| input.is_text());
    Ok(TensorData::Variable(elements.with_text(is_text)))
}
