//! The executable, run as a command that ends by itself.

use std::path::Path;
use std::process::{Command, Output};

/// Returns a command that runs the executable in a folder, with an empty environment.
pub(crate) fn mlserver_command(folder: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlserver"));
    command.args(arguments).current_dir(folder).env_clear();
    command
}

/// Runs the executable in a folder, with an empty environment.
pub(crate) fn run_mlserver(folder: impl AsRef<Path>, arguments: &[&str]) -> Output {
    mlserver_command(folder, arguments).output().unwrap()
}
