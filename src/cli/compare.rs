//! The arguments of `mlserver compare`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::examples;
use super::infer::{InferArgs, InputFormat, SummaryFormat, Transport};

const INPUT: &str = "Input";
const SERVERS: &str = "Servers";
const TOLERANCE: &str = "Tolerance";
const CONCURRENCY: &str = "Concurrency";
const REPORTING: &str = "Reporting";

/// Send the same requests to two servers, and report the rows whose answers differ
///
/// Standard output gets a line of JSON for each row whose answers differ, and for each row that has no answers to compare because a
/// request failed. Outputs are paired by name; their datatypes, shapes, elements and parameters are compared. Ids, model names,
/// versions and the parameters of whole responses are not. The environment variables of `mlserver infer` apply.
///
/// Exit codes: 0 all answers are equal; 4 some rows differ or failed; 1 the run could not start or continue; 2 invalid arguments;
/// 130, 143 or 131 stopped by SIGINT, SIGTERM or SIGQUIT; 141 the reader of the lines has closed the pipe; 3 stopped at once by a
/// second signal.
#[derive(Debug, Default, Args)]
#[command(help_template = examples::help(&[
    ("mlserver compare -u old:8080 -u new:8080 -m churn requests.jsonl", ""),
    ("mlserver compare -u old:8080 -u new:8080 -m churn rows.csv --relative-tolerance 1e-6", ""),
]))]
pub struct CompareArgs {
    /// Input file, or `-` for standard input
    #[arg(value_name = "PATH", help_heading = INPUT)]
    pub input_data_path: PathBuf,

    /// Input format: `requests` (JSON Lines of requests), `rows` (JSON Lines of objects whose keys are columns), or a table
    /// [default: by extension]
    #[arg(long, value_enum, help_heading = INPUT)]
    pub input_format: Option<InputFormat>,

    /// Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]
    #[arg(long = "column-type", value_name = "COLUMN=DATATYPE", help_heading = INPUT)]
    pub column_types: Vec<String>,

    /// Server address, as HOST:PORT with an optional path; given twice
    #[arg(short, long, required = true, help_heading = SERVERS)]
    pub url: Vec<String>,

    /// Model name on both servers
    #[arg(short, long, value_name = "NAME", help_heading = SERVERS)]
    pub model_name: Option<String>,

    /// Model version on both servers
    #[arg(long, value_name = "VERSION", help_heading = SERVERS)]
    pub model_version: Option<String>,

    /// Protocol [default: rest]
    #[arg(short, long, value_enum, hide_possible_values = false, help_heading = SERVERS)]
    pub transport: Option<Transport>,

    /// Header to send with each request, as `NAME: VALUE`; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = SERVERS)]
    pub request_headers: Vec<String>,

    /// API key or token, sent to both servers as `authorization: Bearer TOKEN`
    #[arg(long, value_name = "TOKEN", help_heading = SERVERS)]
    pub token: Option<String>,

    /// Timeout in seconds for connecting and for each response [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = SERVERS)]
    pub timeout: Option<f64>,

    /// Send tensors as binary data instead of JSON
    #[arg(short, long, help_heading = SERVERS)]
    pub binary_data: bool,

    /// Skip TLS certificate verification
    #[arg(long, help_heading = SERVERS)]
    pub insecure: bool,

    /// Trust the root certificates in this PEM file, in addition to those of the system
    #[arg(long, value_name = "FILE", help_heading = SERVERS)]
    pub ca: Option<PathBuf>,

    /// Present the client certificate in this PEM file, which may also contain its key
    #[arg(long, value_name = "FILE", help_heading = SERVERS)]
    pub cert: Option<PathBuf>,

    /// Private key of --cert, as a PEM file
    #[arg(long, value_name = "FILE", help_heading = SERVERS)]
    pub key: Option<PathBuf>,

    /// Largest absolute difference between floating-point numbers that count as equal
    #[arg(long, value_name = "NUMBER", default_value_t, help_heading = TOLERANCE)]
    pub absolute_tolerance: f64,

    /// Largest difference between floating-point numbers that count as equal, as a fraction of the larger one; added to
    /// --absolute-tolerance
    #[arg(long, value_name = "FRACTION", default_value_t, help_heading = TOLERANCE)]
    pub relative_tolerance: f64,

    /// Number of requests in flight at each server [default: 10]
    #[arg(short, long, value_name = "N", help_heading = CONCURRENCY)]
    pub workers: Option<NonZeroUsize>,

    /// Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]
    #[arg(short = 's', long, value_name = "N", help_heading = CONCURRENCY)]
    pub batch_size: Option<NonZeroUsize>,

    /// Maximum attempts per request; only failures that may be temporary are retried [default: 3]
    #[arg(short, long, value_name = "N", help_heading = CONCURRENCY)]
    pub retries: Option<NonZeroU32>,

    /// Log each request (-v) or full traffic (-vv)
    #[arg(short, long, action = ArgAction::Count, help_heading = REPORTING)]
    pub verbose: u8,

    /// Suppress progress, warnings and summary; only report why the run failed
    #[arg(short, long, help_heading = REPORTING)]
    pub quiet: bool,

    /// Summary format: text or one JSON object, on standard error
    #[arg(long, value_enum, default_value_t, help_heading = REPORTING)]
    pub summary: SummaryFormat,
}

impl CompareArgs {
    /// Returns the arguments of a run of `mlserver infer` that sends the requests to one of the servers.
    pub fn infer_args(&self, url: &str) -> InferArgs {
        InferArgs {
            input_data_path: vec![self.input_data_path.clone()],
            input_format: self.input_format,
            column_types: self.column_types.clone(),
            output_data_path: Some(PathBuf::from("-")),
            url: Some(url.to_owned()),
            model_name: self.model_name.clone(),
            model_version: self.model_version.clone(),
            transport: self.transport,
            request_headers: self.request_headers.clone(),
            token: self.token.clone(),
            timeout: self.timeout,
            binary_data: self.binary_data,
            insecure: self.insecure,
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            workers: self.workers,
            batch_size: self.batch_size,
            retries: self.retries,
            verbose: self.verbose,
            quiet: self.quiet,
            summary: self.summary,
            ..InferArgs::default()
        }
    }
}
