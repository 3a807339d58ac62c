//! Sparse rows, in which most values are zero.

use super::{DenseTable, Elements, FloatValues, IntType, to_f32};

/// A numeric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumericType {
    F32,
    F64,
    Int(IntType),
}

impl NumericType {
    /// Converts numbers to elements of this type, which must be able to hold them. Single precision rounds.
    #[expect(clippy::cast_possible_truncation, reason = "integers were integers before")]
    pub(crate) fn elements(self, values: Vec<f64>) -> Elements<'static> {
        match self {
            Self::F32 => Elements::F32(values.into_iter().map(to_f32).collect()),
            Self::F64 => Elements::F64(values.into()),
            Self::Int(kind) => Elements::Int(values.into_iter().map(|value| value as i64).collect(), kind),
        }
    }

    /// Returns the common type of both, as NumPy's `result_type`.
    pub(crate) fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one.with(other),
            (Self::F64, _) | (_, Self::F64) => Self::F64,
            (Self::F32, Self::F32) => Self::F32,
            (Self::F32, Self::Int(kind)) | (Self::Int(kind), Self::F32) => {
                if kind.bits() > 16 {
                    Self::F64
                } else {
                    Self::F32
                }
            }
        }
    }
}

impl IntType {
    const fn bits(self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::I8 | Self::U8 => 8,
            Self::I16 | Self::U16 => 16,
            Self::I32 | Self::U32 => 32,
            Self::I64 | Self::U64 => 64,
        }
    }

    const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Returns the common type of both, as NumPy's `result_type`: one that holds the values of either.
    fn with(self, other: Self) -> NumericType {
        if self == other {
            return NumericType::Int(self);
        }
        let wider = self.bits().max(other.bits());
        let same = self.is_signed() == other.is_signed() || self == Self::Bool || other == Self::Bool;
        let signed = self.is_signed() || other.is_signed();
        // An unsigned type needs a signed one of twice its width.
        let unsigned = if self.is_signed() { other } else { self }.bits();
        let bits = if same { wider } else { wider.max(unsigned.saturating_mul(2)) };
        NumericType::Int(match (bits, signed) {
            (..=8, true) => Self::I8,
            (..=8, false) => Self::U8,
            (..=16, true) => Self::I16,
            (..=16, false) => Self::U16,
            (..=32, true) => Self::I32,
            (..=32, false) => Self::U32,
            (..=64, true) => Self::I64,
            (..=64, false) => Self::U64,
            _ => return NumericType::F64,
        })
    }
}

/// Rows of which only the nonzero numbers are stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseRows {
    /// Column and value of each cell, row by row, with ascending columns.
    cells: Vec<(u32, f64)>,
    /// The end of each row in `cells`.
    ends: Vec<usize>,
    columns: usize,
    numeric: NumericType,
}

impl SparseRows {
    /// Creates an empty table. Columns beyond 32 bits are never stored.
    pub(crate) const fn new(columns: usize, numeric: NumericType) -> Self {
        Self { cells: Vec::new(), ends: Vec::new(), columns, numeric }
    }

    /// Appends a row. Its columns must ascend.
    pub(crate) fn push_row(&mut self, cells: impl Iterator<Item = (usize, f64)>) {
        let narrow = |(column, value): (usize, f64)| Some((u32::try_from(column).ok()?, value));
        self.cells.extend(cells.filter(|&(_, value)| value != 0.0).filter_map(narrow));
        self.ends.push(self.cells.len());
    }

    pub const fn rows(&self) -> usize {
        self.ends.len()
    }

    pub const fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) const fn numeric(&self) -> NumericType {
        self.numeric
    }

    /// Returns whether every number is finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.cells.iter().all(|(_, value)| value.is_finite())
    }

    /// Returns the columns and values of a row.
    pub(crate) fn row(&self, row: usize) -> impl ExactSizeIterator<Item = (usize, f64)> + Clone {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        self.cells[start..self.ends[row]].iter().map(|&(column, value)| (column as usize, value))
    }

    /// Applies a function to every stored value.
    pub(crate) fn map(&self, numeric: NumericType, apply: impl Fn(f64) -> f64) -> Self {
        let mut mapped = Self::new(self.columns, numeric);
        for row in 0..self.rows() {
            mapped.push_row(self.row(row).map(|(column, value)| (column, apply(value))));
        }
        mapped
    }

    /// Returns some of the columns.
    pub(crate) fn select(&self, places: &[usize]) -> Self {
        // The new positions of each column, which may be selected more than once.
        let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); self.columns];
        for (target, &place) in places.iter().enumerate() {
            wanted[place].push(target);
        }
        let mut selected = Self::new(places.len(), self.numeric);
        for row in 0..self.rows() {
            let cells = self.row(row).flat_map(|(column, value)| wanted[column].iter().map(move |&to| (to, value)));
            let mut cells: Vec<_> = cells.collect();
            cells.sort_unstable_by_key(|&(column, _)| column);
            selected.push_row(cells.into_iter());
        }
        selected
    }

    /// Returns the dense numbers, in the type that estimators compute with.
    pub(crate) fn floats(&self) -> FloatValues<'static> {
        let table = self.table(0..self.rows());
        match table.elements {
            Elements::F32(values) => FloatValues::F32(values),
            other => FloatValues::F64(other.floats().unwrap_or_default().into_owned().into()),
        }
    }

    /// Returns some of the rows as a dense table.
    pub(crate) fn table(&self, rows: std::ops::Range<usize>) -> DenseTable<'static> {
        self.filled(rows, 0.0)
    }

    /// Returns some of the rows as a dense table, with `absent` for cells that are not stored.
    pub(crate) fn filled(&self, rows: std::ops::Range<usize>, absent: f64) -> DenseTable<'static> {
        let numeric = if absent.is_nan() { self.numeric.with(NumericType::F32) } else { self.numeric };
        let mut values = vec![absent; rows.len() * self.columns];
        let count = rows.len();
        for (slots, row) in values.chunks_exact_mut(self.columns.max(1)).zip(rows) {
            for (column, value) in self.row(row) {
                slots[column] = value;
            }
        }
        DenseTable { elements: numeric.elements(values), rows: count, columns: self.columns }
    }

    /// Returns all rows as a dense table, or `None` if it has more than `most` numbers.
    pub fn to_table(&self, most: usize) -> Option<DenseTable<'static>> {
        let cells = self.rows().checked_mul(self.columns)?;
        (cells <= most).then(|| self.table(0..self.rows()))
    }

    /// Appends the rows of another table with the same number of columns.
    pub(crate) fn append(&mut self, other: &Self) {
        for row in 0..other.rows() {
            self.push_row(other.row(row));
        }
    }

    /// Returns `x @ weights + intercept`, row by row. `weights` has one row for each column.
    pub(crate) fn affine(&self, weights: &[f64], intercept: &[f64]) -> Vec<f64> {
        let outputs = intercept.len();
        let mut scores = Vec::with_capacity(self.rows() * outputs);
        for row in 0..self.rows() {
            let start = scores.len();
            scores.resize(start + outputs, 0.0);
            for (column, value) in self.row(row) {
                let weights = &weights[column * outputs..(column + 1) * outputs];
                scores[start..].iter_mut().zip(weights).for_each(|(score, weight)| *score += value * weight);
            }
            scores[start..].iter_mut().zip(intercept).for_each(|(score, intercept)| *score += intercept);
        }
        scores
    }
}
