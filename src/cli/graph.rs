//! The arguments of `mlserver graph`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

/// Inspect inference graphs
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver graph show .", "the graphs of a folder"),
    ("mlserver graph show text-generator --format mermaid", "a drawing of one graph"),
]))]
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
#[command(help_template = examples::help(&[
    ("mlserver graph show .", ""),
    ("mlserver graph show . --format json", "for scripts"),
]))]
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
