//! Invalid requests: each is answered with a clear 4xx, and the next valid request works.

use std::fmt::Write as _;

use serde_json::json;

use crate::support::{Client, Folder, TestServer, gzip};

const INFER: &str = "/v2/models/iris-xgboost/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

/// How much memory a rejected request may leave allocated, in KiB. Far below the sizes that the requests declare.
const LITTLE: u64 = 8 * 1024;

#[track_caller]
fn assert_still_serves(server: &TestServer) {
    assert_eq!(server.post(INFER, ONE_ROW).ok()["outputs"][0]["data"], json!([2]));
}

/// Returns the valid request with one part replaced.
fn with(from: &str, to: &str) -> String {
    assert!(ONE_ROW.contains(from), "{from}");
    ONE_ROW.replace(from, to)
}

#[test]
fn malformed_json_answers_422_with_position() {
    let server = TestServer::iris();
    let mut shown = String::new();
    let cases: [&[u8]; 23] = [
        b"",
        b" ",
        b"{",
        b"{]",
        b"nope",
        b"null",
        b"[]",
        b"7",
        b"\"text\"",
        b"{\"inputs\":[]}}",
        b"{\"inputs\":[]} {}",
        b"{\"inputs\":[],}",
        b"{inputs:[]}",
        b"{'inputs':[]}",
        b"{\"inputs\" []}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1,]}]}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[01]}]}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[+1]}]}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1.]}]}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[NaN]}]}",
        b"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[Infinity]}]}",
        b"{\"id\":\"\\ud800\",\"inputs\":[]}",
        b"{\"id\":\"\xff\xfe\",\"inputs\":[]}",
    ];
    for body in cases {
        let answer = server.post(INFER, body);
        writeln!(shown, "{} -> {} {}", String::from_utf8_lossy(body), answer.status, answer.error(answer.status))
            .unwrap();
    }
    insta::assert_snapshot!(shown, @r#"
     -> 422 invalid JSON at byte 0: expected a JSON value
      -> 422 invalid JSON at byte 1: expected a JSON value
    { -> 422 invalid JSON at byte 1: expected a key in double quotes
    {] -> 422 invalid JSON at byte 1: expected a key in double quotes
    nope -> 422 invalid JSON at byte 0: expected a JSON value
    null -> 422 `request`: expected a JSON object
    [] -> 422 `request`: expected a JSON object
    7 -> 422 `request`: expected a JSON object
    "text" -> 422 `request`: expected a JSON object
    {"inputs":[]}} -> 422 invalid JSON at byte 13: expected the end of the request
    {"inputs":[]} {} -> 422 invalid JSON at byte 14: expected the end of the request
    {"inputs":[],} -> 422 invalid JSON at byte 13: expected a key in double quotes
    {inputs:[]} -> 422 invalid JSON at byte 1: expected a key in double quotes
    {'inputs':[]} -> 422 invalid JSON at byte 1: expected a key in double quotes
    {"inputs" []} -> 422 invalid JSON at byte 10: expected `:` after the key
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1,]}]} -> 422 invalid JSON at byte 63: expected a JSON value
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[01]}]} -> 422 invalid JSON at byte 61: expected a JSON value
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[+1]}]} -> 422 invalid JSON at byte 61: expected a JSON value
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1.]}]} -> 422 invalid JSON at byte 61: expected a JSON value
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]} -> 422 invalid JSON at byte 61: expected a JSON value
    {"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[Infinity]}]} -> 422 invalid JSON at byte 61: expected a JSON value
    {"id":"\ud800","inputs":[]} -> 422 invalid JSON at byte 7: expected a valid string
    {"id":"��","inputs":[]} -> 422 invalid JSON at byte 7: expected UTF-8
    "#);
    assert_still_serves(&server);
}

#[test]
fn wrong_fields_answer_422_with_name() {
    let server = TestServer::iris();
    let mut shown = String::new();
    let cases = [
        r"{}".to_owned(),
        r#"{"inputs":null}"#.to_owned(),
        r#"{"inputs":{}}"#.to_owned(),
        r#"{"inputs":[1]}"#.to_owned(),
        r#"{"inputs":[{}]}"#.to_owned(),
        with(r#""name":"x","#, ""),
        with(r#""shape":[1,4],"#, ""),
        with(r#""datatype":"FP32","#, ""),
        with(r#","data":[6.2,2.8,4.8,1.8]"#, ""),
        with(r#""name":"x""#, r#""name":7"#),
        with("[1,4]", "4"),
        with("[1,4]", r#"["a",4]"#),
        with("[1,4]", "[1,2.5]"),
        with("[1,4]", "[1,null]"),
        with("[1,4]", "[1,99999999999999999999]"),
        with("\"FP32\"", "\"fp32\""),
        with("\"FP32\"", "\"FP128\""),
        with("\"FP32\"", "7"),
        with(r#"{"inputs""#, r#"{"id":7,"inputs""#),
        with(r#"{"inputs""#, r#"{"parameters":[],"inputs""#),
        with(r#"{"inputs""#, r#"{"outputs":{},"inputs""#),
        with(r#"{"inputs""#, r#"{"outputs":[{}],"inputs""#),
        with(r#"{"inputs""#, r#"{"outputs":[{"name":1}],"inputs""#),
        with(r#""datatype""#, r#""parameters":"np","datatype""#),
    ];
    for body in &cases {
        let answer = server.post(INFER, body);
        writeln!(shown, "{body} -> {} {}", answer.status, answer.error(answer.status)).unwrap();
    }
    insta::assert_snapshot!(shown, @r#"
    {} -> 422 `inputs` is required
    {"inputs":null} -> 422 `inputs`: expected an array
    {"inputs":{}} -> 422 `inputs`: expected an array
    {"inputs":[1]} -> 422 `inputs[0]`: expected an object
    {"inputs":[{}]} -> 422 `inputs[0].datatype` is required
    {"inputs":[{"shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].name` is required
    {"inputs":[{"name":"x","datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape` is required
    {"inputs":[{"name":"x","shape":[1,4],"data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].datatype` is required
    {"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32"}]} -> 422 `inputs[0].data` is required
    {"inputs":[{"name":7,"shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].name`: expected a string
    {"inputs":[{"name":"x","shape":4,"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape`: expected an array of integers
    {"inputs":[{"name":"x","shape":["a",4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape[0]`: expected an integer
    {"inputs":[{"name":"x","shape":[1,2.5],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape[1]`: expected an integer
    {"inputs":[{"name":"x","shape":[1,null],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape[1]`: expected an integer
    {"inputs":[{"name":"x","shape":[1,99999999999999999999],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].shape[1]`: expected an integer
    {"inputs":[{"name":"x","shape":[1,4],"datatype":"fp32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].datatype`: unknown datatype `fp32`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES
    {"inputs":[{"name":"x","shape":[1,4],"datatype":"FP128","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].datatype`: unknown datatype `FP128`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES
    {"inputs":[{"name":"x","shape":[1,4],"datatype":7,"data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].datatype`: expected a string
    {"id":7,"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `id`: expected a string
    {"parameters":[],"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `parameters`: expected an object or null
    {"outputs":{},"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `outputs`: expected an array
    {"outputs":[{}],"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `outputs[0].name` is required
    {"outputs":[{"name":1}],"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `outputs[0].name`: expected a string
    {"inputs":[{"name":"x","shape":[1,4],"parameters":"np","datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 422 `inputs[0].parameters`: expected an object or null
    "#);
    assert_still_serves(&server);
}

#[test]
fn inconsistent_data_answers_400_with_position() {
    let server = TestServer::iris();
    let mut shown = String::new();
    let data = "[6.2,2.8,4.8,1.8]";
    let typed = |datatype: &str, data: &str| {
        format!(r#"{{"inputs":[{{"name":"x","shape":[1,4],"datatype":"{datatype}","data":{data}}}]}}"#)
    };
    let cases = [
        with("[1,4]", "[2,4]"),
        with("[1,4]", "[4]"),
        with("[1,4]", "[]"),
        with("[1,4]", "[1,2,2]"),
        with("[1,4]", "[4,1]"),
        with("[1,4]", "[-1,3]"),
        with("[1,4]", "[-1,-1]"),
        with("[1,4]", "[-2,4]"),
        with("[1,4]", "[0,4]"),
        with(data, "[]"),
        with(data, "null"),
        with(data, "7"),
        with(data, "\"text\""),
        with(data, "{}"),
        with(data, "[1,2,3,{}]"),
        with(data, "[1,2,3,[4]]"),
        with(data, "[[1,2],[3]]"),
        with(data, "[[1],[2,3,4]]"),
        with(data, r#"[1,2,3,"four"]"#),
        with(data, "[1,2,3,true,5]"),
        typed("FP32", "[1,2,3,1e39]"),
        typed("FP64", "[1,2,3,1e400]"),
        typed("FP16", "[1,2,3,70000]"),
        typed("UINT8", "[1,2,3,256]"),
        typed("UINT8", "[1,2,3,-1]"),
        typed("INT8", "[1,2,3,128]"),
        typed("UINT64", "[1,2,3,18446744073709551616]"),
        typed("INT64", "[1,2,3,9223372036854775808]"),
        typed("INT32", "[1,2,3,2.5]"),
        typed("INT32", "[1,2,3,null]"),
        typed("BOOL", "[true,false,true,2]"),
        typed("BYTES", r#"["a","b","c","d"]"#),
        typed("BYTES", "[1,2,3,4]"),
        r#"{"inputs":[]}"#.to_owned(),
    ];
    for body in &cases {
        let answer = server.post(INFER, body);
        assert!([400, 422].contains(&answer.status), "{body}: {answer:?}");
        writeln!(shown, "{} -> {} {}", &body[11..], answer.status, answer.error(answer.status)).unwrap();
    }
    insta::assert_snapshot!(shown, @r#"
    {"name":"x","shape":[2,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 tensor `x` of shape [2, 4] needs 8 elements, but 4 were given
    {"name":"x","shape":[4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x` has the shape [4], but this model expects [rows, 4]
    {"name":"x","shape":[],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 tensor `x` of shape [] needs 1 elements, but 4 were given
    {"name":"x","shape":[1,2,2],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x` has the shape [1, 2, 2], but this model expects [rows, 4]
    {"name":"x","shape":[4,1],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x` has the shape [4, 1], but this model expects [rows, 4]
    {"name":"x","shape":[-1,3],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x`: the shape [-1, 3] cannot be inferred from 4 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"name":"x","shape":[-1,-1],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x`: the shape [-1, -1] cannot be inferred from 4 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"name":"x","shape":[-2,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 input `x`: the shape [-2, 4] cannot be inferred from 4 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"name":"x","shape":[0,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]} -> 400 tensor `x` of shape [0, 4] needs 0 elements, but 4 were given
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[]}]} -> 400 tensor `x` of shape [1, 4] needs 4 elements, but 0 were given
    {"name":"x","shape":[1,4],"datatype":"FP32","data":null}]} -> 400 tensor `x` of shape [1, 4] needs 4 elements, but 1 were given
    {"name":"x","shape":[1,4],"datatype":"FP32","data":7}]} -> 400 tensor `x` of shape [1, 4] needs 4 elements, but 1 were given
    {"name":"x","shape":[1,4],"datatype":"FP32","data":"text"}]} -> 400 input `x`: element 0 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP32","data":{}}]} -> 400 input `x`: element 0 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,{}]}]} -> 400 input `x`: element 3 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,[4]]}]} -> 400 input `x`: ragged data at element 3: all arrays of one level must have the same length
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[[1,2],[3]]}]} -> 400 input `x`: ragged data at element 3: all arrays of one level must have the same length
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[[1],[2,3,4]]}]} -> 400 input `x`: ragged data at element 4: all arrays of one level must have the same length
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,"four"]}]} -> 400 input `x`: element 3 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,true,5]}]} -> 400 input `x`: element 3 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,1e39]}]} -> 400 input `x`: element 3 is not a valid FP32: expected a number up to 3.4028235e38, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP64","data":[1,2,3,1e400]}]} -> 400 input `x`: element 3 is not a valid FP64: expected a number up to 1.7976931348623157e308, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"FP16","data":[1,2,3,70000]}]} -> 400 input `x`: element 3 is not a valid FP16: expected a number up to 65504, or null for NaN
    {"name":"x","shape":[1,4],"datatype":"UINT8","data":[1,2,3,256]}]} -> 400 input `x`: element 3 is not a valid UINT8: expected an integer from 0 to 255
    {"name":"x","shape":[1,4],"datatype":"UINT8","data":[1,2,3,-1]}]} -> 400 input `x`: element 3 is not a valid UINT8: expected an integer from 0 to 255
    {"name":"x","shape":[1,4],"datatype":"INT8","data":[1,2,3,128]}]} -> 400 input `x`: element 3 is not a valid INT8: expected an integer from -128 to 127
    {"name":"x","shape":[1,4],"datatype":"UINT64","data":[1,2,3,18446744073709551616]}]} -> 400 input `x`: element 3 is not a valid UINT64: expected an integer from 0 to 18446744073709551615
    {"name":"x","shape":[1,4],"datatype":"INT64","data":[1,2,3,9223372036854775808]}]} -> 400 input `x`: element 3 is not a valid INT64: expected an integer from -9223372036854775808 to 9223372036854775807
    {"name":"x","shape":[1,4],"datatype":"INT32","data":[1,2,3,2.5]}]} -> 400 input `x`: element 3 is not a valid INT32: expected an integer from -2147483648 to 2147483647
    {"name":"x","shape":[1,4],"datatype":"INT32","data":[1,2,3,null]}]} -> 400 input `x`: element 3 is not a valid INT32: expected an integer from -2147483648 to 2147483647
    {"name":"x","shape":[1,4],"datatype":"BOOL","data":[true,false,true,2]}]} -> 400 input `x`: element 3 is not a valid BOOL: expected true, false, 1 or 0
    {"name":"x","shape":[1,4],"datatype":"BYTES","data":["a","b","c","d"]}]} -> 400 input `x` is BYTES, but this model expects numbers
    {"name":"x","shape":[1,4],"datatype":"BYTES","data":[1,2,3,4]}]} -> 400 input `x`: element 0 is not a valid BYTES: expected a string
    ]} -> 400 the request has no inputs: send one tensor of shape [rows, columns] in `inputs`, or with the content type `pd` one for each column
    "#);
    assert_still_serves(&server);
}

#[test]
fn declared_sizes_allocate_no_memory() {
    let server = TestServer::iris();
    assert_still_serves(&server);
    let before = server.peak_memory();
    for shape in [
        "[4294967296,4294967296]",
        "[9223372036854775807]",
        "[9223372036854775807,9223372036854775807,4]",
        "[1000000000,4]",
        "[1,4000000000]",
        "[-1,4000000000000000000]",
        "[0,9223372036854775807,9223372036854775807]",
    ] {
        for datatype in ["FP64", "FP32", "BYTES", "UINT8"] {
            let body = with("[1,4]", shape).replace("FP32", datatype);
            let answer = server.post(INFER, &body);
            answer.error(400);
            // Data before the shape is parsed in another way.
            let body =
                format!(r#"{{"inputs":[{{"data":[1,2,3,4],"shape":{shape},"datatype":"{datatype}","name":"x"}}]}}"#);
            server.post(INFER, &body).error(400);
        }
    }
    let grown = server.peak_memory() - before;
    assert!(grown < LITTLE, "{grown} KiB");
    assert_still_serves(&server);
}

#[test]
fn empty_tensor_of_any_shape_allocates_no_memory() {
    let server = TestServer::iris();
    assert_still_serves(&server);
    let before = server.peak_memory();
    for shape in ["[1000000000000,0]", "[0,1000000000000]", "[9223372036854775807,0]"] {
        let body = with("[1,4]", shape).replace("[6.2,2.8,4.8,1.8]", "[]");
        server.post(INFER, body).error(400);
    }
    let frame = r#"{"parameters":{"content_type":"pd"},"inputs":[]}"#;
    server.post(INFER, frame).error(400);
    let grown = server.peak_memory() - before;
    assert!(grown < LITTLE, "{grown} KiB");
    assert_still_serves(&server);
}

#[test]
fn many_small_values_take_memory_in_proportion() {
    // What a body of 1 MiB may take, in KiB.
    const MOST: u64 = 100 * 1024;
    let fill = |start: &str, part: &str, end: &str| {
        let mut body = start.to_owned();
        while body.len() + part.len() + end.len() < 1 << 20 {
            body.push_str(part);
        }
        body.truncate(body.trim_end_matches(',').len());
        body + end
    };
    let inputs = |part: &str| fill("{\"inputs\":[", part, "]}");
    let data = |datatype: &str, part: &str| {
        let start = format!("{{\"inputs\":[{{\"name\":\"x\",\"shape\":[-1],\"datatype\":\"{datatype}\",\"data\":[");
        fill(&start, part, "]}]}")
    };
    let parameters =
        |part: &str| fill("{\"inputs\":[],\"parameters\":{\"a\":[", part, "]}}")[..].replacen("[],", "[ ],", 1);
    let bodies = [
        inputs(r#"{"name":"","shape":[-1],"datatype":"FP64","data":[1]},"#),
        inputs(r#"{"name":"","shape":[-1],"datatype":"BYTES","data":[""]},"#),
        inputs(r#"{"name":"","data":[1],"shape":[-1],"datatype":"FP64"},"#),
        inputs(r#"{"name":"","shape":[1],"datatype":"INT8","parameters":{"a":1},"data":1},"#),
        data("FP64", "1,"),
        data("BYTES", "\"\","),
        parameters("0,"),
        parameters("[],"),
        parameters("{},"),
        parameters(r#"{"":0},"#),
        fill("{\"outputs\":[", r#"{"name":""},"#, "],\"inputs\":[]}"),
    ];
    for body in bodies {
        let server = TestServer::iris();
        assert_still_serves(&server);
        let before = server.peak_memory();
        let answer = server.post(INFER, &body);
        assert!([400, 413].contains(&answer.status), "{}", answer.text());
        let grown = server.peak_memory() - before;
        assert!(grown < MOST, "{grown} KiB for {} bytes: {body:.80}", body.len());
        assert_still_serves(&server);
    }
}

#[test]
fn long_parameters_answer_413() {
    let server = TestServer::iris();
    let parameters = |length: usize| {
        server
            .post(INFER, with(r#"{"inputs""#, &format!(r#"{{"parameters":{{"a":"{}"}},"inputs""#, "x".repeat(length))))
    };
    parameters((1 << 20) - 100).ok();
    let wanted =
        "the parameters of the request are longer than 1048576 bytes of JSON in total: send long data as an input";
    assert_eq!(parameters(1 << 20).error(413), wanted);
    assert_still_serves(&server);
}

#[test]
fn deep_nesting_is_rejected_everywhere() {
    let server = TestServer::iris();
    let depth = 100_000;
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let (arrays, objects) = (nested("[", "]"), nested("{\"a\":", "}"));
    let unclosed = "[".repeat(1_000_000);
    for deep in [&arrays, &objects, &unclosed] {
        let cases = [
            deep.clone(),
            with("[6.2,2.8,4.8,1.8]", deep),
            with("[1,4]", deep),
            with(r#""datatype""#, &format!(r#""parameters":{{"a":{deep}}},"datatype""#)),
            with(r#"{"inputs""#, &format!(r#"{{"parameters":{{"a":{deep}}},"inputs""#)),
            with(r#"{"inputs""#, &format!(r#"{{"outputs":{deep},"inputs""#)),
            format!(r#"{{"inputs":[{{"data":{deep},"name":"x","shape":[1,4],"datatype":"FP32"}}]}}"#),
        ];
        for body in &cases {
            let answer = server.post(INFER, body);
            assert!([400, 422].contains(&answer.status), "{answer:?}");
            let error = answer.error(answer.status);
            assert!(error.len() < 300, "an error that echoes the request: {error}");
        }
        // Ignored values are skipped without recursion.
        let ignored = with(r#"{"inputs""#, &format!(r#"{{"unknown":{deep},"inputs""#));
        let expected = if deep == &unclosed { 422 } else { 200 };
        assert_eq!(server.post(INFER, ignored).status, expected);
    }
    assert_still_serves(&server);
}

#[test]
fn many_small_fields_take_linear_time() {
    let server = TestServer::iris();
    let inputs = vec![r#"{"name":"x","shape":[1],"datatype":"FP32","data":[1]}"#; 20_000].join(",");
    server.post(INFER, format!(r#"{{"inputs":[{inputs}]}}"#)).error(400);
    let frame = format!(r#"{{"parameters":{{"content_type":"pd"}},"inputs":[{inputs}]}}"#);
    assert_eq!(server.post(INFER, frame).error(400), "column `x` occurs twice");
    let dimensions = vec!["1"; 100_000].join(",");
    server.post(INFER, with("[1,4]", &format!("[{dimensions}]"))).error(422);
    let outputs = vec![r#"{"name":"predict"}"#; 20_000].join(",");
    let many = server.post(INFER, with("]}]}", &format!(r#"]}}],"outputs":[{outputs}]}}"#)));
    let wanted =
        "20000 outputs are requested, of which `predict` more than once, but the model has 2: request each once";
    assert_eq!(many.error(400), wanted);
    let escapes = "\\u0061".repeat(200_000);
    let long_id = server.post(INFER, with(r#"{"inputs""#, &format!(r#"{{"id":"{escapes}","inputs""#)));
    assert_eq!(long_id.ok()["id"].as_str().unwrap().len(), 200_000);
    assert!(!long_id.headers.contains_key("ce-id"), "clients refuse long headers");
    let keys = (0..50_000).map(|index| format!(r#""k{index}":"\u0061","#)).collect::<Vec<_>>().concat();
    server.post(INFER, with(r#"{"inputs""#, &format!(r#"{{{keys}"inputs""#))).ok();
    assert_still_serves(&server);
}

#[test]
fn names_and_ids_cannot_inject_log_lines() {
    let server = TestServer::start(Folder::iris().settings(&json!({"debug": true})));
    let forged = "2026-01-01 00:00:00,000 [mlserver] INFO - forged";
    let body = json!({"id": format!("x\n{forged}"), "inputs": []}).to_string();
    server.post(INFER, body).error(400);
    let body = json!({"inputs": [{"name": format!("x\r\n{forged}"), "shape": [1, 4], "datatype": "BYTES", "data": ["a", "b", "c", "d"]}]});
    server.post(INFER, body.to_string()).error(400);
    server.post(&format!("/v2/models/{}/infer", "a%0A2026-01-01"), ONE_ROW).error(404);
    assert_still_serves(&server);
    let ended = server.terminate();
    assert!(ended.stdout.lines().all(|line| !line.starts_with("2026-01-01")), "{}", ended.stdout);
}

// -------------------------------------------------------------------------------------------------------- HTTP

#[test]
fn malformed_http_is_rejected() {
    let server = TestServer::iris();
    let long = "a".repeat(1_000_000);
    let many = (0..1000).map(|index| format!("x-{index}: 1\r\n")).collect::<Vec<_>>().concat();
    let cases = [
        "garbage\r\n\r\n".to_owned(),
        "\0\0\0\0\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET /v2 HTTP/9.9\r\n\r\n".to_owned(),
        "GET /v2 HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
        "GET /v2 HTTP/1.1\r\nhost: a\r\nb\u{1}: c\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nhost: test\r\n\r\n"),
        format!("GET /v2 HTTP/1.1\r\nhost: test\r\nx: {long}\r\n\r\n"),
        format!("GET /v2 HTTP/1.1\r\nhost: test\r\n{many}\r\n"),
        format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: -1\r\n\r\n"),
        format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: ten\r\n\r\n"),
        format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{ONE_ROW}"),
        format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: nothing\r\n\r\n{ONE_ROW}"),
    ];
    for request in &cases {
        let mut connection = server.connect();
        connection.write_if_taken(request);
        let answer = connection.rest();
        let status = answer.get(..12).unwrap_or_default();
        assert!(status.is_empty() || status.starts_with("HTTP/1.1 4"), "{request:.60}: {answer}");
        assert_still_serves(&server);
    }
}

#[test]
fn malformed_chunks_answer_400() {
    let server = TestServer::iris();
    for chunks in ["zz\r\nabc\r\n", "-1\r\nabc\r\n", "5\r\nab\r\n0\r\n\r\n", "ffffffffffffffffff\r\nabc\r\n"] {
        let mut connection = server.connect();
        connection.write(format!(
            "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        ));
        connection.finish();
        let answer = connection.rest();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_still_serves(&server);
    }
}

#[test]
fn truncated_body_answers_400() {
    let server = TestServer::iris();
    let mut connection = server.connect();
    let length = ONE_ROW.len() + 10;
    connection.write(format!(
        "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{ONE_ROW}"
    ));
    connection.finish();
    let answer = connection.rest();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_still_serves(&server);
}

#[test]
fn slow_head_times_out() {
    // Long enough for a client that is slow only because the machine is busy.
    let server = TestServer::start(Folder::iris().settings(&json!({"http_header_timeout": 0.5})));
    let mut connection = server.connect();
    connection.write("GET /v2 HTTP/1.1\r\nhost:");
    let answer = connection.rest();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // The connection of `server`'s own client was idle for as long, and is closed as well.
    assert_eq!(Client::new(server.http).post(INFER, ONE_ROW).ok()["outputs"][0]["data"], json!([2]));
}

#[test]
fn disconnected_clients_leak_nothing() {
    let server = TestServer::start(Folder::iris().settings(&json!({"max_in_flight": 2})));
    let rows = 2000;
    let numbers = vec!["1.5"; rows * 4].join(",");
    let large = format!(r#"{{"inputs":[{{"name":"x","shape":[{rows},4],"datatype":"FP32","data":[{numbers}]}}]}}"#);
    for _ in 0..20 {
        // Before the request, within its head, within its body, and before the response.
        drop(server.connect());
        server.connect().write("POST /v2/models");
        server.connect().start_upload(INFER, 1000);
        let mut upload = server.connect();
        upload.start_upload(INFER, large.len());
        upload.write(&large);
    }
    // Their permits are released: two requests at a time are still admitted.
    let answered = (0..10_000).any(|_| server.post(INFER, ONE_ROW).status == 200);
    assert!(answered);
    assert_eq!(server.terminate().code, Some(0));
}

#[test]
fn odd_paths_are_rejected() {
    let server = TestServer::iris();
    for path in ["/v2/models/%ff/infer", "/v2/models/%/infer", "/v2/models/%zz/infer", "/v2/models/%00/infer"] {
        let mut connection = server.connect();
        let length = ONE_ROW.len();
        connection.write(format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{ONE_ROW}"));
        let answer = connection.answer();
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        answer.error(answer.status);
    }
    server.get("/v2/models/../../etc/passwd").error(404);
    server.get("/v2/models/..%2F..%2Fetc%2Fpasswd").error(404);
    let error = server.get("/v2/models/iris-xgboost?model_version=%ff").error(404);
    assert_eq!(error, "Model iris-xgboost with version \u{fffd} not found");
    assert_still_serves(&server);
}

#[test]
fn hostile_gzip_is_rejected() {
    let server = TestServer::iris();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let good = gzip(ONE_ROW.as_bytes());
    for length in 0..good.len() {
        server.post_with(INFER, &headers, &good[..length]).error(400);
    }
    for position in 0..good.len() {
        let mut flipped = good.clone();
        flipped[position] ^= 0x55;
        let answer = server.post_with(INFER, &headers, &flipped);
        assert!([200, 400, 422].contains(&answer.status), "{answer:?}");
    }
    // Several gzip members form one text.
    let (first, second) = ONE_ROW.split_at(40);
    let members: Vec<u8> = [first, second].iter().flat_map(|part| gzip(part.as_bytes())).collect();
    server.post_with(INFER, &headers, members).ok();
    assert_still_serves(&server);
}

#[test]
fn good_clients_are_served_among_broken_ones() {
    let server = TestServer::iris();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..25 {
                    match client % 4 {
                        0 => drop(server.post(INFER, "{").error(422)),
                        1 => server.connect().write("POST / HTTP"),
                        2 => drop(server.post("/v2/models/nope/infer", ONE_ROW).error(404)),
                        _ => assert_still_serves(server),
                    }
                }
            });
        }
    });
    assert_still_serves(&server);
}

#[test]
fn body_may_begin_with_a_byte_order_mark_and_other_encodings_are_named() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    let v2 = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let v1 = r#"{"instances":[1]}"#;
    for (path, body) in [("/v2/models/m/infer", v2), ("/v1/models/m:predict", v1), ("/v2/repository/index", "{}")] {
        server.post(path, format!("\u{feff}{body}")).ok();
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let answer = server.post(path, wide);
        let error = answer.error(answer.status);
        assert!(
            [400, 422].contains(&answer.status) && error.ends_with("it is UTF-16 text: save it as UTF-8"),
            "{path}: {error}"
        );
    }
}
