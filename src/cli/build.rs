//! The arguments of `mlserver build`.

use std::path::PathBuf;

use clap::Args;

/// Build a container image of a model folder
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Folder with the models
    pub folder: PathBuf,

    /// Name of the image
    #[arg(short, long)]
    pub tag: String,

    /// Do not use the build cache
    #[arg(long)]
    pub no_cache: bool,

    /// Base image [default: none for native models, otherwise one with Python]
    #[arg(long, value_name = "IMAGE")]
    pub base: Option<String>,

    /// Image to copy the server from [default: this executable]
    #[arg(long, value_name = "IMAGE")]
    pub server: Option<String>,

    /// Platform of the image, such as `linux/arm64` [default: that of the engine]
    #[arg(long, requires = "server")]
    pub platform: Option<String>,

    /// Build argument for the Dockerfile; may be repeated
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = argument)]
    pub build_args: Vec<(String, String)>,

    /// Network for the build and the check [default: that of the engine]
    #[arg(long, value_name = "MODE")]
    pub network: Option<String>,

    /// Use the classic builder, for engines without BuildKit
    #[arg(long)]
    pub classic: bool,

    /// Run the image and send each model the `request.json` next to its settings
    #[arg(long)]
    pub check: bool,

    /// Push the image to its registry, after the check
    #[arg(long)]
    pub push: bool,
}

fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
