//! A checked reader of `FlatBuffers`, as far as `CatBoost` uses the format.
//!
//! Every offset, vtable and vector is checked against the buffer before it is followed. Nothing is recursive: the schema
//! determines the depth. Tables may be shared, so a small file could describe a large model: everything that is read is
//! counted, and a file that is read many times over is rejected.

use std::cell::Cell;

use crate::trees::LoadError;

/// How many bytes may be read for each byte of the file. Projections of categories are shared by a few features each.
const READS: usize = 16;

/// A file, and how much of it may still be read.
#[derive(Debug)]
pub(super) struct Buffer<'a> {
    bytes: &'a [u8],
    left: Cell<usize>,
}

/// A table: fields that are found through its vtable, and have a default if they are missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    buffer: &'a Buffer<'a>,
    start: usize,
    vtable: &'a [u8],
}

/// A vector of elements of a fixed width, which are not copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a> {
    buffer: &'a Buffer<'a>,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Buffer<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, left: Cell::new(bytes.len().saturating_mul(READS)) }
    }

    /// Returns the table that the buffer begins with.
    pub(super) fn root(&'a self) -> Result<Table<'a>, LoadError> {
        self.table(self.follow(0)?)
    }

    fn slice(&self, start: usize, length: usize) -> Result<&'a [u8], LoadError> {
        self.left.set(self.left.get().checked_sub(length).ok_or(LoadError::TooLarge {
            what: "bytes of shared tables",
            count: self.bytes.len().saturating_mul(READS),
            limit: self.bytes.len().saturating_mul(READS),
        })?);
        let end = start.checked_add(length);
        end.and_then(|end| self.bytes.get(start..end))
            .ok_or(LoadError::Truncated { offset: self.bytes.len(), reading: "a table" })
    }

    fn array<const N: usize>(&self, start: usize) -> Result<[u8; N], LoadError> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(start, N)?);
        Ok(array)
    }

    /// Returns where the offset at `at` leads to. Offsets are relative to their own place, and never 0.
    fn follow(&self, at: usize) -> Result<usize, LoadError> {
        let offset = u32::from_le_bytes(self.array(at)?);
        let target =
            usize::try_from(offset).ok().filter(|offset| *offset > 0).and_then(|offset| at.checked_add(offset));
        target.filter(|target| *target < self.bytes.len()).ok_or_else(|| LoadError::Syntax {
            offset: at,
            wanted: "an offset within the file",
            found: offset.to_string(),
        })
    }

    fn table(&'a self, start: usize) -> Result<Table<'a>, LoadError> {
        let back = i64::from(i32::from_le_bytes(self.array(start)?));
        let at = i64::try_from(start).ok().and_then(|start| usize::try_from(start - back).ok());
        let at = at.ok_or_else(|| LoadError::Syntax {
            offset: start,
            wanted: "the offset of a vtable within the file",
            found: back.to_string(),
        })?;
        let length = usize::from(u16::from_le_bytes(self.array(at)?));
        Ok(Table { buffer: self, start, vtable: self.slice(at, length)? })
    }

    fn vector(&'a self, at: usize, width: usize) -> Result<Vector<'a>, LoadError> {
        let at = self.follow(at)?;
        let count = u32::from_le_bytes(self.array(at)?);
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(width));
        let length = length.ok_or(LoadError::Truncated { offset: self.bytes.len(), reading: "a vector" })?;
        Ok(Vector { buffer: self, start: at + 4, bytes: self.slice(at + 4, length)? })
    }
}

impl<'a> Table<'a> {
    /// Returns the place of a field, or `None` if it has its default.
    fn place(&self, field: usize) -> Option<usize> {
        let entry = self.vtable.get(4 + 2 * field..6 + 2 * field)?;
        let offset = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
        (offset > 0).then(|| self.start + offset)
    }

    fn scalar<const N: usize>(&self, field: usize) -> Result<Option<[u8; N]>, LoadError> {
        self.place(field).map(|place| self.buffer.array(place)).transpose()
    }

    pub(super) fn u8(&self, field: usize, default: u8) -> Result<u8, LoadError> {
        Ok(self.scalar::<1>(field)?.map_or(default, |[byte]| byte))
    }

    pub(super) fn i32(&self, field: usize, default: i32) -> Result<i32, LoadError> {
        Ok(self.scalar(field)?.map_or(default, i32::from_le_bytes))
    }

    pub(super) fn f32(&self, field: usize, default: f32) -> Result<f32, LoadError> {
        Ok(self.scalar(field)?.map_or(default, f32::from_le_bytes))
    }

    pub(super) fn f64(&self, field: usize, default: f64) -> Result<f64, LoadError> {
        Ok(self.scalar(field)?.map_or(default, f64::from_le_bytes))
    }

    pub(super) fn table(&self, field: usize) -> Result<Option<Self>, LoadError> {
        let Some(place) = self.place(field) else { return Ok(None) };
        self.buffer.table(self.buffer.follow(place)?).map(Some)
    }

    /// Returns a text, with `�` for what is not UTF-8, or an empty one if it is missing.
    pub(super) fn text(&self, field: usize) -> Result<String, LoadError> {
        let bytes = self.vector(field, 1)?.map_or(&[][..], |vector| vector.bytes);
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn vector(&self, field: usize, width: usize) -> Result<Option<Vector<'a>>, LoadError> {
        self.place(field).map(|place| self.buffer.vector(place, width)).transpose()
    }

    /// Returns the bytes of a vector of bytes, and where they are in the buffer.
    pub(super) fn bytes(&self, field: usize) -> Result<(usize, &'a [u8]), LoadError> {
        Ok(self.vector(field, 1)?.map_or((0, &[][..]), |vector| (vector.start, vector.bytes)))
    }

    /// Returns the elements of a vector, each of `N` bytes, or none if it is missing.
    pub(super) fn list<const N: usize, T>(&self, field: usize, read: fn([u8; N]) -> T) -> Result<Vec<T>, LoadError> {
        let bytes = self.vector(field, N)?.map_or(&[][..], |vector| vector.bytes);
        Ok(bytes.as_chunks().0.iter().copied().map(read).collect())
    }

    /// Returns whether a vector has elements, which may be of any type.
    pub(super) fn has_elements(&self, field: usize) -> Result<bool, LoadError> {
        let Some(place) = self.place(field) else { return Ok(false) };
        Ok(u32::from_le_bytes(self.buffer.array(self.buffer.follow(place)?)?) > 0)
    }

    /// Returns the tables of a vector of tables, or none if it is missing.
    pub(super) fn tables(
        &self,
        field: usize,
    ) -> Result<impl Iterator<Item = Result<Self, LoadError>> + use<'a>, LoadError> {
        let vector = self.vector(field, 4)?;
        Ok(vector.into_iter().flat_map(|Vector { buffer, start, bytes }| {
            let places = (start..).step_by(4).take(bytes.len() / 4);
            places.map(move |place| buffer.table(buffer.follow(place)?))
        }))
    }

    /// Returns the texts of a vector of texts, or none if it is missing.
    pub(super) fn texts(&self, field: usize) -> Result<Vec<String>, LoadError> {
        let Some(Vector { buffer, start, bytes }) = self.vector(field, 4)? else { return Ok(Vec::new()) };
        let places = (start..).step_by(4).take(bytes.len() / 4);
        let texts =
            places.map(|place| buffer.vector(place, 1).map(|text| String::from_utf8_lossy(text.bytes).into_owned()));
        texts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root table with one field: a vector of two tables, which are the root itself.
    fn cycle() -> Vec<u8> {
        let mut bytes = vec![0; 12];
        bytes[0..4].copy_from_slice(&12_u32.to_le_bytes());
        bytes[4..6].copy_from_slice(&6_u16.to_le_bytes());
        bytes[8..10].copy_from_slice(&4_u16.to_le_bytes());
        bytes.extend(8_i32.to_le_bytes());
        bytes.extend(4_u32.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(u32::MAX.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn offsets_outside_the_buffer_are_errors() {
        let bytes = cycle();
        let buffer = Buffer::new(&bytes);
        let root = buffer.root().unwrap();
        assert!(root.has_elements(0).unwrap());
        assert!(!root.has_elements(7).unwrap());
        assert_eq!(root.tables(0).unwrap().filter(Result::is_err).count(), 2);
        for length in 0..bytes.len() {
            let buffer = Buffer::new(&bytes[..length]);
            if let Ok(root) = buffer.root() {
                assert!(root.tables(0).is_err());
            }
        }
    }

    #[test]
    fn files_that_are_read_many_times_over_are_rejected() {
        let bytes = cycle();
        let buffer = Buffer::new(&bytes);
        let reads = (0..1000).take_while(|_| buffer.root().is_ok()).count();
        assert!((10..100).contains(&reads), "{reads}");
    }
}
