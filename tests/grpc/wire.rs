//! Requests that no client would send.

use mlserver::types::protobuf::messages::ModelReadyRequest;
use prost::Message;
use tonic::Code;

use crate::support::grpc::{Http2, framed, infer_request, inference_client, ints};
use crate::support::{Client, Folder, TestServer};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const READY: &str = "/inference.GRPCInferenceService/ModelReady";

#[tokio::test]
async fn non_grpc_request_is_rejected() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let message = "this port speaks gRPC: HTTP/2, POST, content type application/grpc";
    assert_eq!(Client::new(server.grpc).get("/v2/health/live").error(415), message);
    let connection = Http2::connect(server.grpc).await;
    for content_type in ["application/json", "application/grpc-web", "application/grpc+json", "application/grpcx"] {
        let answer = connection.call(INFER, &[("content-type", content_type)], b"").await;
        assert_eq!(answer.status, 415, "{content_type}");
    }
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc;x=1"] {
        let message = framed(0, &ModelReadyRequest { name: "echo".to_owned(), ..Default::default() }.encode_to_vec());
        let answer = connection.call(READY, &[("content-type", content_type)], &message).await;
        assert_eq!((answer.status, answer.end().0), (200, 0), "{content_type}");
    }
}

#[tokio::test]
async fn unknown_method_is_unimplemented() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    for path in ["/", "/x", "/inference.GRPCInferenceService/", "/inference.GRPCInferenceService/Nope", "/a/b/c"] {
        let expected = (Code::Unimplemented as i32, format!("unknown method {path}"));
        assert_eq!(connection.call(path, &[], b"").await.end(), expected);
    }
}

#[tokio::test]
async fn malformed_messages_are_answered() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    let good = infer_request("echo", "INT32", &[2], ints(&[1, 2])).encode_to_vec();
    let invalid = |message: &str| (Code::InvalidArgument as i32, message.to_owned());
    let table = [
        (INFER, vec![], invalid("expected one message, received none")),
        (INFER, vec![0, 0, 0], invalid("the message ended early: expected 5 bytes, received 3")),
        (
            INFER,
            framed(0, &good)[..20].to_vec(),
            invalid(&format!("the message ended early: expected {} bytes, received 15", good.len())),
        ),
        (INFER, framed(0, &good).repeat(2), invalid("expected one message, received more")),
        (INFER, framed(3, &good), invalid("the compressed flag is 3, expected 0 or 1")),
        (INFER, framed(0, b"\x0a\x05ab"), invalid("invalid message at byte 2: 5 bytes are declared, but 2 are left")),
        (INFER, framed(0, b"\x0a\x02\xff\xfe"), invalid("invalid message at byte 2: expected text in UTF-8")),
        (INFER, framed(0, b"\x08\x01"), invalid("invalid message at byte 1: expected a field with a length")),
        (
            INFER,
            framed(1, &good),
            (Code::Internal as i32, "a message is compressed, but there is no `grpc-encoding`".to_owned()),
        ),
    ];
    for (path, bytes, expected) in table {
        assert_eq!(connection.call(path, &[], &bytes).await.end(), expected, "{bytes:x?}");
    }
    let (code, message) = connection.call(READY, &[], &framed(0, b"\x0a\x05ab")).await.end();
    assert!(code == Code::InvalidArgument as i32 && message.starts_with("invalid message: "), "{message}");
    let timeout = connection.call(READY, &[("grpc-timeout", "soon")], &framed(0, b"")).await.end();
    assert_eq!(timeout, invalid("`grpc-timeout` is `soon`, expected up to 8 digits and one of HMSmun"));
    let long = framed(0, &vec![0x0a; (1 << 20) + 1]);
    let too_long = "the message has 1048577 bytes, more than the 4096 that this method allows".to_owned();
    assert_eq!(connection.call(READY, &[], &long).await.end(), (Code::ResourceExhausted as i32, too_long));

    // The connection still works.
    let answer = connection.call(INFER, &[], &framed(0, &good)).await;
    assert_eq!(answer.end(), (0, String::new()));
    assert_eq!(
        inference_client(server.grpc)
            .await
            .server_live(mlserver::types::protobuf::messages::ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner(),
        mlserver::types::protobuf::messages::ServerLiveResponse { live: true }
    );
}

#[tokio::test]
async fn long_model_name_is_truncated_in_headers() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    let request = infer_request(&"é".repeat(1 << 20), "INT32", &[1], ints(&[1])).encode_to_vec();
    let (code, message) = connection.call(INFER, &[], &framed(0, &request)).await.end();
    assert_eq!(code, Code::NotFound as i32);
    assert!(message.starts_with("Model %C3%A9") && message.len() < 4096, "{} bytes", message.len());
}
