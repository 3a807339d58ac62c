//! What the subcommands do, one file each, and how they end.

pub mod build;
pub mod completions;
pub mod config;
mod custom_repository;
pub mod dockerfile;
pub mod doctor;
pub mod infer;
pub mod init;
pub mod inspect;
pub mod manifest;
pub mod start;

/// The command did what it was asked for.
pub const SUCCESS: u8 = 0;
/// It could not.
pub const FAILURE: u8 = 1;
/// The command line could not be understood.
pub const USAGE: u8 = 2;
/// A second signal ended it before every request had its answer.
pub const FORCED: u8 = 3;
/// Every row of the input has a line in the output, but some of these tell of failures.
pub const SOME_FAILED: u8 = 4;
/// It was told to stop before the end, by a signal or by a reader that has gone.
pub const INTERRUPTED: u8 = 130;

/// Why a command failed, for the person who ran it.
#[derive(Debug)]
pub struct CommandError {
    /// What to report, with its causes.
    pub error: anyhow::Error,
    /// The exit code.
    pub code: u8,
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self { error: error.into(), code: FAILURE }
    }
}
