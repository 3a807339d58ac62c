//! Content types: how a native runtime reads a request as numbers.
//!
//! The content type is that of the request, or else of the model's settings, or else `np`. `np` reads one tensor as an
//! array, `pd` reads one column from each input. As in the original, an unknown content type is treated like none.

mod columns;
mod matrix;

pub use columns::ColumnOrder;
pub use matrix::{DecodedInputs, NumericArray, NumericMatrix};

use std::collections::HashSet;

use crate::types::{Datatype, InferenceRequest, Tensor, TensorData, TensorError, short};

/// Why a request's tensors cannot be converted for the model. Always an error of the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error(
        "There was an error encoding / decoding the payload: The '{codec}' codec only supports a single input tensor ({found} were received)"
    )]
    SingleTensor { codec: &'static str, found: usize },
    #[error(
        "the request has no inputs: send one tensor of shape [rows, columns] in `inputs`, or with the content type `pd` one for each column"
    )]
    NoInputs,
    /// The shape of an input is not that of its elements.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A shape such as `[1000000000000, 0]`, which would cost time for each row.
    #[error(
        "input `{short_input}` has the shape {shape:?}, whose rows have no values: send at least one value per row, or no rows", short_input = short(.input)
    )]
    EmptyRows { input: String, shape: Vec<usize> },
    #[error("input `{short_input}` is {datatype}, but this model expects numbers", short_input = short(.input))]
    NotNumeric { input: String, datatype: Datatype },
    #[error("input `{short_input}` has the content type `{short_content_type}`, but this model expects numbers: use `np` or `pd`", short_input = short(.input), short_content_type = short(.content_type))]
    ContentType { input: String, content_type: String },
    #[error("input `{short_input}` has the shape {found:?}, but this model expects [rows, {features}]", short_input = short(.input))]
    Shape { input: String, found: Vec<usize>, features: usize },
    #[error("column `{short_input}` has {found} rows, but column `{short_first}` has {rows}", short_input = short(.input), short_first = short(.first))]
    Rows { input: String, found: usize, first: String, rows: usize },
    #[error("column `{short_input}` occurs twice", short_input = short(.input))]
    DuplicateColumn { input: String },
    #[error("the request has {found} columns, but this model expects {features}")]
    Columns { found: usize, features: usize },
    #[error("column {index} is `{short_found}`, but this model was trained with `{short_wanted}` in that position", short_found = short(.found), short_wanted = short(.wanted))]
    ColumnName { index: usize, found: String, wanted: String },
    #[error("column {index} is `{short_found}`, which this model does not have: expected its features by name, of which `{short_missing}` is missing", short_found = short(.found), short_missing = short(.missing))]
    UnknownColumn { index: usize, found: String, missing: String },
}

/// Content types whose values are not numbers.
const NOT_NUMBERS: [&str; 3] = ["str", "base64", "datetime"];
/// Content types whose values are neither numbers nor text.
const NOT_TEXT: [&str; 2] = ["base64", "datetime"];

/// Reads a request of numbers by its content type. `default` is that of the model's settings.
///
/// # Errors
///
/// Fails if the inputs do not match the content type, or are not numbers.
pub fn decode<'a>(request: &'a InferenceRequest, default: Option<&str>) -> Result<DecodedInputs<'a>, CodecError> {
    for input in &request.inputs {
        if input.datatype == Datatype::Bytes {
            return Err(CodecError::NotNumeric { input: input.name.clone(), datatype: input.datatype });
        }
        check_content_type(input, &NOT_NUMBERS)?;
    }
    arrange(request, default)
}

/// Reads a request of numbers and text by its content type. `default` is that of the model's settings.
///
/// # Errors
///
/// Fails if the inputs do not match the content type, or are bytes or dates.
pub fn decode_with_text<'a>(
    request: &'a InferenceRequest,
    default: Option<&str>,
) -> Result<DecodedInputs<'a>, CodecError> {
    for input in &request.inputs {
        check_content_type(input, &NOT_TEXT)?;
    }
    arrange(request, default)
}

/// Reads a request of arrays, each of which is found by its name: the content type `dict`.
///
/// # Errors
///
/// Fails if two inputs have one name, or if an input is bytes or dates, or not of its shape.
pub fn decode_named(request: &InferenceRequest) -> Result<&[Tensor], CodecError> {
    let mut names = HashSet::with_capacity(request.inputs.len());
    for input in &request.inputs {
        check_content_type(input, &NOT_TEXT)?;
        check_shape(input)?;
        if !names.insert(input.name.as_str()) {
            return Err(CodecError::DuplicateColumn { input: input.name.clone() });
        }
    }
    Ok(&request.inputs)
}

/// Checks the shape of an input. Transports have checked those of requests. Evaluators trust them, so a model in front of this one must
/// not break them.
fn check_shape(input: &Tensor) -> Result<(), CodecError> {
    input.check()?;
    check_rows(input)
}

fn check_rows(input: &Tensor) -> Result<(), CodecError> {
    if input.is_empty() && input.rows() != Some(0) {
        return Err(CodecError::EmptyRows { input: input.name.clone(), shape: input.shape.clone() });
    }
    Ok(())
}

fn check_content_type(input: &Tensor, refused: &[&str]) -> Result<(), CodecError> {
    match input.parameters.content_type().filter(|content_type| refused.contains(content_type)) {
        None => Ok(()),
        Some(content_type) => {
            Err(CodecError::ContentType { input: input.name.clone(), content_type: content_type.to_owned() })
        }
    }
}

/// Reports whether an input is a column of texts of which some are missing.
fn has_missing_texts(input: &Tensor) -> bool {
    matches!(&input.data, TensorData::Irregular(data) if input.datatype == Datatype::Bytes && data.texts().is_some())
}

fn arrange<'a>(request: &'a InferenceRequest, default: Option<&str>) -> Result<DecodedInputs<'a>, CodecError> {
    let content_type = request.parameters.content_type().or(default);
    for input in &request.inputs {
        if content_type == Some("pd") && has_missing_texts(input) { check_rows(input)? } else { check_shape(input)? }
    }
    match content_type {
        Some("pd") => DecodedInputs::frame(&request.inputs),
        _ => match &request.inputs[..] {
            [input] => Ok(DecodedInputs::Array(input)),
            [] => Err(CodecError::NoInputs),
            inputs => Err(CodecError::SingleTensor { codec: "np", found: inputs.len() }),
        },
    }
}
