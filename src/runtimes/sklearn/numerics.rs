//! The arithmetic that several families share.

/// The logistic function.
pub(super) fn expit(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The index of the first of the largest values, NaN being larger than all, as NumPy has it; 0 of none.
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
    normalise(row);
}

/// Divides by the sum.
pub(super) fn normalise(row: &mut [f64]) {
    divide(row, row.iter().sum());
}

/// Divides every number.
pub(super) fn divide(values: &mut [f64], by: f64) {
    for value in values {
        *value /= by;
    }
}

/// Turns logarithms into shares of their sum, in place.
pub(super) fn exp_normalise(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = row.iter().map(|log| (log - largest).exp()).sum::<f64>().ln() + largest;
    for log in row.iter_mut() {
        *log = (*log - total).exp();
    }
}

/// The sum, in the order in which NumPy adds what lies side by side.
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

/// The logarithmic derivative of the gamma function, for positive numbers.
pub(super) fn digamma(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return f64::NAN;
    }
    // Ten steps up, the series has as many digits as a number.
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

/// Swaps rows and columns.
pub(super) fn transpose(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut transposed = Vec::with_capacity(values.len());
    for column in 0..columns {
        transposed.extend((0..rows).map(|row| values[row * columns + column]));
    }
    transposed
}

/// Returns `x @ weights + intercept` row by row.
///
/// `weights` has a row for each feature; a row of `x` has `features` numbers, a row of the result as many as `intercept`.
pub(super) fn affine<T: Copy + Into<f64>>(x: &[T], features: usize, weights: &[f64], intercept: &[f64]) -> Vec<f64> {
    let outputs = intercept.len();
    let rows = x.len() / features.max(1);
    if outputs == 1 {
        return (0..rows).map(|row| dot(&x[row * features..(row + 1) * features], weights) + intercept[0]).collect();
    }
    let mut scores = vec![0.0; rows * outputs];
    for (row, scores) in scores.chunks_exact_mut(outputs.max(1)).enumerate() {
        let values = &x[row * features..(row + 1) * features];
        for (&value, weights) in values.iter().zip(weights.chunks_exact(outputs)) {
            let value: f64 = value.into();
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += value * weight;
            }
        }
        for (score, intercept) in scores.iter_mut().zip(intercept) {
            *score += intercept;
        }
    }
    scores
}

/// The sum of products.
pub(super) fn dot<T: Copy + Into<f64>>(x: &[T], y: &[f64]) -> f64 {
    // Several sums at once, so that one addition need not wait for another.
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(&x, y)| x.into() * y).sum();
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            sums[lane] += x[lane].into() * y[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}
