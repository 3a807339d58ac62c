//! Reads the messages of a request. Each follows a header of five bytes: a flag for compression, and four bytes of length.
//!
//! A message that arrives in one frame is a slice of the received buffer. One that arrives in several is assembled once;
//! memory is allocated for the bytes that have arrived, not for the announced length.

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tonic::Code;

use super::status::Status;
use super::{BodyPace, PacedRequestBody, RequestBody};
use crate::compute::ComputePool;
use crate::server::received::{self, Compression, DecompressError};
use crate::types::ReceivedBytes;
use crate::types::{ByteReservation, Priority};

/// The length of the header before each message, in bytes.
pub(super) const HEADER: usize = 5;

/// The limit on the length of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageLimit {
    /// In bytes, before and after decompression.
    pub(super) bytes: usize,
    /// Where the limit comes from, as a clause for error messages.
    pub(super) reason: &'static str,
}

impl MessageLimit {
    /// Checks the length of a message; `what` is `message` or `response`.
    pub(super) fn check(self, what: &str, len: usize) -> Result<(), Status> {
        if len <= self.bytes {
            return Ok(());
        }
        let Self { bytes, reason } = self;
        let message = format!("the {what} has {len} bytes, more than the {bytes} {reason}");
        Err(Status::new(Code::ResourceExhausted, message))
    }

    /// Returns the status of a message whose decompressed length exceeds the limit by an unknown amount.
    fn exceeded(self) -> Status {
        let Self { bytes, reason } = self;
        let message = format!("the decompressed message has more than the {bytes} bytes {reason}");
        Status::new(Code::ResourceExhausted, message)
    }
}

/// Returns the compression of messages, or `None` if they are not compressed.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, Status> {
    let Some(value) = headers.get("grpc-encoding") else { return Ok(None) };
    match value.as_bytes() {
        b"identity" => Ok(None),
        b"gzip" => Ok(Some(Compression::Gzip)),
        b"deflate" => Ok(Some(Compression::Deflate)),
        other => {
            let shown: String = String::from_utf8_lossy(other).chars().take(40).collect();
            let message = format!("the compression `{shown}` is not supported: send gzip, deflate or identity");
            Err(Status::new(Code::Unimplemented, message))
        }
    }
}

/// The messages of a request's body.
pub(super) struct Messages<B> {
    body: B,
    compression: Option<Compression>,
    limit: MessageLimit,
    compute: ComputePool,
    /// Received bytes that have not been read yet.
    rest: Bytes,
    received: Option<Counter>,
    /// Holds the bytes that have been received and not been taken.
    reservation: ByteReservation,
    /// Takes the place of `reservation` when a message arrives in parts.
    of_parts: Option<ByteReservation>,
}

impl<B: RequestBody> Messages<B> {
    /// Reads the messages of `body`, whose bytes are added to `reservation`.
    pub(super) fn new(
        headers: &HeaderMap,
        body: B,
        limit: MessageLimit,
        compute: ComputePool,
        reservation: ByteReservation,
    ) -> Result<Self, Status> {
        let compression = compression(headers)?;
        Ok(Self { body, compression, limit, compute, rest: Bytes::new(), received: None, reservation, of_parts: None })
    }

    /// Has `reservation` hold the bytes of a message that arrives in parts.
    pub(super) fn reserved_in_parts(self, reservation: ByteReservation) -> Self {
        Self { of_parts: Some(reservation), ..self }
    }

    /// Counts the messages in `received`.
    pub(super) fn counted(self, received: Option<Counter>) -> Self {
        Self { received, ..self }
    }

    /// Sets the pace of the messages after the first.
    pub(super) fn begin_later_messages(&mut self)
    where
        B: PacedRequestBody,
    {
        self.body.set_pace(BodyPace::LaterMessages);
    }

    /// Returns the message of a call that takes exactly one, and what holds its bytes.
    pub(super) async fn only(mut self) -> Result<(Bytes, ByteReservation), Status> {
        let invalid = |found| Status::new(Code::InvalidArgument, format!("expected one message, {found}"));
        let message = self.next().await?.ok_or_else(|| invalid("received none"))?;
        // Reading to the end allows the connection to close the stream gracefully.
        if !self.rest.is_empty() || (!self.body.is_end_stream() && self.receive().await?) {
            return Err(invalid("received more"));
        }
        Ok(message)
    }

    /// Returns the next message, and what holds its bytes. `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, ByteReservation)>, Status> {
        while self.rest.is_empty() {
            if !self.receive().await? {
                return Ok(None);
            }
        }
        let header = self.take(HEADER).await?;
        let [flag, length @ ..] =
            *header.first_chunk::<HEADER>().expect("`take` returns as many bytes as it is asked for");
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        self.limit.check("message", length)?;
        self.reservation.check(length.saturating_sub(self.rest.len()))?;
        let message = self.take(length).await?;
        let held = self.reservation.split(self.reservation.bytes().saturating_sub(self.rest.len()));
        if let Some(received) = &self.received {
            received.inc();
        }
        match flag {
            0 => Ok(Some((message, held))),
            1 => self.decompress(message, held).await.map(Some),
            _ => Err(Status::new(Code::InvalidArgument, format!("the compressed flag is {flag}, expected 0 or 1"))),
        }
    }

    /// Takes the next `length` bytes, from as many frames as needed.
    async fn take(&mut self, length: usize) -> Result<Bytes, Status> {
        if length <= self.rest.len() {
            return Ok(self.rest.split_to(length));
        }
        let mut received = ReceivedBytes::default();
        loop {
            received.push(self.rest.split_to(self.rest.len().min(length - received.len())), length);
            if received.len() == length {
                return Ok(received.into_bytes());
            }
            if let Some(mut of_parts) = self.of_parts.take() {
                of_parts.grow(received.len())?;
                self.reservation = of_parts;
            }
            if !self.receive().await? {
                let found = received.len();
                let message = format!("the message ended early: expected {length} bytes, received {found}");
                return Err(Status::new(Code::InvalidArgument, message));
            }
        }
    }

    /// Receives more bytes and returns whether there were any. All previous bytes must have been read.
    async fn receive(&mut self) -> Result<bool, Status> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| Status::of_body(&error.into()))?;
            match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    self.reservation.grow(data.len())?;
                    self.rest = data;
                    return Ok(true);
                }
                // Trailers of a request have no meaning.
                _ => {}
            }
        }
        Ok(false)
    }

    async fn decompress(
        &mut self,
        message: Bytes,
        mut held: ByteReservation,
    ) -> Result<(Bytes, ByteReservation), Status> {
        // The code that the protocol demands.
        let no_encoding = || Status::new(Code::Internal, "a message is compressed, but there is no `grpc-encoding`");
        let (compression, limit) = (self.compression.ok_or_else(no_encoding)?, self.limit);
        // What it expands to is not known: eight times as much is usual.
        let size = 8 * message.len();
        let work = move || Ok((decompress(&message, compression, limit, &mut held)?, held));
        self.compute.run_sized(size, Priority::default(), work).await?
    }
}

fn decompress(
    message: &[u8],
    compression: Compression,
    limit: MessageLimit,
    held: &mut ByteReservation,
) -> Result<Bytes, Status> {
    received::decompress(message, compression, limit.bytes, held).map_err(|error| match error {
        DecompressError::Invalid(error) => {
            let message = format!("the message is not valid {}: {error}", compression.name());
            Status::new(Code::InvalidArgument, message)
        }
        DecompressError::TooLarge => limit.exceeded(),
        DecompressError::Ratio(error) => Status::new(Code::ResourceExhausted, error.to_string()),
        DecompressError::OverBudget(error) => error.into(),
    })
}

/// Returns the header of a message of the given length.
///
/// # Errors
///
/// Fails if the response is longer than the limit, or than four bytes can express.
pub(super) fn header(length: usize, limit: MessageLimit) -> Result<Vec<u8>, Status> {
    limit.check("response", length)?;
    let max = MessageLimit { bytes: u32::MAX as usize, reason: "that gRPC supports" };
    max.check("response", length)?;
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let mut header = vec![0];
    header.extend_from_slice(&length);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deflate, gzip};
    use crate::server::BodyFailure;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use proptest::prelude::*;

    const LIMIT: MessageLimit = MessageLimit { bytes: 100, reason: "that the test allows" };

    /// Cuts bytes into frames.
    fn body(bytes: &[u8], cuts: &[usize]) -> impl RequestBody {
        let mut frames = Vec::new();
        let mut rest = bytes;
        for &cut in cuts {
            let (frame, after) = rest.split_at(cut.min(rest.len()));
            frames.push(frame.to_vec());
            rest = after;
        }
        frames.push(rest.to_vec());
        StreamBody::new(stream::iter(frames.into_iter().map(|frame| Ok::<_, BodyFailure>(Frame::data(frame.into())))))
    }

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flag], length.as_slice(), message].concat()
    }

    fn messages(encoding: &'static str, body: impl RequestBody) -> Messages<impl RequestBody> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-encoding", http::HeaderValue::from_static(encoding));
        Messages::new(&headers, body, LIMIT, ComputePool::for_this_machine(), ByteReservation::default()).unwrap()
    }

    async fn only(encoding: &'static str, bytes: &[u8]) -> Result<Bytes, (Code, String)> {
        let result = messages(encoding, body(bytes, &[])).only().await;
        result.map(|(message, _)| message).map_err(|status| (status.code, status.message.into_owned()))
    }

    #[tokio::test]
    async fn compressed_messages_are_decompressed() {
        assert_eq!(only("identity", &framed(0, b"ab")).await.unwrap(), "ab");
        assert_eq!(only("gzip", &framed(0, b"ab")).await.unwrap(), "ab");
        assert_eq!(only("gzip", &framed(1, &gzip(b"ab"))).await.unwrap(), "ab");
        assert_eq!(only("deflate", &framed(1, &deflate(b"ab"))).await.unwrap(), "ab");
        assert_eq!(only("gzip", &framed(1, &gzip(&[7; 100]))).await.unwrap().len(), 100);
    }

    #[tokio::test]
    async fn invalid_messages_are_rejected() {
        let invalid = Code::InvalidArgument;
        let table: [(&str, Vec<u8>, Code, &str); 11] = [
            ("identity", Vec::new(), invalid, "expected one message, received none"),
            ("identity", framed(0, b"").repeat(2), invalid, "expected one message, received more"),
            ("identity", vec![0, 0], invalid, "the message ended early: expected 5 bytes, received 2"),
            ("identity", vec![0, 0, 0, 0, 9, 1], invalid, "the message ended early: expected 9 bytes, received 1"),
            ("identity", framed(2, b""), invalid, "the compressed flag is 2, expected 0 or 1"),
            ("identity", framed(1, b""), Code::Internal, "a message is compressed, but there is no `grpc-encoding`"),
            ("gzip", framed(1, b"ab"), invalid, "the message is not valid gzip: unexpected end of file"),
            ("deflate", framed(1, b"ab"), invalid, "the message is not valid deflate: corrupt deflate stream"),
            (
                "identity",
                vec![0, 0, 0, 0, 101],
                Code::ResourceExhausted,
                "the message has 101 bytes, more than the 100 that the test allows",
            ),
            (
                "gzip",
                vec![1, 255, 255, 255, 255],
                Code::ResourceExhausted,
                "the message has 4294967295 bytes, more than the 100 that the test allows",
            ),
            (
                "gzip",
                framed(1, &gzip(&vec![0; 50_000])),
                Code::ResourceExhausted,
                "the decompressed message has more than the 100 bytes that the test allows",
            ),
        ];
        for (encoding, bytes, code, message) in table {
            assert_eq!(only(encoding, &bytes).await.unwrap_err(), (code, message.to_owned()));
        }
    }

    #[test]
    fn unsupported_compression_is_named() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-encoding", http::HeaderValue::from_static("snappy"));
        let rejected =
            Messages::new(&headers, body(b"", &[]), LIMIT, ComputePool::for_this_machine(), ByteReservation::default());
        let rejected = rejected.err().unwrap();
        assert_eq!(rejected.code, Code::Unimplemented);
        assert_eq!(rejected.message, "the compression `snappy` is not supported: send gzip, deflate or identity");
        assert_eq!(rejected.response().headers()["grpc-accept-encoding"], "identity,deflate,gzip");
    }

    #[test]
    fn response_header_rejects_messages_over_limit() {
        assert_eq!(header(100, LIMIT).unwrap(), [0, 0, 0, 0, 100]);
        let message = "the response has 101 bytes, more than the 100 that the test allows";
        assert_eq!(header(101, LIMIT).unwrap_err(), Status::new(Code::ResourceExhausted, message));
        let without = MessageLimit { bytes: usize::MAX, ..LIMIT };
        assert!(header(u32::MAX as usize, without).is_ok() && header(u32::MAX as usize + 1, without).is_err());
    }

    proptest! {
        #[test]
        fn messages_are_reassembled_from_any_frames(
            sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
            cuts in proptest::collection::vec(0..12_usize, 0..20),
        ) {
            let bytes = sent.iter().flat_map(|message| framed(0, message)).collect::<Vec<_>>();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let received = runtime.block_on(async {
                let mut messages = messages("identity", body(&bytes, &cuts));
                let mut received = Vec::new();
                while let Some((message, _)) = messages.next().await.unwrap() {
                    received.push(message.to_vec());
                }
                received
            });
            prop_assert_eq!(received, sent);
        }
    }
}
