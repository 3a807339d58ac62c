//! The errors of predicting with and loading models.
//!
//! Each family has its own error types. The rest of the server sees a kind, which decides what clients receive,
//! and the family's error as its reason.

use std::borrow::Cow;
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::workers::WorkerLoadError;
use super::{MAX_ARTIFACT_BYTES, StepSettingsError};
use crate::codecs::CodecError;
use crate::compute::ComputeError;
use crate::types::{OverBudget, RequestErrorKind, RequestedOutput, short};

/// Any error of a model family.
pub type FamilyError = Box<dyn Error + Send + Sync>;

/// A failed prediction: a kind, and the error of the model family as its reason.
#[derive(Debug)]
pub struct RuntimeError {
    kind: RequestErrorKind,
    reason: FamilyError,
    /// That of the model's code; empty if there is none.
    traceback: Box<str>,
    is_logged: AtomicBool,
}

impl RuntimeError {
    pub fn new(kind: RequestErrorKind, reason: impl Into<FamilyError>) -> Self {
        Self { kind, reason: reason.into(), traceback: Box::default(), is_logged: AtomicBool::new(false) }
    }

    /// The model cannot answer this request.
    pub fn invalid_request(reason: impl Into<FamilyError>) -> Self {
        Self::new(RequestErrorKind::BadRequest, reason)
    }

    /// The model rejected the request.
    pub fn rejected(status: u16, message: impl Into<FamilyError>) -> Self {
        Self::new(RequestErrorKind::Rejected { status }, message)
    }

    /// The model's code raised an exception.
    pub fn exception(message: impl Into<FamilyError>) -> Self {
        Self::new(RequestErrorKind::ModelFailed, message)
    }

    /// The model is not in memory, and cannot be loaded. The message is for everybody who may use the model, so it has no details.
    pub fn not_loaded(message: &'static str) -> Self {
        Self::new(RequestErrorKind::Unavailable, message)
    }

    /// A check that should have made this impossible has failed: a bug of the server.
    pub fn inconsistent(reason: impl Into<FamilyError>) -> Self {
        Self::new(RequestErrorKind::Internal, InconsistentError(reason.into()))
    }

    pub fn stopping() -> Self {
        Self::new(RequestErrorKind::Stopping, "the server is shutting down; try another one")
    }

    /// A stream of requests ended before its first.
    pub fn no_request() -> Self {
        Self::invalid_request("the stream of requests is empty: expected at least one")
    }

    /// The model has no route of this number: a bug of the server.
    pub fn no_route(route: usize) -> Self {
        Self::inconsistent(format!("the model has no route {route}"))
    }

    /// Adds the traceback of the model's code, for the log.
    #[must_use]
    pub fn with_traceback(self, traceback: &str) -> Self {
        Self { traceback: traceback.trim_end().into(), ..self }
    }

    /// Returns the traceback of the model's code; empty if there is none.
    pub fn traceback(&self) -> &str {
        &self.traceback
    }

    /// Marks the error as logged, so that it is not logged again.
    #[must_use]
    pub fn logged(self) -> Self {
        self.mark_logged();
        self
    }

    /// Marks the error as logged, and returns whether it already was. Requests may share an error.
    pub fn mark_logged(&self) -> bool {
        self.is_logged.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the error has been logged.
    pub fn is_logged(&self) -> bool {
        self.is_logged.load(Ordering::Relaxed)
    }

    /// Returns the kind, which decides what clients see.
    pub const fn kind(&self) -> RequestErrorKind {
        self.kind
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(formatter)
    }
}

impl Error for RuntimeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

impl From<OverBudget> for RuntimeError {
    fn from(error: OverBudget) -> Self {
        let kind = match error {
            OverBudget::InUse { .. } => RequestErrorKind::OverBudget,
            OverBudget::TooLarge { .. } => RequestErrorKind::TooLarge,
        };
        Self::new(kind, error)
    }
}

impl From<CodecError> for RuntimeError {
    fn from(error: CodecError) -> Self {
        Self::invalid_request(error)
    }
}

/// A contradiction between the evaluator and the checks before it.
#[derive(Debug, thiserror::Error)]
#[error("the model rejected a validated request; this is a bug in mlserver: {0}")]
struct InconsistentError(FamilyError);

impl From<ComputeError> for RuntimeError {
    fn from(error: ComputeError) -> Self {
        let kind = if error.is_overload() { RequestErrorKind::Overloaded } else { RequestErrorKind::Internal };
        Self::new(kind, error)
    }
}

impl OutputError {
    /// Checks that no more outputs are requested than a model has. The original answers repeated outputs, so a few may be.
    pub(super) fn check_count(outputs: &[RequestedOutput], available: usize) -> Result<(), Self> {
        let found = outputs.len();
        if found <= available {
            return Ok(());
        }
        let mut seen = HashSet::new();
        // If none is repeated, one of them does not exist, which is the better error.
        match outputs.iter().find(|output| !seen.insert(output.name.as_str())) {
            Some(RequestedOutput { name, .. }) => {
                Err(Self::TooMany { found, output: short(name).to_owned(), available })
            }
            None => Ok(()),
        }
    }

    pub(super) fn unsupported(runtime: &'static str, supported: &'static str, found: &str) -> Self {
        Self::Unsupported { runtime, supported, found: short(found).to_owned() }
    }
}

/// Why a native runtime cannot compute the outputs that a request asks for.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// The runtime does not have the output.
    #[error("{runtime} only supports {supported} as outputs ({found} was received)")]
    Unsupported { runtime: &'static str, supported: &'static str, found: String },
    /// Each of them would have to be sent.
    #[error(
        "{found} outputs are requested, of which `{output}` more than once, but the model has {available}: request each once"
    )]
    TooMany { found: usize, output: String, available: usize },
    /// This model does not have the output. The lone quote is the original's.
    #[error("{model} models do not support '{output}")]
    Missing { model: Cow<'static, str>, output: &'static str },
}

impl From<OutputError> for RuntimeError {
    fn from(error: OutputError) -> Self {
        Self::invalid_request(error)
    }
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("implementation `{implementation}` cannot be served natively, which `parameters.extra.backend` requires")]
    NotNative { implementation: String },
    /// The manifest of an inference graph has problems, or names models that the server does not have.
    #[error("the inference graph cannot be served: {0}")]
    Graph(FamilyError),
    /// A Python model could not be loaded, with the error of its pool.
    #[error(transparent)]
    Python(FamilyError),
    /// A native model could not be loaded in a worker.
    #[error(transparent)]
    Worker(#[from] WorkerLoadError),
    #[error("`parameters.extra.backend` is `{found}`, expected `native`, `python` or `auto`")]
    Backend { found: String },
    #[error("`parameters.extra.{setting}` is `{found}`, expected {expected}")]
    Extra { setting: &'static str, found: String, expected: &'static str },
    /// The settings of a native step are not as they should be.
    #[error(transparent)]
    Step(#[from] StepSettingsError),
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is a directory without a model file: expected one of {expected}", path.display())]
    Directory { path: PathBuf, expected: String },
    #[error("`{}` has {size} bytes, more than the limit of {MAX_ARTIFACT_BYTES}", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    #[error("`{}` is a pointer of Git LFS and not the file itself: run `git lfs pull` where it was cloned", path.display())]
    LfsPointer { path: PathBuf },
    /// The native evaluator of the family cannot take the artifact.
    #[error("`{}` is not a model that can be served natively", path.display())]
    Artifact {
        path: PathBuf,
        /// Whether the artifact may be valid, and only needs features that the native evaluator lacks.
        unsupported: bool,
        source: FamilyError,
    },
}

impl LoadError {
    /// Reports whether Python may be able to serve the artifact that the native evaluator cannot.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::Artifact { unsupported: true, .. } | Self::Worker(WorkerLoadError::Unsupported { .. }))
    }
}
