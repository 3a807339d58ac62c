//! Requests of models in Python to other models: the steps of their open calls.

use std::sync::Arc;

use tracing::error;

use super::Pool;
use crate::runtimes::workers::frame::{Frame, OutgoingFrame};
use crate::runtimes::workers::message::{self, StepPayload, StepRequest};
use crate::runtimes::{RuntimeError, StepModel, Steps};
use crate::shutdown::catch_panic;

/// The maximum number of steps that one call may wait for at a time.
const MAX_STEPS: usize = 64;

impl Pool {
    /// Starts to answer a step of an open call. Does nothing if the call has ended.
    pub(super) fn receive_step(self: &Arc<Self>, worker: usize, frame: &Frame) {
        let id = frame.id;
        let request = match message::read_step(frame) {
            Ok(request) => request,
            Err(error) => {
                let reason = format!("the request to another model is invalid: {error}");
                if let Some(number) = message::step_number(frame) {
                    self.send_to_call(worker, id, message::step_error_frame(number, 500, &reason));
                } else {
                    error!("{}: {reason}", self.worker_name(worker));
                }
                return;
            }
        };
        let number = request.number;
        let mut state = self.state.lock();
        let Some(call) = state.dispatch.open_call_mut(worker, id) else { return };
        while call.steps.try_join_next().is_some() {}
        let refused = match call.progress.steps() {
            None => Some((
                500,
                "a model may call only models that it has declared, and only while it answers a request".into(),
            )),
            Some(_) if call.steps.len() >= MAX_STEPS => {
                Some((503, format!("the request already waits for {MAX_STEPS} answers of other models")))
            }
            Some(steps) => {
                let pool = Arc::clone(self);
                call.steps.spawn(async move {
                    let answer = catch_panic(answer(steps, request)).await.unwrap_or_else(|reason| {
                        error!(reason, "A request of a model to another one panicked. This is a bug in mlserver.");
                        message::step_error_frame(number, 500, "the server failed while handling the request")
                    });
                    pool.send_to_call(worker, id, answer);
                });
                None
            }
        };
        drop(state);
        if let Some((status, reason)) = refused {
            self.send_to_call(worker, id, message::step_error_frame(number, status, &reason));
        }
    }

    /// Sends a frame of an open call to its worker. Does nothing if the call has ended.
    fn send_to_call(&self, worker: usize, id: u64, frame: OutgoingFrame) {
        let state = self.state.lock();
        if state.dispatch.open_call(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            // Fails only if the connection has ended; the supervisor then ends the call.
            let _ = mailbox.send((id, frame));
        }
    }
}

/// Answers a step, and returns the frame with its response or error.
async fn answer(steps: Arc<dyn Steps>, request: StepRequest) -> OutgoingFrame {
    let StepRequest { number, model, payload } = request;
    let model = StepModel::new(model);
    let failed = |error: &RuntimeError| message::step_error_frame(number, steps.status(error), &error.to_string());
    let too_long =
        |error| failed(&RuntimeError::exception(format!("the answer is too long for a Python model: {error}")));
    match payload {
        StepPayload::Tensors(request) => match Arc::clone(&steps).infer(&model, *request).await {
            Ok(response) => message::step_response_frame(number, &response).unwrap_or_else(too_long),
            Err(error) => failed(&error),
        },
        StepPayload::V1 { headers, body } => match Arc::clone(&steps).predict_v1(model, headers, body).await {
            Ok(reply) => message::step_reply_frame(number, reply).unwrap_or_else(too_long),
            Err(error) => failed(&error),
        },
    }
}
