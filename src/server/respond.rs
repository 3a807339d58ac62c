//! Answers that every HTTP server of ours gives alike.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use serde_json::json;

use crate::inference::Admission;

/// An answer whose body is there as a whole.
pub(super) type Response = http::Response<BodyChunks>;

/// A body that is there as a whole, in one part or several, which are sent as they are.
#[derive(Debug, Clone, Default)]
pub struct BodyChunks {
    first: Bytes,
    /// Mostly none, which allocates nothing.
    others: std::vec::IntoIter<Bytes>,
}

impl BodyChunks {
    pub(super) fn new(first: impl Into<Bytes>, others: Vec<Bytes>) -> Self {
        Self { first: first.into(), others: others.into_iter() }
    }

    /// Takes parts that are all alike.
    pub(super) fn from_all(parts: Vec<Bytes>) -> Self {
        let mut others = parts.into_iter();
        Self { first: others.next().unwrap_or_default(), others }
    }

    /// Keeps the admission of the request until the last part has been sent or dropped.
    pub(super) fn with_admission(mut self, admission: Admission) -> Self {
        let last = self.others.as_mut_slice().last_mut().unwrap_or(&mut self.first);
        *last = admission.attach(std::mem::take(last));
        self
    }

    /// Returns the parts that are not sent yet, of which some may be empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(self.others.as_slice())
    }

    /// Returns the number of bytes that are not sent yet.
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
        let part = std::iter::once(first).chain(self.others.by_ref()).find(|part| !part.is_empty());
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// The body of an answer on its way to the client.
pub enum ResponseBody {
    /// Everything is there already.
    Whole(BodyChunks),
    /// The next part is made when the connection has room for it.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Whole(BodyChunks::default())
    }
}

impl From<BodyChunks> for ResponseBody {
    fn from(parts: BodyChunks) -> Self {
        Self::Whole(parts)
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(parts) => Pin::new(parts).poll_frame(context),
            Self::Stream(parts) => {
                let part = ready!(parts.as_mut().poll_next(context));
                Poll::Ready(part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(parts) => parts.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(parts) => parts.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers with a status and nothing else.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

/// Answers with a body and all its headers.
pub(super) fn whole(status: StatusCode, headers: HeaderMap, parts: BodyChunks) -> Response {
    let mut response = Response::new(parts);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Answers with text that is JSON already.
pub(super) fn json_text(status: StatusCode, mut headers: HeaderMap, text: Vec<u8>) -> Response {
    headers.insert(CONTENT_TYPE, JSON);
    whole(status, headers, text.into())
}

/// Answers with a value as compact JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("plain data with string keys always serializes");
    json_text(status, HeaderMap::new(), text)
}

/// Answers `{"error": …}`, the one shape of every failure.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    json(status, &json!({ "error": message }))
}

/// Answers a path that is not served: without its trailing slash it might be. `path` is that of `uri` without the root path.
pub(super) fn not_found(path: &str, uri: &Uri, root_path: &str) -> Response {
    let trimmed = path.trim_end_matches('/');
    let redirect = if trimmed.len() < path.len() { redirect(trimmed, uri, root_path) } else { None };
    redirect.unwrap_or_else(|| error(StatusCode::NOT_FOUND, &format!("there is nothing at {path}")))
}

/// Sends the client to another path, with the same query.
pub(super) fn redirect(path: &str, uri: &Uri, root_path: &str) -> Option<Response> {
    // Two slashes in front would name another host.
    if !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::from_str(&format!("{root_path}{path}{query}")).ok()?;
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    Some(response)
}

/// Answers a path that is served for other methods, which `allow` lists.
pub(super) fn method_not_allowed(method: &Method, uri: &Uri, allow: &str) -> Response {
    let message = format!("{} does not answer {method}", uri.path());
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &message);
    if let Ok(allow) = HeaderValue::from_str(allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}
