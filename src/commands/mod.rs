//! What the subcommands do, one file each, and how they end.

pub mod build;
pub mod config;
mod custom_repository;
pub mod dockerfile;
pub mod init;
pub mod inspect;
pub mod start;

/// The command did what it was asked for.
pub const SUCCESS: u8 = 0;
/// It could not.
pub const FAILURE: u8 = 1;
/// The command line could not be understood.
pub const USAGE: u8 = 2;
/// A second signal ended the server before every request had its answer.
pub const FORCED: u8 = 3;

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
