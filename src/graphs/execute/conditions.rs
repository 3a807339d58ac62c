//! Conditions of a node: at once if their document is short, and else on the compute pool.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::condition::{Condition, Document, Walk, document_size};
use super::super::graph::{Choice, Graph, NodeAction, NodeId};
use super::super::schedule::{Branch, NodeEnd};
use super::{Bundle, ConditionWork, FoundCondition, GraphError, GraphRun, RunningNode, StepRunner};

/// The longest document, in bytes, whose conditions are evaluated at once: about a tenth of a millisecond of work.
const SHORT_DOCUMENT: usize = 16 * 1024;

/// What the conditions of a node are matched against.
pub(super) struct ConditionDocument {
    pub(super) graph: Arc<Graph>,
    pub(super) node: NodeId,
    pub(super) bundle: Bundle,
}

impl ConditionDocument {
    fn conditions(&self) -> &[Condition] {
        match &self.graph.nodes()[self.node].action {
            NodeAction::Choose(Choice::Switch { conditions, .. }) => conditions,
            NodeAction::Choose(Choice::Match(condition)) => std::slice::from_ref(condition),
            _ => &[],
        }
    }

    /// Estimates the memory of the document in bytes, as far as it is at most `limit`.
    fn size(&self, limit: usize) -> usize {
        let with_data = self.conditions().iter().any(Condition::may_enter_data);
        document_size(&self.bundle.tensors, &self.bundle.parameters, with_data, limit)
    }

    /// Returns the index of the first condition that matches.
    fn find(self, stop: &AtomicBool) -> FoundCondition {
        let node = &self.graph.nodes()[self.node];
        let Bundle { tensors, parameters, .. } = &self.bundle;
        let document = match &node.action {
            NodeAction::Choose(Choice::Match(_)) => {
                let model = node.sources.first().map(|source| source.label.as_str()).unwrap_or_default();
                Document::of_response(model, tensors, parameters)
            }
            _ => Document::of_request(tensors, parameters),
        };
        let walk = Walk::new(stop);
        for (index, condition) in self.conditions().iter().enumerate() {
            if condition.matches(&document, &walk)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

impl<R: StepRunner> GraphRun<R> {
    /// Evaluates conditions: at once if their document is short.
    pub(super) fn evaluate_conditions(&mut self, node: NodeId, document: ConditionDocument) {
        if document.size(SHORT_DOCUMENT) <= SHORT_DOCUMENT {
            let found = document.find(&AtomicBool::new(false));
            return self.conditions_ended(node, Ok(found));
        }
        let priority = self.envelope.priority;
        let work: ConditionWork = Box::new(move |mut reservation, stop| {
            reservation.grow(document.size(usize::MAX))?;
            document.find(stop)
        });
        let found = self.runner.compute(priority, work);
        self.run_node(node, RunningNode::Choice { node, found });
    }

    pub(super) fn conditions_ended(&mut self, node: NodeId, found: Result<FoundCondition, R::Error>) {
        let graph = Arc::clone(&self.graph);
        let name = || match &graph.nodes()[node].action {
            NodeAction::Choose(Choice::Switch { node, .. }) => node.clone(),
            _ => graph.nodes()[node].sources.first().map(|source| source.label.clone()).unwrap_or_default(),
        };
        let branch = match (found, &graph.nodes()[node].action) {
            (Err(error), _) => Err(GraphError::Compute { node: name(), error }),
            (Ok(Err(failure)), _) => Err(GraphError::Conditions { node: name(), failure }),
            (Ok(Ok(Some(index))), _) => Ok(Branch::One(index)),
            (Ok(Ok(None)), NodeAction::Choose(Choice::Switch { conditions, .. })) => {
                let conditions = conditions.iter().map(ToString::to_string).collect();
                Err(GraphError::NoMatch { node: name(), conditions })
            }
            (Ok(Ok(None)), _) => Ok(Branch::None),
        };
        match branch {
            Ok(branch) => {
                self.schedule.ended(node, NodeEnd::Chosen(branch));
            }
            Err(error) => self.fail(node, Duration::ZERO, error),
        }
    }
}
