//! The command line: what can be asked for, and its help. What is done about it is in `commands`.

pub mod build;
pub mod config;
pub mod dockerfile;
pub mod infer;
pub mod init;
pub mod inspect;
pub mod start;

use clap::{Parser, Subcommand};

/// Serve machine-learning models over the Open Inference (V2) protocol
#[derive(Debug, Parser)]
#[command(
    name = "mlserver",
    // Makes `--version` print `mlserver, version 1.2.3`, which scripts cut apart.
    display_name = "mlserver,",
    version = concat!("version ", env!("CARGO_PKG_VERSION")),
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Start(start::StartArgs),
    Init(init::InitArgs),
    Dockerfile(dockerfile::DockerfileArgs),
    Build(build::BuildArgs),
    Config(config::ConfigArgs),
    Inspect(inspect::InspectArgs),
    Infer(Box<infer::InferArgs>),
}
