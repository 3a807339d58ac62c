//! CloudEvents over HTTP (CloudEvents 1.0, "HTTP Protocol Binding"), as Knative's brokers deliver them: a request that is an event
//! is answered with one, in the same mode. The attributes of the answer are those of KServe.

use bytes::Bytes;
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::respond::{self, BodyChunks, Response};
use crate::server::model_headers;
use crate::settings::CloudEventVariables;
use crate::types::json::{EventData, EventError, StructuredEvent, read_event, write_event};

const STRUCTURED: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch";
const PREFIX: &str = "ce-";
/// The headers that make a request an event.
const REQUIRED: [HeaderName; 4] = [
    HeaderName::from_static("ce-specversion"),
    HeaderName::from_static("ce-id"),
    HeaderName::from_static("ce-source"),
    HeaderName::from_static("ce-type"),
];
/// The attributes that each answer sets itself.
const OWN: [&str; 5] = ["specversion", "id", "source", "type", "time"];

/// The content mode of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventMode {
    /// The attributes are headers.
    Binary,
    /// The body has the attributes and the data.
    Structured,
}

/// A request that is an event, and is answered with one.
#[derive(Debug)]
pub(super) struct Event {
    mode: EventMode,
    /// The attributes of the request.
    attributes: Vec<(String, String)>,
}

impl Event {
    /// Returns the event of a request with the headers of one. The attributes of a structured event are in its body: see
    /// [`Event::open`].
    ///
    /// # Errors
    ///
    /// Fails for a batch of events.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Box<Self>>, EventError> {
        if let Some(found) = headers.get(CONTENT_TYPE).filter(|value| value.as_bytes().len() >= STRUCTURED.len()) {
            let text = String::from_utf8_lossy(found.as_bytes());
            let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if essence == STRUCTURED {
                return Ok(Some(Box::new(Self { mode: EventMode::Structured, attributes: Vec::new() })));
            }
            if essence.starts_with(BATCH) {
                return Err(EventError::Batch { found: essence });
            }
        }
        if REQUIRED.into_iter().any(|name| !headers.contains_key(name)) {
            return Ok(None);
        }
        let attribute = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().strip_prefix(PREFIX)?.to_owned(), value.to_str().ok()?.to_owned()))
        };
        let attributes = headers.iter().filter_map(attribute).collect();
        Ok(Some(Box::new(Self { mode: EventMode::Binary, attributes })))
    }

    /// Takes the data out of the body of a structured event, and its attributes into `self`. Other bodies stay as they are.
    ///
    /// # Errors
    ///
    /// Fails if the body is an event that is not complete.
    pub(super) fn open(&mut self, body: Bytes) -> Result<Bytes, EventError> {
        if self.mode == EventMode::Binary {
            return Ok(body);
        }
        match read_event(&body)? {
            // KServe answers other JSON with an event, too.
            None => Ok(body),
            Some(StructuredEvent { attributes, data }) => {
                self.attributes = attributes;
                Ok(data_of(data, &body))
            }
        }
    }

    /// Adds the attributes of a structured event to the headers that a model sees, as a binary event has them.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        if self.mode == EventMode::Structured {
            headers.extend(headers_of(&self.attributes));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }

    /// Reports whether the attributes of the event are in its body.
    pub(super) fn is_structured(&self) -> bool {
        self.mode == EventMode::Structured
    }

    /// Makes the headers of an answer in JSON those of an event, and returns what precedes and follows the JSON in its body.
    pub(super) fn enclose(
        &self,
        options: &CloudEventVariables,
        model: &str,
        headers: &mut HeaderMap,
    ) -> (Bytes, Bytes) {
        let attributes = self.answer_attributes(options, model);
        match self.mode {
            EventMode::Binary => {
                headers.extend(headers_of(&attributes));
                (Bytes::new(), Bytes::new())
            }
            EventMode::Structured => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(STRUCTURED));
                let (begin, end) = write_event(&attributes, None);
                (begin.into(), Bytes::from_static(end))
            }
        }
    }

    /// Does the same for an answer of the V2 protocol; see [`Event::answer_v2`].
    pub(super) fn enclose_v2(
        &self,
        options: &CloudEventVariables,
        model: &str,
        headers: &mut HeaderMap,
    ) -> (Bytes, Bytes) {
        self.set_headers_v2(options, headers);
        match self.mode {
            EventMode::Binary => (Bytes::new(), Bytes::new()),
            EventMode::Structured => self.enclose(options, model, headers),
        }
    }

    /// Returns the answer as an event, unless it is an error.
    pub(super) fn answer(&self, options: &CloudEventVariables, model: &str, mut response: Response) -> Response {
        if !response.status().is_success() {
            return response;
        }
        let content_type = response.headers().get(CONTENT_TYPE).cloned();
        let is_json = content_type.as_ref().is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
        if self.mode == EventMode::Binary || is_json {
            let (begin, end) = self.enclose(options, model, response.headers_mut());
            return response.map(|body| {
                let chunks = [begin].into_iter().chain(body.iter().cloned()).chain([end]);
                BodyChunks::from_all(chunks.filter(|chunk| !chunk.is_empty()).collect())
            });
        }
        let mut attributes = self.answer_attributes(options, model);
        let status = response.status();
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(STRUCTURED));
        if let Some(content_type) = content_type.as_ref().and_then(|value| value.to_str().ok()) {
            attributes.push(("datacontenttype".to_owned(), content_type.to_owned()));
        }
        let (begin, end) = write_event(&attributes, Some(&body.iter().cloned().collect::<Vec<_>>().concat()));
        let all = vec![Bytes::from(begin), Bytes::from_static(end)];
        respond::response(status, parts.headers, BodyChunks::from_all(all))
    }

    /// Returns the answer of the V2 protocol, whose headers are the attributes of an event already, as those of the original.
    /// `CE_SOURCE`, `CE_TYPE` and `CE_MERGE` apply to them, too.
    pub(super) fn answer_v2(&self, options: &CloudEventVariables, model: &str, mut response: Response) -> Response {
        self.set_headers_v2(options, response.headers_mut());
        match self.mode {
            EventMode::Binary => response,
            EventMode::Structured => self.answer(options, model, response),
        }
    }

    fn set_headers_v2(&self, options: &CloudEventVariables, headers: &mut HeaderMap) {
        if self.mode == EventMode::Structured {
            model_headers::remove_matching(headers, |name| name.starts_with(PREFIX));
            return;
        }
        if options.merge {
            let others: Vec<_> = self.attributes.iter().filter(|(name, _)| !is_own(name)).cloned().collect();
            for (name, value) in &headers_of(&others) {
                headers.entry(name).or_insert_with(|| value.clone());
            }
        }
        let chosen = [("source", &options.source), ("type", &options.kind)];
        let chosen = chosen.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        headers.extend(headers_of(&chosen.collect::<Vec<_>>()));
    }

    fn answer_attributes(&self, options: &CloudEventVariables, model: &str) -> Vec<(String, String)> {
        let source = options.source.clone().unwrap_or_else(|| format!("io.kserve.inference.{model}"));
        let kind = options.kind.clone().unwrap_or_else(|| "io.kserve.inference.response".to_owned());
        let time = DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Micros, false);
        let of_request = self.attributes.iter().find(|(name, _)| options.merge && name == OWN[0]);
        let version = of_request.map_or_else(|| "1.0".to_owned(), |(_, version)| version.clone());
        let own = [version, uuid::Uuid::new_v4().to_string(), source, kind, time];
        let own = OWN.into_iter().map(str::to_owned).zip(own);
        if !options.merge {
            return own.collect();
        }
        own.chain(self.attributes.iter().filter(|(name, _)| !is_own(name)).cloned()).collect()
    }
}

/// Reports whether an attribute describes the answer, so that it is not taken from the request.
fn is_own(name: &str) -> bool {
    OWN.contains(&name) || name == "datacontenttype"
}

/// Returns the data of JSON that has the attributes of an event but not its content type, as KServe does. Returns `None`
/// for other JSON.
pub(super) fn data_of_untyped(body: &Bytes) -> Option<Bytes> {
    read_event(body).ok().flatten().map(|event| data_of(event.data, body))
}

fn data_of(data: EventData, body: &Bytes) -> Bytes {
    match data {
        EventData::Json(range) => body.slice(range),
        EventData::Binary(binary) => binary.into(),
    }
}

/// Returns attributes as headers, without those that headers cannot hold.
fn headers_of(attributes: &[(String, String)]) -> HeaderMap {
    let header = |(name, value): &(String, String)| {
        let name = HeaderName::try_from(format!("{PREFIX}{name}")).ok()?;
        Some((name, HeaderValue::try_from(value.as_str()).ok()?))
    };
    attributes.iter().filter_map(header).collect()
}
