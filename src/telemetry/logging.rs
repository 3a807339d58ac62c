//! Log lines in the two formats of the original: plain, and optionally JSON.
//!
//! Plain: `2026-11-20 18:07:08,437 [mlserver][iris:v1] INFO - Loaded model 'iris' successfully.`; the second pair of
//! brackets contains the model and its version, if the event concerns one. JSON has the keys `time`, `name`, `level`,
//! `message`, `model_name`, `model_version` and all other fields of the event. Like the original, the server logs to
//! standard output. If it is closed, only logging ends; if its reader is stuck, lines are dropped.
//!
//! Events have the fields `model` and `version`, either themselves or on an enclosing span. Other fields (`request_id`,
//! `error`, …) follow the message as `key=value`. The further lines of a message, such as a traceback, start with `    | ` in
//! plain text; in JSON, the message contains newlines.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Local};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, span};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::metrics::Registry;

/// The target of events that the code of models logs. The worker filters them by level, so all of them are written.
pub const MODELS: &str = "mlserver::models";

/// The format and level of log lines.
#[derive(Debug, Clone, Copy)]
pub struct LogFormat {
    /// Whether lines are JSON.
    pub structured: bool,
    /// The least severe lines that are written. DEBUG includes the access log.
    pub level: LevelFilter,
}

/// The maximum number of lines that wait to be written. Further lines are dropped, because a stuck reader of the log must not
/// block the server.
const MAX_WAITING_LINES: usize = 8192;

/// How often the number of dropped lines is logged, at most.
const DROPS_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum bytes of a field, by its name. Clients choose ids, and messages may quote what they sent.
fn max_length(field: &str) -> usize {
    match field {
        "request_id" => 128,
        "reason" | "error" => 1 << 10,
        _ => 64 << 10,
    }
}

/// The lines that were dropped since the start of the process.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// How many lines are kept for the console, and the maximum bytes of each: 0.5 MiB in all.
const RECENT_LINES: usize = 200;
const RECENT_LINE_BYTES: usize = 2500;

/// The last lines, once something has asked for them to be kept.
static RECENT: OnceLock<Mutex<RecentLines>> = OnceLock::new();

/// The last lines of the log, the latest last.
#[derive(Debug, Default)]
struct RecentLines(VecDeque<String>);

impl RecentLines {
    fn push(&mut self, mut line: String) {
        line.truncate(line.trim_end().len());
        if line.len() > RECENT_LINE_BYTES {
            line.truncate(line.floor_char_boundary(RECENT_LINE_BYTES - CUT.len()));
            line.push_str(CUT);
        }
        // A long line was allocated for more than is left of it.
        line.shrink_to_fit();
        if self.0.len() == RECENT_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }
}

/// Keeps the last lines of the log from now on.
pub fn keep_recent() {
    RECENT.get_or_init(Mutex::default);
}

/// Returns the last 200 lines of the log, if they are kept. Each is cut after 2,500 bytes.
pub fn recent() -> Vec<String> {
    RECENT.get().map(|recent| recent.lock().0.iter().cloned().collect()).unwrap_or_default()
}

/// The metric of the lines that were dropped.
#[derive(Debug)]
struct DroppedLines;

impl EncodeMetric for DroppedLines {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines) as u64;
        encoder.encode_counter::<NoLabelSet, _, u64>(&dropped, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// Registers the metric of the lines that were dropped because the reader of the log was too slow.
pub fn register(registry: &mut Registry) {
    registry.register(
        "log_lines_dropped",
        "Log lines dropped because their reader was stuck or too slow",
        DroppedLines,
    );
}

/// Flushes the waiting lines when it is dropped, for at most a second.
#[derive(Debug)]
#[must_use = "log lines are lost if the guard is dropped before the end of the process"]
pub struct LogGuard(#[expect(dead_code, reason = "kept for its destructor")] Option<WorkerGuard>);

/// Starts logging to standard output for the rest of the process. A second call has no effect.
///
/// A separate thread writes the lines, so that no other thread waits for a slow or stuck reader.
pub fn start(format: LogFormat) -> LogGuard {
    start_on(format, io::stdout())
}

/// Does the same on standard error, for a process whose parent has its own output.
pub fn start_on_standard_error(format: LogFormat) -> LogGuard {
    start_on(format, io::stderr())
}

fn start_on(format: LogFormat, output: impl Write + Send + 'static) -> LogGuard {
    let ours = format.level;
    // Without a level of the server's, the configuration of the worker's loggers decides.
    let of_models = if ours < LevelFilter::INFO { ours } else { LevelFilter::TRACE };
    // Libraries log only warnings and errors; all targets of the server start with the crate's name.
    let levels = Targets::new().with_default(LevelFilter::WARN.min(ours)).with_target("mlserver", ours);
    let levels = levels.with_target(MODELS, of_models);
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_WAITING_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(output);
    let drops = writer.error_counter();
    let _ = DROPPED.set(drops.clone());
    let drops = DropReport { dropped: drops, reported: AtomicUsize::new(0), last: Mutex::new(None) };
    let lines = LineLayer { structured: format.structured, writer, drops: Arc::new(drops) };
    let started = tracing_subscriber::registry().with(lines.with_filter(levels)).try_init();
    LogGuard(started.is_ok().then_some(guard))
}

/// The most warnings that are collected.
const MAX_COLLECTED: usize = 100;

/// The warnings of this process since [`collect_warnings`], for a command that has no log.
#[derive(Debug, Clone, Default)]
pub struct CollectedWarnings(Arc<Mutex<Vec<String>>>);

impl CollectedWarnings {
    /// Returns the warnings since the last call. Each is returned once, however often it occurs in between.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn push(&self, message: String) {
        let mut found = self.0.lock();
        if found.len() < MAX_COLLECTED && !found.contains(&message) {
            found.push(message);
        }
    }
}

/// Collects the server's own warnings and errors from now on, in place of a log. They stay empty if there is a log already.
pub fn collect_warnings() -> CollectedWarnings {
    let found = CollectedWarnings::default();
    let levels = Targets::new().with_target("mlserver", LevelFilter::WARN).with_target(MODELS, LevelFilter::OFF);
    let _ = tracing_subscriber::registry().with(WarningLayer(found.clone()).with_filter(levels)).try_init();
    found
}

/// Collects the messages of events.
struct WarningLayer(CollectedWarnings);

impl<S: Subscriber> Layer<S> for WarningLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = match &fields.model {
            Some(model) => format!("model `{model}`: {}", fields.message),
            None => fields.message,
        };
        // Messages of the log are sentences, and those of commands are not.
        self.0.push(text.strip_suffix('.').unwrap_or(&text).to_owned());
    }
}

/// The fields of an event or span.
#[derive(Debug, Clone, Default)]
struct Fields {
    message: String,
    model: Option<String>,
    version: Option<String>,
    others: Map<String, Value>,
}

impl Fields {
    /// Adds the fields of an enclosing span that the event does not have itself.
    fn inherit(&mut self, outer: &Self) {
        if self.model.is_none() {
            self.model.clone_from(&outer.model);
            self.version.clone_from(&outer.version);
        }
        for (name, value) in &outer.others {
            self.others.entry(name).or_insert_with(|| value.clone());
        }
    }

    fn put(&mut self, field: &Field, value: Value) {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match field.name() {
            "message" => self.message = text(value),
            "model" => self.model = Some(text(value)),
            "version" => self.version = Some(text(value)),
            name => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

/// The end of a text that was too long.
const CUT: &str = "\u{2026}";

/// Text that ends at a maximum length.
struct BoundedText {
    text: String,
    left: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let cut = text.floor_char_boundary(self.left);
        self.text.push_str(&text[..cut]);
        self.left -= cut;
        if cut < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = BoundedText { text: String::new(), left: max_length(field.name()) };
        // Fails if the text is too long.
        let is_cut = fmt::write(&mut text, format_args!("{value:?}")).is_err();
        self.put(field, Value::from(if is_cut { text.text + CUT } else { text.text }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let cut = &value[..value.floor_char_boundary(max_length(field.name()))];
        self.put(field, if cut.len() < value.len() { Value::from(format!("{cut}{CUT}")) } else { Value::from(value) });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }
}

/// Writes one line for each event.
struct LineLayer {
    structured: bool,
    writer: NonBlocking,
    drops: Arc<DropReport>,
}

/// Reports dropped lines once lines can be written again.
struct DropReport {
    dropped: ErrorCounter,
    /// How many of them have been reported, and when the last report was.
    reported: AtomicUsize,
    last: Mutex<Option<Instant>>,
}

impl DropReport {
    /// Returns the number of dropped lines that are to be reported now. `before` is their number before the last write.
    fn due(&self, before: usize) -> Option<usize> {
        let dropped = self.dropped.dropped_lines();
        let reported = self.reported.load(Ordering::Relaxed);
        if dropped != before || dropped == reported {
            return None;
        }
        let mut last = self.last.lock();
        if last.is_some_and(|last| last.elapsed() < DROPS_INTERVAL) {
            return None;
        }
        *last = Some(Instant::now());
        Some(dropped - self.reported.swap(dropped, Ordering::Relaxed))
    }
}

impl LineLayer {
    fn write(&self, line: LogLine<'_>) {
        let line = if self.structured { line.structured() } else { line.plain() };
        // Fails only if the writing thread has ended; then there is nowhere to report it.
        let _ = self.writer.clone().write_all(line.as_bytes());
        if let Some(recent) = RECENT.get() {
            recent.lock().push(line);
        }
    }
}

fn time() -> String {
    DateTime::<Local>::from(SystemTime::now()).format("%Y-%m-%d %H:%M:%S,%3f").to_string()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LineLayer {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.inherit(outer);
            }
        }
        let name = event.metadata().target().split("::").next().unwrap_or_default();
        let level = level_name(*event.metadata().level());
        let before = self.drops.dropped.dropped_lines();
        self.write(LogLine { time: time(), name, level, fields });
        if let Some(dropped) = self.drops.due(before) {
            let message = format!("Dropped {dropped} log lines because their reader was stuck or too slow.");
            let fields = Fields { message, ..Fields::default() };
            self.write(LogLine { time: time(), name: "mlserver", level: "WARNING", fields });
        }
    }
}

/// Returns Python's name of a level, which log pipelines for the original match.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

struct LogLine<'a> {
    time: String,
    name: &'a str,
    level: &'static str,
    fields: Fields,
}

impl LogLine<'_> {
    fn plain(self) -> String {
        let Self { time, name, level, fields } = self;
        let model = match (&fields.model, &fields.version) {
            (Some(model), Some(version)) => format!("[{}]", one_line(&format!("{model}:{version}"))),
            (Some(model), None) => format!("[{}]", one_line(model)),
            _ => String::new(),
        };
        let mut lines = fields.message.trim_end().lines();
        let mut text = format!("{time} [{name}]{model} {level} - {}", one_line(lines.next().unwrap_or_default()));
        for (key, value) in &fields.others {
            let value = value.as_str().map_or_else(|| value.to_string(), one_line);
            text.extend([" ", key, "=", &value]);
        }
        text.push('\n');
        for line in lines {
            text.extend([CONTINUATION, &one_line(line), "\n"]);
        }
        text
    }

    fn structured(self) -> String {
        let Self { time, name, level, fields } = self;
        let mut line = Map::new();
        line.insert("time".to_owned(), Value::from(time));
        line.insert("name".to_owned(), Value::from(name));
        line.insert("level".to_owned(), Value::from(level));
        line.insert("message".to_owned(), Value::from(fields.message));
        if let Some(model) = fields.model {
            line.insert("model_name".to_owned(), Value::from(model));
        }
        if let Some(version) = fields.version {
            line.insert("model_version".to_owned(), Value::from(version));
        }
        for (key, value) in fields.others {
            line.entry(key).or_insert(value);
        }
        format!("{}\n", Value::Object(line))
    }
}

/// The start of the second and later lines of a message. A line that starts with it is never taken for a log line of its own.
const CONTINUATION: &str = "    | ";

/// Escapes control characters, so that text cannot forge another log line.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: Fields) -> LogLine<'static> {
        LogLine { time: "2026-11-20 18:07:08,437".to_owned(), name: "mlserver", level: "INFO", fields }
    }

    fn fields() -> Fields {
        Fields {
            message: "Loaded model 'a\"b' successfully.".to_owned(),
            model: Some("a\"b".to_owned()),
            version: Some("v1".to_owned()),
            others: serde_json::from_str(r#"{"request_id":"x\ny","rows":3}"#).unwrap(),
        }
    }

    #[test]
    fn plain_lines_have_the_format_of_the_original() {
        let text = line(fields()).plain();
        let expected = "2026-11-20 18:07:08,437 [mlserver][a\"b:v1] INFO - Loaded model 'a\"b' successfully. request_id=x\\ny rows=3\n";
        assert_eq!(text, expected);
        let text = line(Fields { message: "up".to_owned(), ..Fields::default() }).plain();
        assert_eq!(text, "2026-11-20 18:07:08,437 [mlserver] INFO - up\n");
    }

    #[test]
    fn plain_message_of_several_lines_cannot_forge_a_log_line() {
        let message =
            "failed\nTraceback:\r\n  \u{1b}[31mx\n\n2026-11-20 18:07:08,437 [mlserver] INFO - forged\n".to_owned();
        let text = line(Fields { message, ..fields() }).plain();
        let expected = [
            "2026-11-20 18:07:08,437 [mlserver][a\"b:v1] INFO - failed request_id=x\\ny rows=3",
            "    | Traceback:",
            "    |   \\u{1b}[31mx",
            "    | ",
            "    | 2026-11-20 18:07:08,437 [mlserver] INFO - forged",
            "",
        ];
        assert_eq!(text, expected.join("\n"));
    }

    #[test]
    fn structured_lines_are_valid_json() {
        let text = line(fields()).structured();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["model_name"], "a\"b");
        assert_eq!(value["model_version"], "v1");
        assert_eq!(value["request_id"], "x\ny");
        let several = line(Fields { message: "a\nb".to_owned(), ..fields() }).structured();
        assert_eq!(several.lines().count(), 1);
        assert_eq!(serde_json::from_str::<Value>(&several).unwrap()["message"], "a\nb");
        assert!(text.starts_with(r#"{"time":"2026-11-20 18:07:08,437","name":"mlserver","level":"INFO","message":"#));
    }

    #[test]
    fn texts_of_clients_are_cut() {
        use tracing_subscriber::layer::SubscriberExt;
        #[derive(Clone, Default)]
        struct Seen(Arc<Mutex<Vec<Fields>>>);
        impl<S: Subscriber> Layer<S> for Seen {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                let mut fields = Fields::default();
                event.record(&mut fields);
                self.0.lock().push(fields);
            }
        }
        let seen = Seen::default();
        let long = "\u{e9}".repeat(1 << 20);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(seen.clone()), || {
            tracing::error!(request_id = long, reason = %long, error = ?long, "{long}");
        });
        let fields = seen.0.lock().pop().unwrap();
        let length = |name: &str| fields.others[name].as_str().unwrap().len() - CUT.len();
        assert_eq!([length("request_id"), length("reason"), fields.message.len() - CUT.len()], [128, 1024, 64 << 10]);
        assert!((1000..=1024).contains(&length("error")), "it has a quote");
    }

    #[test]
    fn recent_lines_are_limited_in_number_and_length() {
        let mut recent = RecentLines::default();
        for number in 0..RECENT_LINES + 3 {
            recent.push(format!("line {number}\n"));
        }
        recent.push("é".repeat(64 << 10));
        assert_eq!(recent.0.len(), RECENT_LINES);
        assert_eq!(recent.0[0], "line 4");
        let last = &recent.0[RECENT_LINES - 1];
        assert!(last.len() <= RECENT_LINE_BYTES && last.ends_with(CUT), "{}", last.len());
        assert!(last.capacity() <= 2 * RECENT_LINE_BYTES);
    }
}
