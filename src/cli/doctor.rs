//! The arguments of `mlserver doctor`.

use std::path::PathBuf;

use clap::Args;

/// Diagnose a model folder
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder with the models
    #[arg(default_value = ".")]
    pub folder: PathBuf,
}
