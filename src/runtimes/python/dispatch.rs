//! Which call goes to which worker, and when. Pure: no clock, no I/O.
//!
//! A call runs in a *lane* of a worker: the loop, where coroutines run, or the thread of a model whose `predict` is a plain
//! function. A lane runs one piece of code at a time; a coroutine that waits leaves the loop to others, which the worker
//! tells with a `yielded` frame. Calls that are sent to a lane whose code runs long would wait behind it although another
//! worker may be free by then, so a lane gets a second call only while it answers quickly, and all others wait here, in
//! order of arrival, for the first worker that can take them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::frame::SLOTS;

/// Identifies a loaded model in its pool.
pub(super) type ModelNumber = u64;

/// Slots that only loading, unloading and pings may take, so that they never wait for calls.
const RESERVED_SLOTS: usize = 16;
/// Calls that a lane which answers quickly may have at once: enough that it never waits for the next.
const AHEAD: usize = 4;
/// A lane whose calls take less than this on average answers quickly.
const QUICK: Duration = Duration::from_millis(2);
/// A lane that has not ended anything for this long does not answer quickly any more.
const STUCK: Duration = Duration::from_millis(1);

/// The model of calls that are given to one worker.
const NO_MODEL: ModelNumber = 0;

/// What runs calls one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Loop,
    Thread(ModelNumber),
}

/// A call that has its place on a worker.
#[derive(Debug)]
pub(super) struct Placed<C> {
    pub(super) id: u64,
    pub(super) call: C,
    model: ModelNumber,
    /// The lane that it holds or waits for; nothing once it has yielded.
    lane: Option<Lane>,
    since: Instant,
}

impl<C> Placed<C> {
    /// Tells calls of models from those that were given to one worker.
    pub(super) const fn is_prediction(&self) -> bool {
        self.model != NO_MODEL
    }
}

/// A call to be sent to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) worker: usize,
    pub(super) id: u64,
}

/// The calls of one pool.
#[derive(Debug)]
pub(super) struct Dispatch<C> {
    workers: Vec<Worker<C>>,
    waiting: BTreeMap<ModelNumber, VecDeque<Waiting<C>>>,
    /// Orders calls of different models, and makes ids.
    sequence: u64,
}

#[derive(Debug)]
struct Waiting<C> {
    order: u64,
    lane: Lane,
    call: C,
}

#[derive(Debug)]
struct Worker<C> {
    up: bool,
    models: Vec<ModelNumber>,
    slots: Vec<Option<Placed<C>>>,
    open: usize,
    /// Those of them that are for models.
    predictions: usize,
    lanes: BTreeMap<Lane, LaneState>,
    /// When the worker last got a call, as an order.
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct LaneState {
    /// Calls that hold the lane or wait for it.
    busy: usize,
    /// When the lane last ended something, or began to be busy.
    progress: Instant,
    /// How long its calls take, as a moving average.
    average: Duration,
}

impl<C> Dispatch<C> {
    /// Makes the calls of `workers` workers, all of them down.
    pub(super) fn new(workers: usize) -> Self {
        let worker = || Worker {
            up: false,
            models: Vec::new(),
            slots: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            open: 0,
            predictions: 0,
            lanes: BTreeMap::new(),
            last: 0,
        };
        Self { workers: std::iter::repeat_with(worker).take(workers).collect(), waiting: BTreeMap::new(), sequence: 0 }
    }

    /// Gives a call to the worker that can take it best, or lets it wait.
    pub(super) fn submit(&mut self, model: ModelNumber, lane: Lane, call: C, now: Instant) -> Option<Sent> {
        let nobody_waits = self.waiting.get(&model).is_none_or(VecDeque::is_empty);
        let best = (0..self.workers.len())
            .filter(|&worker| nobody_waits && self.workers[worker].can_take(model, lane, now))
            .min_by_key(|&worker| self.workers[worker].load(lane));
        self.sequence += 1;
        if let Some(worker) = best {
            return Some(self.place(worker, (model, Some(lane)), call, now));
        }
        let order = self.sequence;
        self.waiting.entry(model).or_default().push_back(Waiting { order, lane, call });
        None
    }

    /// Gives a call to a certain worker at once: what is not a prediction. Hands it back when all slots are taken.
    pub(super) fn submit_to(&mut self, worker: usize, call: C, now: Instant) -> Result<Sent, C> {
        if self.workers[worker].open >= SLOTS {
            return Err(call);
        }
        self.sequence += 1;
        // Outside of all lanes: how long it takes says nothing about predictions.
        Ok(self.place(worker, (NO_MODEL, None), call, now))
    }

    fn place(&mut self, worker: usize, of: (ModelNumber, Option<Lane>), call: C, now: Instant) -> Sent {
        let (model, lane) = of;
        self.sequence += 1;
        let sequence = self.sequence;
        let state = &mut self.workers[worker];
        let slot = state.slots.iter().position(Option::is_none).expect("open calls are fewer than slots");
        let id = sequence * SLOTS as u64 + slot as u64;
        state.slots[slot] = Some(Placed { id, call, model, lane, since: now });
        state.open += 1;
        state.predictions += usize::from(model != NO_MODEL);
        state.last = sequence;
        if let Some(lane) = lane {
            let lane = state.lanes.entry(lane).or_insert(LaneState { busy: 0, progress: now, average: QUICK });
            if lane.busy == 0 {
                lane.progress = now;
            }
            lane.busy += 1;
        }
        Sent { worker, id }
    }

    /// Borrows an open call.
    pub(super) fn open(&self, worker: usize, id: u64) -> Option<&C> {
        let placed = self.workers.get(worker)?.slots[slot(id)].as_ref()?;
        (placed.id == id).then_some(&placed.call)
    }

    /// Takes a call that has ended. The caller then asks [`Dispatch::next`].
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

    /// Notes that a call waits for something, so that its lane can take others.
    pub(super) fn yielded(&mut self, worker: usize, id: u64, now: Instant) {
        let state = &mut self.workers[worker];
        let placed = state.slots[slot(id)].as_mut().filter(|placed| placed.id == id);
        let left = placed.and_then(|placed| Some((placed.lane.take()?, placed.since)));
        if let Some((lane, since)) = left {
            state.leave_lane(lane, since, now);
        }
    }

    /// Places the call that has waited longest for what this worker can do now.
    pub(super) fn next(&mut self, worker: usize, now: Instant) -> Option<Sent> {
        let state = &self.workers[worker];
        let fits = |(model, queue): (&ModelNumber, &VecDeque<Waiting<C>>)| {
            let first = queue.front()?;
            state.can_take(*model, first.lane, now).then_some((first.order, *model))
        };
        let (_, model) = self.waiting.iter().filter_map(fits).min()?;
        let Waiting { lane, call, .. } = self.waiting.get_mut(&model)?.pop_front()?;
        Some(self.place(worker, (model, Some(lane)), call, now))
    }

    /// Takes the waiting calls for which `gone` is true.
    pub(super) fn take_waiting(&mut self, mut gone: impl FnMut(ModelNumber, &C) -> bool) -> Vec<C> {
        let mut taken = Vec::new();
        for (model, queue) in &mut self.waiting {
            let (out, kept): (Vec<_>, VecDeque<_>) =
                queue.drain(..).partition_in(|waiting| gone(*model, &waiting.call));
            *queue = kept;
            taken.extend(out.into_iter().map(|waiting| waiting.call));
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        taken
    }

    /// Returns the number of calls that wait for a worker.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Returns the number of open calls of a worker.
    pub(super) fn open_calls(&self, worker: usize) -> usize {
        self.workers[worker].open
    }

    /// Returns the calls of models that are open on this worker, and since when they can have run at the latest.
    pub(super) fn running(&self, worker: usize) -> impl Iterator<Item = (ModelNumber, Instant, &C)> {
        let state = &self.workers[worker];
        state.slots.iter().flatten().filter(|placed| placed.is_prediction()).map(|placed| {
            // Until then it waited behind another in its lane.
            let lane_was_free = placed.lane.and_then(|lane| state.lanes.get(&lane)).map(|lane| lane.progress);
            (placed.model, lane_was_free.map_or(placed.since, |free| free.max(placed.since)), &placed.call)
        })
    }

    /// Lets a worker take calls, for no model yet.
    pub(super) fn up(&mut self, worker: usize) {
        self.workers[worker].up = true;
    }

    /// Lets a worker take calls for a model.
    pub(super) fn add_model(&mut self, worker: usize, model: ModelNumber) {
        let models = &mut self.workers[worker].models;
        if !models.contains(&model) {
            models.push(model);
        }
    }

    /// Gives a worker no further calls for a model; those that are open go on.
    pub(super) fn remove_model(&mut self, worker: usize, model: ModelNumber) {
        let state = &mut self.workers[worker];
        state.models.retain(|other| *other != model);
        state.lanes.retain(|lane, state| *lane != Lane::Thread(model) || state.busy > 0);
    }

    /// Takes a worker's calls when it has died, with the ids they had.
    pub(super) fn down(&mut self, worker: usize) -> Vec<Placed<C>> {
        let state = &mut self.workers[worker];
        state.up = false;
        (state.open, state.predictions) = (0, 0);
        state.models.clear();
        state.lanes.clear();
        state.slots.iter_mut().filter_map(Option::take).collect()
    }

    /// Puts a call that had not begun when its worker died before all others of its model.
    pub(super) fn return_to_front(&mut self, placed: Placed<C>) {
        let Placed { model, lane, call, .. } = placed;
        let lane = lane.unwrap_or(Lane::Loop);
        let queue = self.waiting.entry(model).or_default();
        let order = queue.front().map_or(0, |first| first.order.saturating_sub(1));
        queue.push_front(Waiting { order, lane, call });
    }
}

fn slot(id: u64) -> usize {
    usize::try_from(id % SLOTS as u64).expect("it is below the number of slots")
}

impl<C> Worker<C> {
    fn can_take(&self, model: ModelNumber, lane: Lane, now: Instant) -> bool {
        if !self.up || self.predictions >= SLOTS - RESERVED_SLOTS || !self.models.contains(&model) {
            return false;
        }
        self.lanes.get(&lane).is_none_or(|lane| {
            let quick = lane.average < QUICK && now.saturating_duration_since(lane.progress) < STUCK;
            lane.busy == 0 || (quick && lane.busy < AHEAD)
        })
    }

    /// The less, the better: calls before it in its lane, calls in all, then whoever has been idle longest.
    fn load(&self, lane: Lane) -> (usize, usize, u64) {
        (self.lanes.get(&lane).map_or(0, |lane| lane.busy), self.open, self.last)
    }

    fn leave_lane(&mut self, lane: Lane, since: Instant, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            let took = now.saturating_duration_since(since.max(lane.progress));
            lane.average = (lane.average * 3 + took) / 4;
            lane.progress = now;
            lane.busy = lane.busy.saturating_sub(1);
        }
    }
}

/// `Iterator::partition` into two kinds of collection.
trait PartitionIn: Iterator + Sized {
    fn partition_in(self, mut first: impl FnMut(&Self::Item) -> bool) -> (Vec<Self::Item>, VecDeque<Self::Item>) {
        let (mut firsts, mut others) = (Vec::new(), VecDeque::new());
        for item in self {
            if first(&item) {
                firsts.push(item);
            } else {
                others.push_back(item);
            }
        }
        (firsts, others)
    }
}

impl<I: Iterator> PartitionIn for I {}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelNumber = 1;

    fn up(workers: usize) -> Dispatch<&'static str> {
        let mut dispatch = Dispatch::new(workers);
        for worker in 0..workers {
            dispatch.up(worker);
            dispatch.add_model(worker, MODEL);
        }
        dispatch
    }

    fn at(milliseconds: u64) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn calls_go_to_the_least_loaded_worker_and_then_wait() {
        let mut dispatch = up(2);
        let first = dispatch.submit(MODEL, Lane::Loop, "a", at(0)).unwrap();
        let second = dispatch.submit(MODEL, Lane::Loop, "b", at(0)).unwrap();
        assert_ne!(first.worker, second.worker);
        assert_eq!(dispatch.submit(MODEL, Lane::Loop, "c", at(0)), None, "nothing is known to be quick yet");
        assert_eq!(dispatch.finish(second.worker, second.id, at(500)), Some("b"));
        let third = dispatch.next(second.worker, at(500)).unwrap();
        assert_eq!(dispatch.open(third.worker, third.id), Some(&"c"));
        assert_eq!(dispatch.next(first.worker, at(500)), None);
    }

    #[test]
    fn quick_calls_never_wait_behind_a_slow_one() {
        let mut dispatch = up(2);
        let slow = dispatch.submit(MODEL, Lane::Loop, "slow", at(0)).unwrap();
        for moment in 0..100 {
            let quick = dispatch.submit(MODEL, Lane::Loop, "quick", at(moment)).unwrap();
            assert_ne!(quick.worker, slow.worker);
            assert_eq!(dispatch.finish(quick.worker, quick.id, at(moment)), Some("quick"));
        }
    }

    #[test]
    fn a_quick_lane_gets_calls_ahead_until_it_sticks() {
        let mut dispatch = up(1);
        let sent = |dispatch: &mut Dispatch<&'static str>, now| dispatch.submit(MODEL, Lane::Loop, "x", now);
        for _ in 0..10 {
            let call = sent(&mut dispatch, at(0)).unwrap();
            dispatch.finish(0, call.id, at(0));
        }
        for _ in 0..AHEAD {
            assert!(sent(&mut dispatch, at(0)).is_some());
        }
        assert_eq!(sent(&mut dispatch, at(0)), None, "as many as it may have");
        let mut dispatch = up(1);
        for _ in 0..10 {
            let call = sent(&mut dispatch, at(0)).unwrap();
            dispatch.finish(0, call.id, at(0));
        }
        assert!(sent(&mut dispatch, at(0)).is_some());
        assert_eq!(sent(&mut dispatch, at(5)), None, "it has been stuck for 5 ms");
    }

    #[test]
    fn a_call_that_waits_for_something_frees_its_lane_but_not_its_slot() {
        let mut dispatch = up(1);
        let mut open = Vec::new();
        for _ in 0..SLOTS - RESERVED_SLOTS {
            let call = dispatch.submit(MODEL, Lane::Loop, "waits", at(0)).unwrap();
            dispatch.yielded(0, call.id, at(0));
            open.push(call.id);
        }
        assert_eq!(dispatch.submit(MODEL, Lane::Loop, "one too many", at(0)), None);
        assert!(dispatch.submit_to(0, "ping", at(0)).is_ok());
        dispatch.finish(0, open[3], at(0));
        assert!(dispatch.next(0, at(0)).is_some());
    }

    #[test]
    fn a_thread_s_calls_do_not_hold_up_the_loop() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2);
        dispatch.submit(MODEL, Lane::Thread(MODEL), "slow", at(0)).unwrap();
        assert_eq!(dispatch.submit(MODEL, Lane::Thread(MODEL), "behind", at(1)), None);
        assert!(dispatch.submit(2, Lane::Loop, "beside", at(1)).is_some());
    }

    #[test]
    fn what_a_dead_worker_had_can_go_to_another() {
        let mut dispatch = up(2);
        let lost = dispatch.submit(MODEL, Lane::Loop, "lost", at(0)).unwrap();
        let other = dispatch.submit(MODEL, Lane::Loop, "other", at(0)).unwrap();
        dispatch.submit(MODEL, Lane::Loop, "later", at(0));
        let placed = dispatch.down(lost.worker);
        assert_eq!(placed.iter().map(|placed| placed.call).collect::<Vec<_>>(), ["lost"]);
        for placed in placed {
            dispatch.return_to_front(placed);
        }
        assert_eq!(dispatch.next(lost.worker, at(0)), None, "it is down");
        dispatch.finish(other.worker, other.id, at(0));
        let next = dispatch.next(other.worker, at(0)).unwrap();
        assert_eq!(dispatch.open(next.worker, next.id), Some(&"lost"));
        assert_eq!(dispatch.take_waiting(|_, call| *call == "later"), ["later"]);
        assert_eq!(dispatch.waiting(), 0);
    }

    #[test]
    fn an_id_that_has_gone_is_not_another_call_s() {
        let mut dispatch = up(1);
        let first = dispatch.submit(MODEL, Lane::Loop, "a", at(0)).unwrap();
        dispatch.finish(0, first.id, at(0));
        let second = dispatch.submit(MODEL, Lane::Loop, "b", at(0)).unwrap();
        assert_eq!(first.id % SLOTS as u64, second.id % SLOTS as u64, "the same slot");
        assert_eq!(dispatch.finish(0, first.id, at(0)), None);
        assert_eq!(dispatch.open(0, second.id), Some(&"b"));
    }
}
