//! The one table from kinds of errors to gRPC codes.

use http::header::RETRY_AFTER;
use prost::DecodeError;
use tonic::Code;

use super::body::GrpcBody;
use super::status::Status;
use crate::access::{Refusal, RefusalKind};
use crate::admin::AdminError;
use crate::compute::ComputeError;
use crate::inference::InferenceError;
use crate::registry::RegisteredModel;
use crate::server::panic_boundary::RequestPanicked;
use crate::server::priority::PriorityError;
use crate::server::{BodyFailure, SlowBody, access_control};
use crate::types::protobuf::ReadError;
use crate::types::{OverBudget, RequestErrorKind, TensorError};

/// Returns the code of a kind of errors: the original's for the same HTTP status, if it has one.
const fn kind_code(kind: RequestErrorKind) -> Code {
    match kind {
        RequestErrorKind::NotFound | RequestErrorKind::Rejected { status: 404 } => Code::NotFound,
        // The original, too, answers INVALID_ARGUMENT for a model that is not ready.
        RequestErrorKind::NotReady
        | RequestErrorKind::BadRequest
        | RequestErrorKind::NothingRan
        | RequestErrorKind::Rejected { status: 400 } => Code::InvalidArgument,
        RequestErrorKind::BadRepository | RequestErrorKind::Rejected { status: 422 | 508 } => Code::FailedPrecondition,
        RequestErrorKind::OverBudget | RequestErrorKind::Overloaded | RequestErrorKind::TooLarge => {
            Code::ResourceExhausted
        }
        RequestErrorKind::Timeout => Code::DeadlineExceeded,
        RequestErrorKind::Stopping | RequestErrorKind::WorkerLost | RequestErrorKind::Unavailable => Code::Unavailable,
        RequestErrorKind::ModelFailed
        | RequestErrorKind::LoadFailed
        | RequestErrorKind::Internal
        | RequestErrorKind::Rejected { status: 500 } => Code::Internal,
        RequestErrorKind::Rejected { .. } => Code::Unknown,
    }
}

impl Status {
    /// Returns the status of a failed inference. Where 1.7.1 answers UNKNOWN, models of KServe have codes that say more.
    pub(super) fn of_inference(error: &InferenceError, model: &RegisteredModel) -> Self {
        let code = match error.kind() {
            RequestErrorKind::Rejected { status: 501 } if model.v1_handlers().is_some() => Code::Unimplemented,
            RequestErrorKind::Rejected { status: 503 } if model.v1_handlers().is_some() => Code::Unavailable,
            kind => kind_code(kind),
        };
        Self::new(code, error.to_string())
    }

    /// Returns the response to a call that access control refuses.
    pub(super) fn refused(refusal: Refusal) -> http::Response<GrpcBody> {
        let kind = refusal.kind();
        let mut response = Self::from(refusal).response();
        if let RefusalKind::Limited { retry_after } | RefusalKind::Unavailable { retry_after } = kind {
            response.headers_mut().insert(RETRY_AFTER, access_control::retry_after(retry_after));
        }
        response
    }

    /// Returns the status of a call whose request could not be received.
    pub(super) fn of_body(error: &BodyFailure) -> Self {
        let code = if error.is::<SlowBody>() { Code::DeadlineExceeded } else { Code::Cancelled };
        Self::new(code, format!("the request ended early: {error}"))
    }
}

impl From<InferenceError> for Status {
    fn from(error: InferenceError) -> Self {
        Self::new(kind_code(error.kind()), error.to_string())
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.kind() {
            RefusalKind::Unauthenticated { .. } => Code::Unauthenticated,
            RefusalKind::Forbidden { .. } => Code::PermissionDenied,
            RefusalKind::Limited { .. } => Code::ResourceExhausted,
            RefusalKind::Unavailable { .. } => Code::Unavailable,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<OverBudget> for Status {
    fn from(error: OverBudget) -> Self {
        Self::new(Code::ResourceExhausted, error.to_string())
    }
}

impl From<PriorityError> for Status {
    fn from(error: PriorityError) -> Self {
        Self::new(Code::InvalidArgument, error.to_string())
    }
}

impl From<AdminError> for Status {
    fn from(error: AdminError) -> Self {
        Self::new(kind_code(error.kind()), error.to_string())
    }
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        Self::new(Code::InvalidArgument, error.to_string())
    }
}

impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        Self::new(Code::InvalidArgument, format!("invalid message: {error}"))
    }
}

/// A response that cannot be encoded.
impl From<TensorError> for Status {
    fn from(error: TensorError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

impl From<RequestPanicked> for Status {
    fn from(panicked: RequestPanicked) -> Self {
        Self::new(Code::Internal, panicked.to_string())
    }
}

impl From<ComputeError> for Status {
    fn from(error: ComputeError) -> Self {
        Self::new(if error.is_overload() { Code::ResourceExhausted } else { Code::Internal }, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::NotFound;

    #[tokio::test]
    async fn grpc_code_is_defined_for_every_error_kind() {
        let panic = tokio::spawn(async { panic!("boom") }).await.unwrap_err();
        let not_found = || NotFound::Model { name: "m".to_owned() };
        let table: Vec<(Status, Code)> = vec![
            (ReadError::Malformed { offset: 0, expected: "a varint" }.into(), Code::InvalidArgument),
            (prost::Message::decode(b"\x08".as_slice()).map(|(): ()| ()).unwrap_err().into(), Code::InvalidArgument),
            (TensorError::TooLong { name: "o".to_owned(), index: 0, found: 1 << 32 }.into(), Code::Internal),
            (InferenceError::NotFound(not_found()).into(), Code::NotFound),
            (InferenceError::NotReady { name: "m".to_owned(), version: None }.into(), Code::InvalidArgument),
            (InferenceError::Overloaded { limit: 1 }.into(), Code::ResourceExhausted),
            (InferenceError::Deadline.into(), Code::DeadlineExceeded),
            (InferenceError::Stopping.into(), Code::Unavailable),
            (PriorityError { found: "high".to_owned() }.into(), Code::InvalidArgument),
            (AdminError::NotFound(not_found()).into(), Code::NotFound),
            (AdminError::Overloaded { limit: 1 }.into(), Code::ResourceExhausted),
            (AdminError::Stopping.into(), Code::Unavailable),
            (ComputeError::Panicked(panic).into(), Code::Internal),
            (ComputeError::Full { limit: 1 }.into(), Code::ResourceExhausted),
        ];
        for (status, code) in table {
            assert_eq!(status.code, code, "{status:?}");
        }
        assert_eq!(kind_code(RequestErrorKind::BadRequest), Code::InvalidArgument);
        assert_eq!(kind_code(RequestErrorKind::BadRepository), Code::FailedPrecondition);
        assert_eq!(kind_code(RequestErrorKind::LoadFailed), Code::Internal);
        assert_eq!(kind_code(RequestErrorKind::Internal), Code::Internal);
    }
}
