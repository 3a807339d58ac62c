//! The deadline that the client sets, in a header with a number of seconds.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

/// The header with the timeout, in seconds; fractions are allowed.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");

/// Longer timeouts, in seconds, count as none: a year, so that no clock overflows.
const MAX_TIMEOUT: f64 = 365.0 * 24.0 * 3600.0;

/// How many characters of an invalid value error messages show.
const MAX_SHOWN: usize = 40;

/// An invalid timeout header.
#[derive(Debug, thiserror::Error)]
#[error("`request-timeout` is `{found}`, expected seconds, such as `0.5`")]
pub(super) struct DeadlineError {
    pub(super) found: String,
}

/// Returns when the client of a request that has just arrived stops waiting for a response. `None` if it sets no deadline.
///
/// # Errors
///
/// Fails if the header is not a number of seconds.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Instant>, DeadlineError> {
    Ok(timeout(headers)?.map(|timeout| Instant::now() + timeout))
}

/// Returns how long the client waits for a response. `None` if it sets no limit.
///
/// # Errors
///
/// Fails if the header is not a number of seconds.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, DeadlineError> {
    let Some(value) = headers.get(REQUEST_TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let invalid = || DeadlineError { found: text.chars().take(MAX_SHOWN).collect() };
    let seconds: f64 = text.parse().map_err(|_| invalid())?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(invalid());
    }
    if seconds > MAX_TIMEOUT {
        return Ok(None);
    }
    Ok(Some(Duration::from_secs_f64(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn request_timeout_accepts_fractions_of_seconds() {
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_TIMEOUT, HeaderValue::from_static(text))]);
            of(&headers).map(|deadline| deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())))
        };
        assert!(of(&HeaderMap::new()).unwrap().is_none());
        let near = |text, seconds| {
            read(text).unwrap().unwrap().abs_diff(Duration::from_secs_f64(seconds)) < Duration::from_secs(1)
        };
        assert!(near("0", 0.0) && near("1.5", 1.5) && near(" 100 ", 100.0));
        assert!(read("inf").unwrap().is_none() && read("1e300").unwrap().is_none());
        for wrong in ["", "-1", "nan", "1s", "soon"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
