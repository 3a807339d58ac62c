//! Sizes, compression and deadlines.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};

use crate::support::grpc::{Http2, framed, infer_request, inference_client, ints, never_answers, raw_request};
use crate::support::{EmbeddedServer, Folder, ServerBuilder, TestServer, deflate, eventually};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

#[tokio::test]
async fn message_size_limit_applies_in_both_directions() {
    let server =
        ServerBuilder::new(Folder::new().with_identity("echo")).env("MLSERVER_GRPC_MAX_MESSAGE_LENGTH", "1000").start();
    let mut client = inference_client(server.grpc).await;
    let request = |bytes: usize| raw_request("echo", "UINT8", &[i64::try_from(bytes).unwrap()], vec![7; bytes]);
    assert!(client.model_infer(request(900)).await.is_ok());
    let status = client.model_infer(request(1000)).await.unwrap_err();
    let found = request(1000).encoded_len();
    let expected =
        format!("the message has {found} bytes, more than the 1000 that the setting `grpc_max_message_length` allows");
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, expected.as_str()));

    // The response is longer than the request: its negative numbers are not packed as tightly, and it names the model
    // twice.
    let mut request = infer_request("echo", "INT8", &[90], ints(&[-1; 90]));
    request.inputs[0].name = "n".repeat(20);
    assert!(client.model_infer(request.clone()).await.is_ok());
    request.inputs.push(request.inputs[0].clone());
    request.raw_input_contents = vec![vec![0xff; 480].into()];
    request.inputs[0].contents = None;
    request.inputs[0].shape = vec![480];
    request.inputs[1].contents = Some(ints(&[0; 300]));
    request.inputs[1].shape = vec![300];
    request.inputs[1].datatype = "INT64".to_owned();
    assert!(request.encoded_len() <= 1000);
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().starts_with("the response has ") && status.message().contains("`grpc_max_message_length`")
    );
}

#[tokio::test]
async fn message_size_limit_defaults_to_64_mib() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let request = |bytes: usize| raw_request("echo", "UINT8", &[-1], vec![7; bytes]);
    assert!(client.model_infer(request(5 << 20)).await.is_ok(), "more than the 4 MiB of other servers");
    assert_eq!(client.model_infer(request(64 << 20)).await.unwrap_err().code(), Code::ResourceExhausted);

    let server =
        ServerBuilder::new(Folder::new().with_identity("echo")).env("MLSERVER_GRPC_MAX_MESSAGE_LENGTH", "-1").start();
    let mut client = inference_client(server.grpc).await;
    assert!(client.model_infer(request(65 << 20)).await.is_ok());
}

#[tokio::test]
async fn compressed_requests_are_read() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let request = raw_request("echo", "UINT8", &[-1], vec![7; 200_000]);
    let mut client = inference_client(server.grpc).await.send_compressed(CompressionEncoding::Gzip);
    let answer = client.model_infer(request.clone()).await.unwrap().into_inner();
    assert!(answer.raw_output_contents == request.raw_input_contents);

    let message = framed(1, &deflate(&request.encode_to_vec()));
    let connection = Http2::connect(server.grpc).await;
    let answer = connection.call(INFER, &[("grpc-encoding", "deflate")], &message).await;
    assert_eq!(answer.end(), (0, String::new()));
    assert!(answer.body.len() > 200_000, "answers are not compressed, as in the original");
    let refused = connection.call(INFER, &[("grpc-encoding", "br")], &message).await;
    let message = "the compression `br` is not supported: send gzip, deflate or identity".to_owned();
    assert_eq!(refused.end(), (Code::Unimplemented as i32, message));
    assert_eq!(refused.headers["grpc-accept-encoding"], "identity,deflate,gzip");
}

#[tokio::test]
async fn gzip_bomb_is_rejected_without_decompression() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..512 {
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let bomb = framed(1, &encoder.finish().unwrap());
    let connection = Http2::connect(server.grpc).await;
    let (code, message) = connection.call(INFER, &[("grpc-encoding", "gzip")], &bomb).await.end();
    assert_eq!(code, Code::ResourceExhausted as i32);
    assert!(message.contains("compressed bytes become more than 8388608: "), "{message}");
    assert!(server.peak_memory() < 100 << 10, "{} KiB", server.peak_memory());
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[tokio::test]
async fn announced_length_allocates_no_memory() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    let before = server.memory();
    for _ in 0..50 {
        let (code, message) = connection.call(INFER, &[], b"\0\x03\xff\xff\xff").await.end();
        let expected = "the message ended early: expected 67108863 bytes, received 0";
        assert_eq!((code, message.as_str()), (Code::InvalidArgument as i32, expected));
    }
    assert!(server.memory() < before + (16 << 10), "{} KiB, then {} KiB", before, server.memory());
}

#[tokio::test]
async fn deadline_cancels_the_prediction() {
    let alive = Arc::new(());
    let server = EmbeddedServer::serve(never_answers(&alive)).await;
    let mut request = Request::new(infer_request("m", "INT32", &[1], ints(&[1])));
    request.set_timeout(Duration::from_millis(100));
    // The client would wait longer, so that the server gives up first.
    let timeout = request.metadata_mut().remove("grpc-timeout").unwrap();
    let connection = Http2::connect(server.grpc).await;
    let message = framed(0, &request.into_inner().encode_to_vec());
    let answer = connection.call(INFER, &[("grpc-timeout", timeout.to_str().unwrap())], &message).await;
    let expected = "the client's deadline has passed".to_owned();
    assert_eq!(answer.end(), (Code::DeadlineExceeded as i32, expected));
    assert_eq!((Arc::strong_count(&alive), server.inference.in_flight()), (2, 0), "nothing waits any more");
    let answer =
        connection.call("/inference.GRPCInferenceService/ModelStreamInfer", &[("grpc-timeout", "50m")], &message).await;
    assert_eq!(answer.end().0, Code::DeadlineExceeded as i32);
    assert_eq!((Arc::strong_count(&alive), server.inference.in_flight()), (2, 0));
}

#[tokio::test]
async fn client_disconnect_cancels_the_prediction() {
    let alive = Arc::new(());
    let server = EmbeddedServer::serve(never_answers(&alive)).await;
    let client = inference_client(server.grpc).await;
    let call = tokio::spawn(async move {
        let mut client = client;
        client.model_infer(infer_request("m", "INT32", &[1], ints(&[1]))).await
    });
    eventually("the request comes", || server.inference.in_flight() == 1).await;
    call.abort();
    eventually("the request goes", || server.inference.in_flight() == 0 && Arc::strong_count(&alive) == 2).await;
}
