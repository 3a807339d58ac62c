"""What the file of an ONNX model says about its graph: inputs, outputs, external data, and the labels of maps."""

import os
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from mlserver.errors import MLServerError

__all__ = ["DATATYPES", "Graph", "Tensor", "check_external_data", "read_graph", "replace_maps"]

#: The datatype of the protocol and NumPy's dtype, by the type of ONNX. Types that are not here have no datatype.
DATATYPES = {
    "FLOAT": ("FP32", "float32"),
    "UINT8": ("UINT8", "uint8"),
    "INT8": ("INT8", "int8"),
    "UINT16": ("UINT16", "uint16"),
    "INT16": ("INT16", "int16"),
    "INT32": ("INT32", "int32"),
    "INT64": ("INT64", "int64"),
    "STRING": ("BYTES", "object"),
    "BOOL": ("BOOL", "bool"),
    "FLOAT16": ("FP16", "float16"),
    "DOUBLE": ("FP64", "float64"),
    "UINT32": ("UINT32", "uint32"),
    "UINT64": ("UINT64", "uint64"),
}
#: The deepest nesting of graphs within nodes.
_MAX_DEPTH = 64
_ML = "ai.onnx.ml"


class Tensor(NamedTuple):
    """An input or an output of a graph."""

    name: str
    #: The datatype of the protocol, or `None` if the protocol cannot carry the value.
    datatype: Optional[str]
    #: NumPy's dtype.
    dtype: str
    #: The dimensions, -1 for those of any size; `None` if their number is unknown.
    shape: Optional[List[int]]
    #: The type, for messages.
    type: str


class Graph(NamedTuple):
    """The inputs and outputs of a graph, and the labels of outputs that are maps in the file."""

    inputs: List[Tensor]
    outputs: List[Tensor]
    labels: Dict[str, List[Any]]


def read_graph(onnx: Any, model: Any, labels: Dict[str, List[Any]]) -> Graph:
    """Returns the graph of a model without its initializers."""
    graph = model.graph
    initialized = {tensor.name for tensor in graph.initializer}
    initialized.update(tensor.values.name for tensor in graph.sparse_initializer)
    inputs = [_tensor(onnx, value) for value in graph.input if value.name not in initialized]
    return Graph(inputs, [_tensor(onnx, value) for value in graph.output], labels)


def _tensor(onnx: Any, value: Any) -> Tensor:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Tensor(value.name, None, "", None, (kind or "unknown type").replace("_type", ""))
    tensor = value.type.tensor_type
    names = onnx.TensorProto.DataType
    name = names.Name(tensor.elem_type) if tensor.elem_type in names.values() else str(tensor.elem_type)
    datatype, dtype = DATATYPES.get(name, (None, ""))
    shape = None
    if tensor.HasField("shape"):
        shape = [each.dim_value if each.WhichOneof("value") == "dim_value" else -1 for each in tensor.shape.dim]
        shape = [size if size >= 0 else -1 for size in shape]
    return Tensor(value.name, datatype, dtype, shape, name)


def replace_maps(onnx: Any, model: Any) -> Dict[str, List[Any]]:
    """Replaces each `ZipMap` that computes an output of the graph, so that the output is its matrix of scores.

    Returns the labels of the columns by the output's name.
    """
    graph = model.graph
    outputs = {value.name: value for value in graph.output}
    found = {}
    for node in graph.node:
        if node.op_type != "ZipMap" or node.domain != _ML or len(node.input) != 1 or len(node.output) != 1:
            continue
        output = outputs.get(node.output[0])
        used = any(node.output[0] in other.input for other in graph.node)
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if output is None or used:
            continue
        if "classlabels_int64s" in attributes:
            labels: List[Any] = list(attributes["classlabels_int64s"].ints)
        elif "classlabels_strings" in attributes:
            labels = [text.decode("utf-8", "replace") for text in attributes["classlabels_strings"].strings]
        else:
            continue
        found[output.name] = labels
        del node.attribute[:]
        node.op_type, node.domain = "Identity", ""
        output.type.CopyFrom(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, len(labels)]))
    if found and not any(each.domain in ("", "ai.onnx") for each in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("", 13))
    return found


def check_external_data(onnx: Any, model: Any, path: str) -> bool:
    """Checks that the data outside of a model's file are in its folder or below it, and returns whether there are any.

    Raises `MLServerError` if a file is elsewhere, is not a regular file, or is shorter than expected.
    """
    folder = os.path.dirname(path)
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path))}
    sizes: Dict[str, int] = {}
    found = False
    for tensor in _tensors(onnx, model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        found = True
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in sizes:
            sizes[location] = _size_of(folder, roots, location, path)
        offset, length = (_number(entries, key, tensor.name, path) for key in ("offset", "length"))
        end = (offset or 0) + (length or 0)
        if end > sizes[location]:
            raise _refused(
                path, f"`{location}` has {sizes[location]} bytes, but {length or 0} bytes are expected at {offset or 0}"
            )
    return found


def _tensors(onnx: Any, model: Any) -> Iterator[Any]:
    """Yields all tensors of a model: initializers, and the attributes of nodes, also in inner graphs and functions."""
    stack: List[Tuple[Any, int]] = [(model.graph, 0), *((function, 0) for function in model.functions)]
    while stack:
        graph, depth = stack.pop()
        if depth > _MAX_DEPTH:
            raise MLServerError(f"the model has more than {_MAX_DEPTH} levels of graphs within nodes", 500)
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                stack += [(inner, depth + 1) for inner in attribute.graphs]
                if attribute.HasField("g"):
                    stack.append((attribute.g, depth + 1))


def _size_of(folder: str, roots: "set[str]", location: str, path: str) -> int:
    """Returns the size of a file with external data."""
    parts = location.split("/")
    if not location or "\0" in location or os.path.isabs(location) or ".." in parts:
        raise _refused(path, f"`{location}` is not in the folder of the model or below it")
    resolved = os.path.realpath(os.path.join(folder, location))
    if not any(os.path.commonpath([root, resolved]) == root for root in roots):
        raise _refused(path, f"`{location}` is a link that leaves the folder of the model")
    try:
        status = os.stat(resolved)
    except OSError as error:
        raise _refused(path, f"`{location}` cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, f"`{location}` is not a regular file")
    return status.st_size


def _number(entries: Dict[str, str], key: str, tensor: str, path: str) -> Optional[int]:
    text = entries.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise _refused(path, f"the {key} of the external data of `{tensor}` is `{text}`: expected a number of bytes")
    return int(text)


def _refused(path: str, reason: str) -> MLServerError:
    return MLServerError(f"cannot load `{path}`: external data: {reason}", 500)
