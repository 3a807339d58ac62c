//! The socket to a worker. One task reads and writes it, so that neither direction can block the other.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::frame::{Frame, FrameError, OutgoingFrame};

/// The least free space, in bytes, in the buffer of a read.
const MIN_READ: usize = 16 << 10;
const READ_BUFFER: usize = 256 << 10;
/// How many frames are taken from the mailbox at once.
const MAILBOX_BATCH: usize = 64;
/// How many slices one system call writes.
const MAX_SLICES: usize = 32;

/// How long frames that have arrived are still read after the worker has closed its end, or its process has exited.
pub(super) const LAST_FRAMES_TIMEOUT: Duration = Duration::from_millis(100);

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("the worker closed its connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the worker violated the protocol")]
    Protocol(#[from] FrameError),
}

/// A connection to a worker.
///
/// The mailbox itself is unbounded: it holds at most one call for each slot of the worker, and a few small frames for each
/// of these calls.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    mailbox: UnboundedReceiver<(u64, OutgoingFrame)>,
    incoming: BytesMut,
    scratch: BytesMut,
    outgoing: VecDeque<Bytes>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, mailbox: UnboundedReceiver<(u64, OutgoingFrame)>) -> Self {
        Self::continuing(stream, mailbox, BytesMut::with_capacity(READ_BUFFER))
    }

    /// Creates a connection from which some bytes have been read already.
    pub(super) fn continuing(
        stream: UnixStream,
        mailbox: UnboundedReceiver<(u64, OutgoingFrame)>,
        incoming: BytesMut,
    ) -> Self {
        Self { stream, mailbox, incoming, scratch: BytesMut::new(), outgoing: VecDeque::new() }
    }

    /// Moves frames until the connection ends. Calls `receive` with each frame that arrives, in order.
    pub(super) async fn run(mut self, mut receive: impl FnMut(Frame)) -> ConnectionEnd {
        let mut batch = Vec::with_capacity(MAILBOX_BATCH);
        if let Err(ended) = self.take(&mut receive) {
            return ended;
        }
        loop {
            let step = tokio::select! {
                biased;
                readable = self.stream.readable() => readable.map_err(ConnectionEnd::from).and_then(|()| self.read(&mut receive)),
                count = self.mailbox.recv_many(&mut batch, MAILBOX_BATCH), if self.outgoing.is_empty() => {
                    if count == 0 {
                        return ConnectionEnd::Closed;
                    }
                    for (id, frame) in batch.drain(..) {
                        self.queue(id, frame);
                    }
                    if !self.scratch.is_empty() {
                        self.outgoing.push_back(self.scratch.split().freeze());
                    }
                    self.write().map_err(ConnectionEnd::from)
                }
                writable = self.stream.writable(), if !self.outgoing.is_empty() => {
                    writable.and_then(|()| self.write()).map_err(ConnectionEnd::from)
                }
            };
            if let Err(ConnectionEnd::Io(_)) = &step {
                // The worker has closed its end, perhaps after it has answered calls.
                let last_frames = self.read_to_end(&mut receive);
                let _ = tokio::time::timeout(LAST_FRAMES_TIMEOUT, last_frames).await;
            }
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    /// Reads what the worker has sent before its end was closed.
    async fn read_to_end(&mut self, receive: &mut impl FnMut(Frame)) {
        while self.stream.readable().await.is_ok() && self.read(receive).is_ok() {}
    }

    fn read(&mut self, receive: &mut impl FnMut(Frame)) -> Result<(), ConnectionEnd> {
        if self.incoming.capacity() - self.incoming.len() < MIN_READ {
            self.incoming.reserve(READ_BUFFER);
        }
        match self.stream.try_read_buf(&mut self.incoming) {
            Ok(0) => return Err(ConnectionEnd::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.take(receive)
    }

    /// Takes the frames that have arrived.
    fn take(&mut self, receive: &mut impl FnMut(Frame)) -> Result<(), ConnectionEnd> {
        while let Some(frame) = Frame::take(&mut self.incoming)? {
            receive(frame);
        }
        Ok(())
    }

    /// Queues a frame for writing. Short frames are collected in `scratch`.
    fn queue(&mut self, id: u64, frame: OutgoingFrame) {
        let outgoing = &mut self.outgoing;
        frame.write(id, &mut self.scratch, |scratch, chunk| {
            if !scratch.is_empty() {
                outgoing.push_back(scratch.split().freeze());
            }
            outgoing.push_back(chunk);
        });
    }

    /// Writes as much as the socket accepts.
    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.outgoing.iter().take(MAX_SLICES).map(|chunk| IoSlice::new(chunk)).collect();
            let mut written = match self.stream.try_write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(chunk) = self.outgoing.front_mut() {
                if chunk.len() > written {
                    chunk.advance(written);
                    break;
                }
                written -= chunk.len();
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::runtimes::workers::frame::FrameKind;

    #[tokio::test]
    async fn answers_of_a_worker_that_died_are_received_even_if_writing_fails() {
        let (ours, mut worker) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mailbox, frames) = tokio::sync::mpsc::unbounded_channel();
        let ours = UnixStream::from_std(ours).unwrap();
        // The runtime knows that the socket is writable, and does not know yet that it is readable.
        ours.writable().await.unwrap();
        let connection = Connection::new(ours, frames);
        let sent = 4000;
        let mut answers = BytesMut::new();
        for id in 0..sent {
            OutgoingFrame::empty(FrameKind::Answer).write(id, &mut answers, |_, _| {});
        }
        worker.write_all(&answers).unwrap();
        drop(worker);
        mailbox.send((1, OutgoingFrame::empty(FrameKind::Ping))).unwrap();
        let mut received = 0;
        let end = connection.run(|frame| received += u64::from(frame.id == received)).await;
        assert!(matches!(end, ConnectionEnd::Io(_)), "{end:?}");
        assert_eq!(received, sent);
    }
}
