//! The version of Python that a project is developed with, which its image should have: pinned packages have no distributions for others.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::runtimes::python::PythonVersion;
use crate::types::text;

/// The version of images whose project names none.
const DEFAULT: (u16, u16) = (3, 12);
/// The oldest version that models can run in.
const OLDEST: (u16, u16) = (3, 8);
/// The most bytes of a file that names a version.
const MAX_FILE: u64 = 64 << 10;
/// The files of a folder that name a version, in the order in which they are read.
const FILES: [&str; 2] = [".python-version", "runtime.txt"];
/// The file of a virtual environment that names its version.
const VENV_FILE: &str = "pyvenv.cfg";

/// A version of Python, such as 3.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonRelease(u16, u16);

/// The version for an image, and why it has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPython {
    pub release: PythonRelease,
    pub origin: PythonOrigin,
}

/// Where a version comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PythonOrigin {
    Flag,
    File(PathBuf),
    Default,
}

impl fmt::Display for PythonRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Why a version cannot be that of an image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--python: invalid version `{found}`: expected 3.8 or later, as in `--python 3.12`")]
pub struct PythonVersionError {
    found: String,
}

impl FromStr for PythonRelease {
    type Err = PythonVersionError;

    fn from_str(text: &str) -> Result<Self, PythonVersionError> {
        let is_exact = |release: &Self| release.to_string() == text && release.is_usable();
        release(text).filter(is_exact).ok_or_else(|| PythonVersionError { found: text.to_owned() })
    }
}

impl From<PythonVersion> for PythonRelease {
    fn from(version: PythonVersion) -> Self {
        Self(version.major, version.minor)
    }
}

impl PythonRelease {
    /// Returns whether models can run in this version.
    const fn is_usable(self) -> bool {
        self.0 == OLDEST.0 && self.1 >= OLDEST.1
    }
}

impl ProjectPython {
    /// Returns the version that `flag` sets, or that of the folder's files, or of its models' packed environments, or of the active virtual
    /// environment, or the default.
    ///
    /// # Errors
    ///
    /// Fails if `flag` is not a version that models can run in.
    pub fn of(
        folder: &Path,
        flag: Option<&str>,
        packed: &[PathBuf],
        variables: &HashMap<String, String>,
    ) -> Result<Self, PythonVersionError> {
        if let Some(flag) = flag {
            return Ok(Self { release: flag.parse()?, origin: PythonOrigin::Flag });
        }
        let venv = variables.get("VIRTUAL_ENV").filter(|folder| !folder.is_empty());
        let venv = venv.map(|folder| Path::new(folder).join(VENV_FILE));
        let files = FILES.iter().map(|name| folder.join(name));
        let files = files.filter_map(|path| Some((named_in(&path)?, path)));
        let packed = packed.iter().filter_map(|path| Some((PythonVersion::of_archive(path)?.into(), path.clone())));
        let venv = venv.into_iter().filter_map(|path| Some((named_in(&path)?, path)));
        let mut found = files.chain(packed).chain(venv).filter(|(release, _)| release.is_usable());
        Ok(match found.next() {
            Some((release, path)) => Self { release, origin: PythonOrigin::File(path) },
            None => Self { release: PythonRelease(DEFAULT.0, DEFAULT.1), origin: PythonOrigin::Default },
        })
    }

    /// Returns the base image with this version.
    pub fn image(&self) -> String {
        format!("python:{}-slim", self.release)
    }
}

impl fmt::Display for ProjectPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let release = self.release;
        match &self.origin {
            PythonOrigin::Flag => write!(f, "Python {release} (--python)"),
            PythonOrigin::File(path) => write!(f, "Python {release} (`{}`)", path.display()),
            PythonOrigin::Default => write!(f, "Python {release} (the default)"),
        }
    }
}

/// Returns the version that a file names, if it is there.
fn named_in(path: &Path) -> Option<PythonRelease> {
    // Opening a pipe would block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    let text = text::utf8(&bytes).ok()?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    if path.ends_with(VENV_FILE) {
        let value = |line: &str| {
            let (key, value) = line.split_once('=')?;
            ["version", "version_info"].contains(&key.trim()).then(|| release(value.trim()))?
        };
        return lines.find_map(value);
    }
    let line = lines.next()?;
    release(["cpython-", "cpython@", "python-"].iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line))
}

/// Reads the first two numbers of a version, such as `3.10.4`.
fn release(text: &str) -> Option<PythonRelease> {
    let (major, rest) = text.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let is_whole = end == rest.len() || rest[end..].starts_with(['.', '-', '+', ' ']);
    is_whole.then(|| Some(PythonRelease(number(major)?, number(&rest[..end])?)))?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(files: &[(&str, &str)], venv: bool) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let venv = venv.then(|| ("VIRTUAL_ENV".to_owned(), folder.path().join("venv").display().to_string()));
        let python = ProjectPython::of(folder.path(), None, &[], &venv.into_iter().collect()).unwrap();
        let shown = python.to_string();
        shown.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn project_python_is_that_of_the_first_file() {
        let venv = ("venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.9.18\n");
        assert_eq!(found(&[], true), "Python 3.12 (the default)");
        assert_eq!(found(&[venv], false), "Python 3.12 (the default)");
        assert_eq!(found(&[venv], true), "Python 3.9 (`venv/pyvenv.cfg`)");
        let uv = ("venv/pyvenv.cfg", "home = /usr/bin\nimplementation = CPython\nversion_info = 3.13.1.final.0\n");
        assert_eq!(found(&[uv], true), "Python 3.13 (`venv/pyvenv.cfg`)");
        assert_eq!(found(&[("runtime.txt", "python-3.10.4\n"), venv], true), "Python 3.10 (`runtime.txt`)");
        let pyenv = (".python-version", "\u{feff}# ours\r\n\r\n3.11\r\n");
        assert_eq!(found(&[pyenv, ("runtime.txt", "python-3.10.4"), venv], true), "Python 3.11 (`.python-version`)");
    }

    #[test]
    fn project_python_ignores_what_models_cannot_run_in() {
        for text in ["", "pypy3.10", "3", "2.7.18", "3.7.2", "3.x", "my-env", "system", "3.10rc", "99999999.1"] {
            assert_eq!(found(&[(".python-version", text)], false), "Python 3.12 (the default)", "{text}");
        }
        assert_eq!(found(&[(".python-version", "cpython-3.10.2-linux")], false), "Python 3.10 (`.python-version`)");
    }

    #[test]
    fn python_flag_is_a_version_that_models_can_run_in() {
        let parse = |text: &str| text.parse::<PythonRelease>().map(|release| release.to_string());
        assert_eq!(parse("3.10").as_deref(), Ok("3.10"));
        for text in ["", "3", "3.10.4", "python3.10", "3.7", "2.7", "4.1", "3.10-slim"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
