//! Every datatype over every transport and format: tensors return from the identity model bit by bit, or with a
//! difference that `docs/tensors.md` describes.
//!
//! An [`Endpoint`] takes elements as little-endian bytes and returns the response in the same form. It has its own
//! encoder and decoder, independent of the code under test.

use std::fmt::Write as _;

use half::{bf16, f16};
use mlserver::types::Datatype;
use mlserver::types::protobuf::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use mlserver::types::protobuf::messages::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::grpc::{InferenceClient, inference_client};
use crate::support::{Answer, Client, Folder, TestServer};

/// The special values that a tensor contains.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Values {
    /// None: numbers, booleans and text.
    Ordinary,
    Infinite,
    /// The default NaN of the type.
    Nan,
    /// NaNs with another sign or payload.
    OddNan,
    /// BYTES that are not text.
    NotText,
}

/// How an endpoint handles such values.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Every bit is preserved.
    Exact,
    /// Every NaN returns as the default one.
    DefaultNan,
    /// Every NaN returns as a quiet one, with its sign and payload.
    QuietNan,
    /// Each returns as JSON's `null`.
    Null,
    /// The endpoint cannot send them.
    NotSendable,
    /// The response is an error with this status and message.
    Refused(u16, &'static str),
}

/// A tensor to send.
#[derive(Debug, Clone)]
struct Sample {
    datatype: Datatype,
    shape: Vec<usize>,
    /// The little-endian bytes of each element.
    elements: Vec<Vec<u8>>,
    values: Values,
}

/// The shape and the elements of a response; `None` for `null`.
type Echo = (Vec<usize>, Vec<Option<Vec<u8>>>);

/// A transport with its formats of requests and responses.
trait Endpoint {
    fn name(&self) -> String;

    /// Returns how such values of a datatype are to be handled.
    fn outcome(&self, datatype: Datatype, values: Values) -> Outcome;

    /// Sends a tensor `x` and returns the tensor `x` of the response, or the status and message of an error. Over gRPC,
    /// the status is the code.
    fn echo(&self, sample: &Sample) -> Result<Echo, (u16, String)>;
}

// --------------------------------------------------------------------------------------------------------------- REST

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Json,
    Binary,
}

/// REST, with formats of inputs and outputs, on a server with a setting of `non_finite_json`.
struct Rest<'a> {
    client: &'a Client,
    non_finite: &'static str,
    input: Form,
    output: Form,
}

impl Endpoint for Rest<'_> {
    fn name(&self) -> String {
        format!("REST {:?} to {:?}, non_finite_json {}", self.input, self.output, self.non_finite)
    }

    fn outcome(&self, _: Datatype, values: Values) -> Outcome {
        let not_text =
            "output `x`: element 1 is not UTF-8, which JSON requires; request binary data or encode it as base64";
        let infinite = "output `x`: element 0 is Infinity, which JSON cannot represent; request binary data, or set `non_finite_json` to `null` or `string`";
        let nan = "output `x`: element 0 is NaN, which JSON cannot represent; request binary data, or set `non_finite_json` to `null` or `string`";
        if self.input == Form::Json && values == Values::NotText {
            return Outcome::NotSendable;
        }
        if self.output == Form::Binary {
            let named = self.input == Form::Json && values == Values::OddNan;
            return if named { Outcome::DefaultNan } else { Outcome::Exact };
        }
        match (values, self.non_finite) {
            (Values::Ordinary, _) | (Values::Infinite | Values::Nan, "string") => Outcome::Exact,
            (Values::OddNan, "string") => Outcome::DefaultNan,
            (Values::NotText, _) => Outcome::Refused(500, not_text),
            (_, "null") => Outcome::Null,
            (Values::Infinite, _) => Outcome::Refused(500, infinite),
            (Values::Nan | Values::OddNan, _) => Outcome::Refused(500, nan),
        }
    }

    fn echo(&self, sample: &Sample) -> Result<Echo, (u16, String)> {
        let mut input = json!({"name": "x", "shape": sample.shape, "datatype": sample.datatype.name()});
        let mut binary = Vec::new();
        match self.input {
            Form::Json => {
                input["data"] = sample.elements.iter().map(|element| to_json(sample.datatype, element)).collect();
            }
            Form::Binary => {
                binary = join(sample.datatype, &sample.elements);
                input["parameters"] = json!({"binary_data_size": binary.len()});
            }
        }
        let output = json!({"name": "x", "parameters": {"binary_data": self.output == Form::Binary}});
        let mut body = json!({"inputs": [input], "outputs": [output]}).to_string().into_bytes();
        let length = body.len().to_string();
        body.extend(binary);
        let headers = [("inference-header-content-length", length.as_str())];
        let headers: &[(&str, &str)] = if self.input == Form::Binary { &headers } else { &[] };
        let answer = self.client.post_with("/v2/models/echo/infer", headers, body);
        if answer.status != 200 {
            return Err((answer.status, answer.error(answer.status)));
        }
        Ok(self.decode(sample.datatype, &answer))
    }
}

impl Rest<'_> {
    fn decode(&self, datatype: Datatype, answer: &Answer) -> Echo {
        let (text, binary) = match answer.header("inference-header-content-length") {
            "" => (answer.body.as_slice(), None),
            length => {
                let (text, binary) = answer.body.split_at(length.parse().unwrap());
                (text, Some(binary))
            }
        };
        let body: Value = serde_json::from_slice(text).unwrap();
        let output = &body["outputs"][0];
        assert_eq!((&output["name"], &output["datatype"]), (&json!("x"), &json!(datatype.name())));
        let shape = serde_json::from_value(output["shape"].clone()).unwrap();
        let elements = match (self.output, binary) {
            (Form::Json, None) => {
                let data = output["data"].as_array().unwrap();
                data.iter().map(|value| (!value.is_null()).then(|| from_json(datatype, value))).collect()
            }
            (Form::Binary, Some(binary)) => {
                assert_eq!(answer.header("content-type"), "application/octet-stream");
                assert_eq!(output["parameters"], json!({"binary_data_size": binary.len()}));
                assert!(output.get("data").is_none());
                split(datatype, binary).into_iter().map(Some).collect()
            }
            other => unreachable!("another form than was asked for: {other:?}"),
        };
        (shape, elements)
    }
}

/// Encodes an element as JSON, floats as the double of the same value.
fn to_json(datatype: Datatype, element: &[u8]) -> Value {
    match datatype {
        Datatype::Bool => json!(element == [1]),
        Datatype::Bytes => json!(std::str::from_utf8(element).unwrap()),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 | Datatype::Uint64 => {
            let mut bytes = [0; 8];
            bytes[..element.len()].copy_from_slice(element);
            json!(u64::from_le_bytes(bytes))
        }
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 => {
            let sign = if element.last().unwrap() & 0x80 == 0 { 0 } else { 0xff };
            let mut bytes = [sign; 8];
            bytes[..element.len()].copy_from_slice(element);
            json!(i64::from_le_bytes(bytes))
        }
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 => {
            let value = match datatype {
                Datatype::Fp16 => f16::from_le_bytes(element.try_into().unwrap()).to_f64(),
                Datatype::Bf16 => bf16::from_le_bytes(element.try_into().unwrap()).to_f64(),
                Datatype::Fp32 => f32::from_le_bytes(element.try_into().unwrap()).into(),
                _ => f64::from_le_bytes(element.try_into().unwrap()),
            };
            match value {
                value if value.is_nan() => json!("NaN"),
                f64::INFINITY => json!("Infinity"),
                f64::NEG_INFINITY => json!("-Infinity"),
                value => json!(value),
            }
        }
    }
}

/// Reads an element from JSON as NumPy would: floats by way of the double.
fn from_json(datatype: Datatype, value: &Value) -> Vec<u8> {
    let float = || match value {
        Value::String(name) => name.parse().unwrap(),
        value => value.as_f64().unwrap(),
    };
    #[expect(clippy::cast_possible_truncation, reason = "NumPy's own rounding")]
    match datatype {
        Datatype::Bool => vec![value.as_bool().unwrap().into()],
        Datatype::Bytes => value.as_str().unwrap().as_bytes().to_vec(),
        Datatype::Fp16 => f16::from_f64(float()).to_le_bytes().into(),
        Datatype::Bf16 => bf16::from_f64(float()).to_le_bytes().into(),
        Datatype::Fp32 => (float() as f32).to_le_bytes().into(),
        Datatype::Fp64 => float().to_le_bytes().into(),
        _ => {
            let integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)).unwrap();
            integer.to_le_bytes()[..datatype.width().unwrap()].into()
        }
    }
}

/// Concatenates elements, BYTES with their lengths in front.
fn join(datatype: Datatype, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = Vec::new();
    for element in elements {
        if datatype == Datatype::Bytes {
            joined.extend(u32::try_from(element.len()).unwrap().to_le_bytes());
        }
        joined.extend(element);
    }
    joined
}

fn split(datatype: Datatype, mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    while !bytes.is_empty() {
        let length = datatype.width().unwrap_or_else(|| {
            let (prefix, rest) = bytes.split_first_chunk().unwrap();
            bytes = rest;
            usize::try_from(u32::from_le_bytes(*prefix)).unwrap()
        });
        let (element, rest) = bytes.split_at(length);
        elements.push(element.to_vec());
        bytes = rest;
    }
    elements
}

// --------------------------------------------------------------------------------------------------------------- gRPC

/// How a gRPC request carries its data, which decides how the response carries it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Contents {
    /// In the fields of `InferTensorContents`, as in the response, except for FP16 and BF16.
    Typed,
    /// In the fields, together with a raw input: all of the response is raw.
    TypedBesideRaw,
    Raw,
}

struct Grpc {
    runtime: Runtime,
    client: InferenceClient,
    contents: Contents,
}

impl Grpc {
    fn connect(server: &TestServer, contents: Contents) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(inference_client(server.grpc));
        Self { runtime, client, contents }
    }

    fn request(&self, sample: &Sample) -> ModelInferRequest {
        let signed = |shape: &[usize]| shape.iter().map(|&dimension| i64::try_from(dimension).unwrap()).collect();
        let datatype = sample.datatype.name().to_owned();
        let mut x = InferInputTensor { name: "x".to_owned(), datatype, ..InferInputTensor::default() };
        x.shape = signed(&sample.shape);
        let mut request = ModelInferRequest { model_name: "echo".to_owned(), ..ModelInferRequest::default() };
        match self.contents {
            Contents::Raw => request.raw_input_contents.push(join(sample.datatype, &sample.elements).into()),
            Contents::Typed | Contents::TypedBesideRaw => x.contents = Some(to_contents(sample)),
        }
        // A tensor without elements would take the raw entry of the other input.
        if self.contents == Contents::TypedBesideRaw && !sample.elements.is_empty() {
            let other = InferInputTensor { name: "y".to_owned(), datatype: "INT8".to_owned(), ..x.clone() };
            request.inputs.push(InferInputTensor { shape: vec![1], contents: None, ..other });
            request.raw_input_contents.push(vec![1].into());
        }
        request.inputs.push(x);
        request.outputs.push(InferRequestedOutputTensor { name: "x".to_owned(), ..Default::default() });
        request
    }
}

impl Endpoint for Grpc {
    fn name(&self) -> String {
        format!("gRPC {:?}", self.contents)
    }

    fn outcome(&self, datatype: Datatype, values: Values) -> Outcome {
        // They have no field of their own, and are sent as FP32.
        let is_half = matches!(datatype, Datatype::Fp16 | Datatype::Bf16);
        if is_half && values == Values::OddNan && self.contents != Contents::Raw {
            return Outcome::QuietNan;
        }
        Outcome::Exact
    }

    fn echo(&self, sample: &Sample) -> Result<Echo, (u16, String)> {
        let call = async { self.client.clone().model_infer(self.request(sample)).await };
        let answer = self.runtime.block_on(call).map_err(|status| {
            let code = u16::try_from(status.code() as i32).unwrap();
            (code, status.message().to_owned())
        })?;
        let ModelInferResponse { outputs, raw_output_contents, .. } = answer.into_inner();
        let [output] = outputs.as_slice() else { unreachable!("one output was asked for: {outputs:?}") };
        assert_eq!((output.name.as_str(), output.datatype.as_str()), ("x", sample.datatype.name()));
        let contents = output.contents.as_ref().unwrap();
        let elements = match raw_output_contents.as_slice() {
            [] => from_contents(sample.datatype, contents),
            [raw] => {
                assert_eq!(contents, &InferTensorContents::default());
                split(sample.datatype, raw)
            }
            more => unreachable!("one output was asked for: {more:?}"),
        };
        let shape = output.shape.iter().map(|&dimension| usize::try_from(dimension).unwrap()).collect();
        Ok((shape, elements.into_iter().map(Some).collect()))
    }
}

/// Puts elements into the field of their datatype.
fn to_contents(sample: &Sample) -> InferTensorContents {
    let elements = sample.elements.as_slice();
    let signed = |element: &Vec<u8>| to_json(sample.datatype, element).as_i64().unwrap();
    let unsigned = |element: &Vec<u8>| to_json(sample.datatype, element).as_u64().unwrap();
    let mut contents = InferTensorContents::default();
    match sample.datatype {
        Datatype::Bool => contents.bool_contents = elements.iter().map(|element| element == &[1]).collect(),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => {
            contents.int_contents = elements.iter().map(|element| signed(element).try_into().unwrap()).collect();
        }
        Datatype::Int64 => contents.int64_contents = elements.iter().map(signed).collect(),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => {
            contents.uint_contents = elements.iter().map(|element| unsigned(element).try_into().unwrap()).collect();
        }
        Datatype::Uint64 => contents.uint64_contents = elements.iter().map(unsigned).collect(),
        Datatype::Fp16 => contents.fp32_contents = floats(elements, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Datatype::Bf16 => contents.fp32_contents = floats(elements, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Datatype::Fp32 => contents.fp32_contents = floats(elements, f32::from_le_bytes),
        Datatype::Fp64 => contents.fp64_contents = floats(elements, f64::from_le_bytes),
        Datatype::Bytes => contents.bytes_contents = elements.iter().cloned().map(Into::into).collect(),
    }
    contents
}

fn floats<T, const N: usize>(elements: &[Vec<u8>], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    elements.iter().map(|element| read(element.as_slice().try_into().unwrap())).collect()
}

/// Reads elements from the field of their datatype; the other fields must be empty.
fn from_contents(datatype: Datatype, contents: &InferTensorContents) -> Vec<Vec<u8>> {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let mut elements: Vec<Vec<u8>> = Vec::new();
    let narrow = |bytes: &[u8]| bytes[..datatype.width().unwrap()].to_vec();
    match datatype {
        Datatype::Bool => elements.extend(bool_contents.iter().map(|&value| vec![value.into()])),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => {
            elements.extend(int_contents.iter().map(|value| narrow(&value.to_le_bytes())));
        }
        Datatype::Int64 => elements.extend(int64_contents.iter().map(|value| narrow(&value.to_le_bytes()))),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => {
            elements.extend(uint_contents.iter().map(|value| narrow(&value.to_le_bytes())));
        }
        Datatype::Uint64 => elements.extend(uint64_contents.iter().map(|value| narrow(&value.to_le_bytes()))),
        Datatype::Fp32 => elements.extend(fp32_contents.iter().map(|value| narrow(&value.to_le_bytes()))),
        Datatype::Fp64 => elements.extend(fp64_contents.iter().map(|value| narrow(&value.to_le_bytes()))),
        Datatype::Bytes => elements.extend(bytes_contents.iter().map(|value| value.to_vec())),
        Datatype::Fp16 | Datatype::Bf16 => unreachable!("they go raw"),
    }
    let filled = [
        bool_contents.len(),
        int_contents.len(),
        int64_contents.len(),
        uint_contents.len(),
        uint64_contents.len(),
        fp32_contents.len(),
        fp64_contents.len(),
        bytes_contents.len(),
    ];
    assert_eq!(filled.iter().sum::<usize>(), elements.len(), "elements in another field: {contents:?}");
    elements
}

// ------------------------------------------------------------------------------------------------------------- values

macro_rules! integers {
    ($type:ty) => {
        [<$type>::MIN, 0, 1, <$type>::MAX / 3, <$type>::MAX - 1, <$type>::MAX]
            .map(|value| value.to_le_bytes().to_vec())
            .to_vec()
    };
}

/// The edge cases of a floating-point type, as bits: numbers, infinities, the default NaN and other NaNs.
struct Edges {
    numbers: Vec<u64>,
    infinities: [u64; 2],
    nan: u64,
    odd_nans: [u64; 3],
}

/// Derives the edge cases from the number of bits in the exponent and the fraction (IEEE 754, section 3.4).
fn edges(exponent: u32, fraction: u32) -> Edges {
    let sign = 1 << (exponent + fraction);
    let infinity = ((1 << exponent) - 1) << fraction;
    let one = ((1 << (exponent - 1)) - 1) << fraction;
    let numbers = [
        0,                   // zero
        1,                   // the smallest subnormal
        (1 << fraction) - 1, // the largest subnormal
        1 << fraction,       // the smallest normal number
        one,
        one + 1,                       // one and the smallest step
        one + (0x5 << (fraction - 3)), // 1.625
        infinity - 1,                  // the largest number
    ];
    let quiet = 1 << (fraction - 1);
    Edges {
        numbers: numbers.iter().flat_map(|&bits| [bits, bits | sign]).collect(),
        infinities: [infinity, infinity | sign],
        nan: infinity | quiet,
        odd_nans: [sign | infinity | quiet, infinity | quiet | 1, infinity | 1],
    }
}

/// Returns the number of exponent and fraction bits of a floating-point type.
fn layout(datatype: Datatype) -> Option<(u32, u32)> {
    match datatype {
        Datatype::Fp16 => Some((5, 10)),
        Datatype::Bf16 => Some((8, 7)),
        Datatype::Fp32 => Some((8, 23)),
        Datatype::Fp64 => Some((11, 52)),
        _ => None,
    }
}

/// Returns a NaN with the quiet bit set.
fn quiet(datatype: Datatype, nan: &[u8]) -> Vec<u8> {
    let (_, fraction) = layout(datatype).unwrap();
    let mut bytes = [0; 8];
    bytes[..nan.len()].copy_from_slice(nan);
    let bits = u64::from_le_bytes(bytes) | 1 << (fraction - 1);
    bits.to_le_bytes()[..nan.len()].to_vec()
}

/// Returns elements of a datatype, grouped by their special values.
fn elements(datatype: Datatype) -> Vec<(Values, Vec<Vec<u8>>)> {
    let ordinary = match datatype {
        Datatype::Bool => vec![vec![0], vec![1], vec![1]],
        Datatype::Uint8 => integers!(u8),
        Datatype::Uint16 => integers!(u16),
        Datatype::Uint32 => integers!(u32),
        Datatype::Uint64 => integers!(u64),
        Datatype::Int8 => integers!(i8),
        Datatype::Int16 => integers!(i16),
        Datatype::Int32 => integers!(i32),
        Datatype::Int64 => integers!(i64),
        Datatype::Bytes => {
            let texts = ["", "text", "\0\u{1}\t\n\"\\/", "Grüße, 世界 🎉", "\u{7f}\u{80}\u{2028}\u{10ffff}"];
            let not_text: [&[u8]; 4] = [b"text", b"\xff\x00\xfe", b"\xed\xa0\x80", b"cut \xc3"];
            return vec![
                (Values::Ordinary, texts.map(|text| text.as_bytes().to_vec()).to_vec()),
                (Values::NotText, not_text.map(<[u8]>::to_vec).to_vec()),
            ];
        }
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 => {
            let (exponent, fraction) = layout(datatype).unwrap();
            let edges = edges(exponent, fraction);
            let width = datatype.width().unwrap();
            let bytes = |bits: &[u64]| bits.iter().map(|bits| bits.to_le_bytes()[..width].to_vec()).collect::<Vec<_>>();
            return vec![
                (Values::Ordinary, bytes(&edges.numbers)),
                (Values::Infinite, bytes(&edges.infinities)),
                (Values::Nan, bytes(&[edges.nan])),
                (Values::OddNan, bytes(&edges.odd_nans)),
            ];
        }
    };
    vec![(Values::Ordinary, ordinary)]
}

/// Returns the tensors of one datatype: its values in one dimension, the first ones as a scalar and in more dimensions,
/// and an empty one.
fn samples(datatype: Datatype) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (values, elements) in elements(datatype) {
        let sample = |shape: &[usize], elements: &[Vec<u8>]| Sample {
            datatype,
            shape: shape.to_vec(),
            elements: elements.to_vec(),
            values,
        };
        samples.push(sample(&[elements.len()], &elements));
        if values == Values::Ordinary {
            samples.push(sample(&[], &elements[..1]));
            samples.push(sample(&[1, 1, 1], &elements[1..2]));
            samples.push(sample(&[elements.len(), 1], &elements));
            let twice: Vec<_> = elements.iter().chain(&elements).cloned().collect();
            samples.push(sample(&[2, 1, elements.len()], &twice));
            for shape in [&[0][..], &[0, 3], &[2, 0]] {
                samples.push(sample(shape, &[]));
            }
        }
    }
    samples
}

// ------------------------------------------------------------------------------------------------------------- matrix

/// A server with the identity model under the name `echo`.
fn echo(non_finite: &str) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(&json!({"non_finite_json": non_finite})))
}

/// Sends one tensor and returns an error if the response differs from the expected one.
fn check(endpoint: &dyn Endpoint, sample: &Sample) -> Result<(), String> {
    let outcome = endpoint.outcome(sample.datatype, sample.values);
    if outcome == Outcome::NotSendable {
        return Ok(());
    }
    let expected: Vec<Option<Vec<u8>>> = match &outcome {
        Outcome::Null => vec![None; sample.elements.len()],
        Outcome::DefaultNan => {
            let (_, nan) = elements(sample.datatype).into_iter().find(|(values, _)| *values == Values::Nan).unwrap();
            vec![Some(nan[0].clone()); sample.elements.len()]
        }
        Outcome::QuietNan => sample.elements.iter().map(|nan| Some(quiet(sample.datatype, nan))).collect(),
        _ => sample.elements.iter().cloned().map(Some).collect(),
    };
    match (endpoint.echo(sample), outcome) {
        (Err((status, message)), Outcome::Refused(wanted, text)) if status == wanted && message == text => Ok(()),
        (Ok(echo), Outcome::Exact | Outcome::DefaultNan | Outcome::QuietNan | Outcome::Null)
            if echo == (sample.shape.clone(), expected.clone()) =>
        {
            Ok(())
        }
        (found, outcome) => Err(format!("{outcome:?} with {expected:?}, but {found:?}")),
    }
}

fn check_all(endpoints: &[&dyn Endpoint]) {
    let mut failures = String::new();
    for endpoint in endpoints {
        for sample in Datatype::ALL.into_iter().flat_map(samples) {
            if let Err(failure) = check(*endpoint, &sample) {
                let Sample { datatype, shape, values, .. } = &sample;
                writeln!(failures, "{}: {datatype} {shape:?} {values:?}: expected {failure}", endpoint.name()).unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn every_datatype_round_trips_over_rest() {
    for non_finite in ["null", "string", "error"] {
        let server = echo(non_finite);
        let mut endpoints = Vec::new();
        for input in [Form::Json, Form::Binary] {
            for output in [Form::Json, Form::Binary] {
                endpoints.push(Rest { client: &server, non_finite, input, output });
            }
        }
        check_all(&endpoints.iter().map(|endpoint| endpoint as &dyn Endpoint).collect::<Vec<_>>());
    }
}

#[test]
fn every_datatype_round_trips_over_grpc() {
    let server = echo("error");
    let endpoints = [Contents::Typed, Contents::TypedBesideRaw, Contents::Raw].map(|form| Grpc::connect(&server, form));
    check_all(&endpoints.each_ref().map(|endpoint| endpoint as &dyn Endpoint));
}

#[test]
fn every_fp16_number_round_trips() {
    let server = echo("string");
    let typed = Grpc::connect(&server, Contents::Typed);
    for datatype in [Datatype::Fp16, Datatype::Bf16] {
        let (exponent, fraction) = layout(datatype).unwrap();
        let is_number = |bits: &u16| (bits >> fraction) & ((1 << exponent) - 1) != (1 << exponent) - 1;
        let elements: Vec<_> = (0..=u16::MAX).filter(is_number).map(|bits| bits.to_le_bytes().to_vec()).collect();
        let sample = Sample { datatype, shape: vec![elements.len()], elements, values: Values::Ordinary };
        let endpoint = Rest { client: &server, non_finite: "string", input: Form::Json, output: Form::Json };
        check(&endpoint, &sample).unwrap();
        check(&typed, &sample).unwrap();
    }
}

#[test]
fn null_is_nan_only_for_floats() {
    let server = echo("string");
    for datatype in Datatype::ALL {
        let body = format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"{datatype}","data":[null]}}]}}"#);
        let answer = server.post("/v2/models/echo/infer", body);
        if layout(datatype).is_some() {
            assert_eq!(answer.ok()["outputs"][0]["data"], json!(["NaN"]), "{datatype}");
        } else {
            let error = answer.error(400);
            assert!(error.starts_with(&format!("input `x`: element 0 is not a valid {datatype}: ")), "{error}");
        }
    }
}
