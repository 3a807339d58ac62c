use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use proptest::prelude::*;

use super::super::dispatch::{CallTarget, Dispatch, ModelThreads};
use super::*;
use crate::types::Priority;

type TestSupervision = Supervision<(), String>;

fn at(seconds: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
}

fn end(suspects: &[ModelNumber]) -> WorkerEnd<String> {
    WorkerEnd { suspects: suspects.to_vec(), uptime: Duration::ZERO, error: "crash".into(), reason: "crash".into() }
}

/// Creates a pool whose workers have loaded these models.
fn pool(workers: usize, models: &[ModelNumber]) -> TestSupervision {
    let mut supervision = TestSupervision::new(workers, true);
    supervision.take_actions();
    for &model in models {
        supervision.add_model(model, workers);
    }
    for worker in 0..workers {
        load_all(&mut supervision, worker, at(0));
    }
    for &model in models {
        assert_eq!(supervision.outcome(model), Some(Ok(())));
    }
    supervision
}

fn load_all(supervision: &mut TestSupervision, worker: usize, now: Instant) {
    while let Some(model) = supervision.next_load(worker, now) {
        supervision.load_begun(worker, model);
        supervision.load_ended(worker, model, Ok(((), true)), now);
    }
}

#[test]
fn model_that_is_not_ready_anywhere_takes_no_calls() {
    let mut supervision = TestSupervision::new(2, true);
    supervision.add_model(1, 2);
    for (worker, was_ready) in [(0, false), (1, true)] {
        assert!(!supervision.was_ready(1));
        supervision.load_begun(worker, 1);
        supervision.load_ended(worker, 1, Ok(((), was_ready)), at(0));
        supervision.outcome(1);
        assert_eq!((supervision.was_ready(1), supervision.is_unavailable(1)), (was_ready, false));
    }
    supervision.worker_ended(1, end(&[1]), at(1));
    assert!(!supervision.is_unavailable(1), "calls wait for the load");
    supervision.load_begun(1, 1);
    supervision.load_ended(1, 1, Ok(((), false)), at(1));
    assert!(supervision.is_unavailable(1), "nothing loads it again");
}

#[test]
fn established_model_that_fails_to_load_is_retried_with_backoff() {
    let mut supervision = pool(1, &[1]);
    assert_eq!(supervision.worker_ended(0, end(&[]), at(0)), Some(Duration::ZERO));
    for (now, backoff) in [(0, 1), (1, 2), (3, 4), (7, 8), (15, 16), (31, 32), (63, 60), (123, 60)] {
        assert_eq!(supervision.next_load(0, at(now)), Some(1), "at {now} s");
        supervision.load_begun(0, 1);
        let result = supervision.load_ended(0, 1, Err("out of memory".into()), at(now));
        assert_eq!(result, LoadResult::Retried(Duration::from_secs(backoff)));
        assert!(supervision.is_unavailable(1), "its callers do not wait for it");
        assert_eq!(supervision.failures(1).1, [&"out of memory".to_owned()]);
        assert_eq!(supervision.next_load(0, at(now + backoff - 1)), None);
    }
    supervision.load_begun(0, 1);
    assert_eq!(supervision.load_ended(0, 1, Ok(((), true)), at(200)), LoadResult::Kept);
    assert!(!supervision.is_unavailable(1) && supervision.ready_workers(1) == 1);
}

#[test]
fn restart_of_a_worker_retries_a_failed_load_at_once() {
    let mut supervision = pool(1, &[1]);
    supervision.worker_ended(0, end(&[]), at(0));
    supervision.load_begun(0, 1);
    supervision.load_ended(0, 1, Err("failed".into()), at(0));
    supervision.worker_ended(0, end(&[]), at(0));
    assert_eq!(supervision.next_load(0, at(0)), Some(1));
}

#[test]
fn new_model_that_fails_to_load_is_not_retried() {
    let mut supervision = pool(1, &[1]);
    supervision.add_model(2, 1);
    supervision.load_begun(0, 2);
    assert_eq!(supervision.load_ended(0, 2, Err("syntax error".into()), at(0)), LoadResult::Kept);
    assert_eq!(supervision.outcome(2), Some(Err("syntax error".into())));
    assert_eq!(supervision.next_load(0, at(1000)), None);
}

#[test]
fn new_model_that_crashes_while_it_loads_fails() {
    let mut supervision = pool(1, &[1]);
    supervision.add_model(2, 1);
    supervision.load_begun(0, 2);
    supervision.worker_ended(0, end(&[]), at(0));
    assert_eq!(supervision.outcome(2), Some(Err("crash".into())));
    assert_eq!(supervision.next_load(0, at(0)), Some(1), "the other one is loaded again");
}

#[test]
fn crash_of_a_neighbor_does_not_fail_a_new_model() {
    let mut supervision = pool(1, &[1]);
    supervision.add_model(2, 1);
    supervision.load_begun(0, 2);
    supervision.worker_ended(0, end(&[1]), at(0));
    assert_eq!(supervision.outcome(2), None);
    load_all(&mut supervision, 0, at(0));
    assert_eq!(supervision.outcome(2), Some(Ok(())));
}

#[test]
fn model_that_crashes_twice_within_a_minute_is_quarantined() {
    let mut supervision = pool(1, &[1, 2, 3]);
    assert_eq!(supervision.worker_ended(0, end(&[2]), at(0)), Some(Duration::ZERO));
    load_all(&mut supervision, 0, at(1));
    assert_eq!(supervision.worker_ended(0, end(&[2]), at(59)), Some(Duration::ZERO), "the cause is gone");
    let actions = supervision.take_actions();
    let expected =
        [Action::Start(1), Action::Unload { worker: 0, model: 2 }, Action::ReportQuarantine { worker: 1, model: 2 }];
    assert_eq!(actions, expected);
    load_all(&mut supervision, 0, at(60));
    assert_eq!(supervision.loaded_models(0).collect::<Vec<_>>(), [1, 3]);
    load_all(&mut supervision, 1, at(60));
    assert_eq!(supervision.loaded_models(1).collect::<Vec<_>>(), [2]);
    let backoffs: Vec<_> =
        (0..5).map(|_| supervision.worker_ended(1, end(&[2]), at(61)).unwrap().as_millis()).collect();
    assert_eq!(backoffs, [0, 100, 200, 400, 800]);
    supervision.take_actions();
    supervision.remove_model(2);
    assert_eq!(supervision.take_actions(), [Action::Drain(1)], "its worker ends with it");
    assert_eq!(supervision.worker_ended(1, end(&[]), at(62)), None);
}

#[test]
fn only_the_most_likely_of_several_suspects_is_quarantined() {
    let mut supervision = pool(1, &[1, 2, 3]);
    for second in 0..2 {
        supervision.worker_ended(0, end(&[2, 1]), at(second));
        load_all(&mut supervision, 0, at(second));
    }
    assert_eq!(supervision.loaded_models(0).collect::<Vec<_>>(), [1, 3]);
    supervision.worker_ended(0, end(&[1]), at(2));
    load_all(&mut supervision, 0, at(2));
    assert_eq!(supervision.loaded_models(0).collect::<Vec<_>>(), [3], "it was the other one");
}

#[test]
fn crashes_that_are_rare_or_of_the_only_model_quarantine_nothing() {
    let mut supervision = pool(1, &[1, 2]);
    for minute in 0..10 {
        supervision.worker_ended(0, end(&[2]), at(minute * 61));
        load_all(&mut supervision, 0, at(minute * 61));
    }
    assert!(!supervision.take_actions().contains(&Action::Start(1)));
    let mut supervision = pool(2, &[1]);
    for second in 0..10 {
        assert!(supervision.worker_ended(0, end(&[1]), at(second)).is_some());
        load_all(&mut supervision, 0, at(second));
    }
    assert_eq!(supervision.take_actions(), []);
}

#[test]
fn quarantine_has_at_most_four_workers() {
    let models: Vec<ModelNumber> = (1..=8).collect();
    let mut supervision = pool(1, &models);
    for &model in &models[..7] {
        for _ in 0..2 {
            supervision.worker_ended(0, end(&[model]), at(1));
            load_all(&mut supervision, 0, at(1));
        }
    }
    let started = supervision.take_actions().into_iter().filter(|action| matches!(action, Action::Start(_))).count();
    assert_eq!(started, MAX_QUARANTINE_WORKERS);
    for worker in 1..=MAX_QUARANTINE_WORKERS {
        load_all(&mut supervision, worker, at(2));
    }
    assert!(models.iter().all(|&model| supervision.ready_workers(model) == 1));
}

#[test]
fn successor_takes_over_once_it_has_loaded_all_models() {
    let mut supervision = pool(2, &[1, 2]);
    supervision.replace(0, at(0));
    supervision.replace(1, at(0));
    assert_eq!(supervision.take_actions(), [Action::Start(2)], "one at a time");
    supervision.add_model(3, 2);
    supervision.load_begun(2, 1);
    supervision.load_ended(2, 1, Ok(((), true)), at(0));
    assert_eq!(supervision.take_actions(), [], "both serve in the meantime");
    load_all(&mut supervision, 2, at(0));
    assert_eq!(supervision.take_actions(), [Action::Drain(0)]);
    assert!(supervision.is_draining(0) && supervision.is_permanent(2));
    assert_eq!(supervision.loaded_models(2).count(), 3);
    supervision.replace(1, at(0));
    assert_eq!(supervision.take_actions(), [], "the last one has yet to end");
    assert_eq!(supervision.worker_ended(0, end(&[]), at(1)), None);
    supervision.replace(1, at(1));
    assert_eq!(supervision.take_actions(), [Action::Start(0)], "its slot is used again");
}

#[test]
fn successor_that_cannot_load_a_model_is_given_up_with_backoff() {
    let mut supervision = pool(1, &[1]);
    supervision.replace(0, at(0));
    supervision.load_begun(1, 1);
    supervision.load_ended(1, 1, Err("out of memory".into()), at(0));
    assert_eq!(supervision.take_actions(), [Action::Start(1), Action::Drain(1)]);
    assert_eq!((supervision.ready_workers(1), supervision.is_unavailable(1)), (1, false), "the old worker serves");
    assert_eq!(supervision.worker_ended(1, end(&[]), at(0)), None);
    supervision.replace(0, at(0));
    assert_eq!(supervision.take_actions(), [], "not at once");
    supervision.replace(0, at(1));
    assert_eq!(supervision.take_actions(), [Action::Start(1)]);
    assert_eq!(supervision.worker_ended(1, end(&[]), at(1)), None, "it crashed");
    supervision.replace(0, at(2));
    assert_eq!(supervision.take_actions(), []);
}

#[test]
fn successor_replaces_a_worker_that_crashes() {
    let mut supervision = pool(1, &[1]);
    supervision.replace(0, at(0));
    assert_eq!(supervision.worker_ended(0, end(&[1]), at(0)), None);
    assert!(supervision.is_permanent(1));
    load_all(&mut supervision, 1, at(0));
    assert_eq!(supervision.ready_workers(1), 1);
}

#[test]
fn load_of_a_removed_model_is_discarded() {
    let mut supervision = pool(1, &[1]);
    supervision.add_model(2, 1);
    supervision.load_begun(0, 2);
    supervision.remove_model(2);
    assert_eq!(supervision.load_ended(0, 2, Ok(((), true)), at(0)), LoadResult::Discarded);
}

/// What happens next in a simulated pool. Numbers select among what there is.
#[derive(Debug, Clone)]
enum Event {
    AddModel,
    RemoveModel(usize),
    Call(usize),
    /// The worker begins to run its open calls.
    Begin(usize),
    /// The worker answers an open call.
    Answer(usize),
    LoadSucceeds(usize),
    LoadFails(usize),
    /// The process ends: a crash, or killed because it hangs.
    Dies(usize),
    Replace(usize),
    Wait(u16),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        1 => Just(Event::AddModel),
        1 => (0..8_usize).prop_map(Event::RemoveModel),
        8 => (0..8_usize).prop_map(Event::Call),
        5 => (0..8_usize).prop_map(Event::Begin),
        5 => (0..8_usize).prop_map(Event::Answer),
        6 => (0..8_usize).prop_map(Event::LoadSucceeds),
        3 => (0..8_usize).prop_map(Event::LoadFails),
        4 => (0..8_usize).prop_map(Event::Dies),
        2 => (0..8_usize).prop_map(Event::Replace),
        2 => (0..20_000_u16).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..120)
}

/// A process of the simulated pool.
#[derive(Debug, Default)]
struct SimulatedProcess {
    is_running: bool,
    starts_at: Option<Duration>,
    loading: Option<ModelNumber>,
    loaded: BTreeSet<ModelNumber>,
    unloads: BTreeSet<ModelNumber>,
    begun: BTreeSet<u64>,
    /// Open calls: their ids, models and numbers.
    open: BTreeMap<u64, (ModelNumber, usize)>,
}

/// A pool with simulated processes and a simulated clock. Calls are numbers.
struct Simulation {
    supervision: TestSupervision,
    dispatch: Dispatch<usize>,
    processes: Vec<SimulatedProcess>,
    models: BTreeSet<ModelNumber>,
    /// Models that have not been loaded by all their workers yet.
    adding: BTreeSet<ModelNumber>,
    next_model: ModelNumber,
    now: Duration,
    calls: usize,
    /// How often each call has been answered, or failed with the reason.
    answered: BTreeMap<usize, u32>,
    lost: BTreeSet<usize>,
    begun_calls: BTreeSet<usize>,
    refused: BTreeSet<usize>,
}

impl Simulation {
    fn new(workers: usize) -> Self {
        let mut simulation = Self {
            supervision: TestSupervision::new(workers, true),
            dispatch: Dispatch::new(workers),
            processes: (0..workers).map(|_| SimulatedProcess::default()).collect(),
            models: BTreeSet::new(),
            adding: BTreeSet::new(),
            next_model: 1,
            now: Duration::ZERO,
            calls: 0,
            answered: BTreeMap::new(),
            lost: BTreeSet::new(),
            begun_calls: BTreeSet::new(),
            refused: BTreeSet::new(),
        };
        simulation.add_model();
        simulation.apply();
        simulation
    }

    fn instant(&self) -> Instant {
        at(0) + self.now
    }

    fn add_model(&mut self) {
        if self.models.len() < 4 {
            self.supervision.add_model(self.next_model, usize::MAX);
            self.models.insert(self.next_model);
            self.adding.insert(self.next_model);
            self.next_model += 1;
        }
    }

    fn remove(&mut self, model: ModelNumber) {
        for worker in self.supervision.remove_model(model) {
            self.dispatch.remove_model(worker, model);
            self.processes[worker].loaded.remove(&model);
        }
        self.models.remove(&model);
        self.adding.remove(&model);
    }

    /// Does what `Pool::add` does once a new model has been loaded, or cannot be.
    fn end_additions(&mut self) {
        for model in self.adding.clone() {
            match self.supervision.outcome(model) {
                None => {}
                Some(Ok(())) => drop(self.adding.remove(&model)),
                Some(Err(_)) => self.remove(model),
            }
        }
        // A pool would end with its last model.
        if self.models.is_empty() {
            self.add_model();
        }
    }

    fn apply(&mut self) {
        self.end_additions();
        for action in self.supervision.take_actions() {
            match action {
                Action::Start(worker) => {
                    if worker == self.processes.len() {
                        self.processes.push(SimulatedProcess::default());
                        self.dispatch.add_worker();
                    }
                    let process = &mut self.processes[worker];
                    assert!(!process.is_running && process.starts_at.is_none(), "worker {worker} is started twice");
                    process.starts_at = Some(self.now);
                }
                Action::Unload { worker, model } => {
                    self.dispatch.remove_model(worker, model);
                    self.processes[worker].unloads.insert(model);
                }
                Action::Drain(worker) => self.dispatch.drain_worker(worker),
                Action::ReportQuarantine { .. } => {}
            }
        }
        self.start_processes();
        self.send_queued();
        let unavailable: Vec<_> = self
            .next_model
            .checked_sub(1)
            .into_iter()
            .flat_map(|last| 1..=last)
            .filter(|&model| self.supervision.is_unavailable(model))
            .collect();
        let refused = self.dispatch.take_queued(|model, _| unavailable.contains(&model));
        self.refused.extend(refused);
        self.end_drained();
        self.check();
    }

    fn start_processes(&mut self) {
        for (worker, process) in self.processes.iter_mut().enumerate() {
            if process.starts_at.is_some_and(|start| start <= self.now) {
                *process = SimulatedProcess { is_running: true, ..SimulatedProcess::default() };
                self.dispatch.worker_up(worker);
            }
        }
    }

    fn send_queued(&mut self) {
        for worker in 0..self.processes.len() {
            while let Some(placed) = self.dispatch.place_next(worker, self.instant()) {
                self.send(placed.worker, placed.id);
            }
        }
    }

    fn send(&mut self, worker: usize, id: u64) {
        let &call = self.dispatch.open_call(worker, id).unwrap();
        let model = self.dispatch.running_calls(worker).find(|running| *running.call == call).unwrap().model;
        let process = &mut self.processes[worker];
        assert!(process.is_running && process.loaded.contains(&model), "the worker has not loaded the model");
        process.open.insert(id, (model, call));
    }

    fn end_drained(&mut self) {
        for worker in 0..self.processes.len() {
            let is_idle = self.supervision.is_draining(worker) && self.dispatch.open_predictions(worker) == 0;
            if is_idle && self.processes[worker].is_running {
                self.die(worker);
                return;
            }
        }
    }

    fn die(&mut self, worker: usize) {
        let process = std::mem::take(&mut self.processes[worker]);
        let now = self.instant();
        let mut suspects = BTreeSet::new();
        for placed in self.dispatch.worker_down(worker).into_iter().rev() {
            if process.begun.contains(&placed.id) {
                suspects.insert(placed.model());
                self.lost.insert(placed.call);
            } else {
                self.dispatch.requeue_at_front(placed);
            }
        }
        let suspects: Vec<_> = suspects.into_iter().collect();
        let restart = self.supervision.worker_ended(worker, end(&suspects), now);
        self.processes[worker].starts_at = restart.map(|backoff| self.now + backoff);
        self.apply();
    }

    fn begin_load(&mut self, worker: usize) -> Option<ModelNumber> {
        let process = &mut self.processes[worker];
        if process.is_running && process.loading.is_none() {
            process.loading = self.supervision.next_load(worker, at(0) + self.now);
            if let Some(model) = process.loading {
                self.supervision.load_begun(worker, model);
            }
        }
        process.loading
    }

    fn end_load(&mut self, worker: usize, succeeds: bool) {
        let Some(model) = self.begin_load(worker) else { return };
        self.processes[worker].loading = None;
        let outcome = if succeeds { Ok(((), true)) } else { Err("failed".to_owned()) };
        let result = self.supervision.load_ended(worker, model, outcome, self.instant());
        if succeeds && result == LoadResult::Kept {
            self.processes[worker].loaded.insert(model);
            self.dispatch.add_model(worker, model, ModelThreads { own_loop: false, threads: 1 });
        }
        self.apply();
    }

    fn call(&mut self, model: ModelNumber) {
        let call = self.calls;
        self.calls += 1;
        if self.supervision.is_unavailable(model) {
            self.refused.insert(call);
            return;
        }
        let target = CallTarget { model, plain: false, priority: Priority::default() };
        if let Some(placed) = self.dispatch.submit(target, call, self.instant()) {
            self.send(placed.worker, placed.id);
        }
    }

    fn answer(&mut self, worker: usize) {
        let Some((id, (_, call))) = self.processes[worker].open.pop_first() else { return };
        self.begun_calls.insert(call);
        assert_eq!(self.dispatch.finish(worker, id, self.instant()), Some(call));
        *self.answered.entry(call).or_default() += 1;
        self.apply();
    }

    fn step(&mut self, event: &Event) {
        let worker = |number: usize| number % self.processes.len();
        let model = |number: usize| self.models.iter().copied().nth(number % self.models.len().max(1));
        match *event {
            Event::AddModel => self.add_model(),
            Event::RemoveModel(number) => {
                // A pool ends with its last model.
                if let Some(model) = model(number).filter(|_| self.models.len() > 1) {
                    self.remove(model);
                }
            }
            Event::Call(number) => {
                if let Some(model) = model(number) {
                    self.call(model);
                }
            }
            Event::Begin(number) => {
                let worker = worker(number);
                let process = &mut self.processes[worker];
                process.begun.extend(process.open.keys());
                self.begun_calls.extend(process.open.values().map(|(_, call)| call));
            }
            Event::Answer(number) => self.answer(worker(number)),
            Event::LoadSucceeds(number) => self.end_load(worker(number), true),
            Event::LoadFails(number) => self.end_load(worker(number), false),
            Event::Dies(number) => {
                let worker = worker(number);
                self.begin_load(worker);
                if self.processes[worker].is_running {
                    self.die(worker);
                }
            }
            Event::Replace(number) => self.supervision.replace(worker(number), self.instant()),
            Event::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds.into()),
        }
        self.apply();
    }

    fn check(&self) {
        let workers = 2 * 2 + MAX_QUARANTINE_WORKERS;
        assert!(self.processes.len() <= workers, "{} workers", self.processes.len());
        assert!(self.answered.values().all(|&times| times == 1), "a call is answered twice");
        let lost_unbegun: Vec<_> = self.lost.difference(&self.begun_calls).collect();
        assert!(lost_unbegun.is_empty(), "lost although they had not begun: {lost_unbegun:?}");
    }

    /// Goes on without further faults until nothing changes any more.
    fn recover(&mut self) {
        for _ in 0..200 {
            self.now += Duration::from_secs(5);
            self.apply();
            for worker in 0..self.processes.len() {
                for _ in 0..8 {
                    self.end_load(worker, true);
                }
                while !self.processes[worker].open.is_empty() {
                    self.answer(worker);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_call_ends_and_every_model_is_served_again(workers in 1..3_usize, events in events()) {
        let mut simulation = Simulation::new(workers);
        for event in &events {
            simulation.step(event);
        }
        simulation.recover();
        for &model in &simulation.models {
            prop_assert!(simulation.supervision.ready_workers(model) > 0, "model {} is not served", model);
            prop_assert!(!simulation.supervision.is_unavailable(model));
        }
        let ended: BTreeSet<usize> =
            simulation.answered.keys().chain(&simulation.lost).chain(&simulation.refused).copied().collect();
        let open: Vec<usize> = (0..simulation.calls).filter(|call| !ended.contains(call)).collect();
        prop_assert!(open.is_empty(), "calls that never end: {:?}", open);
        let processes = simulation.processes.iter().filter(|process| process.is_running).count();
        prop_assert!(processes <= workers + MAX_QUARANTINE_WORKERS, "{} processes remain", processes);
    }
}
