//! The wire format of Protocol Buffers: varints, and sequences of fields.

use super::ReadError;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    pub(super) value: WireValue<'a>,
    /// The offset of the value from the start of the outermost message, in bytes.
    pub(super) offset: usize,
}

/// The value of a field whose type is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    /// A string, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// The fields of a message, or the numbers of a packed field.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// The offset of `rest` in the outermost message.
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { rest: bytes, offset }
    }

    /// Returns the number of bytes that are left.
    pub(super) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Reads the next field, or returns `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<WireField<'a>>, ReadError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let start = self.offset;
        let malformed = |expected| ReadError::Malformed { offset: start, expected };
        let key = u32::try_from(self.varint()?).map_err(|_| malformed("a field"))?;
        let number = key >> 3;
        if number == 0 {
            return Err(malformed("a field with a number above 0"));
        }
        let mut offset = self.offset;
        let value = match key & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(self.array()?),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                offset = self.offset;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Fixed32(self.array()?),
            _ => return Err(malformed("a field of a known wire type")),
        };
        Ok(Some(WireField { number, value, offset }))
    }

    /// Reads the next number of a packed field of varints, or returns `None` at the end.
    #[inline]
    pub(super) fn packed_varint(&mut self) -> Result<Option<u64>, ReadError> {
        match self.rest.split_first() {
            None => Ok(None),
            // Most numbers are small.
            Some((&byte, rest)) if byte < 0x80 => {
                (self.rest, self.offset) = (rest, self.offset + 1);
                Ok(Some(u64::from(byte)))
            }
            Some(_) => self.varint().map(Some),
        }
    }

    /// Reads the next number of a packed field of fixed width, or returns `None` at the end.
    #[inline]
    pub(super) fn packed_fixed<const N: usize>(&mut self) -> Result<Option<[u8; N]>, ReadError> {
        if self.rest.is_empty() { Ok(None) } else { self.array().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let mut value = 0;
        // Ten bytes hold 64 bits; the last byte has only one of them.
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                if index == 9 && byte > 1 {
                    break;
                }
                self.rest = &self.rest[index + 1..];
                self.offset += index + 1;
                return Ok(value);
            }
        }
        Err(ReadError::Malformed { offset: self.offset, expected: "a varint of up to 64 bits" })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("`take` returns as many bytes as requested"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (offset, left) = (self.offset, self.rest.len());
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(ReadError::Truncated { offset, wanted: length, left })?;
        (self.rest, self.offset) = (rest, offset + length);
        Ok(taken)
    }
}

impl<'a> WireField<'a> {
    /// Returns the bytes of a field whose type has a length.
    pub(super) fn bytes(&self) -> Result<&'a [u8], ReadError> {
        match self.value {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err(self.malformed("a field with a length")),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, ReadError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.malformed("text in UTF-8"))
    }

    pub(super) fn varint(&self) -> Result<u64, ReadError> {
        match self.value {
            WireValue::Varint(value) => Ok(value),
            _ => Err(self.malformed("a varint")),
        }
    }

    pub(super) fn double(&self) -> Result<f64, ReadError> {
        match self.value {
            WireValue::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(self.malformed("8 bytes")),
        }
    }

    /// Returns the fields of a message.
    pub(super) fn message(&self) -> Result<Cursor<'a>, ReadError> {
        Ok(Cursor::new(self.bytes()?, self.offset))
    }

    pub(super) const fn malformed(&self, expected: &'static str) -> ReadError {
        ReadError::Malformed { offset: self.offset, expected }
    }
}

/// Returns the size of a varint in bytes.
pub(super) const fn varint_len(value: u64) -> usize {
    // Seven bits to a byte, and one byte for zero.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

pub(super) fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    buffer.push(value.to_le_bytes()[0]);
}

/// Returns the size in bytes of a field whose value has `length` bytes and is preceded by its length.
pub(super) const fn field_len(number: u32, length: usize) -> usize {
    varint_len((number as u64) << 3) + varint_len(length as u64) + length
}

/// Writes a field of type `double`.
pub(super) fn put_double(buffer: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(buffer, u64::from(number) << 3 | 1);
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Writes the start of a field whose value has `length` bytes.
pub(super) fn put_field(buffer: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(buffer, u64::from(number) << 3 | 2);
    put_varint(buffer, length as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, WireValue<'_>)>, String> {
        let mut cursor = Cursor::new(bytes, 0);
        let mut fields = Vec::new();
        while let Some(field) = cursor.field().map_err(|error| error.to_string())? {
            fields.push((field.number, field.value));
        }
        Ok(fields)
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = b"\x08\x96\x01\x11\x01\x02\x03\x04\x05\x06\x07\x08\x1a\x02hi\x25\x01\x02\x03\x04";
        let expected = [
            (1, WireValue::Varint(150)),
            (2, WireValue::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
            (3, WireValue::Bytes(b"hi")),
            (4, WireValue::Fixed32([1, 2, 3, 4])),
        ];
        assert_eq!(fields(bytes).unwrap(), expected);
    }

    #[test]
    fn malformed_fields_are_rejected_with_offset() {
        let table: [(&[u8], &str); 8] = [
            (b"\x08", "invalid message at byte 1: expected a varint of up to 64 bits"),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                "invalid message at byte 1: expected a varint of up to 64 bits",
            ),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "invalid message at byte 1: expected a varint of up to 64 bits",
            ),
            (b"\x00\x01", "invalid message at byte 0: expected a field with a number above 0"),
            (b"\x0b", "invalid message at byte 0: expected a field of a known wire type"),
            (b"\xff\xff\xff\xff\x7f\x00", "invalid message at byte 0: expected a field"),
            (b"\x0a\x05ab", "invalid message at byte 2: 5 bytes are declared, but 2 are left"),
            (b"\x08\x01\x0d\x01", "invalid message at byte 3: 4 bytes are declared, but 1 are left"),
        ];
        for (bytes, message) in table {
            assert_eq!(fields(bytes).unwrap_err(), message, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_varint_reads_back(value in any::<u64>(), shift in 0..64_u32) {
            let value = value >> shift;
            let mut buffer = Vec::new();
            put_varint(&mut buffer, value);
            prop_assert_eq!(buffer.len(), varint_len(value));
            let mut cursor = Cursor::new(&buffer, 0);
            prop_assert_eq!(cursor.packed_varint(), Ok(Some(value)));
            prop_assert_eq!(cursor.packed_varint(), Ok(None));
        }
    }
}
