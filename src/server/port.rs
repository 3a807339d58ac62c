//! A bound port, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Accept, Accepted, Handshake};
use crate::tls::{ClientNames, ServerTls};

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the {purpose} server cannot listen on {host}:{port}: {error}")]
pub struct BindError {
    pub purpose: &'static str,
    pub host: String,
    pub port: u16,
    pub error: io::Error,
}

/// A bound port that accepts connections.
#[derive(Debug)]
pub struct Port {
    socket: TcpListener,
    tls: Option<ServerTls>,
}

/// The stream of a connection.
#[derive(Debug)]
pub enum PortStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Port {
    /// Opens a port. Port 0 selects a free one, which [`Port::address`] returns. Connections use TLS if it is configured.
    ///
    /// # Errors
    ///
    /// Fails if the address is in use, not local or invalid.
    pub async fn bind(purpose: &'static str, host: &str, port: u16, tls: Option<ServerTls>) -> Result<Self, BindError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match TcpListener::bind((bare, port)).await {
            Ok(socket) => Ok(Self { socket, tls }),
            Err(error) => Err(BindError { purpose, host: host.to_owned(), port, error }),
        }
    }

    /// Returns the address that the port is bound to.
    ///
    /// # Errors
    ///
    /// Fails if the system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the scheme of its URLs.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Accept for Port {
    type Io = PortStream;

    async fn accept(&self) -> io::Result<Accepted<PortStream>> {
        let (stream, peer) = self.socket.accept().await?;
        // Responses are written at once, so waiting to fill packets only delays them. A failure has no other effect.
        let _ = stream.set_nodelay(true);
        let ready: futures_util::future::BoxFuture<'static, _> = match &self.tls {
            None => Box::pin(std::future::ready(Ok(Handshake { stream: PortStream::Plain(stream), client: None }))),
            Some(tls) => {
                let handshake = TlsAcceptor::from(tls.current()).accept(stream);
                Box::pin(async move {
                    let stream = Box::new(handshake.await?);
                    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let client = certificate.map(|certificate| Arc::new(ClientNames::of(certificate)));
                    Ok(Handshake { stream: PortStream::Tls(stream), client })
                })
            }
        };
        Ok(Accepted { peer, ready })
    }
}

impl AsyncRead for PortStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
