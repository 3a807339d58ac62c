//! The two precisions: `XGBoost` computes in `f32`, `LightGBM` in `f64`.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Mul, Neg};

/// A floating-point type that a forest is evaluated in.
pub(crate) trait Scalar:
    Copy
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Into<f64>
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;

    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
    fn abs(self) -> Self;
    fn is_nan(self) -> bool;
    /// Returns the `u` for which `x <= u` is equivalent to `x < self` for every `x`, or NaN if no value is below
    /// `self`.
    fn below(self) -> Self;
    /// Truncates to an unsigned number. Negative values become 0, and values beyond the range its maximum.
    fn truncate(self) -> u32;
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NAN: Self = Self::NAN;

    #[inline]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "XGBoost rounds its input to single precision")]
    fn from_f64(value: f64) -> Self {
        value as Self
    }

    #[inline]
    fn abs(self) -> Self {
        self.abs()
    }

    #[inline]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    fn below(self) -> Self {
        if self == Self::NEG_INFINITY { Self::NAN } else { self.next_down() }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as documented")]
    fn truncate(self) -> u32 {
        self as u32
    }
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NAN: Self = Self::NAN;

    #[inline]
    fn from_f32(value: f32) -> Self {
        Self::from(value)
    }

    #[inline]
    fn from_f64(value: f64) -> Self {
        value
    }

    #[inline]
    fn abs(self) -> Self {
        self.abs()
    }

    #[inline]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    fn below(self) -> Self {
        if self == Self::NEG_INFINITY { Self::NAN } else { self.next_down() }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as documented")]
    fn truncate(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Scalar;

    #[test]
    fn below_converts_less_than_to_at_most() {
        let interesting = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.5,
            -f32::MIN_POSITIVE,
            -1e-45,
            -0.0,
            0.0,
            1e-45,
            f32::MIN_POSITIVE,
            1.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        for threshold in interesting {
            for x in interesting {
                assert_eq!(x < threshold, x <= threshold.below(), "{x} < {threshold}");
                // A split is reversed by testing the negated value.
                assert_eq!(x > threshold, -x <= (-threshold).below(), "{x} > {threshold}");
            }
        }
    }
}
