//! One attempt at a record: from its value and headers through the path of all requests to the record that answers it.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::Shared;
use super::errors::RecordError;
use super::record::Record;
use crate::inference::{Admission, InferenceError, ModelTarget};
use crate::server::payload::{self, JSON_LENGTH, Payload};
use crate::server::{deadline, priority};
use crate::types::json::{self, BinaryOutputs, JsonBody, JsonRequest, WriteOptions};
use crate::types::protobuf::{self, ProtobufRequest, ResponseEncoder};
use crate::types::{InferenceRequest, InferenceResponse, TraceContext};

/// Values of at least this many bytes are parsed, and written, on the compute pool.
const LONG_VALUE: usize = 64 * 1024;

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
    let mut admission = shared.inference.admission();
    admission.reservation.grow(value.len())?;
    let (target, mut request, form) = if is_protobuf(record) {
        read_protobuf(shared, record, headers, value).await?
    } else {
        read_json(shared, record, headers, value).await?
    };
    let target = target.with_deadline(until);
    admission.reservation.resize(value.len().max(request.memory_bytes()))?;
    request.id = id(record, std::mem::take(&mut request.id));
    priority::assign(&mut request, headers)?;
    request.trace = trace;
    shared.cloud_events.set_request_headers(&mut request, headers, &target.model);
    let priority = request.priority;
    let _slot = admit(shared, until, &mut admission).await?;
    let mut response = shared.inference.infer(&target, request, &mut admission).await?;
    let mut headers = shared.cloud_events.take_record_headers(&mut response, &target.model);
    let id = response.id.clone();
    let value = if response.memory_bytes() < LONG_VALUE {
        write(&response, &form, shared, &mut headers)?
    } else {
        let owned = shared.clone();
        let work = move || {
            let value = write(&response, &form, &owned, &mut headers)?;
            Ok::<_, RecordError>((value, headers))
        };
        let (value, written) = shared.compute.run_at(priority, work).await??;
        headers = written;
        value
    };
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
async fn admit<'a>(
    shared: &'a Shared,
    until: Option<Instant>,
    admission: &mut Admission,
) -> Result<SemaphorePermit<'a>, RecordError> {
    let admitted = async {
        // It is never closed.
        let permit = shared.slots.acquire().await.map_err(|_| InferenceError::Stopping)?;
        shared.inference.wait_for_slot(admission).await?;
        Ok(permit)
    };
    match until {
        None => admitted.await,
        Some(until) => timeout_at(until, admitted).await.map_err(|_| InferenceError::Deadline)?,
    }
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
        None if own.is_empty() => Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()).to_owned(),
        None => own,
    }
}

/// Finds the model of a record: a header's, or else that of the message, or else that of the topic.
fn target(shared: &Shared, record: &Record, own: Option<(&str, Option<&str>)>) -> Result<ModelTarget, RecordError> {
    let version = record.text("mlserver-version").filter(|version| !version.is_empty());
    let of_topic = || shared.options.settings.topic_models.get(record.topic()).map(String::as_str);
    let (name, version) = match (record.text("mlserver-model").filter(|name| !name.is_empty()), own) {
        (Some(name), _) => (name, version),
        (None, Some((name, own_version))) if !name.is_empty() => (name, version.or(own_version)),
        _ => (of_topic().ok_or(RecordError::NoModel)?, version),
    };
    Ok(shared.inference.target(name, version)?)
}

async fn read_json(
    shared: &Shared,
    record: &Record,
    headers: &HeaderMap,
    value: &Bytes,
) -> Result<(ModelTarget, InferenceRequest, ValueForm), RecordError> {
    payload::check_content_type(headers)?;
    let target = target(shared, record, None)?;
    let rule = shared.inference.tensor_rule(&target.model);
    let Payload { json, binary } = Payload::split(value.clone(), payload::json_length(headers)?)?;
    let read = move || json::read_request_with(&json, binary, rule);
    let JsonRequest { mut request, id, binary_outputs } = if value.len() < LONG_VALUE {
        read()?
    } else {
        shared.compute.run_at(priority::of_headers(headers), read).await??
    };
    request.id = id.unwrap_or_default();
    Ok((target, request, ValueForm::Json(binary_outputs)))
}

async fn read_protobuf(
    shared: &Shared,
    record: &Record,
    headers: &HeaderMap,
    value: &Bytes,
) -> Result<(ModelTarget, InferenceRequest, ValueForm), RecordError> {
    let message = value.clone();
    let read = move || protobuf::read_request_with(&message, crate::types::TensorRule::AsSent);
    let ProtobufRequest { model_name, model_version, request, raw } = if value.len() < LONG_VALUE {
        read()?
    } else {
        shared.compute.run_at(priority::of_headers(headers), read).await??
    };
    let target = target(shared, record, Some((&model_name, model_version.as_deref())))?;
    shared.inference.tensor_rule(&target.model).check(&request.inputs).map_err(protobuf::ReadError::from)?;
    Ok((target, request, ValueForm::Protobuf { raw }))
}

/// Writes the value of an answer, and adds the headers that describe it.
fn write(
    response: &InferenceResponse,
    form: &ValueForm,
    shared: &Shared,
    headers: &mut Vec<(String, Vec<u8>)>,
) -> Result<Vec<u8>, RecordError> {
    let mut describe = |name: &str, value: &str| headers.push((name.to_owned(), value.as_bytes().to_vec()));
    match form {
        ValueForm::Protobuf { raw } => {
            describe(CONTENT_TYPE.as_str(), PROTOBUF[0]);
            Ok(ResponseEncoder::new(response, *raw)?.write(Vec::new()).concat())
        }
        ValueForm::Json(binary) => {
            let options = WriteOptions { binary: binary.clone(), non_finite: shared.options.non_finite };
            let JsonBody { json: mut value, binary } = json::write_response(response, &options)?;
            if !binary.is_empty() {
                describe(CONTENT_TYPE.as_str(), "application/octet-stream");
                describe(JSON_LENGTH.as_str(), &value.len().to_string());
                value.extend_from_slice(&binary.concat());
            }
            Ok(value)
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
