//! The content of a pickle, as inert data. The reader of skops files makes the same graph.

use std::sync::Arc;

use bytes::Bytes;

use super::dtype::{Dtype, ElementKind, NumpyArray};

/// The index of a node in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// One Python object. Objects refer to one another by index, so that they can be shared and form cycles.
#[derive(Debug)]
pub(crate) enum PickleNode {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits. Its value is never needed.
    LargeInt,
    Float(f64),
    Text(Arc<str>),
    Bytes(Box<Bytes>),
    List(Vec<NodeId>),
    Tuple(Box<[NodeId]>),
    Set(Vec<NodeId>),
    /// Entries in the order in which they were set. Of equal keys the last counts.
    Dict(Vec<(NodeId, NodeId)>),
    /// A class or function, by its full path.
    Global(Arc<str>),
    Dtype(Arc<Dtype>),
    Array(Box<NumpyArray>),
    Object(Box<PickleObject>),
}

/// An instance of a class, of which only the name is known.
#[derive(Debug)]
pub(crate) struct PickleObject {
    pub(crate) class: Arc<str>,
    /// The constructor's positional arguments.
    pub(crate) arguments: Vec<NodeId>,
    /// The constructor's keyword arguments, a dict.
    pub(crate) keywords: Option<NodeId>,
    pub(crate) state: Option<NodeId>,
    /// Entries and elements that were set or appended after construction, of a subclass of `dict` or `list`.
    pub(crate) entries: Vec<(NodeId, NodeId)>,
    pub(crate) appended: Vec<NodeId>,
}

impl PickleNode {
    /// Converts an array of one element, without dimensions, to a number or text. What has no such form stays an array.
    pub(crate) fn of_scalar(array: NumpyArray) -> Self {
        let integer = || array.numbers().and_then(|numbers| numbers.to_i64()?.first().copied());
        let scalar = match array.dtype.kind {
            ElementKind::Bool => integer().map(|integer| Self::Bool(integer != 0)),
            ElementKind::Int | ElementKind::Uint => integer().map(Self::Int),
            ElementKind::Float => {
                array.numbers().and_then(|numbers| numbers.to_f64().first().copied()).map(Self::Float)
            }
            ElementKind::Text => {
                array.texts().and_then(|texts| texts.into_iter().next()).map(|text| Self::Text(text.into()))
            }
            _ => None,
        };
        scalar.unwrap_or_else(|| Self::Array(Box::new(array)))
    }
}

impl PickleObject {
    pub(crate) fn new(class: Arc<str>, arguments: Vec<NodeId>, keywords: Option<NodeId>) -> Self {
        Self { class, arguments, keywords, state: None, entries: Vec::new(), appended: Vec::new() }
    }
}

/// The objects of one file.
#[derive(Debug)]
pub struct Pickle {
    nodes: Vec<PickleNode>,
    root: NodeId,
    bytes: usize,
}

impl Pickle {
    /// Creates a graph of which every id is the index of a node. `bytes` is the decompressed size of the file.
    pub(crate) const fn new(nodes: Vec<PickleNode>, root: NodeId, bytes: usize) -> Self {
        Self { nodes, root, bytes }
    }

    /// Returns the object that was pickled.
    pub const fn root(&self) -> PickleValue<'_> {
        PickleValue { pickle: self, id: self.root }
    }

    /// Returns the number of objects.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the decompressed size of the file in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An object of a pickle. It is cheap to copy.
///
/// Objects may contain themselves, so callers that descend must limit the depth.
#[derive(Debug, Clone, Copy)]
pub struct PickleValue<'a> {
    pickle: &'a Pickle,
    id: NodeId,
}

impl<'a> PickleValue<'a> {
    fn node(self) -> &'a PickleNode {
        // Only the readers of files create ids, for nodes that exist.
        &self.pickle.nodes[self.id.0 as usize]
    }

    const fn at(self, id: NodeId) -> Self {
        Self { pickle: self.pickle, id }
    }

    fn all(self, ids: &'a [NodeId]) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        ids.iter().map(move |&id| self.at(id))
    }

    pub fn is_none(self) -> bool {
        matches!(self.node(), PickleNode::None)
    }

    pub fn as_bool(self) -> Option<bool> {
        match *self.node() {
            PickleNode::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the integer. Booleans count as integers, as in Python.
    pub fn as_i64(self) -> Option<i64> {
        match *self.node() {
            PickleNode::Int(value) => Some(value),
            PickleNode::Bool(value) => Some(i64::from(value)),
            _ => None,
        }
    }

    /// Returns the number, which may also be in an array of one element.
    #[expect(clippy::cast_precision_loss, reason = "as Python's float(int)")]
    pub fn as_f64(self) -> Option<f64> {
        match self.node() {
            PickleNode::Float(value) => Some(*value),
            PickleNode::Array(array) if array.len() == 1 => array.numbers()?.to_f64().first().copied(),
            _ => self.as_i64().map(|value| value as f64),
        }
    }

    pub fn as_str(self) -> Option<&'a str> {
        match self.node() {
            PickleNode::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bytes(self) -> Option<&'a [u8]> {
        match self.node() {
            PickleNode::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn as_array(self) -> Option<&'a NumpyArray> {
        match self.node() {
            PickleNode::Array(array) => Some(array),
            _ => None,
        }
    }

    pub fn as_dtype(self) -> Option<&'a Dtype> {
        match self.node() {
            PickleNode::Dtype(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// Returns the elements of a list, tuple, set, or array of objects.
    pub fn items(self) -> Option<Vec<Self>> {
        let ids = match self.node() {
            PickleNode::List(items) | PickleNode::Set(items) => items,
            PickleNode::Tuple(items) => &items[..],
            PickleNode::Array(array) => {
                return array.objects().map(|ids| ids.into_iter().map(|id| self.at(id)).collect());
            }
            PickleNode::Object(object) if !object.appended.is_empty() => &object.appended,
            _ => return None,
        };
        Some(self.all(ids).collect())
    }

    /// Returns the entries of a dict, in the order in which they were set.
    pub fn entries(self) -> Option<Vec<(Self, Self)>> {
        let entries = match self.node() {
            PickleNode::Dict(entries) => entries,
            PickleNode::Object(object) if !object.entries.is_empty() => &object.entries,
            _ => return None,
        };
        Some(entries.iter().map(|&(key, value)| (self.at(key), self.at(value))).collect())
    }

    /// Returns the value of a key of a dict.
    pub fn get(self, key: &str) -> Option<Self> {
        match self.node() {
            PickleNode::Dict(entries) => {
                let found = entries.iter().rev().find(|&&(name, _)| self.at(name).as_str() == Some(key));
                found.map(|&(_, value)| self.at(value))
            }
            _ => None,
        }
    }

    /// Returns the full path of an instance's class: `sklearn.svm._classes.SVC`.
    pub fn class(self) -> Option<&'a str> {
        match self.node() {
            PickleNode::Object(object) => Some(&object.class),
            _ => None,
        }
    }

    /// Returns the full path, if this is a class or function itself.
    pub fn global(self) -> Option<&'a str> {
        match self.node() {
            PickleNode::Global(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the constructor arguments of an instance.
    pub fn arguments(self) -> Vec<Self> {
        match self.node() {
            PickleNode::Object(object) => self.all(&object.arguments).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the state of an instance, of any type.
    pub fn state(self) -> Option<Self> {
        match self.node() {
            PickleNode::Object(object) => object.state.map(|id| self.at(id)),
            _ => None,
        }
    }

    /// Returns an attribute of an instance: from its `__dict__`, its slots, or its constructor's keyword arguments.
    pub fn attribute(self, name: &str) -> Option<Self> {
        let PickleNode::Object(object) = self.node() else { return None };
        let state = object.state.map(|id| self.at(id));
        let from_state = state.and_then(|state| match state.node() {
            PickleNode::Tuple(parts) => self.all(parts).find_map(|part| part.get(name)),
            _ => state.get(name),
        });
        from_state.or_else(|| self.at(object.keywords?).get(name))
    }

    /// Returns the attributes of an instance, in the order of the file.
    pub fn attributes(self) -> Vec<(&'a str, Self)> {
        let parts = match self.state().map(|state| (state, state.node())) {
            Some((state, PickleNode::Tuple(parts))) => state.all(parts).collect(),
            Some((state, _)) => vec![state],
            None => Vec::new(),
        };
        let entries = parts.into_iter().filter_map(Self::entries).flatten();
        entries.filter_map(|(name, value)| Some((name.as_str()?, value))).collect()
    }

    /// Describes the object for messages: the class of an instance, or the Python type of everything else.
    pub fn describe(self) -> &'a str {
        match self.node() {
            PickleNode::None => "None",
            PickleNode::Bool(_) => "bool",
            PickleNode::Int(_) | PickleNode::LargeInt => "int",
            PickleNode::Float(_) => "float",
            PickleNode::Text(_) => "str",
            PickleNode::Bytes(_) => "bytes",
            PickleNode::List(_) => "list",
            PickleNode::Tuple(_) => "tuple",
            PickleNode::Set(_) => "set",
            PickleNode::Dict(_) => "dict",
            PickleNode::Global(name) => name,
            PickleNode::Dtype(_) => "numpy.dtype",
            PickleNode::Array(_) => "numpy.ndarray",
            PickleNode::Object(object) => &object.class,
        }
    }
}
