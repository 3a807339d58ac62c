//! `mlserver graph show`: what it prints of inference graphs, and what it finds missing.

use serde_json::{Value, json};

use crate::support::{Folder, repository_path, run_mlserver};

fn show(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run_mlserver(folder.root(), &[&["graph", "show"], arguments].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn with_graph(folder: Folder, path: &str, name: &str, manifest: &str, steps: &Value) -> Folder {
    let settings = json!({
        "name": name,
        "implementation": "mlserver.Graph",
        "parameters": {"uri": "./graph.yaml", "extra": {"steps": steps}},
    });
    folder
        .file(&format!("{path}/graph.yaml"), manifest)
        .file(&format!("{path}/model-settings.json"), settings.to_string())
}

const PIPELINE: &str = "
apiVersion: mlops.seldon.io/v1alpha1
kind: Pipeline
metadata:
  name: credit
spec:
  steps:
    - name: features
    - name: risk
      inputs: [features.outputs.x]
      tensorMap: {features.outputs.x: income}
    - name: drift
      inputs: [features]
    - name: label@v2
      inputs: [risk]
      triggers: [features.outputs.alarm]
  output:
    steps: [label@v2]
";

const SWITCH: &str = r#"
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceGraph
metadata:
  name: animals
spec:
  nodes:
    root:
      routerType: Switch
      steps:
        - serviceName: cats
          name: cat step
          condition: 'inputs.#(name=="cat")'
        - serviceName: dogs
          condition: inputs.1
"#;

/// A repository with a complete graph, and one whose model `cats` is missing.
fn graphs() -> Folder {
    let remote = json!({"risk": {"url": "http://me:s3cret@risk.example.com/v2/models/r/infer?key=s3cret"}});
    let folder = Folder::new().with_identity("features").with_identity("drift").with_identity("dogs");
    let label = json!({"name": "label", "implementation": "models.Label", "parameters": {"version": "v2"}});
    let folder = folder.file("label/model-settings.json", label.to_string());
    let folder = with_graph(folder, "graphs/credit", "credit", PIPELINE, &remote);
    with_graph(folder, "graphs/animals", "animals", SWITCH, &json!({})).settings(&json!({}))
}

#[test]
fn graph_show_prints_steps_and_what_they_depend_on() {
    let folder = graphs();
    let (code, text, error) = show(&folder, &["graphs/credit"]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "the models are in the nearest folder with server settings");
    insta::assert_snapshot!(text, @"
    credit: Pipeline in graph.yaml
      1. features
         <- inputs
      2. risk (http://risk.example.com/v2/models/r/infer)
         <- features: x as income
      3. drift (optional)
         <- features
      4. label@v2
         <- features: trigger alarm
         <- risk
      outputs
         <- label@v2
    ");
}

#[test]
fn graph_show_fails_if_a_model_is_missing() {
    let folder = graphs();
    let (code, text, error) = show(&folder, &["."]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(text, @r#"
    animals: InferenceGraph in graphs/animals/graph.yaml
      1. cat step (model cats is missing)
         <- inputs: if inputs.#(name=="cat")
      2. dogs
         <- inputs: if inputs.1
      outputs
         <- cat step
         <- dogs

    credit: Pipeline in graphs/credit/graph.yaml
      1. features
         <- inputs
      2. risk (http://risk.example.com/v2/models/r/infer)
         <- features: x as income
      3. drift (optional)
         <- features
      4. label@v2
         <- features: trigger alarm
         <- risk
      outputs
         <- label@v2
    "#);
    insta::assert_snapshot!(error, @r#"
    error: graph "animals": graph.yaml: spec.nodes.root.steps[0]: step "cat step": the model `cats` is missing
    error: the graph `animals` cannot be served
    "#);
}

#[test]
fn graph_show_prints_json() {
    let (code, text, _) = show(&graphs(), &["graphs/animals", "--format", "json"]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(text, @r#"
    {
      "graphs": [
        {
          "name": "animals",
          "kind": "InferenceGraph",
          "file": "graph.yaml",
          "steps": [
            {
              "name": "cat step",
              "model": "cats",
              "version": null,
              "url": null,
              "required": true,
              "missing": true
            },
            {
              "name": "dogs",
              "model": "dogs",
              "version": null,
              "url": null,
              "required": true,
              "missing": false
            }
          ],
          "edges": [
            {
              "from": null,
              "to": 0,
              "label": "if inputs.#(name==\"cat\")"
            },
            {
              "from": null,
              "to": 1,
              "label": "if inputs.1"
            },
            {
              "from": 0,
              "to": null,
              "label": ""
            },
            {
              "from": 1,
              "to": null,
              "label": ""
            }
          ],
          "problems": [
            "graph.yaml: spec.nodes.root.steps[0]: step \"cat step\": the model `cats` is missing"
          ],
          "warnings": []
        }
      ]
    }
    "#);
    let (_, text, _) = show(&graphs(), &[".", "--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(found["graphs"][1]["steps"][1]["url"], "http://risk.example.com/v2/models/r/infer");
    assert_eq!(found["graphs"][1]["steps"][3]["version"], "v2");
}

#[test]
fn graph_show_draws_flowcharts() {
    let (code, text, _) = show(&graphs(), &[".", "--format", "mermaid"]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(text, @r#"
    flowchart LR
      classDef missing stroke:#c00,stroke-dasharray:4
      subgraph g0["animals"]
        direction LR
        g0i([inputs])
        g0s0["cat step<br/>model cats is missing"]:::missing
        g0s1["dogs"]
        g0o([outputs])
        g0i -->|"if inputs.#35;#40;name==#34;cat#34;#41;"| g0s0
        g0i -->|"if inputs.1"| g0s1
        g0s0 --> g0o
        g0s1 --> g0o
      end
      subgraph g1["credit"]
        direction LR
        g1i([inputs])
        g1s0["features"]
        g1s1["risk<br/>http://risk.example.com/v2/models/r/infer"]
        g1s2["drift<br/>optional"]
        g1s3["label@v2"]
        g1o([outputs])
        g1i --> g1s0
        g1s0 -->|"x as income"| g1s1
        g1s0 --> g1s2
        g1s0 -->|"trigger alarm"| g1s3
        g1s1 --> g1s3
        g1s3 --> g1o
      end
    "#);
}

#[test]
fn graph_show_prints_all_problems_of_a_manifest() {
    let manifest = PIPELINE.replace("[risk]", "[rsik]").replace("features.outputs.alarm", "nothing");
    let folder = with_graph(Folder::new(), "credit", "credit", &manifest, &json!({}));
    let (code, text, error) = show(&folder, &["credit"]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(text, @"credit: graph.yaml");
    insta::assert_snapshot!(error, @r#"
    error: graph "credit": graph.yaml: spec.steps[3].inputs[0]: `rsik` refers to an unknown step; did you mean `risk`?
    error: graph "credit": graph.yaml: spec.steps[3].triggers[0]: `nothing` refers to an unknown step
    error: the graph `credit` cannot be served
    "#);
    let folder = with_graph(Folder::new(), "credit", "credit", PIPELINE, &json!({"risk": {"url": "http://h:99999"}}));
    let (code, _, error) = show(&folder.file("features/model-settings.json", "{"), &["."]);
    assert_eq!(code, Some(1));
    for expected in
        ["warning: failed to load the model settings at", "the model `drift` is missing", "the address is invalid"]
    {
        assert!(error.contains(expected), "{error}");
    }
    let settings =
        r#"{"name": "g", "implementation": "mlserver.Graph", "parameters": {"uri": "s3://bucket/graph.yaml"}}"#;
    let folder = Folder::new().file("g/model-settings.json", settings);
    let (code, text, error) = show(&folder, &["."]);
    assert_eq!((code, text.as_str()), (Some(1), "g: no manifest\n"), "{error}");
    assert!(error.contains("the manifest `s3://bucket/graph.yaml` is not on this machine"), "{error}");
}

#[test]
fn graph_show_escapes_names_for_terminals() {
    let manifest = PIPELINE.replace("name: features", r#"name: "fea\e[31mtures""#).replace("features", "fea\u{7f}");
    let (_, text, error) = show(&with_graph(Folder::new(), "credit", "credit", &manifest, &json!({})), &["credit"]);
    assert!(!(text + &error).contains(|c: char| c.is_control() && c != '\n'));
}

#[test]
fn graph_show_rejects_folders_without_graphs() {
    let folder = Folder::new().with_identity("m").file("a.txt", "");
    for (path, expected) in [
        (".", "error: no inference graph in `.`: a graph has the implementation `mlserver.Graph`\n"),
        ("a.txt", "error: `a.txt` is not a folder: pass the folder of a graph, or a folder above it\n"),
        ("b", "error: `b` does not exist: pass the folder of a graph, or a folder above it\n"),
    ] {
        assert_eq!(show(&folder, &[path]), (Some(1), String::new(), expected.to_owned()));
    }
}

#[test]
fn graph_show_finds_the_models_of_the_examples() {
    for example in ["graph-ensemble", "graph-text"] {
        let output = run_mlserver(repository_path("examples"), &["graph", "show", example]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
