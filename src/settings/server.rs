//! The settings of the server: `settings.json`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::arguments;
use super::convert;
use super::env::SettingsSources;
use super::kafka::KafkaSettings;
use super::layers;
use super::problem::SettingsError;
use super::resolve::{Layer, LoadedSettings, Resolver};
use super::source::SettingSource;
use super::table::{CORS, SERVER, settings};
use crate::platform;
use crate::types::json::NonFinite;

/// The file with the server's settings, in the started folder.
pub const SETTINGS_FILE: &str = "settings.json";

settings! {
    /// The effective settings of the server.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Settings {
        /// Log at debug level, including an access log
        debug: bool = [Bool, Bool(false), in_original("the default is true")],
        /// Lowest severity of log lines to write; null means DEBUG with `debug`, otherwise INFO
        log_level: Option<LogLevel> = [Choice(&["DEBUG", "INFO", "WARNING", "ERROR"]), Null, new_here],
        /// Workers of models in Python
        workers: WorkerSettings = group,
        /// Import path of a custom repository class
        model_repository_implementation: Option<String> = [Text, Null],
        /// Folder of the models; always the started folder
        model_repository_root: PathBuf = [Text, Text(".")],
        /// Additional arguments for the custom repository class
        model_repository_implementation_args: Map<String, Value> = [Object, EmptyObject],
        /// Load all models of the repository at startup
        load_models_at_startup: bool = [Bool, Bool(true)],
        /// Exit with code 1 if a model fails to load at startup
        exit_on_load_failure: bool = [Bool, Bool(true), new_here],
        /// Server name in the metadata
        server_name: String = [Text, Text("mlserver")],
        /// Server version in the metadata
        server_version: String =
            [Text, Text(env!("CARGO_PKG_VERSION")), in_original("the default is the version of the Python package")],
        /// Extensions in the server metadata
        extensions: Vec<String> = [TextList, TextList(&[]), in_original("supported extensions are not added")],
        /// Address to listen on, for all servers
        host: String = [Text, Text("0.0.0.0"), of_operator],
        /// Port of the REST server
        http_port: u16 = [PORT, Int(8080), of_operator],
        /// Path prefix under which a proxy exposes the REST server
        root_path: String = [Text, Text("")],
        /// Path prefix of the routes of OpenAI's API, empty for none; null means `KSERVE_OPENAI_ROUTE_PREFIX`, or else `/openai`
        openai_route_prefix: Option<String> = [Text, Null, new_here],
        /// Limits of requests and connections
        limits: LimitSettings = group,
        /// Reject requests with 429 instead of 503 under overload
        overload_as_429: bool = [Bool, Bool(false), new_here],
        /// Serve the model repository API (index, load, unload)
        repository_api: bool = [Bool, Bool(true), new_here, of_operator],
        /// Seconds between looks for changed, new and deleted models, which are loaded and unloaded then; 0 means never
        #[serde(deserialize_with = "convert::optional_seconds")]
        repository_poll_interval: Option<Duration> = [SECONDS, Float(0.0), new_here],
        /// Separate port for the model repository API; null serves it on the REST and gRPC ports
        admin_port: Option<u16> = [PORT, Null, new_here, of_operator],
        /// Serve the web console, at `/v2/console` and for browsers at `/`
        console: bool = [Bool, Bool(true), new_here],
        /// Add a Server-Timing header with queue and prediction times to responses
        server_timing: bool = [Bool, Bool(false), new_here],
        /// Reject data that does not match its datatype and shape for models in Python, too
        strict_tensors: bool = [Bool, Bool(false), new_here],
        /// Seconds to keep answering requests after a signal, while the server reports not ready
        #[serde(deserialize_with = "convert::seconds")]
        shutdown_delay: Duration = [SECONDS, Float(0.0), new_here],
        /// Seconds for requests in flight to finish at shutdown
        #[serde(deserialize_with = "convert::seconds")]
        shutdown_grace_period: Duration = [SECONDS, Float(30.0), new_here],
        /// TLS of the server
        tls: TlsSettings = group,
        /// Access control
        access: AccessSettings = group,
        /// Port of the gRPC server
        grpc_port: u16 = [PORT, Int(8081), of_operator],
        /// Maximum size of a gRPC message in bytes, in both directions; -1 means no limit
        ///
        /// `usize::MAX` for no limit.
        #[serde(deserialize_with = "convert::limit")]
        grpc_max_message_length: usize =
            [int(-1, i64::MAX), Int(64 << 20), in_original("the default is null, which means 4 MiB"), null_is_preset],
        /// Allowed cross-origin requests; none by default
        cors_settings: Option<CorsSettings> = [Group(&CORS), Null, of_operator],
        /// Path of the metrics; null or an empty string disables them
        #[serde(deserialize_with = "convert::non_empty")]
        metrics_endpoint: Option<String> = [Route, Text("/metrics"), nullable, of_operator],
        /// Port of the metrics server
        metrics_port: u16 = [PORT, Int(8082), of_operator],
        /// Prefix of the names of the REST metrics
        metrics_rest_server_prefix: String = [Text, Text("rest_server")],
        /// Folder for metrics files that processes share
        metrics_dir: PathBuf = [
            Text, InWorkingDirectory(".metrics"), in_original("folder of the metrics files that workers share"),
            no_effect("the server keeps all metrics in its own process")
        ],
        /// Write log lines as JSON
        use_structured_logging: bool = [Bool, Bool(false)],
        /// Configuration of Python logging for models: a file, or an object for `dictConfig`
        logging_settings: Option<LoggingSettings> = [ObjectOrText, Null],
        /// Requests from Kafka
        kafka: KafkaSettings = group,
        /// OTLP collector (gRPC) to send traces to, for example `localhost:4317`
        tracing_server: Option<String> = [Text, Null, no_effect_without_otel],
        /// Cache responses of models that set `cache_enabled`
        cache_enabled: bool = [Bool, Bool(false)],
        /// Maximum number of cached responses; 0 disables the cache
        cache_size: usize = [COUNT, Int(100)],
        /// Maximum size of all cached responses in bytes
        cache_max_bytes: NonZeroUsize = [POSITIVE, Int(64 << 20), new_here],
        /// Seconds to keep cached responses; null keeps them until the model is reloaded
        #[serde(deserialize_with = "convert::optional_seconds")]
        cache_ttl: Option<Duration> = [TIMEOUT, Null, new_here],
        /// Memory budget for models in bytes; models that do not fit are loaded on demand
        models_max_bytes: Option<u64> = [POSITIVE, Null, new_here],
        /// Models from object stores
        storage: StorageSettings = group,
        /// Compress REST responses
        gzip_enabled: bool = [Bool, Bool(true)],
        /// Representation of NaN and infinities in JSON responses
        non_finite_json: NonFinite = [Choice(&["null", "string", "error"]), Text("null"), new_here],
    }
}

settings! {
    /// How workers of models in Python run.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct WorkerSettings {
        /// Worker processes per pool; 0 means one worker that runs plain functions inline
        parallel_workers: usize = [COUNT, Int(1), in_original("0 runs models in the server's process")],
        /// Seconds for workers to finish their calls at shutdown
        #[serde(deserialize_with = "convert::seconds")]
        parallel_workers_timeout: Duration = [WHOLE_SECONDS, Int(5), in_original("applies to each worker in turn")],
        /// Seconds without a response after which a busy worker is replaced; 0 means no limit
        #[serde(deserialize_with = "convert::optional_seconds")]
        worker_hang_timeout: Option<Duration> = [SECONDS, Float(300.0), new_here],
        /// Maximum seconds for a model to load; then its worker is replaced; 0 means no limit
        #[serde(deserialize_with = "convert::optional_seconds")]
        worker_load_timeout: Option<Duration> = [SECONDS, Float(1800.0), new_here],
        /// Memory of a worker in bytes: it is replaced at 80 % and killed at 100 %
        ///
        /// Resident memory.
        worker_memory_limit: Option<u64> = [POSITIVE, Null, new_here],
        /// Number of predictions after which a worker is replaced
        max_requests_per_worker: Option<u64> = [POSITIVE, Null, new_here],
        /// Python interpreter for models without their own environment
        python_executable: Option<PathBuf> = [Text, Null, new_here],
        /// Folder to unpack environment tarballs in
        environments_dir: PathBuf = [Text, InWorkingDirectory(".envs")],
    }
}

settings! {
    /// How models are fetched from object stores.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct StorageSettings with prefix "storage_" {
        /// Folder of models from object stores; null means `mlserver/models` in the user's cache
        cache: Option<PathBuf> = [Text, Null, new_here, of_operator, no_effect_without_storage],
        /// Seconds without a byte after which a fetch is tried again
        #[serde(deserialize_with = "convert::seconds")]
        idle_timeout: Duration = [TIMEOUT, Float(60.0), new_here, of_operator, no_effect_without_storage],
        /// Maximum size of a model from an object store in bytes
        max_bytes: u64 = [POSITIVE, Int(100 << 30), new_here, of_operator, no_effect_without_storage],
        /// Maximum size of the folder of models from object stores in bytes, except models in use; null means no limit
        cache_max_bytes: Option<u64> = [POSITIVE, Null, new_here, of_operator, no_effect_without_storage],
        /// Number of files of models to fetch at once
        concurrency: NonZeroUsize = [int(1, 64), Int(4), new_here, of_operator, no_effect_without_storage],
        /// Whether a start uses the last fetched model if its object store cannot be reached
        offline: StorageOffline =
            [Choice(&["use", "fail"]), Text("use"), new_here, of_operator, no_effect_without_storage],
    }
}

/// What happens if an object store cannot be reached while the server starts, and its model has been fetched before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageOffline {
    /// The fetched model is used, with a warning.
    Use,
    Fail,
}

settings! {
    /// What requests and connections may take.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct LimitSettings {
        /// Maximum size of a REST request body in bytes, before and after decompression
        http_max_body_bytes: NonZeroUsize = [POSITIVE, Int(64 << 20), new_here],
        /// Seconds for a client to send its request headers
        #[serde(deserialize_with = "convert::seconds")]
        http_header_timeout: Duration = [TIMEOUT, Float(30.0), new_here],
        /// Seconds without a byte after which an incomplete request body is rejected
        #[serde(deserialize_with = "convert::seconds")]
        http_body_timeout: Duration = [TIMEOUT, Float(30.0), new_here],
        /// Seconds after which a response that its client does not read is dropped
        #[serde(deserialize_with = "convert::seconds")]
        http_write_timeout: Duration = [TIMEOUT, Float(60.0), new_here],
        /// Seconds to keep idle connections open
        #[serde(deserialize_with = "convert::seconds")]
        http_keep_alive_timeout: Duration = [TIMEOUT, Float(75.0), new_here],
        /// Maximum number of connections; null derives it from the limit on open files
        max_connections: Option<NonZeroUsize> = [POSITIVE, Null, new_here],
        /// Maximum number of requests in flight; more are rejected with 503
        max_in_flight: NonZeroUsize = [POSITIVE_COUNT, Int(1024), new_here],
        /// Memory for requests in flight and their responses in bytes; null means a quarter of the available memory
        ///
        /// See [`Settings::byte_budget`].
        max_request_bytes_in_flight: Option<NonZeroUsize> = [POSITIVE, Null, new_here],
        /// Maximum number of open streams of responses; more are rejected with 503
        max_streams: NonZeroUsize = [POSITIVE_COUNT, Int(128), new_here],
        /// Seconds without a message in either direction after which a stream is ended
        #[serde(deserialize_with = "convert::seconds")]
        stream_idle_timeout: Duration = [TIMEOUT, Float(300.0), new_here],
    }
}

settings! {
    /// TLS of the server.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TlsSettings with prefix "tls_" {
        /// PEM file with the server's certificate and its intermediate certificates; null means no TLS
        certificate: Option<PathBuf> = [NonEmptyText, Null, new_here, of_operator],
        /// PEM file with the private key of `tls_certificate`
        key: Option<PathBuf> = [NonEmptyText, Null, new_here, of_operator],
        /// PEM file with the authorities of client certificates; if set, all clients need a certificate
        client_ca: Option<PathBuf> = [NonEmptyText, Null, new_here, of_operator],
        /// Oldest version of TLS that clients may use
        min_version: TlsVersion = [Choice(&["1.2", "1.3"]), Text("1.2"), new_here, of_operator],
        /// Use TLS for the metrics server, too
        metrics: bool = [Bool, Bool(false), new_here, of_operator],
        /// Lists of scopes by the common or DNS names of client certificates
        client_scopes: Map<String, Value> = [Object, EmptyObject, new_here, of_operator],
    }
}

settings! {
    /// Who may send requests.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct AccessSettings {
        /// JSON file with the hashes and scopes of API keys; if set, requests need credentials
        api_keys_file: Option<PathBuf> = [NonEmptyText, Null, new_here, of_operator],
        /// Rate limit of keys without `rate_limit`, such as `{"requests_per_second": 10, "burst": 20}`
        key_rate_limit: Option<Map<String, Value>> = [Object, Null, new_here, of_operator],
        /// Issuer of OpenID Connect tokens (claim `iss`); null means no tokens
        jwt_issuer: Option<String> = [NonEmptyText, Null, new_here, of_operator],
        /// Required audience of tokens (claim `aud`)
        jwt_audience: Option<String> = [NonEmptyText, Null, new_here, of_operator],
        /// URL of the issuer's keys (JSON Web Key Set)
        jwks_url: Option<String> = [NonEmptyText, Null, new_here, of_operator],
        /// File with the issuer's keys, instead of `jwks_url`
        jwks_file: Option<PathBuf> = [NonEmptyText, Null, new_here, of_operator],
        /// Claim with the scopes: a string with spaces, or a list
        jwt_scope_claim: String = [NonEmptyText, Text("scope"), new_here, of_operator],
        /// Headers with credentials to pass to models despite access control, and to other servers: `authorization`, `cookie`
        forward_headers: Vec<String> = [TextList, TextList(&[]), in_original("models see all headers"), of_operator],
    }
}

/// The least severe log lines that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

/// The oldest version of TLS that clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    V1_2,
    #[serde(rename = "1.3")]
    V1_3,
}

settings! {
    /// The cross-origin requests that browsers may send.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct CorsSettings {
        /// Origins that may send requests; `*` allows any
        allow_origins: Vec<String> = [TextList, TextList(&[])],
        /// Regular expression for origins that may send requests
        allow_origin_regex: Option<String> = [Text, Null],
        /// Allow cookies in cross-origin requests
        allow_credentials: bool = [Bool, Bool(false)],
        /// HTTP methods that cross-origin requests may use
        allow_methods: Vec<String> = [TextList, TextList(&["GET", "POST"]), in_original("the default is `[\"GET\"]`")],
        /// Headers that cross-origin requests may carry
        allow_headers: Vec<String> = [TextList, TextList(&[])],
        /// Response headers that scripts may read
        expose_headers: Vec<String> = [TextList, TextList(&[]), in_original("has no effect")],
        /// Seconds for browsers to cache the answer to a preflight request; 0 and -1 mean not at all
        #[serde(deserialize_with = "convert::seconds")]
        max_age: Duration = [whole_seconds(-1), Int(600)],
    }
}

/// A configuration of Python's `logging`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum LoggingSettings {
    /// A JSON or INI file.
    File(PathBuf),
    /// A dictionary configuration.
    Config(Map<String, Value>),
}

/// The least default of `max_request_bytes_in_flight`, in bytes.
const LEAST_BYTE_BUDGET: u64 = 16 << 20;

impl Settings {
    /// Returns the level of the log: `log_level`, or else what `debug` means.
    pub fn effective_log_level(&self) -> LogLevel {
        self.log_level.unwrap_or(if self.debug { LogLevel::Debug } else { LogLevel::Info })
    }

    /// Returns how many bytes the requests in flight and their responses may take: the setting, or else a quarter of the memory
    /// that the control group or the machine allows.
    pub fn byte_budget(&self) -> usize {
        let of_machine = || {
            let quarter = platform::memory_limit().map_or(u64::MAX, |limit| limit / 4);
            usize::try_from(quarter.max(LEAST_BYTE_BUDGET)).unwrap_or(usize::MAX)
        };
        self.limits.max_request_bytes_in_flight.map_or_else(of_machine, NonZeroUsize::get)
    }

    /// Reads the settings of a server for `folder`, which may be missing.
    pub fn load(folder: &Path, sources: &SettingsSources, strict: bool) -> Result<LoadedSettings<Self>, SettingsError> {
        let mut resolver = Resolver::new(sources, strict);
        resolver.warn(sources.warnings());
        let (mut found, problems) = arguments::layers(sources.arguments(), &SERVER);
        for problem in problems {
            resolver.problem(problem);
        }
        let root = Value::from(folder.to_string_lossy().into_owned());
        let folder_argument = Layer {
            object: Map::from_iter([("model_repository_root".to_owned(), root)]),
            source: SettingSource::Argument("FOLDER"),
        };
        found.insert(0, folder_argument);
        let path: PathBuf = sources.working_directory().join(folder).join(SETTINGS_FILE).components().collect();
        match layers::of_files(&path, sources, &SERVER) {
            Ok(of_files) => found.extend(of_files),
            Err(problems) => problems.into_iter().for_each(|problem| resolver.problem(problem)),
        }
        found.extend(sources.script_layer());
        let mut loaded = resolver.finish::<Self>(&SERVER, &found)?;
        // Kept as it was typed, even if it is not UTF-8.
        folder.clone_into(&mut loaded.settings.model_repository_root);
        Ok(loaded)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Resolver::new(&SettingsSources::empty(), false)
            .finish(&SERVER, &[])
            .expect("the defaults of the table are valid")
            .settings
    }
}

macro_rules! defaults {
    ($($member:ident: $group:ty),*) => {
        $(impl Default for $group {
            fn default() -> Self {
                Settings::default().$member
            }
        })*
    };
}

defaults!(workers: WorkerSettings, limits: LimitSettings, tls: TlsSettings, access: AccessSettings, kafka: KafkaSettings, storage: StorageSettings);
