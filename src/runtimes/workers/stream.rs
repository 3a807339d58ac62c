//! Streams: the requests to `predict_stream`, and its answers.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::UnboundedReceiver;

use super::CallError;
use super::answer::{checked, inconsistent, invalid_response, too_long};
use super::dispatch::CallTarget;
use super::frame::{Frame, FrameKind, OutgoingFrame};
use super::message::{self, CreditHead, StreamHead};
use super::model::WorkerModel;
use super::pool::OpenCall;
use crate::runtimes::{Progress, RequestStream, ResponseStream, RuntimeError};
use crate::types::{InferenceRequest, InferenceResponse};

/// How many answers the model may produce ahead of the reader.
const AHEAD: u32 = 4;

/// The answers of a stream. Dropping it cancels the stream.
pub(super) struct AnswerStream {
    _model: Arc<WorkerModel>,
    call: OpenCall,
    frames: UnboundedReceiver<Result<Frame, CallError>>,
    /// `None` once the client has sent its last request.
    requests: Option<RequestStream>,
    /// The request that opened the stream, until it has been sent.
    first: Option<InferenceRequest>,
    /// How many further requests the model accepts now.
    credit: u32,
}

impl AnswerStream {
    /// Opens a stream of `model`, and returns its answers to `requests`.
    pub(super) fn open(
        model: Arc<WorkerModel>,
        mut requests: RequestStream,
        progress: Arc<dyn Progress>,
    ) -> ResponseStream {
        let opened = async move {
            let first = requests.next().await.ok_or_else(RuntimeError::no_request)?;
            model.check_ready()?;
            let head = StreamHead { model: model.number, request: &first.id, credit: AHEAD };
            let frame = OutgoingFrame::new(FrameKind::Stream, message::encode_head(&head)).map_err(too_long)?;
            let target = CallTarget { model: model.number, plain: false, priority: first.priority };
            let (call, frames) = model.pool.open(target, frame, progress)?;
            Ok::<_, RuntimeError>(Self {
                _model: model,
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

    /// Waits for the next answer while it sends requests.
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
                        FrameKind::Answer => {
                            let credit = OutgoingFrame::new(FrameKind::Credit, message::encode_head(&CreditHead { count: 1 }));
                            self.call.send(credit.map_err(inconsistent)?);
                            return message::read_response(&frame).map(Some).map_err(invalid_response);
                        }
                        FrameKind::Credit => {
                            let CreditHead { count } = frame.read_head().map_err(inconsistent)?;
                            self.credit = self.credit.saturating_add(count);
                        }
                        _ => {
                            self.call.end();
                            checked(frame)?;
                            return Ok(None);
                        }
                    }
                }
                request = next_request(&mut self.requests), if may_send => {
                    if let Some(request) = request {
                        self.send(&request)?;
                    } else {
                        self.requests = None;
                        self.call.send(OutgoingFrame::empty(FrameKind::End));
                    }
                }
            }
        }
    }

    fn send(&mut self, request: &InferenceRequest) -> Result<(), RuntimeError> {
        self.credit -= 1;
        self.call.send(message::request_frame(FrameKind::Item, None, request).map_err(too_long)?);
        Ok(())
    }
}

/// Waits for the next request. Never completes if `requests` is `None`.
async fn next_request(requests: &mut Option<RequestStream>) -> Option<InferenceRequest> {
    match requests {
        Some(requests) => requests.next().await,
        None => std::future::pending().await,
    }
}
