//! Files whose changes count while the server runs: certificates, keys and the like.
//!
//! Their content is compared every few seconds. Unlike notifications of the file system, this sees symbolic links that are
//! swapped above a file, as Kubernetes and cert-manager do, and works on every file system. SIGHUP requests a look at once.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch::Sender;
use tracing::{info, warn};

use crate::shutdown::spawn_supervised;

/// The time between two looks at the files. A failure is reported at the second look, so a change counts, and a failure is
/// reported, within 10 seconds.
const INTERVAL: Duration = Duration::from_secs(3);

/// Changes with each request to look at the files. Like signals, it concerns the whole process.
static REQUESTED: LazyLock<Sender<()>> = LazyLock::new(Sender::default);

/// Has all files looked at now. What cannot be used is reported at this look.
pub fn request() {
    REQUESTED.send_replace(());
}

/// A file that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFile {
    pub setting: &'static str,
    pub path: PathBuf,
    /// The most bytes that are read.
    pub limit: u64,
}

/// Why a file that a setting names cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}`: cannot use `{}`: {reason}", path.display())]
pub struct SettingFileError {
    pub setting: &'static str,
    pub path: PathBuf,
    pub reason: String,
}

impl SettingFile {
    /// Names a file relative to a folder, unless its path is absolute.
    pub fn new(setting: &'static str, folder: &Path, path: &Path, limit: u64) -> Self {
        Self { setting, path: folder.join(path), limit }
    }

    /// Creates the error for this file.
    pub fn error(&self, reason: &(impl ToString + ?Sized)) -> SettingFileError {
        SettingFileError { setting: self.setting, path: self.path.clone(), reason: reason.to_string() }
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing, unreadable, not a regular file or too large.
    pub fn read(&self) -> Result<Vec<u8>, SettingFileError> {
        // Opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(&self.path).map_err(|error| self.error(&plain(&error)))?;
        if !metadata.is_file() {
            return Err(self.error("it is not a regular file"));
        }
        let file = File::open(&self.path).map_err(|error| self.error(&plain(&error)))?;
        let mut content = Vec::new();
        file.take(self.limit + 1).read_to_end(&mut content).map_err(|error| self.error(&plain(&error)))?;
        if content.len() as u64 > self.limit {
            return Err(self.error(&format!("it is larger than {} bytes", self.limit)));
        }
        Ok(content)
    }
}

/// Reads files in their order.
///
/// # Errors
///
/// Fails if one of them cannot be read.
pub fn read_all(files: &[SettingFile]) -> Result<Vec<Vec<u8>>, SettingFileError> {
    files.iter().map(SettingFile::read).collect()
}

/// Calls `apply` with the contents of all files whenever one has changed since `contents`, for as long as the process runs.
///
/// If the new files cannot be read, or `apply` fails, what was applied before stays in use, and one warning is logged. Files are
/// often replaced one after the other, so the warning waits until they have not changed between two looks.
pub fn watch(
    files: Vec<SettingFile>,
    contents: &[Vec<u8>],
    apply: impl FnMut(&[Vec<u8>]) -> Result<(), SettingFileError> + Send + 'static,
) {
    let mut watch = Watch { applied: fingerprint(&Ok(contents.to_vec())), failed: None, warned: false, apply };
    let mut requested = REQUESTED.subscribe();
    spawn_supervised("reloads of changed files", async move {
        loop {
            let is_requested = tokio::time::timeout(INTERVAL, requested.changed()).await.is_ok();
            let of_look = files.clone();
            // Fails only if the runtime stops.
            let Ok(found) = tokio::task::spawn_blocking(move || read_all(&of_look)).await else { return };
            match watch.look(&found, is_requested) {
                Outcome::Unchanged => {}
                Outcome::Applied => {
                    for file in &files {
                        info!("Reloaded `{}` from `{}`.", file.setting, file.path.display());
                    }
                }
                Outcome::Failed(error) => {
                    warn!("{error}. The previous content stays in use until the file is repaired.");
                }
            }
        }
    });
}

/// What is known from earlier looks at files.
struct Watch<F> {
    applied: blake3::Hash,
    /// The contents that could not be applied.
    failed: Option<blake3::Hash>,
    /// Whether their failure has been reported.
    warned: bool,
    apply: F,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing to report.
    Unchanged,
    Applied,
    Failed(SettingFileError),
}

impl<F: FnMut(&[Vec<u8>]) -> Result<(), SettingFileError>> Watch<F> {
    fn look(&mut self, found: &Result<Vec<Vec<u8>>, SettingFileError>, is_requested: bool) -> Outcome {
        let seen = fingerprint(found);
        if seen == self.applied {
            self.failed = None;
            return Outcome::Unchanged;
        }
        let is_repeated = is_requested || self.failed == Some(seen);
        if !is_requested && is_repeated && self.warned {
            return Outcome::Unchanged;
        }
        match found.as_ref().map_err(Clone::clone).and_then(|contents| (self.apply)(contents)) {
            Ok(()) => {
                self.applied = seen;
                self.failed = None;
                Outcome::Applied
            }
            Err(error) => {
                self.failed = Some(seen);
                self.warned = is_repeated;
                if is_repeated { Outcome::Failed(error) } else { Outcome::Unchanged }
            }
        }
    }
}

/// Returns a hash of the contents, or of the reason why there are none.
fn fingerprint(found: &Result<Vec<Vec<u8>>, SettingFileError>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    match found {
        Ok(contents) => {
            for content in contents {
                hasher.update(&(content.len() as u64).to_le_bytes()).update(content);
            }
        }
        Err(error) => {
            hasher.update(error.to_string().as_bytes());
        }
    }
    hasher.finalize()
}

/// Returns the message of an error of the system without its number.
fn plain(error: &std::io::Error) -> String {
    let message = error.to_string();
    message.split(" (os error ").next().unwrap_or(&message).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> SettingFile {
        SettingFile::new("tls_key", Path::new("/"), path, 4)
    }

    #[test]
    fn setting_file_read_rejects_missing_special_and_large_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let message = |path: &Path| file(path).read().unwrap_err().to_string();
        assert_eq!(message(&path), format!("`tls_key`: cannot use `{}`: no such file or directory", path.display()));
        assert!(message(folder.path()).ends_with("it is not a regular file"));
        std::fs::write(&path, "12345").unwrap();
        assert!(message(&path).ends_with("it is larger than 4 bytes"));
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(file(&path).read().unwrap(), b"1234");
    }

    #[test]
    fn watch_applies_changes_and_reports_a_lasting_failure_once() {
        let content = |text: &str| Ok(vec![text.as_bytes().to_vec()]);
        let apply = |contents: &[Vec<u8>]| {
            if contents[0].starts_with(b"bad") { Err(file(Path::new("a")).error("bad")) } else { Ok(()) }
        };
        let mut watch = Watch { applied: fingerprint(&content("1")), failed: None, warned: false, apply };
        let failed = |outcome| matches!(outcome, Outcome::Failed(_));
        assert_eq!(watch.look(&content("1"), false), Outcome::Unchanged);
        assert_eq!(watch.look(&content("2"), false), Outcome::Applied);
        assert_eq!(watch.look(&content("bad"), false), Outcome::Unchanged, "it may be half of a change");
        assert_eq!(watch.look(&content("3"), false), Outcome::Applied);
        assert_eq!(watch.look(&content("bad"), false), Outcome::Unchanged);
        assert!(failed(watch.look(&content("bad"), false)));
        assert_eq!(watch.look(&content("bad"), false), Outcome::Unchanged);
        assert_eq!(watch.look(&content("bad again"), false), Outcome::Unchanged);
        assert!(failed(watch.look(&content("bad again"), false)));
        let missing = || Err(file(Path::new("a")).error("missing"));
        assert_eq!(watch.look(&missing(), false), Outcome::Unchanged);
        assert!(failed(watch.look(&missing(), false)));
        assert_eq!(watch.look(&content("3"), false), Outcome::Unchanged, "the file is as it was applied");
        assert_eq!(watch.look(&missing(), false), Outcome::Unchanged);
        assert!(failed(watch.look(&missing(), false)), "another failure");
        assert_eq!(watch.look(&content("4"), false), Outcome::Applied);
        for _ in 0..2 {
            assert!(failed(watch.look(&missing(), true)), "a requested look reports its failure");
        }
        assert_eq!(watch.look(&missing(), false), Outcome::Unchanged);
        assert_eq!(watch.look(&content("4"), true), Outcome::Unchanged);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_looks_at_once_if_requested() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(&path, "1").unwrap();
        let (sender, mut applied) = tokio::sync::mpsc::unbounded_channel();
        watch(vec![file(&path)], &[b"1".to_vec()], move |contents| {
            sender.send(contents.concat()).unwrap();
            Ok(())
        });
        std::fs::write(&path, "2").unwrap();
        let began = tokio::time::Instant::now();
        request();
        assert_eq!(applied.recv().await.unwrap(), b"2");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
