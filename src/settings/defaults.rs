//! Settings that are baked into an image: defaults below the environment.
//!
//! A settings file overrides the environment, so `docker run --env MLSERVER_HTTP_PORT=9000` could not change what an image's own
//! file sets. Images therefore have a copy of that file in the folder that `MLSERVER_DEFAULTS_DIR` names, below the environment. The
//! file in the served folder counts as baked if it equals the copy; any other file was put there by the user and replaces it.

use std::path::Path;

use super::env::{DEFAULTS_DIR, SettingsSources};
use super::file;
use super::problem::FileError;
use super::resolve::Layer;
use super::source::SettingSource;

/// Reads a settings file of the served folder, or its baked copy if there is no file or if they are equal.
pub(super) fn read_layer(path: &Path, sources: &SettingsSources) -> Result<Option<Layer>, FileError> {
    let own = file::read_object(path)?;
    let folder = sources.lookup(DEFAULTS_DIR).map(|(folder, _)| folder).find(|folder| !folder.is_empty());
    let baked_path =
        folder.zip(path.file_name()).map(|(folder, name)| sources.working_directory().join(folder).join(name));
    let baked = match &baked_path {
        Some(path) => file::read_object(path)?.map(|object| (object, path)),
        None => None,
    };
    Ok(match (own, baked) {
        (Some(own), Some((baked, _))) if own != baked => {
            Some(Layer { object: own, source: SettingSource::File(path.into()) })
        }
        (_, Some((object, path))) => Some(Layer { object, source: SettingSource::Image(path.as_path().into()) }),
        (Some(object), None) => Some(Layer { object, source: SettingSource::File(path.into()) }),
        (None, None) => None,
    })
}
