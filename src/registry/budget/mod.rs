//! Many models in little memory: those that are not needed are put out, and loaded again when somebody asks for them.
//!
//! [`BudgetLoader`] puts an [`OnDemand`] runtime in front of that of each model. Every model is loaded once, so that what
//! does not load is known, and what it says of itself is kept. From then on [`ledger`] says which are in memory. A request
//! for one that is not waits in the model's queue, within its bounds, while a task of the model's own loads it.

mod ledger;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{error, info};

use super::warm_up::warm_up;
use super::{LoadError, Loader, Loading, chain};
use crate::repository::Artifact;
use crate::runtimes::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeStatus,
};
use crate::settings::ModelSettings;
use crate::telemetry::memory::MemoryMetrics;
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse};
use ledger::{Ledger, LedgerId, MemoryRequest, Settlement};

pub use ledger::TooLarge;

/// How often whoever waits for memory looks whether a model has stayed for long enough.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A load that failed is tried again after this. Until it goes well, callers are told at once.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The deepest folder whose files count as an artifact's.
const MAX_DEPTH: usize = 16;

/// Loads models as another loader does, and keeps as many of them in memory as a budget lets.
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
    fn load(&self, settings: ModelSettings) -> Loading<'_> {
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
            // Nobody else can ask for it yet, and it may go again when it has shown what it is.
            let wanted = WaitingCaller::new(&model);
            let runtime = model.bring_in(false).await?;
            drop(wanted);
            model.is_loading.store(false, Ordering::Release);
            // It warms up whenever it is loaded.
            let description = Description { answers_warmup: true, ..runtime.description().clone() };
            Ok(Arc::new(OnDemand { model, description }) as Arc<dyn Runtime>)
        })
    }
}

impl BudgetLoader {
    /// Takes the bytes of a model's files for those that it takes in memory.
    async fn size_of_artifact(&self, settings: &ModelSettings) -> u64 {
        let Ok(Artifact::Path(path)) = Artifact::resolve(settings, &self.working_directory) else { return 0 };
        // A file system that fails here fails the load, too, with a reason.
        tokio::task::spawn_blocking(move || size_of(&path, MAX_DEPTH)).await.unwrap_or_default()
    }
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
    /// Wakes those who wait for a model.
    signals: BTreeMap<LedgerId, watch::Sender<()>>,
}

impl LedgerState {
    fn add(&mut self, bytes: u64, pinned: bool) -> LedgerId {
        let id = self.ledger.add(bytes, pinned);
        self.signals.insert(id, watch::Sender::new(()));
        id
    }

    fn signal(&self, id: LedgerId) {
        if let Some(signal) = self.signals.get(&id) {
            signal.send_replace(());
        }
    }

    fn settle(&mut self) -> Settlement<Arc<dyn Runtime>> {
        let settlement = self.ledger.settle(Instant::now());
        for &id in settlement.granted.iter().chain(&settlement.changed) {
            self.signal(id);
        }
        settlement
    }
}

impl MemoryBudget {
    /// Changes something, and lets the others have what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut LedgerState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let settlement = state.settle();
        self.metrics.set_used(state.ledger.used());
        drop(state);
        self.metrics.count_evicted(settlement.evicted.len());
        // What they hold is freed here, where nobody waits for the lock.
        drop(settlement);
        result
    }
}

/// A model that may be in memory.
#[derive(Debug)]
struct BudgetedModel {
    id: LedgerId,
    settings: ModelSettings,
    inner: Arc<dyn Loader>,
    memory: Arc<MemoryBudget>,
    /// Those who wait for it to be there.
    callers: AtomicUsize,
    is_loading: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
    /// Why it could not be loaded the last time.
    failure: Mutex<Option<String>>,
}

/// Gives back the memory of a model that has not been loaded, or its place in the line.
struct MemoryClaim<'a>(&'a BudgetedModel);

impl Drop for MemoryClaim<'_> {
    fn drop(&mut self) {
        self.0.memory.change(|state| state.ledger.forgo(self.0.id));
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
            self.0.memory.change(|state| state.ledger.leave_line(self.0.id));
        }
    }
}

/// A model in memory, for as long as somebody uses it.
struct Lease {
    model: Arc<BudgetedModel>,
    /// Nothing only while it is being dropped.
    runtime: Option<Arc<dyn Runtime>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Before it counts as idle, so that whoever puts it out has the last of it.
        self.runtime = None;
        let BudgetedModel { id, memory, .. } = &*self.model;
        let mut state = memory.state.lock();
        state.ledger.done(*id);
        let short = state.ledger.is_short();
        drop(state);
        if short {
            memory.change(|_| ());
        }
    }
}

impl BudgetedModel {
    /// Waits for memory, and loads the model into it, where it stays for callers that are `expected`. One does so at a
    /// time.
    async fn bring_in(&self, expected: bool) -> Result<Arc<dyn Runtime>, LoadError> {
        let claim = MemoryClaim(self);
        if !self.wait_for_memory().await? {
            drop(claim);
            return Err(LoadError::NotWanted);
        }
        let runtime = self.inner.load(self.settings.clone()).await?;
        warm_up(runtime.as_ref(), &self.settings).await?;
        let unwanted = self.memory.change(|state| {
            let model = Arc::clone(&runtime);
            let unwanted = state.ledger.loaded(self.id, model, expected, Instant::now());
            state.signal(self.id);
            unwanted
        });
        drop(unwanted);
        // What is there has nothing to give back.
        drop(claim);
        Ok(runtime)
    }

    /// Waits until the model may be loaded. Returns false when nobody waits for it any more, or it is there already.
    async fn wait_for_memory(&self) -> Result<bool, TooLarge> {
        let Some(mut changed) = self.memory.state.lock().signals.get(&self.id).map(watch::Sender::subscribe) else {
            return Ok(false);
        };
        loop {
            // Before it has others put out in vain.
            if self.callers.load(Ordering::Acquire) == 0 {
                return Ok(false);
            }
            match self.memory.change(|state| state.ledger.want(self.id))? {
                MemoryRequest::Present => return Ok(false),
                // What was granted in the same change is told by the next question.
                MemoryRequest::Later if !self.is_granted() => {}
                MemoryRequest::Granted | MemoryRequest::Later => return Ok(true),
            }
            // Fails when the model has been removed, which the next question tells.
            let _ = tokio::time::timeout(LOOK_AGAIN, changed.changed()).await;
        }
    }

    fn is_granted(&self) -> bool {
        matches!(self.memory.state.lock().ledger.want(self.id), Ok(MemoryRequest::Granted))
    }

    /// Waits until the model is in memory, and keeps it there.
    async fn lease(self: &Arc<Self>) -> Result<Lease, RuntimeError> {
        let _caller = WaitingCaller::new(self);
        let mut changed = None;
        loop {
            {
                let mut state = self.memory.state.lock();
                if let Some(runtime) = state.ledger.borrow(self.id) {
                    return Ok(Lease { model: Arc::clone(self), runtime: Some(runtime) });
                }
                if changed.is_none() {
                    changed = state.signals.get(&self.id).map(watch::Sender::subscribe);
                }
            }
            if let Some(reason) = &*self.failure.lock() {
                return Err(RuntimeError::not_loaded(reason));
            }
            self.start_loading();
            let still_there = match &mut changed {
                Some(changed) => changed.changed().await.is_ok(),
                None => false,
            };
            if !still_there {
                return Err(RuntimeError::not_loaded("the model has been unloaded"));
            }
        }
    }

    /// Has the model loaded, unless that is under way.
    fn start_loading(self: &Arc<Self>) {
        if self.is_loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let model = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut persistent = None;
            while !model.try_to_load().await {
                // From now on it is wanted even without callers, so that the server is ready again when it can be.
                persistent.get_or_insert_with(|| WaitingCaller::new(&model));
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            drop(persistent);
            model.is_loading.store(false, Ordering::Release);
            // Whoever came too late for this load begins another.
            model.memory.state.lock().signal(model.id);
        });
        *self.task.lock() = Some(task.abort_handle());
    }
}

impl BudgetedModel {
    /// Loads the model, unless nobody wants it any more, and tells whether that is done with.
    async fn try_to_load(&self) -> bool {
        let (name, version) = (self.settings.name.as_str(), self.settings.version());
        let started = Instant::now();
        match self.bring_in(true).await {
            Ok(_) => {
                let seconds = started.elapsed().as_secs_f64();
                info!(model = name, version, seconds, "Loaded model '{name}' on demand.");
                self.memory.metrics.count_loaded();
                *self.failure.lock() = None;
                true
            }
            Err(LoadError::NotWanted) => true,
            Err(failure) => {
                let reason = chain(&failure);
                error!(model = name, version, "Couldn't load model '{name}' on demand: {reason}");
                *self.failure.lock() = Some(reason);
                self.memory.state.lock().signal(self.id);
                false
            }
        }
    }
}

impl Drop for BudgetedModel {
    fn drop(&mut self) {
        let gone = self.memory.change(|state| {
            state.signals.remove(&self.id);
            state.ledger.remove(self.id)
        });
        drop(gone);
    }
}

/// A model that is loaded when somebody asks for it, and may be put out when nobody does.
///
/// Its memory is what `memory_bytes` of its settings says, or else the size of its artifact.
struct OnDemand {
    model: Arc<BudgetedModel>,
    /// That of the runtime when it was first loaded.
    description: Description,
}

impl OnDemand {
    /// Asks the runtime, if it is in memory.
    fn ask<T>(&self, question: impl FnOnce(&dyn Runtime) -> T) -> Option<T> {
        let runtime = self.model.memory.state.lock().ledger.peek(self.model.id).cloned();
        runtime.map(|runtime| question(runtime.as_ref()))
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
        if let Some(status) = self.ask(Runtime::status) {
            return status;
        }
        match self.model.failure.lock().clone() {
            Some(reason) => RuntimeStatus::Unavailable { reason },
            None => RuntimeStatus::Available { remark: Some("evicted; loads on the next request".to_owned()) },
        }
    }

    fn parallelism(&self) -> usize {
        self.ask(Runtime::parallelism).unwrap_or(1)
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
            runtime.predict(request, progress).await
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        let opened = async move {
            let lease = self.model.lease().await?;
            let answers = Arc::clone(lease.runtime()?).predict_stream(requests);
            Ok::<_, RuntimeError>((lease, answers))
        };
        Box::pin(stream::once(opened).flat_map(|opened| {
            match opened {
                Ok((lease, answers)) => stream::unfold((answers, lease), |(mut answers, lease)| async move {
                    let answer = answers.next().await?;
                    Some((answer, (answers, lease)))
                })
                .left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        }))
    }

    fn call(&self, route: usize, call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        Box::pin(async move {
            let lease = self.model.lease().await?;
            let runtime = lease.runtime()?;
            runtime.call(route, call).await
        })
    }
}

impl Lease {
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
