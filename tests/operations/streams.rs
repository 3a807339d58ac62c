//! The limits of streams: how many there may be, and how long they may be idle.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use mlserver::types::protobuf::messages::ModelInferRequest;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::support::grpc::{infer_request, inference_client, ints};
use crate::support::{Folder, PATIENCE, TestServer, wait_until};

/// A server with the model `echo`.
fn echo(settings: &serde_json::Value) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(settings))
}

fn request() -> ModelInferRequest {
    infer_request("echo", "INT32", &[2], ints(&[1, 2]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_streams_leave_slots_for_other_requests() {
    let server = echo(&json!({}));
    let (mut streams, end) = (Vec::new(), CancellationToken::new());
    let (mut open, mut rejected) = (0, 0);
    for _ in 0..8 {
        let mut client = inference_client(server.grpc).await;
        for _ in 0..128 {
            let until_end = stream::pending().take_until(end.clone().cancelled_owned());
            let requests = stream::iter([request()]).chain(until_end);
            let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
            match answers.message().await {
                Ok(answer) => {
                    assert!(answer.is_some());
                    open += 1;
                    streams.push(answers);
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    assert_eq!(
                        status.message(),
                        "the server already has 128 streams open (`max_streams`); try again later"
                    );
                    rejected += 1;
                }
            }
        }
    }
    assert_eq!((open, rejected), (128, 896));
    inference_client(server.grpc).await.model_infer(request()).await.unwrap();
    end.cancel();
    let (mut client, started) = (inference_client(server.grpc).await, Instant::now());
    loop {
        let mut answers = client.model_stream_infer(stream::iter([request()])).await.unwrap().into_inner();
        if answers.message().await.is_ok() {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the slots are not free again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_without_messages_is_ended_after_the_idle_timeout() {
    let server = echo(&json!({"stream_idle_timeout": 0.4}));
    let mut client = inference_client(server.grpc).await;
    let message = "`stream_idle_timeout` (0.4 s) exceeded: no message in either direction";

    let requests = stream::iter([request()]).chain(stream::pending());
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    let status = answers.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, message));

    // Before its first request, too.
    let mut answers = client.model_stream_infer(stream::pending()).await.unwrap().into_inner();
    let status = answers.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, message));

    // Messages keep it open.
    let paced = stream::unfold(0, |sent| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (sent < 10).then(|| (request(), sent + 1))
    });
    let mut answers = client.model_stream_infer(paced).await.unwrap().into_inner();
    let mut count = 0;
    while answers.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 10);
    let dropped = r#"model_infer_dropped_total{model="echo",reason="stream_idle_timeout",version="None"} 1"#;
    assert!(server.scrape().text().contains(dropped), "{}", server.scrape().text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_of_a_grpc_stream_counts_as_deadline() {
    let server = echo(&json!({}));
    let mut client = inference_client(server.grpc).await;
    let mut call = tonic::Request::new(stream::iter([request()]).chain(stream::pending()));
    call.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
    let mut answers = client.model_stream_infer(call).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    assert_eq!(answers.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    let count = |reason: &str| {
        let line = format!("model_infer_dropped_total{{model=\"echo\",reason=\"{reason}\",version=\"None\"}} 1");
        server.scrape().text().contains(&line)
    };
    wait_until("the deadline is counted", || count("deadline"));
    assert!(!count("client_disconnected"));
}
