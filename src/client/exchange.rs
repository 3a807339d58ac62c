//! Turns a batch of the input into the result of each of its rows.

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

/// The minimum time between two warnings about retries.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(2);

/// The state that all batches share.
pub(super) struct Exchange {
    pub(super) target: Arc<dyn InferenceTarget>,
    pub(super) backoff: Backoff,
    pub(super) stats: Arc<RunStats>,
    pub(super) gate: ConcurrencyGate,
    /// Cancelled when no more requests are to be sent.
    pub(super) stop: CancellationToken,
    pub(super) observer: Arc<dyn Observer>,
    /// The time of the last warning, in milliseconds since `gate` was created.
    pub(super) warned: AtomicU64,
}

/// Why a batch has no results.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// Other batches would fail as well.
    TargetFailed(RequestFailure),
    /// The run was stopped while the batch waited for a retry.
    Cancelled,
}

impl Exchange {
    /// Returns the result of each row, in order.
    pub(super) async fn infer_rows(&self, rows: InputRows) -> Result<Vec<RowResult>, ExchangeError> {
        let mut results: Vec<Option<RowResult>> = Vec::new();
        results.resize_with(rows.len(), || None);
        let (groups, invalid) = match rows {
            InputRows::Requests(lines) => request::prepare(lines),
            InputRows::Delimited(columns, records) => {
                RequestGroup::of_table(table::csv::build_request(&columns, &records))
            }
            InputRows::Objects(columns, lines) => {
                RequestGroup::of_table(table::objects::build_request(&columns, &lines))
            }
            InputRows::Table(table) => RequestGroup::of_table(*table),
        };
        for InvalidRow { position, id, message } in invalid {
            let failed = RowFailure { stage: FailureStage::Preprocessing, message, code: None };
            results[position] = Some(RowResult { id, outcome: Err(failed) });
        }
        for group in groups {
            self.infer_group(group, &mut results).await?;
        }
        Ok(results.into_iter().map(|row| row.expect("each row is invalid, or a member of one group")).collect())
    }

    /// Sends a group. If that fails, sends its halves, until the rows that cause the failure are alone.
    async fn infer_group(
        &self,
        mut group: RequestGroup,
        results: &mut [Option<RowResult>],
    ) -> Result<(), ExchangeError> {
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
                            results[member.position] = Some(RowResult { id, outcome: Ok(answered) });
                        }
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            // Do these rows cause the failure, or would all remaining rows fail as well?
            let failure = match failure.kind {
                FailureKind::Rejected => failure,
                FailureKind::Unreachable => return Err(ExchangeError::TargetFailed(failure)),
                kind => match self.target.check_available().await {
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
                self.trace(format_args!("splitting a request of {} rows in two: {failure}", members.len()));
                continue;
            }
            for member in &mut group.members[members] {
                let (message, code) = (failure.message.clone(), failure.status.clone());
                let failed = RowFailure { stage: FailureStage::Inference, message, code };
                results[member.position] =
                    Some(RowResult { id: Some(std::mem::take(&mut member.id)), outcome: Err(failed) });
            }
        }
        Ok(())
    }

    /// Sends a request until it is answered or a retry cannot help.
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
            "{failure}; retrying in {:.1} s (attempt {attempt} of {})",
            wait.as_secs_f64(),
            self.backoff.attempts
        )
        .to_string();
        let now = u64::try_from(self.gate.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let last = self.warned.load(Ordering::Relaxed);
        let pause = u64::try_from(BETWEEN_WARNINGS.as_millis()).unwrap_or(u64::MAX);
        // Many requests fail at the same time: one warning stands for all of them.
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

/// Splits the response to some members of a group into one for each of them.
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
        RequestFailure::new(FailureKind::Rejected, format!("cannot split the response into rows: {error}"))
    })?;
    let named = parts.into_iter().map(|part| InferenceResponse {
        model_name: response.model_name.clone(),
        model_version: response.model_version.clone(),
        ..part
    });
    Ok(named.collect())
}

/// Limits the batches in flight to the number that [`Concurrency`] finds useful.
pub(super) struct ConcurrencyGate {
    state: Mutex<GateState>,
    free: Notify,
    start: Instant,
}

struct GateState {
    concurrency: Concurrency,
    taken_slots: usize,
}

/// A slot among the batches in flight, free again when dropped.
pub(super) struct GatePermit {
    exchange: Arc<Exchange>,
}

impl ConcurrencyGate {
    pub(super) fn new(concurrency: Concurrency) -> Self {
        let state = Mutex::new(GateState { concurrency, taken_slots: 0 });
        Self { state, free: Notify::new(), start: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Records that rows have been answered.
    pub(super) fn answered(&self, rows: usize, stats: &RunStats) {
        let now = self.elapsed();
        let mut gate = self.state.lock();
        gate.concurrency.answered(now, rows);
        stats.concurrency.store(gate.concurrency.limit(), Ordering::Relaxed);
    }

    fn overloaded(&self, stats: &RunStats) {
        let now = self.elapsed();
        let mut gate = self.state.lock();
        gate.concurrency.overloaded(now);
        stats.concurrency.store(gate.concurrency.limit(), Ordering::Relaxed);
    }

    fn enter(&self) -> bool {
        let mut gate = self.state.lock();
        let limit = gate.concurrency.limit();
        if gate.taken_slots + 1 >= limit {
            gate.concurrency.full();
        }
        let free = gate.taken_slots < limit;
        gate.taken_slots += usize::from(free);
        free
    }
}

impl GatePermit {
    /// Waits for a free slot. Only one caller may wait.
    pub(super) async fn wait(exchange: &Arc<Exchange>) -> Self {
        while !exchange.gate.enter() {
            exchange.gate.free.notified().await;
        }
        Self { exchange: Arc::clone(exchange) }
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        self.exchange.gate.state.lock().taken_slots -= 1;
        self.exchange.gate.free.notify_one();
    }
}
