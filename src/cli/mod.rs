//! The command line: subcommands, arguments and their help. `commands` implements them.

pub mod build;
pub mod completions;
pub mod config;
pub mod dockerfile;
pub mod doctor;
pub mod infer;
pub mod init;
pub mod inspect;
pub mod manifest;
pub mod settings;
pub mod start;

use clap::{Parser, Subcommand};

/// Serve machine-learning models over the Open Inference (V2) protocol
#[derive(Debug, Parser)]
#[command(
    name = "mlserver",
    // Makes `--version` print `mlserver, version 1.2.3`, which scripts parse.
    display_name = "mlserver,",
    version = concat!("version ", env!("MLSERVER_VERSION")),
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Start(start::StartArgs),
    Infer(Box<infer::InferArgs>),
    Init(init::InitArgs),
    Dockerfile(dockerfile::DockerfileArgs),
    Build(build::BuildArgs),
    Manifest(manifest::ManifestArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Inspect(inspect::InspectArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}
