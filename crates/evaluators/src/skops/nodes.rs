//! Makes the graph of a pickle from the nodes of a schema.
//!
//! Nodes are read in the order in which skops reads them: it keeps the first node with an identifier, and ignores the content of
//! later ones. Calls become the records that the reader of pickles makes of the same calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::archive::{Archive, Limits};
use super::schema::SchemaValue;
use super::{NEWEST_PROTOCOL, SkopsError, npy, sparse};
use crate::pickle::{Dtype, ElementKind, NodeId, NumpyArray, Pickle, PickleNode, PickleObject, canonical};

/// What is known of the node with an identifier.
#[derive(Debug, Clone, Copy)]
enum KnownNode {
    /// It is being read.
    Open,
    Read(NodeId),
}

/// A node of the schema.
#[derive(Clone, Copy)]
struct SchemaNode<'s> {
    state: &'s SchemaValue<'s>,
    class: &'s str,
    module: &'s str,
}

impl<'s> SchemaNode<'s> {
    fn of(state: &'s SchemaValue<'s>) -> Result<Self, SkopsError> {
        match (state.text("__class__"), state.text("__module__")) {
            (Some(class), Some(module)) => Ok(Self { state, class, module }),
            _ => Err(SkopsError::Schema { class: "an object".to_owned(), wanted: "`__class__` and `__module__`" }),
        }
    }

    /// Returns the full path of the class, by the name that it has in pickles.
    fn path(self) -> String {
        canonical(self.module, self.class)
    }

    fn missing(self, wanted: &'static str) -> SkopsError {
        SkopsError::Schema { class: self.path(), wanted }
    }

    fn unsupported(self, what: &'static str) -> SkopsError {
        SkopsError::Unsupported { class: self.path(), what }
    }

    fn content(self) -> Result<&'s SchemaValue<'s>, SkopsError> {
        self.state.get("content").ok_or_else(|| self.missing("`content`"))
    }

    /// Returns a member of the content.
    fn part(self, name: &'static str) -> Result<&'s SchemaValue<'s>, SkopsError> {
        self.content()?.get(name).ok_or_else(|| self.missing(name))
    }

    fn file(self) -> Result<&'s str, SkopsError> {
        self.state.text("file").ok_or_else(|| self.missing("`file`"))
    }
}

/// The graph that is made of a schema.
#[derive(Debug)]
pub(super) struct GraphBuilder<'a> {
    archive: &'a Archive,
    limits: Limits,
    protocol: i64,
    nodes: Vec<PickleNode>,
    names: HashMap<String, Arc<str>>,
    known: HashMap<u64, KnownNode>,
    /// The entries that were read, as several nodes may share one.
    files: HashMap<String, Bytes>,
    /// The bytes of the entries that were read.
    bytes: usize,
    /// How many elements may still be copied out of an object that several others refer to.
    copies: usize,
}

impl<'a> GraphBuilder<'a> {
    /// Prepares to read a schema. Fails if a later version of skops wrote it.
    pub(super) fn new(archive: &'a Archive, limits: Limits, schema: &SchemaValue<'_>) -> Result<Self, SkopsError> {
        let protocol = match schema.get("protocol") {
            Some(&SchemaValue::Count(protocol)) => i64::try_from(protocol).unwrap_or(i64::MAX),
            _ => return Err(SkopsError::Schema { class: "the file".to_owned(), wanted: "`protocol`, an integer" }),
        };
        if protocol > NEWEST_PROTOCOL {
            return Err(SkopsError::Protocol { found: protocol.to_string(), newest: NEWEST_PROTOCOL });
        }
        let copies = limits.objects;
        let (nodes, names, known, files) = (Vec::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { archive, limits, protocol, nodes, names, known, files, bytes: 0, copies })
    }

    /// Reads the nodes of a schema of `bytes` bytes.
    pub(super) fn build(mut self, schema: &SchemaValue<'_>, bytes: usize) -> Result<Pickle, SkopsError> {
        let root = self.node(schema)?;
        Ok(Pickle::new(self.nodes, root, self.bytes.saturating_add(bytes)))
    }

    /// Reads a node, unless one with the same identifier was read before. The nesting was limited when the schema was parsed.
    fn node(&mut self, state: &SchemaValue<'_>) -> Result<NodeId, SkopsError> {
        let id = match state.get("__id__") {
            Some(&SchemaValue::Count(id)) if id > 0 => Some(id),
            None | Some(SchemaValue::Null) => None,
            Some(_) => {
                return Err(SkopsError::Schema {
                    class: "an object".to_owned(),
                    wanted: "`__id__`, a positive integer",
                });
            }
        };
        match id.and_then(|id| self.known.get(&id)) {
            Some(KnownNode::Read(node)) => return Ok(*node),
            Some(KnownNode::Open) => {
                return Err(SchemaNode::of(state)?.unsupported("it contains itself"));
            }
            None => {}
        }
        let node = SchemaNode::of(state)?;
        if let Some(id) = id {
            self.known.insert(id, KnownNode::Open);
        }
        let built = self.build_node(node)?;
        if let Some(id) = id {
            self.known.insert(id, KnownNode::Read(built));
        }
        Ok(built)
    }

    fn build_node(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let loader = node.state.text("__loader__").ok_or_else(|| node.missing("`__loader__`"))?;
        match loader {
            "JsonNode" => self.json(node),
            "DictNode" | "DefaultDictNode" | "ListNode" | "SetNode" | "TupleNode" => self.container(node, loader),
            "BytesNode" | "BytearrayNode" => {
                let bytes = self.file(node.file()?)?;
                self.add(PickleNode::Bytes(Box::new(bytes)))
            }
            "SliceNode" => self.slice(node),
            "TypeNode" => self.global(&node.path()),
            "FunctionNode" => self.function(node),
            "MethodNode" => self.method(node),
            "PartialNode" => self.partial(node),
            "OperatorFuncNode" => {
                let attributes = node.state.get("attrs").ok_or_else(|| node.missing("`attrs`"))?;
                let arguments = self.node(attributes)?;
                let arguments = self.tuple(node, arguments)?;
                self.call(&node.path(), arguments, None)
            }
            "ConstructorFromReduceNode" => self.constructed(node),
            "ObjectNode" => {
                let state = match node.state.get("content") {
                    None | Some(SchemaValue::Null) => None,
                    Some(content) => Some(self.node(content)?),
                };
                self.call(&node.path(), Vec::new(), state)
            }
            // Trees, and losses, which earlier versions called by the name of stochastic gradient descent.
            "TreeNode" | "LossNode" | "SGDNode" => {
                let state = self.node(node.content()?)?;
                let arguments = node.state.get("__reduce__").and_then(|reduce| reduce.get("args"));
                let arguments = self.node(arguments.ok_or_else(|| node.missing("`__reduce__`"))?)?;
                let arguments = self.tuple(node, arguments)?;
                self.call(&node.path(), arguments, Some(state))
            }
            "NdArrayNode"
            | "MaskedArrayNode"
            | "DTypeNode"
            | "RandomStateNode"
            | "RandomGeneratorNode"
            | "SparseMatrixNode" => self.of_numpy(node, loader),
            _ => Err(SkopsError::Loader { class: node.path(), loader: loader.to_owned() }),
        }
    }

    fn container(&mut self, node: SchemaNode<'_>, loader: &str) -> Result<NodeId, SkopsError> {
        match loader {
            "DictNode" => return self.dict(node),
            "DefaultDictNode" => {
                let main = self.node(node.part("main")?)?;
                self.node(node.part("default_factory")?)?;
                return Ok(main);
            }
            _ => {}
        }
        let items = self.items(node)?;
        let path = node.path();
        let container = match (loader, path.as_str()) {
            ("ListNode", "builtins.list") => PickleNode::List(items),
            ("SetNode", "builtins.set") => PickleNode::Set(items),
            ("TupleNode", "builtins.tuple") => PickleNode::Tuple(items.into()),
            // A named tuple.
            ("TupleNode", _) => return self.call(&path, items, None),
            // An instance of a subclass.
            _ => {
                let mut object = PickleObject::new(self.name(&path), Vec::new(), None);
                object.appended = items;
                PickleNode::Object(Box::new(object))
            }
        };
        self.add(container)
    }

    fn of_numpy(&mut self, node: SchemaNode<'_>, loader: &str) -> Result<NodeId, SkopsError> {
        match loader {
            "NdArrayNode" => self.array(node),
            "SparseMatrixNode" => self.sparse(node),
            "MaskedArrayNode" => {
                let data = self.node(node.part("data")?)?;
                let mask = self.node(node.part("mask")?)?;
                self.call(&node.path(), vec![data, mask], None)
            }
            "DTypeNode" => {
                let array = self.node(node.content()?)?;
                let PickleNode::Array(array) = self.at(array) else {
                    return Err(node.missing("an array with its dtype"));
                };
                let dtype = Arc::clone(&array.dtype);
                self.add(PickleNode::Dtype(dtype))
            }
            "RandomStateNode" => {
                let state = self.node(node.content()?)?;
                self.call(&node.path(), Vec::new(), Some(state))
            }
            // The state of a generator was plain JSON in the first protocol. No prediction needs it.
            _ if self.protocol == 0 => self.call(&node.path(), Vec::new(), None),
            _ => {
                let mut arguments = vec![self.node(node.part("bit_generator")?)?];
                if self.protocol > 1 {
                    arguments.push(self.node(node.part("seed_seq")?)?);
                }
                self.call(&node.path(), arguments, None)
            }
        }
    }

    fn at(&self, id: NodeId) -> &PickleNode {
        &self.nodes[id.0 as usize]
    }

    fn add(&mut self, node: PickleNode) -> Result<NodeId, SkopsError> {
        let limit = self.limits.objects;
        match u32::try_from(self.nodes.len()) {
            Ok(id) if self.nodes.len() < limit => {
                self.nodes.push(node);
                Ok(NodeId(id))
            }
            _ => Err(SkopsError::TooMany { what: "objects", limit }),
        }
    }

    /// Counts elements that are copied from an object that other objects may share.
    fn copy(&mut self, elements: usize) -> Result<(), SkopsError> {
        let limit = self.limits.objects;
        self.copies = self.copies.checked_sub(elements).ok_or(SkopsError::TooMany { what: "elements", limit })?;
        Ok(())
    }

    /// Returns a class or function. Each name is stored once.
    fn name(&mut self, path: &str) -> Arc<str> {
        if let Some(name) = self.names.get(path) {
            return Arc::clone(name);
        }
        let name: Arc<str> = path.into();
        self.names.insert(path.to_owned(), Arc::clone(&name));
        name
    }

    fn global(&mut self, path: &str) -> Result<NodeId, SkopsError> {
        let name = self.name(path);
        self.add(PickleNode::Global(name))
    }

    /// Adds the record of a call of a class or function.
    fn call(&mut self, path: &str, arguments: Vec<NodeId>, state: Option<NodeId>) -> Result<NodeId, SkopsError> {
        let mut object = PickleObject::new(self.name(path), arguments, None);
        object.state = state;
        self.add(PickleNode::Object(Box::new(object)))
    }

    /// Reads an entry of the archive.
    fn file(&mut self, name: &str) -> Result<Bytes, SkopsError> {
        if let Some(file) = self.files.get(name) {
            return Ok(file.clone());
        }
        let file = self.archive.read(name, &mut self.limits)?;
        self.bytes = self.bytes.saturating_add(file.len());
        self.files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    /// Reads the nodes of a list.
    fn items(&mut self, node: SchemaNode<'_>) -> Result<Vec<NodeId>, SkopsError> {
        let SchemaValue::List(items) = node.content()? else { return Err(node.missing("a list as its content")) };
        items.iter().map(|item| self.node(item)).collect()
    }

    /// Returns the elements of a tuple that was read.
    fn tuple(&mut self, node: SchemaNode<'_>, id: NodeId) -> Result<Vec<NodeId>, SkopsError> {
        let PickleNode::Tuple(items) = self.at(id) else { return Err(node.missing("a tuple of arguments")) };
        let items = items.to_vec();
        self.copy(items.len())?;
        Ok(items)
    }

    /// Reads a text, number, Boolean or `None`.
    fn json(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let text = node.state.text("content").ok_or_else(|| node.missing("a text as its content"))?;
        let value = literal(text).ok_or_else(|| node.missing("a text, number, Boolean or null as its content"))?;
        self.add(value)
    }

    fn dict(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let types = node.state.get("key_types").ok_or_else(|| node.missing("`key_types`"))?;
        let types = self.node(types)?;
        let SchemaValue::Object(members) = node.content()? else {
            return Err(node.missing("an object as its content"));
        };
        let PickleNode::List(types) = self.at(types) else { return Err(node.missing("a list of `key_types`")) };
        let mut names = HashSet::with_capacity(members.len());
        if types.len() != members.len() || !members.iter().all(|(name, _)| names.insert(&**name)) {
            return Err(node.unsupported("its keys are not as many as their types"));
        }
        let types = types.clone();
        self.copy(types.len())?;
        let mut entries = Vec::with_capacity(members.len());
        for ((name, value), kind) in members.iter().zip(types) {
            let key = match self.at(kind) {
                PickleNode::Global(kind) => key(kind, name),
                _ => None,
            };
            let key =
                self.add(key.ok_or_else(|| node.unsupported("it has keys that are neither texts nor numbers"))?)?;
            entries.push((key, self.node(value)?));
        }
        let path = node.path();
        if matches!(path.as_str(), "builtins.dict" | "collections.OrderedDict") {
            return self.add(PickleNode::Dict(entries));
        }
        let mut object = PickleObject::new(self.name(&path), Vec::new(), None);
        object.entries = entries;
        self.add(PickleNode::Object(Box::new(object)))
    }

    fn slice(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let mut arguments = Vec::with_capacity(3);
        for name in ["start", "stop", "step"] {
            let value = match node.part(name)? {
                SchemaValue::Null => PickleNode::None,
                SchemaValue::Count(count) => {
                    PickleNode::Int(i64::try_from(*count).map_err(|_| node.missing("small integers"))?)
                }
                SchemaValue::Negative(count) => PickleNode::Int(*count),
                SchemaValue::Text(text) => PickleNode::Text((**text).into()),
                _ => return Err(node.missing("integers or texts as its bounds")),
            };
            arguments.push(self.add(value)?);
        }
        self.call(&node.path(), arguments, None)
    }

    fn function(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        if self.protocol > 0 {
            return self.global(&node.path());
        }
        let content = node.content()?;
        match (content.text("module_path"), content.text("function")) {
            (Some(module), Some(function)) => self.global(&canonical(module, function)),
            _ => Err(node.missing("`module_path` and `function`")),
        }
    }

    /// Reads a method of an object, which pickles look up with `getattr`.
    fn method(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let object = self.node(node.part("obj")?)?;
        let SchemaValue::Text(name) = node.part("func")? else { return Err(node.missing("the name of a method")) };
        let name = self.add(PickleNode::Text((**name).into()))?;
        self.call("builtins.getattr", vec![object, name], None)
    }

    /// Reads a partial, whose state in pickles is a tuple of the same values.
    fn partial(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let mut parts = Vec::with_capacity(4);
        for name in ["func", "args", "kwds", "namespace"] {
            parts.push(self.node(node.part(name)?)?);
        }
        let function = parts[0];
        let state = self.add(PickleNode::Tuple(parts.into()))?;
        self.call("functools.partial", vec![function], Some(state))
    }

    /// Reads an object that its class makes from arguments.
    fn constructed(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let arguments = self.node(node.content()?)?;
        let arguments = self.tuple(node, arguments)?;
        let path = node.path();
        let (true, [only]) = (matches!(path.as_str(), "builtins.set" | "builtins.frozenset"), &arguments[..]) else {
            return self.call(&path, arguments, None);
        };
        let PickleNode::List(items) = self.at(*only) else { return Err(node.missing("a list of its elements")) };
        let items = items.clone();
        self.copy(items.len())?;
        self.add(PickleNode::Set(items))
    }

    fn array(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        match node.state.text("type") {
            Some("numpy") => {}
            Some("json") => return self.array_of_objects(node),
            _ => return Err(node.missing("`type`, `numpy` or `json`")),
        }
        let name = node.file()?;
        let file = self.file(name)?;
        let array = npy::read(&file).map_err(|wanted| SkopsError::Array { entry: name.to_owned(), wanted })?;
        let path = node.path();
        if path == "numpy.ndarray" {
            return self.add(PickleNode::Array(Box::new(array)));
        }
        // A scalar is stored as an array without dimensions.
        if !array.shape.is_empty() || !is_scalar(&path, &array.dtype) {
            return Err(node.unsupported("it is a subclass of arrays"));
        }
        self.add(PickleNode::of_scalar(array))
    }

    fn array_of_objects(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        let items = self.items(node)?;
        let shape = node.state.get("shape").ok_or_else(|| node.missing("`shape`"))?;
        let shape = self.node(shape)?;
        let shape = self.tuple(node, shape)?;
        let dimension = |&id: &NodeId| match self.at(id) {
            PickleNode::Int(dimension) => usize::try_from(*dimension).ok(),
            _ => None,
        };
        let shape: Option<Vec<usize>> = shape.iter().map(dimension).collect();
        let shape = shape.filter(|shape| !shape.is_empty()).ok_or_else(|| node.missing("a shape of integers"))?;
        let mut objects = items;
        for &dimension in &shape[1..] {
            objects = self.flattened(node, &objects, dimension)?;
        }
        // NumPy would take apart what has a length.
        if shape.len() > 1 && !objects.iter().all(|&object| self.is_single(object)) {
            return Err(node.unsupported("it is an array of several dimensions, of objects that may have a length"));
        }
        let dtype = Dtype::parse("O").map(Arc::new).ok_or_else(|| node.missing("a dtype"))?;
        let array = NumpyArray::from_objects(dtype, shape, false, objects);
        let array = array.ok_or_else(|| node.missing("as many elements as its shape"))?;
        self.add(PickleNode::Array(Box::new(array)))
    }

    /// Joins lists, each of which must have `length` items.
    fn flattened(&mut self, node: SchemaNode<'_>, lists: &[NodeId], length: usize) -> Result<Vec<NodeId>, SkopsError> {
        self.copy(lists.len().saturating_mul(length.max(1)))?;
        let mut flat = Vec::new();
        for &list in lists {
            match self.at(list) {
                PickleNode::List(items) if items.len() == length => flat.extend_from_slice(items),
                _ => return Err(node.missing("lists that fit its shape")),
            }
        }
        Ok(flat)
    }

    /// Returns whether an object is an element of an array for NumPy, not a sequence of elements.
    fn is_single(&self, id: NodeId) -> bool {
        match self.at(id) {
            PickleNode::None
            | PickleNode::Bool(_)
            | PickleNode::Int(_)
            | PickleNode::Float(_)
            | PickleNode::Text(_) => true,
            PickleNode::Object(object) => object.class.starts_with("sklearn.tree._classes."),
            _ => false,
        }
    }

    fn sparse(&mut self, node: SchemaNode<'_>) -> Result<NodeId, SkopsError> {
        if node.state.text("type") != Some("scipy") {
            return Err(node.missing("`type`, `scipy`"));
        }
        let name = node.file()?;
        let file = self.file(name)?;
        let matrix = sparse::read(name, file, &mut self.limits)?;
        self.bytes = self.bytes.saturating_add(matrix.bytes);
        if matrix.class.rsplit('.').next() != Some(node.class) {
            return Err(node.unsupported("its file has a matrix of another class"));
        }
        let mut entries = Vec::with_capacity(matrix.arrays.len() + 1);
        for (name, array) in matrix.arrays {
            let key = self.add(PickleNode::Text(name.into()))?;
            entries.push((key, self.add(PickleNode::Array(Box::new(array)))?));
        }
        let shape = matrix.shape.into_iter().map(|dimension| self.add(PickleNode::Int(dimension)));
        let shape: Vec<NodeId> = shape.collect::<Result<_, _>>()?;
        let key = self.add(PickleNode::Text("_shape".into()))?;
        entries.push((key, self.add(PickleNode::Tuple(shape.into()))?));
        let state = self.add(PickleNode::Dict(entries))?;
        self.call(&matrix.class, Vec::new(), Some(state))
    }
}

/// Returns the value of a JSON text. Python's JSON also has numbers that are not finite.
fn literal(text: &str) -> Option<PickleNode> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    Some(match text {
        "null" => PickleNode::None,
        "true" => PickleNode::Bool(true),
        "false" => PickleNode::Bool(false),
        "NaN" => PickleNode::Float(f64::NAN),
        "Infinity" => PickleNode::Float(f64::INFINITY),
        "-Infinity" => PickleNode::Float(f64::NEG_INFINITY),
        _ if text.starts_with('"') => PickleNode::Text(serde_json::from_str::<String>(text).ok()?.into()),
        _ => {
            let number: serde_json::Number = serde_json::from_str(text).ok()?;
            match number.as_i64() {
                Some(integer) => PickleNode::Int(integer),
                None if text.contains(['.', 'e', 'E']) => PickleNode::Float(number.as_f64()?),
                None => PickleNode::LargeInt,
            }
        }
    })
}

/// Returns a key of a dict, which a schema stores as text, with its type.
fn key(kind: &str, text: &str) -> Option<PickleNode> {
    Some(match kind {
        "builtins.str" | "numpy.str_" => PickleNode::Text(text.into()),
        "builtins.int" | "numpy.int64" | "numpy.int32" | "numpy.int16" | "numpy.int8" | "numpy.uint64"
        | "numpy.uint32" | "numpy.uint16" | "numpy.uint8" => match literal(text)? {
            PickleNode::Int(integer) => PickleNode::Int(integer),
            _ => return None,
        },
        "builtins.float" | "numpy.float64" => match literal(text)? {
            PickleNode::Float(number) => PickleNode::Float(number),
            _ => return None,
        },
        _ => return None,
    })
}

/// Returns whether a class is the one of NumPy's scalars of a type.
fn is_scalar(path: &str, dtype: &Dtype) -> bool {
    match path.strip_prefix("numpy.") {
        Some("bool" | "bool_") => dtype.kind == ElementKind::Bool,
        Some("str_") => dtype.kind == ElementKind::Text,
        Some(name) => name == dtype.name(),
        None => false,
    }
}
