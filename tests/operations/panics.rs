//! Panics inside the server: each ends one request with an internal error, and nothing else.

use futures_util::{StreamExt, stream};
use mlserver::types::{InferenceRequest, InferenceResponse};
use serde_json::json;
use tonic::Code;

use crate::support::grpc::{infer_request, inference_client, ints};
use crate::support::{Connection, EmbeddedServer, FnRuntime, eventually};

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
const MESSAGE: &str = "the server failed while handling the request; the log has the details";

fn answer(request: InferenceRequest) -> InferenceResponse {
    InferenceResponse { outputs: request.inputs, ..InferenceResponse::default() }
}

/// Panics if a request has one element; a stream panics after its first answer.
fn fragile() -> FnRuntime {
    let predict = |request: InferenceRequest| async {
        assert!(request.inputs[0].shape != [1], "injected");
        Ok(answer(request))
    };
    FnRuntime::new(predict).stream(|requests, _| {
        let first = requests.take(1).map(|request| Ok(answer(request)));
        Box::pin(first.chain(stream::once(async { unreachable!("injected") })))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_prediction_answers_500_and_keeps_the_connection() {
    let server = EmbeddedServer::serve(fragile()).await;
    let address = server.http;
    let rest = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address);
        let mut send = |body: &str| {
            let head = "POST /v2/models/m/infer HTTP/1.1\r\nhost: test\r\ncontent-type: application/json";
            connection.write(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
            connection.answer()
        };
        assert_eq!(send(BODY).error(500), MESSAGE);
        let whole = BODY.replace("[1],\"d", "[2],\"d").replace("[1]}", "[1,2]}");
        assert_eq!(send(&whole).ok()["outputs"][0]["data"], json!([1, 2]));
    });
    rest.await.unwrap();

    let mut client = inference_client(server.grpc).await;
    let status = client.model_infer(infer_request("m", "INT32", &[1], ints(&[1]))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, MESSAGE));
    client.model_infer(infer_request("m", "INT32", &[2], ints(&[1, 2]))).await.unwrap();
    eventually("the slot is free", || server.inference.in_flight() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_stream_ends_it_with_an_error() {
    let server = EmbeddedServer::serve(fragile()).await;
    let address = server.http;
    let rest = tokio::task::spawn_blocking(move || {
        let client = crate::support::Client::new(address);
        let events = client.post("/v2/models/m/infer_stream", BODY);
        assert_eq!(events.status, 200);
        assert!(
            events.text().ends_with(&format!("event: error\ndata: {{\"error\":\"{MESSAGE}\",\"status\":500}}\n\n"))
        );
    });
    rest.await.unwrap();

    let mut client = inference_client(server.grpc).await;
    let requests = stream::iter([infer_request("m", "INT32", &[1], ints(&[1]))]);
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    let status = answers.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, MESSAGE));
    eventually("the slot is free", || server.inference.in_flight() == 0).await;
}
