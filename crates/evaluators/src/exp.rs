//! The exponential function of many numbers.
//!
//! It works without branches and tables, so that several numbers are computed at once: 2^n by its bits, times the Taylor series of
//! the remainder, which is at most half the logarithm of two.

use crate::wide::wide;

/// Raises e to each number in place, correct to the last bit or two.
pub(crate) fn exp(values: &mut [f64]) {
    const BLOCK: usize = 64;
    // Beyond this, results are not normal numbers.
    const MOST: f64 = 708.0;
    for block in values.chunks_mut(BLOCK) {
        if block.iter().fold(true, |all, value| all & (value.abs() < MOST)) {
            wide(
                #[inline(always)]
                || block.iter_mut().for_each(|value| *value = exp_of_moderate(*value)),
            );
        } else {
            for value in block {
                *value = value.exp();
            }
        }
    }
}

// Inlined, because `wide` selects the instruction set.
#[inline(always)]
fn exp_of_moderate(x: f64) -> f64 {
    // 1.5 * 2^52: adding it rounds to an integer, in the lowest bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    // The logarithm of two in two parts. Products of the first part with integers are exact.
    const LN_2: (f64, f64) = (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10);
    const INVERSE_FACTORIALS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let shifted = x * std::f64::consts::LOG2_E + SHIFT;
    let whole = shifted - SHIFT;
    let rest = x - whole * LN_2.0 - whole * LN_2.1;
    let mut series = 0.0;
    for factor in INVERSE_FACTORIALS {
        series = series * rest + factor;
    }
    series * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0_f64.to_bits()))
}

/// Raises e to each number in place, correct to two units in the last place.
pub(crate) fn exp_single(values: &mut [f32]) {
    wide(
        #[inline(always)]
        || values.iter_mut().for_each(|value| *value = exp_of_single(*value)),
    );
}

// Inlined, because `wide` selects the instruction set.
#[inline(always)]
fn exp_of_single(x: f32) -> f32 {
    // 1.5 * 2^23: adding it rounds to an integer, in the lowest bits.
    const SHIFT: f32 = 12_582_912.0;
    // Beyond these, results are zero and infinite.
    const LEAST: f32 = -104.0;
    const MOST: f32 = 89.0;
    // The logarithm of two in two parts. Products of the first part with integers are exact.
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    const INVERSE_FACTORIALS: [f32; 8] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    // NaN stays what it is.
    let x = if x < LEAST { LEAST } else { x };
    let x = if x > MOST { MOST } else { x };
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let whole = shifted - SHIFT;
    let rest = x - whole * LN_2.0 - whole * LN_2.1;
    let mut series = 0.0;
    for factor in INVERSE_FACTORIALS {
        series = series * rest + factor;
    }
    // Two factors, because 2^n itself can be too large or too small.
    let exponent = shifted.to_bits().wrapping_sub(SHIFT.to_bits()).cast_signed();
    let power = |exponent: i32| f32::from_bits((exponent.cast_unsigned() << 23).wrapping_add(1.0_f32.to_bits()));
    series * power(exponent >> 1) * power(exponent - (exponent >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_matches_std_within_two_ulps() {
        let numbers: Vec<f64> = (-720_000..720_000).map(|step| f64::from(step) * 1e-3 + 1.7e-5).collect();
        let mut found = numbers.clone();
        exp(&mut found);
        for (x, found) in numbers.iter().zip(found) {
            let wanted = x.exp();
            let same = found.to_bits().abs_diff(wanted.to_bits()) <= 2;
            assert!(same, "e^{x} is {found:e} instead of {wanted:e}");
        }
        let mut odd = [0.0, -0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY];
        exp(&mut odd[..2]);
        exp(&mut odd[2..]);
        assert_eq!(odd.map(f64::to_bits), [1.0, 1.0, 1.0_f64.exp(), 0.0, f64::INFINITY].map(f64::to_bits));
        let mut nan = [f64::NAN];
        exp(&mut nan);
        assert!(nan[0].is_nan());
    }

    #[test]
    fn exp_of_single_precision_matches_double_within_two_ulps() {
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the precision of the result")]
        let wanted = |x: f32| f64::from(x).exp() as f32;
        let numbers: Vec<f32> = (0..2_200_000_u32).map(|step| f32::from_bits(step << 10 & 0x7fff_ffff)).collect();
        for sign in [1.0, -1.0] {
            let numbers: Vec<f32> = numbers.iter().map(|number| number * sign).filter(|x| !x.is_nan()).collect();
            let mut found = numbers.clone();
            exp_single(&mut found);
            for (x, found) in numbers.iter().zip(found) {
                let wanted = wanted(*x);
                let same = found.to_bits().abs_diff(wanted.to_bits()) <= 2;
                assert!(same, "e^{x} is {found:e} instead of {wanted:e}");
            }
        }
        let mut odd = [0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, f32::MIN, f32::MAX];
        exp_single(&mut odd);
        assert_eq!(odd.map(f32::to_bits), [1.0, 1.0, 0.0, f32::INFINITY, 0.0, f32::INFINITY].map(f32::to_bits));
        let mut nan = [f32::NAN];
        exp_single(&mut nan);
        assert!(nan[0].is_nan());
    }
}
