//! The archives of golden cases, which `tests/goldens/archive.py` packs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use tar::Archive;

use super::repository_path;

/// An archive of golden cases, in memory.
pub(crate) struct GoldenArchive {
    /// The name of the archive without its extension, such as the version `1.9.1` or `xgboost-3.2.0`.
    pub(crate) name: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl GoldenArchive {
    fn read(path: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap().to_owned();
        let mut archive = Archive::new(GzDecoder::new(File::open(path).unwrap()));
        let files = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, content)
        });
        Self { files: files.collect(), name }
    }

    /// Returns the names of all files, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> &[u8] {
        self.files.get(name).unwrap_or_else(|| unreachable!("{} has no {name}", self.name))
    }
}

/// Reads every archive of a folder in `tests/goldens`, ordered by name.
pub(crate) fn golden_archives(folder: &str) -> Vec<GoldenArchive> {
    let root = repository_path("tests/goldens").join(folder);
    let paths = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gz")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no golden cases in {}", root.display());
    paths.iter().map(|path| GoldenArchive::read(path)).collect()
}

/// Reads one golden file of scikit-learn, such as `1.5.2/linear/labels_text.joblib` or `1.5.2/linear/labels_text.skops`.
pub(crate) fn sklearn_golden(path: &str) -> Vec<u8> {
    let (version, name) = path.split_once('/').unwrap();
    let folder = if name.rsplit('.').next() == Some("skops") { "sklearn/skops" } else { "sklearn" };
    let archive = repository_path(&format!("tests/goldens/{folder}/{version}.tar.gz"));
    GoldenArchive::read(&archive).file(name).to_vec()
}

/// Reads the models of a framework in `tests/frameworks/goldens`.
pub(crate) fn framework_models(framework: &str) -> GoldenArchive {
    GoldenArchive::read(&repository_path(&format!("tests/frameworks/goldens/{framework}/models.tar.gz")))
}
