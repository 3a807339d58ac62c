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
use crate::types::PathTemplate;

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
    /// Tells whether a model's own route could never be reached, because its paths are the server's.
    pub is_reserved: fn(&PathTemplate) -> bool,
}

impl Loader for RuntimeLoader {
    fn load(&self, settings: ModelSettings) -> Loading<'_> {
        Box::pin(async move {
            match Implementation::of(&settings)? {
                Implementation::Identity => Ok(runtimes::identity()),
                Implementation::Python => {
                    let runtime = self.python.load(&settings).await.map_err(runtimes::LoadError::from)?;
                    match runtime.custom_routes().iter().find(|route| (self.is_reserved)(&route.template)) {
                        Some(route) => Err(LoadError::Reserved { route: route.template.to_string() }),
                        None => Ok(runtime),
                    }
                }
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
