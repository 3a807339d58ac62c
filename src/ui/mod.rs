//! The only writer to standard output and standard error.
//!
//! The result of a command goes to standard output, everything else to standard error. A reader that closes the pipe early, as in
//! `mlserver config show | head -1`, is not an error: the rest of the output is dropped silently.

pub mod progress;
mod style;

use std::fmt::Display;
use std::io::{self, Write};

use anstream::ColorChoice;

pub use style::{Highlight, Painted};

/// The two streams of a command.
pub struct Ui {
    out: UiStream,
    err: UiStream,
}

/// A stream whose reader may close it.
struct UiStream {
    writer: Box<dyn Write>,
    closed: bool,
}

/// Returns standard output, for answers that are written as they come.
pub fn standard_output() -> Box<dyn Write + Send> {
    Box::new(io::stdout())
}

impl Ui {
    /// Chooses whether the streams of the process have colors: always, never, or if they are terminals and `NO_COLOR` is not set.
    pub fn use_colors(always: Option<bool>) {
        let choice = match always {
            Some(true) => ColorChoice::Always,
            Some(false) => ColorChoice::Never,
            None => ColorChoice::Auto,
        };
        choice.write_global();
    }

    /// Writes to the streams of the process.
    pub fn standard() -> Self {
        Self::new(Box::new(anstream::stdout()), Box::new(anstream::stderr()))
    }

    /// Writes to the given streams.
    pub fn new(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        let stream = |writer| UiStream { writer, closed: false };
        Self { out: stream(out), err: stream(err) }
    }

    /// Prints a line of the command's result.
    pub fn line(&mut self, line: impl Display) -> io::Result<()> {
        self.out.line(line)
    }

    /// Reports progress.
    pub fn note(&mut self, message: impl Display) {
        self.err.report(message);
    }

    /// Reports something that does not stop the command.
    pub fn warning(&mut self, message: impl Display) {
        self.err.report(format_args!("{} {message}", Highlight::Warning.paint("warning:")));
    }

    /// Reports an error that does not stop the command.
    pub fn problem(&mut self, message: impl Display) {
        self.err.report(format_args!("{} {message}", Highlight::Error.paint("error:")));
    }

    /// Reports why the command failed, with all causes.
    pub fn error(&mut self, error: &anyhow::Error) {
        self.err.report(format_args!("{} {error}", Highlight::Error.paint("error:")));
        for cause in error.chain().skip(1) {
            self.err.report(format_args!("  caused by: {cause}"));
        }
    }

    /// Prints the message of the command-line parser: help, version, or an error.
    pub fn usage(&mut self, error: &clap::Error) {
        // The parser chooses the stream and its colors. A failure cannot be reported anywhere.
        let _ = error.print();
    }
}

impl UiStream {
    fn line(&mut self, line: impl Display) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let written = writeln!(self.writer, "{line}").and_then(|()| self.writer.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Writes a line. A failure cannot be reported anywhere.
    fn report(&mut self, line: impl Display) {
        let _ = self.line(line);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Fails every write and counts them.
    struct Failing(io::ErrorKind, Rc<Cell<usize>>);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn failing(kind: io::ErrorKind) -> (Ui, Rc<Cell<usize>>) {
        let count = Rc::new(Cell::new(0));
        let writer = Failing(kind, Rc::clone(&count));
        (Ui::new(Box::new(writer), Box::new(io::sink())), count)
    }

    #[test]
    fn ui_closed_pipe_is_silent() {
        let (mut ui, writes) = failing(io::ErrorKind::BrokenPipe);
        ui.line("one").unwrap();
        ui.line("two").unwrap();
        assert_eq!(writes.get(), 1);
    }

    #[test]
    fn ui_full_disk_is_an_error() {
        let (mut ui, _) = failing(io::ErrorKind::StorageFull);
        assert_eq!(ui.line("one").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
