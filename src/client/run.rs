//! A run from the first row to the last.
//!
//! A thread reads batches, and a task sends each one when there is a slot and memory for it. The run itself waits for the answers in
//! the order of the input and writes them. A row is done when its line has been written, so an interrupted run loses nothing and
//! repeats only the requests that were in flight. The offsets of a topic's records are committed when their answers are on disk, or
//! have been delivered to another topic.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle, block_in_place};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::exchange::{ConcurrencyGate, Exchange, ExchangeError, GatePermit, RowTarget};
use super::fingerprint::RowFingerprint;
use super::output::{OutputError, RunOutput};
use super::pace::{RateLimiter, RequestSpacing};
use super::row::{FailureStage, LineRules, RowFailure, WrittenLines, write_lines};
use super::source::{InputBatch, InputError, InputSource};
use super::topic::{Delivery, OffsetCommits, OutputRecord, PartitionOffsets, RecordOrigins, TopicError};
use super::{Concurrency, MEMORY, RunStats};
use crate::remote::{Observer, RequestFailure, RetryPolicy};
use crate::types::RequestedOutput;

/// How many batches may have been sent before the first of them is written.
const MAX_BATCHES_AHEAD: usize = 1024;
/// Answers are written when there are this many bytes of them,
const WRITE_BLOCK: usize = 256 << 10;
/// or when they have waited this long.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
/// How often written answers are synced to disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// How often offsets are committed if the output need not be synced before.
const COMMIT_INTERVAL: Duration = FLUSH_INTERVAL;
/// How many failed rows are reported. All of them have a line in the output.
const MAX_REPORTED_FAILURES: u64 = 10;
/// Smaller batches count as this many bytes when the ratio of answer size to request size is learned.
const MIN_LEARNED_BYTES: u64 = 4096;
/// How fast the learned ratio falls: with each batch, by this part of the difference.
const GROWTH_DECAY: u64 = 8;
/// The unit that memory is counted in, in bytes.
const MEMORY_UNIT: usize = 1024;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Rows per request.
    pub batch_size: NonZeroUsize,
    pub backoff: RetryPolicy,
    pub spacing: RequestSpacing,
    /// Above zero, or `None` for no limit.
    pub rows_per_second: Option<f64>,
    pub concurrency: Concurrency,
    /// What is requested for rows and tables; empty for the default of the model.
    pub outputs: Vec<RequestedOutput>,
    /// Writes no lines for answered rows.
    pub only_failures: bool,
}

/// How a run ended.
#[derive(Debug)]
pub enum RunOutcome {
    /// Every row has its line.
    Complete,
    /// It was stopped.
    Stopped,
    /// It could not continue.
    Failed(RunError),
}

/// Why a run could not continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Target(RequestFailure),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Commit(#[from] TopicError),
    #[error("a request task panicked; this is a bug in mlserver")]
    Panicked(#[source] JoinError),
    #[error("the input reader panicked; this is a bug in mlserver")]
    Reader,
    #[error("cannot start a thread to read the input")]
    Thread(#[source] std::io::Error),
}

/// A run that is about to start.
pub struct Run {
    pub target: RowTarget,
    pub options: RunOptions,
    pub stats: Arc<RunStats>,
    pub observer: Arc<dyn Observer>,
    /// Cancelled to stop after the requests in flight.
    pub stop: CancellationToken,
}

/// A batch that was read, with the memory reserved for it. `None` at the end of the input.
type ReadBatch = Result<Option<(InputBatch, OwnedSemaphorePermit)>, InputError>;

/// A batch that was answered.
struct AnsweredBatch {
    written: WrittenLines,
    rows: u64,
    bytes: u64,
    fingerprints: Vec<RowFingerprint>,
    origins: Option<RecordOrigins>,
    memory: OwnedSemaphorePermit,
}

/// The memory for batches in flight.
#[derive(Clone)]
struct MemoryBudget {
    free: Arc<Semaphore>,
    /// The recent ratio of answer bytes to request bytes, so that memory for answers is reserved together with that for
    /// requests.
    growth: Arc<AtomicU64>,
}

impl MemoryBudget {
    const ALL: usize = MEMORY / MEMORY_UNIT;

    fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(Self::ALL)), growth: Arc::new(AtomicU64::new(1)) }
    }

    /// Waits for free memory. Returns `None` if the run is over. A batch that needs more than all of the memory gets all of it.
    fn take(&self, runtime: &Handle, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let bytes = bytes.saturating_mul(1 + self.growth.load(Ordering::Relaxed));
        let units = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(MEMORY_UNIT).clamp(1, Self::ALL);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        runtime.block_on(Arc::clone(&self.free).acquire_many_owned(units)).ok()
    }

    fn learn(&self, bytes: u64, answer: usize) {
        // An empty line has an answer, too, but its ratio means nothing for the others.
        let ratio = (answer as u64).div_ceil(bytes.max(MIN_LEARNED_BYTES));
        let learned = |growth| Some(learned_growth(growth, ratio));
        // The closure never returns `None`, so the update never fails.
        let _ = self.growth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, learned);
    }
}

/// Returns the estimate of the ratio of answer bytes to request bytes after another batch. It rises at once, so that memory suffices,
/// and falls slowly, so that a single large answer does not slow down the rest of the run.
const fn learned_growth(growth: u64, ratio: u64) -> u64 {
    if ratio >= growth { ratio } else { growth - (growth - ratio).div_ceil(GROWTH_DECAY) }
}

impl Run {
    /// Runs to the end. Answers that have been written are kept however the run ends.
    pub async fn run(self, source: InputSource, mut output: RunOutput) -> RunOutcome {
        let stopped_early = CancellationToken::new();
        let ending = match self.run_pipeline(source, &mut output, stopped_early.clone()).await {
            Ok(()) if stopped_early.is_cancelled() => RunOutcome::Stopped,
            Ok(()) => match block_in_place(|| output.finish()) {
                Ok(()) => return RunOutcome::Complete,
                Err(error) => return RunOutcome::Failed(error.into()),
            },
            Err(error) => RunOutcome::Failed(error),
        };
        // The run has failed already, or the next run finds what was not synced.
        let _ = block_in_place(|| output.sync());
        ending
    }

    async fn run_pipeline(
        self,
        source: InputSource,
        output: &mut RunOutput,
        stopped_early: CancellationToken,
    ) -> Result<(), RunError> {
        let Self { target, options, stats, observer, stop } = self;
        let memory = MemoryBudget::new();
        let commits = source.commits();
        let rules = LineRules {
            record_limit: output.record_limit(),
            only_failures: options.only_failures,
            is_openai: matches!(target, RowTarget::OpenAi { .. }),
        };
        // Cancelled when the run is over, even with requests in flight.
        let over = CancellationToken::new();
        let batches = spawn_reader(source, options.batch_size, memory.clone())?;
        let gate = ConcurrencyGate::new(options.concurrency.clone());
        gate.answered(0, &stats);
        let (warned, backoff) = (AtomicU64::new(0), options.backoff);
        let outputs = options.outputs.clone();
        let exchange = Exchange { target, backoff, stats, gate, outputs, stop, observer, warned };
        let exchange = Arc::new(exchange);
        let (sender, answers) = mpsc::channel(MAX_BATCHES_AHEAD);
        let (sender_stopped, sender_memory) = (stopped_early.clone(), memory.clone());
        let sending = BatchSender {
            exchange: Arc::clone(&exchange),
            memory: sender_memory,
            options,
            rules,
            stopped_early: sender_stopped,
        };
        let sending = tokio::spawn(sending.send_all(batches, sender, over.clone()));
        let mut writer = AnswerWriter {
            exchange,
            pending: PendingOutput::default(),
            in_delivery: VecDeque::new(),
            commits: commits.clone(),
            answered: PartitionOffsets::new(),
            stopped_early,
        };
        let written = writer.write_all(answers, output).await;
        let settled = writer.settle(output).await;
        over.cancel();
        memory.free.close();
        if let Some(commits) = commits {
            commits.close();
        }
        let written = written.and(settled);
        match (written, sending.await) {
            (Err(error), _) => Err(error),
            (Ok(()), Ok(sent)) => sent,
            (Ok(()), Err(error)) => Err(RunError::Panicked(error)),
        }
    }
}

/// Reads on a thread of its own: a pipe may block forever, which must not block anything but this run.
fn spawn_reader(
    mut source: InputSource,
    rows: NonZeroUsize,
    memory: MemoryBudget,
) -> Result<mpsc::Receiver<ReadBatch>, RunError> {
    let (sender, receiver) = mpsc::channel(2);
    let runtime = Handle::current();
    let read = move || {
        loop {
            let batch = match source.next(rows.get()) {
                Ok(Some(batch)) => match memory.take(&runtime, batch.memory) {
                    Some(permit) => Ok(Some((batch, permit))),
                    None => return,
                },
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            let is_last = !matches!(batch, Ok(Some(_)));
            if sender.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read).map_err(RunError::Thread)?;
    Ok(receiver)
}

/// Sends batches when slots, memory and the rate limit allow it.
struct BatchSender {
    exchange: Arc<Exchange>,
    memory: MemoryBudget,
    options: RunOptions,
    rules: LineRules,
    /// Cancelled when there may be batches that were not sent.
    stopped_early: CancellationToken,
}

type BatchResult = Result<AnsweredBatch, ExchangeError>;

impl BatchSender {
    async fn send_all(
        self,
        mut batches: mpsc::Receiver<ReadBatch>,
        answers: mpsc::Sender<JoinHandle<BatchResult>>,
        over: CancellationToken,
    ) -> Result<(), RunError> {
        let mut pace = RateLimiter::new(self.options.rows_per_second);
        loop {
            let next = async {
                // The channel closes without a last message only if the thread has panicked.
                let Some((batch, memory)) = batches.recv().await.ok_or(RunError::Reader)?? else { return Ok(None) };
                pace.wait(batch.rows.len()).await;
                let permit = GatePermit::wait(&self.exchange).await;
                Ok::<_, RunError>(Some((batch, memory, permit)))
            };
            let next = tokio::select! {
                biased;
                () = over.cancelled() => return Ok(()),
                () = self.exchange.stop.cancelled() => {
                    self.stopped_early.cancel();
                    return Ok(());
                }
                next = next => next?,
            };
            let Some((batch, memory, permit)) = next else { return Ok(()) };
            let answer = tokio::spawn(self.send_one(batch, memory, permit));
            if answers.send(answer).await.is_err() {
                return Ok(());
            }
        }
    }

    fn send_one(
        &self,
        batch: InputBatch,
        memory: OwnedSemaphorePermit,
        permit: GatePermit,
    ) -> impl Future<Output = BatchResult> + use<> {
        let (exchange, budget, spacing) = (Arc::clone(&self.exchange), self.memory.clone(), self.options.spacing);
        let rules = self.rules;
        async move {
            let start = Instant::now();
            let InputBatch { first, mut rows, bytes, memory: size, fingerprints } = batch;
            let (count, origins) = (rows.len(), rows.take_origins());
            let rows = exchange.infer_rows(rows).await?;
            exchange.gate.answered(count, &exchange.stats);
            let rest = spacing.rest(start.elapsed());
            if rest.is_zero() {
                drop(permit);
            } else {
                tokio::spawn(async move {
                    tokio::time::sleep(rest).await;
                    drop(permit);
                });
            }
            let written = write_lines(first, rows, origins.as_ref(), rules);
            budget.learn(size, written.lines.len());
            Ok(AnsweredBatch { written, rows: count as u64, bytes, fingerprints, origins, memory })
        }
    }
}

/// Writes answers in order.
struct AnswerWriter {
    exchange: Arc<Exchange>,
    pending: PendingOutput,
    /// Answers that have been handed over, in order.
    in_delivery: VecDeque<(Delivery, PendingCounts)>,
    commits: Option<Arc<dyn OffsetCommits>>,
    /// The offsets of answered records that have not been committed.
    answered: PartitionOffsets,
    /// Cancelled when there are answers that were not written.
    stopped_early: CancellationToken,
}

impl AnswerWriter {
    async fn write_all(
        &mut self,
        mut answers: mpsc::Receiver<JoinHandle<BatchResult>>,
        output: &mut RunOutput,
    ) -> Result<(), RunError> {
        let mut flush = tokio::time::interval(FLUSH_INTERVAL);
        let is_committed_alone = self.commits.is_some() && !output.is_synced();
        let mut sync = tokio::time::interval(if is_committed_alone { COMMIT_INTERVAL } else { SYNC_INTERVAL });
        let delivered = output.delivered();
        let mut current: Option<JoinHandle<BatchResult>> = None;
        loop {
            let next = async {
                let Some(handle) = &mut current else { return WriterEvent::Handle(answers.recv().await) };
                WriterEvent::Answered(handle.await)
            };
            let done = tokio::select! {
                next = next => match next {
                    WriterEvent::Handle(None) => break,
                    WriterEvent::Handle(handle) => {
                        current = handle;
                        continue;
                    }
                    WriterEvent::Answered(answer) => {
                        current = None;
                        answer
                    }
                },
                () = delivered.notified() => {
                    self.collect(output)?;
                    continue;
                }
                _ = flush.tick() => {
                    self.flush(output)?;
                    continue;
                }
                _ = sync.tick() => {
                    block_in_place(|| self.sync(output, false))?;
                    continue;
                }
            };
            let done = match done.map_err(RunError::Panicked)? {
                Ok(done) => done,
                Err(ExchangeError::Cancelled) => {
                    self.stopped_early.cancel();
                    break;
                }
                Err(ExchangeError::TargetFailed(failure)) => {
                    self.flush(output)?;
                    return Err(RunError::Target(failure));
                }
            };
            self.pending.add(done);
            if self.pending.lines.len() >= WRITE_BLOCK {
                self.flush(output)?;
            }
        }
        Ok(self.flush(output)?)
    }

    /// Writes the pending answers.
    fn flush(&mut self, output: &mut RunOutput) -> Result<(), OutputError> {
        // Answered rows may have no lines.
        if self.pending.counts.rows > 0 {
            let PendingOutput { lines, records, fingerprints, counts } = std::mem::take(&mut self.pending);
            let delivery = block_in_place(|| output.write(&lines, &records, &fingerprints))?;
            self.in_delivery.push_back((delivery, counts));
        }
        self.collect(output)
    }

    /// Counts the answers that have been delivered.
    fn collect(&mut self, output: &RunOutput) -> Result<(), OutputError> {
        while let Some((_, counts)) = self.in_delivery.pop_front_if(|(delivery, _)| delivery.is_done()) {
            self.count(counts);
        }
        output.check()
    }

    fn count(&mut self, counts: PendingCounts) {
        let PendingCounts { rows, bytes, failures, offsets, memory } = counts;
        let stats = &self.exchange.stats;
        let different = failures.iter().filter(|(_, failed)| failed.stage == FailureStage::Comparison).count();
        stats.different.fetch_add(different as u64, Ordering::Relaxed);
        let reported = stats.failed.fetch_add(failures.len() as u64, Ordering::Relaxed);
        for (number, (index, failed)) in (reported..=MAX_REPORTED_FAILURES).zip(&failures) {
            let observer = &self.exchange.observer;
            if number < MAX_REPORTED_FAILURES {
                let code = failed.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
                observer.warn(format_args!("row {index}: {}{code}", failed.message));
            } else {
                observer.warn(format_args!("more rows failed; the output has a line for each"));
            }
        }
        stats.rows.fetch_add(rows, Ordering::Relaxed);
        stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Rows are written in the order of each partition, so later offsets are larger.
        self.answered.extend(offsets);
        drop(memory);
    }

    /// Syncs the answers to disk, and commits the offsets of their records.
    fn sync(&mut self, output: &mut RunOutput, wait: bool) -> Result<(), RunError> {
        output.sync()?;
        if let Some(commits) = &self.commits
            && commits.commit(&self.answered, wait)?
        {
            self.answered.clear();
        }
        Ok(())
    }

    /// Waits until all answers have been delivered and their records' offsets are committed.
    async fn settle(&mut self, output: &mut RunOutput) -> Result<(), RunError> {
        let delivered = output.delivered();
        while !self.in_delivery.is_empty() {
            if let Err(error) = self.collect(output) {
                // What has been delivered is committed nevertheless, if a broker is left.
                if !matches!(error, OutputError::Topic(TopicError::Unreachable { .. })) {
                    let _ = block_in_place(|| self.sync(output, true));
                }
                return Err(error.into());
            }
            tokio::select! {
                () = delivered.notified() => {}
                () = tokio::time::sleep(FLUSH_INTERVAL) => {}
            }
        }
        if self.commits.is_none() {
            return Ok(());
        }
        block_in_place(|| self.sync(output, true))
    }
}

enum WriterEvent {
    /// The task of the next batch, or `None` if there is none.
    Handle(Option<JoinHandle<BatchResult>>),
    Answered(Result<BatchResult, JoinError>),
}

/// Answers that have not been written.
#[derive(Default)]
struct PendingOutput {
    lines: Vec<u8>,
    /// One for each line, if these become records.
    records: Vec<OutputRecord>,
    /// Those of the rows that these are the answers to.
    fingerprints: Vec<RowFingerprint>,
    counts: PendingCounts,
}

/// What is counted, and the memory that is free, when answers have been delivered.
#[derive(Default)]
struct PendingCounts {
    rows: u64,
    bytes: u64,
    failures: Vec<(u64, RowFailure)>,
    /// The offsets after those of the records.
    offsets: PartitionOffsets,
    memory: Vec<OwnedSemaphorePermit>,
}

impl PendingOutput {
    fn add(&mut self, done: AnsweredBatch) {
        let AnsweredBatch {
            written: WrittenLines { lines, failures, ids },
            rows,
            bytes,
            fingerprints,
            origins,
            memory,
        } = done;
        self.lines.extend_from_slice(&lines);
        self.fingerprints.extend(fingerprints);
        let mut origins = origins.map(|origins| origins.records).unwrap_or_default();
        let offsets = origins.iter().map(|record| (record.partition, record.offset.saturating_add(1)));
        self.counts.offsets.extend(offsets);
        let mut origins = origins.drain(..);
        self.records.extend(ids.into_iter().map(|id| match origins.next() {
            Some(record) => {
                OutputRecord { partition: record.key.is_none().then_some(record.partition), id, key: record.key }
            }
            None => OutputRecord { partition: None, key: id.clone().map(String::into_bytes), id },
        }));
        self.counts.rows += rows;
        self.counts.bytes += bytes;
        self.counts.failures.extend(failures);
        self.counts.memory.push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_memory_estimate_recovers_from_an_outlier() {
        let mut growth = learned_growth(2, 4096);
        assert_eq!(growth, 4096, "it rises at once");
        growth = learned_growth(growth, 2);
        assert_eq!(growth, 3584, "it falls slowly");
        let batches = std::iter::successors(Some(growth), |growth| Some(learned_growth(*growth, 2)));
        assert!(batches.take_while(|growth| *growth > 2).count() < 100);
    }

    #[test]
    fn run_memory_learns_the_ratio() {
        let memory = MemoryBudget::new();
        memory.learn(4096, 40_960);
        assert_eq!(memory.growth.load(Ordering::Relaxed), 10);
        memory.learn(4096, 4096);
        assert_eq!(memory.growth.load(Ordering::Relaxed), 8);
    }
}
