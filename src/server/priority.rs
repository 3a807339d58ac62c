//! The priority of a request, from its headers or parameters.

use http::{HeaderMap, HeaderName};

use crate::types::Priority;

/// The header, or gRPC metadata key, in which clients and gateways send the priority.
const REQUEST_PRIORITY: HeaderName = HeaderName::from_static("request-priority");

/// How many characters of an invalid value error messages show.
const MAX_SHOWN: usize = 40;

/// An invalid priority header.
#[derive(Debug, thiserror::Error)]
#[error("`request-priority` is `{found}`, expected an integer from 1 (the most urgent) to 10")]
pub(super) struct PriorityError {
    pub(super) found: String,
}

/// Returns the priority in a request's headers. An invalid one counts as the default: [`read`] reports it.
pub(super) fn of_headers(headers: &HeaderMap) -> Priority {
    read(headers).ok().flatten().unwrap_or_default()
}

/// Returns the priority in a request's headers, which overrides that of its parameters, so that gateways can decide.
///
/// # Errors
///
/// Fails if the header is not an integer.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Priority>, PriorityError> {
    let Some(value) = headers.get(REQUEST_PRIORITY) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let invalid = |_| PriorityError { found: text.chars().take(MAX_SHOWN).collect() };
    Ok(Some(Priority::new(text.parse().map_err(invalid)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_header_is_an_integer() {
        let given = |header: Option<&'static str>| {
            read(&header.map(|text| (REQUEST_PRIORITY, text.parse().unwrap())).into_iter().collect())
        };
        assert_eq!(given(None).unwrap(), None);
        assert_eq!(given(Some(" 1 ")).unwrap(), Some(Priority::new(1)));
        assert_eq!(given(Some("99")).unwrap(), Some(Priority::LAST));
        for wrong in ["", "-1", "high", "1.5"] {
            assert!(given(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
