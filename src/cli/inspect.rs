//! The arguments of `mlserver inspect`.

use std::path::PathBuf;

use clap::Args;

/// Print what an artifact or MLflow folder holds, and whether it is native
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// File that `joblib` or `pickle` wrote, or a folder with an `MLmodel`; nothing in it is executed
    pub path: PathBuf,
}
