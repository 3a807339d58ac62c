//! Requests as JSON, valid and invalid.

use super::*;
use crate::types::AsSent;
use proptest::prelude::*;
use serde_json::Value;

fn read(text: &str) -> Result<InferenceRequest, ReadError> {
    read_request(text.as_bytes(), None).map(|parsed| parsed.request)
}

fn input(fields: &str) -> Result<Tensor, ReadError> {
    read(&format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#)).map(|request| request.inputs[0].clone())
}

fn message(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn input_message(fields: &str) -> String {
    input(fields).unwrap_err().to_string()
}

fn texts(tensor: &Tensor) -> Vec<&str> {
    match &tensor.data {
        TensorData::Variable(elements) => elements.iter().map(|e| std::str::from_utf8(e).unwrap()).collect(),
        TensorData::Fixed(_) | TensorData::Irregular(_) => panic!("not BYTES"),
    }
}

#[test]
fn read_request_reads_all_fields() {
    let text = r#" {"id":"a\"b","unknown":{"deep":[1,{"x":null}]},"parameters":{"content_type":"np","k":[1,2.5]},
        "inputs":[{"name":"x","shape":[1,3],"datatype":"INT32","parameters":{"a":1},"data":[1, 2 ,3]}],
        "outputs":[{"name":"predict","parameters":null},{"name":"y","other":1}]} "#;
    let JsonRequest { request, id, .. } = read_request(text.as_bytes(), None).unwrap();
    assert_eq!(id.as_deref(), Some("a\"b"));
    assert_eq!(request.parameters.content_type(), Some("np"));
    assert_eq!(request.inputs[0].shape, [1, 3]);
    assert_eq!(request.inputs[0].elements::<i32>().unwrap().as_ref(), [1, 2, 3]);
    assert_eq!(request.inputs[0].parameters.others["a"], 1);
    let names: Vec<_> = request.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["predict", "y"]);
}

#[test]
fn absent_id_differs_from_empty_id() {
    let id = |text: &str| read_request(text.as_bytes(), None).unwrap().id;
    assert_eq!(id(r#"{"inputs":[]}"#), None);
    assert_eq!(id(r#"{"id":null,"inputs":[]}"#), None);
    assert_eq!(id(r#"{"id":"","inputs":[]}"#).as_deref(), Some(""));
}

#[test]
fn data_may_come_before_its_datatype() {
    let tensor = input(r#""data":[[1,2],[3,4]],"shape":[2,2],"datatype":"FP64""#).unwrap();
    assert_eq!(tensor.elements::<f64>().unwrap().as_ref(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn nested_data_is_flattened_and_must_not_be_ragged() {
    let tensor = input(r#""shape":[2,1,2],"datatype":"UINT8","data":[[[1,2]], [[3,4]]]"#).unwrap();
    assert_eq!(tensor.elements::<u8>().unwrap().as_ref(), [1, 2, 3, 4]);
    for (data, index) in [("[[1,2],[3]]", 3), ("[1,[2]]", 1), ("[[1],2]", 1), ("[[1],[[2]]]", 1), ("[[[1]],[2]]", 1)] {
        let message = input_message(&format!(r#""shape":[3],"datatype":"UINT8","data":{data}"#));
        let expected =
            format!("input `x`: ragged data at element {index}: all arrays of one level must have the same length");
        assert_eq!(message, expected, "{data}");
    }
}

#[test]
fn shapes_are_lax_as_the_original_and_infer_one_dimension() {
    let shape = |shape: &str| input(&format!(r#""shape":{shape},"datatype":"INT8","data":[1,2,3,4]"#)).map(|t| t.shape);
    assert_eq!(shape(r#"["2",2.0,true]"#).unwrap(), [2, 2, 1]);
    assert_eq!(shape("[-1,2]").unwrap(), [2, 2]);
    assert_eq!(shape("[4]").unwrap(), [4]);
    assert_eq!(shape("[2.5]").unwrap_err().to_string(), "`inputs[0].shape[0]`: expected an integer");
    assert_eq!(shape("4").unwrap_err().to_string(), "`inputs[0].shape`: expected an array of integers");
    for bad in ["[-1,-1]", "[-1,3]", "[-2,2]", "[-1,0]"] {
        assert!(matches!(shape(bad), Err(ReadError::Tensor(TensorError::Inference { .. }))), "{bad}");
    }
    assert_eq!(input(r#""shape":[],"datatype":"INT8","data":[5]"#).unwrap().shape, Vec::<usize>::new());
    assert_eq!(input(r#""shape":[1],"datatype":"INT8","data":5"#).unwrap().len(), 1);
    assert_eq!(input(r#""shape":[0,3],"datatype":"INT8","data":[]"#).unwrap().len(), 0);
}

#[test]
fn invalid_elements_are_reported_by_index() {
    let message = input_message(r#""shape":[3],"datatype":"INT8","data":[1,2,300]"#);
    assert_eq!(message, "input `x`: element 2 is not a valid INT8: expected an integer from -128 to 127");
    for (datatype, data) in [
        ("INT64", "[1.9]"),
        ("INT32", "[null]"),
        ("UINT8", "[-1]"),
        ("FP32", "[1e39]"),
        ("FP64", "[1e400]"),
        ("FP16", "[70000]"),
        ("BOOL", "[2]"),
        ("BOOL", "[\"a\"]"),
        ("FP32", "[{}]"),
        ("FP32", "[true]"),
        ("BYTES", "[1]"),
        ("BYTES", "[null]"),
    ] {
        let result = input(&format!(r#""shape":[1],"datatype":"{datatype}","data":{data}"#));
        assert!(matches!(result, Err(ReadError::Element { index: 0, .. })), "{datatype} {data}: {result:?}");
    }
}

#[test]
fn floats_take_null_and_the_names_of_special_values() {
    let data = r#"[null,"NaN","Infinity","-Infinity","5.5"]"#;
    let tensor = input(&format!(r#""shape":[5],"datatype":"FP32","data":{data}"#)).unwrap();
    let elements = tensor.elements::<f32>().unwrap();
    assert!(elements[0].is_nan() && elements[1].is_nan());
    assert_eq!(elements[2..], [f32::INFINITY, f32::NEG_INFINITY, 5.5]);
}

#[test]
fn strings_become_bytes() {
    let tensor = input(r#""shape":[2,1],"datatype":"BYTES","data":[["é\n"],["\u20ac"]]"#).unwrap();
    assert_eq!(texts(&tensor), ["é\n", "€"]);
}

fn read_as_sent(fields: &str) -> Result<Tensor, ReadError> {
    let text = format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#);
    read_request_with(text.as_bytes(), None, TensorRule::AsSent).map(|mut read| read.request.inputs.remove(0))
}

#[test]
fn data_of_another_datatype_or_form_is_kept_as_json() {
    for (datatype, shape, data, reason) in [
        ("BYTES", "[2,1]", r#"["a", null]"#, "input `x`: element 1 is not a valid BYTES: expected a string"),
        ("BYTES", "[1]", r#"{"a":[1]}"#, "input `x`: element 0 is not a valid BYTES: expected a string"),
        ("INT8", "[1]", "[300]", "input `x`: element 0 is not a valid INT8: expected an integer from -128 to 127"),
        ("BOOL", "[1]", "[ null ]", "input `x`: element 0 is not a valid BOOL: expected true, false, 1 or 0"),
        (
            "FP32",
            "[3]",
            "[[1,2],[3]]",
            "input `x`: ragged data at element 3: all arrays of one level must have the same length",
        ),
        ("INT8", "[5]", "[[1,2],[3,4]]", "tensor `x` of shape [5] needs 5 elements, but 4 were given"),
        ("BYTES", "[11]", r#""hello""#, "tensor `x` of shape [11] needs 11 elements, but 1 were given"),
        ("BYTES", "[1]", r#""hello""#, "input `x`: the data is one value, expected an array"),
    ] {
        let orders = [
            format!(r#""shape":{shape},"datatype":"{datatype}","data":{data}"#),
            format!(r#""data":{data},"datatype":"{datatype}","shape":{shape}"#),
        ];
        for fields in orders {
            let tensor = read_as_sent(&fields).unwrap();
            let TensorData::Irregular(irregular) = &tensor.data else { panic!("{fields}: {tensor:?}") };
            assert_eq!((irregular.json().as_ref(), irregular.reason()), (data.as_bytes(), reason), "{fields}");
            assert_eq!(tensor.check(), Err(TensorError::Irregular { reason: reason.into() }));
            assert_eq!(serde_json::to_string(&tensor.shape).unwrap(), shape);
            assert!(!tensor.nested);
        }
    }
    let open = read_as_sent(r#""shape":[-1,2],"datatype":"BYTES","data":[["a",null],["b","c"]]"#).unwrap();
    assert_eq!((open.shape, open.data == TensorData::Variable(BytesElements::default())), (vec![2, 2], false));
}

#[test]
fn flat_data_of_another_shape_is_kept_with_it() {
    for (shape, data) in [("[2,11]", r#"["a","b"]"#), ("[1]", r#"["a","b"]"#), ("[4000000000000000,1]", r#"["a","b"]"#)]
    {
        let fields = format!(r#""shape":{shape},"datatype":"BYTES","data":{data}"#);
        assert!(matches!(input(&fields), Err(ReadError::Tensor(TensorError::Count { .. }))), "{shape}");
        let tensor = read_as_sent(&fields).unwrap();
        assert_eq!(texts(&tensor), ["a", "b"]);
        assert_eq!(serde_json::to_string(&tensor.shape).unwrap(), shape);
    }
    let message = |fields: &str| read_as_sent(fields).unwrap_err().to_string();
    let open = read_as_sent(r#""shape":[-1,3],"datatype":"INT8","data":[1,2]"#).unwrap();
    assert!(open.check().unwrap_err().to_string().contains("cannot be inferred"));
    assert_eq!(open.as_sent.unwrap().shape, Some(vec![-1, 3]));
    let huge = message(r#""shape":[9223372036854775807,3],"datatype":"INT8","data":[1,2]"#);
    assert!(huge.contains("more elements than memory can address"), "{huge}");
}

#[test]
fn the_form_that_regular_data_loses_is_kept() {
    let as_sent = |datatype: &str, shape: &str, data: &str| {
        let tensor = read_as_sent(&format!(r#""shape":{shape},"datatype":"{datatype}","data":{data}"#)).unwrap();
        tensor.check().unwrap();
        tensor.as_sent.map(|as_sent| *as_sent)
    };
    let json =
        |text: &'static str| Some(AsSent { data: Some(Bytes::from_static(text.as_bytes())), ..AsSent::default() });
    assert_eq!(as_sent("INT8", "[4]", "[[1,2],[3,4]]"), json("[[1,2],[3,4]]"));
    assert_eq!(as_sent("FP64", "[2]", r#"[null,"NaN"]"#), json(r#"[null,"NaN"]"#));
    assert_eq!(as_sent("BOOL", "[2]", "[true,0]"), json("[true,0]"));
    let shape = Some(AsSent { shape: Some(vec![-1, 2]), ..AsSent::default() });
    assert_eq!(as_sent("INT8", "[-1,2]", "[[1,2],[3,4]]"), shape);
    let doubles = [1.1_f64, 2.0].iter().flat_map(|double| double.to_le_bytes()).collect::<Vec<_>>();
    for datatype in ["FP32", "FP16", "BF16"] {
        let found = as_sent(datatype, "[2]", "[1.1,2]").unwrap();
        assert_eq!(found, AsSent { doubles: Some(doubles.clone().into()), ..AsSent::default() }, "{datatype}");
        assert_eq!(as_sent(datatype, "[2]", "[1.5,2]"), None, "{datatype}: nothing is rounded");
    }
    for (datatype, data) in
        [("FP64", "[1.1,2]"), ("BOOL", "[true,false]"), ("BYTES", r#"["a","b"]"#), ("INT8", "[1,2]")]
    {
        assert_eq!(as_sent(datatype, "[2]", data), None, "{datatype}");
    }
}

#[test]
fn nested_data_is_marked_if_the_shape_is_that_of_its_arrays() {
    let nested = |shape: &str, data: &str| {
        read_as_sent(&format!(r#""shape":{shape},"datatype":"INT8","data":{data}"#)).map(|tensor| tensor.nested)
    };
    assert_eq!(nested("[2,2]", "[[1,2],[3,4]]"), Ok(true));
    assert_eq!(nested("[-1,2]", "[[1,2],[3,4]]"), Ok(true));
    assert_eq!(nested("[2,1,2]", "[[[1,2]],[[3,4]]]"), Ok(true));
    for (shape, data) in [("[2,2]", "[1,2,3,4]"), ("[4]", "[[1,2],[3,4]]"), ("[1,4]", "[[1,2],[3,4]]")] {
        assert_eq!(nested(shape, data), Ok(false), "{shape} {data}");
    }
    let twice = r#""shape":[2],"datatype":"INT8","data":[[1],[2]],"data":[1,2]"#;
    assert!(!read_as_sent(twice).unwrap().nested, "the last data counts");
    let native = input(r#""shape":[1,2],"datatype":"INT8","data":[[1,2]]"#).unwrap();
    assert!(!native.nested, "only Python sees the form");
}

#[test]
fn data_that_python_could_not_read_is_refused() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let read = |data: &str| read_as_sent(&format!(r#""shape":[1],"datatype":"INT64","data":{data}"#));
    assert!(read(&nested(127)).is_ok());
    assert!(matches!(read(&nested(128)), Err(ReadError::TooDeep { .. })));
    assert!(matches!(read("[1e400]"), Err(ReadError::Element { .. })));
    assert!(matches!(read("[null,1e400]"), Err(ReadError::Element { .. })));
    assert!(matches!(read("[null,]"), Err(ReadError::Syntax { .. })));
    assert!(matches!(read(r#"["\ud800"]"#), Err(ReadError::Syntax { .. })));
}

#[test]
fn open_dimensions_keep_no_reserved_memory() {
    let tensor = input(r#""shape":[-1],"datatype":"FP64","data":[1,2,3]"#).unwrap();
    let TensorData::Fixed(bytes) = tensor.data else { unreachable!("numbers") };
    // Without a spare capacity, the buffer becomes the vector that it was made from.
    assert_eq!(Vec::from(bytes).capacity(), 24);
}

#[test]
fn parameters_are_limited_in_size_and_number() {
    let long = "x".repeat(600_000);
    let two = format!(
        r#"{{"parameters":{{"a":"{long}"}},"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","parameters":{{"b":"{long}"}},"data":[1]}}]}}"#
    );
    let error = read(&two).unwrap_err();
    assert_eq!(error, ReadError::ParametersTooLong { limit: 1 << 20 });
    assert_eq!(
        error.to_string(),
        "the parameters of the request are longer than 1048576 bytes of JSON in total: send long data as an input"
    );
    let many = |count: usize| {
        let keys = (0..count).map(|key| format!(r#""{key}":0"#)).collect::<Vec<_>>().join(",");
        read(&format!(r#"{{"inputs":[],"parameters":{{"nested":[{{{keys}}}]}}}}"#))
    };
    assert!(many(65_535).is_ok());
    assert_eq!(many(65_536).unwrap_err(), ReadError::TooManyParts { limit: 65_536 });
}

#[test]
fn inputs_and_outputs_are_limited_in_number() {
    let outputs = |count: usize| {
        let outputs = vec![r#"{"name":"y"}"#; count].join(",");
        let inputs = vec![r#"{"name":"x","shape":[1],"datatype":"INT8","data":[1]}"#; 65_536 - 10].join(",");
        read(&format!(r#"{{"inputs":[{inputs}],"outputs":[{outputs}]}}"#))
    };
    assert!(outputs(10).is_ok());
    assert_eq!(outputs(11).unwrap_err(), ReadError::TooManyParts { limit: 65_536 });
}

#[test]
fn counts_must_agree_with_the_shape() {
    let message = input_message(r#""shape":[2,3],"datatype":"INT8","data":[1,2,3]"#);
    assert_eq!(message, "tensor `x` of shape [2, 3] needs 6 elements, but 3 were given");
    let message = input_message(r#""shape":[1000000000000],"datatype":"FP64","data":[1]"#);
    assert_eq!(message, "tensor `x` of shape [1000000000000] needs 1000000000000 elements, but 1 were given");
    let message = input_message(r#""shape":[4611686018427387904,4611686018427387904],"datatype":"FP64","data":[1]"#);
    assert!(message.contains("more elements than memory"), "{message}");
}

#[test]
fn errors_contain_the_path() {
    assert_eq!(message("[]"), "`request`: expected a JSON object");
    assert_eq!(message("null"), "`request`: expected a JSON object");
    assert_eq!(message("{}"), "`inputs` is required");
    assert_eq!(message(r#"{"inputs":{}}"#), "`inputs`: expected an array");
    assert_eq!(message(r#"{"inputs":[1]}"#), "`inputs[0]`: expected an object");
    assert_eq!(message(r#"{"id":1,"inputs":[]}"#), "`id`: expected a string");
    assert_eq!(message(r#"{"parameters":[],"inputs":[]}"#), "`parameters`: expected an object or null");
    assert_eq!(message(r#"{"inputs":[],"outputs":[{}]}"#), "`outputs[0].name` is required");
    assert_eq!(input_message(r#""shape":[1],"datatype":"INT8""#), "`inputs[0].data` is required");
    assert_eq!(input_message(r#""shape":[1],"data":[1]"#), "`inputs[0].datatype` is required");
    assert_eq!(input_message(r#""datatype":"INT8","data":[1]"#), "`inputs[0].shape` is required");
    assert!(
        input_message(r#""shape":[1],"datatype":"INT99","data":[1]"#)
            .starts_with("`inputs[0].datatype`: unknown datatype `INT99`")
    );
    assert_eq!(message(r#"{"inputs":[{"shape":[1],"datatype":"INT8","data":[1]}]}"#), "`inputs[0].name` is required");
}

#[test]
fn invalid_json_is_rejected_with_offset() {
    for (text, offset) in [
        ("", 0),
        ("{", 1),
        ("{not", 1),
        (r#"{"inputs":[]"#, 12),
        (r#"{"inputs":[]}x"#, 13),
        (r#"{"inputs":[],}"#, 13),
        (r#"{"a":nul}"#, 5),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[1,]}]}"#, 51),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[01]}]}"#, 49),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[NaN]}]}"#, 49),
        (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[1 2]}]}"#, 51),
        ("{\"a\u{1}\":1}", 1),
    ] {
        match read(text) {
            Err(ReadError::Syntax { offset: found, .. }) => assert_eq!(found, offset, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    let invalid_utf8 = b"{\"id\":\"\xff\",\"inputs\":[]}";
    assert!(matches!(read_request(invalid_utf8, None), Err(ReadError::Syntax { offset: 7, expected: "UTF-8" })));
}

/// Returns values that tensors have, and others.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..3_i8).prop_map(Value::from),
        (-1e3..1e3_f64).prop_map(Value::from),
        ".{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            1 => proptest::collection::btree_map(".{0,2}", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn read_binary(inputs: &str, binary: &'static [u8]) -> Result<JsonRequest, ReadError> {
    read_request(format!(r#"{{"inputs":[{inputs}]}}"#).as_bytes(), Some(Bytes::from_static(binary)))
}

#[test]
fn binary_inputs_take_their_bytes_in_order() {
    let inputs = r#"{"name":"a","parameters":{"binary_data_size":4,"k":1},"shape":[2],"datatype":"INT16"},
        {"name":"b","shape":[2],"datatype":"INT16","data":[7,8]},
        {"name":"c","shape":[-1],"datatype":"BYTES","parameters":{"binary_data_size":5}},
        {"name":"d","shape":[0,3],"datatype":"FP64","parameters":{"binary_data_size":0}}"#;
    let inputs = read_binary(inputs, b"\x01\0\x02\0\x01\0\0\0x").unwrap().request.inputs;
    assert_eq!(inputs[0].elements::<i16>().unwrap().as_ref(), [1, 2]);
    assert_eq!(inputs[1].elements::<i16>().unwrap().as_ref(), [7, 8]);
    assert_eq!((texts(&inputs[2]), &inputs[2].shape), (vec!["x"], &vec![1]));
    assert!(inputs[3].is_empty());
    let parameters: Vec<_> = inputs.iter().map(|input| serde_json::to_string(&input.parameters).unwrap()).collect();
    assert_eq!(parameters, [r#"{"k":1}"#, "{}", "{}", "{}"]);
}

#[test]
fn binary_data_that_does_not_fit_inputs_is_rejected() {
    let message = |inputs: &str| read_binary(inputs, b"\x01\0\0\0x").unwrap_err().to_string();
    let sized = |datatype: &str, shape: &str, size: &str| {
        message(&format!(
            r#"{{"name":"x","shape":{shape},"datatype":"{datatype}","parameters":{{"binary_data_size":{size}}}}}"#
        ))
    };
    let size = "`inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more";
    for wrong in ["-1", "1.5", "\"4\"", "true", "[4]", "1e30"] {
        assert_eq!(sized("UINT8", "[4]", wrong), size, "{wrong}");
    }
    assert_eq!(sized("UINT8", "[6]", "6"), "input `x`: `binary_data_size` is 6, but 5 bytes of binary data are left");
    let most = u64::MAX.to_string();
    assert!(sized("UINT8", "[6]", &most).ends_with("but 5 bytes of binary data are left"));
    assert_eq!(sized("UINT8", "[4]", "4"), "1 bytes of binary data belong to no input: check each `binary_data_size`");
    assert_eq!(sized("UINT8", "[4]", "5"), "tensor `x` of shape [4] needs 4 elements, but 5 were given");
    assert_eq!(sized("UINT8", "[-1,2]", "5").split(": ").next(), Some("input `x`"));
    assert_eq!(sized("BYTES", "[2,2]", "5"), "tensor `x` of shape [2, 2] needs 4 elements, but 1 were given");
    assert_eq!(sized("BYTES", "[1]", "null"), "`inputs[0].data` is required");
    let both = r#"{"name":"x","shape":[1],"datatype":"UINT8","data":[1],"parameters":{"binary_data_size":1}}"#;
    assert_eq!(message(both), "input `x` has both `data` and `binary_data_size`: send one of them");
    let json = read(&format!(r#"{{"inputs":[{}]}}"#, both.replace(r#""data":[1],"#, ""))).unwrap_err();
    assert!(matches!(json, ReadError::NoBinaryPart { .. }), "{json}");
}

#[test]
fn binary_output_parameters_are_removed_from_the_request() {
    let text = r#"{"inputs":[],"outputs":[{"name":"a","parameters":{"binary_data":false,"k":1}},{"name":"b"},
        {"name":"c","parameters":{"binary_data":null}}],"parameters":{"binary_data_output":true,"k":2}}"#;
    let JsonRequest { request, binary_outputs, .. } = read_request(text.as_bytes(), None).unwrap();
    assert_eq!(["a", "b", "c", "d"].map(|name| binary_outputs.wants(name)), [false, true, true, true]);
    assert_eq!(serde_json::to_string(&request.parameters).unwrap(), r#"{"k":2}"#);
    assert_eq!(serde_json::to_string(&request.outputs[0].parameters).unwrap(), r#"{"k":1}"#);
    for (wrong, path) in [
        (r#"{"inputs":[],"parameters":{"binary_data_output":1}}"#, "parameters.binary_data_output"),
        (
            r#"{"inputs":[],"outputs":[{"parameters":{"binary_data":"yes"},"name":"a"}]}"#,
            "outputs[0].parameters.binary_data",
        ),
    ] {
        assert_eq!(message(wrong), format!("`{path}`: expected true or false"));
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = "[".repeat(100_000);
    assert!(matches!(read(&deep), Err(ReadError::Syntax { .. })));
    assert!(matches!(read(&format!(r#"{{"x":{deep}"#)), Err(ReadError::Syntax { .. })));
    let closed = format!("{deep}{}", "]".repeat(100_000));
    assert!(read(&format!(r#"{{"x":{closed},"inputs":[]}}"#)).is_ok(), "unknown keys are skipped without recursion");
    assert!(matches!(read(&format!(r#"{{"parameters":{{"x":{closed}}}}}"#)), Err(ReadError::TooDeep { .. })));
    assert!(matches!(input(&format!(r#""datatype":"INT8","data":{deep}"#)), Err(ReadError::TooDeep { .. })));
    let shape = vec!["1"; 100].join(",");
    assert!(matches!(input(&format!(r#""shape":[{shape}]"#)), Err(ReadError::TooDeep { .. })));
}

#[test]
fn a_declared_shape_reserves_no_more_than_the_text_can_hold() {
    let text = "[1,2,3]";
    assert_eq!(capacity(Some(&[1 << 40]), &Cursor::new(text.as_bytes())), 4);
    assert_eq!(capacity(Some(&[3]), &Cursor::new(text.as_bytes())), 3);
    assert_eq!(capacity(Some(&[-1, i64::MAX]), &Cursor::new(text.as_bytes())), 4);
    let long = "1,".repeat(1 << 20);
    assert_eq!(capacity(Some(&[-1]), &Cursor::new(long.as_bytes())), OPEN_CAPACITY);
}

proptest! {
    #[test]
    fn read_request_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_request(&bytes, None);
        let _ = read_request(&bytes, Some(Bytes::copy_from_slice(&bytes)));
    }

    #[test]
    fn read_request_never_panics_on_mutated_requests(at in 0_usize..140, byte in any::<u8>(), cut in 0_usize..140) {
        let mut text = br#"{"id":"q","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1.5,-2e3],[null,4]]}],"outputs":[{"name":"predict"}]}"#.to_vec();
        let length = text.len();
        text[at % length] = byte;
        text.truncate(cut.max(1));
        let _ = read_request(&text, None);
    }

    #[test]
    fn any_json_is_read_as_a_tensor_or_kept(
        data in any_json(),
        datatype in proptest::sample::select(&Datatype::ALL[..]),
        shape in proptest::collection::vec(0..4_i64, 0..3),
        first in any::<bool>(),
    ) {
        let head = format!(r#""shape":{},"datatype":"{datatype}""#, serde_json::to_string(&shape).unwrap());
        let text = serde_json::to_string(&data).unwrap();
        let fields = if first { format!(r#""data":{text},{head}"#) } else { format!(r#"{head},"data":{text}"#) };
        let tensor = read_as_sent(&fields).unwrap();
        let strict = input(&fields);
        match &tensor.data {
            TensorData::Irregular(irregular) => {
                prop_assert_eq!(serde_json::from_slice::<Value>(irregular.json()).unwrap(), data);
                let is_one_value = !text.starts_with('[');
                prop_assert!(strict.is_err() || is_one_value, "{:?}", strict);
                prop_assert!(tensor.check().is_err());
            }
            _ if tensor.check().is_ok() => {
                prop_assert_eq!(Tensor { nested: false, as_sent: None, ..tensor }, strict.unwrap());
            }
            _ => {
                let is_count = matches!(strict, Err(ReadError::Tensor(TensorError::Count { .. })));
                prop_assert!(is_count, "{:?}", strict);
            }
        }
    }

    #[test]
    fn floats_read_as_serde_json_reads(values in proptest::collection::vec(any::<f64>().prop_filter("finite", |v| v.is_finite()), 0..50)) {
        let data = serde_json::to_string(&values).unwrap();
        let tensor = input(&format!(r#""shape":[{}],"datatype":"FP64","data":{data}"#, values.len())).unwrap();
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&tensor.elements::<f64>().unwrap()), bits(&values));
    }
}
