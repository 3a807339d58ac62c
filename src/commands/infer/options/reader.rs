//! Reads the values of arguments and their environment variables.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::cli::infer::InferVariable;

/// Reads arguments and environment variables, and collects their problems.
pub(super) struct ArgumentReader {
    pub(super) variables: BTreeMap<String, String>,
    pub(super) problems: Vec<String>,
}

pub(super) fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse::<T>().map_err(|error| error.to_string())
}

impl ArgumentReader {
    pub(super) fn variable(&self, variable: &InferVariable) -> Option<&str> {
        // An empty variable counts as unset, as in the original.
        self.variables.get(variable.name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the argument, or the value of the environment variable if there is no argument.
    pub(super) fn value<T>(
        &mut self,
        given: Option<T>,
        variable: &InferVariable,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if given.is_some() {
            return given;
        }
        let text = self.variable(variable)?;
        let value = parse(text).map_err(|error| format!("{}: `{text}`: {error}", variable.name));
        self.checked(value)
    }

    pub(super) fn checked<T>(&mut self, value: Result<T, String>) -> Option<T> {
        value.map_err(|problem| self.problems.push(problem)).ok()
    }

    pub(super) fn required<T>(&mut self, value: Option<T>, flag: &str, variable: &InferVariable) -> Option<T> {
        let is_set = self.variable(variable).is_some();
        if value.is_none() && !is_set {
            self.problems.push(format!("{flag} (or {}) is required", variable.name));
        }
        value
    }

    /// Reads a flag that may be given or switched off. Its environment variable has one of the original's words for true and
    /// false.
    pub(super) fn flag(&mut self, given: bool, is_off: bool, variable: &InferVariable) -> bool {
        let read = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        };
        self.value((given || is_off).then_some(given), variable, read).unwrap_or(false)
    }

    pub(super) fn seconds(&mut self, given: Option<f64>, flag: &str, variable: &InferVariable) -> Option<Duration> {
        let seconds = self.value(given, variable, parse)?;
        let time = Duration::try_from_secs_f64(seconds);
        self.checked(time.map_err(|_| format!("{flag}: invalid duration `{seconds}`: expected seconds, 0 or more")))
    }

    /// Returns the header with the token. No message has the token.
    pub(super) fn token(&mut self, given: Option<&str>) -> Option<HeaderValue> {
        let of_variable = self.variable(&InferVariable::TOKEN).map(str::to_owned);
        let token = given.map(str::to_owned).or(of_variable)?;
        let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let invalid = |_| "--token: expected printable ASCII characters".to_owned();
        let mut header = self.checked(header.map_err(invalid))?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Reads headers. An invalid one is ignored with a warning, as in the original.
    pub(super) fn headers(&mut self, given: &[String]) -> (HeaderMap, Vec<String>) {
        let of_variable: Vec<String>;
        let entries = if given.is_empty() {
            let text = self.variable(&InferVariable::REQUEST_HEADERS).unwrap_or_default();
            of_variable = text.split_whitespace().map(str::to_owned).collect();
            &of_variable
        } else {
            given
        };
        let (mut headers, mut warnings) = (HeaderMap::new(), Vec::new());
        for entry in entries {
            let pair = entry.split_once(':').and_then(|(name, value)| {
                let mut value: HeaderValue = value.trim().parse().ok()?;
                // Tokens are sent but never shown.
                value.set_sensitive(true);
                Some((name.trim().parse::<HeaderName>().ok()?, value))
            });
            // The rest of an invalid header may be a token.
            let shown = entry.split([':', ' ']).next().unwrap_or_default();
            match pair {
                Some((name, value)) => drop(headers.append(name, value)),
                None => warnings.push(format!("ignoring invalid header `{shown}`: expected `NAME: VALUE`")),
            }
        }
        (headers, warnings)
    }
}
