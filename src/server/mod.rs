//! Listeners: bind, serve, drain. The transports below only translate between their protocol and [`crate::inference`].

mod cloud_events;
mod connection;
pub mod grpc;
mod listener;
pub mod metrics;
mod priority;
mod received;
mod respond;
pub mod rest;
pub mod scope;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::debug;

use connection::{Activity, CountedStream, TrackedBody};
pub use listener::{DrainStage, Listener, RunningListeners};

/// How long to wait before accepting again if the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The settings of HTTP/2. Tensors are large, so frames and windows are too. The memory that a connection can make the server
/// hold is bounded by its window and, for responses, by the send buffer of each stream.
mod http2 {
    use std::time::Duration;

    /// The largest frame that clients may send, in bytes. A message that fits into one frame is never copied together.
    pub(super) const FRAME: u32 = 1 << 20;
    /// Bytes that a client may send before the server has read any, on one stream and on all streams of a connection.
    pub(super) const STREAM_WINDOW: u32 = 2 << 20;
    pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;
    /// Bytes of a response that may wait for the connection.
    pub(super) const SEND_BUFFER: usize = 1 << 20;
    /// Concurrent requests on one connection.
    pub(super) const STREAMS: u32 = 1024;
    /// A silent connection is pinged after this time, and closed if it does not answer within the timeout: watchers may stay
    /// connected for days.
    pub(super) const PING_INTERVAL: Duration = Duration::from_mins(2);
    pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);
}

/// Why the transfer of a body failed.
pub type BodyFailure = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that a transport reads.
pub trait RequestBody: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin {}

impl<B> RequestBody for B where B: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin {}

/// A service that [`serve`] can run: it answers every request.
pub trait HttpService<B>:
    Service<Request<B>, Response = Response<Self::Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static;
}

impl<S, B, R> HttpService<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static,
{
    type Body = R;
}

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the {purpose} server cannot listen on {host}:{port}: {error}")]
pub struct BindError {
    pub purpose: &'static str,
    pub host: String,
    pub port: u16,
    pub error: io::Error,
}

/// Opens a listener. Port 0 selects a free port, which the listener reports.
///
/// # Errors
///
/// Fails if the address is in use, not local or invalid.
pub async fn bind(purpose: &'static str, host: &str, port: u16) -> Result<TcpListener, BindError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((bare, port)).await.map_err(|error| BindError { purpose, host: host.to_owned(), port, error })
}

/// Serves HTTP/1 and HTTP/2 on one listener until `stop`, then until every connection has ended.
///
/// After `stop`, idle connections are closed, and requests in flight are answered. While some are in flight, new connections
/// are still served, for one request each, so that late clients receive an error that makes them try another server instead of
/// a refused connection. The caller bounds the wait. A connection that has no request in flight and sends nothing for 5 s is
/// cut, because its client may never acknowledge the end. `header_timeout` bounds how long a client may take to send the head
/// of a request.
pub async fn serve<A, S>(listener: A, app: S, header_timeout: Duration, stop: CancellationToken)
where
    A: Accept,
    S: HttpService<Incoming>,
{
    let mut builder = builder(header_timeout);
    let connections = GracefulShutdown::new();
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener)).await {
        spawn(&builder, &connections, &app, accepted, &stop);
    }
    let late = GracefulShutdown::new();
    builder.http1().keep_alive(false);
    let mut drained = pin!(connections.shutdown());
    loop {
        tokio::select! {
            () = &mut drained => break,
            accepted = accept(&listener) => spawn(&builder, &late, &app, accepted, &stop),
        }
    }
    drop(listener);
    late.shutdown().await;
}

fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_frame_size(http2::FRAME)
        .initial_stream_window_size(http2::STREAM_WINDOW)
        .initial_connection_window_size(http2::CONNECTION_WINDOW)
        .max_send_buf_size(http2::SEND_BUFFER)
        .max_concurrent_streams(http2::STREAMS)
        .keep_alive_interval(http2::PING_INTERVAL)
        .keep_alive_timeout(http2::PING_TIMEOUT);
    builder
}

/// A bound socket that accepts connections.
pub trait Accept: Send + Sync + 'static {
    /// The stream that requests are read from: a socket, or TLS over one.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection from the system. A handshake, such as that of TLS, is left to [`Accepted::ready`], so that
    /// a slow client does not delay the others.
    fn accept(&self) -> impl Future<Output = io::Result<Accepted<Self::Io>>> + Send;
}

/// A connection that the system has accepted.
pub struct Accepted<I> {
    pub peer: SocketAddr,
    /// Completes the handshake, after which the connection can carry requests.
    pub ready: BoxFuture<'static, io::Result<I>>,
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<Accepted<TcpStream>> {
        let (stream, peer) = Self::accept(self).await?;
        // Responses are written at once, so waiting to fill packets only delays them. A failure has no other effect.
        let _ = stream.set_nodelay(true);
        Ok(Accepted { peer, ready: Box::pin(std::future::ready(Ok(stream))) })
    }
}

/// Accepts the next connection, and retries if the system returns an error.
async fn accept<A: Accept>(listener: &A) -> Accepted<A::Io> {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                debug!(%error, "Cannot accept a connection.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection until it ends, `connections` shut down, or it is idle after `stop`.
fn spawn<I, S>(
    builder: &auto::Builder<TokioExecutor>,
    connections: &GracefulShutdown,
    app: &S,
    accepted: Accepted<I>,
    stop: &CancellationToken,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService<Incoming>,
{
    let Accepted { peer, ready } = accepted;
    let activity = Arc::new(Activity::default());
    let app = TowerToHyperService::new(app.clone());
    let of_requests = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let active = of_requests.begin();
        let response = app.call(request);
        async move {
            let response = response.await?;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, active)))
        }
    });
    let (builder, watcher) = (builder.clone(), connections.watcher());
    let of_stream = Arc::clone(&activity);
    let connection = async move {
        let stream = CountedStream::new(ready.await?, of_stream);
        watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned()).await
    };
    // A child token, so that busy connections do not share a lock.
    let stop = stop.child_token();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            ended = connection => {
                if let Err(error) = ended {
                    log_disconnect(peer, error.as_ref());
                }
            }
            () = activity.idle_after(stop) => debug!(%peer, "Closed a connection that was idle during shutdown."),
        }
    });
}

fn log_disconnect(peer: SocketAddr, error: &(dyn std::error::Error + Send + Sync)) {
    debug!(%peer, %error, "A connection ended early.");
}
