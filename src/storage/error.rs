//! Why a model cannot be fetched.

use std::io;
use std::path::PathBuf;

use super::selection::SelectionError;
use super::uri::UriError;
use crate::archives::UnpackError;
use crate::http_client::HttpError;
use crate::lock_file::LockError;

/// Why a model cannot be fetched. No message has credentials.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error(transparent)]
    Uri(#[from] UriError),
    #[error("cannot use the credentials of {service}")]
    Credentials { service: &'static str, source: CredentialsError },
    #[error("cannot fetch `{uri}`")]
    Fetch { uri: String, source: Box<FetchError> },
    #[error("cannot upload to `{uri}`")]
    Upload { uri: String, source: Box<FetchError> },
    #[error("cannot write to `{uri}`: expected an object of S3, Google Cloud Storage or Azure Blob Storage")]
    NotWritable { uri: String },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("`--lock` is for fetched files, but the files of `{}` are linked", path.display())]
    LockOfLink { path: PathBuf },
    #[error("cannot unpack `{uri}`")]
    Unpack { uri: String, source: UnpackError },
    #[error("`{}` does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is not empty, and `{uri}` is a path of this machine; choose another folder", path.display())]
    Occupied { path: PathBuf, uri: String },
    #[error("`{uri}` needs {needed} bytes, but the file system of `{}` has {free}", path.display())]
    NoSpace { uri: String, needed: u64, free: u64, path: PathBuf },
}

impl StorageError {
    /// Reports whether the store could not be reached, or failed by itself.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Fetch { source, .. } if source.is_outage())
    }
}

/// Why a store does not give the objects of a URI.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Selection(#[from] SelectionError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the server answered {status}{}", body.as_ref().map(|body| format!(": {body}")).unwrap_or_default())]
    Status { status: http::StatusCode, body: Option<String> },
    #[error("access denied with {credentials}: {reason}")]
    Denied { credentials: String, reason: String },
    #[error("{0}")]
    Store(String),
    #[error("`{key}` changed while it was fetched")]
    Changed { key: String },
    #[error("`{key}` has {found} bytes, but {expected} were announced")]
    Size { key: String, expected: u64, found: u64 },
    #[error("the content of `{key}` does not have the {kind} {expected} that {teller} it: found {found}")]
    Hash { key: String, kind: &'static str, expected: String, found: String, teller: &'static str },
    #[error("a pin `#sha256=` needs one file, but {found} are selected")]
    Pin { found: usize },
    #[error("it redirects to `{target}`, which is refused: {reason}")]
    Redirect { target: String, reason: &'static str },
    #[error("its objects were not listed within 10 minutes")]
    Listing,
    #[error("it is one file: pass a folder of models, or name the file in the `parameters.uri` of a model")]
    OneFile,
    #[error("the answer of the hub cannot be read: {reason}")]
    Hub { reason: String },
    #[error("the server sends no ranges or no size; fetch the file first, with `mlserver pull`")]
    NoRanges,
    #[error("MLflow: {reason}")]
    Registry { reason: String },
    #[error("the limit `storage_max_bytes` of {limit} bytes is reached")]
    TooLarge { limit: u64 },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl FetchError {
    /// Returns the error for an answer that ended early.
    pub(super) fn truncated(found: usize, needed: usize) -> Self {
        let cause = format!("{found} of {needed} bytes of a part arrived");
        Self::Http(HttpError::Truncated { server: "the store".to_owned(), cause })
    }

    /// Reports whether another attempt may succeed where this one stopped.
    pub(super) const fn may_pass(&self) -> bool {
        match self {
            Self::Http(error) => {
                matches!(error, HttpError::Truncated { .. } | HttpError::Lost { .. } | HttpError::TimedOut { .. })
            }
            _ => false,
        }
    }

    /// Reports whether the store could not be reached, or failed by itself.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Http(error) => !matches!(error, HttpError::Setup { .. } | HttpError::Pem { .. }),
            Self::Status { status, .. } => status.is_server_error(),
            _ => false,
        }
    }
}

/// Why the environment's credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("invalid `{variable}`: {reason}")]
    Variable { variable: String, reason: String },
    #[error(
        "the profile `{profile}` in `{}` {what}, which only the `aws` command resolves; run `eval \"$(aws configure export-credentials \
         --profile {profile} --format env)\"` first",
        path.display()
    )]
    Profile { profile: String, path: PathBuf, what: &'static str },
    #[error("`{}` has no profile `{profile}` with keys (`AWS_PROFILE`)", path.display())]
    NoProfile { profile: String, path: PathBuf },
    #[error(
        "no account: set `AZURE_STORAGE_ACCOUNT_NAME`, or name it in the URI (https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH)"
    )]
    NoAccount,
    #[error("{0}")]
    Store(String),
    #[error(
        "`MLFLOW_TRACKING_URI` is not set: set it to the address of the MLflow server, such as http://127.0.0.1:5000"
    )]
    NoTracking,
    #[error("`HF_HUB_OFFLINE` is set")]
    Offline,
}
