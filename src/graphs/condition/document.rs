//! The JSON documents that conditions are matched against: requests and responses whose tensors have not been written.

use std::cell::OnceCell;

use serde_json::Value;

use crate::types::json::{data_text_memory, sent_text, write_data_text, write_parameters_text, write_tensor_text};
use crate::types::{Parameters, Tensor};

/// A request with inputs, or a response with outputs.
#[derive(Debug)]
pub(in crate::graphs) struct Document<'a> {
    /// Everything but the tensors.
    head: String,
    /// The name of the list of tensors.
    list: &'static str,
    tensors: Vec<TensorJson<'a>>,
}

/// A tensor of a document.
#[derive(Debug)]
pub(in crate::graphs) struct TensorJson<'a> {
    tensor: &'a Tensor,
    /// Everything but the data.
    head: String,
    /// The data as text, if it has been written. `None` for data that JSON does not have.
    written: OnceCell<Option<String>>,
}

/// The data of a tensor has too many elements to be written.
#[derive(Debug)]
pub(super) struct TooLong;

impl<'a> Document<'a> {
    /// Returns the document of a request with these inputs.
    pub(in crate::graphs) fn of_request(tensors: &'a [Tensor], parameters: &Parameters) -> Self {
        let mut head = String::from("{\"id\":\"\"");
        if !parameters.is_absent() {
            head += ",\"parameters\":";
            head += &write_parameters_text(parameters);
        }
        Self::new(head, "inputs", tensors)
    }

    /// Returns the document of a response of `model` with these outputs.
    pub(in crate::graphs) fn of_response(model: &str, tensors: &'a [Tensor], parameters: &Parameters) -> Self {
        let (model, parameters) = (Value::from(model), write_parameters_text(parameters));
        let head = format!("{{\"model_name\":{model},\"id\":\"\",\"parameters\":{parameters}");
        Self::new(head, "outputs", tensors)
    }

    fn new(mut head: String, list: &'static str, tensors: &'a [Tensor]) -> Self {
        head.push('}');
        let tensor = |tensor| TensorJson { head: write_tensor_text(tensor), tensor, written: OnceCell::new() };
        Self { head, list, tensors: tensors.iter().map(tensor).collect() }
    }

    pub(super) fn head(&self) -> &str {
        &self.head
    }

    pub(super) const fn list(&self) -> &'static str {
        self.list
    }

    pub(super) fn tensors(&self) -> &[TensorJson<'a>] {
        &self.tensors
    }
}

impl TensorJson<'_> {
    pub(super) fn head(&self) -> &str {
        &self.head
    }

    /// Returns the data as text, or `Ok(None)` if JSON does not have it.
    ///
    /// # Errors
    ///
    /// Fails if the data would have to be written and has more than `most` elements.
    pub(super) fn data(&self, most: usize) -> Result<Option<&str>, TooLong> {
        if let Some(sent) = sent_text(self.tensor) {
            return Ok(Some(sent));
        }
        if self.written.get().is_none() && self.tensor.len() > most {
            return Err(TooLong);
        }
        Ok(self.written.get_or_init(|| write_data_text(self.tensor).ok()).as_deref())
    }
}

/// Returns the size of the document of these tensors and parameters, in bytes, as far as it is at most `limit`: then the time is in
/// proportion to `limit`, and not to the size.
pub(in crate::graphs) fn document_size(
    tensors: &[Tensor],
    parameters: &Parameters,
    with_data: bool,
    limit: usize,
) -> usize {
    /// The size of a member or an element besides its text.
    const SEPARATORS: usize = 8;

    fn add_value(value: &Value, size: &mut usize, limit: usize) {
        *size += SEPARATORS;
        match value {
            Value::String(text) => *size += text.len(),
            Value::Array(values) => {
                for value in values {
                    if *size <= limit {
                        add_value(value, size, limit);
                    }
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    if *size <= limit {
                        *size += key.len();
                        add_value(value, size, limit);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => *size += 2 * SEPARATORS,
        }
    }

    fn add_parameters(parameters: &Parameters, size: &mut usize, limit: usize) {
        for (key, value) in parameters.others.iter() {
            if *size <= limit {
                *size += key.len();
                add_value(value, size, limit);
            }
        }
    }

    let mut size = 128;
    add_parameters(parameters, &mut size, limit);
    for tensor in tensors {
        if size > limit {
            break;
        }
        size += 128 + tensor.name.len() + tensor.shape.len() * SEPARATORS;
        add_parameters(&tensor.parameters, &mut size, limit);
        if with_data {
            size = size.saturating_add(data_text_memory(tensor));
        }
    }
    size
}
