//! The functions that pickles call, and what their calls become as data.
//!
//! Nothing is ever executed. A call that only builds data (an array, a set) becomes that data; a call of a class or
//! function of a known library becomes a record of the call; every other call is rejected by name.

use std::sync::Arc;

use bytes::Bytes;

use super::PickleError;
use super::dtype::{Dtype, DtypeField, ElementKind, NumpyArray};
use super::graph::{NodeId, PickleNode, PickleObject};
use super::machine::PickleMachine;

/// Libraries whose classes may be constructed with arguments. The reader of the model interprets the arguments.
const LIBRARIES: [&str; 20] = [
    "_loss", // scikit-learn 1.5 pickles `sklearn._loss._loss` under its bare name
    "category_encoders",
    "collections",
    "copyreg",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "imblearn",
    "joblib",
    "lightgbm",
    "numpy",
    "operator",
    "pandas",
    "pathlib",
    "re",
    "scipy",
    "sklearn",
    "uuid",
    "xgboost",
];

/// Builtin types and functions that only create values, and the class of plain namespaces.
const BUILTINS: [&str; 15] = [
    "builtins.bool",
    "builtins.complex",
    "builtins.dict",
    "builtins.float",
    "builtins.getattr",
    "builtins.int",
    "builtins.list",
    "builtins.object",
    "builtins.range",
    "builtins.slice",
    "builtins.str",
    "builtins.tuple",
    "builtins.type",
    "builtins.frozenset",
    "types.SimpleNamespace",
];

/// Returns one name for functions that Python and NumPy renamed over time.
pub(crate) fn canonical(module: &str, name: &str) -> String {
    let (head, tail) = module.split_once('.').map_or((module, None), |(head, tail)| (head, Some(tail)));
    match (head, tail) {
        ("__builtin__", None) => format!("builtins.{name}"),
        ("copy_reg", None) => format!("copyreg.{name}"),
        ("numpy", Some(tail)) if tail.starts_with("_core.") || tail == "_core" => {
            format!("numpy.core{}.{name}", &tail["_core".len()..])
        }
        _ => format!("{module}.{name}"),
    }
}

/// Returns whether a call of a function is kept as a record.
fn is_recorded_call(name: &str) -> bool {
    let library = name.split('.').next().unwrap_or_default();
    LIBRARIES.contains(&library) || BUILTINS.contains(&name)
}

impl PickleMachine<'_> {
    /// Executes `REDUCE`.
    pub(super) fn call(&mut self, function: NodeId, arguments: NodeId) -> Result<NodeId, PickleError> {
        let PickleNode::Global(name) = self.node(function) else {
            return Err(self.malformed("a named function to call"));
        };
        let name = Arc::clone(name);
        let PickleNode::Tuple(arguments) = self.node(arguments) else {
            return Err(self.malformed("a tuple of arguments"));
        };
        let arguments = arguments.to_vec();
        let node = match &*name {
            "numpy.core.multiarray._reconstruct" => PickleNode::Array(Box::new(NumpyArray::empty())),
            "numpy.core.numeric._frombuffer" => self.array_of_buffer(&arguments)?,
            "numpy.core.multiarray.scalar" => return self.scalar(&arguments),
            "numpy.dtype" => self.dtype(&arguments)?,
            "_codecs.encode" => self.encoded(&arguments)?,
            "builtins.bytes" | "builtins.bytearray" => self.bytes(&arguments)?,
            "builtins.set" | "builtins.frozenset" => PickleNode::Set(self.list_argument(&arguments)?),
            "collections.OrderedDict" => PickleNode::Dict(self.pairs(&arguments)?),
            "collections.defaultdict" => PickleNode::Dict(Vec::new()),
            "copyreg._reconstructor" => self.instance_of(&arguments)?,
            "copyreg.__newobj__" => match arguments.split_first() {
                Some((class, rest)) => self.instance(*class, rest.to_vec(), None)?,
                None => return Err(self.malformed("a class")),
            },
            _ if is_recorded_call(&name) => PickleNode::Object(Box::new(PickleObject::new(name, arguments, None))),
            _ => return Err(PickleError::Call { offset: self.offset(), name: name.to_string() }),
        };
        self.add(node)
    }

    /// Creates an instance of a class of any library. This calls nothing.
    pub(super) fn instance(
        &self,
        class: NodeId,
        arguments: Vec<NodeId>,
        keywords: Option<NodeId>,
    ) -> Result<PickleNode, PickleError> {
        match self.node(class) {
            PickleNode::Global(name) => {
                Ok(PickleNode::Object(Box::new(PickleObject::new(Arc::clone(name), arguments, keywords))))
            }
            _ => Err(self.malformed("a class")),
        }
    }

    /// Executes `BUILD`, and returns the object that replaces the target.
    pub(super) fn build(&mut self, target: NodeId, state: NodeId) -> Result<NodeId, PickleError> {
        let built = match self.node(target) {
            PickleNode::Array(_) => PickleNode::Array(Box::new(self.array_of_state(state)?)),
            PickleNode::Dtype(dtype) => PickleNode::Dtype(Arc::new(self.dtype_of_state(dtype, state)?)),
            PickleNode::Object(object) if &*object.class == "joblib.numpy_pickle.NumpyArrayWrapper" => {
                self.set_state(target, state);
                return self.wrapped_array(state);
            }
            PickleNode::Object(_) => {
                self.set_state(target, state);
                return Ok(target);
            }
            // The attributes of an instance of a builtin's subclass. Nothing reads them.
            PickleNode::List(_) | PickleNode::Dict(_) | PickleNode::Set(_) => return Ok(target),
            _ => return Err(self.malformed("an object that can have a state")),
        };
        *self.node_mut(target) = built;
        Ok(target)
    }

    fn set_state(&mut self, target: NodeId, state: NodeId) {
        if let PickleNode::Object(object) = self.node_mut(target) {
            object.state = Some(state);
        }
    }

    fn array_of_state(&self, state: NodeId) -> Result<NumpyArray, PickleError> {
        let wanted = "the state of an array";
        let malformed = || self.malformed(wanted);
        let [_version, shape, dtype, fortran, data] = self.tuple(state).ok_or_else(malformed)?;
        let shape = self.shape(shape).ok_or_else(malformed)?;
        let (PickleNode::Dtype(dtype), Some(fortran)) = (self.node(dtype), self.flag(fortran)) else {
            return Err(malformed());
        };
        let dtype = Arc::clone(dtype);
        match self.node(data) {
            PickleNode::Bytes(bytes) => NumpyArray::from_raw(dtype, shape, fortran, Bytes::clone(bytes)),
            // Written by protocols 0 to 2 of Python 2.
            PickleNode::List(items) => NumpyArray::from_objects(dtype, shape, fortran, items.clone()),
            _ => None,
        }
        .ok_or_else(malformed)
    }

    fn array_of_buffer(&self, arguments: &[NodeId]) -> Result<PickleNode, PickleError> {
        let malformed = || self.malformed("buffer, dtype, shape and order of an array");
        let &[buffer, dtype, shape, order] = arguments else { return Err(malformed()) };
        let (PickleNode::Bytes(bytes), PickleNode::Dtype(dtype)) = (self.node(buffer), self.node(dtype)) else {
            return Err(malformed());
        };
        let shape = self.shape(shape).ok_or_else(malformed)?;
        let fortran = self.text(order) == Some("F");
        let array = NumpyArray::from_raw(Arc::clone(dtype), shape, fortran, Bytes::clone(bytes));
        Ok(PickleNode::Array(Box::new(array.ok_or_else(malformed)?)))
    }

    /// Reads the array that follows one of joblib's array wrappers in the file.
    fn wrapped_array(&mut self, state: NodeId) -> Result<NodeId, PickleError> {
        let wrapper = |name| self.entry(state, name);
        let malformed = || self.malformed("shape, order and dtype of an array");
        let shape = wrapper("shape").and_then(|shape| self.shape(shape)).ok_or_else(malformed)?;
        let fortran = wrapper("order").and_then(|order| self.text(order)) == Some("F");
        let Some(PickleNode::Dtype(dtype)) = wrapper("dtype").map(|dtype| self.node(dtype)) else {
            return Err(malformed());
        };
        let dtype = Arc::clone(dtype);
        if dtype.kind == ElementKind::Object {
            return self.nested();
        }
        let aligned =
            wrapper("numpy_array_alignment_bytes").is_some_and(|bytes| !matches!(self.node(bytes), PickleNode::None));
        let size = super::dtype::count(&shape, &dtype).and_then(|count| count.checked_mul(dtype.size));
        let size = size.ok_or_else(malformed)?;
        if aligned {
            let padding = self.reader().byte("the padding of an array")?;
            self.reader().take(usize::from(padding), "the padding of an array")?;
        }
        let bytes = self.reader().take(size, "an array")?;
        let array = NumpyArray::from_raw(dtype, shape, fortran, bytes);
        let array = array.ok_or_else(|| self.malformed("an array that fits its dtype"))?;
        self.add(PickleNode::Array(Box::new(array)))
    }

    fn dtype(&self, arguments: &[NodeId]) -> Result<PickleNode, PickleError> {
        let wanted = "a known dtype";
        let code = arguments.first().and_then(|&code| self.text(code));
        let dtype = code.and_then(Dtype::parse).ok_or_else(|| self.malformed(wanted))?;
        Ok(PickleNode::Dtype(Arc::new(dtype)))
    }

    /// Adds byte order and fields to a dtype.
    fn dtype_of_state(&self, dtype: &Dtype, state: NodeId) -> Result<Dtype, PickleError> {
        let malformed = || self.malformed("the state of a dtype");
        let PickleNode::Tuple(state) = self.node(state) else { return Err(malformed()) };
        let &[_version, order, _subarray, names, fields, size, ..] = &state[..] else { return Err(malformed()) };
        let mut dtype = dtype.clone();
        dtype.big_endian = self.text(order) == Some(">");
        let PickleNode::Tuple(names) = self.node(names) else { return Ok(dtype) };
        let size = self.integer(size).and_then(|size| usize::try_from(size).ok());
        dtype.size = size.ok_or_else(malformed)?;
        for &name in names {
            let field = self.field(name, fields).ok_or_else(malformed)?;
            dtype.fields.push(field);
        }
        Ok(dtype)
    }

    fn field(&self, name: NodeId, fields: NodeId) -> Option<DtypeField> {
        let PickleNode::Text(name) = self.node(name) else { return None };
        let place = self.entry(fields, name)?;
        let PickleNode::Tuple(place) = self.node(place) else { return None };
        let &[dtype, offset, ..] = &place[..] else { return None };
        let PickleNode::Dtype(dtype) = self.node(dtype) else { return None };
        let offset = usize::try_from(self.integer(offset)?).ok()?;
        Some(DtypeField { name: Arc::clone(name), dtype: Arc::clone(dtype), offset })
    }

    /// Converts a NumPy scalar to a number, text or object.
    fn scalar(&mut self, arguments: &[NodeId]) -> Result<NodeId, PickleError> {
        let malformed = || self.malformed("dtype and value of a scalar");
        let &[dtype, value] = arguments else { return Err(malformed()) };
        let PickleNode::Dtype(dtype) = self.node(dtype) else { return Err(malformed()) };
        let PickleNode::Bytes(bytes) = self.node(value) else {
            return if dtype.kind == ElementKind::Object { Ok(value) } else { Err(malformed()) };
        };
        let dtype = Arc::clone(dtype);
        let array = NumpyArray::from_raw(dtype, Vec::new(), false, Bytes::clone(bytes)).ok_or_else(malformed)?;
        self.add(PickleNode::of_scalar(array))
    }

    /// Decodes bytes of protocol 2: a text in which each character is one byte.
    fn encoded(&self, arguments: &[NodeId]) -> Result<PickleNode, PickleError> {
        let malformed = || self.malformed("text that encodes bytes");
        let &[text, encoding] = arguments else { return Err(malformed()) };
        let latin1 = matches!(self.text(encoding), Some("latin1" | "latin-1" | "iso-8859-1"));
        let text = self.text(text).filter(|_| latin1).ok_or_else(malformed)?;
        let bytes: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character).ok()).collect();
        Ok(PickleNode::Bytes(Box::new(bytes.ok_or_else(malformed)?.into())))
    }

    fn bytes(&self, arguments: &[NodeId]) -> Result<PickleNode, PickleError> {
        match *arguments {
            [] => Ok(PickleNode::Bytes(Box::default())),
            [value] => match self.node(value) {
                PickleNode::Bytes(bytes) => Ok(PickleNode::Bytes(bytes.clone())),
                _ => Err(self.malformed("bytes")),
            },
            _ => self.encoded(arguments),
        }
    }

    /// Returns the elements of the only argument.
    fn list_argument(&self, arguments: &[NodeId]) -> Result<Vec<NodeId>, PickleError> {
        match *arguments {
            [] => Ok(Vec::new()),
            [only] => match self.node(only) {
                PickleNode::List(items) | PickleNode::Set(items) => Ok(items.clone()),
                PickleNode::Tuple(items) => Ok(items.to_vec()),
                _ => Err(self.malformed("a list")),
            },
            _ => Err(self.malformed("one list")),
        }
    }

    fn pairs(&self, arguments: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>, PickleError> {
        let pair = |item: NodeId| match self.node(item) {
            PickleNode::List(items) => <[NodeId; 2]>::try_from(&items[..]).ok(),
            PickleNode::Tuple(items) => <[NodeId; 2]>::try_from(&items[..]).ok(),
            _ => None,
        };
        let pairs = self.list_argument(arguments)?.into_iter().map(|item| pair(item).map(|[key, value]| (key, value)));
        pairs.collect::<Option<_>>().ok_or_else(|| self.malformed("pairs of key and value"))
    }

    /// Creates an instance in the way of protocols 0 and 1.
    fn instance_of(&self, arguments: &[NodeId]) -> Result<PickleNode, PickleError> {
        match *arguments {
            [class, _base, _state] => self.instance(class, Vec::new(), None),
            _ => Err(self.malformed("class, base and state")),
        }
    }

    fn tuple<const N: usize>(&self, id: NodeId) -> Option<[NodeId; N]> {
        match self.node(id) {
            PickleNode::Tuple(items) => items[..].try_into().ok(),
            _ => None,
        }
    }

    fn shape(&self, id: NodeId) -> Option<Vec<usize>> {
        let dimension = |&id: &NodeId| self.integer(id).and_then(|dimension| usize::try_from(dimension).ok());
        match self.node(id) {
            PickleNode::Tuple(items) => items.iter().map(dimension).collect(),
            PickleNode::Int(_) => dimension(&id).map(|dimension| vec![dimension]),
            _ => None,
        }
    }

    fn entry(&self, id: NodeId, key: &str) -> Option<NodeId> {
        match self.node(id) {
            PickleNode::Dict(entries) => {
                entries.iter().rev().find(|&&(name, _)| self.text(name) == Some(key)).map(|&(_, value)| value)
            }
            _ => None,
        }
    }

    fn text(&self, id: NodeId) -> Option<&str> {
        match self.node(id) {
            PickleNode::Text(text) => Some(text),
            _ => None,
        }
    }

    fn integer(&self, id: NodeId) -> Option<i64> {
        match self.node(id) {
            PickleNode::Int(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns a Boolean, which old files write as a number.
    fn flag(&self, id: NodeId) -> Option<bool> {
        match self.node(id) {
            PickleNode::Bool(flag) => Some(*flag),
            _ => self.integer(id).map(|integer| integer != 0),
        }
    }
}
