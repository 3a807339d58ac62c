//! One attempt at a record: from its value and headers through the path of all requests to the record that answers it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::Shared;
use super::errors::RecordError;
use super::record::Record;
use crate::inference::{Admission, InferenceError, ModelTarget};
use crate::server::deadline;
use crate::server::exchange::{Exchange, new_id};
use crate::server::payload::{self, JSON_LENGTH, Payload};
use crate::types::json::{self, BinaryOutputs, JsonBody, JsonRequest, NonFinite, WriteOptions};
use crate::types::protobuf::{self, ProtobufRequest, ResponseEncoder};
use crate::types::{InferenceRequest, InferenceResponse, TensorRule, TraceContext};

/// The media types of a protobuf message.
const PROTOBUF: [&str; 3] = ["application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"];

/// How many characters of an invalid header error messages show.
const MAX_SHOWN: usize = 100;

/// The form of a request's value, which is also that of its answer.
enum ValueForm {
    Json(BinaryOutputs),
    Protobuf { raw: bool },
}

/// What answers a record.
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) value: Vec<u8>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

/// Answers a record, whose span is `trace` if it is traced.
pub(super) async fn answer(
    shared: &Shared,
    record: &Record,
    headers: &HeaderMap,
    trace: Option<TraceContext>,
) -> Result<Answer, RecordError> {
    let value = record.value.as_ref().ok_or(RecordError::NoValue)?;
    check_headers(record)?;
    let until = until(record, headers)?;
    let mut exchange = Exchange::new(&shared.inference, &shared.compute, headers, until, trace)?;
    let mut admission = shared.inference.admission();
    admission.reservation.grow(value.len())?;
    let (target, mut request, form) = if is_protobuf(record) {
        read_protobuf(shared, &exchange, record, value).await?
    } else {
        read_json(shared, &exchange, record, headers, value).await?
    };
    admission.reservation.resize(value.len().max(request.memory_bytes()))?;
    request.id = id(record, std::mem::take(&mut request.id));
    exchange.prepare(&mut request);
    shared.cloud_events.set_request_headers(&mut request, headers, &target.model);
    let _slot = exchange.receive(|| admit(shared, &mut admission)).await??;
    let mut response = shared.inference.infer(&target, request, &mut admission).await?;
    let mut headers = shared.cloud_events.take_record_headers(&mut response, &target.model);
    let id = response.id.clone();
    let (size, non_finite) = (response.memory_bytes(), shared.options.non_finite);
    let (value, described) = exchange.write(size, move || write(&response, &form, non_finite)).await??;
    headers.extend(described.into_iter().map(|(name, value)| (name.as_str().to_owned(), value.into_bytes())));
    Ok(Answer { id, value, headers })
}

fn check_headers(record: &Record) -> Result<(), RecordError> {
    let shown = |text: &str| text.chars().take(MAX_SHOWN).collect();
    match record.text("mlserver-method") {
        None | Some("" | "infer") => {}
        Some(found) => return Err(RecordError::Method { found: shown(found) }),
    }
    match record.text(CONTENT_ENCODING.as_str()) {
        None | Some("" | "identity") => Ok(()),
        Some(found) => Err(RecordError::Encoding { found: shown(found) }),
    }
}

/// Returns when the sender of a record stops waiting: the time is counted from when the record was written.
fn until(record: &Record, headers: &HeaderMap) -> Result<Option<Instant>, RecordError> {
    let Some(timeout) = deadline::timeout(headers)? else { return Ok(None) };
    let left = timeout.checked_sub(record.age().unwrap_or_default()).ok_or(InferenceError::Deadline)?;
    Ok(Some(Instant::now() + left))
}

/// Waits for a slot of the server, rather than being rejected. The permit is kept until the answer is there.
async fn admit<'a>(shared: &'a Shared, admission: &mut Admission) -> Result<SemaphorePermit<'a>, RecordError> {
    // It is never closed.
    let permit = shared.slots.acquire().await.map_err(|_| InferenceError::Stopping)?;
    shared.inference.wait_for_slot(admission).await?;
    Ok(permit)
}

fn is_protobuf(record: &Record) -> bool {
    let Some(text) = record.text(CONTENT_TYPE.as_str()) else { return false };
    let essence = text.split(';').next().unwrap_or_default().trim();
    PROTOBUF.iter().any(|name| name.eq_ignore_ascii_case(essence))
}

/// Returns the id of a request: a header's, or else the key, or else the value's own, or else a random one.
fn id(record: &Record, own: String) -> String {
    let key = || record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
    let given = record.text("mlserver-request-id").or_else(key).filter(|id| !id.is_empty());
    match given {
        Some(id) => id.to_owned(),
        None if own.is_empty() => new_id(),
        None => own,
    }
}

/// Finds the model of a record: a header's, or else that of the message, or else that of the topic.
fn target(
    shared: &Shared,
    exchange: &Exchange<'_>,
    record: &Record,
    own: Option<(&str, Option<&str>)>,
) -> Result<ModelTarget, RecordError> {
    let version = record.text("mlserver-version").filter(|version| !version.is_empty());
    let default = || shared.options.settings.topic_models.get(record.topic()).map(String::as_str);
    let (name, version) = match (record.text("mlserver-model").filter(|name| !name.is_empty()), own) {
        (Some(name), _) => (name, version),
        (None, Some((name, own_version))) if !name.is_empty() => (name, version.or(own_version)),
        _ => (default().ok_or(RecordError::NoModel)?, version),
    };
    // A record is only here if it has been started, and may be one before others that have been answered: their offsets are committed
    // after its own, so that a server that stops answers it, too.
    Ok(exchange.target_in_flight(name, version)?)
}

async fn read_json(
    shared: &Shared,
    exchange: &Exchange<'_>,
    record: &Record,
    headers: &HeaderMap,
    value: &Bytes,
) -> Result<(ModelTarget, InferenceRequest, ValueForm), RecordError> {
    payload::check_content_type(headers)?;
    let target = target(shared, exchange, record, None)?;
    let rule = shared.inference.tensor_rule(&target.model);
    let Payload { json, binary } = Payload::split(value.clone(), payload::json_length(headers)?)?;
    let read = move || json::read_request_with(&json, binary, rule);
    let JsonRequest { mut request, id, binary_outputs } = exchange.read(value.len(), read).await??;
    request.id = id.unwrap_or_default();
    Ok((target, request, ValueForm::Json(binary_outputs)))
}

async fn read_protobuf(
    shared: &Shared,
    exchange: &Exchange<'_>,
    record: &Record,
    value: &Bytes,
) -> Result<(ModelTarget, InferenceRequest, ValueForm), RecordError> {
    let message = value.clone();
    let read = move || protobuf::read_request_with(&message, TensorRule::AsSent);
    let ProtobufRequest { model_name, model_version, request, raw } = exchange.read(value.len(), read).await??;
    let target = target(shared, exchange, record, Some((&model_name, model_version.as_deref())))?;
    shared.inference.tensor_rule(&target.model).check(&request.inputs).map_err(protobuf::ReadError::from)?;
    Ok((target, request, ValueForm::Protobuf { raw }))
}

/// A value, and the headers that describe it.
type Written = (Vec<u8>, Vec<(HeaderName, String)>);

/// Writes the value of an answer.
fn write(response: &InferenceResponse, form: &ValueForm, non_finite: NonFinite) -> Result<Written, RecordError> {
    match form {
        ValueForm::Protobuf { raw } => {
            let value = ResponseEncoder::new(response, *raw)?.write(Vec::new()).concat();
            Ok((value, vec![(CONTENT_TYPE, PROTOBUF[0].to_owned())]))
        }
        ValueForm::Json(binary) => {
            let options = WriteOptions { binary: binary.clone(), non_finite };
            let JsonBody { json: mut value, binary } = json::write_response(response, &options)?;
            if binary.is_empty() {
                return Ok((value, Vec::new()));
            }
            let content_type = (CONTENT_TYPE, "application/octet-stream".to_owned());
            let described = vec![content_type, (JSON_LENGTH, value.len().to_string())];
            value.extend_from_slice(&binary.concat());
            Ok((value, described))
        }
    }
}

/// Returns the topic for the dead letters of a record.
pub(super) fn dead_letter_topic(shared: &Shared, topic: &str) -> Arc<str> {
    match &shared.options.settings.topic_dead_letters {
        Some(name) => name.as_str().into(),
        None => format!("{topic}{}", super::DEAD_LETTERS).into(),
    }
}
