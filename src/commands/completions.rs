//! `mlserver completions` and `mlserver man`: shell completions and manual pages.

use std::fs;

use anyhow::Context;
use clap::CommandFactory;

use super::CommandError;
use crate::cli::Cli;
use crate::cli::completions::{CompletionsArgs, ManArgs};
use crate::ui::Ui;

const NAME: &str = "mlserver";

/// Runs `mlserver completions`.
pub fn run(args: &CompletionsArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    Ok(ui.line(String::from_utf8_lossy(&script).trim_end())?)
}

/// Runs `mlserver man`: writes a page for the program and one for each command.
pub fn man(args: &ManArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let failed = || format!("cannot write into `{}`", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(failed)?;
    // These are the names and titles of the pages; `--version` needs other values.
    let command = Cli::command().display_name(NAME).version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command, &args.folder).with_context(failed)?;
    ui.note(format_args!("Wrote the manual pages to `{}`", args.folder.display()));
    Ok(())
}
