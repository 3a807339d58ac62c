//! The package `mlserver` that models import, and the framework runtimes (`mlserver_sklearn` and others). They are embedded
//! in the executable, which installs them on disk for its workers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::debug;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::archives::is_safe_folder;

/// The path of each file, and its content. Sorted.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// Why the package could not be installed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot write the Python package into `{}`", path.display())]
pub struct SdkError {
    path: PathBuf,
    source: Arc<io::Error>,
}

/// Installs the package into a folder of its own and returns the folder. An existing folder with the same content is reused.
///
/// The folder's name contains a hash of the content. The folder is created in the user's cache, or with the temporary files
/// if the cache is not writable. Other users may be able to write to its parent, so it is only reused if the current user or root
/// owns it and only the owner can write to it.
pub(super) async fn install(variables: &BTreeMap<String, String>) -> Result<PathBuf, SdkError> {
    let variables = variables.clone();
    let installed = tokio::task::spawn_blocking(move || installed_package(&variables));
    installed.await.expect("writing files does not panic")
}

/// Does the same outside of a task, and waits.
///
/// # Errors
///
/// Fails if the files cannot be written.
pub fn installed_package(variables: &BTreeMap<String, String>) -> Result<PathBuf, SdkError> {
    let set = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    let parents = cache.map(|cache| cache.join("mlserver")).into_iter().chain([temporary]);
    let parents: Vec<PathBuf> = parents.collect();
    let mut failure = None;
    for parent in parents {
        match install_in(&parent) {
            Ok(folder) => return Ok(folder),
            Err(source) => {
                debug!(path = %parent.display(), error = %source, "Cannot install the Python package here.");
                failure = Some(SdkError { path: parent, source: Arc::new(source) });
            }
        }
    }
    Err(failure.expect("there is at least one candidate"))
}

/// Returns an archive of the package `mlserver`, without the framework runtimes, in the folder of an installed package.
///
/// # Errors
///
/// Fails if the archive cannot be written.
pub fn package_archive(installed: &Path) -> Result<PathBuf, SdkError> {
    let path = installed.join("mlserver.zip");
    if path.is_file() {
        return Ok(path);
    }
    // As for the folder: others never see an incomplete archive.
    let draft = installed.join(format!(".mlserver-{}.zip", uuid::Uuid::new_v4()));
    let written = write_archive(&draft).and_then(|()| fs::rename(&draft, &path));
    written.map_err(|source| {
        let _ = fs::remove_file(&draft);
        SdkError { path: path.clone(), source: Arc::new(source) }
    })?;
    Ok(path)
}

fn write_archive(path: &Path) -> io::Result<()> {
    let mut archive = ZipWriter::new(fs::File::create(path)?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, data) in FILES.iter().filter(|(name, _)| name.starts_with("mlserver/")) {
        archive.start_file(*name, options)?;
        archive.write_all(data)?;
    }
    archive.finish()?;
    Ok(())
}

fn install_in(parent: &Path) -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = parent.join(format!("mlserver-sdk-{user}-{}", content_hash()));
    if is_safe_folder(&folder) {
        return Ok(folder);
    }
    fs::create_dir_all(parent)?;
    // Written under a temporary name and then renamed, so that other servers never see an incomplete folder.
    let draft = parent.join(format!(".mlserver-sdk-{}-{}", std::process::id(), uuid::Uuid::new_v4()));
    fs::DirBuilder::new().mode(0o700).create(&draft)?;
    let written = write_files(&draft).and_then(|()| fs::rename(&draft, &folder));
    if let Err(error) = written {
        // A failure to remove the draft does no harm.
        let _ = fs::remove_dir_all(&draft);
        if !is_safe_folder(&folder) {
            return Err(error);
        }
    }
    Ok(folder)
}

fn write_files(folder: &Path) -> io::Result<()> {
    for (name, data) in FILES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, data)?;
    }
    Ok(())
}

/// Returns a hash of the names and contents of all files.
fn content_hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, data) in FILES {
        // Hashes of fixed length keep names and contents apart.
        hasher.update(blake3::hash(name.as_bytes()).as_bytes()).update(blake3::hash(data).as_bytes());
    }
    hasher.finalize().to_hex()[..24].to_owned()
}
