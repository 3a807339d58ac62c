//! Divides trees into stages.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Levels, PlaneTest, Planes, ROWS, Set, Stage, Tree, rank};
use crate::trees::scalar::Scalar;

/// The limit on thresholds in a column of a stage.
const CUTS: usize = 255;
/// The limit on leaves of a tree. Beyond it, following a path is faster than testing every split.
const LEAVES: usize = 256;
/// The limit on categories of a column. Rows are recorded for each category.
const LEVELS: u32 = 1 << 16;

/// A tree in the form that [`Planes::new`] takes.
pub(in crate::trees) struct TreeShape<T> {
    pub(in crate::trees) output: u32,
    pub(in crate::trees) splits: Vec<SplitShape<T>>,
    /// The values of the leaves, from left to right, `width` for each.
    pub(in crate::trees) values: Vec<T>,
    /// The number of values of a leaf: one, or one for each output.
    pub(in crate::trees) width: usize,
}

/// A split, with the leaves below its first child.
pub(in crate::trees) struct SplitShape<T> {
    pub(in crate::trees) column: u32,
    pub(in crate::trees) condition: SplitCondition<T>,
    pub(in crate::trees) first: Range<usize>,
}

/// The condition that sends a row to the first child.
pub(in crate::trees) enum SplitCondition<T> {
    /// A value of at most this, and not missing.
    AtMost(T),
    /// One of these categories or, if `missing`, a missing value.
    Among { categories: Vec<u32>, missing: bool, lowest: T },
}

/// A stage that is being filled.
struct StageDraft<T> {
    /// Thresholds in ascending order, by column.
    cuts: BTreeMap<u32, Vec<T>>,
    trees: Vec<TreeShape<T>>,
}

impl<T: Scalar> Planes<T> {
    /// Converts trees, or returns `None` if one of them cannot be converted.
    pub(in crate::trees) fn new(trees: impl Iterator<Item = Option<TreeShape<T>>>) -> Option<Self> {
        let mut drafts = vec![StageDraft::default()];
        let mut counts = BTreeMap::new();
        let mut lowest_category = T::ZERO;
        for tree in trees {
            let tree = tree.filter(TreeShape::is_possible)?;
            for split in &tree.splits {
                if let SplitCondition::Among { categories, lowest, .. } = &split.condition {
                    let needed = categories.iter().max().map_or(0, |highest| highest.saturating_add(1));
                    let count = counts.entry(split.column).or_insert(0);
                    *count = needed.max(*count);
                    if !categories.is_empty() {
                        lowest_category = *lowest;
                    }
                }
            }
            if !drafts.last_mut()?.add_thresholds(&tree) {
                drafts.push(StageDraft::default());
                drafts.last_mut()?.add_thresholds(&tree);
            }
            drafts.last_mut()?.trees.push(tree);
        }
        let levels = levels(counts)?;
        let stages: Vec<_> = drafts.into_iter().map(|draft| draft.finish(&levels)).collect::<Option<_>>()?;
        let cost = stages.iter().map(Stage::cost).sum::<usize>() + levels.len() * ROWS * 2;
        Some(Self { stages, levels, lowest: lowest_category, cost })
    }
}

impl<T: Scalar> TreeShape<T> {
    /// Returns the number of leaves.
    pub(in crate::trees) fn leaves(&self) -> usize {
        self.values.len() / self.width
    }

    fn is_possible(&self) -> bool {
        self.leaves() <= LEAVES
    }
}

impl<T> Default for StageDraft<T> {
    fn default() -> Self {
        Self { cuts: BTreeMap::new(), trees: Vec::new() }
    }
}

impl<T: Scalar> StageDraft<T> {
    /// Adds the thresholds of a tree. If they do not fit, changes nothing and returns false.
    fn add_thresholds(&mut self, tree: &TreeShape<T>) -> bool {
        let mut added = Vec::new();
        for split in &tree.splits {
            let SplitCondition::AtMost(threshold) = split.condition else { continue };
            let cuts = self.cuts.entry(split.column).or_default();
            let at = rank(cuts, threshold);
            if cuts.get(at) == Some(&threshold) {
                continue;
            }
            cuts.insert(at, threshold);
            added.push((split.column, threshold));
        }
        let fits = u16::try_from(self.cuts.len()).is_ok() && self.cuts.values().all(|cuts| cuts.len() <= CUTS);
        if !fits {
            for (column, threshold) in added {
                if let Some(cuts) = self.cuts.get_mut(&column) {
                    cuts.retain(|cut| *cut != threshold);
                }
            }
        }
        fits
    }

    fn finish(mut self, levels: &[Levels]) -> Option<Stage<T>> {
        self.cuts.retain(|_, cuts| !cuts.is_empty());
        let mut stage = Stage {
            columns: Vec::new(),
            cuts: Vec::new(),
            trees: Vec::new(),
            tests: Vec::new(),
            sets: Vec::new(),
            members: Vec::new(),
            values: Vec::new(),
            width: self.trees.first().map_or(1, |tree| tree.width),
        };
        let mut index_of = BTreeMap::new();
        for (column, cuts) in &self.cuts {
            index_of.insert(*column, u16::try_from(stage.columns.len()).ok()?);
            stage.cuts.extend_from_slice(cuts);
            stage.columns.push((*column, u32::try_from(stage.cuts.len()).ok()?));
        }
        for tree in self.trees {
            let tests = stage.tests.len();
            let sets = stage.sets.len();
            for split in &tree.splits {
                let (column, cut) = match &split.condition {
                    SplitCondition::AtMost(threshold) => {
                        (*index_of.get(&split.column)?, rank(self.cuts.get(&split.column)?, *threshold))
                    }
                    SplitCondition::Among { categories, missing, .. } => {
                        stage.add_set(levels, split.column, categories, *missing)?;
                        (0, stage.sets.len() - 1 - sets)
                    }
                };
                let categorical = matches!(split.condition, SplitCondition::Among { .. });
                for plane in split.first.start / 8..split.first.end.div_ceil(8) {
                    let ruled_out = (0..8).filter(|leaf| split.first.contains(&(plane * 8 + leaf)));
                    stage.tests.push(PlaneTest {
                        column,
                        cut: u8::try_from(cut).ok()?,
                        categorical,
                        plane: u8::try_from(plane).ok()?,
                        keep: !ruled_out.fold(0, |bits, leaf| bits | 1 << leaf),
                    });
                }
            }
            stage.tests[tests..].sort_by_key(|test| (test.plane, test.categorical, test.column));
            stage.values.extend_from_slice(&tree.values);
            stage.trees.push(Tree {
                output: tree.output,
                tests: u32::try_from(stage.tests.len()).ok()?,
                sets: u32::try_from(stage.sets.len()).ok()?,
                values: u32::try_from(stage.values.len()).ok()?,
            });
        }
        Some(stage)
    }
}

impl<T: Scalar> Stage<T> {
    /// Estimates how many nanoseconds a block takes, fitted to measurements.
    fn cost(&self) -> usize {
        let planes = self.values.len() / self.width / 8 + self.trees.len();
        // A leaf of several values costs as much more for each of them.
        let tested = self.tests.len() * 2 + planes * 7 + self.trees.len() * 20 * self.width;
        let sets = self.sets.len() * 6 + self.members.len();
        tested + sets + self.columns.len() * ROWS
    }

    fn add_set(&mut self, levels: &[Levels], column: u32, categories: &[u32], missing: bool) -> Option<()> {
        let levels = levels.iter().find(|levels| levels.column == column)?;
        let start = u32::try_from(levels.start).ok()?;
        self.members.extend(categories.iter().map(|category| start + category));
        let missing = if missing { Some(u32::try_from(levels.missing()).ok()?) } else { None };
        self.sets.push(Set { members: u32::try_from(self.members.len()).ok()?, missing });
        Some(())
    }
}

/// Assigns positions to the rows of each category.
fn levels(counts: BTreeMap<u32, u32>) -> Option<Vec<Levels>> {
    let mut start = 0;
    let mut all = Vec::new();
    for (column, count) in counts {
        if count > LEVELS {
            return None;
        }
        let levels = Levels { column, start, count };
        start = levels.missing() + 1;
        all.push(levels);
    }
    u32::try_from(start).ok()?;
    Some(all)
}
