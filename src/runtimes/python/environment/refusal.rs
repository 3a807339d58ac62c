//! Why an archive is not unpacked.

use std::io;
use std::path::{Path, PathBuf};

/// Why an archive is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("it is no archive: expected tar.gz, tar.zst, tar or zip")]
    NoArchive,
    #[error("it is compressed with {0}: expected tar.gz, tar.zst, tar or zip")]
    Compression(&'static str),
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    #[error("it is damaged")]
    Damaged(#[source] io::Error),
    #[error("its entry `{}` {reason}", entry.display())]
    Refused { entry: PathBuf, reason: Refusal },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What is wrong with an entry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("has an absolute path")]
    Absolute,
    #[error("leads out of the environment")]
    Outside,
    #[error("links to `{}`, which leads out of the environment", target.display())]
    LinkOutside { target: PathBuf },
    #[error("is one of links that lead to each other")]
    LinkLoop,
    #[error("is another name of `{}`, which is no file before it", target.display())]
    HardLink { target: PathBuf },
    #[error("is {0}")]
    Kind(&'static str),
    #[error("has the bit that gives its owner's or group's rights to whoever runs it")]
    SetId,
    #[error("lies where something else is")]
    Taken,
    #[error("has a name or target of more than {limit} bytes")]
    LongName { limit: usize },
    #[error("is one of more than {limit}")]
    TooMany { limit: usize },
    #[error("goes beyond the {limit} bytes that an archive of this size may unpack to")]
    TooLarge { limit: u64 },
}

impl UnpackError {
    pub(super) fn refused(entry: &Path, reason: Refusal) -> Self {
        Self::Refused { entry: entry.to_owned(), reason }
    }
}
