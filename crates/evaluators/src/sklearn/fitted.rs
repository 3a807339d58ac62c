//! Reads the attributes of pickled estimators, with errors that name class and attribute.

use std::cell::Cell;
use std::sync::Arc;

use super::error::LoadError;
use super::estimator::Estimator;
use crate::pickle::{ArrayNumbers, Dtype, ElementKind, NumpyArray, PickleValue};
use crate::table::{Elements, IntType, NumericType};
use crate::trees;

/// The library whose version decides how an estimator is evaluated.
pub(super) const LIBRARY: &str = "sklearn";

/// The methods of the estimators that are evaluated natively, of all versions, and of the wrappers of other libraries.
const METHODS: &[&str] = &[
    "aic",
    "apply",
    "bic",
    "build_analyzer",
    "build_preprocessor",
    "build_tokenizer",
    "correct_covariance",
    "cost_complexity_pruning_path",
    "decision_function",
    "decision_path",
    "decode",
    "densify",
    "diag",
    "error_norm",
    "evals_result",
    "fit",
    "fit_predict",
    "fit_transform",
    "get_booster",
    "get_covariance",
    "get_depth",
    "get_feature_names",
    "get_feature_names_out",
    "get_metadata_routing",
    "get_n_leaves",
    "get_num_boosting_rounds",
    "get_params",
    "get_precision",
    "get_stop_words",
    "get_support",
    "get_xgb_params",
    "gibbs",
    "inverse_transform",
    "kneighbors",
    "kneighbors_graph",
    "latent_mean_and_variance",
    "load_model",
    "log_marginal_likelihood",
    "mahalanobis",
    "partial_fit",
    "path",
    "perplexity",
    "predict",
    "predict_joint_log_proba",
    "predict_log_proba",
    "predict_proba",
    "radius_neighbors",
    "radius_neighbors_graph",
    "reconstruction_error",
    "reweight_covariance",
    "sample",
    "sample_y",
    "save_model",
    "score",
    "score_samples",
    "set_callbacks",
    "set_output",
    "set_params",
    "sparsify",
    "staged_decision_function",
    "staged_predict",
    "staged_predict_proba",
    "staged_score",
    "transform",
];

/// Private attributes with functions that only `fit` calls: objectives of LightGBM, the algorithm of
/// k-means, and the scorer of early stopping.
const OF_FITTING: &[&str] = &["_fobj", "_kmeans_single", "_objective", "_scorer"];

/// The libraries whose objects private attributes hold.
const KNOWN_LIBRARIES: &[&str] =
    &["builtins", "collections", "lightgbm", "numpy", "pandas", "scipy", "sklearn", "xgboost"];

/// Checks that no attribute of an instance replaces a method of its class, which Python would call: one with the name of a method, or a
/// private one with a function or another object that can be called.
///
/// Objects that are not estimators, such as scorers, have functions of their own in private attributes.
fn check_methods(value: PickleValue<'_>, class: &str, is_estimator: bool) -> Result<(), LoadError> {
    let is_replaced = |(name, value): &(&str, PickleValue<'_>)| {
        METHODS.binary_search(name).is_ok()
            || (is_estimator && name.starts_with('_') && !OF_FITTING.contains(name) && may_be_called(*value))
    };
    match value.attributes().into_iter().find(is_replaced) {
        None => Ok(()),
        Some((method, _)) => Err(LoadError::Method { class: class.to_owned(), method: method.to_owned() }),
    }
}

/// What files call to restore a method of an object, and a function of NumPy.
const FUNCTIONS: &[&str] = &["builtins.getattr", "numpy.core._ufunc_reconstruct"];

/// Returns whether a value is a function or method, or an object of a class that nothing is known of.
fn may_be_called(value: PickleValue<'_>) -> bool {
    let is_known = |path: &str| KNOWN_LIBRARIES.contains(&path.split('.').next().unwrap_or_default());
    value.global().is_some() || value.class().is_some_and(|class| FUNCTIONS.contains(&class) || !is_known(class))
}

/// The version of scikit-learn that wrote an estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SklearnVersion(pub(super) u16, pub(super) u16);

impl SklearnVersion {
    const OLDEST: Self = Self(0, 24);
    const NEWEST: Self = Self(1, 9);

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    fn is_known(self) -> bool {
        (Self::OLDEST..=Self::NEWEST).contains(&self)
    }
}

/// How many more elements may be made from a file. An object of a pickle may be referenced many times, and each
/// reference is built separately.
#[derive(Debug)]
pub(super) struct LoadBudget {
    elements: Cell<usize>,
}

impl LoadBudget {
    /// Creates a budget for a file of this size: several times of what honest models need.
    pub(super) fn new(bytes: usize) -> Self {
        Self { elements: Cell::new(bytes.saturating_mul(8).saturating_add(1 << 20)) }
    }

    /// Spends a part of the budget. Fails if not enough is left.
    pub(super) fn spend(&self, elements: usize) -> Result<(), LoadError> {
        self.elements.set(self.elements.get().checked_sub(elements).ok_or(LoadError::TooLarge)?);
        Ok(())
    }
}

/// Builds an estimator and the estimators inside of it. The last argument is the version of the object that contains it.
pub(super) type LoadNested =
    fn(PickleValue<'_>, LoadContext<'_>, Option<SklearnVersion>) -> Result<Estimator, LoadError>;

/// The context in which the parts of one file are loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadContext<'a> {
    pub(super) budget: &'a LoadBudget,
    /// Loads the estimators inside of an estimator: any of the table of classes, which families do not know.
    pub(super) load: LoadNested,
    /// How many estimators enclose this one.
    pub(super) depth: usize,
}

/// A matrix of a fitted estimator, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FittedMatrix {
    pub(super) values: Vec<f64>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Whether the matrix has single precision in the file.
    pub(super) single: bool,
}

/// A pickled object of which attributes are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct FittedObject<'a> {
    value: PickleValue<'a>,
    class: &'a str,
    version: SklearnVersion,
    context: LoadContext<'a>,
}

impl<'a> FittedObject<'a> {
    /// Wraps an estimator. `inherited` is the version of the object that contains it.
    pub(super) fn new(
        value: PickleValue<'a>,
        context: LoadContext<'a>,
        inherited: Option<SklearnVersion>,
    ) -> Result<Self, LoadError> {
        let unknown = || LoadError::Class { found: value.describe().to_owned() };
        let class = value.class().ok_or_else(unknown)?;
        check_methods(value, class, true)?;
        let written = value.attribute("_sklearn_version").and_then(PickleValue::as_str);
        let version = written.map_or(inherited, SklearnVersion::parse);
        // Classes of other libraries do not store the version and do not depend on it.
        let foreign = class.split('.').next() != Some(LIBRARY);
        let version = if foreign { version.or(Some(SklearnVersion::NEWEST)) } else { version };
        match version {
            Some(version) if version.is_known() => Ok(Self { value, class, version, context }),
            _ => {
                let found = written.unwrap_or("of an unknown version").to_owned();
                Err(LoadError::Version { class: class.to_owned(), found })
            }
        }
    }

    /// Wraps an object that belongs to this one and has no version of its own.
    pub(super) fn part(&self, value: PickleValue<'a>) -> Result<Self, LoadError> {
        let class = value.class().ok_or_else(|| LoadError::Class { found: value.describe().to_owned() })?;
        check_methods(value, class, false)?;
        Ok(Self { value, class, ..*self })
    }

    /// Wraps an estimator that belongs to this one, and that is not evaluated by itself.
    pub(super) fn inner(&self, value: PickleValue<'a>) -> Result<Self, LoadError> {
        let inner = self.part(value)?;
        check_methods(value, inner.class, true)?;
        Ok(inner)
    }

    /// Wraps an object of the class `name` that only holds data: its class has no methods that attributes could replace.
    pub(super) fn record(&self, value: PickleValue<'a>, name: &str) -> Result<Self, LoadError> {
        let class =
            value.class().filter(|class| class.starts_with("sklearn.") && class.rsplit('.').next() == Some(name));
        let class = class.ok_or_else(|| LoadError::Class { found: value.describe().to_owned() })?;
        Ok(Self { value, class, ..*self })
    }

    pub(super) const fn value(&self) -> PickleValue<'a> {
        self.value
    }

    /// Returns the full path of the class.
    pub(super) const fn class(&self) -> &'a str {
        self.class
    }

    pub(super) const fn version(&self) -> SklearnVersion {
        self.version
    }

    /// Builds an estimator that is a part of this one.
    pub(super) fn estimator(&self, value: PickleValue<'a>) -> Result<Estimator, LoadError> {
        let context = LoadContext { depth: self.context.depth + 1, ..self.context };
        (context.load)(value, context, Some(self.version))
    }

    /// Returns an attribute that exists and is not `None`.
    pub(super) fn get(&self, attribute: &str) -> Option<PickleValue<'a>> {
        self.value.attribute(attribute).filter(|value| !value.is_none())
    }

    pub(super) fn require(&self, attribute: &'static str) -> Result<PickleValue<'a>, LoadError> {
        self.get(attribute).ok_or_else(|| LoadError::Missing { class: self.class.to_owned(), attribute })
    }

    /// Creates the error for an attribute that is not what was expected.
    pub(super) fn unexpected(&self, attribute: &'static str, wanted: &'static str) -> LoadError {
        let found = self.value.attribute(attribute).map_or("nothing", PickleValue::describe).to_owned();
        LoadError::Attribute { class: self.class.to_owned(), attribute, wanted, found }
    }

    /// Creates the error for a parameter with an unsupported value.
    pub(super) fn unsupported(&self, parameter: &'static str) -> LoadError {
        let value = self.value.attribute(parameter);
        let text = value.and_then(|value| {
            let number = || value.as_f64().map(|number| number.to_string());
            value.as_str().map(str::to_owned).or_else(number)
        });
        let value = text.unwrap_or_else(|| value.map_or("nothing", PickleValue::describe).to_owned());
        LoadError::Parameter { class: self.class.to_owned(), parameter, value }
    }

    /// Creates the error for a booster of another library that was rejected.
    pub(super) fn booster(&self, error: trees::LoadError) -> LoadError {
        LoadError::Booster { class: self.class.to_owned(), error: Box::new(error) }
    }

    pub(super) fn text(&self, attribute: &'static str) -> Result<&'a str, LoadError> {
        self.require(attribute)?.as_str().ok_or_else(|| self.unexpected(attribute, "text"))
    }

    /// Returns a text, or `None` if the attribute is something else.
    pub(super) fn text_if(&self, attribute: &str) -> Option<&'a str> {
        self.get(attribute).and_then(PickleValue::as_str)
    }

    /// Returns a Boolean, which is false if the attribute is missing.
    pub(super) fn flag(&self, attribute: &'static str) -> Result<bool, LoadError> {
        match self.get(attribute) {
            None => Ok(false),
            Some(value) => {
                value.as_i64().map(|flag| flag != 0).ok_or_else(|| self.unexpected(attribute, "True or False"))
            }
        }
    }

    pub(super) fn number(&self, attribute: &'static str) -> Result<f64, LoadError> {
        self.require(attribute)?.as_f64().ok_or_else(|| self.unexpected(attribute, "a number"))
    }

    pub(super) fn size(&self, attribute: &'static str) -> Result<usize, LoadError> {
        let integer = self.require(attribute)?.as_i64().and_then(|integer| usize::try_from(integer).ok());
        integer.ok_or_else(|| self.unexpected(attribute, "a count"))
    }

    /// Reads `n_features_in_`, which older versions call `n_features_`.
    pub(super) fn n_features(&self) -> Result<usize, LoadError> {
        let name = if self.get("n_features_in_").is_some() { "n_features_in_" } else { "n_features_" };
        match self.size(name)? {
            0 => Err(self.unexpected(name, "at least one feature")),
            features => Ok(features),
        }
    }

    /// Spends a part of the file's budget.
    pub(super) fn spend(&self, elements: usize) -> Result<(), LoadError> {
        self.context.budget.spend(elements)
    }

    /// Returns an array of `wanted` counts.
    pub(super) fn sizes(&self, attribute: &'static str, wanted: usize) -> Result<Vec<usize>, LoadError> {
        let (numbers, _) = self.numbers(attribute, self.require(attribute)?)?;
        self.check_count(attribute, wanted, numbers.len())?;
        let sizes =
            numbers.to_i64().and_then(|sizes| sizes.into_iter().map(|size| usize::try_from(size).ok()).collect());
        sizes.ok_or_else(|| self.unexpected(attribute, "counts"))
    }

    fn numbers(
        &self,
        attribute: &'static str,
        value: PickleValue<'a>,
    ) -> Result<(ArrayNumbers<'a>, &'a [usize]), LoadError> {
        let wanted = || self.unexpected(attribute, "an array of numbers");
        let array = value.as_array().ok_or_else(wanted)?;
        let numbers = array.numbers().ok_or_else(wanted)?;
        self.context.budget.spend(numbers.len())?;
        Ok((numbers, &array.shape))
    }

    /// Returns indices below `limit`, from a part of an attribute.
    pub(super) fn indices(
        &self,
        attribute: &'static str,
        value: PickleValue<'a>,
        limit: usize,
    ) -> Result<Vec<usize>, LoadError> {
        let integers = match value.items() {
            Some(items) => items.into_iter().map(PickleValue::as_i64).collect::<Option<Vec<_>>>(),
            None => self.numbers(attribute, value)?.0.to_i64(),
        };
        let place = |place: i64| usize::try_from(place).ok().filter(|&place| place < limit);
        let places: Option<Vec<usize>> = integers.and_then(|places| places.into_iter().map(place).collect());
        let places = places.ok_or_else(|| self.unexpected(attribute, "valid indices"))?;
        self.context.budget.spend(places.len())?;
        Ok(places)
    }

    /// Returns all numbers of an array of any rank, of a list or of a tuple, or the only number of a scalar.
    pub(super) fn floats(&self, attribute: &'static str) -> Result<Vec<f64>, LoadError> {
        let value = self.require(attribute)?;
        if let Some(number) = value.as_f64() {
            return Ok(vec![number]);
        }
        if let Some(items) = value.items() {
            self.context.budget.spend(items.len())?;
            let numbers = items.into_iter().map(PickleValue::as_f64).collect::<Option<_>>();
            return numbers.ok_or_else(|| self.unexpected(attribute, "numbers"));
        }
        Ok(self.numbers(attribute, value)?.0.to_f64())
    }

    /// Returns `wanted` numbers.
    pub(super) fn floats_of(&self, attribute: &'static str, wanted: usize) -> Result<Vec<f64>, LoadError> {
        let floats = self.floats(attribute)?;
        self.check_count(attribute, wanted, floats.len())?;
        Ok(floats)
    }

    /// Checks the length of an attribute against the rest of the estimator.
    pub(super) fn check_count(&self, attribute: &'static str, wanted: usize, found: usize) -> Result<(), LoadError> {
        if wanted == found {
            return Ok(());
        }
        Err(LoadError::Count { class: self.class.to_owned(), attribute, wanted, found })
    }

    /// Returns a matrix. An array of one dimension counts as one row.
    pub(super) fn matrix(&self, attribute: &'static str) -> Result<FittedMatrix, LoadError> {
        self.matrix_of(attribute, self.require(attribute)?)
    }

    /// Returns a matrix that is a part of an attribute.
    pub(super) fn matrix_of(&self, attribute: &'static str, value: PickleValue<'a>) -> Result<FittedMatrix, LoadError> {
        let (numbers, shape) = self.numbers(attribute, value)?;
        let (rows, columns) = match *shape {
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            _ => return Err(self.unexpected(attribute, "an array of one or two dimensions")),
        };
        let single = numbers.kind() == ElementKind::Float && numbers.size() == 4;
        Ok(FittedMatrix { values: numbers.to_f64(), rows, columns, single })
    }

    /// Returns a matrix that has values, all of double precision: results of single precision would be rounded in an order of the
    /// machine's own.
    pub(super) fn double_matrix(&self, attribute: &'static str) -> Result<FittedMatrix, LoadError> {
        let matrix = self.matrix(attribute)?;
        if matrix.values.is_empty() || matrix.single {
            return Err(self.unexpected(attribute, "a matrix of double precision"));
        }
        Ok(matrix)
    }

    /// Returns all integers of an array of any rank, or of a list.
    pub(super) fn integers(&self, attribute: &'static str) -> Result<Vec<i64>, LoadError> {
        let wanted = || self.unexpected(attribute, "integers");
        let value = self.require(attribute)?;
        if let Some(items) = value.items() {
            self.context.budget.spend(items.len())?;
            return items.into_iter().map(PickleValue::as_i64).collect::<Option<_>>().ok_or_else(wanted);
        }
        self.numbers(attribute, value)?.0.to_i64().ok_or_else(wanted)
    }

    /// Returns the integers of an array, some of which may be `None`.
    pub(super) fn integers_or_none(&self, attribute: &'static str) -> Result<Vec<Option<i64>>, LoadError> {
        let value = self.require(attribute)?;
        let Some(items) = value.items() else {
            return Ok(self.integers(attribute)?.into_iter().map(Some).collect());
        };
        self.context.budget.spend(items.len())?;
        let integer = |item: PickleValue<'_>| match item.as_i64() {
            None if !item.is_none() => Err(self.unexpected(attribute, "integers and None")),
            integer => Ok(integer),
        };
        items.into_iter().map(integer).collect()
    }

    /// Returns the type that a parameter names: a class of NumPy or Python, a dtype, or the name of one.
    pub(super) fn dtype(&self, attribute: &'static str) -> Result<NumericType, LoadError> {
        let value = self.require(attribute)?;
        let name = value.as_dtype().map(Dtype::name);
        let name = name.or_else(|| value.as_str().map(str::to_owned));
        let name = name.or_else(|| value.global().map(|path| path.rsplit('.').next().unwrap_or(path).to_owned()));
        Ok(match name.as_deref().unwrap_or_default() {
            "float64" | "float" | "double" => NumericType::F64,
            "float32" | "single" => NumericType::F32,
            "int64" | "int" | "int_" | "longlong" => NumericType::Int(IntType::I64),
            "int32" | "intc" => NumericType::Int(IntType::I32),
            "int16" => NumericType::Int(IntType::I16),
            "int8" => NumericType::Int(IntType::I8),
            "uint8" => NumericType::Int(IntType::U8),
            "uint16" => NumericType::Int(IntType::U16),
            "uint32" => NumericType::Int(IntType::U32),
            "bool" | "bool_" => NumericType::Int(IntType::Bool),
            _ => return Err(self.unsupported(attribute)),
        })
    }

    /// Returns whether an attribute is the dtype of objects.
    pub(super) fn is_object_dtype(&self, attribute: &str) -> bool {
        self.get(attribute).and_then(PickleValue::as_dtype).is_some_and(|dtype| dtype.kind == ElementKind::Object)
    }

    /// Returns the elements of a list, tuple or array of objects.
    pub(super) fn items(&self, attribute: &'static str) -> Result<Vec<PickleValue<'a>>, LoadError> {
        let items = self.require(attribute)?.items().ok_or_else(|| self.unexpected(attribute, "a list"))?;
        self.context.budget.spend(items.len())?;
        Ok(items)
    }

    /// Returns the texts of an array or list.
    pub(super) fn texts(&self, attribute: &'static str) -> Result<Vec<String>, LoadError> {
        let value = self.require(attribute)?;
        let of_items = || value.items()?.into_iter().map(|item| item.as_str().map(str::to_owned)).collect();
        let texts: Option<Vec<String>> = value.as_array().and_then(NumpyArray::texts).or_else(of_items);
        let texts = texts.ok_or_else(|| self.unexpected(attribute, "texts"))?;
        self.context.budget.spend(texts.len())?;
        Ok(texts)
    }

    /// Returns the labels of classes, or the values of categories.
    pub(super) fn labels(&self, attribute: &'static str) -> Result<Elements<'static>, LoadError> {
        let value = self.require(attribute)?;
        self.elements(value).ok_or_else(|| self.unexpected(attribute, "an array of labels of one type"))
    }

    /// Returns an array as values of one type. Objects have to be text.
    pub(super) fn elements(&self, value: PickleValue<'a>) -> Option<Elements<'static>> {
        let array = value.as_array()?;
        self.context.budget.spend(array.len()).ok()?;
        if let Some(items) = value.items() {
            let texts = items.into_iter().map(|item| item.as_str().map(Arc::from));
            return texts.collect::<Option<_>>().map(Elements::Text);
        }
        if let Some(texts) = array.texts() {
            return Some(Elements::Text(texts.into_iter().map(Arc::from).collect()));
        }
        let numbers = array.numbers()?;
        let int = match (numbers.kind(), numbers.size()) {
            (ElementKind::Float, 8) => return Some(Elements::F64(numbers.to_f64().into())),
            (ElementKind::Float, 4) => {
                return Some(Elements::F32(numbers.to_f64().into_iter().map(crate::table::to_f32).collect()));
            }
            (ElementKind::Bool, _) => IntType::Bool,
            (ElementKind::Int, 1) => IntType::I8,
            (ElementKind::Int, 2) => IntType::I16,
            (ElementKind::Int, 4) => IntType::I32,
            (ElementKind::Int, 8) => IntType::I64,
            (ElementKind::Uint, 1) => IntType::U8,
            (ElementKind::Uint, 2) => IntType::U16,
            (ElementKind::Uint, 4) => IntType::U32,
            (ElementKind::Uint, 8) => IntType::U64,
            _ => return None,
        };
        Some(Elements::Int(numbers.to_i64()?.into(), int))
    }
}
