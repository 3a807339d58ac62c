//! Deserializes canonical values into the types of the settings structs.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Reads seconds; as in the original, a negative number is zero.
pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds.max(0.0)).map_err(D::Error::custom)
}

/// Reads optional seconds; zero is `None`, too.
pub(super) fn optional_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?.filter(|seconds| *seconds != 0.0);
    seconds.map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)).transpose()
}

/// Reads a limit; -1 is `usize::MAX`, which means no limit.
pub(super) fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Ok(usize::try_from(i64::deserialize(deserializer)?).unwrap_or(usize::MAX))
}

/// Reads a string; an empty one is `None`.
pub(super) fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()))
}
