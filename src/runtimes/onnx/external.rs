//! The files in which a model keeps data beside its own.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use crate::evaluators::onnx::ExternalRange;

/// How many times the size of a file with external data may be read, since tensors may share their data.
const READS: u64 = 2;

/// The files in which a model keeps data. They are in its folder, or below it.
#[derive(Debug)]
pub(in crate::runtimes) struct ExternalFiles {
    folder: PathBuf,
    /// The folders that no file may leave, also by links: that of the model's path, and that of the file that it links to.
    roots: Vec<PathBuf>,
    /// The file that was read last, its size, and how many more bytes may be read of it.
    last: Mutex<Option<OpenFile>>,
}

#[derive(Debug)]
struct OpenFile {
    location: String,
    file: File,
    size: u64,
    left: u64,
}

impl ExternalFiles {
    /// Describes the files of the model at a path.
    pub(in crate::runtimes) fn new(model: &Path) -> Self {
        let folder = model.parent().map(Path::to_owned).unwrap_or_default();
        let resolved = [
            fs::canonicalize(&folder).ok(),
            fs::canonicalize(model).ok().and_then(|file| Some(file.parent()?.to_owned())),
        ];
        Self { folder, roots: resolved.into_iter().flatten().collect(), last: Mutex::new(None) }
    }

    /// Reads data. Returns why it does not: the end of a sentence.
    pub(in crate::runtimes) fn read(&self, range: &ExternalRange<'_>) -> Result<Bytes, String> {
        let shown = range.location.escape_debug();
        let mut last = self.last.lock().map_err(|_| "the file cannot be read".to_owned())?;
        if last.as_ref().is_none_or(|open| open.location != range.location) {
            *last = Some(self.open(range.location)?);
        }
        let Some(open) = last.as_mut() else { return Err("the file cannot be read".to_owned()) };
        let length = range.length.unwrap_or(open.size.saturating_sub(range.offset));
        let end = range.offset.checked_add(length).filter(|end| *end <= open.size);
        if end.is_none() {
            return Err(format!(
                "`{shown}` has {} bytes, but {length} bytes are expected at {}",
                open.size, range.offset
            ));
        }
        open.left =
            open.left.checked_sub(length).ok_or_else(|| format!("`{shown}` would be read more than {READS} times"))?;
        let failed = |error: std::io::Error| format!("`{shown}` cannot be read: {error}");
        let mut bytes = Vec::new();
        let size = usize::try_from(length).map_err(|_| format!("`{shown}` is too large"))?;
        bytes.try_reserve_exact(size).map_err(|_| format!("there is no memory for `{shown}`"))?;
        open.file.seek(SeekFrom::Start(range.offset)).map_err(failed)?;
        (&open.file).take(length).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() == size { Ok(bytes.into()) } else { Err(format!("`{shown}` became shorter while it was read")) }
    }

    fn open(&self, location: &str) -> Result<OpenFile, String> {
        let shown = location.escape_debug();
        let path = Path::new(location);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_below || location.contains('\0') {
            return Err(format!("`{shown}` is not in the folder of the model or below it"));
        }
        let failed = |error: std::io::Error| format!("`{shown}` cannot be read: {error}");
        let resolved = fs::canonicalize(self.folder.join(path)).map_err(failed)?;
        if !self.roots.iter().any(|root| resolved.starts_with(root)) {
            return Err(format!("`{shown}` is a link that leaves the folder of the model"));
        }
        let metadata = fs::metadata(&resolved).map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("`{shown}` is not a regular file"));
        }
        let file = File::open(&resolved).map_err(failed)?;
        let size = metadata.len();
        Ok(OpenFile { location: location.to_owned(), file, size, left: size.saturating_mul(READS) })
    }
}
