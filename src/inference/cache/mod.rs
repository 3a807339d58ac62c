//! The response cache, for models that enable it.
//!
//! Concurrent identical requests are coalesced (single-flight): the callers wait for one prediction, which continues for as
//! long as one of them waits. Responses are cached, errors are not. The least recently used responses are evicted first. A
//! response also expires after the configured time, and with the load of its model.

mod key;
mod lru;
mod size;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::InferenceError;
use crate::compute::ComputePool;
use crate::registry::RegisteredModel;
use crate::runtimes::BoxFuture;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::{InferenceRequest, InferenceResponse, Priority, Seldom, Tensor};
use key::CacheKey;
use lru::BoundedLru;

/// How many bytes are hashed in the time in which other work reads or writes one.
const HASHED_AT_ONCE: usize = 16;

/// The limits of the response cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// The maximum number of responses.
    pub entries: NonZeroUsize,
    /// The maximum memory of all responses, in bytes. A response that needs more by itself is not cached.
    pub max_bytes: NonZeroUsize,
    /// How long a response may be reused. `None` means indefinitely.
    pub ttl: Option<Duration>,
}

/// The cached responses. Clones share them.
#[derive(Clone)]
pub struct ResponseCache {
    state: Arc<Mutex<CacheState>>,
    metrics: CacheMetrics,
    compute: ComputePool,
}

struct CacheState {
    /// Responses, without their ids.
    responses: BoundedLru<Arc<InferenceResponse>>,
    /// The computations in flight. Each is cancelled with its last caller.
    computations: HashMap<CacheKey, (u64, WeakShared<SharedComputation>)>,
    /// How many computations have started.
    started: u64,
}

/// A prediction that all coalesced callers wait for.
type SharedComputation = BoxFuture<'static, Result<Arc<InferenceResponse>, Arc<InferenceError>>>;

/// The metrics of the cache.
#[derive(Debug, Clone, Default)]
struct CacheMetrics {
    entries: Gauge,
    bytes: Gauge,
}

/// The result of looking up a key.
enum CacheLookup {
    Hit(Arc<InferenceResponse>),
    /// A computation of another caller is in flight.
    Joined(Shared<SharedComputation>),
    /// A new computation, which runs when one of its callers polls it.
    Started(Shared<SharedComputation>),
}

impl ResponseCache {
    /// Creates an empty cache and registers its metrics.
    pub fn new(options: CacheOptions, compute: ComputePool, registry: &mut MetricsRegistry) -> Self {
        let metrics = CacheMetrics::default();
        registry.register("response_cache_entries", "Responses in the cache", metrics.entries.clone());
        registry.register("response_cache_bytes", "Bytes of the responses in the cache", metrics.bytes.clone());
        let state = CacheState { responses: BoundedLru::new(options), computations: HashMap::new(), started: 0 };
        Self { state: Arc::new(Mutex::new(state)), metrics, compute }
    }

    /// Returns the response to a request, and whether it was cached or already being computed.
    ///
    /// `work` runs the prediction. Its future is dropped when its last caller is.
    ///
    /// # Errors
    ///
    /// Fails if the prediction does; all callers that wait for it get the same error.
    pub(super) async fn get_or_predict<W, F>(
        &self,
        model: &RegisteredModel,
        request: InferenceRequest,
        work: W,
    ) -> (Result<InferenceResponse, InferenceError>, bool)
    where
        W: FnOnce(InferenceRequest) -> F,
        F: Future<Output = Result<InferenceResponse, InferenceError>> + Send + 'static,
    {
        let (key, request) = match self.key(model, request).await {
            Ok(pair) => pair,
            Err(error) => return (Err(error), false),
        };
        let (computation, hit) = match self.find(key, || work(request)) {
            CacheLookup::Hit(response) => return (Ok(InferenceResponse::clone(&response)), true),
            CacheLookup::Joined(computation) => (computation, true),
            CacheLookup::Started(computation) => (computation, false),
        };
        let result = match computation.await {
            Ok(response) => Ok(InferenceResponse::clone(&response)),
            Err(error) => Err(Arc::try_unwrap(error).unwrap_or_else(InferenceError::Shared)),
        };
        (result, hit)
    }

    async fn key(
        &self,
        model: &RegisteredModel,
        request: InferenceRequest,
    ) -> Result<(CacheKey, InferenceRequest), InferenceError> {
        let mut hasher = key::of_model(&model.name, model.version.as_deref(), model.generation);
        let size: usize = request.inputs.iter().map(Tensor::byte_len).sum();
        let hash = move || {
            key::add_request(&mut hasher, &request);
            (hasher.finalize().into(), request)
        };
        Ok(self.compute.run_sized(size / HASHED_AT_ONCE, Priority::default(), hash).await?)
    }

    fn find<F>(&self, key: CacheKey, work: impl FnOnce() -> F) -> CacheLookup
    where
        F: Future<Output = Result<InferenceResponse, InferenceError>> + Send + 'static,
    {
        let mut state = self.state.lock();
        if let Some(response) = state.responses.get(&key, Instant::now()) {
            return CacheLookup::Hit(response);
        }
        if let Some(computation) = state.computations.get(&key).and_then(|(_, computation)| computation.upgrade()) {
            return CacheLookup::Joined(computation);
        }
        state.started += 1;
        let number = state.started;
        let guard = ComputationGuard { state: Arc::clone(&self.state), key, number };
        let (cache, work) = (self.clone(), work());
        let computation = async move {
            let guard = guard;
            let result = work.await.map(|response| cache.insert(key, response)).map_err(Arc::new);
            // From here on, identical requests find the cached response, or start a new computation after an error.
            drop(guard);
            result
        };
        let computation = computation.boxed().shared();
        let weak = computation.downgrade().expect("it has not ended");
        state.computations.insert(key, (number, weak));
        CacheLookup::Started(computation)
    }

    /// Caches a response, unless it is larger than the whole cache may be.
    fn insert(&self, key: CacheKey, mut response: InferenceResponse) -> Arc<InferenceResponse> {
        // Models may answer with the headers of their request, which are those of one caller.
        response.headers = Seldom::default();
        let bytes = size::of(&response);
        if !self.state.lock().responses.fits(bytes) {
            return Arc::new(response);
        }
        size::detach(&mut response);
        let response = Arc::new(response);
        let mut state = self.state.lock();
        let evicted = state.responses.put(key, Arc::clone(&response), bytes, Instant::now());
        self.metrics.entries.set(gauge(state.responses.len()));
        self.metrics.bytes.set(gauge(state.responses.bytes()));
        drop(state);
        // Evicted responses may be large: free them without the lock.
        drop(evicted);
        response
    }
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponseCache").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

/// Removes a computation from those in flight when it ends or is cancelled.
struct ComputationGuard {
    state: Arc<Mutex<CacheState>>,
    key: CacheKey,
    number: u64,
}

impl Drop for ComputationGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        // A new computation may have started after the last caller of this one was dropped.
        if state.computations.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            state.computations.remove(&self.key);
        }
    }
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
