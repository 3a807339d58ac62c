//! Operators of tables against onnxruntime: `tests/goldens/onnx_operators`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use flate2::read::GzDecoder;
use serde::Deserialize;

use super::{ElementType, Elements, OnnxModel, Shape, Tensor};

#[derive(Deserialize)]
struct Case {
    name: String,
    /// The largest difference of floating-point numbers, relative to those above 1.
    tolerance: f64,
    model: String,
    inputs: Vec<Encoded>,
    outputs: Vec<Encoded>,
}

#[derive(Deserialize)]
struct Encoded {
    datatype: String,
    shape: Vec<usize>,
    data: Option<String>,
    texts: Option<Vec<String>>,
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    digits.as_bytes().as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

macro_rules! numbers {
    ($shape:expr, $bytes:expr, $type:ty) => {{
        let values = $bytes.chunks_exact(size_of::<$type>());
        Tensor::of($shape, values.map(|bytes| <$type>::from_le_bytes(bytes.try_into().unwrap())).collect())
    }};
}

impl Encoded {
    fn tensor(&self) -> Tensor<'static> {
        let shape = Shape::new(&self.shape).unwrap();
        if let Some(texts) = &self.texts {
            return Tensor::of(shape, texts.iter().map(|text| Bytes::from(text.clone())).collect()).unwrap();
        }
        let bytes = bytes_of(self.data.as_ref().unwrap());
        let tensor = match self.datatype.as_str() {
            "FP32" => numbers!(shape, bytes, f32),
            "FP64" => numbers!(shape, bytes, f64),
            "INT16" => numbers!(shape, bytes, i16),
            "INT32" => numbers!(shape, bytes, i32),
            "INT64" => numbers!(shape, bytes, i64),
            other => panic!("the datatype {other}"),
        };
        tensor.unwrap()
    }
}

/// Returns floating-point numbers in double precision.
fn floats(tensor: &Tensor<'_>) -> Option<Vec<f64>> {
    match tensor.elements() {
        Elements::F32(values) => Some(values.iter().map(|value| f64::from(*value)).collect()),
        Elements::F64(values) => Some(values.to_vec()),
        _ => None,
    }
}

/// Says what is different.
fn difference(found: &Tensor<'_>, wanted: &Tensor<'_>, tolerance: f64) -> Option<String> {
    if (found.element_type(), found.shape()) != (wanted.element_type(), wanted.shape()) {
        let kind = |tensor: &Tensor<'_>| format!("{} {}", tensor.element_type(), tensor.shape());
        return Some(format!("{} instead of {}", kind(found), kind(wanted)));
    }
    if let (Some(found), Some(wanted)) = (floats(found), floats(wanted)) {
        let is_equal = |found: f64, wanted: f64| {
            let is_close = wanted.is_finite() && (found - wanted).abs() <= tolerance * wanted.abs().max(1.0);
            is_close || found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan()
        };
        let mut wrong =
            found.iter().zip(&wanted).enumerate().filter(|(_, (found, wanted))| !is_equal(**found, **wanted));
        let (place, (found, wanted)) = wrong.next()?;
        return Some(format!("element {place} is {found} instead of {wanted}, and {} more", wrong.count()));
    }
    let [found, wanted] = [found, wanted].map(|tensor| format!("{:?}", tensor.elements()));
    (found != wanted).then(|| format!("{found} instead of {wanted}"))
}

fn check(case: &Case, model: &OnnxModel) -> Result<(), String> {
    let inputs: Vec<_> = case.inputs.iter().map(Encoded::tensor).collect();
    let known: Vec<(ElementType, Shape)> = inputs.iter().map(|input| (input.element_type(), *input.shape())).collect();
    let all: Vec<usize> = (0..model.outputs().len()).collect();
    let plan = model.plan(&known, &all).map_err(|error| error.to_string())?;
    let found = model.evaluate(&plan, inputs, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    assert_eq!(found.len(), case.outputs.len(), "{}", case.name);
    for (index, (found, wanted)) in found.iter().zip(&case.outputs).enumerate() {
        if let Some(difference) = difference(found, &wanted.tensor(), case.tolerance) {
            return Err(format!("output {index}: {difference}"));
        }
    }
    Ok(())
}

#[test]
fn operators_of_tables_return_what_onnxruntime_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/onnx_operators/cases.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let (mut equal, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    let mut refused = Vec::new();
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        match OnnxModel::load(&bytes_of(&case.model), &|_| Err("there is none".to_owned())) {
            Err(error) if error.is_refusal() => refused.push(format!("{}: {error}", case.name)),
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
            Ok(model) => match check(&case, &model) {
                Ok(()) => *equal.entry(case.name.split('-').next().unwrap().to_owned()).or_default() += 1,
                Err(problem) => wrong.push(format!("{}: {problem}", case.name)),
            },
        }
    }
    assert!(equal.values().sum::<usize>() + wrong.len() + refused.len() > 600, "only {equal:?}");
    assert!(wrong.is_empty(), "{} cases differ:\n{}\nrefused:\n{}", wrong.len(), wrong.join("\n"), refused.join("\n"));
    assert!(refused.is_empty(), "{} cases are refused:\n{}", refused.len(), refused.join("\n"));
}
