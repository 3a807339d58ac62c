//! Manifests with problems, and limits.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::super::{Edge, Endpoint, Graph};
use super::*;

fn parse(text: &str) -> Result<GraphManifest, ManifestErrors> {
    GraphManifest::parse(text.as_bytes(), "g.yaml", &GraphOptions::default())
}

fn errors(text: &str) -> Vec<String> {
    let errors = parse(text).unwrap_err();
    assert!(!errors.0.is_empty());
    errors.to_string().lines().map(|line| line.strip_prefix("g.yaml: ").unwrap().to_owned()).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let manifest = parse(text).unwrap_or_else(|errors| panic!("{errors}"));
    manifest.warnings.iter().map(|warning| warning.to_string().replace("g.yaml: ", "")).collect()
}

/// Returns a pipeline named `p` with this `spec`.
fn pipeline(spec: &str) -> String {
    format!("apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\nspec: {spec}\n")
}

fn inference_graph(nodes: &str) -> String {
    format!(
        "apiVersion: serving.kserve.io/v1alpha1\nkind: InferenceGraph\nmetadata: {{name: g}}\nspec:\n  nodes: {nodes}\n"
    )
}

fn deployment(predictors: &str) -> String {
    format!(
        "apiVersion: machinelearning.seldon.io/v1\nkind: SeldonDeployment\nmetadata: {{name: d}}\n\
         spec:\n  predictors: {predictors}\n"
    )
}

#[test]
fn pipeline_problems_are_reported_together_with_their_paths() {
    let text = pipeline(
        "
  input: {externalInputs: [other.outputs]}
  allowCycles: true
  steps:
    - name: a
      inputs: [b.outputs.x, encodr, a.result, 7]
      triggers: [b.outputs.y]
      inputsJoinType: iner
    - name: encoder
      tensorMap: {b.outputs.x: y, encoder: z, p.inputs.q: ''}
    - name: b
    - name: b
    - name: p
    - inputs: []
    - name: ''
    - name: [c]
    - text
    - name: d@
      inputs: [b, b.outputs]
      joinType: outer
      inputsJoinType: inner
  output:
    steps: []
    stepsJoin: all",
    );
    assert_eq!(
        errors(&text),
        [
            "spec.input: inputs of other pipelines are not supported; send requests to this pipeline instead",
            "spec.allowCycles: cycles are not supported, expected `false`",
            "spec.steps[5].name: missing field",
            "spec.steps[6].name: expected a name, found an empty string",
            "spec.steps[7].name: expected a string, found a list",
            "spec.steps[8]: expected a mapping, found the string `text`",
            "spec.steps[3].name: a step named `b` already exists",
            "spec.steps[4].name: the step has the name of the pipeline, `p`; rename one of them",
            "spec.steps[0].inputs[1]: `encodr` refers to an unknown step; did you mean `encoder`?",
            "spec.steps[0].inputs[2]: invalid reference `a.result`, expected `step`, `step.outputs`, `step.outputs.tensor`, \
             `step.inputs`, `step.inputs.tensor`, `p.inputs` or `p.inputs.tensor`",
            "spec.steps[0].inputs[3]: expected a string, found `7`",
            "spec.steps[0].triggers[0]: the step is also an input; a step may be an input or a trigger, not both",
            "spec.steps[0].inputsJoinType: expected one of `inner`, `outer`, `any`, found `iner`; did you mean `inner`?",
            "spec.steps[1].tensorMap.b.outputs.x: the tensor is not one of the inputs",
            "spec.steps[1].tensorMap.encoder: expected a tensor, such as `step.outputs.tensor`",
            "spec.steps[1].tensorMap.p.inputs.q: expected a name, found an empty string",
            "spec.steps[1].tensorMap.p.inputs.q: the tensor is not one of the inputs",
            "spec.steps[9].inputs[1]: `b.outputs` is listed twice",
            "spec.steps[9].joinType: `inputsJoinType` is set too, expected one of them",
            "spec.output.steps: expected at least one step",
            "spec.output.stepsJoin: expected one of `inner`, `outer`, `any`, found `all`",
        ]
    );
    assert_eq!(errors(&pipeline("{steps: [{name: a}]}")), ["spec.output: missing field"]);
    assert_eq!(
        errors(&pipeline("{steps: [{name: 'd@'}], output: {steps: ['d@']}}")),
        ["spec.steps[0]: expected a model, or a model and a version like `model@v1`, found `d@`"]
    );
}

#[test]
fn pipeline_tensors_are_listed_once() {
    let text = pipeline(
        "{steps: [{name: a}, {name: b, inputs: [a.outputs.x, a.inputs, a]}], output: {steps: [p.inputs, p.inputs.x, b]}}",
    );
    assert_eq!(
        errors(&text),
        [
            "spec.steps[1].inputs[0]: the tensor is listed twice: all tensors of the step are listed, too",
            "spec.output.steps[1]: the tensor is listed twice: all tensors of the step are listed, too",
        ]
    );
}

#[test]
fn pipeline_cycles_are_named() {
    let text = pipeline(
        "{steps: [{name: start}, {name: a, inputs: [c, start]}, {name: b, inputs: [a]}, {name: c, triggers: [b]}, \
         {name: end, inputs: [c]}], output: {steps: [end]}}",
    );
    assert_eq!(errors(&text), ["spec.steps[1]: the steps form a cycle: `a` -> `b` -> `c` -> `a`"]);
    let text = pipeline("{steps: [{name: a, inputs: [a]}], output: {steps: [a]}}");
    assert_eq!(errors(&text), ["spec.steps[0]: the steps form a cycle: `a` -> `a`"]);
}

#[test]
fn pipeline_steps_are_in_an_order_in_which_they_can_run() {
    let text = pipeline(
        "{steps: [{name: c, inputs: [b]}, {name: a}, {name: b, triggers: [a], inputs: [p.inputs]}], output: {steps: [c]}}",
    );
    let graph = parse(&text).unwrap().graph;
    assert_eq!(graph.steps().iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn pipeline_two_producers_of_one_name_are_refused() {
    let text = pipeline(
        "{steps: [{name: a}, {name: b}, {name: c, inputs: [a.outputs.x, b.outputs.y], tensorMap: {b.outputs.y: x}}], \
         output: {steps: [c]}}",
    );
    assert_eq!(
        errors(&text),
        ["spec.steps[2].inputs[1]: `a` and `b` both provide the input `x`; rename one with `tensorMap`"]
    );
    let outer = text.replace("inputs: [a", "joinType: outer, inputs: [a");
    assert!(parse(&outer).is_ok(), "only one of them may be there");
    let mapped = |inputs: &str, map: &str| {
        pipeline(&format!(
            "{{steps: [{{name: a}}, {{name: b}}, {{name: c, inputs: [{inputs}], tensorMap: {{{map}}}}}], output: {{steps: [c]}}}}"
        ))
    };
    for (inputs, map, second, first) in [
        ("a, b", "a.outputs.x: z, b.outputs.y: z", "b.outputs.y", "a.outputs.x"),
        ("a", "a.outputs.x: z, a.outputs.y: z", "a.outputs.y", "a.outputs.x"),
        ("p.inputs", "p.inputs.x: z, p.inputs.y: z", "p.inputs.y", "p.inputs.x"),
    ] {
        let expected =
            format!("spec.steps[2].tensorMap.{second}: `{first}` has the new name `z`, too; choose another one");
        assert_eq!(errors(&mapped(inputs, map)), [expected]);
    }
    let outer = mapped("a, b", "a.outputs.x: z, b.outputs.y: z").replace("inputs: [a", "joinType: outer, inputs: [a");
    assert!(parse(&outer).is_ok(), "only one of them may be there");
}

#[test]
fn names_with_dots_are_resolved_to_the_longest_name() {
    let graph = parse(include_str!("../examples/pipeline-names.yaml")).unwrap().graph;
    let models: Vec<_> =
        graph.steps().iter().map(|step| (step.model.name.as_str(), step.model.version.as_deref())).collect();
    assert_eq!(models, [("encoder", Some("v1.0.0")), ("encoder", None), ("decoder", None)]);
    assert_eq!(
        labels(&graph),
        [
            "input -> encoder@v1.0.0 ()",
            "input -> encoder (text)",
            "encoder@v1.0.0 -> decoder (ids.short)",
            "encoder -> decoder (ids)",
            "encoder -> output ()",
            "decoder -> output ()",
        ]
    );
    let text =
        pipeline("{steps: [{name: a}, {name: a.outputs}, {name: b, inputs: [a.outputs.x]}], output: {steps: [b]}}");
    let graph = parse(&text).unwrap().graph;
    assert!(labels(&graph).contains(&"a -> b (x)".to_owned()), "`a.outputs` does not fit, because of `.x`");
}

fn labels(graph: &Graph) -> Vec<String> {
    let name = |endpoint| match endpoint {
        Endpoint::Input => "input".to_owned(),
        Endpoint::Step(step) => graph.steps()[step].name.clone(),
        Endpoint::Output => "output".to_owned(),
    };
    let label = |Edge { from, to, label }| format!("{} -> {} ({label})", name(from), name(to));
    graph.edges().into_iter().map(label).collect()
}

#[test]
fn edges_describe_conditions_weights_and_renames() {
    let graph = |text: &str| parse(text).unwrap().graph;
    assert_eq!(
        labels(&graph(include_str!("../examples/pipeline-conditional.yaml"))),
        [
            "input -> router ()",
            "router -> mul10 (OUTPUT0 as INPUT)",
            "router -> add10 (OUTPUT1 as INPUT)",
            "mul10 -> output ()",
            "add10 -> output ()",
        ]
    );
    assert_eq!(
        labels(&graph(include_str!("../examples/pipeline-triggers.yaml"))),
        [
            "input -> outlier ()",
            "input -> classifier (x)",
            "outlier -> classifier (trigger normal)",
            "outlier -> drift (inputs)",
            "classifier -> output ()",
        ]
    );
    assert_eq!(
        labels(&graph(include_str!("../examples/seldon-router.yaml"))),
        [
            "input -> bandit (75 %)",
            "input -> a ()",
            "input -> b ()",
            "input -> c (25 %)",
            "bandit -> a (child 0)",
            "bandit -> b (child 1)",
            "a -> output ()",
            "b -> output ()",
            "c -> output ()",
        ]
    );
    assert_eq!(
        labels(&graph(include_str!("../examples/sequence.yaml"))),
        [
            "input -> animals ()",
            "input -> breeds (if outputs.#(name==\"animal\").data.#(==\"dog\"))",
            "animals -> breeds (after)",
            "animals -> output ()",
            "breeds -> output ()",
        ]
    );
}

#[test]
fn declared_tensors_are_checked() {
    let text = pipeline(
        "{steps: [{name: a}, {name: b, inputs: [a]}, {name: c, inputs: [b.inputs.w, a.outputs.z]}, {name: d}, \
         {name: e, inputs: [a, d], triggers: [b.outputs.u], tensorMap: {d.outputs.v: x}}], output: {steps: [c, e]}}",
    );
    let graph = parse(&text).unwrap().graph;
    let declared = |step: &super::super::Step| match step.name.as_str() {
        "a" | "d" => Some(vec!["y".to_owned(), "x".to_owned()]),
        "b" => Some(vec!["u".to_owned()]),
        _ => None,
    };
    let problems: Vec<_> = graph.check_tensors(declared).iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "g.yaml: spec.steps[2].inputs[0]: `b.inputs` has no tensor `w`, expected one of `y`, `x`",
            "g.yaml: spec.steps[2].inputs[1]: `a` has no tensor `z`, expected one of `y`, `x`",
            "g.yaml: spec.steps[4].inputs[1]: `d` has no tensor `v`, expected one of `y`, `x`",
            "g.yaml: spec.steps[4].inputs[1]: `a` and `d` both provide the input `y`; rename one with `tensorMap`",
            "g.yaml: spec.steps[4].inputs[1]: `a` and `d` both provide the input `x`; rename one with `tensorMap`",
        ]
    );
    assert_eq!(graph.check_tensors(|_| None), []);
}

#[test]
fn unknown_fields_warn_with_the_nearest_name_and_cluster_fields_are_listed() {
    let text = pipeline(
        "{steps: [{name: a, input: [p.inputs], batch: {size: 2}, joinWindowMs: 10, zzz: 1}], output: {steps: [a]}, \
         dataflow: {}}",
    );
    let manifest = parse(&text).unwrap();
    assert_eq!(manifest.ignored, ["spec.dataflow", "spec.steps[0].batch", "spec.steps[0].joinWindowMs"]);
    assert_eq!(
        warnings(&text),
        ["spec.steps[0].input: unknown field; did you mean `inputs`?", "spec.steps[0].zzz: unknown field"]
    );
}

#[test]
fn inference_graph_problems_are_reported_together_with_their_paths() {
    let text = inference_graph(
        "
    main:
      routerType: Switch
      steps:
        - {serviceName: a, condition: x}
        - {serviceName: b}
        - {serviceName: c, condition: 'x.@reverse'}
    split:
      routerType: Splitter
      steps:
        - {serviceName: a, weight: 50}
        - {serviceName: b, weight: 49}
        - {serviceName: c, weight: 101}
        - {serviceName: d, weight: -1}
    list: {routerType: Sequence, steps: []}
    types: {routerType: Sequnce, steps: [{serviceName: a}]}
    steps:
      routerType: Sequence
      steps:
        - {serviceName: a, condition: x}
        - {nodeName: lst}
        - {nodeName: list, serviceName: b}
        - {name: c}
        - {serviceUrl: 'ftp://example.com'}
        - {serviceUrl: triton}
        - {serviceName: a, data: $respnse, dependency: Firm}",
    );
    assert_eq!(
        errors(&text),
        [
            "spec.nodes.main.steps[1].condition: expected a condition, without which the step of a `Switch` never runs",
            "spec.nodes.main.steps[2].condition: modifiers other than `@this` of GJSON are not supported",
            "spec.nodes.split.steps[2].weight: expected a whole number from 0 to 100, found `101`",
            "spec.nodes.split.steps[3].weight: expected a whole number from 0 to 100, found `-1`",
            "spec.nodes.split.steps: the weights add up to 99, expected 100",
            "spec.nodes.list.steps: expected at least one step",
            "spec.nodes.types.routerType: expected one of `Sequence`, `Switch`, `Ensemble`, `Splitter`, found `Sequnce`; did \
             you mean `Sequence`?",
            "spec.nodes.steps.steps[0].condition: the first step of a `Sequence` has no previous answer that the condition could match",
            "spec.nodes.steps.steps[2]: `nodeName` and a service are set, expected one of them",
            "spec.nodes.steps.steps[3]: expected `serviceName`, `nodeName` or `serviceUrl`",
            "spec.nodes.steps.steps[4].serviceUrl: invalid URL `ftp://example.com`, expected `http://`, `https://`, `grpc://` \
             or `grpcs://` and a host",
            "spec.nodes.steps.steps[5].serviceUrl: invalid URL `triton`, expected `http://`, `https://`, `grpc://` or \
             `grpcs://` and a host",
            "spec.nodes.steps.steps[6].data: expected one of `$request`, `$response`, found `$respnse`; did you mean \
             `$response`?",
            "spec.nodes.steps.steps[6].dependency: expected one of `Soft`, `Hard`, found `Firm`",
            "spec.nodes.steps.steps[6]: a step named `a` already exists in this node",
            "spec.nodes: expected a node named `root`, at which requests enter",
            "spec.nodes.steps.steps[1].nodeName: unknown node `lst`; did you mean `list`?",
        ]
    );
}

#[test]
fn splitter_steps_have_weights() {
    let errors_of =
        |steps: &str| errors(&inference_graph(&format!("{{root: {{routerType: Splitter, steps: [{steps}]}}}}")));
    let missing = "missing field; each step of a `Splitter` has its share of the requests, in percent";
    let steps = |indexes: &[usize]| {
        indexes.iter().map(|index| format!("spec.nodes.root.steps[{index}].weight: {missing}")).collect::<Vec<_>>()
    };
    assert_eq!(errors_of("{serviceName: a}, {serviceName: b}"), steps(&[0, 1]));
    assert_eq!(errors_of("{serviceName: a, weight: 100}, {serviceName: b}"), steps(&[1]));
    assert_eq!(
        errors_of("{serviceName: a, weight: 60}, {serviceName: b, weight: 60}"),
        ["spec.nodes.root.steps: the weights add up to 120, expected 100"]
    );
}

#[test]
fn inference_graph_cycles_and_deep_nodes_are_refused() {
    let text = inference_graph(
        "{root: {routerType: Sequence, steps: [{nodeName: a}]}, a: {routerType: Ensemble, steps: [{nodeName: b}]}, \
         b: {routerType: Sequence, steps: [{serviceName: x}, {nodeName: a}]}}",
    );
    assert_eq!(errors(&text), ["spec.nodes.b.steps[1].nodeName: the nodes form a cycle: `a` -> `b` -> `a`"]);
    let mut nodes = String::from("root: {routerType: Sequence, steps: [{nodeName: n0}]}");
    for node in 0..70 {
        write!(nodes, ", n{node}: {{routerType: Sequence, steps: [{{nodeName: n{}}}]}}", node + 1).unwrap();
    }
    nodes.push_str(", n70: {routerType: Sequence, steps: [{serviceName: x}]}");
    let errors = errors(&inference_graph(&format!("{{{nodes}}}")));
    assert_eq!(errors, ["spec.nodes.n62.steps[0].nodeName: the nodes are nested deeper than 64 levels"]);
}

#[test]
fn inference_graph_expansion_is_limited() {
    let mut nodes = String::from("root: {routerType: Ensemble, steps: [{nodeName: n0}]}");
    for node in 0..40 {
        let next = node + 1;
        let steps = format!("{{nodeName: n{next}, name: a}}, {{nodeName: n{next}, name: b}}");
        write!(nodes, ", n{node}: {{routerType: Ensemble, steps: [{steps}]}}").unwrap();
    }
    nodes.push_str(", n40: {routerType: Sequence, steps: [{serviceName: x}]}");
    let errors = errors(&inference_graph(&format!("{{{nodes}}}")));
    assert_eq!(errors, ["spec.nodes: more than 1000 steps, nested nodes included"]);
}

#[test]
fn inference_graph_settings_without_effect_are_warnings() {
    let text = inference_graph(
        "{root: {routerType: Splitter, steps: [{serviceName: a, weight: 100, data: $request, dependency: Hard}]}, \
         other: {routerType: Sequence, steps: [{serviceName: a, weight: 1}, {serviceName: b, condition: 'a.b'}]}}",
    );
    assert_eq!(
        warnings(&text),
        [
            "spec.nodes.root.steps[0].data: the field has no effect in a `Splitter`",
            "spec.nodes.root.steps[0].dependency: the field has no effect in a `Splitter`",
            "spec.nodes.other.steps[0].weight: the field has no effect in a `Sequence`",
            "spec.nodes.other: no step refers to this node",
        ]
    );
}

#[test]
fn deployment_problems_are_reported_together_with_their_paths() {
    let text = deployment(
        "
    - traffic: 50
      shadow: true
      graph:
        name: a
        type: MODLE
        methods: [TRANSFORM_INPUT]
        children:
          - {name: b, implementation: RANDOM_ABTEST}
          - {name: a, type: ROUTER}
          - {name: c, type: COMBINER, children: none}
    - traffic: 49
    - graph: {children: [{name: ''}]}
      componentSpecs:
        - spec:
            containers:
              - {name: a, env: [{name: 'A=B', value: x}, {name: C, value: 7}, {value: x}, {name: D, valueFrom: {}}]}
              - {name: a, evn: []}
              - {image: x}",
    );
    assert_eq!(
        errors(&text),
        [
            "spec.predictors[0].shadow: shadow predictors are not supported",
            "spec.predictors: the `traffic` of the predictors adds up to 99, expected 100",
            "spec.predictors[0].graph.methods: `methods` is not supported; set `type` instead",
            "spec.predictors[0].graph.type: expected one of `MODEL`, `TRANSFORMER`, `OUTPUT_TRANSFORMER`, `COMBINER`, \
             `ROUTER`, `UNKNOWN_TYPE`, found `MODLE`; did you mean `MODEL`?",
            "spec.predictors[0].graph.children[0].implementation: `RANDOM_ABTEST` is not supported; use a model instead",
            "spec.predictors[0].graph.children[1].name: a step named `a` already exists",
            "spec.predictors[0].graph.children[1].children: expected at least one child",
            "spec.predictors[0].graph.children[2].children: expected a list, found the string `none`",
            "spec.predictors[0].graph.children[2].children: expected at least one child",
            "spec.predictors[1].graph: missing field",
            "spec.predictors[2].componentSpecs[0].spec.containers[0].env[0].name: the name of an environment variable has no \
             `=`",
            "spec.predictors[2].componentSpecs[0].spec.containers[0].env[1].value: expected a string, found `7`",
            "spec.predictors[2].componentSpecs[0].spec.containers[0].env[2].name: missing field",
            "spec.predictors[2].componentSpecs[0].spec.containers[1].name: a container named `a` already exists",
            "spec.predictors[2].componentSpecs[0].spec.containers[2].name: missing field",
            "spec.predictors[2].graph.name: missing field",
            "spec.predictors[2].graph.children[0].name: expected a name, found an empty string",
        ]
    );
    assert_eq!(errors(&deployment("[]")), ["spec.predictors: expected at least one predictor"]);
}

#[test]
fn deployment_settings_that_are_not_applied_are_warnings() {
    let text = deployment(
        "[{graph: {name: a, parameters: [{name: x}], endpoint: {type: REST}}, componentSpecs: [{spec: {containers: \
         [{name: a, evn: [], env: [{name: S, valueFrom: {secretKeyRef: {name: s}}}, {name: T, value: u}, {name: V}]}]}}]}]",
    );
    assert_eq!(
        warnings(&text),
        [
            "spec.predictors[0].componentSpecs[0].spec.containers[0].evn: unknown field; did you mean `env`?",
            "spec.predictors[0].componentSpecs[0].spec.containers[0].env[0].valueFrom: values from the cluster are not \
             available; the environment variable is not set",
            "spec.predictors[0].graph.parameters: the parameters are not passed to the model; set them in the settings of the \
             model",
        ]
    );
    let manifest = parse(&text).unwrap();
    assert_eq!(manifest.ignored, ["spec.predictors[0].graph.endpoint"]);
    let expected = [("T".to_owned(), "u".to_owned()), ("V".to_owned(), String::new())];
    assert_eq!(manifest.graph.steps()[0].environment, expected);
}

#[test]
fn options_add_urls_and_folders_to_steps() {
    let text = pipeline("{steps: [{name: a}, {name: b@v2}], output: {steps: [a, b@v2]}}");
    let mut options = GraphOptions::default();
    let remote = StepOptions { url: Some("grpcs://triton:8001".to_owned()), folder: None };
    options.steps.insert("b@v2".to_owned(), remote);
    options.steps.insert("a".to_owned(), StepOptions { url: None, folder: Some("./models/a".to_owned()) });
    let graph = GraphManifest::parse(text.as_bytes(), "g.yaml", &options).unwrap().graph;
    assert_eq!(graph.steps()[0].folder.as_deref(), Some("./models/a"));
    assert_eq!(graph.steps()[1].url.as_deref(), Some("grpcs://triton:8001"));
    assert_eq!(graph.steps()[1].model.version.as_deref(), Some("v2"));
    options.steps.insert("b".to_owned(), StepOptions::default());
    options.steps.insert("a".to_owned(), StepOptions { url: Some("http:///x".to_owned()), folder: None });
    let errors = GraphManifest::parse(text.as_bytes(), "g.yaml", &options).unwrap_err().to_string();
    assert_eq!(
        errors,
        "g.yaml: parameters.extra.steps.a.url: invalid URL `http:///x`, expected `http://`, `https://`, `grpc://` or \
         `grpcs://` and a host\ng.yaml: parameters.extra.steps.b: unknown step `b`"
    );
}

#[test]
fn other_kinds_are_refused_by_name() {
    for text in ["apiVersion: v1\nkind: Pod\n", "apiVersion: mlops.seldon.io/v2\nkind: Pipeline\n"] {
        let [error] = &errors(text)[..] else { panic!("several errors") };
        assert!(
            error.starts_with("kind: `Po") || error.starts_with("kind: `Pipeline` of `mlops.seldon.io/v2` is"),
            "{error}"
        );
    }
    assert_eq!(errors("{}"), ["apiVersion: missing field", "kind: missing field"]);
    assert_eq!(errors("[]"), ["expected a mapping, found a list"]);
    assert_eq!(errors(""), ["expected a mapping, found nothing"]);
    assert_eq!(
        errors("apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {}\n"),
        ["metadata.name: missing field", "spec: missing field"]
    );
}

#[test]
fn json_is_read_like_yaml() {
    let text = include_str!("../examples/seldon-transformers.json");
    assert_eq!(parse(text).unwrap().graph.steps().len(), 3);
    let minified: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(parse(&minified.to_string()).unwrap().graph.steps().len(), 3);
    let indented = text.replace("  ", "\t");
    assert_eq!(parse(&indented).unwrap().graph.steps().len(), 3, "JSON may be indented with tabs");
}

#[test]
fn yaml_is_read_under_limits() {
    let valid = pipeline("{steps: [{name: a}], output: {steps: [a]}}");
    let error = |text: &str| errors(text).join("\n");
    let long = format!("{valid}# {}", "x".repeat(MAX_BYTES));
    assert!(error(&long).contains("more than the limit of 1048576"), "{}", error(&long));
    let almost = format!("{valid}# {}", "x".repeat(MAX_BYTES - valid.len() - 2));
    assert!(parse(&almost).is_ok());

    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
        let deep = format!("{valid}extra:\n  {}x{}\n", open.repeat(70), close.repeat(70));
        assert!(error(&deep).starts_with("cannot read the file"), "{}", error(&deep));
    }
    let shallow = format!("{valid}extra: {}x{}\n", "[".repeat(60), "]".repeat(60));
    assert!(parse(&shallow).is_ok());

    let duplicate = format!("{valid}kind: Pipeline\n");
    assert!(error(&duplicate).contains("duplicate"), "{}", error(&duplicate));
    assert!(error(r#"{"kind": "a", "kind": "b"}"#).contains("duplicate"));
    let two = format!("{valid}---\n{valid}");
    assert!(error(&two).starts_with("cannot read the file"), "{}", error(&two));
    assert!(GraphManifest::parse(b"a: \xff", "g.yaml", &GraphOptions::default()).is_err());
}

#[test]
fn yaml_aliases_are_limited() {
    let valid = pipeline("{steps: [{name: a}], output: {steps: [a]}}");
    let aliases = |count: usize| format!("{valid}extra:\n  - &a x\n{}", "  - *a\n".repeat(count));
    assert!(parse(&aliases(1000)).is_ok());
    assert!(errors(&aliases(1001))[0].starts_with("cannot read the file"));

    // Ten aliases in each of ten levels: 10 billion values.
    let mut laughs = format!("{valid}a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(laughs, "a{level}: &a{level} [{items}]").unwrap();
    }
    let start = std::time::Instant::now();
    assert!(errors(&laughs)[0].starts_with("cannot read the file"), "{:?}", errors(&laughs));
    assert!(start.elapsed() < std::time::Duration::from_secs(10));

    let merged = "x: &x {routerType: Ensemble}\n";
    let text = inference_graph("{root: {<<: *x, steps: [{serviceName: a}]}}");
    assert_eq!(warnings(&format!("{merged}{text}")), ["x: unknown field"], "aliases and merge keys are expanded");
}

#[test]
fn numbers_and_lengths_are_limited() {
    let steps: Vec<_> = (0..1001).map(|index| format!("{{name: s{index}}}")).collect();
    let text = pipeline(&format!("{{steps: [{}], output: {{steps: [s0]}}}}", steps.join(", ")));
    assert_eq!(errors(&text), ["spec.steps: 1001 steps, more than the limit of 1000"]);
    let text = pipeline(&format!("{{steps: [{}], output: {{steps: [s0]}}}}", steps[..1000].join(", ")));
    assert_eq!(parse(&text).unwrap().graph.steps().len(), 1000);
    let tensors: Vec<_> = (0..10_001).map(|index| format!("a.outputs.t{index}")).collect();
    let text = pipeline(&format!("{{steps: [{{name: a}}], output: {{steps: [{}]}}}}", tensors.join(", ")));
    assert_eq!(
        errors(&text),
        [
            "spec: more than 10000 inputs, triggers, outputs and renamed tensors",
            "spec.output.steps: expected at least one step"
        ]
    );
    let long = "n".repeat(300);
    let text = pipeline(&format!("{{steps: [{{name: {long}}}], output: {{steps: [a]}}}}"));
    assert_eq!(errors(&text)[0], "spec.steps[0].name: the name has 300 bytes, more than the limit of 256");
    let text = pipeline("{steps: [{name: \"a\\nb\"}], output: {steps: [\"c\\u001b\"]}}");
    assert!(errors(&text)[0].contains("the name `a\u{fffd}b` has control characters"));
    let children: Vec<_> = (0..1001).map(|index| format!("{{name: c{index}}}")).collect();
    let text = deployment(&format!("[{{graph: {{name: a, type: COMBINER, children: [{}]}}}}]", children.join(", ")));
    assert_eq!(errors(&text), ["spec.predictors: more than 1000 steps"]);
    let problems: Vec<_> = (0..150).map(|index| format!("{{name: s{index}, inputs: [x]}}")).collect();
    let text = pipeline(&format!("{{steps: [{}], output: {{steps: [s0]}}}}", problems.join(", ")));
    let errors = errors(&text);
    assert_eq!((errors.len(), errors[100].as_str()), (101, "50 more problems"));
}

proptest! {
    /// Mutations of valid manifests end without a panic, and every refusal has a reason.
    #[test]
    fn changed_manifests_end_without_a_panic(
        example in 0_usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[a-z:{}\\[\\], \n*&-]{0,6}", 0_usize..8), 0..6),
    ) {
        let examples = [
            include_str!("../examples/pipeline-join.yaml"),
            include_str!("../examples/pipeline-triggers.yaml"),
            include_str!("../examples/nested.yaml"),
            include_str!("../examples/switch.yaml"),
            include_str!("../examples/seldon-router.yaml"),
            include_str!("../examples/seldon-transformers.json"),
        ];
        let mut text = examples[example].to_owned();
        for (at, insert, remove) in changes {
            let start = at.index(text.len() + 1);
            let end = (start + remove).min(text.len());
            text.replace_range(start..end, &insert);
        }
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.0.is_empty());
        }
    }
}
