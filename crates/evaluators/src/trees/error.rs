//! Why a model file or a prediction was rejected.

use thiserror::Error;

use crate::contributions::TableError;

/// The longest part of a model file that an error message quotes, in characters.
const QUOTE: usize = 48;

/// A model file that is damaged, or that needs something that this evaluator does not support.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file ends too early.
    #[error("file ends at byte {offset}, inside {reading}")]
    Truncated {
        /// Length of the file.
        offset: usize,
        /// What was being read.
        reading: &'static str,
    },
    /// The file does not follow its format.
    #[error("byte {offset}: expected {wanted}, found `{found}`")]
    Syntax {
        /// Offset from the start of the file.
        offset: usize,
        /// What the format requires.
        wanted: &'static str,
        /// The beginning of what was found.
        found: String,
    },
    /// Objects or arrays are nested more deeply than any model needs.
    #[error("byte {offset}: nested more than {limit} levels deep")]
    Nesting {
        /// Where the limit was exceeded.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// The file is not the JSON of its format.
    #[error("invalid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// A required field is missing.
    #[error("field `{field}` is missing")]
    MissingField {
        /// The name in the file.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("field `{field}`: expected {wanted}, found `{found}`")]
    Field {
        /// The name in the file.
        field: &'static str,
        /// What would have been valid.
        wanted: &'static str,
        /// What was found.
        found: String,
    },
    /// Two parts of the file disagree about a count.
    #[error("`{field}` has {found} entries instead of {wanted}")]
    Count {
        /// The name in the file.
        field: &'static str,
        /// How many the rest of the file implies.
        wanted: usize,
        /// How many were found.
        found: usize,
    },
    /// A tree is damaged.
    #[error("tree {tree}: {fault}")]
    Tree {
        /// Index of the tree in the file.
        tree: usize,
        /// The fault.
        #[source]
        fault: TreeFault,
    },
    /// The file needs something that cannot be evaluated exactly.
    #[error("{what} `{name}` is not supported")]
    Unsupported {
        /// What kind of thing is unsupported.
        what: &'static str,
        /// Its name in the file.
        name: String,
    },
    /// The model has more nodes or features than can be addressed.
    #[error("the model is too large: {count} {what}, but the limit is {limit}")]
    TooLarge {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are possible.
        limit: usize,
    },
}

impl LoadError {
    /// Returns whether the file may be valid, and only contains something that is not supported here.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Unsupported { .. } | Self::TooLarge { .. } | Self::Tree { fault: TreeFault::Unsupported { .. }, .. }
        )
    }
}

/// What is wrong with one tree.
#[derive(Debug, Error)]
pub enum TreeFault {
    /// The library reads it, in a way of its own.
    #[error("{what} `{name}` is not supported")]
    Unsupported {
        /// What kind of thing is unsupported.
        what: &'static str,
        /// How it is written in the file.
        name: String,
    },
    /// A required field is missing.
    #[error("field `{field}` is missing")]
    MissingField {
        /// The name in the file.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("field `{field}`: expected {wanted}, found `{found}`")]
    Field {
        /// The name in the file.
        field: &'static str,
        /// What would have been valid.
        wanted: &'static str,
        /// What was found.
        found: String,
    },
    /// The length of an array does not match the size of the tree.
    #[error("`{field}` has {found} entries instead of {wanted}")]
    Count {
        /// The name in the file.
        field: &'static str,
        /// How many the tree needs.
        wanted: usize,
        /// How many were found.
        found: usize,
    },
    /// The tree has no nodes.
    #[error("it has no nodes")]
    Empty,
    /// A child does not exist.
    #[error("node {node} has child {child}, but there are {nodes} nodes")]
    ChildOutOfRange {
        /// The parent.
        node: usize,
        /// The index that is out of range.
        child: i64,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A node has two parents, or is its own ancestor.
    #[error("node {child} is reached twice, the second time from node {node}")]
    Shared {
        /// The second parent.
        node: usize,
        /// The node.
        child: usize,
    },
    /// Some nodes have no parent.
    #[error("{found} of {nodes} nodes cannot be reached")]
    Unreachable {
        /// How many are unreachable.
        found: usize,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A split tests a feature that the model does not have.
    #[error("node {node} tests feature {feature}, but there are {features} features")]
    FeatureOutOfRange {
        /// The node.
        node: usize,
        /// The feature.
        feature: i64,
        /// How many features the model declares.
        features: usize,
    },
    /// The categories of a split are out of range.
    #[error("node {node} has categories {start}..{end}, but there are {found}")]
    CategoriesOutOfRange {
        /// The node.
        node: usize,
        /// First entry.
        start: i64,
        /// Entry after the last.
        end: i64,
        /// How many entries there are.
        found: usize,
    },
    /// The tree adds to an output that does not exist.
    #[error("it adds to output {output}, but there are {outputs} outputs")]
    OutputOutOfRange {
        /// The output.
        output: i64,
        /// How many were found.
        outputs: usize,
    },
}

impl TreeFault {
    /// Adds the index of the tree.
    pub(super) fn in_tree(self, tree: usize) -> LoadError {
        LoadError::Tree { tree, fault: self }
    }
}

/// Why a model has no contributions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoContributions {
    /// The file does not say how many training rows reach its nodes.
    #[error("its file does not say how many training rows reach each node")]
    NoCovers,
    /// Leaves have linear models.
    #[error("its leaves have linear models")]
    LinearLeaves,
    /// Leaves have a value for each output.
    #[error("its leaves have one value for each output")]
    VectorLeaves,
    /// The trees have the features in another order than rows.
    #[error("its file does not say which of its features are categories")]
    NoPlaces,
    /// A feature is not a number.
    #[error("it was trained with categories")]
    Categories,
    /// Raw values are multiplied by a number, which the library does not explain either.
    #[error("its raw values have the scale {0}, for which CatBoost has no SHAP values")]
    Scale(String),
    /// The library has no contributions to some raw values.
    #[error("CatBoost has no SHAP values of all its raw values: {0}")]
    Outputs(&'static str),
    /// Nodes have several nodes above them, so that a row has several paths to them.
    #[error("tree {tree} is not a tree: several of its nodes lead to the same one")]
    SharedNodes {
        /// The index of the tree.
        tree: usize,
    },
    /// The weight of a leaf is not that of training rows.
    #[error("leaf {leaf} has the weight {weight}")]
    LeafWeight {
        /// The index among all leaves.
        leaf: usize,
        /// The weight, as text.
        weight: String,
    },
    /// A leaf has a value, but no training rows.
    #[error("leaf {leaf} has a value, but no training rows, for which CatBoost would count the rows of each request")]
    EmptyLeaf {
        /// The index among all leaves.
        leaf: usize,
    },
    /// The trees cannot be prepared.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A request that a model cannot answer.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum PredictError {
    /// Rows have too few or too many features.
    #[error("model has {expected} features, but each row has {found}")]
    FeatureCount {
        /// How many the model was trained with.
        expected: usize,
        /// How many the row has.
        found: usize,
    },
    /// The number of values does not match the shape.
    #[error("{found} values do not fit {rows} rows of {columns} columns")]
    Shape {
        /// Declared rows.
        rows: usize,
        /// Declared columns.
        columns: usize,
        /// Number of values.
        found: usize,
    },
    /// The caller does not wait for the result anymore.
    #[error("the prediction was cancelled")]
    Cancelled,
    /// The model has no contributions.
    #[error("the model has no contributions: {0}")]
    NoContributions(#[from] NoContributions),
    /// Linear boosters have no leaves.
    #[error("the model has no leaves: it is a linear booster (`gblinear`)")]
    NoLeaves,
    /// Only classifiers have probabilities.
    #[error("model is a {kind}, which has no class probabilities")]
    NoProbabilities {
        /// What the model is.
        kind: super::WrapperKind,
    },
}

/// Shortens a part of a file for an error message.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTE).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTE).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Shortens a part of a file that may not be text.
pub(super) fn quote_bytes(bytes: &[u8]) -> String {
    quote(&String::from_utf8_lossy(&bytes[..bytes.len().min(2 * QUOTE)]))
}
