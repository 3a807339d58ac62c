//! The arguments of `mlserver start`.

use std::path::PathBuf;

use clap::Args;

/// Serve the models of a folder
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Folder with `settings.json` and the models, each with a `model-settings.json` [default: the value of
    /// `MLSERVER_MODELS_DIR` or `MODELS_DIR`]
    pub folder: Option<PathBuf>,

    /// Reject unknown keys in settings files
    #[arg(long)]
    pub strict: bool,
}
