//! What the console shows of the workers of a pool.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Pool;
use crate::runtimes::workers::WorkerLoadError;
use crate::runtimes::workers::process::WorkerExit;
use crate::telemetry::workers::{WorkerEndReport, WorkerReport};

/// The longest reason that is kept of the end of a worker, in characters.
const MAX_REASON: usize = 500;

/// How often a worker has ended, and how last.
#[derive(Debug, Default)]
pub(super) struct WorkerEnds {
    count: u64,
    last: Option<WorkerEndReport>,
}

impl WorkerEnds {
    /// Records that the worker ended, or that it could not be started.
    pub(super) fn add(&mut self, exit: Result<&WorkerExit, &WorkerLoadError>) {
        let reason = exit.map_or_else(ToString::to_string, |exit| format!("{exit:#}"));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.count += 1;
        self.last = Some(WorkerEndReport { at, reason: reason.chars().take(MAX_REASON).collect() });
    }
}

impl Pool {
    /// Describes the workers that run, or are to run again.
    pub(in crate::runtimes::workers) fn reports(&self) -> Vec<WorkerReport> {
        let state = self.state.lock();
        let links = state.links.iter().enumerate();
        let known = links.filter(|(worker, link)| link.mailbox.is_some() || state.supervision.is_permanent(*worker));
        let report = |(worker, link): (usize, &super::WorkerLink)| {
            let name = self.worker_name(worker);
            let loaded = state.supervision.loaded_models(worker);
            let ends = state.ends.get(&worker);
            WorkerReport {
                state: match (link.mailbox.is_some(), link.pid) {
                    (true, _) if state.supervision.is_draining(worker) => "draining",
                    (true, Some(_)) => "running",
                    (true, None) => "starting",
                    (false, _) => "stopped",
                },
                pid: link.pid,
                models: loaded.filter_map(|model| Some(state.models.get(&model)?.name.clone())).collect(),
                resident_bytes: self.options.metrics.resident(&name),
                ended: ends.map_or(0, |ends| ends.count),
                last_end: ends.and_then(|ends| ends.last.clone()),
                name,
            }
        };
        known.map(report).collect()
    }
}
