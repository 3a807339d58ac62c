//! The input and output of evaluators: tables, data frames and sparse rows.

mod sparse;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

pub use self::sparse::{NumericType, SparseRows};

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Elements<'a> {
    F32(Cow<'a, [f32]>),
    F64(Cow<'a, [f64]>),
    /// Integers and booleans, with the type that they have in NumPy.
    Int(Cow<'a, [i64]>, IntType),
    Text(Vec<Arc<str>>),
    /// Texts of which some are missing: NaN in a column of objects.
    PartialText(Vec<Option<Arc<str>>>),
}

/// The type of integers in NumPy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// Elements that do not make a table or data frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    #[error("{found} values do not fit {rows} rows of {columns} columns")]
    Shape { rows: usize, columns: usize, found: usize },
    #[error("{columns} columns have {names} names")]
    ColumnNames { names: usize, columns: usize },
    #[error("column {column} has {found} values, but the table has {rows} rows")]
    ColumnLength { column: usize, found: usize, rows: usize },
}

/// What a text counts in the size of a response that is estimated before it is computed: most labels are short.
const TEXT_BYTES: usize = 64;

impl IntType {
    /// Returns the size of an element in a response, in bytes.
    const fn width(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }
}

impl NumericType {
    /// Returns the size of an element in a response, in bytes.
    const fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Int(kind) => kind.width(),
        }
    }
}

/// A table of values of one type, in row-major order. A list is a table of one column.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseTable<'a> {
    pub(super) elements: Elements<'a>,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Columns of the same length, each with its own type. Without names it is what NumPy calls an array of objects.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFrame<'a> {
    pub(super) names: Vec<Cow<'a, str>>,
    pub(super) columns: Vec<Elements<'a>>,
    pub(super) rows: usize,
}

/// An input or output of an evaluator.
#[derive(Debug, Clone, PartialEq)]
pub enum TableData<'a> {
    Table(DenseTable<'a>),
    Frame(DataFrame<'a>),
    Sparse(SparseRows),
}

/// A matrix of floating-point numbers, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FloatMatrix<'a> {
    pub(super) floats: FloatValues<'a>,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Numbers of one of the types that estimators compute with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FloatValues<'a> {
    F32(Cow<'a, [f32]>),
    F64(Cow<'a, [f64]>),
}

impl Elements<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Int(values, _) => values.len(),
            Self::Text(values) => values.len(),
            Self::PartialText(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type of the numbers, or `None` for text.
    pub(super) const fn numeric(&self) -> Option<NumericType> {
        match self {
            Self::F32(_) => Some(NumericType::F32),
            Self::F64(_) => Some(NumericType::F64),
            Self::Int(_, kind) => Some(NumericType::Int(*kind)),
            Self::Text(_) | Self::PartialText(_) => None,
        }
    }

    /// Returns the numbers in double precision, or `None` for text.
    pub(super) fn floats(&self) -> Option<Cow<'_, [f64]>> {
        match self {
            Self::F32(values) => Some(values.iter().copied().map(f64::from).collect()),
            Self::F64(values) => Some(Cow::Borrowed(values)),
            Self::Int(values, _) => Some(values.iter().copied().map(to_f64).collect()),
            Self::Text(_) | Self::PartialText(_) => None,
        }
    }

    /// Returns the elements at `indices`, which must be in range.
    pub(super) fn take(&self, indices: impl Iterator<Item = usize>) -> Elements<'static> {
        match self {
            Self::F32(values) => Elements::F32(indices.map(|index| values[index]).collect()),
            Self::F64(values) => Elements::F64(indices.map(|index| values[index]).collect()),
            Self::Int(values, kind) => Elements::Int(indices.map(|index| values[index]).collect(), *kind),
            Self::Text(values) => Elements::Text(indices.map(|index| Arc::clone(&values[index])).collect()),
            Self::PartialText(values) => Elements::PartialText(indices.map(|index| values[index].clone()).collect()),
        }
    }

    /// Returns the elements in a range, which must be in bounds.
    fn range(&self, range: Range<usize>) -> Elements<'_> {
        match self {
            Self::F32(values) => Elements::F32(Cow::Borrowed(&values[range])),
            Self::F64(values) => Elements::F64(Cow::Borrowed(&values[range])),
            Self::Int(values, kind) => Elements::Int(Cow::Borrowed(&values[range]), *kind),
            Self::Text(values) => Elements::Text(values[range].to_vec()),
            Self::PartialText(values) => Elements::PartialText(values[range].to_vec()),
        }
    }

    /// Returns the size of an element in a response, in bytes. The length of texts is not known before they are computed: they
    /// count as [`TEXT_BYTES`].
    const fn width(&self) -> usize {
        match self {
            Self::F32(_) => 4,
            Self::F64(_) => 8,
            Self::Int(_, kind) => kind.width(),
            Self::Text(_) | Self::PartialText(_) => TEXT_BYTES,
        }
    }

    /// Appends elements of the same type. Elements of another type are ignored.
    pub(super) fn append(&mut self, others: &Elements<'_>) {
        match (self, others) {
            (Self::F32(values), Elements::F32(others)) => values.to_mut().extend_from_slice(others),
            (Self::F64(values), Elements::F64(others)) => values.to_mut().extend_from_slice(others),
            (Self::Int(values, _), Elements::Int(others, _)) => values.to_mut().extend_from_slice(others),
            (Self::Text(values), Elements::Text(others)) => values.extend_from_slice(others),
            _ => {}
        }
    }

    /// Returns these elements followed by others of the same type. Elements of another type are ignored.
    pub(super) fn followed_by(&self, others: &Elements<'_>) -> Elements<'static> {
        match (self, others) {
            (Self::F32(values), Elements::F32(others)) => Elements::F32([&values[..], &others[..]].concat().into()),
            (Self::F64(values), Elements::F64(others)) => Elements::F64([&values[..], &others[..]].concat().into()),
            (Self::Int(values, kind), Elements::Int(others, _)) => {
                Elements::Int([&values[..], &others[..]].concat().into(), *kind)
            }
            (Self::Text(values), Elements::Text(others)) => Elements::Text([&values[..], &others[..]].concat()),
            _ => self.clone().into_static(),
        }
    }

    /// Returns whether NumPy's `result_type` of these elements and single-precision floats is double precision.
    const fn is_wide(&self) -> bool {
        match self {
            Self::F32(_) | Self::Text(_) | Self::PartialText(_) => false,
            Self::F64(_) => true,
            Self::Int(_, kind) => matches!(kind, IntType::I32 | IntType::I64 | IntType::U32 | IntType::U64),
        }
    }
}

impl Elements<'_> {
    pub(super) fn into_static(self) -> Elements<'static> {
        match self {
            Self::F32(values) => Elements::F32(values.into_owned().into()),
            Self::F64(values) => Elements::F64(values.into_owned().into()),
            Self::Int(values, kind) => Elements::Int(values.into_owned().into(), kind),
            Self::Text(values) => Elements::Text(values),
            Self::PartialText(values) => Elements::PartialText(values),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
pub(super) const fn to_f64(integer: i64) -> f64 {
    integer as f64
}

impl<'a> DenseTable<'a> {
    /// Creates a table of `rows` times `columns` elements.
    ///
    /// # Errors
    ///
    /// Fails if there are more or fewer elements.
    pub fn new(elements: Elements<'a>, rows: usize, columns: usize) -> Result<Self, TableError> {
        let found = elements.len();
        if rows.checked_mul(columns) == Some(found) {
            Ok(Self { elements, rows, columns })
        } else {
            Err(TableError::Shape { rows, columns, found })
        }
    }

    pub const fn rows(&self) -> usize {
        self.rows
    }

    pub const fn columns(&self) -> usize {
        self.columns
    }

    pub const fn elements(&self) -> &Elements<'a> {
        &self.elements
    }

    pub fn into_elements(self) -> Elements<'a> {
        self.elements
    }
}

impl<'a> DataFrame<'a> {
    /// Creates a data frame of columns of `rows` elements each.
    ///
    /// # Errors
    ///
    /// Fails if there is not one name for each column, or if a column has another length.
    pub fn new(names: Vec<Cow<'a, str>>, columns: Vec<Elements<'a>>, rows: usize) -> Result<Self, TableError> {
        if names.len() != columns.len() {
            return Err(TableError::ColumnNames { names: names.len(), columns: columns.len() });
        }
        match columns.iter().position(|column| column.len() != rows) {
            None => Ok(Self { names, columns, rows }),
            Some(column) => Err(TableError::ColumnLength { column, found: columns[column].len(), rows }),
        }
    }

    /// Returns the names of the columns, or none if the columns of the result of an estimator have no names.
    pub fn names(&self) -> &[Cow<'a, str>] {
        &self.names
    }

    pub fn columns(&self) -> &[Elements<'a>] {
        &self.columns
    }

    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns each column with its name.
    pub fn into_columns(self) -> impl Iterator<Item = (Cow<'a, str>, Elements<'a>)> {
        self.names.into_iter().zip(self.columns)
    }
}

impl DenseTable<'static> {
    /// Creates a table of double precision. The number of rows follows from the number of columns.
    pub(super) fn of_f64(values: Vec<f64>, columns: usize) -> Self {
        let rows = values.len() / columns.max(1);
        Self { elements: Elements::F64(values.into()), rows, columns }
    }

    /// Creates a table of the numbers of a matrix.
    pub(super) fn of_matrix(matrix: &FloatMatrix<'_>) -> Self {
        let elements = match &matrix.floats {
            FloatValues::F32(values) => Elements::F32(values.to_vec().into()),
            FloatValues::F64(values) => Elements::F64(values.to_vec().into()),
        };
        Self { elements, rows: matrix.rows, columns: matrix.columns }
    }

    /// Creates a table of one column.
    pub(super) fn of_column(elements: Elements<'static>) -> Self {
        let rows = elements.len();
        Self { elements, rows, columns: 1 }
    }
}

impl TableData<'_> {
    pub const fn rows(&self) -> usize {
        match self {
            Self::Table(table) => table.rows,
            Self::Frame(frame) => frame.rows,
            Self::Sparse(sparse) => sparse.rows(),
        }
    }

    pub const fn columns(&self) -> usize {
        match self {
            Self::Table(table) => table.columns,
            Self::Frame(frame) => frame.columns.len(),
            Self::Sparse(sparse) => sparse.columns(),
        }
    }

    /// Returns some of the rows, which must be in bounds.
    pub(super) fn range(&self, rows: Range<usize>) -> TableData<'_> {
        match self {
            Self::Table(table) => TableData::Table(DenseTable {
                elements: table.elements.range(rows.start * table.columns..rows.end * table.columns),
                rows: rows.len(),
                columns: table.columns,
            }),
            Self::Frame(frame) => TableData::Frame(DataFrame {
                names: frame.names.iter().map(|name| Cow::Borrowed(&**name)).collect(),
                columns: frame.columns.iter().map(|column| column.range(rows.clone())).collect(),
                rows: rows.len(),
            }),
            Self::Sparse(sparse) => TableData::Table(sparse.table(rows)),
        }
    }

    /// Returns the size of a row in a response, in bytes, if all its values are sent.
    pub(super) fn row_width(&self) -> usize {
        match self {
            Self::Table(table) => table.columns.saturating_mul(table.elements.width()),
            Self::Frame(frame) => frame.columns.iter().map(Elements::width).sum(),
            Self::Sparse(sparse) => sparse.columns().saturating_mul(sparse.numeric().width()),
        }
    }

    /// Returns the same data without borrows.
    pub(super) fn into_static(self) -> TableData<'static> {
        match self {
            Self::Table(DenseTable { elements, rows, columns }) => {
                TableData::Table(DenseTable { elements: elements.into_static(), rows, columns })
            }
            Self::Frame(DataFrame { names, columns, rows }) => {
                let names = names.into_iter().map(|name| Cow::Owned(name.into_owned())).collect();
                TableData::Frame(DataFrame {
                    names,
                    columns: columns.into_iter().map(Elements::into_static).collect(),
                    rows,
                })
            }
            Self::Sparse(sparse) => TableData::Sparse(sparse),
        }
    }

    /// Returns the columns at `places`, which must be in range.
    pub(super) fn select(&self, places: &[usize]) -> TableData<'_> {
        match self {
            Self::Table(table) => {
                let cells = (0..table.rows).flat_map(|row| places.iter().map(move |place| row * table.columns + place));
                TableData::Table(DenseTable {
                    elements: table.elements.take(cells),
                    rows: table.rows,
                    columns: places.len(),
                })
            }
            Self::Frame(frame) => {
                let name = |&place: &usize| frame.names.get(place).map(|name| Cow::Borrowed(&**name));
                let names = places.iter().filter_map(name).collect();
                let columns = places.iter().map(|&place| frame.columns[place].clone()).collect();
                TableData::Frame(DataFrame { names, columns, rows: frame.rows })
            }
            Self::Sparse(sparse) => TableData::Sparse(sparse.select(places)),
        }
    }

    /// Returns one column, which must be in range.
    pub(super) fn column(&self, place: usize) -> Elements<'_> {
        match self {
            Self::Table(table) if table.columns == 1 => table.elements.clone(),
            Self::Table(table) => table.elements.take((0..table.rows).map(|row| row * table.columns + place)),
            Self::Frame(frame) => frame.columns[place].clone(),
            Self::Sparse(sparse) => sparse.select(&[place]).table(0..sparse.rows()).elements,
        }
    }

    /// Returns whether columns have names.
    pub(super) const fn is_named(&self) -> bool {
        matches!(self, Self::Frame(frame) if !frame.names.is_empty())
    }

    /// Returns the frame, if its columns have names.
    pub(super) fn named(&self) -> Option<&DataFrame<'_>> {
        match self {
            Self::Frame(frame) if self.is_named() => Some(frame),
            _ => None,
        }
    }

    /// Returns the data as numbers, as scikit-learn's `check_array` reads them: single precision stays, everything else
    /// becomes double.
    ///
    /// Returns `None` if some of it is text.
    pub(super) fn matrix(&self) -> Option<FloatMatrix<'_>> {
        let (rows, columns) = (self.rows(), self.columns());
        let floats = match self {
            Self::Table(table) => match &table.elements {
                Elements::F32(values) => FloatValues::F32(Cow::Borrowed(values)),
                Elements::F64(values) => FloatValues::F64(Cow::Borrowed(values)),
                Elements::Int(values, _) => FloatValues::F64(values.iter().copied().map(to_f64).collect()),
                Elements::Text(_) | Elements::PartialText(_) => return None,
            },
            Self::Frame(frame) => frame.floats()?,
            Self::Sparse(sparse) => sparse.floats(),
        };
        Some(FloatMatrix { floats, rows, columns })
    }
}

impl DataFrame<'_> {
    fn floats(&self) -> Option<FloatValues<'static>> {
        let single = self.columns.iter().any(|column| matches!(column, Elements::F32(_)))
            && !self.columns.iter().any(Elements::is_wide);
        let width = self.columns.len();
        let mut values = vec![0.0_f64; self.rows * width];
        for (index, column) in self.columns.iter().enumerate() {
            let slots = values.iter_mut().skip(index).step_by(width);
            match column {
                Elements::F32(column) => slots.zip(&column[..]).for_each(|(slot, &value)| *slot = f64::from(value)),
                Elements::F64(column) => slots.zip(&column[..]).for_each(|(slot, &value)| *slot = value),
                Elements::Int(column, _) => slots.zip(&column[..]).for_each(|(slot, &value)| *slot = to_f64(value)),
                Elements::Text(_) | Elements::PartialText(_) => return None,
            }
        }
        Some(if single {
            FloatValues::F32(values.into_iter().map(to_f32).collect())
        } else {
            FloatValues::F64(values.into())
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
pub(super) const fn to_f32(value: f64) -> f32 {
    value as f32
}

/// Returns whether all values pass a test. Values are tested in blocks, without a branch for each.
fn all<T: Copy>(values: &[T], passes: impl Fn(T) -> bool) -> bool {
    values.chunks(256).all(|block| block.iter().fold(true, |so_far, &value| so_far & passes(value)))
}

impl FloatMatrix<'_> {
    pub(super) const fn is_single(&self) -> bool {
        matches!(self.floats, FloatValues::F32(_))
    }

    /// Returns the numbers in double precision.
    pub(super) fn to_f64(&self) -> Cow<'_, [f64]> {
        match &self.floats {
            FloatValues::F32(values) => values.iter().copied().map(f64::from).collect(),
            FloatValues::F64(values) => Cow::Borrowed(values),
        }
    }

    /// Returns whether every number is finite or, if `nan` is set, NaN.
    pub(super) fn is_finite(&self, nan: bool) -> bool {
        match &self.floats {
            FloatValues::F32(values) => all(values, |value| value.is_finite() | (nan & value.is_nan())),
            FloatValues::F64(values) => all(values, |value| value.is_finite() | (nan & value.is_nan())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_reject_other_numbers_of_elements() {
        let texts = || Elements::Text(vec!["a".into()]);
        assert!(DenseTable::new(texts(), 1, 1).is_ok());
        for (rows, columns) in [(3, 1), (4_000_000_000_000_000, 1), (usize::MAX, 2), (0, 1), (1, 2)] {
            let error = DenseTable::new(texts(), rows, columns).unwrap_err();
            assert_eq!(error, TableError::Shape { rows, columns, found: 1 });
        }
        let column = || Elements::F64(vec![1.0, 2.0].into());
        assert!(DataFrame::new(vec!["a".into(), "b".into()], vec![column(), column()], 2).is_ok());
        let error = DataFrame::new(vec!["a".into(), "b".into()], vec![column(), texts()], 2).unwrap_err();
        assert_eq!(error, TableError::ColumnLength { column: 1, found: 1, rows: 2 });
        let error = DataFrame::new(Vec::new(), vec![column()], 2).unwrap_err();
        assert_eq!(error, TableError::ColumnNames { names: 0, columns: 1 });
    }
}
