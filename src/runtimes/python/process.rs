//! A worker's process: how it starts, what it says outside of frames, and how it ends.
//!
//! The worker's standard input is its end of the socket, so that no other process inherits it. Standard output and error
//! are pipes that are read to their end. The process leads a group of its own, which is killed with it: what user code
//! has started goes too. The worker asks the kernel to be killed when the thread that started it ends; processes are
//! started on threads that live as long as the server.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::frame::{Outgoing, PAGE_BYTES};
use super::output::{self, Origin};

/// How many of the last lines of standard error are kept for the log, and how many bytes of them at most.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 8 << 10;

/// How much may lie in the socket in each direction, in bytes: tensors up to this size leave in one system call.
const SOCKET_BUFFER: usize = 1 << 20;

/// How long a process may take to end by itself once its socket is closed.
const TO_END: Duration = Duration::from_millis(400);

/// What is started.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) interpreter: PathBuf,
    /// The folder with the package `mlserver`.
    pub(super) sdk: PathBuf,
    /// What is set beside the variables that the server has, and with nothing, what is not.
    pub(super) variables: Vec<(&'static str, Option<OsString>)>,
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Pid,
    page: File,
    last_lines: LastLines,
    readers: [JoinHandle<()>; 2],
    oom_kills: Option<u64>,
}

impl Process {
    /// Starts a worker called `name`, and says `hello`.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses a resource or the program.
    pub(super) fn start(program: &Program, name: &str, hello: Outgoing) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        for end in [&ours, &theirs] {
            // The system may allow less.
            rustix::net::sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER)?;
        }
        let page = rustix::fs::memfd_create("mlserver-calls", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&page, PAGE_BYTES as u64)?;
        let mut command = Command::new(&program.interpreter);
        command
            .arg(program.sdk.join("mlserver").join("_worker"))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in &program.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let oom_kills = oom_kills();
        let mut child = command.spawn()?;
        // Its copy of the worker's end, without which the end of the worker would go unnoticed.
        drop(command);
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process ended at once"))?;
        say_hello(&ours, hello, &page)?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        let last_lines = LastLines::default();
        let missing = || io::Error::other("a pipe of the process is missing");
        let (out, err) = (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let readers = [
            tokio::spawn(output::log(out, Origin::Output, name.to_owned(), None)),
            tokio::spawn(output::log(err, Origin::Error, name.to_owned(), Some(last_lines.clone()))),
        ];
        let page = File::from(page);
        Ok((Self { child, pid, page, last_lines, readers, oom_kills }, stream))
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells whether user code had begun to run for a call.
    pub(super) fn had_begun(&self, id: u64) -> bool {
        let mut begun = [0; 8];
        let offset = id * 8 % PAGE_BYTES as u64;
        // Calls are taken for begun when that cannot be known: they must not run twice.
        self.page.read_exact_at(&mut begun, offset).is_err() || u64::from_le_bytes(begun) == id
    }

    /// Waits until the process has ended by itself.
    pub(super) async fn ended(&mut self) {
        // Fails only when there is nothing to wait for.
        let _ = self.child.wait().await;
    }

    /// Ends what is left of the process and its group, and says how it ended: at once when the server has decided so, for
    /// the reason `decided`.
    pub(super) async fn end(&mut self, worker: &str, resident: u64, decided: Option<How>) -> Death {
        let patience = if decided.is_some() { Duration::ZERO } else { TO_END };
        let by_itself = tokio::time::timeout(patience, self.child.wait()).await;
        // The group may outlive its leader.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let (status, killed_by_us) = match by_itself {
            Ok(status) => (status.ok(), false),
            Err(_) => (self.child.wait().await.ok(), true),
        };
        for reader in &mut self.readers {
            // Something outside of the group may hold the pipe open.
            if tokio::time::timeout(TO_END, &mut *reader).await.is_err() {
                reader.abort();
            }
        }
        Death {
            worker: worker.to_owned(),
            pid: self.pid.as_raw_nonzero().get(),
            how: decided.unwrap_or_else(|| How::of(status, killed_by_us)),
            out_of_memory: oom_kills() > self.oom_kills,
            resident,
            last_lines: self.last_lines.take(),
        }
    }
}

fn say_hello(stream: &StdUnixStream, hello: Outgoing, page: &impl AsFd) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    hello.write(0, &mut bytes, |bytes, part| bytes.extend_from_slice(&part));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [page.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&bytes[sent..])
}

/// How a worker ended.
#[derive(Debug, Clone)]
pub(super) struct Death {
    pub(super) worker: String,
    pub(super) pid: i32,
    pub(super) how: How,
    /// The kernel has killed something in this control group for its memory while the worker ran.
    pub(super) out_of_memory: bool,
    /// Resident memory when it was measured last, in bytes; 0 when it never was.
    pub(super) resident: u64,
    /// The last lines of its standard error.
    pub(super) last_lines: Vec<String>,
}

/// What ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Exit(i32),
    Signal(i32),
    /// It did not end when its socket was closed, so the server killed it.
    Killed,
    /// It answered nothing for longer than a setting allows, so the server killed it.
    Hung(Duration),
    /// A call took longer than its model's setting allows, so the server killed it.
    Overran(Duration),
    /// It sent what no worker sends.
    Protocol,
    Unknown,
}

impl How {
    fn of(status: Option<ExitStatus>, killed_by_us: bool) -> Self {
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

    /// Returns a word for metrics.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Exit(_) => "exit",
            Self::Signal(_) => "signal",
            Self::Killed | Self::Unknown => "lost",
            Self::Hung(_) => "hang",
            Self::Overran(_) => "timeout",
            Self::Protocol => "protocol",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was ended by {}", signal_name(*signal)),
            Self::Killed => f.write_str("closed its connection and had to be killed"),
            Self::Hung(limit) => {
                write!(f, "answered nothing for more than {} s (`worker_hang_timeout`) and was killed", limit.as_secs())
            }
            Self::Overran(limit) => {
                write!(
                    f,
                    "did not end a prediction within {} s (`predict_timeout`) and was killed",
                    limit.as_secs_f64()
                )
            }
            Self::Protocol => f.write_str("sent what no worker of this version sends and was killed"),
            Self::Unknown => f.write_str("ended, nobody knows how"),
        }
    }
}

impl fmt::Display for Death {
    /// What a client may know: how, and the last line that the process wrote.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} (process {}) {}", self.worker, self.pid, self.how)?;
        if self.out_of_memory {
            f.write_str(", while the kernel killed processes for want of memory")?;
        }
        if self.resident > 0 {
            write!(f, "; it had {} MiB resident", self.resident >> 20)?;
        }
        match self.last_lines.last() {
            Some(line) => write!(f, "; its last line was: {line}"),
            None => Ok(()),
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

/// The last lines of a stream, as many as are worth keeping.
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

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident(pid: Pid) -> Option<u64> {
    let text = read_small(Path::new(&format!("/proc/{}/statm", pid.as_raw_nonzero())))?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns how many processes of this control group the kernel has killed for their memory.
fn oom_kills() -> Option<u64> {
    let groups = read_small(Path::new("/proc/self/cgroup"))?;
    let candidates = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        if controllers.is_empty() {
            return Some(Path::new("/sys/fs/cgroup").join(path).join("memory.events"));
        }
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then(|| Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"))
    });
    candidates.filter_map(|path| read_small(&path)).find_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    })
}

/// Reads one of the kernel's small files.
fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
    Some(text)
}
