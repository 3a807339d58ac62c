//! Limits on what one request may contain besides tensor data, which takes far more memory than its text.

use super::ReadError;
use crate::types::request::MAX_PARTS;

/// The maximum length of all parameters of a request, in bytes of JSON. A value of two bytes takes 72 bytes of memory.
const MAX_PARAMETERS: usize = 1 << 20;

/// What a body may still contain.
#[derive(Debug)]
pub(super) struct JsonLimits {
    parts: usize,
    parameters: usize,
}

impl JsonLimits {
    pub(super) const fn of_requests() -> Self {
        Self { parts: MAX_PARTS, parameters: MAX_PARAMETERS }
    }

    /// Responses, which clients read, are not limited.
    pub(super) const fn of_responses() -> Self {
        Self { parts: usize::MAX, parameters: usize::MAX }
    }

    /// Counts inputs, outputs, or keys of parameters.
    #[inline]
    pub(super) fn add_parts(&mut self, count: usize) -> Result<(), ReadError> {
        self.parts = self.parts.checked_sub(count).ok_or(ReadError::TooManyParts { limit: MAX_PARTS })?;
        Ok(())
    }

    /// Counts the text of parameters.
    pub(super) fn add_parameters(&mut self, length: usize) -> Result<(), ReadError> {
        let left = self.parameters.checked_sub(length);
        self.parameters = left.ok_or(ReadError::ParametersTooLong { limit: MAX_PARAMETERS })?;
        Ok(())
    }
}
