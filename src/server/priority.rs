//! The priority of a request, from its headers or parameters.

use http::HeaderMap;

use crate::types::{InferenceRequest, Priority};

/// The header, or gRPC metadata key, in which clients and gateways send the priority.
const REQUEST_PRIORITY: &str = "request-priority";

/// How many characters of an invalid value error messages show.
const MAX_SHOWN: usize = 40;

/// An invalid priority header.
#[derive(Debug, thiserror::Error)]
#[error("`request-priority` is `{found}`, expected an integer from 1 (the most urgent) to 10")]
pub(super) struct PriorityError {
    pub(super) found: String,
}

/// Returns the priority in a request's headers, for the work before its body has been read. An invalid one is reported by
/// [`assign`].
pub(super) fn of_headers(headers: &HeaderMap) -> Priority {
    read(headers).ok().flatten().unwrap_or_default()
}

fn read(headers: &HeaderMap) -> Result<Option<Priority>, PriorityError> {
    let Some(value) = headers.get(REQUEST_PRIORITY) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let invalid = |_| PriorityError { found: text.chars().take(MAX_SHOWN).collect() };
    Ok(Some(Priority::new(text.parse().map_err(invalid)?)))
}

/// Sets the priority of a request. The header overrides the parameter, so that gateways can decide.
///
/// # Errors
///
/// Fails if the header is not an integer.
pub(super) fn assign(request: &mut InferenceRequest, headers: &HeaderMap) -> Result<(), PriorityError> {
    let of_parameters = || Priority::of(&request.parameters).unwrap_or_default();
    request.priority = read(headers)?.unwrap_or_else(of_parameters);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    #[test]
    fn priority_header_overrides_parameter() {
        let given = |header: Option<&'static str>, parameter: Option<u64>| {
            let headers = header.map(|text| (REQUEST_PRIORITY.parse().unwrap(), text.parse().unwrap()));
            let headers = HeaderMap::from_iter(headers);
            let parameters: Map<String, Value> =
                parameter.map(|number| ("priority".to_owned(), number.into())).into_iter().collect();
            let mut request = InferenceRequest { parameters: parameters.into(), ..InferenceRequest::default() };
            assign(&mut request, &headers).map(|()| request.priority)
        };
        assert_eq!(given(None, None).unwrap(), Priority::default());
        assert_eq!(given(None, Some(2)).unwrap(), Priority::new(2));
        assert_eq!(given(Some(" 1 "), Some(2)).unwrap(), Priority::new(1));
        assert_eq!(given(Some("99"), None).unwrap(), Priority::LAST);
        for wrong in ["", "-1", "high", "1.5"] {
            assert!(given(Some(wrong), Some(2)).is_err(), "{wrong}");
        }
    }
}
