//! The evaluation of a table for rows side by side.

use super::table::{ContributionTable, Factor, NONE, Step, TreeTable};
use crate::wide::wide;

/// Memory that evaluations of several blocks share.
#[derive(Debug)]
pub(crate) struct Scratch<const L: usize> {
    /// For each edge of a tree, all bits of a row that passes it and the edges above of the same feature.
    passes: Vec<[u64; L]>,
    /// The products of factors, by depth and point.
    products: Vec<[f64; L]>,
    /// The sums of leaves, by depth and point.
    sums: Vec<[f64; L]>,
}

impl ContributionTable {
    /// Returns how many contributions a row has.
    pub(crate) fn totals(&self) -> usize {
        self.outputs * self.features
    }

    /// Returns memory for evaluations of `L` rows.
    pub(crate) fn scratch<const L: usize>(&self) -> Scratch<L> {
        let most = |size: fn(&TreeTable) -> usize| self.trees.iter().map(size).max().unwrap_or_default();
        let levels = most(|tree| (tree.depth + 1) * tree.missed.len());
        Scratch {
            passes: vec![[0; L]; most(|tree| tree.edges.len())],
            products: vec![[0.0; L]; levels],
            sums: vec![[0.0; L]; levels],
        }
    }

    /// Adds the contributions of each feature to each output, `features` for an output, for rows side by side.
    ///
    /// `test` returns for a tree and the node of a split all bits of the rows that go to its first child. `proceed` is asked before each tree, and
    /// ends the evaluation if it returns `false`.
    pub(crate) fn add<const L: usize>(
        &self,
        test: impl Fn(usize, u32) -> [u64; L],
        totals: &mut [[f64; L]],
        scratch: &mut Scratch<L>,
        mut proceed: impl FnMut() -> bool,
    ) {
        for (index, tree) in self.trees.iter().enumerate() {
            if !proceed() {
                return;
            }
            tree.test(|split| test(index, split), &mut scratch.passes);
            for output in 0..self.width {
                let totals = &mut totals[(tree.output + output) * self.features..][..self.features];
                wide(
                    #[inline(always)]
                    || match tree.missed.len() {
                        1 => tree.add::<L, 1>(output, totals, scratch),
                        2 => tree.add::<L, 2>(output, totals, scratch),
                        3 => tree.add::<L, 3>(output, totals, scratch),
                        4 => tree.add::<L, 4>(output, totals, scratch),
                        _ => tree.add::<L, 0>(output, totals, scratch),
                    },
                );
            }
        }
    }
}

impl TreeTable {
    /// Tests every split, in the order of the search, so that a split comes after those above it.
    fn test<const L: usize>(&self, test: impl Fn(u32) -> [u64; L], passes: &mut [[u64; L]]) {
        for (split, edges) in self.splits.iter().zip(0..) {
            let edge = 2 * edges;
            let previous = self.edges[edge].previous;
            let above = if previous == NONE { [u64::MAX; L] } else { passes[previous as usize] };
            let first = test(*split);
            for lane in 0..L {
                passes[edge][lane] = first[lane] & above[lane];
                passes[edge + 1][lane] = !first[lane] & above[lane];
            }
        }
    }

    /// Walks through the tree. `N` is the number of points, or 0 if it is not known at compile time.
    // Inlined, because `wide` selects the instruction set.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
    fn add<const L: usize, const N: usize>(
        &self,
        output: usize,
        totals: &mut [[f64; L]],
        Scratch { passes, products, sums }: &mut Scratch<L>,
    ) {
        let points = if N == 0 { self.missed.len() } else { N };
        let missed = &self.missed[..points];
        products[..points].fill([1.0; L]);
        sums[..points].fill([0.0; L]);
        for step in &self.steps {
            let (Step::Enter(edge) | Step::Leaf(edge, _) | Step::Leave(edge)) = *step;
            let edge = edge as usize;
            let info = self.edges[edge];
            let level = info.depth as usize * points;
            let factors = &self.factors[edge * points..][..points];
            let pass = passes[edge];
            let (pass_before, factors_before) = if info.previous == NONE {
                ([u64::MAX; L], None)
            } else {
                let previous = info.previous as usize;
                (passes[previous], Some(&self.factors[previous * points..][..points]))
            };
            let (above, below) = products[level..][..2 * points].split_at_mut(points);
            let (sums_above, sums_below) = sums[level..][..2 * points].split_at_mut(points);
            let mut contribution = [0.0; L];
            match *step {
                Step::Enter(_) => {
                    for point in 0..points {
                        let factor = factor_of(factors[point], info.neither, pass, pass_before);
                        for lane in 0..L {
                            below[point][lane] = above[point][lane] * factor[lane];
                        }
                        sums_below[point] = [0.0; L];
                    }
                    continue;
                }
                Step::Leaf(_, start) => {
                    let value = self.values[start as usize + output];
                    for point in 0..points {
                        let factor = factor_of(factors[point], info.neither, pass, pass_before);
                        let mut sum = [0.0; L];
                        for lane in 0..L {
                            sum[lane] = value * above[point][lane] * factor[lane];
                            sums_above[point][lane] += sum[lane];
                        }
                        let before = factors_before.map(|factors| factors[point]);
                        contribute(&mut contribution, sum, factors[point], before, missed[point], [pass, pass_before]);
                    }
                }
                Step::Leave(_) => {
                    for point in 0..points {
                        let sum = sums_below[point];
                        for lane in 0..L {
                            sums_above[point][lane] += sum[lane];
                        }
                        let before = factors_before.map(|factors| factors[point]);
                        contribute(&mut contribution, sum, factors[point], before, missed[point], [pass, pass_before]);
                    }
                }
            }
            let total = &mut totals[info.feature as usize];
            for lane in 0..L {
                total[lane] += contribution[lane];
            }
        }
    }
}

/// Returns what the products of a path are multiplied by at an edge.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn factor_of<const L: usize>(factor: Factor, neither: f64, pass: [u64; L], before: [u64; L]) -> [f64; L] {
    std::array::from_fn(|lane| select(pass[lane], factor.passed, select(before[lane], factor.failed, neither)))
}

/// Adds what a sum contributes to the feature of an edge, less what the previous edge of the feature will count for it.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn contribute<const L: usize>(
    contribution: &mut [f64; L],
    sum: [f64; L],
    here: Factor,
    before: Option<Factor>,
    missed: f64,
    [pass, pass_before]: [[u64; L]; 2],
) {
    for lane in 0..L {
        contribution[lane] += sum[lane] * select(pass[lane], here.contributed, missed);
    }
    if let Some(before) = before {
        for lane in 0..L {
            contribution[lane] -= sum[lane] * select(pass_before[lane], before.contributed, missed);
        }
    }
}

/// Returns the first number if all bits of the mask are set, and the second if none is.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn select(mask: u64, set: f64, unset: f64) -> f64 {
    f64::from_bits(set.to_bits() & mask | unset.to_bits() & !mask)
}
