//! Compares schedules of random pipelines with a naive evaluation of their definition.
//!
//! Each step has a duration and returns the same tensors every time. The naive evaluation computes, by recursion over the
//! definition, when each step starts, which tensors it is given, and when nothing needs it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::graph::{Graph, NodeAction, NodeId};
use super::schedule::{FailureEffect, NodeEnd, Schedule, ScheduleEvent, ScheduleStatus};
use super::{
    BoxFuture, ConditionWork, FoundCondition, GraphManifest, GraphOptions, Step, StepOutcome, StepRunner, execute,
};
use crate::types::{ByteReservation, InferenceRequest, InferenceResponse, Priority, Tensor};

/// The tensors that steps return and select.
const TENSORS: [&str; 2] = ["x", "z"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestJoin {
    Inner,
    Outer,
    Any,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TestSource {
    /// The index of a step, or the pipeline.
    step: Option<usize>,
    inputs: bool,
    tensor: Option<usize>,
}

#[derive(Debug, Clone)]
struct TestStep {
    inputs: Vec<TestSource>,
    join: TestJoin,
    triggers: Vec<TestSource>,
    triggers_join: TestJoin,
    /// Which tensors the step returns.
    returns: [bool; 2],
    duration: u64,
    fails: bool,
}

/// A pipeline whose last step is the output.
#[derive(Debug, Clone)]
struct TestPipeline(Vec<TestStep>);

fn join() -> impl Strategy<Value = TestJoin> {
    prop_oneof![Just(TestJoin::Inner), Just(TestJoin::Outer), Just(TestJoin::Any)]
}

fn source(before: usize, inputs_of_steps: bool) -> impl Strategy<Value = TestSource> {
    let step = prop_oneof![1 => Just(None), 6 => prop::option::of(0..before.max(1))];
    (step, prop::bool::weighted(0.2), prop::option::of(0..TENSORS.len())).prop_map(move |(step, inputs, tensor)| {
        let step = step.filter(|_| before > 0);
        TestSource { step, inputs: inputs && inputs_of_steps && step.is_some(), tensor }
    })
}

fn step(index: usize, is_output: bool) -> impl Strategy<Value = TestStep> {
    let inputs = prop::collection::vec(source(index, true), usize::from(is_output)..4);
    let triggers = prop::collection::vec(source(index, true), 0..if is_output { 1 } else { 3 });
    let returns = [prop::bool::weighted(0.7), prop::bool::weighted(0.7)];
    // Durations whose sums differ, so that no two steps end at the same time.
    let duration =
        (0..1_000_000_u64).prop_map(move |duration| if is_output { 0 } else { (duration << 16) | (1 << index) });
    (inputs, join(), triggers, join(), returns, duration, prop::bool::weighted(0.02)).prop_map(
        |(inputs, join, triggers, triggers_join, returns, duration, fails)| {
            let mut unique: Vec<TestSource> = Vec::new();
            for input in inputs {
                let overlaps = |other: &TestSource| {
                    let is_whole = other.tensor.is_none() || input.tensor.is_none();
                    other.origin() == input.origin() && (is_whole || other.tensor == input.tensor)
                };
                if !unique.iter().any(overlaps) {
                    unique.push(input);
                }
            }
            let mut other: Vec<TestSource> = Vec::new();
            for trigger in triggers {
                let is_input = unique.iter().any(|input| input.step.is_some() && input.step == trigger.step);
                if !is_input && !other.contains(&trigger) {
                    other.push(trigger);
                }
            }
            TestStep { inputs: unique, join, triggers: other, triggers_join, returns, duration, fails }
        },
    )
}

fn pipelines() -> impl Strategy<Value = TestPipeline> {
    (1_usize..12)
        .prop_flat_map(|count| (0..=count).map(|index| step(index, index == count)).collect::<Vec<_>>())
        .prop_map(TestPipeline)
}

impl TestStep {
    fn outputs(&self, index: usize) -> TestTensors {
        let names = self.returns.iter().zip(TENSORS).enumerate().filter(|(_, (returns, _))| **returns);
        names.map(|(tensor, (_, name))| (name, i64::try_from(10 * (index + 1) + tensor).unwrap())).collect()
    }
}

impl TestPipeline {
    fn manifest(&self) -> String {
        let join = |join| match join {
            TestJoin::Inner => "inner",
            TestJoin::Outer => "outer",
            TestJoin::Any => "any",
        };
        let source = |source: &TestSource| {
            let origin = source.step.map_or_else(|| "p".to_owned(), |step| format!("s{step}"));
            let port = if source.inputs || source.step.is_none() { "inputs" } else { "outputs" };
            let tensor = source.tensor.map(|tensor| format!(".{}", TENSORS[tensor])).unwrap_or_default();
            format!("{origin}.{port}{tensor}")
        };
        let list = |sources: &[TestSource]| sources.iter().map(source).collect::<Vec<_>>().join(", ");
        let mut text = String::from(
            "apiVersion: mlops.seldon.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  steps:\n",
        );
        let (output, steps) = self.0.split_last().unwrap();
        for (index, step) in steps.iter().enumerate() {
            writeln!(
                text,
                "  - {{name: s{index}, inputs: [{}], inputsJoinType: {}, triggers: [{}], triggersJoinType: {}}}",
                list(&step.inputs),
                join(step.join),
                list(&step.triggers),
                join(step.triggers_join)
            )
            .unwrap();
        }
        writeln!(text, "  output: {{steps: [{}], stepsJoin: {}}}", list(&output.inputs), join(output.join)).unwrap();
        text
    }

    /// Compiles the pipeline, or returns `None` if the names of its tensors make it invalid.
    fn graph(&self) -> Option<Arc<Graph>> {
        match GraphManifest::parse(self.manifest().as_bytes(), "p.yaml", &GraphOptions::default()) {
            Ok(manifest) => Some(Arc::new(manifest.graph)),
            Err(errors) => {
                let is_name = |error: &str| error.contains("both provide") || error.contains("has no tensor");
                assert!(errors.to_string().lines().all(is_name), "{errors}\n{}", self.manifest());
                None
            }
        }
    }
}

/// The expected run of a step, if no step fails and nothing is cancelled.
#[derive(Debug, Clone, Default)]
struct Expected {
    /// When the step starts and ends, if it runs.
    runs: Option<(u64, u64)>,
    /// When it is known whether the step runs.
    decided: u64,
    /// The tensors that the step is given, by the index of their source.
    given: Vec<usize>,
    inputs: TestTensors,
    outputs: TestTensors,
    /// Whether two sources have tensors of one name.
    has_conflict: bool,
    /// When the `any` joins of the inputs and of the triggers are decided.
    races: [Option<u64>; 2],
    /// Whether two sources are there first.
    is_ambiguous: bool,
}

/// Tensors by name. Their values are different for each producer.
type TestTensors = BTreeMap<&'static str, i64>;

/// The outputs or the inputs of a step, or the inputs of the pipeline.
type TestOrigin = (Option<usize>, bool);

impl TestSource {
    fn origin(&self) -> TestOrigin {
        (self.step, self.inputs)
    }
}

/// How a join ends, if nothing is cancelled.
struct Joined {
    time: u64,
    holds: bool,
    winner: Option<TestOrigin>,
    is_ambiguous: bool,
}

/// When a source is known, and whether it is there.
type Known = (u64, bool);

fn known(source: &TestSource, steps: &[Expected], inputs: &TestTensors) -> Known {
    let has = |names: &TestTensors| source.tensor.is_none_or(|tensor| names.contains_key(TENSORS[tensor]));
    let Some(step) = source.step else { return (0, has(inputs)) };
    let step = &steps[step];
    match step.runs {
        None => (step.decided, false),
        Some((start, _)) if source.inputs => (start, has(&step.inputs)),
        Some((_, end)) => (end, has(&step.outputs)),
    }
}

fn joined(join: TestJoin, sources: &[TestSource], known: &[Known]) -> Joined {
    let last = known.iter().map(|(time, _)| *time).max().unwrap_or(0);
    let missing = known.iter().filter(|(_, present)| !present).map(|(time, _)| *time).min();
    let present = known.iter().filter(|(_, present)| *present).map(|(time, _)| *time).min();
    let (time, holds) = match (join, missing, present) {
        _ if sources.is_empty() => (0, true),
        (TestJoin::Inner, Some(missing), _) => (missing, false),
        (TestJoin::Any, _, Some(first)) => (first, true),
        (TestJoin::Inner, None, _) => (last, true),
        (TestJoin::Outer | TestJoin::Any, ..) => (last, present.is_some()),
    };
    let is_race = join == TestJoin::Any && holds && !sources.is_empty();
    let first = sources.iter().zip(known).filter(|(_, state)| is_race && **state == (time, true));
    let first: Vec<_> = first.map(|(source, _)| source.origin()).collect();
    let is_ambiguous = first.iter().any(|origin| *origin != first[0]);
    Joined { time, holds, winner: first.first().copied(), is_ambiguous }
}

fn evaluate(pipeline: &TestPipeline, inputs: &TestTensors) -> Vec<Expected> {
    let mut steps: Vec<Expected> = Vec::new();
    for (index, step) in pipeline.0.iter().enumerate() {
        let implicit = [TestSource { step: None, inputs: false, tensor: None }];
        let sources = if step.inputs.is_empty() { &implicit[..] } else { &step.inputs };
        let states: Vec<_> = sources.iter().map(|source| known(source, &steps, inputs)).collect();
        let triggers: Vec<_> = step.triggers.iter().map(|trigger| known(trigger, &steps, inputs)).collect();
        let inner = joined(step.join, sources, &states);
        let trigger = joined(step.triggers_join, &step.triggers, &triggers);
        let decided = match (inner.holds, trigger.holds) {
            (true, true) => inner.time.max(trigger.time),
            (true, false) => trigger.time,
            (false, true) => inner.time,
            (false, false) => inner.time.min(trigger.time),
        };
        let mut expected = Expected { decided, ..Expected::default() };
        expected.is_ambiguous = inner.is_ambiguous || trigger.is_ambiguous;
        expected.races = [&inner, &trigger].map(|join| join.winner.map(|_| join.time));
        if inner.holds && trigger.holds {
            expected.runs = Some((decided, decided + step.duration));
            for (given, (source, (_, present))) in sources.iter().zip(&states).enumerate() {
                if *present && inner.winner.is_none_or(|winner| winner == source.origin()) {
                    expected.given.push(given);
                    let names = match source.step {
                        None => inputs,
                        Some(step) if source.inputs => &steps[step].inputs,
                        Some(step) => &steps[step].outputs,
                    };
                    for (name, value) in names {
                        if source.tensor.is_none_or(|tensor| TENSORS[tensor] == *name) {
                            expected.has_conflict |= expected.inputs.insert(name, *value).is_some();
                        }
                    }
                }
            }
            expected.outputs = step.outputs(index);
        }
        steps.push(expected);
    }
    steps
}

/// Returns when each step is cancelled, because nothing needs it any more.
fn cancellations(pipeline: &TestPipeline, expected: &[Expected]) -> Vec<u64> {
    let mut cancelled = vec![u64::MAX; expected.len()];
    for index in (0..expected.len()).rev() {
        let reads = |source: &TestSource| source.step == Some(index);
        let is_sink = !pipeline
            .0
            .iter()
            .any(|step| step.inputs.iter().chain(&step.triggers).any(|source| reads(source) && !source.inputs));
        if is_sink {
            continue;
        }
        let mut needed_until = 0;
        for (consumer, step) in pipeline.0.iter().enumerate() {
            let decided = expected[consumer].decided;
            let until = |sources: &[TestSource], race: Option<u64>| match race {
                _ if !sources.iter().any(reads) => 0,
                Some(time) => time.min(decided),
                None => decided,
            };
            let [race, trigger_race] = expected[consumer].races;
            let until = until(&step.inputs, race).max(until(&step.triggers, trigger_race));
            needed_until = needed_until.max(until.min(cancelled[consumer]));
        }
        cancelled[index] = needed_until;
    }
    cancelled
}

/// Runs a schedule with simulated time.
struct Simulation<'a> {
    pipeline: &'a TestPipeline,
    graph: Arc<Graph>,
    schedule: Schedule,
    now: u64,
    running: BTreeMap<(u64, NodeId), usize>,
    started: BTreeMap<usize, (u64, Vec<usize>)>,
    finished: BTreeSet<usize>,
}

impl Simulation<'_> {
    fn index(&self, node: NodeId) -> usize {
        match self.graph.nodes()[node].action {
            NodeAction::Step(step) => self.graph.steps()[step].name[1..].parse().unwrap(),
            _ => self.pipeline.0.len() - 1,
        }
    }

    fn follow(&mut self) {
        while let Some(event) = self.schedule.next() {
            match event {
                ScheduleEvent::Start(node) => {
                    let index = self.index(node);
                    let sources: Vec<_> = self.schedule.sources(node).collect();
                    let earlier = self.started.insert(index, (self.now, sources.clone()));
                    assert_eq!(earlier, None, "step {index} runs twice");
                    if self.graph.usage(node).has_input_readers {
                        let names = self.inputs(node, &sources);
                        self.schedule.has_inputs(node, names);
                    }
                    self.running.insert((self.now + self.pipeline.0[index].duration, node), index);
                }
                ScheduleEvent::Cancel(node) => self.running.retain(|(_, running), _| *running != node),
            }
        }
    }

    /// Returns the names of the tensors of these sources.
    fn inputs(&self, node: NodeId, sources: &[usize]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for &source in sources {
            let source = &self.graph.nodes()[node].sources[source];
            let all = self.schedule.names(source.node, source.port);
            names.extend(all.into_iter().filter(|name| source.tensor.as_ref().is_none_or(|tensor| tensor == name)));
        }
        names
    }

    /// Ends the step that is next. Returns false if none is running.
    fn advance(&mut self) -> Option<FailureEffect> {
        let ((time, node), index) = self.running.pop_first().unwrap();
        self.now = time;
        let step = &self.pipeline.0[index];
        if step.fails {
            return self.schedule.ended(node, NodeEnd::Failed);
        }
        self.finished.insert(index);
        let names = step.outputs(index).into_keys().map(str::to_owned).collect();
        self.schedule.ended(node, NodeEnd::Tensors(names))
    }
}

fn simulate<'a>(pipeline: &'a TestPipeline, graph: &Arc<Graph>, inputs: &TestTensors) -> Simulation<'a> {
    let names = inputs.keys().map(|name| (*name).to_owned()).collect();
    let schedule = Schedule::new(Arc::clone(graph), names);
    Simulation {
        pipeline,
        graph: Arc::clone(graph),
        schedule,
        now: 0,
        running: BTreeMap::new(),
        started: BTreeMap::new(),
        finished: BTreeSet::new(),
    }
}

fn inputs() -> impl Strategy<Value = TestTensors> {
    let names = prop::collection::btree_set(prop::sample::select(&TENSORS[..]), 0..3);
    names.prop_map(|names| names.into_iter().zip(1..).collect())
}

/// Runs steps of a pipeline for their duration, in microseconds.
struct TestRunner {
    pipeline: TestPipeline,
    given: Mutex<BTreeMap<usize, TestTensors>>,
    succeeded: Mutex<BTreeSet<usize>>,
}

impl StepRunner for TestRunner {
    type Error = String;

    fn run(
        self: &Arc<Self>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, String>> {
        let (runner, step) = (Arc::clone(self), step.clone());
        Box::pin(async move {
            let index = index_of(&step);
            let given = tensors_of(&request.inputs).into_iter();
            let given = given.map(|(name, value)| (if name == "x" { "x" } else { "z" }, value)).collect();
            assert_eq!(runner.given.lock().insert(index, given), None, "step {index} runs twice");
            let step = &runner.pipeline.0[index];
            tokio::time::sleep(Duration::from_millis(step.duration)).await;
            Ok(InferenceResponse { outputs: tensors(&step.outputs(index)), ..InferenceResponse::default() })
        })
    }

    fn observe(&self, step: &Step, _: Duration, outcome: StepOutcome<'_, String>) {
        match outcome {
            StepOutcome::Succeeded => assert!(self.succeeded.lock().insert(index_of(step))),
            StepOutcome::Failed { error, .. } => unreachable!("{error}"),
            StepOutcome::Cancelled => {}
        }
    }

    fn random(&self, _: u32) -> u32 {
        0
    }

    fn compute(
        self: &Arc<Self>,
        _: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, String>> {
        Box::pin(async move { Ok(work(ByteReservation::default(), &AtomicBool::new(false))) })
    }
}

fn index_of(step: &Step) -> usize {
    step.name[1..].parse().unwrap()
}

fn tensors_of(tensors: &[Tensor]) -> Vec<(String, i64)> {
    tensors.iter().map(|tensor| (tensor.name.clone(), tensor.elements::<i64>().unwrap()[0])).collect()
}

fn tensors(values: &TestTensors) -> Vec<Tensor> {
    values.iter().map(|(name, value)| Tensor::from_elements(*name, vec![1], &[*value]).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn schedules_agree_with_a_naive_evaluation(pipeline in pipelines(), inputs in inputs()) {
        let mut pipeline = pipeline;
        for step in &mut pipeline.0 {
            step.fails = false;
        }
        let Some(graph) = pipeline.graph() else { return Ok(()) };
        let expected = evaluate(&pipeline, &inputs);
        prop_assume!(!expected.iter().any(|step| step.is_ambiguous));
        let cancelled = cancellations(&pipeline, &expected);
        let mut simulation = simulate(&pipeline, &graph, &inputs);
        simulation.follow();
        while !simulation.running.is_empty() {
            simulation.advance();
            simulation.follow();
        }
        let output = pipeline.0.len() - 1;
        let status = if expected[output].runs.is_some() { ScheduleStatus::Answered } else { ScheduleStatus::NoOutput };
        prop_assert_eq!(simulation.schedule.status(), status);
        for (index, expected) in expected.iter().enumerate() {
            let is_reached = expected.runs.is_some_and(|(start, _)| start < cancelled[index]);
            let is_finished = expected.runs.is_some_and(|(_, end)| end <= cancelled[index]);
            match simulation.started.get(&index) {
                Some((time, sources)) => {
                    prop_assert!(expected.runs.is_some(), "step {} runs", index);
                    prop_assert_eq!((*time, sources), (expected.decided, &expected.given), "step {}", index);
                }
                None => prop_assert!(!is_reached, "step {} does not run", index),
            }
            prop_assert_eq!(simulation.finished.contains(&index), is_finished, "step {}", index);
        }
    }

    #[test]
    fn schedules_with_failures_end(pipeline in pipelines(), inputs in inputs()) {
        let Some(graph) = pipeline.graph() else { return Ok(()) };
        let mut simulation = simulate(&pipeline, &graph, &inputs);
        let mut is_decided = false;
        simulation.follow();
        while !simulation.running.is_empty() && simulation.schedule.status() != ScheduleStatus::Failed {
            let effect = simulation.advance();
            if is_decided {
                prop_assert_ne!(effect, Some(FailureEffect::Graph), "the answer is known");
            }
            is_decided |= simulation.schedule.status() != ScheduleStatus::Running;
            simulation.follow();
        }
        prop_assert_ne!(simulation.schedule.status(), ScheduleStatus::Running);
    }

    #[test]
    fn executions_pass_the_tensors_of_a_naive_evaluation(pipeline in pipelines(), inputs in inputs()) {
        let Some(graph) = pipeline.graph() else { return Ok(()) };
        let expected = evaluate(&pipeline, &inputs);
        let (output, steps) = expected.split_last().unwrap();
        let is_ambiguous = expected.iter().any(|step| step.is_ambiguous);
        prop_assume!(!is_ambiguous && !steps.iter().any(|step| step.has_conflict));
        let cancelled = cancellations(&pipeline, &expected);
        let runner = Arc::new(TestRunner {
            pipeline: pipeline.clone(),
            given: Mutex::default(),
            succeeded: Mutex::default(),
        });
        let request = InferenceRequest { inputs: tensors(&inputs), ..InferenceRequest::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let answer = runtime.block_on(async {
            let execution = execute(graph, Arc::clone(&runner), request).await;
            if let Some(background) = execution.background {
                background.await;
            }
            execution.answer
        });
        for (index, expected) in steps.iter().enumerate() {
            let is_finished = expected.runs.is_some_and(|(_, end)| end <= cancelled[index]);
            prop_assert_eq!(runner.succeeded.lock().contains(&index), is_finished, "step {}", index);
            if let Some(given) = runner.given.lock().get(&index) {
                prop_assert_eq!(given, &expected.inputs, "step {}", index);
            }
        }
        match answer {
            Ok(response) => {
                prop_assert!(output.runs.is_some());
                if !output.has_conflict {
                    let found: BTreeMap<_, _> = tensors_of(&response.outputs).into_iter().collect();
                    let expected = output.inputs.iter().map(|(name, value)| ((*name).to_owned(), *value));
                    prop_assert_eq!(found, expected.collect::<BTreeMap<_, _>>());
                }
            }
            Err(error) => prop_assert!(output.runs.is_none(), "{error}"),
        }
    }
}
