//! Telling which rows of a fit cannot be among the nearest, many at a time.
//!
//! Of rows x and y the squared distance is `x·x - 2 x·y + y·y`, of which only the products of pairs take time, and they go
//! through a processor several times as fast as differences. They lose digits. So they only ever rule a row out, when it is
//! farther than all that was lost; how far the others are is computed from differences.

use pulp::{Arch, Simd, WithSimd};

use crate::evaluators::sklearn::numerics::{PANEL, dot, panels};

/// Rows that are looked for at once: their sums with two registers of rows of the fit are as many as there are registers.
pub(super) const GROUP: usize = 6;
/// Beyond such a sum of squares products would overflow.
const MOST: f64 = 1e300;

/// The rows of a fit as they are multiplied.
#[derive(Debug)]
pub(super) struct DistanceScreen {
    /// For each panel of rows and each feature the values of these rows.
    values: Vec<[f64; PANEL]>,
    /// The squared length of each row, less what rounding may add to a distance. Places without a row are infinitely far.
    lengths: Vec<[f64; PANEL]>,
    features: usize,
    rows: usize,
    /// What rounding may add to a squared distance, as a part of both squared lengths.
    lost: f64,
}

impl DistanceScreen {
    /// How many numbers are kept for rows of so many features.
    pub(super) const fn size(rows: usize, features: usize) -> usize {
        rows.div_ceil(PANEL).saturating_mul(PANEL).saturating_mul(features.saturating_add(1))
    }

    /// Lays rows out, unless their numbers are too large.
    pub(super) fn new(rows: &[f64], features: usize) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a count of features")]
        let steps = features as f64;
        // Sums of so many products are wrong by at most half as many epsilons of the sum of their sizes, products with other
        // rows by as many of both lengths, and there are three sums. This is several times as much.
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

    /// Calls `visit` with the places of rows of `x` and of the fit, in the order of the fit for each row of `x`, for all pairs
    /// but some that are farther apart than `limit` says of the row of `x` at that moment.
    ///
    /// Distances are squared. `x` has whole groups of rows.
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

/// `Screen::pairs`, with the squared lengths of the rows.
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

    // Inlined: instructions are chosen by the caller.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is not inlined is compiled for every processor")]
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
                    // What a distance is less, so that what is left is not too large for any row that matters.
                    let offset =
                        if lengths[row] < MOST { lengths[row] * (1.0 - screen.lost) } else { f64::NEG_INFINITY };
                    // The last part is of numbers that are too small for the rest to count.
                    let bound = |state: &T| limit(state, row) * (1.0 + screen.lost) - offset + f64::MIN_POSITIVE;
                    let mut within = bound(state);
                    // Where everything is near, distances may be what overflowing leaves.
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
// Inlined: instructions are chosen where `Arch` is asked.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what is not inlined is compiled for every processor")]
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
