//! Whose turn it is among what waits.
//!
//! The most urgent goes first, and of those that are equally urgent the one that has waited longest. So that nobody waits
//! for ever behind others who keep coming, whoever has waited longest of all ages with every turn of a more urgent one, and
//! is next after [`AgingOrder::MAX_SKIPS`] of them. Pure: neither clock nor I/O.

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

/// A position among what waits. The one whose turn it would be, but for aging, is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub priority: Priority,
    /// The lower, the longer it has waited.
    pub order: u64,
}

/// Decides whose turn it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgingOrder {
    /// AgingOrder in a row in which whoever had waited longest was passed over.
    skips: u32,
}

impl AgingOrder {
    /// How often in a row whoever has waited longest is passed over at most.
    pub const MAX_SKIPS: u32 = 16;

    /// Chooses among the positions of those that could be next, of which each priority needs to show only its first.
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

/// What waits, by priority and then in order of arrival.
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
    pub fn push(&mut self, position: QueuePosition, item: T) {
        self.levels.entry(position.priority).or_default().push_back((position.order, item));
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

    /// Takes what is at a position.
    pub fn remove(&mut self, position: QueuePosition) -> Option<T> {
        let level = self.levels.get_mut(&position.priority)?;
        let index = level.binary_search_by_key(&position.order, |(order, _)| *order).ok()?;
        let (_, item) = level.remove(index)?;
        if level.is_empty() {
            self.levels.remove(&position.priority);
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
    struct QueuedItem {
        position: QueuePosition,
        /// Who had waited longer when it came, and turns since.
        older: usize,
        turns: usize,
    }

    /// Takes the turn of somebody, and checks that it was theirs to have.
    fn turn(
        queue: &mut PriorityQueue<QueuedItem>,
        aging: &mut AgingOrder,
    ) -> Result<Option<QueuedItem>, TestCaseError> {
        let positions: Vec<QueuePosition> = queue.heads().map(|(position, _)| position).collect();
        let Some(position) = aging.choose(positions.iter().copied()) else {
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
        // Callers come (a priority), or somebody has a turn (nothing).
        #[test]
        fn nobody_starves_and_the_urgent_go_first(events in vec(option::weighted(0.55, 1..=10_u64), 1..400)) {
            let (mut queue, mut aging, mut order) = (PriorityQueue::<QueuedItem>::default(), AgingOrder::default(), 0);
            let end = std::iter::repeat_n(None, events.len());
            for event in events.iter().copied().chain(end) {
                if let Some(priority) = event {
                    order += 1;
                    let position = QueuePosition { priority: Priority::new(priority), order };
                    let older = queue.len();
                    queue.push(position, QueuedItem { position, older, turns: 0 });
                    continue;
                }
                let Some(chosen) = turn(&mut queue, &mut aging)? else { continue };
                let bound = (chosen.older + 1) * (AgingOrder::MAX_SKIPS as usize + 1);
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
        fn those_that_are_equally_urgent_keep_their_order(count in 1..100_u64, priority in 0..12_u64) {
            let (mut queue, mut aging) = (PriorityQueue::default(), AgingOrder::default());
            let priority = Priority::new(priority);
            for order in 0..count {
                let position = QueuePosition { priority, order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
            }
            for order in 0..count {
                prop_assert_eq!(turn(&mut queue, &mut aging)?.unwrap().position.order, order);
            }
        }

        /// However much of the least urgent waits, an urgent one is next, unless there have been very many of them.
        #[test]
        fn the_urgent_do_not_wait_for_others(bulk in 1..50_u64, urgent in 1..=u64::from(AgingOrder::MAX_SKIPS)) {
            let (mut queue, mut aging) = (PriorityQueue::default(), AgingOrder::default());
            for order in 0..bulk {
                let position = QueuePosition { priority: Priority::LAST, order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
            }
            for order in bulk..bulk + urgent {
                let position = QueuePosition { priority: Priority::new(1), order };
                queue.push(position, QueuedItem { position, older: 0, turns: 0 });
                prop_assert_eq!(turn(&mut queue, &mut aging)?.unwrap().position, position);
            }
        }

        #[test]
        fn whoever_leaves_changes_nothing_for_the_others(
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
            prop_assert_eq!(other.take_if(leaves).len() + other.len(), positions.len());
            prop_assert!(queue.heads().eq(other.heads()) && queue.len() == other.len());
        }
    }

    #[test]
    fn what_is_put_back_is_first_of_its_kind() {
        let mut queue = PriorityQueue::default();
        let position = |priority, order| QueuePosition { priority: Priority::new(priority), order };
        queue.push(position(5, 7), "seven");
        queue.push_front(Priority::new(5), "again");
        assert_eq!(queue.heads().next(), Some((position(5, 6), &"again")));
        assert_eq!((queue.pop(Priority::new(5)), queue.len()), (Some("again"), 1));
    }
}
