//! What the clients of all buckets have in common.

use std::sync::Arc;

use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig};

use crate::storage::error::CredentialsError;
use crate::storage::source::{Bucket, Source, Uploads};

/// Retries are those of [`Transport`](crate::storage::transport::Transport).
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

pub(super) fn bucket_source(store: impl ObjectStore + MultipartStore, key: &str, credentials: String) -> Source {
    let store = Arc::new(store);
    let uploads = Uploads::Parts(Arc::clone(&store) as _);
    Source::Bucket(Bucket { store, uploads, key: key.to_owned(), credentials })
}

pub(super) fn store_error(error: &object_store::Error) -> CredentialsError {
    CredentialsError::Store(error.to_string())
}
