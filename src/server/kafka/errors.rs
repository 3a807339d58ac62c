//! The one table from errors to what happens with a record.

use http::StatusCode;

use crate::compute::ComputeError;
use crate::inference::InferenceError;
use crate::server::deadline::DeadlineError;
use crate::server::panic_boundary::RequestPanicked;
use crate::server::payload::PayloadError;
use crate::server::priority::PriorityError;
use crate::server::status;
use crate::types::json::{ReadError, WriteError};
use crate::types::{OverBudget, RequestErrorKind, TensorError, protobuf};

/// All errors that end an attempt at a record.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    /// In the original's words.
    #[error(
        "Invalid Kafka message. Expected 'mlserver-model' header not found in message. Send the header, or name the model of \
         the topic in `kafka_topic_models`."
    )]
    NoModel,
    #[error("the record has no value, so it contains no request")]
    NoValue,
    #[error("the header `mlserver-method` is `{found}`, expected `infer`")]
    Method { found: String },
    #[error(
        "the header `content-encoding` is `{found}`: send the value as it is; Kafka compresses it (`compression.type`)"
    )]
    Encoding { found: String },
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Protobuf(#[from] protobuf::ReadError),
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
    #[error(transparent)]
    Priority(#[from] PriorityError),
    #[error(transparent)]
    Inference(#[from] InferenceError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A response that has no form in protobuf.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Panicked(#[from] RequestPanicked),
}

impl From<OverBudget> for RecordError {
    fn from(error: OverBudget) -> Self {
        Self::Inference(error.into())
    }
}

/// What happens with a record after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server or the model cannot answer now: it is tried again, however long that takes.
    Wait,
    /// The model failed: it is tried again, `kafka_max_attempts` times in all.
    Retry,
    /// It cannot be answered: it becomes a dead letter.
    DeadLetter,
    /// The server stops: it is read again later, by this server or another one.
    Abandon,
}

impl RecordError {
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Inference(error) if error.is_unavailable() => Verdict::Wait,
            Self::Inference(error) if error.is_deadline() => Verdict::DeadLetter,
            Self::Inference(error) => kind_verdict(error.kind()),
            Self::Compute(error) if error.is_overload() => Verdict::Wait,
            Self::Compute(_) | Self::Panicked(_) => Verdict::Retry,
            Self::NoModel
            | Self::NoValue
            | Self::Method { .. }
            | Self::Encoding { .. }
            | Self::Payload(_)
            | Self::Read(_)
            | Self::Protobuf(_)
            | Self::Deadline(_)
            | Self::Priority(_)
            | Self::Write(_)
            | Self::Tensor(_) => Verdict::DeadLetter,
        }
    }

    /// Reports whether the process that ran the model has ended, perhaps because of another request.
    pub(super) fn is_worker_lost(&self) -> bool {
        matches!(self, Self::Inference(error) if error.kind() == RequestErrorKind::WorkerLost)
    }

    /// Returns the status of the same error over REST.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Encoding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Payload(error) => status::of_payload(error),
            Self::Read(ReadError::ParametersTooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Read(error) if error.is_mismatch() => StatusCode::BAD_REQUEST,
            Self::NoModel | Self::NoValue | Self::Method { .. } | Self::Read(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Protobuf(_) | Self::Deadline(_) | Self::Priority(_) => StatusCode::BAD_REQUEST,
            Self::Inference(error) => error.kind().http_status(),
            Self::Compute(error) if error.is_overload() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Compute(_) | Self::Write(_) | Self::Tensor(_) | Self::Panicked(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

const fn kind_verdict(kind: RequestErrorKind) -> Verdict {
    match kind {
        RequestErrorKind::NotReady | RequestErrorKind::OverBudget | RequestErrorKind::Overloaded => Verdict::Wait,
        RequestErrorKind::Stopping => Verdict::Abandon,
        RequestErrorKind::NotFound
        | RequestErrorKind::BadRequest
        | RequestErrorKind::NothingRan
        | RequestErrorKind::TooLarge
        | RequestErrorKind::Rejected { status: 400..=428 | 430..=499 } => Verdict::DeadLetter,
        RequestErrorKind::BadRepository
        | RequestErrorKind::LoadFailed
        | RequestErrorKind::Timeout
        | RequestErrorKind::Rejected { .. }
        | RequestErrorKind::ModelFailed
        | RequestErrorKind::WorkerLost
        | RequestErrorKind::Unavailable
        | RequestErrorKind::Internal => Verdict::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::NotFound;

    #[test]
    fn verdict_and_status_are_defined_for_every_error() {
        let table: Vec<(RecordError, Verdict, u16)> = vec![
            (RecordError::NoModel, Verdict::DeadLetter, 422),
            (RecordError::NoValue, Verdict::DeadLetter, 422),
            (RecordError::Encoding { found: "gzip".to_owned() }, Verdict::DeadLetter, 415),
            (PayloadError::ContentType { found: "text/plain".to_owned() }.into(), Verdict::DeadLetter, 422),
            (ReadError::Missing { path: "inputs".to_owned() }.into(), Verdict::DeadLetter, 422),
            (ReadError::Ragged { input: "x".to_owned(), index: 0 }.into(), Verdict::DeadLetter, 400),
            (InferenceError::NotFound(NotFound::Model { name: "m".to_owned() }).into(), Verdict::DeadLetter, 404),
            (InferenceError::NotReady { name: "m".to_owned(), version: None }.into(), Verdict::Wait, 400),
            (InferenceError::Overloaded { limit: 1 }.into(), Verdict::Wait, 503),
            (OverBudget::InUse { in_use: 2, limit: 3 }.into(), Verdict::Wait, 503),
            (OverBudget::TooLarge { bytes: 4, limit: 3 }.into(), Verdict::DeadLetter, 413),
            (InferenceError::Deadline.into(), Verdict::DeadLetter, 504),
            (InferenceError::PredictTimeout { limit: std::time::Duration::ZERO }.into(), Verdict::Retry, 504),
            (InferenceError::Stopping.into(), Verdict::Abandon, 503),
            (ComputeError::Full { limit: 1 }.into(), Verdict::Wait, 503),
            (RequestPanicked.into(), Verdict::Retry, 500),
        ];
        for (error, verdict, status) in table {
            assert_eq!((error.verdict(), error.status().as_u16()), (verdict, status), "{error:?}");
        }
        assert_eq!(kind_verdict(RequestErrorKind::Rejected { status: 400 }), Verdict::DeadLetter);
        assert_eq!(kind_verdict(RequestErrorKind::Rejected { status: 429 }), Verdict::Retry);
        assert_eq!(kind_verdict(RequestErrorKind::Rejected { status: 500 }), Verdict::Retry);
        assert_eq!(kind_verdict(RequestErrorKind::WorkerLost), Verdict::Retry);
    }
}
