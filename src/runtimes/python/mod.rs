//! Models whose code is Python: environments, and the programs of their workers ([`super::workers`]).

mod check;
mod environment;
#[cfg(fuzzing)]
pub mod fuzzing;
mod script;
mod sdk;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Runtime;
use super::workers::{
    ModelToLoad, NewPool, PoolKey, WorkerLoadError, WorkerOptions, WorkerProgram, Workers, pool_group,
};
use crate::settings::ModelSettings;
pub use check::{StaticFinding, StaticFindingLevel};
pub use environment::PythonVersion;
use environment::{Environment, EnvironmentError, Environments};
pub use script::{SCRIPT_IMPLEMENTATION, ScriptDescription, ScriptError};
pub use sdk::{SdkError, installed_package, package_archive};

/// How Python models run, from the server's settings.
#[derive(Debug, Clone, Default)]
pub struct PythonOptions {
    pub workers: WorkerOptions,
    /// The archive with the environment of models without one of their own. Used only if `python_executable` is `None`.
    pub environment_tarball: Option<PathBuf>,
    pub working_directory: PathBuf,
    /// The environment variables of this process.
    pub variables: BTreeMap<String, String>,
}

/// The Python environments of a server, and the workers of its models. Clones share them.
#[derive(Debug, Clone)]
pub struct Python(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: PythonOptions,
    environments: Environments,
    workers: Workers,
    sdk: tokio::sync::OnceCell<PathBuf>,
}

/// Why a Python model could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PythonLoadError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Sdk(#[from] SdkError),
    #[error(transparent)]
    Worker(#[from] WorkerLoadError),
}

impl From<PythonLoadError> for super::LoadError {
    fn from(error: PythonLoadError) -> Self {
        Self::Python(Box::new(error))
    }
}

impl Python {
    pub fn new(options: PythonOptions) -> Self {
        let workers = Workers::new(options.workers.clone());
        Self(Arc::new(Shared {
            options,
            environments: Environments::default(),
            workers,
            sdk: tokio::sync::OnceCell::new(),
        }))
    }

    /// Returns the workers, which models without Python may share.
    pub fn workers(&self) -> &Workers {
        &self.0.workers
    }

    /// Returns the variables of the server's environment.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0.options.variables
    }

    /// Returns the interpreter that a model would run with. Unpacks a packed environment, but runs no code of the model.
    ///
    /// # Errors
    ///
    /// Fails if there is no interpreter, or none that is compatible.
    pub async fn interpreter(&self, settings: &ModelSettings) -> Result<PathBuf, PythonLoadError> {
        Ok(self.0.environments.of(settings, &self.0.options).await?.interpreter)
    }

    /// Loads a model. `not_native`, if given, is the reason why it is not evaluated natively, for its metadata.
    ///
    /// # Errors
    ///
    /// Fails if the model has no interpreter, or if its code cannot be imported or does not load.
    pub async fn load(
        &self,
        settings: &ModelSettings,
        not_native: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, PythonLoadError> {
        let environment = self.0.environments.of(settings, &self.0.options).await?;
        let sdk = self.0.sdk.get_or_try_init(|| sdk::install(&self.0.options.variables)).await?;
        let pool = self.pool(settings, &environment, sdk);
        Ok(self.0.workers.load(pool, ModelToLoad { settings, artifact: None, not_native }).await?)
    }

    /// Describes the pool of a model.
    fn pool(&self, settings: &ModelSettings, environment: &Environment, sdk: &Path) -> NewPool {
        let workers = self.0.options.workers.settings.parallel_workers;
        let inline = workers == 0 || settings.parallel_workers.is_some_and(|workers| workers <= 0);
        let key = PoolKey {
            environment: environment.key.clone(),
            group: pool_group(settings),
            inline,
            variables: settings.variables.clone(),
            memory_limit: settings.parameters.worker_memory_limit,
            is_native: false,
        };
        let size = if inline { 1 } else { workers.max(1) };
        let name = match (&key.group, &key.environment) {
            (Some(group), _) => group.clone(),
            (None, _) if !key.variables.is_empty() || key.memory_limit.is_some() => settings.name.clone(),
            (None, Some(_)) => environment.name.clone(),
            (None, None) if inline && workers > 0 => "inline".to_owned(),
            (None, None) => "default".to_owned(),
        };
        let set = environment.variables(sdk, &self.0.options, size);
        // Those that the server sets itself describe this machine.
        let own = key.variables.iter().filter(|(name, _)| set.iter().all(|(other, _)| other != name));
        let own = own.map(|(name, value)| (Cow::Owned(name.clone()), Some(value.into())));
        let variables = set.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).chain(own).collect();
        let program = WorkerProgram {
            executable: environment.interpreter.clone(),
            arguments: vec![sdk.join("mlserver").join("_worker").into_os_string()],
            title: None,
            variables,
        };
        NewPool { key, name, program, size, threads: None }
    }
}
