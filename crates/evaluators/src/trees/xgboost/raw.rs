//! A model as its file describes it, in any format.

use std::fmt;

use crate::trees::error::LoadError;

/// The parts of a file that prediction needs.
#[derive(Debug, Default)]
pub(in crate::trees) struct RawModel {
    /// The version of the library that wrote the file.
    pub(super) version: XgboostVersion,
    pub(super) num_feature: usize,
    /// 0 unless there are several classes.
    pub(super) num_class: usize,
    pub(super) num_target: usize,
    pub(super) base_score: Vec<f32>,
    pub(super) feature_names: Option<Vec<String>>,
    pub(super) objective: String,
    pub(super) attributes: ModelAttributes,
    pub(super) booster: RawBooster,
}

/// Major and minor version; 0.0 for all versions before 1.0.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::trees) struct XgboostVersion(pub(super) u32, pub(super) u32);

impl fmt::Display for XgboostVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(0, _) => f.write_str("before 1.0"),
            Self(major, minor) => write!(f, "{major}.{minor}"),
        }
    }
}

/// The attributes that affect predictions.
#[derive(Debug, Default)]
pub(super) struct ModelAttributes {
    /// The round in which early stopping found the best score, as text.
    pub(super) best_iteration: Option<String>,
    /// The type of the scikit-learn wrapper.
    pub(super) estimator_type: Option<String>,
}

/// What computes the margin.
#[derive(Debug)]
pub(super) enum RawBooster {
    Trees(RawTrees),
    Linear { weights: Vec<f32> },
}

/// The trees of `gbtree` and `dart`.
#[derive(Debug, Default)]
pub(super) struct RawTrees {
    pub(super) trees: Vec<RawTree>,
    /// The output that each tree adds to.
    pub(super) tree_info: Vec<i64>,
    pub(super) num_parallel_tree: usize,
    /// Where the trees of each round start; since 2.0.
    pub(super) iteration_indptr: Option<Vec<i64>>,
    /// `dart` only.
    pub(super) weight_drop: Option<Vec<f32>>,
}

/// One tree, as parallel arrays over its nodes.
#[derive(Debug, Default)]
pub(super) struct RawTree {
    pub(super) left: Vec<i64>,
    pub(super) right: Vec<i64>,
    pub(super) feature: Vec<i64>,
    pub(super) condition: Vec<f32>,
    pub(super) default_left: Vec<i64>,
    /// 1 where a split is categorical; empty in old files.
    pub(super) split_type: Vec<i64>,
    pub(super) categories: Vec<i64>,
    pub(super) categories_nodes: Vec<i64>,
    pub(super) categories_segments: Vec<i64>,
    pub(super) categories_sizes: Vec<i64>,
    /// The sum of the second derivatives of each node's training rows; empty if the file has none.
    pub(super) sum_hessian: Vec<f32>,
    /// The number of values in a leaf; 0 and 1 both mean one.
    pub(super) leaf_vector: usize,
    /// Vector leaves of 2.x, by node.
    pub(super) base_weights: Vec<f32>,
    /// Vector leaves of 3.x, by leaf.
    pub(super) leaf_weights: Option<Vec<f32>>,
}

impl Default for RawBooster {
    fn default() -> Self {
        Self::Trees(RawTrees::default())
    }
}

impl RawModel {
    /// Returns the number of features of a row.
    pub(in crate::trees) fn num_feature(&self) -> usize {
        self.num_feature
    }

    /// Discards the attributes of the library's wrappers: the best round, and the type of the estimator.
    pub(in crate::trees) fn forget_wrapper(&mut self) {
        self.attributes.best_iteration = None;
        self.attributes.estimator_type = None;
    }

    /// Takes the names of the features, if there are any.
    pub(in crate::trees) fn take_feature_names(&mut self) -> Result<Option<Vec<String>>, LoadError> {
        let names = self.feature_names.take();
        let found = names.as_ref().map_or(self.num_feature, Vec::len);
        if found == self.num_feature {
            return Ok(names);
        }
        // The library predicts arrays with it, and checks the names of data frames by rules of its own.
        let name = format!("with {found} names for {} features", self.num_feature);
        Err(LoadError::Unsupported { what: "a model", name })
    }
}

impl ModelAttributes {
    /// Sets an attribute, if prediction needs it.
    pub(super) fn set(&mut self, key: &str, value: String) {
        match key {
            "best_iteration" => self.best_iteration = Some(value),
            "scikit_learn" => self.estimator_type = estimator_type(&value),
            _ => {}
        }
    }
}

/// Finds the type of the wrapper in its parameters, which may contain a bare NaN and are then not valid JSON.
fn estimator_type(parameters: &str) -> Option<String> {
    let (_, rest) = parameters.split_once("\"_estimator_type\"")?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (name, _) = value.split_once('"')?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::estimator_type;

    #[test]
    fn estimator_type_is_found_next_to_bare_nan() {
        let parameters = r#"{"missing": NaN, "_estimator_type": "classifier", "n": 3}"#;
        assert_eq!(estimator_type(parameters).as_deref(), Some("classifier"));
        assert_eq!(estimator_type(r#"{"missing": NaN}"#), None);
        assert_eq!(estimator_type(r#"{"_estimator_type": null}"#), None);
    }
}
