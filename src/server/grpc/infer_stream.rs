//! `ModelStreamInfer`: a stream of requests to one model, and the stream of its answers.
//!
//! The first request names the model, gives all answers their id, and decides whether they are raw. The others are read
//! when the model asks for them, so a model that is held back holds back the client.

use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use tokio::sync::oneshot;
use tonic::Code;

use super::message::Messages;
use super::status::Status;
use super::stream::MessageSource;
use super::{App, RequestBody, infer};
use crate::inference::{Admission, AnswerStream, ModelTarget};
use crate::registry::RegisteredModel;
use crate::server::priority;
use crate::types::protobuf::ProtobufRequest;
use crate::types::{InferenceRequest, TraceContext};

/// The answers to a stream of requests.
pub(super) struct StreamInfer<B> {
    app: Arc<App>,
    /// The requests, until the first of them has been read.
    unread: Option<(Messages<B>, HeaderMap)>,
    trace: Option<TraceContext>,
    open: Option<Open>,
    /// The headers of the last answer.
    trailers: HeaderMap,
}

/// A stream whose model is known.
struct Open {
    target: ModelTarget,
    raw: bool,
    answers: AnswerStream,
    failure: Failure,
}

impl<B: RequestBody> StreamInfer<B> {
    pub(super) fn new(app: Arc<App>, messages: Messages<B>, headers: HeaderMap, trace: Option<TraceContext>) -> Self {
        Self { app, unread: Some((messages, headers)), trace, open: None, trailers: HeaderMap::new() }
    }
}

impl<B: RequestBody> MessageSource for StreamInfer<B> {
    async fn next(&mut self) -> Option<Result<Vec<Bytes>, Status>> {
        if let Some((messages, headers)) = self.unread.take() {
            match open(&self.app, messages, headers, self.trace).await {
                Ok(open) => self.open = Some(open),
                Err(status) => return Some(Err(status)),
            }
        }
        let open = self.open.as_mut()?;
        let answer = tokio::select! {
            biased;
            status = open.failure.happens() => return Some(Err(status)),
            answer = open.answers.next() => answer,
        };
        match answer {
            Some(Ok(mut response)) => {
                self.trailers = infer::trailers(&self.app, &mut response, &open.target.model);
                Some(infer::write(&self.app, response, open.raw).await)
            }
            // A model that saw its requests end may end too, or fail, because one of them could not be read.
            Some(Err(error)) => Some(Err(open.failure.take().unwrap_or_else(|| error.into()))),
            None => open.failure.take().map(Err),
        }
    }

    fn trailers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.trailers)
    }
}

/// Reads the first request and asks its model for answers.
async fn open<B: RequestBody>(
    app: &Arc<App>,
    mut messages: Messages<B>,
    headers: HeaderMap,
    trace: Option<TraceContext>,
) -> Result<Open, Status> {
    let empty = || Status::new(Code::InvalidArgument, "the stream of requests is empty: expected at least one");
    let message = messages.next().await?.ok_or_else(empty)?;
    let ProtobufRequest { model_name, model_version, mut request, raw } = infer::read(app, message).await?;
    let target = app.inference.target(&model_name, model_version.as_deref())?;
    priority::give(&mut request, &headers)?;
    request.trace = trace;
    infer::give_headers(app, &mut request, &headers, &target.model);
    let (told, failure) = oneshot::channel();
    let id = request.id.clone();
    let reader = Reader {
        app: Arc::clone(app),
        messages,
        headers,
        model: Arc::clone(&target.model),
        id: id.clone(),
        failure: Some(told),
    };
    let requests = stream::iter([request]).chain(reader.requests());
    let answers = app.inference.infer_stream(&target, id, requests, Admission::new())?;
    Ok(Open { target, raw, answers, failure: Failure(Some(failure)) })
}

/// Reads the requests after the first.
struct Reader<B> {
    app: Arc<App>,
    messages: Messages<B>,
    headers: HeaderMap,
    model: Arc<RegisteredModel>,
    /// The first request's id, which all of them get.
    id: String,
    /// Where the first failure goes, which is also the end.
    failure: Option<oneshot::Sender<Status>>,
}

impl<B: RequestBody> Reader<B> {
    fn requests(self) -> impl Stream<Item = InferenceRequest> + Send {
        stream::unfold(self, |mut reader| async move {
            match reader.next().await {
                Ok(request) => Some((request?, reader)),
                Err(status) => {
                    if let Some(failure) = reader.failure.take() {
                        // Nobody listens when the answers have ended.
                        let _ = failure.send(status);
                    }
                    None
                }
            }
        })
    }

    async fn next(&mut self) -> Result<Option<InferenceRequest>, Status> {
        let Some(message) = self.messages.next().await? else { return Ok(None) };
        let mut request = infer::read(&self.app, message).await?.request;
        self.id.clone_into(&mut request.id);
        infer::give_headers(&self.app, &mut request, &self.headers, &self.model);
        Ok(Some(request))
    }
}

/// What was wrong with a request, once one was.
struct Failure(Option<oneshot::Receiver<Status>>);

impl Failure {
    /// Waits for a failure, which may never come.
    async fn happens(&mut self) -> Status {
        if let Some(receiver) = &mut self.0 {
            let told = receiver.await;
            self.0 = None;
            if let Ok(status) = told {
                return status;
            }
        }
        std::future::pending().await
    }

    /// Returns the failure if there was one.
    fn take(&mut self) -> Option<Status> {
        self.0.take()?.try_recv().ok()
    }
}
