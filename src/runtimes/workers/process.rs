//! A worker's process: how it is spawned and reaped, and its output outside of frames.
//!
//! The worker's standard input is its end of the socket, so that no other process inherits it. Standard output and error
//! are pipes that are read to their end. The process leads a process group of its own, which is killed with it, and so are the
//! processes that have left the group. The worker ends with the server (`platform::end_with_parent`): on Linux, the kernel kills it when the
//! thread that started it ends, so workers are started on threads that live as long as the server.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::frame::{OutgoingFrame, PAGE_BYTES};
use super::output::{self, OutputStream};
use crate::platform::{self, MemoryGroup, oom_kills};
use crate::processes::{self, RunningProcess};
use crate::shutdown::spawn_supervised;

/// How many of the last lines of standard error are kept for the log, and how many bytes at most.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 8 << 10;

/// The socket's buffer in each direction, in bytes: tensors up to this size are sent with one system call.
const SOCKET_BUFFER: usize = 1 << 20;

/// How long a process may take to exit by itself once its socket is closed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(400);
/// How long a process that hangs may take to write the stacks of its threads.
const STACKS_TIMEOUT: Duration = Duration::from_secs(2);

/// The variable that says which worker a process belongs to. Processes inherit it.
const WORKER_VARIABLE: &str = "_MLSERVER_WORKER";

/// How the last line of a native worker begins that may not allocate more.
const ALLOCATION_FAILED: &str = "memory allocation of ";

/// How many workers have been started.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// The program that a worker runs.
#[derive(Debug, Clone)]
pub(in crate::runtimes) struct WorkerProgram {
    pub(in crate::runtimes) executable: PathBuf,
    pub(in crate::runtimes) arguments: Vec<OsString>,
    /// The name of the program in lists of processes, if that is not its path.
    pub(in crate::runtimes) title: Option<&'static str>,
    /// Environment variables that are set in addition to the server's, or removed if the value is `None`.
    pub(in crate::runtimes) variables: Vec<(Cow<'static, str>, Option<OsString>)>,
}

/// A running worker process.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    child: Child,
    pid: Pid,
    page: CallsPage,
    last_lines: LastLines,
    readers: [JoinHandle<()>; 2],
    oom_kills: Option<u64>,
    memory_limit: Option<u64>,
    memory_group: Option<MemoryGroup>,
    /// The value of [`WORKER_VARIABLE`].
    mark: String,
}

/// The page of shared memory in which a worker records the calls that have begun.
#[derive(Debug, Clone)]
pub(super) struct CallsPage(Arc<File>);

impl CallsPage {
    /// Returns whether user code had begun to run for a call.
    pub(super) fn had_begun(&self, id: u64) -> bool {
        let mut begun = [0; 8];
        let offset = id * 8 % PAGE_BYTES as u64;
        // If the page cannot be read, the call counts as begun: it must not run twice.
        self.0.read_exact_at(&mut begun, offset).is_err() || u64::from_le_bytes(begun) == id
    }
}

impl WorkerProcess {
    /// Spawns a worker called `name`, and sends it `hello`. If control groups can be created, the kernel limits the memory
    /// of the worker to `memory_limit` bytes.
    ///
    /// # Errors
    ///
    /// Fails if a system resource is exhausted or the program cannot be run.
    pub(super) fn start(
        program: &WorkerProgram,
        name: &str,
        hello: OutgoingFrame,
        memory_limit: Option<u64>,
    ) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        for end in [&ours, &theirs] {
            // The system may allow less: Linux then takes what it allows, and others fail.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER);
        }
        let page = platform::memory_file("mlserver-calls", PAGE_BYTES as u64)?;
        let mut command = Command::new(&program.executable);
        command
            .args(&program.arguments)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(title) = program.title {
            command.arg0(title);
        }
        for (name, value) in &program.variables {
            match value {
                Some(value) => command.env(&**name, value),
                None => command.env_remove(&**name),
            };
        }
        let mark = format!("{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        command.env(WORKER_VARIABLE, &mark);
        let oom_kills = oom_kills();
        let mut child = command.spawn()?;
        // Closes its copy of the worker's end of the socket; otherwise the socket would stay open after the worker exits.
        drop(command);
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process exited immediately"))?;
        let memory_group = memory_limit.and_then(|limit| MemoryGroup::create(pid, limit));
        send_hello(&ours, hello, &page)?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        let last_lines = LastLines::default();
        let missing = || io::Error::other("a pipe of the process is missing");
        let (out, err) = (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let readers = [
            spawn_supervised("output of a worker", output::log(out, OutputStream::Stdout, name.to_owned(), None)),
            spawn_supervised(
                "output of a worker",
                output::log(err, OutputStream::Stderr, name.to_owned(), Some(last_lines.clone())),
            ),
        ];
        let page = CallsPage(Arc::new(page));
        Ok((Self { child, pid, page, last_lines, readers, oom_kills, memory_limit, memory_group, mark }, stream))
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn page(&self) -> CallsPage {
        self.page.clone()
    }

    /// Waits until the process has exited by itself.
    pub(super) async fn wait(&mut self) {
        // Fails only if there is nothing to wait for.
        let _ = self.child.wait().await;
    }

    /// Aborts the process, and gives it a short time to write the stacks of its threads and exit. This must be done once
    /// only, and before its connection is closed: either a second signal or the exit would interrupt it.
    pub(super) async fn write_stacks(&mut self) {
        // The interpreter writes the stacks of all threads to standard error when it is aborted.
        let _ = kill_process(self.pid, Signal::ABORT);
        let _ = tokio::time::timeout(STACKS_TIMEOUT, self.child.wait()).await;
    }

    /// Kills the processes that the worker has started, also those that have left its group. `below` are those that were below
    /// it when it ended, which may have another environment.
    async fn kill_descendants(&self, below: BTreeSet<RunningProcess>) {
        let mark = self.mark.clone();
        let kill = move || {
            processes::kill(|| &processes::still_running(&below) | &processes::with_variable(WORKER_VARIABLE, &mark));
        };
        // Fails only if it panics.
        let _ = tokio::task::spawn_blocking(kill).await;
    }

    /// Reaps the process, kills all processes that it has started, and returns how it ended. `kill_reason` is why the server kills the
    /// process immediately; `None` gives it a short time to exit by itself.
    pub(super) async fn reap(
        &mut self,
        worker: &str,
        resident_bytes: u64,
        kill_reason: Option<ExitReason>,
    ) -> WorkerExit {
        let timeout = match kill_reason {
            Some(_) => Duration::ZERO,
            None => EXIT_TIMEOUT,
        };
        let pid = self.pid.as_raw_nonzero().get();
        // Looking at all processes takes long on large machines. Fails only if it panics.
        let below = tokio::task::spawn_blocking(move || processes::below(pid)).await.unwrap_or_default();
        let by_itself = tokio::time::timeout(timeout, self.child.wait()).await;
        // The group may outlive its leader.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let (status, killed_by_us) = match by_itself {
            Ok(status) => (status.ok(), false),
            Err(_) => (self.child.wait().await.ok(), true),
        };
        self.kill_descendants(below).await;
        for reader in &mut self.readers {
            // A process that belongs to another user may hold the pipe open.
            if tokio::time::timeout(EXIT_TIMEOUT, &mut *reader).await.is_err() {
                reader.abort();
            }
        }
        let last_lines = self.last_lines.take();
        let is_killed = self.memory_group.take().is_some_and(|group| group.oom_kills() > 0);
        let is_refused = last_lines.iter().any(|line| line.starts_with(ALLOCATION_FAILED));
        let over_limit = self.memory_limit.filter(|_| is_killed || is_refused);
        let reason = kill_reason.or(over_limit.map(ExitReason::OverMemoryLimit));
        WorkerExit {
            worker: worker.to_owned(),
            pid,
            reason: reason.unwrap_or_else(|| ExitReason::from_status(status, killed_by_us)),
            out_of_memory: over_limit.is_none() && oom_kills() > self.oom_kills,
            resident_bytes,
            last_lines,
        }
    }
}

fn send_hello(stream: &StdUnixStream, hello: OutgoingFrame, page: &File) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    hello.write(0, &mut bytes, |bytes, chunk| bytes.extend_from_slice(&chunk));
    let sent = platform::send_with_file(stream, &bytes, page)?;
    (&*stream).write_all(&bytes[sent..])
}

/// How a worker ended.
#[derive(Debug, Clone)]
pub(super) struct WorkerExit {
    pub(super) worker: String,
    pub(super) pid: i32,
    pub(super) reason: ExitReason,
    /// Whether the kernel killed a process of this control group for lack of memory while the worker ran.
    pub(super) out_of_memory: bool,
    /// Resident memory in bytes at the last measurement; 0 if it was never measured.
    pub(super) resident_bytes: u64,
    /// The last lines of its standard error.
    pub(super) last_lines: Vec<String>,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitReason {
    Exit(i32),
    Signal(i32),
    /// The server killed it, because it did not exit when its socket was closed.
    Killed,
    /// The server killed it, because it was unresponsive for longer than this limit of the settings.
    Hung(Duration),
    /// The server killed it, because a call occupied one of its threads for longer than this limit of the settings.
    HungCall(Duration),
    /// The server killed it, because a call took longer than this limit of its model's settings.
    TimedOut(Duration),
    /// The server killed it, because a model took longer than this limit of the settings to load.
    LoadTimedOut(Duration),
    /// The server or the kernel killed it, because it used more memory than this limit of the settings, in bytes.
    OverMemoryLimit(u64),
    /// The server killed it, because it violated the protocol.
    Protocol,
    Unknown,
}

impl ExitReason {
    fn from_status(status: Option<ExitStatus>, killed_by_us: bool) -> Self {
        match status {
            _ if killed_by_us => Self::Killed,
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Self::Exit(code),
                (None, Some(signal)) => Self::Signal(signal),
                (None, None) => Self::Unknown,
            },
            None => Self::Unknown,
        }
    }

    /// Returns whether it is of interest what the process was doing.
    pub(super) const fn leaves_stacks(self) -> bool {
        matches!(self, Self::Hung(_) | Self::HungCall(_) | Self::TimedOut(_) | Self::LoadTimedOut(_))
    }

    /// Returns the value of the metrics' label `reason`.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Exit(_) => "exit",
            Self::Signal(_) => "signal",
            Self::Killed | Self::Unknown => "lost",
            Self::Hung(_) | Self::HungCall(_) => "hang",
            Self::TimedOut(_) | Self::LoadTimedOut(_) => "timeout",
            Self::OverMemoryLimit(_) => "memory",
            Self::Protocol => "protocol",
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was terminated by {}", signal_name(*signal)),
            Self::Killed => f.write_str("closed its connection and had to be killed"),
            Self::Hung(limit) => {
                write!(f, "was killed: unresponsive for more than {} s (`worker_hang_timeout`)", limit.as_secs())
            }
            Self::HungCall(limit) => write!(
                f,
                "was killed: a call ran for more than {} s (`worker_hang_timeout`; a model may have a `predict_timeout` instead)",
                limit.as_secs()
            ),
            Self::LoadTimedOut(limit) => {
                write!(
                    f,
                    "was killed: a model took more than {} s to load (`worker_load_timeout`)",
                    limit.as_secs_f64()
                )
            }
            Self::OverMemoryLimit(limit) => {
                write!(f, "was killed: it used more than {} MiB of memory (`worker_memory_limit`)", limit >> 20)
            }
            Self::TimedOut(limit) => {
                write!(f, "was killed: a prediction took more than {} s (`predict_timeout`)", limit.as_secs_f64())
            }
            Self::Protocol => f.write_str("was killed: it violated the protocol"),
            Self::Unknown => f.write_str("ended with an unknown status"),
        }
    }
}

impl fmt::Display for WorkerExit {
    /// Describes the exit to clients. The alternate form adds the last line that the process wrote, which may contain secrets: it is for the
    /// log and for those who load models.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} (process {}) {}", self.worker, self.pid, self.reason)?;
        if self.out_of_memory {
            f.write_str(", while the kernel killed processes to free memory")?;
        }
        if self.resident_bytes > 0 {
            write!(f, "; its resident memory was {} MiB", self.resident_bytes >> 20)?;
        }
        match self.last_lines.last() {
            Some(line) if f.alternate() => write!(f, "; its last line was: {line}"),
            _ => Ok(()),
        }
    }
}

fn signal_name(signal: i32) -> String {
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
        (Signal::ILL, "SIGILL"),
        (Signal::INT, "SIGINT"),
        (Signal::KILL, "SIGKILL"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::SYS, "SIGSYS"),
        (Signal::TERM, "SIGTERM"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    let found = names.into_iter().find(|(number, _)| number.as_raw() == signal);
    found.map_or_else(|| format!("signal {signal}"), |(_, name)| name.to_owned())
}

/// The last lines of a worker's standard error, up to [`LAST_LINES`] and [`LAST_BYTES`].
#[derive(Debug, Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    pub(super) fn push(&self, line: &str) {
        let mut lines = self.0.lock();
        lines.push_back(line.chars().take(LAST_BYTES / 8).collect());
        while lines.len() > LAST_LINES || lines.iter().map(String::len).sum::<usize>() > LAST_BYTES {
            lines.pop_front();
        }
    }

    fn take(&self) -> Vec<String> {
        self.0.lock().drain(..).collect()
    }
}

/// Returns the resident memory of a process, in bytes, or `None` if the system does not tell.
pub(super) async fn resident_memory(pid: Pid) -> Option<u64> {
    // Some systems need a process for it. Fails only if it panics.
    tokio::task::spawn_blocking(move || platform::resident_memory(pid.as_raw_nonzero().get())).await.ok().flatten()
}
