//! The client of OpenAI's API, for batch files whose lines are its requests.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use serde::de::IgnoredAny;
use tokio::sync::OnceCell;

use super::rest::{self, IDS, JSON};
use super::{Endpoint, FailureKind, Observer, RequestFailure, TransportOptions};
use crate::http_client::{BodyChunks, HttpClient, HttpResponse, Url};

/// The path of this server's routes, unless its settings name another.
const DEFAULT_BASE: &str = "/openai";
/// The version that all routes have, which batch files name and addresses may end with.
const VERSION: &str = "/v1";
/// The route that lists models, which every server of this API has.
const MODELS: &str = "/v1/models";

/// A server of OpenAI's API.
pub struct OpenAiClient {
    client: HttpClient,
    endpoint: Endpoint,
    /// The path in front of `/v1`.
    base: OnceCell<String>,
    headers: HeaderMap,
    observer: Arc<dyn Observer>,
}

/// A request of a batch file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiRequest {
    /// Sent as `x-request-id`.
    pub id: String,
    /// Starts with `/v1/`, and needs no escaping.
    pub path: String,
    /// A JSON object.
    pub body: Bytes,
}

/// What a server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiAnswer {
    pub status: u16,
    /// The request's id in the server's log.
    pub request_id: String,
    /// JSON in one line.
    pub body: String,
}

impl OpenAiClient {
    /// Creates the client of the server at `options.endpoint`, whose path may end with `/v1`. Without a path, the routes are below
    /// `/openai` if the server has them there.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new(options: TransportOptions, observer: Arc<dyn Observer>) -> Result<Self, RequestFailure> {
        let (client, mut headers) = (options.client(options.http2)?, options.headers());
        headers.entry(CONTENT_TYPE).or_insert(JSON);
        let endpoint = options.endpoint;
        let base = match endpoint.path() {
            "" => OnceCell::new(),
            path => OnceCell::new_with(Some(path.strip_suffix(VERSION).unwrap_or(path).to_owned())),
        };
        Ok(Self { client, endpoint, base, headers, observer })
    }

    /// Sends a request once.
    ///
    /// # Errors
    ///
    /// Fails if the server has no answer, or answers with the status of a failure, which the error has.
    pub async fn send(&self, request: &OpenAiRequest) -> Result<OpenAiAnswer, RequestFailure> {
        let url = self.url(&request.path).await?;
        let mut headers = self.headers.clone();
        rest::add_ids(&mut headers, &request.id);
        rest::show(&*self.observer, '>', &headers, &request.body);
        let body = std::iter::once(request.body.clone()).collect();
        let answer = self.client.send(Method::POST, &url, headers, body).await?;
        rest::show(&*self.observer, '<', &answer.headers, &answer.body);
        received(&answer, &url, &request.id)
    }

    /// Checks that the server has the API and accepts the key.
    ///
    /// # Errors
    ///
    /// Fails if no request would be answered, regardless of its content.
    pub async fn check_available(&self) -> Result<(), RequestFailure> {
        let url = self.url(MODELS).await?;
        let answer = self.client.send(Method::GET, &url, self.headers.clone(), BodyChunks::default()).await?;
        // A key may be allowed to use models and not to list them.
        if [StatusCode::OK, StatusCode::FORBIDDEN].contains(&answer.status) {
            return Ok(());
        }
        match rest::failure(&answer, &url) {
            failure if failure.kind == FailureKind::Rejected => Ok(()),
            failure => Err(failure),
        }
    }

    async fn url(&self, path: &str) -> Result<Url, RequestFailure> {
        let base = self.base.get_or_try_init(|| self.find_base()).await?;
        Ok(self.endpoint.with_path(&format!("{base}{path}")))
    }

    /// Asks the server whether it has the routes of this server, and returns the path in front of `/v1`.
    async fn find_base(&self) -> Result<String, RequestFailure> {
        let url = self.endpoint.with_path(&format!("{DEFAULT_BASE}{MODELS}"));
        let answer = self.client.send(Method::GET, &url, self.headers.clone(), BodyChunks::default()).await?;
        let is_absent = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&answer.status);
        Ok(if is_absent { String::new() } else { DEFAULT_BASE.to_owned() })
    }
}

/// Returns the answer in a response to the request `id`, or the failure that its status means.
fn received(response: &HttpResponse, url: &Url, id: &str) -> Result<OpenAiAnswer, RequestFailure> {
    let body = json_line(&response.body);
    let request_id = response.headers.get(&IDS[0]).and_then(|value| value.to_str().ok()).unwrap_or(id).to_owned();
    let answer = body.map(|body| OpenAiAnswer { status: response.status.as_u16(), request_id, body });
    if response.status == StatusCode::OK {
        return answer.ok_or_else(|| RequestFailure::unreadable("its body is not JSON"));
    }
    let mut failure = rest::failure(response, url);
    if response.status == StatusCode::NOT_IMPLEMENTED {
        // KServe refuses a single request with it, such as one with tokens instead of text.
        (failure.kind, failure.message) = (FailureKind::Rejected, rest::message(&response.body));
    }
    failure.answer = answer.map(Box::new);
    Err(failure)
}

/// Returns JSON without its line breaks, or `None` if it is another text.
fn json_line(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<IgnoredAny>(body).ok()?;
    // There are none within the strings of JSON.
    let line = body.trim_ascii().iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    String::from_utf8(line).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn response(status: u16, body: &'static str) -> HttpResponse {
        let mut headers = HeaderMap::new();
        headers.insert(IDS[0].clone(), HeaderValue::from_static("theirs"));
        let (status, body) = (StatusCode::from_u16(status).unwrap(), Bytes::from_static(body.as_bytes()));
        HttpResponse { status, headers, body, trailers: HeaderMap::new() }
    }

    fn read(status: u16, body: &'static str) -> Result<OpenAiAnswer, RequestFailure> {
        received(&response(status, body), &Url::parse("http://h/").unwrap(), "ours")
    }

    #[test]
    fn openai_answers_are_kept_as_they_are_in_one_line() {
        let answer = read(200, "{\n  \"a\": 1e400,\r\n  \"b\": \"x\\ny\"\n}\n").unwrap();
        assert_eq!(answer.body, r#"{  "a": 1e400,  "b": "x\ny"}"#);
        assert_eq!((answer.status, answer.request_id.as_str()), (200, "theirs"));
        assert_eq!(read(200, "<html>").unwrap_err().message, "cannot read the server's response: its body is not JSON");
    }

    #[test]
    fn openai_failures_have_their_answer() {
        let failure = read(404, r#"{"error":{"message":"no model `x`","code":"model_not_found"}}"#).unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::AllRequests, "no model `x`"));
        assert_eq!(failure.answer.unwrap().status, 404);
        let failure = read(501, r#"{"error":"tokens"}"#).unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Rejected, "tokens"));
        assert_eq!(read(502, "<html>").unwrap_err().answer, None, "a proxy has answered");
    }
}
