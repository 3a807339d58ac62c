//! The headers of requests, as models see them, and of responses: those of the transport and the model, and the
//! `CloudEvents` headers that the original adds to both.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::warn;

use super::model_headers::{self, ForwardedHeaders};
use super::respond::JSON;
use crate::registry::RegisteredModel;
use crate::types::{InferenceRequest, InferenceResponse};

/// The file in which a pod finds its Kubernetes namespace.
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

/// The headers of responses, and how the original spells their names in a body, in its order.
const IN_BODY: [(HeaderName, &str); 9] = [
    (SPEC_VERSION, "Ce-Specversion"),
    (SOURCE, "Ce-Source"),
    (TYPE, "Ce-Type"),
    (MODEL_ID, "Ce-Modelid"),
    (SERVICE, "Ce-Inferenceservicename"),
    (ENDPOINT, "Ce-Endpoint"),
    (ID, "Ce-Id"),
    (REQUEST_ID, "Ce-Requestid"),
    (NAMESPACE, "Ce-Namespace"),
];

/// The longest id, in bytes, that becomes a header: clients and proxies reject responses with long headers.
const MAX_ID: usize = 1024;

/// The header values that are the same for every message.
#[derive(Debug)]
pub(super) struct CloudEvents {
    service: Option<HeaderValue>,
    source: Option<HeaderValue>,
    namespace: Option<HeaderValue>,
    forwarded: ForwardedHeaders,
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
            forwarded: ForwardedHeaders::default(),
        }
    }

    /// Lets models see more of the headers of requests.
    pub(super) fn with_forwarded(self, forwarded: ForwardedHeaders) -> Self {
        Self { forwarded, ..self }
    }

    /// Sets a request's headers to those of its transport and our own, if its model reads headers.
    pub(super) fn set_request_headers(
        &self,
        request: &mut InferenceRequest,
        headers: &HeaderMap,
        model: &RegisteredModel,
    ) {
        if request.parameters.others.written().and_then(|others| others.shift_remove("headers")).is_some() {
            warn!(
                model = model.name,
                request_id = request.id,
                "Ignoring the request parameter `headers`: it is reserved for the transport's headers."
            );
        }
        if model.reads_headers() {
            headers.clone_into(&mut request.headers);
            self.forwarded.hide_from(model, &mut request.headers);
            self.add_to_request(&mut request.headers, model, &request.id);
            request.set_trace_header();
        }
    }

    /// Takes the headers out of a response and adds our own, with the content type of JSON.
    pub(super) fn take_response_headers(&self, response: &mut InferenceResponse, model: &RegisteredModel) -> HeaderMap {
        let mut headers = self.response_headers(model, &response.id);
        if let Some(of_model) = response.headers.written() {
            model_headers::filter(of_model);
            // Ours override the model's headers of the same name.
            let ours = std::mem::replace(&mut headers, std::mem::take(of_model));
            headers.extend(ours);
        }
        headers
    }

    /// Takes the headers out of a response and adds our own, under the names that the original uses in Kafka's records.
    #[cfg(feature = "kafka")]
    pub(super) fn take_record_headers(
        &self,
        response: &mut InferenceResponse,
        model: &RegisteredModel,
    ) -> Vec<(String, Vec<u8>)> {
        let ours = self.headers_in_body(model, &response.id).map(|(name, value)| (name.to_owned(), value.into_bytes()));
        let ours: Vec<_> = ours.collect();
        let mut of_model = std::mem::take(&mut response.headers).into_inner();
        model_headers::filter(&mut of_model);
        let is_ours = |name: &HeaderName| IN_BODY.iter().any(|(own, _)| own == name);
        let of_model = of_model.iter().filter(|(name, _)| !is_ours(name));
        let of_model = of_model.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        of_model.chain(ours).collect()
    }

    /// Adds the headers of a request, which override any of the same names. Names and ids that are not valid header
    /// values are omitted.
    fn add_to_request(&self, headers: &mut HeaderMap, model: &RegisteredModel, id: &str) {
        headers.extend(self.common("io.seldon.serving.inference.request", model));
        if let Some(id) = id_value(id) {
            headers.insert(ID, id.clone());
            headers.insert(REQUEST_ID, id);
        }
    }

    /// Returns our headers of a response, with the content type of JSON.
    fn response_headers(&self, model: &RegisteredModel, id: &str) -> HeaderMap {
        let common = || {
            let mut headers = self.common("io.seldon.serving.inference.response", model);
            headers.insert(CONTENT_TYPE, JSON);
            // The ids are in the map already, so that a copy of it need not grow.
            for name in [ID, REQUEST_ID] {
                headers.insert(name, HeaderValue::from_static(""));
            }
            headers
        };
        let mut headers = model.response_headers.get_or_init(common).clone();
        let id = id_value(id);
        for name in [ID, REQUEST_ID] {
            match (&id, headers.get_mut(&name)) {
                (Some(id), Some(value)) => value.clone_from(id),
                _ => drop(headers.remove(name)),
            }
        }
        headers
    }

    /// Returns the headers of a response that can only carry them in its body, under the names that the original uses there.
    pub(super) fn headers_in_body(
        &self,
        model: &RegisteredModel,
        id: &str,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let headers = self.response_headers(model, id);
        IN_BODY.into_iter().filter_map(move |(name, written)| {
            let value = headers.get(name)?.to_str().ok()?.to_owned();
            Some((written, value))
        })
    }

    /// Returns the headers that do not depend on the message.
    fn common(&self, kind: &'static str, model: &RegisteredModel) -> HeaderMap {
        let optional = [
            (SPEC_VERSION, Some(HeaderValue::from_static("0.3"))),
            (TYPE, Some(HeaderValue::from_static(kind))),
            (SOURCE, self.source.clone()),
            (MODEL_ID, model.header().cloned()),
            (SERVICE, self.service.clone()),
            (ENDPOINT, model.header().cloned()),
            (NAMESPACE, self.namespace.clone()),
        ];
        optional.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Returns an id as the value of a header, if it is a valid one.
fn id_value(id: &str) -> Option<HeaderValue> {
    value(id).filter(|id| !id.is_empty() && id.len() <= MAX_ID)
}

fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::FnLoader;

    fn sorted(headers: &HeaderMap) -> Vec<(&str, &str)> {
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        headers.sort_unstable();
        headers
    }

    fn model() -> std::sync::Arc<RegisteredModel> {
        let mut metrics = crate::telemetry::metrics::Registry::default();
        let metrics = crate::telemetry::inference::InferenceMetrics::register(&mut metrics);
        let registry = crate::registry::Registry::new(FnLoader::never(), metrics);
        registry.announce(&crate::settings::ModelSettings::new("sum", "package.Class"));
        registry.find("sum", None).unwrap()
    }

    #[test]
    fn cloud_event_headers_match_original() {
        let expected = [
            ("ce-endpoint", "sum"),
            ("ce-id", "my-id"),
            ("ce-inferenceservicename", "mlserver"),
            ("ce-modelid", "sum"),
            ("ce-requestid", "my-id"),
            ("ce-source", "io.seldon.serving.deployment.mlserver"),
            ("ce-specversion", "0.3"),
            ("ce-type", "io.seldon.serving.inference.response"),
            ("content-type", "application/json"),
        ];
        let events = CloudEvents::new("mlserver");
        let headers = events.response_headers(&model(), "my-id");
        assert_eq!(sorted(&headers), expected);
        let mut headers = HeaderMap::new();
        headers.insert(ID, HeaderValue::from_static("the client's own"));
        headers.insert("x-other", HeaderValue::from_static("kept"));
        events.add_to_request(&mut headers, &model(), "my-id");
        assert_eq!(headers[ID], "my-id");
        assert_eq!(headers[TYPE], "io.seldon.serving.inference.request");
        assert_eq!(headers.len(), expected.len(), "no content type, but `x-other`");
    }

    #[test]
    fn cloud_event_id_that_is_no_valid_header_is_omitted() {
        for id in ["", "a\nb", &"a".repeat(MAX_ID + 1)] {
            let headers = CloudEvents::new("mlserver").response_headers(&model(), id);
            assert!(!headers.contains_key(ID) && !headers.contains_key(REQUEST_ID));
        }
    }
}
