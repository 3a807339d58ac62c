//! From a piece of the input to the answer of each of its rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::{self, InvalidRow, RequestGroup};
use super::row::{FailureStage, RowAnswer, RowFailure, RowResult};
use super::source::InputRows;
use super::table;
use super::{Backoff, Concurrency, FailureKind, InferenceTarget, Observer, RequestFailure, RunStats, Verbosity};
use crate::types::merge;
use crate::types::{InferenceRequest, InferenceResponse};

/// The least time between two warnings that a request is sent again.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(2);

/// What all pieces share.
pub(super) struct Exchange {
    pub(super) target: Arc<dyn InferenceTarget>,
    pub(super) backoff: Backoff,
    pub(super) stats: Arc<RunStats>,
    pub(super) gate: ConcurrencyGate,
    /// Cancelled when nothing more is to be sent.
    pub(super) stop: CancellationToken,
    pub(super) observer: Arc<dyn Observer>,
    /// When a warning was given last, in milliseconds since `gate` opened.
    pub(super) warned: AtomicU64,
}

/// Why a piece has no answers.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// No other piece will have one either.
    TargetFailed(RequestFailure),
    /// The run was stopped while the piece waited to be sent again.
    Cancelled,
}

impl Exchange {
    /// Returns what became of each row, in order.
    pub(super) async fn infer_rows(&self, rows: InputRows) -> Result<Vec<RowResult>, ExchangeError> {
        let mut done: Vec<Option<RowResult>> = Vec::new();
        done.resize_with(rows.len(), || None);
        let (groups, bad) = match rows {
            InputRows::Requests(lines) => request::prepare(lines),
            InputRows::Delimited(columns, records) => RequestGroup::of_table(table::csv::prepare(&columns, &records)),
            InputRows::Objects(columns, lines) => RequestGroup::of_table(table::objects::prepare(&columns, &lines)),
            InputRows::Tensors { inputs, rows, frame } => RequestGroup::of_tensors(inputs, rows, frame),
        };
        for InvalidRow { place, id, message } in bad {
            let failed = RowFailure { stage: FailureStage::Preprocessing, message, code: None };
            done[place] = Some(RowResult { id, outcome: Err(failed) });
        }
        for group in groups {
            self.infer_group(group, &mut done).await?;
        }
        Ok(done.into_iter().map(|row| row.expect("each row is bad, or a member of one group")).collect())
    }

    /// Asks for a group, and where that fails for its halves, until the rows stand alone that are to blame.
    async fn infer_group(&self, mut group: RequestGroup, done: &mut [Option<RowResult>]) -> Result<(), ExchangeError> {
        let mut open = Vec::new();
        open.push(0..group.members.len());
        while let Some(members) = open.pop() {
            let request = group.request(members.clone());
            let failure = match self.send_with_retries(&request).await? {
                Ok(response) => match split_response(&group, members.clone(), response) {
                    Ok(responses) => {
                        for (member, response) in group.members[members].iter_mut().zip(responses) {
                            let answered = RowAnswer { response, inference_id: request.id.clone() };
                            let id = Some(std::mem::take(&mut member.id));
                            done[member.place] = Some(RowResult { id, outcome: Ok(answered) });
                        }
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            // Is it these rows, or would it be the same for all that are left?
            let failure = match failure.kind {
                FailureKind::Rejected => failure,
                FailureKind::Unreachable => return Err(ExchangeError::TargetFailed(failure)),
                kind => match self.target.reachable().await {
                    Err(_) => return Err(ExchangeError::TargetFailed(failure)),
                    Ok(()) if kind == FailureKind::AllRequests => {
                        RequestFailure { kind: FailureKind::Rejected, ..failure }
                    }
                    Ok(()) => failure,
                },
            };
            if members.len() > 1 && failure.kind.may_be_caused_by_one_row() {
                let middle = members.start + members.len() / 2;
                open.extend([middle..members.end, members.start..middle]);
                self.trace(format_args!("{} rows are sent in two halves: {failure}", members.len()));
                continue;
            }
            for member in &mut group.members[members] {
                let (message, code) = (failure.message.clone(), failure.status.clone());
                let failed = RowFailure { stage: FailureStage::Inference, message, code };
                done[member.place] = Some(RowResult { id: Some(std::mem::take(&mut member.id)), outcome: Err(failed) });
            }
        }
        Ok(())
    }

    /// Sends a request until it is answered, or there is no point in sending it again.
    async fn send_with_retries(
        &self,
        request: &InferenceRequest,
    ) -> Result<Result<InferenceResponse, RequestFailure>, ExchangeError> {
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
            self.report_retry(attempt, wait, &failure);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.cancelled() => return Err(ExchangeError::Cancelled),
            }
        }
        Err(ExchangeError::Cancelled)
    }

    fn report_retry(&self, attempt: u32, wait: Duration, failure: &RequestFailure) {
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
            self.trace(format_args!("{text}"));
        }
    }

    fn trace(&self, text: std::fmt::Arguments<'_>) {
        if self.observer.verbosity() >= Verbosity::Verbose {
            self.observer.trace(text);
        }
    }
}

/// Takes the answer to some members of a group apart: one for each of them.
fn split_response(
    group: &RequestGroup,
    members: Range<usize>,
    response: InferenceResponse,
) -> Result<Vec<InferenceResponse>, RequestFailure> {
    if members.len() == 1 {
        return Ok(vec![response]);
    }
    let rows: Vec<usize> = group.members[members].iter().map(|member| member.rows).collect();
    let parts = merge::split(&response, &rows).map_err(|error| {
        RequestFailure::new(FailureKind::Rejected, format!("the answer cannot be taken apart row by row: {error}"))
    })?;
    let named = parts.into_iter().map(|part| InferenceResponse {
        model_name: response.model_name.clone(),
        model_version: response.model_version.clone(),
        ..part
    });
    Ok(named.collect())
}

/// Lets as many pieces be under way at once as [`Concurrency`] finds useful.
pub(super) struct ConcurrencyGate {
    places: Mutex<GateState>,
    free: Notify,
    start: Instant,
}

struct GateState {
    concurrency: Concurrency,
    taken: usize,
}

/// A place among those under way. Free again when it is dropped.
pub(super) struct GatePermit {
    exchange: Arc<Exchange>,
}

impl ConcurrencyGate {
    pub(super) fn new(concurrency: Concurrency) -> Self {
        let places = Mutex::new(GateState { concurrency, taken: 0 });
        Self { places, free: Notify::new(), start: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes that rows have been answered.
    pub(super) fn answered(&self, rows: usize, stats: &RunStats) {
        let now = self.elapsed();
        let mut places = self.places.lock();
        places.concurrency.answered(now, rows);
        stats.concurrency.store(places.concurrency.limit(), Ordering::Relaxed);
    }

    fn overloaded(&self, stats: &RunStats) {
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

impl GatePermit {
    /// Waits for a place. Only one caller may wait.
    pub(super) async fn wait(exchange: &Arc<Exchange>) -> Self {
        while !exchange.gate.enter() {
            exchange.gate.free.notified().await;
        }
        Self { exchange: Arc::clone(exchange) }
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        self.exchange.gate.places.lock().taken -= 1;
        self.exchange.gate.free.notify_one();
    }
}
