//! Runs that are interrupted, and runs that resume them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{InferCommand, lines, number, numbers, values};
use crate::support::scripted::{Received, Reply, ScriptedServer};

use crate::support::{pause, wait_until};

/// A server that takes some milliseconds for each answer.
fn slow() -> ScriptedServer {
    ScriptedServer::serve(|request| {
        pause(Duration::from_millis(10));
        request.echo()
    })
}

fn start(server: SocketAddr, count: usize) -> (InferCommand, Child) {
    let infer = InferCommand::of(server, numbers(count)).flags(&["-w", "4"]);
    let child = infer.spawn();
    wait_until("no answers", || infer.partial().lines().count() >= 20);
    (infer, child)
}

/// Resumes in the same folder.
fn resumed(infer: InferCommand) -> InferCommand {
    infer.flags(&["--resume"])
}

fn all(count: i64) -> Vec<Option<i64>> {
    (0..count).map(Some).collect()
}

#[test]
fn infer_resume_after_kill_has_no_duplicates() {
    let server = slow();
    let (infer, mut child) = start(server.address, 400);
    child.kill().unwrap();
    child.wait().unwrap();
    let partial = infer.path("out.jsonl.partial");
    let before = lines(&infer.partial()).len();
    assert!(before >= 20 && !infer.path("out.jsonl").exists());
    // A state that a power failure may leave.
    fs::write(&partial, infer.partial() + "{\"model_name\":\"m\",\"id").unwrap();
    let asked = server.received().len();
    let infer = resumed(infer);
    let ran = infer.run();
    assert_eq!(values(&ran.lines(0)), all(400));
    assert!(ran.stderr.contains(&format!("resuming after {before} answered rows\n")), "{}", ran.stderr);
    assert_eq!(server.received().len() - asked, 400 - before, "nothing is asked for twice");
    assert!(!partial.exists());

    let ran = infer.run();
    assert_eq!(values(&ran.lines(0)), all(400));
    assert!(ran.stderr.contains("nothing to do: all 400 rows have been answered already"), "{}", ran.stderr);
}

#[test]
fn infer_signal_finishes_requests_in_flight() {
    let server = slow();
    let (infer, child) = start(server.address, 400);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = infer.ended(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let asked = server.received().len();
    assert_eq!(lines(&infer.partial()).len(), asked, "every request has its answer");
    assert!(ran.stderr.contains("error: stopped by SIGINT after "), "{}", ran.stderr);
    assert_eq!(values(&resumed(infer).run().lines(0)), all(400));
}

#[test]
fn infer_second_signal_exits_immediately() {
    let server = ScriptedServer::serve(|request| {
        if request.numbers() == [30] {
            pause(Duration::from_secs(20));
        }
        request.echo()
    });
    let (infer, child) = start(server.address, 400);
    let stderr = infer.path("stderr");
    wait_until("row 30 is not asked for", || server.received().iter().any(|request| request.numbers() == [30]));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    pause(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ran = infer.ended(child);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(values(&lines(&infer.partial())), all(30), "in order, up to the one that is missing");
    drop(stderr);
}

#[test]
fn infer_resume_counts_earlier_failures() {
    let server = ScriptedServer::serve(|request| {
        pause(Duration::from_millis(10));
        if request.numbers() == [3] { Reply::error(400, "no") } else { request.echo() }
    });
    let (infer, mut child) = start(server.address, 100);
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = resumed(infer).run();
    assert_eq!(ran.lines(4).len(), 100);
    assert!(ran.stderr.ends_with("error: 1 of 100 rows failed; the output has a line for each\n"), "{}", ran.stderr);
}

#[test]
fn infer_resume_rejects_another_input() {
    let server = slow();
    let (infer, mut child) = start(server.address, 100);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = infer.partial();
    fs::write(infer.path("in.jsonl"), number(7, 7).repeat(200)).unwrap();
    let infer = resumed(infer);
    let ran = infer.run();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is this the same input?"), "{}", ran.stderr);
    assert_eq!(lines(&infer.partial()), lines(&before));
}

#[test]
fn infer_without_resume_starts_over() {
    let server = ScriptedServer::serve(Received::echo);
    let infer = InferCommand::of(server.address, numbers(3));
    let old = json!({"model_name": "m", "id": "", "parameters": {"batch_index": 0}}).to_string() + "\n";
    fs::write(infer.path("out.jsonl.partial"), &old).unwrap();
    fs::write(infer.path("out.jsonl"), "older\n").unwrap();
    let ran = infer.run();
    assert_eq!(values(&ran.lines(0)), all(3));
    let warning = "warning: starting over: dropping the answers to 1 rows of an interrupted run";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
}

#[test]
fn infer_concurrent_runs_cannot_share_an_output() {
    let server = slow();
    let (infer, mut child) = start(server.address, 400);
    let mut second = infer.spawn();
    let code = second.wait().unwrap().code();
    assert_eq!(code, Some(1));
    let stderr = BufReader::new(second.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(stderr, "error: another run is writing to `out.jsonl.partial`");
    child.kill().unwrap();
    child.wait().unwrap();
}
