//! Tables of elements: labels by value, and categories.

use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::error::{SettingProblem, StepError};
use super::numbers::{Number, numbers, with_number};
use super::reader::{MAX_ITEMS, SettingReader};
use super::{BLOCK, check_stop};
use crate::types::{BytesElements, Datatype, Tensor, TensorData, short};

/// The elements that a table knows, with their numbers in it. Elements are compared as texts if they are BYTES, and as integers if they are
/// numbers: those with a fraction, infinite ones and NaN are in no table.
#[derive(Debug, Default)]
struct Keys {
    /// Sorted.
    texts: Vec<(Box<[u8]>, u32)>,
    /// Sorted.
    integers: Vec<(i128, u32)>,
}

impl Keys {
    /// Sorts keys. Returns the number of one that occurs twice as the error.
    fn new(mut texts: Vec<(Box<[u8]>, u32)>, mut integers: Vec<(i128, u32)>) -> Result<Self, u32> {
        texts.sort();
        integers.sort_unstable();
        let text = texts.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
        let integer = integers.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
        match text.or(integer) {
            Some(twice) => Err(twice),
            None => Ok(Self { texts, integers }),
        }
    }

    fn text(&self, text: &[u8]) -> Option<u32> {
        let found = self.texts.binary_search_by(|(key, _)| (**key).cmp(text)).ok()?;
        Some(self.texts[found].1)
    }

    fn number<T: Number>(&self, number: T) -> Option<u32> {
        let integer = number.to_integer()?;
        let found = self.integers.binary_search_by_key(&integer, |(key, _)| *key).ok()?;
        Some(self.integers[found].1)
    }

    /// Calls a function with the number in the table of each element, or with `default`.
    ///
    /// # Errors
    ///
    /// Fails with the first element that is not in the table if there is no default.
    fn for_each(
        &self,
        lookup: &Lookup<'_>,
        default: Option<u32>,
        stop: &AtomicBool,
        mut found: impl FnMut(usize, u32),
    ) -> Result<(), StepError> {
        let unlisted = |index: usize, value: String| StepError::Unlisted {
            input: short(lookup.input).to_owned(),
            index,
            value,
            operation: lookup.operation,
        };
        match &lookup.tensor.data {
            TensorData::Fixed(bytes) => with_number!(lookup.tensor.datatype, N => {
                for (index, number) in numbers::<N>(bytes).enumerate() {
                    if index % BLOCK == 0 {
                        check_stop(stop)?;
                    }
                    let entry = self.number(number).or(default);
                    found(index, entry.ok_or_else(|| unlisted(index, shown(number)))?);
                }
            }, {}),
            TensorData::Variable(elements) => {
                for (index, text) in elements.iter().enumerate() {
                    if index % BLOCK == 0 {
                        check_stop(stop)?;
                    }
                    let value = || short(&String::from_utf8_lossy(text)).to_owned();
                    let entry = self.text(text).or(default);
                    found(index, entry.ok_or_else(|| unlisted(index, value()))?);
                }
            }
            TensorData::Irregular(_) => {}
        }
        Ok(())
    }
}

/// The tensor whose elements are looked up, with names for messages.
struct Lookup<'a> {
    input: &'a str,
    tensor: &'a Tensor,
    operation: &'static str,
}

/// Writes a number for a message.
fn shown<T: Number>(number: T) -> String {
    number.to_integer().map_or_else(|| number.to_f64().to_string(), |integer| integer.to_string())
}

/// Reads a number as it is a key of a table.
fn integer(text: &str) -> Option<i128> {
    // `+1` and `01` are texts.
    text.parse::<i128>().ok().filter(|integer| integer.to_string() == text)
}

/// Labels by value.
#[derive(Debug)]
pub(super) struct Table {
    keys: Keys,
    labels: Labels,
    default: Option<u32>,
}

/// The labels of a table, which have one type.
#[derive(Debug)]
enum Labels {
    Texts(BytesElements),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl Table {
    /// Reads a table: an object of labels by value, or a list of labels for the values from 0 on.
    pub(super) fn read(table: &SettingReader<'_>, default: Option<&SettingReader<'_>>) -> Result<Self, SettingProblem> {
        const EXPECTED: &str = "an object of labels by value, or a list of labels";
        let unexpected = || table.unexpected(format!("{EXPECTED}, with 1 to {MAX_ITEMS} of them"));
        let (mut texts, mut integers, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(entries) = table.entries() {
            if entries.len() == 0 || entries.len() > MAX_ITEMS {
                return Err(unexpected());
            }
            for (number, (key, label)) in (0..).zip(entries) {
                texts.push((Box::from(key.as_bytes()), number));
                integers.extend(integer(key).map(|integer| (integer, number)));
                labels.push(label);
            }
        } else if table.scalar().is_some_and(Value::is_array) {
            labels = table.list(MAX_ITEMS, "labels", |label| Ok(label.clone()))?;
            integers = (0..).zip(0..).take(labels.len()).collect();
            texts =
                integers.iter().map(|(integer, number)| (integer.to_string().into_bytes().into(), *number)).collect();
        } else {
            return Err(unexpected());
        }
        let count = u32::try_from(labels.len()).unwrap_or(u32::MAX);
        labels.extend(default.cloned());
        let keys = Keys::new(texts, integers).map_err(|_| unexpected())?;
        Ok(Self { keys, labels: Labels::read(&labels)?, default: default.map(|_| count) })
    }

    pub(super) const fn datatype(&self) -> Datatype {
        match self.labels {
            Labels::Texts(_) => Datatype::Bytes,
            Labels::Integers(_) => Datatype::Int64,
            Labels::Floats(_) => Datatype::Fp64,
        }
    }

    /// Returns the length of the longest text.
    pub(super) fn longest_text(&self) -> usize {
        match &self.labels {
            Labels::Texts(texts) => texts.iter().map(<[u8]>::len).max().unwrap_or_default(),
            Labels::Integers(_) | Labels::Floats(_) => 0,
        }
    }

    /// Replaces each element by its label.
    pub(super) fn look_up(&self, input: &str, tensor: &Tensor, stop: &AtomicBool) -> Result<TensorData, StepError> {
        let lookup = Lookup { input, tensor, operation: "`table`" };
        let mut fixed = Vec::new();
        match &self.labels {
            Labels::Texts(texts) => {
                let mut found = Vec::with_capacity(tensor.len());
                self.keys.for_each(&lookup, self.default, stop, |_, number| found.push(number))?;
                return Ok(TensorData::Variable(texts.pick(found.into_iter().map(|number| number as usize))));
            }
            Labels::Integers(labels) => {
                fixed.reserve_exact(tensor.len() * 8);
                self.keys.for_each(&lookup, self.default, stop, |_, number| {
                    fixed.extend_from_slice(&labels[number as usize].to_le_bytes());
                })?;
            }
            Labels::Floats(labels) => {
                fixed.reserve_exact(tensor.len() * 8);
                self.keys.for_each(&lookup, self.default, stop, |_, number| {
                    fixed.extend_from_slice(&labels[number as usize].to_le_bytes());
                })?;
            }
        }
        Ok(TensorData::Fixed(fixed.into()))
    }
}

impl Labels {
    /// Reads labels, whose type the first one determines: texts, or numbers.
    fn read(labels: &[SettingReader<'_>]) -> Result<Self, SettingProblem> {
        let is_text = labels.first().and_then(SettingReader::scalar).is_some_and(Value::is_string);
        if is_text {
            let text = |label: &SettingReader<'_>| {
                let text = label.scalar().and_then(Value::as_str).map(str::to_owned);
                text.ok_or_else(|| label.unexpected("a text, as the first label"))
            };
            let texts: Vec<String> = labels.iter().map(text).collect::<Result<_, _>>()?;
            return Ok(Self::Texts(texts.iter().collect::<BytesElements>().with_text(true)));
        }
        let integers = labels.iter().map(|label| label.scalar().and_then(Value::as_i64));
        if let Some(integers) = integers.collect() {
            return Ok(Self::Integers(integers));
        }
        let float = |(index, label): (usize, &SettingReader<'_>)| {
            let expected = if index == 0 { "a text or a number" } else { "a number, as the first label" };
            label.number().map_err(|_| label.unexpected(expected))
        };
        labels.iter().enumerate().map(float).collect::<Result<_, _>>().map(Self::Floats)
    }
}

/// The categories of a one-hot encoding.
#[derive(Debug)]
pub(super) struct Categories {
    keys: Keys,
    count: u32,
    ignore_unknown: bool,
}

impl Categories {
    /// Reads a list of different texts or integers.
    pub(super) fn read(categories: &SettingReader<'_>, ignore_unknown: bool) -> Result<Self, SettingProblem> {
        let read = |category: &SettingReader<'_>| match category.scalar() {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
            _ => Err(category.unexpected("a text or an integer")),
        };
        let names = categories.list(MAX_ITEMS, "categories", read)?;
        let texts = (0..).zip(&names).map(|(number, name)| (Box::from(name.as_bytes()), number)).collect();
        let integers = (0..).zip(&names).filter_map(|(number, name)| Some((integer(name)?, number))).collect();
        let twice = |number: u32| SettingProblem::Value {
            key: format!("{}[{number}]", categories.key()),
            found: format!("`{}`, a category that is listed before", short(&names[number as usize])),
            expected: "each category once".to_owned(),
        };
        let keys = Keys::new(texts, integers).map_err(twice)?;
        Ok(Self { keys, count: u32::try_from(names.len()).unwrap_or(u32::MAX), ignore_unknown })
    }

    pub(super) const fn len(&self) -> usize {
        self.count as usize
    }

    /// Replaces each element by a column per category: 1 in that of its category, and else 0.
    pub(super) fn encode(&self, input: &str, tensor: &Tensor, stop: &AtomicBool) -> Result<TensorData, StepError> {
        let lookup = Lookup { input, tensor, operation: "`one_hot`" };
        let count = self.len();
        let mut encoded = vec![0_u8; tensor.len() * count * size_of::<f32>()];
        let unknown = self.ignore_unknown.then_some(self.count);
        self.keys.for_each(&lookup, unknown, stop, |index, number| {
            if number < self.count {
                let start = (index * count + number as usize) * size_of::<f32>();
                encoded[start..start + size_of::<f32>()].copy_from_slice(&1_f32.to_le_bytes());
            }
        })?;
        Ok(TensorData::Fixed(encoded.into()))
    }
}
