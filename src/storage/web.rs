//! One file of an HTTP server.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, LAST_MODIFIED, LOCATION, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::error::FetchError;
use super::part::{Part, PartBytes};
use super::selection::RemoteFile;
use super::transport::Transport;
use crate::http_client::{HttpStream, Url, take_credentials};
use crate::types::without_credentials;

const MAX_REDIRECTS: usize = 5;

/// One file of an HTTP server.
#[derive(Debug)]
pub(super) struct Web {
    pub transport: Transport,
    pub url: Url,
    /// Headers for the server that the URL names, and for no other: the user's, such as credentials.
    pub headers: HeaderMap,
    /// The server said that it can send parts.
    pub has_ranges: AtomicBool,
}

impl Web {
    /// Returns the file, whose size and entity tag may be unknown.
    pub(super) async fn look(&self) -> Result<RemoteFile, FetchError> {
        let key = percent_encoding::percent_decode_str(self.url.path()).decode_utf8_lossy().into_owned();
        let mut response = follow(&self.transport, &Method::HEAD, &self.url, &self.headers).await?;
        // Not all servers answer HEAD. The first byte tells as much, and a server without ranges sends all, of which nothing is read.
        if !response.status.is_success() {
            let mut headers = self.headers.clone();
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
            response = success(follow(&self.transport, &Method::GET, &self.url, &headers).await?).await?;
        }
        let text = |name: HeaderName| response.headers.get(name).and_then(|value| value.to_str().ok());
        let size = match response.status {
            StatusCode::PARTIAL_CONTENT => text(CONTENT_RANGE).and_then(|range| range.rsplit('/').next()?.parse().ok()),
            _ => text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        };
        let ranges = response.status == StatusCode::PARTIAL_CONTENT || text(ACCEPT_RANGES) == Some("bytes");
        self.has_ranges.store(ranges, Ordering::Relaxed);
        let etag = text(ETAG).or_else(|| text(LAST_MODIFIED)).map(str::to_owned);
        // A server that does not tell the length may have an empty file, which a read shows.
        Ok(RemoteFile { key, path: String::new(), size, etag, hash: None })
    }

    pub(super) async fn read(&self, file: &RemoteFile, range: Option<Range<u64>>) -> Result<Part, FetchError> {
        read_part(&self.transport, &self.url, &self.headers, file, range).await
    }
}

/// Opens a part of a file over HTTP.
pub(super) async fn read_part(
    transport: &Transport,
    url: &Url,
    headers: &HeaderMap,
    file: &RemoteFile,
    range: Option<Range<u64>>,
) -> Result<Part, FetchError> {
    let changed = || FetchError::Changed { key: file.key.clone() };
    let mut headers = headers.clone();
    let tag = file.etag.as_deref().filter(|tag| tag.starts_with('"'));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(IF_MATCH, tag);
    }
    let mut skip = 0;
    if let Some(range) = &range {
        let value = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        headers.insert(RANGE, HeaderValue::from_str(&value).map_err(|_| changed())?);
    }
    let response = follow(transport, &Method::GET, url, &headers).await?;
    let response = match response.status {
        StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => return Err(changed()),
        _ => success(response).await?,
    };
    // Without an entity tag that a server compares, the one of the answer shows a change.
    let text = |name: HeaderName| response.headers.get(name).and_then(|value| value.to_str().ok());
    if let (Some(expected), Some(found)) = (&file.etag, text(ETAG).or_else(|| text(LAST_MODIFIED)))
        && expected != found
    {
        return Err(changed());
    }
    if let Some(range) = range {
        match response.status {
            StatusCode::PARTIAL_CONTENT => {
                let start =
                    text(CONTENT_RANGE).and_then(|found| found.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
                if start != Some(range.start) {
                    return Err(changed());
                }
            }
            // The server has no ranges and sends all.
            _ => skip = range.start,
        }
    }
    let mut part = Part { hash: None, kept: None, bytes: PartBytes::Http(Box::new(response)) };
    if skip > 0 {
        part.skip(skip).await?;
    }
    Ok(part)
}

/// Sends a request and follows redirects of the server. Headers go to no other server.
///
/// # Errors
///
/// Fails if no response arrives, or a redirect is refused: from `https` to `http`, or to an address of a private network that the
/// user did not name.
pub(super) async fn follow(
    transport: &Transport,
    method: &Method,
    url: &Url,
    headers: &HeaderMap,
) -> Result<HttpStream, FetchError> {
    let mut at = url.clone();
    let mut headers = headers.clone();
    if let Some(credentials) = take_credentials(&mut at) {
        headers.insert(http::header::AUTHORIZATION, credentials);
    }
    for _ in 0..=MAX_REDIRECTS {
        let response = transport.send(method, &at, &headers, &Bytes::new()).await?;
        if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(response);
        }
        let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let shown = without_credentials(location.unwrap_or_default());
        let refused = |reason| FetchError::Redirect { target: shown.clone(), reason };
        let target = location.and_then(|location| at.join(location).ok());
        let target = target.filter(|target| matches!(target.scheme(), "http" | "https"));
        let target = target.ok_or_else(|| refused("it is not a valid address"))?;
        if at.scheme() == "https" && target.scheme() == "http" {
            return Err(refused("it is not encrypted"));
        }
        if target.host_str() != url.host_str() && is_internal(&target) {
            return Err(refused("it is an address of this machine or of a private network"));
        }
        if target.origin() != at.origin() {
            // What describes the part stays; everything else may be a credential.
            let kept =
                [RANGE, IF_MATCH].into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())));
            headers = kept.collect();
        }
        at = target;
    }
    Err(FetchError::Redirect { target: without_credentials(at.as_str()), reason: "there are more than 5 redirects" })
}

/// Reports whether a URL names this machine or a private network.
fn is_internal(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_private() || address.is_link_local() || address.is_unspecified()
        }
        Ok(IpAddr::V6(address)) => {
            let mapped = address.to_ipv4_mapped();
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || mapped
                    .is_some_and(|address| address.is_loopback() || address.is_private() || address.is_link_local())
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost") || host.ends_with(".internal"),
    }
}

/// Returns a response if it is a success, otherwise its status and the start of its body.
pub(super) async fn success(response: HttpStream) -> Result<HttpStream, FetchError> {
    const MAX_BODY: usize = 300;
    if response.status.is_success() {
        return Ok(response);
    }
    let status = response.status;
    let body = response.collect(64 << 10).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_BODY).collect();
    let is_text = !line.is_empty() && !line.starts_with('<');
    Err(FetchError::Status { status, body: is_text.then_some(line) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_to_private_networks_are_recognized() {
        let internal = [
            "http://127.0.0.1/x",
            "http://10.0.0.1",
            "https://192.168.1.1",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]:1/",
            "http://[fd00::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://localhost:8080",
            "http://metadata.google.internal/",
            "http://0.0.0.0/",
        ];
        for url in internal {
            assert!(is_internal(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["https://example.com", "http://8.8.8.8", "http://[2001:db8::1]/", "https://cdn-lfs.hf.co/x"] {
            assert!(!is_internal(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
