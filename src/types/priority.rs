//! The order in which waiting requests run.
//!
//! The most urgent request runs first, and of equally urgent ones the one that has waited longest. Aging prevents starvation:
//! the request that has waited longest of all is next after more urgent ones have passed it
//! [`PriorityScheduler::PATIENCE`] times. Pure: neither clock nor I/O.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::Parameters;

/// The parameter of requests that says it, as Triton's clients call it.
const PARAMETER: &str = "priority";

/// How urgent a request is: from 1, the most urgent, to 10. Ordered by that, the most urgent is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent there is.
    pub const LAST: Self = Self(10);

    /// Returns the priority of a number: 0 is the default, and beyond 10 nothing is less urgent than 10.
    pub fn new(number: u64) -> Self {
        match u8::try_from(number) {
            Ok(0) => Self::default(),
            Ok(number) => Self(number).min(Self::LAST),
            Err(_) => Self::LAST,
        }
    }

    /// Returns what a request's parameters say of it, if they do. A model may have a use of its own for the name, so
    /// what is no number from 0 on says nothing.
    pub fn of(parameters: &Parameters) -> Option<Self> {
        parameters.others.get(PARAMETER).and_then(Value::as_u64).map(Self::new)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

/// A place among what waits. The one whose turn it would be, but for aging, is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub priority: Priority,
    /// The lower, the longer it has waited.
    pub order: u64,
}

/// Chooses the next request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PriorityScheduler {
    /// How many times in a row the longest-waiting request has been passed over.
    passed_over: u32,
}

impl PriorityScheduler {
    /// How many times in a row the longest-waiting request may be passed over.
    pub const PATIENCE: u32 = 16;

    /// Chooses among the places of those that could be next, of which each priority needs to show only its first.
    pub fn choose(&mut self, places: impl Iterator<Item = QueuePosition> + Clone) -> Option<QueuePosition> {
        let most_urgent = places.clone().min()?;
        let longest = places.min_by_key(|place| place.order)?;
        if longest == most_urgent || self.passed_over >= Self::PATIENCE {
            self.passed_over = 0;
            Some(longest)
        } else {
            self.passed_over += 1;
            Some(most_urgent)
        }
    }
}

/// Waiting items, by priority and then in order of arrival.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    /// None of them empty.
    levels: BTreeMap<Priority, VecDeque<(u64, T)>>,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self { levels: BTreeMap::new() }
    }
}

impl<T> PriorityQueue<T> {
    /// Adds what comes now: its order is beyond all others'.
    pub fn push(&mut self, place: QueuePosition, item: T) {
        self.levels.entry(place.priority).or_default().push_back((place.order, item));
    }

    /// Puts back what has waited before, in front of all that are as urgent.
    pub fn push_front(&mut self, priority: Priority, item: T) {
        let level = self.levels.entry(priority).or_default();
        let order = level.front().map_or(0, |(first, _)| first.saturating_sub(1));
        level.push_front((order, item));
    }

    /// Returns the first of each priority.
    pub fn heads(&self) -> impl Iterator<Item = (QueuePosition, &T)> + Clone {
        self.levels.iter().filter_map(|(&priority, level)| {
            let (order, item) = level.front()?;
            Some((QueuePosition { priority, order: *order }, item))
        })
    }

    /// Takes the first of a priority.
    pub fn pop(&mut self, priority: Priority) -> Option<T> {
        let level = self.levels.get_mut(&priority)?;
        let (_, item) = level.pop_front()?;
        if level.is_empty() {
            self.levels.remove(&priority);
        }
        Some(item)
    }

    /// Takes what is at a place.
    pub fn remove(&mut self, place: QueuePosition) -> Option<T> {
        let level = self.levels.get_mut(&place.priority)?;
        let index = level.binary_search_by_key(&place.order, |(order, _)| *order).ok()?;
        let (_, item) = level.remove(index)?;
        if level.is_empty() {
            self.levels.remove(&place.priority);
        }
        Some(item)
    }

    /// Takes all for which `gone` is true.
    pub fn take_if(&mut self, mut gone: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        self.levels.retain(|_, level| {
            for (order, item) in std::mem::take(level) {
                if gone(&item) {
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
    fn numbers_are_those_of_triton_s_clients() {
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

    /// Someone who waits.
    #[derive(Debug, Clone, Copy)]
    struct Waiting {
        place: QueuePosition,
        /// Who had waited longer when it came, and turns since.
        older: usize,
        turns: usize,
    }

    /// Takes the turn of somebody, and checks that it was theirs to have.
    fn turn(
        line: &mut PriorityQueue<Waiting>,
        turns: &mut PriorityScheduler,
    ) -> Result<Option<Waiting>, TestCaseError> {
        let places: Vec<QueuePosition> = line.heads().map(|(place, _)| place).collect();
        let Some(place) = turns.choose(places.iter().copied()) else {
            prop_assert!(line.is_empty());
            return Ok(None);
        };
        let chosen = line.pop(place.priority).unwrap();
        prop_assert_eq!(chosen.place, place);
        let longest = places.iter().min_by_key(|place| place.order).unwrap();
        prop_assert!(Some(&place) == places.iter().min() || place == *longest, "{:?} of {:?}", place, places);
        Ok(Some(chosen))
    }

    proptest! {
        // Callers come (a priority), or somebody has a turn (nothing).
        #[test]
        fn nobody_starves_and_the_urgent_go_first(events in vec(option::weighted(0.55, 1..=10_u64), 1..400)) {
            let (mut line, mut turns, mut order) = (PriorityQueue::<Waiting>::default(), PriorityScheduler::default(), 0);
            let end = std::iter::repeat_n(None, events.len());
            for event in events.iter().copied().chain(end) {
                if let Some(priority) = event {
                    order += 1;
                    let place = QueuePosition { priority: Priority::new(priority), order };
                    let older = line.len();
                    line.push(place, Waiting { place, older, turns: 0 });
                    continue;
                }
                let Some(chosen) = turn(&mut line, &mut turns)? else { continue };
                let bound = (chosen.older + 1) * (PriorityScheduler::PATIENCE as usize + 1);
                prop_assert!(chosen.turns < bound, "{:?} after {} turns, {} at most", chosen, chosen.turns, bound);
                for level in line.levels.values_mut() {
                    for (_, waiting) in level {
                        waiting.turns += 1;
                    }
                }
            }
            prop_assert!(line.is_empty());
        }

        #[test]
        fn those_that_are_equally_urgent_keep_their_order(count in 1..100_u64, priority in 0..12_u64) {
            let (mut line, mut turns) = (PriorityQueue::default(), PriorityScheduler::default());
            let priority = Priority::new(priority);
            for order in 0..count {
                let place = QueuePosition { priority, order };
                line.push(place, Waiting { place, older: 0, turns: 0 });
            }
            for order in 0..count {
                prop_assert_eq!(turn(&mut line, &mut turns)?.unwrap().place.order, order);
            }
        }

        /// However much of the least urgent waits, an urgent one is next, unless there have been very many of them.
        #[test]
        fn the_urgent_do_not_wait_for_others(bulk in 1..50_u64, urgent in 1..=u64::from(PriorityScheduler::PATIENCE)) {
            let (mut line, mut turns) = (PriorityQueue::default(), PriorityScheduler::default());
            for order in 0..bulk {
                let place = QueuePosition { priority: Priority::LAST, order };
                line.push(place, Waiting { place, older: 0, turns: 0 });
            }
            for order in bulk..bulk + urgent {
                let place = QueuePosition { priority: Priority::new(1), order };
                line.push(place, Waiting { place, older: 0, turns: 0 });
                prop_assert_eq!(turn(&mut line, &mut turns)?.unwrap().place, place);
            }
        }

        #[test]
        fn priority_queue_remove_keeps_order_of_others(
            priorities in vec(1..4_u64, 1..40), leaving in vec(any::<bool>(), 40)
        ) {
            let places: Vec<QueuePosition> = priorities
                .iter()
                .zip(0..)
                .map(|(&priority, order)| QueuePosition { priority: Priority::new(priority), order })
                .collect();
            let leaves = |place: &QueuePosition| leaving[usize::try_from(place.order).unwrap()];
            let mut line = PriorityQueue::default();
            let mut other = PriorityQueue::default();
            for &place in &places {
                line.push(place, place);
                other.push(place, place);
            }
            for place in places.iter().filter(|place| leaves(place)) {
                prop_assert_eq!(line.remove(*place), Some(*place));
                prop_assert_eq!(line.remove(*place), None);
            }
            prop_assert_eq!(other.take_if(leaves).len() + other.len(), places.len());
            prop_assert!(line.heads().eq(other.heads()) && line.len() == other.len());
        }
    }

    #[test]
    fn what_is_put_back_is_first_of_its_kind() {
        let mut line = PriorityQueue::default();
        let place = |priority, order| QueuePosition { priority: Priority::new(priority), order };
        line.push(place(5, 7), "seven");
        line.push_front(Priority::new(5), "again");
        assert_eq!(line.heads().next(), Some((place(5, 6), &"again")));
        assert_eq!((line.pop(Priority::new(5)), line.len()), (Some("again"), 1));
    }
}
