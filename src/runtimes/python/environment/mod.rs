//! Finds the interpreter that runs a model, and its environment variables.

mod archives;
mod expand;
mod interpreter;
mod packages;
mod packed_version;
mod relocate;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;
use tracing::warn;

use super::PythonOptions;
use crate::settings::ModelSettings;
use crate::types::chain;
use archives::{ArchiveError, Archives};
use expand::expand;
pub use interpreter::PythonVersion;
pub(super) use interpreter::run as run_program;
use interpreter::{Interpreter, InterpreterError, probe};
use relocate::VenvFile;

/// How much freed memory glibc keeps for reuse: the values that it would choose itself after a block of 32 MiB was freed.
/// With lower values, tensors of a megabyte make it return memory to the kernel and request it again in each call, which
/// costs more than copying the tensors.
const MEMORY_VARIABLES: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

/// The environment variables by which numeric libraries choose their number of threads.
const THREAD_VARIABLES: [&str; 6] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
];

/// The possible paths of an environment's interpreter.
const PYTHON_NAMES: [&str; 2] = ["bin/python", "bin/python3"];

/// Why a model has no usable environment.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EnvironmentError {
    #[error("cannot use `environment_path` {}", path.display())]
    Folder { path: PathBuf, source: Arc<io::Error> },
    #[error("`environment_path` {} is a file; use `environment_tarball` for packed environments", path.display())]
    File { path: PathBuf },
    #[error(
        "the environment {} contains no interpreter ({}) and no packages",
        path.display(), PYTHON_NAMES.map(|name| format!("`{name}`")).join(", ")
    )]
    NoInterpreter { path: PathBuf },
    #[error("the environment {} was created for Python {wanted}, but its `{name}` is Python {found}", path.display())]
    WrongVersion { path: PathBuf, name: &'static str, wanted: PythonVersion, found: PythonVersion },
    #[error(
        "{package} in {} was built for another version of Python: expected {wanted}, found Python {found} (`{}`)",
        path.display(), interpreter.display()
    )]
    WrongPackage { path: PathBuf, package: String, wanted: String, found: PythonVersion, interpreter: PathBuf },
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// The interpreter of models without an environment, in place of which the operator may name another.
    #[error("{} (set `python_executable` to use another)", chain(.0))]
    DefaultInterpreter(InterpreterError),
    #[error("cannot use the packed environment `{}`", path.display())]
    Archive { path: PathBuf, source: Arc<ArchiveError> },
    #[error(
        "no Python interpreter found: looked next to the executable, in `VIRTUAL_ENV`, and for `python3` in PATH (set `python_executable` to use another)"
    )]
    NoPython,
}

/// An interpreter, and the location of its packages.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// Identifies the environment; `None` for the server's own.
    pub(super) key: Option<String>,
    /// The environment's name in logs.
    pub(super) name: String,
    pub(super) interpreter: PathBuf,
    packages: PackageLocation,
}

/// Where an environment's packages are.
#[derive(Debug, Clone)]
enum PackageLocation {
    /// The interpreter finds them by itself.
    Interpreter,
    /// In the environment's folder, which also contains the interpreter.
    Folder { path: PathBuf, conda: bool },
    /// In this folder, in addition to those of the interpreter.
    Packages(PathBuf),
}

/// The environments of a server.
#[derive(Debug, Default)]
pub(super) struct Environments {
    archives: Archives,
    /// The environment of models without one of their own.
    default: OnceCell<(Environment, PythonVersion)>,
}

impl Environments {
    /// Returns the environment that a model's settings name, or the server's.
    ///
    /// # Errors
    ///
    /// Fails if the environment is missing, broken or incompatible.
    pub(super) async fn of(
        &self,
        settings: &ModelSettings,
        options: &PythonOptions,
    ) -> Result<Environment, EnvironmentError> {
        let parameters = &settings.parameters;
        if let Some(path) = &parameters.environment_path {
            return self.in_folder(&options.working_directory.join(expand(path, &options.variables)), options).await;
        }
        if let Some(path) = &parameters.environment_tarball {
            let folder = settings.folder().unwrap_or(&options.working_directory);
            return self.packed(&folder.join(expand(path, &options.variables)), options).await;
        }
        Ok(self.default(options).await?.0.clone())
    }

    /// Unpacks an archive, unless it is already unpacked, and opens the environment in it.
    async fn packed(&self, path: &Path, options: &PythonOptions) -> Result<Environment, EnvironmentError> {
        let dir = options.working_directory.join(&options.workers.settings.environments_dir);
        let unpacked = self.archives.unpack(path, &dir, &interpreter_folders(options)).await;
        let failed = |source| EnvironmentError::Archive { path: path.to_owned(), source: Arc::new(source) };
        let unpacked = unpacked.map_err(failed)?;
        let (environment, _) = with_interpreter(unpacked.folder.clone(), unpacked.hash)
            .await?
            .ok_or(EnvironmentError::NoInterpreter { path: unpacked.folder })?;
        let name = path.file_name().map(|name| name.to_string_lossy());
        let name = name.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default();
        Ok(Environment { name: name.to_owned(), ..environment })
    }

    async fn in_folder(&self, path: &Path, options: &PythonOptions) -> Result<Environment, EnvironmentError> {
        let failed = |source| EnvironmentError::Folder { path: path.to_owned(), source: Arc::new(source) };
        // Links are resolved: a link that is changed later is another environment then.
        let folder = fs::canonicalize(path).map_err(failed)?;
        if folder.is_file() {
            return Err(EnvironmentError::File { path: folder });
        }
        let key = folder.to_string_lossy().into_owned();
        if let Some((environment, _)) = with_interpreter(folder.clone(), key.clone()).await? {
            return Ok(environment);
        }
        if !packages::contains_packages(&folder) {
            return Err(EnvironmentError::NoInterpreter { path: folder });
        }
        let (base, version) = self.default(options).await?;
        if let Some(packages::IncompatiblePackage { package, wanted }) = packages::find_incompatible(&folder, *version)
        {
            let (found, interpreter) = (*version, base.interpreter.clone());
            return Err(EnvironmentError::WrongPackage { path: folder, package, wanted, found, interpreter });
        }
        let name = name_of(&folder);
        Ok(Environment {
            key: Some(key),
            name,
            interpreter: base.interpreter.clone(),
            packages: PackageLocation::Packages(folder),
        })
    }

    /// Returns the environment of models without one of their own.
    async fn default(&self, options: &PythonOptions) -> Result<&(Environment, PythonVersion), EnvironmentError> {
        let find = || async {
            if options.workers.settings.python_executable.is_none()
                && let Some(tarball) = &options.environment_tarball
            {
                let path = options.working_directory.join(tarball);
                if path.exists() {
                    let environment = self.packed(&path, options).await?;
                    let Interpreter { version, .. } = probe(&environment.interpreter).await?;
                    return Ok((Environment { key: None, name: "default".to_owned(), ..environment }, version));
                }
                // Images set the variable whether or not the file exists.
                warn!("`{}` (`MLSERVER_ENV_TARBALL`) does not exist.", path.display());
            }
            let interpreter = default_interpreter(options).ok_or(EnvironmentError::NoPython)?;
            let found = probe(&interpreter).await.map_err(EnvironmentError::DefaultInterpreter)?;
            let version = found.version;
            let packages = PackageLocation::Interpreter;
            Ok((Environment { key: None, name: "default".to_owned(), interpreter, packages }, version))
        };
        self.default.get_or_try_init(find).await
    }
}

/// Opens the environment in a folder. Returns `None` if the folder has no interpreter.
async fn with_interpreter(
    folder: PathBuf,
    key: String,
) -> Result<Option<(Environment, PythonVersion)>, EnvironmentError> {
    let found = PYTHON_NAMES.into_iter().find(|name| folder.join(name).symlink_metadata().is_ok());
    let Some(name) = found else { return Ok(None) };
    let interpreter = folder.join(name);
    let version = probe(&interpreter).await?.version;
    let wanted = VenvFile::read(&folder).and_then(|file| file.version);
    if let Some(wanted) = wanted.filter(|wanted| *wanted != version) {
        return Err(EnvironmentError::WrongVersion { path: folder, name, wanted, found: version });
    }
    let conda = folder.join("conda-meta").is_dir();
    let name = name_of(&folder);
    let packages = PackageLocation::Folder { path: folder, conda };
    Ok(Some((Environment { key: Some(key), name, interpreter, packages }, version)))
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "environment".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Environment {
    /// Returns the environment variables of this environment's workers, `workers` of which share the machine. `None`
    /// removes a variable.
    pub(super) fn variables(
        &self,
        sdk: &Path,
        options: &PythonOptions,
        workers: usize,
    ) -> Vec<(&'static str, Option<OsString>)> {
        let set = |name: &str| options.variables.get(name).filter(|value| !value.is_empty());
        let prepend = |first: PathBuf, name: &str| {
            let mut list = first.into_os_string();
            if let Some(others) = set(name) {
                list.push(":");
                list.push(others);
            }
            list
        };
        let mut variables = vec![("PYTHONUNBUFFERED", Some("1".into()))];
        match &self.packages {
            PackageLocation::Interpreter => {
                variables.push(("PYTHONPATH", Some(prepend(sdk.to_owned(), "PYTHONPATH"))));
            }
            PackageLocation::Packages(folder) => {
                let mut path = sdk.as_os_str().to_owned();
                path.push(":");
                path.push(prepend(folder.clone(), "PYTHONPATH"));
                variables.push(("PYTHONPATH", Some(path)));
                variables.push(("PATH", Some(prepend(folder.join("bin"), "PATH"))));
            }
            // Models see only the packages of this environment.
            PackageLocation::Folder { path, conda } => {
                let prefix = if *conda { "CONDA_PREFIX" } else { "VIRTUAL_ENV" };
                let other = if *conda { "VIRTUAL_ENV" } else { "CONDA_PREFIX" };
                variables.extend([
                    ("PYTHONPATH", Some(sdk.as_os_str().to_owned())),
                    ("PYTHONHOME", None),
                    ("PYTHONNOUSERSITE", Some("1".into())),
                    ("PATH", Some(prepend(path.join("bin"), "PATH"))),
                    (prefix, Some(path.clone().into())),
                    (other, None),
                ]);
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (cores / workers.max(1)).max(1).to_string();
        for name in THREAD_VARIABLES {
            if set(name).is_none() {
                variables.push((name, Some(threads.clone().into())));
            }
        }
        let memory = MEMORY_VARIABLES.into_iter().filter(|(name, _)| set(name).is_none());
        variables.extend(memory.map(|(name, value)| (name, Some(value.into()))));
        variables
    }
}

/// Returns the interpreter of models without an environment of their own.
fn default_interpreter(options: &PythonOptions) -> Option<PathBuf> {
    if let Some(interpreter) = &options.workers.settings.python_executable {
        return Some(options.working_directory.join(interpreter));
    }
    let folders = interpreter_folders(options);
    // On some machines `python` is Python 2.
    let paths = ["python3", "python"].into_iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

/// Returns the folders that may contain interpreters: those of the setting, of the executable and of an active virtual
/// environment, and those in PATH.
fn interpreter_folders(options: &PythonOptions) -> Vec<PathBuf> {
    let configured = options
        .workers
        .settings
        .python_executable
        .iter()
        .filter_map(|path| options.working_directory.join(path).parent().map(Path::to_owned));
    let next_to_executable =
        std::env::current_exe().ok().and_then(|executable| executable.parent().map(Path::to_owned));
    let active = options.variables.get("VIRTUAL_ENV").map(|folder| Path::new(folder).join("bin"));
    let path = options.variables.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    configured.chain(next_to_executable).chain(active).chain(path.into_iter().flatten()).collect()
}

/// Unpacks an archive into `root`, and reports whether it was valid.
#[cfg(fuzzing)]
pub(super) fn unpack_for_fuzzing(archive: &std::path::Path, root: &std::path::Path) -> bool {
    archives::fill(archive, root).is_ok()
}
