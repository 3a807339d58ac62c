//! What `mlserver doctor` finds, and how it is printed.

use std::fmt::Display;
use std::io;

use serde_json::{Value, json};

use crate::ui::{Highlight, Ui};

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FindingLevel {
    Ok,
    /// It works, but differently than in MLServer 1.7.1.
    Note,
    /// It does not keep the server from becoming ready.
    Warning,
    /// The server would not become ready.
    Problem,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    level: FindingLevel,
    text: String,
}

/// The findings, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings {
    findings: Vec<Finding>,
    /// Whether models are not loaded at startup, so that their problems do not keep the server from becoming ready.
    pub(super) models_are_optional: bool,
}

impl FindingLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    fn highlight(self) -> Highlight {
        match self {
            Self::Ok => Highlight::Success,
            Self::Note => Highlight::Strong,
            Self::Warning => Highlight::Warning,
            Self::Problem => Highlight::Error,
        }
    }
}

impl Findings {
    pub(super) fn ok(&mut self, text: impl Display) {
        self.add(FindingLevel::Ok, text);
    }

    pub(super) fn note(&mut self, text: impl Display) {
        self.add(FindingLevel::Note, text);
    }

    pub(super) fn warning(&mut self, text: impl Display) {
        self.add(FindingLevel::Warning, text);
    }

    /// Adds something that would keep the server from starting.
    pub(super) fn problem(&mut self, text: impl Display) {
        self.add(FindingLevel::Problem, text);
    }

    /// Adds something that would keep a model from loading.
    pub(super) fn model_problem(&mut self, text: impl Display) {
        self.add(if self.models_are_optional { FindingLevel::Warning } else { FindingLevel::Problem }, text);
    }

    fn add(&mut self, level: FindingLevel, text: impl Display) {
        let finding = Finding { level, text: text.to_string() };
        // A requirement of a folder concerns all of its models.
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    pub(super) fn count(&self, level: FindingLevel) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    pub(super) fn print(&self, ui: &mut Ui) -> io::Result<()> {
        for Finding { level, text } in &self.findings {
            ui.line(format_args!("{:<7}  {text}", level.highlight().paint(format_args!("{:<7}", level.name()))))?;
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        let findings: Vec<Value> =
            self.findings.iter().map(|finding| json!({"level": finding.level.name(), "text": finding.text})).collect();
        json!({
            "findings": findings,
            "problems": self.count(FindingLevel::Problem),
            "warnings": self.count(FindingLevel::Warning),
        })
    }
}
