//! Models that this executable evaluates in a process of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use super::{ModelToLoad, NewPool, PoolKey, WorkerLoadError, WorkerProgram, Workers, pool_group};
use crate::platform;
use crate::runtimes::Runtime;
use crate::settings::ModelSettings;

impl Workers {
    /// Loads a model for native evaluation in a worker. `memory_limit` is that of a model without one in the settings, in bytes.
    ///
    /// # Errors
    ///
    /// Fails if no worker can be started, or if the model does not load there.
    pub async fn load_native(
        &self,
        settings: &ModelSettings,
        artifact: &Path,
        memory_limit: Option<u64>,
    ) -> Result<Arc<dyn Runtime>, WorkerLoadError> {
        let limits =
            [settings.parameters.worker_memory_limit, self.0.options.settings.worker_memory_limit, memory_limit];
        let key = PoolKey {
            environment: None,
            // A process of its own, also while an earlier version of the model is still served.
            group: Some(pool_group(settings).unwrap_or_else(|| uuid::Uuid::new_v4().to_string())),
            inline: false,
            variables: BTreeMap::new(),
            memory_limit: limits.into_iter().flatten().next(),
            is_native: true,
        };
        // Memory that the allocator reserves, but does not use, does not count against the limit.
        let variables = vec![(Cow::Borrowed("MIMALLOC_ARENA_EAGER_COMMIT"), Some("0".into()))];
        // Stays valid when the file is replaced while the server runs, if the system can do that.
        let executable = platform::own_executable().unwrap_or_else(|_| "mlserver".into());
        let program = WorkerProgram { executable, arguments: vec!["score".into()], title: Some("mlserver"), variables };
        let threads = settings.parameters.threads;
        let pool = NewPool { key, name: settings.name.clone(), program, size: 1, threads };
        self.load(pool, ModelToLoad { settings, artifact: Some(artifact), not_native: None }).await
    }
}

/// Returns how many predictions a worker runs at a time if its models do not say it: one per core that the workers of other models,
/// which run `used` at a time, leave.
pub(super) fn threads_left(used: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    cores.saturating_sub(used).max(1)
}
