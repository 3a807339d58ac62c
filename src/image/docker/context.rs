//! The build context: a tar of the Dockerfile, the folder and the server, written while it is sent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use crate::image::{Dockerfile, IgnoreRules};

/// The name of the Dockerfile in the context. The folder's files are in `project/`, so they cannot collide with it.
pub(super) const DOCKERFILE: &str = "Dockerfile";
/// How many bytes are sent at a time, and how many such chunks may wait to be sent.
const CHUNK: usize = 256 << 10;
const MAX_WAITING_CHUNKS: usize = 4;

/// The contents of a build context.
#[derive(Debug)]
pub struct BuildContext {
    pub dockerfile: Dockerfile,
    /// The folder that becomes `project/`, if any.
    pub folder: Option<PathBuf>,
    pub ignore: IgnoreRules,
    /// Whether `project/` gets an empty folder `.cache`, which every user may write to: images without Python have no other such folder.
    pub with_cache: bool,
    /// Files and folders of this machine that are added to `project/`, also those that the patterns exclude: the path of each, and its
    /// path below `project/`.
    pub added: Vec<(PathBuf, String)>,
    /// Files of the folder that the image has with another content, or without one not at all, by their paths below the folder.
    pub replaced: BTreeMap<String, Option<Vec<u8>>>,
    /// Other files: the path of each in the context, and its content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Files of this machine that go to `server/`: the path of each, and its path in the image.
    pub server: Vec<(PathBuf, PathBuf)>,
}

impl BuildContext {
    /// Returns the bytes of the tar. At most a megabyte of it is in memory. Dropping the stream stops the writer.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let (chunks, mut sent) = mpsc::channel(MAX_WAITING_CHUNKS);
        tokio::task::spawn_blocking(move || {
            let writer = BufWriter::with_capacity(CHUNK, ChunkWriter(chunks.clone()));
            if let Err(error) = self.write(writer) {
                // Fails if the receiver is gone.
                let _ = chunks.blocking_send(Err(error));
            }
        });
        stream::poll_fn(move |context| sent.poll_recv(context))
    }

    fn write(self, writer: impl Write) -> io::Result<()> {
        let mut tar = Builder::new(writer);
        tar.append_data(
            &mut header(EntryType::Regular, 0o644, self.dockerfile.text.len() as u64, 0),
            DOCKERFILE,
            self.dockerfile.text.as_bytes(),
        )?;
        for (source, target) in &self.server {
            let target = Path::new("server").join(target.strip_prefix("/").unwrap_or(target));
            add_file(&mut tar, source, &target).map_err(|error| with_path(source, &error))?;
        }
        for (path, content) in &self.files {
            let mut header = header(EntryType::Regular, 0o644, content.len() as u64, 0);
            tar.append_data(&mut header, path, content.as_slice())?;
        }
        if let Some(folder) = &self.folder {
            tar.append_data(&mut header(EntryType::Directory, 0o755, 0, 0), "project", io::empty())?;
            let (target, ignore, replaced) = (Path::new("project"), &self.ignore, &self.replaced);
            AddedFolder { root: folder, target, ignore, replaced }.add(&mut tar, "")?;
        }
        if self.with_cache {
            tar.append_data(&mut header(EntryType::Directory, 0o777, 0, 0), "project/.cache", io::empty())?;
        }
        for (source, target) in &self.added {
            let target = Path::new("project").join(target);
            if source.is_dir() {
                let (ignore, replaced) = (&IgnoreRules::default(), &BTreeMap::new());
                tar.append_data(&mut header(EntryType::Directory, 0o755, 0, 0), &target, io::empty())?;
                AddedFolder { root: source, target: &target, ignore, replaced }.add(&mut tar, "")?;
            } else {
                add_file(&mut tar, source, &target).map_err(|error| with_path(source, &error))?;
            }
        }
        let replaced = self.replaced.iter().filter_map(|(path, content)| Some((path, content.as_ref()?)));
        for (path, content) in replaced {
            let mut header = header(EntryType::Regular, 0o644, content.len() as u64, 0);
            tar.append_data(&mut header, Path::new("project").join(path), content.as_slice())?;
        }
        tar.into_inner()?.flush()
    }
}

/// A folder whose content is added.
struct AddedFolder<'a> {
    root: &'a Path,
    /// Its path in the context.
    target: &'a Path,
    ignore: &'a IgnoreRules,
    /// By their paths below the folder.
    replaced: &'a BTreeMap<String, Option<Vec<u8>>>,
}

impl AddedFolder<'_> {
    /// Adds the content of a folder in order, without excluded files.
    ///
    /// Owners and permissions for the group are those of this machine, so they are not copied: files in the image belong to root.
    fn add(&self, tar: &mut Builder<impl Write>, below: &str) -> io::Result<()> {
        let folder = self.root.join(below);
        let mut entries = fs::read_dir(&folder)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|e| with_path(&folder, &e))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let path = entry.path();
            let Some(name) = name.to_str() else {
                return Err(with_path(&path, &io::Error::other("its name is not UTF-8")));
            };
            let relative = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            let excluded = self.ignore.excludes(&relative) || self.replaced.contains_key(&relative);
            let kind = entry.file_type().map_err(|error| with_path(&path, &error))?;
            let target = self.target.join(&relative);
            if kind.is_dir() {
                if !excluded {
                    tar.append_data(&mut header(EntryType::Directory, 0o755, 0, 0), &target, io::empty())?;
                }
                if !excluded || self.ignore.has_exceptions() {
                    self.add(tar, &relative)?;
                }
            } else if excluded {
            } else if kind.is_symlink() {
                let link = fs::read_link(&path).map_err(|error| with_path(&path, &error))?;
                tar.append_link(&mut header(EntryType::Symlink, 0o777, 0, 0), &target, link)?;
            } else if kind.is_file() {
                add_file(tar, &path, &target).map_err(|error| with_path(&path, &error))?;
            }
        }
        Ok(())
    }
}

fn add_file(tar: &mut Builder<impl Write>, source: &Path, target: &Path) -> io::Result<()> {
    let file = File::open(source)?;
    let metadata = file.metadata()?;
    let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let size = metadata.len();
    // A file that grows or shrinks while it is read must not corrupt the rest of the tar.
    let content = io::Read::chain(io::Read::take(file, size), io::repeat(0));
    tar.append_data(&mut header(EntryType::Regular, mode, size, changed), target, io::Read::take(content, size))
}

fn header(kind: EntryType, mode: u32, size: u64, changed: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(changed);
    header
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot add `{}` to the build context: {error}", path.display()))
}

/// Sends what is written.
struct ChunkWriter(mpsc::Sender<io::Result<Bytes>>);

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use futures_util::StreamExt;

    use super::*;

    /// Returns the path, mode and content of each entry; for a link, its target.
    async fn entries(context: BuildContext) -> Vec<(String, u32, String)> {
        let chunks: Vec<_> = context.into_stream().map(Result::unwrap).collect().await;
        let bytes = chunks.concat();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            let link = entry.link_name().unwrap().map(|link| format!("-> {}", link.display()));
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
            found.push((path, entry.header().mode().unwrap(), link.unwrap_or(text)));
        }
        found
    }

    #[tokio::test]
    async fn build_context_excludes_ignored_files() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path();
        fs::create_dir(other.path().join("data")).unwrap();
        fs::write(other.path().join("data/x"), "x").unwrap();
        for (path, content) in [
            ("m/a.json", "old"),
            ("m/lock", "l"),
            ("models.py", "m"),
            ("a folder/x y.txt", "x"),
            ("data/keep/k", "k"),
            ("data/big", "b"),
            ("run", "r"),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), content).unwrap();
        }
        fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(root.join("models.py"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("models.py", root.join("link")).unwrap();
        let found = entries(BuildContext {
            dockerfile: Dockerfile { text: "FROM scratch".to_owned(), images: Vec::new() },
            folder: Some(root.to_owned()),
            ignore: IgnoreRules::parse("data\n!data/keep").unwrap(),
            with_cache: true,
            added: vec![(other.path().to_owned(), "m/.model".to_owned()), (root.join("run"), "m/run".to_owned())],
            replaced: [("m/a.json".to_owned(), Some(b"new".to_vec())), ("m/lock".to_owned(), None)].into(),
            files: vec![("packaging/docker/requirements.txt".into(), b"numpy".to_vec())],
            server: vec![(root.join("run"), "/usr/local/bin/mlserver".into())],
        })
        .await;
        let expected = [
            ("Dockerfile", 0o644, "FROM scratch"),
            ("server/usr/local/bin/mlserver", 0o755, "r"),
            ("packaging/docker/requirements.txt", 0o644, "numpy"),
            ("project", 0o755, ""),
            ("project/a folder", 0o755, ""),
            ("project/a folder/x y.txt", 0o644, "x"),
            ("project/data/keep", 0o755, ""),
            ("project/data/keep/k", 0o644, "k"),
            ("project/link", 0o777, "-> models.py"),
            ("project/m", 0o755, ""),
            ("project/models.py", 0o644, "m"),
            ("project/run", 0o755, "r"),
            ("project/.cache", 0o777, ""),
            ("project/m/.model", 0o755, ""),
            ("project/m/.model/data", 0o755, ""),
            ("project/m/.model/data/x", 0o644, "x"),
            ("project/m/run", 0o755, "r"),
            ("project/m/a.json", 0o644, "new"),
        ];
        let found: Vec<_> = found.iter().map(|(path, mode, text)| (path.as_str(), *mode, text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn build_context_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("gone");
        let context = BuildContext {
            dockerfile: Dockerfile { text: String::new(), images: Vec::new() },
            folder: Some(folder.path().to_owned()),
            ignore: IgnoreRules::default(),
            with_cache: false,
            added: Vec::new(),
            replaced: BTreeMap::new(),
            files: Vec::new(),
            server: vec![(missing.clone(), "/x".into())],
        };
        let chunks: Vec<_> = context.into_stream().collect().await;
        let error = chunks.into_iter().find_map(Result::err).unwrap().to_string();
        assert!(error.starts_with(&format!("cannot add `{}` to the build context", missing.display())), "{error}");
    }
}
