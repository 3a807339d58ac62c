//! Operators on text.

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;

use bytes::Bytes;

use super::Constructor;
use super::elementwise::values;
use super::features::text_fault;
use super::layout::to_usize;
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, ElementType, Shape, Tensor};

/// The operators of `ai.onnx` in this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("StringNormalizer", string_normalizer),
    ("TfIdfVectorizer", |node| match node.input(0)? {
        ElementType::Text => tf_idf::<Bytes>(node),
        ElementType::I64 => tf_idf::<i64>(node),
        ElementType::I32 => tf_idf::<i32>(node),
        other => Err(NodeSpec::type_fault(other)),
    }),
];

/// The operators of `com.microsoft` in this file.
pub(super) const MICROSOFT: &[(&str, Constructor)] = &[("Tokenizer", tokenizer)];

/// How the case of letters changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Same,
    Lower,
    Upper,
}

impl Case {
    /// Changes the case by the rules of Unicode, without a locale.
    fn apply(self, text: &Bytes) -> Result<Bytes, Fault> {
        if self == Self::Same {
            return Ok(text.clone());
        }
        let letters = std::str::from_utf8(text).map_err(|_| text_fault(text, "is not UTF-8"))?;
        // A letter becomes one letter, as in C, not two.
        let change = |letter: char| {
            let (mut lower, mut upper) = (letter.to_lowercase(), letter.to_uppercase());
            let changed = if self == Self::Lower { (lower.next(), lower.next()) } else { (upper.next(), upper.next()) };
            if let (Some(changed), None) = changed { changed } else { letter }
        };
        Ok(letters.chars().map(change).collect::<String>().into())
    }
}

/// Texts of one case, without stop words.
#[derive(Debug)]
struct StringNormalizer {
    case: Case,
    /// The stop words, in upper case unless their case matters.
    stop_words: HashSet<Bytes>,
    compared: Case,
}

fn string_normalizer(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    // Only languages with rules of their own for dotted letters depend on it.
    node.ignore("locale");
    let cases = [("NONE", Case::Same), ("LOWER", Case::Lower), ("UPPER", Case::Upper)];
    let case = node.choice("case_change_action", &cases, Case::Same)?;
    let compared = if node.flag("is_case_sensitive", false)? { Case::Same } else { Case::Upper };
    let words = node.texts("stopwords")?.iter().map(|word| compared.apply(&Bytes::copy_from_slice(word)));
    let stop_words = words.collect::<Result<HashSet<_>, _>>()?;
    match node.input(0)? {
        ElementType::Text => Ok(Built::one(StringNormalizer { case, stop_words, compared }, ElementType::Text)),
        other => Err(NodeSpec::type_fault(other)),
    }
}

/// Checks that texts are a list, or one row.
fn check_row(shape: &Shape) -> Result<(), Fault> {
    match shape.dimensions() {
        [_] | [1, _] => Ok(()),
        _ => Err(Fault::Shape { found: *shape, wanted: "a list, or one row".to_owned() }),
    }
}

impl Operator for StringNormalizer {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = required(inputs, 0)?.shape;
        check_row(&shape)?;
        Ok(vec![(self.stop_words.is_empty() && shape.count() > 0).then_some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, texts) = values::<Bytes>(inputs, 0)?;
        check_row(shape)?;
        let mut kept = Vec::with_capacity(texts.len());
        for text in texts.iter() {
            if self.stop_words.is_empty() || !self.stop_words.contains(&self.compared.apply(text)?) {
                kept.push(self.case.apply(text)?);
            }
        }
        // A tensor has at least one text.
        if kept.is_empty() {
            kept.push(Bytes::new());
        }
        let shape = if shape.rank() == 1 { Shape::of_list(kept.len()) } else { Shape::of_matrix(1, kept.len()) };
        let shape = shape.ok_or(Fault::ShapeOverflow)?;
        run.claim(kept.len(), ElementType::Text.width())?;
        Ok(vec![finish(shape, kept)?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(200)
    }
}

/// What the counts of n-grams become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weighting {
    Counts,
    /// The weight of each that occurs.
    Weights,
    /// Counts times weights.
    Both,
}

/// A step on the way to n-grams: the items that may follow, and the n-gram that ends here.
#[derive(Debug)]
struct Gram {
    /// The column of the n-gram, if one ends here.
    column: Option<usize>,
    next: HashMap<Bytes, usize>,
}

/// Counts of n-grams.
#[derive(Debug)]
struct TfIdf<T> {
    grams: Vec<Gram>,
    shortest: usize,
    longest: usize,
    /// How far the items of an n-gram may lie apart.
    skips: usize,
    weighting: Weighting,
    weights: Vec<f32>,
    columns: usize,
    element: PhantomData<fn() -> T>,
}

/// An item of an n-gram, as bytes.
trait Item: Element {
    fn item(&self) -> Bytes;
}

impl Item for Bytes {
    fn item(&self) -> Bytes {
        self.clone()
    }
}

impl Item for i64 {
    fn item(&self) -> Bytes {
        Bytes::copy_from_slice(&self.to_le_bytes())
    }
}

impl Item for i32 {
    fn item(&self) -> Bytes {
        i64::from(*self).item()
    }
}

/// The most columns of counts: of a file with fewer n-grams, an index could ask for more memory than the file has.
const MAX_COLUMNS: usize = 1 << 24;

fn tf_idf<T: Item>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let size = |name: &str| {
        let value = node.int(name)?.ok_or_else(|| NodeFault::Damaged(format!("it has no `{name}`")))?;
        to_usize(value).map_err(NodeFault::from)
    };
    let (longest, shortest, skips) = (size("max_gram_length")?, size("min_gram_length")?, size("max_skip_count")?);
    let weightings = [("TF", Weighting::Counts), ("IDF", Weighting::Weights), ("TFIDF", Weighting::Both)];
    let weighting = node.choice("mode", &weightings, Weighting::Counts)?;
    let list = |name: &str| {
        let list = node.ints(name)?.iter().map(|value| to_usize(*value)).collect::<Result<Vec<_>, _>>();
        list.map_err(NodeFault::from)
    };
    let (starts, columns, weights) = (list("ngram_counts")?, list("ngram_indexes")?, node.floats("weights")?.to_vec());
    let (texts, ints) = (node.texts("pool_strings")?, node.ints("pool_int64s")?);
    let pool: Vec<Bytes> = match T::TYPE {
        ElementType::Text => texts.iter().map(|text| Bytes::copy_from_slice(text)).collect(),
        _ => ints.iter().map(Item::item).collect(),
    };
    if shortest == 0 || longest < shortest || starts.len() < longest {
        return Err(NodeFault::Damaged(format!("it has n-grams of {shortest} to {longest} items")));
    }
    let width = columns.iter().max().map_or(0, |column| column.saturating_add(1));
    if width > MAX_COLUMNS {
        return Err(NodeFault::Unsupported(format!("a column with the number {width}")));
    }
    if !(weights.is_empty() || weights.len() == columns.len()) {
        return Err(NodeFault::Count { what: "weights", found: weights.len(), wanted: columns.len() });
    }
    // A weight belongs to an n-gram here, and onnxruntime finds it by the column.
    if !weights.is_empty() && columns.iter().enumerate().any(|(index, column)| index != *column) {
        return Err(NodeFault::Unsupported("weights of n-grams in another order than their columns".to_owned()));
    }
    let grams = grams(&pool, &starts, &columns)?;
    let operator =
        TfIdf::<T> { grams, shortest, longest, skips, weighting, weights, columns: width, element: PhantomData };
    Ok(Built::one(operator, ElementType::F32))
}

/// Reads the n-grams of a pool, in which those of each length start at one of `starts`.
fn grams(pool: &[Bytes], starts: &[usize], columns: &[usize]) -> Result<Vec<Gram>, NodeFault> {
    let mut grams = vec![Gram { column: None, next: HashMap::new() }];
    let mut columns = columns.iter();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(pool.len());
        let length = index + 1;
        let wrong =
            || NodeFault::Damaged(format!("its n-grams of {length} items are at {start} to {end} of {}", pool.len()));
        let part = pool.get(*start..end).filter(|part| part.len().is_multiple_of(length)).ok_or_else(wrong)?;
        for items in part.chunks(length) {
            let mut at = 0;
            for item in items {
                let new = grams.len();
                at = *grams[at].next.entry(item.clone()).or_insert(new);
                if at == new {
                    grams.push(Gram { column: None, next: HashMap::new() });
                }
            }
            let column = columns.next().ok_or_else(|| NodeFault::Damaged("n-grams have no columns".to_owned()))?;
            grams[at].column = Some(*column);
        }
    }
    Ok(grams)
}

impl<T: Item> TfIdf<T> {
    fn shape(&self, shape: &Shape) -> Result<(usize, Shape), Fault> {
        let (items, result) = match shape.dimensions() {
            [items] => (*items, Shape::of_list(self.columns)),
            [rows, items] => (*items, Shape::of_matrix(*rows, self.columns)),
            _ => return Err(Fault::Shape { found: *shape, wanted: "a list or rows".to_owned() }),
        };
        Ok((items, result.ok_or(Fault::ShapeOverflow)?))
    }

    /// Counts the n-grams of a row.
    fn count(&self, row: &[Bytes], counts: &mut [f32], run: &Run<'_>) -> Result<(), Fault> {
        let mut shortest = self.shortest;
        for distance in 1..=self.skips.saturating_add(1) {
            if distance > row.len().max(1) {
                break;
            }
            run.check()?;
            for start in 0..row.len() {
                if start + distance * (shortest - 1) >= row.len() {
                    break;
                }
                let mut at = 0;
                for (length, item) in row[start..].iter().step_by(distance).take(self.longest).enumerate() {
                    let Some(next) = self.grams[at].next.get(item) else { break };
                    at = *next;
                    if let Some(column) = self.grams[at].column.filter(|_| length + 1 >= shortest) {
                        counts[column] += 1.0;
                    }
                }
            }
            // Single items lie no distance apart.
            if shortest == 1 {
                shortest = 2;
                if shortest > self.longest {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl<T: Item> Operator for TfIdf<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(&required(inputs, 0)?.shape)?.1)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (items, result) = self.shape(shape)?;
        let mut counts = run.filled(result, &0.0_f32)?;
        let mut row = Vec::with_capacity(items);
        for (index, counts) in counts.chunks_mut(self.columns.max(1)).enumerate() {
            run.check()?;
            row.clear();
            row.extend(elements[index * items..][..items].iter().map(Item::item));
            self.count(&row, counts, run)?;
            for (column, count) in counts.iter_mut().enumerate() {
                let weight = self.weights.get(column).copied().unwrap_or(1.0);
                *count = match self.weighting {
                    Weighting::Counts => *count,
                    Weighting::Weights if *count > 0.0 => weight,
                    Weighting::Weights => 0.0,
                    Weighting::Both => *count * weight,
                };
            }
        }
        Ok(vec![finish(result, counts)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], elements: usize) -> u64 {
        let items = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        let steps = items.saturating_mul(self.longest).saturating_mul(self.skips.saturating_add(1)).saturating_mul(40);
        u64::try_from(steps.saturating_add(elements)).unwrap_or(u64::MAX)
    }
}

/// How texts become tokens.
#[derive(Debug)]
enum Tokens {
    /// Letters, each a token.
    Letters,
    /// What lies between separators, which are looked for one after the other.
    Between(Vec<String>),
    /// Runs of ASCII letters, digits and underscores.
    Words,
}

/// Texts cut into tokens.
#[derive(Debug)]
struct Tokenizer {
    tokens: Tokens,
    padding: Bytes,
    /// Whether a text begins and ends with a mark.
    marks: bool,
    /// The fewest characters of a token.
    least: usize,
}

/// The start and the end of a text, with `mark`.
const MARKS: [&[u8]; 2] = [&[2], &[3]];
/// The expressions that are words.
const WORDS: [&str; 1] = ["[a-zA-Z0-9_]+"];

fn tokenizer(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let marks = node.flag("mark", false)?;
    let padding = Bytes::copy_from_slice(node.text("pad_value")?.unwrap_or_default().as_bytes());
    let least = to_usize(node.int("mincharnum")?.unwrap_or(1))?;
    let separators = node.texts("separators")?;
    let tokens = match node.text("tokenexp")? {
        Some(expression) if WORDS.contains(&expression) && separators.is_empty() => Tokens::Words,
        Some(expression) => {
            return Err(NodeFault::Unsupported(format!("the expression `{}`", expression.escape_debug())));
        }
        None if separators.is_empty() => return Err(NodeFault::Damaged("it has no separators".to_owned())),
        None if *separators == [b"".as_slice()] => Tokens::Letters,
        None => {
            let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| r"\.+*?()|[]{}^$".contains(c));
            let texts: Option<Vec<String>> = separators
                .iter()
                .map(|text| std::str::from_utf8(text).ok().filter(|text| is_plain(text)).map(str::to_owned))
                .collect();
            Tokens::Between(texts.ok_or_else(|| NodeFault::Unsupported("separators that are expressions".to_owned()))?)
        }
    };
    match node.input(0)? {
        ElementType::Text => Ok(Built::one(Tokenizer { tokens, padding, marks, least }, ElementType::Text)),
        other => Err(NodeSpec::type_fault(other)),
    }
}

impl Tokenizer {
    /// Returns the tokens of a text, which share its memory.
    fn cut(&self, text: &Bytes) -> Result<Vec<Bytes>, Fault> {
        let letters = std::str::from_utf8(text).map_err(|_| text_fault(text, "is not UTF-8"))?;
        let parts: Vec<&str> = match &self.tokens {
            Tokens::Letters => letters.split_inclusive(|_: char| true).collect(),
            Tokens::Words => letters.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).collect(),
            Tokens::Between(separators) => separators.iter().fold(vec![letters], |parts, separator| {
                parts.into_iter().flat_map(|part| part.split(separator.as_str())).collect()
            }),
        };
        let is_long = |part: &&str| !part.is_empty() && part.chars().count() >= self.least;
        Ok(parts.into_iter().filter(is_long).map(|part| text.slice_ref(part.as_bytes())).collect())
    }
}

impl Operator for Tokenizer {
    fn shapes(&self, _: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![None])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, texts) = values::<Bytes>(inputs, 0)?;
        if !matches!(shape.rank(), 1 | 2) {
            return Err(Fault::Shape { found: *shape, wanted: "a list or rows".to_owned() });
        }
        let mut all = Vec::with_capacity(texts.len());
        for text in texts.iter() {
            run.claim(text.len(), 1)?;
            let mut tokens = self.cut(text)?;
            if self.marks {
                tokens.insert(0, Bytes::from_static(MARKS[0]));
                tokens.push(Bytes::from_static(MARKS[1]));
            }
            all.push(tokens);
        }
        let longest = all.iter().map(Vec::len).max().unwrap_or_default();
        let sizes: Vec<usize> = shape.dimensions().iter().copied().chain([longest]).collect();
        let shape = Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?;
        let mut padded = run.list::<Bytes>(&shape)?;
        for tokens in all {
            let missing = longest - tokens.len();
            padded.extend(tokens);
            padded.extend(std::iter::repeat_n(self.padding.clone(), missing));
        }
        Ok(vec![finish(shape, padded)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        let texts = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        u64::try_from(texts).unwrap_or(u64::MAX).saturating_mul(500)
    }
}
