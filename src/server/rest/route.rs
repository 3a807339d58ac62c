//! Which paths are served, and what a path says about the model it means.

use std::borrow::Cow;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Live,
    Ready,
    Server,
    Model,
    ModelReady,
    Infer,
    Generate,
    InferStream,
    GenerateStream,
    Docs,
    DocsDocument,
    DocsAsset,
    ModelDocs,
    ModelDocsDocument,
    OpenApi,
    Index,
    Load,
    Unload,
}

/// A path that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route<'a> {
    pub(super) action: Action,
    /// The model's name; empty for paths without a model.
    pub(super) name: Cow<'a, str>,
    /// The version, from the path or, as the original allows, from `?model_version=`.
    pub(super) version: Option<Cow<'a, str>>,
    /// The version stands in the path.
    versioned: bool,
}

/// The number of values of [`Route::index`].
pub(super) const ROUTES: usize = 26;

impl<'a> Route<'a> {
    /// Finds what a path asks for. Names that are no UTF-8 get replacement characters, and so are unknown later.
    pub(super) fn find(path: &'a str, uri: &'a Uri) -> Option<Self> {
        let without_model = |action| Self { action, name: Cow::Borrowed(""), version: None, versioned: false };
        let Some(rest) = path.strip_prefix("/v2") else {
            return (path == "/openapi.json").then(|| without_model(Action::OpenApi));
        };
        match rest {
            "" => return Some(without_model(Action::Server)),
            "/health/live" => return Some(without_model(Action::Live)),
            "/health/ready" => return Some(without_model(Action::Ready)),
            "/docs" => return Some(without_model(Action::Docs)),
            "/docs/dataplane.json" => return Some(without_model(Action::DocsDocument)),
            "/repository/index" => return Some(without_model(Action::Index)),
            _ => {}
        }
        if let Some(file) = rest.strip_prefix("/docs/assets/") {
            return (!file.is_empty() && !file.contains('/')).then(|| without_model(Action::DocsAsset));
        }
        if let Some(rest) = rest.strip_prefix("/repository/models/") {
            let (name, action) = match rest.split_once('/')? {
                (name, "load") => (name, Action::Load),
                (name, "unload") => (name, Action::Unload),
                _ => return None,
            };
            return (!name.is_empty()).then(|| Self { name: decode(name), ..without_model(action) });
        }
        let rest = rest.strip_prefix("/models/")?;
        let mut segments = rest.split('/');
        let name = segments.next().unwrap_or_default();
        let mut next = segments.next();
        let mut version = None;
        if next == Some("versions") {
            version = segments.next();
            if version.is_none_or(str::is_empty) {
                return None;
            }
            next = segments.next();
        }
        let action = match next {
            None => Action::Model,
            Some("ready") => Action::ModelReady,
            Some("infer") => Action::Infer,
            Some("generate") => Action::Generate,
            Some("infer_stream") => Action::InferStream,
            Some("generate_stream") => Action::GenerateStream,
            Some("docs") => match segments.next() {
                None => Action::ModelDocs,
                Some("dataplane.json") => Action::ModelDocsDocument,
                Some(_) => return None,
            },
            Some(_) => return None,
        };
        if name.is_empty() || segments.next().is_some() {
            return None;
        }
        let versioned = version.is_some();
        let version = match version {
            Some(version) => Some(decode(version)),
            None => version_of_query(uri),
        };
        Some(Self { action, name: decode(name), version, versioned })
    }

    /// Returns the methods that the path answers.
    pub(super) const fn allow(&self) -> &'static str {
        if self.is_posted() { "POST" } else { "GET,HEAD" }
    }

    pub(super) fn allows(&self, method: &Method) -> bool {
        if self.is_posted() { method == Method::POST } else { method == Method::GET || method == Method::HEAD }
    }

    const fn is_posted(&self) -> bool {
        match self.action {
            Action::Live
            | Action::Ready
            | Action::Server
            | Action::Model
            | Action::ModelReady
            | Action::Docs
            | Action::DocsDocument
            | Action::DocsAsset
            | Action::ModelDocs
            | Action::ModelDocsDocument
            | Action::OpenApi => false,
            Action::Infer
            | Action::Generate
            | Action::InferStream
            | Action::GenerateStream
            | Action::Index
            | Action::Load
            | Action::Unload => true,
        }
    }

    /// Tells whether metrics and access lines leave the path out.
    pub(super) const fn is_health(&self) -> bool {
        matches!(self.action, Action::Live | Action::Ready)
    }

    /// Returns the place of the path's template among all, below [`ROUTES`].
    pub(super) const fn index(&self) -> usize {
        let pair = match self.action {
            Action::Live => return 0,
            Action::Ready => return 1,
            Action::Server => return 2,
            Action::Model => 3,
            Action::ModelReady => 5,
            Action::Infer => 7,
            Action::Generate => 9,
            Action::InferStream => 11,
            Action::GenerateStream => 13,
            Action::Docs => return 15,
            Action::DocsDocument => return 16,
            Action::DocsAsset => return 17,
            Action::OpenApi => return 18,
            Action::ModelDocs => 19,
            Action::ModelDocsDocument => 21,
            Action::Index => return 23,
            Action::Load => return 24,
            Action::Unload => return 25,
        };
        pair + self.versioned as usize
    }

    /// Returns the path with its variable parts as names, for the label of metrics.
    pub(super) const fn template(&self) -> &'static str {
        match (self.action, self.versioned) {
            (Action::Live, _) => "/v2/health/live",
            (Action::Ready, _) => "/v2/health/ready",
            (Action::Server, _) => "/v2",
            (Action::Model, false) => "/v2/models/{model_name}",
            (Action::Model, true) => "/v2/models/{model_name}/versions/{model_version}",
            (Action::ModelReady, false) => "/v2/models/{model_name}/ready",
            (Action::ModelReady, true) => "/v2/models/{model_name}/versions/{model_version}/ready",
            (Action::Infer, false) => "/v2/models/{model_name}/infer",
            (Action::Infer, true) => "/v2/models/{model_name}/versions/{model_version}/infer",
            (Action::Generate, false) => "/v2/models/{model_name}/generate",
            (Action::Generate, true) => "/v2/models/{model_name}/versions/{model_version}/generate",
            (Action::InferStream, false) => "/v2/models/{model_name}/infer_stream",
            (Action::InferStream, true) => "/v2/models/{model_name}/versions/{model_version}/infer_stream",
            (Action::GenerateStream, false) => "/v2/models/{model_name}/generate_stream",
            (Action::GenerateStream, true) => "/v2/models/{model_name}/versions/{model_version}/generate_stream",
            (Action::Docs, _) => "/v2/docs",
            (Action::DocsDocument, _) => "/v2/docs/dataplane.json",
            (Action::DocsAsset, _) => "/v2/docs/assets/{file}",
            (Action::ModelDocs, false) => "/v2/models/{model_name}/docs",
            (Action::ModelDocs, true) => "/v2/models/{model_name}/versions/{model_version}/docs",
            (Action::ModelDocsDocument, false) => "/v2/models/{model_name}/docs/dataplane.json",
            (Action::ModelDocsDocument, true) => "/v2/models/{model_name}/versions/{model_version}/docs/dataplane.json",
            (Action::OpenApi, _) => "/openapi.json",
            (Action::Index, _) => "/v2/repository/index",
            (Action::Load, _) => "/v2/repository/models/{model_name}/load",
            (Action::Unload, _) => "/v2/repository/models/{model_name}/unload",
        }
    }
}

#[cfg(test)]
impl Route<'_> {
    /// Every route, those without a version in the path twice.
    pub(super) fn all() -> impl Iterator<Item = Route<'static>> {
        let actions = [
            Action::Live,
            Action::Ready,
            Action::Server,
            Action::Model,
            Action::ModelReady,
            Action::Infer,
            Action::Generate,
            Action::InferStream,
            Action::GenerateStream,
            Action::Docs,
            Action::DocsDocument,
            Action::DocsAsset,
            Action::ModelDocs,
            Action::ModelDocsDocument,
            Action::OpenApi,
            Action::Index,
            Action::Load,
            Action::Unload,
        ];
        actions.into_iter().flat_map(|action| {
            [false, true].map(|versioned| Route { action, name: Cow::Borrowed(""), version: None, versioned })
        })
    }
}

fn decode(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    percent_decode_str(segment).decode_utf8_lossy()
}

fn version_of_query(uri: &Uri) -> Option<Cow<'_, str>> {
    let pairs = form_urlencoded::parse(uri.query()?.as_bytes());
    pairs.into_iter().find(|(key, _)| key == "model_version").map(|(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn find(path: &str) -> Option<(Action, String, Option<String>)> {
        let uri: Uri = path.parse().unwrap();
        let route = Route::find(uri.path(), &uri)?;
        Some((route.action, route.name.into_owned(), route.version.map(Cow::into_owned)))
    }

    #[test]
    fn paths_name_models_and_versions() {
        let some =
            |action, name: &str, version: Option<&str>| Some((action, name.to_owned(), version.map(str::to_owned)));
        assert_eq!(find("/v2"), some(Action::Server, "", None));
        assert_eq!(find("/v2/models/a%20b"), some(Action::Model, "a b", None));
        assert_eq!(find("/v2/models/a/versions/1%2F2/infer"), some(Action::Infer, "a", Some("1/2")));
        assert_eq!(find("/v2/models/a/ready?x=1&model_version=v+2"), some(Action::ModelReady, "a", Some("v 2")));
        assert_eq!(find("/v2/models/a/versions/1?model_version=2"), some(Action::Model, "a", Some("1")));
        assert_eq!(find("/v2/repository/index"), some(Action::Index, "", None));
        assert_eq!(find("/v2/repository/models/a%2Fb/load?model_version=1"), some(Action::Load, "a/b", None));
        assert_eq!(find("/v2/repository/models/load/unload"), some(Action::Unload, "load", None));
        assert_eq!(find("/v2/models/versions/versions/versions"), some(Action::Model, "versions", Some("versions")));
        for path in [
            "/",
            "/v1",
            "/v2x",
            "/v2/",
            "/v2/models",
            "/v2/models/",
            "/v2/models//infer",
            "/v2/models/a/",
            "/v2/models/a/b",
            "/v2/models/a/versions",
            "/v2/models/a/versions/",
            "/v2/models/a/versions//infer",
            "/v2/models/a/infer/",
            "/v2/models/a/infer/b",
            "/v2/models/a/versions/1/infer/",
            "/v2/models/a/docs/other",
            "/v2/models/a/docs/dataplane.json/b",
            "/v2/models//docs/dataplane.json",
            "/v2/docs/assets",
            "/v2/docs/assets/",
            "/v2/docs/assets/a/b",
            "/openapi.json/",
            "/v2/openapi.json",
            "/v2/repository",
            "/v2/repository/models/load",
            "/v2/repository/models//load",
            "/v2/repository/models/a/b",
            "/v2/repository/models/a/load/",
            "/v2/repository/models/a/versions/1/load",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
        assert_eq!(find("/v2/models/%ff"), some(Action::Model, "\u{fffd}", None));
    }

    #[test]
    fn every_template_has_its_place() {
        let mut places = HashSet::new();
        let mut templates = HashSet::new();
        for route in Route::all() {
            assert!(route.index() < ROUTES);
            places.insert(route.index());
            templates.insert(route.template());
        }
        assert_eq!((places.len(), templates.len()), (ROUTES, ROUTES));
    }
}
