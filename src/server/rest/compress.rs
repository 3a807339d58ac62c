//! Gzip for long responses.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue};

use super::respond::{BodyChunks, Response};
use crate::compute::ComputePool;
use crate::server::priority;

/// Shorter responses, in bytes, are not compressed; the original's limit.
const COMPRESSED_FROM: usize = 500;

/// Responses of at least this many bytes are compressed on the compute pool: below it, compressing takes less than 0.2 ms.
const LONG: usize = 8 * 1024;

const VARIES: HeaderValue = HeaderValue::from_static("accept-encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Decides whether a body that is sent while it is made is compressed, and sets the headers of its response.
pub(super) fn negotiate(headers: &mut HeaderMap, request: &HeaderMap) -> bool {
    if headers.contains_key(CONTENT_ENCODING) {
        return false;
    }
    headers.append(VARY, VARIES);
    let accepted = accepts_gzip(request);
    if accepted {
        headers.insert(CONTENT_ENCODING, GZIP);
    }
    accepted
}

/// Reports whether a response is long enough to be compressed, and has no encoding yet.
pub(super) fn is_long(response: &Response) -> bool {
    response.body().len() >= COMPRESSED_FROM && !response.headers().contains_key(CONTENT_ENCODING)
}

/// Compresses a long response if the client accepts gzip.
pub(super) async fn compress(response: Response, request: &HeaderMap, compute: &ComputePool) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.append(VARY, VARIES);
    if !accepts_gzip(request) {
        return Response::from_parts(parts, body);
    }
    let compressed = if body.len() < LONG {
        gzip(&body)
    } else {
        // Cheap: the bytes are shared.
        let body = body.clone();
        compute.run_at(priority::of_headers(request), move || gzip(&body)).await.ok().flatten()
    };
    match compressed {
        Some(compressed) => {
            parts.headers.insert(CONTENT_ENCODING, GZIP);
            Response::from_parts(parts, compressed.into())
        }
        None => Response::from_parts(parts, body),
    }
}

/// Compresses in memory, which does not fail; if it did, the response would be sent uncompressed.
fn gzip(body: &BodyChunks) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::default());
    for chunk in body.iter() {
        encoder.write_all(chunk).ok()?;
    }
    encoder.finish().ok()
}

/// Reports whether a request's `Accept-Encoding` allows gzip (RFC 9110, section 12.5.3).
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = None;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let mut parts = item.split(';').map(str::trim);
            let coding = parts.next().unwrap_or_default();
            let rejected = parts.any(|part| {
                part.split_once('=')
                    .is_some_and(|(key, q)| key.trim().eq_ignore_ascii_case("q") && q.trim().parse() == Ok(0.0_f32))
            });
            if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
                return !rejected;
            }
            if coding == "*" {
                any = Some(!rejected);
            }
        }
    }
    any.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_encoding_decides_about_gzip() {
        let accepts = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            accepts_gzip(&headers)
        };
        for text in ["gzip", "deflate, gzip;q=0.5", "br, *", "X-GZIP", "gzip ; q=1.0"] {
            assert!(accepts(text), "{text}");
        }
        for text in ["", "identity", "gzip;q=0", "gzip; q=0.000", "br", "*;q=0", "gzip;q=0, *"] {
            assert!(!accepts(text), "{text}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
