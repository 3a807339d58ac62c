//! The interpreter that tests of Python models need: `MLSERVER_TEST_PYTHON`, or `python3` in PATH.
//!
//! Without an interpreter, these tests report that they are skipped. If `CI` is set, they fail instead.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Folder, ServerBuilder, repository_path, skipped};

/// Returns the interpreter, or `None` if the test is to be skipped.
pub(crate) fn python() -> Option<PathBuf> {
    let named = std::env::vars_os().find(|(name, _)| name == "MLSERVER_TEST_PYTHON").map(|(_, path)| path.into());
    let path = std::env::vars_os().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    let in_path = || {
        let path = path?;
        std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|path| path.is_file())
    };
    let found = named.or_else(in_path);
    if found.is_none() {
        assert!(std::env::vars_os().all(|(name, _)| name != "CI"), "CI needs a Python interpreter");
        skipped("there is no Python interpreter");
    }
    found
}

/// Returns a server of this folder that can run models in Python, or `None` without an interpreter.
pub(crate) fn with_python(folder: Folder) -> Option<ServerBuilder> {
    Some(ServerBuilder::new(folder).python(&python()?))
}

impl ServerBuilder {
    /// Sets the environment variables that a server needs to run models in Python.
    pub(crate) fn python(self, python: &Path) -> Self {
        let cache = repository_path("target/test-cache");
        fs::create_dir_all(&cache).unwrap();
        self.env("XDG_CACHE_HOME", cache.to_str().unwrap())
            .env("PATH", "/usr/bin:/bin")
            .env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())
    }
}
