//! The arguments of `mlserver inspect`.

use std::path::PathBuf;

use clap::Args;

/// Print what a scikit-learn artefact or an MLflow folder holds, and whether it is served natively
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// File that `joblib` or `pickle` wrote, or a folder with an `MLmodel`; nothing in it is executed
    pub path: PathBuf,
}
