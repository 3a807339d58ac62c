//! Compressed bytes that arrive, within a limit and the byte budget.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

use crate::types::{ByteReservation, OverBudget};

/// Compressed bytes may become this many times as many, or [`MODERATE`] bytes if that is more: numbers as JSON rarely compress to
/// less than a tenth, and what a client sends should cost it about as much as it costs the server.
const MAX_RATIO: usize = 10;

/// The decompressed size, in bytes, up to which the ratio does not matter.
const MODERATE: usize = 8 << 20;

/// The most decompressed bytes that are reserved at once.
const LARGEST_STEP: usize = 1 << 20;

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
    }
}
