//! The records that have been read and whose offsets are not committed: how many, and how many bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The most bytes of records, and of answers that wait for a transaction. One larger record is read nevertheless.
const MAX_BYTES: usize = 64 << 20;

/// Counts records in flight, for the threads that wait for a change. Clones share the counts.
#[derive(Debug, Clone)]
pub(super) struct InFlight(Arc<InFlightState>);

#[derive(Debug)]
struct InFlightState {
    limit: usize,
    counts: Mutex<Counts>,
    /// There is room again, or a record has ended.
    changed: Condvar,
    /// There is something to commit.
    committable: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    records: usize,
    bytes: usize,
    /// Records that need nothing more but their commit.
    done: usize,
    /// The oldest of them.
    done_since: Option<Instant>,
    /// Commit at once: a partition is about to be lost, or the consumer has no room.
    urgent: bool,
}

/// The bytes of a record, until it is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    in_flight: InFlight,
    bytes: usize,
}

impl InFlight {
    pub(super) fn new(limit: usize) -> Self {
        let (changed, committable) = (Condvar::new(), Condvar::new());
        Self(Arc::new(InFlightState { limit, counts: Mutex::default(), changed, committable }))
    }

    /// Returns the number of records in flight.
    pub(super) fn records(&self) -> usize {
        self.0.counts.lock().records
    }

    /// Adds a record of so many bytes.
    pub(super) fn begin(&self, bytes: usize) -> HeldBytes {
        let mut counts = self.0.counts.lock();
        counts.records += 1;
        counts.bytes += bytes;
        HeldBytes { in_flight: self.clone(), bytes }
    }

    /// Waits until there is room for a record, and returns whether there is.
    pub(super) fn wait_for_room(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut counts = self.0.counts.lock();
        while !self.has_room(&counts) {
            counts.urgent = true;
            self.0.committable.notify_all();
            if self.0.changed.wait_until(&mut counts, until).timed_out() {
                return self.has_room(&counts);
            }
        }
        true
    }

    /// Reports whether there is room for several records, so that reading can begin again.
    pub(super) fn has_much_room(&self) -> bool {
        let counts = self.0.counts.lock();
        counts.records <= self.0.limit / 2 && counts.bytes <= MAX_BYTES / 2
    }

    fn has_room(&self, counts: &Counts) -> bool {
        counts.records < self.0.limit && counts.bytes < MAX_BYTES
    }

    /// Waits until something changes.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut counts = self.0.counts.lock();
        counts.urgent = true;
        self.0.committable.notify_all();
        self.0.changed.wait_for(&mut counts, timeout);
    }

    /// Records that a record needs nothing more but its commit, or has been abandoned.
    pub(super) fn settle(&self) {
        let mut counts = self.0.counts.lock();
        counts.done += 1;
        counts.done_since.get_or_insert_with(Instant::now);
        if counts.done == 1 || counts.done == self.0.limit / 2 || counts.urgent {
            self.0.committable.notify_all();
        }
        if counts.urgent {
            self.0.changed.notify_all();
        }
    }

    /// Waits until there is something to commit: for `interval` after the first record, unless it is urgent.
    pub(super) fn wait_for_commit(&self, interval: Duration, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut counts = self.0.counts.lock();
        loop {
            let due = match counts.done_since {
                Some(_) if counts.urgent || counts.done >= self.0.limit / 2 => break,
                Some(since) => since + interval,
                None => until,
            };
            if self.0.committable.wait_until(&mut counts, due.min(until)).timed_out() {
                break;
            }
        }
        counts.done = 0;
        counts.done_since = None;
        counts.urgent = false;
    }

    /// Removes records whose offsets have been committed, or that are read again by another consumer.
    pub(super) fn end(&self, records: usize) {
        let mut counts = self.0.counts.lock();
        counts.records -= records.min(counts.records);
        drop(counts);
        self.0.changed.notify_all();
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut counts = self.in_flight.0.counts.lock();
        counts.bytes -= self.bytes;
        let wake = counts.urgent;
        drop(counts);
        if wake {
            self.in_flight.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn records_and_bytes_are_limited() {
        let in_flight = InFlight::new(2);
        let first = in_flight.begin(10);
        assert!(in_flight.wait_for_room(SOON));
        let _second = in_flight.begin(10);
        assert!(!in_flight.wait_for_room(SOON));
        in_flight.end(1);
        assert!(in_flight.wait_for_room(SOON) && in_flight.has_much_room());
        drop(first);
        let large = in_flight.begin(MAX_BYTES);
        in_flight.end(1);
        assert!(!in_flight.wait_for_room(SOON));
        drop(large);
        assert!(in_flight.wait_for_room(SOON));
    }

    #[test]
    fn commit_does_not_wait_if_it_is_urgent() {
        let in_flight = InFlight::new(10);
        let _held = in_flight.begin(1);
        in_flight.settle();
        std::thread::scope(|scope| {
            scope.spawn(|| in_flight.wait_for_commit(LONG, LONG));
            // Ends only if the other thread commits, as the second half of the limit is free.
            while in_flight.0.counts.lock().done_since.is_some() {
                in_flight.wait(SOON);
            }
        });
    }
}
