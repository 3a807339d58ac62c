//! Reads users' templates: folders, and archives, which are untrusted.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

/// The limits on the size of a template, in bytes and files.
pub(super) const MAX_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 10_000;

/// A file of a template or project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Relative, and without `..`.
    pub path: PathBuf,
    pub data: Vec<u8>,
    pub executable: bool,
}

/// Why a user's template cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("cannot read the template `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not a template: expected a folder, or a .zip, .tar, .tar.gz or .tgz file", path.display())]
    Kind { path: PathBuf },
    #[error("the template has a file outside of its folder: `{}`", entry.display())]
    Outside { entry: PathBuf },
    #[error("the template `{}` is larger than {} MiB or has more than {MAX_FILES} files", path.display(), MAX_BYTES >> 20)]
    TooLarge { path: PathBuf },
}

/// The format of an archive.
#[derive(Debug, Clone, Copy)]
enum ArchiveFormat {
    Zip,
    Tar,
    TarGz,
}

impl ArchiveFormat {
    fn of_name(name: &str) -> Option<Self> {
        let ends_in = |suffixes: &[&str]| suffixes.iter().any(|suffix| name.ends_with(suffix));
        match () {
            () if ends_in(&[".zip"]) => Some(Self::Zip),
            () if ends_in(&[".tar"]) => Some(Self::Tar),
            () if ends_in(&[".tar.gz", ".tgz"]) => Some(Self::TarGz),
            () => None,
        }
    }

    /// Returns the format that the first bytes show: the URL of an archive need not end with an extension.
    fn of_content(archive: &[u8]) -> Option<Self> {
        match archive {
            [b'P', b'K', 3, 4, ..] => Some(Self::Zip),
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            _ if archive.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ => None,
        }
    }
}

/// Reads all files of an archive that was downloaded from `url`, as [`read`] does.
pub(super) fn read_download(url: &str, archive: &[u8]) -> Result<Vec<ProjectFile>, ArchiveError> {
    let path = Path::new(url);
    let format = ArchiveFormat::of_content(archive).or_else(|| ArchiveFormat::of_name(&url.to_lowercase()));
    let format = format.ok_or_else(|| ArchiveError::Kind { path: path.to_owned() })?;
    read_archive(path, format, io::Cursor::new(archive))
}

fn read_archive(
    path: &Path,
    format: ArchiveFormat,
    archive: impl Read + io::Seek,
) -> Result<Vec<ProjectFile>, ArchiveError> {
    let mut draft = TemplateReader { path, files: Vec::new(), left: MAX_BYTES };
    match format {
        ArchiveFormat::Zip => draft.zip(archive)?,
        ArchiveFormat::Tar => draft.tar(archive)?,
        ArchiveFormat::TarGz => draft.tar(MultiGzDecoder::new(archive))?,
    }
    Ok(without_common_folder(draft.files))
}

/// Reads all files of a template. Links and special files are skipped.
///
/// If everything in an archive is in one folder, as in those of GitHub, that folder is removed from the paths.
pub(super) fn read(path: &Path) -> Result<Vec<ProjectFile>, ArchiveError> {
    if path.is_dir() {
        let mut draft = TemplateReader { path, files: Vec::new(), left: MAX_BYTES };
        draft.folder(Path::new(""))?;
        return Ok(draft.files);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let format = ArchiveFormat::of_name(&name).ok_or_else(|| ArchiveError::Kind { path: path.to_owned() })?;
    let file = fs::File::open(path).map_err(|source| ArchiveError::Read { path: path.to_owned(), source })?;
    read_archive(path, format, file)
}

struct TemplateReader<'a> {
    path: &'a Path,
    files: Vec<ProjectFile>,
    /// How many more bytes are allowed.
    left: u64,
}

impl TemplateReader<'_> {
    fn failed(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Read { path: self.path.to_owned(), source }
    }

    fn folder(&mut self, below: &Path) -> Result<(), ArchiveError> {
        let entries = fs::read_dir(self.path.join(below)).map_err(|source| self.failed(source))?;
        let mut entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(|source| self.failed(source))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let relative = below.join(entry.file_name());
            let kind = entry.file_type().map_err(|source| self.failed(source))?;
            if kind.is_dir() && entry.file_name() != ".git" {
                self.folder(&relative)?;
            } else if kind.is_file() {
                let open =
                    fs::File::open(entry.path()).and_then(|file| Ok((file.metadata()?.permissions().mode(), file)));
                let (mode, file) = open.map_err(|source| self.failed(source))?;
                self.add(&relative, mode, file)?;
            }
        }
        Ok(())
    }

    fn tar(&mut self, reader: impl Read) -> Result<(), ArchiveError> {
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(|source| self.failed(source))? {
            let entry = entry.map_err(|source| self.failed(source))?;
            if entry.header().entry_type().is_file() {
                let path = entry.path().map_err(|source| self.failed(source))?.into_owned();
                let mode = entry.header().mode().unwrap_or_default();
                self.add(&path, mode, entry)?;
            }
        }
        Ok(())
    }

    fn zip(&mut self, file: impl Read + io::Seek) -> Result<(), ArchiveError> {
        let mut archive = ZipArchive::new(file).map_err(|error| self.failed(error.into()))?;
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(|error| self.failed(error.into()))?;
            if entry.is_file() {
                let name = entry.name().map_err(|error| self.failed(error.into()))?;
                let path = PathBuf::from(name.as_ref());
                let mode = entry.unix_mode().unwrap_or_default();
                self.add(&path, mode, entry)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, mode: u32, reader: impl Read) -> Result<(), ArchiveError> {
        let within = |component: &Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
        if !path.components().all(|component| within(&component)) {
            return Err(ArchiveError::Outside { entry: path.to_owned() });
        }
        let mut data = Vec::new();
        reader.take(self.left + 1).read_to_end(&mut data).map_err(|source| self.failed(source))?;
        let left = self.left.checked_sub(data.len() as u64).filter(|_| self.files.len() < MAX_FILES);
        self.left = left.ok_or_else(|| ArchiveError::TooLarge { path: self.path.to_owned() })?;
        let path = path.components().filter(|component| *component != Component::CurDir).collect();
        self.files.push(ProjectFile { path, data, executable: mode & 0o111 != 0 });
        Ok(())
    }
}

fn without_common_folder(mut files: Vec<ProjectFile>) -> Vec<ProjectFile> {
    let first =
        |file: &ProjectFile| file.path.components().next().map(|component| PathBuf::from(component.as_os_str()));
    let Some(folder) = files.first().and_then(first) else { return files };
    let is_inside = |file: &ProjectFile| file.path != folder && file.path.starts_with(&folder);
    if files.iter().all(is_inside) {
        for file in &mut files {
            if let Ok(rest) = file.path.strip_prefix(&folder) {
                file.path = rest.to_owned();
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::fixtures::gzip;

    fn tar_of(entries: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, mode, data) in entries {
            let mut header = tar::Header::new_gnu();
            // `set_path` rejects such paths.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(data.len() as u64);
            header.set_mode(*mode);
            header.set_cksum();
            builder.append(&header, data.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn read_as(name: &str, bytes: &[u8]) -> Result<Vec<ProjectFile>, ArchiveError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        read(&path)
    }

    fn file(path: &str, data: &str, executable: bool) -> ProjectFile {
        ProjectFile { path: path.into(), data: data.as_bytes().to_vec(), executable }
    }

    #[test]
    fn template_archives_of_every_format_are_read() {
        let expected = [file("a.txt", "A", false), file("bin/run", "B", true)];
        let tar = tar_of(&[("top/a.txt", 0o644, "A"), ("top/bin/run", 0o755, "B")]);
        assert_eq!(read_as("t.tar", &tar).unwrap(), expected);
        assert_eq!(read_as("t.TGZ", &gzip(&tar)).unwrap(), expected);
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (path, mode, data) in [("top/a.txt", 0o644, "A"), ("top/bin/run", 0o755, "B")] {
            zip.start_file(path, zip::write::SimpleFileOptions::default().unix_permissions(mode)).unwrap();
            zip.write_all(data.as_bytes()).unwrap();
        }
        assert_eq!(read_as("t.zip", zip.finish().unwrap().get_ref()).unwrap(), expected);
        let flat = tar_of(&[("./a.txt", 0o644, "A"), ("b/c", 0o644, "C")]);
        assert_eq!(read_as("t.tar", &flat).unwrap(), [file("a.txt", "A", false), file("b/c", "C", false)]);
    }

    #[test]
    fn template_malicious_archives_are_rejected() {
        for path in ["../up", "/etc/passwd", "a/../../up"] {
            let error = read_as("t.tar", &tar_of(&[(path, 0o644, "x")])).unwrap_err();
            assert_eq!(error.to_string(), format!("the template has a file outside of its folder: `{path}`"));
        }
        assert!(matches!(read_as("t.rar", b""), Err(ArchiveError::Kind { .. })));
        assert!(matches!(read_as("t.zip", b"no zip"), Err(ArchiveError::Read { .. })));
        assert!(matches!(read_as("t.tar.gz", b"no gzip"), Err(ArchiveError::Read { .. })));
    }
}
