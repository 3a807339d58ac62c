//! The connections to stores, which all models share: one pool for each way to verify certificates, and one client for each bucket.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use object_store::ObjectStore;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::download::FetchPermits;
use super::source::{Bucket, Uploads};
use super::transport::{MAX_ANSWER, Retries, RetryPolicy, Transport};
use super::uri::{AzureAccount, Remote, StorageService};
use crate::http_client::HttpOptions;

/// How many clients and pools are kept.
const MAX_CLIENTS: usize = 64;
/// How long a client is used: afterwards, keys are read again.
const MAX_AGE: Duration = Duration::from_mins(5);
/// How many stores are listed at once.
const LISTINGS: usize = 4;

/// How the certificates of servers are verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    pub(super) ca: Option<PathBuf>,
    pub(super) insecure: bool,
}

/// What a client is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientKey {
    pub(super) service: StorageService,
    pub(super) bucket: String,
    pub(super) account: Option<AzureAccount>,
    pub(super) remote: Option<Remote>,
}

struct Client {
    key: ClientKey,
    created: Instant,
    store: Arc<dyn ObjectStore>,
    uploads: Uploads,
    credentials: String,
}

#[derive(Debug)]
struct Pool {
    tls: TlsOptions,
    /// When the file of certificates was changed: others need new connections.
    modified: Option<SystemTime>,
    transport: Transport,
}

/// The connections of all models.
pub(super) struct Clients {
    /// The longest time without a byte.
    pub(super) idle: Duration,
    pub(super) retries: Retries,
    pools: Mutex<Vec<Pool>>,
    buckets: Mutex<Vec<Client>>,
    pub(super) permits: FetchPermits,
    pub(super) listings: Semaphore,
}

impl fmt::Debug for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Clients").field("idle", &self.idle).finish_non_exhaustive()
    }
}

impl Clients {
    pub(super) fn new(idle: Duration, files: usize, retries: RetryPolicy) -> Self {
        Self {
            idle,
            retries: Retries::new(retries),
            pools: Mutex::default(),
            buckets: Mutex::default(),
            permits: FetchPermits::new(files),
            listings: Semaphore::new(LISTINGS),
        }
    }

    /// Returns the pool of connections for a way to verify certificates.
    pub(super) fn transport(&self, tls: TlsOptions) -> Transport {
        let modified = tls.ca.as_ref().and_then(|path| path.metadata().ok()?.modified().ok());
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.tls == tls && pool.modified == modified) {
            return pool.transport.clone();
        }
        let http =
            HttpOptions { ca: tls.ca.clone(), insecure: tls.insecure, ..HttpOptions::new(self.idle, MAX_ANSWER) };
        let transport = Transport::new(http, self.retries.clone());
        if pools.len() == MAX_CLIENTS {
            pools.remove(0);
        }
        pools.push(Pool { tls, modified, transport: transport.clone() });
        transport
    }

    /// Returns objects of a bucket that has a client.
    pub(super) fn find(&self, key: &ClientKey, object: &str) -> Option<Bucket> {
        let clients = self.buckets.lock();
        let found = clients.iter().find(|client| client.key == *key && client.created.elapsed() < MAX_AGE)?;
        let (store, uploads) = (Arc::clone(&found.store), found.uploads.clone());
        let credentials = found.credentials.clone();
        Some(Bucket { store, uploads, key: object.to_owned(), credentials })
    }

    /// Keeps the client of a bucket.
    pub(super) fn keep(&self, key: ClientKey, bucket: &Bucket) {
        let mut clients = self.buckets.lock();
        clients.retain(|client| client.key != key);
        if clients.len() == MAX_CLIENTS {
            clients.remove(0);
        }
        let (store, uploads) = (Arc::clone(&bucket.store), bucket.uploads.clone());
        let credentials = bucket.credentials.clone();
        clients.push(Client { key, created: Instant::now(), store, uploads, credentials });
    }

    /// Forgets all clients, since keys were refused and may have been replaced.
    pub(super) fn forget(&self) {
        self.buckets.lock().clear();
    }
}
