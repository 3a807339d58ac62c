//! Conditions of graphs: any condition is compiled or rejected, and each is evaluated against any V2 request without an error of its own.
//! The input is a condition, up to the end of the line, and the body of a request, whose answer is matched, too.
#![no_main]

mod echo;

use std::sync::{Arc, LazyLock};

use echo::Echo;
use libfuzzer_sys::fuzz_target;
use mlserver::graphs::{Graph, GraphManifest, GraphOptions, execute};
use mlserver::types::json::{JsonRequest, read_request};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

fn graph(router: &str, steps: &Value) -> Option<Graph> {
    let manifest = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "graph"},
        "spec": {"nodes": {"root": {"routerType": router, "steps": steps}}},
    });
    let manifest = GraphManifest::parse(manifest.to_string().as_bytes(), "graph.yaml", &GraphOptions::default());
    manifest.ok().map(|manifest| manifest.graph)
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Some((condition, body)) = text.split_once('\n') else { return };
    let Ok(JsonRequest { request, .. }) = read_request(body.as_bytes(), None) else { return };
    let of_request = json!([{"serviceName": "a", "condition": condition}, {"serviceName": "b"}]);
    let of_answer = json!([{"serviceName": "a"}, {"serviceName": "b", "condition": condition}]);
    for (router, steps) in [("Switch", of_request), ("Sequence", of_answer)] {
        let Some(graph) = graph(router, &steps) else { return };
        let execution = RUNTIME.block_on(execute(Arc::new(graph), Arc::new(Echo), request.clone()));
        // A condition that holds for nothing is a valid result.
        drop(execution.answer);
    }
});
