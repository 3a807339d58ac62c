//! When a batch is complete. Pure: the clock is an argument, there is no I/O.
//!
//! A batch is sent when it is full, and when its first request has waited for `max_batch_time`. It is sent earlier when
//! waiting cannot pay off, and later when sending cannot:
//!
//! - While the runtime has nothing to do, and nobody else is expected, a request is sent at once. While the runtime is busy,
//!   requests gather, and go together as soon as it is free.
//! - A runtime whose places are all taken could not begin a batch whose time is over. Sent, it would wait half empty before the
//!   runtime; so it stays open until a place is free. Nobody waits longer for it, and those who come meanwhile go along.
//! - Others are expected when so many callers were there at the same time a moment ago: those who have just been answered
//!   tend to come back at once, and would only miss the batch. For them a free runtime waits, but never longer than half of
//!   what a prediction takes. When they do not come, it stops waiting, for longer each time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The clock of timers: what would end sooner is not worth a timer.
const TICK: Duration = Duration::from_millis(1);

/// The most batches in a row that do not wait for callers after those have not come.
const MAX_SKIPPED: u32 = 64;

/// When a batch is complete, whatever else happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Requests in a batch; at least 2.
    pub(super) size: usize,
    /// How long the first of them waits.
    pub(super) time: Duration,
}

/// What a group of requests, which may share a batch, is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingGroup {
    pub(super) requests: usize,
    /// When the first of them came.
    pub(super) since: Instant,
}

/// What to do with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Send,
    /// Wait for more, until then at the latest.
    Until(Instant),
    /// Wait for more, until the runtime can begin a batch.
    Busy,
}

/// What is known of the load of one model.
#[derive(Debug)]
pub(super) struct Policy {
    limits: Limits,
    /// Batches that the runtime works on, and those of them that keep others from beginning.
    running: usize,
    occupying: usize,
    /// Requests that wait in groups, and those in batches that run.
    waiting: usize,
    present: usize,
    /// How many callers there seem to be.
    callers: usize,
    /// How long a prediction takes, as a moving average.
    service: Option<Duration>,
    /// When the runtime last became able to take another batch.
    free_since: Instant,
    /// Whom the runtime is waiting for, if it is.
    expectation: Option<ExpectedCallers>,
    /// Batches to send without waiting for callers, and as how many that began.
    skip: u32,
    skipped: u32,
}

/// Callers that a free runtime waits for.
#[derive(Debug, Clone, Copy)]
struct ExpectedCallers {
    /// Requests that were waiting when it began, and how many are expected.
    before: usize,
    expected: usize,
}

impl Policy {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            running: 0,
            occupying: 0,
            waiting: 0,
            present: 0,
            callers: 0,
            service: None,
            free_since: now,
            expectation: None,
            skip: 0,
            skipped: 0,
        }
    }

    /// Returns the number of requests that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Notes a request that waits from now on.
    pub(super) fn arrived(&mut self) {
        self.waiting += 1;
        self.present += 1;
        self.callers = self.callers.max(self.present);
    }

    /// Notes that the caller of a waiting request has left.
    pub(super) fn left(&mut self) {
        self.waiting -= 1;
        self.present -= 1;
        if self.waiting == 0 {
            self.expectation = None;
        }
    }

    /// Decides what becomes of a group, for a runtime that works on `width` batches at once.
    pub(super) fn decide(&mut self, group: WaitingGroup, width: usize, now: Instant) -> Decision {
        if group.requests >= self.limits.size {
            return Decision::Send;
        }
        let width = width.max(1);
        if self.occupying >= width {
            return Decision::Busy;
        }
        let latest = group.since + self.limits.time;
        if now >= latest {
            return Decision::Send;
        }
        if self.running >= width {
            return Decision::Until(latest);
        }
        let expected = self.callers.div_ceil(width).min(self.limits.size);
        let patience = self.service.map_or(Duration::ZERO, |service| service / 2);
        if self.waiting >= expected || self.skip > 0 || patience < TICK {
            return Decision::Send;
        }
        let patient = latest.min(group.since.max(self.free_since) + patience);
        if now >= patient {
            return Decision::Send;
        }
        self.expectation.get_or_insert(ExpectedCallers { before: self.waiting, expected });
        Decision::Until(patient)
    }

    /// Notes that a batch is sent.
    pub(super) fn sent(&mut self, requests: usize) {
        self.learn();
        self.waiting -= requests;
        self.running += 1;
        self.occupying += 1;
    }

    /// Compares who was expected with who came.
    fn learn(&mut self) {
        let Some(ExpectedCallers { before, expected }) = self.expectation.take() else {
            self.skip = self.skip.saturating_sub(1);
            return;
        };
        let missing = expected.saturating_sub(before);
        let came = self.waiting.saturating_sub(before);
        if came * 4 >= missing * 3 {
            self.skipped = 0;
        } else {
            self.skipped = (self.skipped * 2).clamp(1, MAX_SKIPPED);
            self.skip = self.skipped;
        }
        // Whoever did not come is not expected again.
        self.callers = self.present;
    }

    /// Notes that a batch keeps nobody from beginning any more: it has ended, or waits for something else than the runtime.
    /// Whichever comes first counts; `occupies` belongs to the batch.
    pub(super) fn free(&mut self, occupies: &AtomicBool) {
        if occupies.swap(false, Ordering::Relaxed) {
            self.occupying -= 1;
        }
    }

    /// Notes that a batch has ended; `took` is how long the prediction took, unless it was abandoned.
    pub(super) fn ended(&mut self, requests: usize, took: Option<Duration>, now: Instant) {
        self.running -= 1;
        self.present -= requests;
        self.free_since = now;
        if let Some(took) = took {
            self.service = Some(self.service.map_or(took, |service| (service * 3 + took) / 4));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { size: 64, time: Duration::from_millis(100) };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A runtime behind a policy, and callers, on a clock of their own.
    struct World {
        policy: Policy,
        now: Instant,
        width: usize,
        /// When those who wait came.
        group: Vec<Instant>,
        /// Batches that run: their end, and when each of their requests came.
        running: Vec<(Instant, Vec<Instant>)>,
        service: fn(usize) -> Duration,
        sizes: Vec<usize>,
        waits: Vec<Duration>,
        longest_wait: Duration,
    }

    impl World {
        fn new(limits: Limits, width: usize, service: fn(usize) -> Duration) -> Self {
            let now = Instant::now();
            Self {
                policy: Policy::new(limits, now),
                now,
                width,
                group: Vec::new(),
                running: Vec::new(),
                service,
                sizes: Vec::new(),
                waits: Vec::new(),
                longest_wait: Duration::ZERO,
            }
        }

        fn arrive(&mut self) {
            self.policy.arrived();
            self.group.push(self.now);
        }

        /// Sends what is complete, and returns when to ask again.
        fn decide(&mut self) -> Option<Instant> {
            let since = *self.group.first()?;
            let waiting = WaitingGroup { requests: self.group.len(), since };
            match self.policy.decide(waiting, self.width, self.now) {
                Decision::Until(until) => Some(until),
                Decision::Busy => None,
                Decision::Send => {
                    let group = std::mem::take(&mut self.group);
                    self.policy.sent(group.len());
                    self.waits.extend(group.iter().map(|&came| self.now - came));
                    self.longest_wait = self.longest_wait.max(self.now - since);
                    self.sizes.push(group.len());
                    // The runtime itself takes no more than its width at once.
                    let mut ends: Vec<_> = self.running.iter().map(|(end, _)| *end).collect();
                    ends.sort_unstable();
                    let free = ends.len().checked_sub(self.width).map_or(self.now, |index| ends[index]);
                    self.running.push((free.max(self.now) + (self.service)(group.len()), group));
                    None
                }
            }
        }

        /// Runs for a while. Callers come at these times after now, and again `pause` after their answers, if at all.
        fn run(&mut self, arrivals: impl Iterator<Item = Duration>, pause: Option<Duration>, time: Duration) {
            let mut arrivals: Vec<Instant> = arrivals.map(|after| self.now + after).collect();
            let end = self.now + time;
            while self.now < end {
                let due = self.decide();
                let next_end = self.running.iter().map(|(end, _)| *end).min();
                let next_arrival = arrivals.iter().min().copied();
                let Some(next) = [due, next_end, next_arrival].into_iter().flatten().min() else { break };
                self.now = next.max(self.now);
                if let Some(index) = self.running.iter().position(|(end, _)| *end <= self.now) {
                    let (_, group) = self.running.swap_remove(index);
                    let took = (self.service)(group.len());
                    self.policy.free(&AtomicBool::new(true));
                    self.policy.ended(group.len(), Some(took), self.now);
                    if let Some(pause) = pause {
                        // One after another, as answers are written and requests read.
                        let turn = Duration::from_micros(20);
                        arrivals.extend((1..).take(group.len()).map(|index| self.now + pause + turn * index));
                    }
                } else if let Some(index) = arrivals.iter().position(|arrival| *arrival <= self.now) {
                    arrivals.swap_remove(index);
                    self.arrive();
                }
            }
        }

        fn run_callers(&mut self, callers: usize, pause: Duration, time: Duration) {
            self.run(std::iter::repeat_n(Duration::ZERO, callers), Some(pause), time);
        }
    }

    fn mean(durations: &[Duration]) -> Duration {
        durations.iter().sum::<Duration>() / u32::try_from(durations.len()).unwrap()
    }

    #[test]
    fn a_lone_caller_never_waits() {
        for service in [|_| ms(0), |_| ms(1), |_| ms(30), |_| ms(500)] {
            let mut world = World::new(LIMITS, 1, service);
            world.run_callers(1, Duration::from_micros(300), Duration::from_secs(20));
            assert!(world.sizes.len() > 30);
            assert_eq!(world.longest_wait, Duration::ZERO);
        }
    }

    #[test]
    fn callers_that_come_back_are_batched_together() {
        let mut world = World::new(LIMITS, 1, |_| ms(20));
        world.run_callers(64, ms(2), Duration::from_secs(10));
        let answered: usize = world.sizes.iter().sum();
        // 23.3 ms for all of them is as good as it gets.
        assert!(answered > 64 * 420, "{answered} in batches of {:?}", &world.sizes[..20]);
        assert!(world.sizes[10..].iter().all(|&size| size == 64), "{:?}", &world.sizes[..40]);
    }

    #[test]
    fn workers_share_the_callers() {
        let mut world = World::new(LIMITS, 4, |size| ms(10 + size as u64));
        world.run_callers(64, ms(1), Duration::from_secs(10));
        let late = &world.sizes[world.sizes.len() / 2..];
        let mean = late.iter().sum::<usize>() / late.len();
        assert!((8..=24).contains(&mean), "{mean}: {late:?}");
    }

    #[test]
    fn a_runtime_learns_that_callers_do_not_come_back() {
        let mut world = World::new(LIMITS, 1, |_| ms(20));
        world.run_callers(64, ms(1), Duration::from_secs(1));
        let mut policy = Policy::new(LIMITS, world.now);
        (policy.callers, policy.service) = (world.policy.callers, world.policy.service);
        // Others come every 7 ms, whatever happens to those before them.
        let mut world = World { policy, ..World::new(LIMITS, 1, |_| ms(20)) };
        world.run((1..5000).map(|index| ms(7) * index), None, Duration::from_secs(30));
        // Those who come while the runtime is busy wait for it: half of 20 ms, on average. Hardly anybody waits longer.
        assert!(mean(&world.waits) < Duration::from_micros(11_500), "{:?}", mean(&world.waits));

        // Then they come one by one. The first of them waits in vain.
        world.run(std::iter::empty(), None, Duration::from_secs(1));
        let mut world = World { waits: Vec::new(), ..world };
        world.run((1..100).map(|index| ms(500) * index), None, Duration::from_mins(1));
        assert!(world.waits.iter().filter(|wait| !wait.is_zero()).count() <= 1, "{:?}", world.waits);
    }

    #[test]
    fn nobody_waits_longer_than_the_limit_for_a_runtime_that_is_free() {
        for callers in [1_u32, 3, 40, 200] {
            for width in [1, 3] {
                let limits = Limits { size: 16, time: ms(5) };
                let mut world = World::new(limits, width, |size| ms(40 + size as u64));
                world.run_callers(callers as usize, ms(3), Duration::from_secs(5));
                // What runs, and the full batches that were sent before.
                let busy = ms(40 + 16) * (1 + callers / 16);
                assert!(world.longest_wait <= busy + ms(5), "{callers} {width}: {:?}", world.longest_wait);
                assert!(world.sizes.iter().all(|&size| size <= 16));
            }
        }
        let mut policy = Policy::new(Limits { size: 16, time: ms(5) }, Instant::now());
        let since = Instant::now();
        (policy.callers, policy.service) = (16, Some(ms(1000)));
        policy.arrived();
        let group = WaitingGroup { requests: 1, since };
        assert_eq!(policy.decide(group, 1, since), Decision::Until(since + ms(5)), "others may come");
        assert_eq!(policy.decide(group, 1, since + ms(5)), Decision::Send);
    }

    #[test]
    fn batches_stay_open_while_the_runtime_could_not_begin_them() {
        // A short limit makes no difference to a runtime that takes longer: whoever comes in the meantime goes along.
        for limit in [1, 10] {
            let mut world = World::new(Limits { size: 8, time: ms(limit) }, 1, |_| ms(100));
            world.run((0..4000).map(|index| ms(25) * index), None, Duration::from_secs(20));
            let late = &world.sizes[10..];
            assert!(late.iter().all(|&size| (3..=5).contains(&size)), "{limit}: {late:?}");
            assert!(mean(&world.waits) < ms(65), "{limit}: {:?}", mean(&world.waits));
        }
    }

    #[test]
    fn a_batch_that_waits_for_something_else_does_not_hold_up_the_next() {
        let now = Instant::now();
        let mut policy = Policy::new(LIMITS, now);
        let group = WaitingGroup { requests: 1, since: now };
        policy.arrived();
        assert_eq!(policy.decide(group, 1, now), Decision::Send);
        policy.sent(1);
        policy.arrived();
        assert_eq!(policy.decide(group, 1, now + LIMITS.time), Decision::Busy);
        policy.free(&AtomicBool::new(true));
        assert_eq!(policy.decide(group, 1, now), Decision::Until(now + LIMITS.time), "it still gathers");
        assert_eq!(policy.decide(group, 1, now + LIMITS.time), Decision::Send);
    }
}
