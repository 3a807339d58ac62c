//! The wire format of protocol buffers, read in place.
//!
//! A message is a sequence of fields, each with a number. Nothing is copied, and a length is checked against the bytes that are there.

use thiserror::Error;

/// Bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    #[error("the file ends inside of {reading}")]
    Truncated { reading: &'static str },
    #[error("a number has more than 64 bits")]
    Varint,
    #[error("a field has the wire type {found}, which ONNX does not use")]
    WireType { found: u8 },
    #[error("field {field} of {message} has the wrong wire type")]
    Field { message: &'static str, field: u32 },
    #[error("field {field} of {message} is not UTF-8")]
    Text { message: &'static str, field: u32 },
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order of the file.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has the last of 64 bits.
            if index == 9 && *byte > 1 {
                return Err(WireError::Varint);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireError::Truncated { reading: "a number" } } else { WireError::Varint })
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated { reading: "a field" })?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn field(&mut self) -> Result<(u32, FieldValue<'a>), WireError> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| WireError::Varint)?;
        let value = match key & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => FieldValue::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::Varint)?;
                FieldValue::Bytes(self.bytes(length)?)
            }
            5 => FieldValue::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(WireError::WireType { found: other.to_le_bytes()[0] }),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, FieldValue<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// A field, with the message that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) message: &'static str,
    pub(super) number: u32,
    pub(super) value: FieldValue<'a>,
}

impl<'a> Field<'a> {
    const fn mismatch(&self) -> WireError {
        WireError::Field { message: self.message, field: self.number }
    }

    pub(super) const fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            FieldValue::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch()),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Text { message: self.message, field: self.number })
    }

    pub(super) const fn integer(&self) -> Result<i64, WireError> {
        match self.value {
            FieldValue::Varint(value) => Ok(value.cast_signed()),
            _ => Err(self.mismatch()),
        }
    }

    pub(super) const fn float(&self) -> Result<f32, WireError> {
        match self.value {
            FieldValue::Fixed32(bits) => Ok(f32::from_bits(bits)),
            _ => Err(self.mismatch()),
        }
    }

    /// Appends one number, or the packed ones of the field.
    pub(super) fn integers(&self, list: &mut Vec<i64>) -> Result<(), WireError> {
        match self.value {
            FieldValue::Varint(value) => list.push(value.cast_signed()),
            FieldValue::Bytes(bytes) => {
                let mut packed = Fields::new(bytes);
                while !packed.rest.is_empty() {
                    list.push(packed.varint()?.cast_signed());
                }
            }
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    /// Appends one number of 4 bytes, or the packed ones of the field.
    pub(super) fn floats(&self, list: &mut Vec<f32>) -> Result<(), WireError> {
        match self.value {
            FieldValue::Fixed32(bits) => list.push(f32::from_bits(bits)),
            FieldValue::Bytes(bytes) => {
                let (numbers, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    return Err(WireError::Truncated { reading: "packed numbers" });
                }
                list.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    /// Appends one number of 8 bytes, or the packed ones of the field.
    pub(super) fn doubles(&self, list: &mut Vec<f64>) -> Result<(), WireError> {
        match self.value {
            FieldValue::Fixed64(bits) => list.push(f64::from_bits(bits)),
            FieldValue::Bytes(bytes) => {
                let (numbers, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    return Err(WireError::Truncated { reading: "packed numbers" });
                }
                list.extend(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            }
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }
}

/// Returns the fields of a message that is called `message` in errors.
pub(super) fn fields<'a>(message: &'static str, bytes: &'a [u8]) -> impl Iterator<Item = Result<Field<'a>, WireError>> {
    Fields::new(bytes).map(move |field| field.map(|(number, value)| Field { message, number, value }))
}

#[cfg(test)]
mod tests {
    use super::{Field, FieldValue, Fields, WireError, fields};

    #[test]
    fn fields_are_read_in_order() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0x80, 0x3f];
        let found: Vec<Field<'_>> = fields("M", &message).map(Result::unwrap).collect();
        assert_eq!(found[0].integer(), Ok(150));
        assert_eq!(found[1].text(), Ok("hi"));
        assert_eq!(found[2].float(), Ok(1.0));
        assert_eq!(found[0].bytes(), Err(WireError::Field { message: "M", field: 1 }));
    }

    #[test]
    fn fields_never_read_beyond_the_message() {
        let whole = [0x0a, 0x03, 1, 2, 3, 0x10, 0x80, 0x80, 0x01, 0x19, 1, 2, 3, 4, 5, 6, 7, 8];
        assert!(Fields::new(&whole).all(|field| field.is_ok()));
        for length in 1..whole.len() {
            let found: Vec<_> = Fields::new(&whole[..length]).collect();
            let is_boundary = [5, 9].contains(&length);
            assert_eq!(found.last().unwrap().is_ok(), is_boundary, "{length}");
        }
        let long = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Fields::new(&long).next(), Some(Err(WireError::Truncated { reading: "a field" })));
        let varint = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(Fields::new(&varint).next(), Some(Err(WireError::Varint)));
        assert_eq!(Fields::new(&[0x0b]).next(), Some(Err(WireError::WireType { found: 3 })));
    }

    #[test]
    fn packed_and_single_numbers_are_the_same_list() {
        let of = |value| Field { message: "M", number: 8, value };
        let mut list = Vec::new();
        of(FieldValue::Bytes(&[1, 0xac, 0x02])).integers(&mut list).unwrap();
        of(FieldValue::Varint(7)).integers(&mut list).unwrap();
        assert_eq!(list, [1, 300, 7]);
        assert!(of(FieldValue::Bytes(&[0x80])).integers(&mut list).is_err());
        let mut floats = Vec::new();
        of(FieldValue::Bytes(&[0, 0, 0x80, 0x3f])).floats(&mut floats).unwrap();
        of(FieldValue::Fixed32(0x4000_0000)).floats(&mut floats).unwrap();
        assert_eq!(floats, [1.0, 2.0]);
        assert!(of(FieldValue::Bytes(&[0, 0, 0x80])).floats(&mut floats).is_err());
        let mut doubles = Vec::new();
        of(FieldValue::Bytes(&1.5_f64.to_le_bytes())).doubles(&mut doubles).unwrap();
        assert_eq!(doubles, [1.5]);
    }
}
