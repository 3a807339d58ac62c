//! Fingerprints of rows, by which a run that is resumed recognizes its input.

use std::num::NonZero;

/// The first 64 bits of a hash of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowFingerprint(NonZero<u64>);

impl RowFingerprint {
    /// How many bytes it takes in a file.
    pub(super) const BYTES: usize = 8;

    /// Returns the fingerprint of a row of these cells.
    pub(super) fn of<'a>(cells: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for cell in cells {
            hasher.update(&(cell.len() as u64).to_le_bytes()).update(cell);
        }
        let hash = hasher.finalize();
        let bits = hash.as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        Self(NonZero::new(bits).unwrap_or(NonZero::<u64>::MAX))
    }

    /// Reads a fingerprint; `None` for a row without one, whose bytes are zero.
    pub(super) fn read(bytes: [u8; Self::BYTES]) -> Option<Self> {
        NonZero::new(u64::from_le_bytes(bytes)).map(Self)
    }

    pub(super) const fn bytes(self) -> [u8; Self::BYTES] {
        self.0.get().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_distinguish_cells() {
        let of = |cells: &[&str]| RowFingerprint::of(cells.iter().map(|cell| cell.as_bytes()));
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        for other in [&["ab"][..], &["a", "b", ""], &["b", "a"], &["", "ab"], &[]] {
            assert_ne!(of(&["a", "b"]), of(other), "{other:?}");
        }
        assert_eq!(RowFingerprint::read(of(&["a"]).bytes()), Some(of(&["a"])));
        assert_eq!(RowFingerprint::read([0; RowFingerprint::BYTES]), None);
    }
}
