//! UBJSON as `XGBoost` writes it: big-endian numbers, counted and typed arrays, keys without a type marker.

use super::document::{DEPTH, Document};
use crate::trees::error::{LoadError, quote_bytes};

/// A position in a UBJSON document.
#[derive(Debug)]
pub(super) struct Ubjson<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
}

/// The form of an array after its opening bracket.
enum Items {
    /// This many values of one type, without their markers.
    Typed(u8, usize),
    /// This many values.
    Counted(usize),
    /// Values up to the closing bracket.
    Open,
}

/// A value that is not a container.
enum Scalar<'a> {
    Integer(i64),
    Single(f32),
    Double(f64),
    Text(&'a [u8]),
    Null,
}

impl<'a> Ubjson<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, depth: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    fn take(&mut self, count: usize, reading: &'static str) -> Result<&'a [u8], LoadError> {
        let taken = self.rest().get(..count);
        let taken = taken.ok_or(LoadError::Truncated { offset: self.bytes.len(), reading })?;
        self.position += count;
        Ok(taken)
    }

    fn array_of<const N: usize>(&mut self, reading: &'static str) -> Result<[u8; N], LoadError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, reading)?);
        Ok(bytes)
    }

    fn peek(&self, reading: &'static str) -> Result<u8, LoadError> {
        self.rest().first().copied().ok_or(LoadError::Truncated { offset: self.bytes.len(), reading })
    }

    fn unexpected(&self, wanted: &'static str) -> LoadError {
        LoadError::Syntax { offset: self.position, wanted, found: quote_bytes(self.rest()) }
    }

    fn enter(&mut self) -> Result<(), LoadError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(LoadError::Nesting { offset: self.position, limit: DEPTH });
        }
        Ok(())
    }

    /// Reads a length: an integer of any width. Fails if the file cannot hold that many items of `size` bytes.
    fn length(&mut self, size: usize, reading: &'static str) -> Result<usize, LoadError> {
        let before = self.position;
        // Checked before it is read: a text's length cannot be a text, whose length cannot be a text, and so on.
        if !matches!(self.peek(reading)?, b'i' | b'U' | b'I' | b'l' | b'L') {
            return Err(self.unexpected("a length"));
        }
        let Scalar::Integer(length) = self.scalar(reading)? else {
            self.position = before;
            return Err(self.unexpected("a length"));
        };
        let Ok(length) = usize::try_from(length) else {
            self.position = before;
            return Err(self.unexpected("a length of at least 0"));
        };
        if length.checked_mul(size).is_none_or(|bytes| bytes > self.rest().len()) {
            return Err(LoadError::Truncated { offset: self.bytes.len(), reading });
        }
        Ok(length)
    }

    fn scalar(&mut self, reading: &'static str) -> Result<Scalar<'a>, LoadError> {
        let marker = self.peek(reading)?;
        self.position += 1;
        self.scalar_of(marker, reading)
    }

    /// Reads what follows a type marker.
    fn scalar_of(&mut self, marker: u8, reading: &'static str) -> Result<Scalar<'a>, LoadError> {
        Ok(match marker {
            b'i' => Scalar::Integer(i8::from_be_bytes(self.array_of(reading)?).into()),
            b'U' => Scalar::Integer(u8::from_be_bytes(self.array_of(reading)?).into()),
            b'I' => Scalar::Integer(i16::from_be_bytes(self.array_of(reading)?).into()),
            b'l' => Scalar::Integer(i32::from_be_bytes(self.array_of(reading)?).into()),
            b'L' => Scalar::Integer(i64::from_be_bytes(self.array_of(reading)?)),
            b'd' => Scalar::Single(f32::from_be_bytes(self.array_of(reading)?)),
            b'D' => Scalar::Double(f64::from_be_bytes(self.array_of(reading)?)),
            b'T' => Scalar::Integer(1),
            b'F' => Scalar::Integer(0),
            b'Z' | b'N' => Scalar::Null,
            b'C' => Scalar::Text(self.take(1, reading)?),
            b'S' | b'H' => {
                let length = self.length(1, reading)?;
                Scalar::Text(self.take(length, reading)?)
            }
            _ => {
                self.position -= 1;
                return Err(self.unexpected(reading));
            }
        })
    }

    /// Reads the opening of an array.
    fn items(&mut self) -> Result<Items, LoadError> {
        if self.peek("an array")? != b'[' {
            return Err(self.unexpected("an array"));
        }
        self.position += 1;
        match self.peek("an array")? {
            b'$' => {
                self.position += 1;
                let marker = self.take(1, "an array")?[0];
                let Some(size) = size_of_type(marker) else {
                    self.position -= 1;
                    return Err(self.unexpected("the type of an array's numbers"));
                };
                if self.peek("an array")? != b'#' {
                    return Err(self.unexpected("an array's length"));
                }
                self.position += 1;
                Ok(Items::Typed(marker, self.length(size, "an array")?))
            }
            b'#' => {
                self.position += 1;
                // A value takes at least one byte.
                Ok(Items::Counted(self.length(1, "an array")?))
            }
            _ => Ok(Items::Open),
        }
    }

    /// Reads an array of scalars.
    fn numbers<N>(
        &mut self,
        wanted: &'static str,
        convert: impl Fn(&Scalar<'_>) -> Option<N>,
    ) -> Result<Vec<N>, LoadError> {
        let items = self.items()?;
        let mut numbers = Vec::new();
        let mut push = |document: &mut Self, marker: Option<u8>| {
            let offset = document.position;
            let scalar = match marker {
                Some(marker) => document.scalar_of(marker, wanted)?,
                None => document.scalar(wanted)?,
            };
            let number = convert(&scalar).ok_or_else(|| {
                document.position = offset;
                document.unexpected(wanted)
            })?;
            numbers.push(number);
            Ok(())
        };
        match items {
            Items::Typed(marker, count) => {
                for _ in 0..count {
                    push(self, Some(marker))?;
                }
            }
            Items::Counted(count) => {
                for _ in 0..count {
                    push(self, None)?;
                }
            }
            Items::Open => {
                while self.peek("an array")? != b']' {
                    push(self, None)?;
                }
                self.position += 1;
            }
        }
        Ok(numbers)
    }
}

impl Document for Ubjson<'_> {
    fn object(&mut self, visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), LoadError>) -> Result<(), LoadError> {
        if self.peek("an object")? != b'{' {
            return Err(self.unexpected("an object"));
        }
        self.position += 1;
        self.enter()?;
        while self.peek("an object")? != b'}' {
            let length = self.length(1, "a key")?;
            let key = String::from_utf8_lossy(self.take(length, "a key")?);
            visit(self, &key)?;
        }
        self.position += 1;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, visit: &mut dyn FnMut(&mut Self) -> Result<(), LoadError>) -> Result<(), LoadError> {
        let before = self.position;
        let items = self.items()?;
        self.enter()?;
        match items {
            Items::Typed(..) => {
                self.position = before;
                return Err(self.unexpected("an array without a type"));
            }
            Items::Counted(count) => {
                for _ in 0..count {
                    visit(self)?;
                }
            }
            Items::Open => {
                while self.peek("an array")? != b']' {
                    visit(self)?;
                }
                self.position += 1;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn text(&mut self) -> Result<String, LoadError> {
        Ok(match self.scalar("a string or a number")? {
            Scalar::Integer(value) => value.to_string(),
            Scalar::Single(value) => value.to_string(),
            Scalar::Double(value) => value.to_string(),
            Scalar::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Scalar::Null => String::new(),
        })
    }

    fn integers(&mut self) -> Result<Vec<i64>, LoadError> {
        self.numbers("an integer", |scalar| match scalar {
            Scalar::Integer(value) => Some(*value),
            _ => None,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the value is used in single precision"
    )]
    fn floats(&mut self) -> Result<Vec<f32>, LoadError> {
        self.numbers("a number", |scalar| match scalar {
            Scalar::Integer(value) => Some(*value as f32),
            Scalar::Single(value) => Some(*value),
            Scalar::Double(value) => Some(*value as f32),
            Scalar::Text(_) | Scalar::Null => None,
        })
    }

    fn skip(&mut self) -> Result<(), LoadError> {
        match self.peek("a value")? {
            b'{' => self.object(&mut |document, _| document.skip()),
            b'[' => {
                let before = self.position;
                if let Items::Typed(marker, count) = self.items()? {
                    let size = size_of_type(marker).unwrap_or(0);
                    return self.take(count * size, "an array").map(drop);
                }
                self.position = before;
                self.array(&mut Self::skip)
            }
            _ => self.scalar("a value").map(drop),
        }
    }
}

/// Returns the number of bytes of a number after its marker.
fn size_of_type(marker: u8) -> Option<usize> {
    match marker {
        b'i' | b'U' => Some(1),
        b'I' => Some(2),
        b'l' | b'd' => Some(4),
        b'L' | b'D' => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, Ubjson};

    #[test]
    fn ubjson_reads_typed_counted_and_open_arrays() {
        let typed = b"[$d#L\0\0\0\0\0\0\0\x02\x3f\x80\0\0\xbf\0\0\0";
        assert_eq!(Ubjson::new(typed).floats().unwrap(), [1.0, -0.5]);
        assert_eq!(Ubjson::new(b"[#i\x03i\xffU\xffT").integers().unwrap(), [-1, 255, 1]);
        assert_eq!(Ubjson::new(b"[I\x01\0l\xff\xff\xff\xff]").integers().unwrap(), [256, -1]);
    }

    #[test]
    fn ubjson_rejects_length_beyond_file() {
        let error = Ubjson::new(b"[$d#L\x7f\0\0\0\0\0\0\x02").floats().unwrap_err();
        assert_eq!(error.to_string(), "file ends at byte 13, inside an array");
        let error = Ubjson::new(b"[#l\x7f\xff\xff\xffi\0").skip().unwrap_err();
        assert_eq!(error.to_string(), "file ends at byte 9, inside an array");
        let error = Ubjson::new(b"[#i\xff").skip().unwrap_err();
        assert_eq!(error.to_string(), "byte 2: expected a length of at least 0, found `i\u{fffd}`");
    }

    #[test]
    fn ubjson_rejects_deep_nesting() {
        for opening in ["[", "{i\u{1}a", "[#i\u{1}", "S"] {
            let deep = opening.repeat(1_000_000);
            assert!(Ubjson::new(deep.as_bytes()).skip().is_err());
        }
    }
}
