//! The models of object stores, as files of an image: `mlserver build --offline-models`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Value;

use super::CommandError;
use crate::image::{self, remote_models};
use crate::lock_file::{LOCK_FILE, LockFile};
use crate::registry::{FetchedModel, ModelFetcher, chain};
use crate::settings::ModelSettings;
use crate::ui::Ui;

/// The folder of a fetched model in the image, beside its settings. Hidden folders are not searched for models.
const FOLDER: &str = ".mlserver-model";

/// Models that were fetched for an image.
#[derive(Debug, Default)]
pub(super) struct OfflineModels {
    /// Whether models are fetched by each container instead.
    pub(super) stay: bool,
    /// The paths of the artifacts on this machine, by those of their settings files.
    pub(super) artifacts: BTreeMap<PathBuf, PathBuf>,
    /// What is added to the folder: the path on this machine, and the one below the folder.
    pub(super) added: Vec<(PathBuf, String)>,
    /// What the folder has with another content: their settings.
    pub(super) replaced: BTreeMap<String, Option<Vec<u8>>>,
    /// Keep the artifacts in the cache.
    pub(super) fetched: Vec<FetchedModel>,
}

impl OfflineModels {
    /// Fetches the models of a folder that are in object stores.
    ///
    /// # Errors
    ///
    /// Fails if one cannot be fetched, or differs from its lock, or if its URI is not in its settings file.
    pub(super) async fn fetch(folder: &Path, fetcher: &ModelFetcher, ui: &mut Ui) -> Result<Self, CommandError> {
        let root = fs::canonicalize(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
        let mut models = Self::default();
        for model in remote_models(folder)? {
            let name = model.name.clone();
            models
                .add(&root, model, fetcher, ui)
                .await
                .with_context(|| format!("cannot put model `{name}` into the image"))?;
        }
        Ok(models)
    }

    async fn add(
        &mut self,
        root: &Path,
        model: ModelSettings,
        fetcher: &ModelFetcher,
        ui: &mut Ui,
    ) -> anyhow::Result<()> {
        let (Some(source), Some(uri)) = (&model.source, &model.parameters.uri) else { return Ok(()) };
        let below = |path: &Path| -> anyhow::Result<String> {
            let below = path.strip_prefix(root).ok().and_then(Path::to_str);
            Ok(below.ok_or_else(|| anyhow!("`{}` is not in the folder", path.display()))?.to_owned())
        };
        let settings_path = below(source)?;
        let folder = source.parent().unwrap_or(root);
        let lock = LockFile::find(folder)?;
        let has_lock = lock.is_some();
        let model_files = fetcher.fetch(uri, lock).await.map_err(|error| anyhow!("{}", chain(&error)))?;
        let target = below(&folder.join(FOLDER))?;
        let (added, relative) = match model_files.path.file_name().and_then(|name| name.to_str()) {
            Some(name) if model_files.path.is_file() => (format!("{target}/{name}"), format!("./{FOLDER}/{name}")),
            _ => (target, format!("./{FOLDER}")),
        };
        let text = image::read_own(root, source).with_context(|| format!("cannot read `{}`", source.display()))?;
        self.replaced.insert(settings_path, Some(with_uri(&text, uri, &relative)?));
        if has_lock {
            // It was checked, and names the files where they were.
            self.replaced.insert(below(&folder.join(LOCK_FILE))?, None);
        }
        ui.note(format_args!("Model `{}` is in the image, instead of in its object store", model.name));
        self.artifacts.insert(source.clone(), model_files.path.clone());
        self.added.push((model_files.path.clone(), added));
        self.fetched.push(model_files);
        Ok(())
    }
}

/// Returns a settings file with another URI.
fn with_uri(text: &[u8], old: &str, new: &str) -> anyhow::Result<Vec<u8>> {
    let mut settings: Value = serde_json::from_slice(text).context("its settings file is not JSON")?;
    let uri = settings.pointer_mut("/parameters/uri").filter(|uri| uri.as_str() == Some(old));
    let uri = uri.context("its `parameters.uri` does not come from its settings file; write it there")?;
    *uri = Value::from(new);
    Ok(serde_json::to_vec_pretty(&settings)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_get_the_path_in_the_image() {
        let text = br#"{"name": "m", "parameters": {"uri": "s3://b/m", "extra": {"k": [1]}}}"#;
        let replaced: Value = serde_json::from_slice(&with_uri(text, "s3://b/m", "./x").unwrap()).unwrap();
        assert_eq!(replaced, serde_json::json!({"name": "m", "parameters": {"uri": "./x", "extra": {"k": [1]}}}));
        for text in [&br#"{"name": "m"}"#[..], br#"{"parameters": {"uri": "s3://b/other"}}"#] {
            assert!(with_uri(text, "s3://b/m", "./x").unwrap_err().to_string().contains("write it there"));
        }
    }
}
