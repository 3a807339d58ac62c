//! The arguments of `mlserver dockerfile`.

use std::path::PathBuf;

use clap::Args;

/// Write a Dockerfile for a model folder
#[derive(Debug, Args)]
pub struct DockerfileArgs {
    /// Folder with the models; the file is written into it
    pub folder: PathBuf,

    /// Also write a `Dockerfile.dockerignore`
    #[arg(short, long)]
    pub include_dockerignore: bool,

    /// Base image [default: none for native models, otherwise one with Python]
    #[arg(long, value_name = "IMAGE")]
    pub base: Option<String>,

    /// Image to copy the server from
    #[arg(long, value_name = "IMAGE", default_value = concat!("mlserver:", env!("CARGO_PKG_VERSION"), "-slim"))]
    pub server: String,
}
