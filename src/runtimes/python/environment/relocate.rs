//! Adapts an environment to the folder into which it has been unpacked.
//!
//! A conda environment contains a program for this: `conda-pack` adds `bin/conda-unpack`. A virtual environment refers to
//! the interpreter that it was created with by links and in `pyvenv.cfg`, and its scripts refer to its old folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tracing::debug;

use super::interpreter::{PythonVersion, probe, run};

/// A folder with this file is a virtual environment.
pub(super) const VENV_FILE: &str = "pyvenv.cfg";
/// The program that conda-pack adds to relocate an environment.
const CONDA_UNPACK: &str = "bin/conda-unpack";
/// How long this program may run.
const CONDA_TIMEOUT: Duration = Duration::from_mins(10);
/// The longest script that is rewritten, in bytes.
const MAX_SCRIPT: u64 = 1 << 20;

/// Why an unpacked environment cannot be used on this machine.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RelocateError {
    #[error("its `{CONDA_UNPACK}` failed: {reason}")]
    CondaUnpack { reason: String },
    #[error("it was created with {wanted}, which this machine does not have; looked at {}", listed(looked_at))]
    NoBase { wanted: String, looked_at: Vec<PathBuf> },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: Arc<io::Error> },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

/// The file of a virtual environment that describes the interpreter that it was created with.
#[derive(Debug, Default)]
pub(super) struct VenvFile {
    text: String,
    /// The folder of that interpreter.
    home: Option<PathBuf>,
    pub(super) version: Option<PythonVersion>,
}

impl VenvFile {
    /// Reads the file of an environment. Returns `None` if the folder is not a virtual environment.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(folder.join(VENV_FILE)).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
        let value = |wanted: &[&str]| {
            let mut pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(key, _)| wanted.contains(&key.trim())).map(|(_, value)| value.trim().to_owned())
        };
        let home = value(&["home"]).map(PathBuf::from);
        // The standard library writes the first, virtualenv and uv the second.
        let version = value(&["version", "version_info"]).and_then(|text| PythonVersion::parse(&text));
        Some(Self { text, home, version })
    }
}

/// Makes the environment in `folder` usable. `links` are the links to its interpreter, relative to the folder; `search`
/// lists folders that may contain another interpreter of the same version.
///
/// # Errors
///
/// Fails if there is no such interpreter, or if `conda-unpack` fails.
pub(super) async fn relocate(
    folder: &Path,
    links: &BTreeMap<PathBuf, PathBuf>,
    search: &[PathBuf],
) -> Result<(), RelocateError> {
    if let Some(file) = VenvFile::read(folder) {
        relocate_venv(folder, &file, links, search).await?;
    }
    if folder.join(CONDA_UNPACK).is_file() {
        conda_unpack(folder).await?;
    }
    Ok(())
}

async fn conda_unpack(folder: &Path) -> Result<(), RelocateError> {
    let failed = |reason: String| RelocateError::CondaUnpack { reason };
    let mut command = Command::new(folder.join("bin/python"));
    command.args(["-E", "-s"]).arg(folder.join(CONDA_UNPACK)).current_dir(folder);
    match run(&mut command, CONDA_TIMEOUT).await {
        Ok(Some(ran)) if ran.status.success() => Ok(()),
        Ok(Some(ran)) => Err(failed(format!("it {ran}"))),
        Ok(None) => Err(failed(format!("it ran longer than {} s", CONDA_TIMEOUT.as_secs()))),
        Err(error) => Err(failed(format!("cannot run `bin/python`: {error}"))),
    }
}

async fn relocate_venv(
    folder: &Path,
    file: &VenvFile,
    links: &BTreeMap<PathBuf, PathBuf>,
    search: &[PathBuf],
) -> Result<(), RelocateError> {
    let names = file.version.map_or_else(Vec::new, |version| vec![format!("python{version}"), "python3".to_owned()]);
    let at_home = file.home.iter().flat_map(|home| names.iter().map(move |name| home.join(name)));
    let elsewhere = search.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let mut looked_at: Vec<PathBuf> = links.values().cloned().chain(at_home).chain(elsewhere).collect();
    let mut seen = BTreeSet::new();
    looked_at.retain(|path| seen.insert(path.clone()));
    let mut base = None;
    for candidate in looked_at.iter().filter(|path| path.is_file()) {
        match probe(candidate).await {
            Ok(found) if file.version.is_none_or(|wanted| wanted == found.version) => {
                base = Some((candidate, found));
                break;
            }
            Ok(found) => debug!(path = %candidate.display(), version = %found.version, "Skipped an interpreter."),
            Err(error) => debug!(%error, "Skipped an interpreter."),
        }
    }
    let Some((interpreter, found)) = base else {
        let version = file.version.map_or_else(|| "a Python".to_owned(), |version| format!("Python {version}"));
        let home = file.home.as_deref().map(|home| format!(" in `{}`", home.display())).unwrap_or_default();
        return Err(RelocateError::NoBase { wanted: version + &home, looked_at });
    };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RelocateError::Write { path, source: Arc::new(source) }
    };
    let home = file.home.as_deref().filter(|home| interpreter.parent() == Some(home));
    let interpreter = if home.is_some() { interpreter } else { &found.file };
    if home.is_none()
        && let Some(home) = interpreter.parent()
    {
        let path = folder.join(VENV_FILE);
        fs::write(&path, with_home(&file.text, home)).map_err(failed(&path))?;
    }
    for link in links.keys() {
        let path = folder.join(link);
        symlink(interpreter, &path).map_err(failed(&path))?;
    }
    let scripts = folder.join("bin");
    let homes: Vec<&Path> = file.home.as_deref().into_iter().chain(interpreter.parent()).collect();
    relocate_scripts(&scripts, &homes).map_err(failed(&scripts))
}

/// Returns the text of `pyvenv.cfg` with another home.
fn with_home(text: &str, home: &Path) -> String {
    let is_home = |line: &str| line.split_once('=').is_some_and(|(key, _)| key.trim() == "home");
    let others = text.lines().filter(|line| !is_home(line)).map(str::to_owned);
    [format!("home = {}", home.display())].into_iter().chain(others).flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Changes the scripts of an environment to use its own interpreter instead of the path at which it was packed. Scripts
/// that use an interpreter in `homes` stay as they are.
fn relocate_scripts(bin: &Path, homes: &[&Path]) -> io::Result<()> {
    for entry in fs::read_dir(bin)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if !metadata.is_file() || metadata.len() > MAX_SCRIPT {
            continue;
        }
        let text = fs::read(&path)?;
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else { continue };
        let Some(first) = text.strip_prefix(b"#!").and_then(|_| std::str::from_utf8(&text[2..end]).ok()) else {
            continue;
        };
        let interpreter = Path::new(first.trim());
        let name = interpreter.file_name().unwrap_or_default().to_string_lossy();
        let is_packed = interpreter.parent().is_some_and(|folder| !homes.contains(&folder) && folder.ends_with("bin"));
        if name.starts_with("python") && is_packed && bin.join(&*name).symlink_metadata().is_ok() {
            let mut line = OsString::from("#!");
            line.push(bin.join(&*name));
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path)?;
            file.write_all(line.as_encoded_bytes())?;
            file.write_all(&text[end..])?;
        }
    }
    Ok(())
}
