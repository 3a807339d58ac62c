//! Suggests the correct name for a misspelled one.

/// Returns the candidate that a misspelled name was probably meant to be.
///
/// Case is ignored, and dashes count as underscores. One typo in four characters is forgiven, and at most three.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let name = plain(name);
    let forgiven = (name.chars().count() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (strsim::osa_distance(&name, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= forgiven)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["http_port", "host", "debug", "parallel_workers", "uri"];
        let cases = [
            ("http_prot", Some("http_port")),
            ("httpPort", Some("http_port")),
            ("HTTP-PORT", Some("http_port")),
            ("paralel_worker", Some("parallel_workers")),
            ("url", Some("uri")),
            ("port", None),
            ("unrelated", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, known.into_iter()), expected, "{name}");
        }
    }
}
