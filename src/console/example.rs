//! An example of a request to a model: one that the model has answered, if the server evaluates it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::compute::ComputePool;
use crate::registry::{ModelState, RegisteredModel};
use crate::runtimes::{FileDescription, ModelFile, Runtime};
use crate::types::json::read_request_with;

/// How many models' examples are kept. Each has at most 10,000 elements.
const MAX_EXAMPLES: usize = 32;

/// How long requests are tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// Larger models are not read again for an example, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// A request for the form of a model.
#[derive(Debug)]
pub struct Example {
    pub request: Option<Arc<Value>>,
    /// Whether the model has answered it, or `None` if that was not tried: code of users runs only when somebody asks for a prediction.
    pub is_answered: Option<bool>,
}

impl Example {
    /// An example that the model need not answer.
    pub fn untried(request: Option<Value>) -> Self {
        Self { request: request.map(Arc::new), is_answered: None }
    }
}

/// The examples that models have answered: a page that asks for one again costs nothing.
#[derive(Debug, Default)]
pub(super) struct Examples(Mutex<VecDeque<Tried>>);

/// What trying the examples of a model gave.
#[derive(Debug, Clone)]
struct Tried {
    /// That of the model, so that another load is tried again.
    generation: u64,
    /// `None` if the model has answered none.
    answered: Option<Arc<Value>>,
}

impl Examples {
    /// Finds a request that a native model answers: `declared`, or else one of those that its file suggests.
    pub(super) async fn find(
        &self,
        model: &RegisteredModel,
        declared: Option<Value>,
        compute: &ComputePool,
    ) -> Example {
        let ModelState::Ready(runtime) = &model.state else { return Example::untried(declared) };
        let Some(file) = &runtime.description().file else { return Example::untried(declared) };
        let declared = declared.map(Arc::new);
        let answered = if let Some(known) = self.known(model.generation) {
            known.answered
        } else {
            // Others would be rejected, if requests are compared with what the settings declare.
            let suggested = Some(file).filter(|_| !model.validated || declared.is_none());
            let tried = tokio::time::timeout(PATIENCE, first_answered(runtime, declared.clone(), suggested, compute));
            let answered = tried.await.unwrap_or_default();
            self.keep(Tried { generation: model.generation, answered: answered.clone() });
            answered
        };
        let is_answered = (answered.is_some() || declared.is_some()).then_some(answered.is_some());
        Example { request: answered.or(declared), is_answered }
    }

    fn known(&self, generation: u64) -> Option<Tried> {
        self.0.lock().iter().find(|tried| tried.generation == generation).cloned()
    }

    /// Keeps one in place of what has been kept the longest.
    fn keep(&self, tried: Tried) {
        let mut kept = self.0.lock();
        kept.truncate(MAX_EXAMPLES - 1);
        kept.push_front(tried);
    }
}

/// Returns the first request that a model answers.
async fn first_answered(
    runtime: &Arc<dyn Runtime>,
    declared: Option<Arc<Value>>,
    suggested: Option<&ModelFile>,
    compute: &ComputePool,
) -> Option<Arc<Value>> {
    if let Some(declared) = declared
        && answers(runtime, &declared).await
    {
        return Some(declared);
    }
    let file = suggested?.clone();
    let read = move || is_small(&file.path).then(|| FileDescription::examples_of(&file).ok()).flatten();
    for request in compute.run(read).await.ok()?? {
        if answers(runtime, &request).await {
            return Some(Arc::new(request));
        }
    }
    None
}

/// Reports whether a model answers a request. Nothing counts or logs it.
async fn answers(runtime: &Arc<dyn Runtime>, request: &Value) -> bool {
    let rule = runtime.description().tensor_rule;
    let Ok(request) = read_request_with(request.to_string().as_bytes(), None, rule) else { return false };
    runtime.predict(request.request, Arc::new(())).await.is_ok()
}

/// Reports whether a file, or the files of a folder, may be read for an example.
fn is_small(path: &Path) -> bool {
    let size = |path: &Path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let Ok(entries) = std::fs::read_dir(path) else { return size(path).is_some_and(|size| size <= MAX_FILE) };
    let sizes = entries.flatten().filter_map(|entry| size(&entry.path()));
    sizes.fold(0_u64, u64::saturating_add) <= MAX_FILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_last_models_are_kept() {
        let examples = Examples::default();
        assert!(examples.known(0).is_none());
        for generation in 0..100 {
            examples.keep(Tried { generation, answered: None });
        }
        assert_eq!(examples.0.lock().len(), MAX_EXAMPLES);
        assert!(examples.known(99).is_some_and(|tried| tried.answered.is_none()));
        assert!(examples.known(0).is_none());
    }
}
