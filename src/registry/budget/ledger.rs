//! Which models are in memory, and which make room for others. Pure: the clock is an argument, there is no I/O.
//!
//! Models that want memory stand in a line. The first of them gets it as soon as it is free; until then the model that has
//! been idle longest is put out, one after the other. When none is idle, because requests keep coming for all of them, the
//! one that was loaded longest ago takes no further requests, and is put out when it has answered those it has. So every
//! model has its turn, and none is put out while it works.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How long a model stays that is never idle, at least, so that not all time goes into loading.
const STAY: Duration = Duration::from_secs(1);

/// Identifies a model.
pub(super) type LedgerId = u64;

/// A model that could never be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model takes {bytes} bytes (`memory_bytes`), and of `models_max_bytes`, which is {budget}, {pinned} are those of pinned models"
)]
pub struct TooLarge {
    pub bytes: u64,
    pub budget: u64,
    /// Bytes of others that are never put out.
    pub pinned: u64,
}

/// The models, what each is doing, and the memory that they may take.
#[derive(Debug)]
pub(super) struct Ledger<R> {
    budget: u64,
    used: u64,
    entries: BTreeMap<LedgerId, LedgerEntry<R>>,
    /// Those that want memory.
    line: VecDeque<LedgerId>,
    seats: LedgerId,
    /// Counts uses, so that they have an order.
    uses: u64,
}

#[derive(Debug)]
struct LedgerEntry<R> {
    bytes: u64,
    pinned: bool,
    state: Residency<R>,
}

#[derive(Debug)]
enum Residency<R> {
    Absent,
    /// It is in the line.
    Waiting,
    /// It has its memory, and is being loaded.
    Loading,
    Present(Present<R>),
}

#[derive(Debug)]
struct Present<R> {
    model: R,
    users: usize,
    last_used: u64,
    since: Instant,
    /// Somebody has waited for it and has not come yet.
    expected: bool,
    /// It takes no further users, to make room.
    leaving: bool,
}

/// What a change came to.
#[derive(Debug)]
pub(super) struct Settlement<R> {
    /// Models that have gone. They are to be dropped outside of all locks.
    pub(super) evicted: Vec<(LedgerId, R)>,
    /// Those that may be loaded now.
    pub(super) granted: Vec<LedgerId>,
    /// Others whose callers should look again.
    pub(super) changed: Vec<LedgerId>,
}

impl<R> Default for Settlement<R> {
    fn default() -> Self {
        Self { evicted: Vec::new(), granted: Vec::new(), changed: Vec::new() }
    }
}

/// What became of a wish for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryRequest {
    /// It may be loaded now, by whoever is told so.
    Granted,
    /// It waits, or has to go before it can come again.
    Later,
    /// It is in memory.
    Present,
}

impl<R: Clone> Ledger<R> {
    pub(super) const fn new(budget: u64) -> Self {
        Self { budget, used: 0, entries: BTreeMap::new(), line: VecDeque::new(), seats: 0, uses: 0 }
    }

    /// Returns the bytes of all models that are in memory or being loaded.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Adds a model that is not in memory.
    pub(super) fn add(&mut self, bytes: u64, pinned: bool) -> LedgerId {
        self.seats += 1;
        self.entries.insert(self.seats, LedgerEntry { bytes, pinned, state: Residency::Absent });
        self.seats
    }

    /// Has a model wait for memory, unless it has it. To be asked again whenever something has changed.
    ///
    /// # Errors
    ///
    /// Fails when there will never be room, whatever is put out.
    pub(super) fn want(&mut self, id: LedgerId) -> Result<MemoryRequest, TooLarge> {
        let pinned: u64 =
            self.entries.iter().filter(|(other, entry)| **other != id && entry.pinned).map(|(_, e)| e.bytes).sum();
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(MemoryRequest::Later) };
        match &entry.state {
            Residency::Absent => {
                if entry.bytes > self.budget.saturating_sub(pinned) {
                    return Err(TooLarge { bytes: entry.bytes, budget: self.budget, pinned });
                }
                entry.state = Residency::Waiting;
                self.line.push_back(id);
                Ok(MemoryRequest::Later)
            }
            Residency::Loading => Ok(MemoryRequest::Granted),
            Residency::Present(present) if !present.leaving => Ok(MemoryRequest::Present),
            Residency::Waiting | Residency::Present(_) => Ok(MemoryRequest::Later),
        }
    }

    /// Takes back that a model waits for memory.
    pub(super) fn leave_line(&mut self, id: LedgerId) {
        if let Some(entry @ LedgerEntry { state: Residency::Waiting, .. }) = self.entries.get_mut(&id) {
            entry.state = Residency::Absent;
            self.line.retain(|other| *other != id);
        }
    }

    /// Takes back that a model wants memory, or has it without being there.
    pub(super) fn forgo(&mut self, id: LedgerId) {
        self.leave_line(id);
        if let Some(entry @ LedgerEntry { state: Residency::Loading, .. }) = self.entries.get_mut(&id) {
            entry.state = Residency::Absent;
            self.used -= entry.bytes;
        }
    }

    /// Notes that a model is there, and whether somebody waits for it. Hands it back when it is not wanted any more.
    pub(super) fn loaded(&mut self, id: LedgerId, model: R, expected: bool, now: Instant) -> Option<R> {
        let Some(entry @ LedgerEntry { state: Residency::Loading, .. }) = self.entries.get_mut(&id) else {
            return Some(model);
        };
        self.uses += 1;
        let present = Present { model, users: 0, last_used: self.uses, since: now, expected, leaving: false };
        entry.state = Residency::Present(present);
        None
    }

    /// Lends a model that is there, until [`Ledger::done`].
    pub(super) fn borrow(&mut self, id: LedgerId) -> Option<R> {
        let present = self.present(id).filter(|present| !present.leaving)?;
        (present.users, present.expected) = (present.users + 1, false);
        let model = present.model.clone();
        self.uses += 1;
        let uses = self.uses;
        self.present(id)?.last_used = uses;
        Some(model)
    }

    pub(super) fn done(&mut self, id: LedgerId) {
        if let Some(present) = self.present(id) {
            present.users = present.users.saturating_sub(1);
        }
    }

    /// Returns a model that is in memory, without lending it.
    pub(super) fn peek(&self, id: LedgerId) -> Option<&R> {
        match &self.entries.get(&id)?.state {
            Residency::Present(present) => Some(&present.model),
            Residency::Absent | Residency::Waiting | Residency::Loading => None,
        }
    }

    /// Tells whether anything waits for memory.
    pub(super) fn is_short(&self) -> bool {
        !self.line.is_empty()
    }

    /// Removes a model altogether.
    pub(super) fn remove(&mut self, id: LedgerId) -> Option<R> {
        self.forgo(id);
        let entry = self.entries.remove(&id)?;
        let Residency::Present(present) = entry.state else { return None };
        self.used -= entry.bytes;
        Some(present.model)
    }

    /// Gives memory to whoever is first in the line, and puts out what stands in the way.
    pub(super) fn settle(&mut self, now: Instant) -> Settlement<R> {
        let mut settlement = Settlement::default();
        while let Some(&first) = self.line.front() {
            let Some(entry) = self.entries.get_mut(&first) else {
                self.line.pop_front();
                continue;
            };
            let wanted = self.used + entry.bytes;
            if wanted <= self.budget {
                self.used = wanted;
                entry.state = Residency::Loading;
                self.line.pop_front();
                settlement.granted.push(first);
            } else if let Some(idle) = self.idlest(now) {
                self.evicted(idle, &mut settlement);
            } else if !self.ask_to_leave(wanted, now) {
                return settlement;
            }
        }
        // Nobody needs the memory any more.
        for (id, present) in self.all_present() {
            if std::mem::take(&mut present.leaving) {
                settlement.changed.push(id);
            }
        }
        settlement
    }

    /// Finds the model that has been idle longest.
    fn idlest(&mut self, now: Instant) -> Option<LedgerId> {
        let idle = |present: &Present<R>| {
            let expected = present.expected && now.saturating_duration_since(present.since) < STAY;
            present.users == 0 && !expected
        };
        let idle = self.all_present().filter(|(_, present)| idle(present));
        idle.min_by_key(|(_, present)| present.last_used).map(|(id, _)| id)
    }

    fn evicted(&mut self, id: LedgerId, settlement: &mut Settlement<R>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Residency::Present(present) = std::mem::replace(&mut entry.state, Residency::Absent) {
            self.used -= entry.bytes;
            settlement.evicted.push((id, present.model));
            settlement.changed.push(id);
        }
    }

    /// Has as many models take no further users as are needed, and tells whether one more does now.
    fn ask_to_leave(&mut self, wanted: u64, now: Instant) -> bool {
        let leaving = |entry: &&LedgerEntry<R>| matches!(&entry.state, Residency::Present(present) if present.leaving);
        let will_be_free: u64 = self.entries.values().filter(leaving).map(|entry| entry.bytes).sum();
        if wanted - will_be_free <= self.budget {
            return false;
        }
        let stayed = |present: &Present<R>| now.saturating_duration_since(present.since) >= STAY;
        let busy = self.all_present().filter(|(_, present)| !present.leaving && stayed(present));
        let Some((_, oldest)) = busy.min_by_key(|(_, present)| present.since) else { return false };
        oldest.leaving = true;
        true
    }

    fn present(&mut self, id: LedgerId) -> Option<&mut Present<R>> {
        match &mut self.entries.get_mut(&id)?.state {
            Residency::Present(present) => Some(present),
            Residency::Absent | Residency::Waiting | Residency::Loading => None,
        }
    }

    /// Returns the models that could be put out.
    fn all_present(&mut self) -> impl Iterator<Item = (LedgerId, &mut Present<R>)> {
        self.entries.iter_mut().filter(|(_, entry)| !entry.pinned).filter_map(|(&id, entry)| match &mut entry.state {
            Residency::Present(present) => Some((id, present)),
            Residency::Absent | Residency::Waiting | Residency::Loading => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Wants a model, and loads it when it may.
    fn bring_in(ledger: &mut Ledger<LedgerId>, id: LedgerId, now: Instant) -> Settlement<LedgerId> {
        let _ = ledger.want(id);
        let settlement = ledger.settle(now);
        if ledger.want(id) == Ok(MemoryRequest::Granted) {
            assert_eq!(ledger.loaded(id, id, true, now), None);
        }
        settlement
    }

    fn evicted(settlement: &Settlement<LedgerId>) -> Vec<LedgerId> {
        settlement.evicted.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn the_one_that_is_idle_longest_makes_room() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let [a, b, c] = [false; 3].map(|pinned| ledger.add(10, pinned));
        for id in [a, b] {
            bring_in(&mut ledger, id, now);
            assert_eq!(ledger.borrow(id), Some(id));
            ledger.done(id);
        }
        ledger.borrow(a);
        ledger.done(a);
        assert_eq!(evicted(&bring_in(&mut ledger, c, now)), [b]);
        assert_eq!((ledger.used(), ledger.peek(b)), (20, None));
    }

    #[test]
    fn whoever_is_busy_stays_and_takes_nobody_when_it_is_its_turn_to_leave() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        bring_in(&mut ledger, a, now);
        ledger.borrow(a).unwrap();
        assert!(evicted(&bring_in(&mut ledger, b, now)).is_empty());
        assert!(ledger.borrow(a).is_some(), "it has not been there for long");
        ledger.settle(now + STAY);
        assert_eq!(ledger.borrow(a), None, "it takes no further users");
        ledger.done(a);
        assert!(ledger.settle(now + STAY).evicted.is_empty(), "somebody uses it");
        ledger.done(a);
        assert_eq!(evicted(&ledger.settle(now + STAY)), [a]);
        assert_eq!(ledger.want(b), Ok(MemoryRequest::Granted));
        assert_eq!(ledger.want(a), Ok(MemoryRequest::Later));
    }

    #[test]
    fn one_that_need_not_leave_any_more_goes_on() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        bring_in(&mut ledger, a, now);
        ledger.borrow(a).unwrap();
        bring_in(&mut ledger, b, now + STAY);
        assert_eq!(ledger.borrow(a), None);
        ledger.forgo(b);
        assert_eq!(ledger.settle(now + STAY).changed, [a]);
        assert!(ledger.borrow(a).is_some());
    }

    #[test]
    fn pinned_models_stay_and_what_has_no_room_beside_them_is_told() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let (pinned, large, small) = (ledger.add(12, true), ledger.add(9, false), ledger.add(8, false));
        bring_in(&mut ledger, pinned, now);
        assert_eq!(ledger.want(large), Err(TooLarge { bytes: 9, budget: 20, pinned: 12 }));
        bring_in(&mut ledger, small, now);
        let other = ledger.add(8, false);
        assert_eq!(evicted(&bring_in(&mut ledger, other, now + STAY)), [small]);
        assert_eq!(ledger.peek(pinned), Some(&pinned));
        ledger.remove(pinned);
        assert_eq!(ledger.used(), 8);
        assert_eq!(ledger.want(large), Ok(MemoryRequest::Later));
    }

    #[test]
    fn one_that_somebody_waits_for_is_not_evicted_before_they_come() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        bring_in(&mut ledger, a, now);
        assert!(evicted(&bring_in(&mut ledger, b, now)).is_empty());
        assert_eq!(evicted(&ledger.settle(now + STAY)), [a], "they have not come");
    }

    proptest! {
        /// Whatever happens, the budget holds, nobody loses a model that is in use, and everyone has a turn.
        #[test]
        fn the_budget_holds_and_nobody_starves(
            sizes in vec(1..6_u64, 2..12), steps in vec((0..12_usize, 0..4_u8, 0..400_u64), 1..300)
        ) {
            let mut now = Instant::now();
            let mut ledger = Ledger::new(10);
            let seats: Vec<LedgerId> = sizes.iter().map(|&bytes| ledger.add(bytes, false)).collect();
            let mut users: BTreeMap<LedgerId, usize> = BTreeMap::new();
            for (which, what, time) in steps {
                now += Duration::from_millis(time);
                let id = seats[which % seats.len()];
                match what {
                    0 => {
                        let _ = ledger.want(id);
                    }
                    1 => {
                        if ledger.borrow(id).is_some() {
                            *users.entry(id).or_default() += 1;
                        }
                    }
                    2 => {
                        if let Some(count) = users.get_mut(&id).filter(|count| **count > 0) {
                            *count -= 1;
                            ledger.done(id);
                        }
                    }
                    _ => ledger.forgo(id),
                }
                let settlement = ledger.settle(now);
                for (gone, _) in settlement.evicted {
                    prop_assert_eq!(users.get(&gone).copied().unwrap_or(0), 0);
                }
                for id in settlement.granted {
                    prop_assert_eq!(ledger.loaded(id, id, true, now), None);
                }
                prop_assert!(ledger.used() <= 10);
                let there = seats.iter().zip(&sizes).filter(|(id, _)| ledger.peek(**id).is_some());
                let held: u64 = there.map(|(_, bytes)| bytes).sum();
                prop_assert!(held <= ledger.used());
            }
            // Those who wait get in, one after the other, when each user ends and none that leaves gets another.
            for id in &seats {
                let _ = ledger.want(*id);
            }
            for _ in 0..10 * seats.len() {
                now += STAY;
                for (&id, count) in &mut users {
                    for _ in 0..std::mem::take(count) {
                        ledger.done(id);
                    }
                }
                for id in ledger.settle(now).granted {
                    ledger.loaded(id, id, false, now);
                }
            }
            prop_assert!(!ledger.is_short());
        }
    }
}
