//! The keys of a file, as requests look them up.
//!
//! SHA-256 takes a large part of the time of a small request. It is computed for the first request with a key; later ones find the
//! principal by a tag of the key: `SipHash` with a secret of this process and 128 bits. Nobody outside knows tags, so nobody can
//! make another text with the tag of a key, or learn from the time of a lookup how similar a text is to a key.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

use parking_lot::RwLock;
use siphasher::sip128::SipHasher13;

use super::limits::PrincipalLimits;
use super::metrics::AccessMetrics;
use super::{KeyFile, KeyHash, ModelPatterns, Principal, RateLimit};

/// The principals of keys. Looking one up takes the same time however many there are.
pub struct Keyring {
    principals: PrincipalMap<KeyHash>,
    /// The principals of keys that requests have had, by their tags: at most as many as there are principals.
    tagged: RwLock<PrincipalMap<u128>>,
    tags: SipHasher13,
}

/// Principals by hashes, which are random enough to be used as they are.
type PrincipalMap<K> = HashMap<K, Arc<Principal>, BuildHasherDefault<FirstBits>>;

/// Takes the first bits of what is hashed.
#[derive(Default)]
struct FirstBits(u64);

impl Hasher for FirstBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self::of(PrincipalMap::default())
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keyring").field("keys", &self.principals.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    fn of(principals: PrincipalMap<KeyHash>) -> Self {
        let secret = RandomState::new();
        let tags = SipHasher13::new_with_keys(secret.hash_one(0), secret.hash_one(1));
        Self { principals, tagged: RwLock::default(), tags }
    }

    /// Creates the principals of a file. What `previous` ones have used of their limits counts on, if the limits are the same.
    pub(super) fn new(
        file: &KeyFile,
        previous: &Self,
        default_rate: Option<RateLimit>,
        metrics: &AccessMetrics,
    ) -> Self {
        let used: HashMap<&str, &Arc<PrincipalLimits>> =
            previous.principals.values().map(|principal| (principal.name.as_str(), &principal.limits)).collect();
        let principal = |entry: &super::KeyEntry| {
            let limits = PrincipalLimits::new(entry.rate_limit.or(default_rate), entry.max_in_flight);
            let kept = used.get(entry.name.as_str()).filter(|used| used.is_like(&limits));
            Principal {
                name: entry.name.clone(),
                scopes: entry.scopes.iter().copied().collect(),
                models: ModelPatterns::new(entry.models.clone()),
                expires: entry.expires_at(),
                limits: kept.map_or_else(|| Arc::new(limits), |&used| Arc::clone(used)),
                requests: metrics.requests_of(&entry.name),
            }
        };
        Self::of(file.0.iter().map(|entry| (entry.hash, Arc::new(principal(entry)))).collect())
    }

    /// Returns the names of the keys that `self` has and `other` does not, or not with the same rights, sorted.
    pub(super) fn names_not_in(&self, other: &Self) -> Vec<&str> {
        let differs = |(hash, principal): &(&KeyHash, &Arc<Principal>)| {
            other.principals.get(hash).is_none_or(|found| !found.has_rights_of(principal))
        };
        let mut names: Vec<_> = self.principals.iter().filter(differs).map(|(_, principal)| principal.name()).collect();
        names.sort_unstable();
        names
    }

    /// Finds the principal of a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Arc<Principal>> {
        let tag = self.tags.hash(key).as_u128();
        if let Some(known) = self.tagged.read().get(&tag) {
            return Some(Arc::clone(known));
        }
        let found = self.principals.get(&KeyHash::of(key))?;
        self.tagged.write().insert(tag, Arc::clone(found));
        Some(Arc::clone(found))
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::access::{KeyEntry, Scope};

    fn entry(key: &str, rate_limit: Option<RateLimit>) -> KeyEntry {
        KeyEntry {
            name: key.to_owned(),
            hash: KeyHash::of(key.as_bytes()),
            scopes: vec![Scope::Infer],
            models: None,
            expires: None,
            rate_limit,
            max_in_flight: None,
        }
    }

    fn keyring(entries: Vec<KeyEntry>, previous: &Keyring) -> Keyring {
        Keyring::new(&KeyFile(entries), previous, None, &AccessMetrics::default())
    }

    fn key(index: usize) -> String {
        format!("mls_{:043}", index * 7_919)
    }

    #[test]
    fn keyring_reload_keeps_what_was_used_of_unchanged_limits() {
        let slow = RateLimit { requests_per_second: 0.001, burst: None };
        let first = keyring(vec![entry("a", Some(slow)), entry("b", Some(slow))], &Keyring::default());
        for name in ["a", "b"] {
            first.find(name.as_bytes()).unwrap().limits.take(|| Duration::ZERO).unwrap();
        }
        let other = RateLimit { requests_per_second: 2.0, burst: None };
        let second = keyring(vec![entry("a", Some(slow)), entry("b", Some(other))], &first);
        assert!(second.find(b"a").unwrap().limits.take(|| Duration::ZERO).is_err());
        assert!(second.find(b"b").unwrap().limits.take(|| Duration::ZERO).is_ok());
        assert!(second.find(b"c").is_none());
    }

    #[test]
    fn keyring_tags_known_keys_only() {
        let keyring = keyring(vec![entry("a", None), entry("b", None)], &Keyring::default());
        for _ in 0..3 {
            for (key, name) in [(b"a", Some("a")), (b"b", Some("b")), (b"c", None)] {
                assert_eq!(keyring.find(key).as_deref().map(Principal::name), name);
            }
        }
        assert_eq!(keyring.tagged.read().len(), 2);
        let other = Keyring::default();
        assert_ne!(keyring.tags.hash(b"a"), other.tags.hash(b"a"), "each has a secret of its own");
        assert!(!format!("{keyring:?}").contains("tags"));
    }

    /// Returns the shortest time of many rounds that look up all keys of a group, per key. The groups take turns, because a
    /// machine may become slower meanwhile.
    fn shortest<const N: usize>(keyring: &Keyring, groups: [&[String]; N]) -> [Duration; N] {
        let round = |keys: &[String]| {
            let began = Instant::now();
            for key in keys {
                black_box(keyring.find(black_box(key.as_bytes())));
            }
            began.elapsed() / u32::try_from(keys.len()).unwrap()
        };
        let mut shortest = [Duration::MAX; N];
        for _ in 0..30 {
            for (shortest, keys) in shortest.iter_mut().zip(groups) {
                *shortest = round(keys).min(*shortest);
            }
        }
        shortest
    }

    #[test]
    fn keyring_lookup_does_not_depend_on_number_of_keys_or_prefix() {
        let keyring = keyring((0..10_000).map(|index| entry(&key(index), None)).collect(), &Keyring::default());
        // All but the last letters of a key, against nothing of any key.
        let near: Vec<String> = (0..1000).map(|index| format!("{}{:03}", &key(5)[..44], index)).collect();
        let far: Vec<String> = (0..1000).map(|index| format!("{:03}{}", index, "x".repeat(44))).collect();
        let known: Vec<String> = (0..1000).map(key).collect();
        assert!(known.iter().all(|key| keyring.find(key.as_bytes()).is_some()));
        assert!(far.iter().all(|key| keyring.find(key.as_bytes()).is_none()));
        let [near, far, known] = shortest(&keyring, [&near, &far, &known]);
        assert!(near < far * 3 / 2 && far < near * 3 / 2, "{near:?} {far:?}");
        // Without optimization, it is about ten times slower.
        assert!(known < Duration::from_micros(20), "{known:?}");
    }
}
