//! Finds the artifact of a model.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::families::ModelFamily;
use crate::settings::ModelSettings;

/// The artifact that a model's `uri` refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Artifact {
    /// A file, or a folder without a well-known file. The path is absolute.
    Path(PathBuf),
    /// A URI with another scheme, which only the runtime may understand.
    Remote(String),
}

/// The model has no artifact. The messages begin with the original's, because clients see them.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ArtifactError {
    #[error("Invalid URI specified for model {model}")]
    NoUri { model: String },
    #[error("Invalid URI specified for model {model} ({}): no such file or directory{}", path.display(), listed(siblings))]
    Missing {
        model: String,
        path: PathBuf,
        /// The names in the folder of `path`, if it exists; at most [`MAX_SIBLINGS`] and one.
        siblings: Vec<String>,
    },
}

/// A path that is neither a file nor a folder.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{}` is a pipe or a device, which only `mlserver start` reads", path.display())]
pub struct SpecialFileError {
    path: PathBuf,
}

impl Artifact {
    /// Finds a model's artifact, relative to its settings file, or to the working directory if it has none.
    pub fn resolve(settings: &ModelSettings, working_directory: &Path) -> Result<Self, ArtifactError> {
        let model = || settings.name.clone();
        let Some(uri) = settings.parameters.uri.as_deref() else {
            return Err(ArtifactError::NoUri { model: model() });
        };
        let relative = match path_of_file_uri(uri) {
            Some(path) => path,
            None if split_scheme(uri).is_some() => return Ok(Self::Remote(uri.to_owned())),
            None => uri,
        };
        let base = settings.folder().map_or_else(|| working_directory.to_owned(), Path::to_owned);
        // Made absolute without resolving `..`, which would be wrong after a symbolic link.
        let path: PathBuf = working_directory.join(base).join(relative).components().collect();
        if path.is_dir() {
            let known = ModelFamily::artifact_names(settings).iter().map(|name| path.join(name));
            let found = known.into_iter().find(|candidate| candidate.is_file());
            return Ok(Self::Path(found.unwrap_or(path)));
        }
        // Anything else that can be read, such as a named pipe.
        if path.exists() {
            return Ok(Self::Path(path));
        }
        let siblings = siblings(&path);
        Err(ArtifactError::Missing { model: model(), path, siblings })
    }
}

/// Checks that a path can be read more than once, and without waiting for a writer.
///
/// # Errors
///
/// Fails if it exists and is neither a file nor a folder.
pub fn check_on_disk(path: &Path) -> Result<(), SpecialFileError> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Err(SpecialFileError { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// How many names of files an error contains.
const MAX_SIBLINGS: usize = 5;

/// Returns the first names in the folder of a path, sorted, except hidden ones.
fn siblings(path: &Path) -> Vec<String> {
    let entries = path.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).take(1000).collect();
    names.sort();
    names.truncate(MAX_SIBLINGS + 1);
    names
}

fn listed(siblings: &[String]) -> String {
    let shown = &siblings[..siblings.len().min(MAX_SIBLINGS)];
    match shown {
        [] => String::new(),
        _ if shown.len() < siblings.len() => format!("; its folder contains {}, ...", shown.join(", ")),
        _ => format!("; its folder contains {}", shown.join(", ")),
    }
}

/// Reports whether a URI names objects of a store that the server can fetch.
pub fn is_store_uri(uri: &str) -> bool {
    const SCHEMES: [&str; 12] =
        ["s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "hf", "http", "https", "pvc"];
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str())) || is_mlflow_uri(uri)
}

/// Reports whether a URI names a model of MLflow's registry, or an artifact of its tracking server.
pub fn is_mlflow_uri(uri: &str) -> bool {
    let scheme = uri.split_once(":/").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| ["models", "runs", "mlflow-artifacts"].contains(&scheme.as_str()))
}

/// Returns the path that a `file:` URI names, and `None` for other URIs and for paths.
pub fn path_of_file_uri(uri: &str) -> Option<&str> {
    split_scheme(uri).filter(|(scheme, _)| *scheme == "file").map(|(_, rest)| without_authority(rest))
}

/// Splits a URI after the colon of its scheme.
fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = uri.split_once(':')?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(legal);
    is_scheme.then_some((scheme, rest))
}

/// Returns the path of a `file:` URI, whose authority is ignored.
fn without_authority(rest: &str) -> &str {
    match rest.strip_prefix("//") {
        Some(after) => after.find('/').map_or("", |start| &after[start..]),
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const XGBOOST: &str = "mlserver_xgboost.XGBoostModel";

    fn folder(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn model(folder: &Path, implementation: &str, uri: Option<&str>) -> ModelSettings {
        let mut settings = ModelSettings::new("iris", implementation);
        settings.source = Some(folder.join("model-settings.json"));
        settings.parameters.uri = uri.map(str::to_owned);
        settings
    }

    fn resolve(folder: &Path, implementation: &str, uri: &str) -> Result<Artifact, ArtifactError> {
        Artifact::resolve(&model(folder, implementation, Some(uri)), Path::new("/nowhere"))
    }

    #[test]
    fn artifact_path_is_relative_to_settings_file() {
        let root = folder(&["m/model-7.json", "beside.json"]);
        let m = root.path().join("m");
        let at = |path: &Path| Ok(Artifact::Path(path.to_owned()));
        assert_eq!(resolve(&m, XGBOOST, "./model-7.json"), at(&m.join("model-7.json")));
        assert_eq!(resolve(&m, XGBOOST, "../beside.json"), at(&m.join("../beside.json")));
        let absolute = m.join("model-7.json");
        assert_eq!(resolve(&m, XGBOOST, absolute.to_str().unwrap()), at(&absolute));
        let with_scheme = format!("file://{}", absolute.display());
        assert_eq!(resolve(&m, XGBOOST, &with_scheme), at(&absolute));
        assert_eq!(resolve(&m, XGBOOST, "file:model-7.json"), at(&absolute));
    }

    #[test]
    fn artifact_path_without_settings_file_is_relative_to_working_directory() {
        let root = folder(&["m.json"]);
        let mut settings = model(root.path(), XGBOOST, Some("m.json"));
        settings.source = None;
        assert_eq!(Artifact::resolve(&settings, root.path()), Ok(Artifact::Path(root.path().join("m.json"))));
    }

    #[test]
    fn artifact_folder_is_searched_for_well_known_names_in_order() {
        let root = folder(&["model.ubj", "model.json", "model.pkl", "model.joblib", "model.bin"]);
        let cases = [
            (XGBOOST, "model.json"),
            ("mlserver_xgboost.xgboost.XGBoostModel", "model.json"),
            ("mlserver_sklearn.SKLearnModel", "model.joblib"),
            ("mlserver_catboost.CatboostModel", "model.bin"),
            ("mlserver_lightgbm.LightGBMModel", ""),
            ("mlserver_mlflow.MLflowRuntime", ""),
            ("models.Custom", ""),
        ];
        for (implementation, expected) in cases {
            let found = resolve(root.path(), implementation, ".");
            let expected: PathBuf = root.path().join(expected).components().collect();
            assert_eq!(found, Ok(Artifact::Path(expected)), "{implementation}");
        }
    }

    #[test]
    fn artifact_with_other_scheme_is_remote() {
        for uri in ["s3://bucket/model", "models:/iris/1", "hf:gpt2"] {
            assert_eq!(resolve(Path::new("/m"), XGBOOST, uri), Ok(Artifact::Remote(uri.to_owned())));
        }
    }

    #[test]
    fn artifact_uris_of_stores_are_known() {
        for uri in
            ["s3://b/m", "S3A://b/m", "hf://org/repo", "https://h/m.json", "pvc://claim/m", "models:/m/1", "runs:/a/m"]
        {
            assert!(is_store_uri(uri), "{uri}");
        }
        for uri in ["hf:gpt2", "file:///m", "/m", "m.json", "oci://h/m"] {
            assert!(!is_store_uri(uri), "{uri}");
        }
    }

    #[test]
    fn artifact_errors_begin_like_original_and_list_what_is_there() {
        let error = resolve(Path::new("/m"), XGBOOST, "./none.json").unwrap_err();
        assert_eq!(error.to_string(), "Invalid URI specified for model iris (/m/none.json): no such file or directory");
        let root = folder(&["b.json", "a.json", ".hidden"]);
        let error = resolve(root.path(), XGBOOST, "model.json").unwrap_err().to_string();
        assert!(error.ends_with(": no such file or directory; its folder contains a.json, b.json"), "{error}");
        let root = folder(&["a", "b", "c", "d", "e", "f"]);
        let error = resolve(root.path(), XGBOOST, "model.json").unwrap_err().to_string();
        assert!(error.ends_with("; its folder contains a, b, c, d, e, ..."), "{error}");
        let error = Artifact::resolve(&model(Path::new("/m"), XGBOOST, None), Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid URI specified for model iris");
    }
}
