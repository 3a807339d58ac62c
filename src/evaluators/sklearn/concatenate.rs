//! Putting results side by side and below one another, as NumPy's `hstack` and `concatenate` do.

use std::borrow::Cow;

use super::data::{DataFrame, DenseTable, Elements, TableData};
use super::sparse::{NumericType, SparseRows};

impl Elements<'_> {
    /// The type of numbers; text has none.
    pub(super) const fn numeric(&self) -> Option<NumericType> {
        match self {
            Self::F32(_) => Some(NumericType::F32),
            Self::F64(_) => Some(NumericType::F64),
            Self::Int(_, kind) => Some(NumericType::Int(*kind)),
            Self::Text(_) => None,
        }
    }

    /// The numbers in double precision; text has none.
    pub(super) fn floats(&self) -> Option<Cow<'_, [f64]>> {
        match self {
            Self::F32(values) => Some(values.iter().copied().map(f64::from).collect()),
            Self::F64(values) => Some(Cow::Borrowed(values)),
            Self::Int(values, _) => Some(values.iter().copied().map(super::data::to_f64).collect()),
            Self::Text(_) => None,
        }
    }
}

/// Puts blocks of as many rows side by side.
///
/// Numbers get the type that holds them all, and stay sparse if one of the blocks is. Beside text each column keeps its own
/// type, in a frame whose columns have no names: what NumPy calls an array of objects.
pub(super) fn hstack(blocks: &[TableData<'_>], rows: usize) -> TableData<'static> {
    if let [only @ (TableData::Table(_) | TableData::Sparse(_))] = blocks {
        return only.clone().into_static();
    }
    let columns: usize = blocks.iter().map(TableData::columns).sum();
    let Some(numeric) = blocks.iter().map(numeric).reduce(|one, other| Some(one?.with(other?))) else {
        return TableData::Table(DenseTable { elements: Elements::F64(Cow::default()), rows, columns: 0 });
    };
    let Some(numeric) = numeric else { return objects(blocks, rows) };
    if blocks.iter().any(|block| matches!(block, TableData::Sparse(_))) {
        return TableData::Sparse(sparse(blocks, rows, SparseRows::new(columns, numeric)));
    }
    let mut values = vec![0.0; rows * columns];
    let mut start = 0;
    for block in blocks {
        let width = block.columns();
        // Blocks are numbers: nothing is left out.
        let Some(matrix) = block.matrix() else { continue };
        let source = matrix.to_f64();
        for (slots, row) in values.chunks_exact_mut(columns.max(1)).zip(source.chunks_exact(width.max(1))) {
            slots[start..start + width].copy_from_slice(row);
        }
        start += width;
    }
    TableData::Table(DenseTable { elements: numeric.elements(values), rows, columns })
}

/// The type that holds all numbers of a block; `None` where some of it is text.
fn numeric(block: &TableData<'_>) -> Option<NumericType> {
    match block {
        TableData::Table(table) => table.elements.numeric(),
        TableData::Sparse(sparse) => Some(sparse.numeric()),
        TableData::Frame(frame) => {
            let each = frame.columns.iter().map(Elements::numeric);
            each.reduce(|one, other| Some(one?.with(other?))).unwrap_or(Some(NumericType::F64))
        }
    }
}

fn sparse(blocks: &[TableData<'_>], rows: usize, mut whole: SparseRows) -> SparseRows {
    let dense = |block: &TableData<'_>| match block {
        TableData::Sparse(_) => None,
        _ => block.matrix().map(|matrix| matrix.to_f64().into_owned()),
    };
    let blocks: Vec<_> = blocks.iter().map(|block| (block, dense(block))).collect();
    for row in 0..rows {
        let mut cells = Vec::new();
        let mut start = 0;
        for (block, matrix) in &blocks {
            match (block, matrix) {
                (TableData::Sparse(sparse), _) => {
                    cells.extend(sparse.row(row).map(|(column, value)| (start + column, value)));
                }
                (_, Some(values)) => {
                    let values = &values[row * block.columns()..(row + 1) * block.columns()];
                    cells.extend(values.iter().enumerate().map(|(column, &value)| (start + column, value)));
                }
                _ => {}
            }
            start += block.columns();
        }
        whole.push_row(cells.into_iter());
    }
    whole
}

/// Columns of their own types.
fn objects(blocks: &[TableData<'_>], rows: usize) -> TableData<'static> {
    let columns: Vec<Elements<'static>> =
        blocks.iter().flat_map(|block| (0..block.columns()).map(|place| block.column(place).into_static())).collect();
    let text = columns.iter().all(|column| matches!(column, Elements::Text(_)));
    if !text {
        return TableData::Frame(DataFrame { names: Vec::new(), columns, rows });
    }
    let width = columns.len();
    let mut cells = Vec::with_capacity(rows * width);
    for row in 0..rows {
        for column in &columns {
            if let Elements::Text(texts) = column {
                cells.push(std::sync::Arc::clone(&texts[row]));
            }
        }
    }
    TableData::Table(DenseTable { elements: Elements::Text(cells), rows, columns: width })
}

/// Puts results of the same kind, of which there is at least one, below one another.
pub(super) fn vstack(parts: Vec<TableData<'static>>) -> Option<TableData<'static>> {
    parts.into_iter().reduce(|above, part| match (above, part) {
        (TableData::Table(above), TableData::Table(part)) => TableData::Table(DenseTable {
            elements: above.elements.followed_by(&part.elements),
            rows: above.rows + part.rows,
            columns: above.columns,
        }),
        (TableData::Sparse(mut above), TableData::Sparse(part)) => {
            above.append(&part);
            TableData::Sparse(above)
        }
        (TableData::Frame(above), TableData::Frame(part)) => {
            let pairs = above.columns.iter().zip(&part.columns);
            let columns = pairs.map(|(above, part)| above.followed_by(part)).collect();
            TableData::Frame(DataFrame { names: above.names, columns, rows: above.rows + part.rows })
        }
        (above, _) => above,
    })
}
