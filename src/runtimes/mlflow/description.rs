//! Reads `MLmodel`, which describes a model: flavors, artifact and signature.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::LoadError;
use super::signature::{ColumnSpec, ColumnType, InputSchema, Signature, TensorType};
use crate::runtimes::implementation::CPU_PROVIDER;
use crate::types::{Parameters, TensorMetadata, short};

/// The execution providers of models that were saved without any.
const DEFAULT_PROVIDERS: [&str; 2] = ["CUDAExecutionProvider", CPU_PROVIDER];

/// The library that wrote the model in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Sklearn,
    /// A `Booster`, or one of the library's scikit-learn wrappers.
    Xgboost(TreeModelClass),
    /// A `Booster` in a text file, or a scikit-learn wrapper in a pickle or skops file.
    Lightgbm(TreeModelClass),
    /// A file of the library's own, loaded as a `CatBoost`, `CatBoostClassifier` or `CatBoostRegressor`.
    Catboost(TreeModelClass),
    /// A graph in a file of ONNX.
    Onnx,
}

/// The class of a boosted tree model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeModelClass {
    Booster,
    Classifier,
    Regressor,
}

/// The description of a model, all of which is supported.
#[derive(Debug)]
pub(super) struct ModelDescription {
    pub(super) flavor: Flavor,
    pub(super) artifact: PathBuf,
    /// The method that predicts.
    pub(super) predict_fn: String,
    /// The version of MLflow that wrote the folder.
    pub(super) version: String,
    pub(super) signature: Signature,
}

#[derive(Debug, Deserialize)]
struct MlmodelFile {
    flavors: Flavors,
    #[serde(default)]
    mlflow_version: Option<String>,
    #[serde(default)]
    signature: Option<SignatureTexts>,
    #[serde(default)]
    is_signature_from_type_hint: Option<bool>,
    #[serde(default)]
    type_hint_from_example: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Flavors {
    python_function: Option<PythonFunction>,
    sklearn: Option<LibraryFlavor>,
    xgboost: Option<LibraryFlavor>,
    lightgbm: Option<LibraryFlavor>,
    catboost: Option<LibraryFlavor>,
    onnx: Option<OnnxFlavor>,
}

#[derive(Debug, Deserialize)]
struct PythonFunction {
    loader_module: String,
    #[serde(default)]
    model_path: Option<String>,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    predict_fn: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct LibraryFlavor {
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    model_class: Option<String>,
    #[serde(default)]
    serialization_format: Option<String>,
    /// The class of `CatBoost`'s models.
    #[serde(default)]
    model_type: Option<String>,
    /// The format of `CatBoost`'s models.
    #[serde(default)]
    save_format: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OnnxFlavor {
    #[serde(default)]
    data: Option<String>,
    /// The execution providers of onnxruntime.
    #[serde(default)]
    providers: Option<Value>,
    #[serde(default)]
    onnx_session_options: Option<Value>,
}

/// The fields of a signature, each of which is JSON in a string.
#[derive(Debug, Deserialize)]
struct SignatureTexts {
    #[serde(default)]
    inputs: Option<String>,
    #[serde(default)]
    outputs: Option<String>,
    #[serde(default)]
    params: Option<String>,
}

/// One input or output of a signature.
#[derive(Debug, Deserialize)]
struct FieldSpec {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    required: Option<bool>,
    #[serde(default)]
    optional: Option<bool>,
    #[serde(default, rename = "tensor-spec")]
    tensor: Option<TensorSpec>,
}

#[derive(Debug, Deserialize)]
struct TensorSpec {
    dtype: String,
    shape: Vec<i64>,
}

impl ModelDescription {
    /// Parses the text of the `MLmodel` in `folder`.
    pub(super) fn read(folder: &Path, text: &str) -> Result<Self, LoadError> {
        let file: MlmodelFile = serde_saphyr::from_str(text).map_err(|error| LoadError::Damaged(error.to_string()))?;
        let refused = |reason: &str| LoadError::Refused(reason.to_owned());
        let Some(function) = file.flavors.python_function else {
            return Err(refused("it has no flavor `python_function`"));
        };
        let no_flavor = || refused("the flavor of its library is missing");
        let loader = function.loader_module.as_str();
        let (flavor, data) = match loader {
            "mlflow.sklearn" => {
                let library = file.flavors.sklearn.unwrap_or_default();
                check_format(&library)?;
                (Flavor::Sklearn, function.model_path.or(function.data))
            }
            "mlflow.xgboost" => {
                let library = file.flavors.xgboost.ok_or_else(no_flavor)?;
                let class = library.class("xgboost")?;
                (Flavor::Xgboost(class), library.data.or(function.data))
            }
            "mlflow.lightgbm" => {
                let library = file.flavors.lightgbm.ok_or_else(no_flavor)?;
                check_format(&library)?;
                let class = library.class("lightgbm")?;
                (Flavor::Lightgbm(class), library.data.or(function.data))
            }
            "mlflow.catboost" => {
                let library = file.flavors.catboost.ok_or_else(no_flavor)?;
                let class = library.catboost_class()?;
                (Flavor::Catboost(class), library.data.or(function.data))
            }
            "mlflow.onnx" => {
                let library = file.flavors.onnx.ok_or_else(no_flavor)?;
                library.check()?;
                // MLflow loads the file of the Python function.
                (Flavor::Onnx, function.data.or(library.data))
            }
            other => return Err(LoadError::Refused(format!("models of `{other}` are not evaluated natively"))),
        };
        let data = data.ok_or_else(|| refused("it has no path of an artifact"))?;
        let is_inside = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !Path::new(&data).components().all(is_inside) {
            return Err(LoadError::Refused(format!("its artifact `{data}` is outside of the folder")));
        }
        if file.is_signature_from_type_hint == Some(true) || file.type_hint_from_example == Some(true) {
            return Err(refused("its signature comes from type hints"));
        }
        let artifact = folder.join(data);
        if !artifact.is_file() {
            return Err(LoadError::Damaged(format!("its artifact `{}` does not exist", artifact.display())));
        }
        Ok(Self {
            flavor,
            artifact,
            predict_fn: function.predict_fn.unwrap_or_else(|| "predict".to_owned()),
            version: file.mlflow_version.unwrap_or_default(),
            signature: file.signature.map_or_else(|| Ok(Signature::default()), signature)?,
        })
    }
}

fn check_format(library: &LibraryFlavor) -> Result<(), LoadError> {
    match library.serialization_format.as_deref() {
        // The content of the file tells pickles and skops files apart.
        None | Some("pickle" | "cloudpickle" | "skops") => Ok(()),
        Some(format) => {
            let expected = "`pickle`, `cloudpickle` or `skops`";
            Err(LoadError::Refused(format!("its artifact is in the format `{format}`, expected {expected}")))
        }
    }
}

impl OnnxFlavor {
    /// Refuses what only onnxruntime itself has.
    fn check(&self) -> Result<(), LoadError> {
        let refused = |reason: String| Err(LoadError::Refused(reason));
        // MLflow writes these names into every model that is saved without others.
        let names = match &self.providers {
            None | Some(Value::Null) => &[],
            Some(Value::Array(names)) => &names[..],
            Some(other) => {
                return refused(format!(
                    "the `providers` of its flavor `mlflow.onnx` are `{}`",
                    short(&other.to_string())
                ));
            }
        };
        let is_default = names.iter().map(Value::as_str).eq(DEFAULT_PROVIDERS.into_iter().map(Some));
        if let Some(other) = names.iter().find(|name| !is_default && name.as_str() != Some(CPU_PROVIDER)) {
            let shown = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            return refused(format!(
                "the `providers` of its flavor `mlflow.onnx` name `{}`, for which onnxruntime is needed",
                short(&shown)
            ));
        }
        match &self.onnx_session_options {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Object(options)) if options.is_empty() => Ok(()),
            Some(_) => refused(
                "its flavor `mlflow.onnx` has `onnx_session_options`, for which onnxruntime is needed".to_owned(),
            ),
        }
    }
}

impl LibraryFlavor {
    fn catboost_class(&self) -> Result<TreeModelClass, LoadError> {
        if let Some(format) = self.save_format.as_deref().filter(|format| !matches!(*format, "cbm" | "json")) {
            return Err(LoadError::Refused(format!("its artifact is in the format `{format}`, expected cbm or json")));
        }
        match self.model_type.as_deref() {
            Some("CatBoost") => Ok(TreeModelClass::Booster),
            Some("CatBoostClassifier") => Ok(TreeModelClass::Classifier),
            Some("CatBoostRegressor") => Ok(TreeModelClass::Regressor),
            other => Err(LoadError::Refused(format!("`{}` is not evaluated natively", other.unwrap_or("CatBoost")))),
        }
    }

    fn class(&self, package: &str) -> Result<TreeModelClass, LoadError> {
        let class = self.model_class.as_deref().unwrap_or("Booster");
        let name = class.rsplit('.').next().unwrap_or_default();
        let own = class == name || class.starts_with(&format!("{package}."));
        match name {
            "Booster" if own => Ok(TreeModelClass::Booster),
            _ if own && name.ends_with("Classifier") => Ok(TreeModelClass::Classifier),
            _ if own && (name.ends_with("Regressor") || name.ends_with("Ranker")) => Ok(TreeModelClass::Regressor),
            _ => Err(LoadError::Refused(format!("`{class}` is not evaluated natively"))),
        }
    }
}

fn signature(texts: SignatureTexts) -> Result<Signature, LoadError> {
    let none = |text: &Option<String>| text.as_deref().is_none_or(|text| matches!(text.trim(), "" | "null" | "[]"));
    if !none(&texts.params) {
        return Err(LoadError::Refused("its signature has params".to_owned()));
    }
    let read = |text: Option<String>| -> Result<Vec<FieldSpec>, LoadError> {
        let damaged = |error: serde_json::Error| LoadError::Damaged(format!("cannot read its signature: {error}"));
        text.map_or_else(|| Ok(Vec::new()), |text| serde_json::from_str(&text).map_err(damaged))
    };
    // Outputs are parsed leniently: fields such as the properties of objects do not matter.
    let outputs: Vec<Value> = match texts.outputs.as_deref().filter(|text| *text != "null") {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| LoadError::Damaged(format!("cannot read the outputs of its signature: {error}")))?,
        None => Vec::new(),
    };
    let outputs: Vec<FieldSpec> = outputs
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .map_err(|error| LoadError::Damaged(format!("cannot read the outputs of its signature: {error}")))?;
    let output_rank = match &outputs[..] {
        [FieldSpec { tensor: Some(tensor), .. }] => Some(tensor.shape.len()),
        _ => None,
    };
    let outputs = metadata(&outputs, "output-")?;
    if none(&texts.inputs) {
        return Ok(Signature { input: InputSchema::Any, inputs: Vec::new(), outputs, output_rank });
    }
    let specs = read(texts.inputs)?;
    let inputs = metadata(&specs, "input-")?;
    Ok(Signature { input: input(&specs)?, inputs, outputs, output_rank })
}

fn input(specs: &[FieldSpec]) -> Result<InputSchema, LoadError> {
    let refused = |reason: String| Err(LoadError::Refused(reason));
    if let [FieldSpec { tensor: Some(tensor), name, .. }] = specs {
        if let Some(name) = name {
            return refused(format!("its signature has a named tensor, `{name}`"));
        }
        return match TensorType::from_dtype(&tensor.dtype) {
            Some(kind) => Ok(InputSchema::Tensor { kind, shape: tensor.shape.clone() }),
            None => refused(format!("its signature has a tensor of `{}`", tensor.dtype)),
        };
    }
    let mut names = HashSet::new();
    let mut columns = Vec::with_capacity(specs.len());
    for spec in specs {
        let Some(name) = &spec.name else {
            return refused("its signature has columns without names, or several tensors".to_owned());
        };
        let Some(kind) = ColumnType::from_name(&spec.kind) else {
            return refused(format!("input `{name}` of its signature has unsupported type `{}`", spec.kind));
        };
        if spec.required == Some(false) || spec.optional == Some(true) {
            return refused(format!("input `{name}` of its signature is optional"));
        }
        if !names.insert(name) {
            return refused(format!("its signature has the input `{name}` twice"));
        }
        columns.push(ColumnSpec { name: name.clone(), kind });
    }
    Ok(InputSchema::Columns(columns))
}

/// Converts the inputs or outputs of a signature to metadata of the V2 protocol.
fn metadata(specs: &[FieldSpec], prefix: &str) -> Result<Vec<TensorMetadata>, LoadError> {
    let tensor = |(index, spec): (usize, &FieldSpec)| {
        let (datatype, content_type, shape) = if let Some(tensor) = &spec.tensor {
            let datatype = TensorType::datatype(&tensor.dtype)
                .ok_or_else(|| LoadError::Refused(format!("its signature has a tensor of `{}`", tensor.dtype)))?;
            (datatype, "np", tensor.shape.clone())
        } else {
            let (datatype, content_type) = match spec.kind.as_str() {
                "boolean" => ("BOOL", "np"),
                "integer" => ("INT32", "np"),
                "long" => ("INT64", "np"),
                "float" => ("FP32", "np"),
                "double" => ("FP64", "np"),
                "string" => ("BYTES", "str"),
                "binary" => ("BYTES", "base64"),
                "datetime" => ("BYTES", "datetime"),
                _ => ("BYTES", "pd_json"),
            };
            (datatype, content_type, vec![-1, 1])
        };
        Ok(TensorMetadata {
            name: spec.name.clone().unwrap_or_else(|| format!("{prefix}{index}")),
            datatype: datatype.to_owned(),
            shape,
            parameters: Parameters::with_content_type(content_type),
        })
    };
    specs.iter().enumerate().map(tensor).collect()
}
