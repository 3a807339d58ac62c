//! The records that the server reads.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers};

use super::assignment::AssignedPartition;
use super::in_flight::HeldBytes;

/// The most headers of a record that become headers of its request.
const MAX_HEADERS: usize = 128;

/// A record that has been read, and whose offset is not committed.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) source: Arc<AssignedPartition>,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    /// `None` for a tombstone.
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    /// When it was written: milliseconds since 1970, if the topic has times.
    timestamp: Option<i64>,
    _held: Option<HeldBytes>,
}

impl Record {
    /// Copies a record out of the client's buffers.
    pub(super) fn read(message: &BorrowedMessage<'_>, source: Arc<AssignedPartition>, held: HeldBytes) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        Self {
            source,
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(Bytes::copy_from_slice),
            headers,
            timestamp: message.timestamp().to_millis(),
            _held: Some(held),
        }
    }

    pub(super) fn topic(&self) -> &str {
        &self.source.topic
    }

    pub(super) fn partition(&self) -> i32 {
        self.source.number
    }

    /// Returns how long the record has been in its topic, by the clocks of both sides.
    pub(super) fn age(&self) -> Option<Duration> {
        let written = Duration::from_millis(u64::try_from(self.timestamp?).ok()?);
        Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.saturating_sub(written))
    }

    /// Returns the text of a header, if it is there and has one. Of several, the last one counts, as in Kafka's own client.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(header, _)| header.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value.as_deref()?).ok()
    }

    /// Returns the headers of the request: those that HTTP could carry, of the first [`MAX_HEADERS`].
    pub(super) fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.headers.len().min(MAX_HEADERS));
        for (name, value) in self.headers.iter().take(MAX_HEADERS) {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_deref().unwrap_or_default());
            if let (Ok(name), Ok(value)) = (name, value) {
                // Fails only beyond thousands of headers.
                let _ = map.try_append(name, value);
            }
        }
        map
    }

    #[cfg(test)]
    pub(super) fn for_test(key: Option<&str>, value: &str, headers: &[(&str, &str)]) -> Box<Self> {
        let source = AssignedPartition::for_test("input", 3);
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), Some(value.as_bytes().to_vec()))).collect();
        let (key, value) = (key.map(|key| key.as_bytes().to_vec()), Some(Bytes::copy_from_slice(value.as_bytes())));
        Box::new(Self { source, offset: 7, key, value, headers, timestamp: None, _held: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_http_cannot_carry_are_omitted() {
        let mut record =
            Record::for_test(None, "", &[("X-Own", "1"), ("a b", "1"), ("x-line", "a\nb"), ("x-own", "2")]);
        record.headers.push(("x-null".to_owned(), None));
        let map = record.header_map();
        assert_eq!(map.get_all("x-own").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((map.len(), map["x-null"].len()), (3, 0));
        assert_eq!(record.text("X-OWN"), Some("2"));
        record.headers = (0..100_000).map(|index| (format!("h{index}"), None)).collect();
        assert_eq!(record.header_map().len(), MAX_HEADERS);
    }
}
