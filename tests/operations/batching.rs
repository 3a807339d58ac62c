//! Adaptive batching as clients see it, over every transport at once.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mlserver::types::{InferenceRequest, InferenceResponse};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::grpc::{infer_request, inference_client, ints};
use crate::support::python::with_python;
use crate::support::worker_models::folder;
use crate::support::{EmbeddedServer, FnRuntime, Folder, ServerBuilder, TestServer, eventually, wait_until};

fn body(id: &str, values: &[i32]) -> String {
    let input = json!({"name": "x", "datatype": "INT32", "shape": [values.len()], "data": values});
    json!({"id": id, "inputs": [input]}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_is_shared_by_all_transports() {
    // Answers with its inputs once the gate opens, and records the rows of each batch.
    let (gate, rows) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (opened, recorded) = (Arc::clone(&gate), Arc::clone(&rows));
    let gated = FnRuntime::new(move |request| {
        recorded.lock().unwrap().push(request.inputs[0].shape[0]);
        let gate = Arc::clone(&opened);
        async move {
            gate.acquire().await.unwrap().forget();
            let InferenceRequest { parameters, inputs, .. } = request;
            Ok(InferenceResponse { parameters, outputs: inputs, ..InferenceResponse::default() })
        }
    });
    let server = EmbeddedServer::serve_as(gated, |settings| {
        (settings.max_batch_size, settings.max_batch_time) = (8, Duration::from_mins(1));
    })
    .await;
    let (client, grpc) = (server.client(), inference_client(server.grpc).await);
    let rest = |value: i32| {
        let client = client.clone();
        tokio::task::spawn_blocking(move || {
            let id = format!("rest-{value}");
            let answer = client.post("/v2/models/m/infer", body(&id, &[value, value + 1]));
            assert_eq!(answer.header("ce-id"), id);
            (answer.ok(), json!([value, value + 1]), id)
        })
    };
    let busy = rest(0);
    eventually("the first is in flight", || server.inference.in_flight() == 1).await;
    let asked: Vec<_> = (1..4).map(|value| rest(value * 10)).collect();
    let typed = (4..7).map(|value| {
        let mut grpc = grpc.clone();
        tokio::spawn(async move {
            let mut request = infer_request("m", "INT32", &[1], ints(&[value]));
            request.id = format!("grpc-{value}");
            let answer = grpc.model_infer(request).await.unwrap().into_inner();
            let contents = answer.outputs[0].contents.as_ref().unwrap().int_contents.clone();
            assert_eq!(
                (answer.id, contents, &answer.outputs[0].shape),
                (format!("grpc-{value}"), vec![value], &vec![1])
            );
        })
    });
    let typed: Vec<_> = typed.collect();
    eventually("all are in flight", || server.inference.in_flight() == 7).await;
    gate.add_permits(2);
    for asked in asked.into_iter().chain([busy]) {
        let (answer, data, id) = asked.await.unwrap();
        assert_eq!((&answer["id"], &answer["outputs"][0]["data"]), (&Value::from(id), &data));
        assert_eq!(answer["outputs"][0]["shape"], json!([2]));
    }
    for typed in typed {
        typed.await.unwrap();
    }
    assert_eq!(*rows.lock().unwrap(), [2, 9], "the second batch has all that came while the first ran");
}

/// The settings of a model that batches.
fn identity(settings: &Value) -> Folder {
    let mut all = json!({"implementation": "mlserver_identity.IdentityModel"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    Folder::new().file("m/model-settings.json", all.to_string())
}

#[test]
fn batch_metrics_use_the_original_names() {
    let server = TestServer::start(identity(&json!({"max_batch_size": 4, "max_batch_time": 0.01})));
    server.wait_for_log("Batching up to 4 requests within 0.01 s");
    for value in 0..3 {
        server.post("/v2/models/m/infer", body("id", &[value])).ok();
    }
    let scrape = server.scrape();
    let labels = r#"{model_name="m",model_version=""}"#;
    for line in [
        format!("batch_request_queue_count{labels} 3"),
        format!("model_infer_batch_size_sum{labels} 3"),
        format!("model_infer_batch_rows_sum{labels} 3"),
        format!("model_infer_batch_failures_total{labels} 0"),
    ] {
        assert!(
            scrape.text().lines().any(|found| found == line || found == format!("{line}.0")),
            "{line}:\n{}",
            scrape.text()
        );
    }
}

#[test]
fn batch_needs_both_settings() {
    for settings in [
        json!({"max_batch_size": 4}),
        json!({"max_batch_time": 1.0}),
        json!({"max_batch_size": 1, "max_batch_time": 1.0}),
    ] {
        let server = ServerBuilder::new(identity(&settings)).flag("--strict").start();
        server.post("/v2/models/m/infer", body("id", &[1])).ok();
        assert!(!server.scrape().text().contains("batch_request_queue{"), "{settings}");
        assert!(!server.log().contains("batched"), "{settings}");
    }
}

#[test]
fn batch_waiting_coroutine_does_not_block_the_next_batch() {
    let settings = json!({
        "name": "m", "implementation": "models.Coroutine", "max_batch_size": 8, "max_batch_time": 0.01,
        "parallel_workers": 1,
    });
    let Some(starting) = with_python(folder(&[("m", "Coroutine")]).file("m/model-settings.json", settings.to_string()))
    else {
        return;
    };
    let server = starting.start();
    let sleep = |milliseconds: u64| {
        let input = json!({"name": "x", "datatype": "INT64", "shape": [1], "data": [milliseconds]});
        server.post("/v2/models/m/infer", json!({"inputs": [input]}).to_string()).ok();
        Instant::now()
    };
    thread::scope(|scope| {
        let long = scope.spawn(|| sleep(2000));
        wait_until("the first has begun", || {
            server.scrape().text().contains("model_infer_batch_size_count{model_name=\"m\",model_version=\"\"} 1")
        });
        let short = sleep(1);
        assert!(short < long.join().unwrap(), "it waited for the first");
    });
}
