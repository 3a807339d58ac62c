//! The arguments of `mlserver doctor`.

use std::path::PathBuf;

use clap::Args;

use super::settings::SettingArgs;
use super::{OutputFormat, examples};

/// Diagnose a folder or model file before serving it
///
/// Exit codes: 0 `start` would become ready; 1 it would not; 2 invalid arguments.
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver doctor .", ""),
    ("mlserver doctor churn --format json", "for scripts"),
]))]
pub struct DoctorArgs {
    /// Folder with the models, or a model file; or the URI of a folder in an object store
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub target: PathBuf,

    /// Also check that images can be built
    #[arg(long)]
    pub image: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,

    #[command(flatten)]
    pub settings: SettingArgs,
}
