//! The binary tensor data extension over REST: its wire format, and rejected requests.

use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::grpc::{inference_client, raw_request};
use crate::support::python::with_python;
use crate::support::{Answer, Client, Folder, TestServer, deflate, gzip};

const INFER: &str = "/v2/models/echo/infer";
const LENGTH: &str = "inference-header-content-length";

fn echo() -> TestServer {
    TestServer::start(Folder::new().with_identity("echo"))
}

/// Sends JSON followed by binary data.
#[track_caller]
fn post(client: &Client, json: &str, binary: &[u8]) -> Answer {
    let length = json.len().to_string();
    client.post_with(INFER, &[(LENGTH, &length)], [json.as_bytes(), binary].concat())
}

/// Splits a response at the end of its JSON.
#[track_caller]
fn parts(answer: &Answer) -> (&str, &[u8]) {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    let (json, binary) = answer.body.split_at(answer.header(LENGTH).parse().unwrap());
    (std::str::from_utf8(json).unwrap(), binary)
}

#[test]
fn binary_and_json_data_mix_in_requests_and_responses() {
    let request = r#"{"id":"q","parameters":{"binary_data_output":true,"k":1},"inputs":[
        {"name":"a","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4,"content_type":"np"}},
        {"name":"b","shape":[1,2],"datatype":"FP32","data":[[1.5,-2]]},
        {"name":"c","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":9}},
        {"name":"d","shape":[0],"datatype":"FP16","parameters":{"binary_data_size":0}}],
        "outputs":[{"name":"c","parameters":{"binary_data":false}},{"name":"b","parameters":{"binary_data":true}},
        {"name":"a"},{"name":"d"}]}"#;
    let server = echo();
    let answer = post(&server, request, b"\x01\0\x02\0\x01\0\0\0x\0\0\0\0");
    assert_eq!(answer.header("ce-id"), "q");
    let (json, binary) = parts(&answer);
    let expected = concat!(
        r#"{"model_name":"echo","id":"q","parameters":{"k":1},"outputs":["#,
        r#"{"name":"c","shape":[2],"datatype":"BYTES","data":["x",""]},"#,
        r#"{"name":"b","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},"#,
        r#"{"name":"a","shape":[2],"datatype":"INT16","parameters":{"content_type":"np","binary_data_size":4}},"#,
        r#"{"name":"d","shape":[0],"datatype":"FP16","parameters":{"binary_data_size":0}}]}"#
    );
    assert_eq!(json, expected);
    assert_eq!(binary, b"\0\0\xc0\x3f\0\0\0\xc0\x01\0\x02\0");
}

#[test]
fn binary_output_only_on_request() {
    let server = echo();
    let input = r#"{"name":"x","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}}"#;
    for outputs in
        ["", r#","outputs":[{"name":"x"}]"#, r#","outputs":[{"name":"x","parameters":{"binary_data":false}}]"#]
    {
        let answer = post(&server, &format!(r#"{{"inputs":[{input}]{outputs}}}"#), &[7, 8]);
        assert_eq!((answer.header("content-type"), answer.header(LENGTH)), ("application/json", ""), "{outputs}");
        assert_eq!(answer.ok()["outputs"][0], json!({"name": "x", "shape": [2], "datatype": "UINT8", "data": [7, 8]}));
    }
    // The reverse: JSON in, binary data out.
    let request = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"UINT8","data":[9]}],"parameters":{"binary_data_output":true}}"#;
    assert_eq!(parts(&server.post(INFER, request)).1, [9]);
    // Events are text.
    let events = server.post("/v2/models/echo/infer_stream", request);
    assert!(events.text().contains(r#""data":[9]"#), "{}", events.text());
}

#[test]
fn binary_unaligned_data_reaches_a_native_model() {
    let server = TestServer::start(Folder::iris());
    let row = [6.2_f32, 2.8, 4.8, 1.8].map(f32::to_le_bytes).concat();
    // Spaces move the data over every alignment.
    for spaces in 0..4 {
        let request = format!(
            r#"{}{{"inputs":[{{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{{"binary_data_size":16}}}}]}}"#,
            " ".repeat(spaces)
        );
        let length = request.len().to_string();
        let body = [request.as_bytes(), &row].concat();
        let answer = server.post_with("/v2/models/iris-xgboost/infer", &[(LENGTH, &length)], body);
        assert_eq!(answer.ok()["outputs"][0]["data"], json!([2]));
    }
}

#[test]
fn binary_compression_covers_json_and_data() {
    let server = echo();
    let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let request = format!(
        r#"{{"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"x","shape":[-1],"datatype":"UINT32","parameters":{{"binary_data_size":{}}}}}]}}"#,
        data.len()
    );
    let length = request.len().to_string();
    let body = [request.as_bytes(), &data].concat();
    for (encoding, body) in [("gzip", gzip(&body)), ("deflate", deflate(&body)), ("identity", body)] {
        // The default client would decompress the response.
        let mut connection = server.connect();
        let size = body.len();
        connection.write(format!(
            "POST {INFER} HTTP/1.1\r\nhost: test\r\n{LENGTH}: {length}\r\ncontent-encoding: {encoding}\r\n\
             accept-encoding: gzip\r\ncontent-length: {size}\r\n\r\n"
        ));
        connection.write(body);
        let mut answer = connection.answer();
        assert_eq!(answer.header("content-encoding"), "gzip");
        let mut body = Vec::new();
        GzDecoder::new(answer.body.as_slice()).read_to_end(&mut body).unwrap();
        answer.body = body;
        let (json, binary) = parts(&answer);
        assert_eq!(serde_json::from_str::<Value>(json).unwrap()["outputs"][0]["shape"], json!([200_000]));
        assert!(binary == data, "{encoding}");
    }
}

#[test]
fn binary_long_tensor_is_not_copied() {
    let server = echo();
    let size = 32 << 20;
    let request = format!(
        r#"{{"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"x","shape":[{size}],"datatype":"INT8","parameters":{{"binary_data_size":{size}}}}}]}}"#,
    );
    let before = server.peak_memory();
    let answer = post(&server, &request, &vec![5; size]);
    assert_eq!(parts(&answer).1.len(), size);
    let grown = server.peak_memory() - before;
    // Unchanged, and in one piece.
    let twice = u64::try_from(2 * size / 1024).unwrap();
    assert!(grown < twice + twice / 4, "{grown} KiB");
}

// ------------------------------------------------------------------------------------------------------------ refused

/// Returns one input with the given shape, datatype and parameters.
fn input(shape: &str, datatype: &str, parameters: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","parameters":{{{parameters}}}}}]}}"#)
}

#[track_caller]
fn assert_still_serves(server: &TestServer) {
    post(server, &input("[2]", "UINT8", r#""binary_data_size":2"#), &[1, 2]).ok();
}

#[test]
fn binary_wrong_header_length_is_rejected() {
    let server = echo();
    let json = input("[2]", "UINT8", r#""binary_data_size":2"#);
    let length = json.len();
    let body = [json.as_bytes(), &[1, 2]].concat();
    let mut shown = String::new();
    let beyond = body.len() + 1;
    let lengths = [
        String::new(),
        "two".to_owned(),
        "-1".to_owned(),
        format!("+{length}"),
        format!("{length}.0"),
        format!("0x{length:x}"),
        "18446744073709551616".to_owned(),
        "9".repeat(1000),
        beyond.to_string(),
        "0".to_owned(),
        (length - 1).to_string(),
        (length + 1).to_string(),
    ];
    for header in &lengths {
        let answer = server.post_with(INFER, &[(LENGTH, header)], &body);
        let header: String = header.chars().take(30).collect();
        writeln!(shown, "{header}: {} {}", answer.status, answer.error(answer.status)).unwrap();
    }
    let length = length.to_string();
    let answer = server.post_with(INFER, &[(LENGTH, &length), (LENGTH, &length)], &body);
    writeln!(shown, "twice: {} {}", answer.status, answer.error(answer.status)).unwrap();
    let answer = server.post(INFER, &body);
    writeln!(shown, "absent: {} {}", answer.status, answer.error(answer.status)).unwrap();
    insta::assert_snapshot!(shown, @r#"
    : 400 the header `inference-header-content-length` is ``, expected one number: the bytes of JSON before the binary data
    two: 400 the header `inference-header-content-length` is `two`, expected one number: the bytes of JSON before the binary data
    -1: 400 the header `inference-header-content-length` is `-1`, expected one number: the bytes of JSON before the binary data
    +92: 400 the header `inference-header-content-length` is `+92`, expected one number: the bytes of JSON before the binary data
    92.0: 400 the header `inference-header-content-length` is `92.0`, expected one number: the bytes of JSON before the binary data
    0x5c: 400 the header `inference-header-content-length` is `0x5c`, expected one number: the bytes of JSON before the binary data
    18446744073709551616: 400 the header `inference-header-content-length` is `18446744073709551616`, expected one number: the bytes of JSON before the binary data
    999999999999999999999999999999: 400 the header `inference-header-content-length` is `9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999`, expected one number: the bytes of JSON before the binary data
    95: 400 the header `inference-header-content-length` is 95, but the body has 94 bytes
    0: 422 invalid JSON at byte 0: expected a JSON value
    91: 422 invalid JSON at byte 91: expected `,` or `}`
    93: 400 input `x`: `binary_data_size` is 2, but 1 bytes of binary data are left
    twice: 400 the header `inference-header-content-length` is `92, 92`, expected one number: the bytes of JSON before the binary data
    absent: 400 input `x` has a `binary_data_size`, but the whole body is JSON: set the header `inference-header-content-length` to the length of the JSON
    "#);
    server.post_with(INFER, &[(LENGTH, &length)], &body).ok();
}

/// Sends each request followed by the same eight bytes, and lists the responses.
fn refusals(cases: &[String]) -> String {
    let server = echo();
    let mut shown = String::new();
    for json in cases {
        let answer = post(&server, json, &[1, 0, 0, 0, 3, 0, 0, 0]);
        writeln!(shown, "{json}\n  {} {}", answer.status, answer.error(answer.status)).unwrap();
    }
    assert_still_serves(&server);
    shown
}

/// Returns an input of eight bytes with one part replaced.
fn with(from: &str, to: &str) -> String {
    let good = input("[8]", "UINT8", r#""binary_data_size":8"#);
    assert!(good.contains(from), "{from}");
    good.replace(from, to)
}

#[test]
fn binary_wrong_sizes_are_rejected() {
    let size = |value: &str| with(":8}", &format!(":{value}}}"));
    let two = |first: &str, second: &str| {
        let tensor = |name: &str, size: &str| {
            format!(r#"{{"name":"{name}","shape":[4],"datatype":"UINT8","parameters":{{"binary_data_size":{size}}}}}"#)
        };
        format!(r#"{{"inputs":[{},{}]}}"#, tensor("a", first), tensor("b", second))
    };
    let cases = [
        size("-8"),
        size("8.0"),
        size("\"8\""),
        size("true"),
        size("null"),
        with(r#""binary_data_size":8"#, ""),
        size("9"),
        size("18446744073709551615"),
        size("99999999999999999999"),
        size("7"),
        with("[8]", "[7]").replace(":8}", ":7}"),
        with(r#""name""#, r#""data":[1],"name""#),
        two("8", "8"),
        two("4", "5"),
        two("4", "3"),
        two("0", "8"),
        with(r#"{"inputs""#, r#"{"outputs":[{"name":"x","parameters":{"binary_data":1}}],"inputs""#),
        with(r#"{"inputs""#, r#"{"parameters":{"binary_data_output":"yes"},"inputs""#),
    ];
    insta::assert_snapshot!(refusals(&cases), @r#"
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":-8}}]}
      422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":8.0}}]}
      422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":"8"}}]}
      422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":true}}]}
      422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":null}}]}
      422 `inputs[0].data` is required
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{}}]}
      422 `inputs[0].data` is required
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":9}}]}
      400 input `x`: `binary_data_size` is 9, but 8 bytes of binary data are left
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":18446744073709551615}}]}
      400 input `x`: `binary_data_size` is 18446744073709551615, but 8 bytes of binary data are left
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":99999999999999999999}}]}
      422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
    {"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":7}}]}
      400 tensor `x` of shape [8] needs 8 elements, but 7 were given
    {"inputs":[{"name":"x","shape":[7],"datatype":"UINT8","parameters":{"binary_data_size":7}}]}
      400 1 bytes of binary data belong to no input: check each `binary_data_size`
    {"inputs":[{"data":[1],"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 input `x` has both `data` and `binary_data_size`: send one of them
    {"inputs":[{"name":"a","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":8}},{"name":"b","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 tensor `a` of shape [4] needs 4 elements, but 8 were given
    {"inputs":[{"name":"a","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":4}},{"name":"b","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":5}}]}
      400 input `b`: `binary_data_size` is 5, but 4 bytes of binary data are left
    {"inputs":[{"name":"a","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":4}},{"name":"b","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":3}}]}
      400 tensor `b` of shape [4] needs 4 elements, but 3 were given
    {"inputs":[{"name":"a","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":0}},{"name":"b","shape":[4],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 tensor `a` of shape [4] needs 4 elements, but 0 were given
    {"outputs":[{"name":"x","parameters":{"binary_data":1}}],"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      422 `outputs[0].parameters.binary_data`: expected true or false
    {"parameters":{"binary_data_output":"yes"},"inputs":[{"name":"x","shape":[8],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      422 `parameters.binary_data_output`: expected true or false
    "#);
    let without_header = echo().post(INFER, with("UINT8", "INT8")).error(400);
    let expected = "input `x` has a `binary_data_size`, but the whole body is JSON";
    assert!(without_header.starts_with(expected), "{without_header}");
}

#[test]
fn binary_bytes_that_do_not_fit_the_tensor_are_rejected() {
    let sized = |shape: &str, datatype: &str| with("[8]", shape).replace("UINT8", datatype);
    let cases = [
        sized("[7]", "UINT8"),
        sized("[4]", "FP32"),
        sized("[-1,3]", "FP16"),
        sized("[-1,0]", "FP16"),
        sized("[1,4]", "FP16").replace(":8}", ":7}"),
        sized("[]", "INT8"),
        sized("[9223372036854775807,2]", "UINT8"),
        sized("[9223372036854775807,4]", "UINT8"),
        sized("[-2]", "UINT8"),
        sized("[8]", "INT4"),
        with(r#""shape":[8],"#, ""),
        sized("[8]", "BOOL"),
        sized("[2]", "BYTES"),
        sized("[1]", "BYTES"),
    ];
    insta::assert_snapshot!(refusals(&cases), @r#"
    {"inputs":[{"name":"x","shape":[7],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 tensor `x` of shape [7] needs 7 elements, but 8 were given
    {"inputs":[{"name":"x","shape":[4],"datatype":"FP32","parameters":{"binary_data_size":8}}]}
      400 tensor `x` of shape [4] needs 4 elements, but 2 were given
    {"inputs":[{"name":"x","shape":[-1,3],"datatype":"FP16","parameters":{"binary_data_size":8}}]}
      400 input `x`: the shape [-1, 3] cannot be inferred from 4 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"inputs":[{"name":"x","shape":[-1,0],"datatype":"FP16","parameters":{"binary_data_size":8}}]}
      400 input `x`: the shape [-1, 0] cannot be inferred from 4 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"inputs":[{"name":"x","shape":[1,4],"datatype":"FP16","parameters":{"binary_data_size":7}}]}
      400 tensor `x` is FP16, but its 7 bytes are not a multiple of 2
    {"inputs":[{"name":"x","shape":[],"datatype":"INT8","parameters":{"binary_data_size":8}}]}
      400 tensor `x` of shape [] needs 1 elements, but 8 were given
    {"inputs":[{"name":"x","shape":[9223372036854775807,2],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 tensor `x` of shape [9223372036854775807, 2] needs 18446744073709551614 elements, but 8 were given
    {"inputs":[{"name":"x","shape":[9223372036854775807,4],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 the shape [9223372036854775807, 4] of tensor `x` has more elements than memory can address
    {"inputs":[{"name":"x","shape":[-2],"datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      400 input `x`: the shape [-2] cannot be inferred from 8 elements: use at most one -1, and dimensions whose product divides the number of elements
    {"inputs":[{"name":"x","shape":[8],"datatype":"INT4","parameters":{"binary_data_size":8}}]}
      422 `inputs[0].datatype`: unknown datatype `INT4`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES
    {"inputs":[{"name":"x","datatype":"UINT8","parameters":{"binary_data_size":8}}]}
      422 `inputs[0].shape` is required
    {"inputs":[{"name":"x","shape":[8],"datatype":"BOOL","parameters":{"binary_data_size":8}}]}
      400 tensor `x`: element 4 is the byte 3, but a BOOL is 0 or 1
    {"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":8}}]}
      400 tensor `x`: BYTES element 1 needs 4 bytes, but 3 are left
    {"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":8}}]}
      400 tensor `x`: BYTES element 1 needs 4 bytes, but 3 are left
    "#);
}

#[test]
fn binary_declared_sizes_allocate_no_memory() {
    let settings = json!({"http_max_body_bytes": 1 << 20});
    let server = TestServer::start(Folder::new().with_identity("echo").settings(&settings));
    let before = server.peak_memory();
    for (shape, datatype, size) in [
        ("[1000000000000]", "FP64", "8000000000000"),
        ("[1000000000000]", "FP64", "8"),
        ("[1000000000000]", "BYTES", "8"),
        ("[1]", "BYTES", "8"),
        ("[0,1000000000000]", "BYTES", "8"),
    ] {
        let json = input(shape, datatype, &format!(r#""binary_data_size":{size}"#));
        post(&server, &json, &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]).error(400);
    }
    let bomb = gzip(&vec![0; 200 << 20]);
    let headers = [(LENGTH, "2"), ("content-encoding", "gzip")];
    server.post_with(INFER, &headers, &bomb).error(413);
    let grown = server.peak_memory() - before;
    assert!(grown < 8 * 1024, "{grown} KiB");
    assert_still_serves(&server);
}

/// A model in Python.
const COUNTS: &str = "
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Counts(MLModel):
    async def predict(self, payload):
        count = len(payload.inputs[0].data.root)
        return InferenceResponse(outputs=[ResponseOutput(name='n', shape=[1], datatype='INT64', data=[count])])
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_contents_of_a_wrong_length_are_invalid_over_every_protocol_for_every_model() {
    let model = |name: &str, more: Value| {
        let mut settings = json!({"name": name, "implementation": "models.Counts"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings.to_string()
    };
    let folder = Folder::iris()
        .with_identity("echo")
        .file("python/models.py", COUNTS)
        .file("python/model-settings.json", model("python", json!({})))
        .file("batched/models.py", COUNTS)
        .file("batched/model-settings.json", model("batched", json!({"max_batch_size": 4, "max_batch_time": 0.01})));
    let Some(builder) = with_python(folder) else { return };
    let server = builder.start();
    let mut client = inference_client(server.grpc).await;
    // Datatype, shape and contents.
    let cases: [(&str, &[i64], &[u8]); 27] = [
        ("FP32", &[2], &[0; 4]),
        ("FP32", &[2], &[0; 7]),
        ("FP32", &[2], &[0; 9]),
        ("FP32", &[2], &[0; 12]),
        ("FP32", &[2], &[]),
        ("FP32", &[1, 4], &[0; 12]),
        ("FP32", &[4], &[0; 1]),
        ("FP32", &[], &[0; 8]),
        ("FP32", &[0], &[0; 4]),
        ("FP32", &[-1], &[0; 5]),
        ("FP32", &[-1, 3], &[0; 16]),
        ("FP32", &[2, -1], &[0; 12]),
        ("FP32", &[-1, -1], &[0; 8]),
        ("FP32", &[-2], &[0; 8]),
        ("FP32", &[i64::MAX, 2], &[0; 8]),
        ("FP32", &[i64::MIN], &[0; 8]),
        ("FP16", &[2], &[0; 3]),
        ("INT64", &[1], &[0; 4]),
        ("UINT8", &[3], &[0; 2]),
        ("BOOL", &[3], &[0; 4]),
        ("BYTES", &[1], &[1, 0, 0]),
        ("BYTES", &[1], b"\x05\0\0\0a"),
        ("BYTES", &[1], b"\xff\xff\xff\xffa"),
        ("BYTES", &[2], b"\x01\0\0\0a"),
        ("BYTES", &[1], b"\x01\0\0\0ab"),
        ("BYTES", &[1], b"\x01\0\0\0a\x01\0\0\0b"),
        ("BYTES", &[-1, 2], b"\x01\0\0\0a"),
    ];
    for name in ["echo", "iris-xgboost", "python", "batched"] {
        for (datatype, shape, bytes) in cases {
            let size = bytes.len();
            let json = input(&json!(shape).to_string(), datatype, &format!(r#""binary_data_size":{size}"#));
            let length = json.len().to_string();
            let body = [json.as_bytes(), bytes].concat();
            let answer = server.post_with(&format!("/v2/models/{name}/infer"), &[(LENGTH, &length)], body);
            assert_eq!(answer.status, 400, "{name} {json}: {}", answer.text());
            let status = client.model_infer(raw_request(name, datatype, shape, bytes.to_vec())).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{name} {datatype} {shape:?} {bytes:?}: {status}");
        }
        // Sizes that are not those of the body, and contents that belong to no input.
        let tensor = |size: usize| input("[4]", "FP32", &format!(r#""binary_data_size":{size}"#));
        for (json, bytes) in [(tensor(20), 16), (tensor(16), 20), (tensor(16), 12)] {
            let length = json.len().to_string();
            let body = [json.as_bytes(), &vec![0; bytes]].concat();
            let answer = server.post_with(&format!("/v2/models/{name}/infer"), &[(LENGTH, &length)], body);
            assert_eq!(answer.status, 400, "{name} {json}: {}", answer.text());
        }
        let request = raw_request(name, "FP32", &[1, 4], vec![0; 16]);
        for contents in [0, 2, 3] {
            let mut request = request.clone();
            request.raw_input_contents = vec![vec![0; 16].into(); contents];
            let status = client.model_infer(request).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{name} {contents}: {status}");
        }
        let mut two = request.clone();
        two.inputs.push(two.inputs[0].clone());
        let status = client.model_infer(two).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
        client.model_infer(request).await.unwrap();
    }
}
