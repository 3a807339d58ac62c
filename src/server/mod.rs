//! Listeners: bind, serve, drain. The modules below only translate between their protocol and [`crate::inference`].

mod cloud_events;
mod connection;
pub mod grpc;
pub mod metrics;
mod priority;
mod respond;
pub mod rest;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::debug;

use connection::{Activity, Answering, Watched};

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
pub async fn serve<S>(listener: TcpListener, app: S, header_timeout: Duration, stop: CancellationToken)
where
    S: HttpService<Incoming>,
{
    let mut builder = builder(header_timeout);
    let connections = GracefulShutdown::new();
    while let Some((stream, peer)) = stop.run_until_cancelled(accept(&listener)).await {
        spawn(&builder, &connections, &app, (stream, peer), &stop);
    }
    let late = GracefulShutdown::new();
    builder.http1().keep_alive(false);
    let mut drained = pin!(connections.shutdown());
    loop {
        tokio::select! {
            () = &mut drained => break,
            (stream, peer) = accept(&listener) => spawn(&builder, &late, &app, (stream, peer), &stop),
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

/// Takes the next connection, whatever it takes.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
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
fn spawn<S>(
    builder: &auto::Builder<TokioExecutor>,
    connections: &GracefulShutdown,
    app: &S,
    (stream, peer): (TcpStream, SocketAddr),
    stop: &CancellationToken,
) where
    S: HttpService<Incoming>,
{
    // Answers are written whole, so waiting to fill packets only delays them. Without it, too, all is served.
    let _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let app = TowerToHyperService::new(app.clone());
    let of_requests = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let underway = of_requests.begin();
        let answer = app.call(request);
        async move {
            let response = answer.await?;
            Ok::<_, Infallible>(response.map(|body| Answering::new(body, underway)))
        }
    });
    let socket = Watched::new(stream, Arc::clone(&activity));
    let connection = builder.serve_connection(TokioIo::new(socket), service).into_owned();
    let connection = connections.watch(connection);
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
