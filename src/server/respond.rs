//! Responses that all HTTP listeners share.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;

use crate::inference::Admission;

/// A response whose body is complete.
pub(super) type Response = http::Response<BodyChunks>;

/// A complete body in one or several chunks, which are sent without being joined.
#[derive(Debug, Clone, Default)]
pub struct BodyChunks {
    first: Bytes,
    /// Usually empty, which allocates nothing.
    others: std::vec::IntoIter<Bytes>,
}

impl BodyChunks {
    pub(super) fn new(first: impl Into<Bytes>, others: Vec<Bytes>) -> Self {
        Self { first: first.into(), others: others.into_iter() }
    }

    /// Creates a body from chunks without a distinguished first one.
    pub(super) fn from_all(chunks: Vec<Bytes>) -> Self {
        let mut others = chunks.into_iter();
        Self { first: others.next().unwrap_or_default(), others }
    }

    /// Keeps the admission of the request until the last chunk has been sent or dropped.
    pub(super) fn with_admission(mut self, admission: Admission) -> Self {
        let last = self.others.as_mut_slice().last_mut().unwrap_or(&mut self.first);
        *last = admission.attach(std::mem::take(last));
        self
    }

    /// Returns the chunks that have not been sent yet. Some may be empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(self.others.as_slice())
    }

    /// Returns the number of bytes that have not been sent yet.
    pub(super) fn len(&self) -> usize {
        self.iter().map(Bytes::len).sum()
    }
}

impl<T: Into<Bytes>> From<T> for BodyChunks {
    fn from(bytes: T) -> Self {
        Self::new(bytes, Vec::new())
    }
}

impl http_body::Body for BodyChunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let first = std::mem::take(&mut self.first);
        let chunk = std::iter::once(first).chain(self.others.by_ref()).find(|chunk| !chunk.is_empty());
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// The body of a response that is being sent.
pub enum ResponseBody {
    /// The complete body.
    Buffered(BodyChunks),
    /// The next chunk is produced when the connection has room for it.
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, ResponseAborted>> + Send>>),
}

/// A response that failed after its beginning had been sent. The connection, or the stream of HTTP/2, is reset, so that the client does
/// not take the part that it has for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response failed after its beginning had been sent")]
pub struct ResponseAborted;

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Buffered(BodyChunks::default())
    }
}

impl From<BodyChunks> for ResponseBody {
    fn from(chunks: BodyChunks) -> Self {
        Self::Buffered(chunks)
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseAborted>>> {
        match &mut *self {
            Self::Buffered(chunks) => Pin::new(chunks).poll_frame(context).map_err(|never| match never {}),
            Self::Stream(chunks) => {
                let chunk = ready!(chunks.as_mut().poll_next(context));
                Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered(chunks) => chunks.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered(chunks) => chunks.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Creates a response with a status and no body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

/// Creates a response from its status, headers and body.
pub(super) fn response(status: StatusCode, headers: HeaderMap, chunks: BodyChunks) -> Response {
    let mut response = Response::new(chunks);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Creates a response from text that is already JSON.
pub(super) fn json_text(status: StatusCode, mut headers: HeaderMap, text: Vec<u8>) -> Response {
    headers.insert(CONTENT_TYPE, JSON);
    response(status, headers, text.into())
}

/// Creates a response with a value as compact JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("plain data with string keys always serializes");
    json_text(status, HeaderMap::new(), text)
}

/// Creates a `{"error": …}` response, the one shape of every failure.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    json(status, &json!({ "error": message }))
}

/// Creates the response for an unknown path: 404, or a redirect to the path without its trailing slash. `path` is that of
/// `uri` without the root path.
pub(super) fn not_found(path: &str, uri: &Uri, root_path: &str) -> Response {
    let trimmed = path.trim_end_matches('/');
    let redirect = if trimmed.len() < path.len() { redirect(trimmed, uri, root_path) } else { None };
    redirect.unwrap_or_else(|| error(StatusCode::NOT_FOUND, &format!("no such path: {path}")))
}

/// Creates a redirect to another path, with the same query. `None` if the path is not a valid location.
pub(super) fn redirect(path: &str, uri: &Uri, root_path: &str) -> Option<Response> {
    if !path.starts_with('/') || names_host(path) {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::from_str(&format!("{root_path}{path}{query}")).ok()?;
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    Some(response)
}

/// Reports whether a browser may read a path as `//HOST`: `\` is a slash to it, and it drops tabs and line breaks. A proxy may have decoded
/// the path by then.
fn names_host(path: &str) -> bool {
    let mut bytes = percent_decode_str(path).filter(|byte| !matches!(byte, b'\t' | b'\r' | b'\n'));
    let is_slash = |byte| matches!(byte, Some(b'/' | b'\\'));
    is_slash(bytes.next()) && is_slash(bytes.next())
}

/// Creates the response for a path that is only served for other methods, which `allow` lists.
pub(super) fn method_not_allowed(method: &Method, uri: &Uri, allow: &str) -> Response {
    with_allow(error(StatusCode::METHOD_NOT_ALLOWED, &no_such_method(method, uri)), allow)
}

/// Returns the message for a path that is only served for other methods.
pub(super) fn no_such_method(method: &Method, uri: &Uri) -> String {
    format!("{} does not support {method}", uri.path())
}

/// Adds the methods of a path to a response.
pub(super) fn with_allow(mut response: Response, allow: &str) -> Response {
    if let Ok(allow) = HeaderValue::from_str(allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_redirects_only_to_this_host() {
        let location = |path: &str, root_path: &str| {
            let response = not_found(path, &"/any?q=1".parse().unwrap(), root_path);
            response.headers().get(LOCATION).map(|location| location.to_str().unwrap().to_owned())
        };
        assert_eq!(location("/v2/", ""), Some("/v2?q=1".to_owned()));
        assert_eq!(location("/a%2Fb\\c/", "/root"), Some("/root/a%2Fb\\c?q=1".to_owned()));
        for slash in ["/", "\\", "%2F", "%2f", "%5C", "%5c", "\t/", "%09/", "%0A%0D\\", "\n%5c"] {
            assert_eq!(location(&format!("/{slash}evil.com/"), ""), None, "{slash}");
        }
    }
}
