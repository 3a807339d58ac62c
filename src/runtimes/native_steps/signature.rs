//! What is known of a tensor before its elements: of one in a request, or of one that settings declare.

use std::fmt;

use super::error::StepError;
use crate::types::{Datatype, Tensor, TensorMetadata, short};

/// A datatype and a shape, of which dimensions may be unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) datatype: Datatype,
    pub(super) shape: Vec<Option<usize>>,
}

impl Signature {
    /// Returns the signature of a tensor, which is wholly known.
    pub(super) fn of(tensor: &Tensor) -> Self {
        Self { datatype: tensor.datatype, shape: tensor.shape.iter().copied().map(Some).collect() }
    }

    /// Returns the signature of a tensor that settings declare, or `None` if the datatype is none of the protocol.
    pub(super) fn declared(tensor: &TensorMetadata) -> Option<Self> {
        let shape = tensor.shape.iter().map(|&dimension| usize::try_from(dimension).ok()).collect();
        Some(Self { datatype: tensor.datatype.parse().ok()?, shape })
    }

    /// Returns the dimensions with -1 for unknown ones, as metadata have them.
    pub(super) fn dimensions(&self) -> Vec<i64> {
        self.shape.iter().map(|size| size.and_then(|size| i64::try_from(size).ok()).unwrap_or(-1)).collect()
    }

    /// Returns the number of columns: the last dimension of a tensor of rows.
    ///
    /// # Errors
    ///
    /// Fails if the tensor has fewer than two dimensions: its elements may belong to different requests of a batch.
    pub(super) fn columns(&self, input: &str, operation: &'static str) -> Result<Option<usize>, StepError> {
        match self.shape[..] {
            [_, .., columns] => Ok(columns),
            _ => Err(self.unsuitable(input, operation, "at least two dimensions: rows and columns")),
        }
    }

    /// Checks that the elements are numbers.
    pub(super) fn numbers(&self, input: &str, operation: &'static str) -> Result<(), StepError> {
        match self.datatype {
            Datatype::Bytes => Err(StepError::Numbers { input: short(input).to_owned(), operation }),
            _ => Ok(()),
        }
    }

    /// Returns the signature with another last dimension.
    pub(super) fn with_columns(mut self, columns: Option<usize>) -> Self {
        if let Some(last) = self.shape.last_mut() {
            *last = columns;
        }
        self
    }

    /// Returns the error for a shape that an operation does not take.
    pub(super) fn unsuitable(&self, input: &str, operation: &'static str, expected: impl Into<String>) -> StepError {
        let input = short(input).to_owned();
        StepError::Shape { input, shape: self.to_string(), operation, expected: expected.into() }
    }

    /// Returns the shape if all dimensions are known.
    pub(super) fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().copied().collect()
    }

    /// Returns the number of elements if all dimensions are known.
    ///
    /// # Errors
    ///
    /// Fails if there are more than memory can address.
    pub(super) fn elements(&self, output: &str) -> Result<Option<usize>, StepError> {
        let Some(shape) = self.known_shape() else { return Ok(None) };
        if shape.contains(&0) {
            return Ok(Some(0));
        }
        // Every element takes at least a byte.
        let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        match count.filter(|&count| isize::try_from(count.saturating_mul(self.element_bytes())).is_ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(StepError::TooLarge { output: short(output).to_owned() }),
        }
    }

    /// Returns the memory that an element takes, without the bytes of a BYTES element.
    pub(super) fn element_bytes(&self) -> usize {
        self.datatype.width().unwrap_or(size_of::<std::ops::Range<usize>>())
    }
}

/// Writes the shape, with -1 for unknown dimensions.
impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.dimensions())
    }
}
