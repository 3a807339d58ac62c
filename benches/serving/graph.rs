//! Asks three native models, one by one or as an inference graph, in one process.
//!
//! Usage: `cargo run --profile dist --example graph -- each|graph REQUESTS`. `graph.py` counts the instructions of both.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mlserver::compute::ComputePool;
use mlserver::inference::{Admission, Inference};
use mlserver::registry::{Registry, RegistryDirectory, RuntimeLoader};
use mlserver::runtimes::GraphResources;
use mlserver::runtimes::python::{Python, PythonOptions};
use mlserver::settings::{ModelSettings, SettingsSources, SystemEnvironment};
use mlserver::telemetry::graphs::GraphMetrics;
use mlserver::telemetry::inference::InferenceMetrics;
use mlserver::telemetry::metrics::Registry as MetricsRegistry;
use mlserver::types::{ForwardedCredentials, InferenceRequest, Tensor};

/// As in the executable.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MODELS: [&str; 3] = ["xgboost-tumor", "lightgbm-tumor", "sklearn-tumor"];

/// The columns of the example's request.
const COLUMNS: usize = 5;

/// The graph of these models, whose answers it joins.
const MANIFEST: &str = r#"{
    "apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "all"},
    "spec": {
        "steps": [{"name": "xgboost-tumor"}, {"name": "lightgbm-tumor"}, {"name": "sklearn-tumor"}],
        "output": {"steps": ["xgboost-tumor", "lightgbm-tumor", "sklearn-tumor"]}
    }
}"#;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(mode), Some(requests)) = (arguments.next(), arguments.next()) else {
        bail!("usage: graph each|graph REQUESTS");
    };
    let names: &[&str] = match mode.as_str() {
        "each" => &MODELS,
        "graph" => &["all"],
        other => bail!("unknown mode {other}"),
    };
    let requests: u32 = requests.parse().context("REQUESTS")?;
    // One thread, so that all instructions are counted in the same way.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(names, requests))
}

async fn run(names: &[&str], requests: u32) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/graph-ensemble");
    let inference = load(&folder).await?;
    let body: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("request.json"))?)?;
    let values: Vec<f64> = serde_json::from_value(body["inputs"][0]["data"].clone())?;
    let row = values.get(..COLUMNS).context("the example's request has no row")?;
    let input = Tensor::from_elements("measurements", vec![1, COLUMNS], row)?;
    let started = Instant::now();
    for _ in 0..requests {
        for name in names {
            let target = inference.target(name, None)?;
            let request = InferenceRequest { inputs: vec![input.clone()], ..InferenceRequest::default() };
            let response = inference.infer(&target, request, &mut Admission::new()).await?;
            anyhow::ensure!(!response.outputs.is_empty(), "no answer");
        }
    }
    println!("{:.2} microseconds a request", started.elapsed().as_secs_f64() * 1e6 / f64::from(requests));
    Ok(())
}

/// Loads the models and their graph.
async fn load(folder: &Path) -> Result<Inference> {
    let mut metrics = MetricsRegistry::default();
    let compute = ComputePool::for_this_machine();
    let directory = RegistryDirectory::default();
    let loader = RuntimeLoader {
        compute: compute.clone(),
        loading: ComputePool::for_this_machine(),
        working_directory: folder.to_owned(),
        python: Python::new(PythonOptions::default()),
        graphs: GraphResources::new(
            Arc::new(directory.clone()),
            GraphMetrics::register(&mut metrics),
            compute.clone(),
            ForwardedCredentials::default(),
        ),
        is_openai: |_, _| false,
        openai_prefix: String::new(),
        is_reserved: |_| false,
    };
    let registry = Registry::new(loader, InferenceMetrics::register(&mut metrics));
    directory.connect(&registry);
    let sources = SettingsSources::read(&SystemEnvironment)?;
    for name in MODELS {
        let path = folder.join(name).join("model-settings.json");
        registry.load(ModelSettings::load(&path, &sources, false)?.settings).await?;
    }
    let manifest = std::env::temp_dir().join(format!("graph-{}.json", std::process::id()));
    std::fs::write(&manifest, MANIFEST)?;
    let mut settings = ModelSettings::new("all", "mlserver.Graph");
    settings.parameters.uri = Some(manifest.to_string_lossy().into_owned());
    registry.load(settings).await?;
    std::fs::remove_file(&manifest)?;
    Ok(Inference::new(registry, NonZeroUsize::MAX))
}
