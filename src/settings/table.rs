//! The tables of all settings: the only definition of their names, kinds, defaults and help texts.

use super::field::{FieldDefault, FieldKind, SettingField, SettingGroup, UnknownKeys};

/// The prefix of the server's environment variables.
pub(super) const SERVER_PREFIX: &str = "MLSERVER_";
/// The prefix of the environment variables that apply to every model.
pub(super) const MODEL_PREFIX: &str = "MLSERVER_MODEL_";

const PORT: FieldKind = FieldKind::Int { min: 0, max: u16::MAX as i64 };
/// An integer without bounds, as in the original.
const ANY_INT: FieldKind = FieldKind::Int { min: i64::MIN, max: i64::MAX };
const POSITIVE: FieldKind = FieldKind::Int { min: 1, max: i64::MAX };
/// About 30 years, so that adding a duration to a time never overflows.
const MAX_SECONDS: f64 = 1e9;
/// The same as an integer.
const MAX_WHOLE_SECONDS: i64 = 1_000_000_000;
const WHOLE_SECONDS: FieldKind = FieldKind::Int { min: 0, max: MAX_WHOLE_SECONDS };
/// A number of processes, entries or requests.
const COUNT: FieldKind = FieldKind::Int { min: 0, max: u32::MAX as i64 };
const SECONDS: FieldKind = FieldKind::Float { min: 0.0, max: MAX_SECONDS };
const TIMEOUT: FieldKind = FieldKind::Float { min: 0.001, max: MAX_SECONDS };

/// Why a setting has no effect if the server lacks the feature. Depends on the build, so the reference does not mention it.
pub const WITHOUT_OTEL: &str = "the server was built without the feature `otel`";

const TRACING_SERVER: SettingField = {
    let help = "OTLP collector (gRPC) to send traces to, for example `localhost:4317`";
    let field = SettingField::new("tracing_server", FieldKind::Text, FieldDefault::Null, help);
    if cfg!(feature = "otel") { field } else { field.no_effect(WITHOUT_OTEL) }
};

/// `settings.json`.
pub static SERVER: SettingGroup = SettingGroup {
    title: "server settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: &[
        SettingField::new(
            "debug",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Log at debug level, including an access log",
        )
        .in_original("the default is true"),
        SettingField::new(
            "log_level",
            FieldKind::Choice(&["DEBUG", "INFO", "WARNING", "ERROR"]),
            FieldDefault::Null,
            "Lowest severity of log lines to write; null means DEBUG with `debug`, otherwise INFO",
        )
        .new_here(),
        SettingField::new(
            "parallel_workers",
            COUNT,
            FieldDefault::Int(1),
            "Worker processes per pool; 0 means one worker that runs plain functions inline",
        )
        .in_original("0 runs models in the server's process"),
        SettingField::new(
            "parallel_workers_timeout",
            WHOLE_SECONDS,
            FieldDefault::Int(5),
            "Seconds for workers to finish their calls at shutdown",
        )
        .in_original("applies to each worker in turn"),
        SettingField::new(
            "worker_hang_timeout",
            SECONDS,
            FieldDefault::Float(300.0),
            "Seconds without a response after which a busy worker is replaced; 0 means no limit",
        )
        .new_here(),
        SettingField::new(
            "worker_load_timeout",
            SECONDS,
            FieldDefault::Float(1800.0),
            "Maximum seconds for a model to load; then its worker is replaced; 0 means no limit",
        )
        .new_here(),
        SettingField::new(
            "worker_memory_limit",
            POSITIVE,
            FieldDefault::Null,
            "Memory of a worker in bytes: it is replaced at 80 % and killed at 100 %",
        )
        .new_here(),
        SettingField::new(
            "max_requests_per_worker",
            POSITIVE,
            FieldDefault::Null,
            "Number of predictions after which a worker is replaced",
        )
        .new_here(),
        SettingField::new(
            "python_executable",
            FieldKind::Text,
            FieldDefault::Null,
            "Python interpreter for models without their own environment",
        )
        .new_here(),
        SettingField::new(
            "environments_dir",
            FieldKind::Text,
            FieldDefault::InWorkingDirectory(".envs"),
            "Folder to unpack environment tarballs in",
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
            "Folder of the models; always the started folder",
        ),
        SettingField::new(
            "model_repository_implementation_args",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Additional arguments for the custom repository class",
        ),
        SettingField::new(
            "load_models_at_startup",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Load all models of the repository at startup",
        ),
        SettingField::new(
            "exit_on_load_failure",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Exit with code 1 if a model fails to load at startup",
        )
        .new_here(),
        SettingField::new(
            "server_name",
            FieldKind::Text,
            FieldDefault::Text("mlserver"),
            "Server name in the metadata",
        ),
        SettingField::new(
            "server_version",
            FieldKind::Text,
            FieldDefault::Text(env!("CARGO_PKG_VERSION")),
            "Server version in the metadata",
        )
        .in_original("the default is the version of the Python package"),
        SettingField::new(
            "extensions",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Extensions in the server metadata",
        )
        .in_original("supported extensions are not added"),
        SettingField::new(
            "host",
            FieldKind::Text,
            FieldDefault::Text("0.0.0.0"),
            "Address to listen on, for all servers",
        ),
        SettingField::new("http_port", PORT, FieldDefault::Int(8080), "Port of the REST server"),
        SettingField::new(
            "root_path",
            FieldKind::Text,
            FieldDefault::Text(""),
            "Path prefix under which a proxy exposes the REST server",
        ),
        SettingField::new(
            "http_max_body_bytes",
            POSITIVE,
            FieldDefault::Int(64 << 20),
            "Maximum size of a REST request body in bytes, before and after decompression",
        )
        .new_here(),
        SettingField::new(
            "http_header_timeout",
            TIMEOUT,
            FieldDefault::Float(30.0),
            "Seconds for a client to send its request headers",
        )
        .new_here(),
        SettingField::new(
            "http_body_timeout",
            TIMEOUT,
            FieldDefault::Float(30.0),
            "Seconds without a byte after which an incomplete request body is rejected",
        )
        .new_here(),
        SettingField::new(
            "http_write_timeout",
            TIMEOUT,
            FieldDefault::Float(60.0),
            "Seconds after which a response that its client does not read is dropped",
        )
        .new_here(),
        SettingField::new(
            "http_keep_alive_timeout",
            TIMEOUT,
            FieldDefault::Float(75.0),
            "Seconds to keep idle connections open",
        )
        .new_here(),
        SettingField::new(
            "max_connections",
            POSITIVE,
            FieldDefault::Null,
            "Maximum number of connections; null derives it from the limit on open files",
        )
        .new_here(),
        SettingField::new(
            "max_in_flight",
            FieldKind::Int { min: 1, max: u32::MAX as i64 },
            FieldDefault::Int(1024),
            "Maximum number of requests in flight; more are rejected with 503",
        )
        .new_here(),
        SettingField::new(
            "max_request_bytes_in_flight",
            POSITIVE,
            FieldDefault::Null,
            "Memory for requests in flight and their responses in bytes; null means a quarter of the available memory",
        )
        .new_here(),
        SettingField::new(
            "max_streams",
            FieldKind::Int { min: 1, max: u32::MAX as i64 },
            FieldDefault::Int(256),
            "Maximum number of open streams of responses; more are rejected with 503",
        )
        .new_here(),
        SettingField::new(
            "stream_idle_timeout",
            TIMEOUT,
            FieldDefault::Float(300.0),
            "Seconds without a message in either direction after which a stream is ended",
        )
        .new_here(),
        SettingField::new(
            "overload_as_429",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Reject requests with 429 instead of 503 under overload",
        )
        .new_here(),
        SettingField::new(
            "repository_api",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Serve the model repository API (index, load, unload)",
        )
        .new_here(),
        SettingField::new(
            "admin_port",
            PORT,
            FieldDefault::Null,
            "Separate port for the model repository API; null serves it on the REST and gRPC ports",
        )
        .new_here(),
        SettingField::new(
            "server_timing",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Add a Server-Timing header with queue and prediction times to responses",
        )
        .new_here(),
        SettingField::new(
            "strict_tensors",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Reject data that does not match its datatype and shape for models in Python, too",
        )
        .new_here(),
        SettingField::new(
            "shutdown_delay",
            SECONDS,
            FieldDefault::Float(0.0),
            "Seconds to keep answering requests after a signal, while the server reports not ready",
        )
        .new_here(),
        SettingField::new(
            "shutdown_grace_period",
            SECONDS,
            FieldDefault::Float(30.0),
            "Seconds for requests in flight to finish at shutdown",
        )
        .new_here(),
        SettingField::new(
            "tls_certificate",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the server's certificate and its intermediate certificates; null means no TLS",
        )
        .new_here(),
        SettingField::new(
            "tls_key",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the private key of `tls_certificate`",
        )
        .new_here(),
        SettingField::new(
            "tls_client_ca",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the authorities of client certificates; if set, all clients need a certificate",
        )
        .new_here(),
        SettingField::new(
            "tls_min_version",
            FieldKind::Choice(&["1.2", "1.3"]),
            FieldDefault::Text("1.2"),
            "Oldest version of TLS that clients may use",
        )
        .new_here(),
        SettingField::new(
            "tls_metrics",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Use TLS for the metrics server, too",
        )
        .new_here(),
        SettingField::new(
            "tls_client_scopes",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Lists of scopes by the common or DNS names of client certificates",
        )
        .new_here(),
        SettingField::new(
            "api_keys_file",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "JSON file with the hashes and scopes of API keys; if set, requests need credentials",
        )
        .new_here(),
        SettingField::new(
            "key_rate_limit",
            FieldKind::Object,
            FieldDefault::Null,
            "Rate limit of keys without `rate_limit`, such as `{\"requests_per_second\": 10, \"burst\": 20}`",
        )
        .new_here(),
        SettingField::new(
            "jwt_issuer",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "Issuer of OpenID Connect tokens (claim `iss`); null means no tokens",
        )
        .new_here(),
        SettingField::new(
            "jwt_audience",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "Required audience of tokens (claim `aud`)",
        )
        .new_here(),
        SettingField::new(
            "jwks_url",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "URL of the issuer's keys (JSON Web Key Set)",
        )
        .new_here(),
        SettingField::new(
            "jwks_file",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "File with the issuer's keys, instead of `jwks_url`",
        )
        .new_here(),
        SettingField::new(
            "jwt_scope_claim",
            FieldKind::NonEmptyText,
            FieldDefault::Text("scope"),
            "Claim with the scopes: a string with spaces, or a list",
        )
        .new_here(),
        SettingField::new(
            "forward_headers",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Headers with credentials to pass to models: `authorization`, `cookie`",
        )
        .in_original("models see all headers"),
        SettingField::new("grpc_port", PORT, FieldDefault::Int(8081), "Port of the gRPC server"),
        SettingField::new(
            "grpc_max_message_length",
            FieldKind::Int { min: -1, max: i64::MAX },
            FieldDefault::Int(64 << 20),
            "Maximum size of a gRPC message in bytes, in both directions; -1 means no limit",
        )
        .in_original("the default is null, which means 4 MiB")
        .null_is_preset(),
        SettingField::new(
            "cors_settings",
            FieldKind::Group(&CORS),
            FieldDefault::Null,
            "Allowed cross-origin requests; none by default",
        ),
        SettingField::new(
            "metrics_endpoint",
            FieldKind::Route,
            FieldDefault::Text("/metrics"),
            "Path of the metrics; null or an empty string disables them",
        )
        .nullable(),
        SettingField::new("metrics_port", PORT, FieldDefault::Int(8082), "Port of the metrics server"),
        SettingField::new(
            "metrics_rest_server_prefix",
            FieldKind::Text,
            FieldDefault::Text("rest_server"),
            "Prefix of the names of the REST metrics",
        ),
        SettingField::new(
            "metrics_dir",
            FieldKind::Text,
            FieldDefault::InWorkingDirectory(".metrics"),
            "Folder for metrics files that processes share",
        )
        .in_original("folder of the metrics files that workers share")
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
            "Configuration of Python logging for models: a file, or an object for `dictConfig`",
        ),
        SettingField::new("kafka_enabled", FieldKind::Bool, FieldDefault::Bool(false), "Process requests from Kafka"),
        SettingField::new(
            "kafka_servers",
            FieldKind::NonEmptyText,
            FieldDefault::Text("localhost:9092"),
            "Addresses of Kafka brokers, separated by commas",
        ),
        SettingField::new(
            "kafka_topic_input",
            FieldKind::Topics,
            FieldDefault::TextList(&["mlserver-input"]),
            "Kafka topics to read requests from",
        )
        .in_original("one topic"),
        SettingField::new(
            "kafka_topic_output",
            FieldKind::Topic,
            FieldDefault::Text("mlserver-output"),
            "Kafka topic to write responses to",
        ),
        SettingField::new(
            "kafka_topic_models",
            FieldKind::TopicModels,
            FieldDefault::EmptyObject,
            "Model by input topic, for records without the header `mlserver-model`",
        )
        .new_here(),
        SettingField::new(
            "kafka_topic_dead_letters",
            FieldKind::Topic,
            FieldDefault::Null,
            "Kafka topic for records that cannot be answered; null means the topic of the record followed by `-dead-letters`",
        )
        .new_here(),
        SettingField::new(
            "kafka_group_id",
            FieldKind::NonEmptyText,
            FieldDefault::Text("mlserver"),
            "Consumer group; servers with the same group share the records",
        )
        .new_here(),
        SettingField::new(
            "kafka_auto_offset_reset",
            FieldKind::Choice(&["earliest", "latest", "error"]),
            FieldDefault::Text("earliest"),
            "First record to read if the group has no committed offset",
        )
        .new_here(),
        SettingField::new(
            "kafka_delivery",
            FieldKind::Choice(&["at_least_once", "exactly_once"]),
            FieldDefault::Text("at_least_once"),
            "Whether a record may be answered again after a failure; `exactly_once` uses transactions",
        )
        .new_here(),
        SettingField::new(
            "kafka_transactional_id",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "Identity of the producer for `exactly_once`, one per server; null means a random one",
        )
        .new_here(),
        SettingField::new(
            "kafka_ordering",
            FieldKind::Choice(&["none", "key", "partition"]),
            FieldDefault::Text("none"),
            "Records that are answered in order: those with the same key, or all of a partition",
        )
        .new_here(),
        SettingField::new(
            "kafka_max_in_flight",
            FieldKind::Int { min: 1, max: 1_000_000 },
            FieldDefault::Int(4096),
            "Maximum number of records that are read and not committed yet",
        )
        .new_here(),
        SettingField::new(
            "kafka_max_attempts",
            FieldKind::Int { min: 1, max: 1000 },
            FieldDefault::Int(3),
            "Attempts at a record whose model fails, before it becomes a dead letter",
        )
        .new_here(),
        SettingField::new(
            "kafka_readiness",
            FieldKind::Bool,
            FieldDefault::Bool(true),
            "Report ready only once the consumer has joined its group",
        )
        .new_here(),
        SettingField::new(
            "kafka_security_protocol",
            FieldKind::Choice(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]),
            FieldDefault::Text("plaintext"),
            "Encryption and authentication of connections to Kafka",
        )
        .new_here(),
        SettingField::new(
            "kafka_sasl_mechanism",
            FieldKind::Choice(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
            FieldDefault::Null,
            "SASL mechanism for authentication",
        )
        .new_here(),
        SettingField::new("kafka_sasl_username", FieldKind::Text, FieldDefault::Null, "User name for SASL")
            .new_here(),
        SettingField::new("kafka_sasl_password", FieldKind::Text, FieldDefault::Null, "Password for SASL")
            .secret()
            .new_here(),
        SettingField::new(
            "kafka_ssl_ca",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the authorities of the brokers' certificates; null means those of the system",
        )
        .new_here(),
        SettingField::new(
            "kafka_ssl_certificate",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the client's certificate",
        )
        .new_here(),
        SettingField::new(
            "kafka_ssl_key",
            FieldKind::NonEmptyText,
            FieldDefault::Null,
            "PEM file with the client's private key",
        )
        .new_here(),
        SettingField::new(
            "kafka_ssl_key_password",
            FieldKind::Text,
            FieldDefault::Null,
            "Password of the client's private key",
        )
        .secret()
        .new_here(),
        SettingField::new(
            "kafka_config",
            FieldKind::Properties,
            FieldDefault::EmptyObject,
            "Further properties of librdkafka, which override those of other settings",
        )
        .new_here(),
        TRACING_SERVER,
        SettingField::new(
            "cache_enabled",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Cache responses of models that set `cache_enabled`",
        ),
        SettingField::new(
            "cache_size",
            COUNT,
            FieldDefault::Int(100),
            "Maximum number of cached responses; 0 disables the cache",
        ),
        SettingField::new(
            "cache_max_bytes",
            POSITIVE,
            FieldDefault::Int(64 << 20),
            "Maximum size of all cached responses in bytes",
        )
        .new_here(),
        SettingField::new(
            "cache_ttl",
            FieldKind::Float { min: 0.001, max: MAX_SECONDS },
            FieldDefault::Null,
            "Seconds to keep cached responses; null keeps them until the model is reloaded",
        )
        .new_here(),
        SettingField::new(
            "models_max_bytes",
            POSITIVE,
            FieldDefault::Null,
            "Memory budget for models in bytes; models that do not fit are loaded on demand",
        )
        .new_here(),
        SettingField::new("gzip_enabled", FieldKind::Bool, FieldDefault::Bool(true), "Compress REST responses"),
        SettingField::new(
            "non_finite_json",
            FieldKind::Choice(&["null", "string", "error"]),
            FieldDefault::Text("null"),
            "Representation of NaN and infinities in JSON responses",
        )
        .new_here(),
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
            "Origins that may send requests; `*` allows any",
        ),
        SettingField::new(
            "allow_origin_regex",
            FieldKind::Text,
            FieldDefault::Null,
            "Regular expression for origins that may send requests",
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
            FieldDefault::TextList(&["GET", "POST"]),
            "HTTP methods that cross-origin requests may use",
        )
        .in_original("the default is `[\"GET\"]`"),
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
        )
        .in_original("has no effect"),
        SettingField::new(
            "max_age",
            FieldKind::Int { min: -1, max: MAX_WHOLE_SECONDS },
            FieldDefault::Int(600),
            "Seconds for browsers to cache the answer to a preflight request; 0 and -1 mean not at all",
        ),
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
            "Name of the model; defaults to the name of its folder",
        ),
        SettingField::new(
            "implementation",
            FieldKind::Text,
            FieldDefault::Required,
            "Import path of the runtime, for example `mlserver_xgboost.XGBoostModel`",
        ),
        SettingField::new("platform", FieldKind::Text, FieldDefault::Text(""), "Platform in the model metadata"),
        SettingField::new(
            "versions",
            FieldKind::TextList,
            FieldDefault::TextList(&[]),
            "Versions of dependencies in the model metadata",
        ),
        SettingField::new(
            "inputs",
            FieldKind::GroupList(&TENSOR),
            FieldDefault::TextList(&[]),
            "Inputs in the model metadata",
        ),
        SettingField::new(
            "outputs",
            FieldKind::GroupList(&TENSOR),
            FieldDefault::TextList(&[]),
            "Outputs in the model metadata",
        ),
        SettingField::new(
            "max_batch_size",
            COUNT,
            FieldDefault::Int(0),
            "Maximum number of requests in a batch; 0 and 1 disable batching",
        ),
        SettingField::new(
            "max_batch_time",
            FieldKind::Float { min: f64::NEG_INFINITY, max: MAX_SECONDS },
            FieldDefault::Float(0.0),
            "Maximum seconds that a request waits for a batch to fill; 0 disables batching",
        ),
        SettingField::new(
            "parameters",
            FieldKind::Group(&PARAMETERS),
            FieldDefault::EmptyObject,
            "Location of the model, and parameters of its runtime",
        )
        .null_is_preset(),
        SettingField::new(
            "cache_enabled",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Cache responses of the model, if the server's cache is enabled",
        ),
        SettingField::new(
            "warmup",
            FieldKind::ObjectList,
            FieldDefault::TextList(&[]),
            "Sample requests that the model must answer before it is ready",
        )
        .new_here(),
        SettingField::new(
            "parallel_workers",
            ANY_INT,
            FieldDefault::Null,
            "Deprecated; 0 gives the model a worker that runs plain functions inline",
        )
        .in_original("0 or less runs the model in the server's process")
        .positive_has_no_effect("the server's `parallel_workers` is that of every pool"),
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
            "File or folder of the artifact; defaults to the folder of the settings file",
        ),
        SettingField::new("version", FieldKind::Text, FieldDefault::Null, "Version of the model"),
        SettingField::new("content_type", FieldKind::Text, FieldDefault::Null, "Default content type of requests"),
        SettingField::new("format", FieldKind::Text, FieldDefault::Null, "Format of an MLlib model"),
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
            "Group of models that share a worker pool",
        ),
        SettingField::new(
            "autogenerate_inference_pool_gid",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Give the model its own worker pool",
        ),
        SettingField::new(
            "workers",
            POSITIVE,
            FieldDefault::Null,
            "Number of workers that load the model; all workers of its pool by default",
        )
        .new_here(),
        SettingField::new(
            "threads",
            FieldKind::Int { min: 1, max: 64 },
            FieldDefault::Int(1),
            "Calls of a plain `predict` that a worker runs at a time",
        )
        .new_here(),
        SettingField::new(
            "validate_inputs",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Reject requests that do not match the declared inputs",
        )
        .new_here(),
        SettingField::new(
            "max_queue_requests",
            POSITIVE,
            FieldDefault::Null,
            "Maximum number of queued requests; more are rejected with 503",
        )
        .new_here(),
        SettingField::new(
            "max_queue_bytes",
            POSITIVE,
            FieldDefault::Int(1 << 30),
            "Maximum size of all queued inputs in bytes; more are rejected with 503",
        )
        .new_here(),
        SettingField::new(
            "memory_bytes",
            POSITIVE,
            FieldDefault::Null,
            "Memory of the model in bytes, for `models_max_bytes`; defaults to the size of its artifact",
        )
        .new_here(),
        SettingField::new(
            "pinned",
            FieldKind::Bool,
            FieldDefault::Bool(false),
            "Never evict the model from memory, regardless of `models_max_bytes`",
        )
        .new_here(),
        SettingField::new(
            "queue_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Maximum seconds in the queue; then the request fails with 503",
        )
        .new_here(),
        SettingField::new(
            "queue_target",
            FieldKind::Float { min: 0.0, max: MAX_SECONDS },
            FieldDefault::Float(0.5),
            "Maximum seconds that requests should wait under sustained load; more are rejected with 503; 0 disables it",
        )
        .new_here(),
        SettingField::new(
            "predict_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Maximum seconds of a prediction; then it fails with 504, and a stuck worker is replaced",
        )
        .new_here(),
        SettingField::new(
            "request_timeout",
            TIMEOUT,
            FieldDefault::Null,
            "Maximum seconds from request to response; then it fails with 504",
        )
        .new_here(),
        SettingField::new(
            "extra",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Settings that only the runtime reads",
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
        SettingField::new(
            "shape",
            FieldKind::IntList,
            FieldDefault::Required,
            "Shape of the tensor; -1 stands for any size",
        ),
        SettingField::new(
            "parameters",
            FieldKind::Object,
            FieldDefault::EmptyObject,
            "Parameters of the tensor, for example `content_type`",
        )
        .null_is_preset(),
    ],
};

/// The groups whose fields have environment variables.
pub(super) static GROUPS: [&SettingGroup; 4] = [&SERVER, &CORS, &MODEL, &PARAMETERS];
