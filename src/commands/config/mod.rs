//! `mlserver config`: the effective settings, and the reference of all settings.

mod reference;
mod show;

use crate::cli::config::{ConfigArgs, ConfigCommand};
use crate::settings::Environment;
use crate::ui::Ui;

use super::CommandError;

/// Runs `mlserver config`.
pub fn run(args: &ConfigArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    match &args.command {
        ConfigCommand::Show(args) => show::run(args, environment, ui),
        ConfigCommand::List(args) => reference::list(args, ui),
        ConfigCommand::Explain(args) => reference::explain(args, ui),
    }
}
