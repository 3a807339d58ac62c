//! Why a value is refused, which the kinds of fields share.

use serde_json::Value;

/// Why a kind does not accept a value.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The part of the value that is refused, as it follows the setting's name: `[1]` or `.name`. Empty for the whole value.
    pub(super) inside: String,
    pub(super) value: Value,
    pub(super) expected: String,
}

impl Refusal {
    pub(super) fn new(inside: &str, value: Value, expected: &str) -> Self {
        Self { inside: inside.to_owned(), value, expected: expected.to_owned() }
    }
}
