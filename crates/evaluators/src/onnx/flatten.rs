//! The nodes of a graph and of the functions that it calls, in the order in which they are computed.

use std::collections::HashMap;

use super::error::LoadError;
use super::proto::{AttributeProto, FunctionProto, MAX_NODES, ModelProto, NodeProto, Opset};

/// The most functions that call each other.
const MAX_DEPTH: usize = 64;
/// The most bytes of attributes that calls of functions copy.
const MAX_COPIED: usize = 64 << 20;
/// The most values of a model.
const MAX_VALUES: usize = 1_000_000;
/// The oldest and the newest opset of `ai.onnx`.
const TENSOR_OPSETS: std::ops::RangeInclusive<i64> = 7..=26;
/// The oldest and the newest opset of `ai.onnx.ml`.
const TABLE_OPSETS: std::ops::RangeInclusive<i64> = 1..=5;

/// The number of a value: an input, an initializer or the output of a node.
pub(super) type ValueId = usize;

/// A node whose inputs and outputs are numbers.
#[derive(Debug)]
pub(super) struct FlatNode<'a> {
    pub(super) name: String,
    pub(super) operator: &'a str,
    pub(super) domain: &'a str,
    pub(super) opset: i64,
    pub(super) inputs: Vec<Option<ValueId>>,
    pub(super) outputs: Vec<Option<ValueId>>,
    pub(super) attributes: Vec<AttributeProto<'a>>,
}

/// All nodes, in any order.
#[derive(Debug)]
pub(super) struct Flat<'a> {
    pub(super) nodes: Vec<FlatNode<'a>>,
    /// The name of each value in its graph or function.
    pub(super) names: Vec<&'a str>,
    /// The node that computes each value.
    pub(super) producers: Vec<Option<usize>>,
    /// Whether each value is an input or an initializer.
    given: Vec<bool>,
    /// How many more bytes of attributes calls of functions may copy.
    copied: usize,
}

/// The names of a graph, or of one call of a function: `None` for inputs that the call leaves out.
type Scope<'a> = HashMap<&'a str, Option<ValueId>>;

/// The functions of a model, by domain and name.
type Functions<'m, 'a> = HashMap<(&'a str, &'a str), &'m FunctionProto<'a>>;

/// The versions of domains.
#[derive(Debug, Clone, Copy)]
struct Opsets<'m, 'a>(&'m [Opset<'a>]);

impl Opsets<'_, '_> {
    fn version(self, domain: &str) -> Option<i64> {
        self.0.iter().find(|opset| canonical(opset.domain) == domain).map(|opset| opset.version)
    }
}

/// Returns a domain's name without the two names of the default domain.
fn canonical(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Checks the versions of the domains that are evaluated natively.
fn check_opsets(opsets: &[Opset<'_>]) -> Result<(), LoadError> {
    for opset in opsets {
        let (supported, is_supported) = match canonical(opset.domain) {
            "" => ("7 to 26", TENSOR_OPSETS.contains(&opset.version)),
            "ai.onnx.ml" => ("1 to 5", TABLE_OPSETS.contains(&opset.version)),
            // Nodes of other domains are refused where they are used.
            _ => continue,
        };
        if !is_supported {
            return Err(LoadError::Opset { domain: opset.domain.to_owned(), version: opset.version, supported });
        }
    }
    Ok(())
}

impl<'a> Flat<'a> {
    fn value(&mut self, name: &'a str) -> Result<ValueId, LoadError> {
        if self.names.len() >= MAX_VALUES {
            return Err(LoadError::Limit { what: "values", limit: MAX_VALUES });
        }
        self.names.push(name);
        self.producers.push(None);
        self.given.push(false);
        Ok(self.names.len() - 1)
    }

    /// Returns the number of a name, which is `None` if a node leaves it out.
    fn resolve(&mut self, scope: &mut Scope<'a>, name: &'a str) -> Result<Option<ValueId>, LoadError> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(id) = scope.get(name) {
            return Ok(*id);
        }
        let id = self.value(name)?;
        scope.insert(name, Some(id));
        Ok(Some(id))
    }

    /// Returns the value of an input or an initializer.
    fn give(&mut self, scope: &mut Scope<'a>, name: &'a str) -> Result<ValueId, LoadError> {
        let id = self.resolve(scope, name)?.ok_or(LoadError::Empty { what: "name of an input or initializer" })?;
        self.given[id] = true;
        Ok(id)
    }

    fn add(&mut self, node: FlatNode<'a>) -> Result<(), LoadError> {
        if self.nodes.len() >= MAX_NODES {
            return Err(LoadError::Limit { what: "nodes", limit: MAX_NODES });
        }
        for output in node.outputs.iter().flatten() {
            if self.given[*output] || self.producers[*output].is_some() {
                return Err(LoadError::Duplicate { what: "values", name: self.names[*output].to_owned() });
            }
            self.producers[*output] = Some(self.nodes.len());
        }
        self.nodes.push(node);
        Ok(())
    }

    /// Adds the nodes of a graph, or of one call of a function.
    fn add_all(
        &mut self,
        nodes: &[NodeProto<'a>],
        scope: &mut Scope<'a>,
        call: &Call<'_, 'a>,
        functions: &Functions<'_, 'a>,
    ) -> Result<(), LoadError> {
        for node in nodes {
            let domain = canonical(node.domain);
            let inputs = node.inputs.iter().map(|name| self.resolve(scope, name)).collect::<Result<Vec<_>, _>>()?;
            let outputs = node.outputs.iter().map(|name| self.resolve(scope, name)).collect::<Result<Vec<_>, _>>()?;
            let attributes = call.attributes(node);
            if call.depth > 0 {
                // The attributes of a function are there once in the file, and once for each call here.
                let size = attributes.iter().map(AttributeProto::size).fold(0, usize::saturating_add);
                let left = self.copied.checked_sub(size);
                self.copied = left
                    .ok_or(LoadError::Limit { what: "bytes of attributes in calls of functions", limit: MAX_COPIED })?;
            }
            let name = match (call.path, node.name) {
                ("", "") => node.outputs.first().copied().unwrap_or_default().to_owned(),
                ("", name) => name.to_owned(),
                (path, name) => format!("{path}/{name}"),
            };
            if let Some(function) = functions.get(&(domain, node.operator)) {
                let caller = FlatNode { name, operator: "", domain, opset: 0, inputs, outputs, attributes };
                self.expand(function, &caller, call, functions)?;
                continue;
            }
            let missing = || LoadError::NoOpset { domain: domain.to_owned() };
            let opset = call.opsets.version(domain).ok_or_else(missing)?;
            self.add(FlatNode { name, operator: node.operator, domain, opset, inputs, outputs, attributes })?;
        }
        Ok(())
    }

    /// Adds the nodes of a function in place of the node that calls it.
    fn expand(
        &mut self,
        function: &FunctionProto<'a>,
        caller: &FlatNode<'a>,
        call: &Call<'_, 'a>,
        functions: &Functions<'_, 'a>,
    ) -> Result<(), LoadError> {
        if call.depth >= MAX_DEPTH {
            return Err(LoadError::Limit { what: "functions that call each other", limit: MAX_DEPTH });
        }
        check_opsets(&function.opsets)?;
        if caller.inputs.len() > function.inputs.len() || caller.outputs.len() > function.outputs.len() {
            return Err(LoadError::Limit { what: "inputs or outputs of a function", limit: function.inputs.len() });
        }
        let mut scope = Scope::new();
        for (name, id) in function.inputs.iter().zip(caller.inputs.iter().copied().chain(std::iter::repeat(None))) {
            // An input that the call leaves out is left out in the function.
            if let Some(id) = id {
                scope.insert(name, Some(id));
            }
        }
        for (name, id) in function.outputs.iter().zip(&caller.outputs) {
            if let Some(id) = id {
                if scope.contains_key(name) {
                    return Err(LoadError::Duplicate { what: "values", name: (*name).to_owned() });
                }
                scope.insert(name, Some(*id));
            }
        }
        let call = Call {
            path: &caller.name,
            depth: call.depth + 1,
            opsets: Opsets(&function.opsets),
            given: &caller.attributes,
            defaults: &function.defaults,
        };
        for name in &function.inputs {
            scope.entry(name).or_insert(None);
        }
        self.add_all(&function.nodes, &mut scope, &call, functions)
    }

    /// Returns the nodes that values need, each after those that it needs.
    pub(super) fn order(&self, wanted: &[ValueId]) -> Result<Vec<usize>, LoadError> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Entered,
            Done,
        }
        let mut states = vec![State::New; self.nodes.len()];
        let mut order = Vec::new();
        let mut stack: Vec<ValueId> = wanted.iter().rev().copied().collect();
        while let Some(value) = stack.last().copied() {
            let Some(node) = self.producers[value] else {
                if !self.given[value] {
                    return Err(LoadError::Undefined { name: self.names[value].to_owned() });
                }
                stack.pop();
                continue;
            };
            match states[node] {
                State::Done => {
                    stack.pop();
                }
                State::Entered => {
                    let is_open = |id: &&ValueId| self.producers[**id].is_some_and(|of| states[of] == State::Entered);
                    if let Some(open) = self.nodes[node].inputs.iter().flatten().find(is_open) {
                        return Err(LoadError::Cycle { name: self.names[*open].to_owned() });
                    }
                    states[node] = State::Done;
                    order.push(node);
                    stack.pop();
                }
                State::New => {
                    states[node] = State::Entered;
                    stack.extend(self.nodes[node].inputs.iter().flatten().filter(|id| {
                        // What is done need not be looked at again, so the stack stays as long as there are edges.
                        self.producers[**id].is_none_or(|of| states[of] != State::Done)
                    }));
                }
            }
        }
        Ok(order)
    }
}

/// A call of a function, or the graph itself.
#[derive(Debug)]
struct Call<'m, 'a> {
    /// The names of the calling nodes.
    path: &'m str,
    depth: usize,
    opsets: Opsets<'m, 'a>,
    given: &'m [AttributeProto<'a>],
    defaults: &'m [AttributeProto<'a>],
}

impl<'a> Call<'_, 'a> {
    /// Returns the attributes of a node, with those of the call in place of references.
    fn attributes(&self, node: &NodeProto<'a>) -> Vec<AttributeProto<'a>> {
        let resolved = |attribute: &AttributeProto<'a>| match attribute.reference {
            None => Some(attribute.clone()),
            Some(reference) => {
                let mut candidates = self.given.iter().chain(self.defaults);
                let found = candidates.find(|candidate| candidate.name == reference)?;
                Some(AttributeProto { name: attribute.name, value: found.value.clone(), reference: None })
            }
        };
        node.attributes.iter().filter_map(resolved).collect()
    }
}

/// The nodes of a model, with the numbers of its inputs, initializers and outputs.
#[derive(Debug)]
pub(super) struct FlatModel<'a> {
    pub(super) flat: Flat<'a>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) initializers: Vec<ValueId>,
    pub(super) outputs: Vec<ValueId>,
}

/// Numbers the values of a model, and expands the functions that it calls.
pub(super) fn flatten<'a>(model: &ModelProto<'a>) -> Result<FlatModel<'a>, LoadError> {
    let graph = model.graph.as_ref().ok_or(LoadError::NoGraph)?;
    check_opsets(&model.opsets)?;
    let mut flat =
        Flat { nodes: Vec::new(), names: Vec::new(), producers: Vec::new(), given: Vec::new(), copied: MAX_COPIED };
    let mut functions = Functions::new();
    for function in &model.functions {
        // The first of several counts.
        functions.entry((canonical(function.domain), function.name)).or_insert(function);
    }
    let mut scope = Scope::new();
    let mut give = |flat: &mut Flat<'a>, what, names: &mut dyn Iterator<Item = &'a str>| {
        let mut ids = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(LoadError::Duplicate { what, name: name.to_owned() });
            }
            ids.push(flat.give(&mut scope, name)?);
        }
        Ok(ids)
    };
    let inputs = give(&mut flat, "inputs", &mut graph.inputs.iter().map(|input| input.name))?;
    let initializers = give(&mut flat, "initializers", &mut graph.initializers.iter().map(|tensor| tensor.name))?;
    let call = Call { path: "", depth: 0, opsets: Opsets(&model.opsets), given: &[], defaults: &[] };
    flat.add_all(&graph.nodes, &mut scope, &call, &functions)?;
    let mut outputs = Vec::new();
    for output in &graph.outputs {
        let id = flat.resolve(&mut scope, output.name)?.ok_or(LoadError::Empty { what: "name of an output" })?;
        outputs.push(id);
    }
    if outputs.is_empty() {
        return Err(LoadError::Empty { what: "outputs" });
    }
    Ok(FlatModel { flat, inputs, initializers, outputs })
}
