//! Which runtime serves a model, and loading the native ones.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::catboost::CatBoostRuntime;
use super::identity::identity;
use super::mlflow;
use super::native::Native;
use super::native_steps::NativeStep;
use super::onnx::{OnnxRuntime, Place};
use super::sklearn::SklearnModel;
use super::tree_explanations::ExplanationSettings;
use super::trees::TreeModel;
use super::{Description, LoadError, ModelFile, Runtime};
use crate::compute::ComputePool;
use crate::evaluators::onnx::GraphInterface;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::settings::ModelSettings;
use crate::types::{TensorRule, chain, short};

/// The largest artifact that is read into memory, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 8 << 30;

/// The execution provider of onnxruntime that computes on the processor.
pub(super) const CPU_PROVIDER: &str = "CPUExecutionProvider";

/// Which runtime serves a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The server itself.
    Native(NativeEvaluator),
    /// Code in Python, which runs in worker processes.
    Python,
}

impl Implementation {
    /// Returns the runtime that the settings select.
    ///
    /// # Errors
    ///
    /// Fails if no runtime serves the implementation with the backend that `parameters.extra.backend` asks for.
    pub fn of(settings: &ModelSettings) -> Result<Self, LoadError> {
        let backend = Backend::of(settings)?;
        match (Self::of_family(settings), backend) {
            (_, Backend::Python) | (None, Backend::Auto) => Ok(Self::Python),
            (Some(NativeEvaluator::Onnx), Backend::Auto) if other_provider(settings).is_some() => Ok(Self::Python),
            (Some(native), Backend::Native | Backend::Auto) => Ok(Self::Native(native)),
            (None, Backend::Native) => Err(LoadError::NotNative { implementation: settings.implementation.clone() }),
        }
    }

    /// Returns why a model of a family with a native evaluator is served in Python, if another setting than `backend` decides it.
    pub fn python_reason(settings: &ModelSettings) -> Option<String> {
        let is_onnx = Self::of_family(settings) == Some(NativeEvaluator::Onnx);
        let is_open = is_onnx && Backend::of(settings).is_ok_and(|backend| backend == Backend::Auto);
        let provider = if is_open { other_provider(settings) } else { None }?;
        let shown = provider.as_str().map_or_else(|| provider.to_string(), str::to_owned);
        Some(format!("`providers` names `{}`, for which onnxruntime is needed", short(&shown)))
    }

    fn of_family(settings: &ModelSettings) -> Option<NativeEvaluator> {
        ModelFamily::of(&settings.implementation).and_then(|family| family.native)
    }
}

/// Returns the first execution provider of onnxruntime in the settings of an ONNX model that the server does not replace.
fn other_provider(settings: &ModelSettings) -> Option<&Value> {
    let providers = settings.parameters.extra.get("providers").and_then(Value::as_array)?;
    providers.iter().find(|name| name.as_str() != Some(CPU_PROVIDER))
}

/// The backend that `parameters.extra.backend` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The server itself if it can, else Python.
    Auto,
    Native,
    Python,
}

impl Backend {
    /// Returns the backend that the settings select, [`Self::Auto`] by default.
    ///
    /// # Errors
    ///
    /// Fails if the setting is not the name of a backend.
    pub fn of(settings: &ModelSettings) -> Result<Self, LoadError> {
        match settings.parameters.extra.get("backend") {
            None | Some(Value::Null) => Ok(Self::Auto),
            Some(Value::String(backend)) if backend == "auto" => Ok(Self::Auto),
            Some(Value::String(backend)) if backend == "native" => Ok(Self::Native),
            Some(Value::String(backend)) if backend == "python" => Ok(Self::Python),
            Some(other) => {
                let found = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
                Err(LoadError::Backend { found })
            }
        }
    }
}

/// Loads a model for native evaluation. Reads files and computes: call it on a thread that may block.
///
/// Evaluators that need no artifact ignore `artifact`.
///
/// # Errors
///
/// [`LoadError`] names the file or the setting, and the unsupported feature.
pub fn load_native(
    evaluator: NativeEvaluator,
    settings: &ModelSettings,
    artifact: &Path,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, LoadError> {
    let expected = ModelFamily::artifact_names(settings).join(", ");
    let artifact_error = |unsupported, source| LoadError::Artifact { path: artifact.to_owned(), unsupported, source };
    let file = || Some(ModelFile { evaluator, path: artifact.to_owned() });
    match evaluator {
        NativeEvaluator::Identity => Ok(Arc::new(identity())),
        // Its steps need the other models of a server.
        NativeEvaluator::Graph => Err(LoadError::NotNative { implementation: settings.implementation.clone() }),
        NativeEvaluator::Step => Ok(Arc::new(NativeStep::serve(settings, compute.clone())?)),
        NativeEvaluator::Trees(library) => {
            let explanations = ExplanationSettings::of(settings)?;
            let bytes = read(artifact, &expected)?;
            let model = TreeModel::load(library, &bytes, settings, explanations);
            let model = model.map_err(|error| artifact_error(error.is_refusal(), error.into()))?;
            let explanation = model.explanation();
            let features = explanation.feature_names.clone();
            let explanation = Some(explanation);
            let description = Description { explanation, features, file: file(), ..Description::native() };
            Ok(Arc::new(Native::new(model, description, compute.clone())))
        }
        NativeEvaluator::Sklearn => {
            let explanations = ExplanationSettings::of(settings)?;
            let bytes = read(artifact, &expected)?;
            let model = SklearnModel::load(bytes.into(), settings, explanations);
            let model = model.map_err(|error| artifact_error(error.is_refusal(), error.into()))?;
            let (explanation, features) = (model.explanation(), model.features());
            let description = Description {
                explanation,
                features,
                file: file(),
                ..Description::native_with(TensorRule::MissingText)
            };
            Ok(Arc::new(Native::new(model, description, compute.clone())))
        }
        NativeEvaluator::CatBoost => {
            let explanations = ExplanationSettings::of(settings)?;
            let bytes = read(artifact, &expected)?;
            let model = CatBoostRuntime::load(&bytes.into(), settings, explanations);
            let model = model.map_err(|error| artifact_error(error.is_refusal(), error.into()))?;
            let explanation = model.explanation();
            let features = explanation.feature_names.clone();
            let explanation = Some(explanation);
            let description = Description {
                explanation,
                features,
                file: file(),
                ..Description::native_with(TensorRule::MissingText)
            };
            Ok(Arc::new(Native::new(model, description, compute.clone())))
        }
        NativeEvaluator::Onnx => load_onnx(settings, artifact, compute, Place::Server),
        NativeEvaluator::Mlflow => mlflow::serve(artifact, settings, compute),
    }
}

/// Loads an ONNX model in a process that evaluates nothing else, and so may evaluate networks.
///
/// # Errors
///
/// As [`load_native`].
pub fn load_onnx_in_worker(
    settings: &ModelSettings,
    artifact: &Path,
    compute: &ComputePool,
    threads: usize,
) -> Result<Arc<dyn Runtime>, LoadError> {
    load_onnx(settings, artifact, compute, Place::Worker { threads })
}

/// Checks whether a worker evaluates a model that [`load_native`] has refused: a network of ONNX. Weights are not loaded. Returns
/// what the network takes and gives.
///
/// # Errors
///
/// Fails with the refusal, to which the reason is added why it cannot be evaluated as a network.
pub fn or_network(
    evaluator: NativeEvaluator,
    artifact: &Path,
    refused: LoadError,
) -> Result<GraphInterface, LoadError> {
    if evaluator != NativeEvaluator::Onnx || !refused.is_unsupported() {
        return Err(refused);
    }
    let file = read(artifact, "a model file")?;
    let network = match OnnxRuntime::check_network(artifact, &file) {
        Ok(interface) => return Ok(interface),
        Err(error) => error,
    };
    match (refused, network) {
        (LoadError::Artifact { path, source: tables, .. }, LoadError::Artifact { source: network, .. })
            if cfg!(feature = "onnx") =>
        {
            let reason = format!("{}; as a network: {}", chain(&*tables), chain(&*network));
            Err(LoadError::Artifact { path, unsupported: true, source: reason.into() })
        }
        (refused, _) => Err(refused),
    }
}

fn load_onnx(
    settings: &ModelSettings,
    artifact: &Path,
    compute: &ComputePool,
    place: Place,
) -> Result<Arc<dyn Runtime>, LoadError> {
    let file = read(artifact, &ModelFamily::artifact_names(settings).join(", "))?;
    let model = OnnxRuntime::load(artifact, &file, settings, place)?;
    let (metadata, not_batched) = (Some(model.metadata(settings)), model.not_batched());
    let file = Some(ModelFile { evaluator: NativeEvaluator::Onnx, path: artifact.to_owned() });
    let description = Description { metadata, not_batched, file, ..Description::native() };
    Ok(Arc::new(Native::new(model, description, compute.clone())))
}

/// The beginning of the text that a clone without Git LFS has in place of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Reads a whole file, or a named pipe until its writer closes it.
///
/// `expected` is the kind of file that is reported if `path` is a directory.
pub(super) fn read(path: &Path, expected: &str) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let too_large = |size| LoadError::TooLarge { path: path.to_owned(), size };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(LoadError::Directory { path: path.to_owned(), expected: expected.to_owned() });
    }
    if metadata.len() > MAX_ARTIFACT_BYTES {
        return Err(too_large(metadata.len()));
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(size).map_err(|error| failed(error.into()))?;
    // The size of a pipe or a device is only known at its end.
    file.take(MAX_ARTIFACT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        size if size > MAX_ARTIFACT_BYTES => Err(too_large(size)),
        _ if bytes.starts_with(LFS_POINTER) => Err(LoadError::LfsPointer { path: path.to_owned() }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn file_of_git_lfs_that_was_not_fetched_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.json");
        std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n").unwrap();
        let error = read(&path, "a model file").unwrap_err();
        assert!(!error.is_unsupported());
        assert!(error.to_string().ends_with("run `git lfs pull` where it was cloned"), "{error}");
    }

    #[test]
    fn onnx_model_with_other_providers_is_served_in_python() {
        let settings = |extra: &Value| {
            let mut settings = ModelSettings::new("model", "mlserver_onnx.OnnxModel");
            settings.parameters.extra = extra.as_object().unwrap().clone();
            settings
        };
        let of = |extra: &Value| Implementation::of(&settings(extra)).unwrap();
        let native = Implementation::Native(NativeEvaluator::Onnx);
        assert_eq!(of(&json!({})), native);
        assert_eq!(of(&json!({"providers": null})), native);
        assert_eq!(of(&json!({"providers": ["CPUExecutionProvider"]})), native);
        assert_eq!(
            of(&json!({"providers": ["CUDAExecutionProvider", "CPUExecutionProvider"]})),
            Implementation::Python
        );
        assert_eq!(of(&json!({"providers": ["CUDAExecutionProvider"], "backend": "native"})), native);
        assert_eq!(of(&json!({"backend": "python"})), Implementation::Python);
        let reason = |extra: &Value| Implementation::python_reason(&settings(extra));
        assert_eq!(
            reason(&json!({"providers": ["CPUExecutionProvider", "CUDAExecutionProvider"]})).as_deref(),
            Some("`providers` names `CUDAExecutionProvider`, for which onnxruntime is needed")
        );
        assert_eq!(reason(&json!({"providers": ["CPUExecutionProvider"]})), None);
        assert_eq!(reason(&json!({"providers": ["CUDAExecutionProvider"], "backend": "python"})), None);
    }
}
