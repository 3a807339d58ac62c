//! The memory budget: models that are not needed are evicted, and loaded again on demand.
//!
//! [`BudgetLoader`] wraps the runtime of each model in an [`OnDemand`] runtime. Every model is loaded once at first, so that a
//! model that does not load is reported, and its description is known. From then on, [`ledger`] decides which models are in
//! memory. A request for an evicted model waits in the model's queue, within its bounds, while a task loads the model.

mod ledger;
mod progress;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{error, info};

use super::warm_up::warm_up;
use super::{LoadError, Loader, RuntimeFuture, chain};
use crate::repository::Artifact;
use crate::runtimes::{
    Asked, BoxFuture, CallReply, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError,
    RuntimeStatus,
};
use crate::settings::ModelSettings;
use crate::telemetry::memory::MemoryMetrics;
use crate::types::{CustomCall, InferenceRequest, InferenceResponse, V1Handlers};
use ledger::{GrowthError, Ledger, LedgerChanges, LedgerId, MemoryRequest};
use progress::BudgetedProgress;

pub use ledger::TooLarge;

/// How often a model that waits for memory checks whether another has been in memory for long enough.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait before retrying a failed load. Until it succeeds, requests fail at once.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum depth of folders whose files count towards the size of an artifact.
const MAX_DEPTH: usize = 16;

/// Wraps a loader, and keeps as many of its models in memory as a budget allows.
#[derive(Debug)]
pub struct BudgetLoader {
    inner: Arc<dyn Loader>,
    memory: Arc<MemoryBudget>,
    working_directory: PathBuf,
}

impl BudgetLoader {
    /// Keeps the models that `inner` loads within `bytes` of memory, counted as [`OnDemand`] counts it.
    pub fn new(inner: impl Loader + 'static, bytes: u64, working_directory: PathBuf, metrics: MemoryMetrics) -> Self {
        metrics.set_budget(bytes);
        let state = LedgerState { ledger: Ledger::new(bytes), signals: BTreeMap::new() };
        Self {
            inner: Arc::new(inner),
            memory: Arc::new(MemoryBudget { state: Mutex::new(state), metrics }),
            working_directory,
        }
    }
}

impl Loader for BudgetLoader {
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_> {
        Box::pin(async move {
            let bytes = match settings.parameters.memory_bytes {
                Some(bytes) => bytes,
                None => self.size_of_artifact(&settings).await,
            };
            let id = self.memory.state.lock().add(bytes, settings.parameters.pinned);
            let model = Arc::new(BudgetedModel {
                id,
                settings,
                inner: Arc::clone(&self.inner),
                memory: Arc::clone(&self.memory),
                callers: AtomicUsize::new(0),
                is_loading: AtomicBool::new(true),
                task: Mutex::default(),
                failure: Mutex::default(),
            });
            // No request can reach the model yet, and it may be evicted once its description is known.
            let caller = WaitingCaller::new(&model);
            let runtime = model.load_within_budget(false).await?;
            drop(caller);
            model.is_loading.store(false, Ordering::Release);
            // The model is warmed up whenever it is loaded.
            let description = runtime.description().clone();
            // Health checks must not bring models into memory.
            let v1 = description.v1.map(|handlers| V1Handlers { ready: None, ..handlers });
            let description = Description { answers_warmup: true, v1, ..description };
            Ok(Arc::new(OnDemand { model, description }) as Arc<dyn Runtime>)
        })
    }
}

impl BudgetLoader {
    /// Estimates the memory of a model by the size of its files.
    async fn size_of_artifact(&self, settings: &ModelSettings) -> u64 {
        let Ok(Artifact::Path(path)) = Artifact::resolve(settings, &self.working_directory) else { return 0 };
        // If the file system fails here, the load fails too, and reports the reason.
        tokio::task::spawn_blocking(move || artifact_size(&path)).await.unwrap_or_default()
    }
}

/// Returns the size of a file, or of the files of a folder, in bytes.
pub fn artifact_size(path: &Path) -> u64 {
    size_of(path, MAX_DEPTH)
}

fn size_of(path: &Path, depth: usize) -> u64 {
    let Ok(metadata) = std::fs::metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let Some(below) = depth.checked_sub(1) else { return 0 };
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| size_of(&entry.path(), below)).sum()
}

/// The memory of all models.
#[derive(Debug)]
struct MemoryBudget {
    state: Mutex<LedgerState>,
    metrics: MemoryMetrics,
}

#[derive(Debug)]
struct LedgerState {
    ledger: Ledger<Arc<dyn Runtime>>,
    /// Wakes the callers that wait for a model.
    signals: BTreeMap<LedgerId, watch::Sender<()>>,
}

impl LedgerState {
    fn add(&mut self, bytes: u64, pinned: bool) -> LedgerId {
        let id = self.ledger.add(bytes, pinned);
        self.signals.insert(id, watch::Sender::new(()));
        id
    }

    fn freed(&mut self, id: LedgerId) {
        self.ledger.freed(id);
        self.signal(id);
    }

    fn signal(&self, id: LedgerId) {
        if let Some(signal) = self.signals.get(&id) {
            signal.send_replace(());
        }
    }

    fn reallocate(&mut self) -> LedgerChanges<Arc<dyn Runtime>> {
        let changes = self.ledger.reallocate(Instant::now());
        for &id in changes.granted.iter().chain(&changes.changed) {
            self.signal(id);
        }
        changes
    }
}

impl MemoryBudget {
    /// Changes the ledger, and applies the effects on other models.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut LedgerState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        loop {
            let LedgerChanges { evicted, .. } = state.reallocate();
            self.metrics.set_used(state.ledger.used());
            drop(state);
            self.metrics.count_evicted(evicted.len());
            let freed: Vec<LedgerId> = evicted.into_iter().filter_map(|(id, model)| self.unload(id, model)).collect();
            if freed.is_empty() {
                return result;
            }
            state = self.state.lock();
            for id in freed {
                state.freed(id);
            }
        }
    }

    /// Unloads a model that was evicted or removed, and returns its id if its memory is free at once. Called without locks.
    fn unload(self: &Arc<Self>, id: LedgerId, model: Arc<dyn Runtime>) -> Option<LedgerId> {
        let mut unloading = model.unload();
        if (&mut unloading).now_or_never().is_some() {
            return Some(id);
        }
        // Without a runtime, the process is about to end.
        let runtime = Handle::try_current().ok()?;
        let memory = Arc::clone(self);
        runtime.spawn(async move {
            unloading.await;
            memory.change(|state| state.freed(id));
        });
        None
    }
}

/// A model under the memory budget, in memory or not.
#[derive(Debug)]
struct BudgetedModel {
    id: LedgerId,
    settings: ModelSettings,
    inner: Arc<dyn Loader>,
    memory: Arc<MemoryBudget>,
    /// The number of callers that wait for the model.
    callers: AtomicUsize,
    is_loading: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
    /// The error of the last load, if it failed.
    failure: Mutex<Option<String>>,
}

/// Frees the memory, or the queue position, of a model whose load did not complete.
struct MemoryClaim<'a>(&'a BudgetedModel);

impl Drop for MemoryClaim<'_> {
    fn drop(&mut self) {
        self.0.memory.change(|state| state.ledger.abandon(self.0.id));
    }
}

/// A caller that waits for a model.
struct WaitingCaller<'a>(&'a BudgetedModel);

impl<'a> WaitingCaller<'a> {
    fn new(model: &'a BudgetedModel) -> Self {
        model.callers.fetch_add(1, Ordering::AcqRel);
        Self(model)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        if self.0.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.memory.change(|state| state.ledger.cancel_request(self.0.id));
        }
    }
}

/// A model that waits for more memory.
struct WaitingGrowth<'a>(&'a BudgetedModel);

impl Drop for WaitingGrowth<'_> {
    fn drop(&mut self) {
        self.0.memory.change(|state| state.ledger.cancel_growth(self.0.id));
    }
}

/// Keeps a model in memory while it is used.
struct ModelLease {
    model: Arc<BudgetedModel>,
    /// `None` only while the lease is being dropped.
    runtime: Option<Arc<dyn Runtime>>,
}

impl Drop for ModelLease {
    fn drop(&mut self) {
        // Dropped before the model counts as idle, so that the caller that evicts it holds the last reference.
        self.runtime = None;
        let BudgetedModel { id, memory, .. } = &*self.model;
        let mut state = memory.state.lock();
        state.ledger.release(*id);
        let short = state.ledger.has_waiting();
        drop(state);
        if short {
            memory.change(|_| ());
        }
    }
}

impl BudgetedModel {
    /// Waits for memory and loads the model. If callers are `expected`, the model stays in memory for them. Called by one task
    /// at a time.
    async fn load_within_budget(self: &Arc<Self>, expected: bool) -> Result<Arc<dyn Runtime>, LoadError> {
        let claim = MemoryClaim(self);
        if !self.wait_for_memory().await? {
            drop(claim);
            return Err(LoadError::Cancelled);
        }
        let runtime = self.inner.load(self.settings.clone()).await?;
        warm_up(runtime.as_ref(), &self.settings, &self.progress(Arc::new(()))).await?;
        let unneeded = self.memory.change(|state| {
            let model = Arc::clone(&runtime);
            let unneeded = state.ledger.loaded(self.id, model, expected, Instant::now());
            state.signal(self.id);
            unneeded
        });
        drop(unneeded);
        // The claim has no effect on a model that has been loaded.
        drop(claim);
        Ok(runtime)
    }

    /// Waits until the model may be loaded. Returns false if no caller waits for it any more, or if it is already in memory.
    async fn wait_for_memory(&self) -> Result<bool, TooLarge> {
        let Some(mut changed) = self.memory.state.lock().signals.get(&self.id).map(watch::Sender::subscribe) else {
            return Ok(false);
        };
        loop {
            // Checked first, so that no other model is evicted in vain.
            if self.callers.load(Ordering::Acquire) == 0 {
                return Ok(false);
            }
            match self.memory.change(|state| state.ledger.request(self.id))? {
                MemoryRequest::Resident => return Ok(false),
                // The memory may have been granted in the same change.
                MemoryRequest::Pending if !self.is_granted() => {}
                MemoryRequest::Granted | MemoryRequest::Pending => return Ok(true),
            }
            // Fails if the model has been removed, which the next request for memory reports.
            let _ = tokio::time::timeout(RECHECK_INTERVAL, changed.changed()).await;
        }
    }

    /// Adds the memory of the model to the progress of one of its requests.
    fn progress(self: &Arc<Self>, request: Arc<dyn Progress>) -> Arc<dyn Progress> {
        Arc::new(BudgetedProgress { request, model: Arc::clone(self) })
    }

    /// Waits until the model, which is in use or being loaded, has taken this many bytes since it was loaded.
    async fn grow(&self, bytes: u64) -> Result<(), GrowthError> {
        let Some(mut changed) = self.memory.state.lock().signals.get(&self.id).map(watch::Sender::subscribe) else {
            return Ok(());
        };
        let _waiting = WaitingGrowth(self);
        loop {
            let grow = |state: &mut LedgerState| state.ledger.grow(self.id, bytes);
            // The memory may have been granted or refused in the same change.
            if self.memory.change(grow)? || grow(&mut self.memory.state.lock())? {
                return Ok(());
            }
            // Fails only if the model has been removed.
            if let Ok(Err(_)) = tokio::time::timeout(RECHECK_INTERVAL, changed.changed()).await {
                return Ok(());
            }
        }
    }

    fn is_granted(&self) -> bool {
        matches!(self.memory.state.lock().ledger.request(self.id), Ok(MemoryRequest::Granted))
    }

    /// Waits until the model is in memory, and returns a lease that keeps it there.
    async fn lease(self: &Arc<Self>) -> Result<ModelLease, RuntimeError> {
        // Most models are in memory. Only a caller that waits costs a pass over all models.
        if let Some(lease) = self.lease_now(&mut self.memory.state.lock()) {
            return Ok(lease);
        }
        let _caller = WaitingCaller::new(self);
        let mut changed = None;
        loop {
            {
                let mut state = self.memory.state.lock();
                if let Some(lease) = self.lease_now(&mut state) {
                    return Ok(lease);
                }
                if changed.is_none() {
                    changed = state.signals.get(&self.id).map(watch::Sender::subscribe);
                }
            }
            if self.failure.lock().is_some() {
                return Err(RuntimeError::not_loaded("the model cannot be loaded; the log has the reason"));
            }
            self.start_loading();
            let still_registered = match &mut changed {
                Some(changed) => changed.changed().await.is_ok(),
                None => false,
            };
            if !still_registered {
                return Err(RuntimeError::not_loaded("the model has been unloaded"));
            }
        }
    }

    fn lease_now(self: &Arc<Self>, state: &mut LedgerState) -> Option<ModelLease> {
        let runtime = state.ledger.acquire(self.id)?;
        Some(ModelLease { model: Arc::clone(self), runtime: Some(runtime) })
    }

    /// Starts a task that loads the model, unless one is running.
    fn start_loading(self: &Arc<Self>) {
        if self.is_loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let model = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut persistent = None;
            let mut failures = 0_u32;
            while !model.try_to_load(failures.is_power_of_two() || failures == 0).await {
                failures = failures.saturating_add(1);
                // Continue even without callers, so that the server becomes ready again when the model can be loaded.
                persistent.get_or_insert_with(|| WaitingCaller::new(&model));
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            drop(persistent);
            model.is_loading.store(false, Ordering::Release);
            // Callers that arrived too late for this load start another.
            model.memory.state.lock().signal(model.id);
        });
        *self.task.lock() = Some(task.abort_handle());
    }
}

impl BudgetedModel {
    /// Loads the model, unless no caller waits for it any more. Returns false if the load failed and has to be retried. The
    /// failure is logged if it is the first one or `is_logged`.
    async fn try_to_load(self: &Arc<Self>, is_logged: bool) -> bool {
        let (name, version) = (self.settings.name.as_str(), self.settings.version());
        let started = Instant::now();
        match self.load_within_budget(true).await {
            Ok(_) => {
                let seconds = started.elapsed().as_secs_f64();
                info!(model = name, version, seconds, "Loaded model '{name}' on demand.");
                self.memory.metrics.count_loaded();
                *self.failure.lock() = None;
                true
            }
            Err(LoadError::Cancelled) => true,
            Err(failure) => {
                let reason = chain(&failure);
                let before = self.failure.lock().replace(reason.clone());
                if is_logged || before.as_ref() != Some(&reason) {
                    error!(model = name, version, "Couldn't load model '{name}' on demand: {reason}");
                }
                self.memory.state.lock().signal(self.id);
                false
            }
        }
    }
}

impl Drop for BudgetedModel {
    fn drop(&mut self) {
        let removed = self.memory.change(|state| {
            state.signals.remove(&self.id);
            state.ledger.remove(self.id)
        });
        if let Some(id) = removed.and_then(|model| self.memory.unload(self.id, model)) {
            self.memory.change(|state| state.freed(id));
        }
    }
}

/// A model that is loaded when a request needs it, and may be evicted when it is idle.
///
/// Its memory is the setting `memory_bytes`, or else the size of its artifact.
struct OnDemand {
    model: Arc<BudgetedModel>,
    /// The description of the runtime from the first load.
    description: Description,
}

impl OnDemand {
    /// Calls `query` with the runtime, if it is in memory.
    fn query<T>(&self, query: impl FnOnce(&dyn Runtime) -> T) -> Option<T> {
        let runtime = self.model.memory.state.lock().ledger.peek(self.model.id).cloned();
        runtime.map(|runtime| query(runtime.as_ref()))
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OnDemand").field("model", &self.model.settings.name).finish_non_exhaustive()
    }
}

impl Runtime for OnDemand {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        if let Some(status) = self.query(Runtime::status) {
            return status;
        }
        match self.model.failure.lock().clone() {
            Some(reason) => RuntimeStatus::Unavailable { reason },
            None => RuntimeStatus::Available { remark: Some("evicted; loads on the next request".to_owned()) },
        }
    }

    fn parallelism(&self) -> usize {
        self.query(Runtime::parallelism).unwrap_or(1)
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(async move {
            let lease = self.model.lease().await?;
            let runtime = lease.runtime()?;
            runtime.predict(request, self.model.progress(progress)).await
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        let opened = async move {
            let lease = self.model.lease().await?;
            let responses = Arc::clone(lease.runtime()?).predict_stream(requests, self.model.progress(progress));
            Ok::<_, RuntimeError>((lease, responses))
        };
        Box::pin(stream::once(opened).flat_map(|opened| {
            match opened {
                Ok((lease, responses)) => stream::unfold((responses, lease), |(mut responses, lease)| async move {
                    let response = responses.next().await?;
                    Some((response, (responses, lease)))
                })
                .left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        }))
    }

    fn answers_at_once(&self, asked: Asked<'_>) -> bool {
        self.query(|runtime| runtime.answers_at_once(asked)).unwrap_or(false)
    }

    /// Removes the model from the ledger, which waits for its memory.
    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        Box::pin(async move {
            let lease = self.model.lease().await?;
            let runtime = lease.runtime()?;
            let reply = runtime.call(route, call, progress).await?;
            Ok(reply.holding(lease))
        })
    }
}

impl ModelLease {
    fn runtime(&self) -> Result<&Arc<dyn Runtime>, RuntimeError> {
        self.runtime.as_ref().ok_or_else(RuntimeError::stopping)
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        if let Some(task) = self.model.task.lock().take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
