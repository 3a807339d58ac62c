//! The arguments of `mlserver inspect`.

use std::path::PathBuf;

use clap::Args;

/// Print what a scikit-learn artefact holds, and whether it is served natively
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// File that `joblib` or `pickle` wrote; nothing in it is executed
    pub path: PathBuf,
}
