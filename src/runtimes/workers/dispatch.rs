//! Decides which call goes to which worker, and when. Pure: no clock, no I/O.
//!
//! A call runs in a *lane* of a worker: the event loop, which runs coroutines, or the threads of a model, for plain
//! functions and for models with an event loop of their own. A lane runs as many calls at a time as it has threads, but a
//! coroutine that waits frees the event loop for others; the worker reports this with a `yielded` frame. A call that is sent to a busy lane could wait there although another worker becomes
//! free. So a lane gets a second call only while it answers quickly. All other calls are queued here for the first worker
//! that can take them: the most urgent first, then in order of arrival, with the aging of [`PriorityScheduler`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::frame::SLOTS;
use crate::types::{Priority, PriorityQueue, PriorityScheduler, QueuePosition};

/// Identifies a loaded model in its pool.
pub(super) type ModelNumber = u64;

/// Slots that are reserved for loads, unloads and pings, so that these never wait for predictions.
const RESERVED_SLOTS: usize = 16;
/// How many calls a lane that answers quickly may have at once: enough that it never waits for the next.
const MAX_CALLS_AHEAD: usize = 8;
/// A lane answers quickly if its calls take less than this on average.
const QUICK_CALL: Duration = Duration::from_millis(2);
/// A lane that has not finished a call for this long no longer answers quickly.
const STALL: Duration = Duration::from_millis(1);

/// The model number of calls that are not predictions.
const NO_MODEL: ModelNumber = 0;

/// A part of a worker that runs calls one after the other, or as many at a time as it has threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Loop,
    Model(ModelNumber),
}

/// Where a worker runs the code of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelThreads {
    /// Whether coroutines run on an event loop of the model's own, rather than on the worker's.
    pub(super) own_loop: bool,
    /// How many plain functions run at a time; at least 1.
    pub(super) threads: usize,
}

/// The model of a call, whether it is a plain function, and its priority.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTarget {
    pub(super) model: ModelNumber,
    pub(super) plain: bool,
    pub(super) priority: Priority,
}

/// A call that has been placed on a worker.
#[derive(Debug)]
pub(super) struct PlacedCall<C> {
    pub(super) id: u64,
    pub(super) call: C,
    model: ModelNumber,
    priority: Priority,
    /// The lane that it occupies or waits for; `None` once it has yielded.
    lane: Option<Lane>,
    plain: bool,
    since: Instant,
    /// When [`Dispatch::observe_begun`] first found that its code had begun.
    begun: Option<Instant>,
}

impl<C> PlacedCall<C> {
    /// Returns whether the call is for a model, rather than for a certain worker.
    pub(super) const fn is_prediction(&self) -> bool {
        self.model != NO_MODEL
    }

    pub(super) const fn model(&self) -> ModelNumber {
        self.model
    }

    /// Returns whether the call keeps others from running, instead of waiting for something.
    pub(super) const fn occupies_lane(&self) -> bool {
        self.lane.is_some()
    }
}

/// Where a call has been placed: the caller sends it to this worker with this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) worker: usize,
    pub(super) id: u64,
}

/// An open prediction.
#[derive(Debug)]
pub(super) struct RunningCall<'a, C> {
    pub(super) model: ModelNumber,
    /// The earliest time at which it may have started to run.
    pub(super) since: Instant,
    /// Whether it occupies a thread of its model, rather than the worker's event loop, or waits for it.
    pub(super) occupies_thread: bool,
    pub(super) call: &'a C,
}

/// The calls of one pool.
#[derive(Debug)]
pub(super) struct Dispatch<C> {
    workers: Vec<WorkerCalls<C>>,
    queues: BTreeMap<ModelNumber, PriorityQueue<QueuedCall<C>>>,
    /// Orders calls of different models, and generates ids.
    sequence: u64,
}

#[derive(Debug)]
struct QueuedCall<C> {
    plain: bool,
    call: C,
}

#[derive(Debug)]
struct WorkerCalls<C> {
    up: bool,
    models: BTreeMap<ModelNumber, ModelOnWorker>,
    slots: Vec<Option<PlacedCall<C>>>,
    open: usize,
    /// How many of the open calls are for models.
    predictions: usize,
    /// How many calls for models have ended since the worker was started.
    ended_predictions: u64,
    lanes: BTreeMap<Lane, LaneState>,
    /// The sequence number of the worker's latest call.
    latest_call: u64,
}

#[derive(Debug)]
struct ModelOnWorker {
    threads: ModelThreads,
    /// How many of its calls have ended.
    ended: u64,
}

#[derive(Debug, Clone, Copy)]
struct LaneState {
    /// Number of calls that occupy the lane or wait for it.
    calls: usize,
    /// When the lane last finished a call, or became busy.
    last_progress: Instant,
    /// How many calls it runs at a time.
    width: usize,
    /// Moving average of the duration of its calls.
    average: Duration,
    /// Decides which queued call is next.
    turns: PriorityScheduler,
}

impl LaneState {
    fn new(width: usize, now: Instant) -> Self {
        Self { calls: 0, last_progress: now, width, average: QUICK_CALL, turns: PriorityScheduler::default() }
    }
}

impl<C> WorkerCalls<C> {
    fn new() -> Self {
        Self {
            up: false,
            models: BTreeMap::new(),
            slots: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            open: 0,
            predictions: 0,
            ended_predictions: 0,
            lanes: BTreeMap::new(),
            latest_call: 0,
        }
    }
}

impl<C> Dispatch<C> {
    /// Creates the dispatch of `workers` workers, all of which are down.
    pub(super) fn new(workers: usize) -> Self {
        let workers = std::iter::repeat_with(WorkerCalls::new).take(workers).collect();
        Self { workers, queues: BTreeMap::new(), sequence: 0 }
    }

    /// Adds a worker, which is down.
    pub(super) fn add_worker(&mut self) {
        self.workers.push(WorkerCalls::new());
    }

    /// Places a call on the least loaded worker that can take it, or queues it and returns `None`.
    pub(super) fn submit(&mut self, target: CallTarget, call: C, now: Instant) -> Option<Placement> {
        let CallTarget { model, plain, priority } = target;
        let queue_is_empty = self.queues.get(&model).is_none_or(PriorityQueue::is_empty);
        let best = (0..self.workers.len())
            .filter_map(|worker| {
                let state = &self.workers[worker];
                let lane = state.free_lane(model, plain, now).filter(|_| queue_is_empty)?;
                Some((state.load(lane), worker, lane))
            })
            .min();
        self.sequence += 1;
        if let Some((_, worker, lane)) = best {
            return Some(self.place(worker, target, Some(lane), call, now));
        }
        let order = self.sequence;
        self.queues.entry(model).or_default().push(QueuePosition { priority, order }, QueuedCall { plain, call });
        None
    }

    /// Places a call that is not a prediction on a certain worker immediately. Returns the call as an error if all slots
    /// are taken.
    pub(super) fn submit_to(&mut self, worker: usize, call: C, now: Instant) -> Result<Placement, C> {
        if self.workers[worker].open >= SLOTS {
            return Err(call);
        }
        self.sequence += 1;
        // Without a lane: its duration must not count towards the average of predictions.
        let target = CallTarget { model: NO_MODEL, plain: false, priority: Priority::default() };
        Ok(self.place(worker, target, None, call, now))
    }

    fn place(&mut self, worker: usize, target: CallTarget, lane: Option<Lane>, call: C, now: Instant) -> Placement {
        let CallTarget { model, plain, priority } = target;
        self.sequence += 1;
        let sequence = self.sequence;
        let state = &mut self.workers[worker];
        let slot = state.slots.iter().position(Option::is_none).expect("open calls are fewer than slots");
        let id = sequence * SLOTS as u64 + slot as u64;
        state.slots[slot] = Some(PlacedCall { id, call, model, priority, lane, plain, since: now, begun: None });
        state.open += 1;
        state.predictions += usize::from(model != NO_MODEL);
        state.latest_call = sequence;
        if let Some(lane) = lane {
            let width = state.width(lane);
            let lane = state.lanes.entry(lane).or_insert_with(|| LaneState::new(width, now));
            if lane.calls == 0 {
                lane.last_progress = now;
            }
            lane.calls += 1;
        }
        Placement { worker, id }
    }

    /// Returns an open call.
    pub(super) fn open_call(&self, worker: usize, id: u64) -> Option<&C> {
        let placed = self.workers.get(worker)?.slots[slot(id)].as_ref()?;
        (placed.id == id).then_some(&placed.call)
    }

    /// Returns an open call, to change it.
    pub(super) fn open_call_mut(&mut self, worker: usize, id: u64) -> Option<&mut C> {
        let placed = self.workers.get_mut(worker)?.slots[slot(id)].as_mut()?;
        (placed.id == id).then_some(&mut placed.call)
    }

    /// Removes a call that has ended. The caller then calls [`Dispatch::place_next`].
    pub(super) fn finish(&mut self, worker: usize, id: u64, now: Instant) -> Option<C> {
        let state = &mut self.workers[worker];
        let placed = state.slots[slot(id)].take_if(|placed| placed.id == id)?;
        state.open -= 1;
        state.predictions -= usize::from(placed.is_prediction());
        if placed.is_prediction() {
            state.ended_predictions += 1;
            if let Some(model) = state.models.get_mut(&placed.model) {
                model.ended += 1;
            }
        }
        if let Some(lane) = placed.lane {
            state.leave_lane(lane, placed.since, now);
        }
        Some(placed.call)
    }

    /// Records that a call is waiting for something, so that its lane can take others.
    pub(super) fn call_yielded(&mut self, worker: usize, id: u64, now: Instant) {
        let state = &mut self.workers[worker];
        let placed = state.slots[slot(id)].as_mut().filter(|placed| placed.id == id);
        let lane = placed.and_then(|placed| Some((placed.lane.take()?, placed.since)));
        if let Some((lane, since)) = lane {
            state.leave_lane(lane, since, now);
        }
    }

    /// Places the next of the queued calls that this worker can run now.
    pub(super) fn place_next(&mut self, worker: usize, now: Instant) -> Option<Placement> {
        let (place, lane, model, turns) = {
            let state = &self.workers[worker];
            let candidates = self.queues.iter().flat_map(|(&model, line)| {
                line.heads()
                    .filter_map(move |(place, queued)| Some((place, state.free_lane(model, queued.plain, now)?, model)))
            });
            let (_, lane, _) = candidates.clone().min_by_key(|(place, ..)| *place)?;
            // Each lane has its own turns, because lanes run concurrently.
            let mut in_lane = candidates.filter(|(_, other, _)| *other == lane);
            let mut turns = state.lanes.get(&lane).map(|lane| lane.turns).unwrap_or_default();
            let place = turns.choose(in_lane.clone().map(|(place, ..)| place))?;
            let model = in_lane.find_map(|(other, _, model)| (other == place).then_some(model))?;
            (place, lane, model, turns)
        };
        let QueuedCall { plain, call } = self.queues.get_mut(&model)?.pop(place.priority)?;
        let state = &mut self.workers[worker];
        let width = state.width(lane);
        state.lanes.entry(lane).or_insert_with(|| LaneState::new(width, now)).turns = turns;
        let target = CallTarget { model, plain, priority: place.priority };
        Some(self.place(worker, target, Some(lane), call, now))
    }

    /// Removes and returns the queued calls for which `predicate` is true.
    pub(super) fn take_queued(&mut self, mut predicate: impl FnMut(ModelNumber, &C) -> bool) -> Vec<C> {
        let mut taken = Vec::new();
        for (model, line) in &mut self.queues {
            taken.extend(line.take_if(|queued| predicate(*model, &queued.call)).into_iter().map(|queued| queued.call));
        }
        self.queues.retain(|_, line| !line.is_empty());
        taken
    }

    /// Removes and returns the queued call of a model for which `predicate` is true.
    pub(super) fn take_queued_call(&mut self, mut predicate: impl FnMut(&C) -> bool) -> Option<C> {
        let taken = self.queues.values_mut().find_map(|line| line.take_first(|queued| predicate(&queued.call)));
        if taken.is_some() {
            self.queues.retain(|_, line| !line.is_empty());
        }
        taken.map(|queued| queued.call)
    }

    /// Returns the number of calls that wait for a worker.
    pub(super) fn queued_calls(&self) -> usize {
        self.queues.values().map(PriorityQueue::len).sum()
    }

    /// Returns the number of open calls of a worker.
    pub(super) fn open_calls(&self, worker: usize) -> usize {
        self.workers[worker].open
    }

    /// Returns how many calls for models a worker has ended since it was started.
    pub(super) fn ended_predictions(&self, worker: usize) -> u64 {
        self.workers[worker].ended_predictions
    }

    /// Returns how many calls of a model a worker has ended since it loaded the model.
    pub(super) fn ended_calls_of(&self, worker: usize, model: ModelNumber) -> u64 {
        self.workers[worker].models.get(&model).map_or(0, |model| model.ended)
    }

    /// Returns how many calls for models are open on a worker.
    pub(super) fn open_predictions(&self, worker: usize) -> usize {
        self.workers[worker].predictions
    }

    /// Returns whether a worker has open calls for a model.
    pub(super) fn has_calls_of(&self, worker: usize, model: ModelNumber) -> bool {
        self.workers[worker].slots.iter().flatten().any(|placed| placed.model == model)
    }

    /// Records which calls have begun.
    pub(super) fn observe_begun(&mut self, worker: usize, now: Instant, mut had_begun: impl FnMut(u64) -> bool) {
        for placed in self.workers[worker].slots.iter_mut().flatten() {
            if placed.begun.is_none() && placed.is_prediction() && had_begun(placed.id) {
                placed.begun = Some(now);
            }
        }
    }

    /// Returns the open predictions of a worker.
    pub(super) fn running_calls(&self, worker: usize) -> impl Iterator<Item = RunningCall<'_, C>> {
        let state = &self.workers[worker];
        state.slots.iter().flatten().filter(|placed| placed.is_prediction()).map(|placed| {
            let lane = placed.lane.and_then(|lane| state.lanes.get(&lane));
            // Until the lane's last progress, the call may have waited for another one.
            let free_since = lane.map_or(placed.since, |lane| lane.last_progress.max(placed.since));
            RunningCall {
                model: placed.model,
                since: placed.begun.map_or(free_since, |begun| begun.min(free_since)),
                occupies_thread: matches!(placed.lane, Some(Lane::Model(_))),
                call: &placed.call,
            }
        })
    }

    /// Returns the calls that a worker has lost: those with ids less than `ping` that are not among `open`, the calls that
    /// the worker reports when it answers that ping.
    pub(super) fn lost_calls(&self, worker: usize, ping: u64, open: &[u64]) -> Vec<u64> {
        let placed = self.workers[worker].slots.iter().flatten();
        placed.map(|placed| placed.id).filter(|id| *id < ping && !open.contains(id)).collect()
    }

    /// Marks a worker as up: it can take calls, but has no models yet.
    pub(super) fn worker_up(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        (state.up, state.ended_predictions) = (true, 0);
    }

    /// Gives a worker no further predictions; its open calls continue.
    pub(super) fn drain_worker(&mut self, worker: usize) {
        self.workers[worker].models.clear();
    }

    /// Allows a worker to take calls for a model.
    pub(super) fn add_model(&mut self, worker: usize, model: ModelNumber, threads: ModelThreads) {
        self.workers[worker].models.insert(model, ModelOnWorker { threads, ended: 0 });
    }

    /// Gives a worker no further calls for a model; its open calls continue.
    pub(super) fn remove_model(&mut self, worker: usize, model: ModelNumber) {
        let state = &mut self.workers[worker];
        state.models.remove(&model);
        state.lanes.retain(|lane, state| *lane != Lane::Model(model) || state.calls > 0);
    }

    /// Marks a worker as down, and returns the calls that were open on it.
    pub(super) fn worker_down(&mut self, worker: usize) -> Vec<PlacedCall<C>> {
        let state = &mut self.workers[worker];
        state.up = false;
        (state.open, state.predictions) = (0, 0);
        state.models.clear();
        state.lanes.clear();
        state.slots.iter_mut().filter_map(Option::take).collect()
    }

    /// Queues a call again that had not begun when its worker died, ahead of all calls of its model with equal priority.
    pub(super) fn requeue_at_front(&mut self, placed: PlacedCall<C>) {
        let PlacedCall { model, priority, plain, call, .. } = placed;
        self.queues.entry(model).or_default().push_front(priority, QueuedCall { plain, call });
    }
}

fn slot(id: u64) -> usize {
    usize::try_from(id % SLOTS as u64).expect("it is below the number of slots")
}

impl<C> WorkerCalls<C> {
    /// Returns the lane of a call of the model, if the worker can take the call now.
    fn free_lane(&self, model: ModelNumber, plain: bool, now: Instant) -> Option<Lane> {
        if !self.up || self.predictions >= SLOTS - RESERVED_SLOTS {
            return None;
        }
        let threads = self.models.get(&model)?.threads;
        let lane = if plain || threads.own_loop { Lane::Model(model) } else { Lane::Loop };
        let is_free = self.lanes.get(&lane).is_none_or(|lane| {
            let quick = lane.average < QUICK_CALL && now.saturating_duration_since(lane.last_progress) < STALL;
            lane.calls < lane.width || (quick && lane.calls < lane.width - 1 + MAX_CALLS_AHEAD)
        });
        is_free.then_some(lane)
    }

    fn width(&self, lane: Lane) -> usize {
        let Lane::Model(model) = lane else { return 1 };
        self.models.get(&model).map_or(1, |model| model.threads.threads.max(1))
    }

    /// Returns the load of a worker, to compare workers by: calls in the lane, then open calls, then the least recent call.
    fn load(&self, lane: Lane) -> (usize, usize, u64) {
        (self.lanes.get(&lane).map_or(0, |lane| lane.calls), self.open, self.latest_call)
    }

    fn leave_lane(&mut self, lane: Lane, since: Instant, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            let duration = now.saturating_duration_since(since.max(lane.last_progress));
            lane.average = (lane.average * 3 + duration) / 4;
            lane.last_progress = now;
            lane.calls = lane.calls.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelNumber = 1;
    const SHARED_LOOP: ModelThreads = ModelThreads { own_loop: false, threads: 1 };

    fn up(workers: usize) -> Dispatch<&'static str> {
        let mut dispatch = Dispatch::new(workers);
        for worker in 0..workers {
            dispatch.worker_up(worker);
            dispatch.add_model(worker, MODEL, SHARED_LOOP);
        }
        dispatch
    }

    fn coroutine(model: ModelNumber) -> CallTarget {
        CallTarget { model, plain: false, priority: Priority::default() }
    }

    fn plain(model: ModelNumber) -> CallTarget {
        CallTarget { plain: true, ..coroutine(model) }
    }

    fn urgent(number: u64) -> CallTarget {
        CallTarget { priority: Priority::new(number), ..coroutine(MODEL) }
    }

    fn at(milliseconds: u64) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn submit_prefers_least_loaded_worker_then_queues() {
        let mut dispatch = up(2);
        let first = dispatch.submit(coroutine(MODEL), "a", at(0)).unwrap();
        let second = dispatch.submit(coroutine(MODEL), "b", at(0)).unwrap();
        assert_ne!(first.worker, second.worker);
        assert_eq!(dispatch.submit(coroutine(MODEL), "c", at(0)), None, "no lane is known to be quick yet");
        assert_eq!(dispatch.finish(second.worker, second.id, at(500)), Some("b"));
        let third = dispatch.place_next(second.worker, at(500)).unwrap();
        assert_eq!(dispatch.open_call(third.worker, third.id), Some(&"c"));
        assert_eq!(dispatch.place_next(first.worker, at(500)), None);
    }

    #[test]
    fn submit_avoids_worker_with_slow_call() {
        let mut dispatch = up(2);
        let slow = dispatch.submit(coroutine(MODEL), "slow", at(0)).unwrap();
        for moment in 0..100 {
            let quick = dispatch.submit(coroutine(MODEL), "quick", at(moment)).unwrap();
            assert_ne!(quick.worker, slow.worker);
            assert_eq!(dispatch.finish(quick.worker, quick.id, at(moment)), Some("quick"));
        }
    }

    #[test]
    fn quick_lane_takes_calls_ahead_until_it_stalls() {
        let mut dispatch = up(1);
        let sent = |dispatch: &mut Dispatch<&'static str>, now| dispatch.submit(coroutine(MODEL), "x", now);
        for _ in 0..10 {
            let call = sent(&mut dispatch, at(0)).unwrap();
            dispatch.finish(0, call.id, at(0));
        }
        for _ in 0..MAX_CALLS_AHEAD {
            assert!(sent(&mut dispatch, at(0)).is_some());
        }
        assert_eq!(sent(&mut dispatch, at(0)), None, "the lane has the maximum of calls");
        let mut dispatch = up(1);
        for _ in 0..10 {
            let call = sent(&mut dispatch, at(0)).unwrap();
            dispatch.finish(0, call.id, at(0));
        }
        assert!(sent(&mut dispatch, at(0)).is_some());
        assert_eq!(sent(&mut dispatch, at(5)), None, "the lane has stalled for 5 ms");
    }

    #[test]
    fn yielded_call_frees_lane_but_keeps_slot() {
        let mut dispatch = up(1);
        let mut open = Vec::new();
        for _ in 0..SLOTS - RESERVED_SLOTS {
            let call = dispatch.submit(coroutine(MODEL), "waits", at(0)).unwrap();
            dispatch.call_yielded(0, call.id, at(0));
            open.push(call.id);
        }
        assert_eq!(dispatch.submit(coroutine(MODEL), "one too many", at(0)), None);
        assert!(dispatch.submit_to(0, "ping", at(0)).is_ok());
        dispatch.finish(0, open[3], at(0));
        assert!(dispatch.place_next(0, at(0)).is_some());
    }

    #[test]
    fn thread_lane_does_not_block_loop_lane() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2, SHARED_LOOP);
        dispatch.submit(plain(MODEL), "slow", at(0)).unwrap();
        assert_eq!(dispatch.submit(plain(MODEL), "behind", at(1)), None);
        assert!(dispatch.submit(coroutine(2), "concurrent", at(1)).is_some());
    }

    #[test]
    fn calls_of_dead_worker_are_requeued_for_another() {
        let mut dispatch = up(2);
        let lost = dispatch.submit(coroutine(MODEL), "lost", at(0)).unwrap();
        let other = dispatch.submit(coroutine(MODEL), "other", at(0)).unwrap();
        dispatch.submit(coroutine(MODEL), "later", at(0));
        let placed = dispatch.worker_down(lost.worker);
        assert_eq!(placed.iter().map(|placed| placed.call).collect::<Vec<_>>(), ["lost"]);
        for placed in placed {
            dispatch.requeue_at_front(placed);
        }
        assert_eq!(dispatch.place_next(lost.worker, at(0)), None, "it is down");
        dispatch.finish(other.worker, other.id, at(0));
        let next = dispatch.place_next(other.worker, at(0)).unwrap();
        assert_eq!(dispatch.open_call(next.worker, next.id), Some(&"lost"));
        assert_eq!(dispatch.take_queued(|_, call| *call == "later"), ["later"]);
        assert_eq!(dispatch.queued_calls(), 0);
    }

    #[test]
    fn finished_id_does_not_match_later_call_in_same_slot() {
        let mut dispatch = up(1);
        let first = dispatch.submit(coroutine(MODEL), "a", at(0)).unwrap();
        dispatch.finish(0, first.id, at(0));
        let second = dispatch.submit(coroutine(MODEL), "b", at(0)).unwrap();
        assert_eq!(first.id % SLOTS as u64, second.id % SLOTS as u64, "the same slot");
        assert_eq!(dispatch.finish(0, first.id, at(0)), None);
        assert_eq!(dispatch.open_call(0, second.id), Some(&"b"));
    }

    #[test]
    fn urgent_calls_go_first_and_others_age() {
        let mut dispatch = up(1);
        let mut running = dispatch.submit(urgent(5), "running", at(0)).unwrap();
        for name in ["bulk 1", "bulk 2"] {
            assert_eq!(dispatch.submit(urgent(10), name, at(0)), None);
        }
        let mut order = Vec::new();
        for _ in 0..60 {
            assert_eq!(dispatch.submit(urgent(1), "urgent", at(1)), None);
            dispatch.finish(running.worker, running.id, at(1)).unwrap();
            running = dispatch.place_next(0, at(1)).unwrap();
            order.push(*dispatch.open_call(0, running.id).unwrap());
        }
        let places = |name| order.iter().position(|other| *other == name).unwrap();
        let patience = PriorityScheduler::MAX_SKIPS as usize;
        assert_eq!((places("urgent"), places("bulk 1"), places("bulk 2")), (0, patience, 2 * patience + 1));
    }

    #[test]
    fn own_loop_is_a_lane_of_its_own() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2, ModelThreads { own_loop: true, threads: 1 });
        dispatch.submit(coroutine(MODEL), "blocks the loop", at(0)).unwrap();
        assert!(dispatch.submit(coroutine(2), "concurrent", at(0)).is_some());
        assert_eq!(dispatch.submit(plain(2), "same thread", at(0)), None);
    }

    #[test]
    fn threads_run_as_many_calls_at_a_time() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2, ModelThreads { own_loop: false, threads: 3 });
        for _ in 0..3 {
            assert!(dispatch.submit(plain(2), "runs", at(0)).is_some());
        }
        assert_eq!(dispatch.submit(plain(2), "waits", at(0)), None);
    }

    #[test]
    fn call_in_one_of_several_threads_runs_since_it_has_begun() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2, ModelThreads { own_loop: false, threads: 2 });
        let hung = dispatch.submit(plain(2), "hung", at(0)).unwrap();
        dispatch.observe_begun(0, at(1), |id| id == hung.id);
        for moment in 1..10 {
            let quick = dispatch.submit(plain(2), "quick", at(moment * 1000)).unwrap();
            dispatch.finish(0, quick.id, at(moment * 1000 + 1));
        }
        let running: Vec<_> = dispatch.running_calls(0).map(|running| running.since).collect();
        assert_eq!(running, [at(1)], "progress of the other thread does not count for it");
    }

    #[test]
    fn lost_calls_are_those_that_the_worker_does_not_report() {
        let mut dispatch = up(1);
        let known = dispatch.submit(coroutine(MODEL), "known", at(0)).unwrap();
        dispatch.call_yielded(0, known.id, at(0));
        let lost = dispatch.submit(coroutine(MODEL), "lost", at(0)).unwrap();
        dispatch.call_yielded(0, lost.id, at(0));
        let ping = dispatch.submit_to(0, "ping", at(0)).unwrap();
        let later = dispatch.submit(coroutine(MODEL), "later", at(0)).unwrap();
        assert_eq!(dispatch.lost_calls(0, ping.id, &[known.id]), [lost.id]);
        assert!(dispatch.open_call(0, later.id).is_some());
    }

    #[test]
    fn drained_worker_takes_no_calls_and_keeps_its_own() {
        let mut dispatch = up(2);
        let open = dispatch.submit(coroutine(MODEL), "open", at(0)).unwrap();
        dispatch.drain_worker(open.worker);
        for _ in 0..2 {
            assert_ne!(dispatch.submit(coroutine(MODEL), "next", at(0)).map(|placed| placed.worker), Some(open.worker));
        }
        assert_eq!(dispatch.open_predictions(open.worker), 1);
        assert_eq!(dispatch.finish(open.worker, open.id, at(1)), Some("open"));
        assert_eq!(dispatch.place_next(open.worker, at(1)), None);
        assert_eq!(dispatch.ended_predictions(open.worker), 1);
    }
}
