//! The identity runtime: returns every input as the output of the same name.
//!
//! For testing clients and for benchmarking the transports, like Triton's `identity` backend. Requested outputs select among
//! the inputs; a stream is answered message by message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt;

use super::{Description, FnRuntime, OutputError, Progress, RuntimeError};
use crate::types::{InferenceRequest, InferenceResponse, RequestedOutput, Tensor, short};

/// Creates the runtime.
pub(super) fn identity() -> FnRuntime {
    let predict = |request: InferenceRequest, progress: Arc<dyn Progress>| {
        progress.begin();
        std::future::ready(progress.reserve(response_bytes(&request)).and_then(|()| answer(request)))
    };
    let runtime = FnRuntime::with_progress(predict).description(Description::native());
    runtime.stream(|requests, _| Box::pin(requests.map(answer)))
}

/// Returns the size of the response. The outputs share the buffers of the inputs.
fn response_bytes(request: &InferenceRequest) -> usize {
    let names: HashSet<&str> = request.outputs.iter().map(|output| output.name.as_str()).collect();
    let inputs = request.inputs.iter().filter(|input| names.is_empty() || names.contains(input.name.as_str()));
    inputs.map(Tensor::byte_len).sum()
}

fn answer(request: InferenceRequest) -> Result<InferenceResponse, RuntimeError> {
    let outputs = if request.outputs.is_empty() { request.inputs } else { select(request.inputs, &request.outputs)? };
    Ok(InferenceResponse { parameters: request.parameters, outputs, ..InferenceResponse::default() })
}

/// Returns the requested inputs. Of several with the same name, only the first can be requested.
fn select(inputs: Vec<Tensor>, outputs: &[RequestedOutput]) -> Result<Vec<Tensor>, RuntimeError> {
    let available = inputs.len();
    // In linear time: there may be thousands of both.
    let mut left: HashMap<String, Option<Tensor>> = HashMap::with_capacity(inputs.len());
    for input in inputs {
        left.entry(input.name.clone()).or_insert(Some(input));
    }
    let take = |RequestedOutput { name, .. }: &RequestedOutput| match left.get_mut(name).map(Option::take) {
        Some(Some(input)) => Ok(input),
        // Its parameters may be long, so it is not copied.
        Some(None) => {
            Err(OutputError::TooMany { found: outputs.len(), output: short(name).to_owned(), available }.into())
        }
        None => Err(OutputError::unsupported("IdentityModel", "the names of its inputs", name).into()),
    };
    outputs.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::Runtime;
    use futures_util::stream;

    fn request(outputs: &[&str]) -> InferenceRequest {
        let input = |name: &str, value: i32| Tensor::from_elements(name, vec![1], &[value]).unwrap();
        let outputs =
            outputs.iter().map(|name| RequestedOutput { name: (*name).to_owned(), ..RequestedOutput::default() });
        InferenceRequest {
            inputs: vec![input("a", 1), input("b", 2)],
            outputs: outputs.collect(),
            ..InferenceRequest::default()
        }
    }

    #[test]
    fn identity_returns_all_or_requested_inputs() {
        let all = answer(request(&[])).unwrap().outputs;
        assert_eq!(all, request(&[]).inputs);
        let some = answer(request(&["b"])).unwrap().outputs;
        assert_eq!(some, request(&[]).inputs[1..]);
        let error = answer(request(&["c"])).unwrap_err().to_string();
        assert_eq!(error, "IdentityModel only supports the names of its inputs as outputs (c was received)");
        let error = answer(request(&["b", "a", "b"])).unwrap_err().to_string();
        assert_eq!(
            error,
            "3 outputs are requested, of which `b` more than once, but the model has 2: request each once"
        );
        let long = answer(request(&["x".repeat(1000).as_str()])).unwrap_err().to_string();
        assert!(long.len() < 300, "{long}");
        assert!(answer(request(&["b", "b"])).is_err(), "inputs are moved, not copied");
        for (outputs, bytes) in [(&[][..], 8), (&["b"], 4)] {
            assert_eq!(response_bytes(&request(outputs)), bytes);
        }
    }

    #[tokio::test]
    async fn identity_stream_answers_every_message() {
        let requests = stream::iter([request(&["a"]), request(&["c"]), request(&["b"])]);
        let answers: Vec<_> = Arc::new(identity()).predict_stream(Box::pin(requests), Arc::new(())).collect().await;
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0].as_ref().unwrap().outputs[0].name, "a");
        assert!(answers[1].is_err());
    }
}
