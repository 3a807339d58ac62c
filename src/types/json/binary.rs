//! The binary tensor data extension: data of tensors behind the JSON, as Triton and `KServe` define it.
//!
//! A request's input takes `binary_data_size` bytes, in the order of the inputs, instead of `data`. A request asks for
//! binary answers with `binary_data_output` for all outputs, or `binary_data` for one. These parameters are the
//! transport's: they are taken out of the request, so that no model sees them, and written only where they are true.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;

use super::ReadError;
use crate::types::Parameters;

/// The parameter of an input or output: how many bytes its data has.
pub(super) const SIZE: &str = "binary_data_size";
/// The parameter of a requested output: whether it is to be binary.
const OUTPUT: &str = "binary_data";
/// The parameter of a request: whether outputs are to be binary that say nothing else.
pub(super) const OUTPUTS: &str = "binary_data_output";

/// The bytes behind the JSON, of which each binary input takes its own.
#[derive(Debug)]
pub(super) struct BinaryPart {
    /// Nothing when the whole body is JSON.
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

    /// Checks that every byte was taken.
    pub(super) fn finish(self) -> Result<(), ReadError> {
        match self.rest.map_or(0, |rest| rest.len()) {
            0 => Ok(()),
            found => Err(ReadError::BinaryLeft { found }),
        }
    }
}

/// Which outputs the caller wants as binary data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinaryOutputs {
    /// Unless the output says otherwise.
    all: bool,
    /// The outputs that say so.
    named: HashMap<String, bool>,
}

impl BinaryOutputs {
    /// Wants all outputs as binary data, or none.
    pub fn all(all: bool) -> Self {
        Self { all, named: HashMap::new() }
    }

    /// Tells whether the output of that name is to be binary.
    pub fn wants(&self, output: &str) -> bool {
        if self.named.is_empty() { self.all } else { self.named.get(output).copied().unwrap_or(self.all) }
    }

    /// Takes what the request says of all outputs out of its parameters.
    pub(super) fn take_all(&mut self, request: &mut Parameters) -> Result<(), ReadError> {
        self.all = take_bool(request, OUTPUTS, || format!("parameters.{OUTPUTS}"))?.unwrap_or_default();
        Ok(())
    }

    /// Takes what a requested output says of itself out of its parameters.
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

/// Takes the size of an input's binary data out of its parameters; nothing when its data is in the JSON.
pub(super) fn take_size(
    parameters: &mut Parameters,
    path: impl Fn(&str) -> String,
) -> Result<Option<usize>, ReadError> {
    match parameters.others.shift_remove(SIZE) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            let expected = "a number of bytes, 0 or more";
            size.map(Some).ok_or_else(|| ReadError::Type { path: path(&format!(".parameters.{SIZE}")), expected })
        }
    }
}

fn take_bool(parameters: &mut Parameters, key: &str, path: impl Fn() -> String) -> Result<Option<bool>, ReadError> {
    match parameters.others.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(ReadError::Type { path: path(), expected: "true or false" }),
    }
}
