//! The arguments of `mlserver infer`.
//!
//! What is not given is taken from the variable that the help names, else from the default; `commands::infer` does that.

#![expect(clippy::doc_markdown, reason = "these comments are the help, which is no Markdown")]

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Have a server answer a file of requests, in its order
///
/// Exit codes: 0 every row was answered; 4 some rows failed, each with a line in the output; 1 the run could not start or
/// go on; 2 wrong arguments; 130 stopped by a signal; 3 stopped by a second one.
#[derive(Debug, Default, Args)]
pub struct InferArgs {
    /// Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or
    /// localhost:8081 with --transport grpc]
    #[arg(short, long)]
    pub url: Option<String>,

    /// Load the model of FOLDER in this process, and ask no server. The same happens without --url where --model-name is a
    /// folder with a `model-settings.json`
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["url", "transport"])]
    pub embedded: Option<PathBuf>,

    /// Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]
    #[arg(short, long, value_name = "NAME")]
    pub model_name: Option<String>,

    /// Version of the model, else the server chooses [env: MLSERVER_INFER_MODEL_VERSION]
    #[arg(long, value_name = "VERSION")]
    pub model_version: Option<String>,

    /// File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]
    #[arg(short, long, value_name = "PATH")]
    pub input_data_path: Option<PathBuf>,

    /// What the input is: `requests` as JSON, `rows` as JSON objects whose keys are columns, or a table
    /// [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows, .csv, .tsv, .npy and .parquet are tables,
    /// anything else requests]
    #[arg(long, value_enum)]
    pub input_format: Option<InputFormat>,

    /// Datatype of a column of csv, tsv or rows, which is else told from the first 1000 rows; may be repeated
    #[arg(long = "column-type", value_name = "COLUMN=DATATYPE")]
    pub column_types: Vec<String>,

    /// File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]
    #[arg(short, long, value_name = "PATH")]
    pub output_data_path: Option<PathBuf>,

    /// Go on behind the answers that an interrupted run has left in PATH.partial
    #[arg(long)]
    pub resume: bool,

    /// Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are
    /// cores]
    #[arg(short, long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,

    /// Most requests under way, to which their number grows while that makes the run faster
    /// [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers where it is given or with --embedded, else 64]
    #[arg(long, value_name = "N")]
    pub max_workers: Option<NonZeroUsize>,

    /// Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES]
    /// [default: 3]
    #[arg(short, long, value_name = "N")]
    pub retries: Option<NonZeroU32>,

    /// Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]
    #[arg(short = 's', long, value_name = "N")]
    pub batch_size: Option<NonZeroUsize>,

    /// Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]
    #[arg(short, long)]
    pub binary_data: bool,

    /// Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// The same as -vv [env: MLSERVER_INFER_EXTRA_VERBOSE]
    #[arg(long)]
    pub extra_verbose: bool,

    /// Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]
    #[arg(short, long, value_enum, hide_possible_values = false)]
    pub transport: Option<Transport>,

    /// Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as
    /// `NAME:VALUE NAME:VALUE`]
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub request_headers: Vec<String>,

    /// Seconds to wait for a connection, and for each answer [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,

    /// Least seconds between the starts of two requests of one worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub batch_interval: Option<f64>,

    /// Most seconds that are added to --batch-interval at random [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub batch_jitter: Option<f64>,

    /// Most rows to send in a second [env: MLSERVER_INFER_RATE]
    #[arg(long, value_name = "ROWS")]
    pub rate: Option<f64>,

    /// Encrypt the connection [env: MLSERVER_INFER_USE_SSL]
    #[arg(long)]
    pub use_ssl: bool,

    /// Take any certificate of the server [env: MLSERVER_INFER_INSECURE]
    #[arg(long)]
    pub insecure: bool,

    /// Speak HTTP/2 over REST without encryption, too, which the server must know [env: MLSERVER_INFER_HTTP2]
    #[arg(long)]
    pub http2: bool,

    /// Show neither progress nor warnings nor a summary, only why it fails
    #[arg(short, long)]
    pub quiet: bool,

    /// How to sum up the run: as text on standard error, or as one JSON object on standard output (standard error when the
    /// answers go to standard output)
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
