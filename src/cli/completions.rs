//! The arguments of `mlserver completions` and `mlserver man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::examples;

/// Print shell completions
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver completions bash", ""),
]))]
pub struct CompletionsArgs {
    /// Shell to complete for
    pub shell: Shell,
}

/// Write the manual pages to a folder
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver man /usr/local/share/man/man1", ""),
]))]
pub struct ManArgs {
    /// Target folder, such as `/usr/local/share/man/man1`
    pub folder: PathBuf,
}
