//! The documents: each is the relevant part of `api.json`, completed with a model's name, inputs and outputs.

use std::sync::LazyLock;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::super::openai;
use super::tensors;
use crate::types::ModelMetadata;

/// The characters that are percent-encoded in a path segment. A brace would be read as a placeholder.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const MODEL_NAME: &str = "{model_name}";
const MODEL_VERSION: &str = "{model_version}";

static API: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("api.json")).expect("a test reads the document"));

/// An `OpenAPI` document.
#[derive(Debug)]
pub(super) struct Document(Value);

impl Document {
    /// Describes everything that is served.
    pub(super) fn everything() -> Self {
        Self(API.clone())
    }

    /// Replaces the prefix of the routes of OpenAI's API. Without one, the paths of models are those of KServe's V1 protocol.
    pub(super) fn with_openai_prefix(mut self, prefix: &str) -> Self {
        if prefix != openai::PREFIX {
            let moved = |(path, item): (String, Value)| match path.strip_prefix(openai::PREFIX) {
                Some(rest) if prefix.is_empty() && rest.starts_with("/v1/models") => None,
                Some(rest) => Some((format!("{prefix}{rest}"), item)),
                None => Some((path, item)),
            };
            *self.paths() = std::mem::take(self.paths()).into_iter().filter_map(moved).collect();
        }
        self
    }

    /// Describes the inference protocol for any model.
    pub(super) fn data_plane() -> Self {
        let mut document = Self::everything();
        document.name("Data Plane", "REST protocol to interact with inference servers.");
        document.retain(|_, tag| !["console", "documentation", "repository"].contains(&tag));
        document
    }

    /// Describes the inference protocol for one model, or for one version of it.
    pub(super) fn of_model(model: &ModelMetadata, version: Option<&str>) -> Self {
        let mut document = Self::data_plane();
        let which = match version {
            Some(version) => format!("Model {} ({version})", model.name),
            None => format!("Model {}", model.name),
        };
        document.name(&format!("Data Plane for {which}"), &format!("REST protocol to interact with {which}"));
        document.retain(|path, tag| {
            path.contains(MODEL_NAME)
                && path.contains(MODEL_VERSION) == version.is_some()
                && !["kserve", "seldon"].contains(&tag)
        });
        document.fill_in(&model.name, version);
        tensors::describe(&mut document.0, model);
        document
    }

    /// Returns the document as text, with the address of the server relative to `path`, where the document is served.
    pub(super) fn served_at(mut self, path: &str) -> String {
        let up = path.matches('/').count().saturating_sub(1);
        let server = if up == 0 { ".".to_owned() } else { vec![".."; up].join("/") };
        self.0["servers"] = json!([{ "url": server, "description": "This server" }]);
        self.0.to_string()
    }

    fn name(&mut self, title: &str, description: &str) {
        self.0["info"]["title"] = title.into();
        self.0["info"]["description"] = description.into();
    }

    fn paths(&mut self) -> &mut Map<String, Value> {
        self.0["paths"].as_object_mut().expect("a test reads the document")
    }

    /// Keeps the paths for which `wanted` returns true, given the path and its tag, and the tags that they use.
    fn retain(&mut self, wanted: impl Fn(&str, &str) -> bool) {
        let mut tags = Vec::new();
        self.paths().retain(|path, item| {
            let tag = tag(item).to_owned();
            let keep = wanted(path, &tag);
            if keep {
                tags.push(tag);
            }
            keep
        });
        if let Some(all) = self.0["tags"].as_array_mut() {
            all.retain(|tag| tags.iter().any(|used| tag["name"] == **used));
        }
    }

    /// Replaces the placeholders in the paths with a model's name and version.
    fn fill_in(&mut self, name: &str, version: Option<&str>) {
        let segment = |text: &str| utf8_percent_encode(text, &SEGMENT).to_string();
        let (name, version) = (segment(name), segment(version.unwrap_or_default()));
        *self.paths() = std::mem::take(self.paths())
            .into_iter()
            .map(|(path, mut item)| {
                if let Some(item) = item.as_object_mut() {
                    // The only parameters of these paths are the model's name and version, which are now fixed.
                    item.shift_remove("parameters");
                }
                (path.replace(MODEL_NAME, &name).replace(MODEL_VERSION, &version), item)
            })
            .collect();
    }
}

/// Returns the tag of a path's operation.
fn tag(item: &Value) -> &str {
    let mut operations = item.as_object().into_iter().flat_map(Map::values);
    operations.find_map(|operation| operation["tags"][0].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::router::{self, Route};
    use super::*;
    use crate::types::{Parameters, TensorMetadata};
    use http::{Method, Uri};
    use std::collections::BTreeSet;

    fn paths(document: &Document) -> BTreeSet<&str> {
        document.0["paths"].as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn openapi_document_describes_exactly_the_served_routes() {
        let document = Document::everything();
        let served: BTreeSet<&str> = router::table().map(|spec| spec.template).collect();
        assert_eq!(paths(&document), served);
        for (path, item) in document.0["paths"].as_object().unwrap() {
            let uri: Uri = path.replace(['{', '}'], "").parse().unwrap();
            let served = if item.get("post").is_some() { Method::POST } else { Method::GET };
            let route = Route::find(&served, uri.path(), &uri).unwrap();
            assert_eq!(route.spec.template, path);
            for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
                let described = item.get(method.to_lowercase()).is_some();
                assert_eq!(described, route.allows(&Method::try_from(method).unwrap()), "{method} {path}");
            }
        }
    }

    #[test]
    fn openapi_document_has_the_prefix_of_the_setting() {
        let paths_with = |prefix: &str| {
            let document = Document::everything().with_openai_prefix(prefix);
            let found =
                paths(&document).into_iter().filter(|path| path.contains("embeddings") || path.ends_with("/v1/models"));
            found.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(paths_with("/openai"), ["/openai/v1/embeddings", "/openai/v1/models", "/v1/models"]);
        assert_eq!(paths_with("/llm"), ["/llm/v1/embeddings", "/llm/v1/models", "/v1/models"]);
        assert_eq!(paths_with(""), ["/v1/embeddings", "/v1/models"]);
    }

    #[test]
    fn openapi_document_references_resolve() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                    }
                    fields.values().for_each(|value| check(value, document));
                }
                Value::Array(items) => items.iter().for_each(|value| check(value, document)),
                _ => {}
            }
        }
        check(&API, &API);
    }

    #[test]
    fn openapi_operations_have_unique_ids_and_one_tag() {
        let mut ids = BTreeSet::new();
        for (path, item) in API["paths"].as_object().unwrap() {
            let tags: Vec<_> =
                API["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
            assert!(tags.contains(&tag(item)), "{path}");
            for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
                assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {path}");
            }
        }
    }

    fn model(name: &str) -> ModelMetadata {
        let tensor = |name: &str, datatype: &str, shape: &[i64]| TensorMetadata {
            name: name.to_owned(),
            datatype: datatype.to_owned(),
            shape: shape.to_vec(),
            parameters: Parameters::default(),
        };
        ModelMetadata {
            name: name.to_owned(),
            versions: Vec::new(),
            platform: String::new(),
            inputs: vec![tensor("in", "FP32", &[-1, 2])],
            outputs: vec![tensor("out", "INT64", &[-1])],
            parameters: Parameters::default(),
        }
    }

    #[test]
    fn openapi_model_document_has_only_its_paths() {
        let document = Document::of_model(&model("a {b}/ü"), None);
        let base = "/v2/models/a%20%7Bb%7D%2F%C3%BC";
        let expected = ["", "/generate", "/generate_stream", "/infer", "/infer_stream", "/ready"];
        assert_eq!(
            paths(&document),
            expected
                .iter()
                .map(|rest| format!("{base}{rest}"))
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect()
        );
        assert_eq!(document.0["info"]["title"], "Data Plane for Model a {b}/ü");
        let document = Document::of_model(&model("m"), Some("1.0"));
        assert!(paths(&document).iter().all(|path| path.starts_with("/v2/models/m/versions/1.0")));
        assert_eq!(paths(&document).len(), expected.len());
        assert_eq!(document.0["info"]["title"], "Data Plane for Model m (1.0)");
        assert_eq!(document.0["info"]["description"], "REST protocol to interact with Model m (1.0)");
    }

    #[test]
    fn openapi_server_url_is_relative_to_document() {
        let url = |path: &str| {
            let document: Value = serde_json::from_str(&Document::data_plane().served_at(path)).unwrap();
            document["servers"][0]["url"].as_str().unwrap().to_owned()
        };
        assert_eq!(url("/openapi.json"), ".");
        assert_eq!(url("/v2/docs/dataplane.json"), "../..");
        assert_eq!(url("/v2/models/m/docs/dataplane.json"), "../../../..");
    }
}
