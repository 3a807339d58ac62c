//! The arguments of `mlserver inspect`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputFormat, examples};

/// Show what a model file contains, and whether it is served natively
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver inspect churn.joblib", ""),
    ("mlserver inspect churn.joblib --example", "a request that the model answers"),
    ("mlserver inspect s3://models/churn/model.json", ""),
]))]
pub struct InspectArgs {
    /// Model file, folder of an MLflow model, or folder with a `model-settings.json`, also as the URI of an object store; nothing in it is
    /// executed
    pub path: PathBuf,

    /// Print only an example request that the model answers
    #[arg(long)]
    pub example: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}
