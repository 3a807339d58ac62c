//! Scrapes the metrics that models keep themselves from the workers of a pool.

use std::time::Duration;

use super::Pool;
use crate::runtimes::workers::frame::{Frame, FrameKind, OutgoingFrame};
use crate::runtimes::workers::message::ExpositionHead;

impl Pool {
    /// Scrapes every worker, and waits for the answers, at most for `timeout`. A worker that has not answered the previous
    /// scrape is not asked again.
    pub(in crate::runtimes::workers) async fn scrape(&self, timeout: Duration) {
        let answers: Vec<_> = (0..self.size()).filter_map(|worker| self.request_metrics(worker)).collect();
        let all = answers.into_iter().map(|mut answer| async move { answer.changed().await });
        // The metrics of late workers stay as they were.
        let _ = tokio::time::timeout(timeout, futures_util::future::join_all(all)).await;
    }

    /// Scrapes a worker, and returns a channel that changes when it answers. Returns `None` if the worker is not running.
    pub(super) fn request_metrics(&self, worker: usize) -> Option<tokio::sync::watch::Receiver<()>> {
        let mut state = self.state.lock();
        let link = &mut state.links[worker];
        let mailbox = link.mailbox.as_ref().filter(|_| link.pid.is_some())?;
        if !link.scrape_pending {
            // Takes no slot, so that scrapes of a worker that hangs do not use up the slots of calls.
            mailbox.send((0, OutgoingFrame::empty(FrameKind::Scrape))).ok()?;
            link.scrape_pending = true;
        }
        Some(link.scraped.subscribe())
    }

    /// Handles a worker's answer to a scrape.
    pub(super) fn receive_metrics(&self, worker: usize, frame: &Frame) {
        let mut state = self.state.lock();
        let link = &mut state.links[worker];
        link.scrape_pending = false;
        let pid = link.pid;
        let scraped = link.scraped.clone();
        drop(state);
        let name = self.worker_name(worker);
        match (frame.read_head::<ExpositionHead>(), pid) {
            (Ok(ExpositionHead { families }), Some(pid)) => {
                self.options.metrics.expositions().set(&name, pid, families);
            }
            (Ok(_), None) => {}
            (Err(error), _) => tracing::error!("{name}: {error}"),
        }
        scraped.send_replace(());
    }
}
