//! Replies of handlers, whole or in pieces while the handler makes them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::CallError;
use super::answer::{checked, inconsistent, invalid_response};
use super::frame::{Frame, FrameKind, OutgoingFrame};
use super::message::{self, CreditHead};
use super::pool::OpenCall;
use crate::runtimes::{CallReply, Progress, ReplyChunks, RuntimeError};

/// How many pieces of a reply the worker may send ahead of the reader.
pub(super) const CHUNKS_AHEAD: u32 = 8;

/// Credit is granted for so many pieces at a time, so that a stream of short ones needs fewer frames.
const GRANT: u32 = CHUNKS_AHEAD / 2;

/// The frames of a call to a handler. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct HandlerReply {
    pub(super) call: OpenCall,
    pub(super) frames: UnboundedReceiver<Result<Frame, CallError>>,
    pub(super) progress: Arc<dyn Progress>,
    /// How many pieces have been taken since credit was granted.
    pub(super) taken: u32,
}

impl HandlerReply {
    /// Waits for the reply, or its first piece.
    pub(super) async fn read(mut self) -> Result<CallReply, RuntimeError> {
        let Some(first) = self.next().await? else {
            return Err(RuntimeError::inconsistent("the worker ended a call of a handler without a reply"));
        };
        let reply = message::read_reply(&first).map_err(invalid_response)?;
        Ok(match first.kind {
            FrameKind::Chunk => CallReply { reply, rest: Some(self.rest()) },
            _ => reply.into(),
        })
    }

    /// Waits for the next frame with a part of the body. `None` after the last one.
    async fn next(&mut self) -> Result<Option<Frame>, RuntimeError> {
        let received = self.frames.recv().await.unwrap_or(Err(CallError::Stopping));
        let frame = received.inspect_err(|_| self.call.end())?;
        if frame.kind == FrameKind::Chunk {
            self.taken += 1;
            if self.taken == GRANT {
                self.taken = 0;
                let head = message::encode_head(&CreditHead { count: GRANT });
                self.call.send(OutgoingFrame::new(FrameKind::Credit, head).map_err(inconsistent)?);
            }
            return Ok(Some(frame));
        }
        self.call.end();
        let frame = checked(frame)?;
        if let Some(tokens) = message::read_usage(&frame) {
            self.progress.used(tokens);
        }
        Ok((frame.kind == FrameKind::Reply).then_some(frame))
    }

    fn rest(self) -> ReplyChunks {
        Box::pin(stream::unfold(Some(self), |reply| async {
            let mut reply = reply?;
            match reply.next().await {
                Ok(Some(frame)) => Some((piece(frame), Some(reply))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

fn piece(frame: Frame) -> Result<Bytes, RuntimeError> {
    match frame.kind {
        FrameKind::Chunk => Ok(frame.tail),
        _ => Err(RuntimeError::inconsistent("the worker sent a whole reply after the first piece of one")),
    }
}
