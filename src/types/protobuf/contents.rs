//! Reads typed contents, which are the fields of `InferTensorContents`, into a tensor's data.
//!
//! Like the original, this accepts data in any field, regardless of the datatype; but values that the datatype does not
//! have are rejected and not converted.

use bytes::Bytes;
use half::{bf16, f16};

use super::ReadError;
use super::wire::{Cursor, WireField, WireValue};
use crate::types::{BytesElements, Datatype, TensorData};

/// The fields, by number.
pub(super) const BOOL: u32 = 1;
pub(super) const INT: u32 = 2;
pub(super) const INT64: u32 = 3;
pub(super) const UINT: u32 = 4;
pub(super) const UINT64: u32 = 5;
pub(super) const FP32: u32 = 6;
pub(super) const FP64: u32 = 7;
pub(super) const BYTES: u32 = 8;

/// Returns the name of a field.
const fn name(number: u32) -> &'static str {
    match number {
        BOOL => "bool_contents",
        INT => "int_contents",
        INT64 => "int64_contents",
        UINT => "uint_contents",
        UINT64 => "uint64_contents",
        FP32 => "fp32_contents",
        FP64 => "fp64_contents",
        _ => "bytes_contents",
    }
}

/// Returns the field for a datatype or, if it has none, the field that can hold all its values.
pub(super) const fn field_of(datatype: Datatype) -> u32 {
    match datatype {
        Datatype::Bool => BOOL,
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => INT,
        Datatype::Int64 => INT64,
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => UINT,
        Datatype::Uint64 => UINT64,
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 => FP32,
        Datatype::Fp64 => FP64,
        Datatype::Bytes => BYTES,
    }
}

/// The contents of one input: usually one message, but the wire format allows several, which are merged.
#[derive(Debug, Clone, Default)]
pub(super) struct Contents<'a> {
    messages: Vec<Cursor<'a>>,
}

/// The field of the contents that has data.
struct Found<'a> {
    /// The number of the field.
    number: u32,
    /// The maximum number of elements that it can have.
    most: usize,
    /// All of its data, if that is one packed run.
    run: Option<&'a [u8]>,
}

impl<'a> Contents<'a> {
    pub(super) fn add(&mut self, message: Cursor<'a>) {
        self.messages.push(message);
    }

    /// Returns the number of bytes that must be converted to read these contents.
    pub(super) fn bytes_to_convert(&self, datatype: &str) -> usize {
        let size = self.messages.iter().map(Cursor::len).sum();
        let is_kept = matches!(datatype.parse(), Ok(Datatype::Fp32 | Datatype::Fp64)) && self.is_one_run();
        if is_kept { 0 } else { size }
    }

    /// Reports whether all of the data is the first field of the only message, packed.
    fn is_one_run(&self) -> bool {
        let [message] = &self.messages[..] else { return self.messages.is_empty() };
        let mut fields = message.clone();
        matches!(fields.field(), Ok(Some(WireField { value: WireValue::Bytes(_), .. }))) && fields.len() == 0
    }

    /// Reads the elements, or returns `None` if no field has any.
    ///
    /// The contents are slices of `message`. `count` is the number of elements that the shape declares, and `input` the name
    /// for messages.
    pub(super) fn read(
        &self,
        message: &Bytes,
        datatype: Datatype,
        count: usize,
        input: &str,
    ) -> Result<Option<TensorData>, ReadError> {
        let Some(found) = self.find(input)? else { return Ok(None) };
        if (found.number == BYTES) != (datatype == Datatype::Bytes) {
            let (field, expected) = (name(found.number), name(field_of(datatype)));
            return Err(ReadError::Field { input: input.to_owned(), datatype, field, expected });
        }
        if let Some(data) = found.as_slice(message, datatype) {
            return Ok(Some(data));
        }
        let reader =
            NumberReader { contents: self, number: found.number, count: count.min(found.most), datatype, input };
        Ok(Some(match datatype {
            Datatype::Bool => reader.numbers::<Bool>()?,
            Datatype::Uint8 => reader.numbers::<u8>()?,
            Datatype::Uint16 => reader.numbers::<u16>()?,
            Datatype::Uint32 => reader.numbers::<u32>()?,
            Datatype::Uint64 => reader.numbers::<u64>()?,
            Datatype::Int8 => reader.numbers::<i8>()?,
            Datatype::Int16 => reader.numbers::<i16>()?,
            Datatype::Int32 => reader.numbers::<i32>()?,
            Datatype::Int64 => reader.numbers::<i64>()?,
            Datatype::Fp16 => reader.numbers::<f16>()?,
            Datatype::Bf16 => reader.numbers::<bf16>()?,
            Datatype::Fp32 => reader.numbers::<f32>()?,
            Datatype::Fp64 => reader.numbers::<f64>()?,
            Datatype::Bytes => TensorData::Variable(self.byte_strings(message)?),
        }))
    }

    /// Finds the one field that has data.
    fn find(&self, input: &str) -> Result<Option<Found<'a>>, ReadError> {
        let mut found: Option<Found<'a>> = None;
        for message in &self.messages {
            let mut fields = message.clone();
            while let Some(field) = fields.field()? {
                if field.number > BYTES {
                    continue;
                }
                let (most, run) = match field.value {
                    WireValue::Bytes([]) if field.number != BYTES => continue,
                    WireValue::Bytes(_) if field.number == BYTES => (1, None),
                    // Each element takes at least one byte.
                    WireValue::Bytes(bytes) => (bytes.len(), Some(bytes)),
                    WireValue::Varint(_) | WireValue::Fixed64(_) | WireValue::Fixed32(_) => (1, None),
                };
                match &mut found {
                    None => found = Some(Found { number: field.number, most, run }),
                    Some(found) if found.number == field.number => {
                        found.most += most;
                        found.run = None;
                    }
                    Some(found) => {
                        let (input, first, second) = (input.to_owned(), name(found.number), name(field.number));
                        return Err(ReadError::TwoFields { input, first, second });
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the elements of BYTES as spans of the message.
    fn byte_strings(&self, message: &Bytes) -> Result<BytesElements, ReadError> {
        let mut spans = Vec::new();
        for contents in &self.messages {
            let mut fields = contents.clone();
            while let Some(field) = fields.field()? {
                if field.number == BYTES {
                    let length = field.bytes()?.len();
                    spans.push(field.offset..field.offset + length);
                }
            }
        }
        spans.shrink_to_fit();
        Ok(BytesElements::new(message.clone(), spans).expect("the spans were found in the message"))
    }
}

impl Found<'_> {
    /// Returns the elements as a slice of the message, or `None` if their form on the wire differs from that in memory.
    fn as_slice(&self, message: &Bytes, datatype: Datatype) -> Option<TensorData> {
        let run = self.run?;
        let same = match (self.number, datatype) {
            (FP32, Datatype::Fp32) | (FP64, Datatype::Fp64) => run.len().is_multiple_of(datatype.width()?),
            // If all bytes are 0 or 1, each is a varint of its own.
            (BOOL, Datatype::Bool) => run.iter().fold(0, |seen, byte| seen | byte) <= 1,
            _ => false,
        };
        same.then(|| TensorData::Fixed(message.slice_ref(run)))
    }
}

/// Reads the numbers of one input.
struct NumberReader<'r> {
    contents: &'r Contents<'r>,
    /// The number of the field that has data.
    number: u32,
    /// The expected number of elements.
    count: usize,
    datatype: Datatype,
    input: &'r str,
}

impl NumberReader<'_> {
    fn numbers<T: Number>(&self) -> Result<TensorData, ReadError> {
        let width = self.datatype.width().unwrap_or(1);
        let mut buffer = Vec::with_capacity(self.count.saturating_mul(width));
        let mut index = 0;
        let mut push = |element: Option<T>| -> Result<(), ReadError> {
            let wrong = || ReadError::Element {
                input: self.input.to_owned(),
                index,
                datatype: self.datatype,
                expected: T::EXPECTED,
            };
            element.ok_or_else(wrong)?.push(&mut buffer);
            index += 1;
            Ok(())
        };
        for message in &self.contents.messages {
            let mut fields = message.clone();
            while let Some(field) = fields.field()? {
                if field.number != self.number {
                    continue;
                }
                match (self.number, field.value) {
                    (FP32, WireValue::Fixed32(value)) => push(T::of_f64(f64::from(f32::from_le_bytes(value))))?,
                    (FP64, WireValue::Fixed64(value)) => push(T::of_f64(f64::from_le_bytes(value)))?,
                    (FP32, WireValue::Bytes(bytes)) => {
                        let mut packed = Cursor::new(bytes, field.offset);
                        while let Some(value) = packed.packed_fixed()? {
                            push(T::of_f64(f64::from(f32::from_le_bytes(value))))?;
                        }
                    }
                    (FP64, WireValue::Bytes(bytes)) => {
                        let mut packed = Cursor::new(bytes, field.offset);
                        while let Some(value) = packed.packed_fixed()? {
                            push(T::of_f64(f64::from_le_bytes(value)))?;
                        }
                    }
                    (BOOL..=UINT64, WireValue::Varint(value)) => push(T::of_varint(self.number, value))?,
                    (BOOL..=UINT64, WireValue::Bytes(bytes)) => {
                        let mut packed = Cursor::new(bytes, field.offset);
                        while let Some(value) = packed.packed_varint()? {
                            push(T::of_varint(self.number, value))?;
                        }
                    }
                    _ => return Err(field.malformed("numbers of the field's type")),
                }
            }
        }
        // A number may take up to ten bytes of the message, so there may be fewer than memory was reserved for.
        buffer.shrink_to_fit();
        Ok(TensorData::Fixed(buffer.into()))
    }
}

/// An element of a datatype that is converted from numbers on the wire.
trait Number: Sized + Copy {
    /// The expected value, for messages.
    const EXPECTED: &'static str;

    fn of_bool(_value: bool) -> Option<Self> {
        None
    }

    fn of_i64(value: i64) -> Option<Self>;

    fn of_u64(value: u64) -> Option<Self>;

    fn of_f64(value: f64) -> Option<Self>;

    /// Converts a varint of the field with this number. As the format requires, bits beyond the field's type are dropped.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the format drops bits beyond 32")]
    fn of_varint(number: u32, value: u64) -> Option<Self> {
        match number {
            BOOL => Self::of_bool(value != 0),
            INT => Self::of_i64(i64::from(value as i32)),
            INT64 => Self::of_i64(value.cast_signed()),
            UINT => Self::of_u64(u64::from(value as u32)),
            _ => Self::of_u64(value),
        }
    }

    /// Appends the element's little-endian bytes.
    fn push(self, buffer: &mut Vec<u8>);
}

macro_rules! integers {
    ($($type:ty => $expected:literal),* $(,)?) => {
        $(impl Number for $type {
            const EXPECTED: &'static str = $expected;

            #[inline]
            fn of_i64(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }

            #[inline]
            fn of_u64(value: u64) -> Option<Self> {
                Self::try_from(value).ok()
            }

            #[expect(clippy::cast_possible_truncation, reason = "values beyond 128 bits stay beyond 64 bits")]
            fn of_f64(value: f64) -> Option<Self> {
                if value.fract() == 0.0 { Self::try_from(value as i128).ok() } else { None }
            }

            #[inline]
            fn push(self, buffer: &mut Vec<u8>) {
                buffer.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

integers! {
    u8 => "an integer from 0 to 255",
    u16 => "an integer from 0 to 65535",
    u32 => "an integer from 0 to 4294967295",
    u64 => "an integer from 0 to 18446744073709551615",
    i8 => "an integer from -128 to 127",
    i16 => "an integer from -32768 to 32767",
    i32 => "an integer from -2147483648 to 2147483647",
    i64 => "an integer from -9223372036854775808 to 9223372036854775807",
}

macro_rules! floats {
    ($($type:ty => $round:expr, $expected:literal);* $(;)?) => {
        $(impl Number for $type {
            const EXPECTED: &'static str = $expected;

            #[expect(clippy::cast_precision_loss, reason = "the nearest float is wanted, as in JSON")]
            fn of_i64(value: i64) -> Option<Self> {
                Self::of_f64(value as f64)
            }

            #[expect(clippy::cast_precision_loss, reason = "the nearest float is wanted, as in JSON")]
            fn of_u64(value: u64) -> Option<Self> {
                Self::of_f64(value as f64)
            }

            fn of_f64(value: f64) -> Option<Self> {
                let nearest: $type = $round(value);
                (nearest.is_finite() || !value.is_finite()).then_some(nearest)
            }

            #[inline]
            fn push(self, buffer: &mut Vec<u8>) {
                buffer.extend_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest float is intended, and infinity is checked for")]
const fn nearest_f32(value: f64) -> f32 {
    value as f32
}

floats! {
    f32 => nearest_f32, "a number up to 3.4028235e38";
    f64 => |value: f64| value, "a number up to 1.7976931348623157e308";
    f16 => f16::from_f64, "a number up to 65504";
    bf16 => bf16::from_f64, "a number up to 3.3895314e38";
}

/// A BOOL element: one byte, 0 or 1.
#[derive(Debug, Clone, Copy)]
struct Bool(bool);

impl Number for Bool {
    const EXPECTED: &'static str = "true, false, 1 or 0";

    fn of_bool(value: bool) -> Option<Self> {
        Some(Self(value))
    }

    fn of_i64(value: i64) -> Option<Self> {
        Self::of_u64(u64::try_from(value).ok()?)
    }

    fn of_u64(value: u64) -> Option<Self> {
        (value <= 1).then_some(Self(value == 1))
    }

    #[expect(clippy::float_cmp, reason = "only these two values are booleans")]
    fn of_f64(value: f64) -> Option<Self> {
        (value == 0.0 || value == 1.0).then_some(Self(value == 1.0))
    }

    fn push(self, buffer: &mut Vec<u8>) {
        buffer.push(u8::from(self.0));
    }
}
