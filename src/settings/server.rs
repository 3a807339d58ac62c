//! The settings of the server: `settings.json`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::arguments;
use super::convert;
use super::defaults;
use super::env::SettingsSources;
use super::machine;
use super::problem::SettingsError;
use super::resolve::{Layer, LoadedSettings, Resolver};
use super::source::SettingSource;
use super::table::SERVER;
use crate::types::json::NonFinite;
use crate::types::{Properties, Secret};

/// The file with the server's settings, in the started folder.
pub const SETTINGS_FILE: &str = "settings.json";

/// The effective settings of the server. The table `SERVER` describes each of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub debug: bool,
    pub log_level: Option<LogLevel>,
    #[serde(deserialize_with = "convert::count")]
    pub parallel_workers: usize,
    #[serde(deserialize_with = "convert::whole_seconds")]
    pub parallel_workers_timeout: Duration,
    /// `None` if there is no limit on how long a worker may be silent.
    #[serde(deserialize_with = "convert::seconds_or_never")]
    pub worker_hang_timeout: Option<Duration>,
    /// `None` if there is no limit on how long a model may take to load.
    #[serde(deserialize_with = "convert::seconds_or_never")]
    pub worker_load_timeout: Option<Duration>,
    /// In bytes of resident memory.
    pub worker_memory_limit: Option<u64>,
    pub max_requests_per_worker: Option<u64>,
    /// The interpreter of models without an environment of their own.
    pub python_executable: Option<PathBuf>,
    pub environments_dir: PathBuf,
    pub model_repository_implementation: Option<String>,
    /// The started folder, regardless of file and environment.
    pub model_repository_root: PathBuf,
    pub model_repository_implementation_args: Map<String, Value>,
    pub load_models_at_startup: bool,
    pub exit_on_load_failure: bool,
    pub server_name: String,
    pub server_version: String,
    pub extensions: Vec<String>,
    pub host: String,
    pub http_port: u16,
    pub root_path: String,
    pub http_max_body_bytes: NonZeroUsize,
    #[serde(deserialize_with = "convert::seconds")]
    pub http_header_timeout: Duration,
    #[serde(deserialize_with = "convert::seconds")]
    pub http_body_timeout: Duration,
    #[serde(deserialize_with = "convert::seconds")]
    pub http_write_timeout: Duration,
    #[serde(deserialize_with = "convert::seconds")]
    pub http_keep_alive_timeout: Duration,
    /// `None` if the limit on open files decides.
    pub max_connections: Option<NonZeroUsize>,
    pub max_in_flight: NonZeroUsize,
    /// `None` for [`Settings::byte_budget`]'s default.
    pub max_request_bytes_in_flight: Option<NonZeroUsize>,
    pub max_streams: NonZeroUsize,
    #[serde(deserialize_with = "convert::seconds")]
    pub stream_idle_timeout: Duration,
    pub overload_as_429: bool,
    pub repository_api: bool,
    /// `None` if the ports of requests serve the repository API, too.
    pub admin_port: Option<u16>,
    pub server_timing: bool,
    pub strict_tensors: bool,
    #[serde(deserialize_with = "convert::seconds")]
    pub shutdown_delay: Duration,
    #[serde(deserialize_with = "convert::seconds")]
    pub shutdown_grace_period: Duration,
    pub grpc_port: u16,
    /// In bytes; `usize::MAX` for no limit.
    #[serde(deserialize_with = "convert::limit")]
    pub grpc_max_message_length: usize,
    pub cors_settings: Option<CorsSettings>,
    /// `None` if metrics are disabled.
    #[serde(deserialize_with = "convert::non_empty")]
    pub metrics_endpoint: Option<String>,
    pub metrics_port: u16,
    pub metrics_rest_server_prefix: String,
    pub metrics_dir: PathBuf,
    pub use_structured_logging: bool,
    pub logging_settings: Option<LoggingSettings>,
    pub kafka_enabled: bool,
    /// Addresses of some brokers, separated by commas.
    pub kafka_servers: String,
    /// Topics, and regular expressions that begin with `^`. At least one.
    pub kafka_topic_input: Vec<String>,
    pub kafka_topic_output: String,
    /// The models of records that name none, by topic.
    pub kafka_topic_models: BTreeMap<String, String>,
    /// `None` for the record's topic with `-dead-letters` behind it.
    pub kafka_topic_dead_letters: Option<String>,
    pub kafka_group_id: String,
    pub kafka_auto_offset_reset: KafkaOffsetReset,
    pub kafka_delivery: KafkaDelivery,
    /// `None` for a random one.
    pub kafka_transactional_id: Option<String>,
    pub kafka_ordering: KafkaOrdering,
    pub kafka_max_in_flight: NonZeroUsize,
    pub kafka_max_attempts: NonZeroU32,
    /// Whether the server is ready only once its consumer has joined the group.
    pub kafka_readiness: bool,
    /// As librdkafka's property `security.protocol` has it.
    pub kafka_security_protocol: String,
    pub kafka_sasl_mechanism: Option<String>,
    pub kafka_sasl_username: Option<String>,
    pub kafka_sasl_password: Option<Secret>,
    pub kafka_ssl_ca: Option<String>,
    pub kafka_ssl_certificate: Option<String>,
    pub kafka_ssl_key: Option<String>,
    pub kafka_ssl_key_password: Option<Secret>,
    /// Further properties of librdkafka.
    pub kafka_config: Properties,
    pub tracing_server: Option<String>,
    pub cache_enabled: bool,
    #[serde(deserialize_with = "convert::count")]
    pub cache_size: usize,
    pub cache_max_bytes: NonZeroUsize,
    /// `None` if the memory of models is not limited.
    pub models_max_bytes: Option<u64>,
    #[serde(deserialize_with = "convert::optional_seconds")]
    pub cache_ttl: Option<Duration>,
    pub gzip_enabled: bool,
    /// Scopes by the names of client certificates.
    pub tls_client_scopes: Map<String, Value>,
    pub api_keys_file: Option<PathBuf>,
    /// The default of keys without a limit of their own.
    pub key_rate_limit: Option<Map<String, Value>>,
    /// The issuer of tokens, as their claim `iss` names it.
    pub jwt_issuer: Option<String>,
    pub jwt_audience: Option<String>,
    pub jwt_scope_claim: String,
    pub jwks_url: Option<String>,
    pub jwks_file: Option<PathBuf>,
    /// Headers with credentials that models see.
    pub forward_headers: Vec<String>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_client_ca: Option<PathBuf>,
    pub tls_min_version: TlsVersion,
    /// Whether the metrics server uses TLS, too.
    pub tls_metrics: bool,
    pub non_finite_json: NonFinite,
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

/// Where a consumer group without committed offsets begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaOffsetReset {
    /// At the first record that the topic holds.
    Earliest,
    /// At the records that are written from now on.
    Latest,
    /// Nowhere: the server fails.
    Error,
}

/// How often a record is answered if a server or a broker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaDelivery {
    /// Once, or several times.
    AtLeastOnce,
    /// Once, for consumers that read committed records only.
    ExactlyOnce,
}

/// Which records are answered in the order in which they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaOrdering {
    /// None of them.
    None,
    /// Those with the same key.
    Key,
    /// Those of the same partition.
    Partition,
}

/// The cross-origin requests that browsers may send.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorsSettings {
    pub allow_origins: Vec<String>,
    pub allow_origin_regex: Option<String>,
    pub allow_credentials: bool,
    pub allow_methods: Vec<String>,
    pub allow_headers: Vec<String>,
    pub expose_headers: Vec<String>,
    #[serde(deserialize_with = "convert::whole_seconds")]
    pub max_age: Duration,
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
            let quarter = machine::memory_limit().map_or(u64::MAX, |limit| limit / 4);
            usize::try_from(quarter.max(LEAST_BYTE_BUDGET)).unwrap_or(usize::MAX)
        };
        self.max_request_bytes_in_flight.map_or_else(of_machine, NonZeroUsize::get)
    }

    /// Reads the settings of a server for `folder`, which may be missing.
    pub fn load(folder: &Path, sources: &SettingsSources, strict: bool) -> Result<LoadedSettings<Self>, SettingsError> {
        let mut resolver = Resolver::new(sources, strict);
        resolver.warn(sources.warnings());
        let (mut layers, problems) = arguments::layers(sources.arguments(), &SERVER);
        for problem in problems {
            resolver.problem(problem);
        }
        let root = Value::from(folder.to_string_lossy().into_owned());
        let folder_argument = Layer {
            object: Map::from_iter([("model_repository_root".to_owned(), root)]),
            source: SettingSource::Argument("FOLDER"),
        };
        layers.insert(0, folder_argument);
        let path: PathBuf = sources.working_directory().join(folder).join(SETTINGS_FILE).components().collect();
        match defaults::read_layer(&path, sources) {
            Ok(layer) => layers.extend(layer),
            Err(error) => resolver.problem(error.into()),
        }
        layers.extend(sources.script_layer());
        let mut loaded = resolver.finish::<Self>(&SERVER, &layers)?;
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
