//! The sizes of responses, by what determines the columns of a request.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use parking_lot::RwLock;

use crate::types::{InferenceRequest, Tensor};

/// The maximum number of sizes that are kept. Models usually get requests of one or two forms.
const MAX_FORMS: usize = 256;

/// The sizes of a row in the responses to requests of different forms: everything but the rows.
#[derive(Debug, Default)]
pub(super) struct RowSizes {
    hashes: RandomState,
    sizes: RwLock<HashMap<u64, usize>>,
}

impl RowSizes {
    /// Returns the size of the response to a request, or 0 if it will be rejected. `row_bytes` computes the size of a row, or `None`, the
    /// first time that a request has this form.
    pub(super) fn response_bytes(
        &self,
        request: &InferenceRequest,
        row_bytes: impl FnOnce() -> Option<usize>,
    ) -> usize {
        self.get_or_insert(request, row_bytes).unwrap_or_default().saturating_mul(rows(request))
    }

    /// Returns the size for requests of this form, which `compute` computes the first time. `None` is not kept.
    fn get_or_insert(&self, request: &InferenceRequest, compute: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let form = self.form(request);
        if let Some(&size) = self.sizes.read().get(&form) {
            return Some(size);
        }
        let size = compute()?;
        let mut sizes = self.sizes.write();
        if sizes.len() >= MAX_FORMS {
            sizes.clear();
        }
        sizes.insert(form, size);
        Some(size)
    }

    fn form(&self, request: &InferenceRequest) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        request.parameters.content_type().hash(&mut hasher);
        request.outputs.len().hash(&mut hasher);
        for output in &request.outputs {
            output.name.hash(&mut hasher);
        }
        for input in &request.inputs {
            input.name.hash(&mut hasher);
            input.datatype.name().hash(&mut hasher);
            input.shape.get(1..).hash(&mut hasher);
            input.parameters.content_type().hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Returns the number of rows of a request, by its first input.
pub(super) fn rows(request: &InferenceRequest) -> usize {
    request.inputs.first().and_then(Tensor::rows).unwrap_or(1)
}
