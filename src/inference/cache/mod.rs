//! Answers that were given before, for models that ask for it.
//!
//! A model is asked once for what is asked at the same time: the callers wait for one answer, and the work goes on for as
//! long as one of them does. Answers are kept, errors are not. Those used least recently go first; beside that, an answer
//! lasts for the time that the setting gives, and no longer than its model.

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
use crate::types::{InferenceRequest, InferenceResponse, Tensor};
use key::Key;
use lru::BoundedLru;

/// Inputs with more bytes than this are hashed on the compute pool; below it, that takes less than 0.3 ms.
const LONG_INPUTS: usize = 1 << 20;

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// The most answers.
    pub entries: NonZeroUsize,
    /// The most memory that they take, in bytes. An answer that takes more by itself is not kept.
    pub max_bytes: NonZeroUsize,
    /// How long an answer may be given again; without end if nothing.
    pub ttl: Option<Duration>,
}

/// The answers. Clones share them.
#[derive(Clone)]
pub struct ResponseCache {
    state: Arc<Mutex<CacheState>>,
    metrics: Metrics,
    compute: ComputePool,
}

struct CacheState {
    /// Answers without id.
    answers: BoundedLru<Arc<InferenceResponse>>,
    /// The work that is under way. Each ends with its last caller.
    computations: HashMap<Key, (u64, WeakShared<SharedComputation>)>,
    /// How many computations have started.
    started: u64,
}

/// Asks a model, for all who wait.
type SharedComputation = BoxFuture<'static, Result<Arc<InferenceResponse>, Arc<InferenceError>>>;

/// What the answers come to.
#[derive(Debug, Clone, Default)]
struct Metrics {
    entries: Gauge,
    bytes: Gauge,
}

/// What there is for a key.
enum Lookup {
    Answer(Arc<InferenceResponse>),
    /// Somebody has asked the model.
    Joined(Shared<SharedComputation>),
    /// The model is asked by whoever polls it first.
    Started(Shared<SharedComputation>),
}

impl ResponseCache {
    /// Makes an empty cache and registers its metrics.
    pub fn new(options: CacheOptions, compute: ComputePool, registry: &mut MetricsRegistry) -> Self {
        let metrics = Metrics::default();
        registry.register("response_cache_entries", "Responses in the cache", metrics.entries.clone());
        registry.register("response_cache_bytes", "Bytes of the responses in the cache", metrics.bytes.clone());
        let state = CacheState { answers: BoundedLru::new(options), computations: HashMap::new(), started: 0 };
        Self { state: Arc::new(Mutex::new(state)), metrics, compute }
    }

    /// Returns the answer to a request, and whether it was there or on its way already.
    ///
    /// `work` asks the model. Its future is dropped when nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// Fails as the model does; all callers that wait for it get the same error.
    pub(super) async fn answer<W, F>(
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
            Lookup::Answer(answer) => return (Ok(InferenceResponse::clone(&answer)), true),
            Lookup::Joined(computation) => (computation, true),
            Lookup::Started(computation) => (computation, false),
        };
        let result = match computation.await {
            Ok(answer) => Ok(InferenceResponse::clone(&answer)),
            Err(error) => Err(Arc::try_unwrap(error).unwrap_or_else(InferenceError::Shared)),
        };
        (result, hit)
    }

    async fn key(
        &self,
        model: &RegisteredModel,
        request: InferenceRequest,
    ) -> Result<(Key, InferenceRequest), InferenceError> {
        let mut hasher = key::of_model(&model.name, model.version.as_deref(), model.generation);
        let size: usize = request.inputs.iter().map(Tensor::byte_len).sum();
        let hash = move || {
            key::add_request(&mut hasher, &request);
            (hasher.finalize().into(), request)
        };
        if size > LONG_INPUTS { self.compute.run(hash).await.map_err(InferenceError::Panicked) } else { Ok(hash()) }
    }

    fn find<F>(&self, key: Key, work: impl FnOnce() -> F) -> Lookup
    where
        F: Future<Output = Result<InferenceResponse, InferenceError>> + Send + 'static,
    {
        let mut state = self.state.lock();
        if let Some(answer) = state.answers.get(&key, Instant::now()) {
            return Lookup::Answer(answer);
        }
        if let Some(computation) = state.computations.get(&key).and_then(|(_, computation)| computation.upgrade()) {
            return Lookup::Joined(computation);
        }
        state.started += 1;
        let number = state.started;
        let guard = ComputationGuard { state: Arc::clone(&self.state), key, number };
        let (cache, work) = (self.clone(), work());
        let computation = async move {
            let guard = guard;
            let outcome = work.await.map(|response| cache.keep(key, response)).map_err(Arc::new);
            // From here on, who asks for the same finds the answer, or asks again after an error.
            drop(guard);
            outcome
        };
        let computation = computation.boxed().shared();
        let weak = computation.downgrade().expect("it has not ended");
        state.computations.insert(key, (number, weak));
        Lookup::Started(computation)
    }

    /// Keeps an answer, unless it is larger than all that may be kept.
    fn keep(&self, key: Key, mut response: InferenceResponse) -> Arc<InferenceResponse> {
        let bytes = size::of(&response);
        if !self.state.lock().answers.fits(bytes) {
            return Arc::new(response);
        }
        size::detach(&mut response);
        let answer = Arc::new(response);
        let mut state = self.state.lock();
        let gone = state.answers.put(key, Arc::clone(&answer), bytes, Instant::now());
        self.metrics.entries.set(gauge(state.answers.len()));
        self.metrics.bytes.set(gauge(state.answers.bytes()));
        drop(state);
        // What has gone may be large: nobody waits while it is freed.
        drop(gone);
        answer
    }
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponseCache").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

/// Takes a computation out of those under way, however it ends.
struct ComputationGuard {
    state: Arc<Mutex<CacheState>>,
    key: Key,
    number: u64,
}

impl Drop for ComputationGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        // Another may have started between the last caller's leaving and this.
        if state.computations.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            state.computations.remove(&self.key);
        }
    }
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
