//! Which connections to close, decided from what was seen of them: without clock and I/O.

use std::time::Duration;

use tokio::time::Instant;

use super::table::ConnectionLimits;

/// How long a connection may be idle once it should close.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a connection at one check.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Snapshot {
    /// Requests that have begun, and those in flight.
    pub(super) begun: u32,
    pub(super) in_flight: u32,
    /// Requests in flight that only wait.
    pub(super) waiting: u32,
    /// Requests that have begun whose callers had no right that the server knew of.
    pub(super) without_right: u32,
    /// Bytes.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Whether there are bytes to send that the system does not accept.
    pub(super) blocked: bool,
    pub(super) is_http2: bool,
    pub(super) is_closing: bool,
}

/// What a connection is used for. If there are too many, one of the lowest level is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// All requests so far have been answered.
    Idle,
    /// No request so far, or only requests that wait for their clients, or whose callers have no right.
    Waiting,
    /// A request is being answered.
    Working,
}

/// What was seen of a connection at earlier checks.
#[derive(Debug)]
pub(super) struct History {
    last: Snapshot,
    /// When the connection was accepted, or last had a request in flight.
    pub(super) idle_since: Instant,
    /// When the connection was accepted, last worked, or last had a new request of a caller with a right.
    pub(super) worked: Instant,
    /// When the first bytes of the next head were seen.
    head_since: Option<Instant>,
    /// When the system last accepted bytes, or there were none to send.
    unblocked: Instant,
    /// When the connection last had a request in flight or bytes were sent, or when it was told to close.
    pub(super) quiet_since: Instant,
}

/// Why a connection is closed by the server. The names are labels of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// No request, or only a part of its head, was received in time.
    HeaderTimeout,
    KeepAliveTimeout,
    WriteTimeout,
    /// An idle connection that should close.
    Draining,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Tell the client first.
    Close(CloseReason),
    Cut(CloseReason),
}

impl CloseReason {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::KeepAliveTimeout => "keep_alive_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::Draining => "draining",
        }
    }
}

impl Snapshot {
    pub(super) const fn level(&self) -> Level {
        if self.in_flight > self.waiting {
            return Level::Working;
        }
        // A response may be in transit, whose request has ended.
        if self.blocked && self.with_right() > 0 {
            return Level::Working;
        }
        if self.in_flight > 0 || self.blocked || self.begun == 0 { Level::Waiting } else { Level::Idle }
    }

    /// Returns how many requests have begun whose callers had a right, modulo 2^32.
    pub(super) const fn with_right(&self) -> u32 {
        self.begun.wrapping_sub(self.without_right)
    }
}

impl History {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: Snapshot::default(),
            idle_since: now,
            worked: now,
            head_since: None,
            unblocked: now,
            quiet_since: now,
        }
    }

    /// Compares a connection with what was seen of it before, and decides about it.
    pub(super) fn check(&mut self, seen: Snapshot, now: Instant, limits: &ConnectionLimits) -> Verdict {
        let last = std::mem::replace(&mut self.last, seen);
        let was_active = seen.in_flight > 0 || seen.begun != last.begun;
        if was_active || seen.sent != last.sent {
            self.quiet_since = now;
        }
        if seen.level() == Level::Working || seen.with_right() != last.with_right() {
            self.worked = now;
        }
        if !seen.blocked || seen.sent != last.sent {
            self.unblocked = now;
        } else if now - self.unblocked >= limits.write_timeout {
            return Verdict::Cut(CloseReason::WriteTimeout);
        }
        if was_active {
            self.idle_since = now;
            self.head_since = None;
            return Verdict::Keep;
        }
        if seen.received != last.received && !seen.is_http2 {
            self.head_since.get_or_insert(now);
        }
        if seen.blocked {
            return Verdict::Keep;
        }
        if seen.is_closing && now - self.quiet_since >= CLOSE_TIMEOUT {
            return Verdict::Cut(CloseReason::Draining);
        }
        let idle = now - self.idle_since;
        // Until the preface of HTTP/2 is complete, the connection may become one of either protocol.
        let head_since = if seen.begun == 0 { Some(self.idle_since) } else { self.head_since };
        match head_since.filter(|_| !seen.is_http2) {
            Some(since) if now - since >= limits.header_timeout => Verdict::Cut(CloseReason::HeaderTimeout),
            Some(_) => Verdict::Keep,
            None if seen.is_closing || idle < limits.keep_alive_timeout => Verdict::Keep,
            None if seen.is_http2 => Verdict::Close(CloseReason::KeepAliveTimeout),
            None => Verdict::Cut(CloseReason::KeepAliveTimeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a connection every second, and returns when it was closed.
    fn run(seconds: u64, state: impl Fn(u64) -> Snapshot) -> (u64, Verdict) {
        let start = Instant::now();
        let limits = ConnectionLimits::default();
        let mut history = History::new(start);
        for second in 0..seconds {
            let verdict = history.check(state(second), start + Duration::from_secs(second), &limits);
            if verdict != Verdict::Keep {
                return (second, verdict);
            }
        }
        (seconds, Verdict::Keep)
    }

    const SILENT: Snapshot = Snapshot {
        begun: 0,
        in_flight: 0,
        waiting: 0,
        without_right: 0,
        received: 0,
        sent: 0,
        blocked: false,
        is_http2: false,
        is_closing: false,
    };

    #[test]
    fn level_of_a_connection_is_that_of_its_most_useful_request() {
        let level = |begun, in_flight, waiting, without_right| {
            Snapshot { begun, in_flight, waiting, without_right, ..SILENT }.level()
        };
        assert_eq!(level(0, 0, 0, 0), Level::Waiting, "no credentials so far");
        assert_eq!((level(3, 0, 0, 0), level(3, 0, 0, 3)), (Level::Idle, Level::Idle));
        assert_eq!((level(3, 2, 1, 0), level(3, 2, 2, 0)), (Level::Working, Level::Waiting));
        let blocked = |without_right| Snapshot { begun: 3, without_right, blocked: true, ..SILENT }.level();
        assert_eq!((blocked(2), blocked(3)), (Level::Working, Level::Waiting));
    }

    #[test]
    fn connection_without_a_complete_head_is_cut_after_the_header_timeout() {
        let cut = |second| (second, Verdict::Cut(CloseReason::HeaderTimeout));
        assert_eq!(run(600, |_| SILENT), cut(30));
        assert_eq!(run(600, |second| Snapshot { received: second, ..SILENT }), cut(30));
        let second_head = |second: u64| Snapshot { begun: 1, received: second.max(50), ..SILENT };
        assert_eq!(run(600, second_head), cut(51 + 30));
    }

    #[test]
    fn idle_connection_is_closed_after_the_keep_alive_timeout() {
        let reason = CloseReason::KeepAliveTimeout;
        assert_eq!(run(600, |_| Snapshot { begun: 1, ..SILENT }), (75, Verdict::Cut(reason)));
        let ping = |second| Snapshot { is_http2: true, received: second, sent: second, ..SILENT };
        assert_eq!(run(600, ping), (75, Verdict::Close(reason)));
        let busy = |second: u64| Snapshot { begun: u32::try_from(second / 70).unwrap(), ..SILENT };
        assert_eq!(run(70, busy).1, Verdict::Cut(CloseReason::HeaderTimeout), "no request so far");
        let busy = |second: u64| Snapshot { begun: 1 + u32::try_from(second / 70).unwrap(), ..SILENT };
        assert_eq!(run(600, busy).1, Verdict::Keep);
        assert_eq!(run(600, |_| Snapshot { begun: 1, in_flight: 1, ..SILENT }).1, Verdict::Keep);
    }

    #[test]
    fn connection_that_accepts_no_byte_is_cut_after_the_write_timeout() {
        let blocked = Snapshot { begun: 1, blocked: true, ..SILENT };
        assert_eq!(run(600, |_| blocked), (60, Verdict::Cut(CloseReason::WriteTimeout)));
        let busy = Snapshot { in_flight: 1, ..blocked };
        assert_eq!(run(600, |_| busy), (60, Verdict::Cut(CloseReason::WriteTimeout)));
        assert_eq!(run(600, |second| Snapshot { sent: second / 50, ..busy }).1, Verdict::Keep);
    }

    #[test]
    fn closing_connection_is_cut_once_it_has_been_quiet() {
        let closing = |second: u64| Snapshot {
            begun: 1,
            in_flight: u32::from(second < 100),
            sent: second.min(120),
            received: second,
            is_http2: true,
            is_closing: true,
            ..SILENT
        };
        assert_eq!(run(600, closing), (125, Verdict::Cut(CloseReason::Draining)));
    }
}
