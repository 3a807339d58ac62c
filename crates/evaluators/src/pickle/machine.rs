//! The stack machine that executes pickles.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::PickleError;
use super::calls::canonical;
use super::graph::{NodeId, PickleNode};
use super::reader::Reader;

/// The limit on objects in a file: a gigabyte of them.
const MAX_OBJECTS: usize = 1 << 25;
/// The objects that each byte of a file may become, before it is decompressed, besides [`FREE_OBJECTS`]. Those of models take several
/// bytes, and rarely compress to less than a tenth.
const OBJECTS_PER_BYTE: usize = 16;
/// The objects that every file may have.
const FREE_OBJECTS: usize = 1 << 20;
/// The limit on nested pickles. Joblib writes an array of objects as a nested pickle.
const MAX_NESTING: usize = 8;
/// Globals by name, so that each name is stored once.
type Names = HashMap<String, Arc<str>>;

/// The state that all pickles of one file share.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) reader: Reader,
    pub(super) nodes: Vec<PickleNode>,
    names: Names,
    /// How many elements may still be read a second time. Reading is linear in the size of the file, but a call may
    /// refer to an object that was read before, and copies or searches it.
    revisits: usize,
    /// The limit on objects, including those that nothing refers to, and on the entries of a stack.
    max_objects: usize,
}

impl FileState {
    /// Prepares to read a file that had `compressed` bytes before it was decompressed.
    pub(super) fn new(file: Bytes, compressed: usize) -> Self {
        let revisits = file.len().saturating_mul(16).saturating_add(1 << 20);
        let max_objects = compressed.saturating_mul(OBJECTS_PER_BYTE).saturating_add(FREE_OBJECTS).min(MAX_OBJECTS);
        Self { reader: Reader::new(file), nodes: Vec::new(), names: Names::new(), revisits, max_objects }
    }
}

/// The execution of one pickle.
#[derive(Debug)]
pub(super) struct PickleMachine<'a> {
    shared: &'a mut FileState,
    depth: usize,
    stack: Vec<NodeId>,
    /// The stack position of each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, NodeId>,
    /// Where the current opcode starts.
    offset: usize,
}

impl<'a> PickleMachine<'a> {
    pub(super) fn new(shared: &'a mut FileState, depth: usize) -> Self {
        let offset = shared.reader.position();
        Self { shared, depth, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), offset }
    }

    /// Runs to the end of the pickle and returns the resulting object.
    pub(super) fn run(mut self) -> Result<NodeId, PickleError> {
        loop {
            self.offset = self.shared.reader.position();
            let opcode = self.shared.reader.byte("an opcode")?;
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
        }
    }

    pub(super) fn reader(&mut self) -> &mut Reader {
        &mut self.shared.reader
    }

    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn node(&self, id: NodeId) -> &PickleNode {
        &self.shared.nodes[id.0 as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut PickleNode {
        &mut self.shared.nodes[id.0 as usize]
    }

    pub(super) fn add(&mut self, node: PickleNode) -> Result<NodeId, PickleError> {
        let id = self.shared.nodes.len();
        match u32::try_from(id) {
            Ok(id) if self.shared.nodes.len() < self.shared.max_objects => {
                self.shared.nodes.push(node);
                Ok(NodeId(id))
            }
            _ => Err(self.too_many()),
        }
    }

    const fn too_many(&self) -> PickleError {
        PickleError::TooMany { offset: self.offset, what: "objects", limit: self.shared.max_objects }
    }

    /// Checks the memory of what is not an object, before another entry of it is made.
    fn check_entries(&self) -> Result<(), PickleError> {
        if self.stack.len() + self.marks.len() + self.memo.len() < self.shared.max_objects {
            return Ok(());
        }
        Err(self.too_many())
    }

    pub(super) fn malformed(&self, wanted: &'static str) -> PickleError {
        PickleError::Malformed { offset: self.offset, wanted }
    }

    /// Reads a nested pickle at the current position, with its own stack and memo.
    pub(super) fn nested(&mut self) -> Result<NodeId, PickleError> {
        if self.depth == MAX_NESTING {
            let (offset, what) = (self.offset, "nested pickles");
            return Err(PickleError::TooMany { offset, what, limit: MAX_NESTING });
        }
        PickleMachine::new(self.shared, self.depth + 1).run()
    }

    /// Counts the elements of an argument before a call reads them.
    fn revisit(&mut self, id: NodeId) -> Result<(), PickleError> {
        let size = |node: &PickleNode| match node {
            PickleNode::List(items) | PickleNode::Set(items) => items.len(),
            PickleNode::Tuple(items) => items.len(),
            PickleNode::Dict(entries) => entries.len(),
            PickleNode::Text(text) => text.len(),
            PickleNode::Dtype(dtype) => dtype.fields.len(),
            _ => 0,
        };
        let own = self.node(id);
        let parts = match own {
            PickleNode::Tuple(items) => items.iter().map(|&id| size(self.node(id))).sum(),
            _ => 0_usize,
        };
        let elements = size(own).saturating_add(parts).saturating_add(1);
        match self.shared.revisits.checked_sub(elements) {
            Some(left) => {
                self.shared.revisits = left;
                Ok(())
            }
            None => Err(PickleError::Unsupported { offset: self.offset, what: "an object that is copied too often" }),
        }
    }

    fn push(&mut self, node: PickleNode) -> Result<(), PickleError> {
        let id = self.add(node)?;
        self.stack.push(id);
        Ok(())
    }

    /// Pops the topmost object. Fails at a mark.
    fn pop(&mut self) -> Result<NodeId, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() > floor {
            self.stack.pop().ok_or(PickleError::Malformed { offset: self.offset, wanted: "an object on the stack" })
        } else {
            Err(self.malformed("an object on the stack"))
        }
    }

    fn top(&self) -> Result<NodeId, PickleError> {
        self.stack.last().copied().ok_or_else(|| self.malformed("an object on the stack"))
    }

    /// Pops all objects above the last mark, and the mark.
    fn pop_marked(&mut self) -> Result<Vec<NodeId>, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Malformed { offset: self.offset, wanted: "a mark" })?;
        Ok(self.stack.split_off(mark))
    }

    fn pop_tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(PickleNode::Tuple(items.into()))
    }

    fn step(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            0x80 => self.protocol(),
            // The length of a frame is only a hint.
            0x95 => self.shared.reader.array::<8>("a frame").map(drop),
            b'(' => {
                self.check_entries()?;
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => self.pop_marked().map(drop),
                _ => self.pop().map(drop),
            },
            b'1' => self.pop_marked().map(drop),
            b'2' => {
                self.check_entries()?;
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            b'N' => self.push(PickleNode::None),
            0x88 => self.push(PickleNode::Bool(true)),
            0x89 => self.push(PickleNode::Bool(false)),
            b'I' | b'L' | b'J' | b'K' | b'M' | 0x8a | 0x8b => {
                let node = self.read_integer(opcode)?;
                self.push(node)
            }
            b'F' | b'G' => {
                let node = self.read_float(opcode)?;
                self.push(node)
            }
            b'S' | b'V' | b'T' | b'U' | b'X' | 0x8c | 0x8d => {
                let node = self.read_text(opcode)?;
                self.push(node)
            }
            b'B' | b'C' | 0x8e | 0x96 => {
                let length = match opcode {
                    b'C' => u64::from(self.shared.reader.byte("bytes")?),
                    b'B' => u64::from(u32::from_le_bytes(self.shared.reader.array("bytes")?)),
                    _ => u64::from_le_bytes(self.shared.reader.array("bytes")?),
                };
                let bytes = self.shared.reader.take_long(length, "bytes")?;
                self.push(PickleNode::Bytes(Box::new(bytes)))
            }
            b')' => self.push(PickleNode::Tuple(Box::default())),
            0x85 => self.pop_tuple(1),
            0x86 => self.pop_tuple(2),
            0x87 => self.pop_tuple(3),
            b't' => {
                let items = self.pop_marked()?;
                self.push(PickleNode::Tuple(items.into()))
            }
            b']' => self.push(PickleNode::List(Vec::new())),
            b'l' => {
                let items = self.pop_marked()?;
                self.push(PickleNode::List(items))
            }
            b'}' => self.push(PickleNode::Dict(Vec::new())),
            b'd' => {
                let items = self.pop_marked()?;
                let entries = self.entries(&items)?;
                self.push(PickleNode::Dict(entries))
            }
            0x8f => self.push(PickleNode::Set(Vec::new())),
            0x91 => {
                let items = self.pop_marked()?;
                self.push(PickleNode::Set(items))
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])
            }
            b'e' | 0x90 => {
                let items = self.pop_marked()?;
                self.append(&items)
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])
            }
            b'u' => {
                let items = self.pop_marked()?;
                self.set(&items)
            }
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memo(opcode),
            b'c' | 0x93 | b'i' | b'o' | 0x81 | 0x92 | b'R' | b'b' => self.construct(opcode),
            b'P' | b'Q' => Err(self.unsupported("a persistent identifier")),
            0x82..=0x84 => Err(self.unsupported("an extension code")),
            0x97 | 0x98 => Err(self.unsupported("a buffer outside of the file")),
            _ => Err(PickleError::Opcode { offset: self.offset, opcode }),
        }
    }

    const fn unsupported(&self, what: &'static str) -> PickleError {
        PickleError::Unsupported { offset: self.offset, what }
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        match self.shared.reader.byte("the protocol")? {
            0..=5 => Ok(()),
            _ => Err(self.malformed("a protocol up to 5")),
        }
    }

    fn read_integer(&mut self, opcode: u8) -> Result<PickleNode, PickleError> {
        let reading = "an integer";
        let reader = &mut self.shared.reader;
        Ok(match opcode {
            b'J' => PickleNode::Int(i64::from(i32::from_le_bytes(reader.array(reading)?))),
            b'K' => PickleNode::Int(i64::from(reader.byte(reading)?)),
            b'M' => PickleNode::Int(i64::from(u16::from_le_bytes(reader.array(reading)?))),
            0x8a | 0x8b => {
                let length = if opcode == 0x8a {
                    u64::from(reader.byte(reading)?)
                } else {
                    u64::from(u32::from_le_bytes(reader.array(reading)?))
                };
                let digits = reader.take_long(length, reading)?;
                if digits.len() > 8 {
                    return Ok(PickleNode::LargeInt);
                }
                let negative = digits.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut bytes = [if negative { 0xff } else { 0 }; 8];
                bytes[..digits.len()].copy_from_slice(&digits);
                PickleNode::Int(i64::from_le_bytes(bytes))
            }
            _ => {
                let line = reader.line(reading)?;
                match &line[..] {
                    b"00" if opcode == b'I' => return Ok(PickleNode::Bool(false)),
                    b"01" if opcode == b'I' => return Ok(PickleNode::Bool(true)),
                    _ => {}
                }
                let digits = std::str::from_utf8(&line).unwrap_or_default().trim_end_matches('L');
                let sign = usize::from(digits.starts_with('-'));
                match digits.parse() {
                    Ok(integer) => PickleNode::Int(integer),
                    Err(_) if digits.len() > sign && digits[sign..].bytes().all(|byte| byte.is_ascii_digit()) => {
                        PickleNode::LargeInt
                    }
                    Err(_) => return Err(self.malformed("an integer")),
                }
            }
        })
    }

    fn read_float(&mut self, opcode: u8) -> Result<PickleNode, PickleError> {
        if opcode == b'G' {
            return Ok(PickleNode::Float(f64::from_be_bytes(self.shared.reader.array("a number")?)));
        }
        let line = self.shared.reader.line("a number")?;
        let number = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok());
        number.map(PickleNode::Float).ok_or_else(|| self.malformed("a number"))
    }

    fn read_text(&mut self, opcode: u8) -> Result<PickleNode, PickleError> {
        let reading = "text";
        let reader = &mut self.shared.reader;
        let length = match opcode {
            0x8c | b'U' => u64::from(reader.byte(reading)?),
            b'X' | b'T' => u64::from(u32::from_le_bytes(reader.array(reading)?)),
            0x8d => u64::from_le_bytes(reader.array(reading)?),
            _ => {
                let line = reader.line(reading)?;
                let text = if opcode == b'V' { unescape(&line) } else { quoted(&line) };
                return text.map(|text| PickleNode::Text(text.into())).ok_or_else(|| self.malformed("text"));
            }
        };
        let bytes = reader.take_long(length, reading)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| self.malformed("text in UTF-8"))?;
        Ok(PickleNode::Text(text.into()))
    }

    fn entries(&self, items: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>, PickleError> {
        let pairs = items.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(self.malformed("a value for each key"));
        }
        Ok(pairs.map(|pair| (pair[0], pair[1])).collect())
    }

    fn append(&mut self, items: &[NodeId]) -> Result<(), PickleError> {
        let target = self.top()?;
        let list = match self.node_mut(target) {
            PickleNode::List(list) | PickleNode::Set(list) => list,
            PickleNode::Object(object) => &mut object.appended,
            _ => return Err(self.malformed("a list or set")),
        };
        list.extend_from_slice(items);
        Ok(())
    }

    fn set(&mut self, items: &[NodeId]) -> Result<(), PickleError> {
        let entries = self.entries(items)?;
        let target = self.top()?;
        let dict = match self.node_mut(target) {
            PickleNode::Dict(dict) => dict,
            PickleNode::Object(object) => &mut object.entries,
            _ => return Err(self.malformed("a dict")),
        };
        dict.extend(entries);
        Ok(())
    }

    fn memo(&mut self, opcode: u8) -> Result<(), PickleError> {
        let reading = "an index of the memo";
        let reader = &mut self.shared.reader;
        let place = match opcode {
            b'q' | b'h' => u32::from(reader.byte(reading)?),
            b'r' | b'j' => u32::from_le_bytes(reader.array(reading)?),
            0x94 => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
            _ => {
                let line = reader.line(reading)?;
                let place = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok());
                place.ok_or_else(|| self.malformed("an index of the memo"))?
            }
        };
        if matches!(opcode, b'g' | b'h' | b'j') {
            self.check_entries()?;
            let id = self.memo.get(&place).copied();
            self.stack.push(id.ok_or_else(|| self.malformed("an object in the memo"))?);
        } else {
            self.check_entries()?;
            let top = self.top()?;
            self.memo.insert(place, top);
        }
        Ok(())
    }

    /// Executes opcodes that name classes and functions, or call them.
    fn construct(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'c' => {
                let global = self.global_of_lines()?;
                self.stack.push(global);
                Ok(())
            }
            0x93 => {
                let name = self.pop()?;
                let module = self.pop()?;
                let (PickleNode::Text(module), PickleNode::Text(name)) = (self.node(module), self.node(name)) else {
                    return Err(self.malformed("the name of a class or function"));
                };
                let name = canonical(module, name);
                let global = self.global(name)?;
                self.stack.push(global);
                Ok(())
            }
            b'i' => {
                let class = self.global_of_lines()?;
                let arguments = self.pop_marked()?;
                let node = self.instance(class, arguments, None)?;
                self.push(node)
            }
            b'o' => {
                let mut arguments = self.pop_marked()?;
                if arguments.is_empty() {
                    return Err(self.malformed("a class"));
                }
                let class = arguments.remove(0);
                let node = self.instance(class, arguments, None)?;
                self.push(node)
            }
            0x81 | 0x92 => {
                let keywords = if opcode == 0x92 { Some(self.pop()?) } else { None };
                let arguments = self.pop()?;
                let class = self.pop()?;
                self.revisit(arguments)?;
                let PickleNode::Tuple(arguments) = self.node(arguments) else {
                    return Err(self.malformed("a tuple of arguments"));
                };
                let node = self.instance(class, arguments.to_vec(), keywords)?;
                self.push(node)
            }
            b'R' => {
                let arguments = self.pop()?;
                let function = self.pop()?;
                self.revisit(arguments)?;
                let result = self.call(function, arguments)?;
                self.stack.push(result);
                Ok(())
            }
            _ => {
                let state = self.pop()?;
                let target = self.pop()?;
                self.revisit(state)?;
                let built = self.build(target, state)?;
                self.stack.push(built);
                Ok(())
            }
        }
    }

    fn global_of_lines(&mut self) -> Result<NodeId, PickleError> {
        let module = self.shared.reader.line("the name of a module")?;
        let name = self.shared.reader.line("the name of a class or function")?;
        let (Ok(module), Ok(name)) = (std::str::from_utf8(&module), std::str::from_utf8(&name)) else {
            return Err(self.malformed("the name of a class or function"));
        };
        self.global(canonical(module, name))
    }

    fn global(&mut self, name: String) -> Result<NodeId, PickleError> {
        let shared = self.shared.names.entry(name).or_insert_with_key(|name| name.as_str().into());
        let node = PickleNode::Global(Arc::clone(shared));
        self.add(node)
    }
}

/// Reads the escapes of protocol 0: `\uXXXX` and `\UXXXXXXXX` in Latin-1.
fn unescape(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(byte));
                rest = after;
                continue;
            }
        };
        let code = std::str::from_utf8(after.get(1..=digits)?).ok()?;
        text.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        rest = &after[digits + 1..];
    }
    Some(text)
}

/// Reads a string of Python 2 that needs no escapes, such as the name of an attribute.
fn quoted(line: &[u8]) -> Option<String> {
    let (&quote, rest) = line.split_first()?;
    let inner = rest.strip_suffix(&[quote])?;
    let plain = matches!(quote, b'\'' | b'"') && inner.is_ascii() && !inner.contains(&b'\\');
    plain.then(|| String::from_utf8_lossy(inner).into_owned())
}

/// The limit on objects relies on this size.
const _: () = assert!(size_of::<PickleNode>() <= 32);
