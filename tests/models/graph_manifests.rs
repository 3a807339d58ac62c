//! Inference graphs of every kind of manifest, over the running server.
//!
//! Most steps are native models that rename the tensor `x`, so that the names of the outputs show the way of a request.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mlserver::types::protobuf::messages::{InferTensorContents, ModelInferResponse};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::grpc::{infer_request, inference_client};
use crate::support::python::with_python;
use crate::support::{Answer, Folder, ServerBuilder, TestServer, wait_until};

fn with_model(folder: Folder, name: &str, class: &str, extra: &Value) -> Folder {
    let settings = json!({"name": name, "implementation": class, "parameters": {"extra": extra}});
    folder.file(&format!("{name}/model-settings.json"), settings.to_string())
}

/// The models of the steps. `x-y` renames `x` to `y`, and fails without an `x`.
fn models() -> Folder {
    let renaming = [("x", "y"), ("x", "l"), ("y", "z"), ("y", "r")];
    let folder =
        renaming.iter().fold(Folder::new().with_identity("echo").with_identity("echo-2"), |folder, (from, to)| {
            let extra = json!({"outputs": [{"name": to, "input": from}]});
            with_model(folder, &format!("{from}-{to}"), "mlserver.Select", &extra)
        });
    // Answers 0 to 1, 1 to 2, -1 to 3, and 7 to 4.
    let table = json!({"1": 0, "2": 1, "3": -1, "4": 7});
    let pick = json!({"outputs": [{"input": "x", "name": "branch", "apply": [{"table": table}]}]});
    let broken = json!({"outputs": [{"input": "missing"}]});
    let folder = with_model(folder, "pick", "mlserver.Map", &pick);
    let folder = with_model(folder, "broken", "mlserver.Select", &broken);
    with_model(folder, "join", "mlserver.Concat", &json!({"name": "joined"}))
}

fn with_graph(folder: Folder, name: &str, head: &str, spec: &str) -> Folder {
    with_graph_settings(folder, name, head, spec, &json!({}))
}

fn with_graph_settings(folder: Folder, name: &str, head: &str, spec: &str, more: &Value) -> Folder {
    let manifest = format!("{head}\nmetadata:\n  name: {name}\nspec:\n{spec}\n");
    let mut settings = json!({"name": name, "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.yaml"}});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    folder
        .file(&format!("{name}/graph.yaml"), manifest)
        .file(&format!("{name}/model-settings.json"), settings.to_string())
}

const PIPELINE: &str = "apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline";
const KSERVE: &str = "apiVersion: serving.kserve.io/v1alpha1\nkind: InferenceGraph";
const SELDON: &str = "apiVersion: machinelearning.seldon.io/v1\nkind: SeldonDeployment";

/// Returns a request whose inputs are written as `x=1 y=2`.
fn body(inputs: &str) -> String {
    let inputs = inputs.split_whitespace().map(|input| {
        let (name, value) = input.split_once('=').unwrap();
        json!({"name": name, "shape": [1, 1], "datatype": "INT64", "data": [value.parse::<i64>().unwrap()]})
    });
    json!({"id": "r", "inputs": inputs.collect::<Vec<_>>()}).to_string()
}

fn infer(server: &TestServer, graph: &str, inputs: &str) -> Answer {
    server.post(&format!("/v2/models/{graph}/infer"), body(inputs))
}

/// Returns the outputs of a graph in the notation of the inputs. Several elements are separated by commas.
fn outputs(server: &TestServer, graph: &str, inputs: &str) -> String {
    let answer = infer(server, graph, inputs).ok();
    assert_eq!((&answer["model_name"], &answer["id"]), (&json!(graph), &json!("r")));
    let outputs = answer["outputs"].as_array().unwrap().iter().map(|output| {
        let data: Vec<String> = output["data"].as_array().unwrap().iter().map(Value::to_string).collect();
        format!("{}={}", output["name"].as_str().unwrap(), data.join(","))
    });
    outputs.collect::<Vec<_>>().join(" ")
}

fn metric(server: &TestServer, series: &str) -> usize {
    let scrape = server.scrape();
    let value = scrape.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

fn tolerated(server: &TestServer, graph: &str, step: &str) -> usize {
    metric(server, &format!("graph_step_tolerated_failures_total{{graph=\"{graph}\",step=\"{step}\"}}"))
}

/// Sends `name`=`value` over gRPC.
async fn infer_grpc(
    server: &TestServer,
    graph: &str,
    name: &str,
    value: i64,
) -> Result<ModelInferResponse, tonic::Status> {
    let contents = InferTensorContents { int64_contents: vec![value], ..InferTensorContents::default() };
    let mut request = infer_request(graph, "INT64", &[1, 1], contents);
    name.clone_into(&mut request.inputs[0].name);
    inference_client(server.grpc).await.model_infer(request).await.map(tonic::Response::into_inner)
}

fn only_output(response: &ModelInferResponse) -> (&str, &[i64]) {
    let [output] = response.outputs.as_slice() else { unreachable!("{response:?}") };
    (&output.name, &output.contents.as_ref().unwrap().int64_contents)
}

#[test]
fn pipeline_selects_and_renames_tensors() {
    let folder = with_graph(models(), "select", PIPELINE, "
  steps:
    - name: x-y
    - {name: y-z, inputs: [x-y]}
    - {name: echo, inputs: [x-y.outputs.y, y-z.outputs.z, y-z.inputs.y, select.inputs.q], tensorMap: {y-z.inputs.y: again}}
  output: {steps: [echo]}");
    let folder = with_graph(
        folder,
        "renamed",
        PIPELINE,
        "
  steps:
    - {name: x-y, inputs: [renamed.inputs.a], tensorMap: {renamed.inputs.a: x}}
  output: {steps: [x-y.outputs.y], tensorMap: {x-y.outputs.y: answer}}",
    );
    let folder = with_graph(
        folder,
        "clashing",
        PIPELINE,
        "
  steps: [{name: echo}, {name: echo-2}, {name: x-y}]
  output: {steps: [echo, echo-2, x-y]}",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "select", "x=5 q=6"), "y=5 z=5 again=5 q=6");
    assert_eq!(outputs(&server, "renamed", "a=3 b=4"), "answer=3");
    assert_eq!(outputs(&server, "clashing", "x=1"), "echo.x=1 echo-2.x=1 y=1");
    let error = infer(&server, "select", "q=6").error(400);
    assert_eq!(error, "step \"x-y\": the input `x` is missing (found `q`)");
}

/// A conditional flow: `echo` returns the tensors that the request has, and each branch needs another one.
fn conditional(folder: Folder, join: &str) -> Folder {
    let branches = "
  steps:
    - name: echo
    - {name: x-l, inputs: [echo.outputs.x]}
    - {name: y-r, inputs: [echo.outputs.y]}";
    let at_output = format!("{branches}\n  output: {{steps: [x-l, y-r], stepsJoin: {join}}}");
    let at_step = format!(
        "{branches}\n    - {{name: echo-2, inputs: [x-l, y-r], inputsJoinType: {join}}}\n  output: {{steps: [echo-2]}}"
    );
    let folder = with_graph(folder, &format!("output-{join}"), PIPELINE, &at_output);
    with_graph(folder, &format!("step-{join}"), PIPELINE, &at_step)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipeline_conditions_and_joins_decide_which_steps_answer() {
    let server = TestServer::start(["inner", "outer", "any"].into_iter().fold(models(), conditional));
    for place in ["output", "step"] {
        let graph = |join: &str| format!("{place}-{join}");
        assert_eq!(outputs(&server, &graph("inner"), "x=1 y=2"), "l=1 r=2");
        assert_eq!(outputs(&server, &graph("outer"), "x=1 y=2"), "l=1 r=2");
        let first = outputs(&server, &graph("any"), "x=1 y=2");
        assert!(first == "l=1" || first == "r=2", "{first}");
        for join in ["outer", "any"] {
            assert_eq!(outputs(&server, &graph(join), "x=1"), "l=1");
            assert_eq!(outputs(&server, &graph(join), "y=2"), "r=2");
            let error = infer(&server, &graph(join), "q=3").error(422);
            for step in ["step \"x-l\" did not run", "step \"echo\" returned no tensor `x`", "step \"y-r\" did not run"]
            {
                assert!(error.contains(step), "{error}");
            }
        }
        let error = infer(&server, &graph("inner"), "x=1").error(422);
        let expected = "step \"y-r\" did not run, because step \"echo\" returned no tensor `y`";
        assert!(error.contains(expected), "{error}");
    }
    let answer = infer_grpc(&server, "output-any", "y", 9).await.unwrap();
    assert_eq!((answer.model_name.as_str(), only_output(&answer)), ("output-any", ("r", &[9][..])));
    let status = infer_grpc(&server, "output-any", "q", 9).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("the graph has no output for this request: step"), "{}", status.message());
}

#[test]
fn pipeline_triggers_run_steps_and_pass_no_data() {
    let triggered = |name: &str, join: &str| {
        format!(
            "
  steps:
    - name: echo
    - {{name: echo-2, inputs: [{name}.inputs.x], triggers: [echo.outputs.go, echo.outputs.run], triggersJoinType: {join}}}
  output: {{steps: [echo-2]}}"
        )
    };
    let folder = ["inner", "outer", "any"]
        .into_iter()
        .fold(models(), |folder, join| with_graph(folder, join, PIPELINE, &triggered(join, join)));
    let server = TestServer::start(folder);
    for join in ["inner", "outer", "any"] {
        assert_eq!(outputs(&server, join, "x=1 go=2 run=3"), "x=1");
        let error = infer(&server, join, "x=1").error(422);
        assert!(error.contains("step \"echo-2\" did not run"), "{error}");
    }
    assert_eq!(outputs(&server, "any", "x=1 go=2"), "x=1");
    assert_eq!(outputs(&server, "outer", "x=1 run=2"), "x=1");
    let error = infer(&server, "inner", "x=1 go=2").error(422);
    assert!(error.contains("because step \"echo\" returned no tensor `run`"), "{error}");
}

#[test]
fn pipeline_branch_without_output_may_fail() {
    let folder = with_graph(
        models(),
        "detecting",
        PIPELINE,
        "
  steps: [{name: x-y}, {name: broken}, {name: y-z, inputs: [x-y]}]
  output: {steps: [y-z]}",
    );
    let folder = with_graph(
        folder,
        "failing",
        PIPELINE,
        "
  steps: [{name: x-y}, {name: broken}]
  output: {steps: [x-y, broken], stepsJoin: outer}",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "detecting", "x=1"), "z=1");
    wait_until("the failure is counted", || tolerated(&server, "detecting", "broken") == 1);
    server.wait_for_log("A step failed, which the graph tolerates.");
    let error = infer(&server, "failing", "x=1").error(400);
    assert_eq!(error, "step \"broken\": the input `missing` is missing (found `x`)");
    assert_eq!(tolerated(&server, "failing", "broken"), 0);
}

#[test]
fn pipeline_steps_may_pin_versions() {
    let folder = ["1", "2"].into_iter().fold(Folder::new(), |folder, version| {
        let outputs = json!([{"input": "x", "name": format!("of-{version}")}]);
        let parameters = json!({"version": version, "extra": {"outputs": outputs}});
        let settings = json!({"name": "versioned", "implementation": "mlserver.Select", "parameters": parameters});
        folder.file(&format!("versioned-{version}/model-settings.json"), settings.to_string())
    });
    let folder = with_graph(
        folder,
        "pinned",
        PIPELINE,
        "
  steps: [{name: versioned@1}, {name: versioned}]
  output: {steps: [versioned@1.outputs.of-1, versioned]}",
    );
    let outputs_of_name = json!({"outputs": [{"input": "x", "name": "of-name"}]});
    let folder = with_model(folder, "versioned:3", "mlserver.Select", &outputs_of_name);
    let folder = with_graph(
        folder,
        "colons",
        PIPELINE,
        "
  steps: [{name: versioned:1}, {name: versioned:2}, {name: versioned:3}]
  output: {steps: [versioned:1.outputs.of-1, versioned:2, versioned:3]}",
    );
    let kserve = "
  nodes:
    root:
      routerType: Ensemble
      steps: [{serviceName: versioned:1}, {serviceName: versioned@2}, {name: named, serviceName: versioned:3}]";
    let folder = with_graph(folder, "ensemble", KSERVE, kserve);
    let folder = deployment(folder, "seldon", "{name: versioned:1}");
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "pinned", "x=1"), "of-1=1 of-2=1");
    assert_eq!(outputs(&server, "colons", "x=1"), "of-1=1 of-2=1 of-name=1");
    assert_eq!(outputs(&server, "ensemble", "x=1"), "of-1=1 of-2=1 of-name=1");
    assert_eq!(outputs(&server, "seldon", "x=1"), "of-1=1");
    let steps = &server.get("/v2/models/colons").ok()["parameters"]["steps"];
    assert_eq!(steps[0], json!({"name": "versioned:1", "model": "versioned@1"}));
    assert_eq!(steps[2], json!({"name": "versioned:3", "model": "versioned:3"}));
}

/// A step that never answers, and one that is cancelled when another one answers first.
#[test]
fn pipeline_any_join_cancels_the_slower_step() {
    let code = "
import asyncio
from mlserver import MLModel

class Never(MLModel):
    async def predict(self, payload):
        await asyncio.sleep(600)
";
    let settings = json!({"name": "never", "implementation": "models.Never"});
    let folder = models().file("never/models.py", code).file("never/model-settings.json", settings.to_string());
    let folder = with_graph(
        folder,
        "fastest",
        PIPELINE,
        "
  steps: [{name: never}, {name: x-y}]
  output: {steps: [never, x-y], stepsJoin: any}",
    );
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    assert_eq!(outputs(&server, "fastest", "x=1"), "y=1");
    wait_until("the slower step is cancelled", || {
        metric(&server, "model_infer_in_flight{model=\"never\",version=\"None\"}") == 0
    });
}

#[test]
fn inference_graph_sequence_passes_requests_and_responses() {
    let folder = with_graph(
        models(),
        "passing",
        KSERVE,
        "
  nodes:
    root:
      routerType: Sequence
      steps:
        - {serviceName: x-y}
        - {serviceName: y-z, data: $response}
        - {serviceName: join, data: $request}
        - {serviceName: echo, data: $response}",
    );
    let folder = with_graph(
        folder,
        "stopping",
        KSERVE,
        "
  nodes:
    root:
      routerType: Sequence
      steps:
        - {serviceName: echo}
        - {serviceName: y-z, data: $response, condition: 'outputs.#(name==\"y\")'}
        - {serviceName: echo-2, data: $response}",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "passing", "x=1 y=2"), "joined=1,2");
    assert_eq!(outputs(&server, "stopping", "y=1"), "z=1");
    assert_eq!(outputs(&server, "stopping", "q=1"), "q=1", "the answer before the condition");
}

#[test]
fn inference_graph_sequence_skips_soft_failures_only() {
    let sequence = |first: &str, next: &str| {
        format!(
            "
  nodes:
    root:
      routerType: Sequence
      steps:
        - {{serviceName: broken{first}}}
        - {{serviceName: x-y{next}}}"
        )
    };
    let folder = with_graph(models(), "soft", KSERVE, &sequence("", ""));
    let folder = with_graph(folder, "explicit", KSERVE, &sequence(", dependency: Soft", ", data: $request"));
    let folder = with_graph(folder, "hard", KSERVE, &sequence(", dependency: Hard", ""));
    let folder = with_graph(folder, "needed", KSERVE, &sequence("", ", data: $response"));
    let folder = with_graph(
        folder,
        "last",
        KSERVE,
        "
  nodes:
    root:
      routerType: Sequence
      steps: [{serviceName: x-y}, {serviceName: broken}]",
    );
    let server = TestServer::start(folder);
    for graph in ["soft", "explicit"] {
        assert_eq!((outputs(&server, graph, "x=1").as_str(), tolerated(&server, graph, "broken")), ("y=1", 1));
    }
    for graph in ["hard", "needed", "last"] {
        let error = infer(&server, graph, "x=1").error(400);
        assert_eq!(error, "step \"broken\": the input `missing` is missing (found `x`)", "{graph}");
        assert_eq!(tolerated(&server, graph, "broken"), 0, "{graph}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inference_graph_switch_runs_the_first_match() {
    let folder = with_graph(
        models(),
        "switch",
        KSERVE,
        "
  nodes:
    root:
      routerType: Switch
      steps:
        - {serviceName: x-y, condition: 'inputs.#(name==\"x\")'}
        - {serviceName: y-z, condition: 'inputs.#(name==\"y\")'}",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "switch", "y=2 x=1"), "y=1");
    assert_eq!(outputs(&server, "switch", "y=2"), "z=2");
    let error = infer(&server, "switch", "q=2").error(422);
    let expected = "node \"root\": no condition matches the request, expected one of: inputs.#(name==\"x\"), \
                    inputs.#(name==\"y\")";
    assert_eq!(error, expected);
    assert_eq!(only_output(&infer_grpc(&server, "switch", "y", 2).await.unwrap()), ("z", &[2][..]));
    let status = infer_grpc(&server, "switch", "q", 2).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, expected));
}

#[test]
fn inference_graph_ensemble_leaves_out_soft_failures() {
    let ensemble = |broken: &str| {
        format!(
            "
  nodes:
    root:
      routerType: Ensemble
      steps:
        - {{name: first, serviceName: echo}}
        - {{serviceName: broken{broken}}}
        - {{serviceName: x-y}}
        - {{name: second, serviceName: echo}}"
        )
    };
    let folder = with_graph(models(), "soft", KSERVE, &ensemble(""));
    let folder = with_graph(folder, "hard", KSERVE, &ensemble(", dependency: Hard"));
    let folder = with_graph(
        folder,
        "all",
        KSERVE,
        "
  nodes:
    root:
      routerType: Ensemble
      steps: [{serviceName: broken}, {serviceName: y-z}]",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "soft", "x=1"), "first.x=1 y=1 second.x=1");
    assert_eq!(tolerated(&server, "soft", "broken"), 1);
    let error = infer(&server, "hard", "x=1").error(400);
    assert_eq!(error, "step \"broken\": the input `missing` is missing (found `x`)");
    let error = infer(&server, "all", "x=1").error(400);
    assert!(error.starts_with("step \"broken\": ") || error.starts_with("step \"y-z\": "), "{error}");
}

/// Returns the different outputs of many requests.
fn many(server: &TestServer, graph: &str) -> BTreeSet<String> {
    // Both halves are missing with a probability of 2^-99.
    (0..100).map(|_| outputs(server, graph, "x=1")).collect()
}

#[test]
fn inference_graph_splitter_reaches_branches_by_weight() {
    let splitter = |one: u8, other: u8| {
        format!(
            "
  nodes:
    root:
      routerType: Splitter
      steps:
        - {{serviceName: x-y, weight: {one}}}
        - {{serviceName: x-l, weight: {other}}}"
        )
    };
    let folder = with_graph(models(), "half", KSERVE, &splitter(50, 50));
    let folder = with_graph(folder, "all", KSERVE, &splitter(0, 100));
    let server = TestServer::start(folder);
    assert_eq!(many(&server, "half"), ["l=1", "y=1"].map(str::to_owned).into());
    assert_eq!(many(&server, "all"), ["l=1"].map(str::to_owned).into());
}

#[test]
fn inference_graph_nodes_may_be_nested() {
    let folder = with_graph(
        models(),
        "nested",
        KSERVE,
        "
  nodes:
    root:
      routerType: Sequence
      steps:
        - {nodeName: both}
        - {nodeName: choice, data: $response}
    both:
      routerType: Ensemble
      steps:
        - {nodeName: chain, name: chain}
        - {serviceName: echo}
    chain:
      routerType: Sequence
      steps:
        - {serviceName: x-y}
        - {serviceName: y-z, data: $response}
    choice:
      routerType: Switch
      steps:
        - {serviceName: broken, condition: 'inputs.#(name==\"q\")'}
        - {serviceName: join, condition: 'inputs.#(name==\"z\")'}",
    );
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "nested", "x=4"), "joined=4,4", "the tensors `z` and `x`");
    let error = infer(&server, "nested", "y=4").error(422);
    assert!(error.starts_with("node \"choice\": "), "{error}");
}

/// Each graph runs the one below many times, so that the last one has a million steps.
#[test]
fn readiness_of_nested_graphs_asks_each_model_once() {
    let levels = [("echo", "one"), ("one", "two"), ("two", "three"), ("three", "four")];
    let folder = levels.into_iter().fold(models(), |folder, (below, name)| {
        let step = |step| format!("\n        - {{name: s{step}, serviceName: {below}, dependency: Hard}}");
        let steps = (0..32).map(step).collect::<Vec<String>>().concat();
        let spec = format!("  nodes:\n    root:\n      routerType: Ensemble\n      steps:{steps}");
        with_graph(folder, name, KSERVE, &spec)
    });
    let server = TestServer::start(folder);
    let started = Instant::now();
    for _ in 0..10 {
        assert_eq!(server.get("/v2/models/four/ready").status, 200);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// A predictor with this graph, whose fields of the cluster are ignored.
fn predictor(name: &str, traffic: u8, graph: &str) -> String {
    format!(
        "
    - name: {name}
      replicas: 2
      traffic: {traffic}
      componentSpecs: [{{spec: {{containers: [{{name: echo, image: 'example.com/echo:1'}}]}}}}]
      graph: {graph}"
    )
}

fn deployment(folder: Folder, name: &str, graph: &str) -> Folder {
    with_graph(folder, name, SELDON, &format!("  predictors:{}", predictor("default", 100, graph)))
}

#[test]
fn seldon_deployment_units_pass_answers_to_each_other() {
    let folder = deployment(
        models(),
        "chain",
        "{name: x-y, type: TRANSFORMER, children: [{name: y-z, type: MODEL, children: []}]}",
    );
    let folder =
        deployment(folder, "output", "{name: y-z, type: OUTPUT_TRANSFORMER, children: [{name: x-y, type: MODEL}]}");
    let folder = deployment(
        folder,
        "combined",
        "{name: join, type: COMBINER, children: [{name: x-y}, {name: x-l}, {name: echo}]}",
    );
    let folder =
        deployment(folder, "prefixed", "{name: echo, type: COMBINER, children: [{name: x-y}, {name: echo-2}]}");
    let folder =
        deployment(folder, "several", "{name: echo, children: [{name: x-l, type: MODEL}, {name: x-y, type: MODEL}]}");
    let server = TestServer::start(folder);
    assert_eq!(outputs(&server, "chain", "x=1"), "z=1");
    assert_eq!(outputs(&server, "output", "x=2"), "z=2");
    assert_eq!(outputs(&server, "combined", "x=3"), "joined=3,3,3");
    assert_eq!(outputs(&server, "prefixed", "x=4"), "x-y.y=4 echo-2.x=4");
    assert_eq!(outputs(&server, "several", "x=5"), "l=5");
    let warning = server.wait_for_log("several children without a `COMBINER`; the answer of the first one is used");
    assert!(warning.contains("spec.predictors[0].graph.children"), "{warning}");
    let ignored = server.wait_for_log("Fields of the manifest that only concern clusters are ignored.");
    assert!(ignored.contains("replicas"), "{ignored}");
}

#[test]
fn seldon_deployment_router_chooses_children_by_index() {
    let folder = deployment(models(), "routed", "{name: pick, type: ROUTER, children: [{name: x-l}, {name: x-y}]}");
    let server = TestServer::start(folder);
    let ran =
        |step: &str| metric(&server, &format!("graph_step_duration_seconds_count{{graph=\"routed\",step=\"{step}\"}}"));
    assert_eq!(outputs(&server, "routed", "x=1"), "l=1");
    assert_eq!((ran("x-l"), ran("x-y")), (1, 0));
    assert_eq!(outputs(&server, "routed", "x=2"), "y=2");
    assert_eq!((ran("x-l"), ran("x-y")), (1, 1));
    // -1 sends the request to all children, and the first one answers.
    assert_eq!(outputs(&server, "routed", "x=3"), "l=3");
    wait_until("the other child has run", || (ran("x-l"), ran("x-y")) == (2, 2));
    let error = infer(&server, "routed", "x=4").error(500);
    assert_eq!(error, "step \"pick\": expected one integer from -1 to 1, the index of a child, found 7");
}

#[test]
fn seldon_deployment_predictors_share_the_traffic() {
    let predictors = [predictor("main", 50, "{name: x-y}"), predictor("canary", 50, "{name: x-l}")].concat();
    let folder = with_graph(models(), "shared", SELDON, &format!("  predictors:{predictors}"));
    let server = TestServer::start(folder);
    assert_eq!(many(&server, "shared"), ["l=1", "y=1"].map(str::to_owned).into());
}

const CHAIN: &str = "
  steps: [{name: x-y}, {name: y-z, inputs: [x-y]}]
  output: {steps: [y-z]}";

#[test]
fn graph_answers_over_v1_by_the_names_of_its_tensors() {
    let declared = json!({"inputs": [{"name": "x", "datatype": "INT64", "shape": [-1]}]});
    let server = TestServer::start(with_graph_settings(models(), "chain", PIPELINE, CHAIN, &declared));
    for request in [r#"{"instances": [1, 2]}"#, r#"{"instances": [{"x": 1}, {"x": 2}]}"#] {
        let answer = server.post("/v1/models/chain:predict", request).ok();
        assert_eq!(answer, json!({"predictions": [1, 2]}), "{request}");
    }
}

#[test]
fn graph_with_a_cache_runs_its_steps_once() {
    let cached = json!({"cache_enabled": true});
    let folder = with_graph_settings(models(), "cached", PIPELINE, CHAIN, &cached);
    let folder = with_graph(folder, "plain", PIPELINE, CHAIN);
    let server = TestServer::start(folder.settings(&json!({"cache_enabled": true, "cache_size": 10})));
    let ran =
        |graph: &str| metric(&server, &format!("graph_step_duration_seconds_count{{graph=\"{graph}\",step=\"y-z\"}}"));
    for _ in 0..3 {
        assert_eq!(outputs(&server, "cached", "x=1"), "z=1");
        assert_eq!(outputs(&server, "plain", "x=1"), "z=1");
    }
    assert_eq!((ran("cached"), ran("plain")), (1, 3));
    assert_eq!(outputs(&server, "cached", "x=2"), "z=2");
    assert_eq!(ran("cached"), 2);
}

/// Answers with its inputs once the file `go-ROWS` is there.
const GATE: &str = "
import asyncio, os
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

class Gate(MLModel):
    async def predict(self, payload):
        rows = payload.inputs[0].shape[0]
        print(f'running {rows} rows')
        while not os.path.exists(os.path.join(os.path.dirname(__file__), f'go-{rows}')):
            await asyncio.sleep(0.01)
        outputs = [ResponseOutput(name=each.name, shape=each.shape, datatype=each.datatype, data=each.data) for each in payload.inputs]
        return InferenceResponse(model_name=self.name, outputs=outputs)
";

/// A graph that batches, of a step with a gate and one that renames its answer.
fn batched(folder: Folder) -> Option<TestServer> {
    let settings = json!({"name": "gate", "implementation": "models.Gate"});
    let folder = folder.file("gate/models.py", GATE).file("gate/model-settings.json", settings.to_string());
    let spec = "
  steps: [{name: gate}, {name: x-y, inputs: [gate]}]
  output: {steps: [x-y]}";
    let batching = json!({"max_batch_size": 8, "max_batch_time": 60.0});
    Some(with_python(with_graph_settings(folder, "batched", PIPELINE, spec, &batching))?.start())
}

fn open_gate(server: &TestServer, rows: usize) {
    fs::write(server.folder.path(&format!("gate/go-{rows}")), "").unwrap();
}

fn waiting(server: &TestServer) -> usize {
    metric(server, "model_infer_waiting{model=\"batched\",version=\"None\"}")
}

fn gate_runs(server: &TestServer) -> usize {
    metric(server, "graph_step_duration_seconds_count{graph=\"batched\",step=\"gate\"}")
}

#[test]
fn batched_graph_answers_every_caller() {
    let Some(server) = batched(models()) else { return };
    thread::scope(|scope| {
        let server = &server;
        let ask = |value: i64| {
            scope.spawn(move || {
                assert_eq!(outputs(server, "batched", &format!("x={value}")), format!("y={value}"));
            })
        };
        // The first request runs alone, because the graph is idle. The others gather in the meantime.
        let mut callers = vec![ask(0)];
        server.wait_for_log("running 1 rows");
        callers.extend((1..8).map(ask));
        wait_until("seven wait", || waiting(server) == 7);
        open_gate(server, 7);
        open_gate(server, 1);
        for caller in callers {
            caller.join().unwrap();
        }
    });
    assert_eq!(gate_runs(&server), 2);
}

#[test]
fn batched_graph_answers_the_others_if_a_client_disconnects() {
    let Some(server) = batched(models()) else { return };
    let send = |value: i64, timeout: &str| {
        let (mut connection, body) = (server.connect(), body(&format!("x={value}")));
        connection.write(format!(
            "POST /v2/models/batched/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{timeout}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ));
        connection
    };
    let mut first = send(0, "");
    server.wait_for_log("running 1 rows");
    // The steps of the batch belong to the request without a deadline, until it is cancelled.
    let patient = send(1, "");
    let mut hasty = send(2, "request-timeout: 60\r\n");
    wait_until("two wait", || waiting(&server) == 2);
    open_gate(&server, 1);
    first.answer().ok();
    server.wait_for_log("running 2 rows");
    drop(patient);
    wait_until("one is left", || metric(&server, "model_infer_in_flight{model=\"batched\",version=\"None\"}") == 1);
    open_gate(&server, 2);
    assert_eq!(hasty.answer().ok()["outputs"][0]["data"], json!([2]));
    assert_eq!(gate_runs(&server), 2, "the batch has not been repeated");
}

#[test]
fn graph_steps_count_towards_the_byte_budget() {
    let categories: Vec<usize> = (0..50_000).collect();
    let wide = json!({"outputs": [{"input": "y", "apply": [{"one_hot": categories}]}]});
    let folder = with_model(models(), "wide", "mlserver.Map", &wide);
    let folder = with_graph(
        folder,
        "growing",
        PIPELINE,
        "
  steps: [{name: x-y}, {name: wide, inputs: [x-y]}]
  output: {steps: [wide]}",
    );
    let server = ServerBuilder::new(folder.settings(&json!({"max_request_bytes_in_flight": 4 << 20}))).start();
    let request = |rows: usize| {
        json!({"inputs": [{"name": "x", "datatype": "UINT8", "shape": [rows], "data": vec![7; rows]}]}).to_string()
    };
    let error = server.post("/v2/models/growing/infer", request(100)).error(413);
    assert!(error.starts_with("step \"wide\": ") && error.contains("`max_request_bytes_in_flight`"), "{error}");
    let answer = server.post("/v2/models/growing/infer", request(1)).ok();
    assert_eq!(answer["outputs"][0]["shape"], json!([1, 50_000]));
    assert_eq!(metric(&server, "request_bytes_in_flight"), 0);
}
