//! Inference graphs: any manifest is compiled or rejected, and each graph answers or fails. The input is a manifest; and a condition, up to
//! the end of the line, with the request that it is matched against.
//!
//! Steps answer with their inputs, and fail if their names begin with `f`.
#![no_main]

mod echo;

use std::sync::{Arc, LazyLock};

use echo::Echo;
use libfuzzer_sys::fuzz_target;
use mlserver::graphs::{Graph, GraphManifest, GraphOptions, draw, execute};
use mlserver::types::{InferenceRequest, Tensor};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

fn run(graph: Graph, inputs: Vec<Tensor>) {
    let svg = draw(&graph);
    assert!(svg.starts_with("<svg") || svg.starts_with("<p>"));
    graph.check_tensors(|step| (step.name.len() % 2 == 0).then(|| vec!["x".to_owned()]));
    let request = InferenceRequest { inputs, ..InferenceRequest::default() };
    RUNTIME.block_on(async {
        let execution = execute(Arc::new(graph), Arc::new(Echo), request).await;
        // An error is a valid result.
        drop(execution.answer);
        if let Some(background) = execution.background {
            background.await;
        }
    });
}

fn parse(manifest: &[u8]) -> Option<Graph> {
    let manifest = GraphManifest::parse(manifest, "graph.yaml", &GraphOptions::default());
    manifest.ok().map(|manifest| manifest.graph)
}

fn integer(name: &str, value: i64) -> Tensor {
    Tensor::from_elements(name, vec![1], &[value]).expect("one element")
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(graph) = parse(bytes) {
        run(graph, vec![integer("x", 0)]);
    }
    let text = String::from_utf8_lossy(bytes);
    let (condition, name) = text.split_once('\n').unwrap_or((&text, "x"));
    let steps = json!([{"serviceName": "a", "condition": condition}]);
    let manifest = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "graph"},
        "spec": {"nodes": {"root": {"routerType": "Switch", "steps": steps}}},
    });
    if let Some(graph) = parse(manifest.to_string().as_bytes()) {
        run(graph, vec![integer(name, bytes.last().map_or(0, |last| i64::from(*last))), integer("x", -1)]);
    }
});
