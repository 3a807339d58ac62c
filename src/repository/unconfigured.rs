//! The model of a folder without `model-settings.json`, as KServe mounts it: one model file, or one folder of MLflow.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::families::{MLMODEL, ModelFamily};

/// How deep folders are searched. Storage initializers keep the folders of a bucket.
const MAX_DEPTH: usize = 16;
/// How many files and folders are looked at.
const MAX_ENTRIES: usize = 100_000;
/// How many candidates an error lists.
const MAX_LISTED: usize = 10;

/// A model without settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnconfiguredModel {
    /// A model file, or the folder of an MLflow model.
    pub artifact: PathBuf,
    pub family: &'static ModelFamily,
}

/// Why a folder does not have exactly one model.
#[derive(Debug, Error)]
pub enum UnconfiguredError {
    #[error(
        "`{}` has no `model-settings.json`, and more than one model: {}; name the one to serve with `MLSERVER_MODEL_URI`, or describe \
         each in a folder of its own with a `model-settings.json`",
        folder.display(),
        listed(candidates)
    )]
    Ambiguous { folder: PathBuf, candidates: Vec<PathBuf> },
    #[error("cannot read `{}`: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("`{}` has too many files to look for its model: name it with `MLSERVER_MODEL_URI`", folder.display())]
    TooMany { folder: PathBuf },
}

fn listed(candidates: &[PathBuf]) -> String {
    let shown = candidates.iter().take(MAX_LISTED).map(|path| format!("`{}`", path.display()));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match candidates.len().checked_sub(MAX_LISTED) {
        Some(others) if others > 0 => format!("{shown} and {others} more"),
        _ => shown,
    }
}

impl UnconfiguredError {
    /// Returns the file or folder that it is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Ambiguous { folder: path, .. } | Self::Read { path, .. } | Self::TooMany { folder: path } => path,
        }
    }
}

impl UnconfiguredModel {
    /// Returns the import path of the runtime.
    pub fn implementation(&self) -> &'static str {
        self.family.implementations[0]
    }

    /// Returns a model file, or finds the only model below a folder, or `None` if there is none. With `family`, models of others are ignored.
    ///
    /// Models in a folder take precedence over those in its sub-folders, which may be parts of them.
    ///
    /// # Errors
    ///
    /// Fails if there are several, if one of them cannot be read, or if there are too many files.
    pub fn find(folder: &Path, family: Option<&ModelFamily>) -> Result<Option<Self>, UnconfiguredError> {
        if folder.is_file() {
            let unknown = |error| UnconfiguredError::Read { path: folder.to_owned(), error: io::Error::other(error) };
            let family = ModelFamily::of_file(folder).map_err(unknown)?;
            return Ok(Some(Self { artifact: folder.to_owned(), family }));
        }
        let mut candidates = candidates(folder, family)?;
        if candidates.len() > 1 {
            let candidates = candidates.into_iter().map(|candidate| candidate.artifact).collect();
            return Err(UnconfiguredError::Ambiguous { folder: folder.to_owned(), candidates });
        }
        Ok(candidates.pop())
    }

    /// Returns a file below the folder to pass to `mlserver start`.
    pub fn suggestion(folder: &Path) -> Option<PathBuf> {
        let first = candidates(folder, None).ok()?.into_iter().next()?;
        Some(if first.artifact.is_dir() { first.artifact.join(MLMODEL) } else { first.artifact })
    }
}

/// A search, and how many files and folders it may still look at.
struct Search<'a> {
    folder: &'a Path,
    family: Option<&'a ModelFamily>,
    entries: usize,
}

/// Returns the models in all folders without a model above them, those of upper folders first.
fn candidates(folder: &Path, family: Option<&ModelFamily>) -> Result<Vec<UnconfiguredModel>, UnconfiguredError> {
    candidates_within(folder, family, MAX_ENTRIES)
}

fn candidates_within(
    folder: &Path,
    family: Option<&ModelFamily>,
    entries: usize,
) -> Result<Vec<UnconfiguredModel>, UnconfiguredError> {
    let mut search = Search { folder, family, entries };
    let mut level = vec![folder.to_owned()];
    // Links can lead to a folder that was searched already.
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            match folder.canonicalize() {
                Ok(real) => {
                    if seen.insert(real) {
                        let (models, mut folders) = (found.len(), Vec::new());
                        search.folder(&folder, &mut found, &mut folders)?;
                        // Folders beside a model are its parts.
                        if found.len() == models {
                            next.append(&mut folders);
                        }
                    }
                }
                Err(error) if folder == search.folder => {
                    return Err(UnconfiguredError::Read { path: folder, error });
                }
                Err(_) => {}
            }
        }
        level = next;
    }
    Ok(found)
}

impl Search<'_> {
    /// Adds the models in a folder to `found`, and its visible folders to `folders`.
    fn folder(
        &mut self,
        folder: &Path,
        found: &mut Vec<UnconfiguredModel>,
        folders: &mut Vec<PathBuf>,
    ) -> Result<(), UnconfiguredError> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if folder == self.folder => {
                return Err(UnconfiguredError::Read { path: folder.to_owned(), error });
            }
            // Such as `lost+found` of a volume.
            Err(_) => return Ok(()),
        };
        let mut paths = Vec::new();
        for entry in entries.flatten() {
            self.entries = self.entries.checked_sub(1).ok_or_else(|| self.too_many())?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                paths.push(entry.path());
            }
        }
        paths.sort();
        let mlmodel = folder.join(MLMODEL);
        if mlmodel.is_file() {
            // The other files of the folder are its parts.
            let family = ModelFamily::of_file(&mlmodel).ok().filter(|family| self.wants(family));
            found.extend(family.map(|family| UnconfiguredModel { artifact: folder.to_owned(), family }));
            return Ok(());
        }
        for path in paths {
            match path.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(path),
                Ok(metadata) if metadata.is_file() => {
                    if let Some(family) = self.family_of(&path)? {
                        found.push(UnconfiguredModel { artifact: path, family });
                    }
                }
                Err(error) if ModelFamily::has_model_extension(&path) => {
                    return Err(UnconfiguredError::Read { path, error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the family of a file, or `None` if it is not a model.
    fn family_of(&self, path: &Path) -> Result<Option<&'static ModelFamily>, UnconfiguredError> {
        if !ModelFamily::has_model_extension(path) {
            return Ok(None);
        }
        let unreadable = |error| UnconfiguredError::Read { path: path.to_owned(), error };
        let family = ModelFamily::of_file(path).map_err(|error| unreadable(io::Error::other(error)))?;
        Ok(Some(family).filter(|family| self.wants(family) && family.recognizes(path)))
    }

    fn wants(&self, family: &ModelFamily) -> bool {
        self.family.is_none_or(|wanted| wanted == family)
    }

    fn too_many(&self) -> UnconfiguredError {
        UnconfiguredError::TooMany { folder: self.folder.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_stops_at_the_limit_on_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..4 {
            fs::create_dir(folder.path().join(format!("{index}"))).unwrap();
            fs::write(folder.path().join(format!("{index}/notes")), "").unwrap();
        }
        assert_eq!(candidates_within(folder.path(), None, 8).unwrap(), []);
        let error = candidates_within(folder.path(), None, 7).unwrap_err();
        assert!(matches!(&error, UnconfiguredError::TooMany { folder: found } if found == folder.path()), "{error}");
    }

    #[test]
    fn every_folder_without_a_model_above_it_is_searched() {
        let folder = tempfile::tempdir().unwrap();
        for (file, is_found) in [("a/model.ubj", true), ("a/parts/model.ubj", false), ("b/c/model.ubj", true)] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            let found = candidates(folder.path(), None).unwrap();
            assert_eq!(found.iter().any(|model| model.artifact == path), is_found, "{file}");
        }
        let error = UnconfiguredModel::find(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains("a/model.ubj") && error.contains("b/c/model.ubj"), "{error}");
    }

    #[test]
    fn files_with_common_extensions_are_models_by_their_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            ("a.json", r#"{"learner": {}}"#, true),
            ("b.json", "\n {\"version\": [1, 0, 0], \"learner\": {}}", true),
            ("c.json", r#"["learner"]"#, false),
            ("d.json", r#"{"inputs": []}"#, false),
            ("e.json", "", false),
            ("f.txt", "tree\nversion=v4\n", true),
            ("g.txt", "trees\n", false),
            ("h.pkl", "", true),
            ("i.md", "tree\n", false),
        ];
        for (name, content, _) in cases {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let found = candidates(folder.path(), None).unwrap();
        let found: Vec<_> = found.iter().map(|model| model.artifact.file_name().unwrap().to_str().unwrap()).collect();
        let expected: Vec<_> = cases.iter().filter(|(.., is_model)| *is_model).map(|(name, ..)| *name).collect();
        assert_eq!(found, expected);
    }
}
