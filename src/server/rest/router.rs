//! The routes of the REST server: one table, which the router, the metrics and the OpenAPI documents read.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use super::errors::ErrorFormat;
use super::route::{RouteMethods, RouteSpec};
use super::{console, health, infer, metadata, openai, openapi, repository, stream, v1};
use crate::types::PathTemplate;

/// The rows of each protocol. The first row that matches a path is used.
const TABLES: [&[RouteSpec]; 9] = [
    health::ROUTES,
    infer::ROUTES,
    stream::ROUTES,
    v1::ROUTES,
    openai::ROUTES,
    metadata::ROUTES,
    openapi::ROUTES,
    console::ROUTES,
    repository::ROUTES,
];

/// Returns every row.
pub(super) fn table() -> impl Iterator<Item = &'static RouteSpec> {
    TABLES.into_iter().flatten()
}

/// The maximum number of segments in a path that is served.
const MAX_SEGMENTS: usize = 8;

/// A segment of a template.
#[derive(Debug)]
enum TemplateSegment {
    Literal(&'static str),
    Name,
    /// A name and, after a colon, this verb.
    NameAndVerb(&'static str),
    Version,
    /// Any other text.
    Any,
}

/// A row as the router reads it.
#[derive(Debug)]
struct CompiledRoute {
    index: usize,
    spec: &'static RouteSpec,
    segments: Vec<TemplateSegment>,
    /// Without a version in the path, one may be in the query, as the original allows.
    version_in_query: bool,
}

/// The rows, grouped by their number of segments.
static COMPILED: LazyLock<[Vec<CompiledRoute>; MAX_SEGMENTS + 1]> = LazyLock::new(|| {
    let mut by_length = [const { Vec::new() }; MAX_SEGMENTS + 1];
    for (index, spec) in table().enumerate() {
        let segments: Vec<_> = spec.template.split('/').skip(1).map(TemplateSegment::of).collect();
        let has_versions = ["/v2/models/", "/v1/models/", "/v2/console/models/"];
        let version_in_query = has_versions.iter().any(|start| spec.template.starts_with(start))
            && !segments.iter().any(|s| matches!(s, TemplateSegment::Version));
        by_length[segments.len()].push(CompiledRoute { index, spec, segments, version_in_query });
    }
    by_length
});

impl TemplateSegment {
    fn of(text: &'static str) -> Self {
        match text {
            "{model_name}" => Self::Name,
            "{model_version}" => Self::Version,
            _ if text.starts_with("{model_name}:") => Self::NameAndVerb(text.trim_start_matches("{model_name}:")),
            _ if text.starts_with('{') => Self::Any,
            _ => Self::Literal(text),
        }
    }
}

/// A row of the table that matches a request's path.
#[derive(Debug, Clone)]
pub(super) struct Route<'a> {
    /// The row's index in [`table`].
    pub(super) index: usize,
    pub(super) spec: &'static RouteSpec,
    /// The name of the model; empty for paths without a model.
    pub(super) name: Cow<'a, str>,
    /// The version, from the path or from `?model_version=`.
    pub(super) version: Option<Cow<'a, str>>,
}

impl<'a> Route<'a> {
    /// Finds the route of a path. Names that are not UTF-8 get replacement characters, so they match no model.
    pub(super) fn find(method: &Method, path: &'a str, uri: &'a Uri) -> Option<Self> {
        // In one pass over the bytes: this runs for every request.
        let path = path.strip_prefix('/')?;
        let mut segments = [""; MAX_SEGMENTS];
        let (mut length, mut start) = (0, 0);
        for (index, byte) in path.bytes().enumerate() {
            if byte == b'/' {
                *segments.get_mut(length)? = &path[start..index];
                (length, start) = (length + 1, index + 1);
            }
        }
        *segments.get_mut(length)? = &path[start..];
        let segments = &segments[..=length];
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let is_for = |route: &Self| route.spec.template != infer::ONLY_POST || !is_read;
        COMPILED[segments.len()].iter().filter_map(|route| route.bind(segments, uri)).find(is_for)
    }

    /// Returns the `Allow` header of the path.
    pub(super) const fn allow(&self) -> &'static str {
        match self.spec.methods {
            RouteMethods::Get => "GET,HEAD",
            RouteMethods::Post => "POST",
        }
    }

    pub(super) fn allows(&self, method: &Method) -> bool {
        match self.spec.methods {
            RouteMethods::Get => method == Method::GET || method == Method::HEAD,
            RouteMethods::Post => method == Method::POST,
        }
    }
}

impl CompiledRoute {
    /// Matches a path with as many segments as the row.
    fn bind<'a>(&self, path: &[&'a str], uri: &'a Uri) -> Option<Route<'a>> {
        // Compare from the end, where routes differ.
        let matches = |(segment, text): (&TemplateSegment, &&str)| match segment {
            TemplateSegment::Literal(literal) => literal == text,
            TemplateSegment::NameAndVerb(verb) => before_verb(text, verb).is_some_and(|name| !name.is_empty()),
            TemplateSegment::Name | TemplateSegment::Version | TemplateSegment::Any => !text.is_empty(),
        };
        if !self.segments.iter().zip(path).rev().all(matches) {
            return None;
        }
        let mut name = Cow::Borrowed("");
        let mut version = None;
        for (segment, text) in self.segments.iter().zip(path) {
            match segment {
                TemplateSegment::Name => name = decode(text),
                TemplateSegment::NameAndVerb(verb) => name = decode(before_verb(text, verb).unwrap_or(text)),
                TemplateSegment::Version => version = Some(decode(text)),
                TemplateSegment::Literal(_) | TemplateSegment::Any => {}
            }
        }
        if self.version_in_query {
            version = version_of_query(uri);
        }
        Some(Route { index: self.index, spec: self.spec, name, version })
    }
}

/// Reports whether the server itself serves every path of a template, so that a model's route would be unreachable.
pub fn is_reserved(template: &PathTemplate) -> bool {
    is_taken(template.sample())
}

/// Reports whether a template has a path of OpenAI's API below the prefix of its routes, so that it replaces that of the server.
pub fn is_openai(prefix: &str, template: &PathTemplate) -> bool {
    let path = openai::canonical(prefix, template.sample());
    let Some(path) = path else { return false };
    let found = Route::find(&Method::POST, &path, &Uri::default()).map(|route| route.spec.errors);
    found == Some(ErrorFormat::OpenAi)
}

fn is_taken(sample: &str) -> bool {
    Route::find(&Method::GET, sample, &Uri::default()).is_some_and(|route| !route.spec.shadowable)
}

/// Returns the text before a colon, which may be percent-encoded, and the verb; `None` if the text does not end in them.
fn before_verb<'a>(text: &'a str, verb: &str) -> Option<&'a str> {
    let before = text.strip_suffix(verb)?;
    [":", "%3A", "%3a"].into_iter().find_map(|colon| before.strip_suffix(colon))
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
    use super::super::route::RouteSubject;
    use super::*;
    use crate::access::Scope;
    use std::collections::HashSet;

    #[test]
    fn route_find_reads_model_name_and_version() {
        const MODEL: &str = "/v2/models/{model_name}";
        const VERSION: &str = "/v2/models/{model_name}/versions/{model_version}";
        let find = |path: &str| {
            let uri: Uri = path.parse().unwrap();
            let route = Route::find(&Method::GET, uri.path(), &uri)?;
            Some((route.spec.template, route.name.into_owned(), route.version.map(Cow::into_owned)))
        };
        let (load, unload) = ("/v2/repository/models/{model_name}/load", "/v2/repository/models/{model_name}/unload");
        let seldon = "/seldon/{namespace}/{deployment}/v2/models";
        let table: [(&str, &str, &str, Option<&str>); 21] = [
            ("/v2", "/v2", "", None),
            ("/v2/models/a%20b", MODEL, "a b", None),
            ("/v2/models/a/versions/1%2F2/infer", &format!("{VERSION}/infer"), "a", Some("1/2")),
            ("/v2/models/a/ready?x=1&model_version=v+2", &format!("{MODEL}/ready"), "a", Some("v 2")),
            ("/v2/models/a/versions/1?model_version=2", VERSION, "a", Some("1")),
            ("/v2/models/versions/versions/versions", VERSION, "versions", Some("versions")),
            ("/v2/models/infer", MODEL, "infer", None),
            ("/v2/models/%ff", MODEL, "\u{fffd}", None),
            ("/v2/repository/index", "/v2/repository/index", "", None),
            ("/v2/repository/models/a%2Fb/load?model_version=1", load, "a/b", None),
            ("/v2/repository/models/load/unload", unload, "load", None),
            ("/", "/", "", None),
            ("/v1/models", "/v1/models", "", None),
            ("/v2/models", "/v2/models", "", None),
            ("/v1/models/a%20b:predict", "/v1/models/{model_name}:predict", "a b", None),
            ("/v1/models/a%3Aexplain?model_version=2", "/v1/models/{model_name}:explain", "a", Some("2")),
            ("/v1/models/a:other", "/v1/models/{model_name}", "a:other", None),
            ("/v1/models/a:predict:predict", "/v1/models/{model_name}:predict", "a:predict", None),
            ("/v1/models/a:predict:explain", "/v1/models/{model_name}:explain", "a:predict", None),
            ("/seldon/ns/dep/v2/models/infer", &format!("{seldon}/infer"), "", None),
            ("/seldon/ns/dep/v2/models/a%20b/infer", &format!("{seldon}/{{model_name}}/infer"), "a b", None),
        ];
        for (path, template, name, version) in table {
            let found = find(path).unwrap();
            assert_eq!((found.0, found.1.as_str(), found.2.as_deref()), (template, name, version), "{path}");
        }
        for path in [
            "/v1",
            "/v1/models/",
            "/v1/models/a:predict/b",
            "/v2x",
            "/v2/",
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
        for path in ["/v2/models/infer", "/seldon/ns/dep/v2/models/infer"] {
            let uri: Uri = path.parse().unwrap();
            for method in [Method::POST, Method::OPTIONS] {
                let route = Route::find(&method, path, &uri).unwrap();
                assert_eq!((route.spec.subject, route.allow()), (RouteSubject::Graph, "POST"), "{method} {path}");
            }
        }
    }

    #[test]
    fn every_row_of_the_route_table_finds_itself() {
        let mut templates = HashSet::new();
        for (index, spec) in table().enumerate() {
            assert!(templates.insert(spec.template), "{}", spec.template);
            let path = spec.template.replace("{model_name}", "m").replace("{model_version}", "1");
            let path = path.replace("{namespace}", "n").replace("{deployment}", "d").replace("{file}", "f");
            let uri: Uri = path.parse().unwrap();
            let method = if matches!(spec.methods, RouteMethods::Post) { Method::POST } else { Method::GET };
            let route = Route::find(&method, uri.path(), &uri).unwrap();
            assert_eq!(route.index, index, "{path}");
            assert_eq!(route.name, if spec.template.contains("{model_name}") { "m" } else { "" });
            assert_eq!(route.version.is_some(), spec.template.contains("{model_version}"));
        }
    }

    #[test]
    fn routes_that_change_models_need_the_admin_scope() {
        for spec in table() {
            let changes = spec.template.starts_with("/v2/repository/models/");
            assert_eq!(spec.scope == Scope::Admin, changes, "{}", spec.template);
        }
    }

    #[test]
    fn paths_of_the_server_are_taken_unless_models_may_serve_them() {
        for path in ["/v1/models/m:predict", "/v2/models/m/infer", "/v2/models/m"] {
            assert!(is_taken(path), "{path}");
        }
        for path in
            ["/v1", "/v1/models", "/v1/chat/completions", "/openai/v1/completions", "/jobs/1", "/invocations", "/"]
        {
            assert!(!is_taken(path), "{path}");
        }
    }

    #[test]
    fn routes_of_models_that_replace_those_of_openais_api_are_known() {
        let replaces = |prefix: &str, path: &str| is_openai(prefix, &PathTemplate::new(path).unwrap());
        for (prefix, path) in [
            ("/openai", "/openai/v1/chat/completions"),
            ("/openai", "/openai/v1/models/{name}"),
            ("/llm", "/llm/v1/embeddings"),
            ("", "/v1/chat/completions"),
        ] {
            assert!(replaces(prefix, path), "{prefix} {path}");
        }
        for (prefix, path) in [("/openai", "/v1/chat/completions"), ("/llm", "/openai/v1/rerank"), ("", "/v1/x")] {
            assert!(!replaces(prefix, path), "{prefix} {path}");
        }
    }
}
