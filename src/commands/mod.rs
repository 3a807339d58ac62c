//! The implementations of the subcommands, one file each, and their exit codes.

#[cfg(feature = "image")]
pub mod build;
pub mod completions;
pub mod config;
mod custom_repository;
pub mod dockerfile;
pub mod doctor;
mod embedded;
pub mod graph;
pub mod infer;
pub mod init;
pub mod inspect;
pub mod keys;
pub mod manifest;
#[cfg(feature = "image")]
mod offline_models;
#[cfg(feature = "storage")]
pub mod pull;
mod score;
mod setting_arguments;
pub mod start;

pub use score::run_worker;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

use crate::cli::Command;
use crate::settings::{Environment, worker_threads};
use crate::ui::Ui;

/// The command succeeded.
pub const SUCCESS: u8 = 0;
/// The command failed.
pub const FAILURE: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// A second signal ended the command before every request was answered.
pub const FORCED: u8 = 3;
/// Every row of the input has a line in the output, but some of them are failures.
pub const SOME_FAILED: u8 = 4;
/// The command was stopped early by SIGINT. This code and the following ones are those of a process that the signal ends.
pub const INTERRUPTED: u8 = 128 + 2;
/// It was stopped early by SIGQUIT.
pub const QUIT: u8 = 128 + 3;
/// It was stopped early because the reader of its output closed the pipe.
pub const CLOSED: u8 = 128 + 13;
/// It was stopped early by SIGTERM.
pub const TERMINATED: u8 = 128 + 15;

/// The argument that makes this executable a worker. It is for other processes, so the command line does not list it.
pub const WORKER: &str = "score";

/// Runs a subcommand.
///
/// # Errors
///
/// Fails if the command fails.
pub fn run(command: &Command, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    match command {
        Command::Start(args) => start::run(args, environment),
        #[cfg(feature = "storage")]
        Command::Pull(args) => pull::run(args, environment, ui),
        #[cfg(not(feature = "storage"))]
        Command::Pull(_) => Err(anyhow::anyhow!("cannot fetch models: {WITHOUT_STORAGE}").into()),
        Command::Init(args) => init::run(args, environment, ui),
        Command::Dockerfile(args) => dockerfile::run(args, environment, ui),
        #[cfg(feature = "image")]
        Command::Build(args) => build::run(args, environment, ui),
        #[cfg(not(feature = "image"))]
        Command::Build(_) => Err(anyhow::anyhow!("cannot build an image: {WITHOUT_IMAGE}").into()),
        Command::Manifest(args) => manifest::run(args, ui),
        Command::Doctor(args) => doctor::run(args, environment, ui),
        Command::Completions(args) => completions::run(args, ui),
        Command::Man(args) => completions::man(args, ui),
        Command::Inspect(args) => inspect::run(args, environment, ui),
        Command::Keys(args) => keys::run(args, environment, ui),
        Command::Graph(args) => graph::run(args, environment, ui),
        Command::Infer(args) => infer::run(args, environment, ui),
        Command::Compare(args) => infer::compare(args, environment, ui),
        Command::Config(args) => config::run(args, environment, ui),
    }
}

/// Why `mlserver build` does not work without the feature.
#[cfg(not(feature = "image"))]
pub const WITHOUT_IMAGE: &str = "this executable was built without the feature `image`; install a wheel or a release, or build it \
                                 with `cargo build --release --features image`";

/// Why `mlserver pull` does not work without the feature.
#[cfg(not(feature = "storage"))]
pub const WITHOUT_STORAGE: &str = "this executable was built without the feature `storage`; install a wheel or a release, or build it with \
                               `cargo build --release --features storage`";

/// Returns the exit code of a command that a signal has stopped.
fn exit_code(signal: &str) -> u8 {
    match signal {
        "SIGTERM" => TERMINATED,
        "SIGQUIT" => QUIT,
        _ => INTERRUPTED,
    }
}

/// Starts the threads of a command that does I/O.
fn async_runtime(environment: &dyn Environment) -> anyhow::Result<Runtime> {
    let threads = worker_threads(environment).map_err(anyhow::Error::msg)?;
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().context("cannot start threads")
}

/// Quotes text as one word of a shell.
fn shell_quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Why a command failed, for the user.
#[derive(Debug)]
pub struct CommandError {
    /// The error to report, with its causes.
    pub error: anyhow::Error,
    /// The exit code.
    pub code: u8,
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self { error: error.into(), code: FAILURE }
    }
}
