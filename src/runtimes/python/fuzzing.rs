//! What fuzz targets call: the reader of packed environments.

use std::path::Path;

use super::environment;

/// Unpacks a file as a packed environment into an empty folder, and reports whether it is one.
pub fn unpack(archive: &Path, root: &Path) -> bool {
    environment::unpack_for_fuzzing(archive, root)
}
