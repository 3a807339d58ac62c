//! The records that the server writes: answers, and dead letters.

use std::sync::Arc;

use rdkafka::message::{Header, OwnedHeaders};

use super::record::Record;

/// The headers of dead letters begin with this.
const ERROR: &str = "mlserver-error";

/// Headers of a request that describe it or its sender, rather than what it belongs to.
const OF_REQUEST: [&str; 10] = [
    "authorization",
    "connection",
    "cookie",
    "host",
    "inference-header-content-length",
    "mlserver-method",
    "mlserver-model",
    "mlserver-request-id",
    "mlserver-version",
    "request-timeout",
];

/// A record to write.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) topic: Arc<str>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    /// `None` if it is an answer.
    pub(super) failure: Option<RecordFailure>,
    /// The record that it answers.
    pub(super) record: Box<Record>,
}

/// Why a record is a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordFailure {
    pub(super) reason: String,
    /// The HTTP status of the same failure over REST.
    pub(super) status: u16,
    /// How often the model was tried.
    pub(super) attempts: u32,
}

impl Outgoing {
    /// Creates the answer to a record: its own headers but for those that describe the request, and then `headers`.
    pub(super) fn answer(
        topic: Arc<str>,
        record: Box<Record>,
        id: &str,
        value: Vec<u8>,
        headers: Vec<(String, Vec<u8>)>,
    ) -> Self {
        let is_kept = |name: &str| {
            let describes = OF_REQUEST.iter().any(|other| name.eq_ignore_ascii_case(other))
                || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"))
                || name.starts_with(ERROR);
            !describes && !headers.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
        };
        let kept = record.headers.iter().filter(|(name, _)| is_kept(name)).cloned();
        let kept: Vec<_> = kept.collect();
        let headers = kept.into_iter().chain(headers.into_iter().map(|(name, value)| (name, Some(value)))).collect();
        let key = record.key.clone().or_else(|| (!id.is_empty()).then(|| id.as_bytes().to_vec()));
        Self { topic, key, value: Some(value), headers, failure: None, record }
    }

    /// Creates the dead letter of a record: as it was read, with headers that say why.
    pub(super) fn dead_letter(topic: Arc<str>, record: Box<Record>, failure: RecordFailure) -> Self {
        // An earlier failure, of a dead letter that was sent again, is over.
        let mut headers: Vec<_> = record.headers.iter().filter(|(name, _)| !name.starts_with(ERROR)).cloned().collect();
        let said = [
            ("", failure.reason.clone()),
            ("-status", failure.status.to_string()),
            ("-attempts", failure.attempts.to_string()),
            ("-topic", record.topic().to_owned()),
            ("-partition", record.partition().to_string()),
            ("-offset", record.offset.to_string()),
        ];
        headers.extend(said.map(|(name, value)| (format!("{ERROR}{name}"), Some(value.into_bytes()))));
        let (key, value) = (record.key.clone(), record.value.as_ref().map(|value| value.to_vec()));
        Self { topic, key, value, headers, failure: Some(failure), record }
    }

    /// Returns what to write in place of a record that the brokers find too large: a dead letter, and if it is one, the same
    /// without its value.
    pub(super) fn smaller(self, topic: Arc<str>) -> Self {
        let Some(failure) = self.failure else {
            let size = self.value.as_ref().map_or(0, Vec::len);
            let reason = format!("the answer has {size} bytes, more than a record may have (`message.max.bytes`)");
            return Self::dead_letter(topic, self.record, RecordFailure { reason, status: 413, attempts: 1 });
        };
        let reason = format!("{} (this dead letter has no value, because it would be too large)", failure.reason);
        let failure = RecordFailure { reason, ..failure };
        let mut letter = Self::dead_letter(topic, self.record, failure);
        letter.value = None;
        // What is too large may also be a header.
        letter.headers.retain(|(name, _)| name.starts_with(ERROR));
        letter
    }

    /// Returns the headers as librdkafka needs them.
    pub(super) fn owned_headers(&self) -> OwnedHeaders {
        let empty = OwnedHeaders::new_with_capacity(self.headers.len());
        self.headers.iter().fold(empty, |headers, (key, value)| headers.insert(Header { key, value: value.as_ref() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(outgoing: &Outgoing) -> Vec<&str> {
        outgoing.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn text<'a>(outgoing: &'a Outgoing, name: &str) -> &'a str {
        let (_, value) = outgoing.headers.iter().find(|(header, _)| header == name).unwrap();
        std::str::from_utf8(value.as_deref().unwrap()).unwrap()
    }

    #[test]
    fn answer_keeps_key_and_headers_that_do_not_describe_the_request() {
        let names_of_record =
            ["x-own", "traceparent", "Content-Type", "mlserver-model", "CE-ID", "mlserver-error-status", "Cookie"];
        let record = Record::for_test(Some("key"), "{}", &names_of_record.map(|name| (name, "1")));
        let answer =
            Outgoing::answer("out".into(), record, "id", b"{}".to_vec(), vec![("Ce-Id".into(), b"2".to_vec())]);
        assert_eq!(names(&answer), ["x-own", "traceparent", "Ce-Id"]);
        assert_eq!(answer.key.as_deref(), Some(b"key".as_slice()));
        let record = Record::for_test(None, "{}", &[]);
        let answer = Outgoing::answer("out".into(), record, "id", Vec::new(), Vec::new());
        assert_eq!(answer.key.as_deref(), Some(b"id".as_slice()));
    }

    #[test]
    fn dead_letter_is_the_record_with_the_reason() {
        let record = Record::for_test(Some("key"), "{", &[("x-own", "1"), ("mlserver-error-status", "1")]);
        let failure = RecordFailure { reason: "broken".to_owned(), status: 422, attempts: 1 };
        let letter = Outgoing::dead_letter("dead".into(), record, failure);
        assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some(b"key".as_slice()), Some(b"{".as_slice())));
        assert_eq!((text(&letter, "mlserver-error"), text(&letter, "mlserver-error-status")), ("broken", "422"));
        assert_eq!((text(&letter, "mlserver-error-offset"), text(&letter, "mlserver-error-topic")), ("7", "input"));
        assert_eq!(letter.headers.len(), 7);
    }

    #[test]
    fn records_that_are_too_large_become_dead_letters_and_then_lose_their_value() {
        let record = Record::for_test(None, "value", &[("x-own", "1")]);
        let answer = Outgoing::answer("out".into(), record, "id", vec![0; 100], Vec::new());
        let letter = answer.smaller("dead".into());
        assert_eq!(
            (text(&letter, "mlserver-error-status"), letter.value.as_deref()),
            ("413", Some(b"value".as_slice()))
        );
        assert!(text(&letter, "mlserver-error").contains("100 bytes"));
        let empty = letter.smaller("dead".into());
        assert_eq!((empty.value.as_deref(), names(&empty).len()), (None, 6));
    }
}
