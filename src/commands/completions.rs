//! `mlserver completions` and `mlserver man`: shell completions and manual pages.

use std::fs;

use anyhow::Context;

use super::CommandError;
use crate::cli;
use crate::cli::completions::{CompletionsArgs, ManArgs};
use crate::ui::Ui;

const NAME: &str = "mlserver";

/// Runs `mlserver completions`.
pub fn run(args: &CompletionsArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), NAME, &mut script);
    Ok(ui.line(String::from_utf8_lossy(&script).trim_end())?)
}

/// Runs `mlserver man`: writes a page for the program and one for each command.
pub fn man(args: &ManArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let failed = || format!("cannot write into `{}`", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(failed)?;
    let mut pages = Vec::new();
    add_pages(cli::command().disable_help_subcommand(true), NAME.to_owned(), &mut pages)?;
    for (name, page) in pages {
        let path = args.folder.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("cannot write `{}`", path.display()))?;
        ui.line(path.display())?;
    }
    Ok(())
}

/// Renders the pages of a command and of those below it.
fn add_pages(mut command: clap::Command, name: String, pages: &mut Vec<(String, Vec<u8>)>) -> Result<(), CommandError> {
    command.build();
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        add_pages(inner.clone(), format!("{name}-{}", inner.get_name()), pages)?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.display_name(name.clone())).title(name.clone()).render(&mut page)?;
    pages.push((name, page));
    Ok(())
}
