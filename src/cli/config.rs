//! The arguments of `mlserver config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::settings::SettingArgs;
use super::{OutputFormat, examples};

/// Inspect settings
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver config show .", "the effective settings and their sources"),
    ("mlserver config explain http_port", ""),
    ("mlserver config list", ""),
]))]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    Show(ShowArgs),
    List(ListArgs),
    Explain(ExplainArgs),
}

/// Print every effective setting and its source
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver config show . --format json --set http_port=9000", ""),
]))]
pub struct ShowArgs {
    /// Folder with the models, or its URI in an object store
    #[arg(default_value = ".")]
    pub folder: PathBuf,

    /// Reject unknown keys in settings files
    #[arg(long)]
    pub strict: bool,

    #[command(flatten)]
    pub settings: SettingArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}

/// List all settings with their types, defaults and environment variables
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver config list --format markdown", ""),
]))]
pub struct ListArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReferenceFormat,
}

/// Explain one setting
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver config explain http_port", ""),
    ("mlserver config explain MLSERVER_HTTP_PORT", "the setting of a variable"),
]))]
pub struct ExplainArgs {
    /// Name of the setting, or its environment variable
    pub key: String,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}

/// The forms of the reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ReferenceFormat {
    #[default]
    Text,
    Json,
    Markdown,
}
