//! `MLmodel`, which describes a model: flavors, artifact and signature.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::LoadError;
use super::signature::{Column, Input, Kind, Signature, TensorKind};
use crate::types::{Parameters, TensorMetadata};

/// The library whose model is in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Sklearn,
    /// A `Booster`, or a class of the library's wrappers for scikit-learn.
    Xgboost(Class),
    /// A `Booster`, which is a text, or a wrapper, which is a pickle.
    Lightgbm(Class),
}

/// What of a library of boosted trees a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Booster,
    Classifier,
    Regressor,
}

/// A folder with an `MLmodel`, all of which is understood.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) flavor: Flavor,
    pub(super) artifact: PathBuf,
    /// The method that answers.
    pub(super) predict_fn: String,
    /// That of MLflow, which wrote the folder.
    pub(super) version: String,
    pub(super) signature: Signature,
}

#[derive(Debug, Deserialize)]
struct File {
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
    sklearn: Option<Library>,
    xgboost: Option<Library>,
    lightgbm: Option<Library>,
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
struct Library {
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    model_class: Option<String>,
    #[serde(default)]
    serialization_format: Option<String>,
}

/// The parts of a signature, each of which is JSON.
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
struct Spec {
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

impl Description {
    /// Reads the text of the `MLmodel` of a folder.
    pub(super) fn read(folder: &Path, text: &str) -> Result<Self, LoadError> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| LoadError::Damaged(error.to_string()))?;
        let refused = |reason: &str| LoadError::Refused(reason.to_owned());
        let Some(function) = file.flavors.python_function else {
            return Err(refused("it has no flavor `python_function`"));
        };
        let none = || refused("the flavor of its library is not described");
        let loader = function.loader_module.as_str();
        let (flavor, data) = match loader {
            "mlflow.sklearn" => {
                let library = file.flavors.sklearn.unwrap_or_default();
                no_skops(&library)?;
                (Flavor::Sklearn, function.model_path.or(function.data))
            }
            "mlflow.xgboost" => {
                let library = file.flavors.xgboost.ok_or_else(none)?;
                let class = library.class("xgboost")?;
                (Flavor::Xgboost(class), library.data.or(function.data))
            }
            "mlflow.lightgbm" => {
                let library = file.flavors.lightgbm.ok_or_else(none)?;
                no_skops(&library)?;
                let class = library.class("lightgbm")?;
                (Flavor::Lightgbm(class), library.data.or(function.data))
            }
            other => return Err(LoadError::Refused(format!("models of `{other}` are not evaluated natively"))),
        };
        let data = data.ok_or_else(|| refused("it does not say where its artifact is"))?;
        if !Path::new(&data).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(LoadError::Refused(format!("its artifact `{data}` is not inside of the folder")));
        }
        if file.is_signature_from_type_hint == Some(true) || file.type_hint_from_example == Some(true) {
            return Err(refused("its signature comes from hints of types"));
        }
        let artifact = folder.join(data);
        if !artifact.is_file() {
            return Err(LoadError::Damaged(format!("its artifact `{}` is not there", artifact.display())));
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

fn no_skops(library: &Library) -> Result<(), LoadError> {
    match library.serialization_format.as_deref() {
        None | Some("pickle" | "cloudpickle") => Ok(()),
        Some(format) => {
            Err(LoadError::Refused(format!("its artifact is in the format `{format}`, which is no pickle")))
        }
    }
}

impl Library {
    fn class(&self, package: &str) -> Result<Class, LoadError> {
        let class = self.model_class.as_deref().unwrap_or("Booster");
        let name = class.rsplit('.').next().unwrap_or_default();
        let own = class == name || class.starts_with(&format!("{package}."));
        match name {
            "Booster" if own => Ok(Class::Booster),
            _ if own && name.ends_with("Classifier") => Ok(Class::Classifier),
            _ if own && (name.ends_with("Regressor") || name.ends_with("Ranker")) => Ok(Class::Regressor),
            _ => Err(LoadError::Refused(format!("`{class}` is not evaluated natively"))),
        }
    }
}

fn signature(texts: SignatureTexts) -> Result<Signature, LoadError> {
    let none = |text: &Option<String>| text.as_deref().is_none_or(|text| matches!(text.trim(), "" | "null" | "[]"));
    if !none(&texts.params) {
        return Err(LoadError::Refused("its signature has params".to_owned()));
    }
    let read = |text: Option<String>| -> Result<Vec<Spec>, LoadError> {
        let damaged = |error: serde_json::Error| LoadError::Damaged(format!("its signature cannot be read: {error}"));
        text.map_or_else(|| Ok(Vec::new()), |text| serde_json::from_str(&text).map_err(damaged))
    };
    // What is more than a name, such as the properties of objects, is of no matter to the outputs.
    let outputs: Vec<Value> = match texts.outputs.as_deref().filter(|text| *text != "null") {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| LoadError::Damaged(format!("the outputs of its signature cannot be read: {error}")))?,
        None => Vec::new(),
    };
    let outputs: Vec<Spec> = outputs
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .map_err(|error| LoadError::Damaged(format!("the outputs of its signature cannot be read: {error}")))?;
    let output_rank = match &outputs[..] {
        [Spec { tensor: Some(tensor), .. }] => Some(tensor.shape.len()),
        _ => None,
    };
    let outputs = metadata(&outputs, "output-")?;
    if none(&texts.inputs) {
        return Ok(Signature { input: Input::Anything, inputs: Vec::new(), outputs, output_rank });
    }
    let specs = read(texts.inputs)?;
    let inputs = metadata(&specs, "input-")?;
    Ok(Signature { input: input(&specs)?, inputs, outputs, output_rank })
}

fn input(specs: &[Spec]) -> Result<Input, LoadError> {
    let refused = |reason: String| Err(LoadError::Refused(reason));
    if let [Spec { tensor: Some(tensor), name, .. }] = specs {
        if let Some(name) = name {
            return refused(format!("its signature has a tensor with a name, `{name}`"));
        }
        return match TensorKind::of(&tensor.dtype) {
            Some(kind) => Ok(Input::Tensor { kind, shape: tensor.shape.clone() }),
            None => refused(format!("its signature has a tensor of `{}`", tensor.dtype)),
        };
    }
    let mut names = HashSet::new();
    let mut columns = Vec::with_capacity(specs.len());
    for spec in specs {
        let Some(name) = &spec.name else {
            return refused("its signature has columns without names, or several tensors".to_owned());
        };
        let Some(kind) = Kind::of(&spec.kind) else {
            return refused(format!("its signature's input `{name}` is of the type `{}`", spec.kind));
        };
        if spec.required == Some(false) || spec.optional == Some(true) {
            return refused(format!("its signature's input `{name}` is optional"));
        }
        if !names.insert(name) {
            return refused(format!("its signature has the input `{name}` twice"));
        }
        columns.push(Column { name: name.clone(), kind });
    }
    Ok(Input::Columns(columns))
}

/// What the signature says in the terms of the V2 protocol.
fn metadata(specs: &[Spec], prefix: &str) -> Result<Vec<TensorMetadata>, LoadError> {
    let tensor = |(index, spec): (usize, &Spec)| {
        let (datatype, content_type, shape) = if let Some(tensor) = &spec.tensor {
            let datatype = TensorKind::datatype(&tensor.dtype)
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
