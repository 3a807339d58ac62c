//! The arguments of `mlserver dockerfile`.

use std::path::PathBuf;

use clap::Args;

/// Write a Dockerfile for a folder of models
#[derive(Debug, Args)]
pub struct DockerfileArgs {
    /// Folder with the models; the file is written into it
    pub folder: PathBuf,

    /// Write a `Dockerfile.dockerignore`, too
    #[arg(short, long)]
    pub include_dockerignore: bool,

    /// Image to start from [default: none for native models, else one with Python]
    #[arg(long, value_name = "IMAGE")]
    pub base: Option<String>,

    /// Image to take the server from
    #[arg(long, value_name = "IMAGE", default_value = concat!("mlserver:", env!("CARGO_PKG_VERSION"), "-slim"))]
    pub server: String,
}
