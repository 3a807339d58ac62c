//! Which call goes to which worker, and when. Pure: no clock, no I/O.
//!
//! A call runs in a *lane* of a worker: the loop, where coroutines run, or the thread of a model whose `predict` is a plain
//! function. A lane runs one piece of code at a time; a coroutine that waits leaves the loop to others, which the worker
//! tells with a `yielded` frame. Calls that are sent to a lane whose code runs long would wait behind it although another
//! worker may be free by then, so a lane gets a second call only while it answers quickly, and all others wait here for the
//! first worker that can take them: the most urgent first, then in order of arrival, with the aging of [`Turns`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::frame::SLOTS;
use crate::types::{Line, Place, Priority, Turns};

/// Identifies a loaded model in its pool.
pub(super) type ModelNumber = u64;

/// Slots that only loading, unloading and pings may take, so that they never wait for calls.
const RESERVED_SLOTS: usize = 16;
/// Calls that a lane which answers quickly may have at once: enough that it never waits for the next.
const AHEAD: usize = 8;
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

/// What a call is for, and how urgent it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    pub(super) model: ModelNumber,
    pub(super) lane: Lane,
    pub(super) priority: Priority,
}

/// A call that has its place on a worker.
#[derive(Debug)]
pub(super) struct Placed<C> {
    pub(super) id: u64,
    pub(super) call: C,
    model: ModelNumber,
    priority: Priority,
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
    waiting: BTreeMap<ModelNumber, Line<Waiting<C>>>,
    /// Orders calls of different models, and makes ids.
    sequence: u64,
}

#[derive(Debug)]
struct Waiting<C> {
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
    /// Who has it next.
    turns: Turns,
}

impl LaneState {
    fn new(now: Instant) -> Self {
        Self { busy: 0, progress: now, average: QUICK, turns: Turns::default() }
    }
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
    pub(super) fn submit(&mut self, purpose: Purpose, call: C, now: Instant) -> Option<Sent> {
        let Purpose { model, lane, priority } = purpose;
        let nobody_waits = self.waiting.get(&model).is_none_or(Line::is_empty);
        let best = (0..self.workers.len())
            .filter(|&worker| nobody_waits && self.workers[worker].can_take(model, lane, now))
            .min_by_key(|&worker| self.workers[worker].load(lane));
        self.sequence += 1;
        if let Some(worker) = best {
            return Some(self.place(worker, (model, Some(lane), priority), call, now));
        }
        let order = self.sequence;
        self.waiting.entry(model).or_default().push(Place { priority, order }, Waiting { lane, call });
        None
    }

    /// Gives a call to a certain worker at once: what is not a prediction. Hands it back when all slots are taken.
    pub(super) fn submit_to(&mut self, worker: usize, call: C, now: Instant) -> Result<Sent, C> {
        if self.workers[worker].open >= SLOTS {
            return Err(call);
        }
        self.sequence += 1;
        // Outside of all lanes: how long it takes says nothing about predictions.
        Ok(self.place(worker, (NO_MODEL, None, Priority::default()), call, now))
    }

    fn place(&mut self, worker: usize, of: (ModelNumber, Option<Lane>, Priority), call: C, now: Instant) -> Sent {
        let (model, lane, priority) = of;
        self.sequence += 1;
        let sequence = self.sequence;
        let state = &mut self.workers[worker];
        let slot = state.slots.iter().position(Option::is_none).expect("open calls are fewer than slots");
        let id = sequence * SLOTS as u64 + slot as u64;
        state.slots[slot] = Some(Placed { id, call, model, priority, lane, since: now });
        state.open += 1;
        state.predictions += usize::from(model != NO_MODEL);
        state.last = sequence;
        if let Some(lane) = lane {
            let lane = state.lanes.entry(lane).or_insert_with(|| LaneState::new(now));
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

    /// Places the call whose turn it is of those that this worker can run now.
    pub(super) fn next(&mut self, worker: usize, now: Instant) -> Option<Sent> {
        let (place, lane, model, turns) = {
            let state = &self.workers[worker];
            let fitting = self.waiting.iter().flat_map(|(&model, line)| {
                let heads = line.heads().filter(move |(_, waiting)| state.can_take(model, waiting.lane, now));
                heads.map(move |(place, waiting)| (place, waiting.lane, model))
            });
            let (_, lane, _) = fitting.clone().min_by_key(|(place, ..)| *place)?;
            // Whose turn it is in one lane has nothing to do with the others, which run beside it.
            let mut in_lane = fitting.filter(|(_, other, _)| *other == lane);
            let mut turns = state.lanes.get(&lane).map(|lane| lane.turns).unwrap_or_default();
            let place = turns.choose(in_lane.clone().map(|(place, ..)| place))?;
            let model = in_lane.find_map(|(other, _, model)| (other == place).then_some(model))?;
            (place, lane, model, turns)
        };
        let Waiting { lane: _, call } = self.waiting.get_mut(&model)?.pop(place.priority)?;
        self.workers[worker].lanes.entry(lane).or_insert_with(|| LaneState::new(now)).turns = turns;
        Some(self.place(worker, (model, Some(lane), place.priority), call, now))
    }

    /// Takes the waiting calls for which `gone` is true.
    pub(super) fn take_waiting(&mut self, mut gone: impl FnMut(ModelNumber, &C) -> bool) -> Vec<C> {
        let mut taken = Vec::new();
        for (model, line) in &mut self.waiting {
            taken.extend(line.take_if(|waiting| gone(*model, &waiting.call)).into_iter().map(|waiting| waiting.call));
        }
        self.waiting.retain(|_, line| !line.is_empty());
        taken
    }

    /// Returns the number of calls that wait for a worker.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(Line::len).sum()
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

    /// Puts a call that had not begun when its worker died before all others of its model that are as urgent.
    pub(super) fn return_to_front(&mut self, placed: Placed<C>) {
        let Placed { model, priority, lane, call, .. } = placed;
        let lane = lane.unwrap_or(Lane::Loop);
        self.waiting.entry(model).or_default().push_front(priority, Waiting { lane, call });
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

    fn of(model: ModelNumber, lane: Lane) -> Purpose {
        Purpose { model, lane, priority: Priority::default() }
    }

    fn urgent(number: u64) -> Purpose {
        Purpose { priority: Priority::new(number), ..of(MODEL, Lane::Loop) }
    }

    fn at(milliseconds: u64) -> Instant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn calls_go_to_the_least_loaded_worker_and_then_wait() {
        let mut dispatch = up(2);
        let first = dispatch.submit(of(MODEL, Lane::Loop), "a", at(0)).unwrap();
        let second = dispatch.submit(of(MODEL, Lane::Loop), "b", at(0)).unwrap();
        assert_ne!(first.worker, second.worker);
        assert_eq!(dispatch.submit(of(MODEL, Lane::Loop), "c", at(0)), None, "nothing is known to be quick yet");
        assert_eq!(dispatch.finish(second.worker, second.id, at(500)), Some("b"));
        let third = dispatch.next(second.worker, at(500)).unwrap();
        assert_eq!(dispatch.open(third.worker, third.id), Some(&"c"));
        assert_eq!(dispatch.next(first.worker, at(500)), None);
    }

    #[test]
    fn quick_calls_never_wait_behind_a_slow_one() {
        let mut dispatch = up(2);
        let slow = dispatch.submit(of(MODEL, Lane::Loop), "slow", at(0)).unwrap();
        for moment in 0..100 {
            let quick = dispatch.submit(of(MODEL, Lane::Loop), "quick", at(moment)).unwrap();
            assert_ne!(quick.worker, slow.worker);
            assert_eq!(dispatch.finish(quick.worker, quick.id, at(moment)), Some("quick"));
        }
    }

    #[test]
    fn a_quick_lane_gets_calls_ahead_until_it_sticks() {
        let mut dispatch = up(1);
        let sent = |dispatch: &mut Dispatch<&'static str>, now| dispatch.submit(of(MODEL, Lane::Loop), "x", now);
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
            let call = dispatch.submit(of(MODEL, Lane::Loop), "waits", at(0)).unwrap();
            dispatch.yielded(0, call.id, at(0));
            open.push(call.id);
        }
        assert_eq!(dispatch.submit(of(MODEL, Lane::Loop), "one too many", at(0)), None);
        assert!(dispatch.submit_to(0, "ping", at(0)).is_ok());
        dispatch.finish(0, open[3], at(0));
        assert!(dispatch.next(0, at(0)).is_some());
    }

    #[test]
    fn a_thread_s_calls_do_not_hold_up_the_loop() {
        let mut dispatch = up(1);
        dispatch.add_model(0, 2);
        dispatch.submit(of(MODEL, Lane::Thread(MODEL)), "slow", at(0)).unwrap();
        assert_eq!(dispatch.submit(of(MODEL, Lane::Thread(MODEL)), "behind", at(1)), None);
        assert!(dispatch.submit(of(2, Lane::Loop), "beside", at(1)).is_some());
    }

    #[test]
    fn what_a_dead_worker_had_can_go_to_another() {
        let mut dispatch = up(2);
        let lost = dispatch.submit(of(MODEL, Lane::Loop), "lost", at(0)).unwrap();
        let other = dispatch.submit(of(MODEL, Lane::Loop), "other", at(0)).unwrap();
        dispatch.submit(of(MODEL, Lane::Loop), "later", at(0));
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
        let first = dispatch.submit(of(MODEL, Lane::Loop), "a", at(0)).unwrap();
        dispatch.finish(0, first.id, at(0));
        let second = dispatch.submit(of(MODEL, Lane::Loop), "b", at(0)).unwrap();
        assert_eq!(first.id % SLOTS as u64, second.id % SLOTS as u64, "the same slot");
        assert_eq!(dispatch.finish(0, first.id, at(0)), None);
        assert_eq!(dispatch.open(0, second.id), Some(&"b"));
    }

    #[test]
    fn the_urgent_go_first_and_the_others_age() {
        let mut dispatch = up(1);
        let mut running = dispatch.submit(urgent(5), "running", at(0)).unwrap();
        for name in ["bulk 1", "bulk 2"] {
            assert_eq!(dispatch.submit(urgent(10), name, at(0)), None);
        }
        let mut order = Vec::new();
        for _ in 0..60 {
            assert_eq!(dispatch.submit(urgent(1), "urgent", at(1)), None);
            dispatch.finish(running.worker, running.id, at(1)).unwrap();
            running = dispatch.next(0, at(1)).unwrap();
            order.push(*dispatch.open(0, running.id).unwrap());
        }
        let places = |name| order.iter().position(|other| *other == name).unwrap();
        let patience = Turns::PATIENCE as usize;
        assert_eq!((places("urgent"), places("bulk 1"), places("bulk 2")), (0, patience, 2 * patience + 1));
    }
}
