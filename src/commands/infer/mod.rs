//! `mlserver infer`: a file of requests, to a server, and their answers to another file.

mod embedded;
mod options;
mod report;

use std::sync::Arc;

use anyhow::{Context, anyhow};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{CommandError, FAILURE, FORCED, INTERRUPTED, SOME_FAILED};
use crate::cli::infer::{InferArgs, Summary, Transport};
use crate::client::{
    Ending, Grpc, Observer, Output, OutputError, Place, Rest, Resumed, Run, RunError, Source, Stats, Target,
};
use crate::settings::Environment;
use crate::shutdown::Signals;
use crate::ui::Ui;
use crate::ui::progress::Progress;
use embedded::Embedded;
use options::{Aim, Resolved, resolve};
use report::{Report, Watching};

/// Runs `mlserver infer`.
pub fn run(args: &InferArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let resolved = resolve(args, environment)?;
    let progress = Arc::new(Progress::standard(args.quiet));
    for warning in &resolved.warnings {
        progress.warn(format_args!("{warning}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(infer(args, resolved, (&progress, ui), environment));
    // A thread may wait for input that never comes.
    runtime.shutdown_background();
    outcome
}

async fn infer(
    args: &InferArgs,
    resolved: Resolved,
    (progress, ui): (&Arc<Progress>, &mut Ui),
    environment: &dyn Environment,
) -> Result<(), CommandError> {
    let observer: Arc<dyn Observer> = Arc::new(Watching::new(Arc::clone(progress), resolved.verbosity));
    match &resolved.aim {
        Aim::Server(transport, options) => {
            let (options, listener) = (options.as_ref().clone(), Arc::clone(&observer));
            let target: Arc<dyn Target> = match transport {
                Transport::Rest => Arc::new(Rest::new(options, listener)?),
                Transport::Grpc => Arc::new(Grpc::new(options, listener)?),
            };
            ask(args, resolved, (target, observer), (progress, ui)).await
        }
        Aim::Embedded { folder, model, version } => {
            let named = (model.as_deref(), version.as_deref());
            let embedded = Arc::new(Embedded::load(folder, named, environment).await?);
            let target: Arc<dyn Target> = Arc::clone(&embedded) as Arc<dyn Target>;
            let outcome = ask(args, resolved, (target, observer), (progress, ui)).await;
            embedded.stop().await;
            outcome
        }
    }
}

async fn ask(
    args: &InferArgs,
    resolved: Resolved,
    (target, observer): (Arc<dyn Target>, Arc<dyn Observer>),
    (progress, ui): (&Arc<Progress>, &mut Ui),
) -> Result<(), CommandError> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let mut source = Source::open(&resolved.input, resolved.format, &resolved.column_types)?;
    let (output, resumed) = open(args, &resolved.output, progress)?;
    let stats = Arc::new(Stats::default());
    let mut report = Report::new(Arc::clone(&stats), resumed.clone(), source.size(), &resolved.output);
    if resumed.complete {
        progress.say(format_args!("all {} rows were answered before: there is nothing to do", resumed.rows));
        return end(Ending::Complete, None, &report);
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
                let message = "stopping after the requests that are under way; once more stops at once";
                progress.warn(format_args!("{name}: {message}"));
            }
        }
    };
    progress.finish();
    let outcome = end(ending, signal, &report);
    match args.summary {
        Summary::Json if resolved.output == Place::Stdout => progress.raw(format_args!("{}", report.json(&outcome))),
        Summary::Json => ui.line(report.json(&outcome))?,
        Summary::Text => progress.say(format_args!("{}", report.text())),
    }
    outcome.map_err(|failure| with_hint(failure, partial, &report))
}

/// Opens the output, behind the answers of an earlier run where that is asked for.
fn open(args: &InferArgs, place: &Place, progress: &Progress) -> Result<(Output, Resumed), CommandError> {
    match place {
        Place::File(path) if args.resume => {
            let (output, resumed) = Output::resume(path)?;
            if resumed.rows > 0 && !resumed.complete {
                progress.say(format_args!("going on behind {} rows that are answered already", resumed.rows));
            }
            Ok((output, resumed))
        }
        place => {
            let (output, lost) = Output::create(place)?;
            if lost > 0 {
                progress.warn(format_args!(
                    "starting anew: the answers to {lost} rows of an interrupted run are dropped, which --resume would have kept"
                ));
            }
            Ok((output, Resumed::default()))
        }
    }
}

/// Returns what an ending means for whoever waits for the command.
fn end(ending: Ending, signal: Option<&str>, report: &Report) -> Result<(), CommandError> {
    let (rows, failed) = (report.rows(), report.failed());
    match ending {
        Ending::Complete if failed == 0 => Ok(()),
        Ending::Complete => {
            let error = anyhow!("{failed} of {rows} rows failed; the output has a line for each");
            Err(CommandError { error, code: SOME_FAILED })
        }
        Ending::Stopped => {
            let signal = signal.unwrap_or("a signal");
            Err(CommandError { error: anyhow!("stopped by {signal} after {rows} rows"), code: INTERRUPTED })
        }
        Ending::Failed(RunError::Output(OutputError::Closed)) => {
            let error = anyhow!("the reader of the answers has gone, after {rows} rows or more");
            Err(CommandError { error, code: INTERRUPTED })
        }
        Ending::Failed(error) => Err(CommandError {
            error: anyhow::Error::new(error).context(format!("stopped after {rows} rows")),
            code: FAILURE,
        }),
    }
}

/// Says how to go on with a run that has left something.
fn with_hint(failure: CommandError, partial: Option<String>, report: &Report) -> CommandError {
    match partial {
        Some(partial) if failure.code != SOME_FAILED && report.rows() > 0 => {
            let hint = format!("hint: the answers so far are in `{partial}`; the same command with --resume goes on");
            CommandError { error: anyhow!("{:#}\n{hint}", failure.error), ..failure }
        }
        _ => failure,
    }
}
