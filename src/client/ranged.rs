//! Inputs that are read by ranges, such as the objects of a store. Only blocks of them are in memory.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::lines::InputBytes;

/// How much of an input is read at a time from start to end, in bytes.
const STREAM_BLOCK: u64 = 8 << 20;

/// An input whose ranges can be read in any order.
pub trait RangedInput: fmt::Debug + Send + Sync {
    /// The name in messages.
    fn name(&self) -> &str;

    /// In bytes.
    fn size(&self) -> u64;

    /// Reads a range, which is inside of the input. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the range cannot be read completely, or the input is not the one that was opened any more.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// Reads an input from start to end.
pub(super) struct RangedStream {
    input: Arc<dyn RangedInput>,
    next: u64,
    block: Bytes,
}

impl RangedStream {
    pub(super) const fn new(input: Arc<dyn RangedInput>) -> Self {
        Self { input, next: 0, block: Bytes::new() }
    }
}

impl Read for RangedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() && self.next < self.input.size() {
            let end = self.input.size().min(self.next + STREAM_BLOCK);
            self.block = self.input.read(self.next..end)?;
            self.next = end;
        }
        let taken = self.block.len().min(buffer.len());
        self.block.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}

impl InputBytes for RangedStream {
    fn wait(&self, _: Duration) -> bool {
        true
    }
}

#[cfg(feature = "parquet")]
pub(super) use blocks::{KEPT_BLOCKS, RangedBlocks, TableFile};

#[cfg(feature = "parquet")]
mod blocks {
    use std::fs::File;
    use std::num::NonZeroUsize;

    use lru::LruCache;
    use parking_lot::Mutex;
    use parquet::errors::ParquetError;
    use parquet::file::reader::{ChunkReader, Length};

    use super::{Arc, Buf, Bytes, RangedInput, Read, io};

    /// The limit on blocks that are kept, in bytes.
    pub(in crate::client) const KEPT_BLOCKS: u64 = 128 << 20;
    /// The sizes of a block: at least, and at most.
    const MIN_BLOCK: u64 = 128 << 10;
    const MAX_BLOCK: u64 = 4 << 20;

    /// Reads an input in any order, in aligned blocks, of which those used last are kept. Columns of a table are read side by
    /// side, so that each needs a block.
    #[derive(Clone)]
    pub(in crate::client) struct RangedBlocks {
        input: Arc<dyn RangedInput>,
        kept: Arc<Mutex<KeptBlocks>>,
    }

    struct KeptBlocks {
        size: u64,
        /// By the number of the block.
        blocks: LruCache<u64, Bytes>,
    }

    impl KeptBlocks {
        /// `columns` are read side by side in groups of up to `group` bytes, and others from start to end.
        fn new(columns: usize, group: u64) -> Self {
            // A group is kept as a whole if it fits. Otherwise there are two blocks for each column: one that is read, and one
            // of its dictionary or of the next page. Two more are for what is read from start to end.
            let wanted = 2 * columns as u64 + 2;
            let fits = group.saturating_add(2 * MAX_BLOCK) <= KEPT_BLOCKS;
            let size = if fits { MAX_BLOCK } else { KEPT_BLOCKS / wanted };
            let size = 1 << size.clamp(MIN_BLOCK, MAX_BLOCK).ilog2();
            let wanted = if fits { wanted.min(group.div_ceil(size) + 2) } else { wanted };
            let count = usize::try_from(wanted.min(KEPT_BLOCKS / size)).unwrap_or(1);
            Self { size, blocks: LruCache::new(NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)) }
        }
    }

    impl RangedBlocks {
        pub(in crate::client) fn new(input: Arc<dyn RangedInput>) -> Self {
            Self { input, kept: Arc::new(Mutex::new(KeptBlocks::new(1, 0))) }
        }

        /// Chooses the size of blocks for a number of columns that are read side by side, in groups of up to `group` bytes.
        pub(in crate::client) fn set_columns(&self, columns: usize, group: u64) {
            *self.kept.lock() = KeptBlocks::new(columns, group);
        }

        /// Returns the bytes from `start` on, up to the end of their block.
        fn block(&self, start: u64) -> io::Result<Bytes> {
            if start >= self.input.size() {
                return Ok(Bytes::new());
            }
            let mut kept = self.kept.lock();
            let size = kept.size;
            let number = start / size;
            let block = if let Some(block) = kept.blocks.get(&number) {
                block.clone()
            } else {
                let end = self.input.size().min((number + 1) * size);
                let block = self.input.read(number * size..end)?;
                kept.blocks.put(number, block.clone());
                block
            };
            Ok(block.slice(usize::try_from(start % size).unwrap_or(block.len()).min(block.len())..))
        }

        fn bytes(&self, start: u64, length: usize) -> io::Result<Bytes> {
            let end = start.checked_add(length as u64).filter(|end| *end <= self.input.size());
            let Some(end) = end else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            if length as u64 > self.kept.lock().size {
                return self.input.read(start..end);
            }
            let first = self.block(start)?;
            if first.len() >= length {
                return Ok(first.slice(..length));
            }
            let mut bytes = Vec::with_capacity(length);
            bytes.extend_from_slice(&first);
            let rest = self.block(start + first.len() as u64)?;
            bytes.extend_from_slice(&rest[..length - first.len()]);
            Ok(bytes.into())
        }
    }

    /// A table in a file, or in an input that is read by ranges.
    pub(in crate::client) enum TableFile {
        File(File),
        Ranged(RangedBlocks),
    }

    impl Length for TableFile {
        fn len(&self) -> u64 {
            match self {
                Self::File(file) => file.len(),
                Self::Ranged(blocks) => blocks.input.size(),
            }
        }
    }

    impl ChunkReader for TableFile {
        type T = Box<dyn Read>;

        fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
            Ok(match self {
                Self::File(file) => Box::new(file.get_read(start)?),
                Self::Ranged(blocks) => {
                    Box::new(BlockStream { blocks: blocks.clone(), next: start, block: Bytes::new() })
                }
            })
        }

        fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
            match self {
                Self::File(file) => file.get_bytes(start, length),
                Self::Ranged(blocks) => blocks.bytes(start, length).map_err(ParquetError::from),
            }
        }
    }

    /// Reads blocks from a position on.
    struct BlockStream {
        blocks: RangedBlocks,
        next: u64,
        block: Bytes,
    }

    impl Read for BlockStream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.block.is_empty() {
                self.block = self.blocks.block(self.next)?;
                self.next += self.block.len() as u64;
            }
            let taken = self.block.len().min(buffer.len());
            self.block.copy_to_slice(&mut buffer[..taken]);
            Ok(taken)
        }
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;

        use super::super::tests::Numbers;
        use super::*;

        #[test]
        fn ranged_blocks_are_bounded() {
            let large = 1 << 40;
            for (columns, group, size) in [
                (0, large, MAX_BLOCK),
                (15, large, MAX_BLOCK),
                (31, large, 2 << 20),
                (100_000, large, MIN_BLOCK),
                (500, 64 << 20, MAX_BLOCK),
            ] {
                let kept = KeptBlocks::new(columns, group);
                assert_eq!(kept.size, size, "{columns}");
                assert!(kept.size * kept.blocks.cap().get() as u64 <= KEPT_BLOCKS);
            }
            // A group that fits is kept, and nothing is kept that is read from start to end.
            let count = |columns, group| KeptBlocks::new(columns, group).blocks.cap().get();
            assert_eq!((count(500, 64 << 20), count(0, 64 << 20), count(0, large)), (18, 2, 2));
        }

        proptest! {
            #[test]
            fn ranged_blocks_have_the_bytes_of_the_input(ranges in prop::collection::vec((0..300_000_u64, 0..150_000_usize), 1..20)) {
                let blocks = RangedBlocks::new(Arc::new(Numbers(300_000)));
                blocks.set_columns(10_000, 1 << 40);
                let file = TableFile::Ranged(blocks);
                for (start, length) in ranges {
                    let expected = Numbers::bytes(start..(start + length as u64).min(300_000));
                    match file.get_bytes(start, length) {
                        Ok(bytes) => prop_assert_eq!(&bytes[..], &expected[..]),
                        Err(_) => prop_assert!(start + length as u64 > 300_000),
                    }
                    let mut read = Vec::new();
                    file.get_read(start).unwrap().take(length as u64).read_to_end(&mut read).unwrap();
                    prop_assert_eq!(read, expected);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input of this size, whose bytes depend on their positions.
    #[derive(Debug)]
    pub(super) struct Numbers(pub(super) u64);

    impl Numbers {
        pub(super) fn bytes(range: Range<u64>) -> Vec<u8> {
            range.map(|position| (position.wrapping_mul(0x9e37_79b9) >> 8).to_le_bytes()[0]).collect()
        }
    }

    impl RangedInput for Numbers {
        fn name(&self) -> &'static str {
            "numbers"
        }

        fn size(&self) -> u64 {
            self.0
        }

        fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
            assert!(range.end <= self.0 && range.end - range.start <= STREAM_BLOCK, "{range:?}");
            Ok(Self::bytes(range).into())
        }
    }

    #[test]
    fn ranged_streams_have_the_bytes_of_the_input() {
        for size in [0, 1, STREAM_BLOCK, STREAM_BLOCK + 1] {
            let mut read = Vec::new();
            RangedStream::new(Arc::new(Numbers(size))).read_to_end(&mut read).unwrap();
            assert!(read == Numbers::bytes(0..size), "{size}");
        }
    }
}
