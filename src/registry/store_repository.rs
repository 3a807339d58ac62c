//! A repository of models in an object store.
//!
//! Its settings files are mirrored in a folder of this machine, which is searched like any other. Each model is fetched with its whole folder
//! when it is loaded, and is then loaded from the cache: relative paths of its settings, and modules beside them, are found there.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use tracing::{info, warn};

use super::{LoadError, ModelFetcher, chain};
use crate::families::{MLMODEL, ModelFamily};
use crate::repository::{CustomError, FolderSource};
use crate::settings::{MODEL_SETTINGS_FILE, ModelSettings, SETTINGS_FILE};
use crate::storage::{Mirror, OfflinePolicy, RemoteFile, SnapshotUse, Storage, StorageError, StorageUri};

/// The most bytes of a settings file or a manifest.
const MAX_SETTINGS: u64 = 1 << 20;
/// How much of a model file is mirrored: more than what tells its kind.
const BEGINNING: u64 = 16 << 10;

/// A repository of models in a store.
#[derive(Debug)]
pub(super) struct StoreRepository {
    storage: Storage,
    uri: StorageUri,
    folder: MirrorLink,
    /// The last look at the store. Held during a look, so that others wait for it.
    last: tokio::sync::Mutex<Option<Look>>,
    files: Mutex<Option<Arc<Vec<RemoteFile>>>>,
    /// Keeps the mirror in the cache.
    used: Mutex<Option<SnapshotUse>>,
}

/// Where the files of a model are in the store.
#[derive(Debug, Default)]
pub(super) struct ModelObjects {
    /// The folder of its settings.
    pub(super) folder: Option<StorageUri>,
    /// What the relative path of its artifact names.
    pub(super) artifact: Option<StorageUri>,
    /// Whether the folder has the artifact.
    pub(super) is_inside: bool,
}

#[derive(Debug)]
struct Look {
    began: Instant,
    failure: Option<CustomError>,
}

impl StoreRepository {
    /// Opens the repository, whose models appear in `folder`.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed, and `offline` does not allow the last known state.
    pub(super) async fn open(
        storage: Storage,
        uri: StorageUri,
        folder: &Path,
        offline: OfflinePolicy,
    ) -> Result<Self, StorageError> {
        let folder = MirrorLink::new(folder);
        let (last, files, used) = (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        let repository = Self { storage, uri, folder, last, files, used };
        repository.look(offline).await?;
        let shown = repository.uri.shown();
        info!("Serving the models of `{shown}`, whose settings are in `{}`.", repository.folder.link.display());
        Ok(repository)
    }

    /// Returns what is not read in the store, if it is there.
    pub(super) fn warning(&self) -> Option<String> {
        let files = self.files.lock();
        files.iter().flat_map(|files| files.iter()).any(|file| file.path == SETTINGS_FILE).then(|| {
            format!(
                "`{SETTINGS_FILE}` in `{}` is not read, since others may write to the store: use `--settings` or \
                 environment variables.",
                self.uri.shown()
            )
        })
    }

    /// Lists the store, and switches the folder to what it has.
    async fn look(&self, offline: OfflinePolicy) -> Result<(), StorageError> {
        let Mirror { folder, used, files } = self.storage.mirror(&self.uri, wanted, offline).await?;
        self.folder.switch(&folder)?;
        *self.used.lock() = Some(used);
        *self.files.lock() = files.map(Arc::new);
        Ok(())
    }

    /// Returns where the files of a model are.
    ///
    /// # Errors
    ///
    /// Fails if the path of its artifact leads out of the repository.
    pub(super) fn objects(&self, settings: &ModelSettings) -> Result<ModelObjects, LoadError> {
        let uri = settings.parameters.uri.as_deref();
        let Some(source) = settings.source.as_deref() else {
            // A model without settings.
            let artifact = uri.and_then(|uri| self.below(Path::new(uri))).map(|path| self.uri.below(&path));
            return Ok(ModelObjects { folder: None, artifact, is_inside: false });
        };
        let Some(folder) = source.parent().and_then(|folder| self.below(folder)) else {
            return Ok(ModelObjects::default());
        };
        let (mut artifact, mut is_inside) = (None, false);
        if let Some(uri) = uri.filter(|uri| is_relative(uri)) {
            let path = joined(&folder, uri).ok_or_else(|| LoadError::Outside { uri: uri.to_owned() })?;
            is_inside = folder.is_empty() || path == folder || path.starts_with(&format!("{folder}/"));
            artifact = Some(self.uri.below(&path));
        }
        Ok(ModelObjects { folder: Some(self.uri.below(&folder)), artifact, is_inside })
    }

    /// Gives a model of the repository paths in the cache, and fetches them.
    pub(super) async fn localize(
        &self,
        mut settings: ModelSettings,
        fetcher: &ModelFetcher,
        used: &mut Vec<SnapshotUse>,
    ) -> Result<ModelSettings, LoadError> {
        let objects = self.objects(&settings)?;
        let mut source = None;
        if let Some(folder) = &objects.folder {
            let mut local = fetcher.fetch_model(folder, None, &settings, used).await?;
            // The cache returns the only file of a folder.
            if local.is_file() {
                local.pop();
            }
            source = Some(local.join(MODEL_SETTINGS_FILE));
        }
        if let Some(artifact) = objects.artifact.filter(|_| !objects.is_inside) {
            let local = fetcher.fetch_model(&artifact, None, &settings, used).await?;
            settings.parameters.uri = Some(local.to_string_lossy().into_owned());
        }
        settings.source = source.or(settings.source);
        Ok(settings)
    }

    /// Returns the path below the repository, with `/`, of a path below its folder.
    fn below(&self, path: &Path) -> Option<String> {
        joined("", path.strip_prefix(&self.folder.link).ok()?.to_str()?)
    }
}

impl FolderSource for StoreRepository {
    fn refresh(&self, age: Duration) -> BoxFuture<'_, Result<(), CustomError>> {
        let asked = Instant::now();
        async move {
            let mut last = self.last.lock().await;
            if let Some(look) = last.as_ref().filter(|look| look.began + age >= asked) {
                return look.failure.clone().map_or(Ok(()), Err);
            }
            let began = Instant::now();
            // Only a start uses an old state.
            let looked = self.look(OfflinePolicy::Fail).await;
            let failure = looked.err().map(|error| CustomError { reason: chain(&error) });
            *last = Some(Look { began, failure: failure.clone() });
            failure.map_or(Ok(()), Err)
        }
        .boxed()
    }

    fn state(&self, path: &Path) -> Option<blake3::Hash> {
        let (path, files) = (self.below(path)?, self.files.lock().clone()?);
        let mut hasher = blake3::Hasher::new();
        let folder = format!("{path}/");
        let is_part = |file: &RemoteFile| path.is_empty() || file.path == path || file.path.starts_with(&folder);
        for file in files.iter().filter(|file| is_part(file)) {
            let size = file.size.map(|size| size.to_string()).unwrap_or_default();
            for part in [file.path.as_str(), &size, file.etag.as_deref().unwrap_or_default()] {
                hasher.update(part.as_bytes()).update(&[0]);
            }
        }
        Some(hasher.finalize())
    }
}

/// Returns the files that are mirrored, by their indices, and how many bytes of each: settings, manifests, and in folders without settings
/// the beginnings of model files.
fn wanted(files: &[RemoteFile]) -> Vec<(usize, u64)> {
    let first = |path: &str| path.split_once('/').map_or("", |(folder, _)| folder).to_owned();
    let is_settings = |path: &str| path.rsplit('/').next() == Some(MODEL_SETTINGS_FILE);
    let described: BTreeSet<String> =
        files.iter().filter(|file| is_settings(&file.path)).map(|file| first(&file.path)).collect();
    let limit = |file: &RemoteFile| {
        let path = Path::new(&file.path);
        let is_hidden = file.path.split('/').any(|part| part.starts_with('.'));
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_text = is_settings(&file.path)
            || path.file_name().is_some_and(|name| name == MLMODEL)
            || ["yaml", "yml"].contains(&extension);
        if is_hidden || path.file_name().is_some_and(|name| name == SETTINGS_FILE) {
            return None;
        }
        if is_text {
            if file.size.is_some_and(|size| size > MAX_SETTINGS) {
                warn!("`{}` is larger than {MAX_SETTINGS} bytes; the rest is not read.", file.path);
            }
            return Some(MAX_SETTINGS);
        }
        let is_model = !described.contains(&first(&file.path)) && ModelFamily::has_model_extension(path);
        is_model.then_some(BEGINNING)
    };
    let indices = files.iter().enumerate();
    let mut wanted: Vec<_> = indices.filter_map(|(index, file)| Some((index, limit(file)?))).collect();
    // If there are too many, settings come first.
    wanted.sort_by_key(|(index, limit)| (!is_settings(&files[*index].path), *limit != MAX_SETTINGS, *index));
    wanted
}

fn is_relative(uri: &str) -> bool {
    !uri.contains(':') && Path::new(uri).is_relative()
}

/// Joins a folder and a relative path, or returns `None` if it leads out of the repository.
fn joined(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop()?;
            }
            _ => {}
        }
    }
    Some(parts.join("/"))
}

/// A link to the current mirror, in a folder of its own.
#[derive(Debug)]
struct MirrorLink {
    link: PathBuf,
}

impl MirrorLink {
    fn new(link: &Path) -> Self {
        Self { link: link.to_owned() }
    }

    fn switch(&self, to: &Path) -> Result<(), StorageError> {
        let failed = |source: io::Error| StorageError::Write { path: self.link.clone(), source };
        let parent = self.link.parent().unwrap_or(Path::new("/"));
        if !parent.exists() {
            DirBuilder::new().mode(0o700).create(parent).map_err(failed)?;
        }
        if fs::read_link(&self.link).is_ok_and(|current| current == to) {
            return Ok(());
        }
        let next = parent.join(".next");
        let _ = fs::remove_file(&next);
        symlink(to, &next).and_then(|()| fs::rename(&next, &self.link)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        let file = |path: &&str| RemoteFile {
            key: (*path).to_owned(),
            path: (*path).to_owned(),
            size: Some(1),
            etag: None,
            hash: None,
        };
        paths.iter().map(file).collect()
    }

    #[test]
    fn settings_and_beginnings_of_models_without_settings_are_mirrored() {
        let files = files(&[
            "a/1/model-settings.json",
            "a/1/model.json",
            "b/model.ubj",
            "b/notes.md",
            "c/.hidden/model-settings.json",
            "c/graph.yaml",
            "settings.json",
            "weights.cbm",
        ]);
        let found: Vec<_> =
            wanted(&files).into_iter().map(|(index, limit)| (files[index].path.as_str(), limit)).collect();
        let expected = [
            ("a/1/model-settings.json", MAX_SETTINGS),
            ("c/graph.yaml", MAX_SETTINGS),
            ("b/model.ubj", BEGINNING),
            ("weights.cbm", BEGINNING),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn relative_paths_stay_in_the_repository() {
        for (folder, path, expected) in [
            ("m", "./model.json", Some("m/model.json")),
            ("m/1", "../shared/x", Some("m/shared/x")),
            ("m", "..", Some("")),
            ("m", "../../x", None),
            ("", "x", Some("x")),
        ] {
            assert_eq!(joined(folder, path).as_deref(), expected, "{folder} {path}");
        }
        assert!(is_relative("./m.json") && !is_relative("/m") && !is_relative("s3://b/m") && !is_relative("file:m"));
    }
}
