//! The `mlserver` executable.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use mlserver::cli::{self, Cli, Color, Command};
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
        Command::Dockerfile(args) => commands::dockerfile::run(args, &SystemEnvironment, ui),
        #[cfg(feature = "image")]
        Command::Build(args) => commands::build::run(args, &SystemEnvironment, ui),
        #[cfg(not(feature = "image"))]
        Command::Build(_) => Err(anyhow::anyhow!("cannot build an image: {}", commands::WITHOUT_IMAGE).into()),
        Command::Manifest(args) => commands::manifest::run(args, ui),
        Command::Doctor(args) => commands::doctor::run(args, &SystemEnvironment, ui),
        Command::Completions(args) => commands::completions::run(args, ui),
        Command::Man(args) => commands::completions::man(args, ui),
        Command::Inspect(args) => commands::inspect::run(args, &SystemEnvironment, ui),
        Command::Keys(args) => commands::keys::run(args, &SystemEnvironment, ui),
        Command::Graph(args) => commands::graph::run(args, &SystemEnvironment, ui),
        Command::Infer(args) => commands::infer::run(args, &SystemEnvironment, ui),
        Command::Compare(args) => commands::infer::compare(args, &SystemEnvironment, ui),
        Command::Config(args) => commands::config::run(args, &SystemEnvironment, ui),
    }
}
