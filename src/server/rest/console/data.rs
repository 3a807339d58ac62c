//! The data of the console, as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::{Grant, Scope};
use crate::console::{Console, Example, ModelReport};
use crate::registry::{ModelState, RegisteredModel};
use crate::server::RepositoryAccess;
use crate::server::rest::errors::RequestError;
use crate::server::rest::{Answer, Call, Handled, openapi};
use crate::telemetry::history::{ModelSample, SAMPLE_INTERVAL, SAMPLES};
use crate::telemetry::workers::WorkerReport;
use crate::types::Priority;

/// The maximum number of models in an answer, and how many there are if the query does not say.
const MAX_MODELS: usize = 200;
const DEFAULT_MODELS: usize = 50;

/// The longest filter, in bytes.
const MAX_FILTER: usize = 200;

/// The maximum number of workers in an answer.
const MAX_WORKERS: usize = 500;

/// The maximum number of features whose names are in the description of a model.
const MAX_FEATURES: usize = 4096;

/// How much work describing a model is, as bytes to the compute pool: more than 100 models are not described on a connection's thread.
const WORK_PER_MODEL: usize = 640;

/// What the query selects.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    filter: String,
    order: ModelOrder,
    offset: usize,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelOrder {
    Name,
    /// Those that cannot answer first.
    State,
    /// The most requests first.
    Requests,
    /// The slowest first.
    P99,
    /// The most failures first.
    Failures,
}

/// What the caller may do at this address. The console shows no button for the rest.
#[derive(Debug, Serialize)]
struct CallerRights {
    /// Send inference requests.
    infer: bool,
    /// Load and unload models.
    change: bool,
    /// See reasons of failures, and the workers.
    details: bool,
    /// See the log.
    log: bool,
}

/// A row of the overview.
#[derive(Debug, Serialize)]
struct ModelRow<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// Whether it answers requests that name no version.
    default: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    backend: Option<&'a str>,
    graph: bool,
    /// Whether it asks other servers to answer.
    remote: bool,
    loaded: u64,
    requests_per_second: f64,
    p50: Option<f32>,
    p99: Option<f32>,
    requests: u64,
    failures: u64,
    waiting: u64,
    in_flight: u64,
    batch_size: Option<f64>,
    cache_hits: Option<u64>,
    cache_misses: Option<u64>,
    series: SeriesOfModel,
}

/// The samples of ten minutes, one array for each number.
#[derive(Debug, Serialize)]
struct SeriesOfModel {
    requests: Vec<u32>,
    failures: Vec<u32>,
    waiting: Vec<u32>,
    p50: Vec<Option<f32>>,
    p99: Vec<Option<f32>>,
}

impl From<&[ModelSample; SAMPLES]> for SeriesOfModel {
    fn from(samples: &[ModelSample; SAMPLES]) -> Self {
        let known = |seconds: f32| Some(seconds).filter(|seconds| !seconds.is_nan());
        Self {
            requests: samples.iter().map(|sample| sample.requests).collect(),
            failures: samples.iter().map(|sample| sample.failures).collect(),
            waiting: samples.iter().map(|sample| sample.waiting).collect(),
            p50: samples.iter().map(|sample| known(sample.median)).collect(),
            p99: samples.iter().map(|sample| known(sample.p99)).collect(),
        }
    }
}

/// Lists models, and for callers who may see details, workers.
pub(super) fn overview(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let console = console(&call)?.clone();
        let selection = Selection::of(call.parts.uri.query().unwrap_or_default())?;
        let rights = rights(&call);
        let workers = if rights.details { Some(workers(&call, &console)) } else { None };
        let principal = call.grant.map(|grant| Arc::clone(grant.principal()));
        let work = call.app.inference.registry().len() * WORK_PER_MODEL;
        let server = server(&call, &console);
        let list = move || {
            let allowed = |model: &RegisteredModel| principal.as_ref().is_none_or(|key| key.allows(&model.name));
            let mut answer = list(&console, allowed, &selection, rights.details);
            answer["server"] = server;
            answer["rights"] = json!(rights);
            answer["workers"] = json!(workers);
            answer
        };
        let answer = call.app.compute.run_sized(work, Priority::default(), list).await?;
        Ok(Answer::json(&answer))
    })
}

/// Describes one model: its numbers, its metadata, and an example of a request.
pub(super) fn model(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let console = console(&call)?;
        let found = call.find_model()?;
        let rights = rights(&call);
        let report = console.model(found);
        let feature_names = match &report.model.state {
            ModelState::Ready(runtime) => runtime.description().explanation.as_ref(),
            ModelState::Loading | ModelState::Failed { .. } => None,
        };
        let feature_names = feature_names.and_then(|explanation| explanation.feature_names.as_deref());
        let feature_names = feature_names.filter(|names| names.len() <= MAX_FEATURES);
        let samples = console.samples(&report.model);
        let declared = openapi::example(&report.model.metadata);
        let example = if rights.infer {
            console.example(&report.model, declared, &call.app.compute).await
        } else {
            Example::untried(declared)
        };
        let step_seconds = report.model.is_graph.then(|| {
            let times = console.step_times(&report.model.name).into_iter();
            times.map(|(step, time)| (step, time.as_secs_f64())).collect::<BTreeMap<_, _>>()
        });
        let answer = json!({
            "interval_seconds": SAMPLE_INTERVAL.as_secs(),
            "model": row(&report, &samples, rights.details),
            "metadata": report.model.metadata,
            "example": example.request,
            "example_answered": example.is_answered,
            "feature_names": feature_names,
            "drawing": report.model.drawing().and_then(image_of),
            "step_seconds": step_seconds,
            "server": server(&call, console),
            "rights": rights,
        });
        Ok(Answer::json(&answer))
    })
}

/// Returns the last lines of the log, for callers who may see it.
pub(super) fn log(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let console = console(&call)?;
        let lines = sees_log(&call).then(|| console.log());
        Ok(Answer::json(&json!({ "lines": lines })))
    })
}

/// Reports whether the caller may see the log: its lines may be about any model.
fn sees_log(call: &Call<'_>) -> bool {
    call.sees_details() && call.grant.is_none_or(Grant::allows_all)
}

/// Makes an image of the drawing of a graph, with its style. The page shows it as one, so that it could run no script.
fn image_of(drawing: &str) -> Option<String> {
    let (attributes, content) = drawing.strip_prefix("<svg ")?.split_once('>')?;
    let style = include_str!("../openapi/graph.css");
    Some(format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}><style>{style}</style>{content}"))
}

fn console<'a>(call: &Call<'a>) -> Result<&'a Console, RequestError> {
    let off = || RequestError::other(StatusCode::NOT_FOUND, "the console is off (setting `console`)");
    call.app.options.console.as_ref().ok_or_else(off)
}

fn server(call: &Call<'_>, console: &Console) -> Value {
    let metadata = &call.app.options.metadata;
    let resident = if call.sees_details() { console.resident_bytes() } else { None };
    json!({ "name": metadata.name, "version": metadata.version, "started": console.started(), "resident_bytes": resident })
}

fn rights(call: &Call<'_>) -> CallerRights {
    let repository = call.app.options.repository;
    CallerRights {
        infer: repository != RepositoryAccess::Only && call.may(Scope::Infer),
        change: repository.refusal().is_none() && call.may(Scope::Admin),
        details: call.sees_details(),
        log: sees_log(call),
    }
}

/// Selects, sorts and describes models.
fn list(console: &Console, allowed: impl Fn(&RegisteredModel) -> bool, selection: &Selection, details: bool) -> Value {
    let filter = selection.filter.to_lowercase();
    let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut reports = console.models(allowed);
    for report in &reports {
        *states.entry(report.model.state.name()).or_default() += 1;
    }
    reports.retain(|report| report.model.name.to_lowercase().contains(&filter));
    selection.order.sort(&mut reports);
    let total = reports.len();
    let page = reports.iter().skip(selection.offset).take(selection.limit);
    let models: Vec<Value> = page.map(|report| json!(row(report, &console.samples(&report.model), details))).collect();
    json!({
        "interval_seconds": SAMPLE_INTERVAL.as_secs(),
        "states": states,
        "total": total,
        "offset": selection.offset,
        "models": models,
    })
}

fn row<'a>(report: &'a ModelReport, samples: &[ModelSample; SAMPLES], details: bool) -> ModelRow<'a> {
    let model = &*report.model;
    let (backend, reason) = match &model.state {
        ModelState::Ready(runtime) => {
            (Some(runtime.description().backend), runtime.status().into_reason().map(Cow::Owned))
        }
        ModelState::Loading => (None, None),
        ModelState::Failed { reason } => (None, Some(Cow::Borrowed(reason.as_str()))),
    };
    let has_remote_steps = matches!(&model.state, ModelState::Ready(runtime) if runtime.description().has_remote_steps);
    ModelRow {
        name: &model.name,
        version: model.version.as_deref(),
        default: report.is_default,
        state: model.state.name(),
        reason: reason.filter(|_| details),
        backend,
        graph: model.is_graph,
        remote: has_remote_steps || model.asks_servers,
        loaded: model.created,
        requests_per_second: report.requests_per_second,
        p50: report.median,
        p99: report.p99,
        requests: report.requests,
        failures: report.failures,
        waiting: report.waiting,
        in_flight: report.in_flight,
        batch_size: report.batch_size,
        cache_hits: report.cache.map(|(hits, _)| hits),
        cache_misses: report.cache.map(|(_, misses)| misses),
        series: samples.into(),
    }
}

/// Describes the workers whose models the caller may all use: what a worker wrote last may be about any of them.
fn workers(call: &Call<'_>, console: &Console) -> Vec<Value> {
    let sees = |worker: &WorkerReport| {
        call.grant.is_none_or(|grant| {
            grant.allows_all() || !worker.models.is_empty() && worker.models.iter().all(|model| grant.allows(model))
        })
    };
    let describe = |worker: WorkerReport| {
        let last_end = worker.last_end.map(|end| json!({ "at": end.at, "reason": end.reason }));
        json!({
            "name": worker.name,
            "state": worker.state,
            "pid": worker.pid,
            "models": worker.models,
            "resident_bytes": worker.resident_bytes,
            "ended": worker.ended,
            "last_end": last_end,
        })
    };
    console.workers().into_iter().filter(sees).take(MAX_WORKERS).map(describe).collect()
}

impl Selection {
    fn of(query: &str) -> Result<Self, RequestError> {
        let mut selection = Self { filter: String::new(), order: ModelOrder::Name, offset: 0, limit: DEFAULT_MODELS };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let invalid = |expected: String| {
                let shown: String = value.chars().take(100).collect();
                RequestError::other(
                    StatusCode::BAD_REQUEST,
                    format!("invalid `{key}` in the query: `{shown}`; {expected}"),
                )
            };
            let number = |limit: usize| {
                let number = value.parse().ok().filter(|number| *number <= limit);
                number.ok_or_else(|| invalid(format!("send a number from 0 to {limit}")))
            };
            match &*key {
                "filter" if value.len() > MAX_FILTER => {
                    return Err(invalid(format!("send at most {MAX_FILTER} bytes")));
                }
                "filter" => selection.filter = value.into_owned(),
                "sort" => {
                    selection.order = ModelOrder::of(&value)
                        .ok_or_else(|| invalid("send `name`, `state`, `requests`, `p99` or `failures`".to_owned()))?;
                }
                "offset" => selection.offset = number(usize::MAX >> 1)?,
                "limit" => selection.limit = number(MAX_MODELS)?,
                _ => {}
            }
        }
        Ok(selection)
    }
}

impl ModelOrder {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "name" => Self::Name,
            "state" => Self::State,
            "requests" => Self::Requests,
            "p99" => Self::P99,
            "failures" => Self::Failures,
            _ => return None,
        })
    }

    /// Sorts reports, which are in the order of their names. Equal ones keep it.
    fn sort(self, reports: &mut [ModelReport]) {
        match self {
            Self::Name => {}
            Self::State => reports.sort_by_key(|report| report.model.state.is_ready()),
            Self::Requests => {
                reports.sort_by(|one, other| other.requests_per_second.total_cmp(&one.requests_per_second));
            }
            Self::P99 => {
                let p99 = |report: &ModelReport| report.p99.unwrap_or(-1.0);
                reports.sort_by(|one, other| p99(other).total_cmp(&p99(one)));
            }
            Self::Failures => reports.sort_by_key(|report| std::cmp::Reverse(report.failures)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_becomes_an_image_with_its_style() {
        let image = image_of("<svg class=\"graph\"><g>a</g></svg>").unwrap();
        assert!(image.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\"><style>"), "{image}");
        assert!(image.ends_with("</style><g>a</g></svg>"), "{image}");
        assert_eq!(image_of("<p>The graph has 101 steps</p>"), None);
    }

    #[test]
    fn console_query_selects_within_limits() {
        let of = |query: &str| Selection::of(query).ok();
        let selected = of("filter=a%20B&sort=p99&offset=50&limit=200&other=1").unwrap();
        let expected = Selection { filter: "a B".to_owned(), order: ModelOrder::P99, offset: 50, limit: 200 };
        assert_eq!(selected, expected);
        assert_eq!(of("").unwrap().limit, DEFAULT_MODELS);
        for bad in ["limit=201", "limit=-1", "limit=x", "offset=99999999999999999999", "sort=size"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(of(&format!("filter={}", "x".repeat(MAX_FILTER + 1))), None);
        assert!(of("limit=0").is_some());
    }
}
