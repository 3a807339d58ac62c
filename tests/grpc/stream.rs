//! `ModelStreamInfer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use mlserver::runtimes::{ResponseStream, RuntimeError};
use mlserver::types::protobuf::messages::{ModelInferRequest, ModelInferResponse};
use mlserver::types::{InferenceResponse, Tensor};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::support::grpc::{
    Http2, InferenceClient, framed, infer_request, inference_client, ints, raw_request, unused_runtime,
};
use crate::support::{EmbeddedServer, FnRuntime, Folder, TestServer, eventually};

const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

fn numbered(id: &str, number: i32) -> ModelInferRequest {
    let mut request = infer_request("echo", "INT32", &[1], ints(&[number]));
    id.clone_into(&mut request.id);
    request
}

/// Sends all requests, and returns all answers and the final status.
async fn exchange(
    client: &mut InferenceClient,
    requests: Vec<ModelInferRequest>,
) -> (Vec<ModelInferResponse>, Result<(), Status>) {
    let mut answers = client.model_stream_infer(stream::iter(requests)).await.unwrap().into_inner();
    let mut all = Vec::new();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => all.push(answer),
            Ok(None) => return (all, Ok(())),
            Err(status) => return (all, Err(status)),
        }
    }
}

#[tokio::test]
async fn stream_answers_every_request_under_the_first_id() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let mut requests = vec![numbered("i1", 1), numbered("i2", 2), numbered("", 3)];
    // Only the first message names the model.
    "nope".clone_into(&mut requests[1].model_name);
    let (answers, end) = exchange(&mut client, requests).await;
    end.unwrap();
    let found: Vec<_> = answers
        .iter()
        .map(|answer| (answer.id.as_str(), answer.outputs[0].contents.as_ref().unwrap().int_contents[0]))
        .collect();
    assert_eq!(found, [("i1", 1), ("i1", 2), ("i1", 3)]);

    let raw = raw_request("echo", "UINT8", &[1], vec![7]);
    let (answers, end) = exchange(&mut client, vec![raw, numbered("", 1)]).await;
    end.unwrap();
    let raw: Vec<_> = answers.iter().map(|answer| answer.raw_output_contents[0].to_vec()).collect();
    assert_eq!(raw, [vec![7], vec![1, 0, 0, 0]], "the first message decides for all");
}

#[tokio::test]
async fn stream_answers_while_requests_arrive() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let (sender, receiver) = mpsc::channel(1);
    // The response starts before the first request arrives.
    let mut answers = client.model_stream_infer(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    for number in 0..3 {
        sender.send(numbered("a", number)).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.outputs[0].contents.as_ref().unwrap().int_contents, [number]);
    }
    drop(sender);
    assert!(answers.message().await.unwrap().is_none());
    let trailers = answers.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get("ce-id").unwrap(), "a");
    assert_eq!(trailers.get("ce-modelid").unwrap(), "echo");
}

#[tokio::test]
async fn stream_errors_match_unary_calls() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let mut unknown = numbered("", 1);
    "nope".clone_into(&mut unknown.model_name);
    let mut wrong = numbered("", 1);
    wrong.inputs[0].shape = vec![2];
    let table = [
        (vec![], 0, Code::InvalidArgument, "the stream of requests is empty: expected at least one"),
        (vec![unknown], 0, Code::NotFound, "Model nope not found"),
        (vec![wrong.clone()], 0, Code::InvalidArgument, "tensor `x` of shape [2] needs 2 elements, but 1 were given"),
        (
            vec![numbered("", 1), numbered("", 2), wrong],
            2,
            Code::InvalidArgument,
            "tensor `x` of shape [2] needs 2 elements, but 1 were given",
        ),
    ];
    for (requests, answered, code, message) in table {
        let (answers, end) = exchange(&mut client, requests).await;
        let status = end.unwrap_err();
        assert_eq!((answers.len(), status.code(), status.message()), (answered, code, message));
    }
    // A truncated message after a complete one.
    let bytes = [framed(0, &numbered("", 1).encode_to_vec()), vec![0, 0, 0, 0, 9, 1]].concat();
    let answer = Http2::connect(server.grpc).await.call(STREAM, &[], &bytes).await;
    let message = "the message ended early: expected 9 bytes, received 1".to_owned();
    assert_eq!(answer.end(), (Code::InvalidArgument as i32, message));
    assert!(!answer.body.is_empty());
}

/// Answers any stream with numbers that count up from 0.
#[derive(Debug, Default, Clone)]
struct CountingRuntime {
    answers: usize,
    /// Fails instead of giving the answer with this number.
    fails_at: Option<usize>,
    /// The number of elements in an answer.
    width: usize,
    /// The number of answers generated so far.
    made: Arc<AtomicUsize>,
    /// The number of requests read so far.
    read: Arc<AtomicUsize>,
    /// Cloned for as long as a stream exists.
    alive: Arc<()>,
}

impl CountingRuntime {
    fn answer(&self, number: usize) -> Result<InferenceResponse, RuntimeError> {
        if self.fails_at == Some(number) {
            return Err(RuntimeError::no_request());
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let values = vec![i64::try_from(number).unwrap(); self.width];
        let output = Tensor::from_elements("o", vec![self.width], &values).unwrap();
        let mut response = InferenceResponse { outputs: vec![output], ..InferenceResponse::default() };
        response.headers.insert("x-number", number.into());
        response.headers.insert("grpc-status", 7.into());
        Ok(response)
    }

    /// Sends the configured number of answers or, if none is configured, one answer for each request.
    fn runtime(self) -> FnRuntime {
        let counting = Arc::new(self);
        unused_runtime().stream(move |requests, _| -> ResponseStream {
            let (counting, alive) = (Arc::clone(&counting), Arc::clone(&counting.alive));
            if counting.answers > 0 {
                return Box::pin(stream::iter(0..counting.answers).map(move |number| {
                    let _ = &alive;
                    counting.answer(number)
                }));
            }
            Box::pin(requests.map(move |_| {
                let _ = &alive;
                counting.answer(counting.read.fetch_add(1, Ordering::Relaxed))
            }))
        })
    }
}

async fn open(server: &EmbeddedServer) -> Streaming<ModelInferResponse> {
    let mut client = inference_client(server.grpc).await;
    let request = infer_request("m", "INT32", &[1], ints(&[1]));
    client.model_stream_infer(stream::iter([request])).await.unwrap().into_inner()
}

#[tokio::test]
async fn stream_many_answers_send_the_last_headers() {
    let server =
        EmbeddedServer::serve(CountingRuntime { answers: 5, width: 1, ..CountingRuntime::default() }.runtime()).await;
    let mut answers = open(&server).await;
    for number in 0..5 {
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.outputs[0].contents.as_ref().unwrap().int64_contents, [number]);
    }
    assert!(answers.message().await.unwrap().is_none());
    let trailers = answers.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get("x-number").unwrap(), "4");
    assert_eq!(server.inference.in_flight(), 0);
}

#[tokio::test]
async fn stream_error_follows_earlier_answers() {
    let runtime = CountingRuntime { answers: 5, fails_at: Some(2), width: 1, ..CountingRuntime::default() };
    let server = EmbeddedServer::serve(runtime.runtime()).await;
    let mut answers = open(&server).await;
    assert!(answers.message().await.unwrap().is_some());
    assert!(answers.message().await.unwrap().is_some());
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.metadata().get("x-number").is_none(), "failures have no headers of answers");
}

#[tokio::test]
async fn stream_slow_reader_applies_backpressure_to_the_model() {
    const WIDTH: usize = 64 << 10;
    let runtime = CountingRuntime { answers: 10_000, width: WIDTH, ..CountingRuntime::default() };
    let server = EmbeddedServer::serve(runtime.clone().runtime()).await;
    let mut answers = open(&server).await;
    answers.message().await.unwrap().unwrap();
    let mut before = 0;
    // Wait until no more answers are generated.
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let made = runtime.made.load(Ordering::Relaxed);
        if made == before {
            break;
        }
        before = made;
    }
    assert!(before < 200, "{before} answers of half a MiB wait for a reader");
    assert_eq!(server.inference.in_flight(), 1);
    answers.message().await.unwrap().unwrap();
}

#[tokio::test]
async fn stream_slow_reader_applies_backpressure_to_requests() {
    let runtime = CountingRuntime { width: 64 << 10, ..CountingRuntime::default() };
    let server = EmbeddedServer::serve(runtime.clone().runtime()).await;
    let mut client = inference_client(server.grpc).await;
    let request = raw_request("m", "UINT8", &[-1], vec![0; 512 << 10]);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let requests = stream::repeat(request).take(10_000).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let sent = sent.load(Ordering::Relaxed);
        if sent == before {
            break;
        }
        before = sent;
    }
    assert!(before < 200, "{before} requests of half a MiB were taken");
}

#[tokio::test]
async fn stream_client_disconnect_cancels_the_stream() {
    let runtime = CountingRuntime { answers: usize::MAX, width: 64 << 10, ..CountingRuntime::default() };
    let server = EmbeddedServer::serve(runtime.clone().runtime()).await;
    let mut answers = open(&server).await;
    answers.message().await.unwrap().unwrap();
    assert_eq!(server.inference.in_flight(), 1);
    drop(answers);
    eventually("the stream ends", || server.inference.in_flight() == 0).await;
    // Two references remain: ours and the registered one.
    eventually("the model stops", || Arc::strong_count(&runtime.alive) == 2).await;
}
