//! The arguments of `mlserver pull`.

use std::num::NonZeroUsize;

use clap::Args;

use super::examples;

/// Fetch models from object stores into folders
///
/// Takes the arguments of KServe's storage initializer, so that it can be the container of a `ClusterStorageContainer`.
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver pull s3://models/churn ./churn", ""),
    ("mlserver pull hf://org/repo ./repo --include '*.safetensors' --include '*.json'", ""),
    ("mlserver pull s3://models/churn ./churn --lock", "and refuse other files from now on"),
    ("mlserver pull gs://models/churn --list", "what it would fetch"),
]))]
pub struct PullArgs {
    /// URI of a model, and the folder for it; more pairs may follow. Schemes: s3, gs, az, abfs, hf, https, http, file
    #[arg(required = true, num_args = 1.., value_names = ["URI", "FOLDER"])]
    pub pairs: Vec<String>,

    /// List the files instead of fetching them; takes URIs without folders
    #[arg(long)]
    pub list: bool,

    /// Pattern of the files to fetch, with `*` for any text; may be repeated [default: all]
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,

    /// Pattern of files not to fetch; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,

    /// Write the sizes and SHA-256 hashes of the files into `mlserver.lock`; later runs, and the server, refuse other files
    #[arg(long, conflicts_with = "list")]
    pub lock: bool,

    /// Number of files to fetch at once [default: the setting `storage_concurrency`]
    #[arg(long, value_name = "NUMBER")]
    pub concurrency: Option<NonZeroUsize>,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}
