//! The arguments of `mlserver build`.

use std::path::PathBuf;

use clap::Args;

/// Build an image of a folder of models
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Folder with the models
    pub folder: PathBuf,

    /// Name of the image
    #[arg(short, long)]
    pub tag: String,

    /// Run every step anew
    #[arg(long)]
    pub no_cache: bool,

    /// Image to start from [default: none for native models, else one with Python]
    #[arg(long, value_name = "IMAGE")]
    pub base: Option<String>,

    /// Image to take the server from [default: this executable]
    #[arg(long, value_name = "IMAGE")]
    pub server: Option<String>,

    /// Platform of the image, such as `linux/arm64` [default: the engine's]
    #[arg(long, requires = "server")]
    pub platform: Option<String>,

    /// Value of an ARG of the Dockerfile; may be repeated
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = argument)]
    pub build_args: Vec<(String, String)>,

    /// Network of the build's commands and of the check [default: the engine's]
    #[arg(long, value_name = "MODE")]
    pub network: Option<String>,

    /// Use the classic builder, for engines without BuildKit
    #[arg(long)]
    pub classic: bool,

    /// Start the image, load its models, and send each the `request.json` beside its settings
    #[arg(long)]
    pub check: bool,

    /// Send the image to the registry that its name leads to, after the check
    #[arg(long)]
    pub push: bool,
}

fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
