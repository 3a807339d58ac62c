//! The categories of a column, and the lookup of values in them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pickle::{NumpyArray, PickleValue};
use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::FittedObject;
use crate::table::Elements;

/// The values of a column in the fit, with their indices.
#[derive(Debug, Default)]
pub(super) struct Categories {
    texts: HashMap<Arc<str>, usize>,
    /// Integers of any type.
    integers: HashMap<i64, usize>,
    /// The bits of all other numbers.
    floats: HashMap<u64, usize>,
    /// The index of NaN.
    missing: Option<usize>,
    count: usize,
}

/// A number in the form that is looked up. Equal numbers of different types are the same.
enum Number {
    Integer(i64),
    Float(u64),
    Missing,
}

impl Number {
    fn of(value: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "compared afterwards")]
        let integer = value as i64;
        if value.is_nan() {
            Self::Missing
        } else if crate::table::to_f64(integer).total_cmp(&(value + 0.0)).is_eq() {
            // Adding zero makes a negative zero a positive one.
            Self::Integer(integer)
        } else {
            Self::Float(value.to_bits())
        }
    }
}

impl Categories {
    /// Reads one array of categories.
    pub(super) fn read(
        fitted: &FittedObject<'_>,
        attribute: &'static str,
        value: PickleValue<'_>,
    ) -> Result<Self, LoadError> {
        let wanted = || fitted.unexpected(attribute, "arrays of texts and numbers");
        let mut categories = Self::default();
        if let Some(items) = value.items() {
            fitted.spend(items.len())?;
            for item in items {
                if let Some(text) = item.as_str() {
                    categories.add_text(text.into());
                } else if let Some(integer) = item.as_i64() {
                    categories.add_number(&Number::Integer(integer));
                } else if let Some(number) = item.as_f64() {
                    categories.add_number(&Number::of(number));
                } else {
                    // `None` and other objects match no input, but take up an index.
                    categories.count += 1;
                }
            }
            return Ok(categories);
        }
        let array = value.as_array().ok_or_else(wanted)?;
        fitted.spend(array.len())?;
        if let Some(texts) = array.texts() {
            for text in texts {
                categories.add_text(text.into());
            }
            return Ok(categories);
        }
        let numbers = array.numbers().ok_or_else(wanted)?;
        match numbers.to_i64() {
            Some(integers) => integers.into_iter().for_each(|integer| categories.add_number(&Number::Integer(integer))),
            None => numbers.to_f64().into_iter().for_each(|number| categories.add_number(&Number::of(number))),
        }
        Ok(categories)
    }

    fn add_text(&mut self, text: Arc<str>) {
        self.texts.insert(text, self.count);
        self.count += 1;
    }

    fn add_number(&mut self, number: &Number) {
        match *number {
            Number::Integer(integer) => {
                self.integers.insert(integer, self.count);
            }
            Number::Float(bits) => {
                self.floats.insert(bits, self.count);
            }
            Number::Missing => self.missing = Some(self.count),
        }
        self.count += 1;
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn number(&self, value: f64) -> Option<usize> {
        match Number::of(value) {
            Number::Integer(integer) => self.integers.get(&integer).copied(),
            Number::Float(bits) => self.floats.get(&bits).copied(),
            Number::Missing => self.missing,
        }
    }

    /// Returns the category of each value, or `None` for an unknown value.
    pub(super) fn find(&self, values: &Elements<'_>) -> Vec<Option<usize>> {
        match values {
            Elements::F32(values) => values.iter().map(|&value| self.number(value.into())).collect(),
            Elements::F64(values) => values.iter().map(|&value| self.number(value)).collect(),
            Elements::Int(values, _) => values.iter().map(|value| self.integers.get(value).copied()).collect(),
            Elements::Text(values) => values.iter().map(|value| self.texts.get(value).copied()).collect(),
            Elements::PartialText(values) => {
                let find = |value: &Option<Arc<str>>| {
                    value.as_ref().map_or(self.missing, |text| self.texts.get(text).copied())
                };
                values.iter().map(find).collect()
            }
        }
    }
}

/// Reads the categories of all columns.
pub(super) fn read_all(fitted: &FittedObject<'_>) -> Result<Vec<Categories>, LoadError> {
    let columns = fitted.items("categories_")?;
    columns.into_iter().map(|column| Categories::read(fitted, "categories_", column)).collect()
}

/// Reads an array of integers for each column, or `None` for a column without one.
pub(super) fn integers_of_columns(
    fitted: &FittedObject<'_>,
    attribute: &'static str,
    columns: usize,
) -> Result<Vec<Option<Vec<i64>>>, LoadError> {
    if fitted.get(attribute).is_none() {
        return Ok(vec![None; columns]);
    }
    let items = fitted.items(attribute)?;
    fitted.check_count(attribute, columns, items.len())?;
    let integers = |item: PickleValue<'_>| {
        if item.is_none() {
            return Ok(None);
        }
        let read = item.as_array().and_then(NumpyArray::numbers).and_then(|numbers| numbers.to_i64());
        let read = read.ok_or_else(|| fitted.unexpected(attribute, "arrays of integers"))?;
        fitted.spend(read.len())?;
        Ok(Some(read))
    };
    items.into_iter().map(integers).collect()
}
