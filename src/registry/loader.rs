//! From a model's settings to its runtime.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use super::{LoadError, chain};
use crate::compute::ComputePool;
use crate::repository::Artefact;
use crate::runtimes::python::Python;
use crate::runtimes::{self, BoxFuture, Implementation, Runtime};
use crate::settings::ModelSettings;

/// A runtime that is being loaded.
pub type Loading<'a> = BoxFuture<'a, Result<Arc<dyn Runtime>, LoadError>>;

/// Makes runtimes.
pub trait Loader: fmt::Debug + Send + Sync {
    /// Loads what `settings` describe. Dropping the future abandons the runtime.
    fn load(&self, settings: ModelSettings) -> Loading<'_>;
}

/// The loader of every runtime that this server has.
#[derive(Debug)]
pub struct RuntimeLoader {
    pub compute: ComputePool,
    /// Where the paths of models without a settings file start.
    pub working_directory: PathBuf,
    pub python: Python,
}

impl Loader for RuntimeLoader {
    fn load(&self, settings: ModelSettings) -> Loading<'_> {
        Box::pin(async move {
            match Implementation::of(&settings)? {
                Implementation::Identity => Ok(runtimes::identity()),
                Implementation::Python => Ok(self.python.load(&settings).await.map_err(runtimes::LoadError::from)?),
                Implementation::Trees(family) => {
                    let load = move |settings: &_, path: &_, compute: &_| {
                        runtimes::load_trees(family, settings, path, compute)
                    };
                    self.native(settings, load).await
                }
                Implementation::Sklearn { python: false } => self.native(settings, runtimes::load_sklearn).await,
                Implementation::Sklearn { python: true } => self.sklearn(settings).await,
            }
        })
    }
}

impl RuntimeLoader {
    /// Loads a model that the server evaluates itself, from its artefact.
    async fn native<F>(&self, settings: ModelSettings, load: F) -> Result<Arc<dyn Runtime>, LoadError>
    where
        F: FnOnce(&ModelSettings, &Path, &ComputePool) -> Result<Arc<dyn Runtime>, runtimes::LoadError>,
        F: Send + 'static,
    {
        let path = match Artefact::resolve(&settings, &self.working_directory)? {
            Artefact::Path(path) => path,
            Artefact::Remote(uri) => return Err(LoadError::Remote { uri }),
        };
        let compute = self.compute.clone();
        let load = move || load(&settings, &path, &compute);
        Ok(self.compute.run(load).await.map_err(LoadError::Panicked)??)
    }

    /// Loads an estimator; what is not evaluated natively goes to Python, if that has the libraries.
    async fn sklearn(&self, settings: ModelSettings) -> Result<Arc<dyn Runtime>, LoadError> {
        let refused = match self.native(settings.clone(), runtimes::load_sklearn).await {
            Err(LoadError::Runtime(error @ runtimes::LoadError::Estimator { .. })) => LoadError::Runtime(error),
            loaded => return loaded,
        };
        info!(model = settings.name, "not served natively, so Python is tried: {}", chain(&refused));
        self.python.load(&settings).await.map_err(|error| {
            warn!(model = settings.name, "not served by Python either: {}", chain(&error));
            refused
        })
    }
}
