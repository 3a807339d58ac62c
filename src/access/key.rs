//! Keys and their hashes.
//!
//! A key has 256 random bits, so it cannot be guessed, however fast its hash is: a slow hash, as for passwords, would only make
//! requests slow. SHA-256 is in every toolbox: `printf %s "$KEY" | sha256sum` prints the hash of a key.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq;

/// What keys begin with, so that scanners for secrets recognize them.
const PREFIX: &str = "mls_";
/// What the text of a hash begins with.
const ALGORITHM: &str = "sha256:";

/// A key, which is shown once.
pub struct ApiKey(String);

/// The hash of a key.
///
/// Comparisons take the same time for all hashes. The time of a lookup in a map depends on the hash of what the client sends, from which
/// nothing follows about the key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl ApiKey {
    /// Creates a random key. `None` if cannot generate random numbers.
    pub fn generate() -> Option<Self> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random).ok()?;
        Some(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))))
    }

    /// Returns the key itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(crate::types::HIDDEN)
    }
}

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(bytes)
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(ALGORITHM)?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        }
        Some(Self(bytes))
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(ALGORITHM)?;
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The text is not shown: it may be a key.
        let expected = || D::Error::custom("`hash`: expected `sha256:` and 64 hexadecimal digits");
        Self::parse(&text).ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_hash_is_that_of_sha256sum() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of(b"abc").to_string(), text);
        assert_eq!(KeyHash::parse(text).unwrap(), KeyHash::of(b"abc"));
        assert_ne!(KeyHash::of(b"abd"), KeyHash::of(b"abc"));
        assert_eq!(KeyHash::parse(&text.to_uppercase().replace("SHA", "sha")).unwrap(), KeyHash::of(b"abc"));
        for bad in ["", "sha256:", &text[..70], &text.replace('b', "g"), &text[7..], &format!("{text}0"), "sha256:é"] {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn api_keys_are_long_random_and_hidden() {
        let (first, second) = (ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
        assert_ne!(first.reveal(), second.reveal());
        assert!(first.reveal().starts_with("mls_") && first.reveal().len() == 47);
        assert_eq!(format!("{first:?}"), "<hidden>");
        assert_eq!(first.hash(), KeyHash::of(first.reveal().as_bytes()));
    }

    #[test]
    fn key_hash_errors_do_not_show_the_text() {
        let error = serde_json::from_str::<KeyHash>("\"mls_secret\"").unwrap_err().to_string();
        assert!(!error.contains("mls_secret") && error.contains("sha256:"), "{error}");
    }
}
