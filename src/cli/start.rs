//! The arguments of `mlserver start`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::examples;
use super::settings::SettingArgs;

/// Serve the models of a folder or a KServe script, or a model file
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver start .", ""),
    ("mlserver start churn.joblib", "serve one file as model `churn`"),
    ("mlserver start /mnt/models --model-name churn", "serve the only model file of a folder"),
    ("mlserver start model.py --model_name churn", "serve the models of a KServe script"),
    ("mlserver start . --http-port 9000 --set max_in_flight=64", ""),
    ("mlserver start . --http-port 0 --port-file ports.json", "choose a free port"),
]))]
pub struct StartArgs {
    /// Folder with `settings.json` and the models, each with a `model-settings.json`; or a model file, which is served under its
    /// name without extension; or a script that calls `kserve.ModelServer().start`; or the URI of a folder in an object store, such as
    /// `s3://bucket/models`
    /// [default: the value of `MLSERVER_MODELS_DIR` or `MODELS_DIR`]
    #[arg(value_name = "FOLDER")]
    pub target: Option<PathBuf>,

    /// Arguments of the script; `--` may be omitted if the first one is not an option of `mlserver start`
    #[arg(last = true, value_name = "ARGS")]
    pub script_arguments: Vec<String>,

    /// Reject unknown keys in settings files
    #[arg(long)]
    pub strict: bool,

    /// Start even if the folder has no models
    #[arg(long)]
    pub allow_empty: bool,

    /// Write the server's addresses to FILE as JSON, once the models are loaded
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,

    /// Name of a model without `model-settings.json`: of the model file, or of the only model in the folder
    /// [default: the value of `MLSERVER_MODEL_NAME`]
    #[arg(long, alias = "model_name", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub model_name: Option<String>,

    #[command(flatten)]
    pub settings: SettingArgs,
}
