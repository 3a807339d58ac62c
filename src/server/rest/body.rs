//! Request bodies: read completely within the limit, and decompressed.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{App, Call};
use crate::compute::{ComputeError, ComputePool};
use crate::server::payload::{self, Payload, PayloadError};
use crate::server::priority;
use crate::server::received::{self, Compression, DecompressError, RatioError};
use crate::server::{BodyFailure, RequestBody};
use crate::types::ReceivedBytes;
use crate::types::{ByteReservation, OverBudget};

/// The most bytes that are read from a connection only so that it can be reused. Beyond it, a new connection costs less.
const MAX_RELEASED: usize = 64 * 1024;

/// The longest body, in bytes, of a caller that needs no right. Its request names something at most.
const MAX_OPEN: usize = 4096;

/// The reasons why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(
        "the body is larger than {limit} bytes{}",
        if *limit == MAX_OPEN { ", the limit of requests that need no key" } else { " (setting `http_max_body_bytes`)" }
    )]
    TooLarge { limit: usize },
    #[error(transparent)]
    Compute(#[from] ComputeError),
    #[error(transparent)]
    Ratio(#[from] RatioError),
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the body ended early: {0}")]
    Interrupted(BodyFailure),
    #[error("the body is not valid {encoding}: {error}")]
    Compression { encoding: &'static str, error: io::Error },
    #[error("the content encoding `{found}` is not supported: send gzip, deflate or none")]
    Encoding { found: String },
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

/// Reads the body of a call, of JSON and binary data, and decompresses it if it is compressed. The admission of the call holds its
/// bytes.
pub(super) async fn read(call: &mut Call<'_>) -> Result<Payload, BodyError> {
    let json_length = json_length(&call.parts.headers)?;
    Ok(Payload::split(read_any(call).await?, json_length)?)
}

/// Returns the length of the JSON of a body, if binary data follows it, and checks the type of the body.
fn json_length(headers: &HeaderMap) -> Result<Option<usize>, PayloadError> {
    payload::check_content_type(headers)?;
    payload::json_length(headers)
}

/// Reads the body of a call, of any type, and decompresses it if it is compressed. The admission of the call holds its bytes.
pub(super) async fn read_any(call: &mut Call<'_>) -> Result<Bytes, BodyError> {
    let App { options, compute, .. } = &**call.app;
    let headers = &call.parts.headers;
    if call.is_open() {
        // Such callers have no share of the bytes that predictions may take.
        return receive(headers, &mut *call.body, MAX_OPEN, compute, &mut ByteReservation::default()).await;
    }
    receive(headers, &mut *call.body, options.max_body_bytes, compute, &mut call.admission.reservation).await
}

async fn receive<B: RequestBody>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
    compute: &ComputePool,
    reservation: &mut ByteReservation,
) -> Result<Bytes, BodyError> {
    let encoding = encoding(headers)?;
    let bytes = collect(body, limit, reservation).await?;
    let Some(compression) = encoding else { return Ok(bytes) };
    let mut held = std::mem::take(reservation);
    // What it expands to is not known: eight times as much is usual.
    let (size, priority) = (bytes.len() * 8, priority::of_headers(headers));
    let work = move || (received::decompress(&bytes, compression, limit, &mut held), held);
    let (result, held) = compute.run_sized(size, priority, work).await?;
    *reservation = held;
    result.map_err(|error| match error {
        DecompressError::Invalid(error) => BodyError::Compression { encoding: compression.name(), error },
        DecompressError::TooLarge => BodyError::TooLarge { limit },
        DecompressError::Ratio(error) => error.into(),
        DecompressError::OverBudget(error) => error.into(),
    })
}

/// Reads a body within the limit and the byte budget.
async fn collect<B: RequestBody>(
    mut body: B,
    limit: usize,
    reservation: &mut ByteReservation,
) -> Result<Bytes, BodyError> {
    // Reject a body with a known length before reading any of it.
    let least = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if least > limit {
        return Err(BodyError::TooLarge { limit });
    }
    reservation.check(least)?;
    let mut received = ReceivedBytes::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Interrupted(error.into()))?;
        // Trailers of a request have no meaning.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limit - received.len() {
            return Err(BodyError::TooLarge { limit });
        }
        reservation.grow(data.len())?;
        received.push(data, if least == 0 { limit } else { least.max(received.len()) });
    }
    Ok(received.into_bytes())
}

/// Reads and discards a body without a meaning, so that its connection can be reused.
pub(super) async fn discard<B: RequestBody>(body: B, limit: usize) -> Result<(), BodyError> {
    let mut body = pin!(Limited::new(body, limit));
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| failure(error, limit))?;
    }
    Ok(())
}

/// Discards what has arrived of the rest of a body. Returns whether that is all, or `None` if the body has failed or is too long.
pub(super) fn discard_now<B: RequestBody>(body: &mut B) -> Option<bool> {
    match discard(body, MAX_RELEASED).now_or_never() {
        None => Some(false),
        Some(end) => end.ok().map(|()| true),
    }
}

/// Reports whether the rest of a body is known to be short.
pub(super) fn is_short<B: RequestBody>(body: &B) -> bool {
    body.size_hint().upper().is_some_and(|length| length <= MAX_RELEASED as u64)
}

/// Reads and discards a part of the rest of a body, and drops it after `limit`, or when it has ended.
pub(super) async fn discard_rest<B: RequestBody>(mut body: B, limit: Duration) {
    let discard = async {
        if matches!(discard(&mut body, MAX_RELEASED).await, Err(BodyError::TooLarge { .. })) {
            // The client has time to read the answer.
            std::future::pending::<()>().await;
        }
    };
    // In either case, nothing more is read.
    let _ = tokio::time::timeout(limit, discard).await;
}

fn failure(error: BodyFailure, limit: usize) -> BodyError {
    if error.is::<LengthLimitError>() { BodyError::TooLarge { limit } } else { BodyError::Interrupted(error) }
}

fn encoding(headers: &HeaderMap) -> Result<Option<Compression>, BodyError> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match text.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Ok(Some(Compression::Gzip)),
        "deflate" => Ok(Some(Compression::Deflate)),
        "identity" | "" => Ok(None),
        _ => Err(BodyError::Encoding { found: text.chars().take(100).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deflate, gzip};
    use http_body_util::Full;

    const LENGTH: &str = "inference-header-content-length";

    async fn read_as(headers: &[(&str, &str)], body: Vec<u8>, limit: usize) -> Result<Payload, BodyError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let (compute, mut reservation) = (ComputePool::for_this_machine(), ByteReservation::default());
        let json_length = json_length(&map)?;
        let body = receive(&map, Full::new(Bytes::from(body)), limit, &compute, &mut reservation).await?;
        Ok(Payload::split(body, json_length)?)
    }

    #[tokio::test]
    async fn body_read_accepts_json_media_types() {
        for name in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/x+json",
            "application/octet-stream",
            "",
            " ",
        ] {
            assert!(read_as(&[("content-type", name)], b"{}".to_vec(), 10).await.is_ok(), "{name}");
        }
        for name in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let result = read_as(&[("content-type", name)], b"{}".to_vec(), 10).await;
            assert!(matches!(result, Err(BodyError::Payload(PayloadError::ContentType { .. }))), "{name}");
        }
    }

    #[tokio::test]
    async fn body_limit_applies_before_and_after_decompression() {
        assert!(read_as(&[], vec![b' '; 10], 10).await.is_ok());
        assert!(matches!(read_as(&[], vec![b' '; 11], 10).await, Err(BodyError::TooLarge { limit: 10 })));
        let bomb = gzip(&vec![b' '; 10_000_000]);
        assert!(bomb.len() < 20_000);
        let result = read_as(&[("content-encoding", "gzip")], bomb, 100_000).await;
        assert!(matches!(result, Err(BodyError::TooLarge { limit: 100_000 })));
        for (encoding, body) in [("gzip", gzip(b"{}")), ("deflate", deflate(b"{}"))] {
            let body = read_as(&[("content-encoding", encoding)], body, 100).await.unwrap();
            assert_eq!(body.json, "{}");
            let bomb = if encoding == "gzip" { gzip(&[0; 200]) } else { deflate(&[0; 200]) };
            let result = read_as(&[("content-encoding", encoding)], bomb, 100).await;
            assert!(matches!(result, Err(BodyError::TooLarge { limit: 100 })), "{encoding}");
        }
    }

    #[tokio::test]
    async fn json_length_header_splits_body() {
        let read = async |lengths: &[&str]| {
            let headers: Vec<_> = lengths.iter().map(|&length| (LENGTH, length)).collect();
            read_as(&headers, b"{}binary".to_vec(), 100).await.map(|body| (body.json, body.binary))
        };
        let parts = |json: &'static str, binary: &'static str| (Bytes::from(json), Some(Bytes::from(binary)));
        assert_eq!(read(&[]).await.unwrap(), (Bytes::from("{}binary"), None));
        assert_eq!(read(&["2"]).await.unwrap(), parts("{}", "binary"));
        assert_eq!(read(&["8"]).await.unwrap(), parts("{}binary", ""));
        assert_eq!(read(&["0"]).await.unwrap(), parts("", "{}binary"));
        assert!(matches!(
            read(&["9"]).await,
            Err(BodyError::Payload(PayloadError::JsonBeyondBody { length: 9, found: 8 }))
        ));
        for wrong in [&["-1"][..], &["+2"], &["2.0"], &[""], &["two"], &["0x2"], &["99999999999999999999"], &["2", "2"]]
        {
            assert!(matches!(read(wrong).await, Err(BodyError::Payload(PayloadError::JsonLength { .. }))), "{wrong:?}");
        }
        let headers = [(LENGTH, "2"), ("content-encoding", "gzip")];
        let compressed = read_as(&headers, gzip(b"{}binary"), 100).await.unwrap();
        assert_eq!((compressed.json, compressed.binary), parts("{}", "binary"));
    }

    #[tokio::test]
    async fn invalid_or_unsupported_encodings_are_rejected() {
        let broken = read_as(&[("content-encoding", "gzip")], b"{}".to_vec(), 100).await;
        assert!(matches!(broken, Err(BodyError::Compression { .. })));
        let mut cut = gzip(b"{\"inputs\":[]}");
        cut.truncate(15);
        assert!(matches!(read_as(&[("content-encoding", "gzip")], cut, 100).await, Err(BodyError::Compression { .. })));
        let other = read_as(&[("content-encoding", "br")], b"{}".to_vec(), 100).await;
        assert!(matches!(other, Err(BodyError::Encoding { .. })));
    }
}
