//! Answers as a stream of server-sent events.
//!
//! One event for each answer, `data:` and the answer's JSON, as in the original; the answer's headers stay in its
//! `parameters.headers`. What fails before the first answer is an ordinary failure with its status. What fails later is an
//! event of its own, `event: error` with `{"error": …, "status": …}`, and the end of the stream.
//!
//! The next answer is made when the connection has room for it, so a client that reads slowly holds the model back, and a
//! client that leaves ends it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde_json::{Map, Value, json};

use super::errors::RequestError;
use super::infer::{self, Received};
use super::instrument::Observation;
use super::respond::ResponseBody;
use super::route::Route;
use super::{App, BodyFailure};
use crate::inference::{Admission, AnswerStream, ModelTarget};
use crate::types::json::BinaryOutputs;
use crate::types::{InferenceResponse, TraceContext};

/// A stream whose first event is there.
pub(super) struct Events {
    /// Nothing when the model has no answer at all.
    first: Option<Bytes>,
    target: ModelTarget,
    answers: AnswerStream,
}

/// Reads a request and asks the model for its first answer.
pub(super) async fn open<B>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
) -> Result<Events, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    // Events are text, so what the request says of binary outputs cannot be done.
    let Received { target, request, .. } = infer::read(app, route, headers, body, trace).await?;
    let id = request.id.clone();
    let mut answers = app.inference.infer_stream(&target, id, stream::iter([request]), Admission::new())?;
    let first = match answers.next().await {
        Some(answer) => Some(event(app, &target, answer?).await?),
        None => None,
    };
    Ok(Events { first, target, answers })
}

impl Events {
    /// Sends the events. The observation of the request ends with the last one.
    pub(super) fn respond(
        self,
        app: Arc<App>,
        observation: Option<Observation>,
        uri: Uri,
    ) -> http::Response<ResponseBody> {
        let Self { first, target, answers } = self;
        let later = Later { app, target, answers: Some(answers), observation, uri };
        let events = stream::iter(first).chain(stream::unfold(later, Later::next));
        let mut response = http::Response::new(ResponseBody::Stream(Box::pin(events)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

/// The events after the first.
struct Later {
    app: Arc<App>,
    target: ModelTarget,
    /// Nothing once one has failed.
    answers: Option<AnswerStream>,
    observation: Option<Observation>,
    uri: Uri,
}

impl Later {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let answer = match &mut self.answers {
            Some(answers) => answers.next().await,
            None => None,
        };
        let event = match answer {
            Some(Ok(answer)) => event(&self.app, &self.target, answer).await,
            Some(Err(error)) => Err(error.into()),
            None => {
                // The status was 200 whatever came after it.
                if let Some(observation) = self.observation {
                    observation.end(self.app.metrics.as_ref(), &self.uri, StatusCode::OK);
                }
                return None;
            }
        };
        let event = event.unwrap_or_else(|error| {
            self.answers = None;
            failure(&error)
        });
        Some((event, self))
    }
}

/// Writes an answer as an event, with its headers in the body.
async fn event(app: &App, target: &ModelTarget, mut answer: InferenceResponse) -> Result<Bytes, RequestError> {
    let of_model = answer.headers.drain().filter_map(|(name, value)| {
        let value = value.to_str().ok()?.to_owned();
        Some((name?.as_str().to_owned(), value))
    });
    let mut headers: Map<String, Value> = of_model.map(|(name, value)| (name, Value::from(value))).collect();
    let ours = app.cloud_events.in_body(&target.model, &answer.id);
    headers.extend(ours.map(|(name, value)| (name.to_owned(), Value::from(value))));
    answer.parameters.others.shift_insert(0, "headers".to_owned(), Value::Object(headers));
    Ok(data(&infer::write(app, answer, BinaryOutputs::default()).await?.json))
}

/// Writes a failure as an event; its status is the one that an answer would have had.
fn failure(error: &RequestError) -> Bytes {
    let text = json!({ "error": error.to_string(), "status": error.status().as_u16() }).to_string();
    [b"event: error\n", data(text.as_bytes()).as_ref()].concat().into()
}

/// Frames one line of JSON, which holds no line break of its own.
fn data(text: &[u8]) -> Bytes {
    [b"data: ".as_slice(), text, b"\n\n"].concat().into()
}
