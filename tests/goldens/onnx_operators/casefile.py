"""Makes golden cases of ONNX models: a model, its inputs, and what onnxruntime answers."""

import gzip
import io
import json
import zlib

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

DATATYPES = {
    np.dtype(np.float16): "FP16",
    np.dtype(np.float32): "FP32",
    np.dtype(np.float64): "FP64",
    np.dtype(np.int8): "INT8",
    np.dtype(np.uint8): "UINT8",
    np.dtype(np.int16): "INT16",
    np.dtype(np.int32): "INT32",
    np.dtype(np.int64): "INT64",
    np.dtype(np.bool_): "BOOL",
}


def rng_for(name):
    """Returns a generator seeded by the case's name, so that cases do not affect each other."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def tensor(array):
    """Encodes an array: numbers as the hexadecimal digits of their bytes, texts as a list."""
    array = np.asarray(array)
    if array.dtype.kind in "OU":
        return {"datatype": "BYTES", "shape": list(array.shape), "texts": [str(text) for text in array.ravel()]}
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes().hex()
    return {"datatype": DATATYPES[array.dtype], "shape": list(array.shape), "data": data}


def one_node(operator, inputs, outputs=1, domain="ai.onnx.ml", ml=3, opset=18, constants=(), fixed=False, **attributes):
    """Returns a model of one node. `inputs` are arrays, `constants` tensors that follow them, `fixed` declares sizes."""
    names = [f"x{index}" for index in range(len(inputs))]
    outputs = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, names + [each.name for each in constants], outputs, domain=domain, **attributes)

    def declared(name, array):
        element = TensorProto.STRING if array.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, element, list(array.shape) if fixed else [None] * array.ndim)

    graph = helper.make_graph(
        [node],
        "case",
        [declared(name, array) for name, array in zip(names, inputs)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        list(constants),
    )
    domains = [("", opset), ("ai.onnx.ml", ml), ("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in domains])
    model.ir_version = 9
    return model.SerializeToString()


def map_values(output):
    """Returns the values of maps as a matrix."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return np.array([list(row.values()) for row in output], np.float32)
    return np.asarray(output)


class Cases:
    """Cases that are collected, and written into one file."""

    def __init__(self):
        self.lines = []
        self.names = set()
        self.refused = []

    def add(self, name, model, inputs, tolerance=1e-6, steps=0):
        """Adds a case with the answers of onnxruntime, or remembers that it refuses the model.

        `tolerance` is the largest difference of scores, relative to those above 1, and `steps` that of quantized numbers.
        """
        if name in self.names:
            raise ValueError(f"two cases are named {name}")
        self.names.add(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            named = {each.name: np.asarray(value) for each, value in zip(session.get_inputs(), inputs)}
            outputs = session.run(None, named)
        except Exception as error:
            # Its errors have several types.
            self.refused.append(f"{name}: {str(error).splitlines()[0][:160]}")
            return
        case = {
            "name": name,
            "tolerance": tolerance,
            **({"steps": steps} if steps else {}),
            "model": model.hex(),
            "inputs": [tensor(each) for each in inputs],
            "outputs": [tensor(map_values(each)) for each in outputs],
        }
        self.lines.append(json.dumps(case, separators=(",", ":"), ensure_ascii=False))

    def write(self, path):
        """Writes one case a line, compressed; the same cases give the same bytes."""
        compressed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=compressed, mtime=0) as stream:
            stream.write(("\n".join(self.lines) + "\n").encode())
        path.write_bytes(compressed.getvalue())
        return len(compressed.getvalue())
