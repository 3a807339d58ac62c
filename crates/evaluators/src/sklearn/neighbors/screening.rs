//! Rules out rows of the fit that cannot be among the nearest, many at a time.
//!
//! The squared distance of rows x and y is `x·x - 2 x·y + y·y`. Only the products of pairs take time, and a processor
//! computes them several times as fast as differences, but they lose digits. So they are only used to rule out a row
//! that is farther away than the rounding error can explain; the distances of all others are computed from differences.

use pulp::{Arch, Simd, WithSimd};

use crate::panels::panels;
use crate::sklearn::numerics::{PANEL, dot};

/// Rows that are searched for together. Their sums with two registers of rows of the fit fill the processor's
/// registers.
pub(super) const GROUP: usize = 6;
/// The limit on sums of squares, beyond which products would overflow.
const MOST: f64 = 1e300;

/// The rows of a fit, laid out for multiplication.
#[derive(Debug)]
pub(super) struct DistanceScreen {
    /// For each panel of rows and each feature, the values of these rows.
    values: Vec<[f64; PANEL]>,
    /// The squared length of each row, less the possible rounding error of a distance. Unused places of the last panel
    /// are infinitely far.
    lengths: Vec<[f64; PANEL]>,
    features: usize,
    rows: usize,
    /// The bound on the rounding error of a squared distance, as a fraction of the sum of both squared lengths.
    lost: f64,
}

impl DistanceScreen {
    /// Returns how many numbers are stored for this many rows and features.
    pub(super) const fn size(rows: usize, features: usize) -> usize {
        rows.div_ceil(PANEL).saturating_mul(PANEL).saturating_mul(features.saturating_add(1))
    }

    /// Lays out the rows. Returns `None` if their numbers are too large.
    pub(super) fn new(rows: &[f64], features: usize) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a count of features")]
        let steps = features as f64;
        // The error of a sum of products is at most half as many epsilons, times the sum of their sizes, as there are
        // products; for products with other rows it is as many times both lengths; and there are three sums. This is
        // several times as much.
        let lost = 4.0 * (steps + 8.0) * f64::EPSILON;
        let mut lengths = vec![[f64::INFINITY; PANEL]; (rows.len() / features).div_ceil(PANEL)];
        for (row, length) in rows.chunks_exact(features).zip(lengths.as_flattened_mut()) {
            let squared = dot(row, row);
            if squared >= MOST || squared.is_nan() {
                return None;
            }
            *length = squared * (1.0 - lost);
        }
        Some(Self { values: panels(rows, features), lengths, features, rows: rows.len() / features, lost })
    }

    /// Calls `visit` with the indices of a row of `x` and a row of the fit, in the order of the fit for each row of
    /// `x`. Leaves out some pairs that are farther apart than the current `limit` of the row of `x`.
    ///
    /// Distances are squared. `x` must consist of whole groups of rows.
    pub(super) fn pairs<T>(
        &self,
        x: &[f64],
        state: &mut T,
        limit: impl Fn(&T, usize) -> f64,
        visit: impl FnMut(&mut T, usize, usize),
    ) {
        let lengths: Vec<f64> = x.chunks_exact(self.features).map(|row| dot(row, row)).collect();
        Arch::new().dispatch(Pairs { screen: self, x, lengths: &lengths, state, limit, visit });
    }
}

/// The arguments of [`DistanceScreen::pairs`], with the squared lengths of the rows.
struct Pairs<'a, T, L, V> {
    screen: &'a DistanceScreen,
    x: &'a [f64],
    lengths: &'a [f64],
    state: &'a mut T,
    limit: L,
    visit: V,
}

impl<T, L: Fn(&T, usize) -> f64, V: FnMut(&mut T, usize, usize)> WithSimd for Pairs<'_, T, L, V> {
    type Output = ();

    // Inlined, because the caller selects the instruction set.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { screen, x, lengths, state, limit, mut visit } = self;
        let features = screen.features;
        let mut distances = [[0.0; PANEL]; GROUP];
        for (panel, values) in screen.values.chunks_exact(features).enumerate() {
            for (group, rows) in x.chunks_exact(GROUP * features).enumerate() {
                let mut rows = rows.chunks_exact(features);
                let rows = [(); GROUP].map(|()| rows.next().unwrap_or_default());
                products(simd, rows, values, &screen.lengths[panel], &mut distances);
                for (row, distances) in (group * GROUP..).zip(&distances) {
                    // Subtracted from distances; small enough that the remainder is not too large for any row that
                    // matters.
                    let offset =
                        if lengths[row] < MOST { lengths[row] * (1.0 - screen.lost) } else { f64::NEG_INFINITY };
                    // The last term covers numbers so small that the other terms vanish.
                    let bound = |state: &T| limit(state, row) * (1.0 + screen.lost) - offset + f64::MIN_POSITIVE;
                    let mut within = bound(state);
                    // If the bound is infinite, distances may be the result of an overflow.
                    let least = |least, &other| if other < least { other } else { least };
                    if within < f64::INFINITY && distances.iter().fold(f64::INFINITY, least) > within {
                        continue;
                    }
                    for (&distance, place) in distances.iter().zip(panel * PANEL..screen.rows) {
                        if within == f64::INFINITY || distance <= within {
                            visit(state, row, place);
                            within = bound(state);
                        }
                    }
                }
            }
        }
    }
}

/// Computes the squared distances of a group of rows from those of a panel, less the squared length of the former.
// Inlined, because `Arch` selects the instruction set at the call.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn products<S: Simd>(
    simd: S,
    rows: [&[f64]; GROUP],
    values: &[[f64; PANEL]],
    lengths: &[f64; PANEL],
    distances: &mut [[f64; PANEL]; GROUP],
) {
    let rows = rows.map(|row| &row[..values.len()]);
    let (lengths, _) = S::as_simd_f64s(lengths);
    let minus_two = simd.splat_f64s(-2.0);
    for first in (0..lengths.len()).step_by(2) {
        let mut sums = [[simd.splat_f64s(0.0); 2]; GROUP];
        for (feature, values) in values.iter().enumerate() {
            let (values, _) = S::as_simd_f64s(values);
            let (one, two) = (values[first], values[first + 1]);
            for (row, sums) in rows.iter().zip(&mut sums) {
                let x = simd.splat_f64s(row[feature]);
                sums[0] = simd.mul_add_e_f64s(x, one, sums[0]);
                sums[1] = simd.mul_add_e_f64s(x, two, sums[1]);
            }
        }
        for (distances, sums) in distances.iter_mut().zip(sums) {
            let (distances, _) = S::as_mut_simd_f64s(distances);
            distances[first] = simd.mul_add_e_f64s(minus_two, sums[0], lengths[first]);
            distances[first + 1] = simd.mul_add_e_f64s(minus_two, sums[1], lengths[first + 1]);
        }
    }
}
