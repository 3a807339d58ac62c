//! Model folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The quickstart's models.
pub(crate) const IRIS: &str = "iris-xgboost";
pub(crate) const BREAST_CANCER: &str = "breast-cancer-lightgbm";

/// Returns a path in this repository.
pub(crate) fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A private model folder, deleted when the test ends.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A copy of `examples/quickstart` with only the models.
    pub(crate) fn quickstart() -> Self {
        Self::new().with_copy(IRIS).with_copy(BREAST_CANCER)
    }

    /// Only the iris model, with the version `v1.0.0`.
    pub(crate) fn iris() -> Self {
        Self::new().with_copy(IRIS)
    }

    fn with_copy(self, model: &str) -> Self {
        let source = repository_path("examples/quickstart").join(model);
        let target = self.path(model);
        fs::create_dir_all(&target).unwrap();
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
        }
        self
    }

    /// Adds the iris model in its own folder, with other settings.
    pub(crate) fn with_iris(self, folder: &str, settings: &Value) -> Self {
        let artifact = repository_path("examples/quickstart").join(IRIS).join("model.json");
        let folder_path = self.path(folder);
        fs::create_dir_all(&folder_path).unwrap();
        fs::copy(artifact, folder_path.join("model.json")).unwrap();
        let mut all = json!({"implementation": "mlserver_xgboost.XGBoostModel"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        self.file(&format!("{folder}/model-settings.json"), all.to_string())
    }

    /// Adds a model that answers with its inputs.
    pub(crate) fn with_identity(self, name: &str) -> Self {
        let settings = json!({"name": name, "implementation": "mlserver_identity.IdentityModel"});
        self.file(&format!("{name}/model-settings.json"), settings.to_string())
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Writes `settings.json`.
    pub(crate) fn settings(self, settings: &Value) -> Self {
        self.file("settings.json", settings.to_string())
    }

    /// Adds a certificate for `localhost` that is its own issuer, as `server.pem` and `server.key`.
    #[track_caller]
    pub(crate) fn with_self_signed_certificate(self) -> Self {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "server.key", "-out", "server.pem"])
            .current_dir(self.root())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }
}
