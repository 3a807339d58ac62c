//! A keyed lock: operations on one name wait for each other, those on different names do not.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// The locks of the names that are in use.
#[derive(Debug, Default)]
pub(super) struct KeyedLocks(Mutex<HashMap<String, KeyedLock>>);

/// The lock of one name, which is granted in order of arrival.
#[derive(Debug, Default)]
struct KeyedLock {
    lock: Arc<Lock<()>>,
    /// The holder and those that wait. At zero the entry is removed, because clients can send any number of names.
    users: usize,
}

/// Holds the lock of a name until it is dropped.
#[derive(Debug)]
pub(super) struct KeyedLockGuard<'a> {
    /// `None` while waiting.
    guard: Option<OwnedMutexGuard<()>>,
    locks: &'a KeyedLocks,
    name: String,
}

impl KeyedLocks {
    /// Waits for the lock of a name.
    pub(super) async fn lock(&self, name: &str) -> KeyedLockGuard<'_> {
        let lock = {
            let mut locks = self.0.lock();
            let keyed = locks.entry(name.to_owned()).or_default();
            keyed.users += 1;
            Arc::clone(&keyed.lock)
        };
        // Created before waiting, so that a cancelled waiter is no longer counted.
        let mut guard = KeyedLockGuard { guard: None, locks: self, name: name.to_owned() };
        guard.guard = Some(lock.lock_owned().await);
        guard
    }
}

impl Drop for KeyedLockGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.locks.0.lock();
        if let Some(keyed) = locks.get_mut(&self.name) {
            keyed.users -= 1;
            if keyed.users == 0 {
                locks.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn keyed_lock_is_exclusive_per_name_and_removed_after_use() {
        let locks = KeyedLocks::default();
        let first = locks.lock("m").await;
        let other = locks.lock("n").await;
        assert!(locks.lock("m").now_or_never().is_none(), "the first one holds the lock");
        let mut second = Box::pin(locks.lock("m"));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await);
        drop(other);
        assert!(locks.0.lock().is_empty());
    }
}
