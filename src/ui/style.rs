//! The styles of terminal output. They are removed where the stream is not a terminal, or colors are switched off.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// A part of a message with a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Highlight {
    Error,
    Warning,
    Success,
    /// A heading or a name.
    Strong,
}

impl Highlight {
    fn style(self) -> Style {
        match self {
            Self::Error => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
            Self::Success => AnsiColor::Green.on_default(),
            Self::Strong => Style::new().bold(),
        }
    }

    /// Displays `text` in this style.
    pub fn paint<T: fmt::Display>(self, text: T) -> Painted<T> {
        Painted { style: self.style(), text }
    }
}

/// Text with a style.
#[derive(Debug)]
pub struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:#}", self.style, self.text, self.style)
    }
}
