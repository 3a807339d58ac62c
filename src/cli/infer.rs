//! The arguments of `mlserver infer`.
//!
//! `commands::infer` resolves missing arguments: an environment variable that the help names overrides the default.

#![expect(clippy::doc_markdown, reason = "these comments are the help, which is not Markdown")]

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Run batch inference over a file
///
/// Exit codes: 0 every row was answered; 4 some rows failed, each with a line in the output; 1 the run could not start or
/// continue; 2 invalid arguments; 130 stopped by a signal; 3 stopped at once by a second signal.
#[derive(Debug, Default, Args)]
pub struct InferArgs {
    /// Server address, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or
    /// localhost:8081 with --transport grpc]
    #[arg(short, long)]
    pub url: Option<String>,

    /// Load the model of FOLDER in this process instead of using a server. This is also the default if --model-name is a
    /// folder with a `model-settings.json` and --url is not set
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["url", "transport"])]
    pub embedded: Option<PathBuf>,

    /// Model name; with --embedded, only needed if FOLDER has several models [env: MLSERVER_INFER_MODEL_NAME]
    #[arg(short, long, value_name = "NAME")]
    pub model_name: Option<String>,

    /// Model version [env: MLSERVER_INFER_MODEL_VERSION] [default: chosen by the server]
    #[arg(long, value_name = "VERSION")]
    pub model_version: Option<String>,

    /// Input file, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]
    #[arg(short, long, value_name = "PATH")]
    pub input_data_path: Option<PathBuf>,

    /// Input format: `requests` (JSON Lines of requests), `rows` (JSON Lines of objects whose keys are columns), or a table
    /// [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows; .csv, .tsv, .npy and .parquet are tables;
    /// anything else is requests]
    #[arg(long, value_enum)]
    pub input_format: Option<InputFormat>,

    /// Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]
    #[arg(long = "column-type", value_name = "COLUMN=DATATYPE")]
    pub column_types: Vec<String>,

    /// Output file, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]
    #[arg(short, long, value_name = "PATH")]
    pub output_data_path: Option<PathBuf>,

    /// Resume an interrupted run from PATH.partial
    #[arg(long)]
    pub resume: bool,

    /// Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores
    /// plus one]
    #[arg(short, long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,

    /// Maximum number of requests in flight; their number grows while the throughput does
    /// [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers if it is set or with --embedded, otherwise 64]
    #[arg(long, value_name = "N")]
    pub max_workers: Option<NonZeroUsize>,

    /// Total attempts per request, if the failure is worth a retry [env: MLSERVER_INFER_RETRIES] [default: 3]
    #[arg(short, long, value_name = "N")]
    pub retries: Option<NonZeroU32>,

    /// Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]
    #[arg(short = 's', long, value_name = "N")]
    pub batch_size: Option<NonZeroUsize>,

    /// Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]
    #[arg(short, long)]
    pub binary_data: bool,

    /// Log each request (-v) or full traffic (-vv) [env: MLSERVER_INFER_VERBOSE]
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Log full traffic, like -vv [env: MLSERVER_INFER_EXTRA_VERBOSE]
    #[arg(long)]
    pub extra_verbose: bool,

    /// Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]
    #[arg(short, long, value_enum, hide_possible_values = false)]
    pub transport: Option<Transport>,

    /// Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as
    /// `NAME:VALUE NAME:VALUE`]
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub request_headers: Vec<String>,

    /// Timeout in seconds for connecting and for each response [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,

    /// Minimum seconds between requests per worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub batch_interval: Option<f64>,

    /// Maximum random seconds added to --batch-interval [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub batch_jitter: Option<f64>,

    /// Maximum rows per second [env: MLSERVER_INFER_RATE] [default: unlimited]
    #[arg(long, value_name = "ROWS")]
    pub rate: Option<f64>,

    /// Use TLS [env: MLSERVER_INFER_USE_SSL]
    #[arg(long)]
    pub use_ssl: bool,

    /// Skip TLS certificate verification [env: MLSERVER_INFER_INSECURE]
    #[arg(long)]
    pub insecure: bool,

    /// Trust the root certificates in this PEM file, besides those of the system [env: MLSERVER_INFER_CA]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Present the client certificate in this PEM file, which may also contain its key [env: MLSERVER_INFER_CERT]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Private key of --cert, as a PEM file [env: MLSERVER_INFER_KEY]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Use HTTP/2 for REST even without TLS; the server must support it [env: MLSERVER_INFER_HTTP2]
    #[arg(long)]
    pub http2: bool,

    /// Suppress progress, warnings and summary; only report why the run failed
    #[arg(short, long)]
    pub quiet: bool,

    /// Summary format: text on standard error, or one JSON object on standard output (on standard error if the answers go to
    /// standard output)
    #[arg(long, value_enum, default_value_t)]
    pub summary: SummaryFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    Requests,
    Rows,
    Csv,
    Tsv,
    Npy,
    Parquet,
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
