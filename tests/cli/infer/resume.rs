//! Runs that are interrupted, and runs that resume them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

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

/// The answer to a row, as a run writes it.
fn answer(index: usize) -> String {
    json!({"model_name": "m", "id": format!("id-{index}"), "parameters": {"batch_index": index}}).to_string() + "\n"
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
    for (signal, name, code) in
        [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143), (Signal::QUIT, "SIGQUIT", 131)]
    {
        let before = server.received().len();
        let (infer, child) = start(server.address, 400);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ran = infer.ended(child);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        let asked = server.received().len() - before;
        assert_eq!(lines(&infer.partial()).len(), asked, "every request has its answer");
        assert!(ran.stderr.contains(&format!("error: stopped by {name} after ")), "{}", ran.stderr);
        assert_eq!(values(&resumed(infer).run().lines(0)), all(400));
    }
}

#[test]
fn infer_signal_ends_a_run_that_reads_its_first_rows() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    for (format, flags) in [("csv", &[][..]), ("rows", &[]), ("requests", &["--resume"])] {
        let flags =
            [&["-u", &address, "-m", "m", "-i", "-", "-o", "out.jsonl", "--input-format", format], flags].concat();
        let infer = InferCommand::new("").flags(&flags);
        let answers: String = (0..3).map(answer).collect();
        if format == "requests" {
            fs::write(infer.path("out.jsonl.partial"), &answers).unwrap();
        }
        let mut child = infer.command().stdin(Stdio::piped()).spawn().unwrap();
        // A pipe holds less, so the command has read the most of it when this returns.
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all("x".repeat(1 << 20).as_bytes()).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let ran = infer.ended(child);
        assert_eq!(ran.code, Some(143), "{format}: {}", ran.stderr);
        assert!(ran.stderr.ends_with("error: stopped by SIGTERM after 0 rows\n"), "{format}: {}", ran.stderr);
        if format == "requests" {
            assert_eq!(infer.partial(), answers);
        } else {
            assert!(!infer.path("out.jsonl.partial").exists());
        }
        drop(stdin);
    }
}

#[test]
fn infer_slow_input_is_answered_as_it_comes() {
    let server = ScriptedServer::serve(Received::echo);
    let address = server.address.to_string();
    for (format, first, second) in [("csv", "x\n1\n", "2\n"), ("rows", "{\"x\":1}\n", "{\"x\":2}\n")] {
        let flags = ["-u", &address, "-m", "m", "-i", "-", "-o", "-", "-s", "1", "--input-format", format];
        let infer = InferCommand::new("").flags(&flags);
        let mut child = infer.command().stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        for (row, text) in [first, second].into_iter().enumerate() {
            stdin.write_all(text.as_bytes()).unwrap();
            let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
            assert_eq!(
                (&answer["parameters"]["batch_index"], &answer["outputs"][0]["data"][0]),
                (&json!(row), &json!(row + 1))
            );
        }
        drop(stdin);
        assert_eq!(infer.ended(child).code, Some(0));
    }
}

#[test]
fn infer_resume_continues_a_complete_output() {
    let server = ScriptedServer::serve(|request| {
        if request.numbers() == [5] {
            pause(Duration::from_secs(20));
        }
        request.echo()
    });
    let flags = ["-m", "m", "-i", "in.jsonl", "-o", "out.jsonl", "--resume", "-w", "1"];
    let infer = InferCommand::new(numbers(3)).flags(&flags).env("MLSERVER_INFER_URL", &server.address.to_string());
    assert_eq!(infer.run().lines(0).len(), 3);
    fs::write(infer.path("in.jsonl"), numbers(7)).unwrap();
    let mut child = infer.spawn();
    wait_until("row 5 is not asked for", || server.received().iter().any(|request| request.numbers() == [5]));
    wait_until("row 4 is not written", || infer.partial().lines().count() == 5);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!infer.path("out.jsonl").exists());
    assert_eq!(values(&lines(&infer.partial())), all(5), "a killed run loses nothing");

    let server = ScriptedServer::serve(Received::echo);
    let infer = infer.flags(&["--summary", "json"]).env("MLSERVER_INFER_URL", &server.address.to_string());
    let ran = infer.run();
    assert_eq!(values(&ran.lines(0)), all(7));
    assert!(ran.stderr.contains("resuming after 5 answered rows\n"), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&summary["rows"], &summary["resumed"], &summary["requests"]), (&json!(7), &json!(5), &json!(2)));

    let ran = infer.run();
    assert!(ran.stderr.contains("nothing to do: all 7 rows have been answered already"), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&summary["rows"], &summary["resumed"], &summary["exit_code"]), (&json!(7), &json!(7), &json!(0)));

    let complete = ran.output;
    for (input, message) in [
        (numbers(6), "`in.jsonl` has 6 rows, but 7 were answered already: is this the same input?"),
        (
            numbers(7).replace("id-2", "other"),
            "row 2 of `in.jsonl` has the id `other`, but was answered with the id `id-2`",
        ),
    ] {
        fs::write(infer.path("in.jsonl"), input).unwrap();
        let ran = infer.run();
        assert_eq!((ran.code, &ran.output), (Some(1), &complete), "{}", ran.stderr);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(summary["error"].as_str().unwrap().contains(message), "{summary}");
    }
    assert!(!infer.path("out.jsonl.partial").exists());
}

#[test]
fn infer_output_that_is_not_its_own_is_kept() {
    let server = ScriptedServer::serve(Received::echo);
    let infer = InferCommand::of(server.address, numbers(2)).flags(&["--summary", "json"]);
    fs::write(infer.path("out.jsonl.partial"), "notes\n").unwrap();
    let ran = infer.run();
    assert_eq!((ran.code, infer.partial().as_str()), (Some(1), "notes\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`out.jsonl.partial` is not the output of `mlserver infer`"), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&summary["rows"], &summary["exit_code"]), (&json!(0), &json!(1)));

    fs::remove_file(infer.path("out.jsonl.partial")).unwrap();
    fs::write(infer.path("target.jsonl"), "kept").unwrap();
    symlink("target.jsonl", infer.path("out.jsonl")).unwrap();
    let ran = infer.run();
    assert_eq!((ran.code, ran.output.as_str()), (Some(1), "kept"));
    assert!(ran.stderr.contains("cannot write to `out.jsonl`: it is a symbolic link"), "{}", ran.stderr);
    assert_eq!(server.received().len(), 0);
}

#[test]
fn infer_run_without_an_answer_leaves_no_file() {
    // Nothing listens on this port.
    let infer = InferCommand::of(SocketAddr::from(([127, 0, 0, 1], 1)), numbers(2)).flags(&["-r", "1"]);
    let ran = infer.run();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!infer.path("out.jsonl.partial").exists() && !infer.path("out.jsonl").exists());
    assert!(!ran.stderr.contains("rows/s"), "there is nothing to sum up: {}", ran.stderr);
    let old = (0..2).map(answer).collect::<String>();
    fs::write(infer.path("out.jsonl.partial"), &old).unwrap();
    assert_eq!((infer.run().code, infer.partial()), (Some(1), old), "no answer, nothing dropped");
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
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    pause(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
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

/// Writes the row with a number.
type RowText<'a> = &'a dyn Fn(usize) -> String;

#[test]
fn infer_resume_rejects_another_order_of_rows_without_ids() {
    let server = slow();
    let address = server.address.to_string();
    let request = |value: usize| {
        let input = json!({"name": "x", "datatype": "INT64", "shape": [1], "data": [value]});
        json!({ "inputs": [input] }).to_string() + "\n"
    };
    let object = |value: usize| json!({ "x": value }).to_string() + "\n";
    let formats: [(&str, &str, RowText<'_>); 4] = [
        ("in.jsonl", "", &request),
        ("in.csv", "x\n", &|value| format!("{value}\n")),
        ("in.tsv", "x\ty\n", &|value| format!("1\t{value}\n")),
        ("in.ndjson", "", &object),
    ];
    for (name, head, row) in formats {
        let input = |order: &mut dyn Iterator<Item = usize>| head.to_owned() + &order.map(row).collect::<String>();
        let flags = ["-u", &address, "-m", "m", "-i", name, "-o", "out.jsonl", "-w", "4", "-s", "1"];
        let infer = InferCommand::new("").flags(&flags);
        let original = input(&mut (0..400));
        fs::write(infer.path(name), &original).unwrap();
        let mut child = infer.spawn();
        wait_until("no answers", || infer.partial().lines().count() >= 20);
        child.kill().unwrap();
        child.wait().unwrap();
        let (before, asked) = (infer.partial(), server.received().len());
        let infer = resumed(infer);
        for (changed, position) in [
            (input(&mut (0..400).rev()), 0),
            (
                input(&mut (0..400).map(|row| {
                    if row == 7 {
                        8
                    } else if row == 8 {
                        7
                    } else {
                        row
                    }
                })),
                7,
            ),
            (original.replacen(&row(19), &row(1000), 1), 19),
        ] {
            fs::write(infer.path(name), changed).unwrap();
            let ran = infer.run();
            assert_eq!(ran.code, Some(1), "{name}: {}", ran.stderr);
            let error = format!("error: row {position} of `{name}` is not the row that was answered");
            assert!(ran.stderr.contains(&error), "{name}: {}", ran.stderr);
            assert_eq!(lines(&infer.partial()), lines(&before), "{name}");
        }
        assert_eq!(server.received().len(), asked, "{name}: nothing is asked for");
        fs::write(infer.path(name), &original).unwrap();
        assert_eq!(infer.run().lines(0).len(), 400, "{name}");
        assert!(!infer.path("out.jsonl.partial.rows").exists());
    }
}

#[test]
fn infer_resume_continues_an_output_without_fingerprints() {
    let server = ScriptedServer::serve(Received::echo);
    let infer = resumed(InferCommand::of(server.address, numbers(5)));
    let answers: String = (0..2).map(answer).collect();
    fs::write(infer.path("out.jsonl.partial"), answers).unwrap();
    let ran = infer.run();
    assert!(ran.stderr.contains("resuming after 2 answered rows"), "{}", ran.stderr);
    assert_eq!(ran.lines(0).len(), 5);
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
    let last = BufReader::new(second.stderr.take().unwrap()).lines().last().unwrap().unwrap();
    assert_eq!(last, "error: another run is writing to `out.jsonl.partial`");
    child.kill().unwrap();
    child.wait().unwrap();
}
