//! `mlserver.Map`: applies operations to the elements of a tensor, or to its rows, one after the other.

use std::sync::atomic::AtomicBool;

use super::error::{SettingProblem, StepError};
use super::numbers::{Number, numbers, with_number};
use super::reader::SettingReader;
use super::signature::Signature;
use super::table::{Categories, Table};
use super::{BLOCK, Operation, StepInputs, StepOutput, check_stop};
use crate::types::{Datatype, Tensor, TensorData};

/// The most operations of an output.
const MAX_OPERATIONS: usize = 16;

/// The most thresholds of an operation.
const MAX_THRESHOLDS: usize = 1 << 12;

/// The most weights of an operation.
const MAX_WEIGHTS: usize = 1 << 12;

/// An operation.
#[derive(Debug)]
pub(super) enum MapOperation {
    /// Turns the columns of each row into probabilities.
    Softmax,
    /// Returns the column of the largest number of each row.
    Argmax,
    /// Adds parts of the columns of each row, as many as there are weights, each multiplied by its weight.
    WeightedSum(Vec<f64>),
    /// Counts the thresholds that a number reaches.
    Thresholds(Vec<f64>),
    /// Looks an element up.
    Table(Table),
    /// Replaces each element by a column per category.
    OneHot(Categories),
}

/// Reads the setting `outputs`.
pub(super) fn outputs(extra: &SettingReader<'_>) -> Result<Vec<StepOutput>, SettingProblem> {
    extra.known(&["outputs"])?;
    extra.outputs(|output| {
        output.known(&["input", "apply", "name"])?;
        let input = output.required("input", "the name of an input")?.text()?;
        let name = output.optional("name").map_or(Ok(input.clone()), |name| name.text())?;
        let apply = output.required("apply", "a list of operations")?;
        let operation = Operation::Map(apply.list(MAX_OPERATIONS, "operations", MapOperation::read)?);
        Ok(StepOutput { name, inputs: StepInputs::Named(vec![input]), operation })
    })
}

impl MapOperation {
    fn read(setting: &SettingReader<'_>) -> Result<Self, SettingProblem> {
        const EXPECTED: &str =
            "`\"softmax\"`, `\"argmax\"`, or an object with `weighted_sum`, `thresholds`, `table` or `one_hot`";
        match setting.scalar().map(|value| value.as_str()) {
            Some(Some("softmax")) => return Ok(Self::Softmax),
            Some(Some("argmax")) => return Ok(Self::Argmax),
            Some(_) => return Err(setting.unexpected(EXPECTED)),
            None => {}
        }
        if let Some(weights) = setting.optional("weighted_sum") {
            setting.known(&["weighted_sum"])?;
            return weights.list(MAX_WEIGHTS, "weights", SettingReader::number).map(Self::WeightedSum);
        }
        if let Some(thresholds) = setting.optional("thresholds") {
            setting.known(&["thresholds"])?;
            let numbers = thresholds.list(MAX_THRESHOLDS, "numbers", SettingReader::number)?;
            if !numbers.is_sorted_by(|first, second| first < second) {
                return Err(thresholds.unexpected("numbers that increase"));
            }
            return Ok(Self::Thresholds(numbers));
        }
        if let Some(table) = setting.optional("table") {
            setting.known(&["table", "default"])?;
            return Table::read(&table, setting.optional("default").as_ref()).map(Self::Table);
        }
        if let Some(categories) = setting.optional("one_hot") {
            setting.known(&["one_hot", "ignore_unknown"])?;
            let ignore_unknown = setting.optional("ignore_unknown").map_or(Ok(false), |flag| flag.flag())?;
            return Categories::read(&categories, ignore_unknown).map(Self::OneHot);
        }
        match setting.entries().and_then(|mut entries| entries.next()) {
            Some((_, entry)) => {
                Err(SettingProblem::Unknown { key: entry.key().to_owned(), expected: EXPECTED.to_owned() })
            }
            None => Err(setting.unexpected(EXPECTED)),
        }
    }

    /// The operation's name in messages.
    const fn name(&self) -> &'static str {
        match self {
            Self::Softmax => "`softmax`",
            Self::Argmax => "`argmax`",
            Self::WeightedSum(_) => "`weighted_sum`",
            Self::Thresholds(_) => "`thresholds`",
            Self::Table(_) => "`table`",
            Self::OneHot(_) => "`one_hot`",
        }
    }

    /// Returns the signature of the result.
    ///
    /// # Errors
    ///
    /// Fails if the operation does not apply to such tensors.
    pub(super) fn signature(&self, input: &str, output: &str, signature: Signature) -> Result<Signature, StepError> {
        let name = self.name();
        match self {
            Self::Softmax => {
                signature.numbers(input, name)?;
                signature.columns(input, name)?;
                Ok(Signature { datatype: float(signature.datatype), ..signature })
            }
            Self::WeightedSum(weights) => {
                signature.numbers(input, name)?;
                let columns = match signature.columns(input, name)? {
                    Some(columns) if !columns.is_multiple_of(weights.len()) => {
                        let expected = format!("columns in {} parts of the same size", weights.len());
                        return Err(signature.unsuitable(input, name, expected));
                    }
                    columns => columns.map(|columns| columns / weights.len()),
                };
                Ok(Signature { datatype: float(signature.datatype), ..signature }.with_columns(columns))
            }
            Self::Argmax => {
                signature.numbers(input, name)?;
                if signature.columns(input, name)? == Some(0) {
                    return Err(signature.unsuitable(input, name, "at least one column"));
                }
                Ok(Signature { datatype: Datatype::Int64, ..signature }.with_columns(Some(1)))
            }
            Self::Thresholds(_) => {
                signature.numbers(input, name)?;
                Ok(Signature { datatype: Datatype::Int64, ..signature })
            }
            Self::Table(table) => Ok(Signature { datatype: table.datatype(), ..signature }),
            Self::OneHot(categories) => {
                let count = categories.len();
                let too_large = || StepError::TooLarge { output: output.to_owned() };
                let mut shape = signature.shape.clone();
                match shape[..] {
                    [] => return Err(signature.unsuitable(input, name, "at least one dimension")),
                    [_] => shape.push(Some(count)),
                    [.., ref mut columns] => {
                        *columns = match *columns {
                            Some(columns) => Some(columns.checked_mul(count).ok_or_else(too_large)?),
                            None => None,
                        };
                    }
                }
                Ok(Signature { datatype: Datatype::Fp32, shape })
            }
        }
    }

    /// Returns the memory of `elements` of the result, in bytes, without their spans. Texts are counted as the longest.
    pub(super) fn text_bytes(&self, elements: usize) -> usize {
        match self {
            Self::Table(table) => table.longest_text().saturating_mul(elements),
            Self::Softmax | Self::Argmax | Self::WeightedSum(_) | Self::Thresholds(_) | Self::OneHot(_) => 0,
        }
    }

    /// Applies the operation to a tensor that [`MapOperation::signature`] has checked. `input` is the name of the request's tensor.
    pub(super) fn apply(&self, input: &str, tensor: &Tensor, stop: &AtomicBool) -> Result<TensorData, StepError> {
        let columns = tensor.shape.last().copied().unwrap_or_default();
        match (self, &tensor.data) {
            (Self::Table(table), _) => table.look_up(input, tensor, stop),
            (Self::OneHot(categories), _) => categories.encode(input, tensor, stop),
            (Self::Softmax, TensorData::Fixed(bytes)) => {
                let data = with_number!(tensor.datatype, N => softmax::<N>(bytes, columns, stop)?, Vec::new());
                Ok(TensorData::Fixed(data.into()))
            }
            (Self::Argmax, TensorData::Fixed(bytes)) => {
                let data = with_number!(tensor.datatype, N => argmax::<N>(bytes, columns, stop)?, Vec::new());
                Ok(TensorData::Fixed(data.into()))
            }
            (Self::WeightedSum(weights), TensorData::Fixed(bytes)) => {
                let data =
                    with_number!(tensor.datatype, N => weighted_sum::<N>(bytes, columns, weights, stop)?, Vec::new());
                Ok(TensorData::Fixed(data.into()))
            }
            (Self::Thresholds(thresholds), TensorData::Fixed(bytes)) => {
                let data = with_number!(tensor.datatype, N => count::<N>(bytes, thresholds, stop)?, Vec::new());
                Ok(TensorData::Fixed(data.into()))
            }
            (
                Self::Softmax | Self::Argmax | Self::WeightedSum(_) | Self::Thresholds(_),
                TensorData::Variable(_) | TensorData::Irregular(_),
            ) => Err(StepError::Numbers { input: input.to_owned(), operation: self.name() }),
        }
    }
}

/// Returns the datatype of floating-point results about numbers of a datatype.
fn float(datatype: Datatype) -> Datatype {
    with_number!(datatype, N => <N as Number>::Float::DATATYPE, Datatype::Bytes)
}

/// Calls a function for each row, which has at least one column.
fn for_each_row<T: Number>(
    bytes: &[u8],
    columns: usize,
    stop: &AtomicBool,
    mut row: impl FnMut(&[u8]),
) -> Result<(), StepError> {
    let row_bytes = columns.saturating_mul(size_of::<T>());
    if row_bytes == 0 {
        return Ok(());
    }
    for (index, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
        if index % BLOCK == 0 {
            check_stop(stop)?;
        }
        row(bytes);
    }
    Ok(())
}

/// Returns `exp(x) / sum(exp(x))` of each row, computed in FP64.
///
/// Rows with NaN or positive infinity, and those of negative infinity alone, become NaN.
fn softmax<T: Number>(bytes: &[u8], columns: usize, stop: &AtomicBool) -> Result<Vec<u8>, StepError> {
    let mut result = Vec::with_capacity(bytes.len() / size_of::<T>() * size_of::<T::Float>());
    let mut exponentials = Vec::new();
    for_each_row::<T>(bytes, columns, stop, |row| {
        let largest = numbers::<T>(row).map(Number::to_f64).fold(f64::NEG_INFINITY, f64::max);
        exponentials.clear();
        exponentials.extend(numbers::<T>(row).map(|number| (number.to_f64() - largest).exp()));
        let sum: f64 = exponentials.iter().sum();
        for exponential in &exponentials {
            result.extend_from_slice(bytemuck::bytes_of(&T::Float::from_f64(exponential / sum)));
        }
    })?;
    Ok(result)
}

/// Returns the index of the largest number of each row as INT64: the first of several, or that of the first NaN.
fn argmax<T: Number>(bytes: &[u8], columns: usize, stop: &AtomicBool) -> Result<Vec<u8>, StepError> {
    let mut result = Vec::with_capacity((bytes.len() / size_of::<T>()).checked_div(columns).unwrap_or_default() * 8);
    for_each_row::<T>(bytes, columns, stop, |row| {
        let mut best: Option<(usize, T)> = None;
        for (index, number) in numbers::<T>(row).enumerate() {
            // A comparison with NaN is false.
            let is_nan = number.partial_cmp(&number).is_none();
            if is_nan || best.is_none_or(|(_, largest)| number > largest) {
                best = Some((index, number));
            }
            if is_nan {
                break;
            }
        }
        let index = best.map_or(0, |(index, _)| index as u64);
        result.extend_from_slice(&index.to_le_bytes());
    })?;
    Ok(result)
}

/// Returns the sum of the parts of each row, multiplied by their weights. Computed in FP64, in the order of the parts.
fn weighted_sum<T: Number>(
    bytes: &[u8],
    columns: usize,
    weights: &[f64],
    stop: &AtomicBool,
) -> Result<Vec<u8>, StepError> {
    let part = columns / weights.len().max(1);
    let mut result = Vec::with_capacity(bytes.len() / size_of::<T>() / weights.len().max(1) * size_of::<T::Float>());
    let mut sums = Vec::new();
    for_each_row::<T>(bytes, columns, stop, |row| {
        sums.clear();
        sums.resize(part, 0.0);
        for (weight, part) in weights.iter().zip(row.chunks_exact(part * size_of::<T>())) {
            for (sum, number) in sums.iter_mut().zip(numbers::<T>(part)) {
                *sum += weight * number.to_f64();
            }
        }
        for sum in &sums {
            result.extend_from_slice(bytemuck::bytes_of(&T::Float::from_f64(*sum)));
        }
    })?;
    Ok(result)
}

/// Returns how many of the sorted thresholds each number reaches, as INT64. NaN reaches none.
fn count<T: Number>(bytes: &[u8], thresholds: &[f64], stop: &AtomicBool) -> Result<Vec<u8>, StepError> {
    let mut result = Vec::with_capacity(bytes.len() / size_of::<T>() * 8);
    for block in bytes.chunks(BLOCK * size_of::<T>()) {
        check_stop(stop)?;
        for number in numbers::<T>(block) {
            let reached = thresholds.partition_point(|threshold| reaches(number, *threshold));
            result.extend_from_slice(&(reached as u64).to_le_bytes());
        }
    }
    Ok(result)
}

/// Reports whether a number is at least a threshold. Integers are not rounded.
fn reaches<T: Number>(number: T, threshold: f64) -> bool {
    match (T::DATATYPE, number.to_integer(), threshold.ceil().to_integer()) {
        (Datatype::Int64 | Datatype::Uint64, Some(integer), Some(least)) => integer >= least,
        _ => number.to_f64() >= threshold,
    }
}
