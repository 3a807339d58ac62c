//! The order of records: those of one lane are processed one after another.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Lanes that are in use, with the records that wait in each. A lane exists only while one of its records is processed.
#[derive(Debug)]
pub(super) struct Lanes<K, R> {
    waiting: HashMap<K, VecDeque<R>>,
}

impl<K, R> Default for Lanes<K, R> {
    fn default() -> Self {
        Self { waiting: HashMap::new() }
    }
}

impl<K: Hash + Eq, R> Lanes<K, R> {
    /// Returns the record if it can be processed now. Otherwise it waits until [`Lanes::next`] returns it.
    pub(super) fn enter(&mut self, lane: K, record: R) -> Option<R> {
        match self.waiting.get_mut(&lane) {
            Some(queue) => {
                queue.push_back(record);
                None
            }
            None => {
                self.waiting.insert(lane, VecDeque::new());
                Some(record)
            }
        }
    }

    /// Ends the record that is processed in a lane, and returns the next one.
    pub(super) fn next(&mut self, lane: &K) -> Option<R> {
        let next = self.waiting.get_mut(lane)?.pop_front();
        if next.is_none() {
            self.waiting.remove(lane);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_lane_are_processed_in_order() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.enter("a", 1), Some(1));
        assert_eq!(lanes.enter("b", 2), Some(2));
        assert_eq!((lanes.enter("a", 3), lanes.enter("a", 4)), (None, None));
        assert_eq!(lanes.next(&"a"), Some(3));
        assert_eq!(lanes.enter("a", 5), None);
        assert_eq!(lanes.next(&"b"), None);
        assert_eq!((lanes.next(&"a"), lanes.next(&"a"), lanes.next(&"a")), (Some(4), Some(5), None));
        assert!(lanes.waiting.is_empty());
        assert_eq!(lanes.enter("a", 6), Some(6));
    }
}
