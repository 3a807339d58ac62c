//! MLflow's `/invocations`: any body of JSON or CSV is answered. The first byte chooses the model and the content type.
//!
//! `cargo +nightly fuzz run invocations -- -malloc_limit_mb=512`. The models are golden ones.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;
use mlserver::compute::ComputePool;
use mlserver::families::NativeEvaluator;
use mlserver::runtimes::{Runtime, load_native};
use mlserver::settings::ModelSettings;
use mlserver::types::CustomCall;
use tokio::runtime;

/// Longer bodies are no more interesting.
const LONGEST: usize = 8 << 10;

static MODELS: LazyLock<Vec<Arc<dyn Runtime>>> = LazyLock::new(|| {
    let load = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/mlflow").join(name).join("model");
        let settings = ModelSettings::new(name, "mlserver_mlflow.MLflowRuntime");
        load_native(NativeEvaluator::Mlflow, &settings, &folder, &ComputePool::for_this_machine()).expect("a golden model")
    };
    ["plain", "column", "linear", "pipeline"].map(load).into()
});

static RUNTIME: LazyLock<runtime::Runtime> =
    LazyLock::new(|| runtime::Builder::new_current_thread().build().expect("threads for long predictions"));

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    if body.len() > LONGEST {
        return;
    }
    let content_type = if choice & 4 == 0 { "application/json" } else { "text/csv" };
    let model = &MODELS[usize::from(choice & 3)];
    let route = model.description().routes.iter().position(|route| route.method == Method::POST).expect("`/invocations`");
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let call = CustomCall {
        method: Method::POST,
        path: "/invocations".to_owned(),
        parameters: Vec::new(),
        query: String::new(),
        headers,
        body: Bytes::copy_from_slice(body),
    };
    let reply = RUNTIME.block_on(model.call(route, call, Arc::new(()))).expect("every body is answered");
    assert!([200, 400].contains(&reply.status.as_u16()));
});
