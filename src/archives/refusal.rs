//! The errors of unpacking an archive.

use std::io;
use std::path::{Path, PathBuf};

/// Why an archive is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("it is not an archive: expected tar.gz, tar.bz2, tar.xz, tar.zst, tar or zip")]
    NotAnArchive,
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    #[error("it is damaged")]
    Damaged(#[source] io::Error),
    #[error("its entry `{}` {reason}", entry.display())]
    Refused { entry: PathBuf, reason: Refusal },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Why an entry is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("has an absolute path")]
    Absolute,
    #[error("leads out of the folder")]
    Outside,
    #[error("links to `{}`, which leads out of the folder", target.display())]
    LinkOutside { target: PathBuf },
    #[error("is part of a loop of links")]
    LinkLoop,
    #[error("is a hard link to `{}`, which is not an earlier file of the archive", target.display())]
    HardLink { target: PathBuf },
    #[error("is {0}")]
    Kind(&'static str),
    #[error("has the set-user-ID or set-group-ID bit")]
    SetId,
    #[error("conflicts with an earlier entry of the same path")]
    Taken,
    #[error("has a name or target of more than {limit} bytes")]
    LongName { limit: usize },
    #[error("exceeds the limit of {limit} entries")]
    TooMany { limit: usize },
    #[error("exceeds the {limit} bytes that an archive of this size may unpack to")]
    TooLarge { limit: u64 },
}

impl UnpackError {
    pub fn refused(entry: &Path, reason: Refusal) -> Self {
        Self::Refused { entry: entry.to_owned(), reason }
    }
}
