//! Transformers of KServe whose predictor is a model of the same server: `parameters.extra.predictor`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::{Folder, ServerBuilder, TestServer, wait_until};

const MODELS: &str = "
import asyncio
import kserve
from kserve import InferOutput, InferResponse

class Doubles(kserve.Model):
    '''A transformer: doubles the request, and negates the answer.'''

    def load(self):
        self.ready = True
        return True

    async def preprocess(self, payload, headers=None):
        if isinstance(payload, dict):
            return {'instances': [[2 * value for value in row] for row in payload['instances']]}
        tensor = payload.inputs[0]
        tensor.data = [2 * value for value in tensor.data]
        return payload

    def postprocess(self, result, headers=None, response_headers=None):
        if isinstance(result, dict):
            return {**result, 'by': self.name}
        outputs = [InferOutput('negated', each.shape, each.datatype, [-value for value in each.data])
                   for each in result.outputs]
        return InferResponse(result.id, self.name, outputs)

class Passes(kserve.Model):
    '''A transformer that changes nothing.'''

    def load(self):
        self.ready = True
        return True

class Predictor(kserve.Model):
    def load(self):
        self.ready = True
        return True

    async def predict(self, payload, headers=None):
        if 'wait' in str(payload if isinstance(payload, dict) else payload.inputs[0].data):
            await asyncio.sleep(600)
        if 'tea' in str(payload if isinstance(payload, dict) else payload.inputs[0].data):
            raise kserve.errors.InvalidInput('no tea')
        return {'predictions': payload['instances'], 'headers': {name: value for name, value in headers.items() if name.startswith(('x-', 'auth'))}}
";

/// A server with the classes above by name, class and predictor, one native model `echo`, and these settings of the server.
fn starting(models: &[(&str, &str, Option<&str>)], settings: &Value) -> Option<ServerBuilder> {
    let folder = models.iter().fold(Folder::new().with_identity("echo"), |folder, (name, class, predictor)| {
        let extra = predictor.map_or_else(|| json!({}), |predictor| json!({"predictor": predictor}));
        let settings =
            json!({"name": name, "implementation": format!("models.{class}"), "parameters": {"extra": extra}});
        folder
            .file(&format!("{name}/models.py"), MODELS)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    });
    with_python(folder.settings(settings))
}

fn v1(server: &TestServer, model: &str, instances: &Value) -> crate::support::Answer {
    server.post(&format!("/v1/models/{model}:predict"), json!({"instances": instances}).to_string())
}

#[test]
fn transformer_asks_native_predictor_within_its_own_slot() {
    let settings = json!({"max_in_flight": 1, "server_timing": true});
    let Some(starting) = starting(&[("doubles", "Doubles", Some("echo"))], &settings) else { return };
    let server = starting.start();
    let answer = v1(&server, "doubles", &json!([[1, 2], [3, 4]])).ok();
    assert_eq!(answer, json!({"predictions": [[2, 4], [6, 8]], "by": "doubles"}));
    for datatype in ["INT64", "FP32", "FP16"] {
        let tensor = json!({"name": "x", "shape": [2, 1], "datatype": datatype, "data": [1, 2]});
        let body = json!({"id": "r", "inputs": [tensor]}).to_string();
        let answer = server.post("/v2/models/doubles/infer", body).ok();
        assert_eq!((&answer["id"], &answer["outputs"][0]["name"]), (&json!("r"), &json!("negated")));
        let data: Vec<f64> = serde_json::from_value(answer["outputs"][0]["data"].clone()).unwrap();
        assert_eq!((data, &answer["outputs"][0]["datatype"]), (vec![-2.0, -4.0], &json!(datatype)), "{answer}");
    }
    let metrics = server.scrape();
    assert!(
        metrics.text().contains("model_infer_request_success_total{model=\"echo\",version=\"None\"} 4"),
        "{}",
        metrics.text()
    );
}

#[test]
fn transformer_forwards_headers_and_passes_on_statuses() {
    let models = [
        ("passes", "Passes", Some("predictor")),
        ("lost", "Passes", Some("missing")),
        ("predictor", "Predictor", None),
    ];
    let headers = [("authorization", "Bearer a"), ("x-request-id", "r7"), ("x-other", "b")];
    let key = json!([{"name": "ci", "hash": mlserver::access::KeyHash::of(b"a").to_string(), "scopes": ["infer"]}]);
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, key.to_string()).unwrap();
    for (forwarded, seen) in [
        (json!([]), json!({"x-request-id": "r7"})),
        (json!(["authorization"]), json!({"authorization": "Bearer a", "x-request-id": "r7"})),
    ] {
        let settings = json!({"api_keys_file": keys, "forward_headers": forwarded});
        let Some(guarded) = starting(&models, &settings) else { return };
        let answer = guarded.start().post_with("/v1/models/passes:predict", &headers, r#"{"instances": [1]}"#).ok();
        assert_eq!(answer["headers"], seen, "with access control, models see the credentials that are listed");
    }
    let Some(starting) = starting(&models, &json!({})) else { return };
    let server = starting.start();
    let answer = server.post_with("/v1/models/passes:predict", &headers, r#"{"instances": [1]}"#).ok();
    assert_eq!(answer["predictions"], json!([1]));
    assert_eq!(answer["headers"], json!({"authorization": "Bearer a", "x-request-id": "r7"}));
    assert_eq!(v1(&server, "passes", &json!(["tea"])).error(400), "no tea");
    assert_eq!(v1(&server, "lost", &json!([1])).error(404), "Model missing not found");
    assert_eq!(server.post("/v2/repository/models/predictor/unload", "").status, 200);
    assert_eq!(v1(&server, "passes", &json!([1])).error(404), "Model predictor not found");
    assert_eq!(server.post("/v2/repository/models/predictor/load", "").status, 200);
    v1(&server, "passes", &json!([1])).ok();
}

#[test]
fn waiting_predictor_ends_with_the_request() {
    let models = [("passes", "Passes", Some("predictor")), ("predictor", "Predictor", None)];
    let Some(starting) = starting(&models, &json!({"max_in_flight": 1})) else { return };
    let server = starting.start();
    let started = Instant::now();
    let headers = [("request-timeout", "0.5")];
    let answer = server.post_with("/v1/models/passes:predict", &headers, r#"{"instances": ["wait"]}"#);
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // The slot and the models are free again.
    wait_until("the request has left", || v1(&server, "passes", &json!([1])).status == 200);
    let in_flight = "model_infer_in_flight{model=\"predictor\",version=\"None\"} 0";
    wait_until("the predictor's request has ended", || server.scrape().text().contains(in_flight));
}

#[test]
fn predictors_that_lead_back_fail_to_load() {
    let models = [("a", "Passes", Some("b")), ("b", "Passes", Some("a")), ("self", "Passes", Some("self"))];
    let Some(starting) = starting(&models, &json!({"exit_on_load_failure": false})) else { return };
    let server = starting.listen();
    server.wait_for_log("its steps form a cycle: self -> self");
    wait_until("one of the two is rejected", || {
        let log = server.log();
        log.contains("its steps form a cycle: a -> b -> a") || log.contains("its steps form a cycle: b -> a -> b")
    });
}

#[test]
fn predictor_with_a_host_is_a_load_error() {
    let extra = json!({"predictor": "echo", "predictor_host": "localhost:1"});
    let settings = json!({"name": "m", "implementation": "models.Passes", "parameters": {"extra": extra}});
    let folder = Folder::new().file("m/models.py", MODELS).file("m/model-settings.json", settings.to_string());
    let Some(starting) = with_python(folder) else { return };
    let ended = starting.run();
    assert_eq!(ended.code, Some(1));
    let reason = "has both `predictor` ('echo') and `predictor_host` ('localhost:1')";
    assert!(ended.stdout.contains(reason), "{}{}", ended.stdout, ended.stderr);
}
