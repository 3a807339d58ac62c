//! Bytes that arrive: assembled from frames, and decompressed, within a limit and the byte budget.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use crate::types::{ByteReservation, OverBudget};

/// The first allocation for bytes that arrive in several frames. Beyond it, the buffer doubles, until a quarter of the announced
/// bytes has arrived: the rest is worth allocating then.
const FIRST_ALLOCATION: usize = 256 << 10;

/// Compressed bytes may become this many times as many, or [`MODERATE`] bytes if that is more: numbers as JSON rarely compress to
/// less than a tenth, and what a client sends should cost it about as much as it costs the server.
const MAX_RATIO: usize = 10;

/// The decompressed size, in bytes, up to which the ratio does not matter.
const MODERATE: usize = 8 << 20;

/// The most decompressed bytes that are reserved at once.
const LARGEST_STEP: usize = 1 << 20;

/// Bytes that are assembled from frames.
///
/// Those of a single frame are not copied. More than one frame is copied into a buffer of its own, because a frame of one byte
/// keeps the whole buffer of its connection. Memory is allocated in proportion to the bytes that have arrived, not for an announced length.
#[derive(Debug, Default)]
pub(super) struct ReceivedBytes {
    first: Bytes,
    joined: Vec<u8>,
}

impl ReceivedBytes {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Adds a frame. At most `length` bytes are expected in all.
    pub(super) fn push(&mut self, frame: Bytes, length: usize) {
        if self.len() == 0 {
            self.first = frame;
            return;
        }
        let needed = self.len() + frame.len();
        if self.joined.capacity() < needed {
            let most = if needed >= length / 4 { length } else { FIRST_ALLOCATION.max(2 * needed).min(length) };
            let capacity = most.max(needed);
            self.joined.reserve_exact(capacity - self.joined.len());
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&frame);
    }

    pub(super) fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.into() }
    }
}

/// The formats of compressed bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    /// The zlib format, as HTTP defines it.
    Deflate,
}

impl Compression {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// Why bytes could not be decompressed.
#[derive(Debug)]
pub(super) enum DecompressError {
    Invalid(io::Error),
    /// There are more than the limit.
    TooLarge,
    /// There are more than [`MAX_RATIO`] allows.
    Ratio(RatioError),
    OverBudget(OverBudget),
}

/// Compressed bytes become too many.
#[derive(Debug, thiserror::Error)]
#[error(
    "{compressed} compressed bytes become more than {limit}: only up to {} MiB may be more than {MAX_RATIO} times the \
     compressed size; send the body without compression",
    MODERATE >> 20
)]
pub(super) struct RatioError {
    compressed: usize,
    limit: usize,
}

/// Decompresses `compressed` into at most `limit` bytes, which `reservation` holds afterwards in place of the compressed ones.
pub(super) fn decompress(
    compressed: &[u8],
    compression: Compression,
    limit: usize,
    reservation: &mut ByteReservation,
) -> Result<Bytes, DecompressError> {
    let by_ratio = compressed.len().saturating_mul(MAX_RATIO).max(MODERATE);
    let least = limit.min(by_ratio);
    let result = match compression {
        Compression::Gzip => read_to_end(MultiGzDecoder::new(compressed), compressed.len(), least, reservation),
        Compression::Deflate => read_to_end(ZlibDecoder::new(compressed), compressed.len(), least, reservation),
    };
    result.map_err(|error| match error {
        DecompressError::TooLarge if by_ratio < limit => {
            DecompressError::Ratio(RatioError { compressed: compressed.len(), limit: by_ratio })
        }
        error => error,
    })
}

fn read_to_end(
    mut decoder: impl Read,
    compressed: usize,
    limit: usize,
    reservation: &mut ByteReservation,
) -> Result<Bytes, DecompressError> {
    let mut bytes = Vec::new();
    // A first estimate that most bodies exceed.
    let mut step = (2 * compressed).clamp(256, LARGEST_STEP);
    loop {
        // One more byte than the limit distinguishes a body of exactly the limit from a longer one.
        let most = step.min((limit - bytes.len()).saturating_add(1));
        reservation.grow(most).map_err(DecompressError::OverBudget)?;
        let read = decoder.by_ref().take(most as u64).read_to_end(&mut bytes).map_err(DecompressError::Invalid)?;
        if bytes.len() > limit {
            return Err(DecompressError::TooLarge);
        }
        if read < most {
            break;
        }
        step = bytes.len().clamp(step, LARGEST_STEP);
    }
    reservation.resize(bytes.len()).map_err(DecompressError::OverBudget)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deflate, gzip};
    use crate::types::ByteBudget;
    use proptest::prelude::*;

    #[test]
    fn decompression_is_charged_to_the_byte_budget() {
        let budget = ByteBudget::new(3 << 20);
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut reservation = budget.reservation();
        let error = decompress(&bomb, Compression::Gzip, 64 << 20, &mut reservation).unwrap_err();
        assert!(matches!(error, DecompressError::OverBudget(OverBudget::TooLarge { .. })), "{error:?}");
        drop(reservation);
        assert_eq!(budget.in_use(), 0);

        let mut reservation = budget.reservation();
        let body = gzip(&vec![0; 2 << 20]);
        let bytes = decompress(&body, Compression::Gzip, 64 << 20, &mut reservation).unwrap();
        assert_eq!((bytes.len(), reservation.bytes()), (2 << 20, 2 << 20));
    }

    #[test]
    fn decompression_ratio_is_limited() {
        let decompress = |bytes: usize| {
            let body = gzip(&vec![0; bytes]);
            decompress(&body, Compression::Gzip, 64 << 20, &mut ByteReservation::default())
        };
        assert_eq!(decompress(MODERATE).unwrap().len(), MODERATE);
        let error = decompress(MODERATE + 1).unwrap_err();
        let DecompressError::Ratio(error) = error else { unreachable!("{error:?}") };
        assert_eq!(
            error.to_string(),
            "8174 compressed bytes become more than 8388608: only up to 8 MiB may be more than 10 times the compressed \
             size; send the body without compression"
        );
    }

    #[test]
    fn assembled_bytes_do_not_keep_the_buffers_of_their_frames() {
        let buffer = Bytes::from(vec![7_u8; 1 << 20]);
        let mut received = ReceivedBytes::default();
        for index in 0..100 {
            received.push(buffer.slice(index..=index), 100);
        }
        drop(buffer);
        assert!(received.first.is_empty() && received.joined.capacity() < 1000);
        assert_eq!(received.into_bytes(), vec![7_u8; 100]);
    }

    #[test]
    fn announced_length_is_not_allocated() {
        let mut received = ReceivedBytes::default();
        for text in ["a", "b", "c"] {
            received.push(Bytes::from_static(text.as_bytes()), usize::MAX);
        }
        assert!(received.joined.capacity() <= FIRST_ALLOCATION);
    }

    proptest! {
        #[test]
        fn decompressed_bytes_are_the_original_up_to_the_limit(
            text in proptest::collection::vec(0..4_u8, 0..3000),
            limit in 0..3000_usize,
            is_gzip in any::<bool>(),
        ) {
            let (compression, body) =
                if is_gzip { (Compression::Gzip, gzip(&text)) } else { (Compression::Deflate, deflate(&text)) };
            let mut reservation = ByteReservation::default();
            match decompress(&body, compression, limit, &mut reservation) {
                Ok(bytes) => {
                    prop_assert!(text.len() <= limit);
                    prop_assert_eq!(bytes, text);
                }
                Err(error) => prop_assert!(matches!(error, DecompressError::TooLarge) && text.len() > limit),
            }
        }

        #[test]
        fn frames_are_assembled_in_order(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let all = frames.concat();
            let mut received = ReceivedBytes::default();
            for frame in frames {
                received.push(frame.into(), all.len());
            }
            prop_assert_eq!(received.into_bytes(), all);
        }
    }
}
