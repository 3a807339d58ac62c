//! Creates projects from templates.
//!
//! A template is a folder of files: those whose names end in `.tera` are rendered by Tera with [`TemplateValues`], all others are copied
//! unchanged. The built-in templates are in `templates/projects`; users have theirs in folders and archives, which may be on a web server.

mod download;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::templates::{self, FORMER_SUFFIX, SUFFIX, TemplateError};
use crate::types::without_credentials;
pub use download::DownloadError;
pub use source::{ArchiveError, ProjectFile};

/// The files that all built-in templates share.
const COMMON: &str = "projects/common";
/// The template of projects around a model file.
const MODEL_FILE: &str = "model-file";
/// The files of a project that need a request.
const OF_EXAMPLE: [&str; 2] = ["test_model.py", ".github/workflows/test.yml"];
/// The end of their READMEs.
const USAGE: &str = "projects/usage.md.tera";

/// A built-in template.
#[derive(Debug)]
pub struct ProjectTemplate {
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
}

/// The templates that are embedded in the executable; the first is the default.
pub const TEMPLATES: [ProjectTemplate; 12] = [
    ProjectTemplate { name: "custom", about: "a custom Python model" },
    ProjectTemplate { name: "sklearn", about: "a scikit-learn model, served without Python" },
    ProjectTemplate { name: "xgboost", about: "an XGBoost model, served without Python" },
    ProjectTemplate { name: "catboost", about: "a CatBoost model, served without Python" },
    ProjectTemplate { name: "onnx", about: "an ONNX model, served without Python" },
    ProjectTemplate { name: "huggingface", about: "a Hugging Face transformers pipeline" },
    ProjectTemplate { name: "mlflow", about: "an MLflow model" },
    ProjectTemplate { name: "streaming", about: "a text model with streaming responses" },
    ProjectTemplate { name: "chat", about: "a chat model for OpenAI's API" },
    ProjectTemplate { name: "embeddings", about: "an embedding model for OpenAI's API" },
    ProjectTemplate { name: "pipeline", about: "a graph of Python steps and a native model" },
    ProjectTemplate { name: "kserve", about: "a model class of KServe, served without its package" },
];

/// The variables of templates.
#[derive(Debug, Serialize)]
struct TemplateValues<'a> {
    /// The name of the project and its model.
    name: &'a str,
    /// This server's version.
    version: &'static str,
    /// The end of a README: how to serve, query, test and build. Empty for users' templates.
    usage: String,
    /// The model file that a project is made around.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a ModelOfFile>,
}

/// A model file that a project is made around.
#[derive(Debug, Serialize)]
pub struct ModelOfFile {
    /// The framework's name.
    pub library: &'static str,
    /// The import path of its runtime.
    pub implementation: &'static str,
    /// The name of the file or folder in the project.
    pub artifact: String,
    /// The extra of the Python package that installs the framework.
    pub extra: &'static str,
    /// Whether it is evaluated natively.
    pub native: bool,
    /// The inputs for the model's metadata, as JSON.
    pub inputs: Option<String>,
    /// A request with the outputs of its answer, as JSON.
    #[serde(skip)]
    pub example: Option<(String, String)>,
}

/// Why a project cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    #[error("unknown template `{name}`: expected one of {}, a folder, an archive or its URL", names())]
    NoTemplate { name: String },
    #[error(
        "invalid project name `{name}`: expected letters, digits, `-`, `_` and `.`, starting with a letter or digit"
    )]
    Name { name: String },
    #[error("the template `{}` has no files", path.display())]
    Empty { path: PathBuf },
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("cannot render `{}`: it is not UTF-8 text", path.display())]
    NoText { path: PathBuf },
    #[error("{} already {}: {}; overwrite with --force", if paths.len() == 1 { "a file" } else { "files" }, if paths.len() == 1 { "exists" } else { "exist" }, list(paths))]
    Exists { paths: Vec<PathBuf> },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn names() -> String {
    TEMPLATES.map(|template| format!("`{}`", template.name)).join(", ")
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

/// The files of a new project.
#[derive(Debug)]
pub struct Project {
    files: Vec<ProjectFile>,
    /// A file of the template with the suffix of earlier versions.
    former: Option<PathBuf>,
}

impl Project {
    /// Creates a project from a template: the name of one of [`TEMPLATES`], a folder, or an archive (`.zip`, `.tar`, `.tar.gz`)
    /// or its URL.
    ///
    /// # Errors
    ///
    /// Fails if there is no such template, the name is invalid, or a file cannot be rendered.
    pub fn new(template: &str, name: &str) -> Result<Self, ScaffoldError> {
        check_name(name)?;
        let mut values = TemplateValues { name, version: env!("CARGO_PKG_VERSION"), usage: String::new(), model: None };
        let files = if TEMPLATES.iter().any(|own| own.name == template) {
            values.usage = templates::embedded(USAGE, &values)?;
            built_in(template)
        } else if Path::new(template).exists() {
            let path = Path::new(template);
            let files = source::read(path)?;
            if files.is_empty() {
                return Err(ScaffoldError::Empty { path: path.to_owned() });
            }
            files
        } else if download::is_url(template) {
            let url = without_credentials(template);
            let files = source::read_download(&url, &download::download(template)?)?;
            if files.is_empty() {
                return Err(ScaffoldError::Empty { path: PathBuf::from(url) });
            }
            files
        } else {
            return Err(ScaffoldError::NoTemplate { name: template.to_owned() });
        };
        let is_former = |file: &&ProjectFile| file.path.to_string_lossy().ends_with(FORMER_SUFFIX);
        let former = files.iter().find(is_former).map(|file| file.path.clone());
        let files = files.into_iter().map(|file| fill_in(file, &values)).collect::<Result<_, _>>()?;
        Ok(Self { files, former })
    }

    /// Returns a file of the template whose name has the suffix of earlier versions.
    pub fn former_suffix(&self) -> Option<&Path> {
        self.former.as_deref()
    }

    /// Creates a project from a model file, which the caller copies. Without an example, it has no test.
    ///
    /// # Errors
    ///
    /// Fails if the name is invalid.
    pub fn around(model: &ModelOfFile, name: &str) -> Result<Self, ScaffoldError> {
        check_name(name)?;
        let mut values =
            TemplateValues { name, version: env!("CARGO_PKG_VERSION"), usage: String::new(), model: Some(model) };
        values.usage = templates::embedded(USAGE, &values)?;
        let files = built_in(MODEL_FILE).into_iter();
        let files =
            files.filter(|file| model.example.is_some() || !OF_EXAMPLE.iter().any(|name| file.path == Path::new(name)));
        let mut files: Vec<_> = files.map(|file| fill_in(file, &values)).collect::<Result<_, _>>()?;
        if let Some((request, answer)) = &model.example {
            for (name, text) in [("request.json", request), ("answer.json", answer)] {
                files.push(ProjectFile {
                    path: name.into(),
                    data: format!("{text}\n").into_bytes(),
                    executable: false,
                });
            }
        }
        Ok(Self { files, former: None })
    }

    /// Returns the paths of the files in the project.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Writes the files to a folder, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails without writing anything if a file already exists, unless `force` is set.
    pub fn write(&self, folder: &Path, force: bool) -> Result<(), ScaffoldError> {
        let targets = self.paths().map(|path| folder.join(path));
        let existing: Vec<PathBuf> = targets.filter(|path| path.symlink_metadata().is_ok()).collect();
        if !existing.is_empty() && !force {
            return Err(ScaffoldError::Exists { paths: existing });
        }
        for file in &self.files {
            let path = folder.join(&file.path);
            file.write(&path).map_err(|source| ScaffoldError::Write { path, source })?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), ScaffoldError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(legal) {
        return Err(ScaffoldError::Name { name: name.to_owned() });
    }
    Ok(())
}

/// Returns the files of a built-in template. They override the shared files.
fn built_in(template: &str) -> Vec<ProjectFile> {
    let mut files: Vec<_> = templates::under(&format!("projects/{template}")).collect();
    for common in templates::under(COMMON) {
        if !files.iter().any(|(path, _)| path.strip_suffix(SUFFIX).unwrap_or(path) == common.0) {
            files.push(common);
        }
    }
    let file = |(path, data): (&str, &[u8])| ProjectFile { path: path.into(), data: data.into(), executable: false };
    files.into_iter().map(file).collect()
}

/// Returns the path of a file that is rendered.
fn without_suffix(path: &str) -> Option<&str> {
    path.strip_suffix(SUFFIX).or_else(|| path.strip_suffix(FORMER_SUFFIX))
}

fn fill_in(file: ProjectFile, values: &TemplateValues<'_>) -> Result<ProjectFile, ScaffoldError> {
    let Some(path) = file.path.to_str().and_then(without_suffix).map(PathBuf::from) else {
        return Ok(file);
    };
    let Ok(text) = String::from_utf8(file.data) else { return Err(ScaffoldError::NoText { path: file.path }) };
    let data = templates::render(&file.path.to_string_lossy(), &text, values)?.into_bytes();
    Ok(ProjectFile { path, data, ..file })
}

impl ProjectFile {
    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, &self.data)?;
        if self.executable {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(path)?.permissions().mode();
            fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o111))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(template: &str) -> Vec<String> {
        let project = Project::new(template, "churn").unwrap();
        let mut paths: Vec<_> = project.paths().map(|path| path.to_str().unwrap().to_owned()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn scaffold_built_in_templates_are_complete() {
        for template in TEMPLATES {
            let found = files(template.name);
            for expected in [
                ".github/workflows/test.yml",
                ".gitignore",
                "README.md",
                "answer.json",
                "model-settings.json",
                "request.json",
                "settings.json",
                "test_model.py",
            ] {
                assert!(found.iter().any(|path| path == expected), "{}: no {expected} in {found:?}", template.name);
            }
            assert!(found.iter().all(|path| !path.ends_with(SUFFIX)), "{found:?}");
        }
    }

    #[test]
    fn scaffold_rejects_invalid_project_names() {
        for name in ["", "../up", "a b", "-x", "a\"b", "ü"] {
            assert!(matches!(Project::new("custom", name), Err(ScaffoldError::Name { .. })), "{name}");
        }
        Project::new("custom", "Iris-2.0_b").unwrap();
    }

    #[test]
    fn scaffold_write_needs_force_to_overwrite() {
        let folder = tempfile::tempdir().unwrap();
        let settings = folder.path().join("settings.json");
        fs::write(&settings, "mine").unwrap();
        let project = Project::new("pipeline", "p").unwrap();
        let error = project.write(folder.path(), false).unwrap_err().to_string();
        assert_eq!(error, format!("a file already exists: `{}`; overwrite with --force", settings.display()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is written");
        project.write(folder.path(), true).unwrap();
        assert_ne!(fs::read_to_string(&settings).unwrap(), "mine");
    }

    #[test]
    fn scaffold_accepts_a_folder_as_template() {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("own");
        fs::create_dir_all(template.join("deep")).unwrap();
        fs::write(template.join("deep/NAME.tera"), "{{ name }} {{ version }}").unwrap();
        fs::write(template.join("as-it-is"), "{{ name }}").unwrap();
        let project = Project::new(template.to_str().unwrap(), "churn").unwrap();
        let target = folder.path().join("new");
        project.write(&target, false).unwrap();
        let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
        assert_eq!(read("deep/NAME"), concat!("churn ", env!("CARGO_PKG_VERSION")));
        assert_eq!(read("as-it-is"), "{{ name }}");
    }
}
