//! The progress of a long command on standard error: a bar on a terminal, otherwise a line from time to time.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar is updated.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
/// How often a line is written if there is no bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// The resolution of the bar.
const STEPS: u64 = 1000;

/// Progress on standard error. A closed pipe is not an error.
#[derive(Debug)]
pub struct TerminalProgress(ProgressMode);

#[derive(Debug)]
enum ProgressMode {
    Quiet,
    Lines,
    Bar(ProgressBar),
}

/// The progress to show.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressUpdate {
    /// From 0 to 1, if the total is known.
    pub share: Option<f64>,
    /// A description.
    pub text: String,
}

impl TerminalProgress {
    /// Writes to the standard error of the process, or nothing if `quiet`.
    pub fn standard(quiet: bool) -> Self {
        Self(if quiet {
            ProgressMode::Quiet
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            ProgressMode::Bar(bar)
        } else {
            ProgressMode::Lines
        })
    }

    /// Returns how often to call [`TerminalProgress::show`].
    pub const fn interval(&self) -> Duration {
        match self.0 {
            ProgressMode::Bar(_) => BAR_INTERVAL,
            ProgressMode::Quiet | ProgressMode::Lines => LINE_INTERVAL,
        }
    }

    /// Shows the progress.
    pub fn show(&self, shown: &ProgressUpdate) {
        let percent = shown.share.map(|share| format!("{:.1} %, ", share * 100.0)).unwrap_or_default();
        match &self.0 {
            ProgressMode::Quiet => {}
            ProgressMode::Lines => self.raw(format_args!("{percent}{}", shown.text)),
            ProgressMode::Bar(bar) => {
                let template = if shown.share.is_some() { "[{bar:20}] {wide_msg}" } else { "{spinner} {wide_msg}" };
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("=> "));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the value is from 0 to 1000"
                )]
                let position = (shown.share.unwrap_or_default() * 1000.0) as u64;
                bar.set_position(position.min(STEPS));
                bar.set_message(format!("{percent}{}", shown.text));
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
            ProgressMode::Lines => self.raw(message),
            ProgressMode::Bar(bar) => bar.suspend(|| self.raw(message)),
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
            bar.finish_and_clear();
        }
    }
}
