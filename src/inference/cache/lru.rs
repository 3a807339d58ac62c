//! Which responses stay in the cache: the most recently used ones, as many as fit in number and in bytes.

use std::time::Instant;

use lru::LruCache;

use super::CacheOptions;
use super::key::CacheKey;

/// Values by key, bounded in number and in bytes.
#[derive(Debug)]
pub(super) struct BoundedLru<V> {
    options: CacheOptions,
    entries: LruCache<CacheKey, LruEntry<V>>,
    bytes: usize,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    bytes: usize,
    since: Instant,
}

impl<V: Clone> BoundedLru<V> {
    pub(super) fn new(options: CacheOptions) -> Self {
        // The limits are checked here, because entries differ in size; so the map grows as it is filled.
        Self { options, entries: LruCache::unbounded(), bytes: 0 }
    }

    /// Returns the value of a key, unless it has expired.
    pub(super) fn get(&mut self, key: &CacheKey, now: Instant) -> Option<V> {
        let since = self.entries.peek(key)?.since;
        if self.options.ttl.is_some_and(|ttl| now.saturating_duration_since(since) >= ttl) {
            return None;
        }
        self.entries.get(key).map(|entry| entry.value.clone())
    }

    /// Returns whether a value of so many bytes can be kept at all.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.options.max_bytes.get()
    }

    /// Keeps a value that [`BoundedLru::fits`], and returns the values that it replaces or evicts.
    pub(super) fn put(&mut self, key: CacheKey, value: V, bytes: usize, now: Instant) -> Vec<V> {
        let replaced = self.entries.pop(&key);
        let mut removed: Vec<V> = replaced.into_iter().map(|entry| self.release(entry)).collect();
        while self.len() >= self.options.entries.get() || bytes > self.options.max_bytes.get() - self.bytes {
            let Some((_, evicted)) = self.entries.pop_lru() else { break };
            removed.push(self.release(evicted));
        }
        self.bytes += bytes;
        self.entries.put(key, LruEntry { value, bytes, since: now });
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn release(&mut self, entry: LruEntry<V>) -> V {
        self.bytes -= entry.bytes;
        entry.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    fn lru(entries: usize, max_bytes: usize, ttl: Option<Duration>) -> BoundedLru<u8> {
        let positive = |number| NonZeroUsize::new(number).unwrap();
        BoundedLru::new(CacheOptions { entries: positive(entries), max_bytes: positive(max_bytes), ttl })
    }

    #[test]
    fn cache_entry_expires_after_its_ttl() {
        let mut lru = lru(2, 10, Some(Duration::from_secs(3)));
        let start = Instant::now();
        lru.put([1; 32], 1, 1, start);
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(2)), Some(1));
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(3)), None, "use does not extend the ttl");
        assert_eq!(lru.put([1; 32], 2, 1, start + Duration::from_secs(3)), [1]);
        assert_eq!(lru.get(&[1; 32], start + Duration::from_secs(5)), Some(2));
    }

    proptest! {
        /// Compares with a list whose last value is the most recently used.
        #[test]
        fn cache_evicts_the_least_recently_used(steps in vec((0..6_u8, 0..12_usize, any::<bool>()), 0..60)) {
            let (entries, max_bytes) = (4, 20);
            let mut lru = lru(entries, max_bytes, None);
            let mut list: Vec<(u8, u8, usize)> = Vec::new();
            let now = Instant::now();
            for (value, (name, bytes, is_put)) in (0_u8..).zip(steps) {
                let position = list.iter().position(|(other, _, _)| *other == name);
                let found = position.map(|position| list.remove(position));
                if is_put {
                    list.push((name, value, bytes));
                    let mut removed: Vec<u8> = found.into_iter().map(|(_, value, _)| value).collect();
                    let total = |list: &[(u8, u8, usize)]| list.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
                    while list.len() > entries || total(&list) > max_bytes {
                        removed.push(list.remove(0).1);
                    }
                    prop_assert_eq!(lru.put([name; 32], value, bytes, now), removed);
                    prop_assert_eq!((lru.len(), lru.bytes()), (list.len(), total(&list)));
                } else {
                    list.extend(found);
                    prop_assert_eq!(lru.get(&[name; 32], now), found.map(|(_, value, _)| value));
                }
            }
        }
    }
}
