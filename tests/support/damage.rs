//! Damaged files.

/// Damages files in ways that are the same in every run.
pub(crate) struct Damage {
    random: u64,
    /// Bytes that mean something in the files.
    meaningful: &'static [u8],
}

impl Damage {
    pub(crate) fn new(meaningful: &'static [u8]) -> Self {
        Self { random: 88_172_645_463_325_252, meaningful }
    }

    /// Returns a number below the limit.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit as u64).unwrap_or_default()
    }

    /// Returns a copy of a file with one to four other bytes: with a flipped bit, or with one that means something, or any.
    pub(crate) fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(damaged.len());
            damaged[at] = match self.below(3) {
                0 => damaged[at] ^ (1 << self.below(8)),
                1 => self.meaningful[self.below(self.meaningful.len())],
                _ => u8::try_from(self.below(256)).unwrap_or_default(),
            };
        }
        damaged
    }
}
