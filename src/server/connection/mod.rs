//! One connection: its requests, the bytes that it has received and sent, and the responses that its client does not read.
//!
//! The connection counts, and [`table`] compares the counts from time to time, so that requests set no timers and read no
//! clock. Closing a connection gracefully takes both sides: an HTTP/2 client acknowledges the end, an HTTP/1 client sends the
//! rest of the head that it has begun. Clients that are frozen, or that have disappeared without closing, never do.

mod body;
mod pace;
mod stream;
mod table;
mod verdict;

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub(super) use body::{ResponseHold, TrackedBody};
pub(super) use pace::SlowBody;
pub use pace::{BodyPace, PacedBody, PacedRequestBody};
pub(super) use stream::CountedStream;
pub(super) use table::{AcceptWarnings, ConnectionEntry, ConnectionGroup};
pub use table::{ConnectionLimits, ConnectionMetrics, ConnectionTable};

/// What a connection is asked to do.
mod command {
    pub(super) const SERVE: u8 = 0;
    /// Finish the requests in flight and accept no others.
    pub(super) const CLOSE: u8 = 1;
    /// End once the watches have been told.
    pub(super) const END_WATCHES: u8 = 2;
    /// End at once.
    pub(super) const CUT: u8 = 3;
}

/// The most watches on one connection. A client has one for each service that it asks about.
pub(super) const MAX_WATCHES: usize = 16;

/// The number of requests that a connection has received, in the upper half, and of those in flight, in the lower.
const BEGUN: u64 = 1 << 32;

/// What happens on one connection.
#[derive(Debug)]
pub(super) struct Connection {
    requests: AtomicU64,
    /// The marks of requests in flight that only wait.
    waiting: AtomicU32,
    /// How many requests have begun whose callers had no right that the server knew of, modulo 2^32.
    without_right: AtomicU32,
    /// What ends the watches when the connection is evicted.
    watches: Mutex<Vec<WatchEntry>>,
    received: AtomicU64,
    /// Bytes that the system has accepted: a response may still be in transit long after its request has ended.
    sent: AtomicU64,
    /// Whether there are bytes to send that the system does not accept, because the client does not read.
    blocked: AtomicBool,
    http2: AtomicBool,
    command: AtomicU8,
    task: AtomicWaker,
    /// The requests in flight over HTTP/2.
    slots: OnceLock<Box<[StreamSlot]>>,
    /// The position after that of the request that has just begun; 0 if its task has been noted.
    newest: AtomicU32,
    /// How many requests HTTP/2 clients may send at once.
    max_streams: u32,
    peer: Option<SocketAddr>,
}

/// A request in flight over HTTP/2. Each has flow control of its own, so its client may leave a single response unread.
#[derive(Debug, Default)]
struct StreamSlot {
    used: AtomicBool,
    /// The request or the body of its response, and `unsent`.
    owners: AtomicU32,
    /// Parts of the response that have been handed to the connection and not been sent.
    unsent: AtomicU32,
    /// Counts the parts of responses that have been sent, or handed to the connection.
    progress: AtomicU32,
    /// What `progress` was at the last check, and the check since which it has not changed.
    seen: AtomicU32,
    since: AtomicU32,
    task: Mutex<Option<AbortHandle>>,
}

/// Counts a request as in flight until this, and all parts of its response, are dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    connection: Arc<Connection>,
    /// The position of its slot. `None` over HTTP/1, where a response that is not read blocks the connection.
    slot: Option<u32>,
    is_part: bool,
    /// Set if the caller has no right: until the response has been sent, the request only waits.
    mark: Option<Arc<WaitingMark>>,
}

/// Counts a request as only waiting until this is dropped: its caller has not sent all of it, or has no right that the server
/// knows of. Such requests are evicted for others.
#[derive(Debug)]
pub struct WaitingMark {
    connection: Arc<Connection>,
    /// Whether this also counts as a request in flight, after the response has been sent.
    is_request: bool,
}

/// A watch that has begun on a connection.
#[derive(Debug)]
struct WatchEntry {
    /// Exists until the end of the watch has been handed to the connection.
    mark: Weak<WaitingMark>,
    /// Ends the watch.
    ended: Weak<Notify>,
}

/// A connection that has as many watches as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection has {MAX_WATCHES} watches, which is the limit")]
pub struct TooManyWatches;

impl WaitingMark {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.waiting.fetch_add(1, Ordering::AcqRel);
        Self { connection: Arc::clone(connection), is_request: false }
    }

    /// Creates the mark of the rest of a request that has been answered.
    fn of_rest(connection: &Arc<Connection>) -> Self {
        connection.requests.fetch_add(1, Ordering::AcqRel);
        let mut mark = Self::new(connection);
        mark.is_request = true;
        mark
    }
}

impl Drop for WaitingMark {
    fn drop(&mut self) {
        if self.is_request {
            self.connection.requests.fetch_sub(1, Ordering::AcqRel);
        }
        self.connection.waiting.fetch_sub(1, Ordering::AcqRel);
        if self.connection.command.load(Ordering::Acquire) == command::END_WATCHES {
            self.connection.task.wake();
        }
    }
}

impl Connection {
    fn new(max_streams: u32, peer: Option<SocketAddr>) -> Self {
        Self {
            requests: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            without_right: AtomicU32::new(0),
            watches: Mutex::default(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            command: AtomicU8::new(command::SERVE),
            task: AtomicWaker::new(),
            slots: OnceLock::new(),
            newest: AtomicU32::new(0),
            max_streams,
            peer,
        }
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>, is_http2: bool) -> ActiveRequest {
        self.requests.fetch_add(BEGUN + 1, Ordering::AcqRel);
        let slot = if is_http2 { self.take_slot() } else { None };
        ActiveRequest { connection: Arc::clone(self), slot, is_part: false, mark: None }
    }

    /// Takes a free slot. Only the task of the connection calls this.
    fn take_slot(&self) -> Option<u32> {
        let slots = self.slots.get_or_init(|| (0..self.max_streams).map(|_| StreamSlot::default()).collect());
        let free = slots.iter().position(|slot| !slot.used.load(Ordering::Acquire))?;
        let slot = &slots[free];
        slot.used.store(true, Ordering::Relaxed);
        slot.owners.store(1, Ordering::Release);
        let position = u32::try_from(free).ok()?;
        self.newest.store(position + 1, Ordering::Relaxed);
        Some(position)
    }

    /// Notes the task of the request that has just begun.
    pub(super) fn note_task(&self, task: AbortHandle) {
        let newest = self.newest.swap(0, Ordering::Relaxed);
        if let Some(slot) = newest.checked_sub(1).and_then(|position| self.slot(position)) {
            *slot.task.lock() = Some(task);
        }
    }

    fn slot(&self, position: u32) -> Option<&StreamSlot> {
        self.slots.get()?.get(position as usize)
    }

    /// Returns how many requests have begun, modulo 2^32, and how many are in flight.
    fn requests(&self) -> (u32, u32) {
        let requests = self.requests.load(Ordering::Acquire);
        // Truncation takes the lower half.
        #[expect(clippy::cast_possible_truncation, reason = "both halves have 32 bits")]
        ((requests >> 32) as u32, requests as u32)
    }

    fn order(&self, command: u8) {
        if self.command.fetch_max(command, Ordering::AcqRel) < command {
            if command == command::END_WATCHES {
                self.watches
                    .lock()
                    .iter()
                    .filter_map(|watch| watch.ended.upgrade())
                    .for_each(|ended| ended.notify_one());
            }
            self.task.wake();
        }
    }

    /// Returns what the connection is asked to do, and wakes the task when that changes.
    fn commanded(&self, context: &Context<'_>) -> u8 {
        self.task.register(context.waker());
        self.command.load(Ordering::Acquire)
    }

    /// Reports whether the connection must end at once, or once its watches have ended.
    pub(super) fn is_cut(&self, context: &Context<'_>) -> bool {
        self.commanded(context) >= command::END_WATCHES
    }

    /// Reports whether the connection ends once its watches have been told.
    pub(super) fn is_telling(&self) -> bool {
        self.command.load(Ordering::Acquire) == command::END_WATCHES
    }

    /// Reports whether watches have not been told yet that the connection ends, and wakes the task when that changes.
    pub(super) fn has_untold_watches(&self, context: &Context<'_>) -> bool {
        self.commanded(context) == command::END_WATCHES && self.has_watches()
    }

    fn has_watches(&self) -> bool {
        self.watches.lock().iter().any(|watch| watch.mark.strong_count() > 0)
    }

    /// Registers a watch, which counts as long as its mark exists.
    fn add_watch(&self, mark: &Arc<WaitingMark>, ended: &Arc<Notify>) -> Result<(), TooManyWatches> {
        let mut watches = self.watches.lock();
        watches.retain(|watch| watch.mark.strong_count() > 0);
        if watches.len() >= MAX_WATCHES {
            return Err(TooManyWatches);
        }
        watches.push(WatchEntry { mark: Arc::downgrade(mark), ended: Arc::downgrade(ended) });
        Ok(())
    }

    /// Reports whether the connection should finish the requests in flight and accept no others.
    pub(super) fn is_closing(&self) -> bool {
        self.command.load(Ordering::Relaxed) >= command::CLOSE
    }

    /// Ends the responses of which nothing has been sent for `limit` checks, of which this is number `now`. Returns whether one
    /// of them can only be ended with the connection.
    fn end_unread(&self, now: u32, limit: u32) -> bool {
        let Some(slots) = self.slots.get() else { return false };
        let mut stuck = false;
        for slot in slots {
            let progress = slot.progress.load(Ordering::Relaxed);
            let is_unsent = slot.unsent.load(Ordering::Acquire) > 0;
            if !is_unsent || slot.seen.swap(progress, Ordering::Relaxed) != progress {
                slot.since.store(now, Ordering::Relaxed);
            } else if now.wrapping_sub(slot.since.load(Ordering::Relaxed)) >= limit {
                match slot.task.lock().take().filter(|task| !task.is_finished()) {
                    Some(task) => {
                        // Resets the stream, which drops what the connection has buffered of it.
                        task.abort();
                        slot.since.store(now, Ordering::Relaxed);
                    }
                    // The end of the response is in the buffers of the connection.
                    None => stuck = true,
                }
            }
        }
        stuck
    }
}

impl ActiveRequest {
    const fn is_stream(&self) -> bool {
        self.slot.is_some()
    }

    fn stream_slot(&self) -> Option<&StreamSlot> {
        self.connection.slot(self.slot?)
    }

    /// Returns the owner of a part of the response, over HTTP/2.
    fn part(&self) -> Self {
        if let Some(slot) = self.stream_slot() {
            slot.owners.fetch_add(1, Ordering::AcqRel);
            slot.unsent.fetch_add(1, Ordering::AcqRel);
            slot.progress.fetch_add(1, Ordering::Relaxed);
        }
        Self { connection: Arc::clone(&self.connection), slot: self.slot, is_part: true, mark: self.mark.clone() }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(slot) = self.stream_slot() {
            slot.progress.fetch_add(1, Ordering::Relaxed);
            if self.is_part {
                slot.unsent.fetch_sub(1, Ordering::AcqRel);
            }
            if slot.owners.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            slot.task.lock().take();
            slot.used.store(false, Ordering::Release);
        }
        self.connection.requests.fetch_sub(1, Ordering::AcqRel);
    }
}
