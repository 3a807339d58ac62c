//! Listeners: bind, serve, drain. The transports below only translate between their protocol and [`crate::inference`].

mod access_control;
mod audit;
mod cloud_events;
mod connection;
mod deadline;
mod exchange;
pub mod grpc;
mod head;
#[cfg(feature = "kafka")]
pub mod kafka;
mod listener;
pub mod metrics;
mod model_headers;
mod panic_boundary;
mod payload;
mod poll_time;
mod port;
mod priority;
mod received;
mod repository_access;
mod respond;
pub mod rest;
mod status;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::tls::ClientNames;
use connection::{
    AcceptWarnings, Connection, ConnectionEntry, ConnectionGroup, CountedStream, ResponseHold, SlowBody, TrackedBody,
};
pub use connection::{
    BodyPace, ConnectionLimits, ConnectionMetrics, ConnectionTable, PacedBody, PacedRequestBody, TooManyWatches,
    WaitingMark,
};
pub use listener::{DrainStage, Listener, RunningListeners};
pub use model_headers::{ForwardedHeaders, UnknownForwardedHeader};
use poll_time::measured;
pub use port::{BindError, Port, PortStream};
pub use repository_access::RepositoryAccess;

/// How long to wait before accepting again if the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long an evicted connection may take to tell its watches.
const TELL_TIMEOUT: Duration = Duration::from_millis(250);

/// The settings of HTTP/2. Tensors are large, so frames and windows are too. The memory that a connection can make the server
/// hold is bounded by its window and, for responses, by the send buffer of each stream.
mod http2 {
    use std::time::Duration;

    /// The largest frame that clients may send, in bytes. A message that fits into one frame is never copied together.
    /// With this size, the library accepts a head of at most 7 frames: enough for the limits on heads in frames of 16 KiB.
    pub(super) const FRAME: u32 = 1 << 20;
    /// Bytes that a client may send before the server has read any, on one stream and on all streams of a connection.
    pub(super) const STREAM_WINDOW: u32 = 2 << 20;
    pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;
    /// Bytes of a response that may wait for the connection.
    pub(super) const SEND_BUFFER: usize = 1 << 20;
    /// A silent connection with requests in flight is pinged after this time, and closed if it does not answer within the timeout: watchers may stay
    /// connected for days.
    pub(super) const PING_INTERVAL: Duration = Duration::from_mins(2);
    pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);
}

/// Why the transfer of a body failed.
pub type BodyFailure = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that a transport reads.
pub trait RequestBody: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin {}

impl<B> RequestBody for B where B: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin {}

/// The body of a request that a connection receives.
pub type IncomingBody = PacedBody<Incoming>;

/// A service that [`serve`] can run: it answers every request.
pub trait HttpService<B>: Clone + Send + Sync + 'static {
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static;

    /// Answers a request.
    fn call(&self, request: Request<B>) -> impl Future<Output = Response<Self::Body>> + Send + use<Self, B>;
}

/// Serves HTTP/1 and HTTP/2 on one listener until `stop`, then until every connection has ended.
///
/// After `stop`, idle connections are closed, and requests in flight are answered. While some are in flight, new connections
/// are still served, for one request each, so that late clients receive an error that makes them try another server instead of
/// a refused connection. The caller bounds the wait. A connection that has no request in flight and sends nothing for 5 s is
/// cut, because its client may never acknowledge the end. `connections` has the limits, which listeners may share.
pub async fn serve<A, S>(listener: A, app: S, connections: ConnectionTable, stop: CancellationToken)
where
    A: Accept,
    S: HttpService<IncomingBody>,
{
    let regular = Listening::new(&connections, app.clone(), true);
    let mut warnings = AcceptWarnings::default();
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &connections, &mut warnings)).await {
        regular.spawn(accepted);
    }
    let late = Listening::new(&connections, app, false);
    {
        let mut drained = pin!(regular.drain());
        loop {
            tokio::select! {
                () = &mut drained => break,
                accepted = accept(&listener, &connections, &mut warnings) => late.spawn(accepted),
            }
        }
    }
    drop(listener);
    late.drain().await;
}

/// Connections that one listener accepts in one phase.
struct Listening<S> {
    app: S,
    keep_alive: bool,
    group: ConnectionGroup,
    tasks: TaskTracker,
}

impl<S: HttpService<IncomingBody>> Listening<S> {
    fn new(connections: &ConnectionTable, app: S, keep_alive: bool) -> Self {
        Self { app, keep_alive, group: connections.group(), tasks: TaskTracker::new() }
    }

    /// Closes the connections and waits until all have ended.
    async fn drain(&self) {
        self.group.close();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Serves one connection until it ends, unless there are too many.
    fn spawn<I>(&self, accepted: Accepted<I>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(entry) = self.group.admit(Some(accepted.peer)) else { return };
        let limits = *self.group.table().limits();
        let builder = builder(&limits, self.keep_alive, Arc::clone(&entry.connection));
        self.tasks.spawn(measured(run(accepted, entry, builder, self.app.clone(), limits.body_timeout)));
    }
}

/// Serves one connection until it ends, or the table of connections orders it to.
async fn run<I, S>(
    accepted: Accepted<I>,
    entry: ConnectionEntry,
    builder: auto::Builder<StreamExecutor>,
    app: S,
    body_timeout: Duration,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService<IncomingBody>,
{
    let Accepted { peer, mut ready } = accepted;
    let state = &entry.connection;
    let handshake = std::future::poll_fn(|context| {
        if state.is_cut(context) || state.is_closing() {
            Poll::Ready(None)
        } else {
            ready.as_mut().poll(context).map(Some)
        }
    });
    let (stream, client) = match handshake.await {
        Some(Ok(Handshake { stream, client })) => (CountedStream::new(stream, Arc::clone(state)), client),
        Some(Err(error)) => return log_disconnect(peer, &error),
        None => return,
    };
    let of_requests = Arc::clone(state);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(client) = &client {
            request.extensions_mut().insert(Arc::clone(client));
        }
        let active = of_requests.begin(request.version() == http::Version::HTTP_2);
        let response = app.call(request.map(|body| PacedBody::new(body, body_timeout).on(&of_requests)));
        // Not an `async` block, whose future would hold that of the response twice and be copied with each move.
        response.map(|mut response| {
            let hold = response.extensions_mut().remove::<ResponseHold>();
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, active, hold)))
        })
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut closing = false;
    let ended = std::future::poll_fn(|context| {
        if state.is_cut(context) {
            return Poll::Ready(None);
        }
        if !closing && state.is_closing() {
            closing = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context).map(Some)
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => log_disconnect(peer, error.as_ref()),
        None => {
            let told = std::future::poll_fn(|context| {
                // Before the connection sends what it has.
                let is_told = !state.has_untold_watches(context);
                let is_ended = connection.as_mut().poll(context).is_ready();
                if is_told || is_ended { Poll::Ready(()) } else { Poll::Pending }
            });
            if state.is_telling() {
                // A client that does not read is not waited for.
                let _ = tokio::time::timeout(TELL_TIMEOUT, told).await;
            }
            debug!(%peer, "Closed a connection because of a timeout or a limit.");
        }
    }
}

/// Spawns the requests of one HTTP/2 connection.
#[derive(Debug, Clone)]
struct StreamExecutor(Arc<Connection>);

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.note_task(tokio::spawn(measured(request)).abort_handle());
    }
}

fn builder(limits: &ConnectionLimits, keep_alive: bool, connection: Arc<Connection>) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor(connection));
    // The table of connections limits the time for the head.
    builder.http1().header_read_timeout(None).keep_alive(keep_alive);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_frame_size(http2::FRAME)
        .initial_stream_window_size(http2::STREAM_WINDOW)
        .initial_connection_window_size(http2::CONNECTION_WINDOW)
        .max_send_buf_size(http2::SEND_BUFFER)
        .max_header_list_size(head::READ_BYTES)
        .max_concurrent_streams(limits.max_streams)
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
    pub ready: BoxFuture<'static, io::Result<Handshake<I>>>,
}

/// A connection that can carry requests.
pub struct Handshake<I> {
    pub stream: I,
    /// The names of the client's certificate, if it has presented one.
    pub client: Option<Arc<ClientNames>>,
}

/// Accepts the next connection, and retries if the system returns an error.
async fn accept<A: Accept>(
    listener: &A,
    connections: &ConnectionTable,
    warnings: &mut AcceptWarnings,
) -> Accepted<A::Io> {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                warnings.failed(&error);
                connections.accept_failed();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn log_disconnect(peer: SocketAddr, error: &(dyn std::error::Error + Send + Sync)) {
    debug!(%peer, %error, "A connection ended early.");
}
