//! A clock that is changed while the server runs: only what has a date follows it. Needs libfaketime (Debian's `faketime`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use http::Method;
use mlserver::access::KeyHash;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use crate::support::grpc::{infer_request, inference_client, ints};
use crate::support::{Folder, ServerBuilder, TestServer, skipped, wait_until};

fn library() -> Option<PathBuf> {
    let machines = ["x86_64-linux-gnu", "aarch64-linux-gnu"].into_iter();
    let paths = machines.map(|machine| PathBuf::from(format!("/usr/lib/{machine}/faketime/libfaketimeMT.so.1")));
    let found = paths.into_iter().find(|path| path.is_file());
    if found.is_none() {
        skipped("libfaketime is not installed");
    }
    found
}

/// Has the process see the wall clock with the offset in a file.
fn with_clock(builder: ServerBuilder, library: &Path, offset: &Path) -> ServerBuilder {
    fs::write(offset, "+0").unwrap();
    let builder = builder.env("LD_PRELOAD", library.to_str().unwrap()).env("FAKETIME_NO_CACHE", "1");
    let builder = builder.env("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap());
    builder.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

fn keys(others: &[&str]) -> String {
    let entry = |name: &str| json!({"name": name, "hash": KeyHash::of(name.as_bytes()).to_string(), "scopes": ["infer", "read"]});
    let mut dated = entry("dated");
    dated["expires"] = (DateTime::<Utc>::from(SystemTime::now()) + Duration::from_hours(1)).to_rfc3339().into();
    Value::Array(others.iter().map(|name| entry(name)).chain([dated]).collect()).to_string()
}

fn infer(server: &TestServer, model: &str, key: &str) -> u16 {
    let authorization = format!("Bearer {key}");
    let headers =
        [("authorization", authorization.as_str()), ("content-type", "application/json"), ("request-timeout", "20")];
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    server.post_with(&format!("/v2/models/{model}/infer"), &headers, body).status
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_clock_moves_expiries_and_nothing_else() {
    let Some(library) = library() else { return };
    let batching = json!({"name": "batching", "implementation": "mlserver_identity.IdentityModel",
        "max_batch_size": 4, "max_batch_time": 0.05});
    let folder = Folder::new().with_identity("echo").file("batching/model-settings.json", batching.to_string());
    let settings = json!({"api_keys_file": "keys.json", "cache_enabled": true, "cache_size": 10});
    let folder = folder.file("keys.json", keys(&["first"])).settings(&settings);
    let offset = folder.path("offset");
    let server = with_clock(ServerBuilder::new(folder), &library, &offset).start();
    for (number, (jump, dated)) in
        [("+0", 200), ("+2h", 401), ("-1d", 200), ("+20y", 401), ("-60y", 200), ("+0", 200)].into_iter().enumerate()
    {
        let (sender, receiver) = mpsc::channel(1);
        let mut call = Request::new(ReceiverStream::new(receiver));
        call.metadata_mut().insert("authorization", "Bearer dated".parse().unwrap());
        let message = || infer_request("echo", "INT32", &[1], ints(&[1]));
        fs::write(&offset, "+0").unwrap();
        wait_until("the key is valid", || infer(&server, "echo", "dated") == 200);
        let mut answers = inference_client(server.grpc).await.model_stream_infer(call).await.unwrap().into_inner();
        sender.send(message()).await.unwrap();
        assert!(answers.message().await.unwrap().is_some());

        fs::write(&offset, jump).unwrap();
        wait_until(jump, || infer(&server, "echo", "dated") == dated);
        for model in ["echo", "batching"] {
            assert_eq!(infer(&server, model, "first"), 200, "{jump}");
        }
        assert_eq!(server.get("/v2/health/ready").status, 200, "{jump}");
        // Fails if the stream has ended.
        let _ = sender.send(message()).await;
        match answers.message().await {
            Ok(answer) => assert!(answer.is_some() && dated == 200, "{jump}"),
            Err(status) => assert_eq!((status.code(), dated), (Code::Unauthenticated, 401), "{jump}: {status}"),
        }
        // Files are compared at the usual pace, and at a signal.
        let name = format!("key-{number}");
        fs::write(server.folder.path("keys.json"), keys(&["first", &name])).unwrap();
        if number % 2 == 1 {
            server.signal(Signal::HUP);
        }
        wait_until("the keys are read again", || {
            let authorization = format!("Bearer {name}");
            server.request(&Method::GET, "/v2", &[("authorization", &authorization)], b"").status == 200
        });
    }
    let ended = tokio::task::spawn_blocking(|| server.terminate()).await.unwrap();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stdout.contains("panicked"), "{}", ended.stdout);
}
