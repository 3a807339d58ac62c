//! The deadline that the client sets.

use std::time::Duration;

use http::HeaderMap;
use tonic::Code;

use super::status::Status;

/// Returns how long the client waits for a response. `None` if it sets no deadline.
///
/// # Errors
///
/// Fails if the `grpc-timeout` header is invalid.
pub(super) fn of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let invalid = || {
        let shown: String = text.chars().take(40).collect();
        Status::new(
            Code::InvalidArgument,
            format!("`grpc-timeout` is `{shown}`, expected up to 8 digits and one of HMSmun"),
        )
    };
    parse(text).map(Some).ok_or_else(invalid)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Returns the status of a call whose deadline has passed.
pub(super) fn exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "the client's deadline has passed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_parse_accepts_digits_and_a_unit() {
        let table = [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("99999999m", Some(99_999_999_000_000)),
            ("5u", Some(5_000)),
            ("0n", Some(0)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("100000000S", None),
            ("1é", None),
        ];
        for (text, nanoseconds) in table {
            assert_eq!(parse(text), nanoseconds.map(Duration::from_nanos), "{text}");
        }
    }
}
