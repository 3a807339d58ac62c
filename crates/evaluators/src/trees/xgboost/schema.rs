//! The model document, which JSON and UBJSON share. Unknown keys are skipped, because every release adds some.

use super::document::Document;
use super::json::Json;
use super::raw::{RawBooster, RawModel, RawTree, RawTrees, XgboostVersion};
use super::ubjson::Ubjson;
use crate::trees::error::{LoadError, TreeFault, quote};

/// Reads a model from JSON text.
pub(super) fn read_json(bytes: &[u8]) -> Result<RawModel, LoadError> {
    // Like the library, ignores what follows the document.
    read(&mut Json::new(bytes))
}

/// Reads a model from UBJSON.
pub(super) fn read_ubjson(bytes: &[u8]) -> Result<RawModel, LoadError> {
    read(&mut Ubjson::new(bytes))
}

/// The outermost object.
#[derive(Default)]
struct Top {
    learner: Option<RawModel>,
    version: Option<XgboostVersion>,
}

/// The parts of a gradient booster whose kind is not known yet.
#[derive(Default)]
struct BoosterParts {
    name: Option<String>,
    trees: Option<RawTrees>,
    weights: Option<Vec<f32>>,
    weight_drop: Option<Vec<f32>>,
    /// `dart` nests its trees one level deeper.
    inner: Option<Box<Self>>,
}

fn read<D: Document>(document: &mut D) -> Result<RawModel, LoadError> {
    let mut top = Top::default();
    document.object(&mut |document, key| match key {
        // A pickled booster has one more wrapper around the model.
        "Model" => document.object(&mut |document, key| top.read(document, key)),
        _ => top.read(document, key),
    })?;
    let mut model = top.learner.ok_or(LoadError::MissingField { field: "learner" })?;
    model.version = top.version.ok_or_else(without_version)?;
    Ok(model)
}

/// The library reads a file without its version, by rules of its own.
fn without_version() -> LoadError {
    LoadError::Unsupported { what: "a model", name: "without the version of XGBoost".to_owned() }
}

impl Top {
    fn read<D: Document>(&mut self, document: &mut D, key: &str) -> Result<(), LoadError> {
        match key {
            "learner" => self.learner = Some(read_learner(document)?),
            "version" => {
                let parts: Vec<_> = document.integers()?.into_iter().map(u32::try_from).collect();
                if let [Ok(major), Ok(minor), ..] = parts[..] {
                    self.version = Some(XgboostVersion(major, minor));
                }
            }
            _ => document.skip()?,
        }
        Ok(())
    }
}

fn read_learner<D: Document>(document: &mut D) -> Result<RawModel, LoadError> {
    let mut model = RawModel::default();
    let (mut parameters, mut objective, mut booster) = (false, None, None);
    document.object(&mut |document, key| match key {
        "attributes" => document.object(&mut |document, key| {
            if matches!(key, "best_iteration" | "scikit_learn") {
                let value = document.text()?;
                model.attributes.set(key, value);
                return Ok(());
            }
            document.skip()
        }),
        "feature_names" => {
            let mut names = Vec::new();
            document.array(&mut |document| {
                names.push(document.text()?);
                Ok(())
            })?;
            model.feature_names = (!names.is_empty()).then_some(names);
            Ok(())
        }
        "learner_model_param" => {
            parameters = true;
            read_parameters(document, &mut model)
        }
        "objective" => document.object(&mut |document, key| {
            if key == "name" {
                objective = Some(document.text()?);
                return Ok(());
            }
            document.skip()
        }),
        "gradient_booster" => {
            booster = Some(read_booster(document, true)?);
            Ok(())
        }
        _ => document.skip(),
    })?;
    if !parameters {
        return Err(LoadError::MissingField { field: "learner_model_param" });
    }
    model.objective = objective.ok_or(LoadError::MissingField { field: "objective" })?;
    model.booster = booster.ok_or(LoadError::MissingField { field: "gradient_booster" })?.resolve()?;
    Ok(model)
}

fn read_parameters<D: Document>(document: &mut D, model: &mut RawModel) -> Result<(), LoadError> {
    let (mut features, mut base_score) = (false, false);
    document.object(&mut |document, key| {
        match key {
            "base_score" => {
                model.base_score = base_scores(&document.text()?)?;
                base_score = true;
            }
            "num_class" => model.num_class = number("num_class", &document.text()?)?,
            "num_feature" => {
                model.num_feature = number("num_feature", &document.text()?)?;
                features = true;
            }
            "num_target" => model.num_target = number("num_target", &document.text()?)?,
            _ => document.skip()?,
        }
        Ok(())
    })?;
    match (features, base_score) {
        (false, _) => Err(LoadError::MissingField { field: "num_feature" }),
        (_, false) => Err(LoadError::MissingField { field: "base_score" }),
        (true, true) => Ok(()),
    }
}

/// Reads a gradient booster and, if `outer`, the one inside of it.
fn read_booster<D: Document>(document: &mut D, outer: bool) -> Result<BoosterParts, LoadError> {
    let mut parts = BoosterParts::default();
    document.object(&mut |document, key| {
        match key {
            "name" => parts.name = Some(document.text()?),
            "model" => {
                let (trees, weights) = read_model(document)?;
                parts.trees = Some(trees);
                parts.weights = weights;
            }
            "weight_drop" => parts.weight_drop = Some(document.floats()?),
            "gbtree" if outer => parts.inner = Some(Box::new(read_booster(document, false)?)),
            _ => document.skip()?,
        }
        Ok(())
    })?;
    Ok(parts)
}

impl BoosterParts {
    fn resolve(self) -> Result<RawBooster, LoadError> {
        let name = self.name.ok_or(LoadError::MissingField { field: "gradient_booster.name" })?;
        let missing = LoadError::MissingField { field: "gradient_booster.model" };
        match name.as_str() {
            "gbtree" => Ok(RawBooster::Trees(self.trees.ok_or(missing)?)),
            "dart" => {
                let mut trees = self.inner.and_then(|inner| inner.trees).ok_or(missing)?;
                let weights = self.weight_drop.ok_or(LoadError::MissingField { field: "weight_drop" })?;
                trees.weight_drop = Some(weights);
                Ok(RawBooster::Trees(trees))
            }
            "gblinear" => {
                let weights = self.weights.ok_or(LoadError::MissingField { field: "weights" })?;
                Ok(RawBooster::Linear { weights })
            }
            _ => Err(LoadError::Unsupported { what: "booster", name: quote(&name) }),
        }
    }
}

/// Reads a `model`: trees, or the weights of a linear model.
fn read_model<D: Document>(document: &mut D) -> Result<(RawTrees, Option<Vec<f32>>), LoadError> {
    let mut model = RawTrees { num_parallel_tree: 1, ..RawTrees::default() };
    let mut weights = None;
    document.object(&mut |document, key| {
        match key {
            "gbtree_model_param" => document.object(&mut |document, key| {
                if key == "num_parallel_tree" {
                    model.num_parallel_tree = number("num_parallel_tree", &document.text()?)?;
                    return Ok(());
                }
                document.skip()
            })?,
            "tree_info" => model.tree_info = document.integers()?,
            "iteration_indptr" => model.iteration_indptr = Some(document.integers()?),
            "trees" => document.array(&mut |document| {
                let tree = read_tree(document, model.trees.len())?;
                model.trees.push(tree);
                Ok(())
            })?,
            "weights" => weights = Some(document.floats()?),
            _ => document.skip()?,
        }
        Ok(())
    })?;
    Ok((model, weights))
}

fn read_tree<D: Document>(document: &mut D, index: usize) -> Result<RawTree, LoadError> {
    let mut tree = RawTree::default();
    document.object(&mut |document, key| {
        match key {
            "left_children" => tree.left = document.integers()?,
            "right_children" => tree.right = document.integers()?,
            "split_indices" => tree.feature = document.integers()?,
            "split_conditions" => tree.condition = document.floats()?,
            "default_left" => tree.default_left = document.integers()?,
            "split_type" => tree.split_type = document.integers()?,
            "categories" => tree.categories = document.integers()?,
            "categories_nodes" => tree.categories_nodes = document.integers()?,
            "categories_segments" => tree.categories_segments = document.integers()?,
            "categories_sizes" => tree.categories_sizes = document.integers()?,
            "base_weights" => tree.base_weights = document.floats()?,
            "sum_hessian" => tree.sum_hessian = document.floats()?,
            "leaf_weights" => tree.leaf_weights = Some(document.floats()?),
            "tree_param" => document.object(&mut |document, key| {
                if key != "size_leaf_vector" {
                    return document.skip();
                }
                let text = document.text()?;
                tree.leaf_vector = text.parse().map_err(|_| {
                    let (field, wanted) = ("size_leaf_vector", "a number");
                    TreeFault::Field { field, wanted, found: quote(&text) }.in_tree(index)
                })?;
                Ok(())
            })?,
            _ => document.skip()?,
        }
        Ok(())
    })?;
    Ok(tree)
}

fn number(field: &'static str, text: &str) -> Result<usize, LoadError> {
    text.parse().map_err(|_| LoadError::Field { field, wanted: "a number", found: quote(text) })
}

/// Reads `5E-1`, or since 3.1 `[5E-1,2E0]`.
fn base_scores(text: &str) -> Result<Vec<f32>, LoadError> {
    let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let field = "base_score";
    inner
        .unwrap_or(text)
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect::<Option<_>>()
        .ok_or_else(|| LoadError::Field { field, wanted: "a number or a list of numbers", found: quote(text) })
}
