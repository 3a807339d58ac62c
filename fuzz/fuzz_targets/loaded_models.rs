//! Requests to loaded models of every family, through the transports: REST as JSON, with binary data and as MLflow's
//! `/invocations`, and gRPC with typed and raw contents. Most requests are nearly right, so that they reach the evaluators.
//! Any answer is valid but an internal error.
//!
//! `cargo +nightly fuzz run loaded_models -- -rss_limit_mb=512 -malloc_limit_mb=256 -max_len=1024`
#![no_main]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use mlserver::admin::Admin;
use mlserver::compute::ComputePool;
use mlserver::families::{NativeEvaluator, TreeLibrary};
use mlserver::inference::Inference;
use mlserver::registry::{LoadError, Loader, Registry};
use mlserver::repository::Repository;
use mlserver::runtimes::{BoxFuture, Runtime, load_native};
use mlserver::server::{ForwardedHeaders, HttpService, PacedBody, RepositoryAccess, grpc, rest};
use mlserver::settings::env::MapEnvironment;
use mlserver::settings::{CloudEventVariables, LimitSettings, ModelSettings, Settings, SettingsSources};
use mlserver::telemetry::inference::InferenceMetrics;
use mlserver::telemetry::metrics::Registry as MetricsRegistry;
use mlserver::types::ServerMetadata;

/// The most columns that are tried to find out how many a model takes.
const MOST_COLUMNS: usize = 40;

type FuzzedBody = PacedBody<Full<Bytes>>;

/// Answers a request with the status, the headers and trailers, and the body.
type Door = Box<dyn Fn(Request<FuzzedBody>) -> BoxFuture<'static, (StatusCode, HeaderMap, Bytes)> + Send>;

struct FuzzedServer {
    tokio: tokio::runtime::Runtime,
    rest: Door,
    grpc: Door,
    models: Vec<FuzzedModel>,
}

struct FuzzedModel {
    name: String,
    columns: usize,
    /// A server of this model alone: all models of MLflow have the same routes.
    invocations: Option<Door>,
}

static SERVER: LazyLock<Mutex<FuzzedServer>> = LazyLock::new(|| Mutex::new(FuzzedServer::start()));

/// Native steps, with `parameters.extra` as JSON. Their input has the name of the plain one of requests.
const STEPS: [(&str, &str, &str); 3] = [
    (
        "step-select",
        "mlserver.Select",
        r#"{"outputs": [{"input": "x", "columns": [-1, 0], "name": "predict"}, {"input": "x"}]}"#,
    ),
    (
        "step-map",
        "mlserver.Map",
        r#"{"outputs": [
            {"input": "x", "name": "predict", "apply": ["argmax", {"table": ["a", "b"], "default": "c"}]},
            {"input": "x", "name": "predict_proba", "apply": ["softmax", {"weighted_sum": [0.5, 0.5]}, {"thresholds": [0.25, 0.5]}]},
            {"input": "x", "name": "transform", "apply": [{"one_hot": ["a", 1], "ignore_unknown": true}]}
        ]}"#,
    ),
    ("step-concat", "mlserver.Concat", r#"{"name": "predict"}"#),
];

/// Returns the settings of a model.
fn settings_of(name: &str) -> ModelSettings {
    let step = STEPS.iter().find(|(step, ..)| *step == name);
    let mut settings = ModelSettings::new(name, step.map_or("fuzz.Model", |(_, implementation, _)| implementation));
    settings.parameters.extra = step.map(|(_, _, extra)| serde_json::from_str(extra).unwrap()).unwrap_or_default();
    settings
}

/// Loads a model's artifact from the folder of its name.
#[derive(Debug)]
struct GoldenLoader {
    folder: Arc<tempfile::TempDir>,
    compute: ComputePool,
}

impl Loader for GoldenLoader {
    fn load(&self, settings: ModelSettings) -> BoxFuture<'_, Result<Arc<dyn Runtime>, LoadError>> {
        let path = self.folder.path().join(&settings.name);
        let evaluator = match settings.name.split('-').next() {
            Some("xgboost") => NativeEvaluator::Trees(TreeLibrary::XgBoost),
            Some("lightgbm") => NativeEvaluator::Trees(TreeLibrary::LightGbm),
            Some("mlflow") => NativeEvaluator::Mlflow,
            Some("identity") => NativeEvaluator::Identity,
            Some("step") => NativeEvaluator::Step,
            _ => NativeEvaluator::Sklearn,
        };
        let runtime = load_native(evaluator, &settings, &path, &self.compute);
        Box::pin(async move { Ok(runtime?) })
    }
}

impl FuzzedServer {
    fn start() -> Self {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let names = unpack(folder.path());
        let compute = ComputePool::for_this_machine();
        let folder = Arc::new(folder);
        let (rest, grpc) = tokio.block_on(doors(&folder, &compute, &names));
        let mut server = Self { tokio, rest, grpc, models: Vec::new() };
        server.models = names.into_iter().filter_map(|name| server.probe(name)).collect();
        for model in server.models.iter_mut().filter(|model| model.name.starts_with("mlflow-")) {
            let name = std::slice::from_ref(&model.name);
            model.invocations = Some(server.tokio.block_on(doors(&folder, &compute, name)).0);
        }
        assert!(server.models.len() > 100, "the golden models have not been found");
        server
    }
}

/// Loads models and returns the REST and the gRPC service in front of them.
async fn doors(folder: &Arc<tempfile::TempDir>, compute: &ComputePool, names: &[String]) -> (Door, Door) {
    let loader = GoldenLoader { folder: Arc::clone(folder), compute: compute.clone() };
    let registry = Registry::new(loader, InferenceMetrics::register(&mut MetricsRegistry::default()));
    for name in names {
        // Golden files that are not served natively are skipped.
        drop(registry.load(settings_of(name)).await);
    }
    let sources = SettingsSources::read(&MapEnvironment::new(Path::new("/"))).unwrap();
    let admin = Admin::new(registry.clone(), Repository::new(Path::new("nowhere"), sources, false));
    let inference = Inference::new(registry, LimitSettings::default().max_in_flight);
    let metadata = ServerMetadata { name: "fuzz".to_owned(), version: "0".to_owned(), extensions: Vec::new() };
    let repository = RepositoryAccess::Off;
    let options = grpc::GrpcOptions {
        metadata: metadata.clone(),
        max_message_length: 1 << 20,
        repository,
        access: None,
        forward_headers: ForwardedHeaders::default(),
    };
    let grpc = grpc::GrpcService::new(inference.clone(), admin.clone(), compute.clone(), None, options);
    let options = rest::RestOptions {
        metadata,
        root_path: String::new(),
        openai_prefix: String::new(),
        max_body_bytes: 1 << 20,
        gzip: true,
        cors: None,
        host: "127.0.0.1".to_owned(),
        repository,
        non_finite: Settings::default().non_finite_json,
        overload_as_429: false,
        events: CloudEventVariables::default(),
        access: None,
        forward_headers: ForwardedHeaders::default(),
        console: None,
    };
    let rest = rest::RestService::new(inference, admin, compute.clone(), None, options);
    (door(rest), door(grpc))
}

fn door(service: impl HttpService<FuzzedBody>) -> Door {
    Box::new(move |request| {
        let answer = service.call(request);
        Box::pin(async move {
            let response = answer.await;
            let (parts, body) = response.into_parts();
            let Ok(body) = body.collect().await.map_err(Into::into) else {
                return (StatusCode::BAD_GATEWAY, parts.headers, Bytes::new());
            };
            let mut headers = parts.headers;
            headers.extend(body.trailers().cloned().unwrap_or_default());
            (parts.status, headers, body.to_bytes())
        })
    })
}

/// Unpacks golden models of the newest version of each library into `folder`, and returns their names.
fn unpack(folder: &Path) -> Vec<String> {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens");
    let mut names = vec!["identity".to_owned()];
    names.extend(STEPS.map(|(name, ..)| name.to_owned()));
    let archives =
        [("sklearn", "sklearn/1.9.1"), ("xgboost", "trees/xgboost-3.2.0"), ("lightgbm", "trees/lightgbm-4.7.0")];
    for (family, archive) in archives {
        let file = fs::File::open(goldens.join(format!("{archive}.tar.gz"))).unwrap();
        for entry in tar::Archive::new(flate2::read::GzDecoder::new(file)).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            if path.ends_with(".case.json") || path.ends_with('/') || path.ends_with(".npz") {
                continue;
            }
            let name = format!("{family}-{}", path.replace('/', "-"));
            entry.unpack(folder.join(&name)).unwrap();
            names.push(name);
        }
    }
    for entry in fs::read_dir(goldens.join("mlflow")).unwrap() {
        let model = entry.unwrap().path();
        if !model.join("model").is_dir() {
            continue;
        }
        let name = format!("mlflow-{}", model.file_name().unwrap().to_string_lossy());
        fs::create_dir(folder.join(&name)).unwrap();
        for file in fs::read_dir(model.join("model")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(&name).join(file.file_name())).unwrap();
        }
        names.push(name);
    }
    names.sort();
    names
}

impl FuzzedServer {
    /// Finds out how many columns a model takes. `None` if it has not been loaded.
    fn probe(&self, name: String) -> Option<FuzzedModel> {
        let path = format!("/v2/models/{name}");
        let (status, ..) = self.send(&format!("{path}/ready"), "", &[], Bytes::new());
        if status != StatusCode::OK {
            return None;
        }
        let fits = |&columns: &usize| {
            let data = vec!["1"; columns].join(",");
            let body = format!(
                r#"{{"inputs":[{{"name":"x","shape":[1,{columns}],"datatype":"FP64","data":[{data}]}}]}}"#
            );
            self.send(&format!("{path}/infer"), "application/json", &[], body.into()).0 == StatusCode::OK
        };
        // Models of texts take no numbers at all: one column is as good as any.
        let columns = (1..MOST_COLUMNS).find(fits).unwrap_or(1);
        Some(FuzzedModel { name, columns, invocations: None })
    }

    fn send(&self, path: &str, kind: &str, headers: &[(&str, String)], body: Bytes) -> (StatusCode, HeaderMap, Bytes) {
        let method = if kind.is_empty() { "GET" } else { "POST" };
        let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let Ok(mut request) = request.body(whole(body)) else { return (StatusCode::BAD_REQUEST, HeaderMap::new(), Bytes::new()) };
        if kind != "application/grpc" {
            return self.tokio.block_on((self.rest)(request));
        }
        *request.version_mut() = http::Version::HTTP_2;
        self.tokio.block_on((self.grpc)(request))
    }
}

/// Returns a body that is there as a whole.
fn whole(body: Bytes) -> FuzzedBody {
    PacedBody::new(Full::new(body), Duration::from_secs(60))
}

/// A request that is nearly right.
#[derive(Debug, Arbitrary)]
struct Attack {
    model: u16,
    transport: Transport,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    parameters: Vec<Parameter>,
    /// Bytes of the finished body that are replaced.
    patches: Vec<(u16, u8)>,
    /// Bytes of the finished body that are cut off.
    cut: Option<u8>,
}

#[derive(Debug, Arbitrary)]
enum Transport {
    Json,
    Binary,
    GrpcTyped,
    GrpcRaw,
    Split,
    Instances,
    Csv,
}

#[derive(Debug, Arbitrary)]
struct Input {
    name: Name,
    rows: u8,
    columns: Columns,
    datatype: Datatype,
    values: Vec<Cell>,
    /// In place of the shape that belongs to the values.
    shape: Option<Vec<Dimension>>,
    parameters: Vec<Parameter>,
    plain: bool,
}

#[derive(Debug, Arbitrary)]
enum Columns {
    Right,
    Other(u8),
}

#[derive(Debug, Arbitrary)]
enum Dimension {
    Open,
    Small(u8),
    Any(i64),
    Huge,
}

#[derive(Debug, Arbitrary)]
enum Name {
    Plain,
    Column(u8),
    Text(String),
}

#[derive(Debug, Arbitrary)]
enum Datatype {
    Fp64,
    Fp32,
    Fp16,
    Int64,
    Int32,
    Int8,
    Uint64,
    Uint8,
    Bool,
    Bytes,
}

#[derive(Debug, Arbitrary)]
enum Cell {
    Small(i8),
    Int(i64),
    Float(f64),
    Text(String),
    Word(u8),
    Null,
    Bool(bool),
    Nested(u8),
}

#[derive(Debug, Arbitrary)]
enum Output {
    Predict,
    PredictProba,
    DecisionFunction,
    Transform,
    Text(String),
}

#[derive(Debug, Arbitrary)]
enum Parameter {
    ContentType(Content),
    BinarySize(u16),
    BinaryOutput(bool),
    Headers(String),
    Other(String, Cell),
}

#[derive(Debug, Arbitrary)]
enum Content {
    Np,
    Pd,
    Str,
    Base64,
    Text(String),
}

impl Datatype {
    const fn name(&self) -> &'static str {
        match self {
            Self::Fp64 => "FP64",
            Self::Fp32 => "FP32",
            Self::Fp16 => "FP16",
            Self::Int64 => "INT64",
            Self::Int32 => "INT32",
            Self::Int8 => "INT8",
            Self::Uint64 => "UINT64",
            Self::Uint8 => "UINT8",
            Self::Bool => "BOOL",
            Self::Bytes => "BYTES",
        }
    }

    const fn width(&self) -> usize {
        match self {
            Self::Fp64 | Self::Int64 | Self::Uint64 => 8,
            Self::Fp32 | Self::Int32 => 4,
            Self::Fp16 => 2,
            Self::Int8 | Self::Uint8 | Self::Bool | Self::Bytes => 1,
        }
    }
}

impl Cell {
    fn json(&self, text: &mut String) {
        let words = ["a", "b", "red", "blue", "", "nan", "é", "a b c", "x\n\"y"];
        let result = match self {
            Self::Small(value) => write!(text, "{value}"),
            Self::Int(value) => write!(text, "{value}"),
            Self::Float(value) if value.is_finite() => write!(text, "{value}"),
            Self::Float(_) | Self::Null => write!(text, "null"),
            Self::Text(value) => write!(text, "{}", serde_json::Value::from(value.as_str())),
            Self::Word(at) => write!(text, "{}", serde_json::Value::from(words[usize::from(*at) % words.len()])),
            Self::Bool(value) => write!(text, "{value}"),
            Self::Nested(depth) => write!(text, "{}1{}", "[".repeat(usize::from(*depth)), "]".repeat(usize::from(*depth))),
        };
        result.unwrap();
    }

    fn number(&self) -> f64 {
        match self {
            Self::Small(value) => f64::from(*value),
            Self::Int(value) => *value as f64,
            Self::Float(value) => *value,
            _ => 0.5,
        }
    }
}

impl Name {
    fn text(&self) -> String {
        match self {
            Self::Plain => "x".to_owned(),
            Self::Column(at) => format!("{}", char::from(b'a' + at % 26)),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Output {
    fn name(&self) -> &str {
        match self {
            Self::Predict => "predict",
            Self::PredictProba => "predict_proba",
            Self::DecisionFunction => "decision_function",
            Self::Transform => "transform",
            Self::Text(text) => text,
        }
    }
}

impl Input {
    /// The number of elements that belong to the rows and columns.
    fn elements(&self, right: usize) -> (usize, usize) {
        let columns = match self.columns {
            Columns::Right => right,
            Columns::Other(columns) => usize::from(columns),
        };
        (usize::from(self.rows % 80), columns)
    }

    fn shape(&self, right: usize) -> Vec<i64> {
        let (rows, columns) = self.elements(right);
        match &self.shape {
            None => vec![rows as i64, columns as i64],
            Some(shape) => shape
                .iter()
                .map(|dimension| match dimension {
                    Dimension::Open => -1,
                    Dimension::Small(size) => i64::from(*size),
                    Dimension::Any(size) => *size,
                    Dimension::Huge => 4_000_000_000_000_000,
                })
                .collect(),
        }
    }

    fn cells(&self, right: usize) -> impl Iterator<Item = &Cell> {
        let (rows, columns) = self.elements(right);
        let count = if self.values.is_empty() { 0 } else { rows * columns };
        self.values.iter().cycle().take(count)
    }

    fn raw(&self, right: usize) -> Vec<u8> {
        let width = self.datatype.width();
        let mut bytes = Vec::new();
        for cell in self.cells(right) {
            match (&self.datatype, cell) {
                (Datatype::Bytes, Cell::Text(text)) => {
                    bytes.extend((text.len() as u32).to_le_bytes());
                    bytes.extend(text.as_bytes());
                }
                (Datatype::Bytes, _) => bytes.extend([1, 0, 0, 0, b'a']),
                (Datatype::Fp32, _) => bytes.extend((cell.number() as f32).to_le_bytes()),
                (Datatype::Fp64, _) => bytes.extend(cell.number().to_le_bytes()),
                _ => bytes.extend(&(cell.number() as i64).to_le_bytes()[..width]),
            }
        }
        bytes
    }
}

fn parameters(all: &[Parameter], more: &[(&str, usize)]) -> String {
    let mut members = Vec::new();
    for parameter in all {
        members.push(match parameter {
            Parameter::ContentType(content) => {
                let name = match content {
                    Content::Np => "np",
                    Content::Pd => "pd",
                    Content::Str => "str",
                    Content::Base64 => "base64",
                    Content::Text(text) => text,
                };
                format!("\"content_type\":{}", serde_json::Value::from(name))
            }
            Parameter::BinarySize(size) => format!("\"binary_data_size\":{size}"),
            Parameter::BinaryOutput(value) => format!("\"binary_data_output\":{value}"),
            Parameter::Headers(value) => format!("\"headers\":{{\"x-a\":{}}}", serde_json::Value::from(value.as_str())),
            Parameter::Other(name, value) => {
                let mut text = format!("{}:", serde_json::Value::from(name.as_str()));
                value.json(&mut text);
                text
            }
        });
    }
    members.extend(more.iter().map(|(name, value)| format!("\"{name}\":{value}")));
    format!("{{{}}}", members.join(","))
}

impl Attack {
    /// The body of the V2 protocol over REST, and the length of its JSON if binary data follows.
    fn v2(&self, right: usize, binary: bool) -> (Vec<u8>, usize) {
        let mut tail = Vec::new();
        let mut inputs = Vec::new();
        for input in &self.inputs {
            let mut text = format!(
                "{{\"name\":{},\"shape\":{:?},\"datatype\":\"{}\"",
                serde_json::Value::from(input.name.text()),
                input.shape(right),
                input.datatype.name()
            );
            if binary {
                let raw = input.raw(right);
                write!(text, ",\"parameters\":{}", parameters(&input.parameters, &[("binary_data_size", raw.len())])).unwrap();
                tail.extend(raw);
            } else {
                write!(text, ",\"parameters\":{},\"data\":", parameters(&input.parameters, &[])).unwrap();
                match input.values.first() {
                    Some(cell) if input.plain => cell.json(&mut text),
                    _ => {
                        text.push('[');
                        for (index, cell) in input.cells(right).enumerate() {
                            if index > 0 {
                                text.push(',');
                            }
                            cell.json(&mut text);
                        }
                        text.push(']');
                    }
                }
            }
            text.push('}');
            inputs.push(text);
        }
        let outputs: Vec<_> =
            self.outputs.iter().map(|output| format!("{{\"name\":{}}}", serde_json::Value::from(output.name()))).collect();
        let json = format!(
            "{{\"parameters\":{},\"inputs\":[{}],\"outputs\":[{}]}}",
            parameters(&self.parameters, &[]),
            inputs.join(","),
            outputs.join(",")
        );
        let length = json.len();
        (patched([json.into_bytes(), tail].concat(), self), length)
    }

    fn protobuf(&self, model: &FuzzedModel, raw: bool) -> Vec<u8> {
        let mut message = Vec::new();
        field(&mut message, 1, model.name.as_bytes());
        for input in &self.inputs {
            let mut tensor = Vec::new();
            field(&mut tensor, 1, input.name.text().as_bytes());
            field(&mut tensor, 2, input.datatype.name().as_bytes());
            let mut shape = Vec::new();
            input.shape(model.columns).iter().for_each(|&size| varint(&mut shape, size as u64));
            field(&mut tensor, 3, &shape);
            if !raw {
                let mut contents = Vec::new();
                let cells = input.cells(model.columns);
                match input.datatype {
                    Datatype::Bytes => cells.for_each(|cell| {
                        let text = if let Cell::Text(text) = cell { text.as_str() } else { "a" };
                        field(&mut contents, 8, text.as_bytes());
                    }),
                    Datatype::Fp32 => {
                        let all: Vec<u8> = cells.flat_map(|cell| (cell.number() as f32).to_le_bytes()).collect();
                        field(&mut contents, 6, &all);
                    }
                    Datatype::Fp64 => {
                        let all: Vec<u8> = cells.flat_map(|cell| cell.number().to_le_bytes()).collect();
                        field(&mut contents, 7, &all);
                    }
                    _ => {
                        let mut all = Vec::new();
                        cells.for_each(|cell| varint(&mut all, cell.number() as i64 as u64));
                        let number = match input.datatype {
                            Datatype::Bool => 1,
                            Datatype::Int64 => 3,
                            Datatype::Uint64 => 5,
                            Datatype::Uint8 => 4,
                            _ => 2,
                        };
                        field(&mut contents, number, &all);
                    }
                }
                field(&mut tensor, 5, &contents);
            }
            field(&mut message, 5, &tensor);
        }
        for output in &self.outputs {
            let mut tensor = Vec::new();
            field(&mut tensor, 1, output.name().as_bytes());
            field(&mut message, 6, &tensor);
        }
        if raw {
            self.inputs.iter().for_each(|input| field(&mut message, 7, &input.raw(model.columns)));
        }
        let message = patched(message, self);
        [&[0], (message.len() as u32).to_be_bytes().as_slice(), &message].concat()
    }

    /// The body of MLflow's protocol.
    fn invocation(&self, right: usize) -> (Vec<u8>, &'static str) {
        let Some(input) = self.inputs.first() else { return (patched(b"{}".to_vec(), self), "application/json") };
        let (_, columns) = input.elements(right);
        let cells: Vec<String> = input
            .cells(right)
            .map(|cell| {
                let mut text = String::new();
                cell.json(&mut text);
                text
            })
            .collect();
        let rows: Vec<String> = cells.chunks(columns.max(1)).map(|row| row.join(",")).collect();
        let names: Vec<String> = (0..columns).map(|at| format!("\"{}{at}\"", if input.plain { "x" } else { "" })).collect();
        let body = match self.transport {
            Transport::Csv => format!("{}\n{}\n", names.join(","), rows.join("\n")),
            Transport::Split => {
                let rows: Vec<_> = rows.iter().map(|row| format!("[{row}]")).collect();
                format!("{{\"dataframe_split\":{{\"columns\":[{}],\"data\":[{}]}}}}", names.join(","), rows.join(","))
            }
            _ => {
                let rows: Vec<_> = rows.iter().map(|row| format!("[{row}]")).collect();
                let key = if input.plain { "inputs" } else { "instances" };
                format!("{{\"{key}\":[{}]}}", rows.join(","))
            }
        };
        let kind = if matches!(self.transport, Transport::Csv) { "text/csv" } else { "application/json" };
        (patched(body.into_bytes(), self), kind)
    }
}

/// Replaces and cuts off bytes.
fn patched(mut bytes: Vec<u8>, attack: &Attack) -> Vec<u8> {
    let length = bytes.len().max(1);
    for &(at, byte) in attack.patches.iter().take(4) {
        if let Some(place) = bytes.get_mut(usize::from(at) % length) {
            *place = byte;
        }
    }
    bytes.truncate(length.saturating_sub(usize::from(attack.cut.unwrap_or(0))));
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Writes a field whose content has a length.
fn field(bytes: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(bytes, number << 3 | 2);
    varint(bytes, content.len() as u64);
    bytes.extend(content);
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(attack) = Attack::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let server = SERVER.lock().unwrap();
    let model = &server.models[usize::from(attack.model) % server.models.len()];
    let infer = format!("/v2/models/{}/infer", model.name);
    let (status, headers, body) = match attack.transport {
        Transport::Json => server.send(&infer, "application/json", &[], attack.v2(model.columns, false).0.into()),
        Transport::Binary => {
            let (body, length) = attack.v2(model.columns, true);
            let headers = [("inference-header-content-length", length.min(body.len()).to_string())];
            server.send(&infer, "application/octet-stream", &headers, body.into())
        }
        Transport::GrpcTyped | Transport::GrpcRaw => {
            let raw = matches!(attack.transport, Transport::GrpcRaw);
            let path = "/inference.GRPCInferenceService/ModelInfer";
            server.send(path, "application/grpc", &[], attack.protobuf(model, raw).into())
        }
        Transport::Split | Transport::Instances | Transport::Csv => {
            let (body, kind) = attack.invocation(model.columns);
            let Some(door) = &model.invocations else { return };
            let request = Request::post("/invocations").header("content-type", kind);
            server.tokio.block_on(door(request.body(whole(body.into())).unwrap()))
        }
    };
    let internal = headers.get("grpc-status").is_some_and(|code| code == "13");
    assert!(status.as_u16() < 500 && !internal, "{}: {status} {headers:?} {}", model.name, String::from_utf8_lossy(&body));
});
