//! The arithmetic of element types.

use half::f16;

use crate::onnx::tensor::Element;

/// A type that operators calculate with.
pub(super) trait Number: Element + Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    /// Whether a division by zero is a value.
    const IS_FLOAT: bool;

    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Divides. Integers are truncated towards zero; the divisor is not 0.
    fn over(self, other: Self) -> Self;
    /// Returns the remainder with the sign of the dividend; the divisor is not 0.
    fn remainder(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    /// Returns whether the number is below 0.
    fn is_below_zero(self) -> bool;
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    fn sign(self) -> Self;
    fn of_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Converts an integer, if it is in the range of the type. Floating-point numbers are rounded.
    fn of_i64(value: i64) -> Option<Self>;

    /// Returns the larger one, or NaN if one of them is.
    fn larger(self, other: Self) -> Self {
        if self.is_nan() || self > other { self } else { other }
    }

    /// Returns the smaller one, or NaN if one of them is.
    fn smaller(self, other: Self) -> Self {
        if self.is_nan() || self < other { self } else { other }
    }
}

/// A floating-point type.
pub(super) trait Float: Number {
    fn exponential(self) -> Self;
    fn logarithm(self) -> Self;
    fn root(self) -> Self;
    fn hyperbolic_tangent(self) -> Self;
    fn rounded(self, how: Rounding) -> Self;
}

/// How numbers become whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Down,
    Up,
    /// To the nearest one, and halves to the even one.
    Even,
}

macro_rules! integers {
    ($($type:ty: $absolute:expr, $signum:expr);*) => { $(
        impl Number for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = <$type>::MIN;
            const HIGHEST: Self = <$type>::MAX;
            const IS_FLOAT: bool = false;

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn over(self, other: Self) -> Self {
                self.wrapping_div(other)
            }

            fn remainder(self, other: Self) -> Self {
                self.wrapping_rem(other)
            }

            fn is_nan(self) -> bool {
                false
            }

            fn is_below_zero(self) -> bool {
                Self::default().cmp(&self).is_gt()
            }

            fn absolute(self) -> Self {
                $absolute(self)
            }

            fn negated(self) -> Self {
                self.wrapping_neg()
            }

            fn sign(self) -> Self {
                $signum(self)
            }

            fn of_i64(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }

            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
            fn of_f64(value: f64) -> Self {
                value as Self
            }

            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "rounds, as documented")]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )* };
}
integers! {
    i8: Self::wrapping_abs, Self::signum;
    i16: Self::wrapping_abs, Self::signum;
    i32: Self::wrapping_abs, Self::signum;
    i64: Self::wrapping_abs, Self::signum;
    u8: std::convert::identity, |value: Self| value.min(1);
    u16: std::convert::identity, |value: Self| value.min(1);
    u32: std::convert::identity, |value: Self| value.min(1);
    u64: std::convert::identity, |value: Self| value.min(1)
}

macro_rules! floats {
    ($($type:ty: $of:expr),*) => { $(
        impl Number for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$type>::NEG_INFINITY;
            const HIGHEST: Self = <$type>::INFINITY;
            const IS_FLOAT: bool = true;

            #[inline]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline]
            fn over(self, other: Self) -> Self {
                self / other
            }

            fn remainder(self, other: Self) -> Self {
                self % other
            }

            #[inline]
            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_below_zero(self) -> bool {
                self < 0.0
            }

            #[inline]
            fn absolute(self) -> Self {
                self.abs()
            }

            #[inline]
            fn negated(self) -> Self {
                -self
            }

            fn sign(self) -> Self {
                if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else if self.is_nan() { self } else { 0.0 }
            }

            fn of_f64(value: f64) -> Self {
                $of(value)
            }

            #[expect(clippy::cast_precision_loss, reason = "rounds, as documented")]
            fn of_i64(value: i64) -> Option<Self> {
                Some(value as Self)
            }

            fn to_f64(self) -> f64 {
                self.into()
            }
        }

        impl Float for $type {
            fn exponential(self) -> Self {
                self.exp()
            }

            fn logarithm(self) -> Self {
                self.ln()
            }

            #[inline]
            fn root(self) -> Self {
                self.sqrt()
            }

            fn hyperbolic_tangent(self) -> Self {
                self.tanh()
            }

            fn rounded(self, how: Rounding) -> Self {
                match how {
                    Rounding::Down => self.floor(),
                    Rounding::Up => self.ceil(),
                    Rounding::Even => self.round_ties_even(),
                }
            }
        }
    )* };
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest number")]
const fn single(value: f64) -> f32 {
    value as f32
}
floats! { f32: single, f64: std::convert::identity }

/// Runs an expression in which `$T` is a numeric type, or returns the fault of another type.
macro_rules! numeric {
    ($element:expr, $T:ident => $body:expr) => {
        crate::onnx::tables::number::numeric!($element, [F32 f32, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64], $T => $body)
    };
    ($element:expr, [$($variant:ident $type:ty),*], $T:ident => $body:expr) => {
        match $element {
            $(crate::onnx::tensor::ElementType::$variant => {
                type $T = $type;
                $body
            })*
            other => Err(crate::onnx::node::NodeSpec::type_fault(other)),
        }
    };
}

/// Runs an expression in which `$T` is a floating-point type, or returns the fault of another type.
macro_rules! floating {
    ($element:expr, $T:ident => $body:expr) => {
        crate::onnx::tables::number::numeric!($element, [F32 f32, F64 f64], $T => $body)
    };
}
pub(super) use {floating, numeric};

/// A conversion between types of numbers, as `Cast` does it.
pub(super) trait Convert<T> {
    fn convert(self) -> T;
}

macro_rules! convert {
    ($($from:ty => [$($to:ty),*]);*) => { $($(
        impl Convert<$to> for $from {
            #[expect(clippy::allow_attributes, reason = "not every pair needs every exception")]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                clippy::cast_lossless,
                clippy::cast_possible_wrap,
                clippy::unnecessary_cast,
                reason = "integers wrap, and numbers are rounded"
            )]
            #[inline]
            fn convert(self) -> $to {
                self as $to
            }
        }
    )*)* };
}
convert! {
    i8 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    i16 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    i32 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    i64 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    u8 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    u16 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    u32 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    u64 => [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64];
    f32 => [f32, f64];
    f64 => [f32, f64]
}

/// Floating-point numbers outside of the range of an integer have no defined value in ONNX. onnxruntime on x86-64 returns the lowest
/// value of the type for 32 and 64 bits (`cvttss2si`), and the lower bits of that of 32 bits for fewer.
macro_rules! convert_floats {
    ($($from:ty),*) => { $(
        impl Convert<i32> for $from {
            #[expect(clippy::cast_possible_truncation, reason = "values outside of the range were handled")]
            #[inline]
            fn convert(self) -> i32 {
                if (-2_147_483_648.0..2_147_483_648.0).contains(&self) { self as i32 } else { i32::MIN }
            }
        }

        impl Convert<i64> for $from {
            #[expect(clippy::cast_possible_truncation, reason = "values outside of the range were handled")]
            #[inline]
            fn convert(self) -> i64 {
                if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&self) { self as i64 } else { i64::MIN }
            }
        }

        convert_floats!($from, i32 => [i8, i16, u8, u16]);
        convert_floats!($from, i64 => [u32]);

        impl Convert<u64> for $from {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "values outside of the range were handled")]
            fn convert(self) -> u64 {
                if (9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&self) {
                    self as u64
                } else {
                    Convert::<i64>::convert(self).cast_unsigned()
                }
            }
        }
    )* };
    ($from:ty, $through:ty => [$($to:ty),*]) => { $(
        impl Convert<$to> for $from {
            fn convert(self) -> $to {
                Convert::<$to>::convert(Convert::<$through>::convert(self))
            }
        }
    )* };
}
convert_floats!(f32, f64);

macro_rules! convert_others {
    ($($type:ty),*) => { $(
        impl Convert<$type> for bool {
            fn convert(self) -> $type {
                if self { <$type>::ONE } else { <$type>::ZERO }
            }
        }

        impl Convert<bool> for $type {
            fn convert(self) -> bool {
                self != <$type>::ZERO
            }
        }

        impl Convert<$type> for f16 {
            fn convert(self) -> $type {
                self.to_f32().convert()
            }
        }

        impl Convert<f16> for $type {
            fn convert(self) -> f16 {
                let single: f32 = self.convert();
                f16::from_f32(single)
            }
        }
    )* };
}
convert_others!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Convert<Self> for bool {
    fn convert(self) -> Self {
        self
    }
}

impl Convert<Self> for f16 {
    fn convert(self) -> Self {
        self
    }
}

impl Convert<bool> for f16 {
    fn convert(self) -> bool {
        self.to_f32() != 0.0
    }
}

impl Convert<f16> for bool {
    fn convert(self) -> f16 {
        f16::from_f32(if self { 1.0 } else { 0.0 })
    }
}
