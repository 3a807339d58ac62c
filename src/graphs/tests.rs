//! Runs manifests in the style of the public documentation with models that are functions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::types::{
    ByteReservation, InferenceRequest, InferenceResponse, Parameters, Priority, RequestedOutput, Tensor, TensorData,
};

type Model = Box<dyn Fn(&InferenceRequest) -> Result<Vec<Tensor>, String> + Send + Sync>;

/// Runs models that are functions, and records what happens.
#[derive(Default)]
struct Models {
    functions: HashMap<String, Model>,
    delays: HashMap<String, Duration>,
    requests: Mutex<Vec<(String, InferenceRequest)>>,
    outcomes: Mutex<Vec<(String, String)>>,
    /// How often work was given to other threads.
    computations: Mutex<usize>,
    random: u32,
}

impl Models {
    fn with(
        mut self,
        step: &str,
        model: impl Fn(&InferenceRequest) -> Result<Vec<Tensor>, String> + Send + Sync + 'static,
    ) -> Self {
        self.functions.insert(step.to_owned(), Box::new(model));
        self
    }

    /// Adds a model that returns a constant.
    fn returning(self, step: &str, name: &'static str, value: i64) -> Self {
        self.with(step, move |_| Ok(vec![int(name, value)]))
    }

    fn failing(self, step: &str) -> Self {
        self.with(step, |_| Err("out of memory".to_owned()))
    }

    fn delayed(mut self, step: &str, milliseconds: u64) -> Self {
        self.delays.insert(step.to_owned(), Duration::from_millis(milliseconds));
        self
    }

    fn random(mut self, random: u32) -> Self {
        self.random = random;
        self
    }

    /// Returns the steps that ran, in order.
    fn ran(&self) -> Vec<String> {
        self.requests.lock().iter().map(|(step, _)| step.clone()).collect()
    }

    fn request(&self, step: &str) -> InferenceRequest {
        self.requests.lock().iter().find(|(name, _)| name == step).unwrap().1.clone()
    }

    /// Returns how steps ended, in order.
    fn outcomes(&self) -> Vec<String> {
        self.outcomes.lock().iter().map(|(step, outcome)| format!("{step} {outcome}")).collect()
    }
}

impl StepRunner for Models {
    type Error = String;

    fn run(
        self: &Arc<Self>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, String>> {
        let (models, step) = (Arc::clone(self), step.clone());
        Box::pin(async move {
            models.requests.lock().push((step.name.clone(), request.clone()));
            if let Some(delay) = models.delays.get(&step.name) {
                tokio::time::sleep(*delay).await;
            }
            let outputs = models.functions.get(&step.name).ok_or("unknown model")?(&request)?;
            let mut parameters = Parameters::new();
            parameters.others.insert(step.name.clone(), json!(true));
            Ok(InferenceResponse { parameters, outputs, ..InferenceResponse::default() })
        })
    }

    fn observe(&self, step: &Step, _: Duration, outcome: StepOutcome<'_, String>) {
        let outcome = match outcome {
            StepOutcome::Succeeded => "succeeded",
            StepOutcome::Failed { fails_graph: true, .. } => "failed the graph",
            StepOutcome::Failed { fails_graph: false, .. } => "failed",
            StepOutcome::Cancelled => "cancelled",
        };
        self.outcomes.lock().push((step.name.clone(), outcome.to_owned()));
    }

    fn random(&self, below: u32) -> u32 {
        assert!(self.random < below);
        self.random
    }

    fn compute(
        self: &Arc<Self>,
        _: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, String>> {
        *self.computations.lock() += 1;
        Box::pin(async move { Ok(work(ByteReservation::default(), &AtomicBool::new(false))) })
    }
}

fn int(name: &str, value: i64) -> Tensor {
    Tensor::from_elements(name, vec![1], &[value]).unwrap()
}

/// Returns the only element of an input or output.
fn value(tensors: &[Tensor], name: &str) -> i64 {
    let tensor = tensors.iter().find(|tensor| tensor.name == name);
    let tensor = tensor.unwrap_or_else(|| panic!("no tensor {name} in {tensors:?}"));
    tensor.elements::<i64>().unwrap()[0]
}

fn values(tensors: &[Tensor]) -> Vec<(&str, i64)> {
    tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.elements::<i64>().unwrap()[0])).collect()
}

fn graph(manifest: &str) -> Arc<Graph> {
    let manifest = GraphManifest::parse(manifest.as_bytes(), "graph.yaml", &GraphOptions::default());
    Arc::new(manifest.unwrap_or_else(|errors| panic!("{errors}")).graph)
}

/// Returns a pipeline with these lines of `steps` and of `output`.
fn pipeline(steps: &str, output: &str) -> Arc<Graph> {
    graph(&format!(
        "apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\n\
         spec: {{steps: [{steps}], output: {{{output}}}}}\n"
    ))
}

fn request(inputs: Vec<Tensor>) -> InferenceRequest {
    let mut parameters = Parameters::new();
    parameters.others.insert("request".to_owned(), json!(true));
    InferenceRequest { id: "id-1".to_owned(), parameters, inputs, ..InferenceRequest::default() }
}

async fn run(graph: &Arc<Graph>, models: &Arc<Models>, inputs: Vec<Tensor>) -> Execution<String> {
    execute(Arc::clone(graph), Arc::clone(models), request(inputs)).await
}

/// Runs a graph with an input `x`, and returns its outputs or its error.
async fn answer(graph: &Arc<Graph>, models: &Arc<Models>, x: i64) -> Result<Vec<(String, i64)>, String> {
    let answer = run(graph, models, vec![int("x", x)]).await.answer;
    let owned = |response: InferenceResponse| {
        values(&response.outputs).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    answer.map(owned).map_err(|error| error.to_string())
}

fn outputs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[tokio::test]
async fn pipeline_chain_renames_tensors_and_keeps_parameters_of_the_request() {
    let graph = graph(include_str!("examples/pipeline-chain.yaml"));
    let models = Models::default()
        .with("scaler", |request| Ok(vec![int("scaled", 10 * value(&request.inputs, "x"))]))
        .with("regressor", |request| Ok(vec![int("price", 1 + value(&request.inputs, "features"))]));
    let models = Arc::new(models);
    let execution = run(&graph, &models, vec![int("x", 4)]).await;
    let response = execution.answer.unwrap();
    assert_eq!(values(&response.outputs), [("price", 41)]);
    assert_eq!(response.id, "id-1");
    assert_eq!(response.parameters.others.keys().collect::<Vec<_>>(), ["regressor"]);
    assert!(execution.background.is_none());
    let second = models.request("regressor");
    assert_eq!(second.id, "id-1");
    assert_eq!(second.parameters.others.keys().collect::<Vec<_>>(), ["request"]);
}

#[tokio::test]
async fn tensors_move_between_steps_without_a_copy() {
    let graph = graph(include_str!("examples/pipeline-chain.yaml"));
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&addresses);
    let address = |tensor: &Tensor| match &tensor.data {
        TensorData::Fixed(bytes) => bytes.as_ptr() as usize,
        _ => 0,
    };
    let models = Models::default()
        .with("scaler", |request| Ok(vec![Tensor { name: "scaled".to_owned(), ..request.inputs[0].clone() }]))
        .with("regressor", move |request| {
            seen.lock().push(address(&request.inputs[0]));
            Ok(request.inputs.clone())
        });
    let input = Tensor::from_elements("x", vec![1000], &[7_i64; 1000]).unwrap();
    let start = address(&input);
    let response = run(&graph, &Arc::new(models), vec![input]).await.answer.unwrap();
    assert_eq!(*addresses.lock(), [start]);
    assert_eq!(address(&response.outputs[0]), start);
}

#[tokio::test(start_paused = true)]
async fn pipeline_join_runs_branches_concurrently() {
    let graph = graph(include_str!("examples/pipeline-join.yaml"));
    let models = Models::default()
        .with("left", |request| Ok(vec![int("y", 2 * value(&request.inputs, "a"))]))
        .with("right", |request| Ok(vec![int("y", 3 * value(&request.inputs, "b")), int("unused", 0)]))
        .with("sum", |request| {
            assert_eq!(request.inputs.len(), 2);
            Ok(vec![int("sum", value(&request.inputs, "first") + value(&request.inputs, "second"))])
        })
        .delayed("left", 100)
        .delayed("right", 100);
    let start = tokio::time::Instant::now();
    let response = run(&graph, &Arc::new(models), vec![int("a", 1), int("b", 1)]).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("sum", 5)]);
    assert_eq!(start.elapsed(), Duration::from_millis(100));
}

#[tokio::test]
async fn pipeline_conditional_runs_the_branch_whose_tensor_is_there() {
    let graph = graph(include_str!("examples/pipeline-conditional.yaml"));
    let models = |output: &'static str| {
        Arc::new(
            Models::default()
                .with("router", move |request| Ok(vec![int(output, value(&request.inputs, "x"))]))
                .with("mul10", |request| Ok(vec![int("OUTPUT", 10 * value(&request.inputs, "INPUT"))]))
                .with("add10", |request| Ok(vec![int("OUTPUT", 10 + value(&request.inputs, "INPUT"))])),
        )
    };
    let first = models("OUTPUT0");
    assert_eq!(answer(&graph, &first, 4).await, Ok(outputs(&[("OUTPUT", 40)])));
    assert_eq!(first.ran(), ["router", "mul10"]);
    assert_eq!(answer(&graph, &models("OUTPUT1"), 4).await, Ok(outputs(&[("OUTPUT", 14)])));
    let error = run(&graph, &models("OUTPUT2"), vec![int("x", 1)]).await.answer.unwrap_err();
    assert_eq!(error.status().unwrap(), 422);
    assert_eq!(
        error.to_string(),
        "the graph has no output for this request: step \"mul10\" did not run, because step \"router\" returned no tensor \
         `OUTPUT0`; step \"add10\" did not run, because step \"router\" returned no tensor `OUTPUT1`"
    );
}

#[tokio::test]
async fn missing_output_tensor_is_named() {
    let graph = pipeline("{name: a}", "steps: [a.outputs.z]");
    let models = Arc::new(Models::default().returning("a", "y", 1));
    let expected =
        "the graph has no output for this request: the output is missing, because step \"a\" returned no tensor `z`";
    assert_eq!(answer(&graph, &models, 1).await, Err(expected.to_owned()));
    let graph = pipeline("{name: a, inputs: [p.inputs.z]}", "steps: [a]");
    let expected =
        "the graph has no output for this request: step \"a\" did not run, because the request has no input `z`";
    assert_eq!(answer(&graph, &models, 1).await, Err(expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn pipeline_triggers_pass_no_data_and_background_steps_do_not_delay() {
    let graph = graph(include_str!("examples/pipeline-triggers.yaml"));
    let required: Vec<_> = graph.steps().iter().map(|step| (step.name.as_str(), step.required)).collect();
    assert_eq!(required, [("outlier", true), ("classifier", true), ("drift", false)]);
    let models = Models::default()
        .returning("outlier", "normal", 1)
        .with("classifier", |request| {
            assert_eq!(values(&request.inputs), [("x", 4)]);
            Ok(vec![int("class", 2)])
        })
        .failing("drift")
        .delayed("drift", 60_000)
        .delayed("classifier", 10);
    let models = Arc::new(models);
    let execution = run(&graph, &models, vec![int("x", 4), int("z", 0)]).await;
    assert_eq!(values(&execution.answer.unwrap().outputs), [("class", 2)]);
    assert_eq!(models.outcomes(), ["outlier succeeded", "classifier succeeded"]);
    execution.background.unwrap().await;
    assert_eq!(values(&models.request("drift").inputs), [("x", 4), ("z", 0)]);
    assert_eq!(models.outcomes()[2..], ["drift failed"]);

    let models = Arc::new(Models::default().returning("outlier", "strange", 1).returning("drift", "d", 1));
    let execution = run(&graph, &models, vec![int("x", 4)]).await;
    assert_eq!(execution.answer.unwrap_err().status().unwrap(), 422);
    execution.background.unwrap().await;
    assert_eq!(models.ran(), ["outlier", "drift"], "a background step runs although there is no output");
}

#[tokio::test(start_paused = true)]
async fn dropped_background_steps_are_cancelled() {
    let graph = graph(include_str!("examples/pipeline-triggers.yaml"));
    let models = Models::default().returning("outlier", "normal", 1).returning("classifier", "class", 1);
    let models = Arc::new(models.returning("drift", "d", 1).delayed("drift", 1000));
    let mut execution = run(&graph, &models, vec![int("x", 4)]).await;
    let background = execution.background.as_mut().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(1), background).await.is_err());
    drop(execution);
    assert_eq!(models.outcomes().last().unwrap(), "drift cancelled");
}

#[tokio::test(start_paused = true)]
async fn any_join_cancels_losers_that_nothing_else_needs() {
    let graph = pipeline(
        "{name: fast}, {name: slow}, {name: shared}, {name: watch, inputs: [shared]}, \
         {name: last, inputs: [fast, slow, shared], inputsJoinType: any}",
        "steps: [last]",
    );
    let models = Models::default()
        .returning("fast", "y", 1)
        .returning("slow", "y", 2)
        .returning("shared", "y", 3)
        .with("last", |request| Ok(request.inputs.clone()))
        .returning("watch", "w", 1)
        .delayed("fast", 10)
        .delayed("slow", 100)
        .delayed("shared", 100)
        .delayed("last", 10);
    let models = Arc::new(models);
    let execution = run(&graph, &models, vec![int("x", 1)]).await;
    assert_eq!(values(&execution.answer.unwrap().outputs), [("y", 1)]);
    assert_eq!(models.outcomes(), ["fast succeeded", "slow cancelled", "last succeeded"]);
    execution.background.unwrap().await;
    assert_eq!(models.outcomes()[3..], ["shared succeeded", "watch succeeded"]);
}

#[tokio::test(start_paused = true)]
async fn outer_join_passes_what_is_there_and_clashes_are_prefixed() {
    let graph = pipeline(
        "{name: a}, {name: b, inputs: [a.outputs.missing]}, {name: c}, \
         {name: d, inputs: [a, b, c.outputs.z], joinType: outer}",
        "steps: [d, c], stepsJoin: outer",
    );
    let models = Models::default()
        .returning("a", "y", 1)
        .with("c", |_| Ok(vec![int("z", 2), int("w", 3)]))
        .with("d", |request| {
            assert_eq!(values(&request.inputs), [("y", 1), ("z", 2)]);
            Ok(vec![int("z", 9), int("v", 8)])
        })
        .delayed("c", 50);
    let answer = answer(&graph, &Arc::new(models), 1).await;
    assert_eq!(answer, Ok(outputs(&[("d.z", 9), ("v", 8), ("c.z", 2), ("w", 3)])));
}

#[tokio::test(start_paused = true)]
async fn failed_step_fails_the_graph_and_cancels_its_siblings() {
    let graph = pipeline("{name: a}, {name: b}, {name: c, inputs: [a, b], joinType: outer}", "steps: [c]");
    let models = Models::default().failing("a").returning("b", "y", 1).delayed("a", 10).delayed("b", 1000);
    let models = Arc::new(models.returning("c", "y", 1));
    let execution = run(&graph, &models, vec![int("x", 1)]).await;
    let error = execution.answer.unwrap_err();
    assert_eq!(error.to_string(), "step \"a\": out of memory");
    assert_eq!(error.status(), None);
    assert!(execution.background.is_none());
    assert_eq!(models.outcomes(), ["a failed the graph", "b cancelled"]);
}

#[tokio::test]
async fn step_that_fails_as_it_starts_keeps_its_siblings_from_starting() {
    let models = || Arc::new(Models::default().failing("a").returning("b", "y", 1).returning("c", "z", 1));
    let (steps, output) = ("{name: a}, {name: b}, {name: c, inputs: [a, b]}", "steps: [c]");
    for (graph, ran) in [
        (pipeline(steps, output), &["a"][..]),
        (root("Ensemble", "{serviceName: a, dependency: Hard}, {serviceName: b}"), &["a"]),
        (root("Ensemble", "{serviceName: a}, {serviceName: b}"), &["a", "b"]),
    ] {
        let models = models();
        let _ = answer(&graph, &models, 1).await;
        assert_eq!(models.ran(), ran);
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_execution_cancels_running_steps() {
    let graph = pipeline("{name: a}, {name: b}", "steps: [a, b]");
    let models = Models::default().returning("a", "y", 1).returning("b", "z", 1).delayed("a", 100).delayed("b", 100);
    let models = Arc::new(models);
    let run = run(&graph, &models, vec![int("x", 1)]);
    assert!(tokio::time::timeout(Duration::from_millis(10), run).await.is_err());
    let mut outcomes = models.outcomes();
    outcomes.sort();
    assert_eq!(outcomes, ["a cancelled", "b cancelled"]);
}

#[tokio::test]
async fn two_producers_of_one_input_are_a_conflict() {
    let graph = pipeline("{name: a}, {name: b}, {name: c, inputs: [a, b]}", "steps: [c]");
    let models = Models::default().returning("a", "y", 1).returning("b", "y", 2).returning("c", "y", 3);
    let error = run(&graph, &Arc::new(models), vec![int("x", 1)]).await.answer.unwrap_err();
    assert_eq!(error.status().unwrap(), 422);
    assert_eq!(error.to_string(), "\"a\" and \"b\" both provide the tensor `y` for step \"c\"; rename one of them");
}

#[tokio::test]
async fn requested_outputs_select_tensors_of_the_answer() {
    let graph = pipeline("{name: a}, {name: b}", "steps: [a, b]");
    let models = Models::default().with("a", |_| Ok(vec![int("y", 1), int("z", 2)])).returning("b", "w", 3);
    let output = |name: &str| RequestedOutput { name: name.to_owned(), parameters: Parameters::new() };
    let request = InferenceRequest { outputs: vec![output("z"), output("w")], ..request(vec![int("x", 1)]) };
    let response = execute(graph, Arc::new(models), request).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("z", 2), ("w", 3)]);
}

#[tokio::test]
async fn sequence_ends_where_a_condition_does_not_match() {
    let graph = graph(include_str!("examples/sequence.yaml"));
    let text = |text: &'static str| {
        move |_: &InferenceRequest| {
            let elements: crate::types::BytesElements = [text].into_iter().collect();
            let data = TensorData::Variable(elements);
            let tensor = int("animal", 0);
            Ok(vec![Tensor { datatype: crate::types::Datatype::Bytes, data, ..tensor }])
        }
    };
    let models = Arc::new(Models::default().with("animals", text("dog")).returning("breeds", "breed", 7));
    let response = run(&graph, &models, vec![int("x", 1)]).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("breed", 7)]);
    assert_eq!(values(&models.request("breeds").inputs), [("x", 1)]);
    let models = Arc::new(Models::default().with("animals", text("cat")).returning("breeds", "breed", 7));
    let response = run(&graph, &models, vec![int("x", 1)]).await.answer.unwrap();
    assert_eq!(response.outputs[0].name, "animal");
    assert_eq!(models.ran(), ["animals"]);
}

/// Returns an `InferenceGraph` whose root has these steps.
fn root(router: &str, steps: &str) -> Arc<Graph> {
    graph(&format!(
        "apiVersion: serving.kserve.io/v1alpha1\nkind: InferenceGraph\nmetadata: {{name: g}}\n\
         spec: {{nodes: {{root: {{routerType: {router}, steps: [{steps}]}}}}}}\n"
    ))
}

#[tokio::test]
async fn sequence_skips_a_soft_failure_unless_its_answer_is_needed() {
    let sequence = |second: &str| root("Sequence", &format!("{{serviceName: a}}, {{serviceName: b{second}}}"));
    let models = || Arc::new(Models::default().failing("a").with("b", |request| Ok(request.inputs.clone())));
    let skipped = models();
    assert_eq!(answer(&sequence(""), &skipped, 5).await, Ok(outputs(&[("x", 5)])));
    assert_eq!(skipped.outcomes(), ["a failed", "b succeeded"]);
    let error = Err("step \"a\": out of memory".to_owned());
    assert_eq!(answer(&sequence(", data: $response"), &models(), 5).await, error);
    assert_eq!(answer(&sequence(", condition: id"), &models(), 5).await, error);
    let hard = root("Sequence", "{serviceName: a, dependency: Hard}, {serviceName: b}");
    assert_eq!(answer(&hard, &models(), 5).await, error);
    let last = root("Sequence", "{serviceName: b}, {serviceName: a}");
    assert_eq!(answer(&last, &models(), 5).await, error, "the failure of the last step is the graph's");
    let required = |graph: &Graph| graph.steps().iter().map(|step| step.required).collect::<Vec<_>>();
    assert_eq!(required(&sequence("")), [false, true]);
    assert_eq!(required(&sequence(", data: $response")), [true, true]);
}

#[tokio::test(start_paused = true)]
async fn sequence_runs_its_steps_one_after_the_other() {
    let graph = root("Sequence", "{serviceName: a}, {serviceName: b}, {serviceName: c}");
    let models = Models::default().returning("a", "y", 1).failing("b").returning("c", "y", 3);
    let models = Arc::new(models.delayed("a", 10).delayed("b", 10).delayed("c", 10));
    let start = tokio::time::Instant::now();
    assert_eq!(answer(&graph, &models, 1).await, Ok(outputs(&[("y", 3)])));
    assert_eq!(start.elapsed(), Duration::from_millis(30));
}

#[tokio::test(start_paused = true)]
async fn ensemble_collects_answers_and_leaves_out_soft_failures() {
    let graph = graph(include_str!("examples/ensemble.yaml"));
    let models = || Models::default().returning("linear", "y", 3).delayed("linear", 10).delayed("boosted", 5);
    let all = Arc::new(models().returning("forest", "y", 1).with("boosted", |_| Ok(vec![int("y", 2), int("z", 4)])));
    assert_eq!(
        answer(&graph, &all, 0).await,
        Ok(outputs(&[("forest.y", 1), ("boosted.y", 2), ("z", 4), ("linear.y", 3)]))
    );
    let soft = Arc::new(models().failing("forest").failing("boosted"));
    assert_eq!(answer(&graph, &soft, 0).await, Ok(outputs(&[("y", 3)])));
    assert_eq!(soft.outcomes(), ["forest failed", "boosted failed", "linear succeeded"]);
    let hard = Arc::new(Models::default().returning("forest", "y", 1).failing("linear").delayed("boosted", 99));
    assert_eq!(answer(&graph, &hard, 0).await, Err("step \"linear\": out of memory".to_owned()));
    assert_eq!(hard.outcomes().last().unwrap(), "boosted cancelled");
}

#[tokio::test(start_paused = true)]
async fn ensemble_whose_steps_all_fail_has_the_error_of_the_first_one() {
    let graph = root("Ensemble", "{serviceName: a}, {serviceName: b}");
    let models = Models::default().failing("a").with("b", |_| Err("other".to_owned())).delayed("a", 10);
    assert_eq!(answer(&graph, &Arc::new(models), 0).await, Err("step \"a\": out of memory".to_owned()));
}

#[tokio::test]
async fn switch_runs_the_first_match_and_lists_its_conditions_without_one() {
    let graph = graph(include_str!("examples/switch.yaml"));
    let models = || Arc::new(Models::default().returning("premium", "y", 1).returning("large", "y", 2));
    assert_eq!(answer(&graph, &models(), 101).await, Ok(outputs(&[("y", 2)])));
    let mut premium = request(vec![int("x", 101)]);
    premium.parameters.others.insert("plan".to_owned(), json!("premium"));
    let ran = models();
    let response = execute(Arc::clone(&graph), Arc::clone(&ran), premium).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("y", 1)]);
    assert_eq!(ran.ran(), ["premium"]);
    let error = run(&graph, &models(), vec![int("x", 100)]).await.answer.unwrap_err();
    assert_eq!(error.status().unwrap(), 422);
    assert_eq!(
        error.to_string(),
        "node \"root\": no condition matches the request, expected one of: [@this].#(parameters.plan==\"premium\"), \
         inputs.#(name==\"x\").data.#(>100)"
    );
}

#[tokio::test]
async fn errors_list_the_first_conditions() {
    let steps: Vec<_> = (0..12).map(|index| format!("{{serviceName: m{index}, condition: c{index}}}")).collect();
    let error = answer(&root("Switch", &steps.join(", ")), &Arc::new(Models::default()), 1).await.unwrap_err();
    assert!(error.ends_with("expected one of: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, and 2 more"), "{error}");
}

#[tokio::test]
async fn conditions_see_parameters_of_requests_that_are_not_text() {
    let graph = graph(include_str!("examples/switch.yaml"));
    let binary: crate::types::BytesElements = [b"\xff"].into_iter().collect();
    let (datatype, data) = (crate::types::Datatype::Bytes, TensorData::Variable(binary));
    let mut request = request(vec![Tensor { datatype, data, ..int("x", 0) }]);
    request.parameters.others.insert("plan".to_owned(), json!("premium"));
    let models = Arc::new(Models::default().returning("premium", "y", 1));
    let response = execute(graph, models, request).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("y", 1)]);
}

#[tokio::test]
async fn prefixed_names_that_clash_with_others_prefix_those_too() {
    let graph = pipeline("{name: a}, {name: b}, {name: c}", "steps: [a, b, c]");
    let models = Models::default().returning("a", "y", 1).returning("b", "y", 2);
    let models = Arc::new(models.with("c", |_| Ok(vec![int("a.y", 3), int("z", 4)])));
    let expected = outputs(&[("a.y", 1), ("b.y", 2), ("c.a.y", 3), ("z", 4)]);
    assert_eq!(answer(&graph, &models, 0).await, Ok(expected));
}

#[tokio::test]
async fn clashing_inputs_and_outputs_of_one_step_are_told_apart() {
    let graph = pipeline("{name: a}", "steps: [a.inputs, a]");
    let models = Arc::new(Models::default().returning("a", "x", 2));
    assert_eq!(answer(&graph, &models, 1).await, Ok(outputs(&[("a.inputs.x", 1), ("a.x", 2)])));
}

#[tokio::test]
async fn splitter_chooses_by_weight() {
    let graph = graph(include_str!("examples/splitter.yaml"));
    for (random, expected) in [(0, "stable"), (89, "stable"), (90, "next"), (99, "next")] {
        let models = Models::default().returning("stable", "y", 1).returning("next", "y", 2).random(random);
        let models = Arc::new(models);
        answer(&graph, &models, 0).await.unwrap();
        assert_eq!(models.ran(), [expected], "{random}");
    }
}

#[tokio::test]
async fn nested_nodes_contain_soft_failures() {
    let graph = graph(include_str!("examples/nested.yaml"));
    let required: Vec<_> = graph.steps().iter().map(|step| (step.name.as_str(), step.required)).collect();
    assert_eq!(
        required,
        [("cleaner", true), ("embed", false), ("rank", false), ("baseline", false), ("audit", false), ("remote", true)]
    );
    assert_eq!(graph.steps()[5].url.as_deref(), Some("http://triton:8000"));
    let models = || {
        Models::default()
            .returning("cleaner", "clean", 1)
            .returning("embed", "vector", 2)
            .with("rank", |request| Ok(vec![int("rank", value(&request.inputs, "vector"))]))
            .returning("baseline", "base", 3)
            .returning("audit", "audit", 4)
            .returning("remote", "remote", 5)
    };
    for failing in ["embed", "rank", "baseline", "audit"] {
        let models = Arc::new(models().failing(failing));
        assert_eq!(answer(&graph, &models, 0).await, Ok(outputs(&[("remote", 5)])), "{failing}");
        assert!(models.outcomes().contains(&format!("{failing} failed")));
    }
    let both = Arc::new(models().failing("embed").failing("baseline"));
    assert_eq!(answer(&graph, &both, 0).await, Ok(outputs(&[("remote", 5)])), "the whole node is Soft and not needed");
    assert!(!both.ran().contains(&"rank".to_owned()));
    let hard = Arc::new(models().failing("remote"));
    assert_eq!(answer(&graph, &hard, 0).await, Err("step \"remote\": out of memory".to_owned()));
}

#[tokio::test]
async fn combiner_gets_the_answers_of_its_children_with_their_names() {
    let graph = graph(include_str!("examples/seldon-combiner.yaml"));
    let models = Models::default().returning("forest", "y", 1).returning("linear", "y", 3).with("average", |request| {
        let sum = value(&request.inputs, "forest.y") + value(&request.inputs, "linear.y");
        Ok(vec![int("y", sum / 2)])
    });
    let models = Arc::new(models);
    let response = run(&graph, &models, vec![int("x", 1)]).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("y", 2)]);
    assert_eq!(response.parameters.others.keys().collect::<Vec<_>>(), ["average"]);
    let parameters = |step| models.request(step).parameters.others.keys().cloned().collect::<Vec<_>>();
    assert_eq!(parameters("forest"), ["request"]);
    assert_eq!(parameters("average"), ["forest", "linear"]);
}

#[tokio::test(start_paused = true)]
async fn router_chooses_children_by_index() {
    let graph = graph(include_str!("examples/seldon-router.yaml"));
    let models = |index: i64, random: u32| {
        let models = Models::default().random(random).returning("bandit", "index", index);
        Arc::new(models.returning("a", "y", 1).returning("b", "y", 2).returning("c", "y", 3).delayed("b", 10))
    };
    assert_eq!(answer(&graph, &models(0, 0), 5).await, Ok(outputs(&[("y", 1)])));
    let second = models(1, 74);
    assert_eq!(answer(&graph, &second, 5).await, Ok(outputs(&[("y", 2)])));
    assert_eq!(values(&second.request("b").inputs), [("x", 5)], "children get the input of the router");
    assert_eq!(answer(&graph, &models(1, 75), 5).await, Ok(outputs(&[("y", 3)])));
    let all = models(-1, 0);
    let execution = run(&graph, &all, vec![int("x", 5)]).await;
    assert_eq!(values(&execution.answer.unwrap().outputs), [("y", 1)]);
    execution.background.unwrap().await;
    assert_eq!(all.outcomes(), ["bandit succeeded", "a succeeded", "b succeeded"]);
    for (index, found) in [(2, "2"), (-2, "-2"), (i64::MAX, "9223372036854775807")] {
        let error = run(&graph, &models(index, 0), vec![]).await.answer.unwrap_err();
        assert_eq!(error.status().unwrap(), 500);
        let expected = "step \"bandit\": expected one integer from -1 to 1, the index of a child, found ";
        assert_eq!(error.to_string(), format!("{expected}{found}"));
    }
}

#[tokio::test]
async fn router_answers_that_are_not_one_integer_are_errors() {
    let graph = graph(include_str!("examples/seldon-router.yaml"));
    let float = Tensor::from_elements("index", vec![1], &[1.0_f32]).unwrap();
    let two = Tensor::from_elements("index", vec![2], &[0_i32, 1]).unwrap();
    let large = Tensor::from_elements("index", vec![1], &[u64::MAX]).unwrap();
    let cases = [
        (vec![], "0 tensors"),
        (vec![int("a", 0), int("b", 1)], "2 tensors"),
        (vec![float], "one element of FP32"),
        (vec![two], "2 elements of INT32"),
        (vec![large], "18446744073709551615"),
    ];
    for (tensors, found) in cases {
        let models = Arc::new(Models::default().with("bandit", move |_| Ok(tensors.clone())));
        let error = answer(&graph, &models, 1).await.unwrap_err();
        assert!(error.ends_with(&format!("found {found}")), "{error}");
    }
    for tensor in [Tensor::from_elements("i", vec![], &[1_u8]), Tensor::from_elements("i", vec![1, 1], &[1_i16])] {
        let tensor = tensor.unwrap();
        let models = Models::default().with("bandit", move |_| Ok(vec![tensor.clone()])).returning("b", "y", 2);
        assert_eq!(answer(&graph, &Arc::new(models), 1).await, Ok(outputs(&[("y", 2)])));
    }
}

#[tokio::test]
async fn output_transformer_is_applied_to_the_answer_of_its_child() {
    let graph = graph(include_str!("examples/seldon-transformers.json"));
    let models = Models::default()
        .with("preprocess", |request| Ok(vec![int("p", value(&request.inputs, "x") + 1)]))
        .with("classifier", |request| Ok(vec![int("c", value(&request.inputs, "p") * 10)]))
        .with("postprocess", |request| Ok(vec![int("o", value(&request.inputs, "c") + 3)]));
    let models = Arc::new(models);
    assert_eq!(answer(&graph, &models, 1).await, Ok(outputs(&[("o", 23)])));
    assert_eq!(models.ran(), ["preprocess", "classifier", "postprocess"]);
}

#[tokio::test(start_paused = true)]
async fn several_children_without_a_combiner_use_the_first_answer() {
    let manifest = "apiVersion: machinelearning.seldon.io/v1\nkind: SeldonDeployment\nmetadata: {name: d}\n\
                    spec: {predictors: [{graph: {name: t, type: TRANSFORMER, children: [{name: a}, {name: b}]}}]}\n";
    let parsed = GraphManifest::parse(manifest.as_bytes(), "d.yaml", &GraphOptions::default()).unwrap();
    assert_eq!(
        parsed.warnings[0].to_string(),
        "d.yaml: spec.predictors[0].graph.children: several children without a `COMBINER`; the answer of the first one is used"
    );
    let graph = Arc::new(parsed.graph);
    let models = Models::default().returning("t", "x", 1).returning("a", "y", 2).failing("b").delayed("a", 50);
    let models = Arc::new(models);
    assert_eq!(answer(&graph, &models, 1).await, Ok(outputs(&[("y", 2)])));
    assert_eq!(models.outcomes(), ["t succeeded", "b failed", "a succeeded"]);
}

#[tokio::test]
async fn tokenizer_tutorial_has_environments_and_passes_parameters_on() {
    let manifest = include_str!("examples/seldon-tokenizer.yaml");
    let manifest = GraphManifest::parse(manifest.as_bytes(), "graph.yaml", &GraphOptions::default()).unwrap();
    assert_eq!(manifest.warnings, []);
    assert_eq!(
        manifest.ignored,
        [
            "spec.protocol",
            "spec.predictors[0].componentSpecs[0].spec.terminationGracePeriodSeconds",
            "spec.predictors[0].componentSpecs[0].spec.containers[0].image",
            "spec.predictors[0].componentSpecs[0].spec.containers[1].image",
            "spec.predictors[0].graph.children[0].modelUri",
        ]
    );
    let environments: Vec<_> = manifest.graph.steps().iter().map(|step| step.environment.clone()).collect();
    let variable = |value: &str| vec![("TOKENIZER_TYPE".to_owned(), value.to_owned())];
    assert_eq!(environments, [variable("ENCODER"), vec![], variable("DECODER")]);
    let graph = Arc::new(manifest.graph);
    let models = Models::default()
        .returning("tokenizer-encoder", "input_ids", 1)
        .with("gpt2", |request| Ok(vec![int("logits", value(&request.inputs, "input_ids"))]))
        .with("tokenizer-decoder", |request| Ok(vec![int("text", value(&request.inputs, "logits"))]));
    let models = Arc::new(models);
    let response = run(&graph, &models, vec![int("sentences", 1)]).await.answer.unwrap();
    assert_eq!(values(&response.outputs), [("text", 1)]);
    let parameters = |step| models.request(step).parameters.others.keys().cloned().collect::<Vec<_>>();
    assert_eq!(parameters("tokenizer-encoder"), ["request"]);
    assert_eq!(parameters("gpt2"), ["tokenizer-encoder"]);
    assert_eq!(response.parameters.others.keys().collect::<Vec<_>>(), ["tokenizer-decoder"]);
}

#[tokio::test(start_paused = true)]
async fn prepare_returns_the_request_of_the_last_step() {
    let chain = graph(include_str!("examples/pipeline-chain.yaml"));
    assert_eq!(chain.last_steps().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["regressor"]);
    let models = Arc::new(Models::default().returning("scaler", "scaled", 7));
    let output = RequestedOutput { name: "y".to_owned(), parameters: Parameters::new() };
    let request = InferenceRequest { outputs: vec![output.clone()], ..request(vec![int("x", 1)]) };
    let Prepared::LastStep(last) = prepare(chain, Arc::clone(&models), request).await else {
        panic!("the last step was not held")
    };
    assert_eq!(last.step().name, "regressor");
    assert_eq!(values(&last.request.inputs), [("features", 7)]);
    assert_eq!(last.request.outputs, [output]);
    assert_eq!(models.ran(), ["scaler"]);
    assert!(last.background.is_none());
}

#[tokio::test(start_paused = true)]
async fn prepare_follows_choices_and_reports_failures() {
    let switch = graph(include_str!("examples/switch.yaml"));
    let models = Arc::new(Models::default());
    let prepared = prepare(Arc::clone(&switch), Arc::clone(&models), request(vec![int("x", 500)])).await;
    let Prepared::LastStep(last) = prepared else { panic!("the last step was not held") };
    assert_eq!(last.step().name, "large");
    let prepared = prepare(switch, Arc::clone(&models), request(vec![int("x", 5)])).await;
    let Prepared::Answered(execution) = prepared else { panic!("no condition matches") };
    assert_eq!(execution.answer.unwrap_err().status().unwrap(), 422);

    let router = graph(include_str!("examples/seldon-router.yaml"));
    let models = Models::default().returning("bandit", "index", -1).failing("b").returning("a", "y", 1);
    let models = Arc::new(models.delayed("b", 5));
    let Prepared::LastStep(last) = prepare(router, Arc::clone(&models), request(vec![])).await else {
        panic!("the last step was not held")
    };
    assert_eq!(last.step().name, "a");
    last.background.unwrap().await;
    assert_eq!(models.outcomes(), ["bandit succeeded", "b failed"], "the other child runs in the background");
}

#[tokio::test]
async fn prepare_runs_graphs_whose_answer_has_several_parts() {
    let graph = pipeline("{name: a}, {name: b}", "steps: [a, b]");
    assert_eq!(graph.last_steps().count(), 0);
    let models = Arc::new(Models::default().returning("a", "y", 1).returning("b", "z", 2));
    let Prepared::Answered(execution) = prepare(graph, models, request(vec![])).await else {
        panic!("a step was held")
    };
    assert_eq!(values(&execution.answer.unwrap().outputs), [("y", 1), ("z", 2)]);
    for (steps, output) in [
        ("{name: a}", "steps: [a.outputs.y]"),
        ("{name: a}", "steps: [a], tensorMap: {a.outputs.y: z}"),
        ("{name: a}, {name: b, inputs: [a]}", "steps: [a]"),
        ("{name: a}", "steps: [a.inputs]"),
    ] {
        assert_eq!(pipeline(steps, output).last_steps().count(), 0, "{steps}");
    }
}

/// Returns an ensemble of `width` steps of the same model.
fn wide(width: usize) -> String {
    let steps: Vec<_> = (0..width).map(|step| json!({"name": format!("s{step}"), "serviceName": "m"})).collect();
    let nodes = json!({"root": {"routerType": "Ensemble", "steps": steps}});
    json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
        "spec": {"nodes": nodes}})
    .to_string()
}

fn switch(condition: &str) -> String {
    let steps = json!([{"serviceName": "a", "condition": condition}]);
    let nodes = json!({"root": {"routerType": "Switch", "steps": steps}});
    json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
        "spec": {"nodes": nodes}})
    .to_string()
}

#[tokio::test]
async fn steps_that_answer_at_once_leave_the_thread_to_others() {
    let models = (0..500).fold(Models::default(), |models, step| models.returning(&format!("s{step}"), "y", step));
    let models = Arc::new(models);
    let graph = graph(&wide(500));
    let running = tokio::spawn(execute(graph, Arc::clone(&models), InferenceRequest::default()));
    // The only thread is free again before all steps have run.
    let mut pauses = 0;
    while !running.is_finished() {
        tokio::task::yield_now().await;
        pauses += 1;
    }
    assert!(pauses > 3, "{pauses}");
    assert_eq!(running.await.unwrap().answer.unwrap().outputs.len(), 500);
}

#[tokio::test]
async fn conditions_are_evaluated_elsewhere_if_their_document_is_long() {
    let cases = [
        ("parameters.kind", 1 << 20, false),
        ("inputs.#(name==x)", 1 << 20, false),
        ("inputs.0.data.0", 100, false),
        ("inputs.0.data.0", 100_000, true),
    ];
    for (condition, elements, elsewhere) in cases {
        let models = Arc::new(Models::default().returning("a", "y", 1));
        let mut parameters = Parameters::new();
        parameters.others.insert("kind".to_owned(), json!("b"));
        let tensor = Tensor::from_elements("x", vec![elements], &vec![1_u8; elements]).unwrap();
        let request = InferenceRequest { inputs: vec![tensor], parameters, ..InferenceRequest::default() };
        let execution = execute(graph(&switch(condition)), Arc::clone(&models), request).await;
        assert_eq!(execution.answer.unwrap().outputs.len(), 1, "{condition}");
        assert_eq!(*models.computations.lock(), usize::from(elsewhere), "{condition}");
    }
    let models = Arc::new(Models::default().returning("a", "y", 1));
    let mut parameters = Parameters::new();
    parameters.others.insert("many".to_owned(), vec![0; 100_000].into());
    let request = InferenceRequest { parameters, ..InferenceRequest::default() };
    let execution = execute(graph(&switch("parameters.kind")), Arc::clone(&models), request).await;
    assert!(matches!(execution.answer.unwrap_err(), GraphError::NoMatch { .. }));
    assert_eq!(*models.computations.lock(), 1);
}

#[tokio::test]
async fn conditions_that_visit_too_much_are_errors() {
    let models = Arc::new(Models::default().returning("a", "y", 1));
    let elements = 1_000_001;
    let tensor = Tensor::from_elements("x", vec![elements], &vec![1_u8; elements]).unwrap();
    let request = InferenceRequest { inputs: vec![tensor], ..InferenceRequest::default() };
    let execution = execute(graph(&switch("inputs.0.data.0")), models, request).await;
    let error = execution.answer.unwrap_err();
    assert_eq!(error.status().unwrap(), 422);
    let expected = "node \"root\": the conditions would visit more than 1000000 elements and members; use a smaller tensor, or a \
                    parameter of the request";
    assert_eq!(error.to_string(), expected);
}
