//! The arguments of `mlserver inspect`.

use std::path::PathBuf;

use clap::Args;

/// Show what a model artifact contains and whether it is served natively
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Pickle or joblib file, or MLflow model folder; nothing in it is executed
    pub path: PathBuf,
}
