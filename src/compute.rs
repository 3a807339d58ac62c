//! The pool for long computations, so that the threads that serve connections stay free.

use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::types::{Priority, PriorityQueue, PriorityScheduler, QueuePosition};

/// Runs as many computations concurrently as there are cores. Others wait, the most urgent first and then in order of arrival,
/// with the aging of [`PriorityScheduler`].
///
/// Admission bounds the number of waiting jobs. If a caller is dropped, its waiting job is removed; a computation that has
/// started runs to its end.
#[derive(Debug, Clone)]
pub struct ComputePool {
    state: Arc<Mutex<ComputeState>>,
    width: NonZeroUsize,
}

#[derive(Debug)]
struct ComputeState {
    free: usize,
    queue: PriorityQueue<oneshot::Sender<Permit>>,
    scheduler: PriorityScheduler,
    arrivals: u64,
}

/// The right to use one of the threads, until it is dropped.
#[derive(Debug)]
struct Permit(Arc<Mutex<ComputeState>>);

/// A caller that waits for a thread. Dropping it removes it from the queue.
struct WaitingJob {
    state: Arc<Mutex<ComputeState>>,
    position: QueuePosition,
    permit: oneshot::Receiver<Permit>,
}

impl ComputePool {
    /// Creates a pool that runs `width` computations concurrently.
    pub fn new(width: NonZeroUsize) -> Self {
        let state = ComputeState {
            free: width.get(),
            queue: PriorityQueue::default(),
            scheduler: PriorityScheduler::default(),
            arrivals: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), width }
    }

    /// Returns how many computations run concurrently.
    pub const fn width(&self) -> usize {
        self.width.get()
    }

    /// Creates a pool as wide as the number of cores that the process may use.
    pub fn for_this_machine() -> Self {
        Self::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Runs `work` on a thread of the pool, with the default priority.
    ///
    /// # Errors
    ///
    /// Fails when `work` panics.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        self.run_at(Priority::default(), work).await
    }

    /// Runs `work` on a thread of the pool, before less urgent jobs.
    ///
    /// # Errors
    ///
    /// Fails when `work` panics.
    pub async fn run_at<T: Send + 'static>(
        &self,
        priority: Priority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.permit(priority).await;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
    }

    async fn permit(&self, priority: Priority) -> Permit {
        let mut waiting = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit(Arc::clone(&self.state));
            }
            state.arrivals += 1;
            let position = QueuePosition { priority, order: state.arrivals };
            let (sender, permit) = oneshot::channel();
            state.queue.push(position, sender);
            WaitingJob { state: Arc::clone(&self.state), position, permit }
        };
        (&mut waiting.permit).await.expect("a waiting job stays in the queue until it gets a permit")
    }
}

impl ComputeState {
    /// Takes the next job from the queue. If it is empty, one more thread is free.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let next = self.scheduler.choose(self.queue.heads().map(|(position, _)| position));
        let next = next.and_then(|position| self.queue.pop(position.priority));
        self.free += usize::from(next.is_none());
        next
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = self.0.lock().next();
        if let Some(next) = next {
            // If that caller has just been dropped, so is the permit, which then passes to the next one.
            let _ = next.send(Self(Arc::clone(&self.0)));
        }
    }
}

impl Drop for WaitingJob {
    fn drop(&mut self) {
        let removed = self.state.lock().queue.remove(self.position);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn compute_pool_limits_concurrency_to_width() {
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
    async fn compute_pool_panic_is_an_error_and_frees_thread() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        assert!(pool.run(|| panic!("boom")).await.is_err());
        assert_eq!(pool.run(|| 3).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn compute_pool_runs_urgent_jobs_first_and_drops_cancelled_ones() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        let busy = pool.permit(Priority::default()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, name) in [(10, "bulk"), (5, "cancelled"), (5, "usual"), (1, "urgent")] {
            let (for_task, order) = (pool.clone(), Arc::clone(&order));
            let task = tokio::spawn(async move {
                for_task.run_at(Priority::new(number), move || order.lock().push(name)).await.unwrap();
            });
            let waiting = tasks.len() + 1;
            while pool.state.lock().queue.len() < waiting {
                tokio::task::yield_now().await;
            }
            tasks.push(task);
        }
        tasks.remove(1).abort();
        while pool.state.lock().queue.len() == 4 {
            tokio::task::yield_now().await;
        }
        drop(busy);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), ["urgent", "usual", "bulk"]);
        assert_eq!(pool.state.lock().free, 1);
    }
}
