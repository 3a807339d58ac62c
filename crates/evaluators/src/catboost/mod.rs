//! `CatBoost`'s models, evaluated natively.
//!
//! A [`CatBoostModel`] is loaded from the bytes of a `.cbm` file, or of a `.json` file that the library exported. Both are
//! read into one form (`raw`), which is compiled: `trees` has the trees, `ctr` the statistics of categories, `objective`
//! what the loss function makes of raw values. Raw values, labels and leaves are equal to the library's in every bit.
//!
//! Files are untrusted: loading any file returns a model or a [`LoadError`], with memory in proportion to the file, and a
//! loaded model can be evaluated on any table.
//!
//! What is not evaluated exactly is rejected by name: features of text and embeddings, losses of users, and models with
//! other parts than tables of categories.

mod columns;
mod core;
mod ctr;
mod evaluator;
mod explain;
mod flatbuffer;
mod json;
mod objective;
mod raw;
mod trees;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use self::columns::Column;
use self::evaluator::Evaluator;
use self::explain::Explainer;
use self::objective::Objective;
use self::raw::{Labels, RawModel};
use crate::contributions::TableExtent;
use crate::table::{Elements, TableData};
pub use crate::trees::LoadError;
use crate::trees::error::quote;
use crate::trees::{DEFAULT_CONTRIBUTION_LIMIT, NoContributions};

/// A compiled model.
#[derive(Debug)]
pub struct CatBoostModel {
    /// The features in the order of columns. Numbers that no feature has are columns that are not read.
    features: Vec<CatBoostFeature>,
    version: Option<String>,
    evaluator: Evaluator,
    /// Prepared by the first request for contributions.
    explainer: OnceLock<Result<Explainer, NoContributions>>,
    /// The most bytes of it.
    contribution_limit: usize,
}

/// A feature of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatBoostFeature {
    /// The name, or the number if it has none.
    pub name: String,
    /// The number of its column in an array.
    pub column: usize,
    pub is_categorical: bool,
    /// Whether the name was given by the user.
    pub is_named: bool,
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatBoostOutput {
    /// Labels of a classifier, `[rows, 1]`, or 0 and 1 for each of several labels; predictions of another model in double precision.
    Predict,
    /// The probabilities of a classifier in double precision, `[rows, classes]`.
    Probability,
    /// The sums of trees in double precision, `[rows, outputs]`: `RawFormulaVal`.
    Raw,
    /// The number of the leaf in each tree, `[rows, trees]`.
    Leaf,
    /// What each column contributes to each raw value, and then what is expected without known columns, in double precision,
    /// `[rows, outputs * (columns + 1)]`: `ShapValues`.
    Contributions,
}

/// A request that a model cannot answer.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PredictError {
    /// Columns are missing from a frame.
    #[error("the request lacks the columns {}, which this model was trained with", quoted(columns))]
    MissingColumns { columns: Vec<String> },
    /// An array has too few columns.
    #[error("the request has {found} columns, but this model expects {expected}")]
    Columns { expected: usize, found: usize },
    /// A column of categories has floating-point numbers.
    #[error(
        "column `{}` has floating-point numbers, but this model was trained with categories in it: send integers or texts",
        quote_value(column)
    )]
    FractionalCategory { column: String },
    /// A column of categories has a missing value.
    #[error(
        "column `{}` has a missing value, but this model was trained with categories in it: send integers or texts",
        quote_value(column)
    )]
    MissingCategory { column: String },
    /// A column of numbers has another text.
    #[error("column `{}` has `{value}`, but this model was trained with numbers in it", quote_value(column))]
    NotNumber { column: String, value: String },
    /// The table has another form than columns of values.
    #[error("the request is sparse, but this model expects a table")]
    Sparse,
    /// Only classifiers have probabilities.
    #[error("this model is not a classifier, so it has no class probabilities")]
    NoProbabilities,
    /// The model has no contributions.
    #[error("the model has no contributions: {0}")]
    NoContributions(#[from] NoContributions),
    /// The caller does not wait for the result anymore.
    #[error("the prediction was cancelled")]
    Cancelled,
}

/// A prediction, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct CatBoostPrediction {
    pub elements: Elements<'static>,
    pub columns: usize,
}

impl CatBoostModel {
    /// Loads a file of either format, which is detected from the content.
    ///
    /// # Errors
    ///
    /// Fails if the file is damaged, or if it needs something that is not supported.
    pub fn load(file: &Bytes) -> Result<Self, LoadError> {
        let model = if file.starts_with(core::SIGNATURE) { core::read(file)? } else { json::read(file)? };
        let features = features(&model)?;
        let place = |column: usize| features.partition_point(|feature| feature.column < column);
        let version = model.info.version.as_deref().and_then(version);
        let evaluator = Evaluator::new(model, file.len(), place)?;
        let (explainer, contribution_limit) = (OnceLock::new(), DEFAULT_CONTRIBUTION_LIMIT);
        Ok(Self { features, version, evaluator, explainer, contribution_limit })
    }

    /// Sets how many bytes may be prepared for contributions. A model that needs more has none.
    pub fn set_contribution_limit(&mut self, bytes: usize) {
        self.contribution_limit = bytes;
    }

    /// Checks quickly whether the model may have contributions.
    ///
    /// # Errors
    ///
    /// Names what it lacks. The trees, the weights of their leaves and the limit are only checked by the first prediction of
    /// contributions.
    pub fn check_contributions(&self) -> Result<(), NoContributions> {
        self.evaluator.check_contributions()
    }

    /// Returns whether contributions have been prepared, or are known not to exist.
    pub fn has_prepared_contributions(&self) -> bool {
        self.explainer.get().is_some()
    }

    /// Returns how many bytes contributions take once they are prepared, 0 if the model has none. Takes as long as preparing them.
    pub fn contribution_bytes(&self) -> usize {
        self.prepare_contributions(TableExtent::Bytes).map_or(0, |explainer| explainer.bytes())
    }

    fn prepare_contributions(&self, extent: TableExtent) -> Result<Explainer, NoContributions> {
        // The table of contributions numbers columns in 32 bits.
        let column = |feature: usize| u32::try_from(self.features[feature].column).unwrap_or(u32::MAX);
        self.evaluator.explainer(self.n_columns(), column, self.contribution_limit, extent)
    }

    fn explainer(&self) -> Result<&Explainer, &NoContributions> {
        self.explainer.get_or_init(|| self.prepare_contributions(TableExtent::Whole)).as_ref()
    }

    /// Returns the features in the order of their columns.
    pub fn features(&self) -> &[CatBoostFeature] {
        &self.features
    }

    /// Returns the names of the columns, if the user gave names, and all columns are features.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        let is_named = self.features.len() == self.n_columns() && self.features.iter().any(|feature| feature.is_named);
        is_named.then(|| self.features.iter().map(|feature| feature.name.clone()).collect())
    }

    /// Returns the number of columns of an array.
    pub fn n_columns(&self) -> usize {
        self.features.last().map_or(0, |feature| feature.column.saturating_add(1))
    }

    /// Returns the version of the library that wrote the model, if the file has it.
    pub fn library_version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns whether the model is a classifier.
    pub fn is_classifier(&self) -> bool {
        self.evaluator.objective.is_classifier()
    }

    /// Returns whether labels are texts.
    pub fn has_text_labels(&self) -> bool {
        matches!(
            &self.evaluator.objective,
            Objective::Binary { labels: Labels::Texts(_), .. } | Objective::MultiClass { labels: Labels::Texts(_), .. }
        )
    }

    /// Returns whether the library's result has one dimension: a number or label per row.
    pub fn predicts_list(&self, output: CatBoostOutput) -> bool {
        let is_multiclass = matches!(self.evaluator.objective, Objective::MultiClass { .. });
        self.columns(output) == Some(1) && !(is_multiclass && output == CatBoostOutput::Predict)
    }

    /// Returns the number of columns of an output, or `None` if the model does not have it.
    pub fn columns(&self, output: CatBoostOutput) -> Option<usize> {
        if output == CatBoostOutput::Contributions {
            return self.n_columns().checked_add(1)?.checked_mul(self.n_outputs());
        }
        self.evaluator.columns(output)
    }

    /// Returns the number of raw values of a row.
    pub fn n_outputs(&self) -> usize {
        self.evaluator.objective.columns(self.evaluator.forest.dimension)
    }

    /// Estimates how long an output of this many rows takes on one thread, within a factor of a few.
    pub fn estimate(&self, rows: usize, output: CatBoostOutput) -> Duration {
        let nanoseconds = match output {
            CatBoostOutput::Contributions => self.evaluator.contribution_cost(rows),
            _ => self.evaluator.cost(rows),
        };
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Evaluates the model on every row, until `stop` is set.
    ///
    /// The columns of a frame are found by name if the features have names; further columns are ignored.
    ///
    /// # Errors
    ///
    /// Fails if columns are missing or have values that the model cannot read, if the model lacks the output, or if `stop`
    /// was set.
    pub fn predict(
        &self,
        table: &TableData<'_>,
        output: CatBoostOutput,
        stop: &AtomicBool,
    ) -> Result<CatBoostPrediction, PredictError> {
        let columns = self.columns(output).ok_or(PredictError::NoProbabilities)?;
        let input = self.input(table)?;
        if output == CatBoostOutput::Contributions {
            let explainer = self.explainer().map_err(Clone::clone)?;
            let found = self.evaluator.contributions(explainer, &input, table.rows(), stop)?;
            return Ok(CatBoostPrediction { elements: Elements::F64(found.into()), columns });
        }
        let elements = self.evaluator.predict(&input, table.rows(), output, stop)?;
        Ok(CatBoostPrediction { elements, columns })
    }

    /// Returns the column of each feature.
    fn input<'a>(&'a self, table: &'a TableData<'_>) -> Result<Vec<Column<'a>>, PredictError> {
        match table {
            TableData::Table(table) => {
                self.check_columns(table.columns())?;
                let column = |feature: &'a CatBoostFeature| Column {
                    name: &feature.name,
                    elements: table.elements(),
                    first: feature.column,
                    stride: table.columns(),
                };
                Ok(self.features.iter().map(column).collect())
            }
            TableData::Frame(frame) => {
                let places = self.places(frame.names())?;
                let column = |(feature, place): (&'a CatBoostFeature, usize)| Column {
                    name: &feature.name,
                    elements: &frame.columns()[place],
                    first: 0,
                    stride: 1,
                };
                Ok(self.features.iter().zip(places).map(column).collect())
            }
            TableData::Sparse(_) => Err(PredictError::Sparse),
        }
    }

    fn check_columns(&self, found: usize) -> Result<(), PredictError> {
        let expected = self.n_columns();
        if found < expected { Err(PredictError::Columns { expected, found }) } else { Ok(()) }
    }

    /// Returns the place of each feature among columns with these names.
    ///
    /// # Errors
    ///
    /// Fails if columns are missing.
    pub fn places<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<usize>, PredictError> {
        if !self.features.iter().any(|feature| feature.is_named) {
            self.check_columns(names.len())?;
            return Ok(self.features.iter().map(|feature| feature.column).collect());
        }
        let in_order = names.len() == self.features.len()
            && names.iter().zip(&self.features).all(|(name, feature)| name.as_ref() == feature.name);
        if in_order {
            return Ok((0..names.len()).collect());
        }
        let found: HashMap<&str, usize> = names.iter().map(AsRef::as_ref).zip(0..).collect();
        let places = self.features.iter().map(|feature| found.get(feature.name.as_str()).copied());
        if let Some(places) = places.clone().collect() {
            return Ok(places);
        }
        let missing = self.features.iter().zip(places).filter(|(_, place)| place.is_none());
        Err(PredictError::MissingColumns { columns: missing.map(|(feature, _)| feature.name.clone()).collect() })
    }
}

/// Returns all features in the order of their columns.
fn features(model: &RawModel) -> Result<Vec<CatBoostFeature>, LoadError> {
    let feature = |name: &str, column: usize, is_categorical| {
        let number = column.to_string();
        let is_named = !name.is_empty() && name != number;
        CatBoostFeature {
            name: if name.is_empty() { number } else { name.to_owned() },
            column,
            is_categorical,
            is_named,
        }
    };
    let floats = model.floats.iter().map(|found| feature(&found.name, found.flat, false));
    let categories = model.categories.iter().map(|found| feature(&found.name, found.flat, true));
    let mut features: Vec<_> = floats.chain(categories).collect();
    features.sort_by_key(|feature| feature.column);
    columns::check_unique("column", features.iter().map(|feature| feature.column).collect())?;
    Ok(features)
}

/// Returns the version in a text such as `Branch: tags/v1.2.10`.
fn version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("tags/v")?;
    let version: String = rest.chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
    (!version.is_empty()).then_some(version)
}

/// Shortens a value of a request for an error message.
fn quote_value(value: &str) -> String {
    quote(value)
}

/// Lists some names for an error message.
fn quoted(names: &[String]) -> String {
    const MOST: usize = 10;
    let mut list: Vec<_> = names.iter().take(MOST).map(|name| format!("`{}`", quote(name))).collect();
    if names.len() > MOST {
        list.push(format!("and {} more", names.len() - MOST));
    }
    list.join(", ")
}
