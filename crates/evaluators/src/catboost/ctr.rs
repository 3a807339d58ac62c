//! Statistics of categories: hashes, projections and tables.
//!
//! A projection folds the hashes of a row's categories into one hash. A table has statistics of the target for each hash,
//! and a feature computes its value from them. A projection is hashed once for all its tables, and a table is searched once
//! for all features that use it.

use std::collections::HashMap;

use bytes::Bytes;

use super::raw::{CtrBase, CtrFeature, CtrTable, CtrType, Projection};
use super::trees::{Slot, SlotTest};
use crate::trees::LoadError;

/// The size of a bucket: a hash of 64 bits and an index of 32 bits.
const BUCKET: usize = 12;
/// The hash of buckets that are empty.
const EMPTY: u64 = u64::MAX;
/// The multiplier of hashes.
const MULTIPLIER: u64 = 0x4906_ba49_4954_cb65;

/// Returns the hash of a category.
pub(super) fn category_hash(text: &[u8]) -> i32 {
    let [a, b, c, d, ..] = naive_cityhash::cityhash64(text).to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Adds a value to the hash of a projection.
#[inline]
fn fold(hash: u64, value: u64) -> u64 {
    MULTIPLIER.wrapping_mul(hash.wrapping_add(MULTIPLIER.wrapping_mul(value)))
}

/// Returns a hash table of the places of hashes. Of equal hashes the last counts.
pub(super) fn buckets(hashes: &[u64]) -> Result<Vec<u8>, LoadError> {
    let count = (hashes.len() * 2).next_power_of_two().max(2);
    let mut buckets = [EMPTY.to_le_bytes().as_slice(), &[0xff; 4]].concat().repeat(count);
    for (index, &hash) in hashes.iter().enumerate().filter(|(_, hash)| **hash != EMPTY) {
        let index = u32::try_from(index).map_err(|_| LoadError::TooLarge {
            what: "categories",
            count: hashes.len(),
            limit: u32::MAX as usize,
        })?;
        let mut place = truncate(hash) & (count - 1);
        while !matches!(read_bucket(&buckets, place), (EMPTY, _)) && read_bucket(&buckets, place).0 != hash {
            place = (place + 1) & (count - 1);
        }
        if let Some((slot, _)) =
            buckets.get_mut(place * BUCKET..).and_then(|rest| rest.split_first_chunk_mut::<BUCKET>())
        {
            slot[..8].copy_from_slice(&hash.to_le_bytes());
            slot[8..].copy_from_slice(&index.to_le_bytes());
        }
    }
    Ok(buckets)
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
const fn truncate(hash: u64) -> usize {
    hash as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of a bucket are taken apart")]
const fn low(bucket: u128) -> u64 {
    bucket as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of a bucket are taken apart")]
const fn truncate_index(index: u128) -> u32 {
    index as u32
}

/// Returns the hash and the index of a bucket.
#[inline]
fn read_bucket(buckets: &[u8], place: usize) -> (u64, u32) {
    let Some(bucket) = buckets.get(place * BUCKET..).and_then(|rest| rest.first_chunk::<BUCKET>()) else {
        return (EMPTY, 0);
    };
    let mut wide = [0; 16];
    wide[..BUCKET].copy_from_slice(bucket);
    let both = u128::from_le_bytes(wide);
    (low(both), truncate_index(both >> 64))
}

/// A checked table.
#[derive(Debug)]
struct Table {
    buckets: Bytes,
    /// The number of buckets, less one.
    mask: usize,
    blob: Bytes,
    /// The number of 32-bit words of a category.
    stride: usize,
    denominator: i32,
}

impl Table {
    fn new(table: CtrTable) -> Result<Self, LoadError> {
        let field = |field, wanted, found: usize| LoadError::Field { field, wanted, found: found.to_string() };
        let count = table.buckets.len() / BUCKET;
        if !count.is_power_of_two() {
            return Err(field("IndexHashRaw", "a number of buckets that is a power of two", count));
        }
        let stride = match table.base.kind {
            // The library reads two counts if there are no more.
            CtrType::Borders => usize::try_from(table.classes).unwrap_or(0).max(2),
            CtrType::Buckets => usize::try_from(table.classes).unwrap_or(0),
            CtrType::Mean { .. } => 2,
            CtrType::Counter { .. } => 1,
        };
        let places = table.blob.len() / 4;
        for place in 0..count {
            let (hash, index) = read_bucket(&table.buckets, place);
            let end = (index as usize).checked_add(1).and_then(|end| end.checked_mul(stride));
            if hash != EMPTY && end.is_none_or(|end| end > places) {
                return Err(field("CTRBlob", "statistics of every category", places));
            }
        }
        let (buckets, blob, denominator) = (table.buckets, table.blob, table.denominator);
        Ok(Self { buckets, mask: count - 1, blob, stride, denominator })
    }

    /// Returns the statistics of a hash, or `None` if it has none.
    #[inline]
    fn find(&self, hash: u64) -> Option<&[[u8; 4]]> {
        let mut place = truncate(hash) & self.mask;
        // A table without an empty bucket is searched once.
        for _ in 0..=self.mask {
            let (found, index) = read_bucket(&self.buckets, place);
            if found == EMPTY {
                return None;
            }
            if found == hash {
                let start = index as usize * self.stride;
                return self.blob.as_chunks().0.get(start..start + self.stride);
            }
            place = (place + 1) & self.mask;
        }
        None
    }
}

/// How a feature computes its value.
#[derive(Debug)]
struct Formula {
    kind: CtrType,
    target_border: usize,
    prior: f32,
    prior_denominator: f32,
    shift: f32,
    scale: f32,
    slots: Vec<Slot>,
}

/// The features of one table.
#[derive(Debug)]
struct TableFeatures {
    table: Table,
    formulas: Vec<Formula>,
}

/// The tables of one projection.
#[derive(Debug)]
struct Group {
    categories: Vec<usize>,
    tests: Vec<SlotTest>,
    tables: Vec<TableFeatures>,
}

/// All features that are computed from statistics.
#[derive(Debug, Default)]
pub(super) struct Ctrs {
    groups: Vec<Group>,
}

/// A feature with what its splits and its projection became.
pub(super) struct CompiledCtr {
    pub(super) feature: CtrFeature,
    /// The places of the projection's categories among the hashes of a row.
    pub(super) categories: Vec<usize>,
    /// The other elements of the projection.
    pub(super) tests: Vec<SlotTest>,
    pub(super) slots: Vec<Slot>,
}

impl Ctrs {
    /// Finds the table of each feature.
    pub(super) fn new(features: Vec<CompiledCtr>, tables: Vec<CtrTable>) -> Result<Self, LoadError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<CtrBase, (usize, usize)> = HashMap::new();
        let mut projections: HashMap<Projection, usize> = HashMap::new();
        let mut tables: HashMap<CtrBase, CtrTable> =
            tables.into_iter().map(|table| (table.base.clone(), table)).collect();
        for CompiledCtr { feature, categories, tests, slots } in features {
            let formula = |table: &Table| Formula::new(&feature, slots, table);
            if let Some((group, table)) = known.get(&feature.base) {
                let found = &mut groups[*group].tables[*table];
                let formula = formula(&found.table)?;
                found.formulas.push(formula);
                continue;
            }
            let table = tables.remove(&feature.base).ok_or(LoadError::MissingField { field: "ctr_data" })?;
            let table = Table::new(table)?;
            let formulas = vec![formula(&table)?];
            let group = *projections.entry(feature.base.projection.clone()).or_insert_with(|| {
                groups.push(Group { categories, tests, tables: Vec::new() });
                groups.len() - 1
            });
            known.insert(feature.base, (group, groups[group].tables.len()));
            groups[group].tables.push(TableFeatures { table, formulas });
        }
        Ok(Self { groups })
    }

    /// Computes the features of a block and ranks them. `hashes` has the hashes of each category.
    pub(super) fn rank<const N: usize>(&self, hashes: &[[i32; N]], rows: usize, ranks: &mut [[u8; N]]) {
        for group in &self.groups {
            let mut projected = [0; N];
            let projected = &mut projected[..rows];
            for &category in &group.categories {
                for (projected, hash) in projected.iter_mut().zip(&hashes[category][..rows]) {
                    *projected = fold(*projected, i64::from(*hash).cast_unsigned());
                }
            }
            for test in &group.tests {
                for (projected, rank) in projected.iter_mut().zip(&ranks[test.slot as usize]) {
                    *projected = fold(*projected, u64::from(test.passes(*rank)));
                }
            }
            for TableFeatures { table, formulas, .. } in &group.tables {
                let mut found = [None; N];
                for (found, hash) in found.iter_mut().zip(&*projected) {
                    *found = table.find(*hash);
                }
                for formula in formulas {
                    let mut values = [0.0; N];
                    for (value, found) in values[..rows].iter_mut().zip(found) {
                        *value = formula.value(found, table.denominator);
                    }
                    for slot in &formula.slots {
                        slot.rank(&values, &mut ranks[slot.number as usize]);
                    }
                }
            }
        }
    }

    /// Returns how many nanoseconds a row takes.
    pub(super) fn cost(&self) -> usize {
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        tables.map(|table| 20 + 15 * table.formulas.len()).sum()
    }
}

impl Formula {
    fn new(feature: &CtrFeature, slots: Vec<Slot>, table: &Table) -> Result<Self, LoadError> {
        let kind = feature.base.kind;
        let classes = match kind {
            CtrType::Borders | CtrType::Buckets => table.stride,
            CtrType::Mean { .. } | CtrType::Counter { .. } => usize::MAX,
        };
        // Of two counts, the second is taken. The library does not check the number, and reads what follows the table.
        let is_ignored = kind == CtrType::Borders && table.stride == 2;
        let border = usize::try_from(feature.target_border).ok().filter(|border| is_ignored || *border < classes);
        Ok(Self {
            kind,
            target_border: border.ok_or_else(|| LoadError::Unsupported {
                what: "number of a border of the target",
                name: feature.target_border.to_string(),
            })?,
            prior: feature.prior,
            prior_denominator: feature.prior_denominator,
            shift: feature.shift,
            scale: feature.scale,
            slots,
        })
    }

    /// Returns the value, as the library computes it in single precision.
    #[inline]
    fn value(&self, statistics: Option<&[[u8; 4]]>, denominator: i32) -> f32 {
        let words = statistics.unwrap_or_default();
        let sum = |words: &[[u8; 4]]| words.iter().fold(0_i32, |sum, word| sum.wrapping_add(i32::from_le_bytes(*word)));
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        let (count, total) = match self.kind {
            CtrType::Borders if words.len() <= 2 => {
                (as_f32(sum(words.get(1..).unwrap_or_default())), as_f32(sum(words)))
            }
            CtrType::Borders => {
                (as_f32(sum(words.get(self.target_border + 1..).unwrap_or_default())), as_f32(sum(words)))
            }
            CtrType::Buckets => (as_f32(i32::from_le_bytes(word(self.target_border))), as_f32(sum(words))),
            CtrType::Mean { .. } => (f32::from_le_bytes(word(0)), as_f32(i32::from_le_bytes(word(1)))),
            CtrType::Counter { .. } => (as_f32(i32::from_le_bytes(word(0))), as_f32(denominator)),
        };
        ((count + self.prior) / (total + self.prior_denominator) + self.shift) * self.scale
    }
}

#[expect(clippy::cast_precision_loss, reason = "the library converts counts in the same way")]
const fn as_f32(count: i32) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_library() {
        for (text, hash) in [("2", 3_010_176_887_u32), ("3", 593_172_586), ("19", 2_537_103_341), ("10", 2_957_118_694)]
        {
            assert_eq!(category_hash(text.as_bytes()).cast_unsigned(), hash, "{text}");
        }
        let hash = fold(0, i64::from(category_hash(b"2")).cast_unsigned());
        assert!(hash > 1 << 32);
    }

    #[test]
    fn tables_find_every_hash_and_no_other() {
        let hashes: Vec<u64> = (0..100).map(|index| fold(index, 7)).chain([EMPTY, fold(3, 7)]).collect();
        let buckets = buckets(&hashes).unwrap();
        let blob: Vec<u8> = (0..102_i32).flat_map(i32::to_le_bytes).collect();
        let table = Table {
            mask: buckets.len() / BUCKET - 1,
            buckets: buckets.into(),
            blob: blob.into(),
            stride: 1,
            denominator: 0,
        };
        let found = |hash| table.find(hash).map(|words| i32::from_le_bytes(words[0]));
        assert_eq!(found(fold(5, 7)), Some(5));
        assert_eq!(found(fold(3, 7)), Some(101), "the last of two");
        assert_eq!(found(fold(100, 7)), None);
        assert_eq!(found(EMPTY), None);
    }
}
