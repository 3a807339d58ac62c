//! Forwards the output and log records of workers to the server's log.
//!
//! The worker writes a record as one line: the byte 0x1E and a JSON object. Other lines come from code that writes to the
//! file descriptors directly.

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tracing::{debug, error, info, warn};

use crate::telemetry::logging::MODELS;

use super::process::LastLines;

/// The longest line that is logged, in bytes; the rest of it is dropped.
const MAX_LINE: usize = 64 << 10;

/// The byte before a record.
const RECORD_MARK: u8 = 0x1e;

/// The standard stream of the worker that a pipe belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Default, Deserialize)]
struct LogRecord {
    message: String,
    level: Option<String>,
    logger: Option<String>,
    model: Option<String>,
    version: Option<String>,
    request: Option<String>,
}

/// Logs each line of a pipe until its end.
pub(super) async fn log(
    pipe: impl AsyncRead + Unpin,
    stream: OutputStream,
    worker: String,
    last_lines: Option<LastLines>,
) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    // A read error is treated as the end of the pipe.
    while let Ok(true) = read_line(&mut reader, &mut line).await {
        let record = parse_record(&line);
        if let Some(last) = record.message.lines().last().filter(|line| !line.trim().is_empty())
            && let Some(last_lines) = &last_lines
        {
            last_lines.push(last);
        }
        log_record(&record, stream, &worker);
        line.clear();
    }
}

/// Reads up to the end of a line, and keeps the first [`MAX_LINE`] bytes of it. Returns whether there was a line.
async fn read_line(reader: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut any = false;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = available.iter().position(|&byte| byte == b'\n');
        let length = end.unwrap_or(available.len());
        let remaining = MAX_LINE.saturating_sub(line.len());
        line.extend_from_slice(&available[..length.min(remaining)]);
        reader.consume(end.map_or(length, |end| end + 1));
        if end.is_some() {
            return Ok(true);
        }
    }
}

fn parse_record(line: &[u8]) -> LogRecord {
    let record = line.strip_prefix(&[RECORD_MARK]).and_then(|text| serde_json::from_slice(text).ok());
    record.unwrap_or_else(|| {
        let message = String::from_utf8_lossy(line).trim_end_matches('\r').to_owned();
        LogRecord { message, ..LogRecord::default() }
    })
}

fn log_record(record: &LogRecord, stream: OutputStream, worker: &str) {
    let LogRecord { message, level, logger, model, version, request } = record;
    if message.is_empty() {
        return;
    }
    let level = level.as_deref().unwrap_or(if stream == OutputStream::Stdout { "INFO" } else { "WARNING" });
    let logger = logger.as_deref().filter(|logger| *logger != "mlserver");
    macro_rules! line {
        ($event:ident) => {
            $event!(target: MODELS, model, version, worker, logger, request_id = request, "{message}")
        };
    }
    match level {
        "CRITICAL" | "ERROR" => line!(error),
        "WARNING" => line!(warn),
        "INFO" => line!(info),
        _ => line!(debug),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn read_line_truncates_long_lines_and_recognizes_records() {
        let long = "x".repeat(MAX_LINE + 5);
        let text = format!(
            "\u{1e}{{\"message\":\"a\\nb\",\"level\":\"ERROR\",\"model\":\"m\"}}\nplain\r\n{long}\n\u{1e}no json\nlast"
        );
        let mut reader = BufReader::new(text.as_bytes());
        let mut records = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut reader, &mut line).await.unwrap() {
            records.push(parse_record(&line));
            line.clear();
        }
        assert_eq!(records[0].message, "a\nb");
        assert_eq!((records[0].level.as_deref(), records[0].model.as_deref()), (Some("ERROR"), Some("m")));
        assert_eq!(records[1].message, "plain");
        assert_eq!(records[2].message.len(), MAX_LINE);
        assert_eq!(records[3].message, "\u{1e}no json");
        assert_eq!(records[4].message, "last");
    }
}
