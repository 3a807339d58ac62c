//! Numerical routines that several families share.

use crate::wide::wide;

/// Returns the logistic function of a number.
pub(super) fn expit(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns the error function of a number, within 1e-15.
pub(crate) fn erf(x: f64) -> f64 {
    // From here on, a continued fraction of this many terms is exact. Before, a series is short.
    const LARGE: f64 = 2.0;
    const TERMS: u32 = 60;
    let size = x.abs();
    if size >= LARGE {
        let fraction = (1..=TERMS).rev().fold(size, |fraction, term| size + 0.5 * f64::from(term) / fraction);
        let rest = (-size * size).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI * 0.5;
        return (1.0 - rest).copysign(x);
    }
    // The terms have one sign, so that they do not cancel each other.
    let (mut term, mut sum, mut count) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * 0.25 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * count + 1.0);
        sum += term;
        count += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Returns the index of the first of the largest values, or 0 if there are none. As in NumPy, NaN is larger than all
/// others.
pub(super) fn argmax(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] || value.is_nan() && !values[best].is_nan() {
            best = index;
        }
    }
    best
}

/// Turns scores into probabilities, in place.
pub(super) fn softmax(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
    }
    normalize(row);
}

/// Divides all numbers by their sum.
pub(super) fn normalize(row: &mut [f64]) {
    divide(row, row.iter().sum());
}

/// Divides every number.
pub(super) fn divide(values: &mut [f64], by: f64) {
    for value in values {
        *value /= by;
    }
}

/// Turns logarithms into shares of the sum of their exponentials, in place.
pub(super) fn exp_normalize(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = row.iter().map(|log| (log - largest).exp()).sum::<f64>().ln() + largest;
    for log in row.iter_mut() {
        *log = (*log - total).exp();
    }
}

/// Returns the sum, added in the order in which NumPy adds contiguous numbers.
pub(super) fn pairwise_sum(values: &[f64]) -> f64 {
    const LANES: usize = 8;
    const BLOCK: usize = 128;
    let count = values.len();
    if count < LANES {
        return values.iter().sum();
    }
    if count > BLOCK {
        let half = count / 2 - count / 2 % LANES;
        return pairwise_sum(&values[..half]) + pairwise_sum(&values[half..]);
    }
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    let quarter = |at: usize| (lanes[at] + lanes[at + 1]) + (lanes[at + 2] + lanes[at + 3]);
    rest.iter().fold(quarter(0) + quarter(4), |sum, value| sum + value)
}

/// Returns the logarithmic derivative of the gamma function. Negative numbers and zero give NaN.
pub(super) fn digamma(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return f64::NAN;
    }
    // From 10 on, the series has full double precision.
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    // Bernoulli numbers divided by their index.
    let terms = [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 5.0 / 660.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let series = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * square);
    sum + x.ln() - 0.5 / x - series
}

/// NumPy's `interp`: interpolates at `x` between `count` points with ascending x-coordinates.
pub(super) fn interpolate(x: f64, count: usize, point: impl Fn(usize) -> (f64, f64)) -> f64 {
    // The number of points that are not beyond `x`.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if point(middle).0 <= x {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let Some(before) = low.checked_sub(1) else { return point(0).1 };
    let (left, bottom) = point(before);
    if low == count || left.total_cmp(&x).is_eq() {
        return bottom;
    }
    let (right, top) = point(low);
    let slope = (top - bottom) / (right - left);
    slope * (x - left) + bottom
}

/// Returns the quantile of the normal distribution, by the approximation of Cephes that `SciPy` uses.
pub(super) fn normal_quantile(share: f64) -> f64 {
    const NEAR: [f64; 5] = [
        -5.996_335_010_141_079e1,
        9.800_107_541_859_996e1,
        -5.667_628_574_690_703e1,
        1.393_126_093_872_795e1,
        -1.239_165_838_673_812_5,
    ];
    const NEAR_BELOW: [f64; 8] = [
        1.954_488_583_381_417_6,
        4.676_279_128_988_815,
        8.636_024_213_908_906e1,
        -2.254_626_878_541_193_7e2,
        2.002_602_123_800_606_6e2,
        -8.203_722_561_683_334e1,
        1.590_562_251_262_117e1,
        -1.183_316_211_213_3,
    ];
    const FAR: [f64; 9] = [
        4.055_448_923_059_624_5,
        3.152_510_945_998_938_7e1,
        5.716_281_922_464_213e1,
        4.408_050_738_932_008e1,
        1.468_495_619_288_580_2e1,
        2.186_633_068_507_902_5,
        -1.402_560_791_713_545e-1,
        -3.504_246_268_278_482e-2,
        -8.574_567_851_546_854e-4,
    ];
    const FAR_BELOW: [f64; 8] = [
        1.577_998_832_564_667_5e1,
        4.539_076_351_288_792e1,
        4.131_720_382_546_72e1,
        1.504_253_856_929_075e1,
        2.504_649_462_083_094,
        -1.421_829_228_547_878e-1,
        -3.808_064_076_915_783e-2,
        -9.332_594_808_954_574e-4,
    ];
    const END: [f64; 9] = [
        3.237_748_917_769_460_3,
        6.915_228_890_689_842,
        3.938_810_252_924_744,
        1.333_034_608_158_075_5,
        2.014_853_895_491_790_8e-1,
        1.237_166_348_178_200_3e-2,
        3.015_815_535_082_354_3e-4,
        2.658_069_746_867_375_5e-6,
        6.239_745_391_849_833e-9,
    ];
    const END_BELOW: [f64; 8] = [
        6.024_270_393_647_42,
        3.679_835_638_561_608_7,
        1.377_020_994_890_813_3,
        2.162_369_935_944_966_3e-1,
        1.342_040_060_885_431_9e-2,
        3.280_144_646_821_277_4e-4,
        2.892_478_647_453_807e-6,
        6.790_194_080_099_813e-9,
    ];
    let polynomial = |x: f64, terms: &[f64]| terms.iter().fold(0.0, |sum, term| sum * x + term);
    // The leading coefficient of the denominator is one and is not stored.
    let monic = |x: f64, terms: &[f64]| terms.iter().fold(1.0, |sum, term| sum * x + term);
    if share <= 0.0 || share >= 1.0 || share.is_nan() {
        return if share == 0.0 {
            f64::NEG_INFINITY
        } else if share > 0.0 {
            f64::INFINITY
        } else {
            f64::NAN
        };
    }
    // e^-2
    let tail = 0.135_335_283_236_612_7;
    let (upper, mut y) = (share > 1.0 - tail, share);
    if upper {
        y = 1.0 - y;
    }
    if y > tail {
        let y = y - 0.5;
        let square = y * y;
        let x = y + y * (square * polynomial(square, &NEAR) / monic(square, &NEAR_BELOW));
        return x * 2.506_628_274_631_000_7;
    }
    let x = (-2.0 * y.ln()).sqrt();
    let first = x - x.ln() / x;
    let z = 1.0 / x;
    let second = if x < 8.0 {
        z * polynomial(z, &FAR) / monic(z, &FAR_BELOW)
    } else {
        z * polynomial(z, &END) / monic(z, &END_BELOW)
    };
    let x = first - second;
    if upper { x } else { -x }
}

/// Transposes a matrix.
pub(super) fn transpose(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut transposed = Vec::with_capacity(values.len());
    for column in 0..columns {
        transposed.extend((0..rows).map(|row| values[row * columns + column]));
    }
    transposed
}

/// Solves `matrix @ x = b` for a symmetric, positive definite matrix. `b` has a row for each row of the matrix and becomes the
/// solution; the matrix is overwritten. Returns false if the matrix is not positive definite.
pub(super) fn solve_positive(matrix: &mut [f64], size: usize, b: &mut [f64]) -> bool {
    let columns = b.len() / size.max(1);
    // The lower triangle becomes the factor of Cholesky.
    for row in 0..size {
        for column in 0..=row {
            let (before, rest) = matrix.split_at(row * size);
            let other = if column == row { rest } else { &before[column * size..] };
            let sum = rest[column] - dot(&rest[..column], &other[..column]);
            matrix[row * size + column] = if column < row {
                sum / matrix[column * size + column]
            } else if sum > 0.0 {
                sum.sqrt()
            } else {
                return false;
            };
        }
    }
    solve_lower(matrix, size, b);
    for row in (0..size).rev() {
        let (before, rest) = b.split_at_mut((row + 1) * columns);
        let solved = &mut before[row * columns..];
        for (below, values) in (row + 1..size).zip(rest.chunks_exact(columns.max(1))) {
            let factor = matrix[below * size + row];
            solved.iter_mut().zip(values).for_each(|(solved, value)| *solved -= factor * value);
        }
        divide(solved, matrix[row * size + row]);
    }
    true
}

/// Solves `lower @ x = b` for a lower triangle. `b` has a row for each row of the matrix and becomes the solution.
pub(super) fn solve_lower(lower: &[f64], size: usize, b: &mut [f64]) {
    let columns = b.len() / size.max(1);
    for row in 0..size {
        let (solved, rest) = b.split_at_mut(row * columns);
        let values = &mut rest[..columns];
        for (factor, solved) in lower[row * size..].iter().zip(solved.chunks_exact(columns.max(1))) {
            values.iter_mut().zip(solved).for_each(|(value, solved)| *value -= factor * solved);
        }
        divide(values, lower[row * size + row]);
    }
}

/// How many rows and outputs have their sums in registers at the same time.
const TILE: (usize, usize) = (8, 4);

/// Returns `x @ weights + intercept`, row by row.
///
/// `weights` has one row for each feature. A row of `x` has `features` numbers, and a row of the result has as many as
/// `intercept`.
pub(super) fn affine<T: Copy + Into<f64>>(x: &[T], features: usize, weights: &[f64], intercept: &[f64]) -> Vec<f64> {
    let outputs = intercept.len();
    let rows = x.len() / features.max(1);
    let mut scores = vec![0.0; rows * outputs];
    if outputs == 1 {
        wide(
            #[inline(always)]
            || {
                for (row, score) in x.chunks_exact(features.max(1)).zip(&mut scores) {
                    *score = lanes(row, weights, |x, y| x * y) + intercept[0];
                }
            },
        );
        return scores;
    }
    // Laying out the weights for tiles does not pay off for a few rows.
    let tiled = if rows < TILE.0 { 0 } else { rows / TILE.0 * TILE.0 };
    if tiled > 0 {
        let (x, scores) = (&x[..tiled * features], &mut scores[..tiled * outputs]);
        wide(
            #[inline(always)]
            || tiles(x, features, weights, scores, outputs),
        );
    }
    let rest = x[tiled * features..].chunks_exact(features.max(1));
    for (values, scores) in rest.zip(scores[tiled * outputs..].chunks_exact_mut(outputs.max(1))) {
        for (&value, weights) in values.iter().zip(weights.chunks_exact(outputs)) {
            let value: f64 = value.into();
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += value * weight;
            }
        }
    }
    for scores in scores.chunks_exact_mut(outputs.max(1)) {
        for (score, intercept) in scores.iter_mut().zip(intercept) {
            *score += intercept;
        }
    }
    scores
}

/// Computes whole tiles of sums, each in the order of the features.
// Inlined, because `wide` selects the instruction set.
#[inline(always)]
fn tiles<T: Copy + Into<f64>>(x: &[T], features: usize, weights: &[f64], scores: &mut [f64], outputs: usize) {
    const ROWS: usize = TILE.0;
    const WIDTH: usize = TILE.1;
    // Both sides are laid out in the order in which they are read: by feature, with several rows or outputs side by
    // side.
    let mut columns = vec![[0.0; WIDTH]; outputs.div_ceil(WIDTH) * features];
    for (first, columns) in (0..outputs).step_by(WIDTH).zip(columns.chunks_exact_mut(features)) {
        let width = WIDTH.min(outputs - first);
        for (column, weights) in columns.iter_mut().zip(weights.chunks_exact(outputs)) {
            column[..width].copy_from_slice(&weights[first..first + width]);
        }
    }
    let mut rows = vec![[0.0; ROWS]; features];
    for (x, scores) in x.chunks_exact(ROWS * features).zip(scores.chunks_exact_mut(ROWS * outputs)) {
        for (row, values) in x.chunks_exact(features).enumerate() {
            for (slot, &value) in rows.iter_mut().zip(values) {
                slot[row] = value.into();
            }
        }
        for (first, columns) in (0..outputs).step_by(WIDTH).zip(columns.chunks_exact(features)) {
            let mut sums = [[0.0; WIDTH]; ROWS];
            for (row, column) in rows.iter().zip(columns) {
                for r in 0..ROWS {
                    for c in 0..WIDTH {
                        sums[r][c] += row[r] * column[c];
                    }
                }
            }
            let width = WIDTH.min(outputs - first);
            for (scores, sums) in scores.chunks_exact_mut(outputs).zip(sums) {
                scores[first..first + width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// How many rows are side by side in a panel: four registers of AVX2.
pub(super) const PANEL: usize = 16;

/// Returns the sum of the products.
pub(super) fn dot<T: Copy + Into<f64>>(x: &[T], y: &[f64]) -> f64 {
    lanes(x, y, |x, y| x * y)
}

/// Returns the sum of `of` for each pair.
// Inlined, because `wide` selects the instruction set.
#[inline(always)]
pub(super) fn lanes<T: Copy + Into<f64>>(x: &[T], y: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    // Several independent sums, so that one addition does not wait for another.
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(&x, &y)| of(x.into(), y)).sum();
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            sums[lane] += of(x[lane].into(), y[lane]);
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_matches_known_values() {
        // From Python's `math.erf`.
        for (x, wanted) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_6),
            (5.0, 0.999_999_999_998_462_6),
            (7.0, 1.0),
            (f64::INFINITY, 1.0),
        ] {
            assert!((erf(x) - wanted).abs() < 1e-15, "erf({x}) is {} instead of {wanted}", erf(x));
            assert_eq!(erf(-x).to_bits(), (-erf(x)).to_bits());
        }
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn positive_systems_are_solved() {
        let mut matrix = [4.0, 2.0, -1.0, 2.0, 5.0, 0.5, -1.0, 0.5, 3.0];
        let wanted = [1.0, -2.0, 0.5, 3.0, -4.0, 2.5];
        let product = |row: usize, column: usize| -> f64 {
            (0..3).map(|at| matrix[row * 3 + at] * wanted[at * 2 + column]).sum()
        };
        let mut b: Vec<f64> = (0..6).map(|at| product(at / 2, at % 2)).collect();
        assert!(solve_positive(&mut matrix, 3, &mut b));
        assert!(b.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-14), "{b:?}");
        assert!(!solve_positive(&mut [1.0, 2.0, 2.0, 1.0], 2, &mut [1.0, 1.0]));
        assert!(!solve_positive(&mut [f64::NAN], 1, &mut [1.0]));
    }
}
