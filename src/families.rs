//! The model families: one row for each framework that the server knows.
//!
//! Everything that depends on the framework of a model reads this table: which runtime an `implementation` means, which
//! files a folder is searched for, what can be evaluated natively, and what an environment or an image has to bring.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::settings::ModelSettings;

/// The file that makes a folder an MLflow model.
pub const MLMODEL: &str = "MLmodel";

/// The extensions that many other files have, too: such a file is read to find out whether it is a model.
const COMMON_EXTENSIONS: [&str; 2] = ["json", "txt"];

/// A framework, and how its models are served.
#[derive(Debug, PartialEq, Eq)]
pub struct ModelFamily {
    /// The framework's name, for logs and messages.
    pub title: &'static str,
    /// The Python package of the runtime, which is the first part of every implementation.
    pub package: &'static str,
    /// The import paths that `implementation` may hold. The first is the one that documents use.
    pub implementations: &'static [&'static str],
    /// The files that a folder is searched for, in this order. Empty if the artifact is a folder or needs no name.
    pub artifact_names: &'static [&'static str],
    /// The extensions of its model files.
    pub extensions: &'static [&'static str],
    /// What its files begin with. Tells families apart whose files have the same extension.
    pub signature: Option<&'static [u8]>,
    /// The Python modules that its runtime imports, besides the SDK's.
    pub modules: &'static [&'static str],
    /// The evaluator that serves the family without Python, if there is one.
    pub native: Option<NativeEvaluator>,
    /// The extra of the wheel that installs what the Python runtime needs.
    pub extra: Option<&'static str>,
    /// The Debian packages that the Python runtime needs and that its wheels do not bring.
    pub system_packages: &'static [&'static str],
}

/// The evaluators that the server has itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeEvaluator {
    /// Answers with its inputs. Needs no artifact, and has no counterpart in Python.
    Identity,
    /// Selects, maps or joins tensors as `parameters.extra` describes. Needs no artifact, and has no counterpart in Python.
    Step,
    /// Runs the steps of an inference graph, each of which is another model.
    Graph,
    /// A tree ensemble.
    Trees(TreeLibrary),
    /// An estimator of scikit-learn.
    Sklearn,
    /// A model of `CatBoost`.
    CatBoost,
    /// A graph in the format of ONNX.
    Onnx,
    /// Dispatches to the evaluator of the flavor that MLflow saved.
    Mlflow,
}

impl NativeEvaluator {
    /// Reports whether the evaluator reads an artifact.
    pub fn needs_artifact(self) -> bool {
        !matches!(self, Self::Identity | Self::Step)
    }
}

/// The libraries whose tree ensembles are evaluated natively, each by its own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeLibrary {
    XgBoost,
    LightGbm,
}

const IDENTITY: ModelFamily = ModelFamily {
    title: "identity",
    package: "mlserver_identity",
    implementations: &["mlserver_identity.IdentityModel"],
    artifact_names: &[],
    extensions: &[],
    signature: None,
    modules: &[],
    native: Some(NativeEvaluator::Identity),
    extra: None,
    system_packages: &[],
};

const STEPS: ModelFamily = ModelFamily {
    title: "native step",
    package: "mlserver",
    implementations: &["mlserver.Select", "mlserver.Map", "mlserver.Concat"],
    artifact_names: &[],
    extensions: &[],
    signature: None,
    modules: &[],
    native: Some(NativeEvaluator::Step),
    extra: None,
    system_packages: &[],
};

const GRAPHS: ModelFamily = ModelFamily {
    title: "inference graph",
    package: "mlserver",
    implementations: &["mlserver.Graph"],
    artifact_names: &["graph.yaml", "graph.yml", "graph.json"],
    extensions: &[],
    signature: None,
    modules: &[],
    native: Some(NativeEvaluator::Graph),
    extra: None,
    system_packages: &[],
};

/// All families.
pub const FAMILIES: [ModelFamily; 13] = [
    IDENTITY,
    STEPS,
    GRAPHS,
    ModelFamily {
        title: "scikit-learn",
        package: "mlserver_sklearn",
        implementations: &["mlserver_sklearn.SKLearnModel", "mlserver_sklearn.sklearn.SKLearnModel"],
        artifact_names: &["model.joblib", "model.pickle", "model.pkl", "model.skops"],
        extensions: &["joblib", "pickle", "pkl", "skops"],
        signature: None,
        modules: &["joblib", "sklearn"],
        native: Some(NativeEvaluator::Sklearn),
        extra: Some("sklearn"),
        system_packages: &[],
    },
    ModelFamily {
        title: "XGBoost",
        package: "mlserver_xgboost",
        implementations: &["mlserver_xgboost.XGBoostModel", "mlserver_xgboost.xgboost.XGBoostModel"],
        artifact_names: &["model.bst", "model.json", "model.ubj"],
        extensions: &["bst", "json", "ubj"],
        signature: None,
        modules: &["xgboost"],
        native: Some(NativeEvaluator::Trees(TreeLibrary::XgBoost)),
        extra: Some("xgboost"),
        system_packages: &[],
    },
    ModelFamily {
        title: "LightGBM",
        package: "mlserver_lightgbm",
        implementations: &["mlserver_lightgbm.LightGBMModel", "mlserver_lightgbm.lightgbm.LightGBMModel"],
        artifact_names: &["model.bst"],
        extensions: &["bst", "txt"],
        signature: Some(b"tree\n"),
        modules: &["lightgbm"],
        native: Some(NativeEvaluator::Trees(TreeLibrary::LightGbm)),
        extra: Some("lightgbm"),
        system_packages: &["libgomp1"],
    },
    ModelFamily {
        title: "MLflow",
        package: "mlserver_mlflow",
        implementations: &["mlserver_mlflow.MLflowRuntime", "mlserver_mlflow.runtime.MLflowRuntime"],
        artifact_names: &[],
        extensions: &[],
        signature: None,
        modules: &["mlflow"],
        native: Some(NativeEvaluator::Mlflow),
        extra: Some("mlflow"),
        system_packages: &[],
    },
    ModelFamily {
        title: "CatBoost",
        package: "mlserver_catboost",
        implementations: &["mlserver_catboost.CatboostModel", "mlserver_catboost.catboost.CatboostModel"],
        artifact_names: &["model.cbm", "model.bin"],
        extensions: &["cbm", "json"],
        signature: Some(b"CBM1"),
        modules: &["catboost"],
        native: Some(NativeEvaluator::CatBoost),
        extra: Some("catboost"),
        system_packages: &[],
    },
    ModelFamily {
        title: "ONNX",
        package: "mlserver_onnx",
        implementations: &["mlserver_onnx.OnnxModel", "mlserver_onnx.onnx.OnnxModel"],
        artifact_names: &["model.onnx"],
        extensions: &["onnx"],
        signature: None,
        modules: &["onnx", "onnxruntime"],
        native: Some(NativeEvaluator::Onnx),
        extra: Some("onnx"),
        system_packages: &[],
    },
    ModelFamily {
        title: "Hugging Face",
        package: "mlserver_huggingface",
        implementations: &[
            "mlserver_huggingface.HuggingFaceRuntime",
            "mlserver_huggingface.runtime.HuggingFaceRuntime",
        ],
        artifact_names: &[],
        extensions: &[],
        signature: None,
        modules: &["transformers"],
        native: None,
        extra: Some("huggingface"),
        system_packages: &[],
    },
    ModelFamily {
        title: "Spark MLlib",
        package: "mlserver_mllib",
        implementations: &["mlserver_mllib.MLlibModel", "mlserver_mllib.mllib.MLlibModel"],
        artifact_names: &[],
        extensions: &[],
        signature: None,
        modules: &["pyspark"],
        native: None,
        extra: Some("mllib"),
        system_packages: &[],
    },
    ModelFamily {
        title: "Alibi Detect",
        package: "mlserver_alibi_detect",
        implementations: &[
            "mlserver_alibi_detect.AlibiDetectRuntime",
            "mlserver_alibi_detect.runtime.AlibiDetectRuntime",
        ],
        artifact_names: &[],
        extensions: &[],
        signature: None,
        modules: &["alibi_detect"],
        native: None,
        extra: Some("alibi-detect"),
        system_packages: &[],
    },
    ModelFamily {
        title: "Alibi Explain",
        package: "mlserver_alibi_explain",
        implementations: &[
            "mlserver_alibi_explain.AlibiExplainRuntime",
            "mlserver_alibi_explain.runtime.AlibiExplainRuntime",
        ],
        artifact_names: &[],
        extensions: &[],
        signature: None,
        modules: &["alibi"],
        native: None,
        extra: Some("alibi-explain"),
        system_packages: &[],
    },
];

impl ModelFamily {
    /// Returns the family that has an implementation, or `None` for a user's own class.
    pub fn of(implementation: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.implementations.contains(&implementation))
    }

    /// Returns the family of a runtime's package. Unlike [`ModelFamily::of`] it recognizes classes within the package
    /// that extend the runtime.
    pub fn of_package(implementation: &str) -> Option<&'static Self> {
        let package = implementation.split('.').next().unwrap_or_default();
        if let Some(family) = Self::of(implementation) {
            return Some(family);
        }
        FAMILIES.iter().find(|family| family.package == package)
    }

    /// Returns the family of a model file, by its name and, if families share its extension, by how it begins.
    ///
    /// # Errors
    ///
    /// Fails if no family has files of that name, or the file cannot be read.
    pub fn of_file(path: &Path) -> Result<&'static Self, FileFamilyError> {
        if path.file_name().is_some_and(|name| name == MLMODEL)
            && let Some(family) = FAMILIES.iter().find(|family| family.native == Some(NativeEvaluator::Mlflow))
        {
            return Ok(family);
        }
        let extension = extension_of(path);
        let candidates: Vec<_> =
            FAMILIES.iter().filter(|family| family.extensions.contains(&extension.as_str())).collect();
        let begins = file_start(path, EXAMINED)?;
        let is_signed = |family: &Self| {
            family.signature.is_some_and(|start| begins.starts_with(start))
                || family.is_catboost() && is_catboost_json(&begins)
        };
        let signed = candidates.iter().find(|family| is_signed(family));
        let unsigned = candidates.iter().find(|family| family.signature.is_none());
        match signed.or(unsigned).or(candidates.first()) {
            Some(family) => Ok(family),
            None => Err(FileFamilyError::Unknown { extension }),
        }
    }

    /// Reports whether a file has the extension of a model file, which other files may have, too.
    pub fn has_model_extension(path: &Path) -> bool {
        let extension = extension_of(path);
        FAMILIES.iter().any(|family| family.extensions.contains(&extension.as_str()))
    }

    /// Reports whether a file with an extension of the family is a model: by its beginning if other files have that extension, too.
    pub fn recognizes(&self, path: &Path) -> bool {
        let extension = extension_of(path);
        if !COMMON_EXTENSIONS.contains(&extension.as_str()) {
            return true;
        }
        let start = file_start(path, EXAMINED).unwrap_or_default();
        match self.signature {
            Some(_) if self.is_catboost() => is_catboost_json(&start),
            Some(signature) => start.starts_with(signature),
            None => is_xgboost_json(&start),
        }
    }

    fn is_catboost(&self) -> bool {
        self.native == Some(NativeEvaluator::CatBoost)
    }

    /// Returns the names of the files that a folder is searched for, in order.
    pub fn artifact_names(settings: &ModelSettings) -> &'static [&'static str] {
        Self::of_package(&settings.implementation).map_or(&[], |family| family.artifact_names)
    }
}

/// Why a file is not known to be one of a model.
#[derive(Debug, thiserror::Error)]
pub enum FileFamilyError {
    #[error("{}; model files are called {}", unknown(extension), known_extensions())]
    Unknown { extension: String },
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

fn unknown(extension: &str) -> String {
    if extension.is_empty() {
        "its name has no extension".to_owned()
    } else {
        format!("`.{extension}` is not the extension of a model file")
    }
}

/// Lists the extensions of model files with their frameworks.
fn known_extensions() -> String {
    let families = FAMILIES.iter().filter(|family| !family.extensions.is_empty());
    let families = families.map(|family| {
        let extensions: Vec<_> = family.extensions.iter().map(|extension| format!("*.{extension}")).collect();
        format!("{} ({})", extensions.join(", "), family.title)
    });
    let mut families: Vec<_> = families.collect();
    families.push("MLmodel (MLflow)".to_owned());
    families.join(", ")
}

fn extension_of(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// How many bytes of a file are read to recognize it. The first keys of XGBoost's objects are in them.
const EXAMINED: u64 = 4 << 10;

/// Reports whether a JSON text begins as XGBoost writes it: an object with the key `learner`.
fn is_xgboost_json(start: &[u8]) -> bool {
    let key = br#""learner""#;
    start.trim_ascii_start().starts_with(b"{") && start.windows(key.len()).any(|bytes| bytes == key)
}

/// Reports whether a JSON text begins as `CatBoost` writes it: an object whose first key is one of the export's, which are sorted.
fn is_catboost_json(start: &[u8]) -> bool {
    let Some(inside) = start.trim_ascii_start().strip_prefix(b"{") else { return false };
    let inside = inside.trim_ascii_start();
    inside.starts_with(br#""ctr_data":"#) || inside.starts_with(br#""features_info":"#)
}

/// Reads the first bytes of a file.
fn file_start(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(length).read_to_end(&mut start)?;
    Ok(start)
}

/// The package of explainers.
const ALIBI_EXPLAIN: &str = "mlserver_alibi_explain.";

/// What answers `:explain` of KServe's V1 protocol for a model that only takes tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum V1Explainer {
    None,
    /// The model is an explainer.
    Itself,
    /// Another model: `parameters.extra.explainer`.
    Model(String),
}

impl V1Explainer {
    pub fn from_settings(settings: &ModelSettings) -> Self {
        let other = settings.parameters.extra.get("explainer").and_then(serde_json::Value::as_str);
        match other {
            Some(name) => Self::Model(name.to_owned()),
            None if settings.implementation.starts_with(ALIBI_EXPLAIN) => Self::Itself,
            None => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use super::*;

    fn repository_file(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
    }

    #[test]
    fn family_implementations_are_unique_and_within_their_package() {
        let mut seen = HashSet::new();
        for family in &FAMILIES {
            for implementation in family.implementations {
                assert!(seen.insert(implementation), "{implementation}");
                assert_eq!(ModelFamily::of(implementation), Some(family));
                assert_eq!(ModelFamily::of_package(implementation), Some(family));
            }
        }
        assert_eq!(ModelFamily::of("models.Custom"), None);
        assert_eq!(ModelFamily::of_package("mlserver_xgboost.custom.Mine").unwrap().title, "XGBoost");
    }

    #[test]
    fn family_classes_exist_in_the_python_packages() {
        for family in FAMILIES.iter().filter(|family| ![IDENTITY, STEPS, GRAPHS].contains(family)) {
            let exports = repository_file(&format!("python/{}/__init__.py", family.package));
            for implementation in family.implementations {
                let class = implementation.rsplit('.').next().unwrap();
                assert!(exports.contains(&format!("\"{class}\"")), "{implementation}");
            }
        }
    }

    #[test]
    fn family_extras_are_those_of_the_wheel() {
        let wheel = repository_file("pyproject.toml");
        let (_, extras) = wheel.split_once("[project.optional-dependencies]").unwrap();
        let extras: HashSet<_> = extras
            .lines()
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| Some(line.split_once(" = ")?.0))
            .filter(|extra| *extra != "all")
            .collect();
        assert_eq!(FAMILIES.iter().filter_map(|family| family.extra).collect::<HashSet<_>>(), extras);
    }

    #[test]
    fn image_with_all_runtimes_installs_their_system_packages() {
        let image = repository_file("packaging/docker/all.Dockerfile");
        let install = image.lines().find(|line| line.contains("apt-get install")).unwrap();
        for package in FAMILIES.iter().flat_map(|family| family.system_packages) {
            assert!(install.split_whitespace().any(|word| word == *package), "{package}");
        }
    }
}
