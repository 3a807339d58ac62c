//! The columns of a request, as the features of a model.

use std::collections::HashSet;
use std::sync::Arc;

use super::ctr::category_hash;
use super::{PredictError, quote_value};
use crate::table::Elements;
use crate::trees::LoadError;

/// The texts that the library reads as a missing value in a column of numbers.
const MISSING: [&str; 24] = [
    "", "-", "nan", "NaN", "NAN", "-nan", "-NaN", "NA", "Na", "na", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "NULL",
    "Null", "null", "None", "none", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
];

/// A column of a table, or of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    /// The name of the feature, or its number.
    pub(super) name: &'a str,
    pub(super) elements: &'a Elements<'a>,
    /// The index of the first value.
    pub(super) first: usize,
    /// The distance between the values of two rows.
    pub(super) stride: usize,
}

impl Column<'_> {
    /// Reads numbers of rows from `start` on, as the library reads them.
    pub(super) fn numbers(&self, start: usize, numbers: &mut [f32]) -> Result<(), PredictError> {
        let first = self.first + start * self.stride;
        match self.elements {
            Elements::F32(values) => self.fill(values, first, numbers, |value| *value),
            Elements::F64(values) => self.fill(values, first, numbers, |value| from_f64(*value)),
            Elements::Int(values, _) => self.fill(values, first, numbers, |value| from_i64(*value)),
            Elements::Text(values) => {
                for (number, text) in numbers.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
                    *number = self.parse(text)?;
                }
            }
            Elements::PartialText(values) => {
                for (number, text) in numbers.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
                    *number = text.as_ref().map_or(Ok(f32::NAN), |text| self.parse(text))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that texts are numbers, as the library does even for features that no split uses.
    pub(super) fn check_numbers(&self, rows: usize) -> Result<(), PredictError> {
        if matches!(self.elements, Elements::Text(_) | Elements::PartialText(_)) {
            for row in 0..rows {
                self.numbers(row, &mut [0.0])?;
            }
        }
        Ok(())
    }

    #[inline]
    fn fill<T>(&self, values: &[T], first: usize, numbers: &mut [f32], convert: impl Fn(&T) -> f32) {
        for (number, value) in numbers.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
            *number = convert(value);
        }
    }

    /// Reads a number, as the library reads texts. It has no names of infinity, but numbers may be too large.
    fn parse(&self, text: &Arc<str>) -> Result<f32, PredictError> {
        let is_number = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
        let number = text.parse().ok().filter(|_: &f64| is_number).map(from_f64);
        let number = number.or_else(|| MISSING.contains(&&**text).then_some(f32::NAN));
        number.ok_or_else(|| PredictError::NotNumber { column: self.name.to_owned(), value: quote_value(text) })
    }

    /// Hashes categories of rows from `start` on.
    pub(super) fn hashes(&self, start: usize, hashes: &mut [i32]) -> Result<(), PredictError> {
        let first = self.first + start * self.stride;
        let missing = || PredictError::MissingCategory { column: self.name.to_owned() };
        match self.elements {
            Elements::Text(values) => {
                for (hash, text) in hashes.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
                    *hash = category_hash(text.as_bytes());
                }
            }
            Elements::PartialText(values) => {
                for (hash, text) in hashes.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
                    *hash = category_hash(text.as_ref().ok_or_else(missing)?.as_bytes());
                }
            }
            // Booleans are the categories 0 and 1.
            Elements::Int(values, _) => {
                let mut last = None;
                for (hash, value) in hashes.iter_mut().zip(values[first..].iter().step_by(self.stride)) {
                    *hash = match last {
                        Some((same, hash)) if same == *value => hash,
                        _ => integer_hash(*value),
                    };
                    last = Some((*value, *hash));
                }
            }
            Elements::F32(_) | Elements::F64(_) => {
                return Err(PredictError::FractionalCategory { column: self.name.to_owned() });
            }
        }
        Ok(())
    }
}

/// Hashes the decimal text of an integer.
fn integer_hash(value: i64) -> i32 {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + super::trees::byte(usize::try_from(rest % 10).unwrap_or(0));
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    category_hash(&digits[at..])
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the library rounds to single precision too")]
fn from_f64(value: f64) -> f32 {
    value as f32
}

#[inline]
#[expect(clippy::cast_precision_loss, reason = "the library rounds to single precision too")]
fn from_i64(value: i64) -> f32 {
    value as f32
}

/// Checks that no number occurs twice.
pub(super) fn check_unique<T: Copy + Eq + std::hash::Hash + ToString>(
    field: &'static str,
    numbers: Vec<T>,
) -> Result<(), LoadError> {
    let mut seen = HashSet::new();
    match numbers.into_iter().find(|number| !seen.insert(*number)) {
        None => Ok(()),
        Some(number) => {
            Err(LoadError::Unsupported { what: field, name: format!("{} with two descriptions", number.to_string()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What CatBoost 1.2.10 answers for an array of objects.
    #[test]
    fn texts_are_read_as_the_library_reads_them() {
        let read = |text: &str| {
            let elements = Elements::Text(vec![Arc::from(text)]);
            let column = Column { name: "x", elements: &elements, first: 0, stride: 1 };
            let mut number = [0.0];
            column.numbers(0, &mut number).map(|()| number[0])
        };
        for text in ["", "-", "NA", "Na", "na", "N/A", "n/a", "#N/A N/A", "-NaN", "1.#IND", "-1.#QNAN", "None", "null"]
        {
            assert!(read(text).unwrap().is_nan(), "{text:?}");
        }
        for text in
            ["Nan", "nA", "N/a", "+nan", "-NA", "NONE", "nan ", " NA", "inf", "-Infinity", "1.5 ", "1e", ".", "x"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
        for (text, number) in [
            ("-.5", -0.5),
            ("+5.", 5.0),
            ("5.e1", 50.0),
            ("00012", 12.0),
            ("1e+05", 1e5),
            ("1e39", f32::INFINITY),
            ("-1e400", f32::NEG_INFINITY),
            ("1e-400", 0.0),
            // Rounded to double precision first, and then to the even neighbor.
            ("1.00000005960464477540", 1.0),
        ] {
            assert_eq!(read(text), Ok(number), "{text:?}");
        }
        let error = read("inf").unwrap_err().to_string();
        assert_eq!(error, "column `x` has `inf`, but this model was trained with numbers in it");
    }

    #[test]
    fn integers_are_hashed_as_their_text() {
        for value in [0, 7, -1, 1_000_000, i64::MAX, i64::MIN] {
            assert_eq!(integer_hash(value), category_hash(value.to_string().as_bytes()), "{value}");
        }
    }
}
