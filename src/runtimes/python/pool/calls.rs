//! The calls of a pool: how they get to a worker, and their answers back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use super::{Pool, State};
use crate::runtimes::Progress;
use crate::runtimes::python::CallError;
use crate::runtimes::python::dispatch::{Lane, ModelNumber, Purpose, Sent};
use crate::runtimes::python::frame::{Frame, Kind, Outgoing};
use crate::runtimes::python::message::Metrics;
use crate::types::Priority;

/// A call, as the pool keeps it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) frame: Outgoing,
    pub(super) reply: Reply,
    pub(super) place: Arc<Place>,
    progress: Arc<dyn Progress>,
}

#[derive(Debug)]
pub(super) enum Reply {
    One(oneshot::Sender<Result<Frame, CallError>>),
    /// Bounded by the credit that the reader gives.
    Many(mpsc::UnboundedSender<Result<Frame, CallError>>),
}

/// Where a call is; written under the pool's lock.
#[derive(Debug, Default)]
pub(super) struct Place {
    worker: AtomicUsize,
    /// 0 while it waits.
    pub(super) id: AtomicU64,
}

/// A call that somebody waits for; dropping it cancels the call.
#[derive(Debug)]
pub(in crate::runtimes::python) struct OpenCall {
    pool: Arc<Pool>,
    place: Arc<Place>,
    over: bool,
}

impl Pool {
    /// Sends a call whose answer is one frame.
    ///
    /// # Errors
    ///
    /// Fails when no worker can run it, or the one that ran it ended. Dropping the future cancels the call.
    pub(in crate::runtimes::python) async fn call(
        self: &Arc<Self>,
        purpose: Purpose,
        frame: Outgoing,
        progress: Arc<dyn Progress>,
    ) -> Result<Frame, CallError> {
        let (reply, answer) = oneshot::channel();
        let mut open = self.submit(purpose, (frame, Reply::One(reply)), progress)?;
        let answer = answer.await.unwrap_or(Err(CallError::Stopping));
        open.over = true;
        answer
    }

    /// Sends a call whose answers are many frames, the last of which is an `end` or an `error`.
    pub(in crate::runtimes::python) fn open(
        self: &Arc<Self>,
        model: ModelNumber,
        priority: Priority,
        frame: Outgoing,
    ) -> Result<(OpenCall, mpsc::UnboundedReceiver<Result<Frame, CallError>>), CallError> {
        let (reply, answers) = mpsc::unbounded_channel();
        let purpose = Purpose { model, lane: Lane::Loop, priority };
        Ok((self.submit(purpose, (frame, Reply::Many(reply)), Arc::new(()))?, answers))
    }

    fn submit(
        self: &Arc<Self>,
        purpose: Purpose,
        (frame, reply): (Outgoing, Reply),
        progress: Arc<dyn Progress>,
    ) -> Result<OpenCall, CallError> {
        let place = Arc::<Place>::default();
        let call = Call { frame, reply, place: Arc::clone(&place), progress };
        let mut state = self.state.lock();
        if state.closed {
            return Err(CallError::Stopping);
        }
        if state.is_hopeless(purpose.model) {
            drop(state);
            return Err(CallError::NoWorker { reason: self.trouble(purpose.model) });
        }
        let sent = state.dispatch.submit(purpose, call, Instant::now());
        self.options.metrics.observe_queue(state.open_calls());
        if let Some(sent) = sent {
            state.send(sent);
        }
        drop(state);
        Ok(OpenCall { pool: Arc::clone(self), place, over: false })
    }

    /// Has the first worker send `payload` back from its loop.
    pub(in crate::runtimes::python) async fn ping(&self, payload: Bytes) -> Option<Bytes> {
        let frame = Outgoing::with_tail(Kind::Ping, Bytes::new(), vec![payload]).ok()?;
        let (reply, answer) = oneshot::channel();
        self.state.lock().send_to(0, frame, reply);
        answer.await.ok()?.ok().map(|frame| frame.tail)
    }

    /// Takes a frame from a worker.
    pub(super) fn receive(&self, worker: usize, frame: Frame) {
        let now = Instant::now();
        match frame.kind {
            Kind::Metrics => match frame.read::<Metrics>() {
                Ok(metrics) => self.options.metrics.observe(metrics.observed),
                Err(error) => error!("{}: {error}", self.worker_name(worker)),
            },
            Kind::Exposition => self.receive_metrics(worker, &frame),
            Kind::Ready => {
                let ready = self.state.lock().links[worker].ready.take();
                if let (Some(sender), Ok(ready)) = (ready, frame.read()) {
                    // Fails only when the keeper has given up.
                    let _ = sender.send(ready);
                }
            }
            Kind::Yielded => {
                let mut state = self.state.lock();
                state.dispatch.yielded(worker, frame.id, now);
                let progress = state.dispatch.open(worker, frame.id).map(|call| Arc::clone(&call.progress));
                state.pump(worker, now);
                drop(state);
                if let Some(progress) = progress {
                    progress.yielded();
                }
            }
            _ => {
                let mut state = self.state.lock();
                let ends = match state.dispatch.open(worker, frame.id) {
                    Some(Call { reply: Reply::Many(answers), .. }) => {
                        if matches!(frame.kind, Kind::End | Kind::Error) {
                            true
                        } else {
                            // Fails only when the reader has gone; its cancellation is under way.
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
                state.pump(worker, now);
                drop(state);
                if let Some(call) = call {
                    call.reply.send(Ok(frame));
                }
            }
        }
    }
}

impl State {
    pub(super) fn open_calls(&self) -> usize {
        (0..self.links.len()).map(|worker| self.dispatch.open_calls(worker)).sum::<usize>() + self.dispatch.waiting()
    }

    /// Hands a call that has its place to the connection.
    fn send(&self, sent: Sent) {
        let Some(call) = self.dispatch.open(sent.worker, sent.id) else { return };
        call.place.worker.store(sent.worker, Ordering::Relaxed);
        call.place.id.store(sent.id, Ordering::Relaxed);
        call.progress.begin();
        if let Some(mailbox) = &self.links[sent.worker].mailbox {
            // Fails only when the connection has ended, and then the call's end is under way.
            let _ = mailbox.send((sent.id, call.frame.clone()));
        }
    }

    /// Sends a call that is no prediction to one worker. The reply is dropped when it cannot be sent.
    pub(super) fn send_to(&mut self, worker: usize, frame: Outgoing, reply: oneshot::Sender<Result<Frame, CallError>>) {
        let call = Call { frame, reply: Reply::One(reply), place: Arc::default(), progress: Arc::new(()) };
        if let Ok(sent) = self.dispatch.submit_to(worker, call, Instant::now()) {
            self.send(sent);
        }
    }

    /// Sends what waits for this worker and can run now.
    pub(super) fn pump(&mut self, worker: usize, now: Instant) {
        while let Some(sent) = self.dispatch.next(worker, now) {
            self.send(sent);
        }
    }
}

impl Reply {
    pub(super) fn send(self, outcome: Result<Frame, CallError>) {
        // Fails only when nobody waits any more.
        match self {
            Self::One(reply) => drop(reply.send(outcome)),
            Self::Many(replies) => drop(replies.send(outcome)),
        }
    }
}

impl OpenCall {
    /// Sends a further frame of a stream to where the stream is. Does nothing once that has ended.
    pub(in crate::runtimes::python) fn send(&self, frame: Outgoing) {
        let state = self.pool.state.lock();
        let (worker, id) = (self.place.worker.load(Ordering::Relaxed), self.place.id.load(Ordering::Relaxed));
        if state.dispatch.open(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            let _ = mailbox.send((id, frame));
        }
    }

    /// Notes that the call has ended, so that there is nothing to cancel.
    pub(in crate::runtimes::python) fn end(&mut self) {
        self.over = true;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.pool.state.lock();
        let (worker, id) = (self.place.worker.load(Ordering::Relaxed), self.place.id.load(Ordering::Relaxed));
        if id == 0 {
            let taken = state.dispatch.take_waiting(|_, call| Arc::ptr_eq(&call.place, &self.place));
            drop(state);
            drop(taken);
        } else if state.dispatch.open(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            let _ = mailbox.send((id, Outgoing::bare(Kind::Cancel)));
        }
    }
}
