//! The rate and concurrency of requests, their content, and the progress output.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{InferCommand, number, numbers, values};
use crate::support::scripted::{Received, Reply, ScriptedServer};

use crate::support::{Folder, ServerBuilder, TestServer, pause};

#[test]
fn infer_requests_carry_headers_and_fields() {
    let server = ScriptedServer::serve(Received::echo);
    let line = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1],"parameters":{"content_type":"np","k":2}}],"parameters":{"p":[1]},"outputs":[{"name":"y"}]}"#;
    let flags = ["-H", "Authorization: Bearer a:b", "-H", "odd", "-H", "X-Twice: 1", "-H", "X-Twice: 2"];
    let ran = InferCommand::of(server.address, number(7, 7) + line).flags(&flags).run();
    assert_eq!(values(&ran.lines(0)), [Some(7), Some(1)]);
    assert!(ran.stderr.contains("warning: ignoring invalid header `odd`"), "{}", ran.stderr);
    let mut received = server.received();
    received.sort_by_key(Received::numbers);
    let [own, first] = &received[..] else { unreachable!("{received:?}") };
    assert_eq!((first.path.as_str(), first.header("authorization")), ("/v2/models/m/infer", "Bearer a:b"));
    assert_eq!((first.header("x-request-id"), first.header("seldon-puid")), ("id-7", "id-7"));
    assert_eq!(first.headers.iter().filter(|(name, _)| name == "x-twice").count(), 2);
    let (mut sent, written): (Value, Value) = (own.json(), serde_json::from_str(line).unwrap());
    assert_eq!(sent["id"].as_str().unwrap(), own.header("x-request-id"));
    sent.as_object_mut().unwrap().remove("id");
    assert_eq!(sent, written, "nothing of a line is lost");
}

#[test]
fn infer_connections_are_reused() {
    let front = ScriptedServer::serve(Received::echo);
    assert_eq!(InferCommand::of(front.address, numbers(50)).flags(&["-w", "2"]).run().lines(0).len(), 50);
    assert!(front.connections() <= 4, "{}", front.connections());
}

#[test]
fn infer_workers_limit_requests_in_flight() {
    let (now, most): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
    let peak = Arc::clone(&most);
    let server = ScriptedServer::serve(move |request| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        pause(Duration::from_millis(3));
        now.fetch_sub(1, Ordering::SeqCst);
        request.echo()
    });
    assert_eq!(InferCommand::of(server.address, numbers(300)).flags(&["-w", "3"]).run().lines(0).len(), 300);
    assert_eq!(peak.load(Ordering::SeqCst), 3);
}

#[test]
fn infer_concurrency_grows_while_throughput_improves() {
    let server = ScriptedServer::serve(|request| {
        pause(Duration::from_millis(20));
        request.echo()
    });
    let infer =
        InferCommand::of(server.address, numbers(1500)).flags(&["-w", "2", "--max-workers", "32", "--summary", "json"]);
    let ran = infer.run();
    assert_eq!(ran.lines(0).len(), 1500);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    // With two workers, 100 rows would be answered per second.
    assert!(summary["rows_per_second"].as_f64().unwrap() > 150.0, "{summary}");
}

#[test]
fn infer_overload_reduces_concurrency() {
    let now: Arc<AtomicUsize> = Arc::default();
    let server = ScriptedServer::serve(move |request| {
        let busy = now.fetch_add(1, Ordering::SeqCst) >= 4;
        pause(Duration::from_millis(5));
        now.fetch_sub(1, Ordering::SeqCst);
        if busy { Reply::error(429, "too many") } else { request.echo() }
    });
    let infer = InferCommand::of(server.address, numbers(200)).flags(&["-w", "16", "-r", "8"]);
    assert_eq!(infer.run().lines(0).len(), 200, "none is lost to its neighbors");
}

#[test]
fn infer_rate_is_limited() {
    let server = ScriptedServer::serve(Received::echo);
    let start = Instant::now();
    assert_eq!(
        InferCommand::of(server.address, numbers(30)).flags(&["--rate", "50", "-s", "5"]).run().lines(0).len(),
        30
    );
    assert!(start.elapsed() >= Duration::from_millis(490), "{:?}", start.elapsed());
    let start = Instant::now();
    let spaced = InferCommand::of(server.address, numbers(6)).flags(&[
        "-w",
        "2",
        "--batch-interval",
        "0.2",
        "--batch-jitter",
        "0.01",
    ]);
    assert_eq!(spaced.run().lines(0).len(), 6);
    assert!(start.elapsed() >= Duration::from_millis(390), "{:?}", start.elapsed());
}

#[test]
fn infer_verbosity_flags_control_progress_output() {
    let server = ScriptedServer::serve(Received::echo);
    let stderr = |flags: &[&str]| {
        let ran = InferCommand::of(server.address, numbers(2)).flags(flags).run();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
        ran.stderr
    };
    assert_eq!(stderr(&["--quiet"]), "");
    let plain = stderr(&[]);
    assert!(plain.contains("2 rows, 0 failed, in ") && plain.contains("p99"), "{plain}");
    let extra = stderr(&["-vv"]);
    assert!(extra.contains("> {\"id\":\"id-0\"") && extra.contains("< {") && !plain.contains("> {"), "{extra}");
}

#[test]
fn infer_closed_stdout_ends_the_run() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    let infer =
        InferCommand::new(numbers(20_000)).flags(&["-u", &address, "-m", "m", "-i", "in.jsonl", "-o", "-", "--quiet"]);
    let mut child = infer.command().stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(first.contains("\"id\":\"id-0\""));
    let ran = infer.ended(child);
    assert_eq!(ran.code, Some(141), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: the reader of the answers has closed the pipe"), "{}", ran.stderr);
}

#[test]
fn infer_without_a_name_uses_the_only_model_of_the_server() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let input = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[7]}]}"#;
    for (address, transport) in [(server.http, "rest"), (server.grpc, "grpc")] {
        let flags = ["-u", &address.to_string(), "-t", transport, "-i", "in.jsonl", "-o", "out.jsonl"];
        let ran = InferCommand::new(input).flags(&flags).run();
        assert_eq!(ran.lines(0)[0]["model_name"], "echo");
        assert!(ran.stderr.contains("target: model `echo` of the server at "), "{}", ran.stderr);
    }
}

#[test]
fn infer_without_a_name_lists_the_models_of_the_server() {
    let server = TestServer::start(Folder::new().with_identity("b").with_identity("a"));
    let run = |address: std::net::SocketAddr, transport: &str| {
        let flags = ["-u", &address.to_string(), "-t", transport, "-i", "in.jsonl", "-o", "out.jsonl"];
        let ran = InferCommand::new("").flags(&flags).run();
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        ran.stderr
    };
    for (address, transport) in [(server.http, "rest"), (server.grpc, "grpc")] {
        let expected = "has several models: choose one with --model-name (a, b)";
        let found = run(address, transport);
        assert!(found.contains(expected), "{found}");
    }
    let none = ServerBuilder::new(Folder::new()).flag("--allow-empty").start();
    let found = run(none.http, "rest");
    assert!(found.contains("has no model that is ready"), "{found}");
    let other = ScriptedServer::serve(|_| Reply::error(404, "no index"));
    let found = run(other.address, "rest");
    assert!(found.contains("cannot list the models of the server") && found.contains("--model-name"), "{found}");
}
