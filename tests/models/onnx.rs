//! What the native evaluator computes for ONNX models, compared with onnxruntime.

use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use half::f16;
use mlserver::evaluators::onnx::{Element, ElementType, Elements, OnnxModel, Shape, Tensor};
use serde::Deserialize;
use serde_json::Value;

use crate::support::goldens::golden_archives;

#[derive(Deserialize)]
struct Case {
    /// The largest difference, in relation to the value; absolute below 1.
    tolerance: f64,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    inputs: Vec<GoldenTensor>,
    outputs: Vec<GoldenTensor>,
}

#[derive(Deserialize)]
struct GoldenTensor {
    datatype: String,
    shape: Vec<usize>,
    data: Vec<Value>,
}

/// Reads a number; those that JSON lacks are texts.
fn number(value: &Value) -> f64 {
    match value {
        Value::Null => f64::NAN,
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the text is that of a number in single precision")]
const fn single(value: f64) -> f32 {
    value as f32
}

impl GoldenTensor {
    fn tensor(&self) -> Tensor<'static> {
        fn of<T: Element>(golden: &GoldenTensor, read: impl Fn(&Value) -> T) -> Elements<'static> {
            T::wrap(golden.data.iter().map(read).collect::<Vec<T>>().into())
        }
        let int = |value: &Value| value.as_i64().unwrap();
        let elements = match self.datatype.as_str() {
            "FP16" => of(self, |value| f16::from_f64(number(value))),
            "FP32" => of(self, |value| single(number(value))),
            "FP64" => of(self, number),
            "INT64" => of(self, int),
            "INT32" => of(self, |value| i32::try_from(int(value)).unwrap()),
            "UINT8" => of(self, |value| u8::try_from(int(value)).unwrap()),
            "BOOL" => of(self, |value| value.as_bool().unwrap()),
            "BYTES" => of(self, |value| Bytes::from(value.as_str().unwrap().to_owned())),
            other => unreachable!("{other}"),
        };
        Tensor::new(Shape::new(&self.shape).unwrap(), elements).unwrap()
    }
}

/// Returns floating-point numbers in double precision.
fn floats(tensor: &Tensor<'_>) -> Option<Vec<f64>> {
    match tensor.elements() {
        Elements::F16(values) => Some(values.iter().map(|value| value.to_f64()).collect()),
        Elements::F32(values) => Some(values.iter().copied().map(f64::from).collect()),
        Elements::F64(values) => Some(values.to_vec()),
        _ => None,
    }
}

/// Compares an output. Without a tolerance, bit by bit, except for the sign of 0 and the bits of NaN.
fn compare(found: &Tensor<'_>, wanted: &Tensor<'_>, tolerance: f64) -> Result<(), String> {
    if (found.element_type(), found.shape()) != (wanted.element_type(), wanted.shape()) {
        let (found, wanted) = ((found.element_type(), found.shape()), (wanted.element_type(), wanted.shape()));
        return Err(format!("{found:?} instead of {wanted:?}"));
    }
    let (Some(found), Some(wanted)) = (floats(found), floats(wanted)) else {
        let (found, wanted) = (format!("{:?}", found.elements()), format!("{:?}", wanted.elements()));
        return if found == wanted { Ok(()) } else { Err(format!("{found} instead of {wanted}")) };
    };
    for (place, (found, wanted)) in found.into_iter().zip(wanted).enumerate() {
        let limit = tolerance * wanted.abs().max(1.0);
        let agrees =
            found.total_cmp(&wanted).is_eq() || found.is_nan() && wanted.is_nan() || (found - wanted).abs() <= limit;
        if !agrees {
            return Err(format!("element {place}: {found} instead of {wanted}"));
        }
    }
    Ok(())
}

fn check(file: &[u8], case: &Case) -> Result<(), String> {
    let model = OnnxModel::load(file, &|_| Err("there are no other files".to_owned()));
    let model = model.map_err(|error| error.to_string())?;
    let all: Vec<usize> = (0..model.interface().outputs.len()).collect();
    for call in &case.calls {
        let inputs: Vec<Tensor<'_>> = call.inputs.iter().map(GoldenTensor::tensor).collect();
        let shapes: Vec<(ElementType, Shape)> =
            inputs.iter().map(|input| (input.element_type(), *input.shape())).collect();
        let plan = model.plan(&shapes, &all).map_err(|error| error.to_string())?;
        let found = model.evaluate(&plan, inputs, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
        assert_eq!(found.len(), call.outputs.len());
        for (index, (found, wanted)) in found.iter().zip(&call.outputs).enumerate() {
            compare(found, &wanted.tensor(), case.tolerance).map_err(|error| format!("output {index}: {error}"))?;
            let planned = plan.shapes()[index];
            if planned.is_some_and(|planned| planned != *found.shape()) {
                return Err(format!("output {index} was planned as {planned:?}, and is {:?}", found.shape()));
            }
        }
    }
    Ok(())
}

#[test]
fn onnx_golden_cases_agree() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for archive in golden_archives("onnx") {
        for name in archive.names().filter(|name| name.ends_with(".case.json")) {
            let case: Case = serde_json::from_slice(archive.file(name)).unwrap();
            let model = archive.file(&name.replace(".case.json", ".onnx"));
            count += 1;
            if let Err(difference) = check(model, &case) {
                failures.push(format!("{}/{name}: {difference:.300}", archive.name));
            }
        }
    }
    assert!(count > 100, "{count} golden cases");
    assert!(failures.is_empty(), "{} of {count} cases:\n{}", failures.len(), failures.join("\n"));
}
