//! The status that ends a call: a code and a message, in headers.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tonic::Code;

use super::body::GrpcBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Characters that are sent as `%` and two digits, besides those that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The longest message, in bytes: it may contain names from the client, and clients reject long headers.
const MAX_MESSAGE: usize = 1024;

/// The error that a call ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: Cow<'static, str>,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// Adds the status to the headers that end a call.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(GRPC_STATUS, HeaderValue::from(self.code as i32));
        if self.code == Code::Unimplemented {
            // The protocol demands this header if a compression is unsupported.
            headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity,deflate,gzip"));
        }
        let message = utf8_percent_encode(shorten(&self.message), ESCAPED).to_string();
        if let Ok(message) = HeaderValue::try_from(message) {
            headers.insert(GRPC_MESSAGE, message);
        }
    }

    /// Returns the response of a call that failed before its first message.
    pub(super) fn response(&self) -> http::Response<GrpcBody> {
        let mut response = http::Response::new(GrpcBody::default());
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        self.write(response.headers_mut());
        response
    }
}

/// Adds the status of a successful call.
pub(super) fn write_ok(headers: &mut HeaderMap) {
    headers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
}

/// Truncates a message to [`MAX_MESSAGE`], at the end of a character.
fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE)]
}

/// Returns a code's name, as metrics and logs show it.
pub(super) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let response = Status::new(Code::Internal, text.to_owned()).response();
        response.headers()[GRPC_MESSAGE].to_str().unwrap().to_owned()
    }

    #[test]
    fn status_message_is_escaped_and_truncated() {
        assert_eq!(message("model `a b` not found"), "model `a b` not found");
        assert_eq!(message("100 %\r\nset-cookie: é"), "100 %25%0D%0Aset-cookie: %C3%A9");
        assert_eq!(message(&"é".repeat(1000)).len(), 6 * MAX_MESSAGE / 2);
        assert_eq!(message(&"a".repeat(1 << 20)).len(), MAX_MESSAGE);
    }

    #[test]
    fn status_codes_have_protocol_numbers_and_names() {
        for number in 0..17 {
            let code = Code::from(number);
            let response = Status::new(code, "").response();
            assert_eq!(response.headers()[GRPC_STATUS], number.to_string());
            let camel: String =
                code_name(code).split('_').map(|part| part[..1].to_owned() + &part[1..].to_lowercase()).collect();
            assert_eq!(camel, format!("{code:?}"));
        }
    }
}
