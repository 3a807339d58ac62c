//! Runs a script up to `kserve.ModelServer().start(...)`, to find out which models it serves, and with which options.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::environment::EnvironmentError;
use super::{Python, SdkError, sdk};
use crate::settings::ModelSettings;

/// The import path of the class that serves the models of scripts.
pub const SCRIPT_IMPLEMENTATION: &str = "mlserver._kserve_script.ScriptModel";

/// Removes the working directory from Python's path: modules in it could hide those of the SDK.
const PROGRAM: &str = "import sys; sys.path.pop(0); from mlserver._kserve_script import main; main()";
/// The limit on the size of the description.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// The limit on the number of models.
const MAX_MODELS: usize = 1000;
/// How much of the end of the output is kept.
const MAX_OUTPUT: usize = 16 << 10;
/// How many of the last lines of each stream an error shows, and how much of each line.
const SHOWN_LINES: usize = 20;
const SHOWN_CHARACTERS: usize = 200;
/// How long to wait for the end of the output after the process has ended: other processes may hold its pipes open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// The models of a script, and the options of its `ModelServer` that are not the defaults.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptDescription {
    pub models: Vec<String>,
    pub options: Map<String, Value>,
}

/// The message of the process.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Failure { failure: String },
    Description(ScriptDescription),
}

/// Why the models of a script are unknown.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Sdk(#[from] SdkError),
    #[error("cannot run the interpreter `{}`", interpreter.display())]
    Start { interpreter: PathBuf, source: io::Error },
    #[error("{reason}{output}")]
    Failed { reason: String, output: LastOutput },
}

/// The last lines of a script's standard output and standard error.
#[derive(Debug, Default)]
pub struct LastOutput([String; 2]);

impl fmt::Display for LastOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().flat_map(|text| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec()
        });
        let shown: Vec<&str> = shown.collect();
        if shown.is_empty() {
            return f.write_str("; it wrote nothing");
        }
        f.write_str("; the end of its output:")?;
        shown.iter().try_for_each(|line| match line.char_indices().nth(SHOWN_CHARACTERS) {
            Some((end, _)) => write!(f, "\n  {}…", &line[..end]),
            None => write!(f, "\n  {line}"),
        })
    }
}

/// The end of a stream of a process.
#[derive(Debug, Clone, Default)]
struct OutputEnd(Arc<Mutex<VecDeque<u8>>>);

impl OutputEnd {
    async fn fill(self, mut stream: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(count) = stream.read(&mut buffer).await
            && count > 0
        {
            let mut end = self.0.lock();
            end.extend(&buffer[..count]);
            let excess = end.len().saturating_sub(MAX_OUTPUT);
            end.drain(..excess);
        }
    }

    fn take(&self) -> String {
        let bytes: Vec<u8> = self.0.lock().drain(..).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Kills a process group when it is dropped.
struct ProcessGroup(Pid);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Fails if all of its processes have ended.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

impl Python {
    /// Runs a script with the interpreter of models without an environment of their own, up to `ModelServer.start`.
    ///
    /// # Errors
    ///
    /// Fails if the interpreter cannot be found, or if the script ends, fails or exceeds the timeout of loads before it calls `start`.
    pub async fn describe_script(&self, script: &Path, arguments: &[String]) -> Result<ScriptDescription, ScriptError> {
        let options = &self.0.options;
        let settings = ModelSettings::new("script", SCRIPT_IMPLEMENTATION);
        let environment = self.0.environments.of(&settings, options).await?;
        let sdk = self.0.sdk.get_or_try_init(|| sdk::install(&options.variables)).await?;
        let mut command = Command::new(&environment.interpreter);
        command.args(["-c", PROGRAM, "describe"]).arg(script).args(arguments);
        for (name, value) in environment.variables(sdk, options, 1) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output: [OutputEnd; 2] = Default::default();
        let described = describe(command, options.workers.settings.worker_load_timeout, &output).await;
        let described =
            described.map_err(|source| ScriptError::Start { interpreter: environment.interpreter.clone(), source })?;
        described
            .map_err(|reason| ScriptError::Failed { reason, output: LastOutput(output.map(|stream| stream.take())) })
    }
}

/// Runs a program that describes a script. The inner error is the reason why it could not describe it.
async fn describe(
    mut command: Command,
    timeout: Option<Duration>,
    [stdout, stderr]: &[OutputEnd; 2],
) -> io::Result<Result<ScriptDescription, String>> {
    let (ours, theirs) = StdUnixStream::pair()?;
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    // Closes its copy of the other end of the socket.
    drop(command);
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let pid = pid.ok_or_else(|| io::Error::other("the process exited immediately"))?;
    let group = ProcessGroup(pid);
    ours.set_nonblocking(true)?;
    let answers = UnixStream::from_std(ours)?;
    let missing = || io::Error::other("a pipe of the process is missing");
    let (out, err) = (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
    let mut readers = [
        AbortOnDropHandle::new(tokio::spawn(stdout.clone().fill(out))),
        AbortOnDropHandle::new(tokio::spawn(stderr.clone().fill(err))),
    ];
    let mut line = Box::pin(read_line(answers));
    let ended = async {
        tokio::select! {
            biased;
            line = &mut line => match line? {
                Some(line) => Ok(read(&line)),
                None => Ok(Err(unexpected_end(child.wait().await?))),
            },
            status = child.wait() => {
                // Its last line may not have arrived yet. Children of the script keep the socket open.
                match tokio::time::timeout(OUTPUT_TIMEOUT, &mut line).await {
                    Ok(Ok(Some(line))) => Ok(read(&line)),
                    _ => Ok(Err(unexpected_end(status?))),
                }
            }
        }
    };
    let described: Result<io::Result<_>, _> = match timeout {
        Some(timeout) => tokio::time::timeout(timeout, ended).await.map_err(|_| timeout),
        None => Ok(ended.await),
    };
    let described = match described {
        Ok(described) => described?,
        Err(timeout) => {
            // The interpreter writes the stacks of its threads when it is aborted.
            let _ = kill_process(pid, Signal::ABORT);
            let _ = tokio::time::timeout(OUTPUT_TIMEOUT, child.wait()).await;
            let seconds = timeout.as_secs_f64();
            Err(format!("it did not call `ModelServer.start` within {seconds} s (`worker_load_timeout`)"))
        }
    };
    if described.is_err() {
        // Closes the pipes, which then are read to their end.
        drop(group);
        for reader in &mut readers {
            let _ = tokio::time::timeout(OUTPUT_TIMEOUT, reader).await;
        }
    }
    Ok(described)
}

/// Reads a line. Returns `None` if the stream ends before.
async fn read_line(stream: UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut stream = tokio::io::BufReader::new(stream.take(MAX_DESCRIPTION));
    tokio::io::AsyncBufReadExt::read_until(&mut stream, b'\n', &mut line).await?;
    Ok(Some(line).filter(|line| line.ends_with(b"\n")))
}

fn read(line: &[u8]) -> Result<ScriptDescription, String> {
    match serde_json::from_slice(line) {
        Ok(Answer::Failure { failure }) => Err(failure),
        Ok(Answer::Description(description)) if description.models.len() > MAX_MODELS => {
            Err(format!("it starts {} models, but at most {MAX_MODELS} can be served", description.models.len()))
        }
        Ok(Answer::Description(description)) => Ok(description),
        Err(error) => Err(format!("its description cannot be read: {error}")),
    }
}

fn unexpected_end(status: ExitStatus) -> String {
    format!("its process ended with {status} before it called `ModelServer.start`")
}
