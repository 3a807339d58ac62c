//! How urgent a request is, as its headers or parameters say.

use http::HeaderMap;

use crate::types::{InferenceRequest, Priority};

/// The header, or metadata of gRPC, in which clients and gateways say it.
const REQUEST_PRIORITY: &str = "request-priority";

/// The longest part of a wrong value that messages show.
const SHOWN: usize = 40;

/// A header that does not say how urgent.
#[derive(Debug, thiserror::Error)]
#[error("`request-priority` is `{found}`, expected an integer from 1, the most urgent, to 10")]
pub(super) struct PriorityError {
    pub(super) found: String,
}

/// Gives a request its priority. What its header says counts for more than its parameter, so that gateways can decide.
///
/// # Errors
///
/// Fails when the header is no number.
pub(super) fn give(request: &mut InferenceRequest, headers: &HeaderMap) -> Result<(), PriorityError> {
    request.priority = match headers.get(REQUEST_PRIORITY) {
        Some(value) => {
            let text = value.to_str().unwrap_or_default().trim();
            let wrong = |_| PriorityError { found: text.chars().take(SHOWN).collect() };
            Priority::new(text.parse().map_err(wrong)?)
        }
        None => Priority::of(&request.parameters).unwrap_or_default(),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    #[test]
    fn the_header_counts_for_more_than_the_parameter() {
        let given = |header: Option<&'static str>, parameter: Option<u64>| {
            let headers = header.map(|text| (REQUEST_PRIORITY.parse().unwrap(), text.parse().unwrap()));
            let headers = HeaderMap::from_iter(headers);
            let parameters: Map<String, Value> =
                parameter.map(|number| ("priority".to_owned(), number.into())).into_iter().collect();
            let mut request = InferenceRequest { parameters: parameters.into(), ..InferenceRequest::default() };
            give(&mut request, &headers).map(|()| request.priority)
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
