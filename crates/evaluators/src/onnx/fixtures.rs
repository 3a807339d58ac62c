//! Files for tests, written field by field.

/// Writes a number.
fn varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Returns a field of a message, a text or bytes.
pub(super) fn field(number: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(number << 3 | 2, &mut bytes);
    varint(u64::try_from(value.len()).unwrap(), &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

/// Returns a field of an integer.
pub(super) fn integer(number: u64, value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(number << 3, &mut bytes);
    varint(value.cast_unsigned(), &mut bytes);
    bytes
}

/// Returns an attribute of integers.
pub(super) fn ints(name: &str, values: &[i64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| integer(8, *value)).collect();
    [field(1, name.as_bytes()), values, integer(20, 7)].concat()
}

/// Returns an attribute of one integer.
pub(super) fn int(name: &str, value: i64) -> Vec<u8> {
    [field(1, name.as_bytes()), integer(3, value), integer(20, 2)].concat()
}

/// Returns an attribute that stands for one of the call of a function.
pub(super) fn reference(name: &str, of: &str) -> Vec<u8> {
    [field(1, name.as_bytes()), field(21, of.as_bytes()), integer(20, 2)].concat()
}

/// Returns a node of the default domain.
pub(super) fn node(operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    of_domain("", operator, inputs, outputs, attributes)
}

/// Returns a node.
pub(super) fn of_domain(
    domain: &str,
    operator: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[Vec<u8>],
) -> Vec<u8> {
    let names = |number, names: &[&str]| names.iter().flat_map(|name| field(number, name.as_bytes())).collect();
    let attributes: Vec<u8> = attributes.iter().flat_map(|attribute| field(5, attribute)).collect();
    let (inputs, outputs): (Vec<u8>, Vec<u8>) = (names(1, inputs), names(2, outputs));
    [inputs, outputs, field(4, operator.as_bytes()), attributes, field(7, domain.as_bytes())].concat()
}

/// Returns an input or output with dimensions, of which negative ones are unknown. 1 is float, 7 is int64.
pub(super) fn value(name: &str, element: i64, dimensions: &[i64]) -> Vec<u8> {
    let dimension = |size: &i64| field(1, &if *size < 0 { Vec::new() } else { integer(1, *size) });
    let shape: Vec<u8> = dimensions.iter().flat_map(dimension).collect();
    let tensor = [integer(1, element), field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// Returns a tensor of raw data.
pub(super) fn tensor(name: &str, element: i64, dimensions: &[i64], raw: &[u8]) -> Vec<u8> {
    let dimensions: Vec<u8> = dimensions.iter().flat_map(|size| integer(1, *size)).collect();
    [dimensions, integer(2, element), field(8, name.as_bytes()), field(9, raw)].concat()
}

/// Returns a tensor of integers.
pub(super) fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, 7, &[i64::try_from(values.len()).unwrap()], &raw)
}

/// A model of messages.
#[derive(Debug, Default, Clone)]
pub(super) struct File {
    pub(super) nodes: Vec<Vec<u8>>,
    pub(super) initializers: Vec<Vec<u8>>,
    pub(super) inputs: Vec<Vec<u8>>,
    pub(super) outputs: Vec<Vec<u8>>,
    pub(super) functions: Vec<Vec<u8>>,
    pub(super) opset: Option<i64>,
}

impl File {
    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let all = |number, messages: &[Vec<u8>]| -> Vec<u8> {
            messages.iter().flat_map(|message| field(number, message)).collect()
        };
        let graph = [all(1, &self.nodes), all(5, &self.initializers), all(11, &self.inputs), all(12, &self.outputs)];
        let opset = |domain: &str, version| field(8, &[field(1, domain.as_bytes()), integer(2, version)].concat());
        [
            integer(1, 9),
            field(7, &graph.concat()),
            opset("", self.opset.unwrap_or(17)),
            opset("ai.onnx.ml", 3),
            opset("own", 1),
            all(25, &self.functions),
        ]
        .concat()
    }

    /// Returns a graph from `x`, a matrix of 3 columns, to `y`.
    pub(super) fn of(nodes: &[Vec<u8>]) -> Self {
        Self {
            nodes: nodes.to_vec(),
            inputs: vec![value("x", 1, &[-1, 3])],
            outputs: vec![value("y", 1, &[-1, 3])],
            ..Self::default()
        }
    }
}
