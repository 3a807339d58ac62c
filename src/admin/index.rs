//! The index: the models on disk, and the state of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::Failures;
use crate::registry::{ModelState, RegisteredModel, RuntimeStatus, chain};
use crate::repository::{Discovery, DiscoveryError};

/// The state of a version of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// It answers requests.
    Ready,
    /// It is being loaded for the first time. During a reload, a version stays ready.
    Loading,
    /// It is not loaded.
    Unavailable,
}

impl IndexState {
    /// Returns the protocol's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Loading => "LOADING",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// One version of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    pub name: String,
    pub version: Option<String>,
    pub state: IndexState,
    /// Why the last load failed, or another remark; usually empty.
    pub reason: String,
}

/// Lists every version on disk, in the order of the files, then the loaded versions that are no longer on disk, then the
/// settings files that cannot be read, under the name of their folder.
pub(super) fn index(discovery: &Discovery, models: &[Arc<RegisteredModel>], failures: &Failures) -> Vec<IndexEntry> {
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    let by_version: BTreeMap<_, _> = models.iter().map(|model| ((&model.name, &model.version), model)).collect();
    for found in &discovery.models {
        let (name, version) = (&found.settings.name, &found.settings.parameters.version);
        if seen.insert((name, version)) {
            let loaded = by_version.get(&(name, version)).copied();
            let failure = failures.get(name).and_then(|versions| versions.get(version)).cloned();
            entries.push(entry(name, version.as_deref(), loaded.map(Arc::as_ref), failure));
        }
    }
    for model in models.iter().filter(|model| !seen.contains(&(&model.name, &model.version))) {
        let unread = discovery.errors.iter().find(|error| hides(error, model));
        let gone = match model.source {
            Some(_) => "its settings file no longer exists",
            None => "the repository no longer lists it",
        };
        let reason = unread.map_or_else(|| gone.to_owned(), |error| chain(error));
        entries.push(entry(&model.name, model.version.as_deref(), Some(model), Some(reason)));
    }
    for error in &discovery.errors {
        if let DiscoveryError::Listed { name, .. } = error {
            entries.push(entry(name, None, None, Some(chain(error))));
        }
        if let DiscoveryError::Settings { path, .. } = error
            && !models.iter().any(|model| hides(error, model))
            && let Some(folder) = path.parent().and_then(Path::file_name)
        {
            entries.push(entry(&folder.to_string_lossy(), None, None, Some(chain(error))));
        }
    }
    entries
}

fn entry(name: &str, version: Option<&str>, loaded: Option<&RegisteredModel>, note: Option<String>) -> IndexEntry {
    let (state, reason) = match loaded.map(|model| &model.state) {
        Some(ModelState::Ready(runtime)) => match runtime.status() {
            RuntimeStatus::Unavailable { reason } => (IndexState::Unavailable, reason),
            RuntimeStatus::Available { remark } => (IndexState::Ready, note.or(remark).unwrap_or_default()),
        },
        Some(ModelState::Loading) => (IndexState::Loading, String::new()),
        Some(ModelState::Failed { reason }) => (IndexState::Unavailable, reason.clone()),
        None => (IndexState::Unavailable, note.unwrap_or_default()),
    };
    IndexEntry { name: name.to_owned(), version: version.map(str::to_owned), state, reason }
}

/// Reports whether an error makes the list of versions of `name` unreliable: the settings that could not be read are those that
/// a version is loaded from, or are below a folder of that name.
pub(super) fn concerns(error: &DiscoveryError, name: &str, root: &Path, loaded: &[Arc<RegisteredModel>]) -> bool {
    if let DiscoveryError::Listed { name: of, .. } = error {
        return of == name;
    }
    let Some(path) = error.path() else { return false };
    let below = path.strip_prefix(root).unwrap_or(path);
    if matches!(error, DiscoveryError::Unconfigured(_)) {
        // The repository as a whole need not be one model.
        return below.iter().next().is_some_and(|folder| folder == name);
    }
    below.as_os_str().is_empty()
        || below.iter().any(|folder| folder == name)
        || loaded.iter().any(|model| hides(error, model))
}

/// Reports whether the settings file of a model is the path that could not be read, or is below it.
fn hides(error: &DiscoveryError, model: &RegisteredModel) -> bool {
    error.path().zip(model.source.as_deref()).is_some_and(|(path, source)| source.starts_with(path))
}
