//! A scripted engine, for faults that a real one cannot produce.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// An engine with one container, whose server accepts connections and says nothing, and which logs without a pause.
///
/// The container exits as soon as its server has been asked.
pub(super) struct ScriptedEngine {
    server: TcpListener,
    connections: Mutex<Vec<TcpStream>>,
    removed: Mutex<Vec<String>>,
    removal_status: u16,
}

type ScriptedBody = BoxBody<Bytes, Infallible>;

impl ScriptedEngine {
    /// Creates an engine that answers with a status when its container is to be removed.
    pub(super) async fn new(removal_status: u16) -> Arc<Self> {
        Arc::new(Self {
            server: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            connections: Mutex::default(),
            removed: Mutex::default(),
            removal_status,
        })
    }

    /// Returns the names of the containers that were to be removed.
    pub(super) fn removed(&self) -> Vec<String> {
        self.removed.lock().unwrap().clone()
    }

    fn answer(&self, method: &Method, path: &str) -> Response<ScriptedBody> {
        let text = |value: Value| Full::new(Bytes::from(value.to_string())).boxed();
        let (status, body) = match (method.as_str(), path.rsplit('/').next().unwrap_or_default()) {
            ("GET", "version") => (200, text(json!({"Version": "1", "ApiVersion": "1.43"}))),
            ("POST", "create") => (201, text(json!({"Id": "c", "Warnings": []}))),
            ("POST", "start") => (204, text(Value::Null)),
            ("GET", "logs") => (200, self.endless_log()),
            ("GET", "json") => {
                let is_running = self.connections.lock().unwrap().is_empty();
                let state = json!({"Running": is_running, "ExitCode": 7});
                (200, text(json!({"Id": "c", "State": state})))
            }
            ("DELETE", name) => {
                self.removed.lock().unwrap().push(name.to_owned());
                (self.removal_status, text(json!({"message": "device busy"})))
            }
            _ => (404, text(json!({"message": path}))),
        };
        let body = if status == 204 { Full::default().boxed() } else { body };
        Response::builder().status(status).body(body).unwrap()
    }

    fn endless_log(&self) -> ScriptedBody {
        let line = format!("HTTP server running on http://{}/\n", self.server.local_addr().unwrap());
        // A header with the stream (standard output) and the length precedes each piece.
        let length = u32::try_from(line.len()).unwrap().to_be_bytes();
        let piece = Bytes::from([&[1, 0, 0, 0], &length[..], line.as_bytes()].concat());
        let pieces = stream::unfold(piece, |piece| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok(Frame::data(piece.clone())), piece))
        });
        BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(pieces.boxed()))))
    }

    /// Listens at a socket and returns its address.
    pub(super) fn start(self: &Arc<Self>, path: &Path) -> String {
        let listener = UnixListener::bind(path).unwrap();
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let (stream, _) = engine.server.accept().await.unwrap();
                engine.connections.lock().unwrap().push(stream);
            }
        });
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let engine = Arc::clone(&engine);
                let service = service_fn(move |request: Request<Incoming>| {
                    let response = engine.answer(request.method(), request.uri().path());
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        format!("unix://{}", path.display())
    }
}

/// Lets a stream be shared between threads, as boxed bodies have to be.
struct SyncStream<S>(Mutex<S>);

impl<S: Stream + Unpin> Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.get_mut().0.get_mut().unwrap().poll_next_unpin(context)
    }
}
