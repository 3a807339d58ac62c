//! The arguments of `mlserver graph`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Inspect inference graphs
#[derive(Debug, Args)]
pub struct GraphArgs {
    #[command(subcommand)]
    pub command: GraphCommand,
}

#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    Show(ShowArgs),
}

/// Print the steps of inference graphs, their dependencies, and missing models
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Folder of a graph, or a folder above it for all graphs inside
    pub folder: PathBuf,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: GraphFormat,
}

/// The forms of a graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    #[default]
    Text,
    Json,
    /// A flowchart in Mermaid's language, which GitHub and many editors draw
    Mermaid,
}
