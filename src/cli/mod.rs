//! The command line: subcommands, arguments and their help. `commands` implements them.

pub mod build;
pub mod compare;
pub mod completions;
pub mod config;
pub mod dockerfile;
pub mod doctor;
mod examples;
pub mod graph;
pub mod infer;
pub mod init;
pub mod inspect;
pub mod keys;
pub mod manifest;
pub mod pull;
mod script;
pub mod settings;
pub mod start;

use std::ffi::OsString;

pub use script::is_script;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Serve machine-learning models over the Open Inference (V2) protocol
#[derive(Debug, Parser)]
#[command(name = "mlserver", version = env!("MLSERVER_VERSION"))]
#[command(help_template = examples::help(&[
    ("mlserver start model.json", "serve a model file"),
    ("mlserver start examples/quickstart", "serve the models of a folder"),
    ("mlserver init churn", "create a project"),
    ("mlserver doctor churn", "find out why it does not start"),
]))]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t, hide_possible_values = false)]
    pub color: Color,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(visible_alias = "serve")]
    Start(start::StartArgs),
    Infer(Box<infer::InferArgs>),
    Compare(Box<compare::CompareArgs>),
    Init(init::InitArgs),
    Pull(pull::PullArgs),
    Dockerfile(dockerfile::DockerfileArgs),
    Build(build::BuildArgs),
    Manifest(manifest::ManifestArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Inspect(inspect::InspectArgs),
    Keys(keys::KeysArgs),
    Graph(graph::GraphArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// When to use colors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// The format of a command's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
}

/// Returns the command line.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments of the process.
///
/// # Errors
///
/// Fails with what to print instead of running a command: an error of the user, the help, or the version.
pub fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    // The parser prints its own messages, so it has to know before it has read the arguments.
    let color = match color(arguments) {
        Color::Auto => clap::ColorChoice::Auto,
        Color::Always => clap::ColorChoice::Always,
        Color::Never => clap::ColorChoice::Never,
    };
    let mut command = command().color(color);
    let matches = command.try_get_matches_from_mut(script::separate(arguments, &command))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the value of `--color`, or the default if it is missing or invalid.
pub fn color(arguments: &[OsString]) -> Color {
    let arguments: Vec<_> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let joined = arguments.iter().rev().find_map(|argument| argument.strip_prefix("--color="));
    let separate = arguments.windows(2).rev().find(|pair| pair[0] == "--color").map(|pair| pair[1]);
    joined.or(separate).and_then(|value| Color::from_str(value, true).ok()).unwrap_or_default()
}
