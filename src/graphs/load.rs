//! Reads the manifest that the settings of a graph name.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::manifest::{GraphManifest, GraphOptions, MAX_BYTES, ManifestErrors, StepOptions};
use crate::settings::ModelSettings;

/// The implementation of graphs in the settings of models.
pub const GRAPH_IMPLEMENTATION: &str = "mlserver.Graph";

/// Why the manifest of a graph cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GraphFileError {
    #[error("cannot read `{}`: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: `{key}` is {found}, expected {expected}", place(file.as_ref()))]
    Option { file: Option<PathBuf>, key: String, found: String, expected: &'static str },
    #[error(transparent)]
    Manifest(#[from] ManifestErrors),
}

fn place(file: Option<&PathBuf>) -> String {
    file.map_or_else(|| "the settings".to_owned(), |file| format!("`{}`", file.display()))
}

/// Reads and compiles the manifest of a graph, without looking at the models of its steps.
///
/// # Errors
///
/// Fails with all problems of the manifest.
pub fn read_manifest(settings: &ModelSettings, path: &Path) -> Result<GraphManifest, GraphFileError> {
    let options = options(settings)?;
    let mut bytes = Vec::new();
    // One byte more, so that a file that is too long is reported.
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| GraphFileError::Read { path: path.to_owned(), error })?;
    let origin = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(GraphManifest::parse(&bytes, &origin, &options)?)
}

/// Reads `parameters.extra.steps`.
fn options(settings: &ModelSettings) -> Result<GraphOptions, GraphFileError> {
    let invalid = |key: String, found: &Value, expected| GraphFileError::Option {
        file: settings.source.clone(),
        key,
        found: found.to_string(),
        expected,
    };
    let mut options = GraphOptions::default();
    let root = "parameters.extra.steps";
    let steps = match settings.parameters.extra.get("steps") {
        None | Some(Value::Null) => return Ok(options),
        Some(Value::Object(steps)) => steps,
        Some(other) => return Err(invalid(root.to_owned(), other, "an object with an entry for each step")),
    };
    for (name, step) in steps {
        let key = format!("{root}.{name}");
        let Value::Object(fields) = step else {
            return Err(invalid(key, step, "an object with `url` or `folder`"));
        };
        let mut option = StepOptions::default();
        for (field, value) in fields {
            let target = match field.as_str() {
                "url" => &mut option.url,
                "folder" => &mut option.folder,
                _ => return Err(invalid(format!("{key}.{field}"), value, "only the fields `url` and `folder`")),
            };
            let Value::String(text) = value else { return Err(invalid(format!("{key}.{field}"), value, "a text")) };
            *target = Some(text.clone());
        }
        options.steps.insert(name.clone(), option);
    }
    Ok(options)
}
