//! Polls of the repository: changed models are loaded, new ones too, and deleted ones are unloaded.
//!
//! A state counts once two looks have seen it, since files are written one after the other. It is compared once more after the load, and
//! what was read in the middle of a change is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::{Admin, AdminError, AdminState, index};
use crate::registry::chain;
use crate::repository::{Artifact, Discovery, DiscoveryError, disk_state};
use crate::settings::ModelSettings;

/// How many changed models are loaded, and how many stores are listed, at once.
const CONCURRENCY: usize = 4;

/// Looks for changes of the repository.
#[derive(Debug)]
pub struct Poller {
    admin: Admin,
    /// Whether models of new folders are loaded.
    loads_new: bool,
    known: BTreeMap<String, Known>,
    /// Whether the last look failed, which is reported once.
    has_failed: bool,
}

/// What earlier looks have found of a name.
#[derive(Debug, Default)]
struct Known {
    /// The state that was loaded, or could not be.
    settled: Option<blake3::Hash>,
    /// What the last look has seen, if it was another one.
    pending: Option<Seen>,
}

/// What a look finds of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    State(blake3::Hash),
    Gone,
    /// Such as a model whose store cannot be reached.
    Unknown,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Load(blake3::Hash),
    Unload,
}

impl Known {
    fn look(&mut self, seen: Seen) -> Step {
        match seen {
            Seen::Unknown => Step::Nothing,
            Seen::State(state) if self.settled == Some(state) => {
                self.pending = None;
                Step::Nothing
            }
            seen if self.pending != Some(seen) => {
                self.pending = Some(seen);
                Step::Nothing
            }
            Seen::State(state) => Step::Load(state),
            Seen::Gone => Step::Unload,
        }
    }
}

impl Poller {
    /// Creates a poller, for which the present state of the repository is known. To be called before models are loaded.
    pub async fn new(admin: Admin, loads_new: bool) -> Self {
        let mut poller = Self { admin, loads_new, known: BTreeMap::new(), has_failed: false };
        if let Some(seen) = poller.look().await {
            let states = seen.into_iter().filter_map(|(name, seen)| match seen {
                Seen::State(state) => Some((name, Known { settled: Some(state), pending: None })),
                Seen::Gone | Seen::Unknown => None,
            });
            poller.known = states.collect();
        }
        poller
    }

    /// Looks at the repository again and again, until the server stops.
    pub async fn run(mut self, every: Duration) {
        let stopping = self.admin.state.stopping.clone();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let polls = async {
            loop {
                ticks.tick().await;
                self.poll().await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = polls => {}
        }
    }

    async fn poll(&mut self) {
        let Some(mut seen) = self.look().await else { return };
        let names: BTreeSet<String> = self.known.keys().chain(seen.keys()).cloned().collect();
        let mut loads = Vec::new();
        for name in names {
            let known = self.known.entry(name.clone()).or_default();
            match known.look(seen.remove(&name).unwrap_or(Seen::Gone)) {
                Step::Nothing => {}
                Step::Load(state) if self.is_wanted(&name) => loads.push((name, state)),
                // A model that was unloaded by request stays so.
                Step::Load(state) => self.settle(&name, state),
                Step::Unload => {
                    self.known.remove(&name);
                    self.unload(&name).await;
                }
            }
        }
        let admin = &self.admin;
        let loads = loads.into_iter().map(|(name, state)| async move {
            let is_settled = admin.load_state(&name, state).await;
            (name, state, is_settled)
        });
        let loaded: Vec<_> = stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).collect().await;
        for (name, state, is_settled) in loaded {
            if is_settled {
                self.settle(&name, state);
            } else if let Some(known) = self.known.get_mut(&name) {
                known.pending = None;
            }
        }
    }

    /// Reports whether a changed model is loaded: one that is loaded or should be, or that is new.
    fn is_wanted(&self, name: &str) -> bool {
        let state = &self.admin.state;
        let is_new = self.known.get(name).is_none_or(|known| known.settled.is_none());
        is_new && self.loads_new
            || !state.registry.versions(name).is_empty()
            || state.failures.lock().contains_key(name)
    }

    fn settle(&mut self, name: &str, state: blake3::Hash) {
        if let Some(known) = self.known.get_mut(name) {
            *known = Known { settled: Some(state), pending: None };
        }
    }

    async fn unload(&self, name: &str) {
        if self.admin.state.registry.versions(name).is_empty() {
            return;
        }
        info!(
            model = name,
            "Model '{name}' is no longer in the repository, so it is unloaded (`repository_poll_interval`)."
        );
        match self.admin.unload(name).await {
            Ok(()) | Err(AdminError::NotFound(_) | AdminError::Stopping) => {}
            Err(error) => warn!(model = name, "Couldn't unload model '{name}': {error}"),
        }
    }

    /// Returns what every name of the repository looks like now, or `None`, with a warning the first time, if that is not known.
    async fn look(&mut self) -> Option<BTreeMap<String, Seen>> {
        let state = Arc::clone(&self.admin.state);
        match state.look().await {
            Ok(seen) => {
                if std::mem::take(&mut self.has_failed) {
                    info!("The repository can be searched again.");
                }
                Some(seen)
            }
            Err(reason) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("Couldn't search the repository for changes: {reason}. What is loaded keeps serving.");
                }
                None
            }
        }
    }
}

impl Admin {
    /// Loads a name if the repository still has a state of it, also after the load. Returns whether it was tried with this state.
    async fn load_state(&self, name: &str, expected: blake3::Hash) -> bool {
        let (state, of_load) = (Arc::clone(&self.state), name.to_owned());
        let changed = Arc::new(AtomicBool::new(false));
        let has_changed = Arc::clone(&changed);
        let load = self.run(async move {
            let _guard = state.locks.lock(&of_load).await;
            let loaded = state.load_locked(&of_load, Some(expected)).await;
            if matches!(loaded, Ok(false)) {
                has_changed.store(true, Ordering::Relaxed);
            }
            loaded.map(drop)
        });
        let loaded = match load {
            Ok(load) => load.await,
            Err(error) => Err(error),
        };
        match loaded {
            Ok(()) => !changed.load(Ordering::Relaxed),
            // Tried again at the next look, which reports that the store cannot be listed.
            Err(
                AdminError::Overloaded { .. }
                | AdminError::Stopping
                | AdminError::Repository(DiscoveryError::Custom(_)),
            ) => false,
            // The log has a line.
            Err(AdminError::Load { .. } | AdminError::Repository(_)) => true,
            Err(error) => {
                warn!(model = name, "Couldn't load model '{name}', which has changed: {}", chain(&error));
                true
            }
        }
    }
}

impl AdminState {
    /// Returns what every name of the repository looks like, or why that is not known.
    async fn look(&self) -> Result<BTreeMap<String, Seen>, String> {
        if let Some(source) = self.repository.source() {
            source.refresh(Duration::ZERO).await.map_err(|error| error.reason)?;
        }
        let root = self.repository.root();
        if self.repository.custom().is_none() && !root.exists() {
            return Err(format!("`{}` does not exist", root.display()));
        }
        let Discovery { models, errors } = self.scan(None).await.map_err(|error| chain(&error))?;
        let mut names: BTreeMap<String, Vec<ModelSettings>> = BTreeMap::new();
        for model in models {
            names.entry(model.settings.name.clone()).or_default().push(model.settings);
        }
        let states = names.into_iter().map(|(name, versions)| async move {
            let state = self.state_of(&versions).await;
            (name, state.map_or(Seen::Unknown, Seen::State))
        });
        let mut seen: BTreeMap<String, Seen> =
            stream::iter(states.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY).collect().await;
        // Settings that cannot be read are a state, too, whose load fails with the reason.
        let mut loaded: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for model in self.registry.models() {
            loaded.entry(model.name.clone()).or_default().push(model);
        }
        for (name, versions) in loaded {
            if let Some(error) = errors.iter().find(|error| index::concerns(error, &name, root, &versions)) {
                seen.insert(name, Seen::State(blake3::hash(chain(error).as_bytes())));
            }
        }
        Ok(seen)
    }

    /// Returns a hash of the files of all versions of a name, or `None` if it is not known.
    pub(super) async fn state_of(&self, versions: &[ModelSettings]) -> Option<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        for settings in versions {
            if let Some(fetcher) = &self.fetcher
                && fetcher.is_remote(settings)
            {
                hasher.update(fetcher.state(settings).await?.as_bytes());
            }
            let (repository, settings) = (Arc::clone(&self.repository), settings.clone());
            let state = move || {
                let folder = settings.folder();
                let path_state = |path: &Path| match repository.source() {
                    Some(source) if path.starts_with(repository.root()) => source.state(path),
                    _ => Some(disk_state(path)),
                };
                let mut hasher = blake3::Hasher::new();
                hasher.update(settings.version().unwrap_or_default().as_bytes());
                if let Some(folder) = folder {
                    hasher.update(folder.as_os_str().as_encoded_bytes()).update(path_state(folder)?.as_bytes());
                }
                let uri = settings.parameters.uri.as_deref();
                let artifact = match Artifact::resolve(&settings, repository.working_directory()) {
                    Ok(Artifact::Path(path)) => Some(path),
                    // In a store, the folder only has settings.
                    Err(_) => folder.zip(uri).map(|(folder, uri)| folder.join(uri)),
                    Ok(Artifact::Remote(_)) => None,
                };
                if let Some(path) = artifact.filter(|path| {
                    let is_outside = path.components().any(|part| part == Component::ParentDir);
                    is_outside || folder.is_none_or(|folder| !path.starts_with(folder))
                }) {
                    hasher.update(path_state(&path)?.as_bytes());
                }
                Some(hasher.finalize())
            };
            hasher.update(tokio::task::spawn_blocking(state).await.ok()??.as_bytes());
        }
        Some(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_count_at_the_second_look() {
        let [first, second, third] = [b"1", b"2", b"3"].map(|text| blake3::hash(text));
        let mut known = Known { settled: Some(first), pending: None };
        assert_eq!(known.look(Seen::State(first)), Step::Nothing);
        assert_eq!(known.look(Seen::State(second)), Step::Nothing, "it may be half of a change");
        assert_eq!(known.look(Seen::State(third)), Step::Nothing);
        assert_eq!(known.look(Seen::Unknown), Step::Nothing);
        assert_eq!(known.look(Seen::State(third)), Step::Load(third));
        known = Known { settled: Some(third), pending: None };
        assert_eq!(known.look(Seen::State(third)), Step::Nothing, "also a failed load is not repeated");
        assert_eq!(known.look(Seen::Gone), Step::Nothing);
        assert_eq!(known.look(Seen::State(third)), Step::Nothing, "it was replaced");
        assert_eq!(known.look(Seen::Gone), Step::Nothing);
        assert_eq!(known.look(Seen::Gone), Step::Unload);
    }
}
