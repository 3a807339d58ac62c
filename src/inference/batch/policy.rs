//! Decides when a batch is sent. Pure: the clock is an argument, there is no I/O.
//!
//! A batch is sent when it is full, and when its first request has waited for `max_batch_time`. It is sent earlier if waiting
//! has no benefit, and later if sending has none:
//!
//! - While the runtime is idle and no other callers are expected, a request is sent at once. While the runtime is busy,
//!   requests gather, and are sent together as soon as it is free.
//! - A runtime whose slots are all taken could not begin a batch that is due, so a batch that was sent would wait half empty at
//!   the runtime. It stays open until a slot is free instead, and requests that arrive in the meantime join the batch. It
//!   competes for the slot with the other groups, by priority and with aging, and with the full batches of other requests.
//! - Callers are expected if they were present a moment ago: those that have just been answered tend to return at once, and
//!   would only miss the batch. A free runtime waits for them, but never longer than half the time of a prediction. If they
//!   do not return, it stops waiting, for longer each time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The resolution of timers: shorter waits are not worth a timer.
const TICK: Duration = Duration::from_millis(1);

/// The maximum number of consecutive batches that do not wait for callers after expected ones did not return.
const MAX_SKIPPED: u32 = 64;

/// The limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    /// Requests in a batch; at least 2.
    pub(super) size: usize,
    /// The longest time that the first of them waits.
    pub(super) time: Duration,
}

/// A group of waiting requests that may share a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingGroup {
    pub(super) requests: usize,
    /// When the first of them arrived.
    pub(super) since: Instant,
}

/// The decision about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchDecision {
    Send,
    /// Wait for more requests, at most until this time.
    Until(Instant),
    /// Wait for more requests until the runtime can begin a batch.
    Busy,
    /// The same, although the group has waited for its time.
    Overdue,
}

/// The load of one model.
#[derive(Debug)]
pub(super) struct BatchPolicy {
    limits: BatchLimits,
    /// Batches that the runtime works on, and those of them that occupy one of its slots.
    running: usize,
    occupying: usize,
    /// Requests that wait in groups, and those in batches that run.
    waiting: usize,
    present: usize,
    /// The estimated number of callers.
    callers: usize,
    /// The time of a prediction, as a moving average.
    service: Option<Duration>,
    /// When the runtime last became able to take another batch.
    free_since: Instant,
    /// The callers that the runtime is waiting for, if any.
    expectation: Option<ExpectedCallers>,
    /// The remaining number of batches to send without waiting for callers, and the number that it started from.
    skip: u32,
    skipped: u32,
}

/// Callers that a free runtime waits for.
#[derive(Debug, Clone, Copy)]
struct ExpectedCallers {
    /// Requests that were waiting at the beginning, and how many are expected.
    before: usize,
    expected: usize,
}

impl BatchPolicy {
    pub(super) fn new(limits: BatchLimits, now: Instant) -> Self {
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

    /// Returns the number of waiting requests.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Records a request that starts to wait.
    pub(super) fn arrived(&mut self) {
        self.waiting += 1;
        self.present += 1;
        self.callers = self.callers.max(self.present);
    }

    /// Records that a waiting request was cancelled.
    pub(super) fn cancelled(&mut self) {
        self.waiting -= 1;
        self.present -= 1;
        if self.waiting == 0 {
            self.expectation = None;
        }
    }

    /// Decides about a group, for a runtime that works on `width` batches concurrently.
    pub(super) fn decide(&mut self, group: WaitingGroup, width: usize, now: Instant) -> BatchDecision {
        if group.requests >= self.limits.size {
            return BatchDecision::Send;
        }
        let width = width.max(1);
        let latest = group.since + self.limits.time;
        if self.occupying >= width {
            return if now >= latest { BatchDecision::Overdue } else { BatchDecision::Busy };
        }
        if now >= latest {
            return BatchDecision::Send;
        }
        if self.running >= width {
            return BatchDecision::Until(latest);
        }
        let expected = self.callers.div_ceil(width).min(self.limits.size);
        let patience = self.service.map_or(Duration::ZERO, |service| service / 2);
        if self.waiting >= expected || self.skip > 0 || patience < TICK {
            return BatchDecision::Send;
        }
        let patient = latest.min(group.since.max(self.free_since) + patience);
        if now >= patient {
            return BatchDecision::Send;
        }
        self.expectation.get_or_insert(ExpectedCallers { before: self.waiting, expected });
        BatchDecision::Until(patient)
    }

    /// Records that a batch is sent.
    pub(super) fn sent(&mut self, requests: usize) {
        self.learn();
        self.waiting -= requests;
        self.running += 1;
        self.occupying += 1;
    }

    /// Compares the expected callers with those that arrived.
    fn learn(&mut self) {
        let Some(ExpectedCallers { before, expected }) = self.expectation.take() else {
            self.skip = self.skip.saturating_sub(1);
            return;
        };
        let missing = expected.saturating_sub(before);
        let arrived = self.waiting.saturating_sub(before);
        if arrived * 4 >= missing * 3 {
            self.skipped = 0;
        } else {
            self.skipped = (self.skipped * 2).clamp(1, MAX_SKIPPED);
            self.skip = self.skipped;
        }
        // Callers that did not return are not expected again.
        self.callers = self.present;
    }

    /// Records that a batch no longer occupies a slot of the runtime: it has ended, or waits for something else. Only the first
    /// call for a batch has an effect; `occupies` belongs to the batch.
    pub(super) fn free(&mut self, occupies: &AtomicBool) {
        if occupies.swap(false, Ordering::Relaxed) {
            self.occupying -= 1;
        }
    }

    /// Records that a batch has ended; `took` is the time of its prediction. `None` if it failed or was cancelled.
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

    const LIMITS: BatchLimits = BatchLimits { size: 64, time: Duration::from_millis(100) };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A runtime behind a policy, and its callers, with a simulated clock.
    struct SimulatedRuntime {
        policy: BatchPolicy,
        now: Instant,
        width: usize,
        /// When the waiting requests arrived.
        group: Vec<Instant>,
        /// Running batches: their end, and when each of their requests arrived.
        running: Vec<(Instant, Vec<Instant>)>,
        service: fn(usize) -> Duration,
        sizes: Vec<usize>,
        waits: Vec<Duration>,
        longest_wait: Duration,
    }

    impl SimulatedRuntime {
        fn new(limits: BatchLimits, width: usize, service: fn(usize) -> Duration) -> Self {
            let now = Instant::now();
            Self {
                policy: BatchPolicy::new(limits, now),
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

        /// Sends a complete batch, and returns when to ask again.
        fn decide(&mut self) -> Option<Instant> {
            let since = *self.group.first()?;
            let waiting = WaitingGroup { requests: self.group.len(), since };
            match self.policy.decide(waiting, self.width, self.now) {
                BatchDecision::Until(until) => Some(until),
                BatchDecision::Busy | BatchDecision::Overdue => None,
                BatchDecision::Send => {
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

        /// Runs for `time`. Callers arrive at these times after now, and again `pause` after their responses, if it is given.
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
                        // One after another, as responses are written and requests are read.
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
    fn batch_policy_single_caller_never_waits() {
        for service in [|_| ms(0), |_| ms(1), |_| ms(30), |_| ms(500)] {
            let mut world = SimulatedRuntime::new(LIMITS, 1, service);
            world.run_callers(1, Duration::from_micros(300), Duration::from_secs(20));
            assert!(world.sizes.len() > 30);
            assert_eq!(world.longest_wait, Duration::ZERO);
        }
    }

    #[test]
    fn batch_policy_batches_returning_callers_together() {
        let mut world = SimulatedRuntime::new(LIMITS, 1, |_| ms(20));
        world.run_callers(64, ms(2), Duration::from_secs(10));
        let answered: usize = world.sizes.iter().sum();
        // 23.3 ms for all of them is as good as it gets.
        assert!(answered > 64 * 420, "{answered} in batches of {:?}", &world.sizes[..20]);
        assert!(world.sizes[10..].iter().all(|&size| size == 64), "{:?}", &world.sizes[..40]);
    }

    #[test]
    fn batch_policy_divides_callers_among_workers() {
        let mut world = SimulatedRuntime::new(LIMITS, 4, |size| ms(10 + size as u64));
        world.run_callers(64, ms(1), Duration::from_secs(10));
        let late = &world.sizes[world.sizes.len() / 2..];
        let mean = late.iter().sum::<usize>() / late.len();
        assert!((8..=24).contains(&mean), "{mean}: {late:?}");
    }

    #[test]
    fn batch_policy_stops_waiting_for_callers_that_do_not_return() {
        let mut world = SimulatedRuntime::new(LIMITS, 1, |_| ms(20));
        world.run_callers(64, ms(1), Duration::from_secs(1));
        let mut policy = BatchPolicy::new(LIMITS, world.now);
        (policy.callers, policy.service) = (world.policy.callers, world.policy.service);
        // Other callers arrive every 7 ms, independently of earlier ones.
        let mut world = SimulatedRuntime { policy, ..SimulatedRuntime::new(LIMITS, 1, |_| ms(20)) };
        world.run((1..5000).map(|index| ms(7) * index), None, Duration::from_secs(30));
        // Callers that arrive while the runtime is busy wait for it: half of 20 ms on average. Few wait longer.
        assert!(mean(&world.waits) < Duration::from_micros(11_500), "{:?}", mean(&world.waits));

        // Then they arrive one by one. Only the first of them may wait for others in vain.
        world.run(std::iter::empty(), None, Duration::from_secs(1));
        let mut world = SimulatedRuntime { waits: Vec::new(), ..world };
        world.run((1..100).map(|index| ms(500) * index), None, Duration::from_mins(1));
        assert!(world.waits.iter().filter(|wait| !wait.is_zero()).count() <= 1, "{:?}", world.waits);
    }

    #[test]
    fn batch_policy_wait_is_limited_while_runtime_is_free() {
        for callers in [1_u32, 3, 40, 200] {
            for width in [1, 3] {
                let limits = BatchLimits { size: 16, time: ms(5) };
                let mut world = SimulatedRuntime::new(limits, width, |size| ms(40 + size as u64));
                world.run_callers(callers as usize, ms(3), Duration::from_secs(5));
                // The running batch, and the full batches that were sent before.
                let busy = ms(40 + 16) * (1 + callers / 16);
                assert!(world.longest_wait <= busy + ms(5), "{callers} {width}: {:?}", world.longest_wait);
                assert!(world.sizes.iter().all(|&size| size <= 16));
            }
        }
        let mut policy = BatchPolicy::new(BatchLimits { size: 16, time: ms(5) }, Instant::now());
        let since = Instant::now();
        (policy.callers, policy.service) = (16, Some(ms(1000)));
        policy.arrived();
        let group = WaitingGroup { requests: 1, since };
        assert_eq!(policy.decide(group, 1, since), BatchDecision::Until(since + ms(5)), "others may arrive");
        assert_eq!(policy.decide(group, 1, since + ms(5)), BatchDecision::Send);
    }

    #[test]
    fn batch_policy_keeps_batches_open_while_runtime_is_busy() {
        // A short limit makes no difference if the runtime takes longer: requests that arrive in the meantime join the batch.
        for limit in [1, 10] {
            let mut world = SimulatedRuntime::new(BatchLimits { size: 8, time: ms(limit) }, 1, |_| ms(100));
            world.run((0..4000).map(|index| ms(25) * index), None, Duration::from_secs(20));
            let late = &world.sizes[10..];
            assert!(late.iter().all(|&size| (3..=5).contains(&size)), "{limit}: {late:?}");
            assert!(mean(&world.waits) < ms(65), "{limit}: {:?}", mean(&world.waits));
        }
    }

    #[test]
    fn batch_policy_batch_without_slot_does_not_block_next() {
        let now = Instant::now();
        let mut policy = BatchPolicy::new(LIMITS, now);
        let group = WaitingGroup { requests: 1, since: now };
        policy.arrived();
        assert_eq!(policy.decide(group, 1, now), BatchDecision::Send);
        policy.sent(1);
        policy.arrived();
        assert_eq!(policy.decide(group, 1, now), BatchDecision::Busy);
        assert_eq!(policy.decide(group, 1, now + LIMITS.time), BatchDecision::Overdue);
        policy.free(&AtomicBool::new(true));
        assert_eq!(policy.decide(group, 1, now), BatchDecision::Until(now + LIMITS.time), "it still gathers");
        assert_eq!(policy.decide(group, 1, now + LIMITS.time), BatchDecision::Send);
    }
}
