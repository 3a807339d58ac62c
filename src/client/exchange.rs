//! From a piece of the input to the answer of each of its rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::{self, Bad, Group};
use super::row::{Answered, Failed, Row, Stage};
use super::source::Rows;
use super::table;
use super::{Backoff, Concurrency, Failure, FailureKind, Observer, Stats, Target, Verbosity};
use crate::types::merge;
use crate::types::{InferenceRequest, InferenceResponse};

/// The least time between two warnings that a request is sent again.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(2);

/// What all pieces share.
pub(super) struct Exchange {
    pub(super) target: Arc<dyn Target>,
    pub(super) backoff: Backoff,
    pub(super) stats: Arc<Stats>,
    pub(super) gate: Gate,
    /// Cancelled when nothing more is to be sent.
    pub(super) stop: CancellationToken,
    pub(super) observer: Arc<dyn Observer>,
    /// When a warning was given last, in milliseconds since `gate` opened.
    pub(super) warned: AtomicU64,
}

/// Why a piece has no answers.
#[derive(Debug)]
pub(super) enum Halt {
    /// No other piece will have one either.
    Hopeless(Failure),
    /// The run was stopped while the piece waited to be sent again.
    Stopped,
}

impl Exchange {
    /// Returns what became of each row, in order.
    pub(super) async fn rows(&self, rows: Rows) -> Result<Vec<Row>, Halt> {
        let mut done: Vec<Option<Row>> = Vec::new();
        done.resize_with(rows.len(), || None);
        let (groups, bad) = match rows {
            Rows::Requests(lines) => request::prepare(lines),
            Rows::Delimited(columns, records) => Group::of_table(table::csv::prepare(&columns, &records)),
            Rows::Objects(columns, lines) => Group::of_table(table::objects::prepare(&columns, &lines)),
            Rows::Tensors { inputs, rows, frame } => Group::of_tensors(inputs, rows, frame),
        };
        for Bad { place, id, message } in bad {
            let failed = Failed { stage: Stage::Preprocessing, message, code: None };
            done[place] = Some(Row { id, outcome: Err(failed) });
        }
        for group in groups {
            self.group(group, &mut done).await?;
        }
        Ok(done.into_iter().map(|row| row.expect("each row is bad, or a member of one group")).collect())
    }

    /// Asks for a group, and where that fails for its halves, until the rows stand alone that are to blame.
    async fn group(&self, mut group: Group, done: &mut [Option<Row>]) -> Result<(), Halt> {
        let mut open = Vec::new();
        open.push(0..group.members.len());
        while let Some(members) = open.pop() {
            let request = group.request(members.clone());
            let failure = match self.attempts(&request).await? {
                Ok(response) => match apart(&group, members.clone(), response) {
                    Ok(responses) => {
                        for (member, response) in group.members[members].iter_mut().zip(responses) {
                            let answered = Answered { response, inference_id: request.id.clone() };
                            let id = Some(std::mem::take(&mut member.id));
                            done[member.place] = Some(Row { id, outcome: Ok(answered) });
                        }
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            // Is it these rows, or would it be the same for all that are left?
            let failure = match failure.kind {
                FailureKind::Refused => failure,
                FailureKind::Unreachable => return Err(Halt::Hopeless(failure)),
                kind => match self.target.reachable().await {
                    Err(_) => return Err(Halt::Hopeless(failure)),
                    Ok(()) if kind == FailureKind::Everyone => Failure { kind: FailureKind::Refused, ..failure },
                    Ok(()) => failure,
                },
            };
            if members.len() > 1 && failure.kind.may_be_one_row() {
                let middle = members.start + members.len() / 2;
                open.extend([middle..members.end, members.start..middle]);
                self.note(format_args!("{} rows are sent in two halves: {failure}", members.len()));
                continue;
            }
            for member in &mut group.members[members] {
                let (message, code) = (failure.message.clone(), failure.status.clone());
                let failed = Failed { stage: Stage::Inference, message, code };
                done[member.place] = Some(Row { id: Some(std::mem::take(&mut member.id)), outcome: Err(failed) });
            }
        }
        Ok(())
    }

    /// Sends a request until it is answered, or there is no point in sending it again.
    async fn attempts(&self, request: &InferenceRequest) -> Result<Result<InferenceResponse, Failure>, Halt> {
        for attempt in 1.. {
            let start = Instant::now();
            self.stats.requests.fetch_add(1, Ordering::Relaxed);
            let failure = match self.target.infer(request).await {
                Ok(response) => {
                    self.stats.latencies.add(start.elapsed());
                    return Ok(Ok(response));
                }
                Err(failure) => failure,
            };
            if failure.kind == FailureKind::Overloaded {
                self.gate.overloaded(&self.stats);
            }
            let Some(wait) = self.backoff.wait(attempt, &failure) else { return Ok(Err(failure)) };
            self.stats.retries.fetch_add(1, Ordering::Relaxed);
            self.warn_of_retry(attempt, wait, &failure);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.cancelled() => return Err(Halt::Stopped),
            }
        }
        Err(Halt::Stopped)
    }

    fn warn_of_retry(&self, attempt: u32, wait: Duration, failure: &Failure) {
        let text = format_args!(
            "{failure}; trying again in {:.1} s (attempt {attempt} of {})",
            wait.as_secs_f64(),
            self.backoff.attempts
        )
        .to_string();
        let now = u64::try_from(self.gate.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let last = self.warned.load(Ordering::Relaxed);
        let pause = u64::try_from(BETWEEN_WARNINGS.as_millis()).unwrap_or(u64::MAX);
        // Many requests fail at the same time, and one of them says it for all.
        if (last == 0 || now >= last.saturating_add(pause))
            && self.warned.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.observer.warn(format_args!("{text}"));
        } else {
            self.note(format_args!("{text}"));
        }
    }

    fn note(&self, text: std::fmt::Arguments<'_>) {
        if self.observer.verbosity() >= Verbosity::Verbose {
            self.observer.trace(text);
        }
    }
}

/// Takes the answer to some members of a group apart: one for each of them.
fn apart(group: &Group, members: Range<usize>, response: InferenceResponse) -> Result<Vec<InferenceResponse>, Failure> {
    if members.len() == 1 {
        return Ok(vec![response]);
    }
    let rows: Vec<usize> = group.members[members].iter().map(|member| member.rows).collect();
    let parts = merge::split(&response, &rows).map_err(|error| {
        Failure::new(FailureKind::Refused, format!("the answer cannot be taken apart row by row: {error}"))
    })?;
    let named = parts.into_iter().map(|part| InferenceResponse {
        model_name: response.model_name.clone(),
        model_version: response.model_version.clone(),
        ..part
    });
    Ok(named.collect())
}

/// Lets as many pieces be under way at once as [`Concurrency`] finds useful.
pub(super) struct Gate {
    places: Mutex<Places>,
    free: Notify,
    start: Instant,
}

struct Places {
    concurrency: Concurrency,
    taken: usize,
}

/// A place among those under way. Free again when it is dropped.
pub(super) struct Permit {
    exchange: Arc<Exchange>,
}

impl Gate {
    pub(super) fn new(concurrency: Concurrency) -> Self {
        let places = Mutex::new(Places { concurrency, taken: 0 });
        Self { places, free: Notify::new(), start: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes that rows have been answered.
    pub(super) fn answered(&self, rows: usize, stats: &Stats) {
        let now = self.elapsed();
        let mut places = self.places.lock();
        places.concurrency.answered(now, rows);
        stats.concurrency.store(places.concurrency.limit(), Ordering::Relaxed);
    }

    fn overloaded(&self, stats: &Stats) {
        let now = self.elapsed();
        let mut places = self.places.lock();
        places.concurrency.overloaded(now);
        stats.concurrency.store(places.concurrency.limit(), Ordering::Relaxed);
    }

    fn enter(&self) -> bool {
        let mut places = self.places.lock();
        let limit = places.concurrency.limit();
        if places.taken + 1 >= limit {
            places.concurrency.full();
        }
        let free = places.taken < limit;
        places.taken += usize::from(free);
        free
    }
}

impl Permit {
    /// Waits for a place. Only one caller may wait.
    pub(super) async fn wait(exchange: &Arc<Exchange>) -> Self {
        while !exchange.gate.enter() {
            exchange.gate.free.notified().await;
        }
        Self { exchange: Arc::clone(exchange) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.exchange.gate.places.lock().taken -= 1;
        self.exchange.gate.free.notify_one();
    }
}
