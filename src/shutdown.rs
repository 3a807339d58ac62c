//! The events that shut the server down: signals, and the failure of a task that it cannot run without.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::error;

/// How long after the first signal the same event may still arrive as another SIGTERM or SIGQUIT: `timeout`, container runtimes and
/// supervisors signal a process and then its group.
const SAME_EVENT: Duration = Duration::from_secs(2);

/// The signals that shut the server down: SIGINT, SIGTERM and SIGQUIT.
///
/// The first one requests a graceful shutdown, the second an immediate one; the caller distinguishes them.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    /// When the first one arrived.
    first: Option<Instant>,
}

impl Signals {
    /// Starts listening, so that no later signal is missed.
    ///
    /// # Errors
    ///
    /// Fails if the system rejects the handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            first: None,
        })
    }

    /// Waits for the next signal and returns its name. SIGTERM and SIGQUIT are not reported for two seconds after the first
    /// signal; SIGINT, which a user sends by hand, always is.
    pub async fn next(&mut self) -> &'static str {
        loop {
            let name = tokio::select! {
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.quit.recv() => "SIGQUIT",
            };
            let is_repeated = self.first.is_some_and(|first| name != "SIGINT" && first.elapsed() <= SAME_EVENT);
            self.first.get_or_insert_with(Instant::now);
            if !is_repeated {
                return name;
            }
        }
    }
}

/// The first failure of a supervised task. Like signals, it concerns the whole process.
static FAILURE: LazyLock<watch::Sender<Option<String>>> = LazyLock::new(watch::Sender::default);

/// Waits until a supervised task has failed, and returns the reason.
pub async fn task_failure() -> String {
    let mut failure = FAILURE.subscribe();
    // The sender lives as long as the process.
    let reason = failure.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
    reason.unwrap_or_default()
}

/// Runs a task that the server cannot do without. If it panics, the server shuts down with the reason.
pub async fn supervised(name: &'static str, task: impl Future<Output = ()> + Send) {
    if let Err(panic) = catch_panic(task).await {
        let reason = format!("the task `{name}` panicked: {panic}");
        error!(task = name, "The server cannot continue: {reason}. This is a bug in mlserver.");
        FAILURE.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(reason);
            is_first
        });
    }
}

/// Spawns [`supervised`].
pub fn spawn_supervised(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(supervised(name, task))
}

/// Completes a future, and returns the message if it panics.
///
/// # Errors
///
/// Fails if the future panics. What it changed before that stays changed.
///
/// Not an `async fn`, whose future would hold `work` twice and be copied with each move.
pub fn catch_panic<T>(work: impl Future<Output = T>) -> impl Future<Output = Result<T, String>> {
    AssertUnwindSafe(work).catch_unwind().map(|result| result.map_err(|payload| message(payload.as_ref())))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_of_supervised_task_is_reported_with_its_name_and_message() {
        spawn_supervised("ends", async {}).await.unwrap();
        assert!(task_failure().now_or_never().is_none());
        let number = 7;
        spawn_supervised("breaks", async move { panic!("broken {number}") }).await.unwrap();
        assert_eq!(task_failure().await, "the task `breaks` panicked: broken 7");
        spawn_supervised("breaks later", async { panic!("again") }).await.unwrap();
        assert_eq!(task_failure().await, "the task `breaks` panicked: broken 7");
    }

    #[tokio::test]
    async fn panic_is_caught_with_its_message() {
        assert_eq!(catch_panic(async { 1 }).await, Ok(1));
        let broken: Result<(), String> = catch_panic(async { std::panic::panic_any(1) }).await;
        assert_eq!(broken, Err("no message".to_owned()));
    }
}
