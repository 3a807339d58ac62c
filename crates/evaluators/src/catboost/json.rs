//! The format of `.json` files, which the library exports.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use serde_json::Value;

use super::ctr;
use super::raw::{
    CatFeature, CtrBase, CtrFeature, CtrTable, CtrType, FloatFeature, ModelInfo, NanTreatment, Node, OneHotFeature,
    Projection, RawModel, Trees,
};
use crate::trees::LoadError;
use crate::trees::error::quote;

#[derive(Deserialize)]
struct Document {
    model_info: Option<Info>,
    oblivious_trees: Option<Vec<ObliviousTree>>,
    trees: Option<Vec<TreeNode>>,
    features_info: Features,
    ctr_data: Option<HashMap<String, CtrData>>,
    scale_and_bias: Option<(f64, ScalarOrList)>,
}

#[derive(Deserialize, Default)]
struct Info {
    params: Option<Value>,
    class_params: Option<Value>,
    binclass_probability_threshold: Option<Value>,
    #[serde(rename = "catboost_version_info")]
    library: Option<String>,
}

#[derive(Deserialize)]
struct ObliviousTree {
    leaf_values: Vec<f64>,
    leaf_weights: Option<Vec<f64>>,
    splits: Option<Vec<Split>>,
}

#[derive(Deserialize)]
struct Split {
    split_index: i32,
}

#[derive(Deserialize)]
struct TreeNode {
    value: Option<ScalarOrList>,
    weight: Option<f64>,
    split: Option<Split>,
    left: Option<Box<Self>>,
    right: Option<Box<Self>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScalarOrList {
    Scalar(f64),
    List(Vec<f64>),
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the format")]
struct Features {
    float_features: Option<Vec<Float>>,
    categorical_features: Option<Vec<Categorical>>,
    ctrs: Option<Vec<Ctr>>,
    text_features: Option<Vec<Value>>,
    embedding_features: Option<Vec<Value>>,
    estimated_features: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Float {
    feature_index: i32,
    flat_feature_index: usize,
    feature_id: Option<String>,
    feature_name: Option<String>,
    has_nans: bool,
    nan_value_treatment: Option<String>,
    borders: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct Categorical {
    feature_index: i32,
    flat_feature_index: usize,
    feature_id: Option<String>,
    feature_name: Option<String>,
    values: Option<Vec<i32>>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the format")]
struct Ctr {
    identifier: String,
    elements: Vec<Element>,
    ctr_type: String,
    prior_numerator: f32,
    // As the library spells it.
    prior_denomerator: f32,
    shift: f32,
    scale: f32,
    target_border_idx: i32,
    borders: Option<Vec<f32>>,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the format")]
struct Element {
    combination_element: String,
    cat_feature_index: Option<i32>,
    float_feature_index: Option<i32>,
    border: Option<f32>,
    value: Option<i32>,
}

#[derive(Deserialize)]
struct CtrData {
    hash_map: Option<Vec<Entry>>,
    hash_stride: usize,
    counter_denominator: i32,
}

/// A hash, which is text, or a statistic.
#[derive(Clone, Copy)]
enum Entry {
    Hash(u64),
    Number(f64),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl Visitor<'_> for EntryVisitor {
            type Value = Entry;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a hash or a number")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Entry, E> {
                text.parse().map(Entry::Hash).map_err(|_| E::custom("a hash is not an integer of 64 bits"))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Entry, E> {
                Ok(Entry::Number(number))
            }

            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Entry, E> {
                Ok(Entry::Number(number as f64))
            }

            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Entry, E> {
                Ok(Entry::Number(number as f64))
            }
        }
        deserializer.deserialize_any(EntryVisitor)
    }
}

/// Reads a file.
pub(super) fn read(file: &[u8]) -> Result<RawModel, LoadError> {
    let document: Document = serde_json::from_slice(file).map_err(LoadError::Json)?;
    let features = document.features_info;
    let others = [
        ("text", &features.text_features),
        ("embedding", &features.embedding_features),
        ("estimated", &features.estimated_features),
    ];
    for (kind, found) in others {
        if found.as_ref().is_some_and(|found| !found.is_empty()) {
            return Err(LoadError::Unsupported { what: "kind of features", name: kind.to_owned() });
        }
    }
    let (trees, dimension) = match (document.oblivious_trees, document.trees) {
        (Some(trees), _) => oblivious(trees)?,
        (None, Some(trees)) => graphs(trees)?,
        (None, None) => return Err(LoadError::MissingField { field: "oblivious_trees" }),
    };
    let (scale, bias) = document.scale_and_bias.unwrap_or((1.0, ScalarOrList::Scalar(0.0)));
    let bias = bias.into_list();
    let info = document.model_info.unwrap_or_default();
    let mut one_hots = Vec::new();
    let mut categories = Vec::new();
    for feature in features.categorical_features.unwrap_or_default() {
        let name = feature.feature_id.or(feature.feature_name).unwrap_or_default();
        categories.push(CatFeature { index: feature.feature_index, flat: feature.flat_feature_index, name });
        if let Some(values) = feature.values {
            one_hots.push(OneHotFeature { category: feature.feature_index, values });
        }
    }
    let mut data = document.ctr_data.unwrap_or_default();
    let mut tables = Vec::new();
    let mut ctrs = Vec::new();
    for ctr in features.ctrs.unwrap_or_default() {
        let base = CtrBase { projection: projection(ctr.elements)?, kind: ctr_type(&ctr.ctr_type)?, classifier: 0 };
        if let Some(data) = data.remove(&ctr.identifier) {
            tables.push(table(base.clone(), &data)?);
        }
        ctrs.push(CtrFeature {
            base,
            target_border: ctr.target_border_idx,
            prior: ctr.prior_numerator,
            prior_denominator: ctr.prior_denomerator,
            shift: ctr.shift,
            scale: ctr.scale,
            borders: ctr.borders.unwrap_or_default(),
        });
    }
    Ok(RawModel {
        dimension: dimension.unwrap_or_else(|| bias.len().max(1)),
        floats: features.float_features.unwrap_or_default().into_iter().map(float).collect::<Result<_, _>>()?,
        categories,
        one_hots,
        ctrs,
        trees,
        scale,
        bias,
        info: ModelInfo {
            params: info.params.as_ref().map(text),
            class_params: info.class_params.as_ref().map(text),
            threshold: info.binclass_probability_threshold.as_ref().map(text),
            version: info.library,
        },
        tables,
    })
}

impl ScalarOrList {
    fn into_list(self) -> Vec<f64> {
        match self {
            Self::Scalar(value) => vec![value],
            Self::List(values) => values,
        }
    }
}

/// Returns a text, or the JSON of another value.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn float(feature: Float) -> Result<FloatFeature, LoadError> {
    let nan = match (feature.has_nans, feature.nan_value_treatment.as_deref()) {
        (false, _) | (_, None | Some("AsIs" | "AsFalse")) => NanTreatment::AsFalse,
        (_, Some("AsTrue")) => NanTreatment::AsTrue,
        (_, Some(other)) => {
            let (field, wanted) = ("nan_value_treatment", "a known treatment");
            return Err(LoadError::Field { field, wanted, found: quote(other) });
        }
    };
    Ok(FloatFeature {
        index: feature.feature_index,
        flat: feature.flat_feature_index,
        name: feature.feature_id.or(feature.feature_name).unwrap_or_default(),
        nan,
        borders: feature.borders.unwrap_or_default(),
    })
}

/// Converts oblivious trees. Returns the number of values of a leaf, unless there are no trees.
fn oblivious(trees: Vec<ObliviousTree>) -> Result<(Trees, Option<usize>), LoadError> {
    let mut found = Trees::default();
    let mut dimension = None;
    for tree in trees {
        let splits = tree.splits.unwrap_or_default();
        let leaves = u32::try_from(splits.len()).ok().and_then(|depth| 1_usize.checked_shl(depth)).unwrap_or(0);
        let own = tree.leaf_values.len().checked_div(leaves).unwrap_or(0);
        let wanted = *dimension.get_or_insert(own) * leaves;
        if own == 0 || wanted != tree.leaf_values.len() {
            return Err(LoadError::Count { field: "leaf_values", wanted, found: tree.leaf_values.len() });
        }
        found.sizes.push(i32::try_from(splits.len()).unwrap_or(i32::MAX));
        found.splits.extend(splits.into_iter().map(|split| split.split_index));
        found.values.extend(tree.leaf_values);
        found.weights.extend(tree.leaf_weights.unwrap_or_default());
    }
    Ok((found, dimension))
}

/// Converts trees that are not oblivious.
fn graphs(trees: Vec<TreeNode>) -> Result<(Trees, Option<usize>), LoadError> {
    let mut found = Trees::default();
    let mut nodes = Vec::new();
    let mut dimension = None;
    for tree in trees {
        let start = nodes.len();
        add(tree, &mut found, &mut nodes, &mut dimension)?;
        found.sizes.push(i32::try_from(nodes.len() - start).unwrap_or(i32::MAX));
    }
    found.nodes = Some(nodes);
    Ok((found, dimension))
}

/// Adds a node and the nodes below it. The parser has limited the depth.
fn add(
    node: TreeNode,
    trees: &mut Trees,
    nodes: &mut Vec<Node>,
    dimension: &mut Option<usize>,
) -> Result<(), LoadError> {
    let index = nodes.len();
    let too_large = || LoadError::TooLarge { what: "nodes", count: index, limit: u32::MAX as usize };
    if let Some(value) = node.value {
        let values = value.into_list();
        let wanted = *dimension.get_or_insert(values.len());
        if wanted != values.len() || wanted == 0 {
            return Err(LoadError::Count { field: "value", wanted, found: values.len() });
        }
        let value = u32::try_from(trees.values.len()).map_err(|_| too_large())?;
        trees.values.extend(values);
        trees.weights.extend(node.weight);
        trees.splits.push(0);
        nodes.push(Node { value, ..Node::default() });
        return Ok(());
    }
    let (Some(split), Some(left), Some(right)) = (node.split, node.left, node.right) else {
        return Err(LoadError::MissingField { field: "value" });
    };
    trees.splits.push(split.split_index);
    nodes.push(Node::default());
    let distance = |next: usize| u32::try_from(next - index).map_err(|_| too_large());
    nodes[index].left = distance(nodes.len())?;
    add(*left, trees, nodes, dimension)?;
    nodes[index].right = distance(nodes.len())?;
    add(*right, trees, nodes, dimension)
}

fn projection(elements: Vec<Element>) -> Result<Projection, LoadError> {
    let mut projection = Projection::default();
    let missing = |field| LoadError::MissingField { field };
    for element in elements {
        match element.combination_element.as_str() {
            "cat_feature_value" => {
                let category = element.cat_feature_index.ok_or_else(|| missing("cat_feature_index"))?;
                projection.categories.push(category);
            }
            "float_feature" => {
                let index = element.float_feature_index.ok_or_else(|| missing("float_feature_index"))?;
                let border = element.border.ok_or_else(|| missing("border"))?;
                projection.floats.push((index, border.to_bits()));
            }
            "cat_feature_exact_value" => {
                let category = element.cat_feature_index.ok_or_else(|| missing("cat_feature_index"))?;
                projection.one_hots.push((category, element.value.ok_or_else(|| missing("value"))?));
            }
            other => return Err(LoadError::Unsupported { what: "combination of", name: quote(other) }),
        }
    }
    Ok(projection)
}

fn ctr_type(name: &str) -> Result<CtrType, LoadError> {
    Ok(match name {
        "Borders" => CtrType::Borders,
        "Buckets" => CtrType::Buckets,
        "BinarizedTargetMeanValue" => CtrType::Mean { is_binarized: true },
        "FloatTargetMeanValue" => CtrType::Mean { is_binarized: false },
        "Counter" => CtrType::Counter { is_frequency: false },
        "FeatureFreq" => CtrType::Counter { is_frequency: true },
        other => return Err(LoadError::Unsupported { what: "type of statistics", name: quote(other) }),
    })
}

/// Converts a table: each `hash_stride` entries are a hash and its statistics.
fn table(base: CtrBase, data: &CtrData) -> Result<CtrTable, LoadError> {
    let entries = data.hash_map.as_deref().unwrap_or_default();
    let stride = match base.kind {
        CtrType::Borders | CtrType::Buckets => data.hash_stride.max(2),
        CtrType::Mean { .. } => 3,
        CtrType::Counter { .. } => 2,
    };
    if data.hash_stride != stride {
        return Err(LoadError::Count { field: "hash_stride", wanted: stride, found: data.hash_stride });
    }
    let damaged = || LoadError::Json(serde_json::Error::custom("the hash map is not a hash before its statistics"));
    let mut hashes = Vec::new();
    let mut blob = Vec::new();
    let mut rows = entries.chunks_exact(stride);
    for row in &mut rows {
        let Some((Entry::Hash(hash), statistics)) = row.split_first() else { return Err(damaged()) };
        hashes.push(*hash);
        for (place, entry) in statistics.iter().enumerate() {
            let Entry::Number(number) = entry else { return Err(damaged()) };
            let is_sum = place == 0 && matches!(base.kind, CtrType::Mean { .. });
            if number.fract() != 0.0 {
                // The library's own reader replaces such sums by 0, which is another model than the exported one.
                return Err(LoadError::Unsupported { what: "sum in a JSON file", name: number.to_string() });
            }
            blob.extend(if is_sum { single(*number).to_le_bytes() } else { integer(*number).to_le_bytes() });
        }
    }
    if !rows.remainder().is_empty() {
        return Err(damaged());
    }
    let classes = i32::try_from(stride - 1).unwrap_or(i32::MAX);
    Ok(CtrTable {
        base,
        buckets: ctr::buckets(&hashes)?.into(),
        blob: blob.into(),
        denominator: data.counter_denominator,
        classes,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the library stores sums in single precision")]
fn single(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_possible_truncation, reason = "the library stores counts in 32 bits")]
fn integer(number: f64) -> i32 {
    number as i32
}
