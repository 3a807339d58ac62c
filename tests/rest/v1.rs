//! KServe's V1 protocol, for models that only take tensors. `tests/clients/test_kserve.py` compares it with KServe's own server.

use http::Method;
use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::{Folder, TestServer};

/// A model in Python that answers with what it was sent.
const MODELS: &str = r#"
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse, ResponseOutput


class Inputs(MLModel):
    async def predict(self, payload):
        if payload.inputs[0].name == "refuse":
            from mlserver.errors import InferenceError
            raise InferenceError("no")
        seen = [
            f"{i.name} {i.datatype} {list(i.shape)} {getattr(i.parameters, 'content_type', None)}"
            for i in payload.inputs
        ]
        seen.append(payload.parameters.headers.get("x-own", "none"))
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("seen", seen)])


class Explainer(MLModel):
    async def predict(self, payload):
        text = '{"meta":{"name":"made"},"data":[1]}'
        output = ResponseOutput(name="explanation", shape=[1], datatype="BYTES", data=[text])
        return InferenceResponse(model_name=self.name, outputs=[output])


class Late(MLModel):
    async def load(self):
        return False
"#;

fn python_models() -> Option<TestServer> {
    let mut folder = Folder::new();
    for (name, class) in [("seen", "Inputs"), ("explainer", "Explainer"), ("late", "Late")] {
        let settings = match name {
            "seen" => json!({"parameters": {"extra": {"explainer": "explainer"}}}),
            _ => json!({}),
        };
        let mut settings = settings;
        settings["name"] = name.into();
        settings["implementation"] = format!("models.{class}").into();
        folder = folder
            .file(&format!("{name}/models.py"), MODELS)
            .file(&format!("{name}/model-settings.json"), settings.to_string());
    }
    Some(with_python(folder.settings(&json!({"exit_on_load_failure": false})))?.listen())
}

fn identity() -> TestServer {
    TestServer::start(Folder::new().with_identity("id"))
}

#[test]
fn v1_predictions_of_a_native_model_are_a_list() {
    let server = TestServer::start(Folder::iris());
    let predict = "/v1/models/iris-xgboost:predict";
    let rows = r"[[6.2,2.8,4.8,1.8],[5.1,3.5,1.4,0.2]]";
    for body in [format!(r#"{{"instances":{rows}}}"#), format!(r#"{{"inputs":{rows}}}"#)] {
        let answer = server.post(predict, &body);
        assert_eq!((answer.status, answer.text()), (200, r#"{"predictions":[2,0]}"#));
        assert_eq!(answer.header("content-type"), "application/json");
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("ce-")), "{answer:?}");
    }
    assert_eq!(server.post("/v1/models/iris-xgboost%3Apredict", format!(r#"{{"instances":{rows}}}"#)).status, 200);
    let metrics = server.scrape();
    let counted = "model_infer_request_success_total{model=\"iris-xgboost\"";
    let is_counted = |line: &str| line.starts_with(counted) && line.ends_with(" 3");
    assert!(metrics.text().lines().any(is_counted), "{}", metrics.text());
    let path = "path=\"/v1/models/{model_name}:predict\",status_code=\"200\"} 3";
    assert!(metrics.text().contains(path), "{}", metrics.text());
}

#[test]
fn v1_metadata_routes_answer_as_kserve() {
    let server = TestServer::start(Folder::iris());
    assert_eq!(server.get("/").text(), r#"{"status":"alive"}"#);
    assert_eq!(server.get("/v1/models").text(), r#"{"models":["iris-xgboost"]}"#);
    assert_eq!(server.get("/v1/models/iris-xgboost").text(), r#"{"name":"iris-xgboost","ready":true}"#);
    assert_eq!(server.get("/v1/models/nope").error(404), "Model with name nope does not exist.");
    assert_eq!(server.post("/v1/models/nope:predict", "{}").error(404), "Model with name nope does not exist.");
    assert_eq!(server.get("/v1/models/iris-xgboost:predict").status, 405);
    assert_eq!(server.request(&Method::PUT, "/v1/models", &[], b"").error(405), "/v1/models does not support PUT");
    // A model of trees explains its predictions by itself.
    assert!(server.post("/v1/models/iris-xgboost:explain", "{}").error(400).starts_with("Unrecognized request format"));
    let said = identity().post("/v1/models/id:explain", r#"{"instances":[1]}"#).error(501);
    assert!(said.starts_with("Could not find explainer_host."), "{said}");
    assert_eq!(server.post("/v2/repository/models/iris-xgboost/unload", "").status, 200);
    assert_eq!(server.get("/v1/models").text(), r#"{"models":[]}"#);
}

#[test]
fn v1_instances_come_back_from_the_identity_model() {
    let server = identity();
    let predict = |body: &Value| server.post("/v1/models/id:predict", body.to_string()).ok();
    for instances in [
        json!([[1, 2], [3, 4]]),
        json!([1.5, 2.25]),
        json!([true, false]),
        json!(["a", "é"]),
        json!([[[1], [2]], [[3], [4]]]),
    ] {
        assert_eq!(predict(&json!({"instances": instances})), json!({"predictions": instances}));
    }
    let objects = json!([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]);
    assert_eq!(predict(&json!({"instances": objects})), json!({"predictions": objects}));
    // Binary data that is text comes back as text.
    let images = json!({"instances": [{"b64": "aGk="}, {"b64": "//8="}]});
    assert_eq!(predict(&images), json!({"predictions": ["hi", {"b64": "//8="}]}));
}

#[test]
fn v1_mistakes_are_4xx_with_kserves_words() {
    let server = identity();
    let refused = |body: &str, status| server.post("/v1/models/id:predict", body).error(status);
    assert!(refused("{not", 400).starts_with("Unrecognized request format: "));
    assert_eq!(refused(r#"{"instances":"word"}"#, 400), "Expected \"instances\" to be a list");
    assert!(refused("{}", 400).contains("\"instances\" or \"inputs\""));
    assert!(refused("[1]", 400).starts_with("Unrecognized request format: "));
    assert!(refused(r#"{"instances":[[1],[2,3]]}"#, 400).contains("ragged"));
    server.post_with("/v1/models/id:predict", &[("content-type", "text/plain")], "{}").error(422);
    let from_curl = [("content-type", "application/x-www-form-urlencoded")];
    server.post_with("/v1/models/id:predict", &from_curl, r#"{"instances":[1]}"#).ok();
    let iris = TestServer::start(Folder::iris());
    let wrong = iris.post("/v1/models/iris-xgboost:predict", r#"{"instances":[[1,2]]}"#).error(400);
    assert!(wrong.contains('4') && wrong.contains('2'), "{wrong}");
}

#[test]
fn v1_long_bodies_are_answered() {
    let server = identity();
    let rows: Vec<Vec<f64>> =
        (0..500).map(|row| (0..200).map(|column| f64::from(row) + f64::from(column) / 7.0).collect()).collect();
    let answer = server.post("/v1/models/id:predict", json!({ "instances": rows }).to_string()).ok();
    assert_eq!(answer, json!({ "predictions": rows }));
}

#[test]
fn v1_reaches_models_in_python() {
    let Some(server) = python_models() else { return };
    let predict = |body: Value| {
        server.post_with("/v1/models/seen:predict", &[("x-own", "mine")], body.to_string()).ok()["predictions"].clone()
    };
    let is_ready = |name: &str| server.get(&format!("/v1/models/{name}")).status == 200;
    crate::support::wait_until("the models to load", || is_ready("seen") && is_ready("explainer"));
    assert_eq!(predict(json!({"instances": [[1, 2]]})), json!(["input-0 INT64 [1, 2] None", "mine"]));
    assert_eq!(predict(json!({"instances": ["a"]})), json!(["input-0 BYTES [1] str", "mine"]));
    let columns = predict(json!({"instances": [{"a": 1.5, "b": "x"}]}));
    assert_eq!(columns, json!(["a FP64 [1] None", "b BYTES [1] str", "mine"]));
    let explained = server.post("/v1/models/seen:explain", r#"{"instances":[[1]]}"#);
    assert_eq!(explained.text(), r#"{"meta":{"name":"made"},"data":[1]}"#);
    let late = server.get("/v1/models/late");
    assert_eq!((late.error(503).as_str(), late.header("retry-after")), ("Model with name late is not ready.", "1"));
    assert_eq!(
        server.post("/v1/models/late:predict", r#"{"instances":[1]}"#).error(503),
        "Model with name late is not ready."
    );
    assert_eq!(server.get("/v1/models").ok(), json!({"models": ["explainer", "seen"]}));
}

#[test]
fn v1_explainer_that_cannot_answer_is_named() {
    let settings = json!({
        "name": "id",
        "implementation": "mlserver_identity.IdentityModel",
        "parameters": {"extra": {"explainer": "why"}}
    });
    let server = TestServer::start(Folder::new().file("id/model-settings.json", settings.to_string()));
    let explained = || server.post("/v1/models/id:explain", r#"{"instances":[1]}"#);
    assert_eq!(explained().error(404), "Model with name why does not exist.");
    let Some(server) = python_models() else { return };
    crate::support::wait_until("the explainer to load", || server.get("/v1/models/explainer").status == 200);
    assert_eq!(server.post("/v2/repository/models/explainer/unload", "").status, 200);
    let answer = server.post("/v1/models/seen:explain", r#"{"instances":[1]}"#);
    assert_eq!(answer.error(404), "Model with name explainer does not exist.");
}

#[test]
fn root_path_of_a_model_takes_precedence() {
    let source = "from mlserver import MLModel\nfrom mlserver.handlers import custom_handler\n\n\nclass Root(MLModel):\n    @custom_handler(rest_path=\"/\", rest_method=\"GET\")\n    def root(self) -> dict:\n        return {\"own\": True}\n";
    let folder = Folder::new()
        .file("models.py", source)
        .file("model-settings.json", json!({"name": "m", "implementation": "models.Root"}).to_string());
    let Some(server) = with_python(folder) else { return };
    let server = server.start();
    assert_eq!(server.get("/").ok(), json!({"own": true}));
}
