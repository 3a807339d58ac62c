//! The arguments of `mlserver init`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputFormat, examples};

/// Create a project that is ready to serve, test and build
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver init churn", "a Python model"),
    ("mlserver init churn --from churn.joblib", "a project from a model file"),
    ("mlserver init --list", ""),
]))]
pub struct InitArgs {
    /// Folder of the project [default: the project's name]
    pub folder: Option<PathBuf>,

    /// Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL
    #[arg(short, long, default_value = "custom")]
    pub template: String,

    /// Create a project from a copy of a model file, instead of a template
    #[arg(long, value_name = "MODEL_FILE", conflicts_with = "template")]
    pub from: Option<PathBuf>,

    /// Name of the project and its model [default: the folder's name, or `my-model`]
    #[arg(long)]
    pub name: Option<String>,

    /// List the templates
    #[arg(long)]
    pub list: bool,

    /// Output format of --list
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,

    /// Also write a Dockerfile and a `.dockerignore` file, as `mlserver dockerfile --include-dockerignore` does
    #[arg(long)]
    pub dockerfile: bool,

    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}
