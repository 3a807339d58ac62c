//! Decides which call goes to which worker, and when. Pure: no clock, no I/O.
//!
//! A call runs in a *lane* of a worker: the event loop, which runs coroutines, or the thread of a model whose `predict` is a
//! plain function. A lane runs one call at a time, but a coroutine that waits frees the event loop for others; the worker
//! reports this with a `yielded` frame. A call that is sent to a busy lane could wait there although another worker becomes
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

/// A part of a worker that runs calls one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Loop,
    Thread(ModelNumber),
}

/// The model and lane of a call, and its priority.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTarget {
    pub(super) model: ModelNumber,
    pub(super) lane: Lane,
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
    since: Instant,
}

impl<C> PlacedCall<C> {
    /// Returns whether the call is for a model, rather than for a certain worker.
    pub(super) const fn is_prediction(&self) -> bool {
        self.model != NO_MODEL
    }
}

/// Where a call has been placed: the caller sends it to this worker with this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) worker: usize,
    pub(super) id: u64,
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
    lane: Lane,
    call: C,
}

#[derive(Debug)]
struct WorkerCalls<C> {
    up: bool,
    models: Vec<ModelNumber>,
    slots: Vec<Option<PlacedCall<C>>>,
    open: usize,
    /// How many of the open calls are for models.
    predictions: usize,
    lanes: BTreeMap<Lane, LaneState>,
    /// The sequence number of the worker's latest call.
    latest_call: u64,
}

#[derive(Debug, Clone, Copy)]
struct LaneState {
    /// Number of calls that occupy the lane or wait for it.
    calls: usize,
    /// When the lane last finished a call, or became busy.
    last_progress: Instant,
    /// Moving average of the duration of its calls.
    average: Duration,
    /// Decides which queued call is next.
    turns: PriorityScheduler,
}

impl LaneState {
    fn new(now: Instant) -> Self {
        Self { calls: 0, last_progress: now, average: QUICK_CALL, turns: PriorityScheduler::default() }
    }
}

impl<C> Dispatch<C> {
    /// Creates the dispatch of `workers` workers, all of which are down.
    pub(super) fn new(workers: usize) -> Self {
        let worker = || WorkerCalls {
            up: false,
            models: Vec::new(),
            slots: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            open: 0,
            predictions: 0,
            lanes: BTreeMap::new(),
            latest_call: 0,
        };
        Self { workers: std::iter::repeat_with(worker).take(workers).collect(), queues: BTreeMap::new(), sequence: 0 }
    }

    /// Places a call on the least loaded worker that can take it, or queues it and returns `None`.
    pub(super) fn submit(&mut self, target: CallTarget, call: C, now: Instant) -> Option<Placement> {
        let CallTarget { model, lane, priority } = target;
        let queue_is_empty = self.queues.get(&model).is_none_or(PriorityQueue::is_empty);
        let best = (0..self.workers.len())
            .filter(|&worker| queue_is_empty && self.workers[worker].can_take(model, lane, now))
            .min_by_key(|&worker| self.workers[worker].load(lane));
        self.sequence += 1;
        if let Some(worker) = best {
            return Some(self.place(worker, model, Some(lane), priority, call, now));
        }
        let order = self.sequence;
        self.queues.entry(model).or_default().push(QueuePosition { priority, order }, QueuedCall { lane, call });
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
        Ok(self.place(worker, NO_MODEL, None, Priority::default(), call, now))
    }

    fn place(
        &mut self,
        worker: usize,
        model: ModelNumber,
        lane: Option<Lane>,
        priority: Priority,
        call: C,
        now: Instant,
    ) -> Placement {
        self.sequence += 1;
        let sequence = self.sequence;
        let state = &mut self.workers[worker];
        let slot = state.slots.iter().position(Option::is_none).expect("open calls are fewer than slots");
        let id = sequence * SLOTS as u64 + slot as u64;
        state.slots[slot] = Some(PlacedCall { id, call, model, priority, lane, since: now });
        state.open += 1;
        state.predictions += usize::from(model != NO_MODEL);
        state.latest_call = sequence;
        if let Some(lane) = lane {
            let lane = state.lanes.entry(lane).or_insert_with(|| LaneState::new(now));
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

    /// Removes a call that has ended. The caller then calls [`Dispatch::place_next`].
    pub(super) fn finish(&mut self, worker: usize, id: u64, now: Instant) -> Option<C> {
        let state = &mut self.workers[worker];
        let placed = state.slots[slot(id)].take_if(|placed| placed.id == id)?;
        state.open -= 1;
        state.predictions -= usize::from(placed.is_prediction());
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
                let heads = line.heads().filter(move |(_, queued)| state.can_take(model, queued.lane, now));
                heads.map(move |(place, queued)| (place, queued.lane, model))
            });
            let (_, lane, _) = candidates.clone().min_by_key(|(place, ..)| *place)?;
            // Each lane has its own turns, because lanes run concurrently.
            let mut in_lane = candidates.filter(|(_, other, _)| *other == lane);
            let mut turns = state.lanes.get(&lane).map(|lane| lane.turns).unwrap_or_default();
            let place = turns.choose(in_lane.clone().map(|(place, ..)| place))?;
            let model = in_lane.find_map(|(other, _, model)| (other == place).then_some(model))?;
            (place, lane, model, turns)
        };
        let QueuedCall { lane: _, call } = self.queues.get_mut(&model)?.pop(place.priority)?;
        self.workers[worker].lanes.entry(lane).or_insert_with(|| LaneState::new(now)).turns = turns;
        Some(self.place(worker, model, Some(lane), place.priority, call, now))
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

    /// Returns the open predictions of a worker, and the earliest time at which each may have started to run.
    pub(super) fn running_calls(&self, worker: usize) -> impl Iterator<Item = (ModelNumber, Instant, &C)> {
        let state = &self.workers[worker];
        state.slots.iter().flatten().filter(|placed| placed.is_prediction()).map(|placed| {
            // Until the lane's last progress, the call may have waited for another one.
            let lane_free_since = placed.lane.and_then(|lane| state.lanes.get(&lane)).map(|lane| lane.last_progress);
            (placed.model, lane_free_since.map_or(placed.since, |free| free.max(placed.since)), &placed.call)
        })
    }

    /// Marks a worker as up: it can take calls, but has no models yet.
    pub(super) fn worker_up(&mut self, worker: usize) {
        self.workers[worker].up = true;
    }

    /// Allows a worker to take calls for a model.
    pub(super) fn add_model(&mut self, worker: usize, model: ModelNumber) {
        let models = &mut self.workers[worker].models;
        if !models.contains(&model) {
            models.push(model);
        }
    }

    /// Gives a worker no further calls for a model; its open calls continue.
    pub(super) fn remove_model(&mut self, worker: usize, model: ModelNumber) {
        let state = &mut self.workers[worker];
        state.models.retain(|other| *other != model);
        state.lanes.retain(|lane, state| *lane != Lane::Thread(model) || state.calls > 0);
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
        let PlacedCall { model, priority, lane, call, .. } = placed;
        let lane = lane.unwrap_or(Lane::Loop);
        self.queues.entry(model).or_default().push_front(priority, QueuedCall { lane, call });
    }
}

fn slot(id: u64) -> usize {
    usize::try_from(id % SLOTS as u64).expect("it is below the number of slots")
}

impl<C> WorkerCalls<C> {
    fn can_take(&self, model: ModelNumber, lane: Lane, now: Instant) -> bool {
        if !self.up || self.predictions >= SLOTS - RESERVED_SLOTS || !self.models.contains(&model) {
            return false;
        }
        self.lanes.get(&lane).is_none_or(|lane| {
            let quick = lane.average < QUICK_CALL && now.saturating_duration_since(lane.last_progress) < STALL;
            lane.calls == 0 || (quick && lane.calls < MAX_CALLS_AHEAD)
        })
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

    fn up(workers: usize) -> Dispatch<&'static str> {
        let mut dispatch = Dispatch::new(workers);
        for worker in 0..workers {
            dispatch.worker_up(worker);
            dispatch.add_model(worker, MODEL);
        }
        dispatch
    }

    fn of(model: ModelNumber, lane: Lane) -> CallTarget {
        CallTarget { model, lane, priority: Priority::default() }
    }

    fn urgent(number: u64) -> CallTarget {
        CallTarget { priority: Priority::new(number), ..of(MODEL, Lane::Loop) }
    }

    fn at(milliseconds: u64) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn submit_prefers_least_loaded_worker_then_queues() {
        let mut dispatch = up(2);
        let first = dispatch.submit(of(MODEL, Lane::Loop), "a", at(0)).unwrap();
        let second = dispatch.submit(of(MODEL, Lane::Loop), "b", at(0)).unwrap();
        assert_ne!(first.worker, second.worker);
        assert_eq!(dispatch.submit(of(MODEL, Lane::Loop), "c", at(0)), None, "no lane is known to be quick yet");
        assert_eq!(dispatch.finish(second.worker, second.id, at(500)), Some("b"));
        let third = dispatch.place_next(second.worker, at(500)).unwrap();
        assert_eq!(dispatch.open_call(third.worker, third.id), Some(&"c"));
        assert_eq!(dispatch.place_next(first.worker, at(500)), None);
    }

    #[test]
    fn submit_avoids_worker_with_slow_call() {
        let mut dispatch = up(2);
        let slow = dispatch.submit(of(MODEL, Lane::Loop), "slow", at(0)).unwrap();
        for moment in 0..100 {
            let quick = dispatch.submit(of(MODEL, Lane::Loop), "quick", at(moment)).unwrap();
            assert_ne!(quick.worker, slow.worker);
            assert_eq!(dispatch.finish(quick.worker, quick.id, at(moment)), Some("quick"));
        }
    }

    #[test]
    fn quick_lane_takes_calls_ahead_until_it_stalls() {
        let mut dispatch = up(1);
        let sent = |dispatch: &mut Dispatch<&'static str>, now| dispatch.submit(of(MODEL, Lane::Loop), "x", now);
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
            let call = dispatch.submit(of(MODEL, Lane::Loop), "waits", at(0)).unwrap();
            dispatch.call_yielded(0, call.id, at(0));
            open.push(call.id);
        }
        assert_eq!(dispatch.submit(of(MODEL, Lane::Loop), "one too many", at(0)), None);
        assert!(dispatch.submit_to(0, "ping", at(0)).is_ok());
        dispatch.finish(0, open[3], at(0));
        assert!(dispatch.place_next(0, at(0)).is_some());
    }

    #[test]
    fn thread_lane_does_not_block_loop_lane() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2);
        dispatch.submit(of(MODEL, Lane::Thread(MODEL)), "slow", at(0)).unwrap();
        assert_eq!(dispatch.submit(of(MODEL, Lane::Thread(MODEL)), "behind", at(1)), None);
        assert!(dispatch.submit(of(2, Lane::Loop), "concurrent", at(1)).is_some());
    }

    #[test]
    fn calls_of_dead_worker_are_requeued_for_another() {
        let mut dispatch = up(2);
        let lost = dispatch.submit(of(MODEL, Lane::Loop), "lost", at(0)).unwrap();
        let other = dispatch.submit(of(MODEL, Lane::Loop), "other", at(0)).unwrap();
        dispatch.submit(of(MODEL, Lane::Loop), "later", at(0));
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
        let first = dispatch.submit(of(MODEL, Lane::Loop), "a", at(0)).unwrap();
        dispatch.finish(0, first.id, at(0));
        let second = dispatch.submit(of(MODEL, Lane::Loop), "b", at(0)).unwrap();
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
}
