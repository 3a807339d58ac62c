//! The real executable, serving a private folder on free ports.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Answer, Client, Connection, Folder, PATIENCE};

/// How long to wait for a log line before checking again whether the server is ready.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(5);

/// Without a new line for this long, the log is complete.
const QUIET: Duration = Duration::from_millis(30);

/// A server that is about to be started.
pub(crate) struct ServerBuilder {
    folder: Folder,
    /// The folder argument on the command line.
    argument: String,
    flags: Vec<&'static str>,
    variables: Vec<(String, String)>,
    /// Standard output is read up to the line with this text, and then closed.
    last_line: Option<&'static str>,
    /// A line of shell script that runs the server as `"$@"`.
    shell: Option<String>,
}

/// A server that runs until it is dropped. It dereferences to a [`Client`] of its REST listener.
pub(crate) struct TestServer {
    process: Process,
    client: Client,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// The address of the metrics listener, unless metrics are disabled.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) folder: Folder,
}

/// The exit code and complete output of a server.
#[derive(Debug)]
pub(crate) struct ServerExit {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Returns the address that the log gives for a listener (`HTTP`, `gRPC`, `Metrics`); `None` if the log does not
/// contain all of it yet.
pub(crate) fn announced_address(log: &str, listener: &str) -> Option<SocketAddr> {
    let (_, url) = log.split_once(&format!("{listener} server running on http"))?;
    let (_, address) = url.split_once("://")?;
    let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')?;
    address[..end].parse().ok()
}

impl ServerBuilder {
    pub(crate) fn new(folder: Folder) -> Self {
        let argument = folder.root().to_str().unwrap().to_owned();
        let ports = ["MLSERVER_HTTP_PORT", "MLSERVER_GRPC_PORT", "MLSERVER_METRICS_PORT"].map(|name| (name, "0"));
        let variables = [&[("MLSERVER_HOST", "127.0.0.1")], ports.as_slice()].concat();
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { folder, argument, flags: Vec::new(), variables, last_line: None, shell: None }
    }

    /// Sets a variable in the otherwise empty environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves out a variable that is set by default.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(variable, _)| variable != name);
        self
    }

    pub(crate) fn flag(mut self, flag: &'static str) -> Self {
        self.flags.push(flag);
        self
    }

    pub(crate) fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    /// Closes the server's standard output after the line with this text.
    pub(crate) fn close_stdout_after(mut self, text: &'static str) -> Self {
        self.last_line = Some(text);
        self
    }

    /// Limits how many files and sockets the server may have open.
    pub(crate) fn open_files(self, limit: u32) -> Self {
        Self { shell: Some(format!("ulimit -n {limit} && exec \"$@\"")), ..self }
    }

    /// Starts the server with a line of shell script, as `"$@"`.
    pub(crate) fn shell(self, script: &str) -> Self {
        Self { shell: Some(script.to_owned()), ..self }
    }

    /// Makes the server the first process of a namespace, as in a container. Returns `None` if that is not permitted.
    pub(crate) fn first_process(self) -> Option<Self> {
        let unshare = "unshare --pid --fork --kill-child --mount-proc";
        let permitted = Command::new("/bin/sh").args(["-c", &format!("{unshare} true")]).output().unwrap();
        if !permitted.status.success() {
            super::skipped("namespaces of processes cannot be created here");
            return None;
        }
        Some(Self { shell: Some(format!("exec {unshare} \"$@\"")), ..self })
    }

    /// Passes another folder argument; an empty one leaves the argument out.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        argument.clone_into(&mut self.argument);
        self
    }

    /// Runs a server that is expected to exit by itself.
    #[track_caller]
    pub(crate) fn run(self) -> ServerExit {
        self.spawn().ended()
    }

    /// Runs a server that is expected to exit by itself, and looks at its folder before it is removed.
    #[track_caller]
    pub(crate) fn run_then<T>(self, then: impl FnOnce(ServerExit) -> T) -> T {
        then(self.spawn().ended())
    }

    /// Starts the server and returns once it listens.
    #[track_caller]
    pub(crate) fn listen(self) -> TestServer {
        let process = self.spawn();
        let announced = |listener: &str| {
            let line = process.log.wait_for(&format!("{listener} server running on "));
            announced_address(&(line + "\n"), listener).unwrap()
        };
        let (http, grpc) = (announced("HTTP"), announced("gRPC"));
        let variable = |name: &str| self.variables.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value);
        let with_metrics = variable("MLSERVER_METRICS_ENDPOINT").is_none_or(|endpoint| !endpoint.is_empty());
        let metrics = with_metrics.then(|| announced("Metrics"));
        TestServer { process, client: Client::new(http), http, grpc, metrics, folder: self.folder }
    }

    /// Starts the server and returns once it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> TestServer {
        let ports = tempfile::tempdir().unwrap();
        let path = ports.path().join("ports.json");
        let mut process = self.spawn_with(&["--port-file", path.to_str().unwrap()]);
        let addresses = process.read_when_written(&path);
        let addresses: HashMap<String, SocketAddr> = serde_json::from_str(&addresses).unwrap();
        let http = addresses["http"];
        let (grpc, metrics) = (addresses["grpc"], addresses.get("metrics").copied());
        let server = TestServer { process, client: Client::new(http), http, grpc, metrics, folder: self.folder };
        server.wait_until_ready();
        server
    }

    fn spawn(&self) -> Process {
        self.spawn_with(&[])
    }

    fn spawn_with(&self, more_flags: &[&str]) -> Process {
        let mut command = match &self.shell {
            None => Command::new(env!("CARGO_BIN_EXE_mlserver")),
            Some(script) => {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_mlserver")]);
                command
            }
        };
        // Behind a script, they would be its arguments.
        command.arg("start").args(more_flags).args(Some(&self.argument).filter(|argument| !argument.is_empty()));
        command.args(&self.flags).current_dir(self.folder.root());
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        Process::spawn(&mut command, self.last_line)
    }
}

impl TestServer {
    /// Serves a folder with default settings.
    #[track_caller]
    pub(crate) fn start(folder: Folder) -> Self {
        ServerBuilder::new(folder).start()
    }

    /// Serves the iris model.
    #[track_caller]
    pub(crate) fn iris() -> Self {
        Self::start(Folder::iris())
    }

    /// Serves the quickstart's models.
    #[track_caller]
    pub(crate) fn quickstart() -> Self {
        Self::start(Folder::quickstart())
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        while self.get("/v2/health/ready").status != 200 {
            assert!(Instant::now() < deadline, "not ready:\n{}", self.log());
            seen = self.process.log.wait_for_more(seen, BETWEEN_QUESTIONS);
        }
    }

    /// Opens a connection to the REST server.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.http)
    }

    /// Scrapes the metrics server.
    #[track_caller]
    pub(crate) fn scrape(&self) -> Answer {
        Client::new(self.metrics.unwrap()).get("/metrics")
    }

    /// Waits for a log line that contains `text` and returns it.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        self.process.log.wait_for(text)
    }

    /// Returns the log so far. The server writes it from a thread of its own, so this waits until no more lines come.
    pub(crate) fn log(&self) -> String {
        let mut text = self.process.log.text();
        loop {
            super::pause(QUIET);
            let later = self.process.log.text();
            if later.len() == text.len() {
                return later;
            }
            text = later;
        }
    }

    /// Returns the peak resident memory of the process so far, in KiB. 0 where the system does not tell: the test then checks less.
    pub(crate) fn peak_memory(&self) -> u64 {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.process.child.id())) else { return 0 };
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.child.id()
    }

    /// Returns the current resident memory of the process, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let id = i32::try_from(self.process.child.id()).unwrap();
        mlserver::platform::resident_memory(id).unwrap() >> 10
    }

    /// Returns how many files and sockets the process has open. 0 where the system does not tell: the test then checks less.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.child.id())).map_or(0, Iterator::count)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.child), signal).unwrap();
    }

    /// Waits for the process to exit.
    #[track_caller]
    pub(crate) fn ended(self) -> ServerExit {
        self.process.ended()
    }

    /// Stops the server as an operator does, with SIGTERM.
    #[track_caller]
    pub(crate) fn terminate(self) -> ServerExit {
        self.signal(Signal::TERM);
        self.ended()
    }
}

impl Deref for TestServer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A child process that is killed and reaped on drop.
struct Process {
    child: Child,
    log: Log,
    readers: Vec<JoinHandle<()>>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    fn spawn(command: &mut Command, last_line: Option<&'static str>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (log, stderr) = (Log::default(), Arc::new(Mutex::new(String::new())));
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (of_out, of_err) = (log.clone(), Arc::clone(&stderr));
        let readers = vec![
            thread::spawn(move || of_out.fill(BufReader::new(out), last_line)),
            thread::spawn(move || {
                let mut text = String::new();
                err.read_to_string(&mut text).unwrap();
                *of_err.lock().unwrap() = text;
            }),
        ];
        Self { child, log, readers, stderr }
    }

    /// Returns the content of a file that appears when it is complete.
    #[track_caller]
    fn read_when_written(&mut self, path: &Path) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        loop {
            let ended = self.child.try_wait().unwrap().is_some();
            match fs::read_to_string(path) {
                Ok(text) => return text,
                Err(_) => assert!(
                    !ended && Instant::now() < deadline,
                    "not started:\n{}{}",
                    self.log.text(),
                    self.stderr.lock().unwrap()
                ),
            }
            seen = self.log.wait_for_more(seen, BETWEEN_QUESTIONS);
        }
    }

    #[track_caller]
    fn ended(mut self) -> ServerExit {
        self.log.wait_for_end();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let code = self.child.wait().unwrap().code();
        let stderr = self.stderr.lock().unwrap().clone();
        ServerExit { code, stdout: self.log.text(), stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that a process has written so far.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    fn fill(&self, out: impl BufRead, last_line: Option<&str>) {
        for line in out.lines() {
            let line = line.unwrap();
            let is_last = last_line.is_some_and(|text| line.contains(text));
            self.change(|lines| lines.lines.push(line));
            if is_last {
                break;
            }
        }
        self.change(|lines| lines.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut Lines)) {
        let (lines, changed) = &*self.0;
        change(&mut lines.lock().unwrap());
        changed.notify_all();
    }

    /// Waits until `found` returns something; `None` after `limit`.
    fn wait<T>(&self, limit: Duration, mut found: impl FnMut(&Lines) -> Option<T>) -> Option<T> {
        let (lines, changed) = &*self.0;
        let mut result = None;
        let guard = lines.lock().unwrap();
        let waited = changed.wait_timeout_while(guard, limit, |lines| {
            result = found(lines);
            result.is_none()
        });
        drop(waited.unwrap());
        result
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let found = self.wait(PATIENCE, |lines| {
            let line = lines.lines.iter().find(|line| line.contains(text)).cloned();
            if line.is_none() && lines.ended { Some(None) } else { line.map(Some) }
        });
        found.flatten().unwrap_or_else(|| unreachable!("no `{text}` in the log:\n{}", self.text()))
    }

    /// Waits for more than `seen` lines and returns how many there are.
    fn wait_for_more(&self, seen: usize, limit: Duration) -> usize {
        self.wait(limit, |lines| (lines.lines.len() > seen).then_some(lines.lines.len())).unwrap_or(seen)
    }

    #[track_caller]
    fn wait_for_end(&self) {
        let ended = self.wait(PATIENCE, |lines| lines.ended.then_some(()));
        assert!(ended.is_some(), "the process did not end:\n{}", self.text());
    }

    fn text(&self) -> String {
        let (lines, _) = &*self.0;
        lines.lock().unwrap().lines.iter().flat_map(|line| [line, "\n"]).collect()
    }
}
