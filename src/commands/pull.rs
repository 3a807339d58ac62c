//! `mlserver pull`: fetches models from object stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use indicatif::BinaryBytes;
use tokio::time::{MissedTickBehavior, interval};

use super::{CommandError, FAILURE, SOME_FAILED, USAGE, async_runtime, exit_code};
use crate::cli::pull::PullArgs;
use crate::registry::{chain, storage_options};
use crate::settings::{Environment, Settings, SettingsSources};
use crate::shutdown::Signals;
use crate::storage::{DownloadProgress, FileFilter, PullOptions, Pulled, Storage};
use crate::ui::Ui;
use crate::ui::progress::{ProgressUnit, ProgressUpdate, TerminalProgress};

/// Runs `mlserver pull`.
pub fn run(args: &PullArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let settings = Settings::load(Path::new("."), &SettingsSources::read(environment)?, false)?.settings;
    let variables: BTreeMap<String, String> = environment.variables().into_iter().collect();
    let mut options = storage_options(&settings.storage, variables);
    options.concurrency = args.concurrency.map_or(options.concurrency, std::num::NonZeroUsize::get);
    let storage = Storage::new(options);
    let filter = FileFilter { include: args.include.clone(), exclude: args.exclude.clone() };
    let options = PullOptions { filter, writes_lock: args.lock };
    let runtime = async_runtime(environment)?;
    runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        tokio::select! {
            biased;
            signal = signals.next() => {
                let error = anyhow!("stopped by {signal}; the same command continues where it stopped");
                Err(CommandError { error, code: exit_code(signal) })
            }
            done = run_until_done(args, environment, &storage, &options, ui) => done,
        }
    })
}

async fn run_until_done(
    args: &PullArgs,
    environment: &dyn Environment,
    storage: &Storage,
    options: &PullOptions,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    if args.list {
        return list(args, storage, &options.filter, ui).await;
    }
    if !args.pairs.len().is_multiple_of(2) {
        let error = anyhow!("expected pairs of a URI and a folder, but got {} arguments", args.pairs.len());
        return Err(CommandError { error, code: USAGE });
    }
    let (mut failed, total) = (0, args.pairs.len() / 2);
    for pair in args.pairs.chunks_exact(2) {
        let folder = environment.working_directory().join(&pair[1]);
        match pull(&pair[0], &folder, storage, options, args.quiet).await {
            Ok((pulled, seconds)) => ui.note(format_args!(
                "Fetched {} files of `{}` into `{}`: {} in {seconds:.1} s.",
                pulled.files,
                storage.uri(&pair[0])?.shown(),
                pair[1],
                BinaryBytes(pulled.bytes),
            )),
            Err(error) if total == 1 => return Err(error.into()),
            Err(error) => {
                failed += 1;
                ui.error(&error);
            }
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let code = if failed < total { SOME_FAILED } else { FAILURE };
    Err(CommandError { error: anyhow!("{failed} of {total} models were not fetched"), code })
}

async fn list(args: &PullArgs, storage: &Storage, filter: &FileFilter, ui: &mut Ui) -> Result<(), CommandError> {
    for text in &args.pairs {
        let uri = storage.uri(text)?;
        let listing = storage.list(&uri, filter).await.map_err(|error| anyhow!("{}", chain(&error)))?;
        for file in listing.files {
            let size = file.size.map(|size| size.to_string()).unwrap_or_default();
            ui.line(format_args!("{size}\t{}", file.path))?;
        }
    }
    Ok(())
}

/// Fetches a model, and returns the seconds that it took.
async fn pull(
    text: &str,
    folder: &Path,
    storage: &Storage,
    options: &PullOptions,
    quiet: bool,
) -> anyhow::Result<(Pulled, f64)> {
    let (uri, started) = (storage.uri(text)?, Instant::now());
    let progress = Arc::new(DownloadProgress::default());
    let shown = TerminalProgress::standard(ProgressUnit::Bytes, quiet);
    let mut ticks = interval(shown.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // The first tick is at once.
    ticks.tick().await;
    let fetch = storage.pull(&uri, folder, options, &progress);
    tokio::pin!(fetch);
    let outcome = loop {
        tokio::select! {
            outcome = &mut fetch => break outcome,
            _ = ticks.tick() => shown.show(&update(&progress, started.elapsed())),
        }
    };
    shown.finish();
    let pulled = outcome.map_err(|error| anyhow!("{}", chain(&error)))?;
    Ok((pulled, started.elapsed().as_secs_f64()))
}

#[expect(clippy::cast_precision_loss, reason = "what is shown is rounded")]
fn update(progress: &DownloadProgress, elapsed: Duration) -> ProgressUpdate {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (done, total) = (read(&progress.bytes), read(&progress.bytes_total));
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = (total > done && rate > 0.0).then(|| Duration::from_secs_f64((total - done) as f64 / rate));
    ProgressUpdate {
        done,
        total: (total > 0).then_some(total),
        share: (total > 0).then(|| done as f64 / total as f64),
        rate,
        left,
        text: match read(&progress.files_total) {
            0 => "listing".to_owned(),
            total => format!("{} of {total} files", read(&progress.files)),
        },
    }
}
