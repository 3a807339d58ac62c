//! The arguments of `mlserver keys`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{OutputFormat, examples};

/// Create, list and revoke API keys
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver keys create --name ci --scope infer --file keys.json", "print a new key"),
    ("mlserver keys list --file keys.json", ""),
    ("mlserver keys revoke ci --file keys.json", ""),
]))]
pub struct KeysArgs {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    Create(CreateKeyArgs),
    List(ListKeysArgs),
    Revoke(RevokeKeyArgs),
}

/// Create a key and print it once; the file stores only its hash
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver keys create --name ci --scope infer --models iris-* --file keys.json", ""),
    ("mlserver keys create --name ops --scope read --scope admin", "into the file of the settings"),
]))]
pub struct CreateKeyArgs {
    /// Name of the key, for logs and metrics
    #[arg(long)]
    pub name: String,

    /// Scope of the key; may be repeated
    #[arg(long = "scope", required = true, value_enum, hide_possible_values = false)]
    pub scopes: Vec<KeyScope>,

    /// Pattern of the models that the key may use, with `*` for any text; may be repeated [default: all]
    #[arg(long, value_name = "PATTERN")]
    pub models: Vec<String>,

    /// Expiry time of the key, such as `2030-01-31T00:00:00Z`
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,

    /// Maximum requests per second
    #[arg(long, value_name = "NUMBER")]
    pub requests_per_second: Option<f64>,

    /// Maximum burst of requests [default: the requests of one second]
    #[arg(long, value_name = "NUMBER", requires = "requests_per_second")]
    pub burst: Option<NonZeroU32>,

    /// Maximum requests in flight
    #[arg(long, value_name = "NUMBER")]
    pub max_in_flight: Option<NonZeroU32>,

    #[command(flatten)]
    pub file: KeyFileArgs,
}

/// List the keys of a file
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver keys list --file keys.json", ""),
]))]
pub struct ListKeysArgs {
    #[command(flatten)]
    pub file: KeyFileArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}

/// Remove a key from its file; running servers reject it within 10 seconds
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver keys revoke ci --file keys.json", ""),
]))]
pub struct RevokeKeyArgs {
    /// Name of the key
    pub name: String,

    #[command(flatten)]
    pub file: KeyFileArgs,
}

#[derive(Debug, Args)]
pub struct KeyFileArgs {
    /// Key file [default: the setting `api_keys_file`]
    #[arg(long)]
    pub file: Option<PathBuf>,

    /// Folder whose settings name the file
    #[arg(long, default_value = ".", conflicts_with = "file")]
    pub folder: PathBuf,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyScope {
    /// Predict: `infer`, streams, V1, custom routes
    Infer,
    /// Read metadata of the server and its models, the index and documents
    Read,
    /// Load and unload models
    Admin,
    /// Scrape metrics
    Metrics,
}
