//! Which answers stay: the ones used last, as many as fit. No clock and no locks.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::CacheOptions;
use super::key::Key;

/// Values by key, bounded in number and in bytes.
#[derive(Debug)]
pub(super) struct Lru<V> {
    options: CacheOptions,
    kept: HashMap<Key, Kept<V>>,
    /// The keys by when they were used, the one used longest ago first.
    order: BTreeMap<u64, Key>,
    /// How often any was used.
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept<V> {
    value: V,
    bytes: usize,
    since: Instant,
    used: u64,
}

impl<V: Clone> Lru<V> {
    pub(super) fn new(options: CacheOptions) -> Self {
        Self { options, kept: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0 }
    }

    /// Returns the value of a key, unless its time is over.
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<V> {
        let kept = self.kept.get_mut(key)?;
        if self.options.ttl.is_some_and(|ttl| now.saturating_duration_since(kept.since) >= ttl) {
            return None;
        }
        self.uses += 1;
        self.order.remove(&kept.used);
        self.order.insert(self.uses, *key);
        kept.used = self.uses;
        Some(kept.value.clone())
    }

    /// Tells whether a value of so many bytes can be kept at all.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.options.max_bytes.get()
    }

    /// Keeps a value that [`Lru::fits`], and returns those that go for it.
    pub(super) fn put(&mut self, key: Key, value: V, bytes: usize, now: Instant) -> Vec<V> {
        let mut gone: Vec<V> = self.take(&key).into_iter().collect();
        while self.len() >= self.options.entries.get() || bytes > self.options.max_bytes.get() - self.bytes {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = *oldest;
            gone.extend(self.take(&oldest));
        }
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.bytes += bytes;
        self.kept.insert(key, Kept { value, bytes, since: now, used: self.uses });
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, key: &Key) -> Option<V> {
        let kept = self.kept.remove(key)?;
        self.order.remove(&kept.used);
        self.bytes -= kept.bytes;
        Some(kept.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    fn lru(entries: usize, max_bytes: usize, ttl: Option<Duration>) -> Lru<u8> {
        let positive = |number| NonZeroUsize::new(number).unwrap();
        Lru::new(CacheOptions { entries: positive(entries), max_bytes: positive(max_bytes), ttl })
    }

    #[test]
    fn the_time_of_a_value_ends() {
        let mut lru = lru(2, 10, Some(Duration::from_secs(3)));
        let start = Instant::now();
        lru.put([1; 32], 1, 1, start);
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(2)), Some(1));
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(3)), None, "being used does not make it last");
        assert_eq!(lru.put([1; 32], 2, 1, start + Duration::from_secs(3)), [1]);
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(5)), Some(2));
    }

    proptest! {
        /// Against a list with the value used last at its end.
        #[test]
        fn the_ones_used_last_stay(steps in vec((0..6_u8, 0..12_usize, any::<bool>()), 0..60)) {
            let (entries, max_bytes) = (4, 20);
            let mut lru = lru(entries, max_bytes, None);
            let mut list: Vec<(u8, u8, usize)> = Vec::new();
            let now = Instant::now();
            for (value, (name, bytes, is_put)) in (0_u8..).zip(steps) {
                let place = list.iter().position(|(other, _, _)| *other == name);
                let found = place.map(|place| list.remove(place));
                if is_put {
                    list.push((name, value, bytes));
                    let mut gone: Vec<u8> = found.into_iter().map(|(_, value, _)| value).collect();
                    let total = |list: &[(u8, u8, usize)]| list.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
                    while list.len() > entries || total(&list) > max_bytes {
                        gone.push(list.remove(0).1);
                    }
                    prop_assert_eq!(lru.put([name; 32], value, bytes, now), gone);
                    prop_assert_eq!((lru.len(), lru.bytes()), (list.len(), total(&list)));
                } else {
                    list.extend(found);
                    prop_assert_eq!(lru.get(&[name; 32], now), found.map(|(_, value, _)| value));
                }
                prop_assert_eq!(lru.order.len(), lru.len());
            }
        }
    }
}
