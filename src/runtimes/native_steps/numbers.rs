//! The numbers of tensors: how they are read, converted and promoted.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::types::Datatype;

/// A Rust type whose values are the elements of a datatype. BOOL is read as the bytes 0 and 1.
pub(super) trait Number: Pod + PartialOrd {
    /// The type of floating-point results about such numbers: the type itself, or FP64 for integers.
    type Float: Number;
    /// The datatype of the numbers.
    const DATATYPE: Datatype;

    /// Returns the number as FP64. Only integers of 64 bits are rounded.
    fn to_f64(self) -> f64;

    /// Returns the number as an integer, or `None` if it has a fraction, is NaN, or is not in the range of `i128`.
    fn to_integer(self) -> Option<i128>;

    /// Rounds to the nearest number of this type. Only meaningful for floating-point types.
    fn from_f64(value: f64) -> Self;

    /// Converts a number of a datatype that this one [holds](promote).
    fn from_number<S: Number>(number: S) -> Self;
}

macro_rules! integers {
    ($($type:ty => $datatype:ident, $to_f64:expr;)*) => {
        $(impl Number for $type {
            type Float = f64;
            const DATATYPE: Datatype = Datatype::$datatype;

            fn to_f64(self) -> f64 {
                $to_f64(self)
            }

            fn to_integer(self) -> Option<i128> {
                Some(self.into())
            }

            fn from_f64(value: f64) -> Self {
                Self::from_number(value)
            }

            fn from_number<S: Number>(number: S) -> Self {
                number.to_integer().and_then(|integer| integer.try_into().ok()).unwrap_or_default()
            }
        })*
    };
}

macro_rules! floats {
    ($($type:ty => $datatype:ident, $to_f64:expr, $from_f64:expr;)*) => {
        $(impl Number for $type {
            type Float = Self;
            const DATATYPE: Datatype = Datatype::$datatype;

            fn to_f64(self) -> f64 {
                $to_f64(self)
            }

            fn to_integer(self) -> Option<i128> {
                integer_of(self.to_f64())
            }

            fn from_f64(value: f64) -> Self {
                $from_f64(value)
            }

            fn from_number<S: Number>(number: S) -> Self {
                Self::from_f64(number.to_f64())
            }
        })*
    };
}

integers! {
    u8 => Uint8, f64::from;
    u16 => Uint16, f64::from;
    u32 => Uint32, f64::from;
    u64 => Uint64, wide_unsigned;
    i8 => Int8, f64::from;
    i16 => Int16, f64::from;
    i32 => Int32, f64::from;
    i64 => Int64, wide_signed;
}

floats! {
    f16 => Fp16, f16::to_f64, f16::from_f64;
    bf16 => Bf16, bf16::to_f64, bf16::from_f64;
    f32 => Fp32, f64::from, narrow;
    f64 => Fp64, std::convert::identity, std::convert::identity;
}

#[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
const fn wide_unsigned(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
const fn wide_signed(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_possible_truncation, reason = "the value is whole and within the range")]
fn integer_of(value: f64) -> Option<i128> {
    /// 2 to the power of 127.
    const LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    (value.abs() < LIMIT && value.fract() == 0.0).then_some(value as i128)
}

/// Iterates over the numbers in a buffer, which need not be aligned.
pub(super) fn numbers<T: Number>(bytes: &[u8]) -> impl ExactSizeIterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Evaluates an expression with the type of a datatype's numbers, or another one for BYTES.
macro_rules! with_number {
    ($datatype:expr, $number:ident => $numbers:expr, $bytes:expr) => {
        match $datatype {
            $crate::types::Datatype::Bool | $crate::types::Datatype::Uint8 => {
                type $number = u8;
                $numbers
            }
            $crate::types::Datatype::Uint16 => {
                type $number = u16;
                $numbers
            }
            $crate::types::Datatype::Uint32 => {
                type $number = u32;
                $numbers
            }
            $crate::types::Datatype::Uint64 => {
                type $number = u64;
                $numbers
            }
            $crate::types::Datatype::Int8 => {
                type $number = i8;
                $numbers
            }
            $crate::types::Datatype::Int16 => {
                type $number = i16;
                $numbers
            }
            $crate::types::Datatype::Int32 => {
                type $number = i32;
                $numbers
            }
            $crate::types::Datatype::Int64 => {
                type $number = i64;
                $numbers
            }
            $crate::types::Datatype::Fp16 => {
                type $number = half::f16;
                $numbers
            }
            $crate::types::Datatype::Bf16 => {
                type $number = half::bf16;
                $numbers
            }
            $crate::types::Datatype::Fp32 => {
                type $number = f32;
                $numbers
            }
            $crate::types::Datatype::Fp64 => {
                type $number = f64;
                $numbers
            }
            $crate::types::Datatype::Bytes => $bytes,
        }
    };
}
pub(super) use with_number;

/// The datatypes to which others are promoted, the smallest first.
const PROMOTIONS: [Datatype; 13] = [
    Datatype::Bool,
    Datatype::Uint8,
    Datatype::Int8,
    Datatype::Uint16,
    Datatype::Int16,
    Datatype::Fp16,
    Datatype::Bf16,
    Datatype::Uint32,
    Datatype::Int32,
    Datatype::Fp32,
    Datatype::Uint64,
    Datatype::Int64,
    Datatype::Fp64,
];

/// Returns the smallest datatype that holds the values of all given ones, or `None` if some but not all of them are BYTES.
///
/// Two datatypes are promoted as NumPy does, but the result for more of them does not depend on their order. As in NumPy, FP64 stands in for a
/// datatype that holds integers of 64 bits and something else.
pub(super) fn promote(datatypes: &[Datatype]) -> Option<Datatype> {
    let bytes = datatypes.iter().filter(|datatype| **datatype == Datatype::Bytes).count();
    match bytes {
        0 => PROMOTIONS.into_iter().find(|&wide| datatypes.iter().all(|&narrow| wide == narrow || holds(wide, narrow))),
        count if count == datatypes.len() => Some(Datatype::Bytes),
        _ => None,
    }
}

/// Reports whether a datatype has all the values of another one.
fn holds(wide: Datatype, narrow: Datatype) -> bool {
    /// A datatype's integers that are in it without a gap.
    enum Range {
        Unsigned(usize),
        Signed(usize),
        /// A float, and the bits of integers that it holds.
        Float(usize),
    }
    let range = |datatype: Datatype| {
        let bits = datatype.width().unwrap_or_default() * 8;
        match datatype {
            Datatype::Bool => Range::Unsigned(1),
            Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 | Datatype::Uint64 => Range::Unsigned(bits),
            Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 => Range::Signed(bits),
            Datatype::Fp64 => Range::Float(64),
            Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 => Range::Float(bits / 2),
            Datatype::Bytes => Range::Unsigned(0),
        }
    };
    match (range(wide), range(narrow)) {
        (Range::Unsigned(wide), Range::Unsigned(narrow))
        | (Range::Signed(wide), Range::Signed(narrow))
        | (Range::Float(wide), Range::Unsigned(narrow) | Range::Signed(narrow)) => wide >= narrow,
        // FP16 and BF16 differ in range and in precision.
        (Range::Signed(wide), Range::Unsigned(narrow)) | (Range::Float(wide), Range::Float(narrow)) => wide > narrow,
        (Range::Unsigned(_), Range::Signed(_)) | (Range::Unsigned(_) | Range::Signed(_), Range::Float(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promoted(names: &[&str]) -> Option<&'static str> {
        let datatypes: Vec<Datatype> = names.iter().map(|name| name.parse().unwrap()).collect();
        promote(&datatypes).map(Datatype::name)
    }

    #[test]
    fn promotion_of_pairs_is_that_of_numpy() {
        // `numpy.promote_types`, and that of `ml_dtypes` for BF16.
        let table = [
            ("BOOL", "UINT8", "UINT8"),
            ("BOOL", "FP16", "FP16"),
            ("UINT8", "INT8", "INT16"),
            ("UINT16", "INT8", "INT32"),
            ("UINT16", "INT32", "INT32"),
            ("UINT32", "INT32", "INT64"),
            ("UINT64", "INT8", "FP64"),
            ("UINT64", "UINT8", "UINT64"),
            ("INT8", "FP16", "FP16"),
            ("UINT8", "FP16", "FP16"),
            ("INT16", "FP16", "FP32"),
            ("INT32", "FP16", "FP64"),
            ("UINT16", "FP32", "FP32"),
            ("INT32", "FP32", "FP64"),
            ("INT64", "FP32", "FP64"),
            ("FP16", "FP32", "FP32"),
            ("FP32", "FP64", "FP64"),
            ("FP16", "BF16", "FP32"),
            ("BF16", "FP32", "FP32"),
            ("BYTES", "BYTES", "BYTES"),
        ];
        for (first, second, expected) in table {
            assert_eq!(promoted(&[first, second]), Some(expected), "{first} and {second}");
            assert_eq!(promoted(&[second, first]), Some(expected), "{second} and {first}");
            assert_eq!(promoted(&[expected, first]), Some(expected));
        }
        assert_eq!(promoted(&["BYTES", "BOOL"]), None);
        assert_eq!(promoted(&["INT8", "UINT8", "FP16"]), Some("FP16"), "in any order");
        assert_eq!(promoted(&["FP16", "UINT8", "INT8"]), Some("FP16"), "in any order");
    }

    #[test]
    fn promotion_keeps_the_extreme_values_of_every_datatype() {
        fn extremes<T: Number>() -> Vec<T> {
            let bytes: Vec<u8> = match T::DATATYPE {
                Datatype::Fp16 => bytemuck::cast_slice(&[f16::MIN, f16::MAX, f16::MIN_POSITIVE_SUBNORMAL]).to_vec(),
                Datatype::Bf16 => bytemuck::cast_slice(&[bf16::MIN, bf16::MAX, bf16::MIN_POSITIVE_SUBNORMAL]).to_vec(),
                Datatype::Fp32 => bytemuck::cast_slice(&[f32::MIN, f32::MAX, f32::from_bits(1)]).to_vec(),
                Datatype::Fp64 => bytemuck::cast_slice(&[f64::MIN, f64::MAX, f64::from_bits(1)]).to_vec(),
                _ => {
                    // The patterns with the smallest and the largest values, and their neighbors.
                    let width = size_of::<T>();
                    let pattern = |first: u8, rest: u8| {
                        let mut bytes = vec![rest; width];
                        bytes[width - 1] = first;
                        bytes
                    };
                    [pattern(0x80, 0), pattern(0x7f, 0xff), pattern(0xff, 0xff), pattern(0, 0), pattern(0x80, 0xff)]
                        .concat()
                }
            };
            numbers(&bytes).collect()
        }
        for first in PROMOTIONS.into_iter().skip(1) {
            for second in PROMOTIONS.into_iter().skip(1) {
                let target = promote(&[first, second]).unwrap();
                let is_rounded = target == Datatype::Fp64 && first.width() == Some(8);
                with_number!(first, S => with_number!(target, T => {
                    for value in extremes::<S>() {
                        let promoted = T::from_number(value);
                        if is_rounded {
                            assert_eq!(promoted.to_f64().to_bits(), value.to_f64().to_bits());
                        } else {
                            assert_eq!(promoted.to_integer(), value.to_integer(), "{first} to {target}");
                            assert_eq!(promoted.to_f64().to_bits(), value.to_f64().to_bits(), "{first} to {target}");
                        }
                    }
                }, unreachable!()), unreachable!());
                let smaller = PROMOTIONS.into_iter().take_while(|&datatype| datatype != target);
                for datatype in smaller {
                    let both = [first, second].iter().all(|&narrow| datatype == narrow || holds(datatype, narrow));
                    assert!(!both, "{first} and {second}: {datatype} is smaller than {target}");
                }
            }
        }
    }

    #[test]
    fn integers_are_exact_and_fractions_are_none() {
        assert_eq!(u64::MAX.to_integer(), Some(i128::from(u64::MAX)));
        assert_eq!((-0.0_f64).to_integer(), Some(0));
        assert_eq!(f16::from_f32(-3.0).to_integer(), Some(-3));
        assert_eq!(2_f32.powi(126).to_integer(), Some(1 << 126));
        for none in [0.5, f64::NAN, f64::INFINITY, 2_f64.powi(127), f64::MIN] {
            assert_eq!(none.to_integer(), None);
        }
    }
}
