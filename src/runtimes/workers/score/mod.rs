//! A worker that is this executable: `mlserver score` evaluates native models in a process of its own.
//!
//! The parent, a server or the Python package, plays the server's role of the worker protocol over standard input. A model whose
//! evaluation aborts the process, or takes too much memory or time, ends this process and not its parent.

mod calls;
mod messages;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use bytes::BytesMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, sockopt};
use rustix::process::{Resource, Rlimit, Signal};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::calls::Calls;
use self::messages::Hello;
use super::connection::{Connection, ConnectionEnd};
use super::frame::{Frame, FrameError, FrameKind, OutgoingFrame, PROTOCOL};
use super::message::{MessageError, ReadyHead, encode_head};
use crate::compute::ComputePool;

/// The most predictions that run at a time.
const MAX_THREADS: usize = 256;

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

/// Evaluates models for the process at the other end of standard input, until it closes the connection.
///
/// # Errors
///
/// Fails if standard input is not the socket of a parent that speaks the protocol.
pub fn run() -> Result<(), ScoreError> {
    let socket = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    sockopt::socket_type(&socket).map_err(|_| ScoreError::NoSocket)?;
    let mut incoming = BytesMut::new();
    let (hello, page) = receive_hello(&socket, &mut incoming)?;
    if hello.protocol != PROTOCOL {
        return Err(ScoreError::Version { found: hello.protocol });
    }
    bind_to_parent(hello.parent)?;
    if let Some(limit) = hello.memory_limit {
        limit_memory(limit)?;
    }
    let threads = hello.threads.and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN);
    let compute = ComputePool::new(threads.min(NonZeroUsize::new(MAX_THREADS).unwrap_or(NonZeroUsize::MIN)));
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(socket, incoming, page, compute));
    // A computation that cannot be stopped does not keep the process.
    runtime.shutdown_background();
    ended
}

/// Answers the frames of the parent until it closes its end, or until it says `stop` and the open calls have ended.
async fn serve(
    socket: StdUnixStream,
    incoming: BytesMut,
    page: Option<OwnedFd>,
    compute: ComputePool,
) -> Result<(), ScoreError> {
    // The parent stops its workers itself: a terminal's signal is meant for it. The handlers stay when the streams are dropped.
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()] {
        drop(signal(kind)?);
    }
    let (mailbox, outgoing) = mpsc::unbounded_channel();
    let executable = std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let ready = encode_head(&ReadyHead { protocol: PROTOCOL, python: None, executable });
    // Fails only if the receiver below is gone.
    let _ = mailbox.send((0, OutgoingFrame::new(FrameKind::Ready, ready)?));
    let calls = Calls::new(mailbox, page.map(File::from), compute);
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

/// Reads the first frame, and the descriptor of the page that comes with its first byte. What follows stays in `incoming`.
fn receive_hello(mut socket: &StdUnixStream, incoming: &mut BytesMut) -> Result<(Hello, Option<OwnedFd>), ScoreError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut piece = [0; 4 << 10];
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut piece)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut page = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            page = descriptors.last();
        }
    }
    let mut count = received.bytes;
    loop {
        if count == 0 {
            return Err(ScoreError::NoHello);
        }
        incoming.extend_from_slice(&piece[..count]);
        if let Some(frame) = Frame::take(incoming)? {
            let is_hello = frame.kind == FrameKind::Hello;
            return if is_hello { Ok((frame.read_head()?, page)) } else { Err(ScoreError::NoHello) };
        }
        count = socket.read(&mut piece)?;
    }
}

/// Has the kernel kill this process when its parent ends. Fails if it has ended already.
fn bind_to_parent(parent: u32) -> Result<(), ScoreError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let found = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if found == Some(parent) { Ok(()) } else { Err(ScoreError::NoHello) }
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
    drop(messages::read_request(frame));
    drop(messages::read_call(frame));
}
