//! The memory file: where a parent puts the tensors of its requests, and finds those of the answers, instead of in tails.
//!
//! The parent maps the file. This end only reads and writes at positions, so that a parent which changes or truncates the file
//! meanwhile causes an error, or other numbers, and never a fault.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use serde::Deserialize;

use super::frame::MAX_TAIL;

/// Each tensor starts at a multiple of this, in bytes.
pub(super) const ALIGNMENT: u64 = 8;

/// The most bytes that the inputs of a request may have in the file: as many as in a tail.
pub(super) const MAX_INPUT_BYTES: u64 = MAX_TAIL;

/// Why a part of the memory file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("the parent has sent no memory file with `hello`")]
    NoFile,
    #[error("offset {offset} in the memory file is not a multiple of {ALIGNMENT}")]
    Misaligned { offset: u64 },
    #[error("{size} bytes at offset {offset} exceed the memory file, which has {length} bytes")]
    OutOfBounds { offset: u64, size: u64, length: u64 },
    #[error("the inputs have more than {MAX_INPUT_BYTES} bytes in the memory file: send fewer rows at a time")]
    TooLong,
    #[error("an input and the region of the answer overlap at offset {offset} of the memory file")]
    Overlap { offset: u64 },
    #[error("there is not enough memory for {size} bytes: send fewer rows at a time")]
    NoMemory { size: u64 },
    #[error("cannot access {size} bytes at offset {offset} of the memory file: {source}")]
    Io { offset: u64, size: u64, source: io::Error },
}

/// A part of the memory file, as the parent declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Region {
    /// Returns whether both have a byte in common. Regions beyond the largest offset are not in any file.
    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.offset < other.offset.saturating_add(other.size) && other.offset < self.offset.saturating_add(self.size)
    }
}

/// The file that a parent has sent.
#[derive(Debug)]
pub(super) struct MemoryFile(File);

impl MemoryFile {
    pub(super) const fn new(file: File) -> Self {
        Self(file)
    }

    /// Returns a file of 64 KiB, which is the same for every input.
    #[cfg(fuzzing)]
    pub(super) fn for_fuzzing() -> &'static Self {
        static FILE: std::sync::LazyLock<MemoryFile> = std::sync::LazyLock::new(|| {
            let file = crate::platform::memory_file("fuzzing", 64 << 10);
            MemoryFile::new(file.expect("the system has memory files"))
        });
        &FILE
    }

    /// Checks that a region is aligned, and in the file as long as it is now.
    ///
    /// # Errors
    ///
    /// Fails otherwise.
    pub(super) fn check(&self, Region { offset, size }: Region) -> Result<(), MemoryError> {
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(MemoryError::Misaligned { offset });
        }
        let length = self.0.metadata().map_err(|source| MemoryError::Io { offset, size, source })?.len();
        match offset.checked_add(size) {
            Some(end) if end <= length => Ok(()),
            _ => Err(MemoryError::OutOfBounds { offset, size, length }),
        }
    }

    /// Copies a region. Memory is allocated once the file is known to be long enough.
    ///
    /// # Errors
    ///
    /// Fails if the region is not in the file.
    pub(super) fn read(&self, region: Region) -> Result<Bytes, MemoryError> {
        self.check(region)?;
        let Region { offset, size } = region;
        let too_large = || MemoryError::NoMemory { size };
        let mut bytes = Vec::new();
        let length = usize::try_from(size).map_err(|_| too_large())?;
        bytes.try_reserve_exact(length).map_err(|_| too_large())?;
        bytes.resize(length, 0);
        self.0.read_exact_at(&mut bytes, offset).map_err(|source| MemoryError::Io { offset, size, source })?;
        Ok(bytes.into())
    }

    /// Writes the first `size` bytes of chunks one after the other, from `offset` on.
    ///
    /// # Errors
    ///
    /// Fails if they are not in the file as long as it is now.
    pub(super) fn write(&self, offset: u64, size: usize, chunks: &[Bytes]) -> Result<(), MemoryError> {
        self.check(Region { offset, size: size as u64 })?;
        let (mut at, mut left) = (offset, size);
        for chunk in chunks {
            let chunk = &chunk[..chunk.len().min(left)];
            let error = |source| MemoryError::Io { offset: at, size: chunk.len() as u64, source };
            self.0.write_all_at(chunk, at).map_err(error)?;
            // Does not saturate: the sum is in the file.
            (at, left) = (at.saturating_add(chunk.len() as u64), left - chunk.len());
        }
        Ok(())
    }
}

/// Where the tensors of an answer go: one after the other into a region, as long as they fit.
#[derive(Debug)]
pub(super) struct AnswerRegion<'a> {
    file: &'a MemoryFile,
    next: u64,
    end: u64,
}

impl<'a> AnswerRegion<'a> {
    /// # Errors
    ///
    /// Fails if the region is not in the file.
    pub(super) fn new(file: &'a MemoryFile, region: Region) -> Result<Self, MemoryError> {
        file.check(region)?;
        Ok(Self { file, next: region.offset, end: region.offset.saturating_add(region.size) })
    }

    /// Writes a tensor, which is the first `size` bytes of chunks, and returns its offset. Returns `None` if it does not fit.
    ///
    /// # Errors
    ///
    /// Fails if the file has become too short.
    pub(super) fn put(&mut self, size: usize, chunks: &[Bytes]) -> Result<Option<u64>, MemoryError> {
        let Some(end) = self.next.checked_add(size as u64).filter(|end| *end <= self.end) else { return Ok(None) };
        let offset = self.next;
        self.file.write(offset, size, chunks)?;
        self.next = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        Ok(Some(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform;

    fn file(length: u64) -> MemoryFile {
        MemoryFile::new(platform::memory_file("test", length).unwrap())
    }

    fn at(offset: u64, size: u64) -> Region {
        Region { offset, size }
    }

    #[test]
    fn memory_file_regions_are_checked_against_its_length() {
        let file = file(32);
        file.write(8, 3, &[Bytes::from_static(b"ab"), Bytes::from_static(b"cd")]).unwrap();
        assert_eq!(file.read(at(8, 4)).unwrap().as_ref(), b"abc\0");
        assert_eq!(file.read(at(32, 0)).unwrap().len(), 0);
        for region in [at(0, 33), at(32, 1), at(40, 0), at(u64::MAX - 7, 8), at(8, u64::MAX)] {
            assert!(matches!(file.read(region), Err(MemoryError::OutOfBounds { length: 32, .. })), "{region:?}");
        }
        assert!(matches!(file.read(at(4, 4)), Err(MemoryError::Misaligned { offset: 4 })));
        assert!(file.write(32, 1, &[Bytes::from_static(b"a")]).is_err());
        file.0.set_len(8).unwrap();
        assert!(file.read(at(8, 4)).is_err());
        assert_eq!(file.0.metadata().unwrap().len(), 8, "writes do not extend it");
    }

    #[test]
    fn answer_region_takes_tensors_as_long_as_they_fit() {
        let file = file(64);
        let mut region = AnswerRegion::new(&file, at(8, 24)).unwrap();
        let mut put = |size: usize| region.put(size, &[Bytes::from(vec![7; size])]).unwrap();
        assert_eq!([put(3), put(20), put(16), put(1)], [Some(8), None, Some(16), None]);
        assert_eq!(put(0), Some(32), "nothing fits anywhere");
        assert!(AnswerRegion::new(&file, at(8, 64)).is_err());
    }

    #[test]
    fn regions_overlap_if_they_share_a_byte() {
        assert!(at(0, 16).overlaps(at(8, 8)) && at(8, 8).overlaps(at(0, 16)));
        assert!(!at(0, 8).overlaps(at(8, 8)) && !at(8, 8).overlaps(at(0, 8)));
        assert!(at(8, u64::MAX).overlaps(at(16, 1)));
    }
}
