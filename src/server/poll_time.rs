//! Measures how long tasks keep a thread: in builds with debug assertions only.
//!
//! The threads that serve answer health checks, too. Work in proportion to a body belongs on the compute pool, and a loop that may be long
//! has to pause. `tests/security/polls.rs` sends requests that ask for much work, and reads what this logs.

#[cfg(not(debug_assertions))]
pub(super) const fn measured<F: Future>(task: F) -> F {
    task
}

/// Logs each poll of a task that takes more than 20 ms of processor time of its thread.
#[cfg(debug_assertions)]
pub(super) fn measured<F: Future>(task: F) -> impl Future<Output = F::Output> {
    let mut task = Some(Box::pin(task));
    std::future::poll_fn(move |context| {
        let before = thread_time();
        let polled = task.as_mut().expect("a task is polled until it ends").as_mut().poll(context);
        if polled.is_ready() {
            // What it holds is dropped on this thread, too.
            task = None;
        }
        let time = thread_time().saturating_sub(before);
        if time > std::time::Duration::from_millis(20) {
            tracing::debug!(milliseconds = time.as_secs_f64() * 1e3, "A task ran without a pause.");
        }
        polled
    })
}

/// Returns the processor time of this thread.
#[cfg(debug_assertions)]
fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}
