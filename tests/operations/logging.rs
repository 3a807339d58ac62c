//! The log must never hold up the server.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Client, Folder, announced_address};

/// Many times what a pipe holds, at about 150 bytes a line.
const REQUESTS: usize = 3000;

#[test]
fn log_reader_that_is_stuck_does_not_stop_requests() {
    let folder = Folder::new().with_identity("m");
    let mut server = Command::new(env!("CARGO_BIN_EXE_mlserver"))
        .args(["start", folder.root().to_str().unwrap()])
        .env_clear()
        .envs([("MLSERVER_HOST", "127.0.0.1"), ("MLSERVER_DEBUG", "true")])
        .envs([("MLSERVER_HTTP_PORT", "0"), ("MLSERVER_GRPC_PORT", "0"), ("MLSERVER_METRICS_PORT", "0")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Kept open and not read any more, as by a log collector that hangs.
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut log = String::new();
    while !log.contains("Loaded model") {
        assert_ne!(stdout.read_line(&mut log).unwrap(), 0, "{log}");
    }
    let client = Client::new(announced_address(&log, "HTTP").unwrap());
    let mut slowest = Duration::ZERO;
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        assert_eq!(client.get("/v2/models/m").status, 200);
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "a request took {slowest:?}");
    // Lines that nobody reads do not keep the server from ending either.
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let ended = Instant::now();
    assert!(server.wait().unwrap().success());
    assert!(ended.elapsed() < Duration::from_secs(10), "{:?}", ended.elapsed());
}
