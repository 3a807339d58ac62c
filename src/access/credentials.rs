//! The credentials of a request.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::Refusal;

/// The longest credentials that are looked at, in bytes.
const MAX_CREDENTIALS: usize = 16 * 1024;

/// Returns the key or token of the header `authorization`. `None` without that header.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // With two of them, a proxy might have checked the other one.
    if values.next().is_some() || value.len() > MAX_CREDENTIALS {
        return Err(Refusal::MalformedCredentials);
    }
    let (scheme, rest) = value.as_bytes().split_first_chunk::<7>().ok_or(Refusal::MalformedCredentials)?;
    let presented = rest.trim_ascii();
    let is_bearer = scheme == b"Bearer " || scheme.eq_ignore_ascii_case(b"bearer ");
    if !is_bearer || presented.is_empty() {
        return Err(Refusal::MalformedCredentials);
    }
    Ok(Some(presented))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_credentials_are_read_from_exactly_one_header() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            bearer(&headers).map(|found| found.map(<[u8]>::to_vec))
        };
        assert_eq!(of(&[]), Ok(None));
        for good in ["Bearer a", "bearer a", "BEARER   a "] {
            assert_eq!(of(&[good]), Ok(Some(b"a".to_vec())), "{good}");
        }
        for bad in ["", "a", "Bearer", "Bearer ", "Basic YTph", "Bearera"] {
            assert_eq!(of(&[bad]), Err(Refusal::MalformedCredentials), "{bad}");
        }
        assert_eq!(of(&["Bearer a", "Bearer a"]), Err(Refusal::MalformedCredentials));
        assert_eq!(of(&[&format!("Bearer {}", "a".repeat(20_000))]), Err(Refusal::MalformedCredentials));
    }
}
