//! Servers that reject requests, are overloaded, disappear, or do not exist.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{InferCommand, lines, number, numbers, values};
use crate::support::scripted::{Reply, ScriptedServer};
use crate::support::{IRIS, TestServer, pause, wait_until};

#[test]
fn infer_failed_batch_is_split_to_find_the_bad_row() {
    let server = ScriptedServer::serve(|request| {
        if request.numbers().contains(&13) { Reply::error(400, "unlucky") } else { request.echo() }
    });
    let infer = InferCommand::of(server.address, numbers(32)).flags(&["-s", "32"]);
    let lines = infer.run().lines(4);
    let expected: Vec<_> = (0..32).map(|index| (index != 13).then_some(index)).collect();
    assert_eq!(values(&lines), expected);
    let error = json!({"status": "inference error", "msg": "unlucky", "code": "400"});
    assert_eq!((&lines[13]["error"], &lines[13]["id"]), (&error, &json!("id-13")));
    assert_eq!(server.received().len(), 11, "each half of what was refused, down to the row, and nothing again");
}

#[test]
fn infer_unsplittable_response_is_retried_row_by_row() {
    let server = ScriptedServer::serve(|request| {
        let sum = request.numbers().iter().sum::<i64>();
        let output = json!({"name": "y", "shape": [1], "datatype": "INT64", "data": [sum]});
        Reply::Answer(200, "", json!({"model_name": "m", "id": "", "outputs": [output]}).to_string())
    });
    let lines = InferCommand::of(server.address, numbers(4)).flags(&["-s", "4"]).run().lines(0);
    assert_eq!(values(&lines), [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn infer_retries_only_retryable_errors() {
    let server = ScriptedServer::serve(|request| match request.number {
        0 => Reply::Answer(503, "retry-after: 1", json!({"error": "busy"}).to_string()),
        1 => Reply::CloseConnection,
        _ => request.echo(),
    });
    let start = Instant::now();
    let ran = InferCommand::of(server.address, numbers(1)).run();
    assert_eq!(values(&ran.lines(0)), [Some(0)]);
    assert!(start.elapsed() >= Duration::from_secs(1), "as long as the server asks for");
    assert_eq!(server.received().len(), 3);
    assert!(ran.stderr.contains("warning: busy (503); retrying in 1.0 s (attempt 1 of 3)\n"), "{}", ran.stderr);

    let server = ScriptedServer::serve(|_| Reply::error(500, "broken"));
    let lines = InferCommand::of(server.address, numbers(1)).run().lines(4);
    assert_eq!((server.received().len(), &lines[0]["error"]["msg"]), (1, &json!("broken")));

    let server = ScriptedServer::serve(|request| match request.path.as_str() {
        "/v2/models/m/ready" => Reply::Answer(200, "", String::new()),
        _ => Reply::error(429, "busy"),
    });
    let lines = InferCommand::of(server.address, numbers(1)).flags(&["-r", "2"]).run().lines(4);
    assert_eq!(
        (server.received().len(), &lines[0]["error"]["code"]),
        (3, &json!("429")),
        "two, and whether it is there"
    );
}

#[test]
fn infer_request_timeout_fails_the_row() {
    let server = ScriptedServer::serve(|request| {
        if request.path.ends_with("/ready") {
            return Reply::Answer(200, "", String::new());
        }
        if request.numbers() == [1] {
            pause(Duration::from_secs(2));
        }
        request.echo()
    });
    let lines = InferCommand::of(server.address, numbers(2)).flags(&["--timeout", "0.3", "-r", "1"]).run().lines(4);
    assert_eq!(values(&lines), [Some(0), None]);
    let message = format!("no response from {} within 0.3 s", server.address);
    assert_eq!(lines[1]["error"]["msg"], message);
}

#[test]
fn infer_server_that_rejects_everything_ends_the_run() {
    let server = ScriptedServer::serve(|_| Reply::error(503, "no upstream"));
    let ran = InferCommand::of(server.address, numbers(50)).flags(&["-r", "1"]).run();
    assert_eq!((ran.code, ran.output.as_str()), (Some(1), ""));
    assert!(ran.stderr.ends_with("  caused by: no upstream (503)\n"), "{}", ran.stderr);
}

#[test]
fn infer_unknown_model_ends_the_run() {
    let server = TestServer::quickstart();
    for (transport, address, status) in [("rest", server.http, "404"), ("grpc", server.grpc, "NOT_FOUND")] {
        let infer = InferCommand::of(address, numbers(100)).flags(&["-t", transport]);
        let ran = infer.run();
        assert_eq!((ran.code, ran.output.as_str()), (Some(1), ""));
        let error = format!("error: stopped after 0 rows\n  caused by: Model m not found ({status})\n");
        assert!(ran.stderr.ends_with(&error), "{}", ran.stderr);
    }
    let infer = InferCommand::of(server.http, numbers(1)).flags(&["-t", "grpc"]);
    let ran = infer.run();
    assert_eq!(ran.code, Some(1), "the port of the other protocol: {}", ran.stderr);
}

#[test]
fn infer_404_of_one_row_fails_only_that_row() {
    let server = ScriptedServer::serve(|request| match request.path.as_str() {
        "/v2/models/m/ready" => Reply::Answer(200, "", String::new()),
        _ if request.numbers().contains(&1) => Reply::error(404, "no such customer"),
        _ => request.echo(),
    });
    let lines = InferCommand::of(server.address, numbers(3)).flags(&["-s", "3"]).run().lines(4);
    assert_eq!(values(&lines), [Some(0), None, Some(2)]);
}

#[test]
fn infer_unreachable_server_fails_immediately() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = InferCommand::of(free, numbers(3)).flags(&["-r", "2"]).run();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&format!("cannot connect to {free}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("connection refused; is the server running?"), "{}", ran.stderr);
}

#[test]
fn infer_server_crash_keeps_the_answered_rows() {
    let server = TestServer::quickstart();
    let input: String = (0..20_000).map(super::iris).collect();
    let infer = InferCommand::new(input);
    let http = server.http.to_string();
    let infer =
        infer.flags(&["-u", &http, "-m", IRIS, "-i", "in.jsonl", "-o", "out.jsonl", "--rate", "2000", "-r", "1"]);
    let child = infer.spawn();
    wait_until("no answers", || infer.partial().lines().count() > 100);
    drop(server);
    let ran = infer.ended(child);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let answered = lines(&infer.partial());
    assert!(answered.len() > 100 && answered.iter().all(|line| line["outputs"][0]["data"].is_array()));
    let hint = "\nhint: the answers so far are in `out.jsonl.partial`; repeat the command with --resume to continue\n";
    assert!(ran.stderr.contains("error: stopped after ") && ran.stderr.ends_with(hint), "{}", ran.stderr);
}

#[test]
fn infer_full_disk_and_missing_file_are_reported() {
    let server = ScriptedServer::serve(crate::support::scripted::Received::echo);
    let ran = InferCommand::of(server.address, numbers(3)).flags(&["-o", "/dev/full"]).run();
    // The flag may be given only once.
    assert_eq!(ran.code, Some(2));
    let address = server.address.to_string();
    let of = |input: &str, output: &str| {
        InferCommand::new(numbers(3)).flags(&["-u", &address, "-m", "m", "-i", input, "-o", output]).run()
    };
    let ran = of("in.jsonl", "/dev/full");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("cannot write to `/dev/full`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    let ran = of("none.jsonl", "out.jsonl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("\nerror: cannot open `none.jsonl`\n  caused by: No such file"), "{}", ran.stderr);
    let ran = of("in.jsonl", "none/out.jsonl");
    assert!(ran.stderr.contains("\nerror: cannot open `none/out.jsonl.partial` for writing"), "{}", ran.stderr);
    assert_eq!(ran.code, Some(1));
}

#[test]
fn infer_tls_verifies_certificates_unless_insecure() {
    let server = ScriptedServer::serve_tls(crate::support::scripted::Received::echo);
    let address = format!("localhost:{}", server.address.port());
    let infer = |flags: &[&str]| {
        InferCommand::new(number(0, 5))
            .flags(&["-u", &address, "-m", "m", "-i", "in.jsonl", "-o", "out.jsonl", "-r", "1"])
            .flags(flags)
    };
    assert_eq!(values(&infer(&["--use-ssl", "--insecure"]).run().lines(0)), [Some(5)]);
    let ran = infer(&["--use-ssl"]).run();
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("`--insecure` skips the verification") || ran.stderr.contains("cannot set up TLS"),
        "{}",
        ran.stderr
    );
    let certificate = crate::support::repository_path("tests/fixtures/tls/certificate.pem");
    let trusted = infer(&["--use-ssl"]).env("SSL_CERT_FILE", certificate.to_str().unwrap());
    assert_eq!(values(&trusted.run().lines(0)), [Some(5)]);
}
