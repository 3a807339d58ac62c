//! Which offsets of a partition can be committed: those before the first record that has no answer yet.

use std::collections::VecDeque;

/// The records of one partition that have been read and not committed, in the order of their offsets.
///
/// `T` is what a record leaves until its offset is committed.
#[derive(Debug)]
pub(super) struct OffsetTracker<T> {
    entries: VecDeque<Entry<T>>,
    /// The records that [`OffsetTracker::take_done`] has returned, and that are not committed yet.
    committing: usize,
    /// The largest offset of a record that has been started.
    started: Option<i64>,
}

#[derive(Debug)]
struct Entry<T> {
    offset: i64,
    state: EntryState<T>,
}

#[derive(Debug)]
enum EntryState<T> {
    Pending,
    Done(T),
    /// It will be read again, by another consumer. Nothing after it can be committed.
    Abandoned,
}

/// Records that can be committed together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DoneRecords<T> {
    /// The offset to commit: that of the record after the last one.
    pub(super) next_offset: i64,
    /// The offset of each, and what it leaves.
    pub(super) records: Vec<(i64, T)>,
}

impl<T> Default for OffsetTracker<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), committing: 0, started: None }
    }
}

impl<T> OffsetTracker<T> {
    /// Adds a record that has been read. Offsets only increase; gaps are allowed.
    pub(super) fn begin(&mut self, offset: i64) {
        self.entries.push_back(Entry { offset, state: EntryState::Pending });
    }

    /// Starts a record, or abandons it if the partition `is_leaving`. Returns whether it has been started.
    ///
    /// Records are read in chunks, which several threads start in any order. A record before one that has been started is started, too:
    /// otherwise the answer of that one could not be committed, and would be repeated.
    pub(super) fn start(&mut self, offset: i64, is_leaving: bool) -> bool {
        let is_before_started = self.started.is_some_and(|started| offset < started);
        if is_leaving && !is_before_started {
            self.abandon(offset);
            return false;
        }
        self.started = self.started.max(Some(offset));
        true
    }

    /// Records that a record needs nothing more but its commit.
    pub(super) fn complete(&mut self, offset: i64, left: T) {
        self.set(offset, EntryState::Done(left));
    }

    /// Records that a record will not be answered here.
    pub(super) fn abandon(&mut self, offset: i64) {
        self.set(offset, EntryState::Abandoned);
    }

    fn set(&mut self, offset: i64, state: EntryState<T>) {
        if let Ok(index) = self.entries.binary_search_by_key(&offset, |entry| entry.offset) {
            self.entries[index].state = state;
        }
    }

    /// Takes the records that can be committed now. The caller commits them, however often it has to try.
    pub(super) fn take_done(&mut self) -> Option<DoneRecords<T>> {
        let mut records = Vec::new();
        while let Some(Entry { offset, state }) =
            self.entries.pop_front_if(|entry| matches!(entry.state, EntryState::Done(_)))
            && let EntryState::Done(left) = state
        {
            records.push((offset, left));
        }
        self.committing += records.len();
        let next_offset = records.last()?.0 + 1;
        Some(DoneRecords { next_offset, records })
    }

    /// Records that the offsets of `count` records have been committed. Returns how many of them were still tracked.
    pub(super) fn committed(&mut self, count: usize) -> usize {
        let count = count.min(self.committing);
        self.committing -= count;
        count
    }

    /// Forgets all records, and returns how many there were.
    pub(super) fn close(&mut self) -> usize {
        let count = self.len();
        self.entries.clear();
        self.committing = 0;
        count
    }

    /// Returns the number of records that have been read and not committed.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.committing
    }

    /// Reports whether nothing is left to wait for: no record is pending, and what can be committed has been.
    pub(super) fn is_settled(&self) -> bool {
        let is_pending = |entry: &Entry<T>| matches!(entry.state, EntryState::Pending);
        let is_done = |entry: &Entry<T>| matches!(entry.state, EntryState::Done(_));
        self.committing == 0 && !self.entries.iter().any(is_pending) && !self.entries.front().is_some_and(is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_are_committed_up_to_the_first_pending_record() {
        let mut tracker = OffsetTracker::default();
        for offset in [3, 4, 6, 9] {
            tracker.begin(offset);
        }
        tracker.complete(4, "b");
        assert_eq!(tracker.take_done(), None);
        tracker.complete(3, "a");
        assert_eq!(tracker.take_done(), Some(DoneRecords { next_offset: 5, records: vec![(3, "a"), (4, "b")] }));
        assert_eq!((tracker.len(), tracker.is_settled()), (4, false));
        assert_eq!(tracker.committed(2), 2);
        tracker.complete(9, "d");
        tracker.abandon(6);
        assert_eq!(tracker.take_done(), None);
        assert_eq!((tracker.len(), tracker.is_settled()), (2, true));
        assert_eq!((tracker.close(), tracker.len(), tracker.committed(1)), (2, 0, 0));
    }

    #[test]
    fn records_before_one_that_was_started_are_started_although_the_partition_leaves() {
        let mut tracker = OffsetTracker::default();
        for offset in 0..6 {
            tracker.begin(offset);
        }
        // The second chunk is started before the first one.
        assert!(tracker.start(2, false) && tracker.start(3, false));
        tracker.complete(2, ());
        tracker.complete(3, ());
        assert!(tracker.start(0, true) && tracker.start(1, true), "these are before answered ones");
        assert!(!tracker.start(4, true) && !tracker.start(5, true), "nothing after these has been started");
        tracker.complete(1, ());
        tracker.complete(0, ());
        assert_eq!(tracker.take_done().map(|done| done.next_offset), Some(4));
        tracker.committed(4);
        assert!(tracker.is_settled());
    }

    proptest! {
        #[test]
        fn every_record_is_committed_once_in_order(
            order in Just((0..40_i64).collect::<Vec<_>>()).prop_shuffle(),
            abandoned in proptest::option::of(0..40_i64),
        ) {
            let mut tracker = OffsetTracker::default();
            for offset in 0..40 {
                tracker.begin(offset);
            }
            let (mut committed, mut finished) = (Vec::new(), std::collections::BTreeSet::new());
            for offset in order {
                if Some(offset) == abandoned {
                    tracker.abandon(offset);
                } else {
                    tracker.complete(offset, offset);
                    finished.insert(offset);
                }
                if let Some(done) = tracker.take_done() {
                    prop_assert_eq!(done.next_offset, done.records.last().unwrap().0 + 1);
                    tracker.committed(done.records.len());
                    committed.extend(done.records.into_iter().map(|(offset, _)| offset));
                }
                prop_assert!(committed.iter().all(|offset| finished.contains(offset)));
                prop_assert_eq!(tracker.len(), 40 - committed.len());
            }
            while let Some(done) = tracker.take_done() {
                tracker.committed(done.records.len());
                committed.extend(done.records.into_iter().map(|(offset, _)| offset));
            }
            prop_assert_eq!(committed, (0..abandoned.unwrap_or(40)).collect::<Vec<_>>());
            prop_assert!(tracker.is_settled());
        }
    }
}
