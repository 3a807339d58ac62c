//! Answers whose JSON is long: it is written in pieces while it is sent, so that an answer that nobody reads takes the memory of its tensors
//! and of one piece.
//!
//! The tensors and the slot of the request are held until the last piece has been taken.

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::errors::RequestError;
use super::streamed::Streamed;
use super::{Answer, Call, compress};
use crate::compute::LONG_WORK;
use crate::server::exchange::Exchange;
use crate::server::payload::JSON_LENGTH;
use crate::types::InferenceResponse;
use crate::types::json::{AnswerForm, PIECE, ResponsePieces, WriteError};

/// From which estimated length of its JSON on an answer is written in pieces, in bytes. Its client then gets no `Content-Length`.
pub(super) const WIDE: usize = 16 << 20;

/// The memory of an answer besides its tensors: the piece that is written, and the one that the connection sends.
const BESIDE_TENSORS: usize = 2 * PIECE;

/// Checks a response and returns the answer that writes it in pieces. `enclose` completes its headers, and returns what precedes and follows
/// the JSON in the body.
pub(super) async fn answer(
    call: &mut Call<'_>,
    exchange: &mut Exchange<'_>,
    response: InferenceResponse,
    form: AnswerForm,
    mut headers: HeaderMap,
    enclose: impl FnOnce(&mut HeaderMap) -> (Bytes, Bytes),
) -> Result<Answer, RequestError> {
    // The outputs may be slices of the request, whose other tensors are no longer in memory.
    let (held, tensors) = (&mut call.admission.reservation, response.memory_bytes());
    held.resize(tensors.max(held.bytes().saturating_sub(tensors)).saturating_add(BESIDE_TENSORS))?;
    let non_finite = call.app.options.non_finite;
    let check = move || {
        let pieces = ResponsePieces::new(response, &form, non_finite)?;
        let binary = pieces.binary();
        // A header has the length of the JSON before binary data.
        let json_length = if binary.is_empty() { None } else { Some(pieces.json_length()?) };
        Ok::<_, WriteError>((pieces, binary, json_length))
    };
    let (pieces, binary, json_length) = exchange.write(LONG_WORK, check).await??;
    let content_type = if json_length.is_some() { "application/octet-stream" } else { "application/json" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(length) = json_length {
        headers.insert(JSON_LENGTH, HeaderValue::from(length));
    }
    let (begin, end) = enclose(&mut headers);
    let is_compressed = call.app.options.gzip && compress::negotiate(&mut headers, &call.parts.headers);
    let body = WideBody {
        begin: Some(begin).filter(|begin| !begin.is_empty()),
        pieces,
        rest: [end].into_iter().chain(binary).filter(|bytes| !bytes.is_empty()).collect(),
        gzip: is_compressed.then(|| GzEncoder::new(Vec::new(), Compression::default())),
    };
    let (compute, priority) = (call.app.compute.clone(), exchange.priority());
    let state = (body, std::mem::take(call.admission));
    let chunks = stream::unfold(Some(state), move |state| {
        let compute = compute.clone();
        async move {
            let (mut body, admission) = state?;
            let written = compute.run_at(priority, move || (body.next(), body)).await;
            match written {
                Ok((Ok(chunk), body)) => chunk.map(|chunk| (Ok(chunk), Some((body, admission)))),
                Ok((Err(error), _)) => Some((Err(error), None)),
                Err(error) => Some((Err(error.into()), None)),
            }
        }
    });
    Ok(Answer::Streamed(Streamed {
        status: StatusCode::OK,
        headers,
        chunks: Box::pin(chunks),
        // The answer was complete when its caller had the right to it.
        right: None,
        last: |_, _| None,
    }))
}

/// The part of a body that has not been sent.
struct WideBody {
    begin: Option<Bytes>,
    pieces: ResponsePieces,
    /// What follows the JSON.
    rest: VecDeque<Bytes>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl WideBody {
    /// Returns the next chunk, or `None` after the last one.
    fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
        let Some(mut encoder) = self.gzip.take() else { return self.next_plain() };
        let failed = |error: std::io::Error| RequestError::other(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        while let Some(plain) = self.next_plain()? {
            encoder.write_all(&plain).map_err(failed)?;
            let compressed = std::mem::take(encoder.get_mut());
            if !compressed.is_empty() {
                self.gzip = Some(encoder);
                return Ok(Some(compressed.into()));
            }
        }
        Ok(Some(encoder.finish().map_err(failed)?.into()))
    }

    fn next_plain(&mut self) -> Result<Option<Bytes>, RequestError> {
        if let Some(begin) = self.begin.take() {
            return Ok(Some(begin));
        }
        if let Some(piece) = self.pieces.next_piece()? {
            return Ok(Some(piece.into()));
        }
        let Some(mut first) = self.rest.pop_front() else { return Ok(None) };
        if first.len() > PIECE {
            self.rest.push_front(first.split_off(PIECE));
        }
        Ok(Some(first))
    }
}
