//! MLflow's protocol for models that take tensors: bodies of `/invocations` become requests, and responses become predictions.

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};

use super::python::write_text;
use super::scoring::{self, ScoringError, invalid, write_cell};
use super::signature::{ColumnSpec, ColumnType, InputSchema, TensorType};
use super::values::{ColumnValues, DataFrame, ModelInput, NdArray};
use super::{custom_route, elements, tensor};
use crate::runtimes::RuntimeError;
use crate::types::{
    CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, Parameters, Tensor, TensorMetadata,
};

/// The routes. A route's number is its index.
const ROUTES: [(Method, &str); 3] = [(Method::GET, "/ping"), (Method::GET, "/health"), (Method::POST, INVOCATIONS)];
const INVOCATIONS: &str = "/invocations";

/// The name of a single array without a name.
const INPUT: &str = "input-0";

/// The most dimensions of predictions, as of requests.
const MAX_DIMENSIONS: usize = 32;

/// MLflow's protocol in front of a model that takes tensors.
#[derive(Debug)]
pub(in crate::runtimes) struct MlflowProtocol {
    /// The types of the columns, or of the array.
    schema: InputSchema,
    /// The name of the input that an array becomes.
    input: String,
}

impl MlflowProtocol {
    /// Creates the protocol of a model with these inputs: the columns of a data frame if their content type is `pd`, or an array if it is
    /// `np`. The types of others are inferred from the body.
    pub(in crate::runtimes) fn new(inputs: &[TensorMetadata], content_type: Option<&str>) -> Self {
        let kind = |input: &TensorMetadata| ColumnType::from_datatype(&input.datatype);
        let columns = || {
            let columns = inputs.iter().map(|input| Some(ColumnSpec { name: input.name.clone(), kind: kind(input)? }));
            columns.collect::<Option<Vec<_>>>().map(InputSchema::Columns)
        };
        let schema = match (content_type, inputs) {
            (Some("pd"), [_, ..]) => columns(),
            (Some("np"), [input]) => {
                kind(input).map(|kind| InputSchema::Tensor { kind: TensorType(kind), shape: input.shape.clone() })
            }
            _ => None,
        };
        let input = match inputs {
            [input] => input.name.clone(),
            _ => INPUT.to_owned(),
        };
        Self { schema: schema.unwrap_or_default(), input }
    }

    /// Returns the routes, whose numbers are their indices.
    pub(in crate::runtimes) fn routes() -> Result<Vec<CustomRoute>, String> {
        ROUTES.into_iter().map(custom_route).collect()
    }

    /// Returns whether a route is a probe. `None` if there is no such route.
    pub(in crate::runtimes) fn is_probe(route: usize) -> Option<bool> {
        ROUTES.get(route).map(|(_, path)| *path != INVOCATIONS)
    }

    /// Returns the answer of a probe of a model that is ready.
    pub(in crate::runtimes) fn ready() -> CustomReply {
        scoring::reply(StatusCode::OK, "application/json", "\n".to_owned())
    }

    /// Reads a call of `/invocations`, or returns the reply that rejects it.
    pub(in crate::runtimes) fn read(&self, call: &CustomCall) -> Result<InferenceRequest, Box<CustomReply>> {
        let content_type = call.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let input = scoring::read_body(&self.schema, content_type.as_deref().unwrap_or_default(), &call.body);
        let request = input.and_then(|input| self.request(input)).map_err(|error| Box::new(error.reply()))?;
        Ok(InferenceRequest { headers: call.headers.clone().into(), ..request })
    }

    fn request(&self, input: ModelInput) -> Result<InferenceRequest, ScoringError> {
        let (inputs, content_type) = match input {
            ModelInput::Array(array) => (vec![array_tensor(&self.input, array)?], "np"),
            ModelInput::Arrays(arrays) => {
                let content_type = if matches!(self.schema, InputSchema::Columns(_)) { "pd" } else { "dict" };
                let tensors = arrays.into_iter().map(|(name, array)| array_tensor(&name, array));
                (tensors.collect::<Result<_, _>>()?, content_type)
            }
            ModelInput::Frame(frame) => (columns(frame)?, "pd"),
            ModelInput::Other { class, .. } => {
                return Err(invalid(format_args!(
                    "A model that takes tensors cannot process an input of type {class}."
                )));
            }
        };
        let parameters = Parameters::with_content_type(content_type);
        Ok(InferenceRequest { parameters, inputs, ..InferenceRequest::default() })
    }

    /// Writes a response. A single output is a list, or nested lists; several are the columns of a data frame, or a dictionary.
    pub(in crate::runtimes) fn write(response: &InferenceResponse) -> CustomReply {
        let mut text = "{\"predictions\": ".to_owned();
        match write_outputs(&mut text, &response.outputs) {
            Ok(()) => {
                text.push('}');
                scoring::reply(StatusCode::OK, "application/json", text)
            }
            Err(error) => error.reply(),
        }
    }

    /// Returns the reply of a request that the model rejects.
    pub(in crate::runtimes) fn rejected(error: &RuntimeError) -> CustomReply {
        ScoringError::BadRequest(error.to_string()).reply()
    }
}

fn columns(DataFrame { labels, columns, rows }: DataFrame) -> Result<Vec<Tensor>, ScoringError> {
    let tensors = labels.iter().zip(columns).map(|(label, column)| match column {
        ColumnValues::Typed(elements) => array_tensor(&label.text(), NdArray { shape: vec![rows, 1], elements }),
        ColumnValues::Objects(_) => {
            Err(invalid(format_args!("Column {label} has values that are not all numbers, booleans or strings.")))
        }
    });
    tensors.collect()
}

/// Returns the tensor of an array. A scalar has one element.
fn array_tensor(name: &str, NdArray { shape, elements }: NdArray) -> Result<Tensor, ScoringError> {
    let shape = if shape.is_empty() { vec![1] } else { shape };
    tensor(name, shape, elements).map_err(invalid)
}

fn write_outputs(text: &mut String, outputs: &[Tensor]) -> Result<(), ScoringError> {
    for output in outputs {
        if output.check().is_err() || output.shape.len() > MAX_DIMENSIONS {
            let mut name = String::new();
            write_text(&mut name, crate::types::short(&output.name));
            return Err(ScoringError::BadRequest(format!(
                "The output {name} is not a tensor that MLflow's protocol has."
            )));
        }
    }
    let lengths = || outputs.iter().map(list_shape).map(|shape| shape.first().copied());
    let is_frame = outputs.iter().all(|output| list_shape(output).len() == 1) && {
        let first = lengths().next();
        lengths().all(|length| Some(length) == first)
    };
    match outputs {
        [] => text.push_str("[]"),
        [output] => write_lists(text, output),
        [first, ..] if is_frame => {
            let columns: Vec<_> = outputs.iter().map(elements).collect();
            let rows = first.len();
            write_sequence(text, '[', ']', 0..rows, |text, row| {
                write_sequence(text, '{', '}', outputs.iter().zip(&columns), |text, (output, column)| {
                    write_key(text, &output.name);
                    write_cell(text, column, row);
                });
            });
        }
        _ => write_sequence(text, '{', '}', outputs, |text, output| {
            write_key(text, &output.name);
            write_lists(text, output);
        }),
    }
    Ok(())
}

/// Returns the shape of the nested lists of a tensor. An array of one dimension has a second one of 1 in the V2 protocol.
fn list_shape(tensor: &Tensor) -> &[usize] {
    match &tensor.shape[..] {
        [rows, 1] => std::slice::from_ref(rows),
        shape => shape,
    }
}

fn write_lists(text: &mut String, tensor: &Tensor) {
    // Sizes of a tensor without elements do not count: there may be any number of empty lists.
    if tensor.is_empty() {
        return text.push_str("[]");
    }
    let elements = elements(tensor);
    write_nested(text, list_shape(tensor), 0, &|text, index| write_cell(text, &elements, index));
}

/// Writes the elements from `first` on as nested lists.
pub(super) fn write_nested(
    text: &mut String,
    shape: &[usize],
    first: usize,
    write_element: &dyn Fn(&mut String, usize),
) {
    let Some((&length, inner)) = shape.split_first() else { return write_element(text, first) };
    let width: usize = inner.iter().product();
    write_sequence(text, '[', ']', 0..length, |text, index| {
        write_nested(text, inner, first + index * width, write_element);
    });
}

pub(super) fn write_key(text: &mut String, name: &str) {
    write_text(text, name);
    text.push_str(": ");
}

/// Writes items between brackets, separated as Python's JSON does.
pub(super) fn write_sequence<T>(
    text: &mut String,
    open: char,
    close: char,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T),
) {
    text.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        write(text, item);
    }
    text.push(close);
}
