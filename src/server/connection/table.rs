//! All connections of the server: how many there may be, which are evicted for others, and which have exceeded a timeout.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::verdict::{CLOSE_TIMEOUT, History, Level, Snapshot, Verdict};
use super::{Connection, command};
use crate::settings::LimitSettings;
use crate::shutdown::spawn_supervised;
use crate::telemetry::metrics::Registry;

/// How often connections are checked during the shortest timeout.
const CHECKS: u32 = 8;

/// The shortest time between two checks.
const SHORTEST_CHECK: Duration = Duration::from_millis(10);

/// How many connections are found at once when some must be evicted. A search looks at all connections.
const CANDIDATES: usize = 64;

/// Warnings of the same kind are logged at most once in this time.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The most evicted connections at once whose watches are told before. Others end at once, so that they hold no descriptors.
const MAX_TOLD: usize = 64;

/// HTTP/2 streams per connection, if `max_in_flight` allows: one connection must not be able to use all slots.
const MAX_STREAMS: u32 = 128;

/// Connections of listeners that do not take part in the limit of the others, such as the one for metrics.
pub(super) const RESERVED: usize = 64;

/// The limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The maximum number of connections. Above it, one is evicted that is idle, or if none is, one that only waits.
    pub max_connections: usize,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub write_timeout: Duration,
    pub keep_alive_timeout: Duration,
}

impl ConnectionLimits {
    /// Takes the limits from the settings. `max_connections` is used if the settings do not limit connections.
    pub fn new(settings: &LimitSettings, max_connections: usize) -> Self {
        let slots = u32::try_from(settings.max_in_flight.get()).unwrap_or(u32::MAX);
        Self {
            max_connections: settings.max_connections.map_or(max_connections, std::num::NonZeroUsize::get),
            max_streams: (slots / 2).clamp(1, MAX_STREAMS),
            header_timeout: settings.http_header_timeout,
            body_timeout: settings.http_body_timeout,
            write_timeout: settings.http_write_timeout,
            keep_alive_timeout: settings.http_keep_alive_timeout,
        }
    }

    /// Returns the limits of a listener that must be reachable when the others have no room.
    #[must_use]
    pub fn reserved(self) -> Self {
        Self { max_connections: RESERVED, ..self }
    }

    /// Returns the time between two checks.
    fn check_interval(&self) -> Duration {
        let timeouts = [self.header_timeout, self.write_timeout, self.keep_alive_timeout, CLOSE_TIMEOUT];
        let shortest = timeouts.into_iter().min().unwrap_or(CLOSE_TIMEOUT);
        (shortest / CHECKS).max(SHORTEST_CHECK)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::new(&LimitSettings::default(), 1024)
    }
}

/// Why the server closed a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloseLabels {
    reason: &'static str,
}

/// Counts of connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics {
    open: Gauge,
    closed: Family<CloseLabels, Counter>,
    accept_errors: Counter,
}

impl ConnectionMetrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { open, closed, accept_errors } = metrics.clone();
        registry.register("connections_open", "Open connections of all listeners", open);
        let help = "Connections that the server closed because of a timeout or a limit, by reason";
        registry.register("connections_closed", help, closed);
        registry.register("accept_errors", "Connections that could not be accepted", accept_errors);
        metrics
    }

    fn count_closed(&self, reason: &'static str) {
        self.closed.get_or_create(&CloseLabels { reason }).inc();
    }
}

/// The connections that share limits. Clones share them.
#[derive(Clone)]
pub struct ConnectionTable(Arc<TableState>);

struct TableState {
    limits: ConnectionLimits,
    metrics: ConnectionMetrics,
    entries: Mutex<Entries>,
    full: Mutex<Throttle>,
    evicted: Mutex<Throttle>,
}

#[derive(Default)]
struct Entries {
    /// By the order in which they were accepted.
    open: BTreeMap<u64, Entry>,
    accepted: u64,
    groups: u64,
    /// The number of checks.
    checks: u32,
    /// Connections that did not work when some were last searched; the first to evict is the last.
    candidates: Vec<Candidate>,
    /// Connections that have been cut and have not ended yet.
    ending: usize,
}

/// A connection that may be evicted, unless it has been used since.
struct Candidate {
    number: u64,
    level: Level,
    /// The number of its requests with a right.
    with_right: u32,
}

struct Entry {
    connection: Arc<Connection>,
    group: u64,
    history: History,
}

/// The connections that one listener has accepted, and that close together.
#[derive(Debug, Clone)]
pub(in crate::server) struct ConnectionGroup {
    table: ConnectionTable,
    number: u64,
}

/// A connection in the table, until it is dropped.
pub(in crate::server) struct ConnectionEntry {
    table: Arc<TableState>,
    number: u64,
    pub(in crate::server) connection: Arc<Connection>,
}

impl ConnectionTable {
    /// Creates a table, and checks its connections for as long as it exists.
    pub fn start(limits: ConnectionLimits, metrics: ConnectionMetrics) -> Self {
        let (full, evicted) = (Mutex::default(), Mutex::default());
        let state = Arc::new(TableState { limits, metrics, entries: Mutex::default(), full, evicted });
        let checks = check_regularly(Arc::downgrade(&state), limits.check_interval());
        spawn_supervised("checks of connections", checks);
        Self(state)
    }

    pub(in crate::server) fn limits(&self) -> &ConnectionLimits {
        &self.0.limits
    }

    /// Returns a group without connections.
    pub(in crate::server) fn group(&self) -> ConnectionGroup {
        let mut entries = self.0.entries.lock();
        entries.groups += 1;
        ConnectionGroup { table: self.clone(), number: entries.groups }
    }

    /// Makes room after the system has refused a connection for lack of descriptors, and counts the failure.
    pub(in crate::server) fn accept_failed(&self) {
        self.0.metrics.accept_errors.inc();
        // Several, because the next attempt is made after a pause.
        for _ in 0..CANDIDATES {
            if !self.0.entries.lock().evict() {
                return;
            }
            self.0.metrics.count_closed("evicted");
        }
    }
}

impl fmt::Debug for ConnectionTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConnectionTable").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl ConnectionGroup {
    pub(in crate::server) const fn table(&self) -> &ConnectionTable {
        &self.table
    }

    /// Registers a connection that has just been accepted. If there are too many, evicts one. `None` if all work.
    pub(in crate::server) fn admit(&self, peer: Option<SocketAddr>) -> Option<ConnectionEntry> {
        let TableState { limits, metrics, entries, full, evicted } = &*self.table.0;
        let mut entries = entries.lock();
        if entries.open.len() - entries.ending >= limits.max_connections {
            if !entries.evict() {
                drop(entries);
                metrics.count_closed("limit");
                if let Some(count) = full.lock().report() {
                    let limit = limits.max_connections;
                    warn!(
                        "Closed {count} new connections: {limit} are open, and each has a request that is being answered \
                         (`max_connections`). Raise the limit, or start more servers."
                    );
                }
                return None;
            }
            metrics.count_closed("evicted");
            if let Some(count) = evicted.lock().report() {
                warn!(
                    "Closed {count} connections that were idle, or only waited for their clients, to make room for new \
                     ones: {} are open (`max_connections`).",
                    limits.max_connections
                );
            }
        }
        let connection = Arc::new(Connection::new(limits.max_streams, peer));
        let number = entries.accepted;
        entries.accepted += 1;
        let history = History::new(Instant::now());
        entries.open.insert(number, Entry { connection: Arc::clone(&connection), group: self.number, history });
        metrics.open.inc();
        Some(ConnectionEntry { table: Arc::clone(&self.table.0), number, connection })
    }

    /// Tells the connections of the group to close once their requests have been answered.
    pub(in crate::server) fn close(&self) {
        let now = Instant::now();
        let mut entries = self.table.0.entries.lock();
        for entry in entries.open.values_mut().filter(|entry| entry.group == self.number) {
            entry.history.quiet_since = now;
            entry.connection.order(command::CLOSE);
        }
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut entries = self.table.entries.lock();
        entries.open.remove(&self.number);
        if self.connection.command.load(Ordering::Acquire) >= command::END_WATCHES {
            entries.ending -= 1;
        }
        self.table.metrics.open.dec();
    }
}

impl Connection {
    fn snapshot(&self) -> Snapshot {
        let (begun, in_flight) = self.requests();
        Snapshot {
            begun,
            in_flight,
            waiting: self.waiting.load(Ordering::Acquire),
            without_right: self.without_right.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            blocked: self.blocked.load(Ordering::Relaxed),
            is_http2: self.http2.load(Ordering::Relaxed),
            is_closing: self.is_closing(),
        }
    }
}

impl Entries {
    /// Ends the oldest connection of the lowest level. Returns false if all work.
    fn evict(&mut self) -> bool {
        // Those that are found may be used before they are ended. Then the search finds more, until it has found all.
        let (mut wanted, mut are_all) = (0, false);
        loop {
            let Some(Candidate { number, level, with_right }) = self.candidates.pop() else {
                if are_all {
                    return false;
                }
                wanted = (2 * wanted).max(1);
                are_all = self.search(wanted);
                continue;
            };
            let Some(entry) = self.open.get(&number) else { continue };
            let seen = entry.connection.snapshot();
            if seen.level() <= level && seen.with_right() == with_right && self.end(number) {
                debug!("Evicted a connection that was idle, or only waited.");
                return true;
            }
        }
    }

    /// Finds the oldest connections of the lowest levels, at least as many as are wanted. Returns whether these are all.
    fn search(&mut self, wanted: usize) -> bool {
        let found = self.open.iter().filter_map(|(&number, Entry { connection, history, .. })| {
            let seen = connection.snapshot();
            let since = match seen.level() {
                Level::Idle => history.idle_since,
                Level::Waiting => history.worked,
                Level::Working => return None,
            };
            let is_open = connection.command.load(Ordering::Relaxed) < command::END_WATCHES;
            is_open.then_some((seen.level(), since, number, seen.with_right()))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        let idle = found.partition_point(|(level, ..)| *level == Level::Idle);
        // Some of the others may be idle soon, so they are found again for each eviction unless there are many.
        let few = if idle > 0 { idle.min(CANDIDATES) } else { (self.open.len() / 256).clamp(1, CANDIDATES) };
        let count = found.len();
        found.truncate(few.max(wanted));
        let candidate = |(level, _, number, with_right)| Candidate { number, level, with_right };
        self.candidates = found.into_iter().rev().map(candidate).collect();
        self.candidates.len() == count
    }

    /// Ends a connection at once, or once its watches have been told. Returns false if it has been ended before.
    fn end(&mut self, number: u64) -> bool {
        let tell = self.ending < MAX_TOLD && self.open.get(&number).is_some_and(|entry| entry.connection.has_watches());
        self.order_end(number, if tell { command::END_WATCHES } else { command::CUT })
    }

    /// Ends a connection at once. Returns false if it has been ended before.
    fn cut(&mut self, number: u64) -> bool {
        self.order_end(number, command::CUT)
    }

    fn order_end(&mut self, number: u64, command: u8) -> bool {
        let Some(entry) = self.open.get(&number) else { return false };
        if entry.connection.command.load(Ordering::Acquire) >= command::END_WATCHES {
            return false;
        }
        // Only with the lock of the table are connections ended.
        entry.connection.order(command);
        self.ending += 1;
        true
    }
}

impl TableState {
    /// Closes the connections that have exceeded a timeout.
    fn check(&self) {
        let now = Instant::now();
        let limit = self.limits.write_timeout.div_duration_f64(self.limits.check_interval()).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        let unread_limit = limit as u32;
        let mut entries = self.entries.lock();
        entries.checks = entries.checks.wrapping_add(1);
        let checks = entries.checks;
        let mut cut = Vec::new();
        for (&number, Entry { connection, history, .. }) in &mut entries.open {
            let seen = connection.snapshot();
            let mut verdict = history.check(seen, now, &self.limits);
            if seen.in_flight > 0 && connection.end_unread(checks, unread_limit) {
                verdict = Verdict::Cut(super::verdict::CloseReason::WriteTimeout);
            }
            match verdict {
                Verdict::Keep => {}
                Verdict::Close(reason) => {
                    history.quiet_since = now;
                    connection.order(command::CLOSE);
                    self.metrics.count_closed(reason.name());
                }
                Verdict::Cut(reason) => cut.push((number, reason)),
            }
        }
        for (number, reason) in cut {
            if entries.cut(number) {
                self.metrics.count_closed(reason.name());
            }
        }
    }
}

async fn check_regularly(table: Weak<TableState>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(table) = table.upgrade() else { return };
        table.check();
    }
}

/// Limits how often a warning is logged.
#[derive(Debug, Default)]
struct Throttle {
    reported: Option<Instant>,
    /// How often the event has happened since then.
    count: u64,
}

impl Throttle {
    /// Counts an event. Returns the number of events since the last report if it is time for another one.
    fn report(&mut self) -> Option<u64> {
        self.count += 1;
        if self.reported.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return None;
        }
        self.reported = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

/// Logs the errors of accepting connections.
#[derive(Debug, Default)]
pub(in crate::server) struct AcceptWarnings(Throttle);

impl AcceptWarnings {
    pub(in crate::server) fn failed(&mut self, error: &std::io::Error) {
        if let Some(count) = self.0.report() {
            warn!(
                count,
                "Cannot accept connections: {error}. Retrying; raise the limit on open files if this persists."
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::server::connection::WaitingMark;

    fn table(max_connections: usize) -> ConnectionTable {
        ConnectionTable::start(
            ConnectionLimits { max_connections, ..ConnectionLimits::default() },
            ConnectionMetrics::default(),
        )
    }

    fn is_cut(entry: &ConnectionEntry) -> bool {
        entry.connection.command.load(Ordering::Acquire) == command::CUT
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_idle_connection_is_evicted_for_a_new_one() {
        let group = table(3).group();
        let first = group.admit(None).unwrap();
        let busy = first.connection.begin(false);
        let second = group.admit(None).unwrap();
        let third = group.admit(None).unwrap();
        let fourth = group.admit(None).unwrap();
        assert!(!is_cut(&first) && is_cut(&second) && !is_cut(&third));
        drop(second);
        let _third = third.connection.begin(false);
        let _fourth = fourth.connection.begin(true);
        assert!(group.admit(None).is_none(), "all are busy");
        drop(busy);
        let _fifth = group.admit(None).unwrap();
        assert!(is_cut(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_answered_last_is_evicted_last() {
        let group = table(2).group();
        let (first, second) = (group.admit(None).unwrap(), group.admit(None).unwrap());
        drop((first.connection.begin(false), second.connection.begin(false)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(first.connection.begin(false));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let _third = group.admit(None).unwrap();
        assert!(is_cut(&second) && !is_cut(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_evicted_before_the_oldest_that_waits_and_none_that_works() {
        let group = table(4).group();
        let entries: Vec<_> = (0..4).map(|_| group.admit(None).unwrap()).collect();
        let [working, refused, _silent, idle] = &entries[..] else { unreachable!() };
        let request = working.connection.begin(false);
        let _refused = refused.connection.begin(false);
        refused.connection.without_right.fetch_add(1, Ordering::Relaxed);
        let _mark = WaitingMark::new(&refused.connection);
        drop(idle.connection.begin(false));
        let ended = || entries.iter().map(is_cut).collect::<Vec<_>>();
        let _fifth = group.admit(None).unwrap();
        assert_eq!(ended(), [false, false, false, true], "idle");
        let _sixth = group.admit(None).unwrap();
        assert_eq!(ended(), [false, true, false, true], "the oldest that waits");
        let _mark = WaitingMark::new(&working.connection);
        let _seventh = group.admit(None).unwrap();
        assert_eq!(ended(), [true, true, false, true], "its body is waited for");
        drop(request);
    }

    #[tokio::test]
    async fn connection_that_is_used_during_the_search_leaves_another_to_evict() {
        let group = table(2).group();
        for round in 0..500 {
            let (used, _other) = (group.admit(None).unwrap(), group.admit(None).unwrap());
            let (is_used, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
            let third = std::thread::scope(|scope| {
                // The oldest one, as fast as a thread can.
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        used.connection.without_right.fetch_add(1, Ordering::Relaxed);
                        is_used.store(true, Ordering::Relaxed);
                    }
                });
                while !is_used.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let third = group.admit(None);
                is_done.store(true, Ordering::Relaxed);
                third
            });
            assert!(third.is_some(), "round {round}: one of two connections only waited");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checks_end_with_the_table_and_close_idle_connections() {
        let table = table(2);
        let weak = Arc::downgrade(&table.0);
        let group = table.group();
        let entry = group.admit(None).unwrap();
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert!(!is_cut(&entry));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(is_cut(&entry));
        drop((entry, group, table));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn streams_of_a_connection_stay_below_half_of_the_slots() {
        let streams = |max_in_flight: usize| {
            let max_in_flight = std::num::NonZeroUsize::new(max_in_flight).unwrap();
            ConnectionLimits::new(&LimitSettings { max_in_flight, ..LimitSettings::default() }, 1).max_streams
        };
        assert_eq!([1, 2, 10, 1024, usize::MAX].map(streams), [1, 1, 5, 128, 128]);
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_are_throttled_with_a_count() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.report(), Some(1));
        assert!((0..9).all(|_| throttle.report().is_none()));
        tokio::time::sleep(WARNING_INTERVAL).await;
        assert_eq!(throttle.report(), Some(10));
    }
}
