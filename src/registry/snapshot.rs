//! The immutable view of all models that requests read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RegisteredModel;
use super::routes::CustomRoutes;
use crate::repository;

/// The versions of one name.
pub(super) type ByVersion = BTreeMap<Option<String>, Arc<RegisteredModel>>;

/// The versions of one name, and the one that serves requests without a version.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelVersions {
    pub(super) all: ByVersion,
    pub(super) default: Option<Arc<RegisteredModel>>,
}

impl From<ByVersion> for ModelVersions {
    fn from(all: ByVersion) -> Self {
        let default = repository::default_version(all.keys().map(Option::as_deref));
        let default = default.map(|version| version.map(str::to_owned));
        let default = default.and_then(|version| all.get(&version)).cloned();
        Self { all, default }
    }
}

/// An immutable view of all models. A change copies one part of it, so that its cost hardly depends on the number of models.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    parts: Box<[Arc<SnapshotPart>]>,
    pub(super) routes: Arc<CustomRoutes>,
}

/// The names that have the same index.
type SnapshotPart = BTreeMap<String, Arc<ModelVersions>>;

/// The number of parts of a snapshot: of 10,000 names, each has about 80.
const PARTS: u8 = 128;

impl Default for Snapshot {
    fn default() -> Self {
        Self { parts: std::iter::repeat_with(Arc::default).take(usize::from(PARTS)).collect(), routes: Arc::default() }
    }
}

impl Snapshot {
    /// Returns the index of the part that a name belongs to.
    fn part_index(name: &str) -> usize {
        usize::from(name.bytes().fold(0_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte)) % PARTS)
    }

    pub(super) fn versions(&self, name: &str) -> Option<&Arc<ModelVersions>> {
        self.parts[Self::part_index(name)].get(name)
    }

    /// Returns the versions of all names, in no certain order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ModelVersions>> {
        self.named().map(|(_, versions)| versions)
    }

    /// Returns the same with the names.
    pub(super) fn named(&self) -> impl Iterator<Item = (&String, &Arc<ModelVersions>)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// Replaces the versions of a name. Without versions, the name is removed.
    pub(super) fn set(&mut self, name: &str, versions: ByVersion) {
        let part = Arc::make_mut(&mut self.parts[Self::part_index(name)]);
        if versions.is_empty() {
            part.remove(name);
        } else {
            part.insert(name.to_owned(), Arc::new(versions.into()));
        }
    }
}
