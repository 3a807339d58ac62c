//! The commands: what they print, write and reject.

mod compare;
mod config;
mod dockerfile;
mod doctor;
mod generated;
mod graph;
mod hostile;
pub(crate) mod infer;
mod init;
mod inspect;
mod look;
mod manifest;
#[cfg(not(feature = "storage"))]
mod pull;
