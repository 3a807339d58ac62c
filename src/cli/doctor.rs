//! The arguments of `mlserver doctor`.

use std::path::PathBuf;

use clap::Args;

/// Check what a folder needs to be served, and say what to do
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder that would be started
    #[arg(default_value = ".")]
    pub folder: PathBuf,
}
