//! The calls of a pool: their way to a worker, and the way back of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::error;

use super::{Pool, PoolState};
use crate::runtimes::Progress;
use crate::runtimes::workers::CallError;
use crate::runtimes::workers::dispatch::{CallTarget, ModelNumber, Placement};
use crate::runtimes::workers::frame::{Frame, FrameKind, OutgoingFrame};
use crate::runtimes::workers::message::MetricsHead;

/// A call that is queued or open.
#[derive(Debug)]
pub(super) struct PoolCall {
    pub(super) model: ModelNumber,
    pub(super) frame: OutgoingFrame,
    pub(super) reply: ReplySender,
    pub(super) placement: Arc<CallPlacement>,
    pub(super) progress: Arc<dyn Progress>,
    /// How many workers have died before they began with it.
    pub(super) lost_workers: usize,
    /// The steps that its code waits for. Dropping them cancels them.
    pub(super) steps: JoinSet<()>,
}

#[derive(Debug)]
pub(super) enum ReplySender {
    One(oneshot::Sender<Result<Frame, CallError>>),
    /// Bounded by the credit that the reader grants.
    Many(mpsc::UnboundedSender<Result<Frame, CallError>>),
}

/// The worker and id of a call. Written while the pool is locked.
#[derive(Debug, Default)]
pub(super) struct CallPlacement {
    worker: AtomicUsize,
    /// 0 while the call is queued.
    pub(super) id: AtomicU64,
}

/// A call whose caller waits for the answer. Dropping it cancels the call.
#[derive(Debug)]
pub(in crate::runtimes::workers) struct OpenCall {
    pool: Arc<Pool>,
    placement: Arc<CallPlacement>,
    ended: bool,
}

impl Pool {
    /// Sends a call whose answer is one frame.
    ///
    /// # Errors
    ///
    /// Fails if no worker can run the call, or if its worker exited. Dropping the future cancels the call.
    pub(in crate::runtimes::workers) async fn call(
        self: &Arc<Self>,
        target: CallTarget,
        frame: OutgoingFrame,
        progress: Arc<dyn Progress>,
    ) -> Result<Frame, CallError> {
        let (reply, answer) = oneshot::channel();
        let mut open = self.submit(target, frame, ReplySender::One(reply), progress)?;
        let answer = answer.await.unwrap_or(Err(CallError::Stopping));
        open.ended = true;
        answer
    }

    /// Sends a call whose answer may be several frames, of which the last is final.
    pub(in crate::runtimes::workers) fn open(
        self: &Arc<Self>,
        target: CallTarget,
        frame: OutgoingFrame,
        progress: Arc<dyn Progress>,
    ) -> Result<(OpenCall, mpsc::UnboundedReceiver<Result<Frame, CallError>>), CallError> {
        let (reply, answers) = mpsc::unbounded_channel();
        Ok((self.submit(target, frame, ReplySender::Many(reply), progress)?, answers))
    }

    fn submit(
        self: &Arc<Self>,
        target: CallTarget,
        frame: OutgoingFrame,
        reply: ReplySender,
        progress: Arc<dyn Progress>,
    ) -> Result<OpenCall, CallError> {
        let placement = Arc::<CallPlacement>::default();
        let (model, steps) = (target.model, JoinSet::new());
        let call =
            PoolCall { model, frame, reply, placement: Arc::clone(&placement), progress, lost_workers: 0, steps };
        let mut state = self.state.lock();
        if state.closed {
            return Err(CallError::Stopping);
        }
        if state.supervision.is_unavailable(target.model) {
            drop(state);
            return Err(CallError::NoWorker { reason: self.unavailable_reason(target.model) });
        }
        let placed = state.dispatch.submit(target, call, Instant::now());
        self.options.metrics.observe_queue(state.open_calls());
        if let Some(placed) = placed {
            state.send(placed);
        }
        drop(state);
        Ok(OpenCall { pool: Arc::clone(self), placement, ended: false })
    }

    /// Pings the first worker, whose event loop echoes `payload`.
    pub(in crate::runtimes::workers) async fn ping(&self, payload: Bytes) -> Option<Bytes> {
        let frame = OutgoingFrame::with_tail(FrameKind::Ping, Bytes::new(), vec![payload]).ok()?;
        let (reply, answer) = oneshot::channel();
        self.state.lock().send_to(0, frame, reply);
        answer.await.ok()?.ok().map(|frame| frame.tail)
    }

    /// Handles a frame from a worker.
    pub(super) fn receive(self: &Arc<Self>, worker: usize, frame: Frame) {
        let now = Instant::now();
        match frame.kind {
            FrameKind::Metrics => match frame.read_head::<MetricsHead>() {
                Ok(metrics) => self.options.metrics.observe(metrics.observed),
                Err(error) => error!("{}: {error}", self.worker_name(worker)),
            },
            FrameKind::Exposition => self.receive_metrics(worker, &frame),
            FrameKind::Step => self.receive_step(worker, &frame),
            FrameKind::Ready => {
                let ready = self.state.lock().links[worker].ready.take();
                if let (Some(sender), Ok(ready)) = (ready, frame.read_head()) {
                    // Fails only if the supervisor no longer waits.
                    let _ = sender.send(ready);
                }
            }
            FrameKind::Yielded => {
                let mut state = self.state.lock();
                state.dispatch.call_yielded(worker, frame.id, now);
                let progress = state.dispatch.open_call(worker, frame.id).map(|call| Arc::clone(&call.progress));
                state.send_queued(worker, now);
                drop(state);
                if let Some(progress) = progress {
                    progress.yielded();
                }
            }
            _ => {
                let mut state = self.state.lock();
                let ends = match state.dispatch.open_call(worker, frame.id) {
                    Some(PoolCall { reply: ReplySender::Many(answers), .. }) => {
                        if frame.kind.is_final() {
                            true
                        } else {
                            // Fails only if the reader was dropped, which also cancels the call.
                            let _ = answers.send(Ok(frame));
                            return;
                        }
                    }
                    Some(_) => true,
                    None => false,
                };
                if !ends {
                    return;
                }
                let call = state.dispatch.finish(worker, frame.id, now);
                state.send_queued(worker, now);
                state.check_drained(worker, self.options.workers.max_requests_per_worker);
                drop(state);
                if let Some(call) = call {
                    call.reply.send(Ok(frame));
                }
            }
        }
    }
}

impl PoolState {
    pub(super) fn open_calls(&self) -> usize {
        (0..self.links.len()).map(|worker| self.dispatch.open_calls(worker)).sum::<usize>()
            + self.dispatch.queued_calls()
    }

    /// Passes a placed call to its worker's connection.
    fn send(&self, placed: Placement) {
        let Some(call) = self.dispatch.open_call(placed.worker, placed.id) else { return };
        call.placement.worker.store(placed.worker, Ordering::Relaxed);
        call.placement.id.store(placed.id, Ordering::Relaxed);
        call.progress.begin();
        if let Some(mailbox) = &self.links[placed.worker].mailbox {
            // Fails only if the connection has ended; the supervisor then ends or requeues the call.
            let _ = mailbox.send((placed.id, call.frame.clone()));
        }
    }

    /// Sends a call that is not a prediction to one worker and returns its id. Drops `reply` if the call cannot be sent.
    pub(super) fn send_to(
        &mut self,
        worker: usize,
        frame: OutgoingFrame,
        reply: oneshot::Sender<Result<Frame, CallError>>,
    ) -> Option<u64> {
        let call = PoolCall {
            model: 0,
            frame,
            reply: ReplySender::One(reply),
            placement: Arc::default(),
            progress: Arc::new(()),
            lost_workers: 0,
            steps: JoinSet::new(),
        };
        let placed = self.dispatch.submit_to(worker, call, Instant::now()).ok()?;
        self.send(placed);
        Some(placed.id)
    }

    /// Wakes the supervisor of a worker that has ended its last call while it is drained, or that is to be replaced.
    fn check_drained(&self, worker: usize, max_requests: Option<u64>) {
        let is_drained = || self.supervision.is_draining(worker) && self.dispatch.open_predictions(worker) == 0;
        if max_requests == Some(self.dispatch.ended_predictions(worker)) || is_drained() {
            self.links[worker].wake.notify_one();
        }
    }

    /// Sends the queued calls that this worker can run now.
    pub(super) fn send_queued(&mut self, worker: usize, now: Instant) {
        while let Some(placed) = self.dispatch.place_next(worker, now) {
            self.send(placed);
        }
    }
}

impl PoolCall {
    /// Records that the call is queued again.
    pub(super) fn wait_again(&self) {
        self.placement.id.store(0, Ordering::Relaxed);
        self.progress.wait_again();
    }
}

impl ReplySender {
    pub(super) fn send(self, outcome: Result<Frame, CallError>) {
        // Fails only if the caller no longer waits.
        match self {
            Self::One(reply) => drop(reply.send(outcome)),
            Self::Many(replies) => drop(replies.send(outcome)),
        }
    }
}

impl OpenCall {
    /// Sends a further frame of a stream to its worker. Does nothing once the stream has ended.
    pub(in crate::runtimes::workers) fn send(&self, frame: OutgoingFrame) {
        let state = self.pool.state.lock();
        let (worker, id) = (self.placement.worker.load(Ordering::Relaxed), self.placement.id.load(Ordering::Relaxed));
        if state.dispatch.open_call(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            let _ = mailbox.send((id, frame));
        }
    }

    /// Marks the call as ended, so that dropping it cancels nothing.
    pub(in crate::runtimes::workers) fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.pool.state.lock();
        let (worker, id) = (self.placement.worker.load(Ordering::Relaxed), self.placement.id.load(Ordering::Relaxed));
        if id == 0 {
            let taken = state.dispatch.take_queued_call(|call| Arc::ptr_eq(&call.placement, &self.placement));
            drop(state);
            drop(taken);
        } else if let Some(call) = state.dispatch.open_call_mut(worker, id) {
            let steps = std::mem::take(&mut call.steps);
            if let Some(mailbox) = &state.links[worker].mailbox {
                let _ = mailbox.send((id, OutgoingFrame::empty(FrameKind::Cancel)));
            }
            drop(state);
            drop(steps);
        }
    }
}
