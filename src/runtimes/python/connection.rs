//! The socket to a worker: one task reads and writes it, so that neither direction can block the other.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::frame::{Frame, FrameError, Outgoing};

/// How much room there is for what arrives, at least.
const READ_AT_LEAST: usize = 16 << 10;
const READ_BUFFER: usize = 256 << 10;
/// How many frames are taken from the mailbox at once.
const BATCH: usize = 64;
/// How many parts one system call writes.
const PARTS: usize = 32;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the worker closed its connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the worker does not keep to the protocol")]
    Protocol(#[from] FrameError),
}

/// A connection.
///
/// Its mailbox is not bounded by itself: what it holds is at most a call for each slot of the worker, and a few small
/// frames about each.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    mailbox: UnboundedReceiver<(u64, Outgoing)>,
    incoming: BytesMut,
    scratch: BytesMut,
    outgoing: VecDeque<Bytes>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, mailbox: UnboundedReceiver<(u64, Outgoing)>) -> Self {
        let incoming = BytesMut::with_capacity(READ_BUFFER);
        Self { stream, mailbox, incoming, scratch: BytesMut::new(), outgoing: VecDeque::new() }
    }

    /// Moves frames until the connection ends. `receive` gets each that arrives, in order.
    pub(super) async fn run(mut self, mut receive: impl FnMut(Frame)) -> Ended {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let step = tokio::select! {
                biased;
                readable = self.stream.readable() => readable.map_err(Ended::from).and_then(|()| self.read(&mut receive)),
                count = self.mailbox.recv_many(&mut batch, BATCH), if self.outgoing.is_empty() => {
                    if count == 0 {
                        return Ended::Closed;
                    }
                    for (id, frame) in batch.drain(..) {
                        self.put(id, frame);
                    }
                    if !self.scratch.is_empty() {
                        self.outgoing.push_back(self.scratch.split().freeze());
                    }
                    self.write().map_err(Ended::from)
                }
                writable = self.stream.writable(), if !self.outgoing.is_empty() => {
                    writable.and_then(|()| self.write()).map_err(Ended::from)
                }
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    fn read(&mut self, receive: &mut impl FnMut(Frame)) -> Result<(), Ended> {
        if self.incoming.capacity() - self.incoming.len() < READ_AT_LEAST {
            self.incoming.reserve(READ_BUFFER);
        }
        match self.stream.try_read_buf(&mut self.incoming) {
            Ok(0) => return Err(Ended::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        while let Some(frame) = Frame::take(&mut self.incoming)? {
            receive(frame);
        }
        Ok(())
    }

    /// Adds a frame to what is written. Short ones collect in `scratch`.
    fn put(&mut self, id: u64, frame: Outgoing) {
        let outgoing = &mut self.outgoing;
        frame.write(id, &mut self.scratch, |scratch, part| {
            if !scratch.is_empty() {
                outgoing.push_back(scratch.split().freeze());
            }
            outgoing.push_back(part);
        });
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let parts: Vec<IoSlice<'_>> = self.outgoing.iter().take(PARTS).map(|part| IoSlice::new(part)).collect();
            let mut written = match self.stream.try_write_vectored(&parts) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(part) = self.outgoing.front_mut() {
                if part.len() > written {
                    part.advance(written);
                    break;
                }
                written -= part.len();
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }
}
