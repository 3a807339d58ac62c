//! Converts numbers in JSON text to the elements of a datatype.
//!
//! The digits are read once, eight at a time if possible, into a 64-bit significand and a power of ten.
//! Most numbers convert exactly from there with one multiplication or division (Clinger, "How to read floating point
//! numbers accurately", PLDI 1990); the rest are read again by the standard library, which is always exact.

use half::{bf16, f16};

use super::decimal::{self, MAX_FRACTION, WINDOW};

/// The `f64`s nearest to the powers of ten from -22 to 22.
const POWERS: [f64; 45] = [
    1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6,
    1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A number as it is written in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number<'a> {
    /// The text, which is valid JSON.
    text: &'a [u8],
    /// The digits without sign and point; meaningless if `overflow` is true.
    significand: u64,
    /// The power of ten that the significand is multiplied by.
    exponent: i64,
    negative: bool,
    /// Whether there are more digits than the significand holds, or the exponent is far out of range.
    overflow: bool,
    /// Whether there is neither a point nor an exponent.
    integer: bool,
}

/// Reads the number at the start of `text` and returns it with its length, or `None` if there is none.
#[expect(clippy::inline_always, reason = "returning the parts in registers makes reading a tensor 1.4 times as fast")]
#[inline(always)]
pub(super) fn scan(text: &[u8]) -> Option<(Number<'_>, usize)> {
    let mut position = 0;
    let negative = text.first() == Some(&b'-');
    position += usize::from(negative);

    let mut significand = 0_u64;
    let whole_start = position;
    single_digits(text, &mut position, &mut significand);
    let whole = position - whole_start;
    if whole == 0 || (whole > 1 && text[whole_start] == b'0') {
        return None;
    }
    let mut count = whole;
    let mut exponent = 0_i64;
    let mut integer = true;
    if text.get(position) == Some(&b'.') {
        integer = false;
        position += 1;
        let fraction_start = position;
        digits(text, &mut position, &mut significand);
        let fraction = position - fraction_start;
        if fraction == 0 {
            return None;
        }
        count += fraction;
        exponent = -i64::try_from(fraction).ok()?;
    }
    let mut overflow = false;
    if matches!(text.get(position), Some(b'e' | b'E')) {
        integer = false;
        position += 1;
        let down = text.get(position) == Some(&b'-');
        position += usize::from(matches!(text.get(position), Some(b'+' | b'-')));
        let start = position;
        let mut power = 0_u64;
        single_digits(text, &mut position, &mut power);
        if position == start {
            return None;
        }
        // Far out of the range of any float, so that the sums below cannot overflow.
        overflow = position - start > 6;
        let power = if overflow { 0 } else { i64::try_from(power).ok()? };
        exponent += if down { -power } else { power };
    }
    // Leading zeros count as digits here, which only sends a few more numbers down the slow path.
    overflow |= count > 19;
    Some((Number { text: &text[..position], significand, exponent, negative, overflow, integer }, position))
}

/// The powers of ten that shift a significand for up to seven more digits.
const SHIFTS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Appends the digits at `position` to `value`, wrapping if there are too many.
///
/// The processor predicts well whether eight digits follow, and then continues without waiting for them. It cannot predict
/// how many digits remain, so those are counted without a branch.
#[inline]
fn digits(text: &[u8], position: &mut usize, value: &mut u64) {
    while let Some(chunk) = text.get(*position..*position + 8).and_then(|chunk| chunk.try_into().ok()) {
        let (number, count) = leading_digits(chunk);
        if count < 8 {
            *value = value.wrapping_mul(SHIFTS[count & 7]).wrapping_add(number);
            *position += count;
            return;
        }
        *value = value.wrapping_mul(100_000_000).wrapping_add(number);
        *position += 8;
    }
    single_digits(text, position, value);
}

/// Appends the digits at `position` to `value`, one at a time, for numbers that usually have one or two.
#[inline]
fn single_digits(text: &[u8], position: &mut usize, value: &mut u64) {
    while let Some(byte) = text.get(*position) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return;
        }
        *value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        *position += 1;
    }
}

/// Reads the digits at the start of eight bytes, and counts them.
#[inline]
fn leading_digits(chunk: [u8; 8]) -> (u64, usize) {
    let values = u64::from_le_bytes(chunk).wrapping_sub(0x3030_3030_3030_3030);
    let bits = not_digits(values).trailing_zeros() & !7;
    // The digits are moved to the end, with zeros before them.
    (eight_digits(values.checked_shl(64 - bits).unwrap_or(0)), (bits / 8) as usize)
}

/// Sets the highest bit of the first of eight bytes that is above 9, and possibly of some after it.
#[inline]
pub(super) const fn not_digits(values: u64) -> u64 {
    // Carries only reach the bytes after the first one that is above 9.
    (values | values.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080
}

/// Returns the number that eight digits form, the first one in the lowest byte.
///
/// After Lemire, "Quickly parsing eight digits" (2018).
#[inline]
pub(super) const fn eight_digits(values: u64) -> u64 {
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let low = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(0x000F_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00FF_0000_00FF).wrapping_mul(0x0000_2710_0000_0001);
    low.wrapping_add(high) >> 32
}

impl Number<'_> {
    /// Returns the nearest `f64`, which is infinite if the number is out of range.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "the significand is below 2^53")]
    pub(super) fn to_f64(self) -> f64 {
        let exact = !self.overflow && self.significand < 1 << 53;
        if exact && let Some(value) = scale(self.significand as f64, self.exponent) {
            return if self.negative { -value } else { value };
        }
        let power = self.exponent.checked_neg().and_then(|power| usize::try_from(power).ok());
        let power = power.filter(|&power| power <= MAX_FRACTION && !self.overflow);
        if let Some(value) = power.and_then(|power| decimal::divided(self.significand, power)) {
            return if self.negative { -value } else { value };
        }
        self.to_f64_slowly()
    }

    /// Reports whether the number has neither a point nor an exponent.
    pub(super) const fn is_integer(self) -> bool {
        self.integer
    }

    fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.text).ok()
    }

    #[cold]
    fn to_f64_slowly(self) -> f64 {
        self.as_str().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    }

    /// Returns the integer if the number is one (as are `3`, `3.0` and `3e2`) and fits in 128 bits.
    #[inline]
    pub(super) fn to_integer(self) -> Option<i128> {
        if self.integer && !self.overflow {
            let value = i128::from(self.significand);
            return Some(if self.negative { -value } else { value });
        }
        self.to_integer_slowly()
    }

    #[cold]
    #[expect(clippy::cast_possible_truncation, reason = "checked to be integral and below 2^53")]
    fn to_integer_slowly(self) -> Option<i128> {
        if self.integer {
            return self.as_str()?.parse().ok();
        }
        let value = self.to_f64();
        (value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0).then_some(value as i128)
    }
}

/// Returns the `f64` nearest to a power of ten from -22 to 22, which is exact from 0 on.
#[inline]
fn power_of_ten(exponent: i64) -> Option<f64> {
    usize::try_from(exponent + 22).ok().and_then(|index| POWERS.get(index)).copied()
}

/// Multiplies by a power of ten, or returns `None` if that power is not exact.
#[inline]
fn scale(value: f64, exponent: i64) -> Option<f64> {
    let power = power_of_ten(i64::try_from(exponent.unsigned_abs()).ok()?)?;
    Some(if exponent < 0 { value / power } else { value * power })
}

/// An element of a datatype that is read from JSON.
pub(super) trait JsonElement: Sized + Copy {
    /// The expected value, for messages.
    const EXPECTED: &'static str;

    /// Reads the number at the start of `text` and returns it with its length, if it has a form with a faster path.
    #[inline]
    fn read_usual(_text: &[u8; WINDOW]) -> Option<(Self, usize)> {
        None
    }

    /// Converts a number, or returns `None` if it is not a value of the datatype.
    fn from_number(number: Number<'_>) -> Option<Self>;

    /// Converts `null`, which floating-point numbers read as NaN.
    fn from_null() -> Option<Self> {
        None
    }

    /// Converts `true` or `false`.
    fn from_bool(_value: bool) -> Option<Self> {
        None
    }

    /// Converts a string that contains a number, or for floats `NaN`, `Infinity` or `-Infinity`.
    fn from_text(text: &str) -> Option<Self> {
        let (number, length) = scan(text.as_bytes())?;
        if length == text.len() { Self::from_number(number) } else { None }
    }

    /// Appends the element's little-endian bytes.
    fn push(self, buffer: &mut Vec<u8>);
}

macro_rules! integers {
    ($($type:ty => $expected:literal),* $(,)?) => {
        $(impl JsonElement for $type {
            const EXPECTED: &'static str = $expected;

            #[inline]
            fn from_number(number: Number<'_>) -> Option<Self> {
                Self::try_from(number.to_integer()?).ok()
            }

            #[inline]
            fn push(self, buffer: &mut Vec<u8>) {
                buffer.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

integers! {
    u8 => "an integer from 0 to 255",
    u16 => "an integer from 0 to 65535",
    u32 => "an integer from 0 to 4294967295",
    u64 => "an integer from 0 to 18446744073709551615",
    i8 => "an integer from -128 to 127",
    i16 => "an integer from -32768 to 32767",
    i32 => "an integer from -2147483648 to 2147483647",
    i64 => "an integer from -9223372036854775808 to 9223372036854775807",
}

macro_rules! floats {
    ($($type:ty => $rounded:expr, $expected:literal);* $(;)?) => {
        $(impl JsonElement for $type {
            const EXPECTED: &'static str = $expected;

            // Always, to keep the constants in registers in the loop over a tensor.
            #[inline(always)]
            fn read_usual(text: &[u8; WINDOW]) -> Option<(Self, usize)> {
                let (value, length) = decimal::read_usual(text)?;
                let value: $type = $rounded(value);
                value.is_finite().then_some((value, length))
            }

            #[inline]
            fn from_number(number: Number<'_>) -> Option<Self> {
                let value: $type = $rounded(number.to_f64());
                value.is_finite().then_some(value)
            }

            fn from_null() -> Option<Self> {
                Some(Self::NAN)
            }

            fn from_text(text: &str) -> Option<Self> {
                match text {
                    "NaN" => Some(Self::NAN),
                    "Infinity" => Some(Self::INFINITY),
                    "-Infinity" => Some(Self::NEG_INFINITY),
                    _ => {
                        let (number, length) = scan(text.as_bytes())?;
                        if length == text.len() { Self::from_number(number) } else { None }
                    }
                }
            }

            #[inline]
            fn push(self, buffer: &mut Vec<u8>) {
                buffer.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

/// Returns the nearest `f32`, which is infinite beyond its range.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

floats! {
    f32 => to_f32, "a number up to 3.4028235e38, or null for NaN";
    f64 => |value| value, "a number up to 1.7976931348623157e308, or null for NaN";
    f16 => f16::from_f64, "a number up to 65504, or null for NaN";
    bf16 => bf16::from_f64, "a number up to 3.3895314e38, or null for NaN";
}

/// A BOOL element: one byte, 0 or 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bool(bool);

impl JsonElement for Bool {
    const EXPECTED: &'static str = "true, false, 1 or 0";

    fn from_number(number: Number<'_>) -> Option<Self> {
        match number.to_integer()? {
            0 => Some(Self(false)),
            1 => Some(Self(true)),
            _ => None,
        }
    }

    fn from_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }

    fn from_text(_text: &str) -> Option<Self> {
        None
    }

    #[inline]
    fn push(self, buffer: &mut Vec<u8>) {
        buffer.push(u8::from(self.0));
    }
}

/// An INT64 element that is written without a point and an exponent, as Python distinguishes integers from floats.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainInteger(i64);

impl JsonElement for PlainInteger {
    const EXPECTED: &'static str = "an integer without a point";

    #[inline]
    fn from_number(number: Number<'_>) -> Option<Self> {
        if number.integer { i64::from_number(number).map(Self) } else { None }
    }

    #[inline]
    fn push(self, buffer: &mut Vec<u8>) {
        self.0.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Number<'_> {
        let (number, length) = scan(text.as_bytes()).unwrap();
        assert_eq!(length, text.len(), "{text}");
        number
    }

    #[test]
    fn scan_accepts_only_json_numbers() {
        for text in ["", "-", "01", "-01", ".5", "1.", "1.e3", "1e", "1e+", "+1", "NaN", "Infinity"] {
            assert!(scan(text.as_bytes()).is_none(), "{text}");
        }
        for text in ["0", "-0", "0.0", "1e5", "1E+5", "1e-5", "12345678", "123456789012345678901234567890"] {
            assert!(scan(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn integers_are_exact_up_to_their_limits() {
        assert_eq!(u64::from_number(number("18446744073709551615")), Some(u64::MAX));
        assert_eq!(u64::from_number(number("18446744073709551616")), None);
        assert_eq!(i64::from_number(number("-9223372036854775808")), Some(i64::MIN));
        assert_eq!(i8::from_number(number("128")), None);
        assert_eq!(i8::from_number(number("-128")), Some(-128));
        assert_eq!(u8::from_number(number("-1")), None);
        assert_eq!(i32::from_number(number("3.0")), Some(3));
        assert_eq!(i32::from_number(number("3e2")), Some(300));
        assert_eq!(i32::from_number(number("1.9")), None);
        assert_eq!(i64::from_number(number("1e400")), None);
    }

    #[test]
    fn floats_are_correct_at_their_limits() {
        assert_eq!(f64::from_number(number("1e400")), None);
        assert_eq!(f64::from_number(number("1e-400")), Some(0.0));
        assert_eq!(f64::from_number(number("1e-99999999999")), Some(0.0));
        assert_eq!(f64::from_number(number("4.9e-324")), Some(5e-324));
        assert_eq!(f32::from_number(number("3.5e38")), None);
        assert_eq!(f32::from_number(number("3.4028235e38")), Some(f32::MAX));
        assert_eq!(f32::from_number(number("1e-45")), Some(1e-45));
        assert!(f32::from_number(number("-0.0")).unwrap().is_sign_negative());
        assert!(f64::from_number(number("-0")).unwrap().is_sign_negative());
        assert_eq!(f16::from_number(number("65504")), Some(f16::MAX));
        assert_eq!(f16::from_number(number("70000")), None);
    }

    proptest! {
        #[test]
        fn f64_reads_as_the_standard_library_reads(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(number(&text).to_f64().to_bits(), value.to_bits());
        }

        #[test]
        fn decimals_read_as_the_standard_library_reads(text in r"-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?") {
            let exact: f64 = text.parse().unwrap();
            prop_assert_eq!(number(&text).to_f64().to_bits(), exact.to_bits());
            #[expect(clippy::cast_possible_truncation, reason = "NumPy's own rounding")]
            let narrow = exact as f32;
            prop_assert_eq!(f32::from_number(number(&text)).unwrap_or(f32::INFINITY.copysign(narrow)).to_bits(), narrow.to_bits());
        }

        #[test]
        fn middles_between_f32s_round_as_the_standard_library_does(bits in 0x0080_0000_u32..0x7f00_0000, nudge in -3_i64..4) {
            let middle = f64::midpoint(f64::from(f32::from_bits(bits)), f64::from(f32::from_bits(bits + 1)));
            let near = f64::from_bits(middle.to_bits().checked_add_signed(nudge).unwrap());
            let text = serde_json::to_string(&near).unwrap();
            #[expect(clippy::cast_possible_truncation, reason = "NumPy's own rounding")]
            let expected = near as f32;
            prop_assert_eq!(f32::from_number(number(&text)).unwrap().to_bits(), expected.to_bits());
        }
    }
}
