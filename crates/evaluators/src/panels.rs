//! Rows side by side, so that the sums of several rows are computed at once.

use std::ops::AddAssign;

/// Lays out rows by panel of `WIDTH` rows and, within a panel, by feature. The last panel is padded with zeros.
pub(crate) fn panels<T: Copy + Default, const WIDTH: usize>(rows: &[T], features: usize) -> Vec<[T; WIDTH]> {
    let features = features.max(1);
    let count = rows.len().div_ceil(WIDTH * features);
    let mut panels = vec![[T::default(); WIDTH]; count * features];
    for (rows, panel) in rows.chunks(WIDTH * features).zip(panels.chunks_exact_mut(features)) {
        lay_out(rows, panel);
    }
    panels
}

/// Lays out at most `WIDTH` rows in a panel, which has as many lines as there are features.
// Inlined, because `wide` selects the instruction set.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
pub(crate) fn lay_out<T: Copy, const WIDTH: usize>(rows: &[T], panel: &mut [[T; WIDTH]]) {
    for (place, row) in rows.chunks_exact(panel.len().max(1)).take(WIDTH).enumerate() {
        for (values, &value) in panel.iter_mut().zip(row) {
            values[place] = value;
        }
    }
}

/// Computes a sum for each row of the panels: of `of` for each feature's value in `x` and in the row.
///
/// Each sum consists of `LANES` partial sums, of every `LANES`th feature, so that one addition does not wait for another.
// Inlined, because `wide` selects the instruction set.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
pub(crate) fn down<T, const WIDTH: usize, const LANES: usize>(
    x: &[T],
    panels: &[[T; WIDTH]],
    sums: &mut [[T; WIDTH]],
    of: impl Fn(T, T) -> T,
) where
    T: Copy + Default + AddAssign,
{
    let (groups, last) = x.as_chunks::<LANES>();
    for (panel, sums) in panels.chunks_exact(x.len().max(1)).zip(sums) {
        let (group_lines, last_lines) = panel.as_chunks::<LANES>();
        // Local variables, so that they are kept in registers. All partial sums at once would be too many for them.
        let mut found = [T::default(); WIDTH];
        for lane in 0..LANES {
            let mut partial = [T::default(); WIDTH];
            for (group, lines) in groups.iter().zip(group_lines) {
                for place in 0..WIDTH {
                    partial[place] += of(group[lane], lines[lane][place]);
                }
            }
            for place in 0..WIDTH {
                found[place] += partial[place];
            }
        }
        let mut rest = [T::default(); WIDTH];
        for (&x, line) in last.iter().zip(last_lines) {
            for place in 0..WIDTH {
                rest[place] += of(x, line[place]);
            }
        }
        for place in 0..WIDTH {
            found[place] += rest[place];
        }
        *sums = found;
    }
}

#[cfg(test)]
mod tests {
    use super::{down, panels};

    #[test]
    fn sums_of_panels_are_those_of_rows() {
        for (count, features) in [(1, 1), (3, 8), (8, 25), (17, 16), (20, 3)] {
            let rows: Vec<i32> = (0..count * features).map(|at| (at * 7 % 11) - 5).collect();
            let x: Vec<i32> = (0..features).map(|at| at % 5 - 2).collect();
            let size = usize::try_from(features).unwrap();
            let laid_out: Vec<[i32; 8]> = panels(&rows, size);
            let mut sums = vec![[0; 8]; laid_out.len() / size];
            down::<_, 8, 4>(&x, &laid_out, &mut sums, |a, b| a * b);
            let mut in_order = sums.clone();
            down::<_, 8, 1>(&x, &laid_out, &mut in_order, |a, b| a * b);
            assert_eq!(in_order, sums);
            let wanted = rows.chunks(size).map(|row| row.iter().zip(&x).map(|(a, b)| a * b).sum());
            let mut wanted: Vec<i32> = wanted.collect();
            wanted.resize(sums.len() * 8, 0);
            assert_eq!(sums.as_flattened(), wanted, "{count} rows of {features}");
        }
    }
}
