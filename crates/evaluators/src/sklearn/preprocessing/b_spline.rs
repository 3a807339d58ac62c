//! B-splines of one feature, as `SciPy` evaluates them.

use crate::pickle::PickleValue;
use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::{FittedMatrix, FittedObject};

/// A piecewise polynomial with several outputs.
#[derive(Debug)]
pub(super) struct BSpline {
    knots: Vec<f64>,
    degree: usize,
    /// One row for each basis function, one column for each output.
    coefficients: FittedMatrix,
}

impl BSpline {
    /// Reads a `scipy.interpolate.BSpline` of this degree.
    pub(super) fn read(fitted: &FittedObject<'_>, value: PickleValue<'_>, degree: usize) -> Result<Self, LoadError> {
        let spline = fitted.part(value)?;
        let wanted = || fitted.unexpected("bsplines_", "splines with knots and coefficients");
        // Newer versions store their arrays in private attributes.
        let field = |public, private| if spline.get(public).is_some() { public } else { private };
        let knots = spline.floats(field("t", "_t"))?;
        let coefficients = spline.matrix(field("c", "_c"))?;
        let sound = spline.size("k")? == degree
            && knots.len() / 2 > degree
            && coefficients.rows + degree + 1 >= knots.len()
            && knots.windows(2).all(|pair| pair[0] <= pair[1]);
        if sound { Ok(Self { knots, degree, coefficients }) } else { Err(wanted()) }
    }

    pub(super) const fn outputs(&self) -> usize {
        self.coefficients.columns
    }

    pub(super) const fn knots(&self) -> usize {
        self.knots.len()
    }

    /// Returns the knots that are `place` positions from both ends.
    pub(super) fn range(&self, place: usize) -> (f64, f64) {
        (self.knots[place], self.knots[self.knots.len() - place - 1])
    }

    /// Returns the interval in which the spline needs no extrapolation.
    pub(super) fn domain(&self) -> (f64, f64) {
        self.range(self.degree)
    }

    /// Moves a number into the domain by whole periods.
    pub(super) fn wrap(&self, x: f64) -> f64 {
        let (low, high) = self.domain();
        let period = high - low;
        if period > 0.0 { low + (x - low).rem_euclid(period) } else { 0.0 }
    }

    /// Returns the outputs at `x`.
    pub(super) fn at(&self, x: f64) -> Vec<f64> {
        self.evaluate(x, false)
    }

    /// Returns the first derivatives at `x`.
    pub(super) fn slope_at(&self, x: f64) -> Vec<f64> {
        if self.degree == 0 { vec![0.0; self.outputs()] } else { self.evaluate(x, true) }
    }

    fn evaluate(&self, x: f64, slope: bool) -> Vec<f64> {
        let (knots, degree) = (&self.knots, self.degree);
        let last = knots.len() - degree - 2;
        let inside = knots[degree..=last].partition_point(|&knot| knot <= x);
        // The interval that contains `x`; otherwise the first or the last one.
        let interval = (degree + inside.saturating_sub(1)).min(last);
        let mut bases = vec![0.0; degree + 1];
        bases[0] = 1.0;
        for step in 1..=degree {
            let before = bases.clone();
            bases[0] = 0.0;
            for place in 1..=step {
                let (right, left) = (knots[interval + place], knots[interval + place - step]);
                if right.total_cmp(&left).is_eq() {
                    bases[place] = 0.0;
                    continue;
                }
                let share = before[place - 1] / (right - left);
                if slope && step == degree {
                    #[expect(clippy::cast_precision_loss, reason = "degrees are small")]
                    let share = step as f64 * share;
                    bases[place - 1] -= share;
                    bases[place] = share;
                } else {
                    bases[place - 1] += share * (right - x);
                    bases[place] = share * (x - left);
                }
            }
        }
        let width = self.outputs();
        let mut outputs = vec![0.0; width];
        for (offset, base) in bases.into_iter().enumerate() {
            let row = interval + offset - degree;
            let coefficients = &self.coefficients.values[row * width..(row + 1) * width];
            outputs.iter_mut().zip(coefficients).for_each(|(output, coefficient)| *output += base * coefficient);
        }
        outputs
    }
}
