//! Why an output cannot be written.

use std::io;
use std::path::PathBuf;

use crate::client::topic::TopicError;

/// Why an output cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("cannot open `{}` for writing", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write to `{}`: it is a symbolic link, which a complete output would replace; name the file itself", path.display())]
    Link { path: PathBuf },
    #[error("another run is writing to `{}`", path.display())]
    Busy { path: PathBuf },
    #[error("cannot read `{}` to resume the run", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not the output of `mlserver infer`: {reason}; remove it, or choose another output", path.display())]
    Foreign { path: PathBuf, reason: String },
    #[error("cannot resume a run that writes to `{}`, which is not a regular file", path.display())]
    NotRegular { path: PathBuf },
    #[error(
        "`{}` has answers to the first {rows} rows, but the input has more, and rows cannot be added to a complete file of \
         columns: remove it, or choose another output (files of JSON lines can be extended)", path.display()
    )]
    CompleteColumns { path: PathBuf, rows: u64 },
    #[error(
        "`{}` is the complete output of an earlier run, whose records are not read again: --resume adds the answers to later \
         records; or choose another output", path.display()
    )]
    CompleteRecords { path: PathBuf },
    #[error("cannot write to {name}; the answers written before are kept")]
    Write { name: String, source: io::Error },
    #[error("cannot convert the answers to columns in `{}`; all of them are in `{}`", to.display(), from.display())]
    Columns { from: PathBuf, to: PathBuf, source: io::Error },
    #[error("this executable was built without Parquet support: build it with the feature `parquet`")]
    WithoutParquet,
    #[error("cannot rename `{0}` to `{1}`; `{0}` is complete", from.display(), to.display())]
    Rename { from: PathBuf, to: PathBuf, source: io::Error },
    /// The reader of the answers has closed the pipe.
    #[error("the reader of the answers has closed the pipe")]
    Closed,
    #[error(transparent)]
    Topic(#[from] TopicError),
}
