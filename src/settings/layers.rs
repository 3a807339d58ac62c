//! The settings files of a server, as layers in descending precedence: the operator's, that of the served folder, that of an image.
//!
//! **The operator's file** is named by `--settings` or `MLSERVER_SETTINGS_FILE`. It comes before the `settings.json` of the served folder,
//! because models often come with such a file. What decides who reaches the server, and where (the settings marked `of_operator`), only
//! the operator's file may set then: a file beside the models that sets one of these is an error, even if the operator's file does not
//! set it.
//!
//! **The file of an image** is a copy of the folder's file, in the folder that `MLSERVER_DEFAULTS_DIR` names. A settings file overrides
//! the environment, so `docker run --env MLSERVER_HTTP_PORT=9000` could not change what an image's own file sets; the copy is below the
//! environment. A file in the served folder that equals the copy is not read; any other file was put there by the user.

use std::path::Path;
use std::sync::Arc;

use super::env::{DEFAULTS_DIR, SettingsSources};
use super::field::{FieldKind, SettingGroup};
use super::file;
use super::problem::{FileError, SettingsProblem};
use super::resolve::Layer;
use super::source::SettingSource;

/// Reads the settings files for a served folder, whose own one is at `path`.
pub(super) fn of_files(
    path: &Path,
    sources: &SettingsSources,
    group: &'static SettingGroup,
) -> Result<Vec<Layer>, Vec<SettingsProblem>> {
    let operator = of_operator(sources).map_err(|problem| vec![*problem])?;
    let mut below = of_folder(path, sources).map_err(|error| vec![error.into()])?;
    if let Some(Layer { source: SettingSource::Operator(operator), .. }) = &operator {
        let folder = path.parent().unwrap_or(path);
        // The operator may name the file of the folder.
        if operator.canonicalize().is_ok_and(|operator| path.canonicalize().is_ok_and(|own| own == operator)) {
            below.retain(|layer| !matches!(layer.source, SettingSource::File(_)));
        }
        let problems = refused(operator, folder, &below, sources, group);
        if !problems.is_empty() {
            return Err(problems);
        }
    }
    Ok(operator.into_iter().chain(below).collect())
}

/// Reads the operator's file, which has to exist.
fn of_operator(sources: &SettingsSources) -> Result<Option<Layer>, Box<SettingsProblem>> {
    let Some((path, origin)) = sources.settings_file() else { return Ok(None) };
    let object = file::read_object(&path).map_err(|error| Box::new(error.into()))?;
    let object = object.ok_or_else(|| Box::new(SettingsProblem::NoOperatorFile { path: path.clone(), origin }))?;
    Ok(Some(Layer { object, source: SettingSource::Operator(path.into()) }))
}

/// Reads the file of the served folder, unless it equals that of the image, and that of the image.
fn of_folder(path: &Path, sources: &SettingsSources) -> Result<Vec<Layer>, FileError> {
    let own = file::read_object(path)?;
    let baked_path = sources
        .environment_variable(DEFAULTS_DIR)
        .zip(path.file_name())
        .map(|(folder, name)| sources.working_directory().join(folder).join(name));
    let baked = match &baked_path {
        Some(path) => file::read_object(path)?.map(|object| (object, path)),
        None => None,
    };
    let own = own.filter(|own| baked.as_ref().is_none_or(|(baked, _)| own != baked));
    let own = own.map(|object| Layer { object, source: SettingSource::File(path.into()) });
    let baked = baked.map(|(object, path)| Layer { object, source: SettingSource::Image(path.as_path().into()) });
    Ok(own.into_iter().chain(baked).collect())
}

/// Returns a problem for each setting of the operator that a file in the served folder sets.
fn refused(
    operator: &Arc<Path>,
    folder: &Path,
    layers: &[Layer],
    sources: &SettingsSources,
    group: &'static SettingGroup,
) -> Vec<SettingsProblem> {
    let mut problems = Vec::new();
    let mut refuse = |key: &str, source_of: SettingSource| {
        problems.push(SettingsProblem::OfOperator { key: key.to_owned(), source_of, operator: Arc::clone(operator) });
    };
    for field in group.fields().filter(|field| field.of_operator) {
        for layer in layers.iter().filter(|layer| matches!(layer.source, SettingSource::File(_))) {
            if layer.object.contains_key(field.name) {
                refuse(field.name, layer.source.clone());
            }
        }
        let inner = match field.kind {
            FieldKind::Group(inner) => inner.fields().filter_map(|field| inner.env_name(field)).collect(),
            _ => Vec::new(),
        };
        for variable in group.env_name(field).into_iter().chain(inner) {
            let written = sources.lookup(&variable).map(|(_, source)| source);
            for source in written.filter(|source| is_in(source, folder)) {
                refuse(field.name, source);
            }
        }
    }
    problems
}

/// Returns whether a variable is in the `.env` file of a folder.
fn is_in(source: &SettingSource, folder: &Path) -> bool {
    let SettingSource::Dotenv { path, .. } = source else { return false };
    // Of a folder that cannot be resolved, nothing was read.
    let resolved = |folder: &Path| folder.canonicalize().ok();
    path.parent().and_then(resolved).is_some_and(|place| resolved(folder).is_some_and(|folder| place == folder))
}
