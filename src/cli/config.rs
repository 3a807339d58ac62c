//! The arguments of `mlserver config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::settings::SettingArgs;

/// Inspect settings
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    Show(ShowArgs),
}

/// Print every effective setting and its source
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Folder with the models
    #[arg(default_value = ".")]
    pub folder: PathBuf,

    /// Reject unknown keys in settings files
    #[arg(long)]
    pub strict: bool,

    #[command(flatten)]
    pub settings: SettingArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ConfigFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ConfigFormat {
    #[default]
    Text,
    Json,
}
