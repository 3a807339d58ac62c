//! The content of frames: requests and responses with their tensors, models, failures.

mod error;
mod tensors;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

pub(super) use self::error::MessageError;
pub(super) use self::tensors::{
    ReceivedTensor, Sender, TensorHead, decode_tensor, decode_tensor_from, encode_tensor, encode_tensor_into,
};
use super::frame::{Frame, FrameError, FrameKind, OutgoingFrame};
use crate::compute::LONG_WORK;
use crate::runtimes::Explanation;
use crate::telemetry::exposition::Family;
use crate::types::{
    CustomCall, CustomReply, InferenceRequest, InferenceResponse, ModelMetadata, OpenAiApi, Parameters,
    RequestedOutput, Tensor, TensorData, TensorRule, TokenUsage, V1Verb,
};

/// The maximum number of headers of a response. A map of headers cannot hold more than 24,576.
const MAX_HEADERS: usize = 1024;

/// The head of `load`.
#[derive(Debug, Serialize)]
pub(super) struct LoadHead<'a> {
    pub(super) model: u64,
    pub(super) settings: &'a Value,
    pub(super) source: Option<&'a str>,
    /// The file or folder of a model that is evaluated natively.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) artifact: Option<&'a str>,
}

/// The head of `hello`.
#[derive(Debug, Serialize)]
pub(super) struct HelloHead<'a> {
    pub(super) protocol: u32,
    pub(super) worker: &'a str,
    pub(super) parent: u32,
    pub(super) inline: bool,
    pub(super) debug: bool,
    /// A configuration of Python's `logging`, or the path of a file with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logging: Option<&'a Value>,
    pub(super) paths: Vec<Cow<'a, str>>,
    /// How many native predictions run at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threads: Option<usize>,
    /// The most memory that the process may allocate, in bytes, if that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_limit: Option<u64>,
}

/// The head of `ready`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadyHead {
    pub(super) protocol: u32,
    /// The version of a native worker's executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The version of Python, if the worker has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) python: Option<String>,
    pub(super) executable: String,
}

/// The head of `loaded`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LoadedHead {
    /// The return value of the model's `load`.
    pub(super) ready: bool,
    /// Whether the model implements `predict_stream`.
    pub(super) streams: bool,
    /// Whether `predict` is a plain function, which runs on a thread of its own.
    pub(super) plain: bool,
    /// How many plain functions of the model run at the same time.
    pub(super) threads: usize,
    /// Whether the model's coroutines run on an event loop of their own, beside that of the worker.
    pub(super) own_loop: bool,
    #[serde(default)]
    pub(super) handlers: Vec<HandlerInfo>,
    /// The models that it asks with `ask` frames.
    #[serde(default)]
    pub(super) steps: Vec<String>,
    /// Whether it passes requests on to other servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) asks_servers: bool,
    /// What the model itself declares. Native models may leave that to the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<ModelMetadata>,
    /// The name, the version, and whether several requests may have the rows of one: of a model that the worker has found at a
    /// location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batches: Option<bool>,
    /// The names of the features of a row, if the file of such a model has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) features: Option<Arc<[String]>>,
    /// What the worker says of a model that it evaluates natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) native: Option<NativeHead>,
}

/// The properties of a native model that its [`Description`](crate::runtimes::Description) has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NativeHead {
    pub(super) tensor_rule: TensorRule,
    pub(super) reads_headers: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) explanation: Option<Explanation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_batched: Option<String>,
}

/// A method of the model that handles a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HandlerInfo {
    pub(super) name: String,
    pub(super) path: String,
    /// The HTTP method, in upper case.
    pub(super) method: String,
    /// Whether it is a plain function, which runs on a thread of its own.
    pub(super) plain: bool,
    /// The verb of KServe's V1 protocol that it handles, if any. Such a handler is not one of the model's own routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) v1: Option<V1Verb>,
    /// The endpoint of OpenAI's API that it handles, if any. Nor is such a handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) openai: Option<OpenAiApi>,
}

impl HandlerInfo {
    /// Reports whether it is one of the model's own routes.
    pub(super) const fn is_route(&self) -> bool {
        self.v1.is_none() && self.openai.is_none()
    }
}

/// The head of `call`.
#[derive(Debug, Serialize)]
struct CallHead<'a> {
    model: u64,
    handler: &'a str,
    method: &'a str,
    path: &'a str,
    #[serde(serialize_with = "pairs_as_map")]
    path_params: &'a [(String, String)],
    query: &'a str,
    #[serde(serialize_with = "header_pairs")]
    headers: &'a HeaderMap,
    /// How many `chunk` frames may be sent before further credit arrives.
    credit: u32,
}

/// The head of `reply`, and of the first `chunk`.
#[derive(Debug, Deserialize)]
struct ReplyHead {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

/// What the final frame of a call to a handler says besides the reply.
#[derive(Debug, Deserialize)]
struct UsageHead {
    #[serde(default)]
    usage: Option<TokenUsage>,
}

/// The head of `error`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ErrorHead {
    pub(super) kind: FailureKind,
    pub(super) message: String,
    pub(super) status: u16,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) traceback: String,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureKind {
    /// An `MLServerError`, whose message and status are meant for the client.
    Mlserver,
    /// Any other exception of the model's code.
    Model,
    Cancelled,
    /// The call itself was invalid, which is a bug of the server.
    Request,
    /// A native model cannot answer this request.
    BadRequest,
    /// A file may be valid, but needs what its native evaluator lacks.
    Unsupported,
}

/// The head of `pong`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PongHead {
    /// The calls that were opened before the ping, and whose final frames were not sent before the pong.
    pub(super) open: Vec<u64>,
}

/// The head of `metrics`.
#[derive(Debug, Deserialize)]
pub(super) struct MetricsHead {
    /// Name, description, model, version and value of each observation.
    pub(super) observed: Vec<(String, String, String, String, f64)>,
}

/// The head of `exposition`.
#[derive(Debug, Deserialize)]
pub(super) struct ExpositionHead {
    pub(super) families: Vec<Family>,
}

/// The head of `credit`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CreditHead {
    pub(super) count: u32,
}

/// The head of `stream`.
#[derive(Debug, Serialize)]
pub(super) struct StreamHead<'a> {
    pub(super) model: u64,
    pub(super) request: &'a str,
    pub(super) credit: u32,
}

/// Serializes a head.
pub(super) fn encode_head(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("heads are made of strings, numbers and JSON values").into()
}

impl Frame {
    /// Reads the head, whose type depends on the frame's kind.
    pub(super) fn read_head<'a, T: Deserialize<'a>>(&'a self) -> Result<T, MessageError> {
        let text: &[u8] = if self.head.is_empty() { b"{}" } else { &self.head };
        serde_json::from_slice(text).map_err(|source| MessageError::Head { kind: self.kind, source })
    }
}

#[derive(Serialize)]
struct RequestHead<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<u64>,
    id: &'a str,
    #[serde(skip_serializing_if = "Parameters::is_absent")]
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "HeaderMap::is_empty", serialize_with = "headers")]
    headers: &'a HeaderMap,
    inputs: Vec<TensorHead<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<OutputHeads<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    grpc: bool,
}

/// The headers that the server adds itself, spelled as the original does.
const CLOUD_EVENTS: [(&str, &str); 9] = [
    ("ce-specversion", "Ce-Specversion"),
    ("ce-source", "Ce-Source"),
    ("ce-type", "Ce-Type"),
    ("ce-modelid", "Ce-Modelid"),
    ("ce-inferenceservicename", "Ce-Inferenceservicename"),
    ("ce-endpoint", "Ce-Endpoint"),
    ("ce-id", "Ce-Id"),
    ("ce-requestid", "Ce-Requestid"),
    ("ce-namespace", "Ce-Namespace"),
];

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn headers<S: Serializer>(map: &&HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.keys().map(|key| {
        let written = CLOUD_EVENTS.iter().find(|(lower, _)| key == lower).map(|(_, written)| *written);
        // Models see the first value of a repeated header, as in the original.
        (written.unwrap_or(key.as_str()), map.get(key).map(latin1))
    }))
}

fn pairs_as_map<S: Serializer>(pairs: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Writes headers as pairs. Their values are bytes, and are sent as the characters with the same numbers (Latin-1).
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn header_pairs<S: Serializer>(map: &&HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map.iter().map(|(name, value)| (name.as_str(), latin1(value))))
}

fn latin1(value: &HeaderValue) -> Cow<'_, str> {
    value.to_str().map_or_else(|_| value.as_bytes().iter().copied().map(char::from).collect(), Cow::Borrowed)
}

/// Returns the bytes of a header, of which only the characters of Latin-1 have one. Text with others is sent in UTF-8.
fn header_value(text: &str) -> Option<HeaderValue> {
    let bytes: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character).ok()).collect();
    HeaderValue::try_from(bytes.unwrap_or_else(|| text.as_bytes().to_vec())).ok()
}

/// The requested outputs in the head of a request.
struct OutputHeads<'a>(&'a [RequestedOutput]);

impl Serialize for OutputHeads<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Output<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Parameters::is_absent")]
            parameters: &'a Parameters,
        }
        serializer
            .collect_seq(self.0.iter().map(|output| Output { name: &output.name, parameters: &output.parameters }))
    }
}

/// Returns how many bytes of a request are copied into its frame: BYTES, but not the buffers of other tensors.
pub(super) fn copied_bytes(request: &InferenceRequest) -> usize {
    let copied = |input: &Tensor| match &input.data {
        TensorData::Fixed(_) | TensorData::Irregular(_) => 0,
        TensorData::Variable(elements) => 4 * elements.len() + input.byte_len(),
    };
    request.inputs.iter().map(copied).sum()
}

/// Returns how many bytes of an answer are parsed. Only outputs with BYTES have a `count`, and only those with JSON `json` or `sent`.
pub(super) fn parsed_bytes(answer: &Frame) -> usize {
    let has = |key: &[u8]| answer.head.windows(key.len()).any(|part| part == key);
    let is_parsed = || [&br#""count":"#[..], br#""json":"#, br#""sent":"#].into_iter().any(has);
    // Neither a long head nor one with a short tail need be searched.
    let (head, tail) = (answer.head.len(), answer.tail.len());
    if head < LONG_WORK && tail >= LONG_WORK && is_parsed() { head + tail } else { head }
}

/// Creates the frame of a request: for `model`, or as an item of a stream if `model` is `None`.
pub(super) fn request_frame(
    kind: FrameKind,
    model: Option<u64>,
    request: &InferenceRequest,
) -> Result<OutgoingFrame, FrameError> {
    let mut tail = Vec::with_capacity(request.inputs.len());
    let inputs = request.inputs.iter().map(|input| encode_tensor(input, &mut tail)).collect();
    let InferenceRequest { id, parameters, headers, outputs, has_outputs, from_grpc: grpc, .. } = request;
    let outputs = (*has_outputs || !outputs.is_empty()).then_some(OutputHeads(outputs));
    let head = encode_head(&RequestHead { model, id, parameters, headers, inputs, outputs, grpc: *grpc });
    OutgoingFrame::with_tail(kind, head, tail)
}

/// A request to another model, which the code of an open call sends.
#[derive(Debug)]
pub(super) struct StepRequest {
    /// Tells the steps of a call apart.
    pub(super) number: u64,
    /// The name of the model that it asks.
    pub(super) model: String,
    pub(super) payload: StepPayload,
}

/// The form of a step's request, which is also that of its answer.
#[derive(Debug)]
pub(super) enum StepPayload {
    Tensors(Box<InferenceRequest>),
    /// A body of KServe's V1 protocol.
    V1 {
        headers: HeaderMap,
        body: Bytes,
    },
}

/// The head of `step`.
#[derive(Deserialize)]
struct StepHead<'a> {
    step: u64,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default)]
    v1: bool,
    #[serde(default)]
    id: String,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(borrow, default)]
    inputs: Vec<ReceivedTensor<'a>>,
    #[serde(default)]
    outputs: Vec<String>,
}

/// Reads a `step`.
///
/// # Errors
///
/// Fails if the head does not describe the tail, or has invalid headers.
pub(super) fn read_step(frame: &Frame) -> Result<StepRequest, MessageError> {
    let StepHead { step: number, model, v1, id, parameters, headers, inputs, outputs } = frame.read_head()?;
    let (model, headers) = (model.into_owned(), header_map(headers)?);
    if v1 {
        return Ok(StepRequest { number, model, payload: StepPayload::V1 { headers, body: frame.tail.clone() } });
    }
    let mut tail = frame.tail.clone();
    let inputs =
        inputs.into_iter().map(|input| decode_tensor(input, Sender::Worker, &mut tail)).collect::<Result<_, _>>()?;
    let outputs = outputs.into_iter().map(|name| RequestedOutput { name, ..RequestedOutput::default() }).collect();
    let headers = headers.into();
    let request = InferenceRequest { id, parameters, headers, inputs, outputs, ..InferenceRequest::default() };
    Ok(StepRequest { number, model, payload: StepPayload::Tensors(Box::new(request)) })
}

/// Returns the number of a `step` that cannot be read otherwise.
pub(super) fn step_number(frame: &Frame) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        step: u64,
    }
    frame.read_head::<Numbered>().ok().map(|head| head.step)
}

/// The head of `step_answer`: a response, a reply of the V1 protocol, or an error.
#[derive(Serialize)]
struct StepAnswerHead<'a> {
    step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Parameters::is_absent")]
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "HeaderMap::is_empty", serialize_with = "header_pairs")]
    headers: &'a HeaderMap,
    inputs: Vec<TensorHead<'a>>,
}

/// Creates the frame of a step's response, whose outputs are the inputs of the code that asked.
pub(super) fn step_response_frame(step: u64, response: &InferenceResponse) -> Result<OutgoingFrame, FrameError> {
    let mut tail = Vec::with_capacity(response.outputs.len());
    let inputs = response.outputs.iter().map(|output| encode_tensor(output, &mut tail)).collect();
    let InferenceResponse { parameters, headers, .. } = response;
    let head = encode_head(&StepAnswerHead { step, error: None, status: None, parameters, headers, inputs });
    OutgoingFrame::with_tail(FrameKind::StepAnswer, head, tail)
}

/// Creates the frame of a step's reply of the V1 protocol.
pub(super) fn step_reply_frame(step: u64, reply: CustomReply) -> Result<OutgoingFrame, FrameError> {
    let CustomReply { status, headers, body } = reply;
    let (status, parameters) = (Some(status.as_u16()), Parameters::new());
    let (parameters, headers, inputs) = (&parameters, &headers, Vec::new());
    let head = encode_head(&StepAnswerHead { step, error: None, status, parameters, headers, inputs });
    OutgoingFrame::with_tail(FrameKind::StepAnswer, head, vec![body])
}

/// Creates the frame of a step that failed with an HTTP status.
pub(super) fn step_error_frame(step: u64, status: u16, error: &str) -> OutgoingFrame {
    let (parameters, headers) = (Parameters::new(), HeaderMap::new());
    let frame = |error| {
        let (parameters, headers, inputs) = (&parameters, &headers, Vec::new());
        let head = StepAnswerHead { step, error: Some(error), status: Some(status), parameters, headers, inputs };
        OutgoingFrame::new(FrameKind::StepAnswer, encode_head(&head))
    };
    let short = |_| frame("the message of the error is too long").expect("a short message fits into a head");
    frame(error).unwrap_or_else(short)
}

#[derive(Deserialize)]
struct ResponseHead<'a> {
    /// The name that the model gave, if it is not its own.
    #[serde(default)]
    model_name: String,
    /// The version that the model gave, if the settings have none.
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(borrow)]
    outputs: Vec<ReceivedTensor<'a>>,
}

/// Reads an `answer`.
///
/// # Errors
///
/// Fails if the head does not describe the tail.
pub(super) fn read_response(frame: &Frame) -> Result<InferenceResponse, MessageError> {
    let ResponseHead { model_name, model_version, parameters, headers, outputs } = frame.read_head()?;
    let mut tail = frame.tail.clone();
    let outputs =
        outputs.into_iter().map(|output| decode_tensor(output, Sender::Worker, &mut tail)).collect::<Result<_, _>>()?;
    check_headers(headers.len())?;
    let headers = headers.iter().filter_map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed);
        Some((HeaderName::try_from(name).ok()?, header_value(&text)?))
    });
    let headers = headers.collect::<HeaderMap>().into();
    Ok(InferenceResponse { model_name, model_version, id: String::new(), parameters, headers, outputs })
}

/// Creates the frame that unloads a model from a worker.
pub(super) fn unload_frame(model: u64) -> OutgoingFrame {
    #[derive(Serialize)]
    struct UnloadHead {
        model: u64,
    }
    OutgoingFrame::new(FrameKind::Unload, encode_head(&UnloadHead { model }))
        .expect("a number is within the limit of a head")
}

/// Creates the frame of a call to a handler.
pub(super) fn call_frame(
    model: u64,
    handler: &str,
    call: CustomCall,
    credit: u32,
) -> Result<OutgoingFrame, FrameError> {
    let CustomCall { method, path, parameters, query, headers, body } = call;
    let head = encode_head(&CallHead {
        model,
        handler,
        method: method.as_str(),
        path: &path,
        path_params: &parameters,
        query: &query,
        headers: &headers,
        credit,
    });
    OutgoingFrame::with_tail(FrameKind::Call, head, vec![body])
}

/// Reads how many tokens the call took, from its final frame. Other content of it is ignored.
pub(super) fn read_usage(frame: &Frame) -> Option<TokenUsage> {
    frame.read_head::<UsageHead>().ok()?.usage
}

/// Reads a `reply`, or a first `chunk`.
///
/// # Errors
///
/// Fails if status or headers are not valid in HTTP.
pub(super) fn read_reply(frame: &Frame) -> Result<CustomReply, MessageError> {
    let ReplyHead { status: number, headers: pairs } = frame.read_head()?;
    let status = StatusCode::from_u16(number).ok().filter(|status| !status.is_informational());
    let status = status.ok_or(MessageError::Status { status: number })?;
    Ok(CustomReply { status, headers: header_map(pairs)?, body: frame.tail.clone() })
}

/// Reads headers that a worker sends as pairs, their values in Latin-1.
pub(super) fn header_map(pairs: Vec<(String, String)>) -> Result<HeaderMap, MessageError> {
    check_headers(pairs.len())?;
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let bytes: Option<Vec<u8>> = value.chars().map(|character| u8::try_from(character).ok()).collect();
        let value = bytes.and_then(|bytes| HeaderValue::try_from(bytes).ok());
        match (HeaderName::try_from(&name), value) {
            (Ok(name), Some(value)) => headers.append(name, value),
            _ => return Err(MessageError::Header { name }),
        };
    }
    Ok(headers)
}

fn check_headers(found: usize) -> Result<(), MessageError> {
    if found > MAX_HEADERS { Err(MessageError::TooManyHeaders { found }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Datatype;
    use crate::types::json::IrregularData;
    use serde_json::json;

    fn frame(kind: FrameKind, head: &Value, tail: &'static [u8]) -> Frame {
        Frame { kind, id: 1, head: head.to_string().into(), tail: Bytes::from_static(tail) }
    }

    fn answer(datatype: &str, shape: &[usize], count: Option<usize>, tail: &'static [u8]) -> Result<Tensor, String> {
        let output = json!({"name": "y", "datatype": datatype, "shape": shape, "size": tail.len(), "count": count});
        let read = read_response(&frame(FrameKind::Answer, &json!({"outputs": [output]}), tail));
        read.map(|mut response| response.outputs.remove(0)).map_err(|error| {
            assert!(error.is_of_model(), "{error:?}");
            error.to_string()
        })
    }

    #[test]
    fn response_shapes_must_match_the_data() {
        assert_eq!(answer("INT8", &[3], None, b"abc").unwrap().len(), 3);
        let message = "tensor `y` of shape [4000000000000, 2] needs 8000000000000 elements, but 3 were given";
        assert_eq!(answer("INT8", &[4_000_000_000_000, 2], None, b"abc").unwrap_err(), message);
        let message = "the shape [18446744073709551615, 2] of tensor `y` has more elements than memory can address";
        assert_eq!(answer("INT8", &[usize::MAX, 2], None, b"abc").unwrap_err(), message);
        let two = b"\0\0\0\0\x01\0\0\0\x02\0\0\0ab";
        assert_eq!(answer("BYTES", &[2], Some(2), two).unwrap().len(), 2);
        let message = "tensor `y` of shape [3] needs 3 elements, but 2 were given";
        assert_eq!(answer("BYTES", &[3], Some(2), two).unwrap_err(), message);
        let one = b"\0\0\0\0\x02\0\0\0ab";
        assert_eq!(answer("BYTES", &[2], Some(1), one).unwrap().shape, [2], "as in the original's manual");
    }

    #[test]
    fn irregular_tensors_travel_as_json() {
        static SPACES: [u8; LONG_WORK] = [b' '; LONG_WORK];

        let mut nested = Tensor::from_elements("n", vec![1, 2], &[1_i8, 2]).unwrap();
        nested.nested = true;
        let json = Bytes::from_static(br#"["a",null]"#);
        let data = TensorData::Irregular(IrregularData::new(json.clone(), "").unwrap());
        let irregular = Tensor { name: "i".to_owned(), datatype: Datatype::Bytes, data, ..nested.clone() };
        let irregular = Tensor { nested: false, as_sent: None, ..irregular };
        let mut tail = Vec::new();
        let heads: Vec<_> = [&nested, &irregular].into_iter().map(|tensor| encode_tensor(tensor, &mut tail)).collect();
        let expected = json!([
            {"name": "n", "datatype": "INT8", "shape": [1, 2], "size": 2, "nested": true},
            {"name": "i", "datatype": "BYTES", "shape": [1, 2], "size": 10, "json": true},
        ]);
        assert_eq!(serde_json::to_value(heads).unwrap(), expected);
        assert!(tail.concat().windows(json.len()).any(|part| part == json));
        let head = json!({"outputs": [{"name": "y", "size": LONG_WORK, "json": true}]});
        assert!(parsed_bytes(&frame(FrameKind::Answer, &head, &SPACES)) > LONG_WORK, "its JSON is checked");
    }

    #[test]
    fn irregular_outputs_are_checked_to_be_json() {
        let read = |shape: Value, tail: &'static [u8]| {
            let output = json!({"name": "y", "datatype": "FP32", "shape": shape, "size": tail.len(), "json": true});
            let read = read_response(&frame(FrameKind::Answer, &json!({"outputs": [output]}), tail));
            read.map(|mut response| response.outputs.remove(0)).map_err(|error| {
                assert!(error.is_of_model(), "{error:?}");
                error.to_string()
            })
        };
        let tensor = read(json!([2, 2]), b"\"[[1.0]]\"").unwrap();
        let TensorData::Irregular(data) = &tensor.data else { panic!("{tensor:?}") };
        assert_eq!((data.json().as_ref(), &tensor.shape[..]), (&b"\"[[1.0]]\""[..], &[2, 2][..]));
        assert_eq!(data.reason(), "output `y`: the data is not FP32, and only JSON can hold it");
        let not_json =
            "the data of output `y` is not JSON, nests deeper than 127 levels, or has a number beyond a double";
        assert_eq!(read(json!([1]), b"[NaN]").unwrap_err(), not_json);
        assert_eq!(read(json!([-1]), b"[null,1]").unwrap().shape, [2]);
        let sent = |tensor: Tensor| tensor.as_sent.unwrap().shape.unwrap();
        for shape in [vec![-2], vec![-1, -1], vec![-1, 3]] {
            assert_eq!(sent(read(json!(shape), b"[null,1]").unwrap()), shape);
        }
    }

    #[test]
    fn headers_beyond_the_limit_are_an_error_of_the_model() {
        let count = 40_000;
        let pairs: Vec<_> = (0..count).map(|index| json!([format!("x-{index}"), "1"])).collect();
        let error = read_reply(&frame(FrameKind::Reply, &json!({"status": 200, "headers": pairs}), b"")).unwrap_err();
        let message = "the model returned 40000 headers, more than the limit of 1024";
        assert_eq!((error.to_string().as_str(), error.is_of_model()), (message, true));
        let map: serde_json::Map<_, _> = (0..count).map(|index| (format!("x-{index}"), json!("1"))).collect();
        let error = read_response(&frame(FrameKind::Answer, &json!({"headers": map, "outputs": []}), b"")).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn request_that_exceeds_a_frame_is_an_error_of_the_client() {
        use crate::types::RequestErrorKind;

        let id = "x".repeat(super::super::frame::MAX_HEAD);
        let request = InferenceRequest { id, ..InferenceRequest::default() };
        let error = request_frame(FrameKind::Predict, Some(1), &request).unwrap_err();
        let error = super::super::answer::too_long(error);
        assert_eq!(error.kind(), RequestErrorKind::BadRequest);
        assert!(error.to_string().contains("exceeds the limit of 16777216"), "{error}");
    }
}
