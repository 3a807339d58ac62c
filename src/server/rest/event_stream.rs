//! The form of server-sent events (`text/event-stream`).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

/// Returns the headers of a response that consists of events.
pub(super) fn headers() -> HeaderMap {
    let content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
    [(CONTENT_TYPE, content_type), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))].into_iter().collect()
}

/// Frames a line of JSON, which contains no line breaks.
pub(super) fn data(text: &[u8]) -> Bytes {
    [b"data: ".as_slice(), text, b"\n\n"].concat().into()
}
