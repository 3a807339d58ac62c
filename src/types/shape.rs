//! Shapes as clients send them: one dimension may be -1, and is then inferred from the number of elements.

use super::{Tensor, TensorError};

/// The maximum number of dimensions of a shape: more than any model has.
pub(super) const MAX_DIMENSIONS: usize = 32;

impl Tensor {
    /// Returns a shape of the tensor's elements, of which one dimension may be -1.
    ///
    /// # Errors
    ///
    /// Fails if the number of elements is not divisible by the product of the known dimensions, or if that product overflows.
    pub fn resolve_shape(&self, shape: &[i64]) -> Result<Vec<usize>, TensorError> {
        let found = self.len();
        let unknown = || TensorError::Inference { name: self.name.clone(), shape: shape.to_vec(), found };
        let too_large = || {
            let shape = shape.iter().filter_map(|&dimension| usize::try_from(dimension).ok()).collect();
            TensorError::TooLarge { name: self.name.clone(), shape }
        };
        let mut resolved = Vec::with_capacity(shape.len());
        let mut open = None;
        let mut known = 1_usize;
        for (index, &dimension) in shape.iter().enumerate() {
            if dimension == -1 && open.is_none() {
                open = Some(index);
                resolved.push(1);
            } else {
                let dimension = usize::try_from(dimension).map_err(|_| unknown())?;
                known = known.checked_mul(dimension).ok_or_else(too_large)?;
                resolved.push(dimension);
            }
        }
        if let Some(index) = open {
            if known == 0 || !found.is_multiple_of(known) {
                return Err(unknown());
            }
            resolved[index] = found / known;
        }
        Ok(resolved)
    }
}
