//! `mlserver infer`: runs batch inference over a file.

mod embedded;
mod options;
mod report;

use std::sync::Arc;

use anyhow::{Context, anyhow};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{CommandError, FAILURE, FORCED, INTERRUPTED, SOME_FAILED};
use crate::cli::infer::{InferArgs, SummaryFormat, Transport};
use crate::client::{
    GrpcClient, InferenceTarget, InputSource, Observer, OutputError, OutputState, OutputTarget, RestClient, Run,
    RunError, RunOutcome, RunOutput, RunStats,
};
use crate::settings::Environment;
use crate::shutdown::Signals;
use crate::ui::Ui;
use crate::ui::progress::TerminalProgress;
use embedded::EmbeddedModel;
use options::{ResolvedArgs, RunTarget, resolve};
use report::{RunObserver, RunReport};

/// Runs `mlserver infer`.
pub fn run(args: &InferArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let resolved = resolve(args, environment)?;
    let progress = Arc::new(TerminalProgress::standard(args.quiet));
    for warning in &resolved.warnings {
        progress.warn(format_args!("{warning}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(infer(args, resolved, &progress, ui, environment));
    // The reader thread may be blocked on input that never comes.
    runtime.shutdown_background();
    outcome
}

async fn infer(
    args: &InferArgs,
    resolved: ResolvedArgs,
    progress: &Arc<TerminalProgress>,
    ui: &mut Ui,
    environment: &dyn Environment,
) -> Result<(), CommandError> {
    let observer: Arc<dyn Observer> = Arc::new(RunObserver::new(Arc::clone(progress), resolved.verbosity));
    match &resolved.target {
        RunTarget::Server(transport, options) => {
            let (options, listener) = (options.as_ref().clone(), Arc::clone(&observer));
            let target: Arc<dyn InferenceTarget> = match transport {
                Transport::Rest => Arc::new(RestClient::new(options, listener)?),
                Transport::Grpc => Arc::new(GrpcClient::new(options, listener)?),
            };
            run_to_end(args, resolved, target, observer, progress, ui).await
        }
        RunTarget::Embedded { folder, model, version } => {
            let embedded = EmbeddedModel::load(folder, model.as_deref(), version.as_deref(), environment).await?;
            let embedded = Arc::new(embedded);
            let target: Arc<dyn InferenceTarget> = Arc::clone(&embedded) as Arc<dyn InferenceTarget>;
            let outcome = run_to_end(args, resolved, target, observer, progress, ui).await;
            embedded.stop().await;
            outcome
        }
    }
}

async fn run_to_end(
    args: &InferArgs,
    resolved: ResolvedArgs,
    target: Arc<dyn InferenceTarget>,
    observer: Arc<dyn Observer>,
    progress: &TerminalProgress,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let mut source = InputSource::open(&resolved.input, resolved.format, &resolved.column_types)?;
    let (output, resumed) = open(args, &resolved.output, progress)?;
    let stats = Arc::new(RunStats::default());
    let mut report = RunReport::new(Arc::clone(&stats), resumed.clone(), source.size(), &resolved.output);
    if resumed.complete {
        progress.say(format_args!("nothing to do: all {} rows have been answered already", resumed.rows));
        return command_result(RunOutcome::Complete, None, &report);
    }
    report.skipped(source.skip(resumed.rows, resumed.last_id.as_deref())?);

    let partial = output.partial().map(|path| path.display().to_string());
    let (stop, mut signal) = (CancellationToken::new(), None);
    let run = Run { target, options: resolved.run, stats, observer, stop: stop.clone() };
    let running = run.run(source, output);
    tokio::pin!(running);
    let mut ticks = tokio::time::interval_at(Instant::now() + progress.interval(), progress.interval());
    let ending = loop {
        tokio::select! {
            ending = &mut running => break ending,
            _ = ticks.tick() => report.show(progress),
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
    progress.finish();
    let outcome = command_result(ending, signal, &report);
    match args.summary {
        SummaryFormat::Json if resolved.output == OutputTarget::Stdout => {
            progress.raw(format_args!("{}", report.json(&outcome)));
        }
        SummaryFormat::Json => ui.line(report.json(&outcome))?,
        SummaryFormat::Text => progress.say(format_args!("{}", report.text())),
    }
    outcome.map_err(|failure| with_hint(failure, partial, &report))
}

/// Opens the output, after the answers of an interrupted run if it is to be resumed.
fn open(
    args: &InferArgs,
    place: &OutputTarget,
    progress: &TerminalProgress,
) -> Result<(RunOutput, OutputState), CommandError> {
    match place {
        OutputTarget::File(path) if args.resume => {
            let (output, resumed) = RunOutput::resume(path)?;
            if resumed.rows > 0 && !resumed.complete {
                progress.say(format_args!("resuming after {} answered rows", resumed.rows));
            }
            Ok((output, resumed))
        }
        place => {
            let (output, lost) = RunOutput::create(place)?;
            if lost > 0 {
                progress.warn(format_args!(
                    "starting over: dropping the answers to {lost} rows of an interrupted run (--resume keeps them)"
                ));
            }
            Ok((output, OutputState::default()))
        }
    }
}

/// Converts the outcome of a run into the result of the command.
fn command_result(ending: RunOutcome, signal: Option<&str>, report: &RunReport) -> Result<(), CommandError> {
    let (rows, failed) = (report.rows(), report.failed());
    match ending {
        RunOutcome::Complete if failed == 0 => Ok(()),
        RunOutcome::Complete => {
            let error = anyhow!("{failed} of {rows} rows failed; the output has a line for each");
            Err(CommandError { error, code: SOME_FAILED })
        }
        RunOutcome::Stopped => {
            let signal = signal.unwrap_or("a signal");
            Err(CommandError { error: anyhow!("stopped by {signal} after {rows} rows"), code: INTERRUPTED })
        }
        RunOutcome::Failed(RunError::Output(OutputError::Closed)) => {
            let error = anyhow!("the reader of the answers has closed the pipe, after {rows} rows or more");
            Err(CommandError { error, code: INTERRUPTED })
        }
        RunOutcome::Failed(error) => Err(CommandError {
            error: anyhow::Error::new(error).context(format!("stopped after {rows} rows")),
            code: FAILURE,
        }),
    }
}

/// Adds a hint on how to resume the run, if it has left answers.
fn with_hint(failure: CommandError, partial: Option<String>, report: &RunReport) -> CommandError {
    match partial {
        Some(partial) if failure.code != SOME_FAILED && report.rows() > 0 => {
            let hint =
                format!("hint: the answers so far are in `{partial}`; repeat the command with --resume to continue");
            CommandError { error: anyhow!("{:#}\n{hint}", failure.error), ..failure }
        }
        _ => failure,
    }
}
