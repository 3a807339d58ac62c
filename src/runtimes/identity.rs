//! The identity runtime: returns every input as the output of the same name.
//!
//! For testing clients and for benchmarking the transports, like Triton's `identity` backend. Requested outputs select among
//! the inputs; a stream is answered message by message.

use std::sync::Arc;

use futures_util::StreamExt;

use super::{BoxFuture, OutputError, Predictor, RequestStream, ResponseStream, RuntimeError, ready};
use crate::types::{InferenceRequest, InferenceResponse, RequestedOutput, Tensor};

#[derive(Debug)]
pub(super) struct Identity;

impl Predictor for Identity {
    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        ready(answer(request))
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        Box::pin(requests.map(answer))
    }
}

fn answer(request: InferenceRequest) -> Result<InferenceResponse, RuntimeError> {
    let outputs = if request.outputs.is_empty() {
        request.inputs
    } else {
        request.outputs.iter().map(|output| find(&request.inputs, output)).collect::<Result<_, _>>()?
    };
    Ok(InferenceResponse { parameters: request.parameters, outputs, ..InferenceResponse::default() })
}

fn find(inputs: &[Tensor], output: &RequestedOutput) -> Result<Tensor, RuntimeError> {
    let found = inputs.iter().find(|input| input.name == output.name).cloned();
    Ok(found.ok_or_else(|| OutputError::Unsupported {
        runtime: "IdentityModel",
        supported: "the names of its inputs",
        found: output.name.clone(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }

    #[tokio::test]
    async fn identity_stream_answers_every_message() {
        let requests = stream::iter([request(&["a"]), request(&["c"]), request(&["b"])]);
        let answers: Vec<_> = Arc::new(Identity).predict_stream(Box::pin(requests)).collect().await;
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0].as_ref().unwrap().outputs[0].name, "a");
        assert!(answers[1].is_err());
    }
}
