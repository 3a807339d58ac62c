//! Reads floats from the usual form of decimals.
//!
//! Nearly every number of a tensor is an optional sign, a few digits, a point and up to 23 digits. All of them are examined
//! at once, eight per word, so that the processor need not predict how many there are. Numbers of another form, or too near
//! to the middle between two `f64`s, are left to [`super::number`].

use super::number::{eight_digits, not_digits};

/// The number of bytes that are examined, including one after the last digit.
pub(super) const WINDOW: usize = 33;

/// The maximum number of digits before the point.
const MAX_WHOLE: u32 = 7;

/// The number of digits of the fraction that are read at first.
const FIRST: usize = 16;

/// The maximum number of digits of a fraction.
pub(super) const MAX_FRACTION: usize = FIRST + 7;

/// The maximum number of digits of a significand, so that it fits in 64 bits.
const MAX_DIGITS: u32 = 19;

const POWERS: [u64; MAX_DIGITS as usize + 1] = {
    let mut powers = [1; MAX_DIGITS as usize + 1];
    let mut place = 1;
    while place < powers.len() {
        powers[place] = powers[place - 1] * 10;
        place += 1;
    }
    powers
};

/// One divided by a power of ten: `factor / 2^exponent`, rounded down to 64 bits.
#[derive(Clone, Copy)]
struct Tenth {
    factor: u64,
    exponent: u32,
}

/// The powers of ten from 0 to [`MAX_FRACTION`].
#[expect(clippy::cast_possible_truncation, reason = "quotients have 64 bits, and places are few")]
const TENTHS: [Tenth; MAX_FRACTION + 1] = {
    let mut tenths = [Tenth { factor: 1 << 63, exponent: 63 }; MAX_FRACTION + 1];
    let (mut place, mut fifths) = (1, 1_u128);
    while place < tenths.len() {
        fifths *= 5;
        let exponent = 63 + 128 - fifths.leading_zeros();
        tenths[place] = Tenth { factor: ((1 << exponent) / fifths) as u64, exponent: exponent + place as u32 };
        place += 1;
    }
    tenths
};

/// Divides a significand by a power of ten of at most [`MAX_FRACTION`], and rounds to the nearest `f64`.
///
/// Returns `None` if the quotient is too near to the middle between two `f64`s to decide with a product of 128 bits, which is
/// the case for one of 300. After Lemire, "Number parsing at a gigabyte per second" (2021).
#[inline]
pub(super) fn divided(significand: u64, power: usize) -> Option<f64> {
    let Tenth { factor, exponent } = TENTHS[power];
    let shift = significand.leading_zeros() & 63;
    let high = ((u128::from(significand << shift) * u128::from(factor)) >> 64) as u64;
    // The quotient is at least `high` and less than `high + 2`. It has 53 bits and these further ones.
    let further = 10 + (high >> 63) as u32;
    let (rest, middle) = (high & ((1 << further) - 1), 1_u64 << (further - 1));
    if middle.wrapping_sub(rest) <= 2 {
        return None;
    }
    let rounded = (high >> further) + u64::from(rest > middle);
    // The highest of the 53 bits adds one to the biased exponent, and so does a carry.
    let biased = u64::from(1023 + 51 + 64 + further - shift - exponent);
    Some(if significand == 0 { 0.0 } else { f64::from_bits((biased << 52) + rounded) })
}

/// Reads the number at the start of `text`, and returns the nearest `f64` and its length. Returns `None` if the number does
/// not have the usual form.
#[expect(clippy::inline_always, reason = "keeps the constants in registers in the loop over a tensor")]
#[inline(always)]
pub(super) fn read_usual(text: &[u8; WINDOW]) -> Option<(f64, usize)> {
    let negative = text[0] == b'-';
    let start = usize::from(negative);
    // The processor predicts the position of the point well, and then continues after it without waiting.
    let (before, whole) = if text[start + 1] == b'.' { (digit(text[start])?, 1) } else { read_whole(text, start)? };
    let start = start + whole as usize + 1;
    let (first, second) = (Digits::at(text, start)?, Digits::at(text, start + 8)?);
    let (one, two) = (first.others(), second.others());
    let (significand, count) = if one | two == 0 {
        let third = Digits::at(text, start + FIRST)?;
        let further = third.count()?;
        let after = eight_digits(first.0) * 100_000_000 + eight_digits(second.0);
        let significand = before.checked_mul(POWERS[FIRST])?.checked_add(after)?;
        if significand >= POWERS[MAX_DIGITS as usize - further] {
            return None;
        }
        (significand * POWERS[further] + third.first(further), FIRST + further)
    } else {
        let count = if one == 0 { 8 + two.trailing_zeros() / 8 } else { one.trailing_zeros() / 8 };
        if count == 0 || whole + count > MAX_DIGITS {
            return None;
        }
        // The digits are moved to the end, with zeros before them.
        let both = u128::from(first.0) | u128::from(second.0) << 64;
        let both = (both << 8) << (120 - 8 * count);
        #[expect(clippy::cast_possible_truncation, reason = "each half is a word")]
        let (high, low) = (both as u64, (both >> 64) as u64);
        let after = eight_digits(high) * 100_000_000 + eight_digits(low);
        (before * POWERS[count as usize] + after, count as usize)
    };
    let length = start + count;
    if matches!(text[length], b'e' | b'E') {
        return None;
    }
    // Without a branch, because signs cannot be predicted.
    let value = divided(significand, count)?;
    Some((f64::from_bits(value.to_bits() | u64::from(negative) << 63), length))
}

/// Reads the two or more digits before the point, and counts them.
#[inline]
fn read_whole(text: &[u8; WINDOW], start: usize) -> Option<(u64, u32)> {
    let head = Digits::at(text, start)?;
    let whole = head.others().trailing_zeros() / 8;
    let usual = (2..=MAX_WHOLE).contains(&whole) && text[start] != b'0' && text[start + whole as usize] == b'.';
    usual.then(|| (head.first(whole as usize), whole))
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

/// Eight bytes of text minus the digit zero, the first one in the lowest byte.
#[derive(Clone, Copy)]
struct Digits(u64);

impl Digits {
    #[inline]
    fn at(text: &[u8; WINDOW], position: usize) -> Option<Self> {
        let bytes = text.get(position..)?.first_chunk()?;
        Some(Self(u64::from_le_bytes(*bytes).wrapping_sub(0x3030_3030_3030_3030)))
    }

    /// Marks the first byte that is not a digit, and possibly some after it.
    #[inline]
    const fn others(self) -> u64 {
        not_digits(self.0)
    }

    /// Counts the digits before the first other byte. Returns `None` if all are digits.
    #[inline]
    fn count(self) -> Option<usize> {
        let others = self.others();
        (others != 0).then(|| others.trailing_zeros() as usize / 8)
    }

    /// Returns the number that the first digits form, of which there are at most seven.
    #[inline]
    const fn first(self, count: usize) -> u64 {
        eight_digits((self.0 << 8) << (56 - 8 * count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::number::scan;
    use proptest::prelude::*;

    /// Reads text that is followed by `after`.
    fn read(text: &str, after: &str) -> Option<(f64, usize)> {
        let text = format!("{text}{after}{}", " ".repeat(WINDOW));
        read_usual(text.as_bytes().first_chunk().unwrap())
    }

    fn exact(text: &str) -> f64 {
        text.parse().unwrap()
    }

    #[test]
    fn read_usual_reads_numbers_of_the_usual_form() {
        for text in [
            "0.5",
            "-0.0",
            "1.25",
            "9999999.0",
            "-123.45600128173828",
            "0.13436424732208252",
            "0.0013436424732208252",
            "-0.12345678",
            "0.1234567",
            "0.00000000000000",
            "0.7312715644463785",
            "-0.013436424732208252",
            "0.000012345678901234567",
            "1234567.123456789012",
        ] {
            let (value, length) = read(text, ",").unwrap();
            assert_eq!((value.to_bits(), length), (exact(text).to_bits(), text.len()), "{text}");
        }
    }

    #[test]
    fn read_usual_leaves_other_numbers() {
        for text in [
            "1",
            "-1",
            "-",
            "",
            ".5",
            "1.",
            "1.e3",
            "01.5",
            "00.5",
            "12345678.5",
            "1.5e3",
            "1.5E3",
            "1.1234567890123456e3",
            "1234567.12345678901234",
            // Twenty digits.
            "1.0000000596046447753",
            // The middle between two.
            "4503599627370496.5",
            "1.123456789012345678901234",
            "null",
        ] {
            assert_eq!(read(text, ","), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn read_usual_is_exact(text in r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,25})?([eE]-?[0-9])?", behind in r"[,\] \n.\-0-9eE]?") {
            // The text after the number may belong to it.
            let whole = format!("{text}{behind}");
            if let Some((value, length)) = read(&text, &behind) {
                prop_assert_eq!(length, scan(whole.as_bytes()).unwrap().1, "{}", whole);
                prop_assert_eq!(value.to_bits(), exact(&whole[..length]).to_bits(), "{}", whole);
            }
        }

        #[test]
        fn any_float_reads_back(value in -1e7..1e7, scale in -8_i32..1, as_single in any::<bool>()) {
            let value: f64 = value * 10_f64.powi(scale);
            #[expect(clippy::cast_possible_truncation, reason = "the elements of FP32 tensors")]
            let value = if as_single { f64::from(value as f32) } else { value };
            let text = format!("{value:?}");
            if let Some((found, length)) = read(&text, ",") {
                prop_assert_eq!((found.to_bits(), length), (value.to_bits(), text.len()), "{}", text);
            }
        }

        #[test]
        fn significands_are_divided_exactly(significand in any::<u64>(), bits in 0..64, power in 0..=MAX_FRACTION) {
            let significand = significand >> bits;
            if let Some(value) = divided(significand, power) {
                prop_assert_eq!(value.to_bits(), exact(&format!("{significand}e-{power}")).to_bits());
            }
        }

        #[test]
        fn quotients_near_the_middle_between_two_are_left_out_or_exact(bits in 0x3f50_0000_0000_0000_u64..0x4150_0000_0000_0000, nudge in -3_i64..4) {
            // A significand of 19 digits cannot hold the middle itself, but it can be near.
            let (low, high) = (f64::from_bits(bits), f64::from_bits(bits + 1));
            let power = (0..=MAX_FRACTION).rev().find(|&power| low * 10_f64.powi(i32::try_from(power).unwrap()) < 1e19).unwrap();
            let digits = format!("{:.60}", high - low).parse::<f64>().unwrap() / 2.0 * 10_f64.powi(i32::try_from(power).unwrap());
            let start: u64 = format!("{:.0}", low * 10_f64.powi(i32::try_from(power).unwrap())).parse().unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "half a unit of the last place")]
            let near = (start + digits as u64).saturating_add_signed(nudge);
            if let Some(value) = divided(near, power) {
                prop_assert_eq!(value.to_bits(), exact(&format!("{near}e-{power}")).to_bits());
            }
        }

        #[test]
        fn read_usual_agrees_with_scan_on_any_bytes(bytes in any::<[u8; WINDOW]>(), digits in proptest::collection::vec(0..10_u8, WINDOW)) {
            let _ = read_usual(&bytes);
            let mut text = bytes;
            for (place, digit) in text.iter_mut().zip(digits) {
                if *place % 8 != 0 {
                    *place = b'0' + digit;
                }
            }
            if let Some((value, length)) = read_usual(&text) {
                let (number, expected) = scan(&text).unwrap();
                prop_assert_eq!((value.to_bits(), length), (number.to_f64().to_bits(), expected));
            }
        }
    }

    #[test]
    fn most_quotients_are_decided() {
        let decided =
            (0..100_000_u64).filter(|index| divided(1_234_567_890_123_456 + index * 97, 17).is_some()).count();
        assert!(decided > 99_000, "{decided} of 100,000");
        // The middle between two, and one beside it.
        assert_eq!(divided((1 << 53) + 1, 0), None);
        assert_eq!(divided((1 << 53) + 2, 0), Some(9_007_199_254_740_994.0));
    }
}
