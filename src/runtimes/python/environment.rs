//! Which interpreter runs a model, and with which variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::Options;
use crate::settings::ModelSettings;

/// How much memory glibc keeps for later: as much as it would once a block of 32 MiB had been freed. With less, tensors of
/// a megabyte make it give memory back and fetch it again for each call, which costs more than their copies.
const MEMORY_VARIABLES: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

/// What libraries for numbers read to decide how many threads they start.
const THREAD_VARIABLES: [&str; 6] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
];

/// Why there is no environment for a model.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EnvironmentError {
    #[error(
        "`environment_path` {} holds no interpreter: looked for {}",
        path.display(), PYTHON_NAMES.map(|name| format!("`{name}`")).join(", ")
    )]
    NoInterpreter { path: PathBuf },
    #[error(
        "no Python interpreter: looked beside the executable, in `VIRTUAL_ENV`, and for `python3` in PATH; `python_executable` names one"
    )]
    NoPython,
}

/// Where an environment's interpreter may be.
const PYTHON_NAMES: [&str; 3] = ["bin/python", "bin/python3", "Scripts/python.exe"];

/// An interpreter, and what must be set for it.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// Tells environments apart; nothing for the server's own.
    pub(super) key: Option<String>,
    /// How logs call it.
    pub(super) name: String,
    pub(super) interpreter: PathBuf,
    /// The folder of an environment of the model's own.
    folder: Option<PathBuf>,
}

impl Environment {
    /// Finds the environment that a model asks for, or the server's.
    ///
    /// # Errors
    ///
    /// Fails when it has no interpreter.
    #[expect(clippy::unused_async, reason = "archives are unpacked here")]
    pub(super) async fn of(settings: &ModelSettings, options: &Options) -> Result<Self, EnvironmentError> {
        if let Some(path) = &settings.parameters.environment_path {
            let folder = options.working_directory.join(expand(path, &options.variables));
            return Self::in_folder(folder.clone(), folder.to_string_lossy().into_owned());
        }
        let interpreter = default_interpreter(options).ok_or(EnvironmentError::NoPython)?;
        Ok(Self { key: None, name: "default".to_owned(), interpreter, folder: None })
    }

    fn in_folder(folder: PathBuf, key: String) -> Result<Self, EnvironmentError> {
        let found = PYTHON_NAMES.iter().map(|name| folder.join(name)).find(|path| path.exists());
        let interpreter = found.ok_or_else(|| EnvironmentError::NoInterpreter { path: folder.clone() })?;
        let name = folder.file_name().map_or_else(|| key.clone(), |name| name.to_string_lossy().into_owned());
        Ok(Self { key: Some(key), name, interpreter, folder: Some(folder) })
    }

    /// Returns the variables of this environment's workers, `workers` of which share the machine.
    pub(super) fn variables(&self, sdk: &Path, options: &Options, workers: usize) -> Vec<(&'static str, OsString)> {
        let set = |name: &str| options.variables.get(name).filter(|value| !value.is_empty());
        let mut variables = vec![("PYTHONUNBUFFERED", "1".into())];
        let mut python_path = sdk.as_os_str().to_owned();
        // An environment of the model's own is meant to be the only one that it sees.
        if let Some(theirs) = set("PYTHONPATH").filter(|_| self.folder.is_none()) {
            python_path.push(":");
            python_path.push(theirs);
        }
        variables.push(("PYTHONPATH", python_path));
        if let Some(folder) = &self.folder {
            variables.push(("VIRTUAL_ENV", folder.clone().into()));
            let mut path = folder.join("bin").into_os_string();
            if let Some(others) = set("PATH") {
                path.push(":");
                path.push(others);
            }
            variables.push(("PATH", path));
        }
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (cores / workers.max(1)).max(1).to_string();
        for name in THREAD_VARIABLES {
            if set(name).is_none() {
                variables.push((name, threads.clone().into()));
            }
        }
        let memory = MEMORY_VARIABLES.into_iter().filter(|(name, _)| set(name).is_none());
        variables.extend(memory.map(|(name, value)| (name, value.into())));
        variables
    }
}

/// The interpreter of models without an environment of their own.
fn default_interpreter(options: &Options) -> Option<PathBuf> {
    if let Some(interpreter) = &options.interpreter {
        return Some(options.working_directory.join(interpreter));
    }
    let beside = std::env::current_exe().ok().and_then(|executable| executable.parent().map(Path::to_owned));
    let virtual_environment = options.variables.get("VIRTUAL_ENV").map(|folder| Path::new(folder).join("bin"));
    let path = options.variables.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    let beside_names = beside.iter().flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)));
    let active = virtual_environment.iter().flat_map(|folder| ["python", "python3"].map(|name| folder.join(name)));
    let in_path = path.iter().flatten().map(|folder| folder.join("python3"));
    beside_names.chain(active).chain(in_path).find(|path| path.is_file())
}

/// Replaces a leading `~` and `$NAME` or `${NAME}` as shells do; unknown names stay as they are.
fn expand(path: &Path, variables: &BTreeMap<String, String>) -> PathBuf {
    let Some(text) = path.to_str() else { return path.to_owned() };
    let mut expanded = String::new();
    let mut rest = text;
    if let (Some(after), Some(home)) = (text.strip_prefix('~'), variables.get("HOME"))
        && (after.is_empty() || after.starts_with('/'))
    {
        expanded.push_str(home);
        rest = after;
    }
    while let Some(start) = rest.find('$') {
        expanded.push_str(&rest[..start]);
        let after = &rest[start + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, length) = if let Some((name, _)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            (name, name.len() + 2)
        } else {
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            (&after[..end], end)
        };
        match variables.get(name) {
            Some(value) => expanded.push_str(value),
            None => expanded.push_str(&rest[start..=start + length]),
        }
        rest = &after[length..];
    }
    expanded.push_str(rest);
    expanded.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded_as_shells_do() {
        let variables = [("HOME", "/home/me"), ("A", "x")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = variables.into();
        let cases = [
            ("~/env", "/home/me/env"),
            ("~other/env", "~other/env"),
            ("/a/$A/b", "/a/x/b"),
            ("${A}y/$NONE/${NONE}", "xy/$NONE/${NONE}"),
            ("$", "$"),
            ("a$A", "ax"),
        ];
        for (path, expected) in cases {
            assert_eq!(expand(Path::new(path), &variables), Path::new(expected), "{path}");
        }
    }
}
