//! Writes floats as the shortest text that reads back as the same value of their own type.
//!
//! `zmij` does this for any float. The code here writes most `f32`s, the usual elements of tensors, three times as fast:
//! without a branch that depends on the digits, and directly to the destination. All other values are left to `zmij`, and
//! the format of the text is the same.
//!
//! The digits are found with Schubfach (Giulietti, 2020), as `zmij` implements it: a product of 64 bits holds the seven or
//! eight digits that every `f32` has, and its fraction shows whether one more is needed to distinguish the value from its
//! neighbors.

/// The size in bytes of the longest float and the comma after it.
pub(super) const SPACE: usize = 32;

/// A float that can be written as text.
pub(super) trait Float: Copy + Into<f64> {
    /// Writes the text and returns its length, or `None` if the value is not finite.
    fn write(self, place: &mut [u8; SPACE]) -> Option<usize>;
}

impl Float for f64 {
    #[inline]
    fn write(self, place: &mut [u8; SPACE]) -> Option<usize> {
        self.is_finite().then(|| write_any(self, place))
    }
}

impl Float for f32 {
    #[inline]
    fn write(self, place: &mut [u8; SPACE]) -> Option<usize> {
        write_usual(self, place).or_else(|| self.is_finite().then(|| write_any(self, place)))
    }
}

#[inline(never)]
fn write_any(value: impl zmij::Float, place: &mut [u8; SPACE]) -> usize {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value).as_bytes();
    place[..text.len()].copy_from_slice(text);
    text.len()
}

/// The number of fraction bits in the product of a significand and its scale.
const FRACTION: u32 = 34;

/// Converts the significands of one binary exponent to decimal digits.
#[derive(Clone, Copy)]
struct Scale {
    /// A power of ten, rounded up to 64 bits of significand.
    power: u64,
    /// How far the significand is shifted before it is multiplied.
    shift: u32,
    /// Half the distance between neighbors, in units of the product.
    half: u64,
    /// The power of ten that the whole part of the product is multiplied by.
    exponent: i32,
}

/// The power of two that the significands of the first of [`SCALES`] are multiplied by.
const LOWEST: i32 = -42;

/// The scales of values from 2^-19, since smaller ones have an exponent in their text, to below 2^20.
const SCALES: [Scale; 39] = {
    let mut scales = [Scale::new(LOWEST); 39];
    let mut place = 0;
    while place < scales.len() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are 39")]
        let exponent = LOWEST + place as i32;
        scales[place] = Scale::new(exponent);
        place += 1;
    }
    scales
};

impl Scale {
    /// Creates the scale of significands that are multiplied by `2^exponent`.
    #[expect(clippy::cast_sign_loss, reason = "shifts are between 0 and 64")]
    const fn new(exponent: i32) -> Self {
        // The logarithms are exact for these exponents: log10(2) = 315653 / 2^20, log2(10) = 217707 / 2^16.
        let decimal = ((exponent * 315_653) >> 20) + 1;
        let power = 10_u128.pow(decimal.unsigned_abs());
        let power = if decimal <= 0 { power } else { u128::MAX / power };
        let power = ((power << power.leading_zeros()) >> 64) as u64;
        let shift = (exponent + ((-decimal * 217_707) >> 16) + 1 + FRACTION.cast_signed()) as u32;
        Self { power: power + 1, shift, half: power >> (65 - shift), exponent: decimal }
    }
}

/// The maximum number of digits before the point; larger numbers are rare.
const MAX_WHOLE: usize = 6;

/// Writes a value of usual size whose neighbors are equally far away. Returns `None` for zero, powers of two and others.
#[inline]
fn write_usual(value: f32, place: &mut [u8; SPACE]) -> Option<usize> {
    const POINT: u64 = b'.' as u64;
    let bits = value.to_bits();
    let biased = (bits >> 23) & 0xff;
    let scale = SCALES.get(usize::try_from(biased.cast_signed() - 150 - LOWEST).ok()?)?;
    let significand = bits & 0x007f_ffff;
    if significand == 0 {
        return None;
    }
    let Decimal { digits, last, leading, exponent } = scale.apply(u64::from(significand | 1 << 23));
    let count = 9 - leading - usize::from(last == 0) * (1 + (digits | 1).leading_zeros() as usize / 8);
    let digits = (digits | 0x3030_3030_3030_3030) >> (8 * leading);
    let last = b'0' | last;

    // More bytes are written than belong to the text, so that the positions do not depend on its length.
    let negative = usize::from(value.is_sign_negative());
    place[0] = b'-';
    let place = &mut place[negative..];
    if exponent < 0 {
        let zeros = exponent.unsigned_abs() as usize & 7;
        place[..8].copy_from_slice(b"0.000000");
        place[zeros + 1..zeros + 9].copy_from_slice(&digits.to_le_bytes());
        place[zeros + 9 - leading] = last;
        Some(negative + zeros + 1 + count)
    } else {
        let whole = exponent.unsigned_abs() as usize + 1;
        if whole > MAX_WHOLE {
            return None;
        }
        let before = (1 << (8 * whole)) - 1;
        let text = digits & before | POINT << (8 * whole) | (digits & !before) << 8;
        place[1..9].copy_from_slice(&digits.to_le_bytes());
        place[9 - leading] = last;
        place[..8].copy_from_slice(&text.to_le_bytes());
        Some(negative + (whole + 2).max(count + 1))
    }
}

/// The shortest decimal of a value.
struct Decimal {
    /// Eight digits as bytes, the first one in the lowest.
    digits: u64,
    /// The ninth digit.
    last: u8,
    /// The number of leading zeros among the digits, at most two.
    leading: usize,
    /// The power of ten of the first digit after those.
    exponent: i32,
}

impl Scale {
    /// Finds the digits of a significand, whose highest bit is 2^23 and not the only one.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "digits and their number are small"
    )]
    fn apply(&self, significand: u64) -> Decimal {
        const ONE: u64 = 1 << FRACTION;
        let product = ((u128::from(significand << self.shift) * u128::from(self.power)) >> 64) as u64;
        let fraction = product % ONE;
        // A value in the middle between two neighbors reads back as the even one.
        let half = self.half + (significand & 1 ^ 1);
        let (down, up) = (half > fraction, fraction + half >= ONE);
        let rounded = (fraction * 10 + ONE / 2) / ONE;
        // Ties go to the even digit; 2.5 is the only one.
        let rounded = if fraction == ONE / 4 { 2 } else { rounded };
        let last = if down | up { 0 } else { rounded };
        let digits = to_digits(product / ONE + u64::from(up));
        let leading = digits.trailing_zeros() / 8;
        Decimal { digits, last: last as u8, leading: leading as usize, exponent: self.exponent + 7 - leading as i32 }
    }
}

/// Returns the eight digits of a number below 10^8 as bytes, the first one in the lowest.
///
/// All parts are halved at once, in three steps: a part is `high * 2^n + low` after adding `high * (2^n - base)` to it.
#[inline]
const fn to_digits(number: u64) -> u64 {
    let fours = number + ((1 << 32) - 10_000) * ((number * 109_951_163) >> 40);
    let pairs = fours + ((1 << 16) - 100) * (((fours * 5_243) >> 19) & 0x0000_007f_0000_007f);
    let ones = pairs + ((1 << 8) - 10) * (((pairs * 103) >> 10) & 0x000f_000f_000f_000f);
    ones.swap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text<F: Float>(value: F) -> Option<String> {
        let mut place = [b'?'; SPACE];
        let length = value.write(&mut place)?;
        Some(String::from_utf8(place[..length].to_vec()).unwrap())
    }

    /// Returns whether `write_usual` agrees with `zmij`, or `None` if it leaves the value to `zmij`.
    fn agrees(value: f32) -> Option<bool> {
        let mut place = [b'?'; SPACE];
        let length = write_usual(value, &mut place)?;
        Some(&place[..length] == zmij::Buffer::new().format_finite(value).as_bytes())
    }

    #[test]
    fn any_float_has_its_shortest_text() {
        let table = [
            (0.1, "0.1"),
            (-0.3, "-0.3"),
            (1.1, "1.1"),
            (3.0, "3.0"),
            (120.0, "120.0"),
            (-123_456.78, "-123456.78"),
            (999_999.94, "999999.94"),
            (1_000_001.0, "1000001.0"),
            (16_777_217.0, "16777216.0"),
            (0.25, "0.25"),
            (0.000_012_345_679, "0.000012345679"),
            (1.234e-6, "0.000001234"),
            (1.234e-7, "1.234e-7"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (f32::MAX, "3.4028235e+38"),
            (f32::MIN_POSITIVE, "1.1754944e-38"),
            (1e-45, "1e-45"),
        ];
        for (value, expected) in table {
            assert_eq!(text(value).as_deref(), Some(expected));
        }
        assert_eq!(text(f64::MIN).as_deref(), Some("-1.7976931348623157e+308"));
        assert_eq!(text(f32::NAN), None);
        assert_eq!(text(f64::NEG_INFINITY), None);
    }

    #[test]
    fn write_usual_writes_usual_values() {
        for value in [0.1_f32, 1.234e-5, -3.0, 0.75, 999_999.0] {
            assert_eq!(agrees(value), Some(true), "{value}");
        }
    }

    #[test]
    fn every_exponent_agrees_with_zmij() {
        // A prime step, so that all digits and both parities occur.
        let written = (0..0x7f80_0000_u32).step_by(1009).filter_map(|bits| agrees(f32::from_bits(bits)));
        assert!(written.inspect(|&agrees| assert!(agrees)).count() > 300_000);
    }

    #[test]
    #[ignore = "takes a minute, with --release"]
    fn every_value_agrees_with_zmij() {
        let differs = |&bits: &u32| agrees(f32::from_bits(bits)) == Some(false);
        assert_eq!((0..0x7f80_0000).find(differs).map(f32::from_bits), None);
    }

    proptest! {
        #[test]
        fn short_decimals_agree_with_zmij(digits in 1_i32..10_000_000, places in 0_i32..12) {
            #[expect(clippy::cast_possible_truncation, reason = "the nearest f32 is intended")]
            let value = (f64::from(digits) / 10_f64.powi(places)) as f32;
            prop_assert_ne!(agrees(value), Some(false));
        }

        #[test]
        fn texts_read_back(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            if let Some(text) = text(value) {
                prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), bits);
            }
        }
    }
}
