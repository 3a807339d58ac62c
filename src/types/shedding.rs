//! Decides whether a queue is overloaded, and which requests it sheds. Pure: the time is an argument, and there is no I/O.
//!
//! The rule is a controlled delay. The *backlog* is the time that the waiting requests will take, judged by how fast the queue
//! has been moving. If it stays above a target for [`INTERVAL`], the queue is overloaded until it has fallen to half of that:
//! new requests are rejected if those before them take more than twice the target, and waiting requests are dropped when they
//! have waited for three times the target. Less urgent requests are not before a request, so that urgent ones are shed last. A
//! burst that drains within the target is not affected, and neither is a request that finds no other one waiting.
//!
//! A target that is shorter than a prediction would reject the second of two callers of a slow model. So the target is at
//! least the time of a prediction, and at least the time since the queue last moved: a queue that does not move, because its
//! model is being loaded or a worker restarts, is not overloaded. `queue_timeout` is the limit for those.

use std::time::Duration;

use tokio::time::Instant;

use super::Priority;

/// How long the backlog stays above the target before the queue counts as overloaded.
const INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time over which the speed of the queue is measured.
const WINDOW: Duration = Duration::from_millis(250);
/// Requests that leave the queue within this time of each other may belong to one batch.
const BURST: Duration = Duration::from_millis(5);

/// The queue is overloaded, and a request would wait for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overload {
    /// The time that the waiting requests will take.
    pub backlog: Duration,
}

/// The state of a queue whose requests wait. It begins with [`LoadShedder::start`].
#[derive(Debug, Clone, Copy)]
pub struct LoadShedder {
    target: Duration,
    /// The number of waiting requests of each priority, but for those that came before [`LoadShedder::start`].
    waiting: [u32; 10],
    /// The moving average of the time of a prediction.
    service: Duration,
    /// The time between requests that leave the queue. `None` until it has been measured.
    pace: Option<Duration>,
    /// The start of the current measurement, and the number of requests that have left since.
    measured_from: Instant,
    departures: u32,
    last_departure: Instant,
    /// Since when the backlog has been above the target.
    above_since: Option<Instant>,
}

impl LoadShedder {
    pub fn new(target: Duration, now: Instant) -> Self {
        Self {
            target,
            waiting: [0; 10],
            service: Duration::ZERO,
            pace: None,
            measured_from: now,
            departures: 0,
            last_departure: now,
            above_since: None,
        }
    }

    /// Records that requests begin to wait.
    pub fn start(&mut self, now: Instant) {
        (self.measured_from, self.last_departure, self.departures) = (now, now, 0);
        (self.above_since, self.waiting) = (None, [0; 10]);
    }

    /// Records that a request waits.
    pub fn entered(&mut self, priority: Priority) {
        if let Some(waiting) = self.waiting.get_mut(level(priority)) {
            *waiting = waiting.saturating_add(1);
        }
    }

    /// Records that a request waits no longer.
    pub fn left(&mut self, priority: Priority) {
        if let Some(waiting) = self.waiting.get_mut(level(priority)) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Records that a request has left the queue for its prediction.
    pub fn departed(&mut self, priority: Priority, now: Instant) {
        self.left(priority);
        self.measure(now);
        self.departures = self.departures.saturating_add(1);
        self.last_departure = now;
        self.observe(now);
    }

    /// Records the time of a prediction.
    pub fn served(&mut self, took: Duration) {
        self.service = if self.service.is_zero() { took } else { (self.service * 3 + took) / 4 };
    }

    /// Decides about a request that arrives while others wait.
    ///
    /// # Errors
    ///
    /// Fails if the queue is overloaded and the request would wait for too long.
    pub fn admit(&mut self, priority: Priority, now: Instant) -> Result<(), Overload> {
        self.measure(now);
        self.observe(now);
        let backlog = self.time_of(self.waiting.iter().take(level(priority) + 1).sum());
        if self.is_overloaded(now) && backlog > self.target(now) * 2 {
            return Err(Overload { backlog });
        }
        self.entered(priority);
        Ok(())
    }

    /// Decides about a request that has waited for some time, and returns when to ask again.
    ///
    /// # Errors
    ///
    /// Fails if the queue is overloaded and the request has waited for too long.
    pub fn keep(&mut self, waited: Duration, now: Instant) -> Result<Duration, Overload> {
        self.measure(now);
        let backlog = self.observe(now);
        match self.patience(now).checked_sub(waited) {
            Some(rest) if !rest.is_zero() => Ok(rest.max(WINDOW)),
            _ if self.is_overloaded(now) => Err(Overload { backlog }),
            _ => Ok(WINDOW),
        }
    }

    /// Returns how long a request waits at least before it is dropped.
    pub const fn min_patience(&self) -> Duration {
        self.target.saturating_mul(3)
    }

    fn patience(&self, now: Instant) -> Duration {
        self.target(now) * 3
    }

    /// Updates the pace from the requests that have left, unless more of the same batch may be about to.
    fn measure(&mut self, now: Instant) {
        let measured = self.last_departure.saturating_duration_since(self.measured_from);
        let is_between = now.saturating_duration_since(self.last_departure) > BURST;
        if self.departures > 0 && measured >= WINDOW && (is_between || measured >= WINDOW * 2) {
            self.pace = Some(measured / self.departures);
            (self.measured_from, self.departures) = (self.last_departure, 0);
        }
    }

    /// Compares the backlog with the target, and returns it.
    fn observe(&mut self, now: Instant) -> Duration {
        let backlog = self.time_of(self.waiting.iter().sum());
        let target = self.target(now);
        if backlog > target {
            self.above_since.get_or_insert(now);
        } else if backlog <= target / 2 {
            self.above_since = None;
        }
        backlog
    }

    /// Returns the time that some requests will take.
    fn time_of(&self, requests: u32) -> Duration {
        self.pace.map_or(Duration::ZERO, |pace| pace.saturating_mul(requests))
    }

    fn is_overloaded(&self, now: Instant) -> bool {
        self.above_since.is_some_and(|since| now.saturating_duration_since(since) >= INTERVAL)
    }

    fn target(&self, now: Instant) -> Duration {
        self.target.max(self.service).max(now.saturating_duration_since(self.last_departure))
    }
}

fn level(priority: Priority) -> usize {
    usize::from(priority.number()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const TARGET: Duration = Duration::from_millis(500);

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// The end of a request's wait.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Outcome {
        Rejected,
        Dropped,
        Predicted,
    }

    #[derive(Debug, Clone, Copy)]
    struct Ended {
        priority: u64,
        waited: Duration,
        outcome: Outcome,
    }

    /// A queue in front of `width` places that predict up to `batch` requests at once, in steps of a millisecond.
    struct SimulatedQueue {
        shedder: LoadShedder,
        busy: bool,
        now: Instant,
        service: Duration,
        batch: usize,
        /// When each place is free.
        places: Vec<Instant>,
        /// Priority, arrival, and when to ask again.
        waiting: Vec<(u64, Instant, Instant)>,
        ended: Vec<Ended>,
    }

    impl SimulatedQueue {
        fn new(service: Duration, width: usize, batch: usize) -> Self {
            let now = Instant::now();
            let shedder = LoadShedder::new(TARGET, now);
            let places = vec![now; width];
            Self { shedder, busy: false, now, service, batch, places, waiting: Vec::new(), ended: Vec::new() }
        }

        fn end(&mut self, priority: u64, since: Instant, outcome: Outcome) {
            self.ended.push(Ended { priority, waited: self.now - since, outcome });
        }

        fn arrive(&mut self, priority: u64) {
            if !self.waiting.is_empty() {
                if !std::mem::replace(&mut self.busy, true) {
                    self.shedder.start(self.now);
                }
                if self.shedder.admit(Priority::new(priority), self.now).is_err() {
                    return self.end(priority, self.now, Outcome::Rejected);
                }
            }
            self.waiting.push((priority, self.now, self.now + self.shedder.min_patience()));
        }

        fn step(&mut self) {
            self.now += ms(1);
            let now = self.now;
            for place in 0..self.places.len() {
                if self.places[place] > now || self.waiting.is_empty() {
                    continue;
                }
                self.shedder.served(self.service);
                self.places[place] = now + self.service;
                for _ in 0..self.batch {
                    let next =
                        (0..self.waiting.len()).min_by_key(|&index| (self.waiting[index].0, self.waiting[index].1));
                    let Some(next) = next else { break };
                    let (priority, since, _) = self.waiting.remove(next);
                    if self.busy {
                        self.shedder.departed(Priority::new(priority), now);
                    }
                    self.end(priority, since, Outcome::Predicted);
                }
            }
            for index in (0..self.waiting.len()).rev() {
                let (priority, since, ask) = self.waiting[index];
                if ask <= now {
                    if let Ok(after) = self.shedder.keep(now - since, now) {
                        self.waiting[index].2 = now + after;
                    } else {
                        self.waiting.remove(index);
                        self.shedder.left(Priority::new(priority));
                        self.end(priority, since, Outcome::Dropped);
                    }
                }
            }
            self.busy &= !self.waiting.is_empty();
        }

        fn count(&self, outcome: Outcome, priority: u64) -> usize {
            self.ended.iter().filter(|ended| ended.outcome == outcome && ended.priority == priority).count()
        }
    }

    #[test]
    fn overloaded_queue_answers_all_in_time_at_full_throughput() {
        for (service, width, batch, patience) in
            [(50, 1, 1, 1700), (5, 1, 1, 1700), (200, 1, 64, 1700), (400, 4, 1, 1900), (2000, 2, 1, 6500)]
        {
            let mut queue = SimulatedQueue::new(ms(service), width, batch);
            // Ten times what the queue can take, after a burst.
            for _ in 0..1000 {
                queue.arrive(5);
            }
            let seconds = 60;
            let capacity = seconds * 1000 * (width * batch) as u64 / service;
            let (mut arrivals, mut credit) = (0, 0);
            while arrivals < capacity * 10 {
                queue.step();
                credit += capacity * 10;
                while credit >= seconds * 1000 {
                    credit -= seconds * 1000;
                    arrivals += 1;
                    queue.arrive(5);
                }
            }
            let longest = queue.ended.iter().map(|ended| ended.waited).max().unwrap();
            assert!(longest <= ms(patience), "{longest:?} with {service} ms");
            let predicted = queue.count(Outcome::Predicted, 5) as u64;
            assert!(predicted * 100 >= capacity * 90, "{predicted} of {capacity} with {service} ms");
        }
    }

    #[test]
    fn second_caller_of_a_slow_model_is_kept() {
        let mut queue = SimulatedQueue::new(ms(5000), 1, 1);
        for _ in 0..3 {
            queue.arrive(5);
        }
        for _ in 0..16_000 {
            queue.step();
        }
        assert_eq!(queue.count(Outcome::Predicted, 5), 3);
    }

    #[test]
    fn queue_that_does_not_move_keeps_its_requests() {
        let mut queue = SimulatedQueue::new(ms(50), 1, 1);
        let ready = queue.now + ms(20_000);
        queue.places[0] = ready;
        for _ in 0..15 {
            queue.arrive(5);
        }
        while queue.now < ready + ms(2000) {
            queue.step();
        }
        assert_eq!(queue.count(Outcome::Predicted, 5), 15, "they waited for the model to be loaded");
    }

    #[test]
    fn urgent_requests_are_shed_last() {
        let mut queue = SimulatedQueue::new(ms(50), 1, 1);
        // 10 urgent requests and 190 others a second; 20 can be predicted.
        for step in 0..60_000_u64 {
            queue.step();
            if step % 5 == 0 {
                queue.arrive(if step % 100 == 0 { 1 } else { 10 });
            }
        }
        let (urgent, bulk) = (queue.count(Outcome::Predicted, 1), queue.count(Outcome::Predicted, 10));
        assert_eq!(queue.count(Outcome::Rejected, 1) + queue.count(Outcome::Dropped, 1), 0);
        assert!(urgent >= 595 && bulk >= 500, "{urgent} and {bulk}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Bursts that the queue works off within the target are not affected, however many come.
        #[test]
        fn bursts_that_drain_within_the_target_are_kept(
            service in 1..200_u64,
            width in 1..5_usize,
            bursts in vec((1..400_u64, 0..2000_u64), 1..10),
        ) {
            let mut queue = SimulatedQueue::new(ms(service), width, 1);
            for (size, pause) in bursts {
                let fitting = (500 * width as u64 / service).max(1);
                for _ in 0..size.min(fitting) {
                    queue.arrive(5);
                }
                while !queue.waiting.is_empty() || queue.places.iter().any(|end| *end > queue.now) {
                    queue.step();
                }
                for _ in 0..pause {
                    queue.step();
                }
            }
            prop_assert!(queue.ended.iter().all(|ended| ended.outcome == Outcome::Predicted));
        }

        /// No request is shed while fewer arrive than the model can predict. At any rate of arrivals, no request waits long.
        #[test]
        fn waits_are_bounded_for_any_load(
            service in 1..300_u64,
            width in 1..4_usize,
            load in 1..1500_u64,
            burst in 0..300_usize,
        ) {
            let mut queue = SimulatedQueue::new(ms(service), width, 1);
            for _ in 0..burst {
                queue.arrive(5);
            }
            // The load is in percent.
            let mut credit = 0;
            for _ in 0..20_000 {
                queue.step();
                credit += load * width as u64;
                while credit >= service * 100 {
                    credit -= service * 100;
                    queue.arrive(5);
                }
            }
            let longest = queue.ended.iter().map(|ended| ended.waited).max().unwrap_or_default();
            prop_assert!(longest <= ms(1800) + ms(service), "{:?}", longest);
            if load <= 80 && burst == 0 {
                prop_assert!(queue.ended.iter().all(|ended| ended.outcome == Outcome::Predicted));
            }
            let capacity = usize::try_from(20_000 / service).unwrap() * width;
            if load >= 120 {
                let predicted = queue.count(Outcome::Predicted, 5);
                prop_assert!(predicted * 10 >= capacity * 8, "{} of {}", predicted, capacity);
            }
        }
    }
}
