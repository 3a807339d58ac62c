//! The HTTP requests of all stores: one client per server, retries, and the hashes that responses tell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ETAG, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient as StoreClient, HttpConnector, HttpError as StoreHttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use parking_lot::Mutex;

use super::selection::ContentHash;
use crate::http_client::{BodyChunks, HttpClient, HttpError, HttpOptions, HttpStream, Url, server_name};
use crate::types::Backoff;

/// How often a read is continued that makes no progress.
pub(super) const ATTEMPTS: u32 = 8;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// The longest wait that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// How many servers have a client: those of a store, of its credentials, and of redirects.
const MAX_CLIENTS: usize = 64;
/// The longest body of a listing or of a token.
pub(super) const MAX_ANSWER: usize = 32 << 20;

/// How patiently requests are sent to stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a request is sent.
    attempts: u32,
    /// The longest time for all attempts at a request. `None` if only each of them has a limit.
    within: Option<Duration>,
}

impl RetryPolicy {
    /// For what is needed: an outage of some seconds passes unnoticed.
    pub const FETCH: Self = Self { attempts: 8, within: None };
    /// For commands that report what is wrong: they end within 10 s if a store does not respond.
    pub const LOOK: Self = Self { attempts: 3, within: Some(Duration::from_secs(6)) };
}

/// The retries of all transports of a process. Clones share what is known of servers.
#[derive(Debug, Clone)]
pub(super) struct Retries {
    policy: RetryPolicy,
    /// The servers that did not respond in the time of the policy, by their origins. They are not asked again.
    unreachable: Arc<Mutex<HashMap<String, HttpError>>>,
}

impl Retries {
    pub(super) fn new(policy: RetryPolicy) -> Self {
        Self { policy, unreachable: Arc::default() }
    }
}

/// Sends the requests of stores.
#[derive(Debug, Clone)]
pub(super) struct Transport(Arc<Clients>);

#[derive(Debug)]
struct Clients {
    options: HttpOptions,
    retries: Retries,
    /// By scheme, host and port.
    by_origin: Mutex<HashMap<String, HttpClient>>,
}

/// A failure after which the same request may succeed.
#[derive(Debug)]
pub(super) struct PassingFailure {
    /// How long the server asks to wait.
    pub(super) retry_after: Option<Duration>,
}

impl PassingFailure {
    /// Returns the failure of an answer, if another attempt may succeed.
    pub(super) fn of(answer: &Result<HttpStream, HttpError>) -> Option<Self> {
        match answer {
            Ok(response) if may_pass(response.status) => Some(Self { retry_after: retry_after(&response.headers) }),
            Err(HttpError::Connect { .. } | HttpError::TimedOut { .. } | HttpError::Lost { .. }) => {
                Some(Self { retry_after: None })
            }
            _ => None,
        }
    }
}

/// Marks a request for an object, whose body is counted where it is written. All other bodies are listings and tokens, which are
/// collected in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectRead;

/// A hash of the whole object that a response tells.
#[derive(Debug, Clone)]
pub(super) struct DeclaredHash(pub(super) ContentHash);

impl Transport {
    /// Creates a transport. The timeout of the options is the longest time without a byte.
    pub(super) fn new(mut options: HttpOptions, retries: Retries) -> Self {
        if let Some(within) = retries.policy.within {
            options.timeout = options.timeout.min(within);
            options.connect_timeout = options.connect_timeout.min(within);
        }
        Self(Arc::new(Clients { options, retries, by_origin: Mutex::default() }))
    }

    /// Sends a request, again after failures that may pass.
    ///
    /// # Errors
    ///
    /// Fails if the last attempt gets no response. A response with an error is a response.
    pub(super) async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<HttpStream, HttpError> {
        let Retries { policy, unreachable } = &self.0.retries;
        let Some(within) = policy.within else { return self.attempt(method, url, headers, body, None).await };
        let origin = url.origin().ascii_serialization();
        let known = unreachable.lock().get(&origin).cloned();
        if let Some(error) = known {
            return Err(error);
        }
        let answer = self.attempt(method, url, headers, body, Some(within)).await;
        if let Err(error @ (HttpError::Connect { .. } | HttpError::TimedOut { .. })) = &answer {
            unreachable.lock().insert(origin, error.clone());
        }
        answer
    }

    /// Sends a request as often as the policy permits, and ends after `within`.
    async fn attempt(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
        within: Option<Duration>,
    ) -> Result<HttpStream, HttpError> {
        let client = self.client(url)?;
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            let chunks = [body.clone()].into_iter().collect::<BodyChunks>();
            let sent = client.open(method.clone(), url, headers.clone(), chunks);
            let answer = match within {
                None => sent.await,
                Some(timeout) => tokio::time::timeout(timeout.saturating_sub(began.elapsed()), sent)
                    .await
                    .unwrap_or_else(|_| Err(HttpError::TimedOut { server: server_name(url), timeout })),
            };
            attempt += 1;
            let failure = match PassingFailure::of(&answer) {
                Some(failure) if attempt < self.0.retries.policy.attempts => failure,
                _ => return answer,
            };
            let pause = failure.retry_after.unwrap_or_else(|| Self::pause(attempt - 1));
            if within.is_some_and(|within| began.elapsed() + pause >= within) {
                return answer;
            }
            drop(answer);
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request once.
    ///
    /// # Errors
    ///
    /// Fails if it gets no response. A response with an error is a response.
    pub(super) async fn send_once(
        &self,
        method: &Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpStream, HttpError> {
        self.client(url)?.open(method.clone(), url, headers, [body].into_iter().collect()).await
    }

    /// Returns how long to wait after a failure that `earlier` others precede: between half of the back-off and all of it.
    pub(super) fn pause(earlier: u32) -> Duration {
        BACKOFF.after(earlier).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn client(&self, url: &Url) -> Result<HttpClient, HttpError> {
        let origin = url.origin().ascii_serialization();
        let mut clients = self.0.by_origin.lock();
        if let Some(client) = clients.get(&origin) {
            return Ok(client.clone());
        }
        let client = HttpClient::new(url, &self.0.options)?;
        if clients.len() == MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(origin, client.clone());
        Ok(client)
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, StoreHttpError> {
        let (head, body) = request.into_parts();
        let failed = |error: HttpError| StoreHttpError::new(HttpErrorKind::Unknown, error);
        let url =
            Url::parse(&head.uri.to_string()).map_err(|error| StoreHttpError::new(HttpErrorKind::Request, error))?;
        let body = body.collect().await?.to_bytes();
        let response = self.send(&head.method, &url, &head.headers, &body).await.map_err(failed)?;
        let mut answer = http::Response::new(());
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers.clone();
        // The tags of buckets of a single zone are not hashes.
        let has_hash = !url.host_str().is_some_and(|host| host.contains("s3express"));
        if let Some(hash) = declared_hash(response.status, &response.headers).filter(|_| has_hash) {
            answer.extensions_mut().insert(DeclaredHash(hash));
        }
        if head.extensions.get::<ObjectRead>().is_some() && response.status.is_success() {
            return Ok(answer.map(|()| HttpResponseBody::new(response.map_err(failed))));
        }
        let body = Limited::new(response, MAX_ANSWER).map_err(move |error| match error.downcast() {
            Ok(error) => failed(*error),
            Err(_) => failed(HttpError::TooLarge { limit: MAX_ANSWER }),
        });
        Ok(answer.map(|()| HttpResponseBody::new(body)))
    }
}

impl HttpConnector for Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<StoreClient> {
        Ok(StoreClient::new(self.clone()))
    }
}

impl HttpService for Transport {
    // The form of a function of the crate `async-trait`.
    fn call<'this, 'future>(
        &'this self,
        request: HttpRequest,
    ) -> BoxFuture<'future, Result<HttpResponse, StoreHttpError>>
    where
        'this: 'future,
        Self: 'future,
    {
        Box::pin(self.answer(request))
    }
}

/// Reports whether a later request may succeed.
const fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502..=504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Returns the hash of an object from the headers of its response, which may have a part of it.
fn declared_hash(status: StatusCode, headers: &HeaderMap) -> Option<ContentHash> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let md5 = |text: &str| Some(ContentHash::Md5(STANDARD.decode(text.trim()).ok()?.try_into().ok()?));
    // Google's; of all headers of this name, one has the MD5. Composite objects have none.
    let of_google = || {
        let values = headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).find_map(|part| md5(part.trim().strip_prefix("md5=")?))
    };
    // Azure's, for a part and for the whole.
    let of_azure = || text("x-ms-blob-content-md5").and_then(md5);
    let whole = || text("content-md5").filter(|_| status == StatusCode::OK).and_then(md5);
    // S3's entity tags are MD5 hashes, except those of objects in parts or encrypted with a key of the customer's.
    let of_amazon = || {
        let by_key = text("x-amz-server-side-encryption").is_some_and(|kind| kind.starts_with("aws:kms"));
        let is_amazon = ["x-amz-request-id", "x-amzn-requestid", "x-amz-id-2"].iter().any(|name| text(name).is_some());
        if by_key || !is_amazon || text("x-amz-server-side-encryption-customer-algorithm").is_some() {
            return None;
        }
        let digits = headers.get(ETAG)?.to_str().ok()?.trim_matches('"');
        let mut hash = [0; 16];
        read_hex(digits, &mut hash).then_some(ContentHash::Md5(hash))
    };
    of_google().or_else(of_azure).or_else(whole).or_else(of_amazon)
}

/// Reads hexadecimal digits, exactly as many as fill `bytes`.
pub(super) fn read_hex(digits: &str, bytes: &mut [u8]) -> bool {
    if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
        return false;
    }
    bytes.iter_mut().enumerate().all(|(index, byte)| {
        u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).is_ok_and(|value| {
            *byte = value;
            true
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn hashes_of_objects_are_read_from_responses() {
        const EMPTY: [u8; 16] = [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0, 0xb2, 4, 0xe9, 0x80, 9, 0x98, 0xec, 0xf8, 0x42, 0x7e];
        let (base64, hex) = ("1B2M2Y8AsgTpgAmY7PhCfg==", "\"d41d8cd98f00b204e9800998ecf8427e\"");
        let hash = |status, pairs: &[(&'static str, &'static str)]| {
            declared_hash(StatusCode::from_u16(status).unwrap(), &headers(pairs))
        };
        let found = Some(ContentHash::Md5(EMPTY));
        assert_eq!(
            hash(206, &[("x-goog-hash", "crc32c=AAAAAA=="), ("x-goog-hash", "md5=1B2M2Y8AsgTpgAmY7PhCfg==")]),
            found
        );
        assert_eq!(hash(206, &[("x-ms-blob-content-md5", base64)]), found);
        assert_eq!(hash(200, &[("content-md5", base64)]), found);
        assert_eq!(hash(206, &[("content-md5", base64)]), None, "that of the part");
        let amazon = ("x-amz-request-id", "1");
        assert_eq!(hash(206, &[amazon, ("etag", hex)]), found);
        assert_eq!(hash(206, &[amazon, ("etag", "\"d41d8cd98f00b204e9800998ecf8427e-2\"")]), None, "of several parts");
        for kind in ["aws:kms", "aws:kms:dsse"] {
            assert_eq!(hash(206, &[amazon, ("etag", hex), ("x-amz-server-side-encryption", kind)]), None);
        }
        assert_eq!(hash(200, &[amazon, ("etag", hex), ("x-amz-server-side-encryption", "AES256")]), found);
        assert_eq!(hash(200, &[("etag", hex)]), None, "of another server");
    }

    #[test]
    fn servers_say_when_to_ask_again() {
        let of = |text: &'static str| retry_after(&headers(&[("retry-after", text)]));
        assert_eq!(of("3"), Some(Duration::from_secs(3)));
        assert_eq!(of("86400"), Some(MAX_RETRY_AFTER));
        assert_eq!(of("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn waits_have_jitter_and_a_limit() {
        for earlier in 0..20 {
            let wait = Transport::pause(earlier);
            assert!(wait >= Duration::from_millis(100) && wait <= Duration::from_secs(10), "{earlier}: {wait:?}");
        }
    }
}
