//! The `mlserver` executable.

use std::process::ExitCode;

use clap::Parser;
use mlserver::cli::{Cli, Command};
use mlserver::commands::{self, CommandError};
use mlserver::settings::SystemEnvironment;
use mlserver::ui::Ui;

/// Requests make a few dozen small allocations each; see BENCHMARKS.md for the effect of this allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut ui = Ui::standard();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            ui.usage(&answer);
            return ExitCode::from(if answer.use_stderr() { commands::USAGE } else { commands::SUCCESS });
        }
    };
    match run(&cli, &mut ui) {
        Ok(()) => ExitCode::from(commands::SUCCESS),
        Err(failure) => {
            ui.error(&failure.error);
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: &Cli, ui: &mut Ui) -> Result<(), CommandError> {
    match &cli.command {
        Command::Start(args) => commands::start::run(args, &SystemEnvironment),
        Command::Init(args) => commands::init::run(args, &SystemEnvironment, ui),
        Command::Dockerfile(args) => commands::dockerfile::run(args, ui),
        Command::Build(args) => commands::build::run(args, &SystemEnvironment, ui),
        Command::Manifest(args) => commands::manifest::run(args, ui),
        Command::Doctor(args) => commands::doctor::run(args, &SystemEnvironment, ui),
        Command::Completions(args) => commands::completions::run(args, ui),
        Command::Man(args) => commands::completions::man(args, ui),
        Command::Inspect(args) => commands::inspect::run(args, ui),
        Command::Infer(args) => commands::infer::run(args, &SystemEnvironment, ui),
        Command::Config(args) => commands::config::run(args, &SystemEnvironment, ui),
    }
}
