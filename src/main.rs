//! The `mlserver` executable.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use mlserver::cli::{self, Color};
use mlserver::commands::{self, CommandError};
use mlserver::settings::SystemEnvironment;
use mlserver::ui::Ui;

/// Requests make a few dozen small allocations each; see BENCHMARKS.md for the effect of this allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    Ui::use_colors(match cli::color(&arguments) {
        Color::Auto => None,
        Color::Always => Some(true),
        Color::Never => Some(false),
    });
    let mut ui = Ui::standard();
    if arguments.len() == 2 && arguments[1] == commands::WORKER {
        return exit_code(commands::run_worker(), &mut ui);
    }
    let cli = match cli::parse(&arguments) {
        Ok(cli) => cli,
        // Scripts parse this form of the original.
        Err(answer) if answer.kind() == ErrorKind::DisplayVersion => {
            let printed = ui.line(format_args!("mlserver, version {}", env!("MLSERVER_VERSION")));
            return ExitCode::from(if printed.is_ok() { commands::SUCCESS } else { commands::FAILURE });
        }
        Err(answer) => {
            ui.usage(&answer);
            return ExitCode::from(if answer.use_stderr() { commands::USAGE } else { commands::SUCCESS });
        }
    };
    exit_code(commands::run(&cli.command, &SystemEnvironment, &mut ui), &mut ui)
}

fn exit_code(outcome: Result<(), CommandError>, ui: &mut Ui) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::from(commands::SUCCESS),
        Err(failure) => {
            ui.error(&failure.error);
            ExitCode::from(failure.code)
        }
    }
}
