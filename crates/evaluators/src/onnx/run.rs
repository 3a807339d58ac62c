//! The limits of an evaluation: its memory, and its end.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::Fault;
use super::tensor::{Element, Shape, Tensor};

/// How many times the size of all values the intermediate results of one operator may have.
const SCRATCH_TIMES: usize = 4;

/// One evaluation of a graph.
#[derive(Debug)]
pub(super) struct Run<'r> {
    stop: &'r AtomicBool,
    limit: usize,
    left: Cell<usize>,
}

impl<'r> Run<'r> {
    /// Begins an evaluation whose tensors take at most `limit` bytes, and that ends soon after `stop` is set.
    pub(super) const fn new(limit: usize, stop: &'r AtomicBool) -> Self {
        Self { stop, limit, left: Cell::new(limit) }
    }

    /// Returns the flag that ends the evaluation.
    pub(super) const fn stop(&self) -> &'r AtomicBool {
        self.stop
    }

    /// Fails if the evaluation is to end.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.stop.load(Ordering::Relaxed) { Err(Fault::Cancelled) } else { Ok(()) }
    }

    /// Counts memory before it is allocated.
    pub(super) fn claim(&self, count: usize, width: usize) -> Result<(), Fault> {
        let left = count.checked_mul(width).and_then(|bytes| self.left.get().checked_sub(bytes));
        self.left.set(left.ok_or(Fault::TooLarge { limit: self.limit })?);
        Ok(())
    }

    /// Creates a list with room for as many elements as a shape has.
    pub(super) fn list<T: Element>(&self, shape: &Shape) -> Result<Vec<T>, Fault> {
        self.claim(shape.count(), T::TYPE.width())?;
        Ok(Vec::with_capacity(shape.count()))
    }

    /// Creates a tensor of as many values as the shape has.
    pub(super) fn collect<T: Element>(
        &self,
        shape: Shape,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Tensor<'static>, Fault> {
        let mut list = self.list(&shape)?;
        list.extend(values.into_iter().take(shape.count()));
        finish(shape, list)
    }

    /// Creates a list for intermediate results: `columns` for each of `rows`, which are as many as the rows of an input or output.
    pub(super) fn scratch<T: Copy>(&self, rows: usize, columns: usize, value: T) -> Result<Vec<T>, Fault> {
        let count = rows.checked_mul(columns).filter(|count| {
            count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= self.limit.saturating_mul(SCRATCH_TIMES))
        });
        Ok(vec![value; count.ok_or(Fault::TooLarge { limit: self.limit })?])
    }

    /// Creates a tensor of equal values.
    pub(super) fn filled<T: Element>(&self, shape: Shape, value: &T) -> Result<Vec<T>, Fault> {
        let mut list = self.list(&shape)?;
        list.resize(shape.count(), value.clone());
        Ok(list)
    }
}

/// Makes a tensor of values that `Run::list` counted.
pub(super) fn finish<T: Element>(shape: Shape, values: Vec<T>) -> Result<Tensor<'static>, Fault> {
    Tensor::of(shape, values).ok_or(Fault::Inconsistent("another number of elements than the shape has"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::Run;
    use crate::onnx::error::Fault;
    use crate::onnx::tensor::Shape;

    #[test]
    fn run_counts_memory_before_it_is_allocated() {
        let stop = AtomicBool::new(false);
        let run = Run::new(100, &stop);
        assert!(run.collect(Shape::new(&[20]).unwrap(), vec![1.0_f32; 20]).is_ok());
        let huge = Shape::new(&[1 << 50]).unwrap();
        assert_eq!(run.filled(huge, &1.0_f32).unwrap_err(), Fault::TooLarge { limit: 100 });
        assert!(run.collect(Shape::new(&[5]).unwrap(), vec![1.0_f32; 5]).is_ok());
        assert_eq!(run.claim(1, 1), Err(Fault::TooLarge { limit: 100 }));
        assert_eq!(run.claim(usize::MAX, 2), Err(Fault::TooLarge { limit: 100 }));
    }
}
