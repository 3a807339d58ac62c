//! Request bodies, read whole within the limit.

use std::io::{self, Read};
use std::pin::pin;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::BodyFailure;
use crate::compute::ComputePool;

/// Bodies longer than this many bytes are decompressed and parsed on the compute pool: below it, both take less time
/// than it takes to wake a thread.
pub(super) const LONG_BODY: usize = 64 * 1024;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {limit} bytes, the limit that the setting `http_max_body_bytes` gives")]
    TooLarge { limit: usize },
    #[error("the body ended early: {0}")]
    Interrupted(BodyFailure),
    #[error("the body is not valid gzip: {0}")]
    Gzip(io::Error),
    #[error("the content encoding `{found}` is not supported: send gzip or none")]
    Encoding { found: String },
    #[error("the content type `{found}` is not supported: send application/json")]
    ContentType { found: String },
}

/// Reads a JSON body, decompressed when it came compressed.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
    compute: &ComputePool,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    check_content_type(headers)?;
    let gzip = is_gzip(headers)?;
    // Refuse what says its length before reading any of it.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let collected = Limited::new(body, limit).collect().await;
    let bytes = collected.map_err(|error| failure(error, limit))?.to_bytes();
    if !gzip {
        Ok(bytes)
    } else if bytes.len() < LONG_BODY / 8 {
        decompress(&bytes, limit)
    } else {
        compute
            .run(move || decompress(&bytes, limit))
            .await
            .unwrap_or_else(|panic| Err(BodyError::Interrupted(Box::new(panic))))
    }
}

/// Takes a body that means nothing off its connection, which can then be used again.
pub(super) async fn discard<B>(body: B, limit: usize) -> Result<(), BodyError>
where
    B: Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let mut body = pin!(Limited::new(body, limit));
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| failure(error, limit))?;
    }
    Ok(())
}

fn failure(error: BodyFailure, limit: usize) -> BodyError {
    if error.is::<LengthLimitError>() { BodyError::TooLarge { limit } } else { BodyError::Interrupted(error) }
}

/// JSON, by any of its names, or no type at all.
fn check_content_type(headers: &HeaderMap) -> Result<(), BodyError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    if value == "application/json" {
        return Ok(());
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if json { Ok(()) } else { Err(BodyError::ContentType { found: text.chars().take(100).collect() }) }
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, BodyError> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(false) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match text.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Ok(true),
        "identity" | "" => Ok(false),
        _ => Err(BodyError::Encoding { found: text.chars().take(100).collect() }),
    }
}

fn decompress(bytes: &[u8], limit: usize) -> Result<Bytes, BodyError> {
    let mut text = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(limit as u64 + 1);
    decoder.read_to_end(&mut text).map_err(BodyError::Gzip)?;
    if text.len() > limit { Err(BodyError::TooLarge { limit }) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::Full;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    async fn read_as(headers: &[(&str, &str)], body: Vec<u8>, limit: usize) -> Result<Bytes, BodyError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        read(&map, Full::new(Bytes::from(body)), limit, &ComputePool::for_this_machine()).await
    }

    #[tokio::test]
    async fn json_comes_under_several_names() {
        for name in ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/x+json"] {
            assert!(read_as(&[("content-type", name)], b"{}".to_vec(), 10).await.is_ok(), "{name}");
        }
        for name in ["text/plain", "application/octet-stream", "application/x-www-form-urlencoded"] {
            let result = read_as(&[("content-type", name)], b"{}".to_vec(), 10).await;
            assert!(matches!(result, Err(BodyError::ContentType { .. })), "{name}");
        }
    }

    #[tokio::test]
    async fn the_limit_holds_before_and_after_decompression() {
        assert!(read_as(&[], vec![b' '; 10], 10).await.is_ok());
        assert!(matches!(read_as(&[], vec![b' '; 11], 10).await, Err(BodyError::TooLarge { limit: 10 })));
        let bomb = gzip(&vec![b' '; 10_000_000]);
        assert!(bomb.len() < 20_000);
        let result = read_as(&[("content-encoding", "gzip")], bomb, 100_000).await;
        assert!(matches!(result, Err(BodyError::TooLarge { limit: 100_000 })));
        let whole = read_as(&[("content-encoding", "gzip")], gzip(b"{}"), 100).await.unwrap();
        assert_eq!(whole.as_ref(), b"{}");
    }

    #[tokio::test]
    async fn broken_or_unknown_encodings_are_refused() {
        let broken = read_as(&[("content-encoding", "gzip")], b"{}".to_vec(), 100).await;
        assert!(matches!(broken, Err(BodyError::Gzip(_))));
        let mut cut = gzip(b"{\"inputs\":[]}");
        cut.truncate(15);
        assert!(matches!(read_as(&[("content-encoding", "gzip")], cut, 100).await, Err(BodyError::Gzip(_))));
        let other = read_as(&[("content-encoding", "br")], b"{}".to_vec(), 100).await;
        assert!(matches!(other, Err(BodyError::Encoding { .. })));
    }
}
