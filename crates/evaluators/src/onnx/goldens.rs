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
pub(super) struct Case {
    pub(super) name: String,
    /// The largest difference of floating-point numbers, relative to those above 1.
    tolerance: f64,
    /// The largest difference of quantized numbers.
    #[serde(default)]
    steps: f64,
    model: String,
    inputs: Vec<Encoded>,
    outputs: Vec<Encoded>,
}

impl Case {
    /// Returns the bytes of the model's file.
    pub(super) fn file(&self) -> Vec<u8> {
        bytes_of(&self.model)
    }

    pub(super) fn inputs(&self) -> Vec<Tensor<'static>> {
        self.inputs.iter().map(Encoded::tensor).collect()
    }

    /// Compares outputs with those of onnxruntime.
    pub(super) fn compare(&self, found: &[Tensor<'_>]) -> Result<(), String> {
        assert_eq!(found.len(), self.outputs.len(), "{}", self.name);
        for (index, (found, wanted)) in found.iter().zip(&self.outputs).enumerate() {
            let is_quantized = matches!(found.element_type(), ElementType::I8 | ElementType::U8);
            let tolerance = if is_quantized { self.steps } else { self.tolerance };
            if let Some(difference) = difference(found, &wanted.tensor(), tolerance) {
                return Err(format!("output {index}: {difference}"));
            }
        }
        Ok(())
    }
}

/// Reads the cases of a file in `tests/goldens`.
pub(super) fn cases(file: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens").join(file);
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
            "FP16" => {
                let bits = bytes.as_chunks::<2>().0.iter();
                Tensor::of(shape, bits.map(|bits| half::f16::from_le_bytes(*bits)).collect())
            }
            "BOOL" => Tensor::of(shape, bytes.iter().map(|byte| *byte != 0).collect()),
            "UINT8" => Tensor::of(shape, bytes),
            "INT8" => numbers!(shape, bytes, i8),
            "INT16" => numbers!(shape, bytes, i16),
            "INT32" => numbers!(shape, bytes, i32),
            "INT64" => numbers!(shape, bytes, i64),
            other => panic!("the datatype {other}"),
        };
        tensor.unwrap()
    }
}

/// Returns floating-point and quantized numbers in double precision.
fn floats(tensor: &Tensor<'_>) -> Option<Vec<f64>> {
    match tensor.elements() {
        Elements::F32(values) => Some(values.iter().map(|value| f64::from(*value)).collect()),
        Elements::F64(values) => Some(values.to_vec()),
        Elements::I8(values) => Some(values.iter().map(|value| f64::from(*value)).collect()),
        Elements::U8(values) => Some(values.iter().map(|value| f64::from(*value)).collect()),
        Elements::F16(values) => Some(values.iter().map(|value| value.to_f64()).collect()),
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
            let limit = if tolerance < 1.0 { tolerance * wanted.abs().max(1.0) } else { tolerance };
            let is_close = wanted.is_finite() && (found - wanted).abs() <= limit;
            is_close || found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan()
        };
        let mut wrong =
            found.iter().zip(&wanted).enumerate().filter(|(_, (found, wanted))| !is_equal(**found, **wanted));
        let (place, (found, wanted)) = wrong.next()?;
        return Some(format!("element {place} is {found} instead of {wanted}, and {} more", wrong.count()));
    }
    let [found, wanted] = [found, wanted].map(|tensor| format!("{:?}", tensor.elements()));
    (found != wanted).then(|| {
        let place = found.bytes().zip(wanted.bytes()).take_while(|(found, wanted)| found == wanted).count();
        let [found, wanted] = [found, wanted].map(|text| text[place.saturating_sub(20)..].to_owned());
        format!("{found:.60} instead of {wanted:.60}")
    })
}

fn check(case: &Case, model: &OnnxModel) -> Result<(), String> {
    let inputs = case.inputs();
    let known: Vec<(ElementType, Shape)> = inputs.iter().map(|input| (input.element_type(), *input.shape())).collect();
    let all: Vec<usize> = (0..model.interface().outputs.len()).collect();
    let plan = model.plan(&known, &all).map_err(|error| error.to_string())?;
    let found = model.evaluate(&plan, inputs, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    case.compare(&found)
}

#[test]
fn operators_of_tables_return_what_onnxruntime_does() {
    let (mut equal, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    let mut refused = Vec::new();
    for case in cases("onnx_operators/cases.jsonl.gz") {
        match OnnxModel::load(&case.file(), &|_| Err("there is none".to_owned())) {
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
