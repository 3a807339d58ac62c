//! Decides which models are in memory and which are evicted. Pure: the clock is an argument, there is no I/O.
//!
//! Models that need memory wait in a queue. The first of them gets memory as soon as enough is free; until then, idle models
//! are evicted, least recently used first. If none is idle, because requests keep arriving for all of them, the model that was
//! loaded longest ago is drained: it takes no further requests, and is evicted when it has finished those it has. So every
//! model gets its turn, and none is evicted while it is in use. The memory of an evicted model counts until it is free, because
//! the process of a Python model may need some time to unload it.
//!
//! A model in memory may need more of it for an answer, and grows. It does so before any model of the queue is loaded, and idle models are
//! evicted for it in the same order. It never waits for models in use: their callers could wait for it. Once it is evicted, it needs its
//! original memory again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How long a model that is never idle stays in memory, at least, so that the server does not spend all its time on loading.
const MIN_RESIDENCE: Duration = Duration::from_secs(1);

/// Identifies a model.
pub(super) type LedgerId = u64;

/// A model that can never fit into the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model needs {bytes} bytes (`memory_bytes`), but pinned models take {pinned} of the {budget} bytes of `models_max_bytes`"
)]
pub struct TooLarge {
    pub bytes: u64,
    pub budget: u64,
    /// Bytes of other models that are never evicted.
    pub pinned: u64,
}

/// Why a model in memory gets no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrowthError {
    #[error(
        "the model needs {more} bytes for it beside its own {bytes}, which is more than `models_max_bytes` ({budget}) has for it: raise it"
    )]
    TooLarge { more: u64, bytes: u64, budget: u64 },
    #[error(
        "the model needs {more} bytes for it, but the other models of `models_max_bytes` ({budget}) are in use: try again later"
    )]
    InUse { more: u64, budget: u64 },
}

/// The models, the state of each, and the memory that they may take.
#[derive(Debug)]
pub(super) struct Ledger<R> {
    budget: u64,
    used: u64,
    /// The bytes of models that have been evicted and whose memory is not free yet, which are part of `used`.
    leaving: u64,
    entries: BTreeMap<LedgerId, LedgerEntry<R>>,
    /// Models that wait for memory.
    queue: VecDeque<LedgerId>,
    /// Models in memory that wait for more, so that they have grown by this many bytes.
    growing: VecDeque<(LedgerId, u64)>,
    last_id: LedgerId,
    /// Counts uses, to order them.
    uses: u64,
    /// Whether models may be draining.
    has_draining: bool,
    /// How often all models in memory were visited.
    #[cfg(test)]
    pub(super) passes: usize,
}

#[derive(Debug)]
struct LedgerEntry<R> {
    /// The bytes that it is loaded with.
    bytes: u64,
    /// How many bytes it has taken since.
    grown: u64,
    /// Whether it has to be told that it cannot grow.
    growth_refused: bool,
    pinned: bool,
    /// Whether the model has been removed, and is only kept until its memory is free.
    removed: bool,
    state: Residency<R>,
}

impl<R> LedgerEntry<R> {
    /// Returns the bytes that it has in memory.
    const fn held(&self) -> u64 {
        self.bytes.saturating_add(self.grown)
    }
}

#[derive(Debug)]
enum Residency<R> {
    Absent,
    /// It waits in the queue.
    Waiting,
    /// It has memory, and is being loaded.
    Loading,
    Resident(ResidentModel<R>),
    /// It has been evicted, and its memory is not free yet.
    Leaving,
}

#[derive(Debug)]
struct ResidentModel<R> {
    model: R,
    users: usize,
    last_used: u64,
    since: Instant,
    /// A caller has waited for the model and has not acquired it yet.
    expected: bool,
    /// The model takes no further users, to make room.
    draining: bool,
}

impl<R> ResidentModel<R> {
    fn is_idle(&self, now: Instant) -> bool {
        let expected = self.expected && now.saturating_duration_since(self.since) < MIN_RESIDENCE;
        self.users == 0 && !expected
    }
}

/// The effects of a change.
#[derive(Debug)]
pub(super) struct LedgerChanges<R> {
    /// Models that were evicted. They must be unloaded outside of all locks, and their memory counts until [`Ledger::freed`].
    pub(super) evicted: Vec<(LedgerId, R)>,
    /// Models that may be loaded now.
    pub(super) granted: Vec<LedgerId>,
    /// Other models whose callers should check again.
    pub(super) changed: Vec<LedgerId>,
}

impl<R> Default for LedgerChanges<R> {
    fn default() -> Self {
        Self { evicted: Vec::new(), granted: Vec::new(), changed: Vec::new() }
    }
}

/// The result of a request for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryRequest {
    /// The model may be loaded now, by the caller.
    Granted,
    /// The model waits for memory, or has to be evicted before it can be loaded again.
    Pending,
    /// The model is in memory.
    Resident,
}

impl<R: Clone> Ledger<R> {
    pub(super) const fn new(budget: u64) -> Self {
        Self {
            budget,
            used: 0,
            leaving: 0,
            entries: BTreeMap::new(),
            queue: VecDeque::new(),
            growing: VecDeque::new(),
            last_id: 0,
            uses: 0,
            has_draining: false,
            #[cfg(test)]
            passes: 0,
        }
    }

    /// Returns the bytes of all models that are in memory or being loaded.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Adds a model that is not in memory.
    pub(super) fn add(&mut self, bytes: u64, pinned: bool) -> LedgerId {
        self.last_id += 1;
        let (grown, growth_refused, removed, state) = (0, false, false, Residency::Absent);
        self.entries.insert(self.last_id, LedgerEntry { bytes, grown, growth_refused, pinned, removed, state });
        self.last_id
    }

    /// Queues a model for memory, unless it has some. To be called again whenever something has changed.
    ///
    /// # Errors
    ///
    /// Fails if there will never be room, even if all other models are evicted.
    pub(super) fn request(&mut self, id: LedgerId) -> Result<MemoryRequest, TooLarge> {
        let pinned = self.pinned_beside(id);
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(MemoryRequest::Pending) };
        match &entry.state {
            Residency::Absent => {
                if entry.bytes > self.budget.saturating_sub(pinned) {
                    return Err(TooLarge { bytes: entry.bytes, budget: self.budget, pinned });
                }
                entry.state = Residency::Waiting;
                self.queue.push_back(id);
                Ok(MemoryRequest::Pending)
            }
            Residency::Loading => Ok(MemoryRequest::Granted),
            Residency::Resident(present) if !present.draining => Ok(MemoryRequest::Resident),
            Residency::Waiting | Residency::Resident(_) | Residency::Leaving => Ok(MemoryRequest::Pending),
        }
    }

    /// Returns the bytes of other models that are never evicted.
    fn pinned_beside(&self, id: LedgerId) -> u64 {
        self.entries.iter().filter(|(other, entry)| **other != id && entry.pinned).map(|(_, entry)| entry.held()).sum()
    }

    /// Lets a model that is in use or being loaded grow by `bytes` since it was loaded, and returns whether it has. Otherwise, it waits
    /// for memory that is about to be free; to be called again whenever something has changed.
    ///
    /// # Errors
    ///
    /// Fails if there will never be room, or if there is none beside the models in use.
    pub(super) fn grow(&mut self, id: LedgerId, bytes: u64) -> Result<bool, GrowthError> {
        let pinned = self.pinned_beside(id);
        // A pinned model leaves room for each of the others.
        let others = self.entries.iter().filter(|(other, entry)| **other != id && !entry.pinned);
        let largest = others.map(|(_, entry)| entry.bytes).max().unwrap_or_default();
        let budget = self.budget;
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(false) };
        if entry.grown >= bytes {
            return Ok(true);
        }
        let left = budget.saturating_sub(pinned).saturating_sub(if entry.pinned { largest } else { 0 });
        if entry.bytes.saturating_add(bytes) > left {
            return Err(GrowthError::TooLarge { more: bytes, bytes: entry.bytes, budget });
        }
        if std::mem::take(&mut entry.growth_refused) {
            return Err(GrowthError::InUse { more: bytes - entry.grown, budget });
        }
        if !self.growing.contains(&(id, bytes)) {
            self.growing.push_back((id, bytes));
        }
        Ok(false)
    }

    /// Forgets that a model waits for more memory.
    pub(super) fn cancel_growth(&mut self, id: LedgerId) {
        self.growing.retain(|(other, _)| *other != id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.growth_refused = false;
        }
    }

    /// Removes a model from the queue.
    pub(super) fn cancel_request(&mut self, id: LedgerId) {
        if let Some(entry @ LedgerEntry { state: Residency::Waiting, .. }) = self.entries.get_mut(&id) {
            entry.state = Residency::Absent;
            self.queue.retain(|other| *other != id);
        }
    }

    /// Removes a model from the queue, or frees its memory if it is being loaded.
    pub(super) fn abandon(&mut self, id: LedgerId) {
        self.cancel_request(id);
        if let Some(entry @ LedgerEntry { state: Residency::Loading, .. }) = self.entries.get_mut(&id) {
            entry.state = Residency::Absent;
            self.used -= entry.held();
            entry.grown = 0;
        }
    }

    /// Records that a model has been loaded, and whether a caller waits for it. Returns the model if it is no longer needed.
    pub(super) fn loaded(&mut self, id: LedgerId, model: R, expected: bool, now: Instant) -> Option<R> {
        let Some(entry @ LedgerEntry { state: Residency::Loading, .. }) = self.entries.get_mut(&id) else {
            return Some(model);
        };
        self.uses += 1;
        let present = ResidentModel { model, users: 0, last_used: self.uses, since: now, expected, draining: false };
        entry.state = Residency::Resident(present);
        None
    }

    /// Returns a model in memory, which is in use until [`Ledger::release`].
    pub(super) fn acquire(&mut self, id: LedgerId) -> Option<R> {
        let present = self.present(id).filter(|present| !present.draining)?;
        (present.users, present.expected) = (present.users + 1, false);
        let model = present.model.clone();
        self.uses += 1;
        let uses = self.uses;
        self.present(id)?.last_used = uses;
        Some(model)
    }

    pub(super) fn release(&mut self, id: LedgerId) {
        if let Some(present) = self.present(id) {
            present.users = present.users.saturating_sub(1);
        }
    }

    /// Returns a model in memory without counting as a use.
    pub(super) fn peek(&self, id: LedgerId) -> Option<&R> {
        match &self.entries.get(&id)?.state {
            Residency::Resident(present) => Some(&present.model),
            Residency::Absent | Residency::Waiting | Residency::Loading | Residency::Leaving => None,
        }
    }

    /// Reports whether any model waits for memory.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Removes a model from the ledger. If it was in memory, it counts until [`Ledger::freed`].
    pub(super) fn remove(&mut self, id: LedgerId) -> Option<R> {
        self.abandon(id);
        let entry = self.entries.get_mut(&id)?;
        match std::mem::replace(&mut entry.state, Residency::Leaving) {
            Residency::Resident(present) => {
                entry.removed = true;
                self.leaving += entry.held();
                Some(present.model)
            }
            Residency::Leaving => {
                entry.removed = true;
                None
            }
            Residency::Absent | Residency::Waiting | Residency::Loading => {
                self.entries.remove(&id);
                None
            }
        }
    }

    /// Records that the memory of a model that was evicted or removed is free.
    pub(super) fn freed(&mut self, id: LedgerId) {
        let Some(entry @ LedgerEntry { state: Residency::Leaving, .. }) = self.entries.get_mut(&id) else { return };
        self.used -= entry.held();
        self.leaving -= entry.held();
        entry.grown = 0;
        entry.state = Residency::Absent;
        if entry.removed {
            self.entries.remove(&id);
        }
    }

    /// Grants memory to the models that grow and to those in the queue, in order, and evicts others to make room.
    pub(super) fn reallocate(&mut self, now: Instant) -> LedgerChanges<R> {
        let mut changes = LedgerChanges::default();
        if !self.reallocate_to_growing(now, &mut changes) {
            return changes;
        }
        while let Some(&first) = self.queue.front() {
            let Some(entry) = self.entries.get_mut(&first) else {
                self.queue.pop_front();
                continue;
            };
            let wanted = self.used + entry.bytes;
            if wanted <= self.budget {
                self.used = wanted;
                entry.state = Residency::Loading;
                self.queue.pop_front();
                changes.granted.push(first);
            } else if wanted - self.leaving <= self.budget {
                // Enough memory is about to be free.
                return changes;
            } else if let Some(idle) = self.longest_idle(now) {
                self.evict(idle, &mut changes);
            } else if !self.drain_oldest(wanted - self.leaving, now) {
                return changes;
            }
        }
        if !std::mem::take(&mut self.has_draining) {
            return changes;
        }
        // The memory is no longer needed.
        for (id, present) in self.all_present() {
            if std::mem::take(&mut present.draining) {
                changes.changed.push(id);
            }
        }
        changes
    }

    /// Grants memory to the models that grow, or refuses it. Returns false if the first of them waits for memory that is about to be free.
    fn reallocate_to_growing(&mut self, now: Instant, changes: &mut LedgerChanges<R>) -> bool {
        while let Some(&(id, bytes)) = self.growing.front() {
            let Some(entry @ LedgerEntry { state: Residency::Loading | Residency::Resident(_), .. }) =
                self.entries.get(&id)
            else {
                self.growing.pop_front();
                continue;
            };
            let wanted = self.used + bytes.saturating_sub(entry.grown);
            if wanted > self.budget && wanted - self.leaving <= self.budget {
                return false;
            }
            // No model is evicted in vain.
            if wanted > self.budget && wanted - self.leaving - self.idle_bytes(now) <= self.budget {
                let Some(idle) = self.longest_idle(now) else { return false };
                self.evict(idle, changes);
                continue;
            }
            self.growing.pop_front();
            changes.changed.push(id);
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if wanted <= self.budget {
                self.used = wanted;
                entry.grown = entry.grown.max(bytes);
            } else {
                entry.growth_refused = true;
            }
        }
        true
    }

    /// Returns the bytes of all models that can be evicted at once.
    fn idle_bytes(&self, now: Instant) -> u64 {
        let idle = |entry: &&LedgerEntry<R>| {
            !entry.pinned && matches!(&entry.state, Residency::Resident(present) if present.is_idle(now))
        };
        self.entries.values().filter(idle).map(LedgerEntry::held).sum()
    }

    /// Finds the idle model that was least recently used.
    fn longest_idle(&mut self, now: Instant) -> Option<LedgerId> {
        let idle = self.all_present().filter(|(_, present)| present.is_idle(now));
        idle.min_by_key(|(_, present)| present.last_used).map(|(id, _)| id)
    }

    fn evict(&mut self, id: LedgerId, changes: &mut LedgerChanges<R>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Residency::Resident(present) = std::mem::replace(&mut entry.state, Residency::Leaving) {
            self.leaving += entry.held();
            changes.evicted.push((id, present.model));
            changes.changed.push(id);
        }
    }

    /// Starts draining the oldest model if that is needed for `wanted` bytes in use, and returns whether it did.
    fn drain_oldest(&mut self, wanted: u64, now: Instant) -> bool {
        let draining =
            |entry: &&LedgerEntry<R>| matches!(&entry.state, Residency::Resident(present) if present.draining);
        let will_be_free: u64 = self.entries.values().filter(draining).map(LedgerEntry::held).sum();
        if wanted - will_be_free <= self.budget {
            return false;
        }
        let stayed = |present: &ResidentModel<R>| now.saturating_duration_since(present.since) >= MIN_RESIDENCE;
        let busy = self.all_present().filter(|(_, present)| !present.draining && stayed(present));
        let Some((_, oldest)) = busy.min_by_key(|(_, present)| present.since) else { return false };
        oldest.draining = true;
        self.has_draining = true;
        true
    }

    fn present(&mut self, id: LedgerId) -> Option<&mut ResidentModel<R>> {
        match &mut self.entries.get_mut(&id)?.state {
            Residency::Resident(present) => Some(present),
            Residency::Absent | Residency::Waiting | Residency::Loading | Residency::Leaving => None,
        }
    }

    /// Returns the models that may be evicted.
    fn all_present(&mut self) -> impl Iterator<Item = (LedgerId, &mut ResidentModel<R>)> {
        #[cfg(test)]
        {
            self.passes += 1;
        }
        self.entries.iter_mut().filter(|(_, entry)| !entry.pinned).filter_map(|(&id, entry)| match &mut entry.state {
            Residency::Resident(present) => Some((id, present)),
            Residency::Absent | Residency::Waiting | Residency::Loading | Residency::Leaving => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Grants memory; that of evicted models is free at once.
    fn settle(ledger: &mut Ledger<LedgerId>, now: Instant) -> LedgerChanges<LedgerId> {
        let mut all = LedgerChanges::default();
        loop {
            let LedgerChanges { evicted, granted, changed } = ledger.reallocate(now);
            all.granted.extend(granted);
            all.changed.extend(changed);
            if evicted.is_empty() {
                return all;
            }
            for (id, _) in &evicted {
                ledger.freed(*id);
            }
            all.evicted.extend(evicted);
        }
    }

    /// Requests memory for a model, and loads it if memory is granted.
    fn load_within_budget(ledger: &mut Ledger<LedgerId>, id: LedgerId, now: Instant) -> LedgerChanges<LedgerId> {
        let _ = ledger.request(id);
        let changes = settle(ledger, now);
        if ledger.request(id) == Ok(MemoryRequest::Granted) {
            assert_eq!(ledger.loaded(id, id, true, now), None);
        }
        changes
    }

    fn evicted(changes: &LedgerChanges<LedgerId>) -> Vec<LedgerId> {
        changes.evicted.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn ledger_evicts_least_recently_used_idle_model() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let [a, b, c] = [false; 3].map(|pinned| ledger.add(10, pinned));
        for id in [a, b] {
            load_within_budget(&mut ledger, id, now);
            assert_eq!(ledger.acquire(id), Some(id));
            ledger.release(id);
        }
        ledger.acquire(a);
        ledger.release(a);
        assert_eq!(evicted(&load_within_budget(&mut ledger, c, now)), [b]);
        assert_eq!((ledger.used(), ledger.peek(b)), (20, None));
    }

    #[test]
    fn ledger_drains_busy_model_before_evicting_it() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        load_within_budget(&mut ledger, a, now);
        ledger.acquire(a).unwrap();
        assert!(evicted(&load_within_budget(&mut ledger, b, now)).is_empty());
        assert!(ledger.acquire(a).is_some(), "it was loaded only now");
        settle(&mut ledger, now + MIN_RESIDENCE);
        assert_eq!(ledger.acquire(a), None, "it takes no further users");
        ledger.release(a);
        assert!(settle(&mut ledger, now + MIN_RESIDENCE).evicted.is_empty(), "it is in use");
        ledger.release(a);
        assert_eq!(evicted(&settle(&mut ledger, now + MIN_RESIDENCE)), [a]);
        assert_eq!(ledger.request(b), Ok(MemoryRequest::Granted));
        assert_eq!(ledger.request(a), Ok(MemoryRequest::Pending));
    }

    #[test]
    fn ledger_stops_draining_when_memory_is_no_longer_needed() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        load_within_budget(&mut ledger, a, now);
        ledger.acquire(a).unwrap();
        load_within_budget(&mut ledger, b, now + MIN_RESIDENCE);
        assert_eq!(ledger.acquire(a), None);
        ledger.abandon(b);
        assert_eq!(settle(&mut ledger, now + MIN_RESIDENCE).changed, [a]);
        assert!(ledger.acquire(a).is_some());
    }

    #[test]
    fn ledger_keeps_pinned_models_and_rejects_what_does_not_fit() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let (pinned, large, small) = (ledger.add(12, true), ledger.add(9, false), ledger.add(8, false));
        load_within_budget(&mut ledger, pinned, now);
        assert_eq!(ledger.request(large), Err(TooLarge { bytes: 9, budget: 20, pinned: 12 }));
        load_within_budget(&mut ledger, small, now);
        let other = ledger.add(8, false);
        assert_eq!(evicted(&load_within_budget(&mut ledger, other, now + MIN_RESIDENCE)), [small]);
        assert_eq!(ledger.peek(pinned), Some(&pinned));
        ledger.remove(pinned);
        assert_eq!(ledger.used(), 20, "it is being unloaded");
        ledger.freed(pinned);
        assert_eq!(ledger.used(), 8);
        assert_eq!(ledger.request(large), Ok(MemoryRequest::Pending));
    }

    #[test]
    fn ledger_keeps_model_for_expected_caller() {
        let now = Instant::now();
        let mut ledger = Ledger::new(10);
        let [a, b] = [false; 2].map(|pinned| ledger.add(10, pinned));
        load_within_budget(&mut ledger, a, now);
        assert!(evicted(&load_within_budget(&mut ledger, b, now)).is_empty());
        assert_eq!(evicted(&settle(&mut ledger, now + MIN_RESIDENCE)), [a], "no caller has acquired it");
    }

    #[test]
    fn ledger_counts_evicted_model_until_its_memory_is_free() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let [a, b, c] = [false; 3].map(|pinned| ledger.add(10, pinned));
        for id in [a, b] {
            load_within_budget(&mut ledger, id, now);
        }
        let later = now + MIN_RESIDENCE;
        assert_eq!(ledger.request(c), Ok(MemoryRequest::Pending));
        let changes = ledger.reallocate(later);
        assert_eq!((evicted(&changes), &changes.granted, ledger.used()), (vec![a], &vec![], 20));
        assert!(ledger.reallocate(later).evicted.is_empty(), "one is enough");
        assert_eq!(ledger.request(a), Ok(MemoryRequest::Pending), "it cannot return before it has gone");
        ledger.freed(a);
        assert_eq!((ledger.reallocate(later).granted, ledger.used()), (vec![c], 20));
        assert_eq!(ledger.remove(b), Some(b));
        assert_eq!(ledger.used(), 20);
        ledger.freed(b);
        assert_eq!(ledger.used(), 10);
    }

    #[test]
    fn ledger_grows_model_in_use_and_evicts_idle_ones_for_it() {
        let now = Instant::now();
        let mut ledger = Ledger::new(30);
        let [a, b, c] = [false; 3].map(|pinned| ledger.add(10, pinned));
        for id in [a, b, c] {
            load_within_budget(&mut ledger, id, now);
            ledger.acquire(id).unwrap();
        }
        let later = now + MIN_RESIDENCE;
        assert_eq!(ledger.grow(a, 21), Err(GrowthError::TooLarge { more: 21, bytes: 10, budget: 30 }));
        assert_eq!(ledger.grow(a, 15), Ok(false));
        assert!(evicted(&settle(&mut ledger, later)).is_empty(), "all are in use");
        assert_eq!(ledger.grow(a, 15), Err(GrowthError::InUse { more: 15, budget: 30 }));
        ledger.release(b);
        assert_eq!(ledger.grow(a, 15), Ok(false));
        assert!(evicted(&settle(&mut ledger, later)).is_empty(), "the memory of one is not enough");
        assert_eq!(ledger.grow(a, 15), Err(GrowthError::InUse { more: 15, budget: 30 }));
        ledger.release(c);
        assert_eq!(ledger.grow(a, 15), Ok(false));
        let changes = ledger.reallocate(later);
        assert_eq!((evicted(&changes), ledger.used()), (vec![b, c], 30));
        assert_eq!(ledger.grow(a, 15), Ok(false), "the memory is not free yet");
        ledger.freed(b);
        assert_eq!(ledger.request(b), Ok(MemoryRequest::Pending));
        assert!(ledger.reallocate(later).granted.is_empty(), "it grows before another is loaded");
        ledger.freed(c);
        assert!(ledger.reallocate(later).granted.is_empty());
        assert_eq!((ledger.grow(a, 15), ledger.grow(a, 3), ledger.used()), (Ok(true), Ok(true), 25));
        ledger.release(a);
        assert_eq!(evicted(&settle(&mut ledger, later)), [a]);
        assert_eq!(ledger.used(), 10, "it has given everything back");
    }

    #[test]
    fn ledger_pinned_model_leaves_room_for_the_others() {
        let now = Instant::now();
        let mut ledger = Ledger::new(20);
        let (pinned, other) = (ledger.add(8, true), ledger.add(8, false));
        load_within_budget(&mut ledger, pinned, now);
        assert_eq!(ledger.grow(pinned, 5), Err(GrowthError::TooLarge { more: 5, bytes: 8, budget: 20 }));
        assert_eq!(ledger.grow(pinned, 4), Ok(false));
        settle(&mut ledger, now);
        assert_eq!((ledger.grow(pinned, 4), ledger.used()), (Ok(true), 12));
        load_within_budget(&mut ledger, other, now);
        assert_eq!(ledger.used(), 20);
        assert_eq!(ledger.grow(other, 1), Err(GrowthError::TooLarge { more: 1, bytes: 8, budget: 20 }));
    }

    proptest! {
        /// In any sequence of steps, the budget holds, no model in use is evicted, and every model gets its turn.
        #[test]
        fn ledger_keeps_budget_and_starves_no_model(
            sizes in vec(1..6_u64, 2..12), steps in vec((0..12_usize, 0..6_u8, 0..400_u64), 1..300)
        ) {
            let mut now = Instant::now();
            let mut ledger = Ledger::new(10);
            let ids: Vec<LedgerId> = sizes.iter().map(|&bytes| ledger.add(bytes, false)).collect();
            let mut users: BTreeMap<LedgerId, usize> = BTreeMap::new();
            for (which, what, time) in steps {
                now += Duration::from_millis(time);
                let id = ids[which % ids.len()];
                match what {
                    0 => {
                        let _ = ledger.request(id);
                    }
                    1 => {
                        if ledger.acquire(id).is_some() {
                            *users.entry(id).or_default() += 1;
                        }
                    }
                    2 => {
                        if let Some(count) = users.get_mut(&id).filter(|count| **count > 0) {
                            *count -= 1;
                            ledger.release(id);
                        }
                    }
                    3 if users.get(&id).is_some_and(|count| *count > 0) => {
                        let before = ledger.used();
                        let grown = ledger.grow(id, time % 7);
                        prop_assert_eq!(ledger.used(), before);
                        prop_assert!(!matches!(grown, Err(GrowthError::InUse { .. })), "it has not been refused before");
                    }
                    4 => ledger.cancel_growth(id),
                    _ => ledger.abandon(id),
                }
                let changes = settle(&mut ledger, now);
                for (evicted, _) in changes.evicted {
                    prop_assert_eq!(users.get(&evicted).copied().unwrap_or(0), 0);
                }
                for id in changes.granted {
                    prop_assert_eq!(ledger.loaded(id, id, true, now), None);
                }
                prop_assert!(ledger.used() <= 10);
                let resident = ids.iter().filter(|id| ledger.peek(**id).is_some());
                let held: u64 = resident.map(|id| ledger.entries[id].held()).sum();
                // Nothing is being loaded or unloaded now, so that no byte is counted twice or lost.
                prop_assert_eq!(held, ledger.used());
                prop_assert!(ledger.growing.is_empty(), "models that grow wait for models that leave only");
                for id in &ids {
                    // A caller is told at once.
                    ledger.cancel_growth(*id);
                }
            }
            // All waiting models are loaded, one after the other, if every use ends and no new one begins.
            for id in &ids {
                let _ = ledger.request(*id);
            }
            for _ in 0..10 * ids.len() {
                now += MIN_RESIDENCE;
                for (&id, count) in &mut users {
                    for _ in 0..std::mem::take(count) {
                        ledger.release(id);
                    }
                }
                for id in settle(&mut ledger, now).granted {
                    ledger.loaded(id, id, false, now);
                }
            }
            prop_assert!(!ledger.has_waiting());
        }
    }
}
