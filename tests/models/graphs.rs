//! Inference graphs: models that are made of other models of the server.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::{Folder, ServerBuilder, TestServer, repository_path, wait_until};

const GRAPH: &str = "mlserver.Graph";

/// A Pipeline of Seldon Core 2 with these steps, whose last one is the output.
fn pipeline(steps: &[(&str, &[&str])]) -> String {
    let listed: Vec<Value> = steps
        .iter()
        .map(
            |(name, inputs)| {
                if inputs.is_empty() { json!({"name": name}) } else { json!({"name": name, "inputs": inputs}) }
            },
        )
        .collect();
    let last = steps.last().map(|(name, _)| *name);
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "graph"},
        "spec": {"steps": listed, "output": {"steps": [last]}},
    });
    manifest.to_string()
}

trait WithGraph {
    fn with_graph(self, name: &str, manifest: &str) -> Folder;
}

impl WithGraph for Folder {
    fn with_graph(self, name: &str, manifest: &str) -> Folder {
        let settings = json!({"name": name, "implementation": GRAPH, "parameters": {"uri": "./graph.yaml"}});
        self.file(&format!("{name}/graph.yaml"), manifest)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    }
}

/// A step that renames the input `from` to `to`.
fn rename(folder: Folder, name: &str, from: &str, to: &str) -> Folder {
    let extra = json!({"outputs": [{"name": to, "input": from}]});
    let settings = json!({"name": name, "implementation": "mlserver.Select", "parameters": {"extra": extra}});
    folder.file(&format!("{name}/model-settings.json"), settings.to_string())
}

const REQUEST: &str = r#"{"id": "r", "inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}"#;

fn infer(server: &TestServer, model: &str) -> crate::support::Answer {
    server.post(&format!("/v2/models/{model}/infer"), REQUEST)
}

#[test]
fn graph_answers_over_every_protocol_within_one_slot() {
    let folder = rename(Folder::new().with_identity("a"), "b", "x", "y");
    let folder = folder
        .with_graph("graph", &pipeline(&[("a", &[]), ("b", &["a"])]))
        .with_graph(
            "outer",
            &pipeline(&[("graph", &[])]).replace("\"name\":\"graph\"},\"spec", "\"name\":\"outer\"},\"spec"),
        )
        .settings(&json!({"max_in_flight": 1, "server_timing": true}));
    let server = ServerBuilder::new(folder).start();
    for model in ["graph", "outer"] {
        let answer = infer(&server, model);
        let timing = answer.header("server-timing").to_owned();
        let body = answer.ok();
        assert_eq!((&body["model_name"], &body["id"]), (&json!(model), &json!("r")));
        assert_eq!(
            body["outputs"],
            json!([{"name": "y", "shape": [2], "datatype": "INT64", "data": [1, 2]}]),
            "{body}"
        );
        assert!(timing.contains("step;desc=\"") && !timing.contains("queue"), "{timing}");
    }
    let v1 = server.post("/v1/models/graph:predict", r#"{"instances": [[1], [2]]}"#);
    assert_eq!(v1.error(400), "step \"b\": the input `x` is missing (found `input-0`)", "V1 names its tensor");
    let metadata = server.get("/v2/models/graph").ok();
    assert_eq!(metadata["parameters"]["steps"][1], json!({"name": "b", "model": "b"}));
    let metrics = server.scrape();
    let metrics = metrics.text();
    for line in [
        "graph_step_duration_seconds_count{graph=\"graph\",step=\"a\"} 3",
        "graph_step_duration_seconds_count{graph=\"outer\",step=\"graph\"} 1",
        "model_infer_request_success_total{model=\"b\",version=\"None\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn graph_error_names_its_steps_and_keeps_the_status() {
    let folder = rename(Folder::new().with_identity("a"), "b", "missing", "y")
        .with_graph("graph", &pipeline(&[("a", &[]), ("b", &["a"])]))
        .with_graph(
            "outer",
            &pipeline(&[("graph", &[])]).replace("\"name\":\"graph\"},\"spec", "\"name\":\"outer\"},\"spec"),
        );
    let server = ServerBuilder::new(folder).start();
    let error = infer(&server, "outer").error(400);
    assert_eq!(error, "step \"graph\": step \"b\": the input `missing` is missing (found `x`)");
    assert_eq!(server.post("/v2/repository/models/b/unload", "").status, 200);
    assert_eq!(infer(&server, "graph").error(404), "step \"b\": Model b not found");
    let readiness = server.get("/v2/models/outer/ready");
    assert_eq!(readiness.status, 400);
    assert!(
        readiness.text().contains("step \\\"graph\\\": step \\\"b\\\": the server has no model `b`"),
        "{}",
        readiness.text()
    );
    assert_eq!(server.get("/v2/health/ready").status, 400);
    assert_eq!(server.post("/v2/repository/models/b/load", "").status, 200);
    assert_eq!(server.get("/v2/models/outer/ready").status, 200);
}

#[test]
fn graph_with_problems_is_a_load_error_that_lists_them() {
    let folder =
        Folder::new().with_identity("a").with_graph("graph", &pipeline(&[("a", &["b.outputs.x"]), ("b", &["a"])]));
    let ended = ServerBuilder::new(folder).run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("graph.yaml: spec.steps"), "{}", ended.stdout);
    let folder = Folder::new().with_identity("a").with_graph("graph", &pipeline(&[("a", &[]), ("nothing", &["a"])]));
    let ended = ServerBuilder::new(folder).run();
    let expected = "graph.yaml: spec.steps[1]: step \"nothing\": the server has no model `nothing`";
    assert!(ended.code == Some(1) && ended.stdout.contains(expected), "{}", ended.stdout);
}

/// Waits for some milliseconds, and answers with its inputs.
const MODELS: &str = "
import asyncio
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Waits(MLModel):
    async def predict(self, payload):
        await asyncio.sleep((self.settings.parameters.extra or {}).get('seconds', 0.05))
        outputs = [ResponseOutput(name=f'{self.name}', shape=each.shape, datatype=each.datatype, data=each.data) for each in payload.inputs]
        return InferenceResponse(model_name=self.name, outputs=outputs)

class Streams(MLModel):
    async def predict(self, payload):
        return await self._answer(payload, 0)

    async def _answer(self, payload, number):
        outputs = [ResponseOutput(name=str(number), shape=each.shape, datatype=each.datatype, data=each.data) for each in payload.inputs]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    async def predict_stream(self, payloads):
        async for payload in payloads:
            for number in range(3):
                yield await self._answer(payload, number)
";

fn python_step(folder: Folder, name: &str, class: &str, extra: &Value) -> Folder {
    let settings = json!({"name": name, "implementation": format!("models.{class}"), "parameters": {"extra": extra}});
    folder.file(&format!("{name}/models.py"), MODELS).file(&format!("{name}/model-settings.json"), settings.to_string())
}

#[test]
fn parallel_branches_of_a_graph_run_at_the_same_time() {
    let names = ["w1", "w2", "w3", "w4"];
    let folder = names.iter().fold(Folder::new().with_identity("all"), |folder, name| {
        python_step(folder, name, "Waits", &json!({"seconds": 0.2}))
    });
    let mut steps: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[][..])).collect();
    steps.push(("all", &names));
    let Some(starting) = with_python(folder.with_graph("graph", &pipeline(&steps))) else { return };
    let server = starting.start();
    infer(&server, "graph").ok();
    let started = Instant::now();
    let answer = infer(&server, "graph").ok();
    assert!(started.elapsed() < Duration::from_millis(700), "four times 200 ms in {:?}", started.elapsed());
    let outputs: Vec<&str> =
        answer["outputs"].as_array().unwrap().iter().filter_map(|each| each["name"].as_str()).collect();
    assert_eq!(outputs, names);
}

#[test]
fn cancelled_graph_cancels_its_running_steps() {
    let folder = python_step(Folder::new(), "slow", "Waits", &json!({"seconds": 600}));
    let Some(starting) =
        with_python(folder.with_graph("graph", &pipeline(&[("slow", &[])])).settings(&json!({"max_in_flight": 1})))
    else {
        return;
    };
    let server = starting.start();
    let answer = server.post_with("/v2/models/graph/infer", &[("request-timeout", "0.3")], REQUEST);
    assert_eq!(answer.status, 504, "{}", answer.text());
    wait_until("the step has ended", || {
        let metrics = server.scrape();
        metrics.text().contains("model_infer_in_flight{model=\"slow\",version=\"None\"} 0")
    });
}

/// Fails after a while, or runs until it is cancelled.
const FAILING: &str = "
import asyncio
from mlserver import MLModel
from mlserver.errors import MLServerError

class Fails(MLModel):
    async def predict(self, payload):
        await asyncio.sleep(0.2)
        raise MLServerError('not today', 418)
";

#[test]
fn failed_step_cancels_the_steps_beside_it() {
    let settings = json!({"name": "fails", "implementation": "failing.Fails"});
    let folder = python_step(Folder::new().with_identity("all"), "slow", "Waits", &json!({"seconds": 600}))
        .file("fails/failing.py", FAILING)
        .file("fails/model-settings.json", settings.to_string());
    let manifest = |nodes: &Value| {
        json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
            "spec": {"nodes": nodes},
        })
        .to_string()
    };
    let both = |dependency: &str| json!([{"serviceName": "slow", "name": "slow"}, {"serviceName": "fails", "dependency": dependency}]);
    let combiner = json!({
        "apiVersion": "machinelearning.seldon.io/v1", "kind": "SeldonDeployment", "metadata": {"name": "d"},
        "spec": {"predictors": [{"graph": {
            "name": "all", "type": "COMBINER", "children": [{"name": "fails"}, {"name": "slow"}],
        }}]},
    });
    let folder = folder
        .with_graph("pipeline", &pipeline(&[("slow", &[]), ("fails", &[]), ("all", &["slow", "fails"])]))
        .with_graph("hard", &manifest(&json!({"root": {"routerType": "Ensemble", "steps": both("Hard")}})))
        .with_graph("soft", &manifest(&json!({"root": {"routerType": "Ensemble", "steps": both("Soft")}})))
        .with_graph(
            "nested",
            &manifest(&json!({
                "root": {"routerType": "Sequence", "steps": [{"nodeName": "both", "name": "n", "dependency": "Hard"}]},
                "both": {"routerType": "Ensemble", "steps": both("Hard")},
            })),
        )
        .with_graph("seldon", &combiner.to_string());
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    let is_cancelled = || {
        let metrics = server.scrape();
        metrics.text().contains("model_infer_in_flight{model=\"slow\",version=\"None\"} 0")
    };
    for graph in ["pipeline", "hard", "nested", "seldon"] {
        let started = Instant::now();
        let answer = infer(&server, graph);
        assert_eq!(answer.error(418), "step \"fails\": not today", "{graph}");
        assert!(started.elapsed() < Duration::from_secs(30), "{graph}");
        wait_until("the other step has ended", is_cancelled);
        let stream = server.post(&format!("/v2/models/{graph}/infer_stream"), REQUEST);
        assert!(stream.text().contains("not today"), "{graph}: {}", stream.text());
        wait_until("the other step has ended", is_cancelled);
    }
    let answer = server.post_with("/v2/models/soft/infer", &[("request-timeout", "1")], REQUEST);
    assert_eq!(answer.status, 504, "the failure is allowed: {}", answer.text());
}

#[test]
fn steps_with_one_folder_and_different_environments_are_models_of_their_own() {
    let code = "
import os
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceResponse

class Says(MLModel):
    async def predict(self, payload):
        words = [os.environ['WORD'], os.environ['MLSERVER_MODEL_NAME'], self.name]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output('says', words)])
";
    let container = |name: &str, word: &str| json!({"name": name, "env": [{"name": "WORD", "value": word}]});
    let predictor = |name: &str, traffic: u8, word: &str| {
        json!({
            "name": name, "traffic": traffic, "graph": {"name": "says"},
            "componentSpecs": [{"spec": {"containers": [container("says", word)]}}],
        })
    };
    let manifest = |predictors: &Value| {
        json!({
            "apiVersion": "machinelearning.seldon.io/v1", "kind": "SeldonDeployment", "metadata": {"name": "d"},
            "spec": {"predictors": predictors},
        })
        .to_string()
    };
    let graph = |folder: Folder, name: &str, predictors: &Value| {
        let parameters = json!({"uri": "./graph.yaml", "extra": {"steps": {"says": {"folder": "../code"}}}});
        let settings = json!({"name": name, "implementation": GRAPH, "parameters": parameters});
        folder
            .file(&format!("{name}/graph.yaml"), manifest(predictors))
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    };
    let folder = Folder::new()
        .file("code/says.py", code)
        .file("code/model-settings.json", json!({"name": "code", "implementation": "says.Says"}).to_string());
    // Neither file can start on its own: `code` has no word.
    let folder = graph(folder, "a", &json!([predictor("one", 50, "one"), predictor("two", 50, "two")]));
    let folder = graph(folder, "b", &json!([predictor("only", 100, "three")]));
    let folder = graph(folder, "c", &json!([predictor("only", 100, "one")]));
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    let says = |graph: &str| {
        let answer = infer(&server, graph).ok();
        answer["outputs"][0]["data"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut of_a: Vec<Vec<String>> = (0..100).map(|_| says("a")).collect();
    of_a.sort();
    of_a.dedup();
    assert_eq!(of_a, [["one", "says", "says"], ["two", "says", "a.says"]]);
    assert_eq!(says("b"), ["three", "says", "b.says"]);
    assert_eq!(says("c"), ["one", "says", "says"], "the same folder and variables are the same model");
    // A reload finds the same models.
    for model in ["says", "a.says", "b.says", "b"] {
        assert_eq!(server.post(&format!("/v2/repository/models/{model}/load"), "").status, 200, "{model}");
    }
    assert_eq!(says("b"), ["three", "says", "b.says"]);
}

#[test]
fn only_graph_answers_on_the_paths_of_seldon() {
    let folder =
        || Folder::new().with_identity("a").with_identity("infer").with_graph("graph", &pipeline(&[("a", &[])]));
    let paths = ["/v2/models/infer", "/seldon/default/gpt2/v2/models/infer"];
    let server = TestServer::start(folder());
    for path in paths {
        assert_eq!(server.post(path, REQUEST).ok()["model_name"], "graph", "{path}");
    }
    let named = server.post("/seldon/default/gpt2/v2/models/a/infer", REQUEST).ok();
    assert_eq!(named["model_name"], "a");
    server.post("/seldon/default/gpt2/v2/models/b/infer", REQUEST).error(404);
    assert_eq!(server.get("/v2/models/infer").ok()["name"], "infer", "a model may have this name");
    assert_eq!(server.get(paths[1]).status, 405);
    let metrics = server.scrape();
    assert!(metrics.text().contains("path=\"/seldon/{namespace}/{deployment}/v2/models/infer\""), "{}", metrics.text());
    for folder in [folder().with_graph("other", &pipeline(&[("a", &[])])), Folder::new().with_identity("a")] {
        let server = TestServer::start(folder);
        for path in paths {
            let error = server.post(path, REQUEST).error(404);
            assert_eq!(error, "the server has no inference graph, or several: name a model in the path", "{path}");
        }
    }
}

#[test]
fn graph_streams_what_its_last_step_streams() {
    let folder = python_step(Folder::new().with_identity("a"), "streams", "Streams", &json!({}));
    let Some(starting) = with_python(folder.with_graph("graph", &pipeline(&[("a", &[]), ("streams", &["a"])]))) else {
        return;
    };
    let server = starting.start();
    let answer = server.post("/v2/models/graph/infer_stream", REQUEST);
    let events: Vec<Value> =
        answer.text().lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let names: Vec<_> =
        events.iter().map(|event| (event["model_name"].clone(), event["outputs"][0]["name"].clone())).collect();
    assert_eq!(names, ["0", "1", "2"].map(|name| (json!("graph"), json!(name))), "{}", answer.text());
    for step in ["a", "streams"] {
        let count = format!("graph_step_duration_seconds_count{{graph=\"graph\",step=\"{step}\"}} 1");
        wait_until(&count, || server.scrape().text().contains(&count));
    }
}

#[test]
fn switch_without_a_match_names_its_node_and_the_steps_of_graphs() {
    let manifest = |nodes: &Value| {
        json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
            "spec": {"nodes": nodes},
        })
        .to_string()
    };
    let choice = json!({"routerType": "Switch", "steps": [{"serviceName": "a", "condition": "id.none"}]});
    let folder = Folder::new()
        .with_identity("a")
        .with_graph("choice", &manifest(&json!({"root": choice})))
        .with_graph(
            "outer",
            &manifest(
                &json!({"root": {"routerType": "Sequence", "steps": [{"serviceName": "choice", "name": "pick"}]}}),
            ),
        )
        .with_graph(
            "nodes",
            &manifest(&json!({
                "root": {"routerType": "Sequence", "steps": [{"nodeName": "inner", "name": "chosen"}]},
                "inner": choice,
            })),
        );
    let server = ServerBuilder::new(folder).start();
    let reason = "no condition matches the request, expected one of: id.none";
    assert_eq!(infer(&server, "choice").error(422), format!("node \"root\": {reason}"));
    assert_eq!(infer(&server, "outer").error(422), format!("step \"pick\": node \"root\": {reason}"));
    assert_eq!(infer(&server, "nodes").error(422), format!("node \"inner\": {reason}"));
}

#[test]
fn steps_from_folders_have_the_environment_of_their_containers() {
    let example = repository_path("examples/graph-text");
    let mut folder = Folder::new();
    for file in walk(&example) {
        let name = file.strip_prefix(&example).unwrap().to_str().unwrap().to_owned();
        folder = folder.file(&name, fs::read(&file).unwrap());
    }
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    let index = server.post("/v2/repository/index", "{}").ok();
    let mut names: Vec<&str> = index.as_array().unwrap().iter().filter_map(|entry| entry["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["decoder", "encoder", "language-model", "text-generator", "tokenizer"]);
    let request = json!({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["The server"]}]});
    let answer = server.post("/v2/models/text-generator/infer", request.to_string()).ok();
    let text = answer["outputs"][0]["data"][0].as_str().unwrap().to_owned();
    assert!(text.starts_with("The server") && text.len() > 20, "{text}");
    // A reload of a step needs the graph's manifest.
    assert_eq!(server.post("/v2/repository/models/decoder/load", "").status, 200);
    server.post("/v2/models/text-generator/infer", request.to_string()).ok();
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .filter(|path| !path.to_string_lossy().contains("__pycache__"))
        .collect()
}
