//! What the answers of workers mean, and the errors of calls.

use super::CallError;
use super::frame::{Frame, FrameError, FrameKind};
use super::message::{ErrorHead, FailureKind, MessageError};
use crate::runtimes::RuntimeError;
use crate::types::RequestErrorKind;

/// Returns the frame if it is an answer. If it is an error, returns it with its traceback.
pub(super) fn checked(frame: Frame) -> Result<Frame, RuntimeError> {
    if frame.kind != FrameKind::Error {
        return Ok(frame);
    }
    let failure: ErrorHead = frame.read_head().map_err(inconsistent)?;
    let ErrorHead { kind, message, status, traceback } = failure;
    Err(failure_error(kind, status, message).with_traceback(&traceback))
}

fn failure_error(kind: FailureKind, status: u16, message: String) -> RuntimeError {
    match kind {
        FailureKind::Mlserver => RuntimeError::rejected(status, message),
        FailureKind::Model => RuntimeError::exception(message),
        FailureKind::BadRequest => RuntimeError::invalid_request(message),
        FailureKind::Cancelled | FailureKind::Request | FailureKind::Unsupported => RuntimeError::inconsistent(message),
    }
}

/// Wraps the error of a frame that cannot be written or read, which is a bug of the server.
pub(super) fn inconsistent(error: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::inconsistent(error)
}

/// Returns the error for a request that does not fit in a frame.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn too_long(error: FrameError) -> RuntimeError {
    RuntimeError::invalid_request(format!(
        "the request is too long for a worker: {error}; send fewer inputs, parameters and headers, and shorter names"
    ))
}

/// Returns the error for a response that is not valid, because of the model's code or because of a bug.
pub(super) fn invalid_response(error: MessageError) -> RuntimeError {
    if error.is_of_model() { RuntimeError::exception(error.to_string()) } else { inconsistent(error) }
}

impl From<CallError> for RuntimeError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::WorkerLost(exit) => {
                Self::new(RequestErrorKind::WorkerLost, format!("the request was lost: {exit}"))
            }
            CallError::Lost { worker } => Self::new(
                RequestErrorKind::WorkerLost,
                format!("the request was lost: worker {worker} no longer knows it; this is a bug in mlserver"),
            ),
            // The reason may be an exception of `load`. The log and readiness have it.
            CallError::NoWorker { .. } => {
                Self::new(RequestErrorKind::Unavailable, "no worker of the model is running; the log has the reason")
            }
            CallError::Stopping => Self::stopping(),
        }
    }
}
