//! The arguments of `mlserver infer`.
//!
//! `commands::infer` resolves missing arguments: an environment variable of the table [`InferVariable`] overrides the default. The
//! help names both.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, ValueEnum};

use super::examples;

const INPUT: &str = "Input";
const OUTPUT: &str = "Output";
const KAFKA: &str = "Kafka";
const SERVER: &str = "Server";
const ENGINE: &str = "Engine";
const CONCURRENCY: &str = "Concurrency";
const REPORTING: &str = "Reporting";

/// The arguments for a server that apply to a model in this process, too.
const ALSO_EMBEDDED: [&str; 4] = ["embedded", "model_name", "model_version", "timeout"];

/// The arguments for a server that apply to an engine, too.
const ALSO_ENGINE: [&str; 2] = ["model_name", "model_version"];

/// The defaults of arguments, for the help and for `commands::infer`.
pub mod defaults {
    use std::num::{NonZeroU32, NonZeroUsize};
    use std::time::Duration;

    pub const KAFKA_GROUP: &str = "mlserver-infer";
    pub const URL: &str = "localhost:8080";
    pub const GRPC_URL: &str = "localhost:8081";
    pub const WORKERS: NonZeroUsize = NonZeroUsize::new(10).expect("it is not zero");
    pub const MAX_WORKERS: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");
    pub const RETRIES: NonZeroU32 = NonZeroU32::new(3).expect("it is not zero");
    /// For tables, where requests with a single row would be inefficient.
    pub const TABLE_BATCH_SIZE: NonZeroUsize = NonZeroUsize::new(100).expect("it is not zero");
    /// For a model in this process, which can take more rows at once.
    pub const EMBEDDED_BATCH_SIZE: NonZeroUsize = NonZeroUsize::new(1000).expect("it is not zero");
    pub const TIMEOUT: Duration = Duration::from_mins(1);
}

/// An environment variable that sets an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferVariable {
    /// The id of the argument.
    pub argument: &'static str,
    /// The full name of the variable.
    pub name: &'static str,
    /// What the help says after the name.
    format: &'static str,
}

macro_rules! variables {
    ($($variable:ident: $argument:literal, $format:literal;)*) => {
        impl InferVariable {
            $(
                pub const $variable: Self = Self {
                    argument: $argument,
                    name: concat!("MLSERVER_INFER_", stringify!($variable)),
                    format: $format,
                };
            )*
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variable),*];
        }
    };
}

variables! {
    INPUT_DATA_PATH: "input_data_path", "";
    INPUT_FORMAT: "input_format", "";
    OUTPUT_DATA_PATH: "output_data_path", "";
    KAFKA_GROUP: "kafka_group", "";
    KAFKA_CONFIG: "kafka_config", ", as a JSON object";
    URL: "url", "";
    MODEL_NAME: "model_name", "";
    MODEL_VERSION: "model_version", "";
    TRANSPORT: "transport", "";
    TOKEN: "token", "";
    REQUEST_HEADERS: "request_headers", ", as `NAME:VALUE NAME:VALUE`";
    CONNECTION_TIMEOUT: "timeout", "";
    BINARY_DATA: "binary_data", "";
    USE_SSL: "use_ssl", "";
    INSECURE: "insecure", "";
    CA: "ca", "";
    CERT: "cert", "";
    KEY: "key", "";
    HTTP2: "http2", "";
    WORKERS: "workers", "";
    MAX_WORKERS: "max_workers", "";
    BATCH_SIZE: "batch_size", "";
    RETRIES: "retries", "";
    BATCH_INTERVAL: "batch_interval", "";
    BATCH_JITTER: "batch_jitter", "";
    RATE: "rate", "";
    VERBOSE: "verbose", "";
    EXTRA_VERBOSE: "verbose", "";
}

/// Returns what the help says of the default of an argument, if it has one.
fn default_text(argument: &str) -> Option<String> {
    Some(match argument {
        "input_format" => {
            let tables = ".csv, .tsv, .npy and .parquet are tables";
            format!(
                "by extension: .ndjson is rows; {tables}; anything else is requests, or openai if its first line is one"
            )
        }
        "kafka_group" => defaults::KAFKA_GROUP.to_owned(),
        "url" => format!("{}, or {} with --transport grpc", defaults::URL, defaults::GRPC_URL),
        "model_version" => "chosen by the server".to_owned(),
        "transport" => "rest".to_owned(),
        "timeout" => defaults::TIMEOUT.as_secs().to_string(),
        "workers" => format!("{}; with --embedded, the number of cores plus one", defaults::WORKERS),
        "max_workers" => format!("--workers if it is set or with --embedded, otherwise {}", defaults::MAX_WORKERS),
        "batch_size" => {
            let (table, embedded) = (defaults::TABLE_BATCH_SIZE, defaults::EMBEDDED_BATCH_SIZE);
            format!("1; for rows and tables {table}, or {embedded} with --embedded")
        }
        "retries" => defaults::RETRIES.to_string(),
        "batch_interval" | "batch_jitter" => "0".to_owned(),
        "rate" => "unlimited".to_owned(),
        _ => return None,
    })
}

/// Adds variables and defaults to the help of an argument, and rejects arguments for servers if there is none.
fn describe(arg: Arg) -> Arg {
    let id = arg.get_id().as_str().to_owned();
    let is_for_servers = arg.get_help_heading() == Some(SERVER) && !ALSO_EMBEDDED.contains(&id.as_str());
    // Switching something off does no harm.
    let arg = if is_for_servers && !id.starts_with("no_") { arg.conflicts_with("embedded") } else { arg };
    let is_for_requests = matches!(arg.get_help_heading(), Some(SERVER | CONCURRENCY | KAFKA)) || id == "column_types";
    let has_no_engine = is_for_requests && !ALSO_ENGINE.contains(&id.as_str()) && !id.starts_with("no_");
    let arg = if has_no_engine { arg.conflicts_with("engine") } else { arg };
    // Without an engine, they would have no effect.
    let arg = if arg.get_help_heading() == Some(ENGINE) && id != "engine" { arg.requires("engine") } else { arg };
    let variables: Vec<_> = InferVariable::ALL.iter().filter(|variable| variable.argument == id).collect();
    let Some(help) = arg.get_help().filter(|_| !variables.is_empty()).map(ToString::to_string) else { return arg };
    let names: Vec<_> = variables.iter().map(|variable| format!("{}{}", variable.name, variable.format)).collect();
    let default = default_text(&id).map(|default| format!(" [default: {default}]")).unwrap_or_default();
    arg.help(format!("{help} [env: {}]{default}", names.join(", ")))
}

/// Run batch inference over a file or a Kafka topic
///
/// Arguments override environment variables. --no-binary-data, --no-use-ssl, --no-insecure, --no-http2 and --no-verbose disable
/// flags that a variable enables.
///
/// Exit codes: 0 every row was answered; 4 some rows failed, each with a line in the output; 1 the run could not start or
/// continue; 2 invalid arguments; 130, 143 or 131 stopped by SIGINT, SIGTERM or SIGQUIT; 141 the reader of the answers has closed
/// the pipe; 3 stopped at once by a second signal.
#[derive(Debug, Default, Args)]
#[command(mut_args = describe)]
#[command(help_template = examples::help(&[
    ("mlserver infer -m churn -i rows.csv -o predictions.csv", ""),
    ("mlserver infer -u host:8080 -m churn -i requests.jsonl -o answers.jsonl --resume", ""),
    ("mlserver infer --embedded models/churn -i rows.csv -o predictions.parquet", "without a server"),
    ("mlserver infer -u host:8080 -i batch.jsonl -o answers.jsonl", "a batch of OpenAI's API"),
    ("mlserver infer -m churn -i 's3://b/in/*.parquet' -o s3://b/out/ --resume", "objects of a bucket"),
    ("mlserver infer -m churn -i kafka://broker:9092/rows -o kafka://broker:9092/answers", "topics"),
    (
        "mlserver infer --engine spark -m s3://b/churn -i s3a://lake/in/ -o s3a://lake/out/ --engine-arg=--master=yarn",
        "on a cluster",
    ),
]))]
pub struct InferArgs {
    /// Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated
    #[arg(short, long, value_name = "PATH", help_heading = INPUT)]
    pub input_data_path: Vec<PathBuf>,

    /// Input format: `requests` (JSON Lines of requests), `openai` (a batch file of OpenAI's API), `rows` (JSON Lines of objects whose keys are columns), or a table; `orc` and `catalog` (tables by name) need --engine
    #[arg(long, value_enum, help_heading = INPUT)]
    pub input_format: Option<InputFormat>,

    /// Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]
    #[arg(long = "column-type", value_name = "COLUMN=DATATYPE", help_heading = INPUT)]
    pub column_types: Vec<String>,

    /// Outputs to request for rows and tables, separated by commas [default: chosen by the model]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = INPUT)]
    pub outputs: Vec<String>,

    /// Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines
    #[arg(short, long, value_name = "PATH", help_heading = OUTPUT)]
    pub output_data_path: Option<PathBuf>,

    /// Resume an interrupted run from PATH.partial, or continue a complete PATH of JSON Lines if the input has more rows; a run that
    /// reads a topic always resumes; with --engine, score the input files that the column `source_file` of the output does not name
    #[arg(long, help_heading = OUTPUT)]
    pub resume: bool,

    // Not a comment: backticks would make it longer.
    #[arg(
        long,
        value_enum,
        help_heading = ENGINE,
        help = "Run the job on a cluster: `spark` runs spark-submit of SPARK_HOME or PATH, `ray` runs `ray job submit`; the output is a folder of Parquet"
    )]
    pub engine: Option<InferEngine>,

    /// Argument for spark-submit or `ray job submit`, such as `--engine-arg=--master=yarn`; may be repeated
    #[arg(long = "engine-arg", value_name = "ARG", allow_hyphen_values = true, help_heading = ENGINE)]
    pub engine_args: Vec<String>,

    /// Columns that the output keeps, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = ENGINE)]
    pub keep: Vec<String>,

    /// Columns of the model's features in their order, separated by commas [default: by the names of the features]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = ENGINE)]
    pub columns: Vec<String>,

    /// Columns whose values name the folders of the output, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = ENGINE)]
    pub partition_by: Vec<String>,

    /// Replace an existing output
    #[arg(long, conflicts_with = "resume", help_heading = ENGINE)]
    pub overwrite: bool,

    /// Print the command of the engine instead of running it
    #[arg(long, help_heading = ENGINE)]
    pub dry_run: bool,

    /// Consumer group of the input topic: a run continues after the offsets that it has committed
    #[arg(long, value_name = "GROUP", help_heading = KAFKA)]
    pub kafka_group: Option<String>,

    /// librdkafka property for the input and the output topic, such as `security.protocol=sasl_ssl`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = KAFKA)]
    pub kafka_config: Vec<String>,

    /// Server address, as HOST:PORT with an optional path; for a batch of OpenAI's API, /openai is tried if there is none
    #[arg(short, long, help_heading = SERVER)]
    pub url: Option<String>,

    /// Load the model of FOLDER, which may be a URI of an object store, or a model file, in this process instead of using a server
    #[arg(long, value_name = "FOLDER", help_heading = SERVER)]
    pub embedded: Option<PathBuf>,

    /// Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of
    /// OpenAI's API names; with --engine, the folder, file or URI of the model
    #[arg(short, long, value_name = "NAME", help_heading = SERVER)]
    pub model_name: Option<String>,

    /// Model version
    #[arg(long, value_name = "VERSION", help_heading = SERVER)]
    pub model_version: Option<String>,

    /// Protocol
    #[arg(short, long, value_enum, hide_possible_values = false, help_heading = SERVER)]
    pub transport: Option<Transport>,

    /// Header to send with each request, as `NAME: VALUE`; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = SERVER)]
    pub request_headers: Vec<String>,

    /// API key or token, sent as `authorization: Bearer TOKEN`; use the variable to hide it from lists of processes
    #[arg(long, value_name = "TOKEN", help_heading = SERVER)]
    pub token: Option<String>,

    /// Timeout in seconds for connecting and for each response
    #[arg(long, value_name = "SECONDS", help_heading = SERVER)]
    pub timeout: Option<f64>,

    /// Send tensors as binary data instead of JSON
    #[arg(short, long, overrides_with = "no_binary_data", help_heading = SERVER)]
    pub binary_data: bool,

    /// Send tensors as JSON
    #[arg(long, hide = true, overrides_with = "binary_data", help_heading = SERVER)]
    pub no_binary_data: bool,

    /// Use TLS
    #[arg(long, overrides_with = "no_use_ssl", help_heading = SERVER)]
    pub use_ssl: bool,

    /// Use TLS only if the address has the scheme `https`
    #[arg(long, hide = true, overrides_with = "use_ssl", help_heading = SERVER)]
    pub no_use_ssl: bool,

    /// Skip TLS certificate verification
    #[arg(long, overrides_with = "no_insecure", help_heading = SERVER)]
    pub insecure: bool,

    /// Verify TLS certificates
    #[arg(long, hide = true, overrides_with = "insecure", help_heading = SERVER)]
    pub no_insecure: bool,

    /// Trust the root certificates in this PEM file, in addition to those of the system
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub ca: Option<PathBuf>,

    /// Present the client certificate in this PEM file, which may also contain its key
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub cert: Option<PathBuf>,

    /// Private key of --cert, as a PEM file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub key: Option<PathBuf>,

    /// Use HTTP/2 for REST even without TLS; the server must support it
    #[arg(long, overrides_with = "no_http2", help_heading = SERVER)]
    pub http2: bool,

    /// Use HTTP/2 for REST only over TLS
    #[arg(long, hide = true, overrides_with = "http2", help_heading = SERVER)]
    pub no_http2: bool,

    /// Initial number of requests in flight
    #[arg(short, long, value_name = "N", help_heading = CONCURRENCY)]
    pub workers: Option<NonZeroUsize>,

    /// Maximum number of requests in flight; concurrency grows while throughput improves
    #[arg(long, value_name = "N", help_heading = CONCURRENCY)]
    pub max_workers: Option<NonZeroUsize>,

    /// Rows per request
    #[arg(short = 's', long, value_name = "N", help_heading = CONCURRENCY)]
    pub batch_size: Option<NonZeroUsize>,

    /// Maximum attempts per request; only failures that may be temporary are retried
    #[arg(short, long, value_name = "N", help_heading = CONCURRENCY)]
    pub retries: Option<NonZeroU32>,

    /// Minimum seconds between requests per worker
    #[arg(long, value_name = "SECONDS", help_heading = CONCURRENCY)]
    pub batch_interval: Option<f64>,

    /// Maximum random seconds added to --batch-interval
    #[arg(long, value_name = "SECONDS", help_heading = CONCURRENCY)]
    pub batch_jitter: Option<f64>,

    /// Maximum rows per second
    #[arg(long, value_name = "ROWS", help_heading = CONCURRENCY)]
    pub rate: Option<f64>,

    /// Log retries and split requests (-v) or full traffic (-vv, --extra-verbose)
    #[arg(short, long, action = ArgAction::Count, overrides_with = "no_verbose", help_heading = REPORTING)]
    pub verbose: u8,

    /// Log full traffic, like -vv
    #[arg(long, hide = true, overrides_with = "no_verbose", help_heading = REPORTING)]
    pub extra_verbose: bool,

    /// Do not log requests
    #[arg(long, hide = true, overrides_with_all = ["verbose", "extra_verbose"], help_heading = REPORTING)]
    pub no_verbose: bool,

    /// Suppress progress, warnings and summary; only report why the run failed
    #[arg(short, long, help_heading = REPORTING)]
    pub quiet: bool,

    /// Summary format: text on standard error, or one JSON object on standard output (on standard error if the answers go to
    /// standard output)
    #[arg(long, value_enum, default_value_t, help_heading = REPORTING)]
    pub summary: SummaryFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    Requests,
    Openai,
    Rows,
    Csv,
    Tsv,
    Npy,
    Parquet,
    Orc,
    Catalog,
}

/// Where a job runs that scores a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InferEngine {
    Spark,
    Ray,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    #[default]
    Rest,
    Grpc,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    #[default]
    Text,
    Json,
}
