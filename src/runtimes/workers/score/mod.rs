//! A worker that is this executable: `mlserver score` evaluates native models in a process of its own.
//!
//! The parent, a server or the Python package, plays the server's role of the worker protocol over standard input. A model whose
//! evaluation aborts the process, or takes too much memory or time, ends this process and not its parent. A parent that has no
//! settings names a model by its location: the caller of [`run`] opens it.

mod calls;
mod located;
mod messages;
mod pieces;
mod request;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use bytes::BytesMut;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::calls::{CallOptions, Calls};
pub use self::located::{LocatedDescription, LocatedModel, ModelLocation, ModelOpener, PredictionFailure};
use self::messages::{Hello, LogLevel};
use super::connection::{Connection, ConnectionEnd};
use super::frame::{Frame, FrameError, FrameKind, OutgoingFrame, PROTOCOL};
use super::memory_file::MemoryFile;
use super::message::{MessageError, ReadyHead, encode_head};
use crate::compute::ComputePool;
use crate::platform;
use crate::telemetry::logging::{self, LogFormat};

/// The most predictions that run at a time.
const MAX_THREADS: usize = 256;

const VERSION: &str = env!("MLSERVER_VERSION");

/// Why a native worker ended other than by the end of its connection.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    #[error(
        "standard input is not a socket: `mlserver score` is started by a server, or by the Python package `mlserver`"
    )]
    NoSocket,
    #[error("cannot communicate with the process that started this worker")]
    Io(#[from] io::Error),
    #[error("the process that started this worker ended before it said `hello`")]
    NoHello,
    #[error("the process that started this worker violated the protocol")]
    Protocol(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the process that started this worker speaks version {found} of the protocol, this one version {PROTOCOL}")]
    Version { found: u32 },
    #[error("the process that started this worker announced a memory file and sent none")]
    NoMemoryFile,
}

impl From<FrameError> for ScoreError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<MessageError> for ScoreError {
    fn from(error: MessageError) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<rustix::io::Errno> for ScoreError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Evaluates models for the process at the other end of standard input, until it closes the connection. `opener` finds those that
/// it names by their location.
///
/// # Errors
///
/// Fails if standard input is not the socket of a parent that speaks the protocol.
pub fn run(opener: Arc<dyn ModelOpener>) -> Result<(), ScoreError> {
    let socket = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    sockopt::socket_type(&socket).map_err(|_| ScoreError::NoSocket)?;
    let mut incoming = BytesMut::new();
    let (hello, shared) = receive_hello(&socket, &mut incoming)?;
    if hello.protocol != PROTOCOL {
        return Err(ScoreError::Version { found: hello.protocol });
    }
    platform::end_with_parent(hello.parent).map_err(|_| ScoreError::NoHello)?;
    if let Some(limit) = hello.memory_limit {
        limit_memory(limit)?;
    }
    let level = hello.log_level.map(LogLevel::filter);
    let _log = level.map(|level| logging::start_on_standard_error(LogFormat { structured: false, level }));
    let threads = hello.threads.and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN);
    let compute = ComputePool::new(threads.min(NonZeroUsize::new(MAX_THREADS).unwrap_or(NonZeroUsize::MIN)));
    socket.set_nonblocking(true)?;
    // The kernel kills a worker of Python when the thread that started it ends: with this runtime, it is the main one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = CallOptions { page: shared.page, memory: shared.memory, compute, opener };
    let ended = runtime.block_on(serve(socket, incoming, options));
    // A computation that cannot be stopped does not keep the process.
    runtime.shutdown_background();
    ended
}

/// Answers the frames of the parent until it closes its end, or until it says `stop` and the open calls have ended.
async fn serve(socket: StdUnixStream, incoming: BytesMut, options: CallOptions) -> Result<(), ScoreError> {
    // The parent stops its workers itself: a terminal's signal is meant for it. The handlers stay when the streams are dropped.
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()] {
        drop(signal(kind)?);
    }
    let (mailbox, outgoing) = mpsc::unbounded_channel();
    let executable = std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let ready =
        encode_head(&ReadyHead { protocol: PROTOCOL, version: Some(VERSION.to_owned()), python: None, executable });
    // Fails only if the receiver below is gone.
    let _ = mailbox.send((0, OutgoingFrame::new(FrameKind::Ready, ready)?));
    let calls = Calls::new(mailbox, options);
    let connection = Connection::continuing(UnixStream::from_std(socket)?, outgoing, incoming);
    let stop = async {
        calls.stop().await;
        // The connection ends once it has written the last frames.
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = connection.run(|frame| calls.receive(frame)) => ended,
        never = stop => match never {},
    };
    match ended {
        ConnectionEnd::Closed => Ok(()),
        ConnectionEnd::Io(error) => match error.kind() {
            // The parent has died.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error.into()),
        },
        ConnectionEnd::Protocol(error) => Err(error.into()),
    }
}

/// The files that come with `hello`.
#[derive(Debug, Default)]
struct SharedFiles {
    page: Option<File>,
    memory: Option<MemoryFile>,
}

impl SharedFiles {
    /// Tells the files apart: the last one is the memory file if there is one, and any other the page.
    fn new(mut descriptors: Vec<OwnedFd>, has_memory: bool) -> Result<Self, ScoreError> {
        let memory = if has_memory { Some(descriptors.pop().ok_or(ScoreError::NoMemoryFile)?) } else { None };
        let memory = memory.map(|file| MemoryFile::new(file.into()));
        Ok(Self { page: descriptors.pop().map(File::from), memory })
    }
}

/// Reads the first frame, and the files whose descriptors come with its first byte. What follows stays in `incoming`.
fn receive_hello(mut socket: &StdUnixStream, incoming: &mut BytesMut) -> Result<(Hello, SharedFiles), ScoreError> {
    let mut piece = [0; 4 << 10];
    let (mut count, files) = platform::receive_files(socket, &mut piece)?;
    loop {
        if count == 0 {
            return Err(ScoreError::NoHello);
        }
        incoming.extend_from_slice(&piece[..count]);
        if let Some(frame) = Frame::take(incoming)? {
            if frame.kind != FrameKind::Hello {
                return Err(ScoreError::NoHello);
            }
            let hello: Hello = frame.read_head()?;
            let files = SharedFiles::new(files, hello.memory_file)?;
            return Ok((hello, files));
        }
        count = socket.read(&mut piece)?;
    }
}

/// Limits what this process may allocate, so that an allocation beyond it ends the process at once.
fn limit_memory(bytes: u64) -> Result<(), ScoreError> {
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    Ok(rustix::process::setrlimit(Resource::Data, limit)?)
}

/// Reads a frame of the parent as every message.
#[cfg(fuzzing)]
pub(super) fn read_for_fuzzing(frame: &Frame) {
    drop(frame.read_head::<Hello>());
    drop(frame.read_head::<messages::Load>());
    drop(frame.read_head::<messages::Unload>());
    request::read_for_fuzzing(frame);
    drop(messages::read_call(frame));
}
