//! Why a step rejects its settings, or a request.

use std::path::PathBuf;

use crate::runtimes::RuntimeError;
use crate::types::{Datatype, Tensor, short};

/// A setting of a step that is not as it should be.
#[derive(Debug, thiserror::Error)]
#[error("{}{problem}", place(file.as_ref()))]
pub struct StepSettingsError {
    /// The settings file; `None` for a model that the environment describes.
    pub(super) file: Option<PathBuf>,
    pub(super) problem: Box<SettingProblem>,
}

fn place(file: Option<&PathBuf>) -> String {
    file.map(|file| format!("`{}`: ", file.display())).unwrap_or_default()
}

/// What is wrong with a setting. The key is its path in the settings, such as `parameters.extra.outputs[0].input`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingProblem {
    #[error("`{key}` is {found}, expected {expected}")]
    Value { key: String, found: String, expected: String },
    #[error("`{key}` is missing, expected {expected}")]
    Missing { key: String, expected: String },
    #[error("`{key}` is unknown, expected {expected}")]
    Unknown { key: String, expected: String },
    /// The declared inputs are not those of the step.
    #[error("`inputs` do not fit `{key}`: {reason}")]
    Declared { key: &'static str, reason: StepError },
}

/// Why a step cannot answer a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepError {
    #[error("the input `{input}` is missing (found {available})")]
    NoInput { input: String, available: String },
    #[error("the request has no inputs to concatenate")]
    NoInputs,
    #[error("the output `{output}` is unknown; the model has {available}")]
    NoOutput { output: String, available: String },
    #[error("the input `{input}` has the shape {shape}, but {operation} needs {expected}")]
    Shape { input: String, shape: String, operation: &'static str, expected: String },
    #[error("the input `{input}` is BYTES, but {operation} needs numbers")]
    Numbers { input: String, operation: &'static str },
    #[error(
        "the inputs `{first}` and `{second}` cannot be concatenated along axis {axis}: their shapes are {first_shape} and {second_shape}"
    )]
    Alike { first: String, first_shape: String, second: String, second_shape: String, axis: usize },
    #[error("the inputs cannot be concatenated: `{bytes}` is BYTES, and `{number}` is {datatype}")]
    Mixed { bytes: String, number: String, datatype: Datatype },
    #[error("the element {index} of the input `{input}` is `{value}`, which is not in {operation}")]
    Unlisted { input: String, index: usize, value: String, operation: &'static str },
    #[error("the output `{output}` would have more elements than memory can address")]
    TooLarge { output: String },
    /// Nobody waits for the answer any more.
    #[error("the request was cancelled")]
    Stopped,
}

impl From<StepError> for RuntimeError {
    fn from(error: StepError) -> Self {
        Self::invalid_request(error)
    }
}

/// The most names that a message lists.
const MAX_NAMES: usize = 20;

/// Lists names for a message.
pub(super) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let mut shown: Vec<String> = names.take(MAX_NAMES).map(|name| format!("`{}`", short(name))).collect();
    match more {
        0 if shown.is_empty() => return "none".to_owned(),
        0 => {}
        more => shown.push(format!("{more} more")),
    }
    shown.join(", ")
}

/// Lists the names of tensors for a message.
pub(super) fn names_of(tensors: &[Tensor]) -> String {
    listed(tensors.iter().map(|tensor| tensor.name.as_str()))
}
