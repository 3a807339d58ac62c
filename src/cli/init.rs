//! The arguments of `mlserver init`.

use std::path::PathBuf;

use clap::Args;

/// Make a new project that serves, tests and builds at once
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Folder of the project [default: its name]
    pub folder: Option<PathBuf>,

    /// Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)
    #[arg(short, long, default_value = "custom")]
    pub template: String,

    /// Name of the project and of its model [default: that of the folder, else `my-model`]
    #[arg(long)]
    pub name: Option<String>,

    /// Print the names of the templates
    #[arg(long)]
    pub list: bool,

    /// Overwrite files that are there
    #[arg(long)]
    pub force: bool,
}
