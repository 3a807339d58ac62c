//! The checks of the head of a request, which are the same for HTTP/1.1, HTTP/2 and gRPC.
//!
//! The libraries' own limits are higher, because they reject a request without a body that says why.

use http::header::{HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, StatusCode, Uri};

/// The most bytes of all headers: names and values.
const HEADER_BYTES: usize = 64 << 10;
/// The most headers. HTTP/1.1 reads 100: with another number, hyper would allocate and clear room for it for each request.
const HEADERS: usize = 96;
/// The most bytes of a path with its query.
const PATH_BYTES: usize = 32 << 10;

/// The most bytes of headers that HTTP/2 reads, with its overhead of 32 bytes for each. Close to the read buffer of HTTP/1.1.
pub(super) const READ_BYTES: u32 = 400 << 10;

/// Why the head of a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the headers of this message have {found} bytes, more than the limit of {HEADER_BYTES}")]
    HeaderBytes { found: usize },
    #[error("this message has {found} headers, more than the limit of {HEADERS}")]
    Headers { found: usize },
    #[error("the path has {found} bytes, more than the limit of {PATH_BYTES}")]
    Path { found: usize },
    #[error("the request has {found} `Host` headers; only one is allowed")]
    Hosts { found: usize },
    #[error("only the transfer coding `chunked` is supported")]
    TransferEncoding,
}

impl HeadError {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::HeaderBytes { .. } | Self::Headers { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Path { .. } => StatusCode::URI_TOO_LONG,
            Self::Hosts { .. } => StatusCode::BAD_REQUEST,
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
        }
    }
}

/// Which site the page is from that sent a request, in the words of a browser.
pub(super) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the head of a request says about its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckedHead {
    /// Whether a browser sent the request for a page.
    pub(super) from_page: bool,
}

/// Checks the head of a request.
pub(super) fn check(uri: &Uri, headers: &HeaderMap) -> Result<CheckedHead, HeadError> {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if path > PATH_BYTES {
        return Err(HeadError::Path { found: path });
    }
    if headers.len() > HEADERS {
        return Err(HeadError::Headers { found: headers.len() });
    }
    let (mut found, mut from_page, mut codings, mut hosts) = (0, false, 0, 0);
    for (name, value) in headers {
        found += name.as_str().len() + value.len();
        hosts += usize::from(*name == HOST);
        from_page |= *name == ORIGIN || *name == SEC_FETCH_SITE;
        if *name == TRANSFER_ENCODING {
            codings += if value.as_bytes().eq_ignore_ascii_case(b"chunked") { 1 } else { 2 };
        }
    }
    if hosts > 1 {
        return Err(HeadError::Hosts { found: hosts });
    }
    if codings > 1 {
        return Err(HeadError::TransferEncoding);
    }
    if found > HEADER_BYTES { Err(HeadError::HeaderBytes { found }) } else { Ok(CheckedHead { from_page }) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn head_is_accepted_up_to_each_limit() {
        let uri = |length: usize| format!("/{}?q", "a".repeat(length - 3)).parse::<Uri>().unwrap();
        let headers = |count: usize, bytes: usize| {
            let value = HeaderValue::from_str(&"v".repeat(bytes)).unwrap();
            (0..count).map(|_| (http::header::ACCEPT, value.clone())).collect::<HeaderMap>()
        };
        let checked = check(&uri(PATH_BYTES), &headers(HEADERS, HEADER_BYTES / HEADERS - 6));
        assert_eq!(checked, Ok(CheckedHead { from_page: false }));
        assert_eq!(
            check(&uri(10), &headers(1, HEADER_BYTES - 5)),
            Err(HeadError::HeaderBytes { found: HEADER_BYTES + 1 })
        );
        let many = check(&uri(10), &headers(HEADERS + 1, 1)).unwrap_err();
        assert_eq!((many, many.status().as_u16()), (HeadError::Headers { found: HEADERS + 1 }, 431));
        let path = check(&uri(PATH_BYTES + 1), &HeaderMap::new()).unwrap_err();
        assert_eq!((path, path.status().as_u16()), (HeadError::Path { found: PATH_BYTES + 1 }, 414));
    }

    #[test]
    fn other_transfer_codings_than_chunked_are_not_implemented() {
        let status = |values: &[&'static str]| {
            let headers = values.iter().map(|value| (TRANSFER_ENCODING, HeaderValue::from_static(value))).collect();
            check(&Uri::from_static("/v2"), &headers).map_or_else(|error| error.status().as_u16(), |_| 200)
        };
        assert_eq!((status(&["chunked"]), status(&["Chunked"])), (200, 200));
        for values in
            [&["identity, chunked"][..], &["identity", "chunked"], &["gzip, chunked"], &["chunked", "chunked"]]
        {
            assert_eq!(status(values), 501, "{values:?}");
        }
    }

    #[test]
    fn page_is_recognized_by_its_headers() {
        let from_page = |name: &'static str| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("a"))]);
            check(&Uri::from_static("/v2"), &headers).map(|head| head.from_page)
        };
        assert_eq!((from_page("origin"), from_page("sec-fetch-site")), (Ok(true), Ok(true)));
        assert_eq!((from_page("accept"), from_page("x-own")), (Ok(false), Ok(false)));
    }

    #[test]
    fn head_has_at_most_one_host() {
        let headers = |hosts: &[&'static str]| {
            hosts.iter().map(|host| (HOST, HeaderValue::from_static(host))).collect::<HeaderMap>()
        };
        let uri = Uri::from_static("/v2");
        assert!(check(&uri, &headers(&[])).is_ok() && check(&uri, &headers(&["a"])).is_ok());
        assert_eq!(check(&uri, &headers(&["a", "a"])).map_err(|error| error.status().as_u16()), Err(400));
    }
}
