//! The metrics that models keep by themselves: a pool's workers are asked for them.

use std::time::Duration;

use super::Pool;
use crate::runtimes::python::frame::{Frame, Kind, Outgoing};
use crate::runtimes::python::message::Exposition;

impl Pool {
    /// Asks every worker, and waits as long as `patience` for the answers. A worker that has not answered the last question
    /// yet is not asked again.
    pub(in crate::runtimes::python) async fn scrape(&self, patience: Duration) {
        let answers: Vec<_> = (0..self.size()).filter_map(|worker| self.ask_for_metrics(worker)).collect();
        let all = answers.into_iter().map(|mut answer| async move { answer.changed().await });
        // Those that are late are told as they were.
        let _ = tokio::time::timeout(patience, futures_util::future::join_all(all)).await;
    }

    /// Asks a worker, and returns what changes when it answers. Returns nothing when none runs.
    pub(super) fn ask_for_metrics(&self, worker: usize) -> Option<tokio::sync::watch::Receiver<()>> {
        let mut state = self.state.lock();
        let link = &mut state.links[worker];
        let mailbox = link.mailbox.as_ref().filter(|_| link.pid.is_some())?;
        if !link.asked_for_metrics {
            // Outside of all slots, so that questions to a worker that hangs take no call's place.
            mailbox.send((0, Outgoing::bare(Kind::Scrape))).ok()?;
            link.asked_for_metrics = true;
        }
        Some(link.told_metrics.subscribe())
    }

    /// Takes a worker's answer.
    pub(super) fn receive_metrics(&self, worker: usize, frame: &Frame) {
        let mut state = self.state.lock();
        let link = &mut state.links[worker];
        link.asked_for_metrics = false;
        let pid = link.pid;
        let told = link.told_metrics.clone();
        drop(state);
        let name = self.worker_name(worker);
        match (frame.read::<Exposition>(), pid) {
            (Ok(Exposition { families }), Some(pid)) => self.options.metrics.expositions().set(&name, pid, families),
            (Ok(_), None) => {}
            (Err(error), _) => tracing::error!("{name}: {error}"),
        }
        told.send_replace(());
    }
}
