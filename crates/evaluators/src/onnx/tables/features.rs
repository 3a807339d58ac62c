//! Operators of `ai.onnx.ml` that prepare features.

use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;

use bytes::Bytes;

use super::Constructor;
use super::cast::short;
use super::elementwise::{unary, values};
use super::layout::{check_integers, list, to_usize};
use super::number::{Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, position, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, ElementType, Shape, Tensor, with_elements, with_type};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("Scaler", |node| numeric!(node.input(0)?, [F32 f32, F64 f64, I32 i32, I64 i64], T => scaler::<T>(node))),
    ("Normalizer", |node| numeric!(node.input(0)?, [F32 f32, F64 f64, I32 i32, I64 i64], T => normalizer::<T>(node))),
    ("Imputer", imputer),
    ("Binarizer", |node| {
        let threshold = node.float("threshold")?.unwrap_or_default();
        match node.input(0)? {
            ElementType::F32 => unary(node, move |value: &f32| if *value > threshold { 1.0_f32 } else { 0.0 }),
            other => Err(NodeSpec::type_fault(other)),
        }
    }),
    ("ArrayFeatureExtractor", |node| {
        node.check_inputs(2, 2)?;
        check_integers(node, 1)?;
        with_type!(node.input(0)?, T => Ok(Built::one(Extractor::<T>(PhantomData), T::TYPE)))
    }),
    ("FeatureVectorizer", vectorizer),
    ("OneHotEncoder", one_hot_encoder),
    ("CategoryMapper", category_mapper),
    ("LabelEncoder", label_encoder),
];

/// Returns the features of a row: those of the second dimension, or those of a list.
fn features(shape: &Shape) -> Result<usize, Fault> {
    match shape.dimensions() {
        [features] | [_, features, ..] => Ok(*features),
        [] => Err(Fault::Shape { found: *shape, wanted: "a list or rows".to_owned() }),
    }
}

/// Checks that a list has an element for each feature, or one for all.
fn check_features(list: usize, features: usize, what: &str) -> Result<(), Fault> {
    if list == 1 || list == features {
        return Ok(());
    }
    Err(Fault::Value(format!("the input has {features} features, but the model has {list} {what}")))
}

/// Returns the element of a feature.
fn of_feature<T: Copy>(list: &[T], feature: usize) -> T {
    if list.len() == 1 { list[0] } else { list[feature] }
}

/// Features that are shifted and scaled.
#[derive(Debug)]
struct Scaler<T> {
    offsets: Vec<f32>,
    scales: Vec<f32>,
    element: PhantomData<fn() -> T>,
}

fn scaler<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let (offsets, scales) = (node.floats("offset")?.to_vec(), node.floats("scale")?.to_vec());
    if offsets.is_empty() || offsets.len() != scales.len() {
        return Err(NodeFault::Count { what: "offsets", found: offsets.len(), wanted: scales.len().max(1) });
    }
    Ok(Built::one(Scaler::<T> { offsets, scales, element: PhantomData }, ElementType::F32))
}

impl<T: Number> Operator for Scaler<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = required(inputs, 0)?.shape;
        check_features(self.offsets.len(), features(&shape)?, "offsets")?;
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let features = features(shape)?;
        check_features(self.offsets.len(), features, "offsets")?;
        let mut scaled = run.list::<f32>(shape)?;
        let scaled_by = |value: &T, offset: f32, scale: f32| {
            if T::TYPE == ElementType::F64 {
                single((value.to_f64() - f64::from(offset)) * f64::from(scale))
            } else {
                (single(value.to_f64()) - offset) * scale
            }
        };
        if let ([offset], [scale]) = (&self.offsets[..], &self.scales[..]) {
            scaled.extend(elements.iter().map(|value| scaled_by(value, *offset, *scale)));
        } else {
            for row in elements.chunks(features.max(1)) {
                let values = row.iter().zip(&self.offsets).zip(&self.scales);
                scaled.extend(values.map(|((value, offset), scale)| scaled_by(value, *offset, *scale)));
            }
        }
        Ok(vec![finish(*shape, scaled)?])
    }
}

/// Rounds to single precision.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest number")]
pub(super) const fn single(value: f64) -> f32 {
    value as f32
}

/// A norm of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Norm {
    Max,
    L1,
    L2,
}

/// Rows divided by their norm.
#[derive(Debug)]
struct Normalizer<T> {
    norm: Norm,
    element: PhantomData<fn() -> T>,
}

fn normalizer<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let norm = node.choice("norm", &[("MAX", Norm::Max), ("L1", Norm::L1), ("L2", Norm::L2)], Norm::Max)?;
    Ok(Built::one(Normalizer::<T> { norm, element: PhantomData }, ElementType::F32))
}

impl<T: Number> Operator for Normalizer<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = required(inputs, 0)?.shape;
        features(&shape)?;
        if shape.rank() > 2 {
            return Err(Fault::Shape { found: shape, wanted: "a list or rows".to_owned() });
        }
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let mut normal = run.list::<f32>(shape)?;
        normal.extend(elements.iter().map(|value| single(value.to_f64())));
        for row in normal.chunks_mut(features(shape)?.max(1)) {
            let norm = match self.norm {
                Norm::Max => row.iter().copied().fold(f32::MIN, f32::max),
                Norm::L1 => row.iter().fold(0.0, |sum, value| sum + value.abs()),
                Norm::L2 => row.iter().fold(0.0, |sum, value| sum + value * value),
            };
            match self.norm {
                // A row of zeros stays as it is.
                _ if norm == 0.0 => {}
                Norm::Max | Norm::L1 => {
                    for value in row {
                        *value /= norm;
                    }
                }
                Norm::L2 => {
                    for value in row {
                        *value = (*value * *value / norm).sqrt().copysign(*value);
                    }
                }
            }
        }
        Ok(vec![finish(*shape, normal)?])
    }
}

/// Missing values replaced.
#[derive(Debug)]
struct Imputer<T> {
    replaced: T,
    by: Vec<T>,
}

fn imputer(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let floats = (node.float("replaced_value_float")?.unwrap_or_default(), node.floats("imputed_value_floats")?);
    let ints = (node.int("replaced_value_int64")?.unwrap_or_default(), node.ints("imputed_value_int64s")?);
    let count = |count: usize| NodeFault::Count { what: "imputed values", found: count, wanted: 1 };
    match node.input(0)? {
        ElementType::F32 if floats.1.is_empty() => Err(count(0)),
        ElementType::I64 if ints.1.is_empty() => Err(count(0)),
        ElementType::F32 => Ok(Built::one(Imputer { replaced: floats.0, by: floats.1.to_vec() }, ElementType::F32)),
        ElementType::I64 => Ok(Built::one(Imputer { replaced: ints.0, by: ints.1.to_vec() }, ElementType::I64)),
        other => Err(NodeSpec::type_fault(other)),
    }
}

impl<T: Number> Operator for Imputer<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = required(inputs, 0)?.shape;
        check_features(self.by.len(), features(&shape)?, "imputed values")?;
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let features = features(shape)?;
        check_features(self.by.len(), features, "imputed values")?;
        let mut filled = run.list::<T>(shape)?;
        let is_missing = |value: T| if self.replaced.is_nan() { value.is_nan() } else { value == self.replaced };
        for row in elements.chunks(features.max(1)) {
            filled.extend(
                row.iter().enumerate().map(
                    |(feature, value)| {
                        if is_missing(*value) { of_feature(&self.by, feature) } else { *value }
                    },
                ),
            );
        }
        Ok(vec![finish(*shape, filled)?])
    }
}

/// Features by their positions in the last dimension.
#[derive(Debug)]
struct Extractor<T>(PhantomData<fn() -> T>);

impl<T: Element> Extractor<T> {
    fn shape(shape: &Shape, positions: usize) -> Result<Shape, Fault> {
        let sizes = match shape.dimensions() {
            [] => return Err(Fault::Shape { found: *shape, wanted: "a list or rows".to_owned() }),
            [_] => vec![1, positions],
            [outer @ .., _] => outer.iter().copied().chain([positions]).collect(),
        };
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

impl<T: Element> Operator for Extractor<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(Self::shape(&required(inputs, 0)?.shape, required(inputs, 1)?.shape.count())?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let size = shape.dimensions().last().copied().unwrap_or_default();
        let positions = list(inputs, 1)?;
        let positions = positions.iter().map(|index| position(*index, size)).collect::<Result<Vec<_>, _>>()?;
        let result = Self::shape(shape, positions.len())?;
        let mut extracted = run.list::<T>(&result)?;
        for row in elements.chunks(size.max(1)) {
            extracted.extend(positions.iter().map(|index| row[*index].clone()));
        }
        Ok(vec![finish(result, extracted)?])
    }
}

/// The features of all inputs, side by side.
#[derive(Debug)]
struct Vectorizer {
    sizes: Vec<usize>,
    columns: usize,
}

fn vectorizer(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let sizes = node.ints("inputdimensions")?.iter().map(|size| to_usize(*size)).collect::<Result<Vec<_>, _>>()?;
    if sizes.len() != node.inputs.len() || sizes.is_empty() {
        return Err(NodeFault::Count { what: "sizes of inputs", found: sizes.len(), wanted: node.inputs.len() });
    }
    node.check_inputs(sizes.len(), sizes.len())?;
    let element = node.same_type()?;
    numeric!(element, [F32 f32, F64 f64, I32 i32, I64 i64], T => Ok(T::TYPE))?;
    let columns = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size)).ok_or(Fault::ShapeOverflow)?;
    Ok(Built::one(Vectorizer { sizes, columns }, ElementType::F32))
}

impl Vectorizer {
    /// Returns the rows of an input, and the features of each.
    fn rows(shape: &Shape) -> Result<(usize, usize), Fault> {
        match shape.dimensions() {
            [features] => Ok((1, *features)),
            [rows, features @ ..] => Ok((*rows, features.iter().product())),
            [] => Err(Fault::Shape { found: *shape, wanted: "a list or rows".to_owned() }),
        }
    }

    fn shape<'s>(&self, shapes: impl Iterator<Item = &'s Shape>) -> Result<Shape, Fault> {
        let mut rows = None;
        for shape in shapes {
            let found = Self::rows(shape)?.0;
            if *rows.get_or_insert(found) != found {
                return Err(Fault::Shape { found: *shape, wanted: "as many rows as the first input has".to_owned() });
            }
        }
        Shape::of_matrix(rows.unwrap_or_default(), self.columns).ok_or(Fault::ShapeOverflow)
    }
}

impl Operator for Vectorizer {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(inputs.iter().flatten().map(|input| &input.shape))?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let result = self.shape(inputs.iter().flatten().map(Tensor::shape))?;
        let mut joined = run.filled(result, &0.0_f32)?;
        let mut start = 0;
        for (input, size) in inputs.iter().flatten().zip(&self.sizes) {
            let (rows, features) = Self::rows(input.shape())?;
            let element = input.element_type();
            let copied = numeric!(element, [F32 f32, F64 f64, I32 i32, I64 i64], T => {
                Ok(input.values::<T>().map(|values| {
                    for row in 0..rows {
                        // Features beyond the declared size are cut, and missing ones are 0.
                        let features = &values[row * features..][..features];
                        let slots = &mut joined[row * self.columns + start..][..*size];
                        for (slot, value) in slots.iter_mut().zip(features) {
                            *slot = single(value.to_f64());
                        }
                    }
                }))
            });
            copied.ok().flatten().ok_or(Fault::Inconsistent("an input has another type"))?;
            start += size;
        }
        Ok(vec![finish(result, joined)?])
    }
}

/// The categories of an encoder.
#[derive(Debug)]
enum Categories {
    Integers(HashMap<i64, usize>),
    Texts(HashMap<Vec<u8>, usize>),
}

/// A feature for each category.
#[derive(Debug)]
struct OneHotEncoder {
    categories: Categories,
    count: usize,
    /// Whether an unknown category is none; otherwise it is an error.
    zeros: bool,
}

/// Returns the place of each key. The first of equal ones counts.
fn places<K: Hash + Eq>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut places = HashMap::new();
    for (place, key) in keys.enumerate() {
        places.entry(key).or_insert(place);
    }
    places
}

fn one_hot_encoder(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let (ints, texts) = (node.ints("cats_int64s")?, node.texts("cats_strings")?);
    let zeros = node.flag("zeros", true)?;
    let (categories, count) = match (ints, texts) {
        (ints, []) if !ints.is_empty() => (Categories::Integers(places(ints.iter().copied())), ints.len()),
        ([], texts) if !texts.is_empty() => {
            (Categories::Texts(places(texts.iter().map(|text| text.to_vec()))), texts.len())
        }
        _ => return Err(NodeFault::Damaged("it needs either integers or texts as categories".to_owned())),
    };
    let fits = match node.input(0)? {
        ElementType::Text => matches!(categories, Categories::Texts(_)),
        ElementType::F32 | ElementType::F64 | ElementType::I32 | ElementType::I64 => {
            matches!(categories, Categories::Integers(_))
        }
        other => return Err(NodeSpec::type_fault(other)),
    };
    if !fits {
        return Err(NodeFault::Damaged("its categories are of another type than its input".to_owned()));
    }
    Ok(Built::one(OneHotEncoder { categories, count, zeros }, ElementType::F32))
}

impl OneHotEncoder {
    fn shape(&self, shape: &Shape) -> Result<Shape, Fault> {
        let sizes: Vec<usize> = shape.dimensions().iter().copied().chain([self.count]).collect();
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }

    /// Sets the feature of the category of each element.
    fn mark<T>(&self, elements: &[T], marked: &mut [f32], find: impl Fn(&T) -> Option<usize>) -> Result<(), Fault> {
        for (row, element) in marked.chunks_mut(self.count).zip(elements) {
            match find(element) {
                Some(place) => row[place] = 1.0,
                None if self.zeros => {}
                None => return Err(Fault::Value("a category is unknown to the model".to_owned())),
            }
        }
        Ok(())
    }
}

impl Operator for OneHotEncoder {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(&required(inputs, 0)?.shape)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let input = required(inputs, 0)?;
        let shape = self.shape(input.shape())?;
        let mut marked = run.filled(shape, &0.0_f32)?;
        let inconsistent = || Fault::Inconsistent("an input has another type");
        match &self.categories {
            Categories::Texts(places) => {
                let texts = input.values::<Bytes>().ok_or_else(inconsistent)?;
                self.mark(texts, &mut marked, |text| places.get(&text[..]).copied())?;
            }
            Categories::Integers(places) => {
                let found = numeric!(input.element_type(), [F32 f32, F64 f64, I32 i32, I64 i64], T => {
                    Ok(input.values::<T>().map(|values| {
                        self.mark(values, &mut marked, |value| places.get(&i64::of_f64(value.to_f64())).copied())
                    }))
                });
                found.ok().flatten().ok_or_else(inconsistent)??;
            }
        }
        Ok(vec![finish(shape, marked)?])
    }
}

/// A type of keys: floating-point numbers by their bits.
trait Key: Element {
    type Hashed: Hash + Eq + Send + Sync + std::fmt::Debug + 'static;

    fn hashed(&self) -> Self::Hashed;

    fn is_nan(&self) -> bool {
        // Only NaN differs from itself.
        #[expect(clippy::eq_op, reason = "asks for NaN")]
        let is_same = self == self;
        !is_same
    }
}

macro_rules! keys {
    ($($type:ty: $hashed:ty, $hash:expr);*) => { $(
        impl Key for $type {
            type Hashed = $hashed;

            fn hashed(&self) -> $hashed {
                $hash(self)
            }
        }
    )* };
}
keys! {
    i16: i16, |key: &i16| *key;
    i32: i32, |key: &i32| *key;
    i64: i64, |key: &i64| *key;
    bool: bool, |key: &bool| *key;
    Bytes: Bytes, Bytes::clone;
    // NaN is equal to itself here, and 0 to -0.
    f32: u32, |key: &f32| if key.is_nan() { f32::NAN } else { *key + 0.0 }.to_bits();
    f64: u64, |key: &f64| if key.is_nan() { f64::NAN } else { *key + 0.0 }.to_bits()
}

/// Values in place of keys.
#[derive(Debug)]
struct Mapping<K: Key, V> {
    values: HashMap<K::Hashed, V>,
    default: V,
}

/// Makes an operator that maps keys to values.
fn mapping<K: Key, V: Element>(
    node: &NodeSpec<'_, '_>,
    keys: &[K],
    values: &[V],
    default: V,
) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    if node.input(0)? != K::TYPE {
        return Err(NodeFault::Damaged(format!(
            "its keys are of type {}, and its input of {}",
            K::TYPE,
            node.input(0)?
        )));
    }
    if keys.len() != values.len() {
        return Err(NodeFault::Count { what: "values", found: values.len(), wanted: keys.len() });
    }
    let mut map = HashMap::with_capacity(keys.len());
    // Up to the third version of the operator, NaN is not equal to itself.
    let is_found = |key: &K| node.opset >= 4 || !key.is_nan();
    for (key, value) in keys.iter().zip(values).filter(|(key, _)| is_found(key)) {
        map.entry(key.hashed()).or_insert_with(|| value.clone());
    }
    Ok(Built::one(Mapping::<K, V> { values: map, default }, V::TYPE))
}

impl<K: Key, V: Element> Operator for Mapping<K, V> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, keys) = values::<K>(inputs, 0)?;
        let value = |key: &K| self.values.get(&key.hashed()).unwrap_or(&self.default).clone();
        Ok(vec![run.collect(*shape, keys.iter().map(value))?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(30)
    }
}

/// Returns texts of the file.
fn owned(texts: &[&[u8]]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text)).collect()
}

/// What stands for a text that an encoder does not know, unless the model says.
const UNUSED: &str = "_Unused";

fn default_text(node: &NodeSpec<'_, '_>) -> Result<Bytes, NodeFault> {
    Ok(Bytes::copy_from_slice(node.text("default_string")?.unwrap_or(UNUSED).as_bytes()))
}

fn category_mapper(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let (ints, texts) = (node.ints("cats_int64s")?, owned(node.texts("cats_strings")?));
    let (text, int) = (default_text(node)?, node.int("default_int64")?.unwrap_or(-1));
    match node.input(0)? {
        ElementType::Text => mapping(node, &texts, ints, int),
        ElementType::I64 => mapping(node, ints, &texts, text),
        other => Err(NodeSpec::type_fault(other)),
    }
}

/// Keys or values of an encoder.
enum Column {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<Bytes>),
    Tensor(Tensor<'static>),
}

fn column(node: &NodeSpec<'_, '_>, prefix: &str) -> Result<Column, NodeFault> {
    let name = |kind: &str| format!("{prefix}_{kind}");
    let mut columns = Vec::new();
    if node.has(&name("floats")) {
        columns.push(Column::Floats(node.floats(&name("floats"))?.to_vec()));
    }
    if node.has(&name("int64s")) {
        columns.push(Column::Ints(node.ints(&name("int64s"))?.to_vec()));
    }
    if node.has(&name("strings")) {
        columns.push(Column::Texts(owned(node.texts(&name("strings"))?)));
    }
    if let Some(tensor) = node.tensor(&name("tensor"))? {
        columns.push(Column::Tensor(tensor));
    }
    let mut columns = columns.into_iter();
    match (columns.next(), columns.next()) {
        (Some(column), None) => Ok(column),
        _ => Err(NodeFault::Damaged(format!("it needs one list of {prefix}"))),
    }
}

fn label_encoder(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    // The first version of the operator: the place of a text among the classes, and back.
    if node.has("classes_strings") {
        let classes = owned(node.texts("classes_strings")?);
        let places: Vec<i64> = (0_i64..).take(classes.len()).collect();
        let (text, int) = (default_text(node)?, node.int("default_int64")?.unwrap_or(-1));
        return match node.input(0)? {
            ElementType::Text => mapping(node, &classes, &places, int),
            ElementType::I64 => mapping(node, &places, &classes, text),
            other => Err(NodeSpec::type_fault(other)),
        };
    }
    match column(node, "keys")? {
        Column::Floats(keys) => of_keys(node, &keys),
        Column::Ints(keys) => of_keys(node, &keys),
        Column::Texts(keys) => of_keys(node, &keys),
        Column::Tensor(keys) => {
            let unsupported = || NodeSpec::type_fault(keys.element_type());
            match keys.element_type() {
                ElementType::F32 => of_keys(node, keys.values::<f32>().ok_or_else(unsupported)?),
                ElementType::F64 => of_keys(node, keys.values::<f64>().ok_or_else(unsupported)?),
                ElementType::I16 => of_keys(node, keys.values::<i16>().ok_or_else(unsupported)?),
                ElementType::I32 => of_keys(node, keys.values::<i32>().ok_or_else(unsupported)?),
                ElementType::I64 => of_keys(node, keys.values::<i64>().ok_or_else(unsupported)?),
                ElementType::Bool => of_keys(node, keys.values::<bool>().ok_or_else(unsupported)?),
                ElementType::Text => of_keys(node, keys.values::<Bytes>().ok_or_else(unsupported)?),
                _ => Err(unsupported()),
            }
        }
    }
}

/// Makes the operator of keys.
fn of_keys<K: Key>(node: &NodeSpec<'_, '_>, keys: &[K]) -> Result<Built, NodeFault> {
    let (float, int, text) =
        (node.float("default_float")?.unwrap_or(-0.0), node.int("default_int64")?.unwrap_or(-1), default_text(node)?);
    let default = node.tensor("default_tensor")?;
    match column(node, "values")? {
        Column::Floats(values) => mapping(node, keys, &values, float),
        Column::Ints(values) => mapping(node, keys, &values, int),
        Column::Texts(values) => mapping(node, keys, &values, text),
        Column::Tensor(values) => {
            with_elements!(values.elements(), |values| { of_tensor(node, keys, values, default.as_ref()) })
        }
    }
}

fn of_tensor<K: Key, V: Element>(
    node: &NodeSpec<'_, '_>,
    keys: &[K],
    values: &[V],
    default: Option<&Tensor<'static>>,
) -> Result<Built, NodeFault> {
    let default = match default {
        Some(default) => default.values::<V>().and_then(|values| values.first().cloned()),
        None => built_in_default::<V>(),
    };
    let wrong = || NodeFault::Damaged(format!("its default is not one element of type {}", V::TYPE));
    mapping(node, keys, values, default.ok_or_else(wrong)?)
}

/// Returns what an encoder returns for unknown keys, unless the model says.
fn built_in_default<V: Element>() -> Option<V> {
    let element = V::TYPE;
    let scalar = Shape::default();
    let tensor = match element {
        ElementType::Text => Tensor::of(scalar, vec![Bytes::from_static(UNUSED.as_bytes())]),
        ElementType::Bool => Tensor::of(scalar, vec![false]),
        ElementType::F16 => None,
        _ => numeric!(element, T => {
            let value = if T::IS_FLOAT { T::of_f64(-0.0) } else { T::of_f64(-1.0) };
            Ok(Tensor::of(scalar, vec![value]))
        })
        .ok()
        .flatten(),
    };
    tensor.and_then(|tensor| tensor.values::<V>().and_then(|values| values.first().cloned()))
}

/// Returns the fault of a text that a model cannot take.
pub(super) fn text_fault(text: &[u8], why: &str) -> Fault {
    Fault::Value(format!("the text `{}` {why}", short(text)))
}
