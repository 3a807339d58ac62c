//! Runs interpreters to find their version and file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The oldest version of Python that the package `mlserver` supports.
pub(super) const OLDEST: PythonVersion = PythonVersion { major: 3, minor: 8 };
/// How long an interpreter may take to print its version: wrappers and cold disks are slow.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes of a program's output are kept.
const MAX_OUTPUT: u64 = 16 << 10;
/// Marks the answer in the output, to which a wrapper may add text of its own.
const MARK: &str = "mlserver-interpreter";
/// Runs on every version of Python, so that old interpreters are reported with their version.
const PROBE: &str = "import os, sys; \
    sys.stdout.write('mlserver-interpreter %d.%d %s' % (sys.version_info[:2] + (os.path.realpath(sys.executable),)))";

/// The major and minor version of Python, on which installed packages depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PythonVersion {
    pub major: u16,
    pub minor: u16,
}

impl PythonVersion {
    /// Parses the first two components of a version such as `3.11.7`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        // Some tools write pre-releases as `3.14rc1`.
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Self { major, minor: minor[..digits].parse().ok()? })
    }
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// An interpreter that runs and is new enough.
#[derive(Debug, Clone)]
pub(super) struct Interpreter {
    pub(super) version: PythonVersion,
    /// The path of its executable, with links and wrappers resolved.
    pub(super) file: PathBuf,
}

/// Why an interpreter cannot run models.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InterpreterError {
    #[error("`{}` links to `{}`, which does not exist", link.display(), target.display())]
    Dangling { link: PathBuf, target: PathBuf },
    #[error("cannot run `{}`", path.display())]
    Run { path: PathBuf, source: Arc<io::Error> },
    #[error("`{}` did not print its version within {} s", path.display(), PROBE_TIMEOUT.as_secs())]
    Timeout { path: PathBuf },
    #[error("`{}` is not a working Python interpreter: it {reason}", path.display())]
    Broken { path: PathBuf, reason: String },
    #[error("`{}` is Python {found}: models need Python {OLDEST} or newer", path.display())]
    TooOld { path: PathBuf, found: PythonVersion },
}

/// Runs an interpreter to find its version.
///
/// # Errors
///
/// Fails if the interpreter does not exist, does not run, or is too old.
pub(super) async fn probe(path: &Path) -> Result<Interpreter, InterpreterError> {
    if !path.exists()
        && let Ok(target) = path.read_link()
    {
        return Err(InterpreterError::Dangling { link: path.to_owned(), target });
    }
    let failed = |source: io::Error| InterpreterError::Run { path: path.to_owned(), source: Arc::new(source) };
    let ran = run(Command::new(path).args(["-E", "-s", "-S", "-c", PROBE]), PROBE_TIMEOUT).await.map_err(failed)?;
    let Some(ran) = ran else { return Err(InterpreterError::Timeout { path: path.to_owned() }) };
    let Some(interpreter) = read_answer(&ran.output).filter(|_| ran.status.success()) else {
        return Err(InterpreterError::Broken { path: path.to_owned(), reason: ran.to_string() });
    };
    if interpreter.version < OLDEST {
        return Err(InterpreterError::TooOld { path: path.to_owned(), found: interpreter.version });
    }
    Ok(interpreter)
}

/// The exit status of a program, and the start of its output.
#[derive(Debug)]
pub(in crate::runtimes::python) struct ProgramOutput {
    pub(in crate::runtimes::python) status: ExitStatus,
    output: String,
    errors: String,
}

impl ProgramOutput {
    /// Returns the start of its standard output.
    pub(in crate::runtimes::python) fn output(&self) -> &str {
        &self.output
    }
}

impl fmt::Display for ProgramOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last_of = |text: &'_ str| text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        let last_line = last_of(&self.errors).or_else(|| last_of(&self.output));
        write!(f, "exited with {}; its last line was: {}", self.status, last_line.as_deref().unwrap_or("(none)"))
    }
}

/// Runs a program until it exits. If that takes longer than `timeout`, kills it and returns `None`.
pub(in crate::runtimes::python) async fn run(
    command: &mut Command,
    timeout: Duration,
) -> io::Result<Option<ProgramOutput>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = async { tokio::try_join!(read_start(out), read_start(err), child.wait()) };
    let Ok(ended) = tokio::time::timeout(timeout, ended).await else { return Ok(None) };
    let (output, errors, status) = ended?;
    Ok(Some(ProgramOutput { status, output, errors }))
}

fn read_answer(text: &str) -> Option<Interpreter> {
    let (_, answer) = text.rsplit_once(MARK)?;
    let (version, file) = answer.trim().split_once(' ')?;
    Some(Interpreter { version: PythonVersion::parse(version)?, file: file.into() })
}

/// Reads the output of a process to its end, and keeps the first [`MAX_OUTPUT`] bytes.
async fn read_start(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut start = stream.take(MAX_OUTPUT);
        start.read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut start.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn version_parse_accepts_all_spellings() {
        for text in ["3.11", "3.11.7", " 3.11.7.final.0 ", "3.11rc1"] {
            assert_eq!(PythonVersion::parse(text), Some(PythonVersion { major: 3, minor: 11 }), "{text}");
        }
        for text in ["", "3", "3.", "3.x", "x.3", "-3.1"] {
            assert_eq!(PythonVersion::parse(text), None, "{text}");
        }
        assert!(PythonVersion { major: 3, minor: 10 } > PythonVersion { major: 3, minor: 9 });
    }

    #[tokio::test]
    async fn probe_reports_why_an_interpreter_cannot_run() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("old", "#!/bin/sh\necho mlserver-interpreter 2.7 /usr/bin/python2\n");
        script("other", "#!/bin/sh\necho usage >&2\n");
        script("fails", "#!/bin/sh\necho 'error while loading shared libraries: libpython3.10.so' >&2\nexit 127\n");
        script("absent", "#!/no/such/interpreter\n");
        symlink("/no/such/python3.9", folder.path().join("dangling")).unwrap();
        let cases = [
            ("old", "is Python 2.7: models need Python 3.8 or newer"),
            ("other", "it exited with exit status: 0; its last line was: usage"),
            ("fails", "it exited with exit status: 127; its last line was: error while loading shared libraries"),
            ("absent", "cannot run `"),
            ("nowhere", "cannot run `"),
            ("dangling", "dangling` links to `/no/such/python3.9`, which does not exist"),
        ];
        for (name, expected) in cases {
            let error = probe(&folder.path().join(name)).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
