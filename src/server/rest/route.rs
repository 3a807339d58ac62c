//! The routes of the REST server: one table, which the router, the metrics and the OpenAPI documents read.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::server::scope::Scope;

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Live,
    Ready,
    Server,
    Model,
    ModelReady,
    Infer,
    InferStream,
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

/// A row of the table.
#[derive(Debug)]
pub(super) struct RouteSpec {
    pub(super) methods: Methods,
    /// The path, with its variable segments in braces. It is the label of metrics, too.
    pub(super) template: &'static str,
    pub(super) action: Action,
    pub(super) scope: Scope,
    /// Whether metrics and the access log cover the route. Health is left out, as in the original.
    pub(super) observed: bool,
    /// Whether a model's own route may take the path. If not, such a model is not loaded.
    pub(super) shadowable: bool,
}

/// The methods of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Methods {
    /// `GET` and `HEAD`.
    Get,
    Post,
}

/// Declares a row that metrics cover and that no model may shadow.
const fn row(methods: Methods, template: &'static str, action: Action, scope: Scope) -> RouteSpec {
    RouteSpec { methods, template, action, scope, observed: true, shadowable: false }
}

/// Declares a health check.
const fn health(template: &'static str, action: Action) -> RouteSpec {
    RouteSpec { methods: Methods::Get, template, action, scope: Scope::Open, observed: false, shadowable: false }
}

/// The number of routes.
pub(super) const ROUTES: usize = 26;

/// Every route.
pub(super) static TABLE: [RouteSpec; ROUTES] = {
    use Methods::{Get, Post};
    use Scope::{Admin, Infer, Open, Read};
    [
        health("/v2/health/live", Action::Live),
        health("/v2/health/ready", Action::Ready),
        row(Get, "/v2", Action::Server, Read),
        row(Get, "/v2/models/{model_name}", Action::Model, Read),
        row(Get, "/v2/models/{model_name}/versions/{model_version}", Action::Model, Read),
        row(Get, "/v2/models/{model_name}/ready", Action::ModelReady, Open),
        row(Get, "/v2/models/{model_name}/versions/{model_version}/ready", Action::ModelReady, Open),
        row(Post, "/v2/models/{model_name}/infer", Action::Infer, Infer),
        row(Post, "/v2/models/{model_name}/versions/{model_version}/infer", Action::Infer, Infer),
        row(Post, "/v2/models/{model_name}/generate", Action::Infer, Infer),
        row(Post, "/v2/models/{model_name}/versions/{model_version}/generate", Action::Infer, Infer),
        row(Post, "/v2/models/{model_name}/infer_stream", Action::InferStream, Infer),
        row(Post, "/v2/models/{model_name}/versions/{model_version}/infer_stream", Action::InferStream, Infer),
        row(Post, "/v2/models/{model_name}/generate_stream", Action::InferStream, Infer),
        row(Post, "/v2/models/{model_name}/versions/{model_version}/generate_stream", Action::InferStream, Infer),
        row(Get, "/v2/docs", Action::Docs, Open),
        row(Get, "/v2/docs/dataplane.json", Action::DocsDocument, Open),
        row(Get, "/v2/docs/assets/{file}", Action::DocsAsset, Open),
        row(Get, "/openapi.json", Action::OpenApi, Open),
        row(Get, "/v2/models/{model_name}/docs", Action::ModelDocs, Read),
        row(Get, "/v2/models/{model_name}/versions/{model_version}/docs", Action::ModelDocs, Read),
        row(Get, "/v2/models/{model_name}/docs/dataplane.json", Action::ModelDocsDocument, Read),
        row(
            Get,
            "/v2/models/{model_name}/versions/{model_version}/docs/dataplane.json",
            Action::ModelDocsDocument,
            Read,
        ),
        row(Post, "/v2/repository/index", Action::Index, Read),
        row(Post, "/v2/repository/models/{model_name}/load", Action::Load, Admin),
        row(Post, "/v2/repository/models/{model_name}/unload", Action::Unload, Admin),
    ]
};

/// First segments of protocols that the server will speak. A model's own route may not begin with one of them.
pub(super) const RESERVED_PREFIXES: [&str; 3] = ["/v1", "/openai", "/jobs"];

/// The most segments of a path that is served.
const MAX_SEGMENTS: usize = 8;

/// A segment of a template.
#[derive(Debug)]
enum Segment {
    Literal(&'static str),
    Name,
    Version,
    /// Any other text.
    Any,
}

/// A row as the router reads it.
#[derive(Debug)]
struct CompiledRoute {
    index: usize,
    segments: Vec<Segment>,
    /// Without a version in the path, one may be in the query, as the original allows.
    version_in_query: bool,
}

/// The rows by the number of their segments.
static COMPILED: LazyLock<[Vec<CompiledRoute>; MAX_SEGMENTS + 1]> = LazyLock::new(|| {
    let mut by_length = [const { Vec::new() }; MAX_SEGMENTS + 1];
    for (index, spec) in TABLE.iter().enumerate() {
        let segments: Vec<_> = spec.template.split('/').skip(1).map(Segment::of).collect();
        let version_in_query =
            spec.template.starts_with("/v2/models/") && !segments.iter().any(|s| matches!(s, Segment::Version));
        by_length[segments.len()].push(CompiledRoute { index, segments, version_in_query });
    }
    by_length
});

impl Segment {
    fn of(text: &'static str) -> Self {
        match text {
            "{model_name}" => Self::Name,
            "{model_version}" => Self::Version,
            _ if text.starts_with('{') => Self::Any,
            _ => Self::Literal(text),
        }
    }
}

/// A request's path, found in the table.
#[derive(Debug, Clone)]
pub(super) struct Route<'a> {
    /// The row's index, below [`ROUTES`].
    pub(super) index: usize,
    pub(super) spec: &'static RouteSpec,
    /// The model's name; empty for paths without a model.
    pub(super) name: Cow<'a, str>,
    /// The version, from the path or from `?model_version=`.
    pub(super) version: Option<Cow<'a, str>>,
}

impl<'a> Route<'a> {
    /// Finds the route of a path. Names that are not UTF-8 get replacement characters, so no model has them.
    pub(super) fn find(path: &'a str, uri: &'a Uri) -> Option<Self> {
        let mut segments = [""; MAX_SEGMENTS];
        let mut length = 0;
        for segment in path.strip_prefix('/')?.split('/') {
            *segments.get_mut(length)? = segment;
            length += 1;
        }
        let segments = &segments[..length];
        COMPILED[length].iter().find_map(|route| route.bind(segments, uri))
    }

    /// Returns the `Allow` header of the path.
    pub(super) const fn allow(&self) -> &'static str {
        match self.spec.methods {
            Methods::Get => "GET,HEAD",
            Methods::Post => "POST",
        }
    }

    pub(super) fn allows(&self, method: &Method) -> bool {
        match self.spec.methods {
            Methods::Get => method == Method::GET || method == Method::HEAD,
            Methods::Post => method == Method::POST,
        }
    }
}

impl CompiledRoute {
    /// Matches segments, as many as the row has.
    fn bind<'a>(&self, path: &[&'a str], uri: &'a Uri) -> Option<Route<'a>> {
        // From the end, where routes differ.
        let matches = |(segment, text): (&Segment, &&str)| match segment {
            Segment::Literal(literal) => literal == text,
            Segment::Name | Segment::Version | Segment::Any => !text.is_empty(),
        };
        if !self.segments.iter().zip(path).rev().all(matches) {
            return None;
        }
        let mut name = Cow::Borrowed("");
        let mut version = None;
        for (segment, text) in self.segments.iter().zip(path) {
            match segment {
                Segment::Name => name = decode(text),
                Segment::Version => version = Some(decode(text)),
                Segment::Literal(_) | Segment::Any => {}
            }
        }
        if self.version_in_query {
            version = version_of_query(uri);
        }
        Some(Route { index: self.index, spec: &TABLE[self.index], name, version })
    }
}

/// Reports whether every path of a template is taken, so that a model's own route could never be reached.
pub(super) fn is_taken(sample: &str) -> bool {
    let in_table = Route::find(sample, &Uri::default()).is_some_and(|route| !route.spec.shadowable);
    let is_reserved =
        |prefix: &&str| sample.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    in_table || RESERVED_PREFIXES.iter().any(is_reserved)
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
        Some((route.spec.action, route.name.into_owned(), route.version.map(Cow::into_owned)))
    }

    #[test]
    fn route_find_reads_model_name_and_version() {
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
            "/v2/models/a/versions/1/docs/dataplane.json/b/c/d/e/f",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
        assert_eq!(find("/v2/models/%ff"), some(Action::Model, "\u{fffd}", None));
    }

    #[test]
    fn every_row_of_the_route_table_finds_itself() {
        let mut templates = HashSet::new();
        for (index, spec) in TABLE.iter().enumerate() {
            assert!(templates.insert(spec.template), "{}", spec.template);
            let path =
                spec.template.replace("{model_name}", "m").replace("{model_version}", "1").replace("{file}", "f");
            let uri: Uri = path.parse().unwrap();
            let route = Route::find(uri.path(), &uri).unwrap();
            assert_eq!(route.index, index, "{path}");
            assert_eq!(route.name, if spec.template.contains("{model_name}") { "m" } else { "" });
            assert_eq!(route.version.is_some(), spec.template.contains("{model_version}"));
        }
    }

    #[test]
    fn routes_that_change_models_need_the_admin_scope() {
        for spec in &TABLE {
            let changes = matches!(spec.action, Action::Load | Action::Unload);
            assert_eq!(spec.scope == Scope::Admin, changes, "{}", spec.template);
        }
    }

    #[test]
    fn reserved_prefixes_are_taken() {
        for path in ["/v1", "/v1/models/m:predict", "/openai/v1/completions", "/jobs/1", "/v2/models/m/infer"] {
            assert!(is_taken(path), "{path}");
        }
        for path in ["/v10", "/openais", "/jobsite/1", "/v2/models/m/own", "/invocations"] {
            assert!(!is_taken(path), "{path}");
        }
    }
}
