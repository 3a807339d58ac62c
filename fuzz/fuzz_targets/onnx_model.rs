//! Loading any bytes as an ONNX model succeeds or fails cleanly, and a loaded model can predict.
//!
//! `cargo +nightly fuzz run onnx_model CORPUS -- -malloc_limit_mb=256`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::onnx::{DeclaredDimension, ElementType, Elements, OnnxModel, Shape, Tensor, ValueInfo};

/// The size of dimensions that a model leaves open.
const ROWS: usize = 3;
/// The most elements of an input.
const ELEMENTS: usize = 10_000;
/// The most memory that an evaluation may take: less than the fuzzer allows.
const BYTES: usize = 64 << 20;

/// Makes an input of zeros and small numbers.
fn input(declared: &ValueInfo) -> Option<Tensor<'static>> {
    let size = |dimension: &DeclaredDimension| match dimension {
        DeclaredDimension::Fixed(size) => *size,
        DeclaredDimension::Named(_) | DeclaredDimension::Unknown => ROWS,
    };
    let sizes: Vec<usize> = declared.dimensions.as_ref()?.iter().map(size).collect();
    let shape = Shape::new(&sizes)?;
    let count = Some(shape.count()).filter(|count| *count <= ELEMENTS)?;
    match declared.element {
        ElementType::F32 => Tensor::of(shape, (0..count).map(|at| at as f32 / 3.0 - 1.0).collect()),
        ElementType::F64 => Tensor::of(shape, (0..count).map(|at| at as f64 / 3.0 - 1.0).collect()),
        ElementType::I64 => Tensor::of(shape, (0..count as i64).map(|at| at - 1).collect()),
        ElementType::Text => Tensor::of(shape, (0..count).map(|at| bytes::Bytes::from((at % 9).to_string())).collect()),
        other => Tensor::new(shape, Elements::empty(other)),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = OnnxModel::load(bytes, &|_| Err("there is no file".to_owned())) else { return };
    let Some(inputs) = model.interface().inputs.iter().map(input).collect::<Option<Vec<_>>>() else { return };
    let shapes: Vec<_> = inputs.iter().map(|input| (input.element_type(), *input.shape())).collect();
    let outputs: Vec<usize> = (0..model.interface().outputs.len()).collect();
    let Ok(plan) = model.plan(&shapes, &outputs) else { return };
    if plan.bytes > BYTES {
        return;
    }
    if let Ok(found) = model.evaluate(&plan, inputs, &AtomicBool::new(false)) {
        for (found, planned) in found.iter().zip(plan.shapes()) {
            assert!(planned.is_none_or(|planned| planned == *found.shape()), "an output has another shape than planned");
        }
    }
});
