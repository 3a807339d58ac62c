//! `mlserver compare`, with scripted servers and real ones.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::infer::{InferCommand, InferExit, numbers};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{IRIS, TestServer};

/// Returns the index, the status and the message of each line.
fn reported(exit: &InferExit) -> Vec<(u64, String, String)> {
    let lines = exit.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            let text = |name: &str| line["error"][name].as_str().unwrap().to_owned();
            (line["parameters"]["batch_index"].as_u64().unwrap(), text("status"), text("msg"))
        })
        .collect()
}

/// Answers as a model that adds to its first input, and returns FP64.
fn add(request: &Received, number: f64) -> Reply {
    let input = &request.json()["inputs"][0];
    let sums: Vec<f64> =
        input["data"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() + number).collect();
    let output = json!({"name": "y", "shape": input["shape"], "datatype": "FP64", "data": sums});
    Reply::Answer(200, "", json!({"model_name": "m", "id": request.json()["id"], "outputs": [output]}).to_string())
}

/// Compares the answers of the model `m`.
fn compare(first: SocketAddr, second: SocketAddr, input: impl AsRef<[u8]>) -> InferCommand {
    InferCommand::compare([first, second], input).flags(&["-m", "m"])
}

fn unused_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn compare_reports_only_rows_that_differ() {
    let first = ScriptedServer::serve(Received::echo);
    let second = ScriptedServer::serve(|request| {
        if !request.numbers().contains(&13) {
            return request.echo();
        }
        let Reply::Answer(status, header, body) = request.echo() else { unreachable!() };
        Reply::Answer(status, header, body.replace("13", "14"))
    });
    let expected = format!(
        "output `y`[0, 0]: 13 from http://{}, 14 from http://{} (1 of 1 elements differ)",
        first.address, second.address
    );
    // Rows that are sent together are split until the one that differs is found.
    for size in ["1", "7", "32"] {
        let exit = compare(first.address, second.address, numbers(32)).flags(&["-s", size]).run();
        assert_eq!(exit.code, Some(4), "{}", exit.stderr);
        assert_eq!(reported(&exit), [(13, "answers differ".to_owned(), expected.clone())], "{size}");
        assert!(exit.stderr.contains("32 rows, 1 differ, 0 failed, in "), "{}", exit.stderr);
        assert!(exit.stderr.contains("the answers to 1 of 32 rows differ"), "{}", exit.stderr);
    }
}

#[test]
fn compare_tolerance_is_absolute_and_relative() {
    let first = ScriptedServer::serve(|request| add(request, 0.0));
    let second = ScriptedServer::serve(|request| add(request, 0.5));
    let differing = |flags: &[&str]| {
        let exit = compare(first.address, second.address, numbers(100)).flags(flags).run();
        (exit.code, reported(&exit).len())
    };
    assert_eq!(differing(&[]), (Some(4), 100));
    assert_eq!(differing(&["--absolute-tolerance", "0.5"]), (Some(0), 0));
    // 0.5 is at most a hundredth of the sums from 50 on.
    assert_eq!(differing(&["--relative-tolerance", "0.01"]), (Some(4), 50));
    for invalid in ["-1", "nan", "inf"] {
        let flag = format!("--relative-tolerance={invalid}");
        let exit = compare(first.address, second.address, numbers(1)).flags(&[&flag]).run();
        assert_eq!(exit.code, Some(2), "{}", exit.stderr);
        assert!(exit.stderr.contains("--relative-tolerance: invalid number"), "{}", exit.stderr);
    }
}

#[test]
fn compare_distinguishes_rejections_and_failures() {
    let reject = |request: &Received, rejected: &[i64]| {
        if request.numbers().iter().any(|number| rejected.contains(number)) {
            Reply::error(400, "unlucky")
        } else {
            request.echo()
        }
    };
    let first = ScriptedServer::serve(move |request| reject(request, &[1, 3]));
    let second = ScriptedServer::serve(move |request| reject(request, &[1, 5]));
    let exit = compare(first.address, second.address, numbers(8)).flags(&["-s", "8"]).run();
    assert_eq!(exit.code, Some(4), "{}", exit.stderr);
    let (one, two) = (format!("http://{}", first.address), format!("http://{}", second.address));
    assert_eq!(
        reported(&exit),
        [
            (1, "inference error".to_owned(), format!("rejected by {one}: unlucky (400); by {two}: unlucky (400)")),
            (3, "answers differ".to_owned(), format!("rejected by {one}: unlucky (400); answered by {two}")),
            (5, "answers differ".to_owned(), format!("rejected by {two}: unlucky (400); answered by {one}")),
        ]
    );
    assert!(exit.stderr.contains("the answers to 2 of 8 rows differ, and 1 rows failed"), "{}", exit.stderr);
}

#[test]
fn compare_retries_overload_and_names_the_missing_server() {
    let first = ScriptedServer::serve(Received::echo);
    let busy =
        ScriptedServer::serve(|request| if request.number == 0 { Reply::error(503, "busy") } else { request.echo() });
    let exit = compare(first.address, busy.address, numbers(3)).run();
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(0), ""), "{}", exit.stderr);
    let gone = unused_address();
    let exit = compare(first.address, gone, numbers(3)).flags(&["-r", "1"]).run();
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(1), ""), "{}", exit.stderr);
    assert!(exit.stderr.contains(&format!("http://{gone}: ")), "{}", exit.stderr);
    assert!(first.received().iter().all(|request| request.path == "/v2/models/m/infer"));
}

#[test]
fn compare_needs_two_servers() {
    let server = unused_address();
    let exit = compare(server, server, "").flags(&["-u", "localhost:1"]).run();
    assert_eq!(exit.code, Some(2), "{}", exit.stderr);
    assert!(exit.stderr.contains("--url: expected the addresses of two servers, but 3 are given"), "{}", exit.stderr);
}

#[test]
fn compare_of_real_servers_over_every_transport() {
    let (one, two) = (TestServer::quickstart(), TestServer::quickstart());
    let row =
        json!({"inputs": [{"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]});
    let requests = format!("{row}\n").repeat(20);
    for (servers, flags) in [
        ([one.http, two.http], ["-m", IRIS, "--summary", "json"].as_slice()),
        ([one.grpc, two.grpc], &["-t", "grpc", "-m", IRIS, "-s", "7", "--summary", "json"]),
    ] {
        let exit = InferCommand::compare(servers, &requests).flags(flags).run();
        assert_eq!((exit.code, exit.stdout.as_str()), (Some(0), ""), "{}", exit.stderr);
        let summary = exit.stderr.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap();
        let counts = ["rows", "answered", "different", "failed"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [20, 20, 0, 0], "{summary}");
    }
    let exit = InferCommand::compare([one.http, two.http], &requests).flags(&["-m", "breast-cancer-lightgbm"]).run();
    assert_eq!(exit.code, Some(4), "{}", exit.stderr);
    assert!(reported(&exit).iter().all(|(_, status, _)| status == "inference error"), "both reject four columns");
}
