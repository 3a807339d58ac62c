//! What a pickle holds, as inert data.

use std::sync::Arc;

use bytes::Bytes;

use super::dtype::{Array, Dtype};

/// The place of a node in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(pub(super) u32);

/// One Python object. Objects refer to one another by place, so that they may be shared and may form cycles.
#[derive(Debug)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than 64 bits, whose value nothing here needs.
    LargeInt,
    Float(f64),
    Text(Arc<str>),
    Bytes(Box<Bytes>),
    List(Vec<Id>),
    Tuple(Box<[Id]>),
    Set(Vec<Id>),
    /// Entries in the order in which they were set; of equal keys the last counts.
    Dict(Vec<(Id, Id)>),
    /// A class or function, by its full name.
    Global(Arc<str>),
    Dtype(Arc<Dtype>),
    Array(Box<Array>),
    Object(Box<Object>),
}

/// An instance of a class that is known by name only.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) class: Arc<str>,
    /// What it was constructed with.
    pub(super) arguments: Vec<Id>,
    /// Constructor arguments by name, a dict.
    pub(super) keywords: Option<Id>,
    pub(super) state: Option<Id>,
    /// What was set or appended after construction: a subclass of `dict` or `list`.
    pub(super) entries: Vec<(Id, Id)>,
    pub(super) appended: Vec<Id>,
}

impl Object {
    pub(super) fn new(class: Arc<str>, arguments: Vec<Id>, keywords: Option<Id>) -> Self {
        Self { class, arguments, keywords, state: None, entries: Vec::new(), appended: Vec::new() }
    }
}

/// The objects of one file.
#[derive(Debug)]
pub struct Pickle {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
    pub(super) bytes: usize,
}

impl Pickle {
    /// The object that was pickled.
    pub const fn root(&self) -> Value<'_> {
        Value { pickle: self, id: self.root }
    }

    /// How many objects there are.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many bytes the file had when decompressed.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An object of a pickle. Cheap to copy.
///
/// Objects may contain themselves: whoever descends has to count.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    pickle: &'a Pickle,
    id: Id,
}

impl<'a> Value<'a> {
    fn node(self) -> &'a Node {
        // Ids are made by the machine only, for nodes that are there.
        &self.pickle.nodes[self.id.0 as usize]
    }

    const fn at(self, id: Id) -> Self {
        Self { pickle: self.pickle, id }
    }

    fn all(self, ids: &'a [Id]) -> impl ExactSizeIterator<Item = Self> + use<'a> {
        ids.iter().map(move |&id| self.at(id))
    }

    pub fn is_none(self) -> bool {
        matches!(self.node(), Node::None)
    }

    pub fn as_bool(self) -> Option<bool> {
        match *self.node() {
            Node::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The integer; booleans count, as in Python.
    pub fn as_i64(self) -> Option<i64> {
        match *self.node() {
            Node::Int(value) => Some(value),
            Node::Bool(value) => Some(i64::from(value)),
            _ => None,
        }
    }

    /// The number, from an array of one element too.
    #[expect(clippy::cast_precision_loss, reason = "as Python's float(int)")]
    pub fn as_f64(self) -> Option<f64> {
        match self.node() {
            Node::Float(value) => Some(*value),
            Node::Array(array) if array.len() == 1 => array.numbers()?.to_f64().first().copied(),
            _ => self.as_i64().map(|value| value as f64),
        }
    }

    pub fn as_str(self) -> Option<&'a str> {
        match self.node() {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bytes(self) -> Option<&'a [u8]> {
        match self.node() {
            Node::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn as_array(self) -> Option<&'a Array> {
        match self.node() {
            Node::Array(array) => Some(array),
            _ => None,
        }
    }

    pub fn as_dtype(self) -> Option<&'a Dtype> {
        match self.node() {
            Node::Dtype(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// The elements of a list, tuple, set, or array of objects.
    pub fn items(self) -> Option<Vec<Self>> {
        let ids = match self.node() {
            Node::List(items) | Node::Set(items) => items,
            Node::Tuple(items) => &items[..],
            Node::Array(array) => return array.objects().map(|ids| ids.into_iter().map(|id| self.at(id)).collect()),
            Node::Object(object) if !object.appended.is_empty() => &object.appended,
            _ => return None,
        };
        Some(self.all(ids).collect())
    }

    /// The entries of a dict, in the order in which they were set.
    pub fn entries(self) -> Option<Vec<(Self, Self)>> {
        let entries = match self.node() {
            Node::Dict(entries) => entries,
            Node::Object(object) if !object.entries.is_empty() => &object.entries,
            _ => return None,
        };
        Some(entries.iter().map(|&(key, value)| (self.at(key), self.at(value))).collect())
    }

    /// The value under a key of a dict.
    pub fn get(self, key: &str) -> Option<Self> {
        match self.node() {
            Node::Dict(entries) => {
                let found = entries.iter().rev().find(|&&(name, _)| self.at(name).as_str() == Some(key));
                found.map(|&(_, value)| self.at(value))
            }
            _ => None,
        }
    }

    /// The class of an instance, in full: `sklearn.svm._classes.SVC`.
    pub fn class(self) -> Option<&'a str> {
        match self.node() {
            Node::Object(object) => Some(&object.class),
            _ => None,
        }
    }

    /// The full name, if this is a class or function itself.
    pub fn global(self) -> Option<&'a str> {
        match self.node() {
            Node::Global(name) => Some(name),
            _ => None,
        }
    }

    /// What an instance was constructed with.
    pub fn arguments(self) -> Vec<Self> {
        match self.node() {
            Node::Object(object) => self.all(&object.arguments).collect(),
            _ => Vec::new(),
        }
    }

    /// The state of an instance, of whatever type.
    pub fn state(self) -> Option<Self> {
        match self.node() {
            Node::Object(object) => object.state.map(|id| self.at(id)),
            _ => None,
        }
    }

    /// An attribute of an instance: from its `__dict__`, its slots, or the names it was constructed with.
    pub fn attribute(self, name: &str) -> Option<Self> {
        let Node::Object(object) = self.node() else { return None };
        let state = object.state.map(|id| self.at(id));
        let from_state = state.and_then(|state| match state.node() {
            Node::Tuple(parts) => self.all(parts).find_map(|part| part.get(name)),
            _ => state.get(name),
        });
        from_state.or_else(|| self.at(object.keywords?).get(name))
    }

    /// The attributes of an instance, in the order of the file.
    pub fn attributes(self) -> Vec<(&'a str, Self)> {
        let parts = match self.state().map(|state| (state, state.node())) {
            Some((state, Node::Tuple(parts))) => state.all(parts).collect(),
            Some((state, _)) => vec![state],
            None => Vec::new(),
        };
        let entries = parts.into_iter().filter_map(Self::entries).flatten();
        entries.filter_map(|(name, value)| Some((name.as_str()?, value))).collect()
    }

    /// Names what this is, for messages: the class of an instance, the Python type of everything else.
    pub fn describe(self) -> &'a str {
        match self.node() {
            Node::None => "None",
            Node::Bool(_) => "bool",
            Node::Int(_) | Node::LargeInt => "int",
            Node::Float(_) => "float",
            Node::Text(_) => "str",
            Node::Bytes(_) => "bytes",
            Node::List(_) => "list",
            Node::Tuple(_) => "tuple",
            Node::Set(_) => "set",
            Node::Dict(_) => "dict",
            Node::Global(name) => name,
            Node::Dtype(_) => "numpy.dtype",
            Node::Array(_) => "numpy.ndarray",
            Node::Object(object) => &object.class,
        }
    }
}
