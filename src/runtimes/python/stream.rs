//! Streams: requests on their way to `predict_stream`, and its answers.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::CallError;
use super::frame::{Frame, Kind, Outgoing};
use super::message::{self, Credit, OpenStream};
use super::model::{PythonModel, inconsistent};
use super::pool::OpenCall;
use crate::runtimes::{RequestStream, ResponseStream, RuntimeError};
use crate::types::{InferenceRequest, InferenceResponse};

/// How many answers the model may make ahead of their reader.
const AHEAD: u32 = 4;

/// The answers of a stream. Dropping it cancels the stream.
pub(super) struct Answers {
    model: Arc<PythonModel>,
    id: String,
    call: OpenCall,
    frames: UnboundedReceiver<Result<Frame, CallError>>,
    /// Nothing once the client has sent its last.
    requests: Option<RequestStream>,
    /// The request that opened the stream, until the model takes it.
    first: Option<InferenceRequest>,
    /// How many further requests the model takes now.
    credit: u32,
}

impl Answers {
    /// Asks `model` for the answers to `requests`.
    pub(super) fn of(model: Arc<PythonModel>, mut requests: RequestStream) -> ResponseStream {
        let opened = async move {
            let first = requests.next().await.ok_or_else(RuntimeError::no_request)?;
            model.check_ready()?;
            let head = OpenStream { model: model.number, request: &first.id, credit: AHEAD };
            let frame = Outgoing::new(Kind::Stream, message::head(&head)).map_err(inconsistent)?;
            let (call, frames) = model.pool.open(model.number, first.priority, frame)?;
            let id = first.id.clone();
            Ok::<_, RuntimeError>(Self {
                model,
                id,
                call,
                frames,
                requests: Some(requests),
                first: Some(first),
                credit: 0,
            })
        };
        let answers = stream::once(opened).flat_map(|opened| match opened {
            Ok(answers) => stream::unfold(Some(answers), |answers| async {
                let mut answers = answers?;
                match answers.next().await {
                    Ok(Some(answer)) => Some((Ok(answer), Some(answers))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), None)),
                }
            })
            .left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        });
        Box::pin(answers)
    }

    /// Waits for the next answer, and sends requests meanwhile.
    async fn next(&mut self) -> Result<Option<InferenceResponse>, RuntimeError> {
        loop {
            if self.credit > 0
                && let Some(first) = self.first.take()
            {
                self.send(&first)?;
            }
            let may_send = self.credit > 0;
            tokio::select! {
                biased;
                frame = self.frames.recv() => {
                    let frame = frame.unwrap_or(Err(CallError::Stopping)).inspect_err(|_| self.call.end())?;
                    match frame.kind {
                        Kind::Answer => {
                            let credit = Outgoing::new(Kind::Credit, message::head(&Credit { count: 1 }));
                            self.call.send(credit.map_err(inconsistent)?);
                            return message::response(&frame).map(Some).map_err(inconsistent);
                        }
                        Kind::Credit => {
                            let Credit { count } = frame.read().map_err(inconsistent)?;
                            self.credit = self.credit.saturating_add(count);
                        }
                        _ => {
                            self.call.end();
                            self.model.outcome(&self.id, frame)?;
                            return Ok(None);
                        }
                    }
                }
                request = next_of(&mut self.requests), if may_send => {
                    if let Some(request) = request {
                        self.send(&request)?;
                    } else {
                        self.requests = None;
                        self.call.send(Outgoing::bare(Kind::End));
                    }
                }
            }
        }
    }

    fn send(&mut self, request: &InferenceRequest) -> Result<(), RuntimeError> {
        self.credit -= 1;
        self.call.send(message::request(Kind::Item, None, request).map_err(inconsistent)?);
        Ok(())
    }
}

/// Waits for the next request, for ever when there are no more.
async fn next_of(requests: &mut Option<RequestStream>) -> Option<InferenceRequest> {
    match requests {
        Some(requests) => requests.next().await,
        None => std::future::pending().await,
    }
}
