//! From a model's settings to its runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::LoadError;
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
                    let artefact = Artefact::resolve(&settings, &self.working_directory)?;
                    let path = match artefact {
                        Artefact::Path(path) => path,
                        Artefact::Remote(uri) => return Err(LoadError::Remote { uri }),
                    };
                    let compute = self.compute.clone();
                    let load = move || runtimes::load_trees(family, &settings, &path, &compute);
                    let loaded = self.compute.run(load).await.map_err(LoadError::Panicked)?;
                    Ok(loaded?)
                }
            }
        })
    }
}
