//! The `CloudEvents` headers that the original puts on requests, for the model to see, and on answers.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The file in which Kubernetes tells a pod its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

const SPEC_VERSION: HeaderName = HeaderName::from_static("ce-specversion");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
const TYPE: HeaderName = HeaderName::from_static("ce-type");
const MODEL_ID: HeaderName = HeaderName::from_static("ce-modelid");
const SERVICE: HeaderName = HeaderName::from_static("ce-inferenceservicename");
const ENDPOINT: HeaderName = HeaderName::from_static("ce-endpoint");
const ID: HeaderName = HeaderName::from_static("ce-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("ce-requestid");
const NAMESPACE: HeaderName = HeaderName::from_static("ce-namespace");

/// The longest id, in bytes, that becomes a header: clients and proxies refuse answers with long headers.
const MAX_ID: usize = 1024;

/// Which message the headers describe.
#[derive(Debug, Clone, Copy)]
pub(super) enum Message {
    Request,
    Response,
}

/// The headers' values that are the same for every message.
#[derive(Debug)]
pub(super) struct CloudEvents {
    service: Option<HeaderValue>,
    source: Option<HeaderValue>,
    namespace: Option<HeaderValue>,
}

impl CloudEvents {
    pub(super) fn new(server_name: &str) -> Self {
        let namespace = std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
        let namespace = namespace.filter(|name| !name.is_empty());
        let suffix = namespace.as_deref().map(|name| format!(".{name}")).unwrap_or_default();
        Self {
            service: value(server_name),
            source: value(&format!("io.seldon.serving.deployment.{server_name}{suffix}")),
            namespace: namespace.as_deref().and_then(value),
        }
    }

    /// Adds the headers, over any of the same names. Names and ids that no header can hold are left out.
    pub(super) fn add(&self, headers: &mut HeaderMap, message: Message, model: Option<&HeaderValue>, id: &str) {
        let kind = match message {
            Message::Request => "io.seldon.serving.inference.request",
            Message::Response => "io.seldon.serving.inference.response",
        };
        headers.reserve(9);
        headers.insert(SPEC_VERSION, HeaderValue::from_static("0.3"));
        headers.insert(TYPE, HeaderValue::from_static(kind));
        let id = if id.is_empty() || id.len() > MAX_ID { None } else { value(id) };
        let optional = [
            (SOURCE, self.source.clone()),
            (MODEL_ID, model.cloned()),
            (SERVICE, self.service.clone()),
            (ENDPOINT, model.cloned()),
            (ID, id.clone()),
            (REQUEST_ID, id),
            (NAMESPACE, self.namespace.clone()),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(message: Message, id: &str) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert(ID, HeaderValue::from_static("the client's own"));
        CloudEvents::new("mlserver").add(&mut headers, message, Some(&HeaderValue::from_static("sum")), id);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .filter(|(_, v)| v != "the client's own")
            .collect();
        headers.sort();
        headers
    }

    #[test]
    fn headers_are_the_original_s() {
        let expected = [
            ("ce-endpoint", "sum"),
            ("ce-id", "my-id"),
            ("ce-inferenceservicename", "mlserver"),
            ("ce-modelid", "sum"),
            ("ce-requestid", "my-id"),
            ("ce-source", "io.seldon.serving.deployment.mlserver"),
            ("ce-specversion", "0.3"),
            ("ce-type", "io.seldon.serving.inference.response"),
        ];
        let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(headers(Message::Response, "my-id"), expected);
    }

    #[test]
    fn an_id_that_no_header_holds_is_left_out() {
        for id in ["", "a\nb", &"a".repeat(MAX_ID + 1)] {
            assert!(headers(Message::Request, id).iter().all(|(name, _)| name != "ce-id" && name != "ce-requestid"));
        }
    }
}
