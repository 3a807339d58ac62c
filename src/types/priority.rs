//! The order in which waiting requests run.
//!
//! The request with the highest priority runs first, and among equal priorities the oldest. Aging prevents starvation: each
//! time a more urgent request overtakes the oldest one, that one ages, and after [`PriorityScheduler::MAX_SKIPS`] times in a
//! row it runs next. Pure: no clock, no I/O.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::Parameters;

/// The request parameter that holds the priority, as Triton's clients name it.
const PARAMETER: &str = "priority";

/// The priority of a request, from 1, the most urgent, to 10. The most urgent is the least in its ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent priority.
    pub const LAST: Self = Self(10);

    /// Converts a number: 0 is the default, and numbers above 10 count as 10.
    pub fn new(number: u64) -> Self {
        match u8::try_from(number) {
            Ok(0) => Self::default(),
            Ok(number) => Self(number).min(Self::LAST),
            Err(_) => Self::LAST,
        }
    }

    /// Returns the priority in the parameters of a request, or `None` if there is none. A model may use the parameter for
    /// its own purposes, so values that are not non-negative integers are ignored.
    pub fn of(parameters: &Parameters) -> Option<Self> {
        parameters.others.get(PARAMETER).and_then(Value::as_u64).map(Self::new)
    }
}

impl Priority {
    /// Returns the number, from 1 to 10.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

/// The position of a queued item. Without aging, the least position is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub priority: Priority,
    /// The order of arrival: the lower, the longer the item has waited.
    pub order: u64,
}

/// Decides which position is next.
#[derive(Debug, Clone, Copy, Default)]
pub struct PriorityScheduler {
    /// How many times in a row the oldest item has been skipped.
    skips: u32,
}

impl PriorityScheduler {
    /// How many times in a row the oldest item may be skipped.
    pub const MAX_SKIPS: u32 = 16;

    /// Chooses among the positions of the items that could be next. The first item of each priority is enough.
    pub fn choose(&mut self, positions: impl Iterator<Item = QueuePosition> + Clone) -> Option<QueuePosition> {
        let most_urgent = positions.clone().min()?;
        let longest = positions.min_by_key(|position| position.order)?;
        if longest == most_urgent || self.skips >= Self::MAX_SKIPS {
            self.skips = 0;
            Some(longest)
        } else {
            self.skips += 1;
            Some(most_urgent)
        }
    }
}

/// Queued items, by priority and then in order of arrival.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    /// No level is empty.
    levels: BTreeMap<Priority, VecDeque<(u64, T)>>,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self { levels: BTreeMap::new() }
    }
}

impl<T> PriorityQueue<T> {
    /// Adds an item whose order is greater than that of all others.
    pub fn push(&mut self, position: QueuePosition, item: T) {
        self.levels.entry(position.priority).or_default().push_back((position.order, item));
    }

    /// Puts an item back that has waited before, in front of all others of its priority.
    pub fn push_front(&mut self, priority: Priority, item: T) {
        let level = self.levels.entry(priority).or_default();
        let order = level.front().map_or(0, |(first, _)| first.saturating_sub(1));
        level.push_front((order, item));
    }

    /// Returns the first item of each priority.
    pub fn heads(&self) -> impl Iterator<Item = (QueuePosition, &T)> + Clone {
        self.levels.iter().filter_map(|(&priority, level)| {
            let (order, item) = level.front()?;
            Some((QueuePosition { priority, order: *order }, item))
        })
    }

    /// Removes and returns the first item of a priority.
    pub fn pop(&mut self, priority: Priority) -> Option<T> {
        let level = self.levels.get_mut(&priority)?;
        let (_, item) = level.pop_front()?;
        if level.is_empty() {
            self.levels.remove(&priority);
        }
        Some(item)
    }

    /// Removes and returns the item at a position.
    pub fn remove(&mut self, position: QueuePosition) -> Option<T> {
        let level = self.levels.get_mut(&position.priority)?;
        let index = level.binary_search_by_key(&position.order, |(order, _)| *order).ok()?;
        let (_, item) = level.remove(index)?;
        if level.is_empty() {
            self.levels.remove(&position.priority);
        }
        Some(item)
    }

    /// Removes and returns the first item for which `predicate` is true.
    pub fn take_first(&mut self, mut predicate: impl FnMut(&T) -> bool) -> Option<T> {
        let find = |(&priority, level): (&Priority, &VecDeque<(u64, T)>)| {
            let index = level.iter().position(|(_, item)| predicate(item))?;
            let (order, _) = level.get(index)?;
            Some(QueuePosition { priority, order: *order })
        };
        let position = self.levels.iter().find_map(find)?;
        self.remove(position)
    }

    /// Removes and returns all items for which `predicate` is true.
    pub fn take_if(&mut self, mut predicate: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        self.levels.retain(|_, level| {
            for (order, item) in std::mem::take(level) {
                if predicate(&item) {
                    taken.push(item);
                } else {
                    level.push_back((order, item));
                }
            }
            !level.is_empty()
        });
        taken
    }

    pub fn len(&self) -> usize {
        self.levels.values().map(VecDeque::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn priority_parameter_is_read_as_triton_clients_send_it() {
        let of = |parameters: Value| {
            let Value::Object(object) = parameters else { unreachable!() };
            Priority::of(&Parameters::from(object))
        };
        assert_eq!(of(json!({"priority": 1})), Some(Priority(1)));
        assert_eq!(of(json!({"priority": 0})), Some(Priority::default()));
        assert_eq!(of(json!({"priority": 300})), Some(Priority::LAST));
        assert_eq!(of(json!({"priority": u64::MAX})), Some(Priority::LAST));
        for other in [json!({}), json!({"priority": "high"}), json!({"priority": -1}), json!({"priority": 0.5})] {
            assert_eq!(of(other), None);
        }
    }

    /// An item that waits, with what the bound on its waiting depends on.
    #[derive(Debug, Clone, Copy)]
    struct QueuedItem {
        position: QueuePosition,
        /// The number of items that were in the queue when this one came.
        older: usize,
        turns: usize,
    }

    /// Removes the next item, and checks that it is the most urgent or the oldest.
    fn turn(
        queue: &mut PriorityQueue<QueuedItem>,
        scheduler: &mut PriorityScheduler,
    ) -> Result<Option<QueuedItem>, TestCaseError> {
        let positions: Vec<QueuePosition> = queue.heads().map(|(position, _)| position).collect();
        let Some(position) = scheduler.choose(positions.iter().copied()) else {
            prop_assert!(queue.is_empty());
            return Ok(None);
        };
        let chosen = queue.pop(position.priority).unwrap();
        prop_assert_eq!(chosen.position, position);
        let longest = positions.iter().min_by_key(|position| position.order).unwrap();
        prop_assert!(
            Some(&position) == positions.iter().min() || position == *longest,
            "{:?} of {:?}",
            position,
            positions
        );
        Ok(Some(chosen))
    }

    proptest! {
        // An event is the priority of an item that comes, or `None` if the next one is removed.
        #[test]
        fn priority_queue_bounds_waiting_and_prefers_urgent_items(events in vec(option::weighted(0.55, 1..=10_u64), 1..400)) {
            let (mut queue, mut scheduler, mut order) = (PriorityQueue::<QueuedItem>::default(), PriorityScheduler::default(), 0);
            let end = std::iter::repeat_n(None, events.len());
            for event in events.iter().copied().chain(end) {
                if let Some(priority) = event {
                    order += 1;
                    let position = QueuePosition { priority: Priority::new(priority), order };
                    let older = queue.len();
                    queue.push(position, QueuedItem { position, older, turns: 0 });
                    continue;
                }
                let Some(chosen) = turn(&mut queue, &mut scheduler)? else { continue };
                let bound = (chosen.older + 1) * (PriorityScheduler::MAX_SKIPS as usize + 1);
                prop_assert!(chosen.turns < bound, "{:?} after {} turns, {} at most", chosen, chosen.turns, bound);
                for level in queue.levels.values_mut() {
                    for (_, waiting) in level {
                        waiting.turns += 1;
                    }
                }
            }
            prop_assert!(queue.is_empty());
        }

        #[test]
        fn priority_queue_keeps_arrival_order_of_equal_priorities(count in 1..100_u64, priority in 0..12_u64) {
            let (mut queue, mut scheduler) = (PriorityQueue::default(), PriorityScheduler::default());
            let priority = Priority::new(priority);
            for order in 0..count {
                let position = QueuePosition { priority, order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
            }
            for order in 0..count {
                prop_assert_eq!(turn(&mut queue, &mut scheduler)?.unwrap().position.order, order);
            }
        }

        /// However many items of the lowest priority wait, an urgent one is next, unless very many preceded it.
        #[test]
        fn urgent_items_do_not_wait_for_bulk_items(bulk in 1..50_u64, urgent in 1..=u64::from(PriorityScheduler::MAX_SKIPS)) {
            let (mut queue, mut scheduler) = (PriorityQueue::default(), PriorityScheduler::default());
            for order in 0..bulk {
                let position = QueuePosition { priority: Priority::LAST, order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
            }
            for order in bulk..bulk + urgent {
                let position = QueuePosition { priority: Priority::new(1), order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
                prop_assert_eq!(turn(&mut queue, &mut scheduler)?.unwrap().position, position);
            }
        }

        #[test]
        fn priority_queue_removal_keeps_the_order_of_other_items(
            priorities in vec(1..4_u64, 1..40), leaving in vec(any::<bool>(), 40)
        ) {
            let positions: Vec<QueuePosition> = priorities
                .iter()
                .zip(0..)
                .map(|(&priority, order)| QueuePosition { priority: Priority::new(priority), order })
                .collect();
            let leaves = |position: &QueuePosition| leaving[usize::try_from(position.order).unwrap()];
            let mut queue = PriorityQueue::default();
            let mut other = PriorityQueue::default();
            for &position in &positions {
                queue.push(position, position);
                other.push(position, position);
            }
            for position in positions.iter().filter(|position| leaves(position)) {
                prop_assert_eq!(queue.remove(*position), Some(*position));
                prop_assert_eq!(queue.remove(*position), None);
            }
            if let Some(position) = positions.iter().find(|position| leaves(position)) {
                prop_assert_eq!(other.take_first(|other| other == position), Some(*position));
                prop_assert_eq!(other.take_first(|other| other == position), None);
                other.push_front(position.priority, *position);
            }
            prop_assert_eq!(other.take_if(leaves).len() + other.len(), positions.len());
            prop_assert!(queue.heads().eq(other.heads()) && queue.len() == other.len());
        }
    }

    #[test]
    fn push_front_puts_an_item_first_of_its_priority() {
        let mut queue = PriorityQueue::default();
        let position = |priority, order| QueuePosition { priority: Priority::new(priority), order };
        queue.push(position(5, 7), "seven");
        queue.push_front(Priority::new(5), "again");
        assert_eq!(queue.heads().next(), Some((position(5, 6), &"again")));
        assert_eq!((queue.pop(Priority::new(5)), queue.len()), (Some("again"), 1));
    }
}
