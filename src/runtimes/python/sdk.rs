//! The package `mlserver` that models import, and the runtimes of frameworks (`mlserver_sklearn` and its like), which the
//! executable carries and puts on disk for its workers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rust_embed::RustEmbed;
use tracing::debug;

#[derive(RustEmbed)]
#[folder = "python/"]
#[include = "mlserver/**/*.py"]
#[include = "mlserver_*/**/*.py"]
#[include = "mlserver/py.typed"]
struct Files;

/// Why the package could not be put anywhere.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot write the Python package into `{}`", path.display())]
pub struct SdkError {
    path: PathBuf,
    source: Arc<io::Error>,
}

/// Puts the package into a folder of its own and returns that; a folder that has it already stays as it is.
///
/// The folder's name says what is in it. It is in the user's cache, or where that cannot be written, among temporary files;
/// in a place that others write to, only a folder that is ours is used.
pub(super) async fn install(variables: &BTreeMap<String, String>) -> Result<PathBuf, SdkError> {
    let set = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    let places = cache.map(|cache| cache.join("mlserver")).into_iter().chain([temporary]);
    let places: Vec<PathBuf> = places.collect();
    let installed = tokio::task::spawn_blocking(move || {
        let mut failure = None;
        for place in places {
            match install_in(&place) {
                Ok(folder) => return Ok(folder),
                Err(source) => {
                    debug!(path = %place.display(), error = %source, "The Python package cannot be put here.");
                    failure = Some(SdkError { path: place, source: Arc::new(source) });
                }
            }
        }
        Err(failure.expect("there is at least one place"))
    });
    installed.await.expect("writing files does not panic")
}

fn install_in(place: &Path) -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = place.join(format!("mlserver-sdk-{user}-{}", digest()));
    if is_ours(&folder, user) {
        return Ok(folder);
    }
    fs::create_dir_all(place)?;
    // Made complete under another name, so that another server never sees half of it.
    let draft = place.join(format!(".mlserver-sdk-{}-{}", std::process::id(), uuid::Uuid::new_v4()));
    fs::DirBuilder::new().mode(0o700).create(&draft)?;
    let written = write_files(&draft).and_then(|()| fs::rename(&draft, &folder));
    if let Err(error) = written {
        // What is left of it is of no use, and its loss not worth a word.
        let _ = fs::remove_dir_all(&draft);
        if !is_ours(&folder, user) {
            return Err(error);
        }
    }
    Ok(folder)
}

/// Tells whether nobody else can have put anything there.
fn is_ours(folder: &Path, user: u32) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0)
}

fn write_files(folder: &Path) -> io::Result<()> {
    for (name, data) in files() {
        let path = folder.join(name.as_ref());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, data)?;
    }
    Ok(())
}

fn files() -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, [u8]>)> {
    Files::iter().filter_map(|name| {
        let file = Files::get(&name)?;
        Some((name, file.data))
    })
}

/// Returns a name for the content: the same for the same files.
fn digest() -> String {
    let mut mixed = [0_u8; 32];
    let mut names: Vec<_> = Files::iter().collect();
    names.sort();
    for (index, name) in names.iter().enumerate() {
        let Some(file) = Files::get(name) else { continue };
        let hash = file.metadata.sha256_hash();
        let rotation = index % mixed.len();
        for (place, byte) in hash.into_iter().chain(name.bytes()).enumerate() {
            let at = (place + rotation) % mixed.len();
            mixed[at] = mixed[at].rotate_left(3) ^ byte;
        }
    }
    mixed[..12].iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
