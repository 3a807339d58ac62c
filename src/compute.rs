//! The pool for long computations, so that the threads that serve connections stay free.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures_util::future::{self, Either};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::types::{Priority, PriorityQueue, PriorityScheduler, QueuePosition};

/// The most jobs that wait for a thread. Requests have one job at a time, so that more of them are a flood of requests that are
/// not admitted yet.
pub const MAX_WAITING: usize = 8192;

/// From how many bytes on work is long: about a tenth of a millisecond. Shorter work takes less time than waking a thread.
pub const LONG_WORK: usize = 64 * 1024;

thread_local! {
    /// Whether this thread runs a computation.
    static IS_COMPUTING: Cell<bool> = const { Cell::new(false) };
}

tokio::task_local! {
    /// Counts the computations of a task, which run to their end even if the task has ended before them.
    pub static COMPUTATIONS: TaskTrackerToken;
}

/// Marks this thread as one that runs a computation, until it is dropped.
struct Computing;

impl Computing {
    fn begin() -> Self {
        IS_COMPUTING.set(true);
        Self
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        IS_COMPUTING.set(false);
    }
}

/// Why a computation has no result.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    #[error("the computation ended unexpectedly; the log has the details")]
    Panicked(#[source] JoinError),
    #[error("{limit} computations are waiting for a thread; try again later")]
    Full { limit: usize },
}

impl ComputeError {
    /// Reports whether too many computations are waiting, so that it helps to try again later.
    pub const fn is_overload(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// Runs as many computations concurrently as there are cores. Others wait, the most urgent first and then in order of arrival,
/// with the aging of [`PriorityScheduler`].
///
/// At most [`MAX_WAITING`] jobs wait. If a caller is dropped, its waiting job is removed; a computation that has started runs
/// to its end. If a computation panics, its caller gets an error, and the thread is free again.
#[derive(Debug, Clone)]
pub struct ComputePool {
    state: Arc<Mutex<ComputeState>>,
    width: NonZeroUsize,
    max_waiting: usize,
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

impl Default for ComputePool {
    fn default() -> Self {
        Self::for_this_machine()
    }
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
        Self { state: Arc::new(Mutex::new(state)), width, max_waiting: MAX_WAITING }
    }

    /// Returns how many computations run concurrently.
    pub const fn width(&self) -> usize {
        self.width.get()
    }

    /// Creates a pool as wide as the number of cores that the process may use.
    pub fn for_this_machine() -> Self {
        Self::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }

    /// Runs `work`, which reads or writes about `bytes` bytes: at once if these are few, and otherwise on a thread of the pool,
    /// before less urgent jobs.
    ///
    /// # Errors
    ///
    /// Fails if work on the pool panics, or if too many jobs are waiting.
    pub fn run_sized<T: Send + 'static>(
        &self,
        bytes: usize,
        priority: Priority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ComputeError>> + Send {
        if bytes < LONG_WORK {
            return Either::Left(future::ready(Ok(work())));
        }
        // Boxed, so that the futures of callers with short work stay small.
        Either::Right(Box::pin(self.run_at(priority, work)))
    }

    /// Runs `work` on a thread of the pool, with the default priority.
    ///
    /// # Errors
    ///
    /// Fails if `work` panics, or if too many jobs are waiting.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ComputeError> {
        self.run_at(Priority::default(), work).await
    }

    /// Runs `work` on a thread of the pool, before less urgent jobs.
    ///
    /// # Errors
    ///
    /// Fails if `work` panics, or if too many jobs are waiting.
    pub async fn run_at<T: Send + 'static>(
        &self,
        priority: Priority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        self.run_after(priority, || {}, work).await
    }

    /// Does the same, and calls `begin` once there is a thread for it. A computation that waits for another one by blocking runs that one
    /// itself, on the thread that it has.
    ///
    /// # Errors
    ///
    /// Fails if `work` panics, or if too many jobs are waiting.
    pub async fn run_after<T: Send + 'static>(
        &self,
        priority: Priority,
        begin: impl FnOnce(),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        if IS_COMPUTING.get() {
            begin();
            return Ok(work());
        }
        let permit = self.permit(priority).await?;
        begin();
        let counted = COMPUTATIONS.try_with(Clone::clone).ok();
        let work = tokio::task::spawn_blocking(move || {
            // Dropped if `work` panics, too.
            let (_permit, _counted, _computing) = (permit, counted, Computing::begin());
            work()
        });
        work.await.map_err(ComputeError::Panicked)
    }

    async fn permit(&self, priority: Priority) -> Result<Permit, ComputeError> {
        let mut waiting = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Permit(Arc::clone(&self.state)));
            }
            if state.queue.len() >= self.max_waiting {
                return Err(ComputeError::Full { limit: self.max_waiting });
            }
            state.arrivals += 1;
            let position = QueuePosition { priority, order: state.arrivals };
            let (sender, permit) = oneshot::channel();
            state.queue.push(position, sender);
            WaitingJob { state: Arc::clone(&self.state), position, permit }
        };
        Ok((&mut waiting.permit).await.expect("a waiting job stays in the queue until it gets a permit"))
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
    async fn computation_runs_those_that_it_waits_for() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        let (inner, handle) = (pool.clone(), tokio::runtime::Handle::current());
        let nested = move || {
            let outer = std::thread::current().id();
            let within = inner.run(move || std::thread::current().id() == outer);
            handle.block_on(within).unwrap()
        };
        assert!(pool.run(nested).await.unwrap());
        let other = pool.run(|| IS_COMPUTING.get()).await.unwrap();
        assert!(other && !IS_COMPUTING.get());
        pool.run(|| panic!("expected by the test")).await.map(|()| true).unwrap_err();
        assert!(pool.run(|| true).await.unwrap());
    }

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
    async fn compute_pool_keeps_its_width_after_panics() {
        let pool = ComputePool::new(NonZeroUsize::new(2).unwrap());
        for _ in 0..10 {
            let error = pool.run(|| panic!("boom")).await.unwrap_err();
            assert!(matches!(error, ComputeError::Panicked(_)) && !error.is_overload());
        }
        assert_eq!(pool.run(|| 3).await.unwrap(), 3);
        assert_eq!(pool.state.lock().free, 2);
    }

    #[tokio::test]
    async fn compute_pool_rejects_jobs_when_its_queue_is_full() {
        let pool = ComputePool { max_waiting: 2, ..ComputePool::new(NonZeroUsize::MIN) };
        let busy = pool.permit(Priority::default()).await.unwrap();
        let mut waiting = [1, 2].map(|number| Box::pin(pool.run(move || number)));
        for job in &mut waiting {
            assert!(futures_util::poll!(job).is_pending());
        }
        let error = pool.run(|| 3).await.unwrap_err();
        assert!(error.is_overload());
        assert_eq!(error.to_string(), "2 computations are waiting for a thread; try again later");
        drop(busy);
        for job in waiting {
            job.await.unwrap();
        }
        assert_eq!(pool.run(|| 4).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn compute_pool_reports_when_a_job_begins() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        let busy = pool.permit(Priority::default()).await.unwrap();
        let started = AtomicUsize::new(0);
        let begin = || {
            started.fetch_add(1, Ordering::SeqCst);
        };
        let mut job = Box::pin(pool.run_after(Priority::default(), begin, || 1));
        assert!(futures_util::poll!(&mut job).is_pending());
        assert_eq!(started.load(Ordering::SeqCst), 0, "it waits");
        drop(busy);
        assert_eq!((job.await.unwrap(), started.load(Ordering::SeqCst)), (1, 1));
    }

    #[tokio::test]
    async fn compute_pool_runs_urgent_jobs_first_and_drops_cancelled_ones() {
        let pool = ComputePool::new(NonZeroUsize::MIN);
        let busy = pool.permit(Priority::default()).await.unwrap();
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
