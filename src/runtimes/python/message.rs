//! What heads and tails of frames say: requests and responses with their tensors, models, failures.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::frame::{Frame, FrameError, Kind, Outgoing};
use crate::telemetry::exposition::Family;
use crate::types::{
    BytesElements, CustomCall, CustomReply, Datatype, InferenceRequest, InferenceResponse, ModelMetadata, Parameters,
    RequestedOutput, Tensor, TensorData, TensorError,
};

/// Where each tensor begins in a tail.
const ALIGNMENT: usize = 8;
static PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// The head of `load`.
#[derive(Debug, Serialize)]
pub(super) struct Load<'a> {
    pub(super) model: u64,
    pub(super) settings: &'a Value,
    pub(super) source: Option<&'a str>,
}

/// The head of `hello`.
#[derive(Debug, Serialize)]
pub(super) struct Hello<'a> {
    pub(super) protocol: u32,
    pub(super) worker: &'a str,
    pub(super) parent: u32,
    pub(super) inline: bool,
    pub(super) debug: bool,
    /// A configuration of Python's `logging`, or the path of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logging: Option<&'a Value>,
    pub(super) paths: Vec<Cow<'a, str>>,
}

/// The head of `ready`.
#[derive(Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) protocol: u32,
    pub(super) python: String,
    pub(super) executable: String,
}

/// The head of `loaded`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Loaded {
    /// What the model's `load` returned.
    pub(super) ready: bool,
    /// The model has a way of its own to answer streams.
    pub(super) streams: bool,
    /// `predict` is a plain function, which runs on a thread of its own.
    pub(super) plain: bool,
    #[serde(default)]
    pub(super) handlers: Vec<Handler>,
    pub(super) metadata: ModelMetadata,
}

/// A method of the model that answers a route.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Handler {
    pub(super) name: String,
    pub(super) path: String,
    /// The HTTP method, in upper case.
    pub(super) method: String,
    /// It is a plain function, which runs on a thread of its own.
    pub(super) plain: bool,
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
}

/// The head of `reply`.
#[derive(Debug, Deserialize)]
struct ReplyHead {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

/// The head of `error`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) traceback: String,
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureKind {
    /// Text and status are meant for the client.
    Mlserver,
    /// Any other exception of the model's code.
    Model,
    Cancelled,
    /// The call itself was wrong; our bug.
    Request,
}

/// The head of `metrics`.
#[derive(Debug, Deserialize)]
pub(super) struct Metrics {
    /// Name, description, model, version, value.
    pub(super) observed: Vec<(String, String, String, String, f64)>,
}

/// The head of `exposition`.
#[derive(Debug, Deserialize)]
pub(super) struct Exposition {
    pub(super) families: Vec<Family>,
}

/// The head of `credit`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Credit {
    pub(super) count: u32,
}

/// The head of a stream's `stream`.
#[derive(Debug, Serialize)]
pub(super) struct OpenStream<'a> {
    pub(super) model: u64,
    pub(super) request: &'a str,
    pub(super) credit: u32,
}

/// A frame of the worker that does not mean what this side expects.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageError {
    #[error("the head of a `{kind:?}` frame cannot be read")]
    Head { kind: Kind, source: serde_json::Error },
    #[error("output `{name}` has the unknown datatype `{datatype}`")]
    Datatype { name: String, datatype: String },
    #[error("output `{name}` lies outside of its frame")]
    Outside { name: String },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("the handler answered with the status {status}, expected one from 200 to 999")]
    Status { status: u16 },
    #[error("the handler answered with a header that cannot be sent: `{name}`")]
    Header { name: String },
}

/// Writes a head that cannot fail to be written.
pub(super) fn head(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("heads are made of strings, numbers and JSON values").into()
}

impl Frame {
    /// Reads the head as what its kind says.
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, MessageError> {
        let text: &[u8] = if self.head.is_empty() { b"{}" } else { &self.head };
        serde_json::from_slice(text).map_err(|source| MessageError::Head { kind: self.kind, source })
    }
}

#[derive(Serialize)]
struct RequestHead<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<u64>,
    id: &'a str,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "HeaderMap::is_empty", serialize_with = "headers")]
    headers: &'a HeaderMap,
    inputs: Vec<TensorHead<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "outputs")]
    outputs: &'a [RequestedOutput],
}

#[derive(Serialize)]
struct TensorHead<'a> {
    name: &'a str,
    datatype: Datatype,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: &'a Parameters,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    text: bool,
}

/// The headers that the server adds itself, as the original writes them.
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
fn headers<S: Serializer>(map: &&HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.keys().map(|key| {
        let written = CLOUD_EVENTS.iter().find(|(lower, _)| key == lower).map(|(_, written)| *written);
        // Of a repeated header models see the first, as in the original.
        let value = map.get(key).map(|value| String::from_utf8_lossy(value.as_bytes()));
        (written.unwrap_or(key.as_str()), value)
    }))
}

fn pairs_as_map<S: Serializer>(pairs: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Header values are bytes, and travel as the characters of the same numbers.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn header_pairs<S: Serializer>(map: &&HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect::<String>();
    serializer.collect_seq(map.iter().map(|(name, value)| (name.as_str(), text(value))))
}

fn outputs<S: Serializer>(outputs: &&[RequestedOutput], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Output<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "Parameters::is_empty")]
        parameters: &'a Parameters,
    }
    serializer.collect_seq(outputs.iter().map(|output| Output { name: &output.name, parameters: &output.parameters }))
}

/// Makes the frame of a request: for `model`, or as an item of a stream.
pub(super) fn request(kind: Kind, model: Option<u64>, request: &InferenceRequest) -> Result<Outgoing, FrameError> {
    let mut tail = Vec::with_capacity(request.inputs.len());
    let inputs = request.inputs.iter().map(|input| put_tensor(input, &mut tail)).collect();
    let InferenceRequest { id, parameters, headers, outputs, .. } = request;
    let head = head(&RequestHead { model, id, parameters, headers, inputs, outputs });
    Outgoing::with_tail(kind, head, tail)
}

fn put_tensor<'a>(tensor: &'a Tensor, tail: &mut Vec<Bytes>) -> TensorHead<'a> {
    let (size, count, text) = match &tensor.data {
        TensorData::Fixed(bytes) => {
            tail.push(bytes.clone());
            (bytes.len(), None, false)
        }
        TensorData::Variable(elements) => {
            let bytes = offsets_and_elements(elements);
            let size = bytes.len();
            tail.push(bytes);
            (size, Some(elements.len()), elements.is_text())
        }
    };
    let padding = size.next_multiple_of(ALIGNMENT) - size;
    if padding > 0 {
        tail.push(Bytes::from_static(&PADDING[..padding]));
    }
    let Tensor { name, datatype, shape, parameters, .. } = tensor;
    TensorHead { name, datatype: *datatype, shape, parameters, size, count, text }
}

fn offsets_and_elements(elements: &BytesElements) -> Bytes {
    let length: usize = elements.iter().map(<[u8]>::len).sum();
    let mut bytes = BytesMut::with_capacity(4 * (elements.len() + 1) + length);
    let mut end = 0_u32;
    bytes.put_u32_le(end);
    for element in elements.iter() {
        // Bodies are limited to far less than 4 GiB.
        end = end.saturating_add(u32::try_from(element.len()).unwrap_or(u32::MAX));
        bytes.put_u32_le(end);
    }
    for element in elements.iter() {
        bytes.extend_from_slice(element);
    }
    bytes.freeze()
}

#[derive(Deserialize)]
struct ResponseHead<'a> {
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(borrow)]
    outputs: Vec<ResponseTensor<'a>>,
}

#[derive(Deserialize)]
struct ResponseTensor<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Parameters,
    size: usize,
    count: Option<usize>,
    #[serde(default)]
    text: bool,
}

/// Reads an `answer`.
///
/// # Errors
///
/// Fails when the head does not describe the tail.
pub(super) fn response(frame: &Frame) -> Result<InferenceResponse, MessageError> {
    let ResponseHead { parameters, headers, outputs } = frame.read()?;
    let mut tail = frame.tail.clone();
    let outputs = outputs.into_iter().map(|output| take_tensor(output, &mut tail)).collect::<Result<_, _>>()?;
    let headers = headers.iter().filter_map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(text).ok()?))
    });
    Ok(InferenceResponse { parameters, headers: headers.collect(), outputs, ..InferenceResponse::default() })
}

/// Makes the frame that takes a model away from a worker.
pub(super) fn unload(model: u64) -> Outgoing {
    #[derive(Serialize)]
    struct UnloadHead {
        model: u64,
    }
    Outgoing::new(Kind::Unload, head(&UnloadHead { model })).expect("a number is shorter than a head may be")
}

/// Makes the frame of a call of a handler.
pub(super) fn call(model: u64, handler: &str, call: CustomCall) -> Result<Outgoing, FrameError> {
    let CustomCall { method, path, parameters, query, headers, body } = call;
    let head = head(&CallHead {
        model,
        handler,
        method: method.as_str(),
        path: &path,
        path_params: &parameters,
        query: &query,
        headers: &headers,
    });
    Outgoing::with_tail(Kind::Call, head, vec![body])
}

/// Reads a `reply`.
///
/// # Errors
///
/// Fails when HTTP has no such answer.
pub(super) fn reply(frame: &Frame) -> Result<CustomReply, MessageError> {
    let ReplyHead { status: number, headers: pairs } = frame.read()?;
    let status = StatusCode::from_u16(number).ok().filter(|status| !status.is_informational());
    let status = status.ok_or(MessageError::Status { status: number })?;
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        let bytes: Option<Vec<u8>> = value.chars().map(|character| u8::try_from(character).ok()).collect();
        let value = bytes.and_then(|bytes| HeaderValue::try_from(bytes).ok());
        match (HeaderName::try_from(&name), value) {
            (Ok(name), Some(value)) => headers.append(name, value),
            _ => return Err(MessageError::Header { name }),
        };
    }
    Ok(CustomReply { status, headers, body: frame.tail.clone() })
}

fn take_tensor(tensor: ResponseTensor<'_>, tail: &mut Bytes) -> Result<Tensor, MessageError> {
    let ResponseTensor { name, datatype, shape, parameters, size, count, text } = tensor;
    let name = name.into_owned();
    if size > tail.len() {
        return Err(MessageError::Outside { name });
    }
    let bytes = tail.split_to(size);
    tail.advance((size.next_multiple_of(ALIGNMENT) - size).min(tail.len()));
    let Ok(datatype) = datatype.parse::<Datatype>() else {
        return Err(MessageError::Datatype { name, datatype: datatype.into_owned() });
    };
    let data = if datatype == Datatype::Bytes {
        let elements = count.and_then(|count| elements(bytes, count));
        TensorData::Variable(elements.ok_or_else(|| MessageError::Outside { name: name.clone() })?.with_text(text))
    } else {
        TensorData::Fixed(bytes)
    };
    let tensor = Tensor { name, datatype, shape, parameters, data };
    // A shape that says something else than the data is the model's own, and passed on as the original does.
    match tensor.check() {
        Err(error @ TensorError::Width { .. }) => Err(error.into()),
        _ => Ok(tensor),
    }
}

fn elements(mut bytes: Bytes, count: usize) -> Option<BytesElements> {
    let split = count.checked_add(1)?.checked_mul(4)?;
    if split > bytes.len() {
        return None;
    }
    let offsets = bytes.split_to(split);
    let offset = |index: usize| {
        let at = 4 * index;
        offsets[at..at + 4].try_into().map_or(usize::MAX, |four| u32::from_le_bytes(four) as usize)
    };
    let spans = (0..count).map(|index| offset(index)..offset(index + 1)).collect();
    BytesElements::new(bytes, spans)
}
