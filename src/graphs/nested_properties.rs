//! Compares executions of random nested `InferenceGraph`s with a naive evaluation of their definition.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;

use super::{
    BoxFuture, ConditionWork, FoundCondition, GraphManifest, GraphOptions, Step, StepOutcome, StepRunner, execute,
};
use crate::types::{ByteReservation, InferenceRequest, InferenceResponse, Priority, Tensor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestRouter {
    Sequence,
    Switch,
    Ensemble,
    Splitter,
}

#[derive(Debug, Clone)]
struct TestNode {
    router: TestRouter,
    steps: Vec<TestStep>,
}

#[derive(Debug, Clone)]
struct TestStep {
    target: TestTarget,
    is_hard: bool,
    reads_response: bool,
    /// Whether the condition matches.
    condition: Option<bool>,
}

#[derive(Debug, Clone)]
enum TestTarget {
    Model { id: u16, fails: bool },
    Node(TestNode),
}

type Values = Vec<(String, i64)>;

fn target() -> impl Strategy<Value = TestTarget> {
    let model = (any::<u16>(), prop::bool::weighted(0.3)).prop_map(|(id, fails)| TestTarget::Model { id, fails });
    model.prop_recursive(3, 24, 3, |target| node(target).prop_map(TestTarget::Node))
}

fn node(target: impl Strategy<Value = TestTarget>) -> impl Strategy<Value = TestNode> {
    let routers = [TestRouter::Sequence, TestRouter::Switch, TestRouter::Ensemble, TestRouter::Splitter];
    let condition = prop::option::of(prop::bool::weighted(0.8));
    let step = (target, any::<bool>(), any::<bool>(), condition);
    let step = step.prop_map(|(target, is_hard, reads_response, condition)| TestStep {
        target,
        is_hard,
        reads_response,
        condition,
    });
    (prop::sample::select(routers.to_vec()), prop::collection::vec(step, 1..4))
        .prop_map(|(router, steps)| TestNode { router, steps })
}

impl TestNode {
    /// Writes the node and those that it contains, and returns its name.
    fn write(&self, name: &str, text: &mut String) {
        let mut nested = Vec::new();
        writeln!(text, "    {name}:\n      routerType: {:?}\n      steps:", self.router).unwrap();
        for (index, step) in self.steps.iter().enumerate() {
            write!(text, "        - {{name: l{index}, dependency: {}", if step.is_hard { "Hard" } else { "Soft" })
                .unwrap();
            match &step.target {
                TestTarget::Model { id, .. } => write!(text, ", serviceName: m{id}").unwrap(),
                TestTarget::Node(node) => {
                    let name = format!("{name}-{index}");
                    write!(text, ", nodeName: {name}").unwrap();
                    nested.push((name, node));
                }
            }
            let condition = match (self.router, index, step.condition) {
                (TestRouter::Switch, _, Some(true) | None) => Some("inputs"),
                (TestRouter::Sequence, 1.., Some(true)) => Some("outputs"),
                (TestRouter::Switch, _, Some(false)) | (TestRouter::Sequence, 1.., Some(false)) => Some("nothing"),
                _ => None,
            };
            if let Some(condition) = condition {
                write!(text, ", condition: {condition}").unwrap();
            }
            if self.router == TestRouter::Splitter {
                write!(text, ", weight: {}", self.weight(index)).unwrap();
            }
            writeln!(text, ", data: {}}}", if step.reads_response { "$response" } else { "$request" }).unwrap();
        }
        for (name, node) in nested {
            node.write(&name, text);
        }
    }

    fn weight(&self, index: usize) -> usize {
        let count = self.steps.len();
        if index + 1 == count { 100 - (count - 1) * (100 / count) } else { 100 / count }
    }

    fn evaluate(&self, input: &Values, random: usize) -> Result<Values, ()> {
        match self.router {
            TestRouter::Sequence => {
                let mut answer = Ok(input.clone());
                for (index, step) in self.steps.iter().enumerate() {
                    if index > 0 && step.condition == Some(false) {
                        return answer;
                    }
                    let input = if index > 0 && step.reads_response { answer? } else { input.clone() };
                    answer = step.evaluate(&input, random);
                    let is_needed =
                        self.steps.get(index + 1).is_none_or(|next| next.reads_response || next.condition.is_some());
                    if answer.is_err() && (step.is_hard || is_needed) {
                        return answer;
                    }
                }
                answer
            }
            TestRouter::Switch => {
                let chosen = self.steps.iter().find(|step| step.condition != Some(false));
                chosen.map_or(Err(()), |step| step.evaluate(input, random))
            }
            TestRouter::Splitter => {
                let mut total = 0;
                let chosen = (0..self.steps.len()).find(|&index| {
                    total += self.weight(index);
                    random < total
                });
                self.steps[chosen.unwrap()].evaluate(input, random)
            }
            TestRouter::Ensemble => {
                let answers: Vec<_> = self.steps.iter().map(|step| step.evaluate(input, random)).collect();
                let is_failed = |(step, answer): (&TestStep, &Result<Values, ()>)| step.is_hard && answer.is_err();
                if answers.iter().all(Result::is_err) || self.steps.iter().zip(&answers).any(is_failed) {
                    return Err(());
                }
                let mut collected: Vec<(usize, bool, String, i64)> = Vec::new();
                for (index, answer) in answers.into_iter().enumerate() {
                    collected.extend(answer.into_iter().flatten().map(|(name, value)| (index, false, name, value)));
                }
                loop {
                    let before = collected.clone();
                    for (index, is_prefixed, name, _) in &mut collected {
                        let is_clash = before.iter().any(|other| other.0 != *index && other.2 == *name);
                        if is_clash && !*is_prefixed {
                            (*is_prefixed, *name) = (true, format!("l{index}.{name}"));
                        }
                    }
                    if before == collected {
                        return Ok(collected.into_iter().map(|(_, _, name, value)| (name, value)).collect());
                    }
                }
            }
        }
    }
}

impl TestStep {
    fn evaluate(&self, input: &Values, random: usize) -> Result<Values, ()> {
        match &self.target {
            TestTarget::Model { fails: true, .. } => Err(()),
            TestTarget::Model { id, .. } => Ok(vec![("y".to_owned(), answer(*id, input))]),
            TestTarget::Node(node) => node.evaluate(input, random),
        }
    }

    /// Returns the models that fail.
    fn failing(&self) -> Vec<u16> {
        match &self.target {
            TestTarget::Model { id, fails } => fails.then_some(*id).into_iter().collect(),
            TestTarget::Node(node) => node.steps.iter().flat_map(Self::failing).collect(),
        }
    }

    fn models(&self) -> Vec<u16> {
        match &self.target {
            TestTarget::Model { id, .. } => vec![*id],
            TestTarget::Node(node) => node.steps.iter().flat_map(Self::models).collect(),
        }
    }
}

/// Returns the answer of a model, which depends on all of its inputs.
fn answer(id: u16, inputs: &Values) -> i64 {
    inputs.iter().fold(i64::from(id), |sum, (_, value)| sum.wrapping_mul(31).wrapping_add(*value))
}

struct TestRunner {
    failing: Vec<u16>,
    random: u32,
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
            let id: u16 = step.model.name[1..].parse().unwrap();
            tokio::time::sleep(Duration::from_micros(u64::from(id))).await;
            if runner.failing.contains(&id) {
                return Err("failed".to_owned());
            }
            let tensor = Tensor::from_elements("y", vec![1], &[answer(id, &values(&request.inputs))]).unwrap();
            Ok(InferenceResponse { outputs: vec![tensor], ..InferenceResponse::default() })
        })
    }

    fn observe(&self, _: &Step, _: Duration, _: StepOutcome<'_, String>) {}

    fn random(&self, below: u32) -> u32 {
        assert_eq!(below, 100);
        self.random
    }

    fn compute(
        self: &Arc<Self>,
        _: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, String>> {
        Box::pin(async move { Ok(work(ByteReservation::default(), &AtomicBool::new(false))) })
    }
}

fn values(tensors: &[Tensor]) -> Values {
    tensors.iter().map(|tensor| (tensor.name.clone(), tensor.elements::<i64>().unwrap()[0])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn executions_of_nested_nodes_agree_with_a_naive_evaluation(root in node(target()), random in 0_u32..100) {
        let step = TestStep { target: TestTarget::Node(root.clone()), is_hard: true, reads_response: false, condition: None };
        let models = step.models();
        let unique: std::collections::BTreeSet<_> = models.iter().collect();
        prop_assume!(unique.len() == models.len());
        let mut text = String::from(
            "apiVersion: serving.kserve.io/v1alpha1\nkind: InferenceGraph\nmetadata: {name: g}\nspec:\n  nodes:\n",
        );
        root.write("root", &mut text);
        let graph = GraphManifest::parse(text.as_bytes(), "g.yaml", &GraphOptions::default());
        let graph = Arc::new(graph.unwrap_or_else(|errors| panic!("{errors}\n{text}")).graph);
        let runner = Arc::new(TestRunner { failing: step.failing(), random });
        let input = vec![Tensor::from_elements("x", vec![1], &[7_i64]).unwrap()];
        let expected = root.evaluate(&values(&input), usize::try_from(random).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let request = InferenceRequest { inputs: input, ..InferenceRequest::default() };
        let execution = runtime.block_on(execute(graph, runner, request));
        prop_assert!(execution.background.is_none(), "every step leads to the answer");
        match (execution.answer, expected) {
            (Ok(response), Ok(expected)) => prop_assert_eq!(values(&response.outputs), expected),
            (Err(_), Err(())) => {}
            (answer, expected) => prop_assert!(false, "{:?} instead of {:?} of\n{}", answer, expected, text),
        }
    }
}
