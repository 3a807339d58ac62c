//! The progress of a long command on standard error: a bar on a terminal, otherwise a line from time to time.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::style::TemplateError;
use indicatif::{BinaryBytes, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// How often a bar is updated.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
/// How often a line is written if there is no bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// What a bar shows if the number of rows is known, and if it is not.
const BAR: &str = "[{bar:20}] {percent} %, {human_pos} rows, {rate}, {eta} left, {wide_msg}";
const SPINNER: &str = "{spinner} {human_pos} rows, {rate}, {wide_msg}";
/// The same for bytes.
const BYTE_BAR: &str = "[{bar:20}] {percent} %, {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left, {wide_msg}";
const MIB: f64 = 1_048_576.0;
const BYTE_SPINNER: &str = "{spinner} {bytes}, {bytes_per_sec}, {wide_msg}";

/// Progress on standard error. A closed pipe is not an error.
pub struct TerminalProgress(ProgressMode);

enum ProgressMode {
    Quiet,
    Lines(ProgressUnit),
    Bar(Box<UnitBar>),
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    Rows,
    Bytes,
}

struct UnitBar {
    bar: ProgressBar,
    /// The style for a known total.
    style: ProgressStyle,
    has_style: AtomicBool,
    /// Something has been counted, and the rate is measured from there on.
    is_started: AtomicBool,
}

/// The progress to show.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressUpdate {
    /// Rows or bytes.
    pub done: u64,
    /// How many there will be, if it can be estimated.
    pub total: Option<u64>,
    /// From 0 to 1, if the size of the input is known.
    pub share: Option<f64>,
    /// Rows or bytes per second, and how long the rest will take, for lines. A bar measures them by itself.
    pub rate: f64,
    pub left: Option<Duration>,
    /// A description.
    pub text: String,
}

impl UnitBar {
    fn new(unit: ProgressUnit, target: ProgressDrawTarget) -> Result<Self, TemplateError> {
        let (bar, spinner) = match unit {
            ProgressUnit::Rows => (BAR, SPINNER),
            ProgressUnit::Bytes => (BYTE_BAR, BYTE_SPINNER),
        };
        let style = style_of(bar)?.progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style_of(spinner)?);
        Ok(Self { bar, style, has_style: AtomicBool::new(false), is_started: AtomicBool::new(false) })
    }

    fn show(&self, shown: &ProgressUpdate) {
        if let Some(total) = shown.total {
            self.bar.set_length(total.max(shown.done));
            if !self.has_style.swap(true, Ordering::Relaxed) {
                self.bar.set_style(self.style.clone());
            }
        }
        self.bar.set_position(shown.done);
        if !self.is_started.swap(true, Ordering::Relaxed) {
            // Rows of earlier runs say nothing about the rate.
            self.bar.reset_eta();
        }
        self.bar.set_message(shown.text.clone());
    }
}

impl TerminalProgress {
    /// Writes to the standard error of the process, or nothing if `quiet`.
    pub fn standard(unit: ProgressUnit, quiet: bool) -> Self {
        if quiet {
            return Self(ProgressMode::Quiet);
        }
        let bar = io::stderr().is_terminal().then(|| UnitBar::new(unit, ProgressDrawTarget::stderr()));
        // The templates are valid; without them, lines have the same content.
        Self(bar.and_then(Result::ok).map_or(ProgressMode::Lines(unit), |bar| ProgressMode::Bar(Box::new(bar))))
    }

    /// Returns how often to call [`TerminalProgress::show`].
    pub const fn interval(&self) -> Duration {
        match self.0 {
            ProgressMode::Bar(_) => BAR_INTERVAL,
            ProgressMode::Quiet | ProgressMode::Lines(_) => LINE_INTERVAL,
        }
    }

    /// Shows the progress.
    pub fn show(&self, shown: &ProgressUpdate) {
        match &self.0 {
            ProgressMode::Quiet => {}
            ProgressMode::Lines(unit) => self.raw(format_args!("{}", line(*unit, shown))),
            ProgressMode::Bar(bar) => bar.show(shown),
        }
    }

    /// Shows what the command does before there is progress.
    pub fn wait(&self, text: fmt::Arguments<'_>) {
        match &self.0 {
            ProgressMode::Quiet => {}
            ProgressMode::Lines(_) => self.raw(text),
            ProgressMode::Bar(bar) => {
                bar.bar.set_message(text.to_string());
                bar.bar.tick();
            }
        }
    }

    /// Reports a problem that does not stop the work.
    pub fn warn(&self, message: fmt::Arguments<'_>) {
        self.say(format_args!("warning: {message}"));
    }

    /// Writes a line, unless the mode is quiet.
    pub fn say(&self, message: fmt::Arguments<'_>) {
        match &self.0 {
            ProgressMode::Quiet => {}
            ProgressMode::Lines(_) => self.raw(message),
            ProgressMode::Bar(bar) => bar.bar.suspend(|| self.raw(message)),
        }
    }

    /// Writes a line in any mode.
    pub fn raw(&self, line: fmt::Arguments<'_>) {
        // A single write, so that the lines of several threads do not mix. A failure cannot be reported anywhere.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let ProgressMode::Bar(bar) = &self.0 {
            bar.bar.finish_and_clear();
        }
    }
}

/// Returns the style of a template, whose `{rate}` is in whole rows per second.
fn style_of(template: &str) -> Result<ProgressStyle, TemplateError> {
    let write_rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // Writing to the line of a bar cannot fail.
        let _ = write!(out, "{}", rate(state.per_sec()));
    };
    Ok(ProgressStyle::with_template(template)?.with_key("rate", write_rate))
}

fn rate(rows_per_second: f64) -> String {
    format!("{rows_per_second:.0} rows/s")
}

/// Returns the progress as a line.
fn line(unit: ProgressUnit, shown: &ProgressUpdate) -> String {
    let percent = shown.share.map(|share| format!("{:.1} %, ", share * 100.0)).unwrap_or_default();
    let left = shown.left.map(|left| format!(", {} left", clock(left))).unwrap_or_default();
    let (done, rate) = match unit {
        ProgressUnit::Rows => (format!("{} rows", shown.done), rate(shown.rate)),
        ProgressUnit::Bytes => (BinaryBytes(shown.done).to_string(), format!("{:.1} MiB/s", shown.rate / MIB)),
    };
    format!("{percent}{done}, {rate}, {}{left}", shown.text)
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps all that is written to it.
    #[derive(Debug, Clone, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn update(rows: u64, total: Option<u64>) -> ProgressUpdate {
        let (share, left) = (total.map(|_| 0.25), total.map(|_| Duration::from_secs(3725)));
        ProgressUpdate { done: rows, total, share, rate: 12.3, left, text: "0 failed".to_owned() }
    }

    #[test]
    fn progress_lines_have_rate_and_time() {
        assert_eq!(line(ProgressUnit::Rows, &update(5, None)), "5 rows, 12 rows/s, 0 failed");
        assert_eq!(line(ProgressUnit::Rows, &update(5, Some(20))), "25.0 %, 5 rows, 12 rows/s, 0 failed, 1:02:05 left");
    }

    #[test]
    fn progress_lines_of_bytes_have_their_unit() {
        let shown = ProgressUpdate { done: 3 << 20, rate: MIB, ..update(0, None) };
        assert_eq!(line(ProgressUnit::Bytes, &shown), "3.00 MiB, 1.0 MiB/s, 0 failed");
    }

    #[test]
    fn progress_bar_counts_rows() {
        let bar = UnitBar::new(ProgressUnit::Rows, ProgressDrawTarget::hidden()).unwrap();
        bar.show(&update(5, None));
        assert_eq!((bar.bar.position(), bar.bar.length(), bar.has_style.load(Ordering::Relaxed)), (5, None, false));
        bar.show(&update(10, Some(40)));
        assert_eq!((bar.bar.position(), bar.bar.length(), bar.has_style.load(Ordering::Relaxed)), (10, Some(40), true));
        bar.show(&update(50, Some(40)));
        assert_eq!((bar.bar.position(), bar.bar.length()), (50, Some(50)), "an estimate may be too low");
        assert_eq!(bar.bar.message(), "0 failed");
    }
    #[test]
    fn progress_bar_shows_whole_rows_per_second() {
        let terminal = Terminal::default();
        let bar = UnitBar::new(ProgressUnit::Rows, ProgressDrawTarget::term_like(Box::new(terminal.clone()))).unwrap();
        bar.show(&update(1000, Some(4000)));
        bar.bar.force_draw();
        let shown = terminal.0.lock().unwrap();
        let (_, rate) = shown.rsplit_once("1,000 rows, ").unwrap_or_else(|| unreachable!("{shown:?}"));
        let (rate, _) = rate.split_once(" rows/s, ").unwrap_or_else(|| unreachable!("{shown:?}"));
        assert!(rate.bytes().all(|byte| byte.is_ascii_digit()), "{shown:?}");
    }
}
