//! How long the client waits.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

/// The header in which clients say it, in seconds; fractions are fine.
const REQUEST_TIMEOUT: &str = "request-timeout";

/// Whoever waits longer waits for ever: a year, so that no clock overflows.
const LONGEST: f64 = 365.0 * 24.0 * 3600.0;

/// The longest part of a wrong value that messages show.
const SHOWN: usize = 40;

/// A header that does not say how long.
#[derive(Debug, thiserror::Error)]
#[error("`request-timeout` is `{found}`, expected seconds, as `0.5`")]
pub(super) struct DeadlineError {
    pub(super) found: String,
}

/// Returns until when the client waits for its answer, if it says so.
///
/// # Errors
///
/// Fails when what it says is no number of seconds.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Instant>, DeadlineError> {
    let Some(value) = headers.get(REQUEST_TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let wrong = || DeadlineError { found: text.chars().take(SHOWN).collect() };
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(wrong());
    }
    if seconds > LONGEST {
        return Ok(None);
    }
    Ok(Some(Instant::now() + Duration::from_secs_f64(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn seconds_may_have_fractions() {
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_TIMEOUT.parse().unwrap(), HeaderValue::from_static(text))]);
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
