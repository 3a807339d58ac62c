//! Turns: operations on one name wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// The names that are being worked on, each with its queue.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<HashMap<String, Queue>>);

/// Who waits for a name, in order of arrival.
#[derive(Debug, Default)]
struct Queue {
    lock: Arc<Lock<()>>,
    /// Those who wait, and the one whose turn it is. At none, the name is forgotten: clients can make up any.
    users: usize,
}

/// A turn to work on a name, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// Nothing while waiting.
    guard: Option<OwnedMutexGuard<()>>,
    names: &'a Names,
    name: String,
}

impl Names {
    /// Waits for a turn.
    pub(super) async fn turn(&self, name: &str) -> Turn<'_> {
        let lock = {
            let mut names = self.0.lock();
            let queue = names.entry(name.to_owned()).or_default();
            queue.users += 1;
            Arc::clone(&queue.lock)
        };
        // Made before waiting, so that who stops waiting is not counted any more.
        let mut turn = Turn { guard: None, names: self, name: name.to_owned() };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut names = self.names.0.lock();
        if let Some(queue) = names.get_mut(&self.name) {
            queue.users -= 1;
            if queue.users == 0 {
                names.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_name_is_one_at_a_time_and_forgotten_at_last() {
        let names = Names::default();
        let first = names.turn("m").await;
        let other = names.turn("n").await;
        assert!(names.turn("m").now_or_never().is_none(), "it is the first one's turn");
        let mut second = Box::pin(names.turn("m"));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await);
        drop(other);
        assert!(names.0.lock().is_empty());
    }
}
