//! Descriptions of MLflow's models: any `MLmodel` is described, or rejected with a reason, without a panic.
//!
//! The artifact beside it is that of a golden model.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mlserver::families::ModelFamily;
use mlserver::runtimes::FileDescription;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // A file system in memory, if there is one.
    let memory = Path::new("/dev/shm");
    let temporary = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = temporary.join(format!("fuzz-mlmodel-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/mlflow/linear/model/model.pkl");
    fs::copy(golden, folder.join("model.pkl")).expect("a golden model");
    folder
});

fuzz_target!(|description: &[u8]| {
    fs::write(FOLDER.join("MLmodel"), description).expect("a temporary folder");
    // An error is a valid result.
    let family = ModelFamily::of("mlserver_mlflow.MLflowRuntime").expect("a family");
    drop(FileDescription::read(family, &FOLDER));
});
