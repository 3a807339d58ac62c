//! Compares the encoding of frames with the files in `tests/fixtures/frames`: frames of the server are written, frames of
//! workers are read.
//!
//! `python/tests/test_worker.py` checks the other end against the same files.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::frame::{Frame, FrameKind, OutgoingFrame, PROTOCOL};
use super::message::{
    self, CreditHead, ErrorHead, ExpositionHead, FailureKind, HelloHead, LoadHead, LoadedHead, MessageError,
    MetricsHead, PongHead, ReadyHead, StreamHead,
};
use crate::telemetry::exposition::{self, Family, Merge, Sample};
use crate::types::{
    BytesElements, CustomCall, CustomReply, Datatype, InferenceRequest, InferenceResponse, Parameters, RequestedOutput,
    Tensor, TensorData, TokenUsage,
};

const LOAD: u64 = 0x100;
const PREDICT: u64 = 0x201;
const CALL: u64 = 0x302;
const STREAM: u64 = 0x403;
const PING: u64 = 0x504;
const CANCELLED: u64 = 0x605;
const UNLOAD: u64 = 0x706;
const ASK: u64 = 0x807;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/frames")
}

fn parameters(value: &Value) -> Parameters {
    Parameters::from(value.as_object().cloned().unwrap_or_default())
}

fn numbers() -> Tensor {
    Tensor {
        name: "numbers".to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![1, 2],
        parameters: parameters(&json!({"content_type": "np"})),
        data: TensorData::Fixed(Bytes::from_static(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0])),
        nested: false,
        as_sent: None,
    }
}

pub(super) fn request() -> InferenceRequest {
    let tensor = |name: &str, datatype, shape: &[usize], data| Tensor {
        name: name.to_owned(),
        datatype,
        shape: shape.to_vec(),
        parameters: Parameters::new(),
        data,
        nested: false,
        as_sent: None,
    };
    let elements = |bytes: &'static [u8], spans: Vec<std::ops::Range<usize>>, text| {
        TensorData::Variable(BytesElements::new(Bytes::from_static(bytes), spans).unwrap().with_text(text))
    };
    let mut headers = HeaderMap::new();
    headers.insert("x-question", HeaderValue::from_static("why"));
    headers.insert("ce-id", HeaderValue::from_static("r1"));
    InferenceRequest {
        id: "r1".to_owned(),
        parameters: parameters(&json!({"content_type": "pd", "extra": [1, null, "ä"]})),
        headers: headers.into(),
        inputs: vec![
            numbers(),
            // Three bytes, which are padded.
            tensor("small", Datatype::Int8, &[3], TensorData::Fixed(Bytes::from_static(&[1, 0xff, 3]))),
            tensor("text", Datatype::Bytes, &[3], elements("aäb".as_bytes(), vec![0..1, 1..1, 1..4], true)),
            tensor("bytes", Datatype::Bytes, &[1], elements(b"\x00\xff", std::iter::once(0..2).collect(), false)),
        ],
        outputs: vec![RequestedOutput {
            name: "numbers".to_owned(),
            parameters: parameters(&json!({"content_type": "np"})),
        }],
        ..InferenceRequest::default()
    }
}

/// The frames that the server sends.
fn server_frames() -> Vec<(&'static str, u64, OutgoingFrame)> {
    let frame = |kind, head: Bytes| OutgoingFrame::new(kind, head).unwrap();
    let logging = json!({"version": 1});
    let hello = HelloHead {
        protocol: PROTOCOL,
        worker: "default-0",
        parent: 4711,
        inline: false,
        debug: true,
        logging: Some(&logging),
        paths: vec!["/models".into()],
        threads: None,
        memory_limit: None,
    };
    let settings = json!({
        "name": "echo", "implementation": "frame_models.Echo", "platform": "tests",
        "parameters": {"version": "v1", "extra": {"k": [1]}},
        "inputs": [{"name": "numbers", "datatype": "FP32", "shape": [-1, 2], "parameters": {"content_type": "np"}}],
    });
    let mut headers = HeaderMap::new();
    headers.append("x-many", HeaderValue::from_static("a"));
    headers.append("x-many", HeaderValue::from_bytes(b"\xe4").unwrap());
    let call = CustomCall {
        method: Method::PUT,
        path: "/echo/ä b".to_owned(),
        parameters: vec![("name".to_owned(), "ä b".to_owned())],
        query: "q=%31&q=2".to_owned(),
        headers,
        body: Bytes::from_static(b"\x00\xff raw"),
    };
    let item = InferenceRequest { id: "r2".to_owned(), inputs: vec![numbers()], ..InferenceRequest::default() };
    vec![
        ("hello", 0, frame(FrameKind::Hello, message::encode_head(&hello))),
        (
            "load",
            LOAD,
            frame(
                FrameKind::Load,
                message::encode_head(&LoadHead { model: 7, settings: &settings, source: None, artifact: None }),
            ),
        ),
        ("predict", PREDICT, message::request_frame(FrameKind::Predict, Some(7), &request()).unwrap()),
        ("call", CALL, message::call_frame(7, "echo", call, 8).unwrap()),
        (
            "stream",
            STREAM,
            frame(FrameKind::Stream, message::encode_head(&StreamHead { model: 7, request: "r2", credit: 4 })),
        ),
        ("item", STREAM, message::request_frame(FrameKind::Item, None, &item).unwrap()),
        ("credit", STREAM, frame(FrameKind::Credit, message::encode_head(&CreditHead { count: 4 }))),
        ("end", STREAM, OutgoingFrame::empty(FrameKind::End)),
        (
            "ping",
            PING,
            OutgoingFrame::with_tail(FrameKind::Ping, Bytes::new(), vec![Bytes::from_static(b"anything")]).unwrap(),
        ),
        ("cancel", CANCELLED, OutgoingFrame::empty(FrameKind::Cancel)),
        ("unload", UNLOAD, message::unload_frame(7)),
        ("step_answer", ASK, message::step_response_frame(1, &step_response()).unwrap()),
        ("stop", 0, OutgoingFrame::empty(FrameKind::Stop)),
        ("scrape", 0, OutgoingFrame::empty(FrameKind::Scrape)),
    ]
}

fn step_response() -> InferenceResponse {
    let mut headers = HeaderMap::new();
    headers.append("x-step", HeaderValue::from_bytes(b"\xe4").unwrap());
    let parameters = parameters(&json!({"kept": true}));
    let headers = headers.into();
    InferenceResponse { parameters, headers, outputs: vec![numbers()], ..InferenceResponse::default() }
}

fn bytes(id: u64, frame: OutgoingFrame) -> Vec<u8> {
    let (mut whole, mut scratch) = (Vec::new(), BytesMut::new());
    frame.write(id, &mut scratch, |scratch, chunk| {
        whole.extend_from_slice(&scratch.split());
        whole.extend_from_slice(&chunk);
    });
    whole.extend_from_slice(&scratch);
    whole
}

pub(super) fn read(name: &str) -> Frame {
    let mut buffer = BytesMut::from(fs::read(folder().join(format!("{name}.bin"))).unwrap().as_slice());
    let frame = Frame::take(&mut buffer).unwrap().unwrap();
    assert!(buffer.is_empty(), "{name} contains more than one frame");
    frame
}

#[test]
fn server_frames_match_fixtures() {
    let new = std::env::temp_dir().join("mlserver-frames");
    let mut changed = Vec::new();
    for (name, id, frame) in server_frames() {
        let made = bytes(id, frame);
        if made != fs::read(folder().join(format!("{name}.bin"))).unwrap_or_default() {
            fs::create_dir_all(&new).unwrap();
            fs::write(new.join(format!("{name}.bin")), &made).unwrap();
            changed.push(name);
        }
    }
    assert!(changed.is_empty(), "{changed:?} differ; the new frames are in {}", new.display());
}

#[test]
fn worker_frames_are_read_from_fixtures() {
    let ready: ReadyHead = read("ready").read_head().unwrap();
    assert_eq!((ready.protocol, ready.python.as_deref()), (PROTOCOL, Some("3.8.18")));
    assert_eq!(ready.executable, "/usr/bin/python3");

    let frame = read("loaded");
    assert_eq!((frame.kind, frame.id), (FrameKind::Loaded, LOAD));
    let loaded: LoadedHead = frame.read_head().unwrap();
    assert!(loaded.ready && loaded.streams && !loaded.plain && !loaded.own_loop);
    assert_eq!(loaded.threads, 1);
    let [handler] = &loaded.handlers[..] else { unreachable!("{loaded:?}") };
    assert_eq!((handler.name.as_str(), handler.path.as_str()), ("echo", "/echo/{name}"));
    assert_eq!((handler.method.as_str(), handler.plain), ("PUT", false));
    let metadata = loaded.metadata.unwrap();
    assert_eq!((metadata.name.as_str(), metadata.platform.as_str()), ("echo", "tests"));
    assert_eq!(metadata.inputs[0].shape, [-1, 2]);

    let metrics: MetricsHead = read("metrics").read_head().unwrap();
    let expected = ["frames_seen", "Frames that were seen", "echo", "v1"].map(str::to_owned);
    let [name, description, model, version] = expected;
    assert_eq!(metrics.observed, [(name, description, model, version, 0.5)]);

    let exposition: ExpositionHead = read("exposition").read_head().unwrap();
    let [Family { name, help, kind, merge, samples }] = &exposition.families[..] else {
        unreachable!("{exposition:?}")
    };
    assert_eq!((name.as_str(), help.as_str()), ("frames_counted_total", "Frames that were counted"));
    assert_eq!((*kind, *merge), (exposition::MetricKind::Counter, Merge::Sum));
    assert_eq!(samples[..], [Sample(name.clone(), vec![("of".to_owned(), "ä \"b\"".to_owned())], 3.0)]);

    let frame = read("error");
    assert_eq!((frame.kind, frame.id), (FrameKind::Error, CANCELLED));
    let ErrorHead { kind, status, traceback, .. } = frame.read_head().unwrap();
    assert_eq!((kind, status, traceback.as_str()), (FailureKind::Cancelled, 500, ""));

    for (name, kind, id) in
        [("done", FrameKind::Done, UNLOAD), ("yielded", FrameKind::Yielded, CANCELLED), ("pong", FrameKind::Pong, PING)]
    {
        let frame = read(name);
        assert_eq!((frame.kind, frame.id), (kind, id));
        assert_eq!(frame.tail.as_ref(), if kind == FrameKind::Pong { b"anything".as_slice() } else { b"" });
    }
    let pong: PongHead = read("pong").read_head().unwrap();
    assert_eq!(pong.open, [CANCELLED]);
    for (name, kind) in [("credit", FrameKind::Credit), ("end", FrameKind::End)] {
        assert_eq!((read(name).kind, read(name).id), (kind, STREAM));
    }
}

#[test]
fn answer_tensors_round_trip() {
    let frame = read("answer");
    assert_eq!((frame.kind, frame.id), (FrameKind::Answer, PREDICT));
    let answer = message::read_response(&frame).unwrap();
    assert_eq!(answer.headers["x-answer"], "because");
    assert_eq!(answer.parameters, parameters(&json!({"inputs": 4})));
    assert_eq!(answer.outputs.len(), 4);
    for (output, input) in answer.outputs.iter().zip(request().inputs) {
        assert_eq!((&output.name, output.datatype, &output.shape), (&input.name, input.datatype, &input.shape));
        assert_eq!((&output.parameters, &output.data), (&input.parameters, &input.data));
    }
}

#[test]
fn reply_rejects_invalid_http_status_and_headers() {
    let frame = read("reply");
    assert_eq!((frame.kind, frame.id), (FrameKind::Reply, CALL));
    let CustomReply { status, headers, body } = message::read_reply(&frame).unwrap();
    assert_eq!((status.as_u16(), body.as_ref()), (201, b"\x00\xff raw".as_slice()));
    assert_eq!(headers["content-type"], "application/x-raw");
    assert_eq!(headers.get_all("x-seen").iter().map(HeaderValue::as_bytes).collect::<Vec<_>>(), [b"a, \xe4"]);
    let with = |head: &str| Frame { head: Bytes::copy_from_slice(head.as_bytes()), ..frame.clone() };
    for status in ["42", "101", "1000"] {
        let reply = message::read_reply(&with(&format!(r#"{{"status":{status}}}"#)));
        assert!(matches!(reply, Err(MessageError::Status { .. })), "{status}");
    }
    for header in [r#"["a b","c"]"#, r#"["a","b\nc"]"#, r#"["a","€"]"#] {
        let reply = message::read_reply(&with(&format!(r#"{{"status":200,"headers":[{header}]}}"#)));
        assert!(matches!(reply, Err(MessageError::Header { .. })), "{header}");
    }
}

#[test]
fn first_chunk_has_the_head_of_a_reply() {
    let frame = read("chunk");
    assert_eq!((frame.kind, frame.id), (FrameKind::Chunk, CALL));
    let CustomReply { status, headers, body } = message::read_reply(&frame).unwrap();
    assert_eq!((status.as_u16(), &*body), (200, "piece ä".as_bytes()));
    assert_eq!(headers["content-type"], "text/event-stream; charset=utf-8");
    let with = |head: &str| Frame { head: Bytes::copy_from_slice(head.as_bytes()), ..frame.clone() };
    let usage = message::read_usage(&with(r#"{"usage":{"prompt_tokens":3}}"#));
    assert_eq!(usage, Some(TokenUsage { prompt_tokens: 3, completion_tokens: 0 }));
    for none in ["", "{}", r#"{"usage":{"prompt_tokens":-1}}"#, r#"{"usage":1}"#] {
        assert_eq!(message::read_usage(&with(none)), None, "{none}");
    }
}

#[test]
fn step_is_read_with_its_tensors() {
    let frame = read("step");
    assert_eq!((frame.kind, frame.id), (FrameKind::Step, ASK));
    let message::StepRequest { number, model, payload } = message::read_step(&frame).unwrap();
    assert_eq!((number, model.as_str()), (1, "other"));
    let message::StepPayload::Tensors(request) = payload else { unreachable!("{payload:?}") };
    assert_eq!((request.id.as_str(), request.headers["x-asked"].as_bytes()), ("ask", b"\xe4".as_slice()));
    assert_eq!(request.outputs[0].name, "y");
    assert_eq!((request.inputs.len(), request.inputs[0].shape.as_slice()), (1, &[1][..]));
    let with = |head: &str| Frame { head: Bytes::copy_from_slice(head.as_bytes()), ..frame.clone() };
    let v1 = with(r#"{"step":2,"model":"m","v1":true,"headers":[["a","b"]]}"#);
    let message::StepPayload::V1 { headers, body } = message::read_step(&v1).unwrap().payload else { unreachable!() };
    assert_eq!((headers["a"].as_bytes(), body), (b"b".as_slice(), frame.tail.clone()));
    let invalid = with(r#"{"step":3,"model":"m","headers":[["a b","c"]]}"#);
    assert!(message::read_step(&invalid).is_err());
    assert_eq!(message::step_number(&invalid), Some(3));
    assert_eq!(message::step_number(&with("{}")), None);
}

#[test]
fn every_frame_kind_has_a_fixture() {
    let mut kinds: Vec<u8> = fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".bin")?.to_owned()))
        .map(|name| read(&name).kind as u8)
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, (1..=14).chain(64..=75).collect::<Vec<_>>());
}
