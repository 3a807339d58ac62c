//! Concatenates results by column and by row, as NumPy's `hstack` and `concatenate` do.

use std::borrow::Cow;

use crate::table::{DataFrame, DenseTable, Elements, NumericType, SparseRows, TableData};

/// Concatenates blocks with the same number of rows by column.
///
/// Numbers get the type that holds them all, and stay sparse if one of the blocks is sparse. If some blocks are text,
/// each column keeps its own type, in a frame whose columns have no names: what NumPy calls an array of objects.
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
        // All blocks are numeric, so none is skipped.
        let Some(matrix) = block.matrix() else { continue };
        let source = matrix.to_f64();
        for (slots, row) in values.chunks_exact_mut(columns.max(1)).zip(source.chunks_exact(width.max(1))) {
            slots[start..start + width].copy_from_slice(row);
        }
        start += width;
    }
    TableData::Table(DenseTable { elements: numeric.elements(values), rows, columns })
}

/// Returns the type that holds all numbers of a block, or `None` if some of it is text.
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

/// Concatenates columns that keep their own types.
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

/// Concatenates results by row. Returns `None` if there are none.
///
/// Dense and sparse results become a dense one: some estimators decide by the density of what they return.
pub(super) fn vstack(parts: Vec<TableData<'static>>) -> Option<TableData<'static>> {
    parts.into_iter().reduce(|above, part| match (above, part) {
        (TableData::Sparse(mut above), TableData::Sparse(part)) => {
            above.append(&part);
            TableData::Sparse(above)
        }
        (TableData::Frame(mut above), TableData::Frame(part)) => {
            above.columns.iter_mut().zip(&part.columns).for_each(|(above, part)| above.append(part));
            above.rows += part.rows;
            TableData::Frame(above)
        }
        (above, part) => match (dense(above), dense(part)) {
            (TableData::Table(mut above), TableData::Table(part)) => {
                above.elements.append(&part.elements);
                above.rows += part.rows;
                TableData::Table(above)
            }
            (above, _) => above,
        },
    })
}

/// Converts sparse rows to a dense table.
fn dense(data: TableData<'static>) -> TableData<'static> {
    match data {
        TableData::Sparse(sparse) => TableData::Table(sparse.table(0..sparse.rows())),
        other => other,
    }
}
