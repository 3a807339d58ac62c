//! The tables of all settings: the one place that knows names, kinds, defaults and what is served.

use super::field::{Field, Group, Kind, Preset, Unknown};

/// The prefix of the server's environment variables.
pub(super) const SERVER_PREFIX: &str = "MLSERVER_";
/// The prefix of the environment variables which every model shares.
pub(super) const MODEL_PREFIX: &str = "MLSERVER_MODEL_";

const PORT: Kind = Kind::Int { min: 0, max: u16::MAX as i64 };
/// An integer as the original takes it: without bounds.
const ANY_INT: Kind = Kind::Int { min: i64::MIN, max: i64::MAX };
const POSITIVE: Kind = Kind::Int { min: 1, max: i64::MAX };
/// About 30 years: whatever is added to a clock stays on the calendar.
const MAX_SECONDS: f64 = 1e9;
const SECONDS: Kind = Kind::Float { min: 0.0, max: MAX_SECONDS };
const TIMEOUT: Kind = Kind::Float { min: 0.001, max: MAX_SECONDS };

const NO_KAFKA: &str = "there is no Kafka server in this release";

const TRACING_SERVER: Field = {
    let help = "Collector to which traces are sent, as `localhost:4317`: OTLP over gRPC";
    let field = Field::new("tracing_server", Kind::Text, Preset::Null, help);
    if cfg!(feature = "otel") { field } else { field.no_effect("the server was built without the feature `otel`") }
};

/// `settings.json`.
pub static SERVER: Group = Group {
    title: "server settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: Unknown::Warn,
    fields: &[
        Field::new("debug", Kind::Bool, Preset::Bool(false), "Debug log level and access logs"),
        Field::new(
            "parallel_workers",
            ANY_INT,
            Preset::Int(1),
            "Worker processes per pool; 0 is one that runs plain functions in line",
        ),
        Field::new(
            "parallel_workers_timeout",
            ANY_INT,
            Preset::Int(5),
            "Seconds that a worker has to end its calls at shutdown",
        ),
        Field::new(
            "worker_hang_timeout",
            SECONDS,
            Preset::Float(300.0),
            "Seconds for which a worker may answer nothing before it is replaced; 0 is no limit",
        ),
        Field::new(
            "python_executable",
            Kind::Text,
            Preset::Null,
            "Python interpreter of models without an environment of their own",
        ),
        Field::new(
            "environments_dir",
            Kind::Text,
            Preset::InWorkingDirectory(".envs"),
            "Folder in which environment tarballs are unpacked",
        ),
        Field::new(
            "model_repository_implementation",
            Kind::Text,
            Preset::Null,
            "Import path of a custom repository class",
        ),
        Field::new(
            "model_repository_root",
            Kind::Text,
            Preset::Text("."),
            "Folder with the models; always the started folder",
        ),
        Field::new(
            "model_repository_implementation_args",
            Kind::Object,
            Preset::EmptyObject,
            "Further arguments of the custom repository class",
        ),
        Field::new(
            "load_models_at_startup",
            Kind::Bool,
            Preset::Bool(true),
            "Load every model of the repository at start",
        ),
        Field::new(
            "exit_on_load_failure",
            Kind::Bool,
            Preset::Bool(true),
            "Stop with exit code 1 when a model fails to load at start",
        ),
        Field::new("server_name", Kind::Text, Preset::Text("mlserver"), "Name in the server's metadata"),
        Field::new(
            "server_version",
            Kind::Text,
            Preset::Text(env!("CARGO_PKG_VERSION")),
            "Version in the server's metadata",
        ),
        Field::new("extensions", Kind::TextList, Preset::TextList(&[]), "Extensions in the server's metadata"),
        Field::new("host", Kind::Text, Preset::Text("0.0.0.0"), "Address on which all servers listen"),
        Field::new("http_port", PORT, Preset::Int(8080), "Port of the REST server"),
        Field::new("root_path", Kind::Text, Preset::Text(""), "Path under which a proxy publishes the REST server"),
        Field::new(
            "http_max_body_bytes",
            POSITIVE,
            Preset::Int(64 << 20),
            "Largest REST request body in bytes, also after decompression",
        ),
        Field::new(
            "http_header_timeout",
            Kind::Float { min: 0.001, max: MAX_SECONDS },
            Preset::Float(30.0),
            "Seconds a client has for sending its request headers",
        ),
        Field::new(
            "max_in_flight",
            Kind::Int { min: 1, max: u32::MAX as i64 },
            Preset::Int(1024),
            "Requests admitted at once; more are answered with 503",
        ),
        Field::new(
            "overload_as_429",
            Kind::Bool,
            Preset::Bool(false),
            "Refuse what is too much with 429 instead of 503",
        ),
        Field::new(
            "server_timing",
            Kind::Bool,
            Preset::Bool(false),
            "Tell in a header of each answer how long its request has waited and was predicted",
        ),
        Field::new(
            "shutdown_delay",
            SECONDS,
            Preset::Float(0.0),
            "Seconds after a signal for which requests are answered while the server is not ready",
        ),
        Field::new(
            "shutdown_grace_period",
            SECONDS,
            Preset::Float(30.0),
            "Seconds that requests in flight have to finish at shutdown",
        ),
        Field::new("grpc_port", PORT, Preset::Int(8081), "Port of the gRPC server"),
        Field::new(
            "grpc_max_message_length",
            Kind::Int { min: -1, max: i64::MAX },
            Preset::Int(64 << 20),
            "Largest gRPC message in bytes, in both directions; -1 is no limit",
        )
        .null_is_preset(),
        Field::new(
            "cors_settings",
            Kind::Group(&CORS),
            Preset::Null,
            "Cross-origin requests; none are allowed without it",
        ),
        Field::new(
            "metrics_endpoint",
            Kind::Route,
            Preset::Text("/metrics"),
            "Path of the metrics; null or empty switches them off",
        )
        .nullable(),
        Field::new("metrics_port", PORT, Preset::Int(8082), "Port of the metrics server"),
        Field::new(
            "metrics_rest_server_prefix",
            Kind::Text,
            Preset::Text("rest_server"),
            "Prefix of the names of REST metrics",
        ),
        Field::new(
            "metrics_dir",
            Kind::Text,
            Preset::InWorkingDirectory(".metrics"),
            "Folder for the metric files of several processes",
        )
        .no_effect("the server keeps all metrics in its own process"),
        Field::new("use_structured_logging", Kind::Bool, Preset::Bool(false), "Write log lines as JSON"),
        Field::new(
            "logging_settings",
            Kind::ObjectOrText,
            Preset::Null,
            "Configuration of Python's logging for models, as a file or an object",
        ),
        Field::new("kafka_enabled", Kind::Bool, Preset::Bool(false), "Serve requests from Kafka").not_yet(NO_KAFKA),
        Field::new("kafka_servers", Kind::Text, Preset::Text("localhost:9092"), "Bootstrap servers of Kafka")
            .not_yet(NO_KAFKA),
        Field::new(
            "kafka_topic_input",
            Kind::Text,
            Preset::Text("mlserver-input"),
            "Topic from which requests are read",
        )
        .not_yet(NO_KAFKA),
        Field::new(
            "kafka_topic_output",
            Kind::Text,
            Preset::Text("mlserver-output"),
            "Topic to which responses are written",
        )
        .not_yet(NO_KAFKA),
        TRACING_SERVER,
        Field::new("cache_enabled", Kind::Bool, Preset::Bool(false), "Cache the responses of models that ask for it"),
        Field::new("cache_size", ANY_INT, Preset::Int(100), "Most responses in the cache; 0 caches none"),
        Field::new("cache_max_bytes", POSITIVE, Preset::Int(64 << 20), "Most memory for the responses in the cache"),
        Field::new(
            "cache_ttl",
            Kind::Float { min: 0.001, max: MAX_SECONDS },
            Preset::Null,
            "Seconds for which a response is given again; null is until the model is loaded again",
        ),
        Field::new(
            "models_max_bytes",
            POSITIVE,
            Preset::Null,
            "Memory that models may take; those that do not fit are loaded when they are asked for",
        ),
        Field::new("gzip_enabled", Kind::Bool, Preset::Bool(true), "Compress REST responses"),
        Field::new(
            "non_finite_json",
            Kind::Choice(&["null", "string", "error"]),
            Preset::Text("null"),
            "What stands for NaN and infinities in JSON responses",
        ),
    ],
};

/// The object `cors_settings` of `settings.json`.
pub static CORS: Group = Group {
    title: "CORS settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: Unknown::Warn,
    fields: &[
        Field::new(
            "allow_origins",
            Kind::TextList,
            Preset::TextList(&[]),
            "Origins that may send requests; `*` is any",
        ),
        Field::new(
            "allow_origin_regex",
            Kind::Text,
            Preset::Null,
            "Regular expression of origins that may send requests",
        ),
        Field::new("allow_credentials", Kind::Bool, Preset::Bool(false), "Allow cookies in cross-origin requests"),
        Field::new(
            "allow_methods",
            Kind::TextList,
            Preset::TextList(&["GET"]),
            "Methods that cross-origin requests may use",
        ),
        Field::new(
            "allow_headers",
            Kind::TextList,
            Preset::TextList(&[]),
            "Headers that cross-origin requests may carry",
        ),
        Field::new("expose_headers", Kind::TextList, Preset::TextList(&[]), "Response headers that scripts may read"),
        Field::new("max_age", ANY_INT, Preset::Int(600), "Seconds for which browsers remember the answer"),
    ],
};

/// `model-settings.json`.
pub static MODEL: Group = Group {
    title: "model settings",
    env_prefix: Some(MODEL_PREFIX),
    unknown: Unknown::Warn,
    fields: &[
        Field::new("name", Kind::Text, Preset::Text(""), "Name of the model; its folder's name if empty"),
        Field::new(
            "implementation",
            Kind::Text,
            Preset::Required,
            "Import path of the runtime, as `mlserver_xgboost.XGBoostModel`",
        ),
        Field::new("platform", Kind::Text, Preset::Text(""), "Platform in the model's metadata"),
        Field::new(
            "versions",
            Kind::TextList,
            Preset::TextList(&[]),
            "Versions of dependencies in the model's metadata",
        ),
        Field::new("inputs", Kind::GroupList(&TENSOR), Preset::TextList(&[]), "Inputs in the model's metadata"),
        Field::new("outputs", Kind::GroupList(&TENSOR), Preset::TextList(&[]), "Outputs in the model's metadata"),
        Field::new("max_batch_size", ANY_INT, Preset::Int(0), "Largest batch of requests; 0 and 1 switch batching off"),
        Field::new(
            "max_batch_time",
            Kind::Float { min: f64::NEG_INFINITY, max: MAX_SECONDS },
            Preset::Float(0.0),
            "Most seconds that a request waits for a batch to fill; 0 switches batching off",
        ),
        Field::new(
            "parameters",
            Kind::Group(&PARAMETERS),
            Preset::EmptyObject,
            "Where the model is, and what its runtime needs",
        )
        .null_is_preset(),
        Field::new("cache_enabled", Kind::Bool, Preset::Bool(false), "Cache the model's responses, if the server does"),
        Field::new(
            "warmup",
            Kind::ObjectList,
            Preset::TextList(&[]),
            "Inference requests that the model must answer before it is ready",
        ),
        Field::new(
            "parallel_workers",
            ANY_INT,
            Preset::Null,
            "Deprecated; 0 gives the model a worker that runs plain functions in line",
        ),
        Field::new("warm_workers", Kind::Bool, Preset::Bool(false), "Deprecated").no_effect("workers are always warm"),
    ],
};

/// The object `parameters` of `model-settings.json`.
pub static PARAMETERS: Group = Group {
    title: "model parameters",
    env_prefix: Some(MODEL_PREFIX),
    unknown: Unknown::Keep,
    fields: &[
        Field::new(
            "uri",
            Kind::Text,
            Preset::Null,
            "File or folder of the artifact; the settings file's folder if empty",
        ),
        Field::new("version", Kind::Text, Preset::Null, "Version of the model"),
        Field::new("content_type", Kind::Text, Preset::Null, "Content type of requests that name none"),
        Field::new("format", Kind::Text, Preset::Null, "Format of an MLlib model")
            .not_yet("there is no MLlib runtime in this release"),
        Field::new(
            "environment_tarball",
            Kind::Text,
            Preset::Null,
            "Packed Python environment, relative to the settings file",
        ),
        Field::new(
            "environment_path",
            Kind::Text,
            Preset::Null,
            "Folder of a Python environment, relative to the working directory",
        ),
        Field::new("inference_pool_gid", Kind::Text, Preset::Null, "Group of models which share a worker pool"),
        Field::new(
            "autogenerate_inference_pool_gid",
            Kind::Bool,
            Preset::Bool(false),
            "Give the model a worker pool of its own",
        ),
        Field::new("workers", POSITIVE, Preset::Null, "Workers of its pool that load the model; all if absent"),
        Field::new(
            "validate_inputs",
            Kind::Bool,
            Preset::Bool(false),
            "Refuse requests that differ from the declared inputs",
        ),
        Field::new(
            "max_queue_requests",
            POSITIVE,
            Preset::Null,
            "Most requests that wait for the model; more are answered with 503",
        ),
        Field::new(
            "max_queue_bytes",
            POSITIVE,
            Preset::Int(1 << 30),
            "Most bytes of inputs that wait for the model; more are answered with 503",
        ),
        Field::new(
            "memory_bytes",
            POSITIVE,
            Preset::Null,
            "Memory that the model takes, for `models_max_bytes`; the size of its artifact if absent",
        ),
        Field::new(
            "pinned",
            Kind::Bool,
            Preset::Bool(false),
            "Keep the model in memory, whatever `models_max_bytes` is",
        ),
        Field::new("queue_timeout", TIMEOUT, Preset::Null, "Seconds that a request waits for the model; then 503"),
        Field::new(
            "predict_timeout",
            TIMEOUT,
            Preset::Null,
            "Seconds that a prediction takes; then 504, and its worker is replaced if it goes on",
        ),
        Field::new("request_timeout", TIMEOUT, Preset::Null, "Seconds from a request to its answer; then 504"),
        Field::new("extra", Kind::Object, Preset::EmptyObject, "Settings which only the runtime knows")
            .null_is_preset(),
    ],
};

/// An element of a model's `inputs` or `outputs`.
pub static TENSOR: Group = Group {
    title: "tensor metadata",
    env_prefix: None,
    unknown: Unknown::Warn,
    fields: &[
        Field::new("name", Kind::Text, Preset::Required, "Name of the tensor"),
        Field::new("datatype", Kind::Text, Preset::Required, "Datatype of its elements"),
        Field::new("shape", Kind::IntList, Preset::Required, "Its shape; -1 is any size"),
        Field::new("parameters", Kind::Object, Preset::EmptyObject, "Parameters of the tensor, as `content_type`")
            .null_is_preset(),
    ],
};

/// The groups whose fields have environment variables.
pub(super) static GROUPS: [&Group; 4] = [&SERVER, &CORS, &MODEL, &PARAMETERS];
