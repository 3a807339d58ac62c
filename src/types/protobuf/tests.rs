//! Compares our reader and writer with the generated ones.

use bytes::Bytes;
use half::{bf16, f16};
use proptest::prelude::*;
use prost::Message;
use serde_json::{Map, Value, json};

use super::messages::infer_parameter::ParameterChoice;
use super::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use super::messages::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use super::{
    ProtobufRequest, ReadError, ResponseEncoder, bytes_to_convert, read_request, read_request_with, write_request,
};
use crate::types::json::IrregularData;
use crate::types::{
    BytesElements, Datatype, InferenceRequest, InferenceResponse, Parameters, Tensor, TensorData, TensorError,
    TensorRule,
};

fn read(request: &ModelInferRequest) -> Result<ProtobufRequest, ReadError> {
    read_request(&request.encode_to_vec().into())
}

fn input(datatype: Datatype, shape: &[i64], contents: Option<InferTensorContents>) -> InferInputTensor {
    let (name, datatype) = ("x".to_owned(), datatype.name().to_owned());
    InferInputTensor { name, datatype, shape: shape.to_vec(), contents, ..InferInputTensor::default() }
}

fn request(inputs: Vec<InferInputTensor>, raw: &[&[u8]]) -> ModelInferRequest {
    let raw_input_contents = raw.iter().map(|bytes| Bytes::copy_from_slice(bytes)).collect();
    ModelInferRequest { inputs, raw_input_contents, ..ModelInferRequest::default() }
}

/// Reads one input whose shape is the number of its elements.
fn typed(datatype: Datatype, count: i64, contents: InferTensorContents) -> Result<Tensor, String> {
    let request = request(vec![input(datatype, &[count], Some(contents))], &[]);
    read(&request).map(|mut parsed| parsed.request.inputs.remove(0)).map_err(|error| error.to_string())
}

/// Writes a tensor as the only output and reads the message back with the generated code.
fn written(tensor: Tensor, raw: bool) -> ModelInferResponse {
    let response = InferenceResponse { outputs: vec![tensor], ..InferenceResponse::default() };
    message(&response, raw)
}

fn message(response: &InferenceResponse, raw: bool) -> ModelInferResponse {
    let encoder = ResponseEncoder::new(response, raw).unwrap();
    let length = encoder.len();
    let bytes = encoder.write(b"head".to_vec()).concat();
    assert_eq!(bytes.len(), length + 4, "the length that was declared");
    ModelInferResponse::decode(&bytes[4..]).unwrap()
}

/// Elements of every datatype, including special values, and the contents that carry them.
fn special() -> Vec<(Tensor, InferTensorContents)> {
    fn ints(values: Vec<i32>) -> InferTensorContents {
        InferTensorContents { int_contents: values, ..InferTensorContents::default() }
    }
    fn uints(values: Vec<u32>) -> InferTensorContents {
        InferTensorContents { uint_contents: values, ..InferTensorContents::default() }
    }
    fn floats(values: Vec<f32>) -> InferTensorContents {
        InferTensorContents { fp32_contents: values, ..InferTensorContents::default() }
    }
    fn tensor<T: crate::types::Element>(values: &[T]) -> Tensor {
        Tensor::from_elements("x", vec![values.len()], values).unwrap()
    }
    let contents = InferTensorContents::default;
    let f16s =
        [f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::NEG_ZERO, f16::MAX, f16::MIN, f16::MIN_POSITIVE_SUBNORMAL];
    let bf16s = [
        bf16::NAN,
        bf16::INFINITY,
        bf16::NEG_INFINITY,
        bf16::NEG_ZERO,
        bf16::MAX,
        bf16::MIN,
        bf16::MIN_POSITIVE_SUBNORMAL,
    ];
    let f32s = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        f32::MAX,
        f32::MIN,
        f32::from_bits(1),
        f32::from_bits(0x7f80_0001),
    ];
    let f64s = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX, f64::MIN, f64::from_bits(1)];
    let bools = Tensor::from_raw("x", Datatype::Bool, vec![2], Bytes::from_static(&[1, 0])).unwrap();
    let byte_strings: [&[u8]; 3] = [b"", b"\xff\0", b"text"];
    let elements: BytesElements = byte_strings.into_iter().collect();
    let byte_tensor = Tensor {
        name: "x".to_owned(),
        datatype: Datatype::Bytes,
        shape: vec![3],
        parameters: Parameters::new(),
        data: TensorData::Variable(elements),
        nested: false,
        as_sent: None,
    };
    vec![
        (bools, InferTensorContents { bool_contents: vec![true, false], ..contents() }),
        (tensor(&[0_u8, u8::MAX]), uints(vec![0, 255])),
        (tensor(&[0_u16, u16::MAX]), uints(vec![0, 65535])),
        (tensor(&[0_u32, u32::MAX]), uints(vec![0, u32::MAX])),
        (tensor(&[0_u64, u64::MAX]), InferTensorContents { uint64_contents: vec![0, u64::MAX], ..contents() }),
        (tensor(&[i8::MIN, -1, i8::MAX]), ints(vec![-128, -1, 127])),
        (tensor(&[i16::MIN, -1, i16::MAX]), ints(vec![-32768, -1, 32767])),
        (tensor(&[i32::MIN, -1, i32::MAX]), ints(vec![i32::MIN, -1, i32::MAX])),
        (
            tensor(&[i64::MIN, -1, i64::MAX]),
            InferTensorContents { int64_contents: vec![i64::MIN, -1, i64::MAX], ..contents() },
        ),
        (tensor(&f16s), floats(f16s.map(f32::from).to_vec())),
        (tensor(&bf16s), floats(bf16s.map(f32::from).to_vec())),
        (tensor(&f32s), floats(f32s.to_vec())),
        (tensor(&f64s), InferTensorContents { fp64_contents: f64s.to_vec(), ..contents() }),
        (
            byte_tensor,
            InferTensorContents { bytes_contents: byte_strings.map(Bytes::from_static).to_vec(), ..contents() },
        ),
    ]
}

#[test]
fn every_datatype_is_exact_through_typed_contents() {
    let all = special();
    assert_eq!(all.iter().map(|(tensor, _)| tensor.datatype).collect::<Vec<_>>(), Datatype::ALL);
    for (tensor, contents) in all {
        let datatype = tensor.datatype;
        let count = i64::try_from(tensor.len()).unwrap();
        assert_eq!(typed(datatype, count, contents.clone()).unwrap(), tensor, "{datatype}");

        let response = written(tensor.clone(), false);
        let output = &response.outputs[0];
        assert_eq!((output.datatype.as_str(), output.shape.as_slice()), (datatype.name(), [count].as_slice()));
        if matches!(datatype, Datatype::Fp16 | Datatype::Bf16) {
            assert_eq!(response.raw_output_contents, [tensor.to_raw().unwrap()], "it has no field of its own");
            continue;
        }
        assert!(response.raw_output_contents.is_empty());
        // As bytes, for a NaN is not equal to itself.
        assert_eq!(output.contents.as_ref().unwrap().encode_to_vec(), contents.encode_to_vec(), "{datatype}");
    }
}

#[test]
fn every_datatype_is_exact_through_raw_contents() {
    for (tensor, _) in special() {
        let raw = tensor.to_raw().unwrap();
        let count = i64::try_from(tensor.len()).unwrap();
        let parsed = read(&request(vec![input(tensor.datatype, &[count], None)], &[&raw])).unwrap();
        assert!(parsed.raw);
        assert_eq!(parsed.request.inputs, std::slice::from_ref(&tensor));
        let response = written(tensor, true);
        assert_eq!(response.raw_output_contents, [raw]);
        assert_eq!(response.outputs[0].contents, Some(InferTensorContents::default()), "present and empty");
    }
}

#[test]
fn empty_tensors_need_no_data() {
    for datatype in Datatype::ALL {
        for contents in [None, Some(InferTensorContents::default())] {
            let parsed = read(&request(vec![input(datatype, &[2, 0], contents)], &[])).unwrap();
            assert!(!parsed.raw && parsed.request.inputs[0].is_empty(), "{datatype}");
            let response = written(parsed.request.inputs[0].clone(), false);
            assert_eq!(response.outputs[0].contents, Some(InferTensorContents::default()));
        }
        let parsed = read(&request(vec![input(datatype, &[0], None)], &[b""])).unwrap();
        assert!(parsed.raw && parsed.request.inputs[0].is_empty(), "{datatype}");
    }
}

#[test]
fn elements_with_the_same_form_on_the_wire_are_not_copied() {
    let inputs = vec![
        input(
            Datatype::Fp32,
            &[2],
            Some(InferTensorContents { fp32_contents: vec![1.0, 2.0], ..InferTensorContents::default() }),
        ),
        input(
            Datatype::Fp64,
            &[1],
            Some(InferTensorContents { fp64_contents: vec![1.0], ..InferTensorContents::default() }),
        ),
        input(
            Datatype::Bool,
            &[2],
            Some(InferTensorContents { bool_contents: vec![true, false], ..InferTensorContents::default() }),
        ),
        input(
            Datatype::Bytes,
            &[1],
            Some(InferTensorContents { bytes_contents: vec!["ab".into()], ..InferTensorContents::default() }),
        ),
        input(Datatype::Int64, &[1], None),
        input(Datatype::Bytes, &[1], None),
    ];
    let message = Bytes::from(request(inputs, &[&[7; 8], b"\x01\0\0\0a"]).encode_to_vec());
    let whole = message.as_ptr_range();
    for tensor in read_request(&message).unwrap().request.inputs {
        let at = match &tensor.data {
            TensorData::Fixed(bytes) => bytes.as_ptr(),
            TensorData::Variable(elements) => elements.iter().next().unwrap().as_ptr(),
            TensorData::Irregular(_) => unreachable!("contents are no JSON"),
        };
        assert!(whole.contains(&at), "{}", tensor.datatype);
    }

    let large = Tensor::from_elements("x", vec![4096], &[1.5_f32; 4096]).unwrap();
    let TensorData::Fixed(data) = large.data.clone() else { unreachable!() };
    let response = InferenceResponse { outputs: vec![large], ..InferenceResponse::default() };
    for raw in [false, true] {
        let parts = ResponseEncoder::new(&response, raw).unwrap().write(Vec::new());
        assert!(parts.iter().any(|part| part.as_ptr() == data.as_ptr()), "raw: {raw}");
        assert!(parts.len() == 2 && parts[0].len() < 100);
    }
}

#[test]
fn bytes_to_convert_counts_only_data_that_is_not_kept() {
    let floats = InferTensorContents { fp32_contents: vec![0.0; 100], ..InferTensorContents::default() };
    let ints = InferTensorContents { int_contents: vec![1; 100], ..InferTensorContents::default() };
    let effort = |inputs, raw: &[&[u8]]| bytes_to_convert(&request(inputs, raw).encode_to_vec());
    assert_eq!(effort(vec![input(Datatype::Fp32, &[100], Some(floats))], &[]), 0);
    assert_eq!(effort(vec![input(Datatype::Int32, &[100], Some(ints))], &[]), 102);
    assert_eq!(effort(vec![input(Datatype::Fp16, &[1], None)], &[&[0; 2]]), 0);
    assert_eq!(effort(vec![input(Datatype::Bytes, &[1], None)], &[b"\0\0\0\0"]), 4);
    // Each number is a field: the tag of a field of 4 bytes with the number 6, and its bytes.
    let unpacked = [0x35, 0, 0, 0, 0].repeat(100);
    let contents = [&[0x2a, 0xf4, 0x03], &unpacked[..]].concat();
    let tensor = [&input(Datatype::Fp32, &[100], None).encode_to_vec()[..], &contents].concat();
    let unpacked = [&[0x2a, u8::try_from(tensor.len() & 0x7f).unwrap() | 0x80, 0x04], &tensor[..]].concat();
    assert_eq!(read_request(&Bytes::from(unpacked.clone())).unwrap().request.inputs[0].len(), 100);
    assert_eq!(bytes_to_convert(&unpacked), 500);
    assert_eq!(bytes_to_convert(b"\xff"), 0, "a malformed message is reported when it is read");
}

#[test]
fn bytes_to_convert_are_all_of_a_message_with_many_fields_or_long_texts() {
    let message = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = request(vec![input(Datatype::Uint8, &[0], None)], &[]);
        change(&mut request);
        request.encode_to_vec()
    };
    let changes: [&dyn Fn(&mut ModelInferRequest); 4] = [
        &|request| request.inputs = vec![request.inputs[0].clone(); 2000],
        &|request| request.raw_input_contents = vec![Bytes::new(); 2000],
        &|request| {
            let names = (0..2000).map(|index| (index.to_string(), InferParameter::default()));
            request.parameters = names.collect();
        },
        &|request| {
            let names = (0..2000).map(|index| (index.to_string(), InferParameter::default()));
            request.inputs[0].parameters = names.collect();
        },
    ];
    for change in changes {
        let message = message(change);
        assert_eq!(bytes_to_convert(&message), message.len());
    }
    let unknown = [0x7a, 0].repeat(2000);
    assert_eq!(bytes_to_convert(&unknown), unknown.len());
    assert_eq!(bytes_to_convert(&message(&|request| request.id = "i".repeat(2000))), 2000);
    assert_eq!(bytes_to_convert(&message(&|request| request.inputs[0].name = "i".repeat(2000))), 2000);
}

#[test]
fn numbers_of_another_type_are_accepted_if_they_fit() {
    let contents = InferTensorContents::default;
    let fp32 = |value| InferTensorContents { fp32_contents: vec![value], ..contents() };
    let fp64 = |value| InferTensorContents { fp64_contents: vec![value], ..contents() };
    let int64 = |value| InferTensorContents { int64_contents: vec![value], ..contents() };
    let uint64 = |value| InferTensorContents { uint64_contents: vec![value], ..contents() };
    let boolean = || InferTensorContents { bool_contents: vec![true], ..contents() };
    let one = |datatype, contents: InferTensorContents| {
        typed(datatype, 1, contents).map(|tensor| match tensor.datatype {
            Datatype::Fp64 => tensor.elements::<f64>().unwrap()[0].to_string(),
            Datatype::Fp32 => tensor.elements::<f32>().unwrap()[0].to_string(),
            Datatype::Fp16 => tensor.elements::<f16>().unwrap()[0].to_string(),
            Datatype::Int64 => tensor.elements::<i64>().unwrap()[0].to_string(),
            Datatype::Uint64 => tensor.elements::<u64>().unwrap()[0].to_string(),
            _ => format!("{:?}", tensor.to_raw().unwrap().as_ref()),
        })
    };
    let fine = [
        (Datatype::Int64, fp32(3.0), "3"),
        (Datatype::Int8, int64(-3), "[253]"),
        (Datatype::Uint64, fp64(1e19), "10000000000000000000"),
        (Datatype::Fp32, int64(16_777_217), "16777216"),
        (Datatype::Fp32, fp64(0.1), "0.1"),
        (Datatype::Fp32, fp64(f64::NEG_INFINITY), "-inf"),
        (Datatype::Fp16, fp64(65504.0), "65504"),
        (Datatype::Fp64, uint64(u64::MAX), "18446744073709552000"),
        (Datatype::Bool, int64(1), "[1]"),
        (Datatype::Bool, fp32(-0.0), "[0]"),
    ];
    for (datatype, contents, expected) in fine {
        assert_eq!(one(datatype, contents.clone()).unwrap(), expected, "{datatype} {contents:?}");
    }
    let integer = "expected an integer from -2147483648 to 2147483647";
    let refused = [
        (Datatype::Int32, fp32(1.5), format!("element 0 is not a valid INT32: {integer}")),
        (Datatype::Int32, fp32(f32::NAN), format!("element 0 is not a valid INT32: {integer}")),
        (Datatype::Int32, int64(1 << 31), format!("element 0 is not a valid INT32: {integer}")),
        (Datatype::Int32, boolean(), format!("element 0 is not a valid INT32: {integer}")),
        (Datatype::Uint8, int64(-1), "element 0 is not a valid UINT8: expected an integer from 0 to 255".to_owned()),
        (
            Datatype::Int64,
            fp64(9_223_372_036_854_775_808.0),
            "element 0 is not a valid INT64: expected an integer from -9223372036854775808 to 9223372036854775807"
                .to_owned(),
        ),
        (Datatype::Fp32, fp64(1e39), "element 0 is not a valid FP32: expected a number up to 3.4028235e38".to_owned()),
        (Datatype::Fp16, fp32(65520.0), "element 0 is not a valid FP16: expected a number up to 65504".to_owned()),
        (
            Datatype::Fp64,
            boolean(),
            "element 0 is not a valid FP64: expected a number up to 1.7976931348623157e308".to_owned(),
        ),
        (Datatype::Bool, int64(2), "element 0 is not a valid BOOL: expected true, false, 1 or 0".to_owned()),
    ];
    for (datatype, contents, expected) in refused {
        assert_eq!(one(datatype, contents.clone()).unwrap_err(), format!("input `x`: {expected}"), "{contents:?}");
    }
}

/// Inputs, raw contents, and the expected message.
type Case<'a> = (Vec<InferInputTensor>, &'a [&'a [u8]], &'a str);

#[test]
fn contradictory_data_is_rejected() {
    let contents = InferTensorContents::default;
    let ints = |count| Some(InferTensorContents { int_contents: vec![1; count], ..contents() });
    let bytes = Some(InferTensorContents { bytes_contents: vec!["a".into()], ..contents() });
    let both = Some(InferTensorContents { int_contents: vec![1], fp32_contents: vec![1.0], ..contents() });
    let unknown = InferInputTensor { datatype: "FP31".to_owned(), ..InferInputTensor::default() };
    let int32 = |shape: &[i64], contents| vec![input(Datatype::Int32, shape, contents)];
    let table: [Case<'_>; 14] = [
        (int32(&[2], ints(3)), &[], "tensor `x` of shape [2] needs 2 elements, but 3 were given"),
        (int32(&[2], None), &[], "tensor `x` of shape [2] needs 2 elements, but 0 were given"),
        (int32(&[1], None), &[&[0; 3]], "tensor `x` is INT32, but its 3 bytes are not a multiple of 4"),
        (int32(&[1], None), &[&[0; 8]], "tensor `x` of shape [1] needs 1 elements, but 2 were given"),
        (
            int32(&[i64::MAX, i64::MAX], None),
            &[&[0; 4]],
            "the shape [9223372036854775807, 9223372036854775807] of tensor `x` has more elements than memory can address",
        ),
        (
            int32(&[-1, -1], ints(1)),
            &[],
            "input `x`: the shape [-1, -1] cannot be inferred from 1 elements: use at most one -1, and dimensions whose product divides the number of elements",
        ),
        (int32(&[1; 33], ints(1)), &[], "input `x`: the shape has more than 32 dimensions"),
        (int32(&[1], both), &[], "input `x` has both `int_contents` and `fp32_contents`: send one of them"),
        (
            int32(&[1], bytes),
            &[],
            "input `x` is INT32, but its contents are `bytes_contents`: send `int_contents` or `raw_input_contents`",
        ),
        (
            vec![input(Datatype::Bytes, &[1], ints(1))],
            &[],
            "input `x` is BYTES, but its contents are `int_contents`: send `bytes_contents` or `raw_input_contents`",
        ),
        (vec![input(Datatype::Bool, &[1], None)], &[&[2]], "tensor `x`: element 0 is the byte 2, but a BOOL is 0 or 1"),
        (
            vec![unknown],
            &[],
            "input `#0`: unknown datatype `FP31`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES",
        ),
        (
            [int32(&[1], None), int32(&[1], None)].concat(),
            &[&[0; 4]],
            "`raw_input_contents` has 1 entries for 2 inputs without contents",
        ),
        (
            [int32(&[1], None), int32(&[1], ints(1))].concat(),
            &[&[0; 4], &[0; 4]],
            "`raw_input_contents` has 2 entries for 1 inputs without contents",
        ),
    ];
    for (inputs, raw, expected) in table {
        assert_eq!(read(&request(inputs, raw)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn raw_and_typed_inputs_mix() {
    let typed = InferTensorContents { int_contents: vec![5], ..InferTensorContents::default() };
    let inputs = vec![
        input(Datatype::Uint8, &[1], None),
        input(Datatype::Uint8, &[-1], Some(typed)),
        input(Datatype::Uint8, &[0], None),
        input(Datatype::Uint8, &[2], Some(InferTensorContents::default())),
    ];
    let parsed = read(&request(inputs, &[&[1], &[], &[2, 3]])).unwrap();
    let data: Vec<_> = parsed.request.inputs.iter().map(|input| input.to_raw().unwrap()).collect();
    assert_eq!(data, [&[1_u8][..], &[5], &[], &[2, 3]]);
}

#[test]
fn repeated_contents_are_merged() {
    // Three occurrences of `contents`, of which one has numbers one by one; and the datatype at the end.
    let pieces = b"\x2a\x1c\x18\x02\x18\x02\x2a\x04\x12\x02\x01\x02\x2a\x04\x10\x03\x10\x04\x2a\x02\x12\x00\x0a\x01x\x12\x05INT16";
    let mut message = pieces.to_vec();
    message[1] = u8::try_from(pieces.len() - 2).unwrap();
    let parsed = read_request(&message.into()).unwrap();
    let tensor = &parsed.request.inputs[0];
    assert_eq!(
        (tensor.shape.as_slice(), tensor.elements::<i16>().unwrap().as_ref()),
        ([2, 2].as_slice(), [1, 2, 3, 4].as_slice())
    );
}

#[test]
fn fields_other_than_tensors_are_read() {
    let choice = |choice| InferParameter { parameter_choice: Some(choice) };
    let parameters = [
        ("content_type".to_owned(), choice(ParameterChoice::StringParam("np".to_owned()))),
        ("b".to_owned(), choice(ParameterChoice::BoolParam(true))),
        ("i".to_owned(), choice(ParameterChoice::Int64Param(i64::MIN))),
        ("d".to_owned(), choice(ParameterChoice::DoubleParam(-0.1))),
        ("u".to_owned(), choice(ParameterChoice::Uint64Param(u64::MAX))),
        ("nan".to_owned(), choice(ParameterChoice::DoubleParam(f64::NAN))),
        ("nothing".to_owned(), InferParameter { parameter_choice: None }),
    ];
    let output = InferRequestedOutputTensor { name: "o".to_owned(), parameters: parameters.clone().into() };
    let request = ModelInferRequest {
        model_name: "m".to_owned(),
        model_version: "v".to_owned(),
        id: "é".to_owned(),
        parameters: parameters.into(),
        outputs: vec![output],
        ..ModelInferRequest::default()
    };
    let parsed = read(&request).unwrap();
    assert_eq!((parsed.model_name.as_str(), parsed.model_version.as_deref(), parsed.raw), ("m", Some("v"), false));
    assert_eq!(parsed.request.id, "é");
    assert_eq!(parsed.request.parameters.content_type(), Some("np"));
    let others = json!({"b": true, "i": i64::MIN, "d": -0.1, "u": u64::MAX, "nan": null, "nothing": null});
    assert_eq!(Value::Object(parsed.request.parameters.others.clone().into_inner()), others);
    assert_eq!(parsed.request.outputs[0].name, "o");
    assert_eq!(parsed.request.outputs[0].parameters, parsed.request.parameters);
    assert_eq!(read(&ModelInferRequest::default()).unwrap().model_version, None, "the default version");
}

#[test]
fn parameters_without_a_form_on_the_wire_are_omitted() {
    let others = json!({"b": false, "i": -1, "s": "", "f": 1.5, "u": u64::MAX, "l": [1], "o": {}, "n": null});
    let parameters =
        Parameters { others: others.as_object().unwrap().clone().into(), ..Parameters::with_content_type("np") };
    let tensor = Tensor { parameters: parameters.clone(), ..Tensor::from_elements("x", vec![1], &[1_u8]).unwrap() };
    let response = InferenceResponse {
        model_name: "m".to_owned(),
        model_version: Some("v".to_owned()),
        id: "i".to_owned(),
        parameters: parameters.clone(),
        outputs: vec![tensor],
        ..InferenceResponse::default()
    };
    let written = message(&response, false);
    let expected = super::parameters_to_map(&parameters);
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["b", "content_type", "f", "i", "s", "u"]);
    let double = Some(ParameterChoice::DoubleParam(1.5));
    assert_eq!(
        (&expected["f"].parameter_choice, &expected["u"].parameter_choice),
        (&double, &Some(ParameterChoice::Uint64Param(u64::MAX)))
    );
    assert_eq!((written.parameters, &written.outputs[0].parameters), (expected.clone(), &expected));
    assert_eq!([written.model_name, written.model_version, written.id], ["m", "v", "i"]);
}

#[test]
fn other_shapes_are_kept_if_the_rule_allows_it() {
    let texts = InferTensorContents { bytes_contents: vec!["a".into(), "b".into()], ..InferTensorContents::default() };
    let numbers = InferTensorContents { int64_contents: vec![1, 2, 3], ..InferTensorContents::default() };
    let inputs = vec![input(Datatype::Bytes, &[59], Some(texts)), input(Datatype::Int64, &[1], Some(numbers))];
    let message = Bytes::from(request(inputs, &[]).encode_to_vec());
    assert!(matches!(read_request(&message), Err(ReadError::Tensor(TensorError::Count { .. }))));
    let read = read_request_with(&message, TensorRule::AsSent).unwrap().request.inputs;
    let found: Vec<_> = read.iter().map(|tensor| (&tensor.shape[..], tensor.len())).collect();
    assert_eq!(found, [(&[59][..], 2), (&[1], 3)]);
    let error = TensorRule::Strict.check(&read).unwrap_err().to_string();
    assert!(error.ends_with("of shape [59] needs 59 elements, but 2 were given"), "{error}");
    assert_eq!(TensorRule::AsSent.check(&read), Ok(()));

    let read_raw = |shape, raw| {
        let message = request(vec![input(Datatype::Int16, shape, None)], &[raw]).encode_to_vec();
        read_request_with(&message.into(), TensorRule::AsSent)
    };
    let half = read_raw(&[1], &[1, 0, 2]);
    assert!(matches!(half, Err(ReadError::Tensor(TensorError::Width { .. }))), "no elements at all");
    let short = read_raw(&[9], &[1, 0, 2, 0]);
    assert!(matches!(short, Err(ReadError::Tensor(TensorError::Count { .. }))), "raw contents fit their shape");
}

#[test]
fn data_without_another_form_than_json_is_an_error() {
    let irregular = |datatype, json: &'static str| Tensor {
        name: "y".to_owned(),
        datatype,
        shape: vec![5],
        parameters: Parameters::new(),
        data: TensorData::Irregular(IrregularData::new(Bytes::from_static(json.as_bytes()), "because").unwrap()),
        nested: false,
        as_sent: None,
    };
    for raw in [false, true] {
        let outputs = vec![irregular(Datatype::Bytes, r#"["a",null]"#)];
        let response = InferenceResponse { outputs, ..InferenceResponse::default() };
        assert_eq!(ResponseEncoder::new(&response, raw).unwrap_err().to_string(), "because");
        let write = |input: Tensor| {
            let request = InferenceRequest { inputs: vec![input], ..InferenceRequest::default() };
            write_request("m", None, &request, raw, Vec::new())
        };
        let text = write(irregular(Datatype::Bytes, r#""hello""#)).unwrap().concat();
        let read = read_request_with(&text.into(), TensorRule::AsSent);
        if raw {
            assert!(matches!(read, Err(ReadError::Tensor(TensorError::Count { .. }))), "raw contents fit their shape");
        } else {
            let read = read.unwrap().request.inputs.remove(0);
            assert_eq!((&read.shape[..], read.data), (&[5][..], TensorData::Variable(["hello"].iter().collect())));
        }
        assert!(write(irregular(Datatype::Fp32, r#""hello""#)).is_err());
    }
}

#[test]
fn too_many_empty_parts_are_rejected() {
    for part in [b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x22\0"] {
        let message = Bytes::from(part.repeat((1 << 16) + 1));
        let expected = "the request has more than 65536 inputs, outputs, raw contents and parameters in total";
        assert_eq!(read_request(&message).unwrap_err().to_string(), expected);
    }
}

fn any_contents() -> impl Strategy<Value = (Datatype, InferTensorContents, usize)> {
    let contents = InferTensorContents::default;
    prop_oneof![
        proptest::collection::vec(any::<i32>(), 1..9).prop_map(move |values| {
            let count = values.len();
            (Datatype::Int32, InferTensorContents { int_contents: values, ..contents() }, count)
        }),
        proptest::collection::vec(any::<u64>(), 1..9).prop_map(move |values| {
            let count = values.len();
            (Datatype::Uint64, InferTensorContents { uint64_contents: values, ..contents() }, count)
        }),
        proptest::collection::vec(any::<f32>(), 1..9).prop_map(move |values| {
            let count = values.len();
            (Datatype::Fp32, InferTensorContents { fp32_contents: values, ..contents() }, count)
        }),
        proptest::collection::vec(any::<bool>(), 1..9).prop_map(move |values| {
            let count = values.len();
            (Datatype::Bool, InferTensorContents { bool_contents: values, ..contents() }, count)
        }),
        proptest::collection::vec(".{0,5}", 1..9).prop_map(move |values| {
            let count = values.len();
            let bytes_contents = values.into_iter().map(Bytes::from).collect();
            (Datatype::Bytes, InferTensorContents { bytes_contents, ..contents() }, count)
        }),
    ]
}

fn any_request() -> impl Strategy<Value = ModelInferRequest> {
    let inputs = proptest::collection::vec(any_contents(), 0..4);
    (".{0,5}", ".{0,5}", ".{0,5}", inputs).prop_map(|(model_name, model_version, id, inputs)| {
        let inputs = inputs.into_iter().enumerate().map(|(index, (datatype, contents, count))| InferInputTensor {
            name: format!("in {index}"),
            ..input(datatype, &[i64::try_from(count).unwrap()], Some(contents))
        });
        ModelInferRequest { model_name, model_version, id, inputs: inputs.collect(), ..ModelInferRequest::default() }
    })
}

proptest! {
    #[test]
    fn generated_messages_round_trip(request in any_request()) {
        let ProtobufRequest { model_name, model_version, request: read, raw } = read(&request).unwrap();
        prop_assert!(!raw);
        let response = InferenceResponse {
            model_name,
            model_version,
            id: read.id,
            outputs: read.inputs,
            ..InferenceResponse::default()
        };
        let written = message(&response, false);
        prop_assert_eq!(&written.model_name, &request.model_name);
        prop_assert_eq!(&written.model_version, &request.model_version);
        prop_assert_eq!(&written.id, &request.id);
        prop_assert_eq!(written.outputs.len(), request.inputs.len());
        for (output, input) in written.outputs.iter().zip(&request.inputs) {
            prop_assert_eq!((&output.name, &output.datatype, &output.shape), (&input.name, &input.datatype, &input.shape));
            let bytes = |contents: &Option<InferTensorContents>| contents.as_ref().unwrap().encode_to_vec();
            prop_assert_eq!(bytes(&output.contents), bytes(&input.contents));
        }
    }

    #[test]
    fn read_request_never_panics_on_damaged_messages(
        request in any_request(),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut message = request.encode_to_vec();
        if !message.is_empty() {
            let position = position.index(message.len());
            message[position] = byte;
            if cut {
                message.truncate(position);
            }
        }
        let message = Bytes::from(message);
        if read_request(&message).is_ok() {
            prop_assert!(ModelInferRequest::decode(message).is_ok(), "we accept nothing that others reject");
        }
    }

    #[test]
    fn read_request_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = read_request(&bytes.into());
    }

    #[test]
    fn any_parameters_read_back(flags in proptest::collection::vec(any::<(bool, i64, String)>(), 0..5)) {
        let mut others = Map::new();
        for (index, (flag, number, text)) in flags.into_iter().enumerate() {
            others.insert(format!("b{index}"), flag.into());
            others.insert(format!("i{index}"), number.into());
            others.insert(text.clone(), text.into());
        }
        let parameters = Parameters::from(others);
        let request = ModelInferRequest { parameters: super::parameters_to_map(&parameters), ..ModelInferRequest::default() };
        let found = read(&request).unwrap().request.parameters;
        prop_assert_eq!(&found.content_type, &parameters.content_type);
        prop_assert_eq!(found.others, parameters.others);
    }
}
