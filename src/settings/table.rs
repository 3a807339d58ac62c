//! The tables of all settings: the one place that knows names, kinds, defaults and what is served.

use super::field::{FieldDefault, FieldKind, SettingField, SettingGroup, UnknownKeys};

/// The prefix of the server's environment variables.
pub(super) const SERVER_PREFIX: &str = "MLSERVER_";
/// The prefix of the environment variables which every model shares.
pub(super) const MODEL_PREFIX: &str = "MLSERVER_MODEL_";

const PORT: FieldKind = FieldKind::Int { min: 0, max: u16::MAX as i64 };
/// An integer as the original takes it: without bounds.
const ANY_INT: FieldKind = FieldKind::Int { min: i64::MIN, max: i64::MAX };
const POSITIVE: FieldKind = FieldKind::Int { min: 1, max: i64::MAX };
/// About 30 years: whatever is added to a clock stays on the calendar.
const MAX_SECONDS: f64 = 1e9;
const SECONDS: FieldKind = FieldKind::Float { min: 0.0, max: MAX_SECONDS };
const TIMEOUT: FieldKind = FieldKind::Float { min: 0.001, max: MAX_SECONDS };

const NO_KAFKA: &str = "there is no Kafka server in this release";

const TRACING_SERVER: SettingField = {
    let help = "Collector to which traces are sent, as `localhost:4317`: OTLP over gRPC";
    let field = SettingField::new("tracing_server", FieldKind::Text, FieldDefault::Null, help);
    if cfg!(feature = "otel") { field } else { field.no_effect("the server was built without the feature `otel`") }
};

/// `settings.json`.
pub static SERVER: SettingGroup = SettingGroup {
    title: "server settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: &[
        SettingField::new("debug", FieldKind::Bool, FieldDefault::Bool(false), "Debug log level and access logs"),
        SettingField::new(
            "parallel_workers",
            ANY_INT,
            FieldDefault::Int(1),
            "Worker processes per pool; 0 is one that runs plain functions in line",
        ),
        SettingField::new(
            "parallel_workers_timeout",
            ANY_INT,
            FieldDefault::Int(5),
            "Seconds that a worker has to end its calls at shutdown",
        ),
        SettingField::new(
            "worker_hang_timeout",
            SECONDS,
            FieldDefault::Float(300.0),
            "Seconds for which a worker may answer nothing before it is replaced; 0 is no limit",
        ),
        SettingField::new(
            "python_executable",
            FieldKind::Text,
            FieldDefault::Null,
            "Python interpreter of models without an environment of their own",
        ),
        SettingField::new(
            "environments_dir",
            FieldKind::Text,
            FieldDefault::InWorkingDirectory(".envs"),
            "Folder in which environment tarballs are unpacked",
        ),
        SettingField::new(
            "model_repository_implementation",
            FieldKind::Text,
            FieldDefault::Null,
            "Import path of a custom repository class",
        ),
        SettingField::new(
            "model_repository_root",
            FieldKind::Text,
            FieldDefault::Text("."),
            "Folder with the models; always the started folder",
        ),
        SettingField::new(
            "model_repository_implementation_args",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Further arguments of the custom repository class",
        ),
        SettingField::new(
            "load_models_at_startup",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Load every model of the repository at start",
        ),
        SettingField::new(
            "exit_on_load_failure",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Stop with exit code 1 when a model fails to load at start",
        ),
        SettingField::new(
            "server_name",
            FieldKind::Text,
            FieldDefault::Text("mlserver"),
            "Name in the server's metadata",
        ),
        SettingField::new(
            "server_version",
            FieldKind::Text,
            FieldDefault::Text(env!("CARGO_PKG_VERSION")),
            "Version in the server's metadata",
        ),
        SettingField::new(
            "extensions",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Extensions in the server's metadata",
        ),
        SettingField::new(
            "host",
            FieldKind::Text,
            FieldDefault::Text("0.0.0.0"),
            "Address on which all servers listen",
        ),
        SettingField::new("http_port", PORT, FieldDefault::Int(8080), "Port of the REST server"),
        SettingField::new(
            "root_path",
            FieldKind::Text,
            FieldDefault::Text(""),
            "Path under which a proxy publishes the REST server",
        ),
        SettingField::new(
            "http_max_body_bytes",
            POSITIVE,
            FieldDefault::Int(64 << 20),
            "Largest REST request body in bytes, also after decompression",
        ),
        SettingField::new(
            "http_header_timeout",
            FieldKind::Float { min: 0.001, max: MAX_SECONDS },
            FieldDefault::Float(30.0),
            "Seconds a client has for sending its request headers",
        ),
        SettingField::new(
            "max_in_flight",
            FieldKind::Int { min: 1, max: u32::MAX as i64 },
            FieldDefault::Int(1024),
            "Requests admitted at once; more are answered with 503",
        ),
        SettingField::new(
            "overload_as_429",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Refuse what is too much with 429 instead of 503",
        ),
        SettingField::new(
            "server_timing",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Tell in a header of each answer how long its request has waited and was predicted",
        ),
        SettingField::new(
            "shutdown_delay",
            SECONDS,
            FieldDefault::Float(0.0),
            "Seconds after a signal for which requests are answered while the server is not ready",
        ),
        SettingField::new(
            "shutdown_grace_period",
            SECONDS,
            FieldDefault::Float(30.0),
            "Seconds that requests in flight have to finish at shutdown",
        ),
        SettingField::new("grpc_port", PORT, FieldDefault::Int(8081), "Port of the gRPC server"),
        SettingField::new(
            "grpc_max_message_length",
            FieldKind::Int { min: -1, max: i64::MAX },
            FieldDefault::Int(64 << 20),
            "Largest gRPC message in bytes, in both directions; -1 is no limit",
        )
        .null_is_preset(),
        SettingField::new(
            "cors_settings",
            FieldKind::Group(&CORS),
            FieldDefault::Null,
            "Cross-origin requests; none are allowed without it",
        ),
        SettingField::new(
            "metrics_endpoint",
            FieldKind::Route,
            FieldDefault::Text("/metrics"),
            "Path of the metrics; null or empty switches them off",
        )
        .nullable(),
        SettingField::new("metrics_port", PORT, FieldDefault::Int(8082), "Port of the metrics server"),
        SettingField::new(
            "metrics_rest_server_prefix",
            FieldKind::Text,
            FieldDefault::Text("rest_server"),
            "Prefix of the names of REST metrics",
        ),
        SettingField::new(
            "metrics_dir",
            FieldKind::Text,
            FieldDefault::InWorkingDirectory(".metrics"),
            "Folder for the metric files of several processes",
        )
        .no_effect("the server keeps all metrics in its own process"),
        SettingField::new(
            "use_structured_logging",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Write log lines as JSON",
        ),
        SettingField::new(
            "logging_settings",
            FieldKind::ObjectOrText,
            FieldDefault::Null,
            "Configuration of Python's logging for models, as a file or an object",
        ),
        SettingField::new("kafka_enabled", FieldKind::Bool, FieldDefault::Bool(false), "Serve requests from Kafka")
            .not_yet(NO_KAFKA),
        SettingField::new(
            "kafka_servers",
            FieldKind::Text,
            FieldDefault::Text("localhost:9092"),
            "Bootstrap servers of Kafka",
        )
        .not_yet(NO_KAFKA),
        SettingField::new(
            "kafka_topic_input",
            FieldKind::Text,
            FieldDefault::Text("mlserver-input"),
            "Topic from which requests are read",
        )
        .not_yet(NO_KAFKA),
        SettingField::new(
            "kafka_topic_output",
            FieldKind::Text,
            FieldDefault::Text("mlserver-output"),
            "Topic to which responses are written",
        )
        .not_yet(NO_KAFKA),
        TRACING_SERVER,
        SettingField::new(
            "cache_enabled",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Cache the responses of models that ask for it",
        ),
        SettingField::new("cache_size", ANY_INT, FieldDefault::Int(100), "Most responses in the cache; 0 caches none"),
        SettingField::new(
            "cache_max_bytes",
            POSITIVE,
            FieldDefault::Int(64 << 20),
            "Most memory for the responses in the cache",
        ),
        SettingField::new(
            "cache_ttl",
            FieldKind::Float { min: 0.001, max: MAX_SECONDS },
            FieldDefault::Null,
            "Seconds for which a response is given again; null is until the model is loaded again",
        ),
        SettingField::new(
            "models_max_bytes",
            POSITIVE,
            FieldDefault::Null,
            "Memory that models may take; those that do not fit are loaded when they are asked for",
        ),
        SettingField::new("gzip_enabled", FieldKind::Bool, FieldDefault::Bool(true), "Compress REST responses"),
        SettingField::new(
            "non_finite_json",
            FieldKind::Choice(&["null", "string", "error"]),
            FieldDefault::Text("null"),
            "What stands for NaN and infinities in JSON responses",
        ),
    ],
};

/// The object `cors_settings` of `settings.json`.
pub static CORS: SettingGroup = SettingGroup {
    title: "CORS settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: &[
        SettingField::new(
            "allow_origins",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Origins that may send requests; `*` is any",
        ),
        SettingField::new(
            "allow_origin_regex",
            FieldKind::Text,
            FieldDefault::Null,
            "Regular expression of origins that may send requests",
        ),
        SettingField::new(
            "allow_credentials",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Allow cookies in cross-origin requests",
        ),
        SettingField::new(
            "allow_methods",
            FieldKind::TextList,
            FieldDefault::TextList(&["GET"]),
            "Methods that cross-origin requests may use",
        ),
        SettingField::new(
            "allow_headers",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Headers that cross-origin requests may carry",
        ),
        SettingField::new(
            "expose_headers",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Response headers that scripts may read",
        ),
        SettingField::new("max_age", ANY_INT, FieldDefault::Int(600), "Seconds for which browsers remember the answer"),
    ],
};

/// `model-settings.json`.
pub static MODEL: SettingGroup = SettingGroup {
    title: "model settings",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: &[
        SettingField::new(
            "name",
            FieldKind::Text,
            FieldDefault::Text(""),
            "Name of the model; its folder's name if empty",
        ),
        SettingField::new(
            "implementation",
            FieldKind::Text,
            FieldDefault::Required,
            "Import path of the runtime, as `mlserver_xgboost.XGBoostModel`",
        ),
        SettingField::new("platform", FieldKind::Text, FieldDefault::Text(""), "Platform in the model's metadata"),
        SettingField::new(
            "versions",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Versions of dependencies in the model's metadata",
        ),
        SettingField::new(
            "inputs",
            FieldKind::GroupList(&TENSOR),
            FieldDefault::TextList(&[]),
            "Inputs in the model's metadata",
        ),
        SettingField::new(
            "outputs",
            FieldKind::GroupList(&TENSOR),
            FieldDefault::TextList(&[]),
            "Outputs in the model's metadata",
        ),
        SettingField::new(
            "max_batch_size",
            ANY_INT,
            FieldDefault::Int(0),
            "Largest batch of requests; 0 and 1 switch batching off",
        ),
        SettingField::new(
            "max_batch_time",
            FieldKind::Float { min: f64::NEG_INFINITY, max: MAX_SECONDS },
            FieldDefault::Float(0.0),
            "Most seconds that a request waits for a batch to fill; 0 switches batching off",
        ),
        SettingField::new(
            "parameters",
            FieldKind::Group(&PARAMETERS),
            FieldDefault::EmptyObject,
            "Where the model is, and what its runtime needs",
        )
        .null_is_preset(),
        SettingField::new(
            "cache_enabled",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Cache the model's responses, if the server does",
        ),
        SettingField::new(
            "warmup",
            FieldKind::ObjectList,
            FieldDefault::TextList(&[]),
            "Inference requests that the model must answer before it is ready",
        ),
        SettingField::new(
            "parallel_workers",
            ANY_INT,
            FieldDefault::Null,
            "Deprecated; 0 gives the model a worker that runs plain functions in line",
        ),
        SettingField::new("warm_workers", FieldKind::Bool, FieldDefault::Bool(false), "Deprecated")
            .no_effect("workers are always warm"),
    ],
};

/// The object `parameters` of `model-settings.json`.
pub static PARAMETERS: SettingGroup = SettingGroup {
    title: "model parameters",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Keep,
    fields: &[
        SettingField::new(
            "uri",
            FieldKind::Text,
            FieldDefault::Null,
            "File or folder of the artifact; the settings file's folder if empty",
        ),
        SettingField::new("version", FieldKind::Text, FieldDefault::Null, "Version of the model"),
        SettingField::new(
            "content_type",
            FieldKind::Text,
            FieldDefault::Null,
            "Content type of requests that name none",
        ),
        SettingField::new("format", FieldKind::Text, FieldDefault::Null, "Format of an MLlib model")
            .not_yet("there is no MLlib runtime in this release"),
        SettingField::new(
            "environment_tarball",
            FieldKind::Text,
            FieldDefault::Null,
            "Packed Python environment, relative to the settings file",
        ),
        SettingField::new(
            "environment_path",
            FieldKind::Text,
            FieldDefault::Null,
            "Folder of a Python environment, relative to the working directory",
        ),
        SettingField::new(
            "inference_pool_gid",
            FieldKind::Text,
            FieldDefault::Null,
            "SettingGroup of models which share a worker pool",
        ),
        SettingField::new(
            "autogenerate_inference_pool_gid",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Give the model a worker pool of its own",
        ),
        SettingField::new(
            "workers",
            POSITIVE,
            FieldDefault::Null,
            "Workers of its pool that load the model; all if absent",
        ),
        SettingField::new(
            "validate_inputs",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Refuse requests that differ from the declared inputs",
        ),
        SettingField::new(
            "max_queue_requests",
            POSITIVE,
            FieldDefault::Null,
            "Most requests that wait for the model; more are answered with 503",
        ),
        SettingField::new(
            "max_queue_bytes",
            POSITIVE,
            FieldDefault::Int(1 << 30),
            "Most bytes of inputs that wait for the model; more are answered with 503",
        ),
        SettingField::new(
            "memory_bytes",
            POSITIVE,
            FieldDefault::Null,
            "Memory that the model takes, for `models_max_bytes`; the size of its artifact if absent",
        ),
        SettingField::new(
            "pinned",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Keep the model in memory, whatever `models_max_bytes` is",
        ),
        SettingField::new(
            "queue_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Seconds that a request waits for the model; then 503",
        ),
        SettingField::new(
            "predict_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Seconds that a prediction takes; then 504, and its worker is replaced if it goes on",
        ),
        SettingField::new(
            "request_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Seconds from a request to its answer; then 504",
        ),
        SettingField::new(
            "extra",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Settings which only the runtime knows",
        )
        .null_is_preset(),
    ],
};

/// An element of a model's `inputs` or `outputs`.
pub static TENSOR: SettingGroup = SettingGroup {
    title: "tensor metadata",
    env_prefix: None,
    unknown: UnknownKeys::Warn,
    fields: &[
        SettingField::new("name", FieldKind::Text, FieldDefault::Required, "Name of the tensor"),
        SettingField::new("datatype", FieldKind::Text, FieldDefault::Required, "Datatype of its elements"),
        SettingField::new("shape", FieldKind::IntList, FieldDefault::Required, "Its shape; -1 is any size"),
        SettingField::new(
            "parameters",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Parameters of the tensor, as `content_type`",
        )
        .null_is_preset(),
    ],
};

/// The groups whose fields have environment variables.
pub(super) static GROUPS: [&SettingGroup; 4] = [&SERVER, &CORS, &MODEL, &PARAMETERS];
