//! The output of a run: a stream, or a file that is either complete or absent.
//!
//! Answers are written to `NAME.partial`, in the order of the input, and the file is renamed to `NAME` when it is complete. However a
//! run ends, the complete lines of the file are the answers to the first rows, and the next run can resume after them. A complete
//! file is renamed back if the input has more rows. `NAME.partial.rows` has the fingerprint of each row that has been answered, so that
//! another input, or another order of its rows, is noticed.

mod answered;
mod error;

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;

pub use self::answered::{AnsweredIds, OutputState};
use self::answered::{answered_offsets, scan};
pub use self::error::OutputError;

use super::convert::{self, OutputFormat};
use super::fingerprint::RowFingerprint;
use super::open_topic;
use super::topic::{Delivery, OutputRecord, PartitionOffsets, RecordWriter, TopicAddress, TopicOptions};
use crate::file_access;
use crate::platform;
use crate::remote::Observer;

/// The suffix of the file until it is complete.
const PARTIAL_SUFFIX: &str = ".partial";
/// The suffix of the file with the fingerprints of the rows, until the output is complete.
const FINGERPRINTS_SUFFIX: &str = ".partial.rows";
/// The suffix of the file with columns until all of them are written.
const COLUMNS_SUFFIX: &str = ".columns";

/// Reports whether an output of this name gets columns instead of lines.
pub fn has_columns(path: &Path) -> bool {
    OutputFormat::of(path) != OutputFormat::Lines
}

/// Where answers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputTarget {
    Stdout,
    File(PathBuf),
    Topic(TopicAddress),
}

/// An open output.
pub struct RunOutput {
    to: OutputHandle,
    name: String,
}

enum OutputHandle {
    Stream(Box<dyn Write + Send>),
    /// A pipe, a terminal, `/dev/null`: a file that cannot be renamed.
    Special(File),
    Regular(PartialFile),
    Topic(Box<dyn RecordWriter>),
    /// The output of an earlier run, which is complete.
    Complete(CompleteFile),
}

/// The file of a run that is not complete. It is removed if there are no answers in it.
struct PartialFile {
    file: File,
    partial: PathBuf,
    /// The fingerprints of the rows; zeros for those of an earlier version.
    fingerprints: File,
    target: PathBuf,
    form: OutputFormat,
    /// The complete file that this one replaces.
    replaced: Option<Metadata>,
    /// The file has answers of an earlier run, which the first answer replaces.
    stale: bool,
    finished: bool,
}

/// The file of a complete run, as it was found.
struct CompleteFile {
    target: PathBuf,
    form: OutputFormat,
    inode: u64,
    size: u64,
}

impl fmt::Debug for RunOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOutput").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RunOutput {
    /// Writes to a stream, `name` in messages.
    pub fn stream(writer: Box<dyn Write + Send>, name: &str) -> Self {
        Self { to: OutputHandle::Stream(writer), name: name.to_owned() }
    }

    /// Writes to a topic.
    ///
    /// # Errors
    ///
    /// Fails if the topic cannot be written to.
    pub fn topic(
        address: &TopicAddress,
        options: &TopicOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, OutputError> {
        let writer = open_topic::writer(address, options, observer)?;
        Ok(Self { to: OutputHandle::Topic(writer), name: format!("`{address}`") })
    }

    /// Opens the output for answers to records of a topic. It continues the output of an interrupted run, whose records may not be
    /// read again, and with `extend` that of a complete run.
    ///
    /// # Errors
    ///
    /// See [`RunOutput::resume`].
    pub fn of_records(path: &Path, extend: bool) -> Result<(Self, OutputState), OutputError> {
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            return Ok((Self::create(path)?.0, OutputState::default()));
        }
        if !extend && path.is_file() && !partial_of(path).exists() {
            return Err(OutputError::CompleteRecords { path: path.to_owned() });
        }
        Self::resume(path)
    }

    /// Returns the offsets of a topic up to which the output has the answers.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has other answers than those to records of the topic.
    pub fn answered_offsets(&self, topic: &str) -> Result<PartitionOffsets, OutputError> {
        match &self.to {
            OutputHandle::Regular(PartialFile { partial, .. }) => answered_offsets(partial, topic),
            OutputHandle::Complete(CompleteFile { target, form: OutputFormat::Lines, .. }) => {
                answered_offsets(target, topic)
            }
            // Columns have no offsets, but those of the group are behind them.
            OutputHandle::Stream(_) | OutputHandle::Special(_) | OutputHandle::Topic(_) | OutputHandle::Complete(_) => {
                Ok(PartitionOffsets::new())
            }
        }
    }

    /// Starts a new output. Also returns how many answers of an interrupted run the first answer drops.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written to, another run is writing to it, or it would replace a file that is not an output.
    pub fn create(path: &Path) -> Result<(Self, u64), OutputError> {
        let name = format!("`{}`", path.display());
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            let failed = |source| OutputError::Open { path: path.to_owned(), source };
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok((Self { to: OutputHandle::Special(file), name }, 0));
        }
        let mut output = PartialFile::open(path)?;
        let (found, _) = scan(&mut output.file, &output.partial)?;
        output.stale = true;
        Ok((Self { to: OutputHandle::Regular(output), name }, found.rows))
    }

    /// Resumes a run. The state is empty if the run stopped before its first answer.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written, is not an output, or another run is writing to it.
    pub fn resume(path: &Path) -> Result<(Self, OutputState), OutputError> {
        let name = format!("`{}`", path.display());
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            return Err(OutputError::NotRegular { path: path.to_owned() });
        }
        if !partial_of(path).exists() && path.is_file() {
            let (complete, state) = CompleteFile::open(path)?;
            return Ok((Self { to: OutputHandle::Complete(complete), name }, state));
        }
        let mut output = PartialFile::open(path)?;
        let (state, end) = scan(&mut output.file, &output.partial)?;
        let cut = cut(&mut output.file, end).and_then(|()| output.cut_fingerprints(state.rows));
        cut.map_err(|source| OutputError::Open { path: output.partial.clone(), source })?;
        Ok((Self { to: OutputHandle::Regular(output), name }, state))
    }

    /// Returns the ids of the answers that the output has.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn answered_ids(&self) -> Result<AnsweredIds, OutputError> {
        match &self.to {
            OutputHandle::Stream(_) | OutputHandle::Special(_) | OutputHandle::Topic(_) => Ok(AnsweredIds {
                ids: Box::new(std::iter::empty()),
                path: PathBuf::from(&self.name),
                fingerprints: None,
            }),
            OutputHandle::Regular(PartialFile { partial, target, .. }) => {
                // Without the file, the ids alone are compared.
                let fingerprints = File::open(with_suffix(target, FINGERPRINTS_SUFFIX)).ok().map(BufReader::new);
                Ok(AnsweredIds { fingerprints, ..AnsweredIds::of_lines(partial)? })
            }
            OutputHandle::Complete(CompleteFile { target, form: OutputFormat::Lines, .. }) => {
                AnsweredIds::of_lines(target)
            }
            OutputHandle::Complete(CompleteFile { target, form, .. }) => {
                let read = |path: PathBuf| move |source| OutputError::Read { path: path.clone(), source };
                let (ids, failed) = (convert::ids(target, *form), read(target.clone()));
                let ids = ids.map_err(&failed)?.map(move |id| id.map_err(&failed));
                Ok(AnsweredIds { ids: Box::new(ids), path: target.clone(), fingerprints: None })
            }
        }
    }

    /// Makes a complete output incomplete, as the input has more rows than the `rows` that it answers.
    ///
    /// # Errors
    ///
    /// Fails if the file has columns, or another process has changed it.
    pub fn reopen(self, rows: u64) -> Result<Self, OutputError> {
        let complete = match self.to {
            OutputHandle::Complete(complete) => complete,
            to => return Ok(Self { to, ..self }),
        };
        let CompleteFile { target, form, inode, size } = complete;
        if form != OutputFormat::Lines {
            return Err(OutputError::CompleteColumns { path: target, rows });
        }
        let partial = partial_of(&target);
        platform::rename_to_new(&target, &partial).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => OutputError::Busy { path: partial.clone() },
            _ => OutputError::Rename { from: target.clone(), to: partial.clone(), source },
        })?;
        sync_folder(&target);
        let mut output = PartialFile::open(&target)?;
        let failed = |source| OutputError::Open { path: partial.clone(), source };
        let metadata = output.file.metadata().map_err(failed)?;
        if (metadata.ino(), metadata.len()) != (inode, size) {
            return Err(OutputError::Busy { path: partial });
        }
        output.file.seek(SeekFrom::Start(size)).map_err(failed)?;
        output.cut_fingerprints(rows).map_err(failed)?;
        Ok(Self { to: OutputHandle::Regular(output), name: self.name })
    }

    /// Writes complete lines. `records` has what else a record of a topic has, for each line; `fingerprints` are those of the rows.
    ///
    /// # Errors
    ///
    /// Fails if the disk is full or the reader has closed the pipe. Some of the lines may have been written.
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        records: &[OutputRecord],
        fingerprints: &[RowFingerprint],
    ) -> Result<Delivery, OutputError> {
        let written = match &mut self.to {
            OutputHandle::Topic(writer) => return Ok(writer.write(lines, records)?),
            OutputHandle::Stream(stream) => stream.write_all(lines).and_then(|()| stream.flush()),
            OutputHandle::Special(file) => file.write_all(lines),
            OutputHandle::Regular(output) => output.write(lines, fingerprints),
            OutputHandle::Complete(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        };
        written.map(|()| Delivery::default()).map_err(|source| self.failed(source))
    }

    /// Returns the failure of a delivery, if there was one.
    pub(super) fn check(&self) -> Result<(), OutputError> {
        if let OutputHandle::Topic(writer) = &self.to { Ok(writer.check()?) } else { Ok(()) }
    }

    /// Notified when a delivery is done or has failed.
    pub(super) fn delivered(&self) -> Arc<Notify> {
        if let OutputHandle::Topic(writer) = &self.to { writer.delivered() } else { Arc::default() }
    }

    /// Returns the limit on a line with its id and key, if lines become records.
    pub(super) fn record_limit(&self) -> Option<usize> {
        if let OutputHandle::Topic(writer) = &self.to { Some(writer.limit()) } else { None }
    }

    /// Reports whether answers are on disk only after [`RunOutput::sync`].
    pub(super) const fn is_synced(&self) -> bool {
        matches!(self.to, OutputHandle::Regular(_))
    }

    fn failed(&self, source: io::Error) -> OutputError {
        match source.kind() {
            io::ErrorKind::BrokenPipe => OutputError::Closed,
            _ => OutputError::Write { name: self.name.clone(), source },
        }
    }

    /// Syncs the written answers to disk.
    ///
    /// # Errors
    ///
    /// Fails if the disk does.
    pub fn sync(&mut self) -> Result<(), OutputError> {
        let synced = match &mut self.to {
            OutputHandle::Regular(output) => output.file.sync_data(),
            _ => Ok(()),
        };
        synced.map_err(|source| self.failed(source))
    }

    /// Renames the file, which has every answer now.
    ///
    /// # Errors
    ///
    /// Fails if the disk does.
    pub fn finish(mut self) -> Result<(), OutputError> {
        if let OutputHandle::Regular(output) = &mut self.to {
            // Without rows, nothing has been written.
            let replaced = output.replace_stale();
            replaced.map_err(|source| self.failed(source))?;
        }
        self.sync()?;
        let OutputHandle::Regular(output) = &mut self.to else { return Ok(()) };
        let PartialFile { file, partial, target, form, replaced, finished, .. } = output;
        let replaced = replaced.as_ref();
        let rename = |from: &Path, file: &File| {
            let kept = replaced.map_or(Ok(()), |replaced| file_access::keep_where_permitted(file, replaced));
            let renamed = kept.and_then(|()| fs::rename(from, &*target));
            renamed.map_err(|source| {
                let (from, to) = (from.to_owned(), target.clone());
                OutputError::Rename { from, to, source }
            })
        };
        if *form == OutputFormat::Lines {
            rename(partial, file)?;
        } else {
            let columns = with_suffix(target, COLUMNS_SUFFIX);
            let converted = file_access::options_for(replaced).truncate(true).open(&columns).and_then(|file| {
                replaced.map_or(Ok(()), |replaced| file_access::keep_where_permitted(&file, replaced))?;
                convert::convert(partial, *form, &columns)?;
                Ok(file)
            });
            let converted = converted.map_err(|source| {
                // A partial file is useless.
                let _ = fs::remove_file(&columns);
                OutputError::Columns { from: partial.clone(), to: target.clone(), source }
            })?;
            rename(&columns, &converted)?;
            // The output is complete; a leftover file is not a failure.
            let _ = fs::remove_file(&*partial);
        }
        // As above.
        let _ = fs::remove_file(with_suffix(target, FINGERPRINTS_SUFFIX));
        *finished = true;
        sync_folder(target);
        Ok(())
    }

    /// Returns the file that an interrupted run leaves, or `None` if it leaves none.
    pub fn partial(&self) -> Option<&Path> {
        match &self.to {
            OutputHandle::Regular(output) => Some(&output.partial),
            _ => None,
        }
    }
}

impl PartialFile {
    /// Opens the partial file of an output, and locks it.
    fn open(path: &Path) -> Result<Self, OutputError> {
        let form = OutputFormat::of(path);
        if !form.is_supported() {
            return Err(OutputError::WithoutParquet);
        }
        if path.is_dir() {
            return Err(OutputError::Open { path: path.to_owned(), source: io::ErrorKind::IsADirectory.into() });
        }
        let partial = partial_of(path);
        if let Some(path) = output_files(path).into_iter().find(|path| path.is_symlink()) {
            return Err(OutputError::Link { path });
        }
        check_columns(path, form)?;
        let failed = |source| OutputError::Open { path: partial.clone(), source };
        let replaced = fs::symlink_metadata(path).ok().filter(Metadata::is_file);
        let file = file_access::options_for(replaced.as_ref()).truncate(false).open(&partial).map_err(failed)?;
        // On a file system without locks, a second run is not detected.
        let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        // Another run may have renamed or removed the file before it released the lock.
        let found = fs::symlink_metadata(&partial).map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let opened = file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).map_err(failed)?;
        if is_locked || found != Some(opened) {
            return Err(OutputError::Busy { path: partial });
        }
        if let Some(replaced) = &replaced {
            file_access::keep_where_permitted(&file, replaced).map_err(failed)?;
        }
        let path_of_rows = with_suffix(path, FINGERPRINTS_SUFFIX);
        let fingerprints = file_access::options_for(replaced.as_ref()).truncate(false).open(&path_of_rows);
        let fingerprints = fingerprints.map_err(|source| OutputError::Open { path: path_of_rows, source })?;
        let target = path.to_owned();
        Ok(Self { file, partial, fingerprints, target, form, replaced, stale: false, finished: false })
    }

    /// Writes lines after the fingerprints of their rows, so that no answer is without one.
    fn write(&mut self, lines: &[u8], fingerprints: &[RowFingerprint]) -> io::Result<()> {
        self.replace_stale()?;
        let bytes: Vec<u8> = fingerprints.iter().flat_map(|fingerprint| fingerprint.bytes()).collect();
        self.fingerprints.write_all(&bytes)?;
        self.file.write_all(lines)
    }

    /// Drops the fingerprints after those of `rows` rows. Rows without one get zeros.
    fn cut_fingerprints(&mut self, rows: u64) -> io::Result<()> {
        cut(&mut self.fingerprints, rows.saturating_mul(RowFingerprint::BYTES as u64))
    }

    /// Drops the answers of an earlier run.
    fn replace_stale(&mut self) -> io::Result<()> {
        if self.stale {
            cut(&mut self.file, 0)?;
            self.cut_fingerprints(0)?;
            self.stale = false;
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.finished && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            // A leftover empty file does no harm.
            let _ = fs::remove_file(&self.partial);
            let _ = fs::remove_file(with_suffix(&self.target, FINGERPRINTS_SUFFIX));
        }
    }
}

impl CompleteFile {
    fn open(path: &Path) -> Result<(Self, OutputState), OutputError> {
        if path.is_symlink() {
            return Err(OutputError::Link { path: path.to_owned() });
        }
        let read = |source| OutputError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        let form = OutputFormat::of(path);
        let state = match form {
            OutputFormat::Lines => {
                let (state, end) = scan(&mut file, path)?;
                if end != metadata.len() {
                    let reason = format!("its line {} is not an answer", state.rows + 1);
                    return Err(OutputError::Foreign { path: path.to_owned(), reason });
                }
                state
            }
            form => {
                let (rows, failed) = convert::count(path, form).map_err(read)?;
                OutputState { rows, failed, complete: false }
            }
        };
        let complete = Self { target: path.to_owned(), form, inode: metadata.ino(), size: metadata.len() };
        Ok((complete, OutputState { complete: true, ..state }))
    }
}

fn cut(file: &mut File, end: u64) -> io::Result<()> {
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end)).map(drop)
}

/// Syncs the folder that a file's name is part of.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        // Not every file system can do that, and nothing is lost while the machine runs.
        let _ = folder.sync_all();
    }
}

/// Checks that the file for the conversion to columns, which will be replaced, is one that an earlier run has left.
fn check_columns(path: &Path, form: OutputFormat) -> Result<(), OutputError> {
    let Some(start) = form.start() else { return Ok(()) };
    let columns = with_suffix(path, COLUMNS_SUFFIX);
    let mut found = Vec::new();
    if fs::symlink_metadata(&columns).is_ok_and(|metadata| !metadata.is_file()) {
        let reason = "it is not a regular file".to_owned();
        return Err(OutputError::Foreign { path: columns, reason });
    }
    let read = File::open(&columns).and_then(|file| file.take(start.len() as u64).read_to_end(&mut found));
    match read {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(OutputError::Open { path: columns, source }),
        // The run may have been killed before it wrote anything, or all of it.
        Ok(_) if start.starts_with(&found) => Ok(()),
        Ok(_) => {
            let reason = "it does not start like a table of answers".to_owned();
            Err(OutputError::Foreign { path: columns, reason })
        }
    }
}

/// Returns the files that a run with this output writes to.
pub fn output_files(path: &Path) -> [PathBuf; 4] {
    [path.to_owned(), partial_of(path), with_suffix(path, COLUMNS_SUFFIX), with_suffix(path, FINGERPRINTS_SUFFIX)]
}

fn partial_of(path: &Path) -> PathBuf {
    with_suffix(path, PARTIAL_SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::geteuid;

    use super::*;

    fn line(index: u64, failed: bool) -> String {
        if failed {
            format!("{{\"parameters\":{{\"batch_index\":{index}}},\"error\":{{}}}}\n")
        } else {
            format!("{{\"model_name\":\"m\",\"id\":\"i{index}\",\"parameters\":{{\"batch_index\":{index}}}}}\n")
        }
    }

    #[test]
    fn output_resume_continues_after_the_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let (mut output, lost) = RunOutput::create(&path).unwrap();
        assert_eq!(lost, 0);
        output.write((line(0, false) + &line(1, true) + &line(2, false) + "{\"model_na").as_bytes(), &[], &[]).unwrap();
        assert!(
            matches!(RunOutput::resume(&path), Err(OutputError::Busy { .. })),
            "the first run still holds the lock"
        );
        drop(output);
        assert!(!path.exists());

        let (mut output, resumed) = RunOutput::resume(&path).unwrap();
        let expected = OutputState { rows: 3, failed: 1, complete: false };
        assert_eq!(resumed, expected);
        output.write(line(3, false).as_bytes(), &[], &[]).unwrap();
        output.finish().unwrap();
        let complete = line(0, false) + &line(1, true) + &line(2, false) + &line(3, false);
        assert_eq!(fs::read_to_string(&path).unwrap(), complete);
        assert!(!partial_of(&path).exists());
        let (_, resumed) = RunOutput::resume(&path).unwrap();
        assert_eq!((resumed.rows, resumed.failed, resumed.complete), (4, 1, true));
    }

    #[test]
    fn output_resume_truncates_bytes_of_a_power_loss() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(partial_of(&path), line(0, false) + "\0\0\0\0\0}\n\0\0").unwrap();
        let (output, resumed) = RunOutput::resume(&path).unwrap();
        assert_eq!(resumed.rows, 1);
        drop(output);
        assert_eq!(fs::read_to_string(partial_of(&path)).unwrap(), line(0, false));
    }

    #[test]
    fn output_resume_rejects_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(partial_of(&path), "{\"a\":1}\n").unwrap();
        for content in ["{\"a\":1}\n", "some text", "\0\0text", &line(1, false)] {
            fs::write(partial_of(&path), content).unwrap();
            let errors = [RunOutput::resume(&path).unwrap_err(), RunOutput::create(&path).unwrap_err()];
            for error in errors {
                assert!(matches!(error, OutputError::Foreign { .. }), "{content}: {error}");
            }
            assert_eq!(fs::read_to_string(partial_of(&path)).unwrap(), content, "it is kept");
        }
        fs::write(partial_of(&path), line(1, false)).unwrap();
        let error = RunOutput::resume(&path).unwrap_err().to_string();
        let reason = "its line 1 is not the answer to row 0; remove it, or choose another output";
        assert!(error.ends_with(reason), "{error}");
        for content in ["{\"model_na", "\0\0\0", ""] {
            fs::write(partial_of(&path), content).unwrap();
            assert_eq!(RunOutput::resume(&path).unwrap().1.rows, 0, "a power loss may leave that");
        }
    }

    #[test]
    fn output_create_keeps_older_answers_until_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let partial = || fs::read_to_string(partial_of(&path)).ok();
        fs::write(partial_of(&path), line(0, false) + &line(1, false)).unwrap();
        let (output, lost) = RunOutput::create(&path).unwrap();
        assert_eq!(lost, 2);
        drop(output);
        assert_eq!(partial(), Some(line(0, false) + &line(1, false)));
        let (mut output, _) = RunOutput::create(&path).unwrap();
        output.write(line(0, true).as_bytes(), &[], &[]).unwrap();
        drop(output);
        assert_eq!(partial(), Some(line(0, true)));
        let (output, _) = RunOutput::create(&path).unwrap();
        output.finish().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), partial()), ("", None), "an input without rows");
        drop(RunOutput::create(&path).unwrap());
        assert_eq!(partial(), None, "no empty file is left");
    }

    #[test]
    fn output_symbolic_links_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("out"), folder.path().join("other"));
        for (content, link) in
            [(Some(line(0, false)), &path), (None, &path), (Some("x".to_owned()), &partial_of(&path))]
        {
            std::os::unix::fs::symlink(&other, link).unwrap();
            if let Some(content) = &content {
                fs::write(&other, content).unwrap();
            }
            for error in [RunOutput::create(&path).unwrap_err(), RunOutput::resume(&path).unwrap_err()] {
                assert!(matches!(&error, OutputError::Link { path } if path == link), "{error}");
            }
            assert_eq!(fs::read_to_string(&other).ok(), content);
            fs::remove_file(link).unwrap();
            let _ = fs::remove_file(&other);
        }
    }

    #[test]
    fn output_reopen_continues_a_complete_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let complete = line(0, false) + &line(1, true);
        fs::write(&path, &complete).unwrap();
        let (output, state) = RunOutput::resume(&path).unwrap();
        assert_eq!(state, OutputState { rows: 2, failed: 1, complete: true });
        let mut ids = output.answered_ids().unwrap();
        assert_eq!((ids.next_id(0).unwrap(), ids.next_id(1).unwrap()), ("i0".to_owned(), String::new()));
        assert!(ids.next_id(2).is_err());
        assert!(path.exists(), "nothing changes until there are more rows");
        let mut output = output.reopen(2).unwrap();
        assert!(!path.exists() && partial_of(&path).exists());
        drop(RunOutput::resume(&path).unwrap_err());
        output.write(line(2, false).as_bytes(), &[], &[]).unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), complete + &line(2, false));

        let (output, _) = RunOutput::resume(&path).unwrap();
        fs::write(partial_of(&path), "").unwrap();
        assert!(matches!(output.reopen(3), Err(OutputError::Busy { .. })), "another run has begun");
        fs::remove_file(partial_of(&path)).unwrap();
        fs::write(&path, line(0, false) + "text\n").unwrap();
        let error = RunOutput::resume(&path).unwrap_err();
        assert!(
            matches!(&error, OutputError::Foreign { reason, .. } if reason == "its line 2 is not an answer"),
            "{error}"
        );
    }

    #[test]
    fn output_keeps_the_access_of_the_file_that_it_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let mode_of = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let owner_of = |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.gid())).unwrap();
        // Only root may give files away.
        let owner = if geteuid().is_root() { (12_345, 23_456) } else { owner_of(folder.path()) };
        let answer = b"{\"model_name\":\"m\",\"id\":\"i0\",\"parameters\":{\"batch_index\":0},\"outputs\":[]}\n";
        for name in ["out.jsonl", "out.csv"] {
            let path = folder.path().join(name);
            for mode in [0o600, 0o440, 0o666] {
                fs::write(&path, "").unwrap();
                std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                let (mut output, _) = RunOutput::create(&path).unwrap();
                output.write(answer, &[], &[]).unwrap();
                assert_eq!(mode_of(&partial_of(&path)), mode | 0o600, "{name} before it is complete");
                output.finish().unwrap();
                assert!(fs::read_to_string(&path).unwrap().contains("i0"));
                assert_eq!((mode_of(&path), owner_of(&path)), (mode | 0o600, owner), "{name}");
                fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn output_write_full_disk_is_an_error() {
        let (mut output, _) = RunOutput::create(Path::new("/dev/full")).unwrap();
        let error = output.write(b"x\n", &[], &[]).unwrap_err();
        assert_eq!(error.to_string(), "cannot write to `/dev/full`; the answers written before are kept");
    }
}
