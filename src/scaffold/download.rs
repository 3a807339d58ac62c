//! Downloads templates.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::source::MAX_BYTES;
use crate::http_client::{BodyChunks, HttpClient, HttpError, HttpOptions, Url, take_credentials};
use crate::types::without_credentials;

/// The timeout for each response, in full.
const TIMEOUT: Duration = Duration::from_mins(2);
const MAX_REDIRECTS: usize = 5;

/// Why a template cannot be downloaded. The URLs are without user name and password.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("invalid URL `{url}`: {reason}")]
    Url { url: String, reason: String },
    #[error("cannot download `{url}`: the server answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("cannot download `{url}`: it redirects to `{target}`, which is not encrypted")]
    Downgrade { url: String, target: String },
    #[error("cannot download `{url}`: it redirects without a valid address")]
    Redirect { url: String },
    #[error("cannot download `{url}`: more than {MAX_REDIRECTS} redirects")]
    Redirects { url: String },
    #[error("cannot download `{url}`")]
    Http { url: String, source: HttpError },
    #[error("cannot start a download")]
    Runtime(#[source] std::io::Error),
}

/// Reports whether a template is a URL.
pub(super) fn is_url(template: &str) -> bool {
    let scheme = template.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| scheme == "http" || scheme == "https")
}

/// Downloads a file of at most 64 MiB. Redirects are followed, but never from `https` to `http`.
pub(super) fn download(url: &str) -> Result<Bytes, DownloadError> {
    let shown = without_credentials(url);
    let invalid = |reason| DownloadError::Url { url: shown, reason };
    let url = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DownloadError::Runtime)?;
    runtime.block_on(follow(url))
}

async fn follow(mut url: Url) -> Result<Bytes, DownloadError> {
    let mut authorization = take_credentials(&mut url);
    for _ in 0..=MAX_REDIRECTS {
        let response = get(&url, authorization.clone()).await?;
        let name = url.to_string();
        match response.status {
            StatusCode::OK => return Ok(response.body),
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {}
            status => return Err(DownloadError::Status { url: name, status }),
        }
        let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let target = location.and_then(|location| url.join(location).ok());
        let Some(mut target) = target.filter(|target| is_url(target.as_str())) else {
            return Err(DownloadError::Redirect { url: name });
        };
        let credentials = take_credentials(&mut target);
        if url.scheme() == "https" && target.scheme() != "https" {
            return Err(DownloadError::Downgrade { url: name, target: target.to_string() });
        }
        // Another server must not see the credentials of this one.
        authorization = credentials.or_else(|| authorization.filter(|_| target.origin() == url.origin()));
        url = target;
    }
    Err(DownloadError::Redirects { url: url.to_string() })
}

async fn get(url: &Url, authorization: Option<HeaderValue>) -> Result<crate::http_client::HttpResponse, DownloadError> {
    let options = HttpOptions::new(TIMEOUT, usize::try_from(MAX_BYTES).unwrap_or(usize::MAX));
    let headers: HeaderMap = authorization.map(|value| (AUTHORIZATION, value)).into_iter().collect();
    let failed = |source| DownloadError::Http { url: url.to_string(), source };
    let client = HttpClient::new(url, &options).map_err(failed)?;
    client.send(Method::GET, url, headers, BodyChunks::default()).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_accepts_only_urls_of_http() {
        assert!(is_url("https://h/t.zip") && is_url("HTTP://h"));
        for template in ["custom", "./folder", "ftp://h/t.zip", "C:/t.zip"] {
            assert!(!is_url(template), "{template}");
        }
        let error = download("http://me:s3cret@").unwrap_err().to_string();
        assert!(error.starts_with("invalid URL `http://<hidden>@`"), "{error}");
    }
}
