//! The matrix of bad input: each fault over each transport is rejected with a clear reason, without allocating memory,
//! and the server keeps working.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;

use prost::Message;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::grpc::{Http2, framed, infer_request, ints, raw_request};
use crate::support::{Connection, Folder, TestServer, gzip};

/// The size limit of bodies and messages, in bytes; a bomb is far larger.
const LIMIT: usize = 1 << 20;

/// How much memory all of the rejected requests may leave allocated, in KiB.
const LITTLE: u64 = 16 * 1024;

/// The endpoints with their own wire format.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Endpoint {
    Json,
    /// JSON of KServe's V1 protocol.
    V1,
    Binary,
    /// JSON in, server-sent events out.
    Events,
    Typed,
    Raw,
    /// A stream of requests over gRPC.
    Stream,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The announced length, in the header or the frame, is greater than the content.
    TooLong,
    /// The announced length is less than the content.
    TooShort,
    /// The announced length is -1, or its unsigned equivalent.
    NegativeLength,
    /// A tensor of -2 elements or bytes, a string of -1, or base64 of a part of a byte.
    NegativeSize,
    UnknownCompression,
    BrokenCompression,
    Bomb,
    /// The message is neither JSON nor protobuf.
    Garbage,
    /// The framing is invalid: the size of a chunk, or the flag of a frame.
    MalformedFrame,
}

const FAULTS: [Fault; 9] = [
    Fault::TooLong,
    Fault::TooShort,
    Fault::NegativeLength,
    Fault::NegativeSize,
    Fault::UnknownCompression,
    Fault::BrokenCompression,
    Fault::Bomb,
    Fault::Garbage,
    Fault::MalformedFrame,
];

/// A request as it is sent, without its path.
struct SentRequest {
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl SentRequest {
    /// Returns whether the server waits for more than is sent.
    fn ends_early(&self) -> bool {
        let announced = self.headers.iter().find(|(name, _)| *name == CONTENT_LENGTH);
        announced.is_some_and(|(_, length)| length.parse().is_ok_and(|length: usize| length > self.body.len()))
    }

    fn set(&mut self, name: &'static str, value: impl Display) {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_string()));
    }
}

const CONTENT_LENGTH: &str = "content-length";
const JSON_LENGTH: &str = "inference-header-content-length";

impl Endpoint {
    const ALL: [Self; 7] = [Self::Json, Self::V1, Self::Binary, Self::Events, Self::Typed, Self::Raw, Self::Stream];

    const fn is_rest(self) -> bool {
        matches!(self, Self::Json | Self::V1 | Self::Binary | Self::Events)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Json | Self::Binary => "/v2/models/echo/infer",
            Self::V1 => "/v1/models/echo:predict",
            Self::Events => "/v2/models/echo/infer_stream",
            Self::Typed | Self::Raw => "/inference.GRPCInferenceService/ModelInfer",
            Self::Stream => "/inference.GRPCInferenceService/ModelStreamInfer",
        }
    }

    /// Returns a valid request of two elements.
    fn good(self) -> SentRequest {
        self.request(2, 2)
    }

    /// Returns a request whose tensor of two elements may declare another size.
    fn request(self, shape: i64, size: i64) -> SentRequest {
        let mut input = json!({"name": "x", "shape": [shape], "datatype": "UINT8"});
        let (mut binary, mut length) = (Vec::new(), None);
        if self == Self::Binary {
            input["parameters"] = json!({"binary_data_size": size});
            binary = vec![1, 2];
        } else {
            input["data"] = json!([1, 2]);
        }
        let body = match self {
            Self::Json | Self::Binary | Self::Events => {
                let text = json!({"inputs": [input]}).to_string();
                length = Some(text.len());
                [text.as_bytes(), &binary].concat()
            }
            Self::V1 if size < 0 => br#"{"instances": [{"b64": "a"}]}"#.to_vec(),
            Self::V1 => br#"{"instances": [1, 2]}"#.to_vec(),
            Self::Typed | Self::Stream => {
                framed(0, &infer_request("echo", "UINT8", &[shape], ints(&[1, 2])).encode_to_vec())
            }
            // A string after its length in four bytes.
            Self::Raw => {
                let length = i32::try_from(size).unwrap().to_le_bytes();
                framed(0, &raw_request("echo", "BYTES", &[1], [&length, b"ab".as_slice()].concat()).encode_to_vec())
            }
        };
        let mut sent = SentRequest { headers: Vec::new(), body };
        if self.is_rest() {
            sent.set(CONTENT_LENGTH, sent.body.len());
        }
        if let (Self::Binary, Some(length)) = (self, length) {
            sent.set(JSON_LENGTH, length);
        }
        sent
    }

    fn bad(self, fault: Fault) -> SentRequest {
        let mut sent = self.good();
        match fault {
            Fault::TooLong => self.announce(&mut sent, |length| length + 3),
            Fault::TooShort => self.announce(&mut sent, |length| length - 1),
            Fault::NegativeLength if self.is_rest() => sent.set(self.length_header(), "-1"),
            Fault::NegativeLength => sent.body[1..5].fill(0xff),
            Fault::NegativeSize if self == Self::Raw => sent = self.request(1, -1),
            Fault::NegativeSize if matches!(self, Self::Binary | Self::V1) => sent = self.request(2, -2),
            Fault::NegativeSize => sent = self.request(-2, 2),
            Fault::UnknownCompression => self.compress(&mut sent, "br", <[u8]>::to_vec),
            Fault::BrokenCompression => self.compress(&mut sent, "gzip", |message| {
                let mut compressed = gzip(message);
                compressed.truncate(compressed.len() - 10);
                compressed
            }),
            Fault::Bomb => self.compress(&mut sent, "gzip", |_| gzip(&vec![0; 64 * LIMIT])),
            Fault::Garbage if self.is_rest() => sent.body[..8].copy_from_slice(b"{\xff\0garba"),
            Fault::Garbage => sent.body[5..13].copy_from_slice(b"{\xff\0garba"),
            Fault::MalformedFrame if self.is_rest() => {
                sent.headers.retain(|(name, _)| *name != CONTENT_LENGTH);
                sent.set("transfer-encoding", "chunked");
                sent.body.splice(..0, *b"-1\r\n");
            }
            Fault::MalformedFrame => sent.body[0] = 7,
        }
        sent
    }

    /// Returns the name of the header that announces a length.
    const fn length_header(self) -> &'static str {
        if matches!(self, Self::Binary) { JSON_LENGTH } else { CONTENT_LENGTH }
    }

    /// Replaces the announced length.
    fn announce(self, sent: &mut SentRequest, change: impl Fn(usize) -> usize) {
        if self.is_rest() {
            let name = self.length_header();
            let length = sent.headers.iter().find(|(known, _)| *known == name).unwrap().1.parse().unwrap();
            sent.set(name, change(length));
        } else {
            let length = u32::try_from(change(sent.body.len() - 5)).unwrap();
            sent.body[1..5].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn compress(self, sent: &mut SentRequest, encoding: &str, compress: impl Fn(&[u8]) -> Vec<u8>) {
        if self.is_rest() {
            sent.body = compress(&sent.body);
            sent.set("content-encoding", encoding);
            sent.set(CONTENT_LENGTH, sent.body.len());
        } else {
            sent.body = framed(1, &compress(&sent.body[5..]));
            sent.set("grpc-encoding", encoding);
        }
    }
}

/// A server and a connection to its gRPC listener, which must survive everything that is sent over it.
struct Harness {
    server: TestServer,
    runtime: Runtime,
    http2: Http2,
}

impl Harness {
    fn new() -> Self {
        let settings = json!({"http_max_body_bytes": LIMIT, "grpc_max_message_length": LIMIT});
        let server = TestServer::start(Folder::new().with_identity("echo").settings(&settings));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let http2 = runtime.block_on(Http2::connect(server.grpc));
        Self { server, runtime, http2 }
    }

    /// Sends a request and returns its status or code, and its error message.
    fn ask(&self, endpoint: Endpoint, sent: &SentRequest) -> (i32, String) {
        if endpoint.is_rest() {
            let mut connection = self.server.connect();
            let mut head = format!("POST {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n", endpoint.path());
            for (name, value) in &sent.headers {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
            connection.write(head + "\r\n");
            connection.write_if_taken(&sent.body);
            if sent.ends_early() {
                connection.finish();
            }
            let answer = connection.rest();
            let Some((head, body)) = answer.split_once("\r\n\r\n") else {
                assert!(answer.is_empty() && sent.ends_early(), "no answer: {answer:?}");
                return (0, "the connection is closed".to_owned());
            };
            let status = head["HTTP/1.1 ".len()..][..3].parse().unwrap();
            if status == 200 {
                return (status, String::new());
            }
            let failure: Value = serde_json::from_str(body).unwrap_or_default();
            (status, failure["error"].as_str().unwrap_or_default().to_owned())
        } else {
            let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            self.runtime.block_on(self.http2.call(endpoint.path(), &headers, &sent.body)).end()
        }
    }
}

#[test]
fn every_fault_over_every_transport_is_rejected() {
    let harness = Harness::new();
    let assert_serves = |endpoint: Endpoint| {
        let expected = if endpoint.is_rest() { 200 } else { 0 };
        assert_eq!(harness.ask(endpoint, &endpoint.good()), (expected, String::new()), "{endpoint:?}");
    };
    Endpoint::ALL.into_iter().for_each(assert_serves);
    let before = harness.server.peak_memory();
    let mut shown = String::new();
    for fault in FAULTS {
        writeln!(shown, "{fault:?}").unwrap();
        for endpoint in Endpoint::ALL {
            let (status, error) = harness.ask(endpoint, &endpoint.bad(fault));
            let error = if error.is_empty() { "(nothing)" } else { &error };
            writeln!(shown, "  {endpoint:?}: {status} {error}").unwrap();
            assert_serves(endpoint);
        }
    }
    insta::assert_snapshot!(shown, @r#"
    TooLong
      Json: 400 the body ended early: error reading a body from connection
      V1: 400 the body ended early: error reading a body from connection
      Binary: 400 the header `inference-header-content-length` is 95, but the body has 94 bytes
      Events: 400 the body ended early: error reading a body from connection
      Typed: 3 the message ended early: expected 30 bytes, received 27
      Raw: 3 the message ended early: expected 34 bytes, received 31
      Stream: 3 the message ended early: expected 30 bytes, received 27
    TooShort
      Json: 422 invalid JSON at byte 68: expected `,` or `}`
      V1: 400 Unrecognized request format: invalid JSON at byte 20: expected `,` or `}`
      Binary: 422 invalid JSON at byte 91: expected `,` or `}`
      Events: 422 invalid JSON at byte 68: expected `,` or `}`
      Typed: 3 expected one message, received more
      Raw: 3 expected one message, received more
      Stream: 3 invalid message at byte 8: 19 bytes are declared, but 18 are left
    NegativeLength
      Json: 400 (nothing)
      V1: 400 (nothing)
      Binary: 400 the header `inference-header-content-length` is `-1`, expected one number: the bytes of JSON before the binary data
      Events: 400 (nothing)
      Typed: 8 the message has 4294967295 bytes, more than the 1048576 that the setting `grpc_max_message_length` allows
      Raw: 8 the message has 4294967295 bytes, more than the 1048576 that the setting `grpc_max_message_length` allows
      Stream: 8 the message has 4294967295 bytes, more than the 1048576 that the setting `grpc_max_message_length` allows
    NegativeSize
      Json: 400 input `x`: the shape [-2] cannot be inferred from 2 elements: use at most one -1, and dimensions whose product divides the number of elements
      V1: 400 "instances": "b64" of element 0 is not base64
      Binary: 422 `inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more
      Events: 400 input `x`: the shape [-2] cannot be inferred from 2 elements: use at most one -1, and dimensions whose product divides the number of elements
      Typed: 3 input `x`: the shape [-2] cannot be inferred from 2 elements: use at most one -1, and dimensions whose product divides the number of elements
      Raw: 3 tensor `x`: BYTES element 0 needs 4294967295 bytes, but 2 are left
      Stream: 3 input `x`: the shape [-2] cannot be inferred from 2 elements: use at most one -1, and dimensions whose product divides the number of elements
    UnknownCompression
      Json: 415 the content encoding `br` is not supported: send gzip, deflate or none
      V1: 415 the content encoding `br` is not supported: send gzip, deflate or none
      Binary: 415 the content encoding `br` is not supported: send gzip, deflate or none
      Events: 415 the content encoding `br` is not supported: send gzip, deflate or none
      Typed: 12 the compression `br` is not supported: send gzip, deflate or identity
      Raw: 12 the compression `br` is not supported: send gzip, deflate or identity
      Stream: 12 the compression `br` is not supported: send gzip, deflate or identity
    BrokenCompression
      Json: 400 the body is not valid gzip: incomplete deflate stream
      V1: 400 the body is not valid gzip: incomplete deflate stream
      Binary: 400 the body is not valid gzip: incomplete deflate stream
      Events: 400 the body is not valid gzip: incomplete deflate stream
      Typed: 3 the message is not valid gzip: incomplete deflate stream
      Raw: 3 the message is not valid gzip: incomplete deflate stream
      Stream: 3 the message is not valid gzip: incomplete deflate stream
    Bomb
      Json: 413 the body is larger than 1048576 bytes (setting `http_max_body_bytes`)
      V1: 413 the body is larger than 1048576 bytes (setting `http_max_body_bytes`)
      Binary: 413 the body is larger than 1048576 bytes (setting `http_max_body_bytes`)
      Events: 413 the body is larger than 1048576 bytes (setting `http_max_body_bytes`)
      Typed: 8 the decompressed message has more than the 1048576 bytes that the setting `grpc_max_message_length` allows
      Raw: 8 the decompressed message has more than the 1048576 bytes that the setting `grpc_max_message_length` allows
      Stream: 8 the decompressed message has more than the 1048576 bytes that the setting `grpc_max_message_length` allows
    Garbage
      Json: 422 invalid JSON at byte 1: expected a key in double quotes
      V1: 400 Unrecognized request format: invalid JSON at byte 1: expected a key in double quotes
      Binary: 422 invalid JSON at byte 1: expected a key in double quotes
      Events: 422 invalid JSON at byte 1: expected a key in double quotes
      Typed: 3 invalid message at byte 0: expected a field of a known wire type
      Raw: 3 invalid message at byte 0: expected a field of a known wire type
      Stream: 3 invalid message at byte 0: expected a field of a known wire type
    MalformedFrame
      Json: 400 the body ended early: error reading a body from connection
      V1: 400 the body ended early: error reading a body from connection
      Binary: 400 the body ended early: error reading a body from connection
      Events: 400 the body ended early: error reading a body from connection
      Typed: 3 the compressed flag is 7, expected 0 or 1
      Raw: 3 the compressed flag is 7, expected 0 or 1
      Stream: 3 the compressed flag is 7, expected 0 or 1
    "#);
    let grown = harness.server.peak_memory() - before;
    assert!(grown < LITTLE, "{grown} KiB");
}

// -------------------------------------------------------------------------------------------------------------- HTTP/2

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field of a head in HPACK, without compression.
fn field(name: &str, value: &str) -> Vec<u8> {
    let sizes = [name.len(), value.len()].map(|size| u8::try_from(size).unwrap());
    [&[0, sizes[0]], name.as_bytes(), &[sizes[1]], value.as_bytes()].concat()
}

/// The fields of a call.
fn fields() -> Vec<u8> {
    let fields = [
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":path", Endpoint::Typed.path()),
        field(":authority", "test"),
        field("content-type", "application/grpc"),
    ];
    fields.concat()
}

/// The head of an unfinished call.
fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, 4, stream, &fields())
}

#[test]
fn malformed_http2_ends_only_its_connection() {
    let harness = Harness::new();
    let settings = frame(SETTINGS, 0, 0, b"");
    let started = [PREFACE, &settings].concat();
    let after = |bytes: &[u8]| [&started, bytes].concat();
    let resets = (0..5000).flat_map(|index| {
        let stream = 2 * index + 1;
        [head(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    let continuations = frame(CONTINUATION, 0, 1, &[0x40; 1000]).repeat(5000);
    let cases: [(&str, Vec<u8>); 14] = [
        ("half a preface", PREFACE[..10].to_vec()),
        ("another preface", b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("no settings", [PREFACE, &frame(PING, 0, 0, &[0; 8])].concat()),
        ("settings of a wrong length", [PREFACE, &frame(SETTINGS, 0, 0, &[0; 5])].concat()),
        ("a frame that ends early", after(&frame(DATA, 0, 1, &[0; 100])[..50])),
        ("a frame of 16 MiB", after(b"\xff\xff\xff\0\0\0\0\0\x01")),
        ("data of no stream", after(&frame(DATA, 0, 0, b"data"))),
        ("data of a stream that is not open", after(&frame(DATA, 0, 1, b"data"))),
        ("a head that is no HPACK", after(&frame(HEADERS, 4, 1, &[0xff; 20]))),
        ("a head on an even stream", after(&head(2))),
        ("a window beyond 2 GiB", after(&frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]))),
        ("a ping of a wrong length", after(&frame(PING, 0, 0, b"ping"))),
        ("a head without end", after(&[frame(HEADERS, 0, 1, &[0x40; 100]), continuations].concat())),
        ("streams that are reset at once", after(&resets.collect::<Vec<_>>())),
    ];
    let before = harness.server.peak_memory();
    for (name, bytes) in cases {
        for address in [harness.server.grpc, harness.server.http] {
            end(address, &bytes);
            for endpoint in [Endpoint::Json, Endpoint::Typed] {
                let status = harness.ask(endpoint, &endpoint.good()).0;
                assert_eq!(status, if endpoint.is_rest() { 200 } else { 0 }, "after {name}, over {endpoint:?}");
            }
        }
    }
    let grown = harness.server.peak_memory() - before;
    assert!(grown < LITTLE, "{grown} KiB");
}

#[test]
fn http2_head_has_at_most_seven_frames() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    // A frame of 16 KiB, which clients may send before they have read the settings.
    let more = field("x", &"a".repeat(124)).repeat(128);
    let start = [PREFACE, &frame(SETTINGS, 0, 0, b""), &frame(HEADERS, 1, 1, &fields())].concat();
    let start = [start, frame(CONTINUATION, 0, 1, &more).repeat(5)].concat();
    let send = |address: SocketAddr, flags: u8| {
        let mut connection = Connection::open(address);
        connection.write([start.as_slice(), &frame(CONTINUATION, flags, 1, &more)].concat());
        connection
    };
    let answer = payload(&mut send(server.http, 4), DATA);
    assert_eq!(
        String::from_utf8(answer).unwrap(),
        r#"{"error":"this message has 769 headers, more than the limit of 96"}"#
    );
    // If more was sent, the server might reset the connection before the reason arrives.
    for address in [server.http, server.grpc] {
        let reason = payload(&mut send(address, 0), GOAWAY).split_off(4);
        assert_eq!(reason, b"\0\0\0\x0btoo_many_continuations");
    }
}

/// Reads frames up to one of this type, and returns its payload.
fn payload(connection: &mut Connection, kind: u8) -> Vec<u8> {
    loop {
        let head = connection.exactly(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = connection.exactly(length.try_into().unwrap());
        if head[3] == kind {
            return payload;
        }
    }
}

/// Sends bytes and reads until the server closes the connection, which it must.
fn end(address: SocketAddr, bytes: &[u8]) {
    let mut connection = Connection::open(address);
    connection.write_if_taken(bytes);
    connection.finish();
    connection.rest_bytes();
}
