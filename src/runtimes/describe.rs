//! What a model file says about its model, for people: `mlserver inspect`.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};

use super::onnx::{ExternalFiles, PREDICT, not_batched, tensor_metadata};
use super::{LoadError, ModelFile, implementation, mlflow};
use crate::codecs::ColumnOrder;
use crate::evaluators::catboost::{CatBoostFeature, CatBoostModel, CatBoostOutput};
use crate::evaluators::onnx::{self, DeclaredDimension, ElementType, GraphInterface, ModelInfo, OnnxModel, ValueInfo};
use crate::evaluators::sklearn::{ArtifactReport, EstimatorMethod, ExampleValue, FittedEstimator};
use crate::evaluators::trees::{TreeEnsemble, WrapperKind};
use crate::families::{ModelFamily, NativeEvaluator, TreeLibrary};
use crate::types::TensorMetadata;

/// The name of the input of models whose files do not name it.
const INPUT: &str = "x";
/// Models with more features get no example: a row would need memory for a number that the file merely declares.
const MAX_EXAMPLE_FEATURES: usize = 10_000;

/// A description of a model file.
#[derive(Debug)]
pub struct FileDescription {
    /// What the model is made of, in one or more lines.
    pub title: String,
    /// The version of the library that wrote the file, if the file tells.
    pub version: Option<String>,
    /// Why the model is not evaluated natively; `None` if it is.
    pub not_native: Option<String>,
    /// The inputs of a request.
    pub inputs: Vec<TensorMetadata>,
    /// The names of the columns of the only input.
    pub columns: Vec<String>,
    /// The columns that the model takes and does not read, so that a data frame may lack them.
    pub unread_columns: Vec<String>,
    /// The names by which the server finds the columns of a table, although the library of the model takes them by position.
    pub found_by_name: Vec<String>,
    /// The names of the outputs that a request may ask for.
    pub outputs: Vec<String>,
    /// Requests of one row that the model may answer, in the order in which to try them.
    pub examples: Vec<Value>,
}

impl FileDescription {
    /// Reads a model file of a family, or a folder of MLflow. Nothing in it is executed.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, or is not a file of the family. Families without a native evaluator are not read.
    pub fn read(family: &ModelFamily, path: &Path) -> Result<Self, LoadError> {
        match family.native.and_then(|evaluator| Self::by(evaluator, family.title, path)) {
            Some(description) => description,
            None => Err(LoadError::NotNative { implementation: family.implementations[0].to_owned() }),
        }
    }

    /// Returns requests of one row that a loaded model may answer, in the order in which to try them, by reading its file again.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn examples_of(file: &ModelFile) -> Result<Vec<Value>, LoadError> {
        Self::by(file.evaluator, "", &file.path).map_or(Ok(Vec::new()), |description| Ok(description?.examples))
    }

    /// Reads what an evaluator reads. `None` if it reads nothing, or a graph, whose steps are other models.
    fn by(evaluator: NativeEvaluator, title: &str, path: &Path) -> Option<Result<Self, LoadError>> {
        match evaluator {
            NativeEvaluator::Trees(library) => Some(trees(library, title, path)),
            NativeEvaluator::Sklearn => Some(sklearn(path)),
            NativeEvaluator::CatBoost => Some(catboost(title, path)),
            NativeEvaluator::Onnx => Some(onnx(title, path)),
            NativeEvaluator::Mlflow => Some(mlflow::describe(path)),
            NativeEvaluator::Identity | NativeEvaluator::Step | NativeEvaluator::Graph => None,
        }
    }
}

/// Returns a tensor's description.
pub(super) fn tensor(name: &str, datatype: &str, shape: Vec<i64>) -> TensorMetadata {
    TensorMetadata {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape,
        parameters: crate::types::Parameters::default(),
    }
}

fn trees(library: TreeLibrary, title: &str, path: &Path) -> Result<FileDescription, LoadError> {
    let bytes = implementation::read(path, "a model file")?;
    let loaded = match library {
        TreeLibrary::XgBoost => TreeEnsemble::load_xgboost(&bytes),
        TreeLibrary::LightGbm => TreeEnsemble::load_lightgbm(&bytes),
    };
    let model = match loaded {
        Ok(model) => model,
        Err(error) if error.is_refusal() => return Ok(refused(title.to_owned(), &error)),
        Err(error) => {
            return Err(LoadError::Artifact { path: path.to_owned(), unsupported: false, source: error.into() });
        }
    };
    let features = model.n_features();
    let mut outputs = vec!["predict".to_owned()];
    if library == TreeLibrary::XgBoost && model.kind() == WrapperKind::Classifier {
        outputs.push("predict_proba".to_owned());
    }
    let columns = i64::try_from(features).unwrap_or(i64::MAX);
    let examples =
        if features <= MAX_EXAMPLE_FEATURES { vec![row("FP32", &vec![json!(0.0); features])] } else { Vec::new() };
    Ok(FileDescription {
        title: format!("{title} {}", model.kind()),
        version: model
            .library_version()
            .map(|version| format!("{title} {version}"))
            .or_else(|| lightgbm_format(&bytes)),
        not_native: None,
        inputs: vec![tensor(INPUT, "FP32", vec![-1, columns])],
        columns: model.feature_names().unwrap_or_default().to_vec(),
        unread_columns: Vec::new(),
        found_by_name: match library {
            TreeLibrary::LightGbm => found_by_name(model.feature_names()),
            TreeLibrary::XgBoost => Vec::new(),
        },
        outputs,
        examples,
    })
}

fn onnx(title: &str, path: &Path) -> Result<FileDescription, LoadError> {
    let bytes = implementation::read(path, "a model file")?;
    let external = ExternalFiles::new(path);
    let failed = |error: onnx::LoadError| LoadError::Artifact {
        path: path.to_owned(),
        unsupported: false,
        source: error.into(),
    };
    let info = ModelInfo::read(&bytes).map_err(failed)?;
    let producer = [info.producer_name.as_str(), info.producer_version.as_str()].join(" ");
    let opsets = info.opsets.iter().map(|(domain, version)| format!("{domain} {version}"));
    let version = format!("opsets {}", opsets.collect::<Vec<_>>().join(", "));
    let version = Some(if producer.trim().is_empty() { version } else { format!("{}, {version}", producer.trim()) });
    let model = match OnnxModel::load(&bytes, &|range| external.read(range)) {
        Ok(model) => model,
        Err(error) if error.is_refusal() => {
            let network = implementation::or_network(NativeEvaluator::Onnx, path, failed_as_refusal(path, error));
            let description = match network {
                Ok(network) => onnx_graph(&format!("{title} network, which a process of its own evaluates,"), &network),
                Err(error) => {
                    let reason =
                        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    refused(title.to_owned(), &reason)
                }
            };
            return Ok(FileDescription { version, ..description });
        }
        Err(error) => return Err(failed(error)),
    };
    Ok(FileDescription { version, ..onnx_graph(&format!("{title} graph"), model.interface()) })
}

/// Describes a graph that is evaluated natively.
fn onnx_graph(title: &str, graph: &GraphInterface) -> FileDescription {
    let GraphInterface { inputs, outputs, operators } = graph;
    let batches =
        not_batched(inputs, outputs).map_or_else(String::new, |reason| format!("\nrequests are not batched: {reason}"));
    let example = inputs.iter().map(example_input).collect::<Option<Vec<_>>>();
    FileDescription {
        title: format!("{title} of {}{batches}", operators.join(", ")),
        version: None,
        not_native: None,
        inputs: inputs.iter().map(tensor_metadata).collect(),
        columns: Vec::new(),
        unread_columns: Vec::new(),
        found_by_name: Vec::new(),
        outputs: std::iter::once(PREDICT.to_owned()).chain(outputs.iter().map(|output| output.name.clone())).collect(),
        examples: example.map(|inputs| json!({"inputs": inputs})).into_iter().collect(),
    }
}

/// Returns the error of a file that the server does not evaluate, although it may be valid.
fn failed_as_refusal(path: &Path, error: onnx::LoadError) -> LoadError {
    LoadError::Artifact { path: path.to_owned(), unsupported: true, source: error.into() }
}

/// Returns an example of an input of a graph, in which dimensions of any size are 1, if it is not too large.
pub(super) fn example_input(input: &ValueInfo) -> Option<Value> {
    let size = |dimension: &DeclaredDimension| match dimension {
        DeclaredDimension::Fixed(size) => *size,
        DeclaredDimension::Named(_) | DeclaredDimension::Unknown => 1,
    };
    let shape: Vec<usize> = input.dimensions.as_ref()?.iter().map(size).collect();
    let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size))?;
    let value = match input.element {
        ElementType::Text => json!("a"),
        ElementType::Bool => json!(false),
        ElementType::F16 | ElementType::F32 | ElementType::F64 => json!(0.0),
        _ => json!(0),
    };
    let metadata = tensor_metadata(input);
    (count <= MAX_EXAMPLE_FEATURES).then(
        || json!({"name": metadata.name, "shape": shape, "datatype": metadata.datatype, "data": vec![value; count]}),
    )
}

fn catboost(title: &str, path: &Path) -> Result<FileDescription, LoadError> {
    let bytes = implementation::read(path, "a model file")?.into();
    let model = match CatBoostModel::load(&bytes) {
        Ok(model) => model,
        Err(error) if error.is_refusal() => return Ok(refused(title.to_owned(), &error)),
        Err(error) => {
            return Err(LoadError::Artifact { path: path.to_owned(), unsupported: false, source: error.into() });
        }
    };
    let features = model.features();
    let width = model.n_columns();
    let is_categorical = |feature: &CatBoostFeature| feature.is_categorical;
    let names = catboost_columns(&model);
    let (mut inputs, mut examples) = (Vec::new(), Vec::new());
    if !features.iter().any(is_categorical) {
        inputs.push(tensor(INPUT, "FP32", shape(Some(width))));
        if width <= MAX_EXAMPLE_FEATURES {
            examples.push(row("FP32", &vec![json!(0.0); width]));
        }
    } else if width == features.len() && width <= MAX_EXAMPLE_FEATURES {
        let columns = features.iter().map(|feature| {
            if feature.is_categorical {
                column(&feature.name, "BYTES", &json!("a"))
            } else {
                column(&feature.name, "FP32", &json!(0.0))
            }
        });
        examples.push(json!({"parameters": {"content_type": "pd"}, "inputs": columns.collect::<Vec<_>>()}));
    }
    let outputs = [
        ("predict", CatBoostOutput::Predict),
        ("predict_proba", CatBoostOutput::Probability),
        ("raw", CatBoostOutput::Raw),
        ("leaf", CatBoostOutput::Leaf),
    ];
    let outputs = outputs.into_iter().filter(|(_, output)| model.columns(*output).is_some());
    Ok(FileDescription {
        title: format!("{title} {}", if model.is_classifier() { "classifier" } else { "regressor" }),
        version: model.library_version().map(|version| format!("{title} {version}")),
        not_native: None,
        inputs,
        columns: names.clone(),
        unread_columns: Vec::new(),
        found_by_name: names,
        outputs: outputs.map(|(name, _)| name.to_owned()).collect(),
        examples,
    })
}

/// Returns the names of the columns of a model of `CatBoost`, if it has some.
pub(super) fn catboost_columns(model: &CatBoostModel) -> Vec<String> {
    let features = model.features();
    let has_names = features.iter().any(|feature| feature.is_named);
    features.iter().filter(|_| has_names).map(|feature| feature.name.clone()).collect()
}

/// Returns the names of the columns of an estimator, which may be those of a part of it. `file` is what it was read from.
pub(super) fn sklearn_columns(model: &FittedEstimator, file: &Bytes) -> Vec<String> {
    if let Some(names) = model.feature_names() {
        return names.to_vec();
    }
    let (_, fitted) = ArtifactReport::fitted_features(file);
    if fitted.is_empty() { model.features_by_position().unwrap_or_default().to_vec() } else { fitted }
}

/// Returns the version of a file of `LightGBM`, which is in its first lines. It is that of the format, not of the library.
fn lightgbm_format(bytes: &[u8]) -> Option<String> {
    const HEAD: usize = 1 << 10;
    let head = String::from_utf8_lossy(bytes.get(..HEAD).unwrap_or(bytes));
    let version = head.lines().find_map(|line| line.strip_prefix("version="))?.trim().to_owned();
    Some(format!("LightGBM, in format {version}"))
}

fn sklearn(path: &Path) -> Result<FileDescription, LoadError> {
    let file: Bytes = implementation::read(path, "a file that joblib, pickle or skops wrote")?.into();
    let report = ArtifactReport::read(&file).map_err(|error| LoadError::Artifact {
        path: path.to_owned(),
        unsupported: false,
        source: error.into(),
    })?;
    let title = report.to_string();
    let version = report.version().map(|version| format!("scikit-learn {version}"));
    let model = match report.native() {
        Ok(model) => model,
        Err(error) => return Ok(FileDescription { version, ..refused(title, error) }),
    };
    let (fitted, _) = ArtifactReport::fitted_features(&file);
    let features = model.n_features().or(fitted);
    let values = ArtifactReport::example_row(&file, features.unwrap_or(1).min(MAX_EXAMPLE_FEATURES));
    let has_text = values.iter().any(|value| matches!(value, ExampleValue::Text(_)));
    let has_numbers = values.iter().any(|value| matches!(value, ExampleValue::Number(_)));
    let names = sklearn_columns(model, &file);
    let of_text = |text: &dyn Fn(&ExampleValue) -> Value| values.iter().map(text).collect::<Vec<_>>();
    let numbers = of_text(&|value| match value {
        ExampleValue::Number(number) => json!(number),
        ExampleValue::Text(_) => json!(0.0),
    });
    let texts = of_text(&|value| match value {
        ExampleValue::Number(number) => json!(number.to_string()),
        ExampleValue::Text(text) => json!(text),
    });
    let mut inputs = vec![tensor(INPUT, if has_text { "BYTES" } else { "FP64" }, shape(features))];
    let mut examples = Vec::new();
    if features.is_none() {
        // A vectorizer takes a list of texts.
        examples.push(json!({"inputs": [{
            "name": INPUT, "shape": [1], "datatype": "BYTES", "parameters": {"content_type": "str"}, "data": ["an example"],
        }]}));
        examples.push(row("FP64", &[json!(0.0)]));
    } else if features <= Some(MAX_EXAMPLE_FEATURES) {
        let columns =
            |numeric: &dyn Fn(&ExampleValue) -> bool| {
                let names = (0..values.len())
                    .map(|index| names.get(index).cloned().unwrap_or_else(|| format!("{INPUT}{index}")));
                let columns = names.zip(&values).zip(numbers.iter().zip(&texts));
                let columns = columns.map(|((name, value), (number, text))| {
                    if numeric(value) { column(&name, "FP64", number) } else { column(&name, "BYTES", text) }
                });
                json!({"parameters": {"content_type": "pd"}, "inputs": columns.collect::<Vec<_>>()})
            };
        let by_kind = columns(&|value| matches!(value, ExampleValue::Number(_)));
        if has_text && (has_numbers || !names.is_empty()) {
            examples.push(by_kind);
        } else if has_text {
            examples.push(row("BYTES", &texts));
        }
        if !has_text {
            examples.push(row("FP64", &numbers));
            examples.push(row("FP64", &vec![json!(1.0); values.len()]));
        }
        examples.push(columns(&|_| true));
        examples.push(columns(&|_| false));
        examples.push(row("BYTES", &texts));
        if has_text && (has_numbers || !names.is_empty()) {
            inputs = Vec::new();
        }
    }
    // Transformers have no `predict`, which is the default.
    let default = model.methods().iter().next();
    if let Some(method) = default.filter(|method| *method != EstimatorMethod::Predict) {
        for example in &mut examples {
            example["outputs"] = json!([{"name": method.name()}]);
        }
    }
    Ok(FileDescription {
        title,
        version,
        not_native: None,
        inputs,
        columns: names,
        unread_columns: model.unread_columns(),
        found_by_name: found_by_name(model.features_by_position()),
        outputs: model.methods().iter().map(|method| method.name().to_owned()).collect(),
        examples,
    })
}

/// Returns the names of features that a library takes by position, if they are the model's own.
pub(super) fn found_by_name(features: Option<&[String]>) -> Vec<String> {
    features.filter(|features| ColumnOrder::is_by_name(features)).unwrap_or_default().to_vec()
}

fn shape(features: Option<usize>) -> Vec<i64> {
    match features {
        Some(features) => vec![-1, i64::try_from(features).unwrap_or(i64::MAX)],
        None => vec![-1],
    }
}

/// Describes a model that is not evaluated natively.
pub(super) fn refused(title: String, reason: &dyn fmt::Display) -> FileDescription {
    FileDescription {
        title,
        version: None,
        not_native: Some(reason.to_string()),
        inputs: Vec::new(),
        columns: Vec::new(),
        unread_columns: Vec::new(),
        found_by_name: Vec::new(),
        outputs: Vec::new(),
        examples: Vec::new(),
    }
}

/// Returns a request with one row.
pub(super) fn row(datatype: &str, values: &[Value]) -> Value {
    let mut input = json!({"name": INPUT, "shape": [1, values.len()], "datatype": datatype, "data": values});
    if datatype == "BYTES" {
        input["parameters"] = json!({"content_type": "str"});
    }
    json!({"inputs": [input]})
}

/// Returns an input with one value of a column.
pub(super) fn column(name: &str, datatype: &str, value: &Value) -> Value {
    let mut input = json!({"name": name, "shape": [1, 1], "datatype": datatype, "data": [value]});
    if datatype == "BYTES" {
        input["parameters"] = json!({"content_type": "str"});
    }
    input
}
