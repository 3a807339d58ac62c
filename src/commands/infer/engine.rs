//! `mlserver infer --engine`: runs our application in Python by the command of an engine, and reports what it did.
//!
//! spark-submit merges the standard error of an application into its output, and the driver of a Ray job runs on another machine. So the
//! application reports to a file for Spark, and in a marked line of the job's log for Ray.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::options::{EngineJob, resolve_engine};
use crate::cli::infer::{InferArgs, InferEngine, SummaryFormat};
use crate::commands::{CommandError, FAILURE, FORCED, SOME_FAILED, SUCCESS, async_runtime, exit_code, shell_quoted};
use crate::repository::is_store_uri;
use crate::runtimes::python::{installed_package, package_archive};
use crate::settings::Environment;
use crate::shutdown::Signals;
use crate::types::without_credentials;
use crate::ui::Ui;
use crate::ui::progress::{ProgressUnit, TerminalProgress};

/// What begins the line of the log that has the report of a Ray job.
const REPORT_LINE: &str = "mlserver-report: ";
/// The module that brings the executable, and a local model, to the nodes of Ray. `_scoring.shipping` has its name, too.
const SHIPPED_MODULE: &str = "mlserver_shipped";
/// How long an engine may take to end after a signal. Then it is killed.
const GRACE: Duration = Duration::from_secs(20);
/// Longer lines of a log are passed on in pieces, in bytes. A report is shorter.
const MAX_LINE: usize = 64 << 10;

/// What the application did. Its counts are those of the whole output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobReport {
    rows: u64,
    failed: u64,
    /// The rows of earlier runs among them.
    resumed: u64,
    seconds: f64,
    /// How long predictions took in all tasks together, if the engine counts it.
    prediction_seconds: Option<f64>,
    error: Option<String>,
}

/// Runs a job, and waits for its end.
pub(super) fn run(
    engine: InferEngine,
    args: &InferArgs,
    environment: &dyn Environment,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    let job = resolve_engine(engine, args, environment)?;
    let files = JobFiles::create(&job, args.dry_run, environment)?;
    let command = EngineCommand::new(&job, &files, environment);
    if args.dry_run {
        ui.line(&command)?;
        return Ok(());
    }
    let progress = TerminalProgress::standard(ProgressUnit::Rows, args.quiet);
    let runtime = async_runtime(environment)?;
    let found = runtime.block_on(command.run(&files, args.quiet, &progress));
    runtime.shutdown_background();
    progress.finish();
    let (report, outcome) = match found {
        Ok(report) => {
            let outcome = report.outcome();
            (report, outcome)
        }
        Err(failure) => (JobReport::default(), Err(failure)),
    };
    match args.summary {
        SummaryFormat::Json => ui.line(report.json(&job, &outcome))?,
        // An error says it all.
        SummaryFormat::Text if outcome.is_err() && report.rows == 0 => {}
        SummaryFormat::Text => progress.say(format_args!("{}", report.text())),
    }
    outcome
}

impl JobReport {
    fn outcome(&self) -> Result<(), CommandError> {
        if let Some(error) = &self.error {
            return Err(CommandError { error: anyhow!("{error}"), code: FAILURE });
        }
        if self.failed == 0 {
            return Ok(());
        }
        let (rows, failed) = (self.rows, self.failed);
        let error = anyhow!(
            "{failed} of {rows} rows failed; their predictions are null, and `mlserver_error` of the output has the reasons"
        );
        Err(CommandError { error, code: SOME_FAILED })
    }

    fn rows_per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no job has 2^52 rows")]
        let rows = self.rows.saturating_sub(self.resumed) as f64;
        if self.seconds > 0.0 { rows / self.seconds } else { 0.0 }
    }

    /// Returns the summary as text.
    fn text(&self) -> String {
        let resumed = if self.resumed > 0 { format!(" ({} of them resumed)", self.resumed) } else { String::new() };
        let predictions = self
            .prediction_seconds
            .map(|seconds| format!("; {seconds:.2} s of predictions in all tasks"))
            .unwrap_or_default();
        let (rows, failed, seconds) = (self.rows, self.failed, self.seconds);
        format!(
            "{rows} rows{resumed}, {failed} failed, in {seconds:.2} s ({:.0} rows/s){predictions}",
            self.rows_per_second()
        )
    }

    /// Returns the summary as JSON, with the keys of other runs. Engines have no requests.
    fn json(&self, job: &EngineJob, outcome: &Result<(), CommandError>) -> Value {
        json!({
            "rows": self.rows,
            "answered": self.rows.saturating_sub(self.failed),
            "failed": self.failed,
            "resumed": self.resumed,
            "requests": null,
            "retries": null,
            "seconds": self.seconds,
            "prediction_seconds": self.prediction_seconds,
            "rows_per_second": self.rows_per_second(),
            "latency_ms": null,
            "exit_code": outcome.as_ref().map_or_else(|failure| failure.code, |()| SUCCESS),
            "error": outcome.as_ref().err().map(|failure| format!("{:#}", failure.error)),
            "output": without_credentials(&job.output),
        })
    }
}

/// The files of a job on this machine.
struct JobFiles {
    /// The application of Spark.
    application: PathBuf,
    /// The package: an archive for Spark, its folder for Ray.
    package: PathBuf,
    /// This executable.
    executable: PathBuf,
    /// A folder of this run, which is removed at its end. `None` if nothing will run.
    folder: Option<PathBuf>,
}

impl JobFiles {
    fn create(job: &EngineJob, is_dry: bool, environment: &dyn Environment) -> Result<Self, CommandError> {
        let variables = environment.variables().into_iter().collect();
        let installed = installed_package(&variables)?;
        let package = match job.engine {
            InferEngine::Spark => package_archive(&installed)?,
            InferEngine::Ray => installed.join("mlserver"),
        };
        let application = installed.join("mlserver/_scoring/job_spark.py");
        let executable = std::env::current_exe().context("cannot find the path of this executable")?;
        let mut files = Self { application, package, executable, folder: None };
        if !is_dry {
            let parent = variables.get("TMPDIR").filter(|path| !path.is_empty()).map_or("/tmp", String::as_str);
            let folder = Path::new(parent).join(format!("mlserver-infer-{}", uuid::Uuid::new_v4()));
            let created = DirBuilder::new().mode(0o700).create(&folder);
            created.with_context(|| format!("cannot create the folder `{}`", folder.display()))?;
            files.folder = Some(folder.clone());
            if job.engine == InferEngine::Ray {
                files.link_shipped(&folder, job).with_context(|| format!("cannot write to `{}`", folder.display()))?;
            }
        }
        Ok(files)
    }

    /// Creates the module that brings the executable and a local model to the nodes of Ray, which follows its links. Ray's server of
    /// jobs takes 100 MiB and Ray does not compress, so the executable is compressed here.
    fn link_shipped(&self, folder: &Path, job: &EngineJob) -> io::Result<()> {
        let module = folder.join(SHIPPED_MODULE);
        fs::create_dir(&module)?;
        fs::write(module.join("__init__.py"), "")?;
        let mut compressed = GzEncoder::new(File::create(module.join("mlserver.gz"))?, Compression::fast());
        io::copy(&mut File::open(&self.executable)?, &mut compressed)?;
        compressed.finish()?;
        if !is_uri(&job.location) {
            let model = fs::canonicalize(&job.location)
                .map_err(|error| io::Error::new(error.kind(), format!("the model `{}`: {error}", job.location)))?;
            fs::create_dir(module.join("model"))?;
            symlink(&model, module.join("model").join(model.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }

    fn report(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join("report.json"))
    }

    fn shipped(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| PathBuf::from("/tmp/mlserver-infer")).join(SHIPPED_MODULE)
    }
}

impl Drop for JobFiles {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What is left is in the folder of temporary files.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn is_uri(location: &str) -> bool {
    is_store_uri(location) || location.contains(":/")
}

/// The command of an engine.
struct EngineCommand {
    engine: InferEngine,
    program: PathBuf,
    arguments: Vec<String>,
    /// Variables that the command gets besides those of this process.
    variables: Vec<(&'static str, PathBuf)>,
    /// The command that ends a job which runs elsewhere.
    stop: Vec<String>,
}

impl EngineCommand {
    fn new(job: &EngineJob, files: &JobFiles, environment: &dyn Environment) -> Self {
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let variables = environment.variables();
        let set = |name: &str| variables.iter().find(|(other, value)| other == name && !value.is_empty());
        let mut arguments = Vec::new();
        match job.engine {
            InferEngine::Spark => {
                let home = set("SPARK_HOME").map(|(_, home)| Path::new(home).join("bin/spark-submit"));
                arguments.extend(job.engine_args.iter().cloned());
                arguments.extend(["--py-files".to_owned(), shown(&files.package), shown(&files.application)]);
                arguments.push(format!("--model={}", job.location));
                arguments.extend(job.arguments.iter().cloned());
                arguments.extend(files.report().map(|path| format!("--report={}", path.display())));
                // The driver sends this executable to the executors.
                let executable = set("MLSERVER_BIN").is_none().then(|| ("MLSERVER_BIN", files.executable.clone()));
                let program = home.unwrap_or_else(|| PathBuf::from("spark-submit"));
                let (engine, variables) = (job.engine, executable.into_iter().collect());
                Self { engine, program, arguments, variables, stop: Vec::new() }
            }
            InferEngine::Ray => {
                let id = format!("mlserver-infer-{}", uuid::Uuid::new_v4());
                let modules = json!({"py_modules": [files.package, files.shipped()]});
                arguments.extend(["job".to_owned(), "submit".to_owned()]);
                arguments.extend(job.engine_args.iter().cloned());
                arguments.extend(["--submission-id".to_owned(), id.clone()]);
                arguments.extend(["--runtime-env-json".to_owned(), modules.to_string(), "--".to_owned()]);
                arguments.extend(["python", "-m", "mlserver._scoring.job_ray"].map(str::to_owned));
                let location = if is_uri(&job.location) {
                    format!("--model={}", job.location)
                } else {
                    let name = Path::new(&job.location).components().next_back();
                    let name = name.map(|name| name.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
                    format!("--shipped-model={name}")
                };
                arguments.push(location);
                arguments.extend(job.arguments.iter().cloned());
                let mut stop = vec!["job".to_owned(), "stop".to_owned(), id];
                stop.extend(address_of(&job.engine_args).map(|address| format!("--address={address}")));
                let (engine, program) = (job.engine, PathBuf::from("ray"));
                Self { engine, program, arguments, variables: Vec::new(), stop }
            }
        }
    }

    /// Runs the command to its end, and returns the report of the application.
    async fn run(&self, files: &JobFiles, quiet: bool, progress: &TerminalProgress) -> Result<JobReport, CommandError> {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        progress.say(format_args!("running {}", self.program.display()));
        let mut child = self.spawn(quiet)?;
        let log = tokio::spawn(read_log(child.stdout.take(), quiet));
        let status = tokio::select! {
            status = child.wait() => status.with_context(|| format!("cannot wait for `{}`", self.program.display()))?,
            signal = signals.next() => {
                progress.warn(format_args!("{signal}: stopping the job; a second signal kills it"));
                let code = self.stop(&mut child, &mut signals).await.unwrap_or_else(|| exit_code(signal));
                return Err(CommandError { error: anyhow!("stopped by {signal}; the output has no rows of this run"), code });
            }
        };
        let of_log = log.await.context("reading the engine's output panicked; this is a bug in mlserver")?;
        let text = match files.report().filter(|_| self.engine == InferEngine::Spark) {
            Some(path) => fs::read_to_string(path).ok(),
            None => of_log,
        };
        let report = text.and_then(|text| serde_json::from_str::<JobReport>(&text).ok());
        match report {
            Some(report) if status.success() || report.error.is_some() || report.failed > 0 => Ok(report),
            _ => Err(self.ended(status, quiet)),
        }
    }

    fn spawn(&self, quiet: bool) -> Result<Child, CommandError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        // A group of its own, so that a signal reaches the application as well.
        command.process_group(0).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if quiet {
            command.stderr(Stdio::null());
        }
        let install = match self.engine {
            InferEngine::Spark => "install Spark (`pip install pyspark`), or set SPARK_HOME to its folder",
            InferEngine::Ray => "install Ray (`pip install 'ray[default]'`)",
        };
        let program = self.program.display();
        Ok(command.spawn().with_context(|| format!("cannot run `{program}`: {install}"))?)
    }

    fn ended(&self, status: ExitStatus, quiet: bool) -> CommandError {
        let program = self.program.display();
        let hint = if quiet { "repeat the command without --quiet" } else { "see its output above" };
        let error = anyhow!("`{program}` ended ({status}) before the job reported what it did: {hint}");
        CommandError { error, code: FAILURE }
    }

    /// Ends the job. Returns an exit code if a second signal killed it.
    async fn stop(&self, child: &mut Child, signals: &mut Signals) -> Option<u8> {
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let send = |signal| group.map(|group| kill_process_group(group, signal));
        if !self.stop.is_empty() {
            let mut stop = Command::new(&self.program);
            let stopping = stop.args(&self.stop).stdin(Stdio::null()).stdout(Stdio::null()).status();
            // A job that goes on is named by the engine's own list.
            let _ = timeout(GRACE, stopping).await;
        }
        send(Signal::TERM);
        let code = tokio::select! {
            _ = timeout(GRACE, child.wait()) => None,
            _ = signals.next() => Some(FORCED),
        };
        // The application may live longer than the engine's command.
        send(Signal::KILL);
        let _ = child.wait().await;
        code
    }
}

/// The command as it is typed into a shell.
impl fmt::Display for EngineCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", shell_quoted(&value.to_string_lossy()))?;
        }
        write!(f, "{}", shell_quoted(&self.program.to_string_lossy()))?;
        self.arguments.iter().try_for_each(|argument| match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") && shell_quoted(flag) == flag => {
                write!(f, " {flag}={}", shell_quoted(value))
            }
            _ => write!(f, " {}", shell_quoted(argument)),
        })
    }
}

/// Returns the address among the arguments of `ray job submit`.
fn address_of(given: &[String]) -> Option<&str> {
    let index = given.iter().position(|argument| argument == "--address" || argument.starts_with("--address="))?;
    given[index].strip_prefix("--address=").or_else(|| given.get(index + 1).map(String::as_str))
}

/// Passes the output of the engine on to standard error, and returns the report among its lines.
async fn read_log(output: Option<ChildStdout>, quiet: bool) -> Option<String> {
    let mut reader = BufReader::with_capacity(MAX_LINE, output?);
    let mut report = None;
    let mut line = Vec::new();
    while let Ok(buffer) = reader.fill_buf().await {
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n').map_or(buffer.len(), |index| index + 1);
        line.extend_from_slice(&buffer[..end]);
        reader.consume(end);
        if line.last() != Some(&b'\n') && line.len() < MAX_LINE {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        match text.find(REPORT_LINE) {
            Some(start) => report = Some(text[start + REPORT_LINE.len()..].to_owned()),
            None if !quiet => {
                // Nothing can be done if the terminal is gone.
                let _ = io::Write::write_all(&mut io::stderr(), &line);
            }
            None => {}
        }
        line.clear();
    }
    report
}
