//! Reads FP32 from the usual form of decimals.
//!
//! Nearly every number of a tensor is an optional sign, a few digits, a point and up to 23 digits. All of them are examined
//! at once, eight per word, so that the processor need not predict how many there are. Numbers of another form, or too near
//! to the middle between two `f32`s, are left to [`super::number`].

use super::number::{eight_digits, not_digits};

/// The number of bytes that are examined, including one after the last digit.
pub(super) const WINDOW: usize = 33;

/// The maximum number of digits before the point.
const MAX_WHOLE: u32 = 7;

/// The number of digits of the fraction that are converted; further ones are only counted.
const CONVERTED: usize = 16;

/// The maximum number of digits of a significand, so that it fits in 63 bits.
const MAX_DIGITS: u32 = 18;

/// The least significand after which digits may be dropped, so that they are less than 2^14 units in the last place of an
/// `f64`.
const MIN_CUT: u64 = 1_000_000_000_000;

/// The least distance of a result from the middle between two `f32`s, in units in the last place of an `f64`.
const UNSURE: u64 = 1 << 15;

const POWERS: [u64; CONVERTED + 1] = {
    let mut powers = [1; CONVERTED + 1];
    let mut place = 1;
    while place < powers.len() {
        powers[place] = powers[place - 1] * 10;
        place += 1;
    }
    powers
};

/// The `f64`s nearest to one divided by [`POWERS`].
const TENTHS: [f64; CONVERTED + 1] =
    [1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16];

/// Reads the number at the start of `text`, and returns it with its length: the `f32` nearest to the nearest `f64`, as
/// [`super::number`] reads it. Returns `None` if the number does not have the usual form.
#[expect(clippy::inline_always, reason = "keeps the constants in registers in the loop over a tensor")]
#[inline(always)]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounding is intended, and its error is bounded by `UNSURE`"
)]
pub(super) fn read_usual(text: &[u8; WINDOW]) -> Option<(f32, usize)> {
    let negative = text[0] == b'-';
    let start = usize::from(negative);
    // The processor predicts the position of the point well, and then continues after it without waiting.
    let (before, whole) = if text[start + 1] == b'.' { (digit(text[start])?, 1) } else { read_whole(text, start)? };
    let point = start + whole as usize;
    let start = point + 1;
    let (first, second) = (Digits::at(text, start)?, Digits::at(text, start + 8)?);
    let (one, two) = (first.others(), second.others());
    let (after, count, length) = if one | two == 0 {
        let cut = Digits::at(text, start + CONVERTED)?.others();
        if cut == 0 {
            return None;
        }
        let after = eight_digits(first.0) * 100_000_000 + eight_digits(second.0);
        (after, CONVERTED as u32, start + CONVERTED + cut.trailing_zeros() as usize / 8)
    } else {
        let count = if one == 0 { 8 + two.trailing_zeros() / 8 } else { one.trailing_zeros() / 8 };
        if count == 0 {
            return None;
        }
        // The digits are moved to the end, with zeros before them.
        let both = u128::from(first.0) | u128::from(second.0) << 64;
        let both = (both << 8) << (120 - 8 * count);
        let after = eight_digits(both as u64) * 100_000_000 + eight_digits((both >> 64) as u64);
        (after, count, start + count as usize)
    };
    let significand = before.wrapping_mul(POWERS[count as usize]).wrapping_add(after);
    let is_cut = length > start + count as usize;
    if whole + count > MAX_DIGITS || (is_cut && significand < MIN_CUT) || matches!(text[length], b'e' | b'E') {
        return None;
    }
    // The error is below two units, apart from the dropped digits, and any result but zero is far above the smallest `f32`s.
    let value = significand.cast_signed() as f64 * TENTHS[count as usize];
    if (value.to_bits() % (1 << 29)).abs_diff(1 << 28) < UNSURE {
        return None;
    }
    // Without a branch, because signs cannot be predicted.
    Some((f32::from_bits((value as f32).to_bits() | u32::from(negative) << 31), length))
}

/// Reads the two or more digits before the point, and counts them.
#[inline]
fn read_whole(text: &[u8; WINDOW], start: usize) -> Option<(u64, u32)> {
    let head = Digits::at(text, start)?;
    let whole = head.others().trailing_zeros() / 8;
    let usual = (2..=MAX_WHOLE).contains(&whole) && text[start] != b'0' && text[start + whole as usize] == b'.';
    usual.then(|| (eight_digits((head.0 << 8) << (56 - 8 * whole)), whole))
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::number::{JsonElement, scan};
    use proptest::prelude::*;

    /// Reads text that is followed by `after`.
    fn read(text: &str, after: &str) -> Option<(f32, usize)> {
        let text = format!("{text}{after}{}", " ".repeat(WINDOW));
        read_usual(text.as_bytes().first_chunk().unwrap())
    }

    fn exact(text: &str) -> f32 {
        f32::from_number(scan(text.as_bytes()).unwrap().0).unwrap()
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
            // The middle between two.
            "1.00000005960464477539",
            "0.000000000000000012345",
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
                let (number, expected) = scan(whole.as_bytes()).unwrap();
                prop_assert_eq!(length, expected, "{}", whole);
                prop_assert_eq!(value.to_bits(), f32::from_number(number).unwrap().to_bits(), "{}", whole);
            }
        }

        #[test]
        fn any_f32_reads_back(bits in any::<u32>(), as_double in any::<bool>()) {
            let value = f32::from_bits((bits % 0x4b00_0000) | (bits & 1 << 31));
            let text = if as_double { format!("{:?}", f64::from(value)) } else { format!("{value:?}") };
            if let Some((found, length)) = read(&text, ",") {
                prop_assert_eq!((found.to_bits(), length), (value.to_bits(), text.len()), "{}", text);
            }
        }

        #[test]
        fn middles_between_f32s_are_left_out_or_exact(bits in 0x3300_0000_u32..0x4b00_0000, nudge in -70_000_i64..70_000) {
            let middle = f64::midpoint(f64::from(f32::from_bits(bits)), f64::from(f32::from_bits(bits + 1)));
            let near = f64::from_bits(middle.to_bits().checked_add_signed(nudge).unwrap());
            let text = format!("{near}");
            if let Some((found, _)) = read(&text, ",") {
                prop_assert_eq!(found.to_bits(), exact(&text).to_bits(), "{}", text);
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
                prop_assert_eq!((value.to_bits(), length), (f32::from_number(number).unwrap().to_bits(), expected));
            }
        }
    }
}
