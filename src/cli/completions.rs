//! The arguments of `mlserver completions` and `mlserver man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print the completions of a shell
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    pub shell: Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for them, such as `/usr/local/share/man/man1`
    pub folder: PathBuf,
}
