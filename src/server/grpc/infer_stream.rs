//! `ModelStreamInfer`: a stream of requests to one model, and the stream of its responses.
//!
//! The first request names the model, gives all responses their id, and decides whether they are raw. The other requests are
//! read when the model asks for them, so backpressure from the model reaches the client.

use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::Code;

use super::message::Messages;
use super::status::Status;
use super::stream::MessageSource;
use super::{App, PacedRequestBody, deadline, infer};
use crate::access::{Grant, Refusal, Scope, StreamRight};
use crate::inference::{InferenceError, InferenceStream, ModelTarget};
use crate::registry::RegisteredModel;
use crate::server::exchange::Exchange;
use crate::server::{access_control, priority};
use crate::types::protobuf::ProtobufRequest;
use crate::types::{InferenceRequest, InferenceResponse, Priority, TraceContext};

/// The responses to a stream of requests.
pub(super) struct StreamInfer<B> {
    app: Arc<App>,
    /// The requests, until the first of them has been read.
    unread: Option<(Messages<B>, HeaderMap)>,
    /// When the client stops waiting. `None` if it sets no deadline.
    until: Option<Instant>,
    trace: Option<TraceContext>,
    rights: StreamRights,
    open: Option<OpenStream>,
    /// The headers of the last response.
    trailers: HeaderMap,
}

/// The right of the call, and what its credentials are checked again with.
pub(super) struct StreamRights {
    pub(super) grant: Option<Grant>,
    /// The names of the client's certificate.
    pub(super) certificate: Vec<String>,
}

/// A stream after its first request, which names the model.
struct OpenStream {
    target: ModelTarget,
    raw: bool,
    responses: InferenceStream,
    failure: RequestFailure,
    /// Ends when the call has lost its right.
    right_lost: BoxFuture<'static, Refusal>,
}

impl<B: PacedRequestBody + 'static> StreamInfer<B> {
    pub(super) fn new(
        app: Arc<App>,
        messages: Messages<B>,
        headers: HeaderMap,
        until: Option<Instant>,
        trace: Option<TraceContext>,
        rights: StreamRights,
    ) -> Self {
        Self { app, unread: Some((messages, headers)), until, trace, rights, open: None, trailers: HeaderMap::new() }
    }
}

impl<B: PacedRequestBody + 'static> MessageSource for StreamInfer<B> {
    async fn next(&mut self) -> Option<Result<Vec<Bytes>, Status>> {
        if let Some((messages, headers)) = self.unread.take() {
            match open_in_time(&self.app, messages, headers, self.until, self.trace, &self.rights).await {
                Ok(open) => self.open = Some(open),
                Err(status) => return Some(Err(status)),
            }
        }
        let open = self.open.as_mut()?;
        let response = tokio::select! {
            biased;
            status = open.failure.wait() => return Some(Err(status)),
            refusal = &mut open.right_lost => return Some(Err(refusal.into())),
            response = open.responses.next() => response,
        };
        match response {
            Some(Ok(mut response)) => {
                self.trailers = infer::trailers(&self.app, &mut response, &open.target.model);
                // Of the responses, the trace has the first.
                Some(write(&self.app, self.trace.take(), response, open.raw).await)
            }
            // If a request could not be read, the model sees the end of its requests, and may end or fail because of that.
            Some(Err(error)) => {
                let failed = || Status::of_inference(&error, &open.target.model);
                Some(Err(open.failure.take().unwrap_or_else(failed)))
            }
            None => open.failure.take().map(Err),
        }
    }

    fn trailers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.trailers)
    }
}

/// Encodes a response, whose bytes are held until they have been sent.
async fn write(
    app: &App,
    trace: Option<TraceContext>,
    response: InferenceResponse,
    raw: bool,
) -> Result<Vec<Bytes>, Status> {
    let mut exchange = Exchange::later(&app.inference, &app.compute, Priority::default(), trace);
    let mut chunks = infer::write(app, &mut exchange, response, raw).await?;
    let mut reservation = app.inference.admission().reservation;
    reservation.grow(chunks.iter().map(Bytes::len).sum())?;
    if let Some(last) = chunks.last_mut() {
        *last = reservation.attach(std::mem::take(last));
    }
    Ok(chunks)
}

/// Opens the stream, within the time for its first request.
async fn open_in_time<B: PacedRequestBody + 'static>(
    app: &Arc<App>,
    messages: Messages<B>,
    headers: HeaderMap,
    until: Option<Instant>,
    trace: Option<TraceContext>,
    rights: &StreamRights,
) -> Result<OpenStream, Status> {
    let limit = app.inference.stream_idle_timeout();
    let opening = tokio::time::timeout(limit, open(app, messages, headers, until, trace, rights));
    let opened = match until {
        None => opening.await,
        Some(until) => timeout_at(until, opening).await.map_err(|_| deadline::exceeded())?,
    };
    opened.unwrap_or_else(|_| Err(InferenceError::StreamIdle { limit }.into()))
}

/// Reads the first request and starts the stream of its model.
async fn open<B: PacedRequestBody + 'static>(
    app: &Arc<App>,
    mut messages: Messages<B>,
    headers: HeaderMap,
    until: Option<Instant>,
    trace: Option<TraceContext>,
    rights: &StreamRights,
) -> Result<OpenStream, Status> {
    let StreamRights { grant, certificate } = rights;
    let grant = grant.as_ref();
    let empty = || Status::new(Code::InvalidArgument, "the stream of requests is empty: expected at least one");
    let mut exchange = Exchange::new(&app.inference, &app.compute, &headers, until, trace)?;
    let (message, mut held) = messages.next().await?.ok_or_else(empty)?;
    messages.begin_later_messages();
    let ProtobufRequest { model_name, model_version, mut request, raw } =
        infer::read(&exchange, message, &mut held).await?;
    request.reservation = held;
    app.check_model(grant, &model_name)?;
    let access = app.access.as_ref();
    let right = access_control::stream_right(access, grant, &headers, certificate, Scope::Infer, &model_name)?;
    let target = exchange.target(&model_name, model_version.as_deref())?;
    infer::check_tensors(app, &request, &target.model)?;
    exchange.prepare(&mut request);
    infer::set_request_headers(app, &mut request, &headers, &target.model);
    let right_lost = access_control::right_lost(right.clone());
    let (sender, failure) = oneshot::channel();
    let id = request.id.clone();
    let reader = RequestReader {
        app: Arc::clone(app),
        messages,
        headers,
        model: Arc::clone(&target.model),
        id: id.clone(),
        right,
        failure: Some(sender),
    };
    let requests = stream::iter([request]).chain(reader.requests());
    let responses = app.inference.infer_stream(&target, id, requests, app.inference.admission())?;
    Ok(OpenStream { target, raw, responses, failure: RequestFailure(Some(failure)), right_lost })
}

/// Reads the requests after the first.
struct RequestReader<B> {
    app: Arc<App>,
    messages: Messages<B>,
    headers: HeaderMap,
    model: Arc<RegisteredModel>,
    /// The id of the first request, which all requests get.
    id: String,
    right: Option<StreamRight>,
    /// Receives the first failure, which also ends the requests.
    failure: Option<oneshot::Sender<Status>>,
}

impl<B: PacedRequestBody + 'static> RequestReader<B> {
    fn requests(self) -> impl Stream<Item = InferenceRequest> + Send {
        stream::unfold(self, |mut reader| async move {
            match reader.next().await {
                Ok(request) => Some((request?, reader)),
                Err(status) => {
                    if let Some(failure) = reader.failure.take() {
                        // The receiver is gone once the responses have ended.
                        let _ = failure.send(status);
                    }
                    None
                }
            }
        })
    }

    async fn next(&mut self) -> Result<Option<InferenceRequest>, Status> {
        let Some((message, mut held)) = self.messages.next().await? else { return Ok(None) };
        if let Some(right) = &mut self.right {
            right.take_message()?;
        }
        let priority = priority::of_headers(&self.headers);
        let exchange = Exchange::later(&self.app.inference, &self.app.compute, priority, None);
        let ProtobufRequest { model_name, mut request, .. } = infer::read(&exchange, message, &mut held).await?;
        // The model is that of the first request. A request that names another one may not be a way around its rights.
        if let Some(right) = &self.right
            && !model_name.is_empty()
            && model_name != self.model.name
        {
            right.check_model(&model_name)?;
        }
        infer::check_tensors(&self.app, &request, &self.model)?;
        request.reservation = held;
        self.id.clone_into(&mut request.id);
        infer::set_request_headers(&self.app, &mut request, &self.headers, &self.model);
        Ok(Some(request))
    }
}

/// Receives the status of the first request that could not be read.
struct RequestFailure(Option<oneshot::Receiver<Status>>);

impl RequestFailure {
    /// Waits for a failure, possibly forever.
    async fn wait(&mut self) -> Status {
        if let Some(receiver) = &mut self.0 {
            let received = receiver.await;
            self.0 = None;
            if let Ok(status) = received {
                return status;
            }
        }
        std::future::pending().await
    }

    /// Returns the failure, if there has been one.
    fn take(&mut self) -> Option<Status> {
        self.0.take()?.try_recv().ok()
    }
}
