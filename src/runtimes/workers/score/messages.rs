//! The content of the frames of a native worker: what the server sends is read, and answers are written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;

use super::located::LocatedDescription;
use crate::runtimes::workers::frame::{Frame, FrameError, FrameKind, OutgoingFrame};
use crate::runtimes::workers::memory_file::{AnswerRegion, MemoryError};
use crate::runtimes::workers::message::{self, ErrorHead, FailureKind, MessageError, TensorHead, encode_head};
use crate::runtimes::{Description, LoadError, RuntimeError};
use crate::types::{CustomCall, CustomReply, InferenceResponse, Parameters, RequestErrorKind, chain};

/// The head of `hello`. Fields that are meant for workers of Python are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) parent: u32,
    #[serde(default)]
    pub(super) threads: Option<usize>,
    #[serde(default)]
    pub(super) memory_limit: Option<u64>,
    /// Whether the last descriptor that comes with it is the memory file.
    #[serde(default)]
    pub(super) memory_file: bool,
    #[serde(default)]
    pub(super) log_level: Option<LogLevel>,
}

/// The least severe lines of the log.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

impl LogLevel {
    pub(super) const fn filter(self) -> LevelFilter {
        match self {
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warning => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
        }
    }
}

/// The head of `load`, which has either a location or settings.
#[derive(Debug, Deserialize)]
pub(super) struct Load {
    pub(super) model: u64,
    #[serde(default)]
    pub(super) location: Option<String>,
    /// Of the model at the location.
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    #[serde(default)]
    pub(super) source: Option<String>,
    #[serde(default)]
    pub(super) artifact: Option<String>,
}

/// The head of `unload`.
#[derive(Debug, Deserialize)]
pub(super) struct Unload {
    pub(super) model: u64,
}

#[derive(Deserialize)]
struct CallHead<'a> {
    model: u64,
    #[serde(borrow)]
    handler: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    path: String,
    #[serde(default)]
    path_params: BTreeMap<String, String>,
    #[serde(default)]
    query: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

/// A call of one of a model's routes.
#[derive(Debug)]
pub(super) struct RouteCall {
    pub(super) model: u64,
    /// The index of the route, which is the name of the handler.
    pub(super) route: usize,
    pub(super) call: CustomCall,
}

/// Reads a `call`. Returns `None` if its method or handler does not exist.
///
/// # Errors
///
/// Fails if the head is not that of a call, or has invalid headers.
pub(super) fn read_call(frame: &Frame) -> Result<Option<RouteCall>, MessageError> {
    let CallHead { model, handler, method, path, path_params, query, headers } = frame.read_head()?;
    let (Ok(route), Ok(method)) = (handler.parse(), Method::from_bytes(method.as_bytes())) else { return Ok(None) };
    let parameters = path_params.into_iter().collect();
    let call = CustomCall {
        method,
        path,
        parameters,
        query,
        headers: message::header_map(headers)?,
        body: frame.tail.clone(),
    };
    Ok(Some(RouteCall { model, route, call }))
}

/// The head of `answer`.
#[derive(Serialize)]
struct AnswerHead<'a> {
    #[serde(skip_serializing_if = "Parameters::is_absent")]
    parameters: &'a Parameters,
    #[serde(skip_serializing_if = "HeaderMap::is_empty", serialize_with = "message::headers")]
    headers: &'a HeaderMap,
    outputs: Vec<TensorHead<'a>>,
}

/// Why an answer cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("cannot write the answer: {0}")]
    Memory(#[from] MemoryError),
}

/// Creates the frame of a response. Outputs that fit into `region` are written there.
///
/// # Errors
///
/// Fails if the response is too long for a frame, or the memory file has become too short.
pub(super) fn answer_frame(
    response: &InferenceResponse,
    mut region: Option<AnswerRegion<'_>>,
) -> Result<OutgoingFrame, AnswerError> {
    let mut tail = Vec::with_capacity(response.outputs.len());
    let outputs = response.outputs.iter().map(|output| match &mut region {
        Some(region) => message::encode_tensor_into(output, region, &mut tail),
        None => Ok(message::encode_tensor(output, &mut tail)),
    });
    let outputs = outputs.collect::<Result<_, _>>()?;
    let InferenceResponse { parameters, headers, .. } = response;
    let head = encode_head(&AnswerHead { parameters, headers, outputs });
    Ok(OutgoingFrame::with_tail(FrameKind::Answer, head, tail)?)
}

/// Creates the frame of the reply of a route.
///
/// # Errors
///
/// Fails if the reply is too long for a frame.
pub(super) fn reply_frame(reply: CustomReply) -> Result<OutgoingFrame, FrameError> {
    #[derive(Serialize)]
    struct Head<'a> {
        status: u16,
        #[serde(serialize_with = "message::header_pairs")]
        headers: &'a HeaderMap,
    }
    let CustomReply { status, headers, body } = reply;
    let head = encode_head(&Head { status: status.as_u16(), headers: &headers });
    OutgoingFrame::with_tail(FrameKind::Reply, head, vec![body])
}

/// Creates the frame of a failure. A message that is too long for it is cut.
pub(super) fn error_frame(kind: FailureKind, status: u16, message: &str) -> OutgoingFrame {
    /// JSON writes a byte as six at most.
    const LONGEST: usize = crate::runtimes::workers::frame::MAX_HEAD / 8;
    let end = message.floor_char_boundary(LONGEST);
    let head = ErrorHead { kind, message: message[..end].to_owned(), status, traceback: String::new() };
    OutgoingFrame::new(FrameKind::Error, encode_head(&head)).expect("the message is short enough")
}

/// Creates the frame of a failed call.
pub(super) fn failure_frame(error: &RuntimeError) -> OutgoingFrame {
    prediction_failure_frame(error.kind(), &error.to_string())
}

/// Creates the frame of a prediction that failed.
pub(super) fn prediction_failure_frame(kind: RequestErrorKind, message: &str) -> OutgoingFrame {
    let status = kind.http_status().as_u16();
    let kind = match kind {
        RequestErrorKind::BadRequest => FailureKind::BadRequest,
        RequestErrorKind::ModelFailed | RequestErrorKind::Internal => FailureKind::Model,
        _ => FailureKind::Mlserver,
    };
    error_frame(kind, status, message)
}

/// Creates the frame of a failed load.
pub(super) fn load_failure_frame(error: &LoadError) -> OutgoingFrame {
    let kind = if error.is_unsupported() { FailureKind::Unsupported } else { FailureKind::Mlserver };
    error_frame(kind, 500, &chain(error))
}

/// Creates the frame of a loaded model, of which so many predictions run at a time.
///
/// # Errors
///
/// Fails if the description is too long for a frame.
pub(super) fn loaded_frame(description: &Description, threads: usize) -> Result<OutgoingFrame, FrameError> {
    let Description { tensor_rule, reads_headers, metadata, routes, v1, explanation, not_batched, .. } = description;
    let handler = |index: usize, path: &str, method: &Method, v1| message::HandlerInfo {
        name: index.to_string(),
        path: path.to_owned(),
        method: method.to_string(),
        plain: true,
        v1,
        openai: None,
    };
    let routes = routes.iter().enumerate();
    let mut handlers: Vec<_> =
        routes.map(|(index, route)| handler(index, route.template.as_str(), &route.method, None)).collect();
    let v1 = v1.iter().flat_map(|v1| {
        use crate::types::V1Verb::{Explain, Predict, Ready};
        [Some((v1.predict, Predict)), Some((v1.explain, Explain)), v1.ready.map(|index| (index, Ready))]
    });
    handlers.extend(v1.flatten().map(|(index, verb)| handler(index, "", &Method::POST, Some(verb))));
    let head = message::LoadedHead {
        ready: true,
        streams: false,
        plain: true,
        threads,
        own_loop: false,
        features: None,
        handlers,
        steps: Vec::new(),
        asks_servers: false,
        metadata: metadata.clone(),
        name: None,
        version: None,
        batches: None,
        native: Some(message::NativeHead {
            tensor_rule: *tensor_rule,
            reads_headers: *reads_headers,
            explanation: explanation.clone(),
            not_batched: not_batched.clone(),
        }),
    };
    OutgoingFrame::new(FrameKind::Loaded, encode_head(&head))
}

/// Creates the frame of a model that was opened at a location.
///
/// # Errors
///
/// Fails if the description is too long for a frame.
pub(super) fn located_frame(description: &LocatedDescription) -> Result<OutgoingFrame, FrameError> {
    let LocatedDescription { metadata, version, splits_rows, threads, features, .. } = description;
    let head = message::LoadedHead {
        ready: true,
        streams: false,
        plain: true,
        threads: *threads,
        own_loop: false,
        features: features.clone(),
        handlers: Vec::new(),
        steps: Vec::new(),
        asks_servers: false,
        metadata: Some(metadata.clone()),
        name: Some(metadata.name.clone()),
        version: version.clone(),
        batches: Some(*splits_rows),
        native: None,
    };
    OutgoingFrame::new(FrameKind::Loaded, encode_head(&head))
}

/// Creates the frame that echoes a ping. `open` are the calls that were opened before it.
pub(super) fn pong_frame(open: Vec<u64>, payload: Bytes) -> Result<OutgoingFrame, FrameError> {
    let head = encode_head(&message::PongHead { open });
    OutgoingFrame::with_tail(FrameKind::Pong, head, vec![payload])
}

/// Creates the frame of the worker's own metrics, of which there are none.
pub(super) fn exposition_frame() -> Result<OutgoingFrame, FrameError> {
    #[derive(Serialize)]
    struct Head {
        families: [(); 0],
    }
    OutgoingFrame::new(FrameKind::Exposition, encode_head(&Head { families: [] }))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::runtimes::workers::fixtures;
    use crate::runtimes::workers::score::request::ReceivedRequest;
    use crate::types::{CustomRoute, PathTemplate, V1Handlers, V1Verb};

    #[test]
    fn frames_of_the_server_are_read_from_fixtures() {
        let hello: Hello = fixtures::read("hello").read_head().unwrap();
        assert_eq!((hello.protocol, hello.parent, hello.threads, hello.memory_limit), (2, 4711, None, None));
        let load: Load = fixtures::read("load").read_head().unwrap();
        assert_eq!((load.model, load.source, load.artifact, &load.settings["name"]), (7, None, None, &json!("echo")));
        let frame = fixtures::read("predict");
        let request = ReceivedRequest::read(&frame).unwrap();
        let (model, answer) = (request.model(), request.answer());
        assert_eq!((answer, request.pieces(), request.copied_bytes()), (None, None, 0));
        let request = request.whole(None).unwrap();
        let sent = fixtures::request();
        assert_eq!((model, &request.id, &request.parameters), (7, &sent.id, &sent.parameters));
        assert_eq!(*request.headers, *sent.headers);
        assert_eq!((request.has_outputs, request.from_grpc, request.outputs.len()), (true, false, 1));
        assert_eq!(request.inputs.len(), sent.inputs.len());
        for (read, sent) in request.inputs.iter().zip(&sent.inputs) {
            assert_eq!((&read.name, read.datatype, &read.shape), (&sent.name, sent.datatype, &sent.shape));
            assert_eq!((&read.parameters, &read.data), (&sent.parameters, &sent.data));
        }
        assert!(read_call(&fixtures::read("call")).unwrap().is_none(), "its handler is a name of Python");
    }

    #[test]
    fn answers_are_read_by_the_server() {
        let description = Description {
            routes: vec![CustomRoute { method: Method::PUT, template: PathTemplate::new("/a/{b}").unwrap() }],
            v1: Some(V1Handlers { predict: 1, explain: 2, ready: None }),
            not_batched: Some("of a fixed dimension".to_owned()),
            ..Description::native()
        };
        let frame = received(loaded_frame(&description, 3).unwrap());
        let loaded: message::LoadedHead = frame.read_head().unwrap();
        let handlers: Vec<_> = loaded.handlers.iter().map(|handler| (handler.name.as_str(), handler.v1)).collect();
        assert_eq!(handlers, [("0", None), ("1", Some(V1Verb::Predict)), ("2", Some(V1Verb::Explain))]);
        assert_eq!((loaded.threads, loaded.plain, loaded.streams, loaded.metadata), (3, true, false, None));
        assert_eq!(loaded.native.unwrap().not_batched, description.not_batched);
        let sent = InferenceResponse { outputs: fixtures::request().inputs, ..InferenceResponse::default() };
        let answer = message::read_response(&received(answer_frame(&sent, None).unwrap())).unwrap();
        assert_eq!(answer.outputs.len(), 4);
        for (read, sent) in answer.outputs.iter().zip(&sent.outputs) {
            assert_eq!((&read.name, &read.shape, &read.data), (&sent.name, &sent.shape, &sent.data));
        }
    }

    #[test]
    fn long_messages_of_errors_fit_into_a_frame() {
        let frame = received(error_frame(FailureKind::Model, 500, &"\u{1}".repeat(4 << 20)));
        let head: ErrorHead = frame.read_head().unwrap();
        assert_eq!((head.kind, head.message.len()), (FailureKind::Model, 2 << 20));
    }

    /// Returns a frame as it arrives.
    fn received(frame: OutgoingFrame) -> Frame {
        let (mut bytes, mut scratch) = (bytes::BytesMut::new(), bytes::BytesMut::new());
        frame.write(1, &mut scratch, |scratch, chunk| {
            bytes.extend_from_slice(&scratch.split());
            bytes.extend_from_slice(&chunk);
        });
        bytes.extend_from_slice(&scratch);
        Frame::take(&mut bytes).unwrap().unwrap()
    }
}
