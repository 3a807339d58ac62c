//! Signals that come twice, SIGHUP, and terminals that are gone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use mlserver::access::KeyHash;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::worker_models::{is_zombie, pid};
use crate::support::{Connection, Folder, ServerBuilder, TestServer, wait_until};

const INFER: &str = "/v2/models/iris-xgboost/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
/// How long after the first SIGTERM another one belongs to it.
const SAME_EVENT: Duration = Duration::from_secs(2);

/// Starts a server with a request in flight, whose body is not complete.
fn with_upload() -> (TestServer, Connection) {
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    (server, upload)
}

#[test]
fn repeated_termination_signal_of_one_event_does_not_end_the_drain() {
    for signal in [Signal::TERM, Signal::QUIT] {
        loop {
            let (server, mut upload) = with_upload();
            let began = Instant::now();
            server.signal(signal);
            server.wait_for_log("answering the requests in flight");
            server.signal(signal);
            if began.elapsed() > SAME_EVENT / 2 {
                continue;
            }
            upload.write(ONE_ROW);
            upload.answer().ok();
            let ended = server.ended();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            break;
        }
    }
}

#[test]
fn termination_signal_after_two_seconds_ends_the_drain() {
    let (server, _upload) = with_upload();
    let began = Instant::now();
    server.signal(Signal::TERM);
    server.wait_for_log("answering the requests in flight");
    let stopped = || {
        server.signal(Signal::TERM);
        // A zombie can be signalled.
        is_zombie(pid(server.process_id().into())).unwrap()
    };
    wait_until("the second signal counts", stopped);
    assert!(began.elapsed() > SAME_EVENT, "{:?}", began.elapsed());
    let ended = server.ended();
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.starts_with("error: stopped at once by a second signal (SIGTERM)"), "{}", ended.stderr);
}

#[test]
fn second_interrupt_ends_the_drain_at_once() {
    let (server, _upload) = with_upload();
    server.signal(Signal::INT);
    server.wait_for_log("answering the requests in flight");
    server.signal(Signal::INT);
    assert_eq!(server.ended().code, Some(3));
}

/// Whether a server lets a key read its metadata.
fn accepts(server: &TestServer, key: &str) -> bool {
    let authorization = format!("Bearer {key}");
    server.request(&Method::GET, "/v2", &[("authorization", &authorization)], b"").status == 200
}

fn keys(names: &[&str]) -> String {
    let entry =
        |name: &&str| json!({"name": name, "hash": KeyHash::of(name.as_bytes()).to_string(), "scopes": ["read"]});
    Value::Array(names.iter().map(entry).collect()).to_string()
}

#[test]
fn hangup_signal_reloads_keys_and_reports_a_bad_file() {
    let folder = Folder::iris().file("keys.json", keys(&["a"])).settings(&json!({"api_keys_file": "keys.json"}));
    let server = TestServer::start(folder);
    let path = server.folder.path("keys.json");
    fs::write(&path, keys(&["b"])).unwrap();
    server.signal(Signal::HUP);
    server.wait_for_log("Received SIGHUP: reading keys and certificates again.");
    wait_until("the keys are read again", || accepts(&server, "b"));
    assert!(!accepts(&server, "a"));
    fs::write(&path, "[{]").unwrap();
    server.signal(Signal::HUP);
    server.wait_for_log("WARNING - `api_keys_file`");
    assert!(accepts(&server, "b"));
    server.signal(Signal::HUP);
    assert_eq!(server.terminate().code, Some(0));
}

/// Runs a command on a terminal of its own, with its output in a pipe, until its standard input ends. Then the terminal is
/// closed. Prints the id of the process, and exits with its status.
const ON_A_TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.dup2(3, 1)
    os.dup2(3, 2)
    os.close(3)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(3)
os.write(1, b'process %d\\n' % pid)
os.close(1)
sys.stdin.read()
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Runs a command on a terminal of its own, and copies what it shows there. Prints the id of the process, and exits with its status.
const SHOWN_ON_A_TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.close(3)
    os.execv(sys.argv[1], sys.argv[1:])
os.write(1, b'process %d\\n' % pid)
try:
    while shown := os.read(terminal, 65536):
        os.write(1, shown)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Starts a server on a terminal, by a program in Python and a line of shell script.
fn on_a_terminal(program: &str, script: &str) -> Option<(Child, BufReader<std::process::ChildStdout>, Folder)> {
    let python = python()?;
    let folder = Folder::iris();
    let shell = format!("exec \"$0\" -c \"$1\" /bin/sh -c '{script}' sh \"$2\" start \"$3\" 3>&1");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &shell]).arg(python).args([program, env!("CARGO_BIN_EXE_mlserver")]).arg(folder.root());
    for name in ["MLSERVER_HTTP_PORT", "MLSERVER_GRPC_PORT", "MLSERVER_METRICS_PORT"] {
        command.env(name, "0");
    }
    command.env("MLSERVER_HOST", "127.0.0.1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    Some((child, out, folder))
}

/// Returns the lines up to the one with a text.
fn read_until(out: &mut impl BufRead, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        assert_ne!(out.read_line(&mut all).unwrap(), 0, "no `{text}` in:\n{all}");
    }
    all
}

#[test]
fn server_whose_terminal_is_gone_drains_and_ends() {
    let Some((mut child, mut out, _folder)) = on_a_terminal(ON_A_TERMINAL, "exec \"$@\"") else { return };
    read_until(&mut out, "Loaded model");
    drop(child.stdin.take());
    read_until(&mut out, "Received SIGHUP, and the terminal is gone: answering the requests in flight");
    read_until(&mut out, "Stopped.");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn server_on_a_terminal_ends_its_start_with_the_way_from_there() {
    let Some((mut child, mut out, folder)) = on_a_terminal(SHOWN_ON_A_TERMINAL, "exec \"$@\"") else { return };
    let process = read_until(&mut out, "\n");
    let process = process.strip_prefix("process ").unwrap().trim().parse().unwrap();
    let log = read_until(&mut out, "Documentation: ");
    let line = log.lines().last().unwrap().trim_end();
    let (pages, command) = line.split_once("  Example: ").unwrap();
    let address = crate::support::announced_address(&log, "HTTP").unwrap();
    let wanted = format!("Console: http://{address}/v2/console  Documentation: http://{address}/v2/docs");
    assert!(pages.ends_with(&wanted), "{line}");
    let script = format!("PATH='{}':$PATH; {command}", folder_of_executable());
    let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
    let answer = String::from_utf8(ran.stdout).unwrap();
    assert!(answer.contains("\"model_name\":\"iris-xgboost\""), "{command}: {answer}{:?}", ran.stderr);
    assert!(command.contains(folder.root().to_str().unwrap()), "{command}");
    kill_process(Pid::from_raw(process).unwrap(), Signal::TERM).unwrap();
    read_until(&mut out, "Stopped.");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Returns the folder of the executable under test.
fn folder_of_executable() -> String {
    let executable = std::path::Path::new(env!("CARGO_BIN_EXE_mlserver"));
    executable.parent().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn server_under_nohup_outlives_its_terminal() {
    let Some((mut child, mut out, _folder)) = on_a_terminal(ON_A_TERMINAL, "exec nohup \"$@\"") else { return };
    let process = read_until(&mut out, "\n");
    let process = process.strip_prefix("process ").unwrap().trim().parse().unwrap();
    let log = read_until(&mut out, "Loaded model");
    drop(child.stdin.take());
    read_until(&mut out, "Received SIGHUP: reading keys and certificates again.");
    let address = crate::support::announced_address(&log, "HTTP").unwrap();
    let mut connection = Connection::open(address);
    connection.write("GET /v2/health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(connection.answer().status, 200);
    kill_process(Pid::from_raw(process).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn invalid_number_of_threads_is_an_error() {
    for bad in ["0", "-1", "many", "1025", "18446744073709551616"] {
        let ended = ServerBuilder::new(Folder::iris()).env("TOKIO_WORKER_THREADS", bad).run();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let expected =
            format!("environment variable `TOKIO_WORKER_THREADS`: expected a number from 1 to 1024, found `{bad}`");
        assert_eq!(ended.stderr, format!("error: {expected}\n"));
    }
    for good in ["", "1", "3"] {
        let server = ServerBuilder::new(Folder::iris()).env("TOKIO_WORKER_THREADS", good).start();
        assert_eq!(server.terminate().code, Some(0));
    }
}
