//! Sums of floating-point numbers with the bits of onnxruntime, which depend on the order of the additions.
//!
//! This is the order of version 1.32 on one thread: with more threads, it takes another one for some shapes. Neighbors are added by
//! Eigen, in packets of 16 bytes, and what lies between kept dimensions is a product with a matrix of ones.

use super::number::Number;
use crate::onnx::error::Fault;
use crate::onnx::run::Run;
use crate::onnx::tensor::ElementType;

/// The rows of a product of matrices in double precision that are added before they become part of the sum, if there are at
/// least as many columns as rows.
const BLOCK_ROWS: usize = 128;
/// The columns that such a block has room for. Blocks of fewer columns have more rows.
const BLOCK_COLUMNS: usize = 64;
const FEWEST_BLOCK_COLUMNS: usize = 16;

/// How the summands lie. Dimensions side by side that are all reduced, or all kept, are one.
pub(super) enum Layout {
    /// Each sum is that of a row.
    Rows { rows: usize, width: usize },
    /// Each of `blocks` has a sum for each of its columns.
    Columns { blocks: usize, rows: usize, width: usize },
    /// Each sum is that of one row in each of `blocks`.
    Blocks { blocks: usize, rows: usize, width: usize },
}

impl Layout {
    /// Returns the layout, unless onnxruntime adds the numbers one after the other, in the order of their positions.
    pub(super) fn of<T: Number>(sizes: &[usize], reduced: &[bool]) -> Option<Self> {
        if !T::IS_FLOAT || sizes.contains(&0) {
            return None;
        }
        let mut runs: Vec<(bool, usize)> = Vec::with_capacity(sizes.len());
        for (size, reduced) in sizes.iter().zip(reduced) {
            match runs.last_mut() {
                Some((same, product)) if same == reduced => *product *= size,
                _ => runs.push((*reduced, *size)),
            }
        }
        match runs[..] {
            [(true, width)] => Some(Self::Rows { rows: 1, width }),
            [(false, rows), (true, width)] => Some(Self::Rows { rows, width }),
            [(false, blocks), (true, rows), (false, width)] if blocks > 1 => {
                Some(Self::Columns { blocks, rows, width })
            }
            [(true, blocks), (false, rows), (true, width)] if rows > 1 => Some(Self::Blocks { blocks, rows, width }),
            _ => None,
        }
    }

    /// Appends the sums.
    pub(super) fn add<T: Number>(&self, elements: &[T], run: &Run<'_>, sums: &mut Vec<T>) -> Result<(), Fault> {
        match *self {
            Self::Rows { rows, width } => {
                for (row, values) in elements.chunks_exact(width).take(rows).enumerate() {
                    if row % 1024 == 0 {
                        run.check()?;
                    }
                    sums.push(neighbors(values, row * width));
                }
            }
            Self::Columns { blocks, rows, width } => {
                for block in elements.chunks_exact(rows * width).take(blocks) {
                    run.check()?;
                    let start = sums.len();
                    sums.resize(start + width, T::ZERO);
                    columns(block, &mut sums[start..]);
                }
            }
            Self::Blocks { blocks, rows, width } => {
                for row in 0..rows {
                    run.check()?;
                    let starts = (0..blocks).map(|block| (block * rows + row) * width);
                    let each = starts.map(|start| neighbors(&elements[start..start + width], start));
                    sums.push(each.fold(T::ZERO, T::plus));
                }
            }
        }
        Ok(())
    }
}

/// Adds numbers side by side. `offset` is the number of elements before them, which begin at the border of a packet.
fn neighbors<T: Number>(values: &[T], offset: usize) -> T {
    match T::TYPE {
        ElementType::F32 => packets::<T, 4>(values, offset),
        _ => packets::<T, 2>(values, offset),
    }
}

fn packets<T: Number, const LANES: usize>(values: &[T], offset: usize) -> T {
    let border = (offset.next_multiple_of(LANES) - offset).min(values.len());
    let (before, rest) = values.split_at(border);
    let (packets, after) = rest.as_chunks::<LANES>();
    let Some((first, rest)) = packets.split_first() else {
        return values.iter().copied().reduce(T::plus).unwrap_or(T::ZERO);
    };
    let add = |sums: &mut [T; LANES], packet: &[T; LANES]| {
        for (sum, value) in sums.iter_mut().zip(packet) {
            *sum = sum.plus(*value);
        }
    };
    let mut sums = *first;
    if let Some((second, rest)) = rest.split_first() {
        let mut others = *second;
        let (pairs, last) = rest.as_chunks::<2>();
        for [even, odd] in pairs {
            add(&mut sums, even);
            add(&mut others, odd);
        }
        add(&mut sums, &others);
        for packet in last {
            add(&mut sums, packet);
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] = sums[lane].plus(sums[lane + width]);
        }
    }
    before.iter().chain(after).fold(sums[0], |sum, value| sum.plus(*value))
}

/// Adds the rows of a block to `sums`, a group of rows at a time, of which the sum is computed first.
fn columns<T: Number>(block: &[T], sums: &mut [T]) {
    let width = sums.len();
    let rows = block.len() / width;
    let group = |left: usize| match T::TYPE {
        ElementType::F32 => [4, 2].into_iter().find(|count| *count <= left).unwrap_or(1),
        _ => block_rows(rows, width).min(left),
    };
    let mut rest = block;
    while !rest.is_empty() {
        let (rows, behind) = rest.split_at(group(rest.len() / width) * width);
        for (column, sum) in sums.iter_mut().enumerate() {
            let values = rows[column..].iter().step_by(width).copied();
            *sum = sum.plus(values.reduce(T::plus).unwrap_or(T::ZERO));
        }
        rest = behind;
    }
}

/// Returns how many rows a product of matrices in double precision adds at a time.
fn block_rows(rows: usize, width: usize) -> usize {
    let (mut count, mut room) = (BLOCK_ROWS, BLOCK_COLUMNS);
    while width < rows && room > FEWEST_BLOCK_COLUMNS && room / 2 >= width {
        count *= 2;
        room /= 2;
    }
    count
}
