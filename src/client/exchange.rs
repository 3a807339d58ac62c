//! Turns a batch of the input into the result of each of its rows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lines::InputLine;
use super::openai_batch::{self, BatchRow};
use super::request::{self, RequestGroup};
use super::row::{FailureStage, InvalidRow, RowAnswer, RowFailure, RowResult};
use super::source::InputRows;
use super::stats::RequestInFlight;
use super::table;
use super::{Concurrency, RunStats};
use crate::remote::{
    FailureKind, InferenceTarget, Observer, OpenAiClient, RequestFailure, RetryPolicy, Verbosity, server_text,
};
use crate::types::merge;
use crate::types::{InferenceResponse, RequestedOutput};

/// The minimum time between two warnings about retries.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(2);
/// How many requests of a batch may time out before its remaining rows fail without being sent.
const MAX_TIMEOUTS: u32 = 16;

/// What answers the rows of a run.
#[derive(Clone)]
pub enum RowTarget {
    Inference(Arc<dyn InferenceTarget>),
    /// The lines are requests of OpenAI's API. `model` overrides the model that they name.
    OpenAi {
        client: Arc<OpenAiClient>,
        model: Option<String>,
    },
}

impl RowTarget {
    async fn check_available(&self) -> Result<(), RequestFailure> {
        match self {
            Self::Inference(target) => target.check_available().await,
            Self::OpenAi { client, .. } => client.check_available().await,
        }
    }
}

/// The state that all batches share.
pub(super) struct Exchange {
    pub(super) target: RowTarget,
    pub(super) backoff: RetryPolicy,
    pub(super) stats: Arc<RunStats>,
    pub(super) gate: ConcurrencyGate,
    /// What is requested for rows and tables.
    pub(super) outputs: Vec<RequestedOutput>,
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
        let target = match &self.target {
            RowTarget::Inference(target) => target,
            RowTarget::OpenAi { client, model } => return self.send_lines(client, model.as_deref(), rows).await,
        };
        let (groups, invalid) = match rows {
            InputRows::Requests(lines) | InputRows::OpenAi(lines) => request::prepare(lines),
            InputRows::Records(records, _) => request::prepare_records(records),
            InputRows::Delimited(columns, records) => {
                RequestGroup::of_table(table::csv::build_request(&columns, &records), &self.outputs)
            }
            InputRows::Objects(columns, lines) => {
                RequestGroup::of_table(table::objects::build_request(&columns, &lines), &self.outputs)
            }
            InputRows::Table(table) => RequestGroup::of_table(*table, &self.outputs),
        };
        for InvalidRow { position, id, message } in invalid {
            let failed = RowFailure::new(FailureStage::Preprocessing, message);
            results[position] = Some(RowResult { id, outcome: Err(failed) });
        }
        let mut timeouts = BatchTimeouts::default();
        for group in groups {
            self.infer_group(&**target, group, &mut results, &mut timeouts).await?;
        }
        Ok(results.into_iter().map(|row| row.expect("each row is invalid, or a member of one group")).collect())
    }

    /// Sends a group. If that fails, sends its halves, until the rows that cause the failure are alone.
    async fn infer_group(
        &self,
        target: &dyn InferenceTarget,
        mut group: RequestGroup,
        results: &mut [Option<RowResult>],
        timeouts: &mut BatchTimeouts,
    ) -> Result<(), ExchangeError> {
        let mut open = Vec::new();
        open.push(0..group.members.len());
        while let Some(members) = open.pop() {
            if let Some(failure) = timeouts.exhausted() {
                fail_rows(&mut group, members, results, failure);
                continue;
            }
            let request = group.request(members.clone());
            let failure = match self.send_with_retries(|| target.infer(&request), timeouts).await? {
                Ok(response) => match split_response(&group, members.clone(), response) {
                    Ok(responses) => {
                        for (member, response) in group.members[members].iter_mut().zip(responses) {
                            let answered = RowAnswer::Inference { response, inference_id: request.id.clone() };
                            let id = Some(std::mem::take(&mut member.id));
                            results[member.position] = Some(RowResult { id, outcome: Ok(answered) });
                        }
                        continue;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            let failure = self.failure_of_rows(failure).await?;
            if members.len() > 1 && failure.kind.may_be_caused_by_one_row() {
                let middle = members.start + members.len() / 2;
                open.extend([middle..members.end, members.start..middle]);
                self.trace(format_args!("splitting a request of {} rows in two: {failure}", members.len()));
                continue;
            }
            fail_rows(&mut group, members, results, &failure);
        }
        Ok(())
    }

    /// Returns a failure that these rows cause, or ends the run if all remaining rows would fail as well.
    async fn failure_of_rows(&self, failure: RequestFailure) -> Result<RequestFailure, ExchangeError> {
        match failure.kind {
            FailureKind::Rejected | FailureKind::Different => Ok(failure),
            FailureKind::Unreachable | FailureKind::Fatal => Err(ExchangeError::TargetFailed(failure)),
            kind => match self.target.check_available().await {
                Err(_) => Err(ExchangeError::TargetFailed(failure)),
                Ok(()) if kind == FailureKind::AllRequests => {
                    Ok(RequestFailure { kind: FailureKind::Rejected, ..failure })
                }
                Ok(()) => Ok(failure),
            },
        }
    }

    /// Sends the lines of one of OpenAI's batch files, each of which is a request.
    async fn send_lines(
        &self,
        client: &OpenAiClient,
        model: Option<&str>,
        rows: InputRows,
    ) -> Result<Vec<RowResult>, ExchangeError> {
        let InputRows::OpenAi(lines) = rows else { return Ok(Vec::new()) };
        let (mut results, mut timeouts) = (Vec::with_capacity(lines.len()), BatchTimeouts::default());
        for line in &lines {
            results.push(self.send_line(client, model, line, &mut timeouts).await?);
        }
        Ok(results)
    }

    async fn send_line(
        &self,
        client: &OpenAiClient,
        model: Option<&str>,
        line: &InputLine,
        timeouts: &mut BatchTimeouts,
    ) -> Result<RowResult, ExchangeError> {
        let BatchRow { custom_id, request } = match openai_batch::read_row(line, model) {
            Ok(row) => row,
            Err(message) => {
                let failed = RowFailure::new(FailureStage::Preprocessing, message);
                return Ok(RowResult { id: openai_batch::custom_id(line), outcome: Err(failed) });
            }
        };
        let outcome = match self.send_with_retries(|| client.send(&request).boxed(), timeouts).await? {
            Ok(answer) => Ok(RowAnswer::OpenAi(answer)),
            Err(failure) => Err(RowFailure::from(self.failure_of_rows(failure).await?)),
        };
        Ok(RowResult { id: Some(custom_id), outcome })
    }

    /// Sends a request until it is answered or a retry cannot help. Once a request of the batch has timed out in all its attempts,
    /// the others are sent only once if they time out, too: a model that hangs would keep the batch for hours.
    async fn send_with_retries<'a, A>(
        &self,
        send: impl Fn() -> BoxFuture<'a, Result<A, RequestFailure>>,
        timeouts: &mut BatchTimeouts,
    ) -> Result<Result<A, RequestFailure>, ExchangeError> {
        for attempt in 1.. {
            let start = Instant::now();
            let answered = {
                let _counted = RequestInFlight::count(&self.stats);
                send().await
            };
            let failure = match answered {
                Ok(response) => {
                    self.stats.latencies.add(start.elapsed());
                    return Ok(Ok(response));
                }
                Err(failure) => failure,
            };
            if failure.kind == FailureKind::Overloaded {
                self.gate.overloaded(&self.stats);
            }
            let timed_out = failure.kind == FailureKind::TimedOut;
            let wait = self.backoff.wait(attempt, &failure).filter(|_| !timed_out || timeouts.may_retry());
            let Some(wait) = wait else {
                if timed_out {
                    timeouts.add(&failure);
                }
                return Ok(Err(failure));
            };
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

/// The requests of a batch that have timed out.
#[derive(Debug, Default)]
struct BatchTimeouts {
    count: u32,
    last: Option<RequestFailure>,
}

impl BatchTimeouts {
    fn add(&mut self, failure: &RequestFailure) {
        self.count += 1;
        self.last = Some(failure.clone());
    }

    /// Reports whether a request that has timed out may be sent again.
    const fn may_retry(&self) -> bool {
        self.count == 0
    }

    /// Returns the last failure if there have been too many.
    const fn exhausted(&self) -> Option<&RequestFailure> {
        if self.count >= MAX_TIMEOUTS { self.last.as_ref() } else { None }
    }
}

/// Records a failure as the result of some members of a group.
fn fail_rows(
    group: &mut RequestGroup,
    members: Range<usize>,
    results: &mut [Option<RowResult>],
    failure: &RequestFailure,
) {
    for member in &mut group.members[members] {
        let failed = RowFailure::from(failure.clone());
        results[member.position] = Some(RowResult { id: Some(std::mem::take(&mut member.id)), outcome: Err(failed) });
    }
}

impl From<RequestFailure> for RowFailure {
    fn from(failure: RequestFailure) -> Self {
        let stage = match failure.kind {
            FailureKind::Different => FailureStage::Comparison,
            _ => FailureStage::Inference,
        };
        let RequestFailure { message, status, answer, .. } = failure;
        Self { stage, message, code: status.map(|status| status.to_string()), answer }
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
        let reason = server_text(&error.to_string());
        RequestFailure::new(FailureKind::Rejected, format!("cannot split the response into rows: {reason}"))
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

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroUsize};

    use super::*;
    use crate::types::InferenceRequest;

    /// A model that hangs on some numbers, and returns its input otherwise.
    struct HangingModel {
        hangs: fn(i64) -> bool,
        requests: AtomicU64,
    }

    impl InferenceTarget for HangingModel {
        fn infer<'a>(
            &'a self,
            request: &'a InferenceRequest,
        ) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let numbers = request.inputs[0].elements::<i64>().unwrap();
            let timed_out = || Err(RequestFailure::new(FailureKind::TimedOut, "no response"));
            let answer = || Ok(InferenceResponse { outputs: request.inputs.clone(), ..InferenceResponse::default() });
            let answer = if numbers.iter().copied().any(self.hangs) { timed_out() } else { answer() };
            async move { answer }.boxed()
        }

        fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
            async { Ok(()) }.boxed()
        }
    }

    struct Silent;

    impl Observer for Silent {
        fn verbosity(&self) -> Verbosity {
            Verbosity::Normal
        }

        fn warn(&self, _: std::fmt::Arguments<'_>) {}

        fn trace(&self, _: std::fmt::Arguments<'_>) {}
    }

    /// Sends a batch of numbers in one request, with three attempts. Returns which rows failed, and how many requests were sent.
    async fn failed_rows(count: usize, hangs: fn(i64) -> bool) -> (Vec<usize>, u64) {
        let model = Arc::new(HangingModel { hangs, requests: AtomicU64::new(0) });
        let one = NonZeroUsize::MIN;
        let exchange = Exchange {
            target: RowTarget::Inference(Arc::clone(&model) as Arc<dyn InferenceTarget>),
            backoff: RetryPolicy { attempts: NonZeroU32::new(3).unwrap() },
            stats: Arc::default(),
            gate: ConcurrencyGate::new(Concurrency::new(one, one)),
            outputs: Vec::new(),
            stop: CancellationToken::new(),
            observer: Arc::new(Silent),
            warned: AtomicU64::new(0),
        };
        let line = |number| {
            let input = format!(r#"{{"name":"x","shape":[1,1],"datatype":"INT64","data":[{number}]}}"#);
            InputLine::Text(format!(r#"{{"inputs":[{input}]}}"#).into_bytes())
        };
        let rows = exchange.infer_rows(InputRows::Requests((0..count).map(line).collect())).await.unwrap();
        let failed = rows.iter().enumerate().filter(|(_, row)| row.outcome.is_err()).map(|(index, _)| index);
        (failed.collect(), model.requests.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn exchange_timeout_of_one_row_is_found_with_one_attempt_per_half() {
        let (failed, requests) = failed_rows(8, |number| number == 5).await;
        // Three attempts of all rows; then 0..4, 4..8, 4..6, 4, 5 and 6..8.
        assert_eq!((failed, requests), (vec![5], 9));
    }

    #[tokio::test(start_paused = true)]
    async fn exchange_model_that_hangs_fails_the_batch_after_16_timeouts() {
        let (failed, requests) = failed_rows(100, |_| true).await;
        // Three attempts of all rows, which count once, and 15 parts of them.
        assert_eq!((failed.len(), requests), (100, 18));
    }
}
