//! The model families: one row for each framework that the server knows.
//!
//! Everything that depends on the framework of a model reads this table: which runtime an `implementation` means, which
//! files a folder is searched for, what can be evaluated natively, and what an environment or an image has to bring.

use crate::settings::ModelSettings;

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
    /// A tree ensemble.
    Trees(TreeLibrary),
    /// An estimator of scikit-learn.
    Sklearn,
    /// Dispatches to the evaluator of the flavor that MLflow saved.
    Mlflow,
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
    native: Some(NativeEvaluator::Identity),
    extra: None,
    system_packages: &[],
};

/// All families.
pub const FAMILIES: [ModelFamily; 10] = [
    IDENTITY,
    ModelFamily {
        title: "scikit-learn",
        package: "mlserver_sklearn",
        implementations: &["mlserver_sklearn.SKLearnModel", "mlserver_sklearn.sklearn.SKLearnModel"],
        artifact_names: &["model.joblib", "model.pickle", "model.pkl"],
        native: Some(NativeEvaluator::Sklearn),
        extra: Some("sklearn"),
        system_packages: &[],
    },
    ModelFamily {
        title: "XGBoost",
        package: "mlserver_xgboost",
        implementations: &["mlserver_xgboost.XGBoostModel", "mlserver_xgboost.xgboost.XGBoostModel"],
        artifact_names: &["model.bst", "model.json", "model.ubj"],
        native: Some(NativeEvaluator::Trees(TreeLibrary::XgBoost)),
        extra: Some("xgboost"),
        system_packages: &[],
    },
    ModelFamily {
        title: "LightGBM",
        package: "mlserver_lightgbm",
        implementations: &["mlserver_lightgbm.LightGBMModel", "mlserver_lightgbm.lightgbm.LightGBMModel"],
        artifact_names: &["model.bst"],
        native: Some(NativeEvaluator::Trees(TreeLibrary::LightGbm)),
        extra: Some("lightgbm"),
        system_packages: &["libgomp1"],
    },
    ModelFamily {
        title: "MLflow",
        package: "mlserver_mlflow",
        implementations: &["mlserver_mlflow.MLflowRuntime", "mlserver_mlflow.runtime.MLflowRuntime"],
        artifact_names: &[],
        native: Some(NativeEvaluator::Mlflow),
        extra: Some("mlflow"),
        system_packages: &[],
    },
    ModelFamily {
        title: "CatBoost",
        package: "mlserver_catboost",
        implementations: &["mlserver_catboost.CatboostModel", "mlserver_catboost.catboost.CatboostModel"],
        artifact_names: &["model.cbm", "model.bin"],
        native: None,
        extra: Some("catboost"),
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
        native: None,
        extra: Some("huggingface"),
        system_packages: &[],
    },
    ModelFamily {
        title: "Spark MLlib",
        package: "mlserver_mllib",
        implementations: &["mlserver_mllib.MLlibModel", "mlserver_mllib.mllib.MLlibModel"],
        artifact_names: &[],
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
        FAMILIES.iter().find(|family| family.package == package)
    }

    /// Returns the names of the files that a folder is searched for, in order.
    pub fn artifact_names(settings: &ModelSettings) -> &'static [&'static str] {
        Self::of_package(&settings.implementation).map_or(&[], |family| family.artifact_names)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

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
        for family in FAMILIES.iter().filter(|family| **family != IDENTITY) {
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
        let image = repository_file("docker/all.Dockerfile");
        let install = image.lines().find(|line| line.contains("apt-get install")).unwrap();
        for package in FAMILIES.iter().flat_map(|family| family.system_packages) {
            assert!(install.split_whitespace().any(|word| word == *package), "{package}");
        }
    }
}
