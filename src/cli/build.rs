//! The arguments of `mlserver build`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::{OutputFormat, examples};

/// Build a container image of a model folder
#[derive(Debug, Args)]
#[command(
    override_usage = "mlserver build [OPTIONS] --tag <TAG> <FOLDER>\n       mlserver build [OPTIONS] --base-images[=<WHICH>]"
)]
#[command(help_template = examples::help(&[
    ("mlserver build churn -t registry.example.com/churn:1", ""),
    ("mlserver build churn -t registry.example.com/churn:1 --check --push", ""),
]))]
pub struct BuildArgs {
    /// Folder with the models
    #[arg(required_unless_present = "base_images")]
    pub folder: Option<PathBuf>,

    /// Name of the image; for base images, their name without a version
    #[arg(short, long, required_unless_present = "base_images", value_parser = NonEmptyStringValueParser::new())]
    pub tag: Option<String>,

    /// Base image [default: none for native models, otherwise one with Python]
    #[arg(long, value_name = "IMAGE", help_heading = "Contents")]
    pub base: Option<String>,

    /// Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]
    #[arg(long, value_name = "VERSION", conflicts_with = "base", help_heading = "Contents")]
    pub python: Option<String>,

    /// Image to copy the server from [default: this executable]
    #[arg(long, value_name = "IMAGE", help_heading = "Contents")]
    pub server: Option<String>,

    /// Platform of the image, such as `linux/arm64` [default: that of the engine]
    #[arg(long, requires = "server", help_heading = "Contents")]
    pub platform: Option<String>,

    /// Build the images that Dockerfiles and manifests start from: `all`, only the `slim` one, which has no Python, or that and the
    /// `python` one, which has no frameworks
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        conflicts_with_all = ["folder", "server", "classic", "check", "python"],
        help_heading = "Contents"
    )]
    pub base_images: Option<BaseImages>,

    /// Packages of the base image with frameworks [default: pinned versions of the frameworks]
    #[arg(long, value_name = "FILE", requires = "base_images", help_heading = "Contents")]
    pub requirements: Option<PathBuf>,

    /// Put the models of object stores into the image, instead of fetching them in each container
    #[arg(long, conflicts_with = "base_images", help_heading = "Contents")]
    pub offline_models: bool,

    /// Do not use the build cache
    #[arg(long, help_heading = "Build")]
    pub no_cache: bool,

    /// Build argument for the Dockerfile; may be repeated
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = argument, help_heading = "Build")]
    pub build_args: Vec<(String, String)>,

    /// Network for the build and the check [default: that of the engine]
    #[arg(long, value_name = "MODE", help_heading = "Build")]
    pub network: Option<String>,

    /// Use the classic builder, for engines without BuildKit
    #[arg(long, help_heading = "Build")]
    pub classic: bool,

    /// Run the image and send each model the `request.json` next to its settings
    #[arg(long, help_heading = "Check and push")]
    pub check: bool,

    /// Push the image to its registry, after the check
    #[arg(long, help_heading = "Check and push")]
    pub push: bool,

    /// Report only warnings and errors
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: OutputFormat,
}

/// The base images to build: all, or those that a chosen one needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BaseImages {
    All,
    Slim,
    Python,
}

fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
