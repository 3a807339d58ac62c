//! Gauss-Legendre quadrature on the interval from 0 to 1.

use std::f64::consts::PI;

/// A point of a rule, and its weight. The weights of a rule add up to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) weight: f64,
}

/// Newton steps that are taken for each root; more than twice as many as any number of points has needed.
const STEPS: usize = 20;

/// Returns the rule with `count` points, which is exact for polynomials of a degree below `2 * count`.
///
/// The time that it takes grows with the square of `count`.
pub(super) fn rule(count: usize) -> Vec<Point> {
    let half = count.div_ceil(2);
    let mut points = vec![Point { at: 0.5, weight: 0.0 }; count];
    for index in 0..half {
        // The usual first approximation of a root of the Legendre polynomial, which Newton's method improves.
        let mut root = (PI * (as_f64(index) + 0.75) / (as_f64(count) + 0.5)).cos();
        if 2 * index + 1 == count {
            root = 0.0;
        }
        let mut slope = legendre(count, root).1;
        for _ in 0..STEPS {
            let (value, derivative) = legendre(count, root);
            slope = derivative;
            let step = value / derivative;
            root -= step;
            if step.abs() <= f64::EPSILON {
                break;
            }
        }
        // The weight on the interval from -1 to 1 is twice this.
        let weight = 1.0 / ((1.0 - root * root) * slope * slope);
        points[index] = Point { at: 0.5 * (1.0 - root), weight };
        points[count - 1 - index] = Point { at: 0.5 * (1.0 + root), weight };
    }
    points
}

/// Returns the value and the derivative of the Legendre polynomial of a degree from 1, between -1 and 1.
fn legendre(degree: usize, x: f64) -> (f64, f64) {
    let (mut before, mut value) = (1.0, x);
    for n in 1..degree {
        let n = as_f64(n);
        (before, value) = (value, ((2.0 * n + 1.0) * x * value - n * before) / (n + 1.0));
    }
    (value, as_f64(degree) * (x * value - before) / (x * x - 1.0))
}

#[expect(clippy::cast_precision_loss, reason = "a number of points is far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::rule;

    #[test]
    fn rules_integrate_polynomials_exactly() {
        for count in (1..=40).chain([64, 101, 500]) {
            let rule = rule(count);
            assert!(rule.windows(2).all(|pair| pair[0].at < pair[1].at), "{count}");
            assert!(rule.iter().all(|point| 0.0 < point.at && point.at < 1.0 && point.weight > 0.0), "{count}");
            for degree in [0, 1, count - 1, 2 * count - 1] {
                let power = i32::try_from(degree).unwrap();
                let sum: f64 = rule.iter().map(|point| point.weight * point.at.powi(power)).sum();
                let exact = 1.0 / (f64::from(power) + 1.0);
                assert!((sum - exact).abs() < 1e-14, "{count} points, degree {degree}: {sum} instead of {exact}");
            }
        }
    }
}
