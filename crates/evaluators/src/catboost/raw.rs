//! The content of a model file, in the form that both formats are read into.

use std::sync::Arc;

use bytes::Bytes;

/// How a feature of numbers treats a missing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NanTreatment {
    /// The value is below every border. It is also the treatment of features that had no missing values.
    AsFalse,
    /// The value is above every border.
    AsTrue,
}

/// A feature of numbers.
#[derive(Debug)]
pub(super) struct FloatFeature {
    /// The number among the features of numbers.
    pub(super) index: i32,
    /// The number among all features.
    pub(super) flat: usize,
    pub(super) name: String,
    pub(super) nan: NanTreatment,
    pub(super) borders: Vec<f32>,
}

/// A feature of categories.
#[derive(Debug)]
pub(super) struct CatFeature {
    /// The number among the features of categories.
    pub(super) index: i32,
    /// The number among all features.
    pub(super) flat: usize,
    pub(super) name: String,
}

/// The categories of a feature that splits test for equality.
#[derive(Debug)]
pub(super) struct OneHotFeature {
    /// The number of the feature among those of categories.
    pub(super) category: i32,
    /// The hashes of the categories.
    pub(super) values: Vec<i32>,
}

/// How the value of a feature is computed from the statistics of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CtrType {
    Borders,
    Buckets,
    /// `BinarizedTargetMeanValue` and `FloatTargetMeanValue`.
    Mean {
        is_binarized: bool,
    },
    /// `Counter` and `FeatureFreq`.
    Counter {
        is_frequency: bool,
    },
}

/// The features whose values are hashed together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Projection {
    pub(super) categories: Vec<i32>,
    /// Splits of features of numbers. The borders are bits of `f32`.
    pub(super) floats: Vec<(i32, u32)>,
    /// Tests of features of categories for equality.
    pub(super) one_hots: Vec<(i32, i32)>,
}

/// What a table of statistics is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CtrBase {
    pub(super) projection: Projection,
    pub(super) kind: CtrType,
    /// Which binarization of the target the statistics are of. 0 if the format does not tell.
    pub(super) classifier: i32,
}

/// A feature whose value is computed from statistics of categories.
#[derive(Debug)]
pub(super) struct CtrFeature {
    pub(super) base: CtrBase,
    pub(super) target_border: i32,
    pub(super) prior: f32,
    pub(super) prior_denominator: f32,
    pub(super) shift: f32,
    pub(super) scale: f32,
    pub(super) borders: Vec<f32>,
}

/// A table of statistics.
#[derive(Debug)]
pub(super) struct CtrTable {
    pub(super) base: CtrBase,
    /// A hash table: for each bucket a hash of 64 bits and an index of 32 bits.
    pub(super) buckets: Bytes,
    /// The statistics.
    pub(super) blob: Bytes,
    pub(super) denominator: i32,
    pub(super) classes: i32,
}

/// All trees, one after the other.
#[derive(Debug, Default)]
pub(super) struct Trees {
    /// The number of each split among all binary features.
    pub(super) splits: Vec<i32>,
    /// The number of splits of each tree.
    pub(super) sizes: Vec<i32>,
    pub(super) values: Vec<f64>,
    /// The weight of the training rows in each leaf. Empty if the file does not have it.
    pub(super) weights: Vec<f64>,
    /// The nodes of trees that are not oblivious.
    pub(super) nodes: Option<Vec<Node>>,
}

/// A node. The children are distances to other nodes, of which 0 is a leaf: this node's value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) left: u32,
    pub(super) right: u32,
    /// The index of the first of the leaf's values.
    pub(super) value: u32,
}

/// The labels of classes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Labels {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Booleans(Vec<bool>),
    Texts(Vec<Arc<str>>),
}

/// What the metadata of the model say.
#[derive(Debug, Default)]
pub(super) struct ModelInfo {
    /// The JSON text of the parameters.
    pub(super) params: Option<String>,
    /// The JSON text of the classes.
    pub(super) class_params: Option<String>,
    pub(super) threshold: Option<String>,
    /// The version of the library, among other information about its build.
    pub(super) version: Option<String>,
}

/// A model as its file describes it.
#[derive(Debug)]
pub(super) struct RawModel {
    pub(super) dimension: usize,
    pub(super) floats: Vec<FloatFeature>,
    pub(super) categories: Vec<CatFeature>,
    pub(super) one_hots: Vec<OneHotFeature>,
    pub(super) ctrs: Vec<CtrFeature>,
    pub(super) trees: Trees,
    pub(super) scale: f64,
    pub(super) bias: Vec<f64>,
    pub(super) info: ModelInfo,
    pub(super) tables: Vec<CtrTable>,
}

impl Labels {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Integers(labels) => labels.len(),
            Self::Floats(labels) => labels.len(),
            Self::Booleans(labels) => labels.len(),
            Self::Texts(labels) => labels.len(),
        }
    }
}
