//! Decides which worker loads which model, and what follows from failed loads and from the ends of workers. Pure: no
//! clock, no I/O.
//!
//! A pool has *shared* workers, which load all models. A model that crashes shared workers repeatedly is moved to a
//! worker in *quarantine*, so that the others do not suffer for it. A worker that should be replaced while it serves gets
//! a *successor*, which first loads the same models; then the old worker is *drained*. Loads that fail are retried, with
//! exponential back-off, for each model that has been established.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::dispatch::ModelNumber;
use crate::types::Backoff;

/// A model that crashes its worker twice within this time is moved to quarantine.
const CRASH_WINDOW: Duration = Duration::from_mins(1);
/// The maximum number of workers in quarantine; further models share them.
pub(super) const MAX_QUARANTINE_WORKERS: usize = 4;
/// The exit of a worker that has run this long does not count as an early exit.
const STABLE_AFTER: Duration = Duration::from_mins(1);
const RESTARTS: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
const LOADS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// After this many failed starts in a row, calls fail instead of waiting for the next start.
const MAX_FAILED_STARTS: u32 = 2;

/// What the pool has to do after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Start the worker and keep it running.
    Start(usize),
    /// Send the worker no further calls for the model, and unload it once the current ones have ended.
    Unload { worker: usize, model: ModelNumber },
    /// Send the worker no further calls, and end it once the current ones have ended.
    Drain(usize),
    /// Report that the model has been moved to a worker in quarantine.
    ReportQuarantine { worker: usize, model: ModelNumber },
}

/// What a worker is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerRole {
    /// The slot is free.
    Vacant,
    Shared,
    /// Replaces another worker once it has loaded the same models.
    Successor {
        of: usize,
    },
    Quarantine,
    /// Finishes its calls.
    Draining,
}

/// How a worker ended.
#[derive(Debug)]
pub(super) struct WorkerEnd<E> {
    /// The models whose calls may have caused it, the most likely first.
    pub(super) suspects: Vec<ModelNumber>,
    /// How long the worker ran.
    pub(super) uptime: Duration,
    pub(super) error: E,
    pub(super) reason: String,
}

/// The workers and models of one pool. `L` describes a loaded model, `E` the failure of a load.
#[derive(Debug)]
pub(super) struct Supervision<L, E> {
    can_quarantine: bool,
    workers: Vec<SupervisedWorker>,
    models: BTreeMap<ModelNumber, SupervisedModel<L, E>>,
    actions: Vec<Action>,
}

#[derive(Debug)]
struct SupervisedWorker {
    role: WorkerRole,
    /// The model that the worker is loading now.
    loading: Option<ModelNumber>,
    /// Number of exits since the worker last loaded a model.
    failed_starts: u32,
    /// Number of exits in a row before the worker counted as stable.
    early_exits: u32,
    /// Why the worker is not up.
    last_failure: Option<String>,
    /// How many successors in a row have not been able to load the worker's models, and when to try another.
    failed_successors: u32,
    next_successor: Option<Instant>,
}

impl SupervisedWorker {
    const fn new(role: WorkerRole) -> Self {
        Self {
            role,
            loading: None,
            failed_starts: 0,
            early_exits: 0,
            last_failure: None,
            failed_successors: 0,
            next_successor: None,
        }
    }
}

#[derive(Debug)]
struct SupervisedModel<L, E> {
    /// The state of the model on each worker that should load it.
    loads: BTreeMap<usize, LoadState<L, E>>,
    /// Whether all these workers have loaded the model once. From then on, failures are retried.
    established: bool,
    /// Whether a worker's `load` has returned true.
    was_ready: bool,
    last_crash: Option<Instant>,
    in_quarantine: bool,
}

/// The state of a model on one worker.
#[derive(Debug)]
enum LoadState<L, E> {
    /// The worker has yet to load the model, or is loading it.
    Pending {
        /// Number of failures in a row.
        failures: u32,
    },
    Loaded {
        loaded: L,
        ready: bool,
    },
    Failed {
        error: E,
        failures: u32,
        /// `None` if the load is not retried.
        retry_at: Option<Instant>,
    },
}

/// What became of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadResult {
    Kept,
    /// The load failed and will be retried after this time.
    Retried(Duration),
    /// The worker should no longer have the model: it must be unloaded.
    Discarded,
}

impl<L: Clone, E: Clone> Supervision<L, E> {
    /// Creates `size` shared workers without models. `can_quarantine` is false if the pool must remain one process.
    pub(super) fn new(size: usize, can_quarantine: bool) -> Self {
        Self {
            can_quarantine,
            workers: (0..size).map(|_| SupervisedWorker::new(WorkerRole::Shared)).collect(),
            models: BTreeMap::new(),
            actions: (0..size).map(Action::Start).collect(),
        }
    }

    /// Returns what the pool has to do, in this order.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Adds a model to the `workers` shared workers with the fewest models, and to their successors.
    pub(super) fn add_model(&mut self, model: ModelNumber, workers: usize) {
        let mut chosen = self.workers_with(|role| role == WorkerRole::Shared);
        chosen.sort_by_key(|&worker| self.models_of(worker).count());
        chosen.truncate(workers.max(1));
        let successors = self.workers_with(|role| matches!(role, WorkerRole::Successor { of } if chosen.contains(&of)));
        let loads = chosen.iter().copied().chain(successors).map(|worker| (worker, LoadState::Pending { failures: 0 }));
        let loads = loads.collect();
        let added =
            SupervisedModel { loads, established: false, was_ready: false, last_crash: None, in_quarantine: false };
        self.models.insert(model, added);
    }

    /// Removes a model, and returns the workers that may have it.
    pub(super) fn remove_model(&mut self, model: ModelNumber) -> Vec<usize> {
        let Some(removed) = self.models.remove(&model) else { return Vec::new() };
        let workers: Vec<usize> = removed.loads.into_keys().collect();
        for &worker in &workers {
            if self.workers[worker].role == WorkerRole::Quarantine && self.models_of(worker).next().is_none() {
                self.drain(worker);
            }
            self.settle_successor(worker, None);
        }
        workers
    }

    pub(super) fn has_models(&self) -> bool {
        !self.models.is_empty()
    }

    pub(super) fn has_model(&self, model: ModelNumber) -> bool {
        self.models.contains_key(&model)
    }

    /// Returns whether the worker is to be restarted if it ends.
    pub(super) fn is_permanent(&self, worker: usize) -> bool {
        matches!(self.workers[worker].role, WorkerRole::Shared | WorkerRole::Quarantine)
    }

    pub(super) fn is_draining(&self, worker: usize) -> bool {
        self.workers[worker].role == WorkerRole::Draining
    }

    /// Returns the workers that have loaded the model, or should.
    pub(super) fn workers_of(&self, model: ModelNumber) -> impl Iterator<Item = usize> {
        self.models.get(&model).into_iter().flat_map(|model| model.loads.keys().copied())
    }

    /// Returns the models that a worker has loaded.
    pub(super) fn loaded_models(&self, worker: usize) -> impl Iterator<Item = ModelNumber> {
        let is_loaded =
            move |model: &SupervisedModel<L, E>| matches!(model.loads.get(&worker), Some(LoadState::Loaded { .. }));
        self.models.iter().filter(move |(_, model)| is_loaded(model)).map(|(&number, _)| number)
    }

    /// Returns on how many workers the model can be called.
    pub(super) fn ready_workers(&self, model: ModelNumber) -> usize {
        let states = self.models.get(&model).into_iter().flat_map(|model| model.loads.values());
        states.filter(|state| matches!(state, LoadState::Loaded { ready: true, .. })).count()
    }

    /// Returns the outcome of adding a model, once every worker has loaded it or one could not.
    pub(super) fn outcome(&mut self, number: ModelNumber) -> Option<Result<L, E>> {
        let model = self.models.get_mut(&number)?;
        let mut last = None;
        for state in model.loads.values() {
            match state {
                LoadState::Pending { .. } => return None,
                LoadState::Loaded { loaded, .. } => last = Some(loaded.clone()),
                LoadState::Failed { error, .. } => return Some(Err(error.clone())),
            }
        }
        model.established = true;
        last.map(Ok)
    }

    /// Returns whether calls of the model would wait for workers that fail to start, that cannot load it, or whose `load` has
    /// returned false.
    pub(super) fn is_unavailable(&self, number: ModelNumber) -> bool {
        self.models.get(&number).is_none_or(|model| {
            model.loads.iter().all(|(&worker, state)| match state {
                LoadState::Loaded { ready, .. } => !ready,
                LoadState::Failed { .. } => true,
                LoadState::Pending { .. } => self.workers[worker].failed_starts >= MAX_FAILED_STARTS,
            })
        })
    }

    /// Returns why the workers of a model are not up, and why it could not be loaded.
    pub(super) fn failures(&self, number: ModelNumber) -> (Vec<&str>, Vec<&E>) {
        let Some(model) = self.models.get(&number) else { return (Vec::new(), Vec::new()) };
        let workers = model.loads.keys().filter_map(|&worker| self.workers[worker].last_failure.as_deref()).collect();
        let loads = model.loads.values().filter_map(|state| match state {
            LoadState::Failed { error, .. } => Some(error),
            LoadState::Pending { .. } | LoadState::Loaded { .. } => None,
        });
        (workers, loads.collect())
    }

    /// Returns the next model that a worker should load now.
    pub(super) fn next_load(&self, worker: usize, now: Instant) -> Option<ModelNumber> {
        let is_due = |model: &SupervisedModel<L, E>| match model.loads.get(&worker) {
            Some(LoadState::Pending { .. }) => true,
            Some(LoadState::Failed { retry_at: Some(retry_at), .. }) => *retry_at <= now,
            Some(LoadState::Loaded { .. } | LoadState::Failed { retry_at: None, .. }) | None => false,
        };
        self.models.iter().find(|(_, model)| is_due(model)).map(|(&number, _)| number)
    }

    /// Records that a worker begins to load a model.
    pub(super) fn load_begun(&mut self, worker: usize, number: ModelNumber) {
        self.workers[worker].loading = Some(number);
        let state = self.models.get_mut(&number).and_then(|model| model.loads.get_mut(&worker));
        if let Some(state) = state
            && let LoadState::Failed { failures, .. } = *state
        {
            *state = LoadState::Pending { failures };
        }
    }

    /// Returns whether a model has been established with a `load` that returned true, so that false is a failure now.
    pub(super) fn was_ready(&self, number: ModelNumber) -> bool {
        self.models.get(&number).is_some_and(|model| model.established && model.was_ready)
    }

    /// Records the outcome of a load: the loaded model and whether it can be called, or the failure.
    pub(super) fn load_ended(
        &mut self,
        worker: usize,
        number: ModelNumber,
        outcome: Result<(L, bool), E>,
        now: Instant,
    ) -> LoadResult {
        self.workers[worker].loading = None;
        let Some(model) = self.models.get_mut(&number) else { return LoadResult::Discarded };
        let established = model.established;
        let Some(state) = model.loads.get_mut(&worker) else { return LoadResult::Discarded };
        let result = match outcome {
            Ok((loaded, ready)) => {
                model.was_ready |= ready;
                *state = LoadState::Loaded { loaded, ready };
                LoadResult::Kept
            }
            Err(error) => {
                let failures = match state {
                    LoadState::Pending { failures } | LoadState::Failed { failures, .. } => *failures + 1,
                    LoadState::Loaded { .. } => 1,
                };
                let backoff = LOADS.after(failures - 1);
                *state = LoadState::Failed { error, failures, retry_at: established.then(|| now + backoff) };
                if established { LoadResult::Retried(backoff) } else { LoadResult::Kept }
            }
        };
        // Whatever the outcome, the worker runs.
        let state = &mut self.workers[worker];
        (state.last_failure, state.failed_starts) = (None, 0);
        self.settle_successor(worker, Some(now));
        result
    }

    /// Starts a successor of a worker, unless a worker of the pool is being replaced already.
    pub(super) fn replace(&mut self, worker: usize, now: Instant) {
        let state = &self.workers[worker];
        let is_due = state.next_successor.is_none_or(|next| next <= now);
        let is_shared = matches!(state.role, WorkerRole::Shared | WorkerRole::Quarantine);
        let replaces = |role| matches!(role, WorkerRole::Successor { .. } | WorkerRole::Draining);
        if !is_due || !is_shared || self.models_of(worker).next().is_none() || !self.workers_with(replaces).is_empty() {
            return;
        }
        let successor = self.take_slot(WorkerRole::Successor { of: worker });
        for model in self.models.values_mut() {
            if model.loads.contains_key(&worker) {
                model.loads.insert(successor, LoadState::Pending { failures: 0 });
            }
        }
    }

    /// Records the end of a worker. Returns how long to wait before its next start, or `None` if it is not started again.
    pub(super) fn worker_ended(&mut self, worker: usize, end: WorkerEnd<E>, now: Instant) -> Option<Duration> {
        let WorkerEnd { suspects, uptime, error, reason } = end;
        let state = &mut self.workers[worker];
        let loading = state.loading.take();
        match state.role {
            WorkerRole::Vacant => return None,
            WorkerRole::Draining => {
                self.vacate(worker);
                return None;
            }
            WorkerRole::Successor { of } => {
                self.abandon(worker, of, now);
                self.vacate(worker);
                return None;
            }
            WorkerRole::Shared | WorkerRole::Quarantine => {}
        }
        if uptime >= STABLE_AFTER {
            state.early_exits = 0;
        }
        state.early_exits += 1;
        state.failed_starts += 1;
        state.last_failure = Some(reason);
        let early_exits = state.early_exits;
        for (&number, model) in &mut self.models {
            let Some(load_state) = model.loads.get_mut(&worker) else { continue };
            // The end is attributed to the model that was being loaded. If there was none, the start itself failed, which
            // counts for all pending models.
            let is_blamed = loading == Some(number) || (loading.is_none() && suspects.is_empty());
            // If a call of another model ran as well, that one may be the cause.
            let is_certain = suspects.is_empty();
            match load_state {
                LoadState::Loaded { .. } | LoadState::Failed { retry_at: Some(_), .. } => {
                    *load_state = LoadState::Pending { failures: 0 };
                }
                LoadState::Pending { failures } if is_blamed => {
                    *failures += 1;
                    if !model.established && (is_certain || *failures > 1) {
                        *load_state = LoadState::Failed { error: error.clone(), failures: *failures, retry_at: None };
                    }
                }
                LoadState::Pending { .. } | LoadState::Failed { retry_at: None, .. } => {}
            }
        }
        let was_moved = self.attribute_crash(worker, loading, &suspects, now);
        // A successor that is being prepared takes the place of its worker.
        let is_successor = |role| role == WorkerRole::Successor { of: worker };
        if let Some(successor) = self.workers_with(is_successor).first().copied() {
            self.workers[successor].role = self.workers[worker].role;
            self.vacate(worker);
            return None;
        }
        let state = &mut self.workers[worker];
        if state.role == WorkerRole::Draining {
            self.vacate(worker);
            return None;
        }
        if was_moved {
            // The cause is gone.
            (state.early_exits, state.failed_starts) = (0, 0);
        }
        if was_moved || early_exits <= 1 {
            return Some(Duration::ZERO);
        }
        Some(RESTARTS.after(early_exits - 2))
    }

    /// Counts a crash for the models that may have caused it. Moves the most likely one of those that may have caused two
    /// within [`CRASH_WINDOW`] to quarantine, and returns whether there was one. If it was the wrong one, the next crash
    /// moves another.
    fn attribute_crash(
        &mut self,
        worker: usize,
        loading: Option<ModelNumber>,
        suspects: &[ModelNumber],
        now: Instant,
    ) -> bool {
        let mut was_moved = false;
        for number in loading.into_iter().chain(suspects.iter().copied().filter(|&number| Some(number) != loading)) {
            let has_neighbors = self.models_of(worker).any(|other| other != number);
            let Some(model) = self.models.get_mut(&number) else { continue };
            let is_repeated = model.last_crash.is_some_and(|last| now.saturating_duration_since(last) < CRASH_WINDOW);
            model.last_crash = Some(now);
            if !was_moved
                && is_repeated
                && has_neighbors
                && self.can_quarantine
                && model.established
                && !model.in_quarantine
            {
                self.quarantine(number);
                was_moved = true;
            }
        }
        was_moved
    }

    fn quarantine(&mut self, number: ModelNumber) {
        let workers = self.workers_with(|role| role == WorkerRole::Quarantine);
        let worker = if workers.len() < MAX_QUARANTINE_WORKERS {
            self.take_slot(WorkerRole::Quarantine)
        } else {
            workers.into_iter().min_by_key(|&worker| self.models_of(worker).count()).unwrap_or_default()
        };
        let Some(model) = self.models.get_mut(&number) else { return };
        model.in_quarantine = true;
        let left = std::mem::replace(&mut model.loads, BTreeMap::from([(worker, LoadState::Pending { failures: 0 })]));
        for old in left.into_keys() {
            self.actions.push(Action::Unload { worker: old, model: number });
            self.settle_successor(old, None);
        }
        self.actions.push(Action::ReportQuarantine { worker, model: number });
    }

    /// If a successor has tried to load all models, lets it take the place of its worker or gives it up.
    fn settle_successor(&mut self, worker: usize, now: Option<Instant>) {
        let WorkerRole::Successor { of } = self.workers[worker].role else { return };
        let states = self.models.values().filter_map(|model| model.loads.get(&worker));
        let (mut pending, mut failed) = (false, false);
        for state in states {
            pending |= matches!(state, LoadState::Pending { .. });
            failed |= matches!(state, LoadState::Failed { .. });
        }
        match now {
            Some(now) if failed => {
                self.abandon(worker, of, now);
                self.drain(worker);
            }
            _ if !pending && !failed => {
                self.workers[worker].role = self.workers[of].role;
                self.drain(of);
            }
            _ => {}
        }
    }

    /// Records that a successor has failed.
    fn abandon(&mut self, successor: usize, of: usize, now: Instant) {
        let state = &mut self.workers[of];
        let backoff = LOADS.after(state.failed_successors);
        state.failed_successors += 1;
        state.next_successor = Some(now + backoff);
        self.forget_loads(successor);
    }

    fn drain(&mut self, worker: usize) {
        self.workers[worker].role = WorkerRole::Draining;
        self.forget_loads(worker);
        self.actions.push(Action::Drain(worker));
    }

    fn vacate(&mut self, worker: usize) {
        self.forget_loads(worker);
        self.workers[worker] = SupervisedWorker::new(WorkerRole::Vacant);
    }

    fn forget_loads(&mut self, worker: usize) {
        for model in self.models.values_mut() {
            model.loads.remove(&worker);
        }
    }

    /// Returns a free slot for a new worker, and has it started.
    fn take_slot(&mut self, role: WorkerRole) -> usize {
        let vacant = self.workers_with(|role| role == WorkerRole::Vacant).first().copied();
        let worker = vacant.unwrap_or_else(|| {
            self.workers.push(SupervisedWorker::new(role));
            self.workers.len() - 1
        });
        self.workers[worker] = SupervisedWorker::new(role);
        self.actions.push(Action::Start(worker));
        worker
    }

    fn workers_with(&self, condition: impl Fn(WorkerRole) -> bool) -> Vec<usize> {
        let found = self.workers.iter().enumerate().filter(|(_, worker)| condition(worker.role));
        found.map(|(worker, _)| worker).collect()
    }

    fn models_of(&self, worker: usize) -> impl Iterator<Item = ModelNumber> {
        self.models.iter().filter(move |(_, model)| model.loads.contains_key(&worker)).map(|(&number, _)| number)
    }
}

#[cfg(test)]
mod tests;
