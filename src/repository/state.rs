//! The state of files, by which a change is noticed.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::settings::MODEL_SETTINGS_FILE;

/// How many files and folders of a model are looked at, and how deep.
const MAX_ENTRIES: usize = 10_000;
const MAX_DEPTH: usize = 16;

/// Returns a hash of the paths, sizes and times of all files at or below a path.
///
/// Hidden files, `__pycache__`, and folders with settings of their own do not count.
pub fn disk_state(path: &Path) -> blake3::Hash {
    let mut state = DiskState { hasher: blake3::Hasher::new(), entries: MAX_ENTRIES };
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => state.folder(path, 0),
        metadata => state.file(path, metadata.ok().as_ref()),
    }
    state.hasher.finalize()
}

struct DiskState {
    hasher: blake3::Hasher,
    /// How many more are looked at.
    entries: usize,
}

impl DiskState {
    fn folder(&mut self, path: &Path, depth: usize) {
        let mut names: Vec<_> =
            fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        names.sort();
        for name in names {
            let is_ignored = name.as_encoded_bytes().starts_with(b".") || name == "__pycache__";
            if is_ignored || self.entries == 0 {
                continue;
            }
            self.entries -= 1;
            let child = path.join(&name);
            match child.metadata() {
                Ok(metadata) if metadata.is_dir() => {
                    if depth < MAX_DEPTH && !child.join(MODEL_SETTINGS_FILE).exists() {
                        self.folder(&child, depth + 1);
                    }
                }
                metadata => self.file(&child, metadata.ok().as_ref()),
            }
        }
    }

    fn file(&mut self, path: &Path, metadata: Option<&Metadata>) {
        let modified = metadata.and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        let size = metadata.map_or(u64::MAX, Metadata::len);
        self.hasher
            .update(path.as_os_str().as_encoded_bytes())
            .update(&[0])
            .update(&size.to_le_bytes())
            .update(&modified.unwrap_or_default().as_nanos().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_change_with_the_files_of_a_model() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("model.json", "1");
        write("parts/a", "1");
        let first = disk_state(root.path());
        for ignored in [".hidden", "__pycache__/x.pyc", "other/model-settings.json", "other/model.json"] {
            write(ignored, "1");
            assert_eq!(disk_state(root.path()), first, "{ignored}");
        }
        let mut states = vec![first];
        for (path, content) in [("model.json", "12"), ("parts/a", "12"), ("parts/b", "1")] {
            write(path, content);
            let state = disk_state(root.path());
            assert!(!states.contains(&state), "{path}");
            states.push(state);
        }
        let file = root.path().join("model.json");
        let of_file = disk_state(&file);
        fs::remove_file(&file).unwrap();
        assert_ne!(disk_state(&file), of_file);
    }
}
