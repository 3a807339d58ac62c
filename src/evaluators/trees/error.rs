//! Why a model file was refused, and why a prediction was.

use thiserror::Error;

/// Longest piece of a model file that an error message quotes, in characters.
const QUOTE: usize = 48;

/// A model file that is broken, or that needs something this evaluator does not have.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file ends too early.
    #[error("file ends at byte {offset}, inside {reading}")]
    Truncated {
        /// Length of what there is.
        offset: usize,
        /// What was being read.
        reading: &'static str,
    },
    /// Something else stands where the format wants something definite.
    #[error("byte {offset}: expected {wanted}, found `{found}`")]
    Syntax {
        /// Where, from the start of the file.
        offset: usize,
        /// What the format wants there.
        wanted: &'static str,
        /// The beginning of what stands there.
        found: String,
    },
    /// Objects or arrays stand in one another more deeply than any model needs.
    #[error("byte {offset}: nested more than {limit} levels deep")]
    Nesting {
        /// Where the limit was passed.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// A field that the model cannot do without is not there.
    #[error("field `{field}` is missing")]
    MissingField {
        /// The name in the file.
        field: &'static str,
    },
    /// A field has a value that cannot be.
    #[error("field `{field}`: expected {wanted}, found `{found}`")]
    Field {
        /// The name in the file.
        field: &'static str,
        /// What would have been valid.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// Two parts of the file disagree about a count.
    #[error("`{field}` has {found} entries where {wanted} belong")]
    Count {
        /// The name in the file.
        field: &'static str,
        /// How many the rest of the file implies.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// A tree is damaged.
    #[error("tree {tree}: {fault}")]
    Tree {
        /// Index of the tree in the file.
        tree: usize,
        /// The damage.
        #[source]
        fault: TreeFault,
    },
    /// The file asks for something that cannot be answered exactly.
    #[error("{what} `{name}` is not supported")]
    Unsupported {
        /// The kind of thing.
        what: &'static str,
        /// Its name in the file.
        name: String,
    },
    /// The model has more nodes or features than can be addressed.
    #[error("model is too large: {count} {what}, at most {limit} are possible")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many are possible.
        limit: usize,
    },
}

impl LoadError {
    /// Tells whether the file may be right, and only holds what is not evaluated here.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unsupported { .. } | Self::TooLarge { .. })
    }
}

/// What is wrong with one tree.
#[derive(Debug, Error)]
pub enum TreeFault {
    /// A field that the tree cannot do without is not there.
    #[error("field `{field}` is missing")]
    MissingField {
        /// The name in the file.
        field: &'static str,
    },
    /// A field has a value that cannot be.
    #[error("field `{field}`: expected {wanted}, found `{found}`")]
    Field {
        /// The name in the file.
        field: &'static str,
        /// What would have been valid.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// An array has another length than the tree's size implies.
    #[error("`{field}` has {found} entries where {wanted} belong")]
    Count {
        /// The name in the file.
        field: &'static str,
        /// How many the tree needs.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// The tree has no node at all.
    #[error("it has no node")]
    Empty,
    /// A child does not exist.
    #[error("node {node} has child {child}, but there are {nodes} nodes")]
    ChildOutOfRange {
        /// The parent.
        node: usize,
        /// The index that leads nowhere.
        child: i64,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A node has two parents, or is its own ancestor.
    #[error("node {child} is reached twice, at last from node {node}")]
    Shared {
        /// The second parent.
        node: usize,
        /// The node.
        child: usize,
    },
    /// Some nodes hang on no parent.
    #[error("{found} of {nodes} nodes cannot be reached")]
    Unreachable {
        /// How many hang loose.
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
    /// A split's set of categories is not where the tree says.
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
    /// The tree adds to an output that the model does not have.
    #[error("it adds to output {output}, but there are {outputs} outputs")]
    OutputOutOfRange {
        /// The output.
        output: i64,
        /// How many there are.
        outputs: usize,
    },
}

impl TreeFault {
    /// Names the tree.
    pub(super) fn in_tree(self, tree: usize) -> LoadError {
        LoadError::Tree { tree, fault: self }
    }
}

/// A request that a model cannot answer.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PredictError {
    /// Rows have too few or too many features.
    #[error("model has {expected} features, but each row has {found}")]
    FeatureCount {
        /// What the model was trained with.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// The values do not fill the declared shape.
    #[error("{rows} rows of {columns} columns need other than {found} values")]
    Shape {
        /// Declared rows.
        rows: usize,
        /// Declared columns.
        columns: usize,
        /// Values that came.
        found: usize,
    },
    /// Only a classifier has probabilities.
    #[error("model is a {kind}, which has no class probabilities")]
    NoProbabilities {
        /// What the model is.
        kind: super::WrapperKind,
    },
}

/// Shortens a piece of a file for an error message.
pub(super) fn quote(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTE).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTE).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Shortens a piece of a file that may not be text.
pub(super) fn quote_bytes(bytes: &[u8]) -> String {
    quote(&String::from_utf8_lossy(&bytes[..bytes.len().min(2 * QUOTE)]))
}
