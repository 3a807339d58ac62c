//! The answers that an earlier run has left: how many, to which rows, and whether a file has them at all.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::OutputError;
use crate::client::fingerprint::RowFingerprint;
use crate::client::openai_batch;
use crate::client::row::{ANSWER_PREFIX, FAILURE_PREFIX};
use crate::client::topic::PartitionOffsets;

/// The answers that an earlier run has left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputState {
    /// Rows that have been answered, from the first on.
    pub rows: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The earlier run was complete.
    pub complete: bool,
}

/// The ids of the answers of an earlier run, in order.
pub struct AnsweredIds {
    pub(super) ids: Box<dyn Iterator<Item = Result<String, OutputError>> + Send>,
    /// The file that they are read from.
    pub(super) path: PathBuf,
    /// The fingerprints of the rows, if there are some.
    pub(super) fingerprints: Option<BufReader<File>>,
}

/// The part of an answer's line that tells which row it answers.
#[derive(Deserialize)]
struct AnswerHead {
    id: Option<String>,
    /// The row's id in one of OpenAI's batch files, where `id` has the index of the row.
    custom_id: Option<String>,
    parameters: Option<AnswerParameters>,
}

#[derive(Deserialize)]
struct AnswerParameters {
    batch_index: u64,
}

/// What lines with answers start with.
const ANSWER_PREFIXES: [&[u8]; 2] = [ANSWER_PREFIX, openai_batch::ANSWER_PREFIX];
/// What lines that report failures start with.
const FAILURE_PREFIXES: [&[u8]; 2] = [FAILURE_PREFIX, openai_batch::FAILURE_PREFIX];

/// Reads the line that is the answer to the row at `index`, and returns the id of the row, which is empty if it has none.
fn read_answer(line: &[u8], index: u64) -> Result<String, String> {
    let answer = serde_json::from_slice(line).ok().and_then(|AnswerHead { id, custom_id, parameters }| {
        let (found, id) = match parameters {
            Some(parameters) => (Some(parameters.batch_index), id),
            None => (openai_batch::index_of(&id?), custom_id),
        };
        (found == Some(index)).then(|| id.unwrap_or_default())
    });
    answer.ok_or_else(|| format!("its line {} is not the answer to row {index}", index + 1))
}

/// Reports whether a file has the start of an answer where these are its next bytes.
fn is_answer_start(bytes: &[u8]) -> bool {
    let mut prefixes = ANSWER_PREFIXES.iter().chain(&FAILURE_PREFIXES);
    prefixes.any(|prefix| bytes.starts_with(prefix) || prefix.starts_with(bytes))
}

/// Counts the answers of an earlier run and returns where they end: before the first line that is not a complete answer.
pub(super) fn scan(file: &mut File, path: &Path) -> Result<(OutputState, u64), OutputError> {
    let read = |source| OutputError::Read { path: path.to_owned(), source };
    let foreign = |reason| OutputError::Foreign { path: path.to_owned(), reason };
    file.seek(SeekFrom::Start(0)).map_err(read)?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut state, mut end, mut line, mut last) = (OutputState::default(), 0, Vec::new(), Vec::new());
    loop {
        line.clear();
        let start = reader.fill_buf().map_err(read)?;
        if !is_answer_start(start) {
            // A power loss may leave bytes that were never written.
            if state.rows == 0 && start.iter().any(|byte| *byte != 0) {
                return Err(foreign("it does not start with an answer".to_owned()));
            }
            break;
        }
        let taken = reader.read_until(b'\n', &mut line).map_err(read)?;
        if !(line.starts_with(b"{") && line.ends_with(b"}\n")) {
            break;
        }
        end += taken as u64;
        state.rows += 1;
        state.failed += u64::from(FAILURE_PREFIXES.iter().any(|prefix| line.starts_with(prefix)));
        std::mem::swap(&mut line, &mut last);
    }
    if let Some(index) = state.rows.checked_sub(1) {
        read_answer(&last, index).map_err(foreign)?;
    }
    Ok((state, end))
}

impl AnsweredIds {
    /// Reads the ids of a file of lines.
    pub(super) fn of_lines(path: &Path) -> Result<Self, OutputError> {
        let file = File::open(path).map_err(|source| OutputError::Read { path: path.to_owned(), source })?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut line, mut index, opened) = (Vec::new(), 0, path.to_owned());
        let ids = std::iter::from_fn(move || {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(source) => return Some(Err(OutputError::Read { path: opened.clone(), source })),
            }
            let answer = read_answer(&line, index);
            index += 1;
            let foreign = |reason| OutputError::Foreign { path: opened.clone(), reason };
            Some(answer.map_err(foreign))
        });
        Ok(Self { ids: Box::new(ids), path: path.to_owned(), fingerprints: None })
    }

    /// Returns the fingerprint of the next row; `None` if it has none.
    pub(in crate::client) fn next_fingerprint(&mut self) -> Option<RowFingerprint> {
        let mut bytes = [0; RowFingerprint::BYTES];
        // Fails at the end of the file.
        self.fingerprints.as_mut()?.read_exact(&mut bytes).ok()?;
        RowFingerprint::read(bytes)
    }

    /// Returns the next id, which is that of a row; an empty one if the row has none.
    pub(in crate::client) fn next_id(&mut self, row: u64) -> Result<String, OutputError> {
        self.ids.next().unwrap_or_else(|| {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, format!("it has no answer to row {row}"));
            Err(OutputError::Read { path: self.path.clone(), source })
        })
    }

    #[cfg(test)]
    pub(in crate::client) fn of(ids: &'static [&str]) -> Self {
        Self { ids: Box::new(ids.iter().map(|id| Ok((*id).to_owned()))), path: PathBuf::new(), fingerprints: None }
    }
}

/// Reads up to which offsets a file has the answers to the records of a topic.
pub(super) fn answered_offsets(path: &Path, topic: &str) -> Result<PartitionOffsets, OutputError> {
    #[derive(Deserialize)]
    struct Answer {
        parameters: RecordParameters,
    }

    #[derive(Deserialize)]
    struct RecordParameters {
        #[serde(rename = "kafka_topic")]
        topic: String,
        #[serde(rename = "kafka_partition")]
        partition: i32,
        #[serde(rename = "kafka_offset")]
        offset: i64,
    }

    let read = |source| OutputError::Read { path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(read)?);
    let (mut offsets, mut line) = (PartitionOffsets::new(), Vec::new());
    for row in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(read)? == 0 {
            break;
        }
        let answer = serde_json::from_slice(&line).ok().filter(|Answer { parameters }| parameters.topic == topic);
        let Some(Answer { parameters }) = answer else {
            let reason = format!("its line {row} is not the answer to a record of the topic `{topic}`");
            return Err(OutputError::Foreign { path: path.to_owned(), reason });
        };
        let next = offsets.entry(parameters.partition).or_default();
        *next = parameters.offset.saturating_add(1).max(*next);
    }
    Ok(offsets)
}
