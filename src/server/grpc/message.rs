//! The messages of a request: each comes behind five bytes, one that says whether it is compressed and four of length.
//!
//! A message that came in one piece is a slice of what was received. One that came in several is put together once; memory
//! is taken for what has arrived, not for what was announced.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tonic::Code;

use super::RequestBody;
use super::status::Status;
use crate::compute::ComputePool;
use crate::server::BodyFailure;

/// The bytes before each message.
pub(super) const HEADER: usize = 5;

/// Memory that is taken at once for a message of several pieces, in bytes; beyond it, as much again as there is.
const FIRST_PIECES: usize = 1 << 20;

/// Compressed messages from this length on are decompressed on the compute pool: below it, that takes less time than it
/// takes to wake a thread.
const LONG_COMPRESSED: usize = 8 * 1024;

/// How long a message may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// In bytes, before and after decompression.
    pub(super) bytes: usize,
    /// Who says so.
    pub(super) reason: &'static str,
}

impl Limit {
    /// Checks the length of a message; `what` is `message` or `answer`.
    pub(super) fn check(self, what: &str, len: usize) -> Result<(), Status> {
        if len <= self.bytes {
            return Ok(());
        }
        let Self { bytes, reason } = self;
        let message = format!("the {what} has {len} bytes, more than the {bytes} {reason}");
        Err(Status::new(Code::ResourceExhausted, message))
    }

    /// A message that is longer when it is decompressed, by nobody knows how much.
    fn exceeded(self) -> Status {
        let Self { bytes, reason } = self;
        let message = format!("the message has more than {bytes} bytes after decompression, the most {reason}");
        Status::new(Code::ResourceExhausted, message)
    }
}

/// How messages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    /// By which the protocol means the format of zlib.
    Deflate,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Result<Self, Status> {
        let Some(value) = headers.get("grpc-encoding") else { return Ok(Self::Identity) };
        match value.as_bytes() {
            b"identity" => Ok(Self::Identity),
            b"gzip" => Ok(Self::Gzip),
            b"deflate" => Ok(Self::Deflate),
            other => {
                let shown: String = String::from_utf8_lossy(other).chars().take(40).collect();
                let message = format!("the compression `{shown}` is not supported: send gzip, deflate or identity");
                Err(Status::new(Code::Unimplemented, message))
            }
        }
    }
}

/// The messages of a request's body.
pub(super) struct Messages<B> {
    body: B,
    encoding: Encoding,
    limit: Limit,
    compute: ComputePool,
    /// What has been received and not been looked at.
    rest: Bytes,
    received: Option<Counter>,
}

impl<B: RequestBody> Messages<B> {
    pub(super) fn new(headers: &HeaderMap, body: B, limit: Limit, compute: ComputePool) -> Result<Self, Status> {
        Ok(Self { body, encoding: Encoding::of(headers)?, limit, compute, rest: Bytes::new(), received: None })
    }

    /// Counts the messages.
    pub(super) fn counted(self, received: Option<Counter>) -> Self {
        Self { received, ..self }
    }

    /// Returns the one message of a call that takes one.
    pub(super) async fn only(mut self) -> Result<Bytes, Status> {
        let wrong = |found| Status::new(Code::InvalidArgument, format!("the call takes one message, {found}"));
        let message = self.next().await?.ok_or_else(|| wrong("but none came"))?;
        // Reading to the end lets the connection forget the stream in good order.
        if !self.rest.is_empty() || (!self.body.is_end_stream() && self.receive().await?) {
            return Err(wrong("but more came"));
        }
        Ok(message)
    }

    /// Returns the next message, or nothing when the client sends no more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        while self.rest.is_empty() {
            if !self.receive().await? {
                return Ok(None);
            }
        }
        let header = self.take(HEADER).await?;
        let [flag, length @ ..] = *header.first_chunk::<HEADER>().expect("as many bytes were taken");
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        self.limit.check("message", length)?;
        let message = self.take(length).await?;
        if let Some(received) = &self.received {
            received.inc();
        }
        match flag {
            0 => Ok(Some(message)),
            1 => self.decompress(message).await.map(Some),
            _ => Err(Status::new(Code::InvalidArgument, format!("the compressed flag is {flag}, expected 0 or 1"))),
        }
    }

    /// Takes `length` bytes, whatever pieces they come in.
    async fn take(&mut self, length: usize) -> Result<Bytes, Status> {
        if length <= self.rest.len() {
            return Ok(self.rest.split_to(length));
        }
        let mut pieces = Vec::with_capacity(length.min(FIRST_PIECES.max(self.rest.len())));
        loop {
            let piece = self.rest.split_to(self.rest.len().min(length - pieces.len()));
            let free = pieces.capacity() - pieces.len();
            if free < piece.len() {
                pieces.reserve_exact(piece.len().max(pieces.len()).min(length - pieces.len()));
            }
            pieces.extend_from_slice(&piece);
            if pieces.len() == length {
                return Ok(pieces.into());
            }
            if !self.receive().await? {
                let found = pieces.len();
                let message = format!("the message ended early: {length} bytes are announced, but {found} came");
                return Err(Status::new(Code::InvalidArgument, message));
            }
        }
    }

    /// Receives more, and tells whether there was any. Only for when nothing is left.
    async fn receive(&mut self) -> Result<bool, Status> {
        while let Some(frame) = self.body.frame().await {
            let gone = |error: BodyFailure| Status::new(Code::Cancelled, format!("the request ended early: {error}"));
            let frame = frame.map_err(|error| gone(error.into()))?;
            match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    self.rest = data;
                    return Ok(true);
                }
                // Trailers of a request mean nothing.
                _ => {}
            }
        }
        Ok(false)
    }

    async fn decompress(&mut self, message: Bytes) -> Result<Bytes, Status> {
        let (encoding, limit) = (self.encoding, self.limit);
        if message.len() < LONG_COMPRESSED {
            decompress(&message, encoding, limit)
        } else {
            self.compute.run(move || decompress(&message, encoding, limit)).await?
        }
    }
}

fn decompress(message: &[u8], encoding: Encoding, limit: Limit) -> Result<Bytes, Status> {
    let read = |decoder: &mut dyn Read| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        decoder.take((limit.bytes as u64).saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = match encoding {
        Encoding::Gzip => read(&mut MultiGzDecoder::new(message)),
        Encoding::Deflate => read(&mut ZlibDecoder::new(message)),
        // As the protocol says.
        Encoding::Identity => {
            return Err(Status::new(Code::Internal, "a message is compressed, but there is no `grpc-encoding`"));
        }
    };
    let bytes = bytes.map_err(|error| {
        let name = if encoding == Encoding::Gzip { "gzip" } else { "deflate" };
        Status::new(Code::InvalidArgument, format!("the message is not valid {name}: {error}"))
    })?;
    if bytes.len() > limit.bytes { Err(limit.exceeded()) } else { Ok(bytes.into()) }
}

/// Returns the bytes that come before a message of the given length.
///
/// # Errors
///
/// Fails when the answer is longer than the limit, or than four bytes can say.
pub(super) fn header(length: usize, limit: Limit) -> Result<Vec<u8>, Status> {
    limit.check("answer", length)?;
    let max = Limit { bytes: u32::MAX as usize, reason: "that gRPC can say" };
    max.check("answer", length)?;
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let mut header = vec![0];
    header.extend_from_slice(&length);
    Ok(header)
}
