//! Where long computations run, so that the threads that serve connections stay free.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Threads for computations: as many at once as there are cores, the others wait in order of arrival.
///
/// What waits is bounded by the admission limit in front of it. A caller that goes away leaves the queue; a computation
/// that has started runs to its end.
#[derive(Debug, Clone)]
pub struct ComputePool {
    permits: Arc<Semaphore>,
    width: NonZeroUsize,
}

impl ComputePool {
    /// Makes a pool that runs `width` computations at once.
    pub fn new(width: NonZeroUsize) -> Self {
        Self { permits: Arc::new(Semaphore::new(width.get())), width }
    }

    /// Returns how many computations run at once.
    pub const fn width(&self) -> usize {
        self.width.get()
    }

    /// Makes a pool as wide as the machine (or the process's share of it) has cores.
    pub fn for_this_machine() -> Self {
        Self::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Runs `work` on a thread of the pool.
    ///
    /// # Errors
    ///
    /// Fails when `work` panics.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn no_more_run_at_once_than_the_pool_is_wide() {
        let pool = ComputePool::new(NonZeroUsize::new(2).unwrap());
        let running = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (pool, running) = (pool.clone(), Arc::clone(&running));
                tokio::spawn(async move {
                    pool.run(move || {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        now
                    })
                    .await
                    .unwrap()
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap() <= 2);
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_frees_the_thread() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        assert!(pool.run(|| panic!("boom")).await.is_err());
        assert_eq!(pool.run(|| 3).await.unwrap(), 3);
    }
}
