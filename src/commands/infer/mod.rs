//! `mlserver infer`: runs batch inference over a file or a topic. `mlserver compare` does so on two servers, and compares the answers.

mod engine;
mod jobs;
mod options;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, anyhow};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::embedded::{EmbeddedModel, EmbeddedOptions};
use super::start::Orphans;
use super::{CLOSED, CommandError, FAILURE, FORCED, SOME_FAILED, async_runtime, exit_code};
use crate::cli::compare::CompareArgs;
use crate::cli::infer::{InferArgs, SummaryFormat, Transport};
use crate::client::{
    ComparedServer, ComparedServers, InputOrigin, InputSource, OutputError, OutputState, OutputTarget, RowTarget, Run,
    RunError, RunOutcome, RunOutput, RunStats, TopicAddress, TopicOptions,
};
use crate::compute::ComputePool;
use crate::remote::{FailureKind, GrpcClient, InferenceTarget, Observer, OpenAiClient, RestClient, TransportOptions};
use crate::settings::Environment;
use crate::shutdown::Signals;
use crate::telemetry::logging;
use crate::ui::progress::{ProgressUnit, TerminalProgress};
use crate::ui::{Ui, standard_output};
use jobs::{InferJob, InferPlan, JobInput, UploadTarget, plan};
use options::{ResolvedArgs, RunTarget, resolve, resolve_comparison};
use report::{RunObserver, RunReport};

/// The file that marks the folder of a model.
const SETTINGS: &str = "model-settings.json";

/// The most models that an error lists.
const LISTED_MODELS: usize = 20;

/// Runs `mlserver infer`.
pub fn run(args: &InferArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    match args.engine {
        Some(engine) => engine::run(engine, args, environment, ui),
        None => run_resolved(args, resolve(args, environment), environment, ui),
    }
}

/// Runs `mlserver compare`.
pub fn compare(args: &CompareArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let resolved = resolve_comparison(args, environment);
    let first = args.url.first().map(String::as_str).unwrap_or_default();
    run_resolved(&args.infer_args(first), resolved, environment, ui)
}

fn run_resolved(
    args: &InferArgs,
    resolved: Result<ResolvedArgs, CommandError>,
    environment: &dyn Environment,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    let progress = Arc::new(TerminalProgress::standard(ProgressUnit::Rows, args.quiet));
    let stats = Arc::new(RunStats::default());
    let output = resolved.as_ref().ok().map(|resolved| resolved.output.clone());
    let is_comparison = resolved.as_ref().is_ok_and(|resolved| matches!(resolved.target, RunTarget::Servers(..)));
    let mut report = RunReport::new(Arc::clone(&stats), output.as_ref(), is_comparison);
    let outcome = resolved.and_then(|mut resolved| {
        let runtime = async_runtime(environment)?;
        if let RunTarget::OnlyModel(transport, mut options) = resolved.target {
            let observer = Arc::new(RunObserver::new(Arc::clone(&progress), resolved.verbosity));
            options.model = runtime.block_on(only_model(transport, &options, observer))?;
            resolved.target = RunTarget::Server(transport, options);
        }
        progress.say(format_args!("target: {}", resolved.target));
        for warning in &resolved.warnings {
            progress.warn(format_args!("{warning}"));
        }
        let session = InferSession { args, resolved, progress: &progress, stats, report: &mut report };
        let outcome = runtime.block_on(session.infer(environment));
        // The reader thread may be blocked on input that never comes.
        runtime.shutdown_background();
        outcome
    });
    progress.finish();
    let to_stdout = output == Some(OutputTarget::Stdout) || args.output_data_path.as_deref() == Some(Path::new("-"));
    match args.summary {
        SummaryFormat::Json if to_stdout => progress.raw(format_args!("{}", report.json(&outcome))),
        SummaryFormat::Json => ui.line(report.json(&outcome))?,
        // An error says it all.
        SummaryFormat::Text if outcome.is_err() && report.is_empty() => {}
        SummaryFormat::Text => progress.say(format_args!("{}", report.text())),
    }
    outcome
}

/// A run, with what it reports to.
struct InferSession<'a> {
    args: &'a InferArgs,
    resolved: ResolvedArgs,
    progress: &'a Arc<TerminalProgress>,
    stats: Arc<RunStats>,
    report: &'a mut RunReport,
}

/// The input and the output, after the rows that an earlier run has answered.
struct PreparedRun {
    source: InputSource,
    output: RunOutput,
    resumed: OutputState,
}

impl InferSession<'_> {
    async fn infer(self, environment: &dyn Environment) -> Result<(), CommandError> {
        let progress = Arc::clone(self.progress);
        let observer: Arc<dyn Observer> = Arc::new(RunObserver::new(progress, self.resolved.verbosity));
        match &self.resolved.target {
            RunTarget::Server(transport, options) | RunTarget::OnlyModel(transport, options) => {
                let (options, listener) = (options.as_ref().clone(), Arc::clone(&observer));
                let model = options.model.clone();
                let target = connect(*transport, options, listener)?;
                self.run_to_end(RowTarget::Inference(target), observer, Some(&model), environment).await
            }
            RunTarget::OpenAi(options) => {
                let (options, listener) = (options.as_ref().clone(), Arc::clone(&observer));
                let model = Some(options.model.clone()).filter(|model| !model.is_empty());
                let client = Arc::new(OpenAiClient::new(options, listener)?);
                self.run_to_end(RowTarget::OpenAi { client, model }, observer, None, environment).await
            }
            RunTarget::Servers(transport, servers, tolerance) => {
                let connect = |options: &TransportOptions| {
                    let target = connect(*transport, options.clone(), Arc::clone(&observer))?;
                    Ok::<_, CommandError>(ComparedServer { name: options.endpoint.shown(), target })
                };
                let [first, second] = &**servers;
                let servers = [connect(first)?, connect(second)?];
                let target = Arc::new(ComparedServers { servers, tolerance: *tolerance });
                self.run_to_end(RowTarget::Inference(target), observer, None, environment).await
            }
            RunTarget::Embedded { folder, model, version } => {
                let options = EmbeddedOptions {
                    location: folder,
                    name: model.as_deref(),
                    version: version.as_deref(),
                    environment,
                    compute: ComputePool::for_this_machine(),
                    progress: &**self.progress,
                };
                // What its code has left is killed at the end.
                let _orphans = Orphans::adopt();
                let warnings = logging::collect_warnings();
                let embedded = EmbeddedModel::load(options).await;
                for warning in warnings.take() {
                    self.progress.warn(format_args!("{warning}"));
                }
                let embedded = embedded?;
                let embedded = Arc::new(embedded);
                let target: Arc<dyn InferenceTarget> = Arc::clone(&embedded) as Arc<dyn InferenceTarget>;
                let outcome = self.run_to_end(RowTarget::Inference(target), observer, None, environment).await;
                embedded.stop().await;
                outcome
            }
        }
    }

    /// Runs until every row of each input is answered, a run fails, or a signal stops it. `server_model` is the name of a
    /// server's model.
    async fn run_to_end(
        mut self,
        target: RowTarget,
        observer: Arc<dyn Observer>,
        server_model: Option<&str>,
        environment: &dyn Environment,
    ) -> Result<(), CommandError> {
        let progress = self.progress;
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let InferPlan { jobs, done, size } = tokio::select! {
            planned = plan(&self.resolved, self.args.resume, environment) => planned?,
            signal = signals.next() => return Err(stopped(signal, self.report)),
        };
        if done > 0 {
            progress.say(format_args!("skipping {done} inputs, whose answers are complete"));
        }
        let (count, mut has_failures) = (jobs.len(), false);
        for (index, job) in jobs.into_iter().enumerate() {
            if count > 1 {
                progress.say(format_args!("input {} of {count}: {}", index + 1, job.shown()));
            }
            match self.run_job(job, size, &target, &observer, &mut signals, server_model).await {
                Err(failure) if failure.code == SOME_FAILED => has_failures = true,
                done => done?,
            }
        }
        // Counts the rows of all inputs.
        if has_failures { command_result(RunOutcome::Complete, None, self.report) } else { Ok(()) }
    }

    /// Answers the rows of one input.
    async fn run_job(
        &mut self,
        job: InferJob,
        size: Option<u64>,
        target: &RowTarget,
        observer: &Arc<dyn Observer>,
        signals: &mut Signals,
        server_model: Option<&str>,
    ) -> Result<(), CommandError> {
        let progress = self.progress;
        let mut ticks = tokio::time::interval_at(Instant::now() + progress.interval(), progress.interval());
        let resumes_by_group = matches!(&job.input, JobInput::Origin(InputOrigin::Topic(_)));
        let file = if let OutputTarget::File(path) = &job.output { Some(path.clone()) } else { None };
        let upload = file.zip(job.upload.clone());
        if let Some((file, upload)) = upload.as_ref().filter(|_| !self.args.resume) {
            upload.abort(file).await;
        }
        let prepare = self.preparation(job, observer);
        // The input may be a pipe whose writer is slow, and there may be many rows to skip.
        let mut preparing = tokio::task::spawn_blocking(prepare);
        let prepared = loop {
            tokio::select! {
                prepared = &mut preparing => break prepared.context("opening the input panicked; this is a bug in mlserver")??,
                _ = ticks.tick() => self.report.show(progress),
                signal = signals.next() => return Err(stopped(signal, self.report)),
            }
        };
        let PreparedRun { source, output, resumed } = prepared;
        self.report.prepared(&resumed, size.or(source.size()));
        if resumed.complete {
            progress.say(format_args!("nothing to do: all {} rows have been answered already", resumed.rows));
            self.upload(upload, signals).await?;
            return command_result(RunOutcome::Complete, None, self.report);
        }

        let resume = if resumes_by_group {
            Some("hint: repeat the command to continue after the records that have been answered".to_owned())
        } else {
            output.partial().map(|path| {
                let path = path.display();
                format!("hint: the answers so far are in `{path}`; repeat the command with --resume to continue")
            })
        };
        let (stop, mut signal) = (CancellationToken::new(), None);
        let (options, stats) = (self.resolved.run.clone(), Arc::clone(&self.stats));
        let run = Run { target: target.clone(), options, stats, observer: Arc::clone(observer), stop: stop.clone() };
        let running = run.run(source, output);
        tokio::pin!(running);
        let ending = loop {
            tokio::select! {
                ending = &mut running => break ending,
                _ = ticks.tick() => self.report.show(progress),
                name = signals.next() => {
                    if signal.replace(name).is_some() {
                        let error = anyhow!("stopped at once by a second signal ({name})");
                        return Err(CommandError { error, code: FORCED });
                    }
                    stop.cancel();
                    let message = "stopping after the requests in flight; a second signal stops at once";
                    progress.warn(format_args!("{name}: {message}"));
                }
            }
        };
        if matches!(ending, RunOutcome::Complete) {
            self.upload(upload, signals).await?;
        }
        let is_unreachable = matches!(
            &ending,
            RunOutcome::Failed(RunError::Target(failure)) if failure.kind == FailureKind::Unreachable
        );
        let folder = server_model.filter(|model| is_unreachable && Path::new(model).join(SETTINGS).is_file());
        command_result(ending, signal, self.report).map_err(|failure| with_hints(failure, resume, folder, self.report))
    }

    /// Returns what opens the input and the output of a job, and skips the rows that have been answered.
    fn preparation(
        &self,
        job: InferJob,
        observer: &Arc<dyn Observer>,
    ) -> impl FnOnce() -> Result<PreparedRun, CommandError> + Send + use<> {
        let (should_resume, rows) = (self.args.resume, self.resolved.run.batch_size.get());
        let (shown, counters) = (Arc::clone(self.progress), Arc::clone(&self.stats));
        let (format, column_types) = (self.resolved.format, self.resolved.column_types.clone());
        let (kafka, listener) = (self.resolved.kafka.clone(), Arc::clone(observer));
        move || {
            let InferJob { input, output: to, .. } = job;
            let source = match input {
                JobInput::Origin(InputOrigin::Topic(address)) => {
                    return prepare_topic(&address, &kafka, &to, should_resume, rows, &shown, &listener);
                }
                JobInput::Origin(InputOrigin::File(path)) => InputSource::open(&path, format, &column_types)?,
                JobInput::Ranged(input) => InputSource::open_ranged(input, format, &column_types)?,
            };
            for warning in source.warnings() {
                shown.warn(format_args!("{warning}"));
            }
            if let OutputTarget::Topic(address) = &to {
                let output = RunOutput::topic(address, &kafka, listener)?;
                return Ok(PreparedRun { source, output, resumed: OutputState::default() });
            }
            prepare(source, &to, should_resume, rows, &counters, &shown)
        }
    }

    /// Writes a complete output to its object.
    async fn upload(&self, upload: Option<(PathBuf, UploadTarget)>, signals: &mut Signals) -> Result<(), CommandError> {
        let Some((file, target)) = upload else { return Ok(()) };
        let (progress, sent) = (self.progress, AtomicU64::new(0));
        let mut ticks = tokio::time::interval_at(Instant::now() + progress.interval(), progress.interval());
        let uploading = target.finish(&file, &sent);
        tokio::pin!(uploading);
        let hint = "hint: all answers are there; repeat the command with --resume to continue the upload";
        let failure = loop {
            tokio::select! {
                done = &mut uploading => match done {
                    Ok(()) => return Ok(()),
                    Err(failure) => break failure,
                },
                _ = ticks.tick() => {
                    let sent = indicatif::BinaryBytes(sent.load(Ordering::Relaxed));
                    progress.wait(format_args!("uploading to `{}`: {sent}", target.shown()));
                }
                signal = signals.next() => break stopped(signal, self.report),
            }
        };
        Err(CommandError { error: anyhow!("{:#}\n{hint}", failure.error), ..failure })
    }
}

/// Creates the client of a server, which connects when it is used.
fn connect(
    transport: Transport,
    options: TransportOptions,
    observer: Arc<dyn Observer>,
) -> Result<Arc<dyn InferenceTarget>, CommandError> {
    Ok(match transport {
        Transport::Rest => Arc::new(RestClient::new(options, observer)?),
        Transport::Grpc => Arc::new(GrpcClient::new(options, observer)?),
    })
}

/// Returns the name of the only model that a server has ready.
async fn only_model(
    transport: Transport,
    options: &TransportOptions,
    observer: Arc<dyn Observer>,
) -> Result<String, CommandError> {
    let listed = match transport {
        Transport::Rest => RestClient::new(options.clone(), observer)?.ready_models().await,
        Transport::Grpc => GrpcClient::new(options.clone(), observer)?.ready_models().await,
    };
    let server = options.endpoint.shown();
    let models = listed.map_err(|failure| {
        let problem =
            format!("cannot list the models of the server at {server} (--model-name chooses one without the list)");
        anyhow::Error::new(failure).context(problem)
    })?;
    let listed: Vec<_> = models.iter().take(LISTED_MODELS).map(|name| name.escape_debug().to_string()).collect();
    match models.len() {
        0 => Err(anyhow!("the server at {server} has no model that is ready").into()),
        1 => Ok(models.into_iter().next().unwrap_or_default()),
        count => {
            let others = count.saturating_sub(LISTED_MODELS);
            let others = if others > 0 { format!(", and {others} others") } else { String::new() };
            let listed = listed.join(", ");
            Err(anyhow!("the server at {server} has several models: choose one with --model-name ({listed}{others})")
                .into())
        }
    }
}

/// Opens the output. To resume a run, checks and skips the rows that have been answered.
fn prepare(
    mut source: InputSource,
    to: &OutputTarget,
    should_resume: bool,
    batch_size: usize,
    stats: &RunStats,
    progress: &TerminalProgress,
) -> Result<PreparedRun, CommandError> {
    let OutputTarget::File(path) = to else {
        let output = RunOutput::stream(standard_output(), "standard output");
        return Ok(PreparedRun { source, output, resumed: OutputState::default() });
    };
    if !should_resume {
        let (output, lost) = RunOutput::create(path)?;
        if lost > 0 {
            progress.warn(format_args!(
                "starting over: dropping the answers to {lost} rows of an interrupted run (--resume keeps them)"
            ));
        }
        return Ok(PreparedRun { source, output, resumed: OutputState::default() });
    }
    let (mut output, mut resumed) = RunOutput::resume(path)?;
    source.skip(resumed.rows, &mut output.answered_ids()?, stats)?;
    if resumed.complete && source.has_more(batch_size)? {
        output = output.reopen(resumed.rows)?;
        resumed.complete = false;
    }
    if resumed.rows > 0 && !resumed.complete {
        progress.say(format_args!("resuming after {} answered rows", resumed.rows));
    }
    Ok(PreparedRun { source, output, resumed })
}

/// Opens a topic as the input, and the output. The offsets of the group, and those of the answers in a file, are where the topic is
/// read from.
fn prepare_topic(
    address: &TopicAddress,
    options: &TopicOptions,
    to: &OutputTarget,
    extend: bool,
    batch_size: usize,
    progress: &TerminalProgress,
    observer: &Arc<dyn Observer>,
) -> Result<PreparedRun, CommandError> {
    let (mut output, mut resumed) = match to {
        OutputTarget::Stdout => (RunOutput::stream(standard_output(), "standard output"), OutputState::default()),
        OutputTarget::Topic(to) => (RunOutput::topic(to, options, Arc::clone(observer))?, OutputState::default()),
        OutputTarget::File(path) => RunOutput::of_records(path, extend)?,
    };
    let answered = output.answered_offsets(&address.topic)?;
    // Their offsets are committed, and a run that was killed may not have synced them.
    output.sync()?;
    let mut source = InputSource::open_topic(address, options, resumed.rows, &answered, observer)?;
    let (group, count) = (&options.group, source.size().unwrap_or_default());
    progress.say(format_args!(
        "input: {count} records of `{}`, after the committed offsets of group `{group}`",
        address.topic
    ));
    if resumed.complete && source.has_more(batch_size)? {
        output = output.reopen(resumed.rows)?;
        resumed.complete = false;
    }
    if resumed.rows > 0 && !resumed.complete {
        progress.say(format_args!("resuming after {} answered rows", resumed.rows));
    }
    Ok(PreparedRun { source, output, resumed })
}

/// Returns the failure of a run that a signal has stopped.
fn stopped(signal: &str, report: &RunReport) -> CommandError {
    let code = exit_code(signal);
    CommandError { error: anyhow!("stopped by {signal} after {} rows", report.rows()), code }
}

/// Converts the outcome of a run into the result of the command.
fn command_result(ending: RunOutcome, signal: Option<&str>, report: &RunReport) -> Result<(), CommandError> {
    let (rows, failed) = (report.rows(), report.failed());
    match ending {
        RunOutcome::Complete if failed == 0 => Ok(()),
        RunOutcome::Complete => {
            let error = match report.different() {
                0 => anyhow!("{failed} of {rows} rows failed; the output has a line for each"),
                different if different == failed => anyhow!("the answers to {different} of {rows} rows differ"),
                different => {
                    anyhow!("the answers to {different} of {rows} rows differ, and {} rows failed", failed - different)
                }
            };
            Err(CommandError { error, code: SOME_FAILED })
        }
        RunOutcome::Stopped => Err(stopped(signal.unwrap_or("a signal"), report)),
        RunOutcome::Failed(RunError::Output(OutputError::Closed)) => {
            let error = anyhow!("the reader of the answers has closed the pipe; at least {rows} rows had been written");
            Err(CommandError { error, code: CLOSED })
        }
        RunOutcome::Failed(error) => Err(CommandError {
            error: anyhow::Error::new(error).context(format!("stopped after {rows} rows")),
            code: FAILURE,
        }),
    }
}

/// Adds hints on how to continue: with the answers that the run has left, or with the model in a folder instead of a server.
fn with_hints(failure: CommandError, resume: Option<String>, folder: Option<&str>, report: &RunReport) -> CommandError {
    let resume = resume.filter(|_| failure.code != SOME_FAILED && report.rows() > 0);
    let folder = folder.map(|folder| {
        format!("hint: `{folder}` is also a folder with a model; `--embedded {folder}` loads it without a server")
    });
    let hints: Vec<String> = resume.into_iter().chain(folder).collect();
    if hints.is_empty() {
        return failure;
    }
    CommandError { error: anyhow!("{:#}\n{}", failure.error, hints.join("\n")), ..failure }
}
