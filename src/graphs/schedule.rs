//! Decides which steps of a graph run: a state machine without clock and I/O.
//!
//! The caller reports how each node has ended, and gets the nodes to start and to cancel. A node leaves the state `Waiting` once
//! and ends once. Since nodes depend only on earlier nodes, every schedule ends if every started node does.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::graph::{Gate, Graph, INPUT, Join, NodeId, Port, ScopeId, Source};

/// The progress of one request through a graph.
#[derive(Debug)]
pub(super) struct Schedule {
    graph: Arc<Graph>,
    nodes: Vec<NodeProgress>,
    events: VecDeque<ScheduleEvent>,
    /// Nodes to evaluate again because a node that they depend on has changed.
    changed: VecDeque<NodeId>,
    failed: bool,
    settled: bool,
}

/// An instruction to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduleEvent {
    /// Run the node, and report its end.
    Start(NodeId),
    /// Cancel the node, and do not report its end.
    Cancel(NodeId),
}

/// How a node ended.
#[derive(Debug)]
pub(super) enum NodeEnd {
    /// With tensors of these names.
    Tensors(BTreeSet<String>),
    /// With the choice of a branch.
    Chosen(Branch),
    Failed,
}

/// The branches that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Branch {
    One(usize),
    All,
    None,
}

/// The consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureEffect {
    /// The graph fails.
    Graph,
    /// The steps of a scope are cancelled, and their outputs are missing.
    Scope(ScopeId),
    /// The answer does not depend on the step.
    Warning,
}

/// Whether the answer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScheduleStatus {
    Running,
    /// The output node has ended.
    Answered,
    /// The output node does not run.
    NoOutput,
    /// A failure has failed the graph.
    Failed,
}

/// The outputs or the inputs of a node.
type Origin = (NodeId, Port);

#[derive(Debug)]
struct NodeProgress {
    state: NodeState,
    /// The names of the inputs, once they are there.
    inputs: Option<BTreeSet<String>>,
    /// The origin that has won a race of the sources: an `any` or `first` join.
    winner: Option<Origin>,
    /// The origin that has won a race of the triggers.
    trigger_winner: Option<Origin>,
    /// The number of nodes that have not read their sources yet, among which is this node.
    readers: usize,
    /// The number of nodes that have not returned tensors yet, of a node with [`NodeUsage::awaits`](super::graph::NodeUsage::awaits).
    awaits: Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
enum NodeState {
    Waiting,
    Running,
    Ended(BTreeSet<String>),
    Chosen(Branch),
    Skipped(SkipReason),
    Failed,
    Cancelled,
}

/// Why a node does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// The source of this index is missing, or all are.
    Source(usize),
    /// The trigger of this index is missing, or all are.
    Trigger(usize),
    /// Another branch was chosen.
    Gate,
}

/// The state of a source, and of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Pending,
    Present,
    /// The index of the missing source.
    Missing(usize),
}

impl Schedule {
    /// Starts a schedule for a request with inputs of these names.
    pub(super) fn new(graph: Arc<Graph>, inputs: BTreeSet<String>) -> Self {
        let progress = |id| NodeProgress {
            state: NodeState::Waiting,
            inputs: None,
            winner: None,
            trigger_winner: None,
            readers: graph.usage(id).readers,
            awaits: graph.usage(id).awaits,
        };
        let mut nodes: Vec<_> = (0..graph.nodes().len()).map(progress).collect();
        nodes[INPUT].inputs = Some(inputs.clone());
        nodes[INPUT].state = NodeState::Ended(inputs);
        let changed = (INPUT + 1..nodes.len()).filter(|&id| nodes[id].awaits.is_none_or(|count| count == 0)).collect();
        Self { graph, nodes, events: VecDeque::new(), changed, failed: false, settled: false }
    }

    /// Returns the next instruction, or `None` until a node ends. The caller reads the sources of a node that starts before it
    /// asks for another instruction.
    pub(super) fn next(&mut self) -> Option<ScheduleEvent> {
        while !self.failed {
            match self.events.pop_front() {
                Some(ScheduleEvent::Start(node)) => {
                    self.count_reads(node);
                    // It may have been cancelled in the meantime.
                    if self.nodes[node].state == NodeState::Running {
                        return Some(ScheduleEvent::Start(node));
                    }
                }
                Some(event) => return Some(event),
                None => {
                    let node = self.changed.pop_front()?;
                    self.evaluate(node);
                }
            }
        }
        None
    }

    /// Records the names of the inputs of a node that has started, if [`Graph::usage`] says that nodes read them.
    pub(super) fn has_inputs(&mut self, node: NodeId, names: BTreeSet<String>) {
        self.nodes[node].inputs = Some(names);
        self.notify(node);
    }

    /// Records the end of a running node, and returns the consequence if it failed. Ignores nodes that are not running.
    pub(super) fn ended(&mut self, node: NodeId, end: NodeEnd) -> Option<FailureEffect> {
        if self.nodes[node].state != NodeState::Running {
            return None;
        }
        let is_decided = self.settled || self.status() != ScheduleStatus::Running;
        let (state, effect) = match end {
            NodeEnd::Tensors(names) => (NodeState::Ended(names), None),
            NodeEnd::Chosen(branch) => (NodeState::Chosen(branch), None),
            NodeEnd::Failed => {
                let effect = match self.graph.nodes()[node].scope {
                    Some(scope) => FailureEffect::Scope(scope),
                    None if is_decided || self.graph.usage(node).is_background => FailureEffect::Warning,
                    None => FailureEffect::Graph,
                };
                (NodeState::Failed, Some(effect))
            }
        };
        self.nodes[node].state = state;
        match effect {
            Some(FailureEffect::Scope(scope)) => self.cancel_scope(scope),
            Some(FailureEffect::Graph) => self.failed = true,
            Some(FailureEffect::Warning) | None => {}
        }
        self.notify(node);
        effect
    }

    /// Returns whether the answer is known.
    pub(super) fn status(&self) -> ScheduleStatus {
        if self.failed {
            return ScheduleStatus::Failed;
        }
        match &self.nodes[self.graph.output()].state {
            NodeState::Waiting | NodeState::Running => ScheduleStatus::Running,
            NodeState::Ended(_) | NodeState::Chosen(_) => ScheduleStatus::Answered,
            NodeState::Skipped(_) | NodeState::Failed | NodeState::Cancelled => ScheduleStatus::NoOutput,
        }
    }

    /// Turns failures into warnings from now on, because the answer does not depend on the remaining nodes.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// Returns the indexes of the sources whose tensors a node that has started gets, in order.
    pub(super) fn sources(&self, node: NodeId) -> impl Iterator<Item = usize> {
        let winner = self.nodes[node].winner;
        let is_used = move |source: &Source| {
            winner.is_none_or(|winner| (source.node, source.port) == winner) && self.readiness(source) == Some(true)
        };
        let sources = self.graph.nodes()[node].sources.iter().enumerate();
        sources.filter(move |(_, source)| is_used(source)).map(|(index, _)| index)
    }

    /// Returns whether other nodes may still read tensors of this one.
    pub(super) fn is_read(&self, node: NodeId) -> bool {
        self.nodes[node].readers > 0
    }

    /// Returns whether a node has returned tensors.
    pub(super) fn has_ended(&self, node: NodeId) -> bool {
        matches!(self.nodes[node].state, NodeState::Ended(_))
    }

    /// Returns whether a node has failed, or has been cancelled by another failure of its scope.
    pub(super) fn has_failed(&self, node: NodeId) -> bool {
        matches!(self.nodes[node].state, NodeState::Failed | NodeState::Cancelled)
    }

    /// Returns the nodes that do not run, with the reason and the source or trigger to which the reason refers.
    pub(super) fn skipped(&self) -> impl Iterator<Item = (NodeId, SkipReason, Option<&Source>)> {
        self.nodes.iter().enumerate().filter_map(|(id, progress)| {
            let NodeState::Skipped(reason) = progress.state else { return None };
            let node = &self.graph.nodes()[id];
            let source = match reason {
                SkipReason::Source(index) => node.sources.get(index),
                SkipReason::Trigger(index) => node.triggers.get(index),
                SkipReason::Gate => None,
            };
            Some((id, reason, source))
        })
    }

    /// Returns the names of tensors that a node has returned or was given.
    #[cfg(test)]
    pub(super) fn names(&self, node: NodeId, port: Port) -> Vec<String> {
        let names = match (&self.nodes[node].state, port) {
            (NodeState::Ended(names), Port::Outputs) => Some(names),
            (_, Port::Outputs) => None,
            (_, Port::Inputs) => self.nodes[node].inputs.as_ref(),
        };
        names.into_iter().flatten().cloned().collect()
    }

    /// Starts or skips a waiting node if that can be decided.
    fn evaluate(&mut self, id: NodeId) {
        if self.nodes[id].state != NodeState::Waiting {
            return;
        }
        if self.nodes[id].awaits == Some(0) {
            self.nodes[id].state = NodeState::Running;
            self.events.push_back(ScheduleEvent::Start(id));
            return;
        }
        let graph = Arc::clone(&self.graph);
        let node = &graph.nodes()[id];
        let before = (self.nodes[id].winner, self.nodes[id].trigger_winner);
        let (sources, winner) = self.join(node.join, &node.sources, before.0);
        let (triggers, trigger_winner) = self.join(node.triggers_join, &node.triggers, before.1);
        let gate = self.gate(node.gate);
        let is_after = node.after.is_none_or(|after| self.is_over(after));
        (self.nodes[id].winner, self.nodes[id].trigger_winner) = (winner, trigger_winner);
        let reason = match (gate, sources, triggers) {
            (Readiness::Missing(_), _, _) => Some(SkipReason::Gate),
            (_, Readiness::Missing(index), _) => Some(SkipReason::Source(index)),
            (_, _, Readiness::Missing(index)) => Some(SkipReason::Trigger(index)),
            _ => None,
        };
        if let Some(reason) = reason {
            self.nodes[id].state = NodeState::Skipped(reason);
            self.count_reads(id);
            self.release(id);
            self.notify(id);
        } else if is_after && [gate, sources, triggers].iter().all(|readiness| *readiness == Readiness::Present) {
            self.nodes[id].state = NodeState::Running;
            self.events.push_back(ScheduleEvent::Start(id));
            self.release(id);
        } else if before != (winner, trigger_winner) {
            // The losers are cancelled even if the node still waits for something else.
            self.release(id);
        }
    }

    /// Returns the state of a join, and the origin that has won if the join is a race.
    fn join(&self, join: Join, sources: &[Source], winner: Option<Origin>) -> (Readiness, Option<Origin>) {
        if sources.is_empty() || winner.is_some() {
            return (Readiness::Present, winner);
        }
        let states = || sources.iter().map(|source| self.readiness(source));
        let is_pending = || states().any(|state| state.is_none());
        let first_present = match join {
            Join::First => {
                states().position(|state| state != Some(false)).filter(|&index| states().nth(index) == Some(Some(true)))
            }
            _ => states().position(|state| state == Some(true)),
        };
        let state = match join {
            Join::Inner => match states().position(|state| state == Some(false)) {
                Some(index) => Readiness::Missing(index),
                None if is_pending() => Readiness::Pending,
                None => Readiness::Present,
            },
            Join::Any | Join::First if first_present.is_some() => Readiness::Present,
            Join::Any | Join::First | Join::Outer | Join::Gather if is_pending() => Readiness::Pending,
            Join::Gather => Readiness::Present,
            Join::Outer if first_present.is_some() => Readiness::Present,
            Join::Any | Join::First | Join::Outer => Readiness::Missing(0),
        };
        let is_race = matches!(join, Join::Any | Join::First);
        (state, first_present.filter(|_| is_race).map(|index| (sources[index].node, sources[index].port)))
    }

    /// Returns whether the tensors of a source are there, or `None` if that is not known yet.
    fn readiness(&self, source: &Source) -> Option<bool> {
        let progress = &self.nodes[source.node];
        let names = match (source.port, &progress.state) {
            (Port::Outputs, NodeState::Ended(names)) => Some(names),
            (Port::Outputs, _) => None,
            (Port::Inputs, _) => progress.inputs.as_ref(),
        };
        match names {
            Some(names) => Some(source.tensor.as_ref().is_none_or(|tensor| names.contains(tensor))),
            None if self.is_over(source.node) => Some(false),
            None => None,
        }
    }

    fn gate(&self, gate: Option<Gate>) -> Readiness {
        let Some(Gate { control, branch }) = gate else { return Readiness::Present };
        match self.nodes[control].state {
            NodeState::Waiting | NodeState::Running => Readiness::Pending,
            NodeState::Chosen(Branch::All) => Readiness::Present,
            NodeState::Chosen(Branch::One(chosen)) if chosen == branch => Readiness::Present,
            _ => Readiness::Missing(0),
        }
    }

    fn is_over(&self, node: NodeId) -> bool {
        !matches!(self.nodes[node].state, NodeState::Waiting | NodeState::Running)
    }

    /// Queues the consumers of a node for evaluation.
    fn notify(&mut self, node: NodeId) {
        let has_ended = self.has_ended(node);
        for &consumer in self.graph.consumers(node) {
            if has_ended && let Some(count) = &mut self.nodes[consumer].awaits {
                *count -= 1;
                if *count > 0 {
                    continue;
                }
            }
            self.changed.push_back(consumer);
        }
    }

    /// Records that a node has read its sources, or never will.
    fn count_reads(&mut self, node: NodeId) {
        for &read in &self.graph.usage(node).reads {
            self.nodes[read].readers -= 1;
        }
    }

    /// Cancels the dependencies of a node that nothing needs any more.
    fn release(&mut self, node: NodeId) {
        let mut released = vec![node];
        while let Some(node) = released.pop() {
            let graph = Arc::clone(&self.graph);
            for dependency in graph.nodes()[node].dependencies() {
                let is_needed = || {
                    graph.usage(dependency).is_sink
                        || graph.consumers(dependency).iter().any(|&consumer| self.needs(consumer, dependency))
                };
                if !self.is_over(dependency) && !is_needed() {
                    self.cancel(dependency);
                    released.push(dependency);
                }
            }
        }
    }

    /// Returns whether a node still needs one of its dependencies.
    fn needs(&self, consumer: NodeId, dependency: NodeId) -> bool {
        let progress = &self.nodes[consumer];
        let node = &self.graph.nodes()[consumer];
        let reads = |sources: &[Source]| sources.iter().any(|source| source.node == dependency);
        match progress.state {
            // The tensors of the winner of a race are there already.
            NodeState::Waiting => {
                ((progress.winner.is_none() || node.join == Join::First) && reads(&node.sources))
                    || (progress.trigger_winner.is_none() && reads(&node.triggers))
                    || node.gate.is_some_and(|gate| gate.control == dependency)
                    || node.after == Some(dependency)
            }
            NodeState::Running | NodeState::Ended(_) => node.join == Join::First && reads(&node.sources),
            NodeState::Chosen(_) | NodeState::Skipped(_) | NodeState::Failed | NodeState::Cancelled => false,
        }
    }

    fn cancel(&mut self, node: NodeId) {
        match self.nodes[node].state {
            NodeState::Waiting => self.count_reads(node),
            NodeState::Running => self.events.push_back(ScheduleEvent::Cancel(node)),
            _ => return,
        }
        self.nodes[node].state = NodeState::Cancelled;
    }

    /// Cancels the nodes of a scope in which one has failed.
    fn cancel_scope(&mut self, scope: ScopeId) {
        for node in 0..self.nodes.len() {
            if !self.is_over(node) && self.graph.is_in_scope(node, scope) {
                self.cancel(node);
                self.release(node);
                self.notify(node);
            }
        }
    }
}
