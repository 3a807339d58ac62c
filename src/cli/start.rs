//! The arguments of `mlserver start`.

use std::path::PathBuf;

use clap::Args;

/// Start serving the models of a folder
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Folder with `settings.json` and the models, each with a `model-settings.json` [default: what the variable
    /// `MLSERVER_MODELS_DIR` names, else `MODELS_DIR`]
    pub folder: Option<PathBuf>,

    /// Refuse unknown keys in settings files
    #[arg(long)]
    pub strict: bool,
}
