//! The bodies of requests and responses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::HeaderValue;
use http_body::{Frame, SizeHint};

use super::{HttpError, last_cause};
use crate::types::ByteReservation;

/// A request body in several chunks, none of which is copied.
#[derive(Debug, Default)]
pub struct BodyChunks(VecDeque<Bytes>);

impl FromIterator<Bytes> for BodyChunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        Self(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }
}

impl BodyChunks {
    pub(super) fn into_body(mut self) -> Option<reqwest::Body> {
        if self.0.len() > 1 { Some(reqwest::Body::wrap(self)) } else { self.0.pop_front().map(reqwest::Body::from) }
    }
}

impl http_body::Body for BodyChunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

/// The most bytes that are decoded without a pause: less than a millisecond of work.
const PIECE: usize = 256 << 10;

/// Decodes a response body, whose bytes `reservation` holds. Requests accept no encoding, but some servers and proxies compress
/// nevertheless. Pauses between pieces, so that other tasks run.
///
/// # Errors
///
/// Fails if the encoding is unsupported, the body is invalid, or it becomes longer than `limit` or takes more memory than is free.
pub(super) async fn decode(
    encoding: &HeaderValue,
    body: Bytes,
    limit: usize,
    server: &str,
    reservation: &mut ByteReservation,
) -> Result<Bytes, HttpError> {
    let failed = |cause: String| HttpError::Encoding { server: server.to_owned(), cause };
    let name = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    match name.as_str() {
        "identity" | "" => return Ok(body),
        "gzip" | "x-gzip" => {}
        _ => return Err(failed(format!("unsupported encoding `{}`", name.escape_debug()))),
    }
    let mut decoded = Vec::new();
    let mut reader = MultiGzDecoder::new(&body[..]);
    loop {
        let piece = PIECE.min(limit + 1 - decoded.len());
        reservation.grow(piece)?;
        let read = reader.by_ref().take(piece as u64).read_to_end(&mut decoded);
        let read = read.map_err(|error| failed(last_cause(&error)))?;
        drop(reservation.split(piece - read));
        if decoded.len() > limit {
            return Err(HttpError::TooLarge { limit });
        }
        if read == 0 {
            drop(reservation.split(body.len()));
            return Ok(decoded.into());
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body;

    use super::*;
    use crate::fixtures::gzip;
    use crate::types::{ByteBudget, OverBudget};

    #[test]
    fn http_gzip_body_is_decoded_within_the_limit() {
        let decode = |name: &'static str, body: Bytes, limit| {
            let (name, mut held) = (HeaderValue::from_static(name), ByteReservation::default());
            let decoded = runtime().block_on(decode(&name, body, limit, "h:1", &mut held));
            decoded.map_err(|error| error.to_string())
        };
        assert_eq!(decode("gzip", gzip(b"hello").into(), 5).unwrap(), "hello");
        assert_eq!(decode("GZIP", gzip(b"hello").into(), 4), Err("the response has more than 4 bytes".to_owned()));
        let bomb = Bytes::from(gzip(&vec![0; 10 << 20]));
        assert!(bomb.len() < 100_000);
        assert_eq!(decode("gzip", bomb, 1 << 20), Err("the response has more than 1048576 bytes".to_owned()));
        assert_eq!(decode("identity", Bytes::from_static(b"a"), 5).unwrap(), "a");
        let error = decode("br", Bytes::from_static(b"a"), 5).unwrap_err();
        assert_eq!(error, "cannot decode the response of h:1: unsupported encoding `br`");
        assert!(decode("gzip", Bytes::from_static(b"no gzip"), 5).unwrap_err().starts_with("cannot decode"));
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn http_gzip_body_is_reserved_while_it_is_decoded() {
        let budget = ByteBudget::new(4 << 20);
        let decode = |length: usize| {
            let body = Bytes::from(gzip(&vec![0; length]));
            let mut held = budget.reservation();
            held.grow(body.len()).unwrap();
            let decoded =
                runtime().block_on(decode(&HeaderValue::from_static("gzip"), body, 64 << 20, "h:1", &mut held));
            decoded.map(|decoded| (decoded.len(), held.bytes()))
        };
        assert_eq!(decode(3 << 20).unwrap(), (3 << 20, 3 << 20), "the compressed bytes are given back");
        assert!(matches!(decode(5 << 20), Err(HttpError::OverBudget(OverBudget::TooLarge { .. }))));
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn http_body_chunks_have_an_exact_size() {
        let chunks: BodyChunks =
            [Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")].into_iter().collect();
        assert_eq!((chunks.0.len(), chunks.size_hint().exact()), (2, Some(3)));
        assert!(BodyChunks::default().into_body().is_none());
    }
}
