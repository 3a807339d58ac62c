//! A loader made of a closure, for tests. The integration tests include this file, too.

use std::fmt;
use std::sync::Arc;

use super::{FnRuntime, LoadError, Loader, ModelSettings, Runtime, RuntimeFuture};

/// Loads runtimes with a closure.
pub(crate) struct FnLoader(Box<dyn Fn(ModelSettings) -> RuntimeFuture<'static> + Send + Sync>);

impl FnLoader {
    pub(crate) fn new<F, R: Runtime>(load: impl Fn(ModelSettings) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<R, LoadError>> + Send + 'static,
    {
        Self(Box::new(move |settings| {
            let load = load(settings);
            Box::pin(async move { Ok(Arc::new(load.await?) as Arc<dyn Runtime>) })
        }))
    }

    /// Loads the same runtime for every model.
    pub(crate) fn fixed(runtime: impl Runtime) -> Self {
        let runtime: Arc<dyn Runtime> = Arc::new(runtime);
        Self(Box::new(move |_| Box::pin(std::future::ready(Ok(Arc::clone(&runtime))))))
    }

    /// Loads models that never answer.
    pub(crate) fn silent() -> Self {
        Self::fixed(FnRuntime::new(|_| std::future::pending()))
    }

    /// Loads no model to its end.
    pub(crate) fn never() -> Self {
        Self(Box::new(|_| Box::pin(std::future::pending())))
    }
}

impl fmt::Debug for FnLoader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FnLoader")
    }
}

impl Loader for FnLoader {
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_> {
        (self.0)(settings)
    }
}
