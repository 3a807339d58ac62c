//! The binary tensor data extension: tensor data after the JSON, as defined by Triton and `KServe`.
//!
//! Instead of `data`, an input has `binary_data_size` bytes, in the order of the inputs. A request asks for binary outputs
//! with `binary_data_output` for all outputs, or `binary_data` for one. These parameters belong to the transport: they are
//! removed from the request, so that no model sees them, and written only if they are true.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;

use super::ReadError;
use crate::types::Parameters;

/// The parameter of an input or output that holds the size of its data in bytes.
pub(super) const SIZE: &str = "binary_data_size";
/// The parameter of a requested output that requests binary data for it.
const OUTPUT: &str = "binary_data";
/// The parameter of a request that requests binary data for all outputs without a parameter of their own.
pub(super) const OUTPUTS: &str = "binary_data_output";

/// The bytes after the JSON, which the binary inputs consume in order.
#[derive(Debug)]
pub(super) struct BinaryPart {
    /// `None` if the whole body is JSON.
    rest: Option<Bytes>,
}

impl BinaryPart {
    pub(super) const fn new(bytes: Option<Bytes>) -> Self {
        Self { rest: bytes }
    }

    /// Takes the bytes of the next binary input.
    pub(super) fn take(&mut self, input: &str, size: usize) -> Result<Bytes, ReadError> {
        match &mut self.rest {
            Some(rest) if size <= rest.len() => Ok(rest.split_to(size)),
            Some(rest) => Err(ReadError::BinarySize { input: input.to_owned(), size, left: rest.len() }),
            None => Err(ReadError::NoBinaryPart { input: input.to_owned() }),
        }
    }

    /// Checks that every byte has been consumed.
    pub(super) fn finish(self) -> Result<(), ReadError> {
        match self.rest.map_or(0, |rest| rest.len()) {
            0 => Ok(()),
            found => Err(ReadError::BinaryLeft { found }),
        }
    }
}

/// The outputs that the client requests as binary data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinaryOutputs {
    /// The default for outputs without a parameter of their own.
    all: bool,
    /// The outputs with a parameter of their own.
    named: HashMap<String, bool>,
}

impl BinaryOutputs {
    /// Requests all outputs as binary data, or none.
    pub fn all(all: bool) -> Self {
        Self { all, named: HashMap::new() }
    }

    /// Returns whether the output is requested as binary data.
    pub fn wants(&self, output: &str) -> bool {
        if self.named.is_empty() { self.all } else { self.named.get(output).copied().unwrap_or(self.all) }
    }

    /// Removes the parameter for all outputs from those of the request.
    pub(super) fn take_all(&mut self, request: &mut Parameters) -> Result<(), ReadError> {
        self.all = take_bool(request, OUTPUTS, || format!("parameters.{OUTPUTS}"))?.unwrap_or_default();
        Ok(())
    }

    /// Removes the parameter for one output from those of the requested output.
    pub(super) fn take_one(
        &mut self,
        output: &str,
        parameters: &mut Parameters,
        path: impl Fn(&str) -> String,
    ) -> Result<(), ReadError> {
        if let Some(binary) = take_bool(parameters, OUTPUT, || path(&format!(".parameters.{OUTPUT}")))? {
            self.named.insert(output.to_owned(), binary);
        }
        Ok(())
    }
}

/// Removes the size of an input's binary data from its parameters. Returns `None` if its data is in the JSON.
pub(super) fn take_size(
    parameters: &mut Parameters,
    path: impl Fn(&str) -> String,
) -> Result<Option<usize>, ReadError> {
    match parameters.others.written().and_then(|others| others.shift_remove(SIZE)) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            let expected = "a number of bytes, 0 or more";
            size.map(Some).ok_or_else(|| ReadError::Type { path: path(&format!(".parameters.{SIZE}")), expected })
        }
    }
}

fn take_bool(parameters: &mut Parameters, key: &str, path: impl Fn() -> String) -> Result<Option<bool>, ReadError> {
    match parameters.others.written().and_then(|others| others.shift_remove(key)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(ReadError::Type { path: path(), expected: "true or false" }),
    }
}
