//! Operators on two inputs whose shapes are broadcast together.

use crate::onnx::error::Fault;
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, MAX_RANK, Shape, Tensor};

/// Returns the shape that two shapes are broadcast to.
pub(super) fn broadcast(first: &Shape, second: &Shape) -> Result<Shape, Fault> {
    let fault = || Fault::Broadcast(Box::new([*first, *second]));
    let rank = first.rank().max(second.rank());
    let mut dimensions = [1; MAX_RANK];
    for (index, slot) in dimensions[..rank].iter_mut().enumerate() {
        let of = |shape: &Shape| (index + shape.rank()).checked_sub(rank).map_or(1, |at| shape.dimensions()[at]);
        *slot = match (of(first), of(second)) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            _ => return Err(fault()),
        };
    }
    Shape::new(&dimensions[..rank]).ok_or(Fault::ShapeOverflow)
}

/// Calls `visit` with the position of each element of a tensor of shape `from`, broadcast to `to`, in runs along the last dimension:
/// the position of the first element, and the distance between elements (0 or 1).
pub(super) fn for_each_run<const N: usize>(
    to: &Shape,
    from: [&Shape; N],
    mut visit: impl FnMut([usize; N], [usize; N], usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let rank = to.rank();
    let dimensions = to.dimensions();
    let strides = from.map(|shape| {
        let own = shape.strides();
        let mut strides = [0; MAX_RANK];
        for (index, size) in shape.dimensions().iter().enumerate() {
            if *size != 1 {
                strides[index + rank - shape.rank()] = own[index];
            }
        }
        strides
    });
    if to.count() == 0 {
        return Ok(());
    }
    let Some(last) = rank.checked_sub(1) else { return visit([0; N], [0; N], 1) };
    // Dimensions in which all tensors lie side by side are one run.
    let mut inner = last;
    let mut length = dimensions[last];
    while inner > 0 && strides.iter().all(|strides| strides[inner - 1] == strides[inner] * dimensions[inner]) {
        inner -= 1;
        length *= dimensions[inner];
    }
    let steps = strides.map(|strides| strides[last]);
    let mut index = [0; MAX_RANK];
    let mut offsets = [0; N];
    loop {
        visit(offsets, steps, length)?;
        let mut axis = inner;
        loop {
            let Some(next) = axis.checked_sub(1) else { return Ok(()) };
            axis = next;
            index[axis] += 1;
            for (offset, strides) in offsets.iter_mut().zip(&strides) {
                *offset += strides[axis];
            }
            if index[axis] < dimensions[axis] {
                break;
            }
            for (offset, strides) in offsets.iter_mut().zip(&strides) {
                *offset -= strides[axis] * dimensions[axis];
            }
            index[axis] = 0;
        }
    }
}

/// Applies a function to the elements of two tensors.
pub(super) fn zip<A: Element, B: Element, T: Element>(
    first: (&Shape, &[A]),
    second: (&Shape, &[B]),
    run: &Run<'_>,
    function: impl Fn(&A, &B) -> T,
) -> Result<Tensor<'static>, Fault> {
    let shape = broadcast(first.0, second.0)?;
    let mut values = run.list::<T>(&shape)?;
    for_each_run(&shape, [first.0, second.0], |[a, b], steps, length| {
        match steps {
            [1, 1] => {
                let pairs = first.1[a..a + length].iter().zip(&second.1[b..b + length]);
                values.extend(pairs.map(|(a, b)| function(a, b)));
            }
            [1, _] => values.extend(first.1[a..a + length].iter().map(|a| function(a, &second.1[b]))),
            [_, 1] => values.extend(second.1[b..b + length].iter().map(|b| function(&first.1[a], b))),
            _ => values.extend((0..length).map(|_| function(&first.1[a], &second.1[b]))),
        }
        run.check()
    })?;
    finish(shape, values)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    use super::{broadcast, zip};
    use crate::onnx::error::Fault;
    use crate::onnx::run::Run;
    use crate::onnx::tensor::Shape;

    fn shapes() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
        let dimension = (0..4_usize, 0..3_u8);
        (prop::collection::vec(dimension, 0..5), 0..5_usize, 0..5_usize).prop_map(|(all, a, b)| {
            let of = |which: u8, skip: usize| {
                let kept = all.iter().skip(skip.min(all.len()));
                kept.map(|(size, one)| if *one == which { 1 } else { *size }).collect()
            };
            (of(1, a), of(2, if a == 0 { b } else { 0 }))
        })
    }

    proptest! {
        #[test]
        fn broadcast_matches_the_definition((a, b) in shapes()) {
            let (first, second) = (Shape::new(&a).unwrap(), Shape::new(&b).unwrap());
            let shape = broadcast(&first, &second).unwrap();
            let number = |count: usize| (0_i64..).take(count).collect::<Vec<i64>>();
            let (x, y) = (number(first.count()), number(second.count()));
            let stop = AtomicBool::new(false);
            let run = Run::new(1 << 20, &stop);
            let found = zip((&first, &x), (&second, &y), &run, |a, b| a * 1000 + b).unwrap();
            prop_assert_eq!(found.shape(), &shape);
            let strides = shape.strides();
            let expected: Vec<i64> = (0..shape.count()).map(|position| {
                let at = |of: &Shape| {
                    let skipped = shape.rank() - of.rank();
                    (0..of.rank()).map(|axis| {
                        let index = position / strides[axis + skipped] % shape.dimensions()[axis + skipped];
                        if of.dimensions()[axis] == 1 { 0 } else { index * of.strides()[axis] }
                    }).sum::<usize>()
                };
                x[at(&first)] * 1000 + y[at(&second)]
            }).collect();
            prop_assert_eq!(&found.values::<i64>().unwrap()[..], expected);
        }
    }

    #[test]
    fn broadcast_rejects_other_sizes() {
        let (first, second) = (Shape::new(&[2, 3]).unwrap(), Shape::new(&[2]).unwrap());
        assert_eq!(broadcast(&first, &second), Err(Fault::Broadcast(Box::new([first, second]))));
    }
}
