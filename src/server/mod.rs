//! Listeners: bind, serve, drain. The modules below only translate between their protocol and [`crate::inference`].

mod cloud_events;
mod connection;
pub mod grpc;
mod listener;
pub mod metrics;
mod priority;
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

/// How long to wait before accepting again when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How HTTP/2 is spoken. Tensors are large, so frames and windows are too; what a connection can make the server keep is
/// bounded by its window and, for what is sent, by the buffer of each stream.
mod http2 {
    use std::time::Duration;

    /// The largest frame that clients may send, in bytes. A message that fits one frame is never put together.
    pub(super) const FRAME: u32 = 1 << 20;
    /// Bytes that a client may send before the server has read some, on one stream and on all of a connection.
    pub(super) const STREAM_WINDOW: u32 = 2 << 20;
    pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;
    /// Bytes of an answer that wait for the connection.
    pub(super) const SEND_BUFFER: usize = 1 << 20;
    /// Requests at once on one connection.
    pub(super) const STREAMS: u32 = 1024;
    /// A connection without a sign of life is asked for one, and closed when there is none: watchers may stay for days.
    pub(super) const PING_AFTER: Duration = Duration::from_mins(2);
    pub(super) const PING_PATIENCE: Duration = Duration::from_secs(20);
}

/// What can happen to a body on its way.
pub type BodyFailure = Box<dyn std::error::Error + Send + Sync>;

/// A service that [`serve`] can serve: it answers every request.
pub trait HttpService<B>:
    Service<Request<B>, Response = Response<Self::Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static;
}

impl<S, B, R> HttpService<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static,
{
    type Body = R;
}

/// A listener that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the {purpose} server cannot listen on {host}:{port}: {error}")]
pub struct BindError {
    pub purpose: &'static str,
    pub host: String,
    pub port: u16,
    pub error: io::Error,
}

/// Opens a listener. Port 0 takes a free port; ask the listener for it.
///
/// # Errors
///
/// Fails with the address when it is in use, not ours or not an address.
pub async fn bind(purpose: &'static str, host: &str, port: u16) -> Result<TcpListener, BindError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((bare, port)).await.map_err(|error| BindError { purpose, host: host.to_owned(), port, error })
}

/// Serves HTTP/1 and HTTP/2 on one listener until `stop`, then until every connection has ended.
///
/// After `stop` idle connections are closed, and those with a request get its answer. Whoever connects while there are such is
/// served too, for one request, so that the late are told to go elsewhere rather than find nobody. The caller bounds the wait.
/// A connection that has no request and to which nothing is sent for 5 s is cut, because its client may never agree to the end.
/// `header_timeout` bounds how long a connection may take to send a request's head.
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
        .keep_alive_interval(http2::PING_AFTER)
        .keep_alive_timeout(http2::PING_PATIENCE);
    builder
}

/// A bound socket from which connections come.
pub trait Accept: Send + Sync + 'static {
    /// What requests are read from: a socket, or TLS over one.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Takes the next connection from the system. What it takes to be able to talk, such as a TLS handshake, is left to the
    /// future that it returns, so that a slow client does not hold up the others.
    fn accept(&self) -> impl Future<Output = io::Result<Accepted<Self::Io>>> + Send;
}

/// A connection that the system has accepted.
pub struct Accepted<I> {
    pub peer: SocketAddr,
    /// Makes the connection ready for requests.
    pub ready: BoxFuture<'static, io::Result<I>>,
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&self) -> io::Result<Accepted<TcpStream>> {
        let (stream, peer) = Self::accept(self).await?;
        // Answers are written whole, so waiting to fill packets only delays them. A failure costs nothing else.
        let _ = stream.set_nodelay(true);
        Ok(Accepted { peer, ready: Box::pin(std::future::ready(Ok(stream))) })
    }
}

/// Takes the next connection, and retries if the system fails to give one.
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

/// Serves one connection until it ends, or `connections` are told to, or it does nothing after `stop`.
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
        let answer = app.call(request);
        async move {
            let response = answer.await?;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, active)))
        }
    });
    let (builder, watcher) = (builder.clone(), connections.watcher());
    let of_stream = Arc::clone(&activity);
    let connection = async move {
        let stream = CountedStream::new(ready.await?, of_stream);
        watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned()).await
    };
    // One of its own, so that busy connections do not share a lock.
    let stop = stop.child_token();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            ended = connection => {
                if let Err(error) = ended {
                    log_disconnect(peer, error.as_ref());
                }
            }
            () = activity.abandoned(stop) => debug!(%peer, "Cut a connection that did not end with the server."),
        }
    });
}

fn log_disconnect(peer: SocketAddr, error: &(dyn std::error::Error + Send + Sync)) {
    debug!(%peer, %error, "A connection ended early.");
}
