//! The stream of a connection, which counts what it receives and sends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The stream of a connection. `I` is a socket, or TLS over one.
#[derive(Debug)]
pub(in crate::server) struct CountedStream<I> {
    stream: I,
    connection: Arc<Connection>,
    /// The bytes of the preface that are still expected. `None` once it is known which protocol the client speaks.
    preface: Option<&'static [u8]>,
}

impl<I> CountedStream<I> {
    pub(in crate::server) const fn new(stream: I, connection: Arc<Connection>) -> Self {
        Self { stream, connection, preface: Some(PREFACE) }
    }

    fn note_received(&mut self, bytes: &[u8]) {
        self.connection.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(expected) = self.preface {
            let length = expected.len().min(bytes.len());
            let (now, later) = expected.split_at(length);
            self.preface = if bytes.starts_with(now) { Some(later) } else { None };
            if self.preface.is_some_and(<[u8]>::is_empty) {
                self.preface = None;
                self.connection.http2.store(true, Ordering::Relaxed);
            }
        }
    }

    fn note_sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &sent {
            self.connection.sent.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        self.connection.blocked.store(sent.is_pending(), Ordering::Relaxed);
        sent
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for CountedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.note_received(buffer.filled().get(before..).unwrap_or_default());
        }
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for CountedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_sent(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note_sent(sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS accepts bytes before the system does, and sends them when it is flushed.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.connection.blocked.store(flushed.is_pending(), Ordering::Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
