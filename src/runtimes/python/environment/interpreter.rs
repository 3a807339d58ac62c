//! What an interpreter says about itself.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The oldest Python that the package `mlserver` runs on.
const OLDEST: Version = Version { major: 3, minor: 8 };
/// How long an interpreter may take to tell its version: wrappers and cold disks are slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much is read of what it says.
const MOST_BYTES: u64 = 16 << 10;
/// Marks the answer; what else a wrapper prints is its own.
const MARK: &str = "mlserver-interpreter";
/// Runs on every version of Python, so that old ones are told by their version.
const PROBE: &str = "import os, sys; \
    sys.stdout.write('mlserver-interpreter %d.%d %s' % (sys.version_info[:2] + (os.path.realpath(sys.executable),)))";

/// A version of Python, as far as installed packages depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

impl Version {
    /// Reads the first two parts of a version such as `3.11.7`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        // Pre-releases are written `3.14rc1` by some.
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Self { major, minor: minor[..digits].parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// An interpreter that runs and is new enough.
#[derive(Debug, Clone)]
pub(super) struct Interpreter {
    pub(super) version: Version,
    /// Its file, behind all links and wrappers.
    pub(super) file: PathBuf,
}

/// Why an interpreter cannot run models.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InterpreterError {
    #[error("`{}` links to `{}`, which is not there", link.display(), target.display())]
    Dangling { link: PathBuf, target: PathBuf },
    #[error("cannot run `{}`", path.display())]
    Run { path: PathBuf, source: Arc<io::Error> },
    #[error("`{}` did not tell its version within {} s", path.display(), PATIENCE.as_secs())]
    Silent { path: PathBuf },
    #[error("`{}` does not run as a Python interpreter: it {ended}; its last line was: {last_line}", path.display())]
    Broken { path: PathBuf, ended: String, last_line: String },
    #[error("`{}` is Python {found}: models need Python {OLDEST} or newer", path.display())]
    TooOld { path: PathBuf, found: Version },
}

/// Asks an interpreter for its version.
///
/// # Errors
///
/// Fails when it is not there, does not run, or is too old.
pub(super) async fn probe(path: &Path) -> Result<Interpreter, InterpreterError> {
    if !path.exists()
        && let Ok(target) = path.read_link()
    {
        return Err(InterpreterError::Dangling { link: path.to_owned(), target });
    }
    let failed = |source: io::Error| InterpreterError::Run { path: path.to_owned(), source: Arc::new(source) };
    let mut child = Command::new(path)
        .args(["-E", "-s", "-S", "-c", PROBE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = tokio::time::timeout(PATIENCE, async { tokio::try_join!(start_of(out), start_of(err), child.wait()) });
    let (out, err, status) = match ended.await {
        Ok(ended) => ended.map_err(failed)?,
        Err(_) => return Err(InterpreterError::Silent { path: path.to_owned() }),
    };
    let Some(interpreter) = read_answer(&out).filter(|_| status.success()) else {
        let last_line = [&err, &out].into_iter().find_map(|text| text.lines().rfind(|line| !line.trim().is_empty()));
        let (ended, last_line) = (format!("ended with {status}"), last_line.unwrap_or("(none)").to_owned());
        return Err(InterpreterError::Broken { path: path.to_owned(), ended, last_line });
    };
    if interpreter.version < OLDEST {
        return Err(InterpreterError::TooOld { path: path.to_owned(), found: interpreter.version });
    }
    Ok(interpreter)
}

fn read_answer(text: &str) -> Option<Interpreter> {
    let (_, answer) = text.rsplit_once(MARK)?;
    let (version, file) = answer.trim().split_once(' ')?;
    Some(Interpreter { version: Version::parse(version)?, file: file.into() })
}

/// Reads the start of what a process says, and no more.
async fn start_of(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MOST_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn versions_are_read_in_every_spelling() {
        for text in ["3.11", "3.11.7", " 3.11.7.final.0 ", "3.11rc1"] {
            assert_eq!(Version::parse(text), Some(Version { major: 3, minor: 11 }), "{text}");
        }
        for text in ["", "3", "3.", "3.x", "x.3", "-3.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert!(Version { major: 3, minor: 10 } > Version { major: 3, minor: 9 });
    }

    #[tokio::test]
    async fn what_cannot_run_says_why() {
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
            ("other", "it ended with exit status: 0; its last line was: usage"),
            ("fails", "it ended with exit status: 127; its last line was: error while loading shared libraries"),
            ("absent", "cannot run `"),
            ("nowhere", "cannot run `"),
            ("dangling", "dangling` links to `/no/such/python3.9`, which is not there"),
        ];
        for (name, expected) in cases {
            let error = probe(&folder.path().join(name)).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
