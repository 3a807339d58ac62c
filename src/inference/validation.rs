//! Validates requests against the inputs that their model declares, for models with the setting `validate_inputs`.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::registry::RegisteredModel;
use crate::runtimes::RequestStream;
use crate::types::{InferenceRequest, Tensor, TensorMetadata};

/// The ways in which a request's inputs differ from the declared ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    #[error("the input `{name}` is missing; the model takes {declared}")]
    Missing { name: String, declared: String },
    #[error("the model has no input `{name}`; it takes {declared}")]
    Unknown { name: String, declared: String },
    #[error("the input `{name}` is duplicated")]
    Duplicate { name: String },
    #[error("the input `{name}` has datatype {actual}; the model takes {declared}")]
    Datatype { name: String, actual: &'static str, declared: String },
    #[error("the input `{name}` has shape {actual:?}; the model takes {declared:?}, where -1 is any size")]
    Shape { name: String, actual: Vec<usize>, declared: Vec<i64> },
}

/// Checks names, datatypes, ranks and fixed dimensions. The order of inputs does not matter.
///
/// # Errors
///
/// Fails at the first difference, in the order of the request; missing inputs come last.
pub(super) fn check(declared: &[TensorMetadata], inputs: &[Tensor]) -> Result<(), InvalidInput> {
    for (index, input) in inputs.iter().enumerate() {
        let name = || input.name.clone();
        let Some(wanted) = declared.iter().find(|wanted| wanted.name == input.name) else {
            return Err(InvalidInput::Unknown { name: name(), declared: names(declared) });
        };
        if inputs[..index].iter().any(|earlier| earlier.name == input.name) {
            return Err(InvalidInput::Duplicate { name: name() });
        }
        if input.datatype.name() != wanted.datatype {
            let (actual, declared) = (input.datatype.name(), wanted.datatype.clone());
            return Err(InvalidInput::Datatype { name: name(), actual, declared });
        }
        if !fits(&input.shape, &wanted.shape) {
            let (actual, declared) = (input.shape.clone(), wanted.shape.clone());
            return Err(InvalidInput::Shape { name: name(), actual, declared });
        }
    }
    // All inputs have distinct declared names, so none is missing if the counts are equal.
    if inputs.len() == declared.len() {
        return Ok(());
    }
    let missing = declared.iter().find(|wanted| inputs.iter().all(|input| input.name != wanted.name));
    missing.map_or(Ok(()), |wanted| Err(InvalidInput::Missing { name: wanted.name.clone(), declared: names(declared) }))
}

/// Reports whether a shape has the declared rank and sizes. Negative sizes match any.
fn fits(actual: &[usize], declared: &[i64]) -> bool {
    let same = |(&actual, &declared): (&usize, &i64)| usize::try_from(declared).is_ok_and(|size| size == actual);
    let any = |(_, declared): &(&usize, &i64)| **declared < 0;
    actual.len() == declared.len() && actual.iter().zip(declared).all(|pair| any(&pair) || same(pair))
}

fn names(declared: &[TensorMetadata]) -> String {
    let names: Vec<String> = declared.iter().map(|tensor| format!("`{}`", tensor.name)).collect();
    names.join(", ")
}

/// The reason why a stream of requests was ended early, once there is one.
pub(super) type ValidationFailure = Arc<OnceLock<InvalidInput>>;

/// Passes on the requests of a stream until one is invalid, and stores the reason.
pub(super) struct ValidatedRequests {
    model: Arc<RegisteredModel>,
    requests: RequestStream,
    failure: ValidationFailure,
}

impl ValidatedRequests {
    pub(super) fn new(model: Arc<RegisteredModel>, requests: RequestStream, failure: ValidationFailure) -> Self {
        Self { model, requests, failure }
    }
}

impl Stream for ValidatedRequests {
    type Item = InferenceRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<InferenceRequest>> {
        if self.failure.get().is_some() {
            return Poll::Ready(None);
        }
        self.requests.as_mut().poll_next(context).map(|next| {
            let request = next?;
            match check(&self.model.metadata.inputs, &request.inputs) {
                Ok(()) => Some(request),
                Err(invalid) => {
                    // Set at most once: no request is read after it.
                    let _ = self.failure.set(invalid);
                    None
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Parameters;

    fn declared(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        let (name, datatype, shape) = (name.to_owned(), datatype.to_owned(), shape.to_vec());
        TensorMetadata { name, datatype, shape, parameters: Parameters::default() }
    }

    fn input(name: &str, shape: &[usize]) -> Tensor {
        Tensor::from_elements(name, shape.to_vec(), &vec![0_f32; shape.iter().product()]).unwrap()
    }

    fn refusal(declared: &[TensorMetadata], inputs: &[Tensor]) -> String {
        check(declared, inputs).unwrap_err().to_string()
    }

    #[test]
    fn validation_accepts_declared_inputs_in_any_order() {
        let model = [declared("x", "FP32", &[-1, 4]), declared("y", "FP32", &[2])];
        assert_eq!(check(&model, &[input("y", &[2]), input("x", &[3, 4])]), Ok(()));
        assert_eq!(check(&model, &[input("x", &[0, 4]), input("y", &[2])]), Ok(()));
    }

    #[test]
    fn validation_names_the_difference() {
        let model = [declared("x", "FP32", &[-1, 4]), declared("y", "FP32", &[2])];
        assert_eq!(refusal(&model, &[input("x", &[1, 4])]), "the input `y` is missing; the model takes `x`, `y`");
        assert_eq!(
            refusal(&model, &[input("x", &[1, 4]), input("y", &[2]), input("z", &[1])]),
            "the model has no input `z`; it takes `x`, `y`"
        );
        assert_eq!(refusal(&model, &[input("x", &[1, 4]), input("x", &[1, 4])]), "the input `x` is duplicated");
        assert_eq!(
            refusal(&model, &[input("x", &[1, 3]), input("y", &[2])]),
            "the input `x` has shape [1, 3]; the model takes [-1, 4], where -1 is any size"
        );
        assert_eq!(
            refusal(&model, &[input("x", &[4]), input("y", &[2])]),
            "the input `x` has shape [4]; the model takes [-1, 4], where -1 is any size"
        );
        assert_eq!(
            refusal(&[declared("x", "FP64", &[1])], &[input("x", &[1])]),
            "the input `x` has datatype FP32; the model takes FP64"
        );
    }

    #[test]
    fn validation_accepts_scalar_for_empty_shape() {
        assert_eq!(check(&[declared("x", "FP32", &[])], &[input("x", &[])]), Ok(()));
    }
}
