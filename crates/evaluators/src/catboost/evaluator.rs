//! Compiles the content of a file, and evaluates it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::columns::{self, Column};
use super::ctr::{CompiledCtr, Ctrs};
use super::objective::{self, Objective};
use super::raw::{FloatFeature, Labels, NanTreatment, OneHotFeature, Projection, RawModel};
use super::trees::{Forest, ROWS, SLOT, Slot, SlotTest, byte};
use super::{CatBoostOutput, PredictError};
use crate::table::{Elements, IntType};
use crate::trees::LoadError;
use crate::wide::wide;

/// A feature of numbers that is used.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The place among the features of the model.
    pub(super) feature: usize,
    nan: NanTreatment,
    pub(super) slots: Vec<Slot>,
}

/// Some categories of a feature.
#[derive(Debug)]
struct CategorySlot {
    number: u32,
    /// The place of the feature among those of categories.
    category: usize,
    values: Box<[i32]>,
}

/// A compiled model.
#[derive(Debug)]
pub(super) struct Evaluator {
    pub(super) numbers: Vec<Numbers>,
    /// The places of the features of numbers that no split uses.
    unused: Vec<usize>,
    /// The places of the features of categories among the features of the model.
    categories: Vec<usize>,
    category_slots: Vec<CategorySlot>,
    ctrs: Ctrs,
    pub(super) slots: usize,
    pub(super) forest: Forest,
    /// The weight of the training rows in each leaf. Empty if the file does not have it.
    pub(super) weights: Vec<f64>,
    pub(super) scale: f64,
    /// Empty if nothing is added.
    pub(super) bias: Vec<f64>,
    pub(super) objective: Objective,
}

/// What is computed for a block of rows, reused for the next.
pub(super) struct Block<const N: usize> {
    pub(super) ranks: Vec<[u8; N]>,
    hashes: Vec<[i32; N]>,
}

/// Assigns slots to the binary features that are used.
struct Allocator<'m> {
    model: &'m RawModel,
    /// Where the binary features of each kind end.
    ends: [usize; 3],
    /// The first binary feature of each feature, in ascending order.
    starts: Vec<usize>,
    /// For each feature, the number of each of its slots.
    slots: Vec<Vec<Option<u32>>>,
    count: u32,
    /// The place of each feature of numbers.
    floats: HashMap<i32, usize>,
    /// The feature and place of each category.
    one_hots: HashMap<(i32, i32), (usize, usize)>,
}

impl<'m> Allocator<'m> {
    fn new(model: &'m RawModel) -> Self {
        let floats = model.floats.iter().map(|feature| feature.borders.len());
        let one_hots = model.one_hots.iter().map(|feature| feature.values.len());
        let ctrs = model.ctrs.iter().map(|feature| feature.borders.len());
        let ends = [model.floats.len(), model.floats.len() + model.one_hots.len(), usize::MAX];
        let (mut starts, mut slots, mut start) = (Vec::new(), Vec::new(), 0);
        for count in floats.chain(one_hots).chain(ctrs) {
            starts.push(start);
            slots.push(vec![None; count.div_ceil(SLOT)]);
            start += count;
        }
        starts.push(start);
        let floats = model.floats.iter().zip(0..).map(|(feature, place)| (feature.index, place)).collect();
        let mut one_hots = HashMap::new();
        for (feature, place) in model.one_hots.iter().zip(ends[0]..) {
            one_hots
                .extend(feature.values.iter().zip(0..).map(|(value, at)| ((feature.category, *value), (place, at))));
        }
        Self { model, ends, starts, slots, count: 0, floats, one_hots }
    }

    /// Returns the test of a place of a feature, which gets a slot if it has none.
    fn place(&mut self, feature: usize, place: usize) -> Option<SlotTest> {
        let slot = self.slots.get_mut(feature)?.get_mut(place / SLOT)?;
        let count = &mut self.count;
        let number = *slot.get_or_insert_with(|| {
            *count += 1;
            *count - 1
        });
        let is_category = (self.ends[0]..self.ends[1]).contains(&feature);
        let test = if is_category { SlotTest::equal } else { SlotTest::above };
        Some(test(number, place % SLOT))
    }

    /// Returns the test of a binary feature.
    fn test(&mut self, binary: i32) -> Result<SlotTest, LoadError> {
        let total = self.starts.last().copied().unwrap_or_default();
        let found = usize::try_from(binary).ok().filter(|binary| *binary < total).and_then(|binary| {
            let feature = self.starts.partition_point(|start| *start <= binary) - 1;
            self.place(feature, binary - self.starts[feature])
        });
        found.ok_or_else(|| LoadError::Field {
            field: "TreeSplits",
            wanted: "the number of a split",
            found: format!("{binary} of {total}"),
        })
    }

    /// Returns the tests of a projection, in the order in which they are hashed.
    fn projection(&mut self, projection: &Projection) -> Result<Vec<SlotTest>, LoadError> {
        let damaged =
            |found: String| LoadError::Field { field: "FeatureCombination", wanted: "a split of the model", found };
        let mut tests = Vec::new();
        for &(index, border) in &projection.floats {
            let border = f32::from_bits(border);
            let place = self.floats.get(&index).and_then(|&feature| {
                let borders = &self.model.floats[feature].borders;
                let place = borders.partition_point(|found| *found < border);
                (borders.get(place) == Some(&border)).then_some((feature, place))
            });
            let test = place.and_then(|(feature, place)| self.place(feature, place));
            tests.push(test.ok_or_else(|| damaged(format!("feature {index} above {border}")))?);
        }
        for &(category, value) in &projection.one_hots {
            let place = self.one_hots.get(&(category, value)).copied();
            let test = place.and_then(|(feature, place)| self.place(feature, place));
            tests.push(test.ok_or_else(|| damaged(format!("category {category} equal to {value}")))?);
        }
        Ok(tests)
    }

    /// Returns the used slots of a feature with their numbers.
    fn used<T: Copy>(&self, feature: usize, values: &[T]) -> Vec<(u32, Box<[T]>)> {
        let slots = self.slots[feature].iter().zip(values.chunks(SLOT));
        slots.filter_map(|(number, values)| Some(((*number)?, values.into()))).collect()
    }

    fn used_borders(&self, feature: usize, borders: &[f32]) -> Vec<Slot> {
        self.used(feature, borders).into_iter().map(|(number, borders)| Slot { number, borders }).collect()
    }
}

impl Evaluator {
    /// Compiles a model. `places` finds a feature of the model by its number among all features.
    pub(super) fn new(
        mut model: RawModel,
        file_size: usize,
        places: impl Fn(usize) -> usize,
    ) -> Result<Self, LoadError> {
        let dimension = model.dimension;
        if dimension > file_size {
            return Err(LoadError::TooLarge { what: "outputs", count: dimension, limit: file_size });
        }
        check(&model)?;
        let objective = Objective::read(&model.info, dimension, file_size)?;
        let bias = bias(&model)?;
        let tables = std::mem::take(&mut model.tables);
        let mut weights = std::mem::take(&mut model.trees.weights);
        // Contributions need them, which only models without categories have.
        if weights.len() != model.trees.values.len() / dimension || !model.categories.is_empty() {
            weights = Vec::new();
        }
        let mut allocator = Allocator::new(&model);
        let forest = Forest::new(&model.trees, dimension, |split| allocator.test(split))?;
        let places_of: HashMap<i32, usize> = model.categories.iter().map(|feature| feature.index).zip(0..).collect();
        let mut projections = Vec::new();
        for ctr in &model.ctrs {
            let categories = ctr.base.projection.categories.iter().map(|index| {
                places_of.get(index).copied().ok_or_else(|| LoadError::Field {
                    field: "FeatureCombination",
                    wanted: "the number of a categorical feature",
                    found: index.to_string(),
                })
            });
            let categories = categories.collect::<Result<Vec<_>, _>>()?;
            projections.push((categories, allocator.projection(&ctr.base.projection)?));
        }
        let numbers = numbers(&allocator, &model.floats, &places);
        let used: HashSet<usize> = numbers.iter().map(|numbers| numbers.feature).collect();
        let unused = model.floats.iter().map(|feature| places(feature.flat)).filter(|place| !used.contains(place));
        let unused: Vec<usize> = unused.collect();
        let category_slots = category_slots(&allocator, &model, &places_of)?;
        let ends = allocator.ends;
        let slots = (0..model.ctrs.len()).map(|ctr| allocator.used_borders(ends[1] + ctr, &model.ctrs[ctr].borders));
        let slots: Vec<_> = slots.collect();
        // Nodes that are leaves test the first slot, whose result does not matter.
        let count = allocator.count.max(1) as usize;
        let compiled = model.ctrs.into_iter().zip(projections).zip(slots);
        let compiled =
            compiled.map(|((feature, (categories, tests)), slots)| CompiledCtr { feature, categories, tests, slots });
        Ok(Self {
            numbers,
            unused,
            categories: model.categories.iter().map(|feature| places(feature.flat)).collect(),
            category_slots,
            ctrs: Ctrs::new(compiled.collect(), tables)?,
            slots: count,
            forest,
            weights,
            scale: model.scale,
            bias,
            objective,
        })
    }

    /// Estimates how many nanoseconds so many rows take.
    pub(super) fn cost(&self, rows: usize) -> usize {
        let is_block = rows >= BLOCKS_FROM;
        let slots = self.numbers.iter().flat_map(|numbers| &numbers.slots);
        let borders = self.numbers.len() + slots.map(|slot| slot.cost(is_block)).sum::<usize>();
        let row = borders + self.categories.len() * 25 + self.category_slots.len() * 5 + self.ctrs.cost();
        let row = row + self.forest.cost(is_block) + 10 * self.objective.columns(self.forest.dimension);
        row.saturating_mul(rows).saturating_add(300)
    }

    /// Returns the number of columns of an output, or `None` if the model does not have it.
    pub(super) fn columns(&self, output: CatBoostOutput) -> Option<usize> {
        let columns = self.objective.columns(self.forest.dimension);
        match output {
            // The width depends on the columns of the model.
            CatBoostOutput::Contributions => None,
            CatBoostOutput::Raw => Some(columns),
            CatBoostOutput::Leaf => Some(self.forest.trees()),
            CatBoostOutput::Probability => match self.objective {
                Objective::Binary { .. } => Some(2),
                _ => self.objective.is_classifier().then_some(columns),
            },
            CatBoostOutput::Predict => match self.objective {
                Objective::Binary { .. } | Objective::MultiClass { .. } => Some(1),
                _ => Some(columns),
            },
        }
    }

    /// Evaluates an output that the model has.
    pub(super) fn predict(
        &self,
        input: &[Column<'_>],
        rows: usize,
        output: CatBoostOutput,
        stop: &AtomicBool,
    ) -> Result<Elements<'static>, PredictError> {
        self.check_unused(input, rows)?;
        if output == CatBoostOutput::Leaf {
            return self.leaves(input, rows, stop);
        }
        let dimension = self.forest.dimension;
        let raw = self.objective.external(self.raw(input, rows, stop)?, dimension);
        let columns = self.objective.columns(dimension);
        Ok(match output {
            CatBoostOutput::Raw | CatBoostOutput::Leaf | CatBoostOutput::Contributions => Elements::F64(raw.into()),
            CatBoostOutput::Probability => Elements::F64(self.objective.probabilities(raw, columns).0.into()),
            CatBoostOutput::Predict => self.predictions(raw, columns),
        })
    }

    /// Checks the columns that no split uses.
    pub(super) fn check_unused(&self, input: &[Column<'_>], rows: usize) -> Result<(), PredictError> {
        self.unused.iter().try_for_each(|feature| input[*feature].check_numbers(rows))
    }

    fn predictions(&self, mut raw: Vec<f64>, columns: usize) -> Elements<'static> {
        match &self.objective {
            Objective::Raw => Elements::F64(raw.into()),
            Objective::Exponent => Elements::F64(raw.into_iter().map(f64::exp).collect()),
            Objective::Uncertainty => {
                for row in raw.chunks_exact_mut(columns) {
                    if let [_, value] = row {
                        *value = objective::variance(*value);
                    }
                }
                Elements::F64(raw.into())
            }
            Objective::Binary { labels, threshold } => {
                label(labels, raw.into_iter().map(|value| usize::from(value > *threshold)))
            }
            Objective::MultiClass { labels, .. } => label(labels, raw.chunks_exact(columns).map(objective::argmax)),
            Objective::MultiLabel { threshold } => {
                Elements::Int(raw.into_iter().map(|value| i64::from(value > *threshold)).collect(), IntType::I64)
            }
        }
    }

    /// Returns the raw values of all rows.
    fn raw(&self, input: &[Column<'_>], rows: usize, stop: &AtomicBool) -> Result<Vec<f64>, PredictError> {
        let mut sums = vec![0.0; rows * self.forest.dimension];
        self.blocks(input, rows, stop, |start, block| {
            let sums = &mut sums[start * self.forest.dimension..];
            match block {
                RankedBlock::Many(ranks, count) => {
                    let sums = &mut sums[..count * self.forest.dimension];
                    wide(
                        #[inline(always)]
                        || self.forest.add(ranks, sums),
                    );
                }
                RankedBlock::One(ranks) => self.forest.add(ranks, &mut sums[..self.forest.dimension]),
            }
        })?;
        if self.scale.to_bits() != 1.0_f64.to_bits() || !self.bias.is_empty() {
            for row in sums.chunks_exact_mut(self.forest.dimension) {
                for (index, sum) in row.iter_mut().enumerate() {
                    *sum = *sum * self.scale + self.bias.get(index).copied().unwrap_or(0.0);
                }
            }
        }
        Ok(sums)
    }

    fn leaves(&self, input: &[Column<'_>], rows: usize, stop: &AtomicBool) -> Result<Elements<'static>, PredictError> {
        let trees = self.forest.trees();
        let mut numbers = vec![0; rows * trees];
        self.blocks(input, rows, stop, |start, block| match block {
            RankedBlock::Many(ranks, count) => {
                self.forest.leaves(ranks, &mut numbers[start * trees..(start + count) * trees]);
            }
            RankedBlock::One(ranks) => self.forest.leaves(ranks, &mut numbers[start * trees..(start + 1) * trees]),
        })?;
        Ok(Elements::Int(numbers.into(), IntType::I32))
    }

    /// Ranks the values of all rows, in blocks or one by one, and calls `found` with each block.
    fn blocks(
        &self,
        input: &[Column<'_>],
        rows: usize,
        stop: &AtomicBool,
        mut found: impl FnMut(usize, RankedBlock<'_>),
    ) -> Result<(), PredictError> {
        let mut start = 0;
        if rows >= BLOCKS_FROM {
            let mut block = Block::<ROWS>::new(self);
            while rows - start >= BLOCKS_FROM {
                if stop.load(Ordering::Relaxed) {
                    return Err(PredictError::Cancelled);
                }
                let count = ROWS.min(rows - start);
                self.rank(input, start, count, &mut block)?;
                found(start, RankedBlock::Many(&block.ranks, count));
                start += count;
            }
        }
        if start < rows {
            let mut block = Block::<1>::new(self);
            for row in start..rows {
                self.rank(input, row, 1, &mut block)?;
                found(row, RankedBlock::One(&block.ranks));
            }
        }
        Ok(())
    }

    /// Returns whether some features are categories.
    pub(super) fn has_categories(&self) -> bool {
        !self.categories.is_empty()
    }

    /// Ranks the values of `count` rows from `start` on.
    pub(super) fn rank<const N: usize>(
        &self,
        input: &[Column<'_>],
        start: usize,
        count: usize,
        block: &mut Block<N>,
    ) -> Result<(), PredictError> {
        let mut values = [0.0; N];
        for Numbers { feature, nan, slots } in &self.numbers {
            input[*feature].numbers(start, &mut values[..count])?;
            let substitute = match nan {
                NanTreatment::AsFalse => f32::NEG_INFINITY,
                NanTreatment::AsTrue => f32::INFINITY,
            };
            for value in &mut values[..count] {
                *value = if value.is_nan() { substitute } else { *value };
            }
            for slot in slots {
                slot.rank(&values, &mut block.ranks[slot.number as usize]);
            }
        }
        for (&feature, hashes) in self.categories.iter().zip(&mut block.hashes) {
            input[feature].hashes(start, &mut hashes[..count])?;
        }
        for slot in &self.category_slots {
            let hashes = &block.hashes[slot.category][..count];
            for (rank, hash) in block.ranks[slot.number as usize].iter_mut().zip(hashes) {
                *rank = slot.values.iter().position(|value| value == hash).map_or(0, |place| byte(place + 1));
            }
        }
        self.ctrs.rank(&block.hashes, count, &mut block.ranks);
        Ok(())
    }
}

/// The fewest rows that are evaluated as a block.
const BLOCKS_FROM: usize = 12;

/// The ranks of a block.
enum RankedBlock<'b> {
    /// Of up to [`ROWS`] rows.
    Many(&'b [[u8; ROWS]], usize),
    /// Of one row.
    One(&'b [[u8; 1]]),
}

impl<const N: usize> Block<N> {
    pub(super) fn new(evaluator: &Evaluator) -> Self {
        Self { ranks: vec![[0; N]; evaluator.slots], hashes: vec![[0; N]; evaluator.categories.len()] }
    }
}

/// Returns the label of each row.
fn label(labels: &Labels, places: impl Iterator<Item = usize>) -> Elements<'static> {
    match labels {
        Labels::Integers(labels) => Elements::Int(places.map(|place| labels[place]).collect(), IntType::I64),
        Labels::Floats(labels) => Elements::F64(places.map(|place| labels[place]).collect()),
        Labels::Booleans(labels) => {
            Elements::Int(places.map(|place| i64::from(labels[place])).collect(), IntType::Bool)
        }
        Labels::Texts(labels) => Elements::Text(places.map(|place| Arc::clone(&labels[place])).collect()),
    }
}

/// Checks that borders ascend, which ranks depend on, and that numbers of features are unique.
fn check(model: &RawModel) -> Result<(), LoadError> {
    let borders = model.floats.iter().map(|feature| &feature.borders);
    for borders in borders.chain(model.ctrs.iter().map(|feature| &feature.borders)) {
        let is_sorted =
            borders.windows(2).all(|pair| pair[0] <= pair[1]) && borders.iter().all(|border| !border.is_nan());
        if !is_sorted {
            return Err(LoadError::Unsupported { what: "order of borders", name: "descending".to_owned() });
        }
    }
    for numbers in [
        model.floats.iter().map(|feature| feature.index).collect::<Vec<_>>(),
        model.categories.iter().map(|feature| feature.index).collect(),
        model.one_hots.iter().map(|feature| feature.category).collect(),
    ] {
        columns::check_unique("feature", numbers)?;
    }
    Ok(())
}

/// Returns what is added to raw values, or nothing if that is 0.
fn bias(model: &RawModel) -> Result<Vec<f64>, LoadError> {
    if model.bias.iter().all(|bias| *bias == 0.0) {
        return Ok(Vec::new());
    }
    if model.bias.len() == model.dimension {
        return Ok(model.bias.clone());
    }
    Err(LoadError::Count { field: "MultiBias", wanted: model.dimension, found: model.bias.len() })
}

/// Returns the features of numbers that are used.
fn numbers(allocator: &Allocator<'_>, floats: &[FloatFeature], places: &impl Fn(usize) -> usize) -> Vec<Numbers> {
    let used = floats.iter().enumerate().map(|(index, feature)| Numbers {
        feature: places(feature.flat),
        nan: feature.nan,
        slots: allocator.used_borders(index, &feature.borders),
    });
    used.filter(|numbers| !numbers.slots.is_empty()).collect()
}

/// Returns the slots of categories that are used.
fn category_slots(
    allocator: &Allocator<'_>,
    model: &RawModel,
    places: &HashMap<i32, usize>,
) -> Result<Vec<CategorySlot>, LoadError> {
    let mut slots = Vec::new();
    for (index, OneHotFeature { category, values }) in model.one_hots.iter().enumerate() {
        let place = places.get(category).copied().ok_or_else(|| LoadError::Field {
            field: "OneHotFeatures",
            wanted: "the number of a categorical feature",
            found: category.to_string(),
        })?;
        for (number, values) in allocator.used(allocator.ends[0] + index, values) {
            slots.push(CategorySlot { number, category: place, values });
        }
    }
    Ok(slots)
}
