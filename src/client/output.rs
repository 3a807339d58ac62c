//! The output of a run: standard output, or a file that is either complete or absent.
//!
//! Answers are written to `NAME.partial`, in the order of the input, and the file is renamed to `NAME` when it is complete. However a
//! run ends, the complete lines of the file are the answers to the first rows, and the next run can resume after them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::convert::{self, OutputFormat};
use super::row::FAILURE_PREFIX;

/// The suffix of the file until it is complete.
const PARTIAL_SUFFIX: &str = ".partial";
/// The suffix of the file with columns until all of them are written.
const COLUMNS_SUFFIX: &str = ".columns";

/// Where answers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputTarget {
    Stdout,
    File(PathBuf),
}

/// An open output.
#[derive(Debug)]
pub struct RunOutput {
    to: OutputHandle,
    name: String,
}

#[derive(Debug)]
enum OutputHandle {
    Stdout(io::Stdout),
    /// A pipe, a terminal, `/dev/null`: a file that cannot be renamed.
    Special(File),
    Regular {
        file: File,
        partial: PathBuf,
        target: PathBuf,
        form: OutputFormat,
    },
}

/// The answers that an earlier run has left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputState {
    /// Rows that have been answered, from the first on.
    pub rows: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The id of the last of them.
    pub last_id: Option<String>,
    /// The earlier run was complete.
    pub complete: bool,
}

/// Why an output cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("cannot open `{}` for writing", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("another run is writing to `{}`", path.display())]
    Busy { path: PathBuf },
    #[error("cannot read `{}` to resume the run", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write to {name}; the answers written before are kept")]
    Write { name: String, source: io::Error },
    #[error("cannot convert the answers to columns in `{}`; all of them are in `{}`", to.display(), from.display())]
    Columns { from: PathBuf, to: PathBuf, source: io::Error },
    #[error("this executable was built without Parquet support: build it with the feature `parquet`")]
    WithoutParquet,
    #[error("cannot rename `{0}` to `{1}`; `{0}` is complete", from.display(), to.display())]
    Rename { from: PathBuf, to: PathBuf, source: io::Error },
    /// The reader of the answers has closed the pipe.
    #[error("the reader of the answers has closed the pipe")]
    Closed,
}

impl RunOutput {
    /// Starts a new output. Also returns how many answers of an interrupted run are dropped.
    ///
    /// # Errors
    ///
    /// Fails if the target cannot be written to, or another run is writing to it.
    pub fn create(place: &OutputTarget) -> Result<(Self, u64), OutputError> {
        let path = match place {
            OutputTarget::Stdout => {
                return Ok((Self { to: OutputHandle::Stdout(io::stdout()), name: "standard output".to_owned() }, 0));
            }
            OutputTarget::File(path) => path,
        };
        let name = format!("`{}`", path.display());
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            let failed = |source| OutputError::Open { path: path.clone(), source };
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            return Ok((Self { to: OutputHandle::Special(file), name }, 0));
        }
        let (mut file, partial, form) = Self::open_partial(path)?;
        // The content is only counted for a warning, and need not be answers at all.
        let lost = Self::scan(&mut file, &partial).map_or(0, |(resumed, _)| resumed.rows);
        Self::cut(&mut file, 0).map_err(|source| OutputError::Open { path: partial.clone(), source })?;
        Ok((Self { to: OutputHandle::Regular { file, partial, target: path.clone(), form }, name }, lost))
    }

    /// Resumes an interrupted run. The state is empty if the run stopped before its first answer.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written, or another run is writing to it.
    pub fn resume(path: &Path) -> Result<(Self, OutputState), OutputError> {
        let name = format!("`{}`", path.display());
        let target = path.to_owned();
        let read = |source| OutputError::Read { path: target.clone(), source };
        if !partial_of(path).exists() && path.is_file() {
            let mut file = File::open(path).map_err(read)?;
            let (rows, failed) = match OutputFormat::of(path) {
                OutputFormat::Lines => {
                    Self::scan(&mut file, path).map(|(resumed, _)| (resumed.rows, resumed.failed))?
                }
                form => convert::count(path, form).map_err(read)?,
            };
            let resumed = OutputState { rows, failed, last_id: None, complete: true };
            return Ok((Self { to: OutputHandle::Special(file), name }, resumed));
        }
        let (mut file, partial, form) = Self::open_partial(path)?;
        let (resumed, end) = Self::scan(&mut file, &partial)?;
        Self::cut(&mut file, end).map_err(|source| OutputError::Open { path: partial.clone(), source })?;
        Ok((Self { to: OutputHandle::Regular { file, partial, target, form }, name }, resumed))
    }

    fn open_partial(path: &Path) -> Result<(File, PathBuf, OutputFormat), OutputError> {
        let form = OutputFormat::of(path);
        if !form.is_supported() {
            return Err(OutputError::WithoutParquet);
        }
        let failed = |source| OutputError::Open { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let partial = partial_of(path);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial);
        let file = file.map_err(|source| OutputError::Open { path: partial.clone(), source })?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(OutputError::Busy { path: partial }),
            // On a file system without locks, a second run is not detected.
            Ok(()) | Err(TryLockError::Error(_)) => Ok((file, partial, form)),
        }
    }

    /// Counts the answers of an earlier run and returns where they end: before the first line that is not a complete answer.
    fn scan(file: &mut File, path: &Path) -> Result<(OutputState, u64), OutputError> {
        let read = |source| OutputError::Read { path: path.to_owned(), source };
        file.seek(SeekFrom::Start(0)).map_err(read)?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut resumed, mut end, mut line, mut last) = (OutputState::default(), 0, Vec::new(), Vec::new());
        loop {
            line.clear();
            let taken = reader.read_until(b'\n', &mut line).map_err(read)?;
            // A power loss may leave bytes that were never written.
            if !(line.starts_with(b"{") && line.ends_with(b"}\n")) {
                break;
            }
            end += taken as u64;
            resumed.rows += 1;
            resumed.failed += u64::from(line.starts_with(FAILURE_PREFIX));
            std::mem::swap(&mut line, &mut last);
        }
        let Some(index) = resumed.rows.checked_sub(1) else { return Ok((resumed, end)) };
        let value: Value = serde_json::from_slice(&last).unwrap_or_default();
        if value["parameters"]["batch_index"].as_u64() != Some(index) {
            let message = format!("its line {} is not the answer to row {index}", resumed.rows);
            return Err(read(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        resumed.last_id = value["id"].as_str().map(str::to_owned);
        Ok((resumed, end))
    }

    fn cut(file: &mut File, end: u64) -> io::Result<()> {
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end)).map(drop)
    }

    /// Writes complete lines.
    ///
    /// # Errors
    ///
    /// Fails if the disk is full or the reader has closed the pipe. Some of the lines may have been written.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), OutputError> {
        let written = match &mut self.to {
            OutputHandle::Stdout(stdout) => stdout.write_all(lines).and_then(|()| stdout.flush()),
            OutputHandle::Special(file) | OutputHandle::Regular { file, .. } => file.write_all(lines),
        };
        written.map_err(|source| self.failed(source))
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
            OutputHandle::Stdout(_) | OutputHandle::Special(_) => Ok(()),
            OutputHandle::Regular { file, .. } => file.sync_data(),
        };
        synced.map_err(|source| self.failed(source))
    }

    /// Renames the file, which has every answer now.
    ///
    /// # Errors
    ///
    /// Fails if the disk does.
    pub fn finish(mut self) -> Result<(), OutputError> {
        self.sync()?;
        let OutputHandle::Regular { partial, target, form, .. } = &self.to else { return Ok(()) };
        let rename = |from: &Path| {
            fs::rename(from, target).map_err(|source| {
                let (from, to) = (from.to_owned(), target.clone());
                OutputError::Rename { from, to, source }
            })
        };
        if *form == OutputFormat::Lines {
            rename(partial)?;
        } else {
            let columns = with_suffix(target, COLUMNS_SUFFIX);
            convert::convert(partial, *form, &columns).map_err(|source| {
                // A partial file is useless.
                let _ = fs::remove_file(&columns);
                OutputError::Columns { from: partial.clone(), to: target.clone(), source }
            })?;
            rename(&columns)?;
            // The output is complete; a leftover file is not a failure.
            let _ = fs::remove_file(partial);
        }
        // The name is part of the folder, which is synced separately.
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Ok(folder) = File::open(folder) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// Returns the file that an interrupted run leaves, or `None` if it leaves none.
    pub fn partial(&self) -> Option<&Path> {
        match &self.to {
            OutputHandle::Regular { partial, .. } => Some(partial),
            OutputHandle::Stdout(_) | OutputHandle::Special(_) => None,
        }
    }
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
        let (mut output, lost) = RunOutput::create(&OutputTarget::File(path.clone())).unwrap();
        assert_eq!(lost, 0);
        output.write((line(0, false) + &line(1, true) + &line(2, false) + "{\"model_na").as_bytes()).unwrap();
        assert!(
            matches!(RunOutput::resume(&path), Err(OutputError::Busy { .. })),
            "the first run still holds the lock"
        );
        drop(output);
        assert!(!path.exists());

        let (mut output, resumed) = RunOutput::resume(&path).unwrap();
        let expected = OutputState { rows: 3, failed: 1, last_id: Some("i2".to_owned()), complete: false };
        assert_eq!(resumed, expected);
        output.write(line(3, false).as_bytes()).unwrap();
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
        let error = RunOutput::resume(&path).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "its line 1 is not the answer to row 0");
    }

    #[test]
    fn output_write_full_disk_is_an_error() {
        let (mut output, _) = RunOutput::create(&OutputTarget::File(PathBuf::from("/dev/full"))).unwrap();
        let error = output.write(b"x\n").unwrap_err();
        assert_eq!(error.to_string(), "cannot write to `/dev/full`; the answers written before are kept");
    }
}
