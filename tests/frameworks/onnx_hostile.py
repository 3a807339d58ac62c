"""Hostile ONNX files: damaged ones, and valid messages whose numbers, names or references are wrong or enormous.

Each file is meant to be served natively, takes `x` (FP32) and gives `y`, if it gives anything.
"""

from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
HUGE = 1 << 40
ML = "ai.onnx.ml"
#: The shape of `x` in all files and requests.
SHAPE = [2, 3]
File = Tuple[str, bytes]


def tensor(name: str, dims: List[int], values: bytes = b"", datatype: int = FLOAT) -> TensorProto:
    """Returns a constant whose dimensions need not match its bytes."""
    return TensorProto(name=name, dims=dims, data_type=datatype, raw_data=values)


def integers(name: str, *values: int) -> TensorProto:
    """Returns a vector of INT64."""
    return numpy_helper.from_array(numpy.array(values, numpy.int64), name)


def scalar(name: str, value: int) -> TensorProto:
    """Returns a scalar of INT64."""
    return numpy_helper.from_array(numpy.array(value, numpy.int64), name)


def floats(name: str, *values: float) -> TensorProto:
    """Returns a vector of FP32."""
    return numpy_helper.from_array(numpy.array(values, numpy.float32), name)


def graph(nodes: List[onnx.NodeProto], *constants: TensorProto, rank: int = 2, kind: int = FLOAT) -> onnx.GraphProto:
    """Returns a graph from `x` to `y`."""
    x = helper.make_tensor_value_info("x", FLOAT, ["n", SHAPE[1]])
    y = helper.make_tensor_value_info("y", kind, [f"d{place}" for place in range(rank)])
    return helper.make_graph(nodes, "g", [x], [y], list(constants))


def model(nodes: Any, *constants: TensorProto, opset: int = 17, **fields: Any) -> bytes:
    """Returns a file of a graph, or of nodes and constants. Nothing is checked."""
    content = nodes if isinstance(nodes, onnx.GraphProto) else graph(nodes, *constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 3)]
    return helper.make_model(content, opset_imports=opsets, ir_version=8, **fields).SerializeToString()


def node(operator: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Returns a node; names of inputs and outputs are divided by spaces, and `-` is a missing input."""
    names = [name.replace("-", "") for name in inputs.split()]
    domain = attributes.pop("domain", "")
    return helper.make_node(operator, names, outputs.split(), domain=domain, **attributes)


def varint(number: int) -> bytes:
    """Returns a number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    """Returns a field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def damaged() -> Iterator[File]:
    """Yields files that are no valid messages."""
    whole = model([node("MatMul", "x w", "z"), node("Relu", "z")], tensor("w", [3, 3], bytes(36)))
    for part in range(16):
        yield f"truncated-{part}", whole[: len(whole) * part // 16]
    for place in range(0, len(whole), max(len(whole) // 24, 1)):
        yield f"flipped-{place}", whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
    yield "zeros", bytes(1 << 20)
    yield "ones", b"\xff" * (1 << 16)
    yield "text", b"this is not a model\n" * 100
    yield "json", b'{"graph": {}}'
    yield "elf", b"\x7fELF" + bytes(100)
    yield "gzip", b"\x1f\x8b\x08" + bytes(100)
    yield "varint-without-end", b"\x08" + b"\xff" * 64
    yield "longer-than-the-file", varint(7 << 3 | 2) + varint(1 << 62) + b"abc"
    yield "length-of-all-bits", varint(7 << 3 | 2) + varint((1 << 64) - 1)
    yield "groups", b"\x0b" * 100_000
    yield "wire-type-7", bytes([7 << 3 | 7]) + bytes(16)
    yield "field-0", bytes([0, 1, 2])
    nested = b""
    for _ in range(5000):  # a graph in an attribute of a node of a graph
        nested = field(1, field(5, field(6, nested)))
        if len(nested) > 1 << 16:
            break
    yield "nested-subgraphs", field(7, nested)
    yield "empty-graphs", field(7, b"") * 50_000
    yield "empty-nodes", field(7, field(1, b"") * 200_000)
    yield "empty-attributes", field(7, field(1, field(5, b"") * 100_000))
    yield "name-not-utf-8", field(7, field(1, field(2, b"\xff\xfe") + field(4, b"Relu")))


def tensors() -> Iterator[File]:
    """Yields files with a constant that is wrong."""
    for name, dims in {
        "huge": [HUGE],
        "negative": [-1, 3],
        "most-negative": [-(1 << 63), 2],
        "overflow": [1 << 32, 1 << 32],
        "overflow-to-little": [1 << 62, 4, 3],
        "rank-1000": [1] * 1000,
        "zero-times-huge": [0, HUGE, HUGE],
        "other-size": [4, 4],
    }.items():
        yield f"dims-{name}", model([node("Add", "x c")], tensor("c", dims, bytes(12)))
    for datatype in [-1, 0, 9, 14, 16, 17, 23, 99, (1 << 31) - 1]:
        yield f"datatype-{datatype}", model([node("Add", "x c")], tensor("c", [3], bytes(12), datatype))
    both = tensor("c", [3], bytes(12))
    both.float_data.extend([1, 2, 3])
    yield "two-places-of-data", model([node("Add", "x c")], both)
    texts = TensorProto(name="c", dims=[HUGE], data_type=STRING, string_data=[b"a"])
    yield "texts-missing", model([node("Identity", "c")], texts)
    for name, entries in {
        "parent": {"location": "../../../../etc/passwd"},
        "absolute": {"location": "/etc/passwd"},
        "device": {"location": "/dev/zero"},
        "nul": {"location": "a\0b"},
        "missing": {"location": "nothing.bin"},
        "itself": {"location": "model.onnx", "length": str(HUGE)},
        "folder": {"location": "."},
        "offset": {"location": "model.onnx", "offset": str(HUGE)},
        "negative": {"location": "model.onnx", "offset": "-8"},
        "no-number": {"location": "model.onnx", "length": "1e9"},
        "overflow": {"location": "model.onnx", "offset": str((1 << 64) - 4), "length": "12"},
        "marker-of-memory": {"location": "*/_ORT_MEM_ADDR_/*", "offset": "4096", "length": "12"},
    }.items():
        external = TensorProto(name="c", dims=[3], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
        for key, value in entries.items():
            external.external_data.add(key=key, value=value)
        yield f"external-{name}", model([node("Add", "x c")], external)


def graphs() -> Iterator[File]:
    """Yields files whose graph is wrong."""
    yield "cycle", model([node("Add", "x z", "y"), node("Relu", "y", "z")])
    yield "cycle-of-one", model([node("Add", "x y", "y")])
    yield "unknown-input", model([node("Relu", "nothing")])
    yield "no-producer", model([node("Relu", "x", "z")])
    yield "two-producers", model([node("Relu"), node("Abs")])
    yield "two-constants", model([node("Add", "x c")], floats("c", 1), floats("c", 2))
    yield "no-nodes", model([])
    yield "many-nodes", model([node("Relu", f"v{i}", f"v{i + 1}") for i in range(100_001)])
    yield (
        "long-chain",
        model([node("Relu", f"v{i}" if i else "x", f"v{i + 1}" if i < 49_999 else "y") for i in range(50_000)]),
    )
    doubling = [node("Concat", f"v{i} v{i}" if i else "x x", f"v{i + 1}", axis=0) for i in range(40)]
    yield "doubling-rows", model([*doubling, node("Identity", "v40")])
    adding = [node("Add", f"v{i} v{i}" if i else "x x", f"v{i + 1}") for i in range(60)]
    yield "shared-values", model([*adding, node("Identity", "v60")])
    yield "long-name", model([node("Relu", "x", "z" * 5000), node("Abs", "z" * 5000)])
    yield "nul-in-a-name", model([node("Relu", "x", "z\0"), node("Abs", "z\0")])
    yield "unknown-operator", model([node("Shutdown")])
    yield "unknown-domain", model([node("Relu", domain="evil.example")])
    yield "many-inputs", model([node("Sum", " ".join(["x"] * 100_000))])
    yield "many-outputs", model([node("Split", "x", "y " + " ".join(f"o{i}" for i in range(100_000)), axis=1)])
    for opset in [-1, 0, 1, 6, 9999, (1 << 63) - 1]:
        yield f"opset-{opset}", model([node("Relu")], opset=opset)
    whole = onnx.load_from_string(model([node("Relu")]))
    for name, change in {
        "no-opset": lambda m: m.ClearField("opset_import"),
        "no-graph": lambda m: m.ClearField("graph"),
        "no-outputs": lambda m: m.graph.ClearField("output"),
        "no-inputs": lambda m: m.graph.ClearField("input"),
        "two-inputs-of-a-name": lambda m: m.graph.input.append(m.graph.input[0]),
        "ir-version": lambda m: setattr(m, "ir_version", (1 << 63) - 1),
        "many-properties": lambda m: helper.set_model_props(m, {f"k{i}": "v" * 100 for i in range(20_000)}),
        "huge-input": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", HUGE),
        "negative-input": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", -7),
        "sequence-input": lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent(),
    }.items():
        changed = onnx.ModelProto()
        changed.CopyFrom(whole)
        change(changed)
        yield name, changed.SerializeToString()
    for name, calls in {"itself": ["f0", "f0"], "doubling": None}.items():
        functions = []
        for level in range(1 if calls else 40):
            inner = calls or [f"f{level + 1}"] * 2
            body = [node(inner[0], "a", "b", domain="own"), node(inner[1], "b", "c", domain="own")]
            if level == 39:
                body = [node("Relu", "a", "c")]
            functions.append(
                helper.make_function("own", f"f{level}", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
            )
        yield f"functions-{name}", model([node("f0", domain="own")], functions=functions)
    inner = graph([node("Relu", "x", "y")])
    for _ in range(20):  # protobuf writes no more than 100 levels of messages
        condition = numpy_helper.from_array(numpy.array(True), "c")
        inner = graph([node("If", "c", "y", then_branch=inner, else_branch=graph([node("Relu")]))], condition)
    yield "if-20-levels", model(inner)
    body = helper.make_graph(
        [node("Identity", "c", "more"), node("Relu", "s", "t")],
        "b",
        [
            helper.make_tensor_value_info(n, t, s)
            for n, t, s in [("i", INT64, []), ("c", TensorProto.BOOL, []), ("s", FLOAT, None)]
        ],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in [("more", TensorProto.BOOL, []), ("t", FLOAT, None)]],
    )
    forever = numpy_helper.from_array(numpy.array(True), "yes")
    yield "loop-2-40", model([node("Loop", "times yes x", body=body)], scalar("times", HUGE), forever)


def sizes() -> Iterator[File]:
    """Yields files with operators that are asked for enormous or invalid results."""
    huge = integers("h", HUGE)
    image, kernel = tensor("z", [1, 1, 3, 3], bytes(36)), tensor("w", [1, 1, 3, 3], bytes(36))
    plain: Dict[str, Tuple[onnx.NodeProto, List[TensorProto]]] = {
        "constant-of-shape": (node("ConstantOfShape", "h"), [huge]),
        "constant-of-shape-negative": (node("ConstantOfShape", "h"), [integers("h", -5)]),
        "constant-of-shape-overflow": (node("ConstantOfShape", "h"), [integers("h", 1 << 33, 1 << 33)]),
        "range": (node("Range", "a b c"), [scalar("a", 0), scalar("b", HUGE), scalar("c", 1)]),
        "range-step-0": (node("Range", "a b c"), [scalar("a", 0), scalar("b", 9), scalar("c", 0)]),
        "range-all": (node("Range", "a b c"), [scalar("a", -(1 << 63)), scalar("b", (1 << 63) - 1), scalar("c", 1)]),
        "tile": (node("Tile", "x h"), [integers("h", HUGE, 1)]),
        "tile-negative": (node("Tile", "x h"), [integers("h", -1, 1)]),
        "tile-overflow": (node("Tile", "x h"), [integers("h", 1 << 33, 1 << 33)]),
        "expand": (node("Expand", "x h"), [integers("h", HUGE, 2, 3)]),
        "expand-mismatch": (node("Expand", "x h"), [integers("h", 7, 7)]),
        "pad": (node("Pad", "x h"), [integers("h", 0, HUGE, 0, HUGE)]),
        "pad-negative": (node("Pad", "x h"), [integers("h", 0, -HUGE, 0, 0)]),
        "pad-overflow": (node("Pad", "x h"), [integers("h", (1 << 63) - 1, 0, (1 << 63) - 1, 0)]),
        "one-hot": (node("OneHot", "i h v"), [integers("i", 1), scalar("h", HUGE), floats("v", 0, 1)]),
        "one-hot-negative": (node("OneHot", "i h v"), [integers("i", 1), scalar("h", -1), floats("v", 0, 1)]),
        "reshape-huge": (node("Reshape", "x h"), [integers("h", HUGE, 6)]),
        "reshape-minus-2": (node("Reshape", "x h"), [integers("h", -2, 3)]),
        "reshape-two-unknown": (node("Reshape", "x h"), [integers("h", -1, -1)]),
        "reshape-overflow": (node("Reshape", "x h"), [integers("h", 1 << 32, 1 << 32)]),
        "slice-step-0": (node("Slice", "x a b c d"), [integers(n, v) for n, v in zip("abcd", [0, 9, 0, 0])]),
        "slice-extreme": (
            node("Slice", "x a b c d"),
            [integers(n, v) for n, v in zip("abcd", [(1 << 63) - 1, -(1 << 63), 1, -(1 << 63)])],
        ),
        "slice-axis": (node("Slice", "x a b c"), [integers("a", 0), integers("b", 1), integers("c", 99)]),
        "gather-outside": (node("Gather", "x i"), [integers("i", 99, -99, HUGE)]),
        "gather-elements-outside": (node("GatherElements", "x i"), [tensor("i", [1, 1], b"\xff" * 7 + b"\x7f", INT64)]),
        "gather-nd-outside": (node("GatherND", "x i"), [tensor("i", [1, 2], b"\x7f" * 16, INT64)]),
        "gather-nd-rank": (node("GatherND", "x i"), [tensor("i", [1, 9], bytes(72), INT64)]),
        "scatter-outside": (
            node("ScatterElements", "x i u", axis=1),
            [tensor("i", [1, 1], b"\x7f" * 8, INT64), tensor("u", [1, 1], bytes(4))],
        ),
        "scatter-nd-outside": (node("ScatterND", "x i u"), [tensor("i", [1, 2], b"\x7f" * 16, INT64), floats("u", 1)]),
        "top-k-huge": (node("TopK", "x h", "y i"), [huge]),
        "top-k-negative": (node("TopK", "x h", "y i"), [integers("h", -1)]),
        "concat-axis": (node("Concat", "x x", axis=99), []),
        "concat-axis-negative": (node("Concat", "x x", axis=-(1 << 63)), []),
        "split-sizes": (node("Split", "x h", "y z", axis=1), [integers("h", HUGE, -HUGE + 3)]),
        "split-negative": (node("Split", "x h", "y z", axis=1), [integers("h", 4, -1)]),
        "transpose-perm": (node("Transpose", perm=[0, 0]), []),
        "transpose-outside": (node("Transpose", perm=[5, -1]), []),
        "unsqueeze-twice": (node("Unsqueeze", "x h"), [integers("h", 0, 0)]),
        "unsqueeze-many": (node("Unsqueeze", "x h"), [integers("h", *range(2000))]),
        "squeeze-other": (node("Squeeze", "x h"), [integers("h", 1)]),
        "eye-like": (node("EyeLike", "h", k=1 << 62), [huge]),
        "resize": (node("Resize", "x - s"), [floats("s", 1e9, 1e9)]),
        "resize-nan": (node("Resize", "x - s"), [floats("s", float("nan"), -1)]),
        "einsum-equation": (node("Einsum", equation="ij->" + "i" * 1000), []),
        "einsum-nonsense": (node("Einsum", equation=")(..,->->"), []),
        "cum-sum-axis": (node("CumSum", "x h"), [scalar("h", 1 << 62)]),
        "mod-0": (node("Mod", "i h"), [integers("i", 5), integers("h", 0)]),
        "div-0": (node("Div", "i h"), [integers("i", 5), integers("h", 0)]),
        "div-overflow": (node("Div", "i h"), [integers("i", -(1 << 63)), integers("h", -1)]),
        "mod-overflow": (node("Mod", "i h"), [integers("i", -(1 << 63)), integers("h", -1)]),
        "negate-overflow": (node("Neg", "i"), [integers("i", -(1 << 63))]),
        "pow-overflow": (node("Pow", "i h"), [integers("i", 10), integers("h", HUGE)]),
        "pow-negative": (node("Pow", "i h"), [integers("i", 0), integers("h", -1)]),
        "shift": (
            node("BitShift", "i h", direction="LEFT"),
            [tensor("i", [1], b"\1" * 8, 13), tensor("h", [1], b"\x7f" * 8, 13)],
        ),
        "random": (node("RandomNormal", "", shape=[HUGE]), []),
        "reduce-axes": (node("ReduceSum", "x h"), [integers("h", 0, 0, 99)]),
        "arg-max-axis": (node("ArgMax", axis=1 << 62), []),
        "softmax-axis": (node("Softmax", axis=-9), []),
        "flatten-axis": (node("Flatten", axis=1 << 40), []),
        "conv-dilation": (
            node("Conv", "x w", dilations=[1 << 31], strides=[1 << 31], pads=[1 << 31, 1 << 31]),
            [tensor("w", [1, 3, 1], bytes(12))],
        ),
        "conv-pads": (node("Conv", "z w", pads=[HUGE] * 4), [image, kernel]),
        "conv-strides-0": (node("Conv", "z w", strides=[0, 0]), [image, kernel]),
        "conv-group-0": (node("Conv", "z w", group=0), [image, kernel]),
        "conv-transpose": (node("ConvTranspose", "z w", strides=[1 << 20, 1 << 20]), [image, kernel]),
        "pool-0": (node("MaxPool", "z", kernel_shape=[0, 0]), [image]),
        "pool-pads": (node("AveragePool", "z", kernel_shape=[1, 1], pads=[HUGE] * 4), [image]),
        "lstm-hidden": (
            node("LSTM", "x w r", hidden_size=1 << 31),
            [tensor("w", [1, 4, 3], bytes(48)), tensor("r", [1, 4, 1], bytes(16))],
        ),
        "gru-hidden": (
            node("GRU", "z w r", hidden_size=-1),
            [tensor("z", [1, 1, 3], bytes(12)), tensor("w", [1, 3, 3], bytes(36)), tensor("r", [1, 3, 1], bytes(12))],
        ),
        "depth-to-space": (node("DepthToSpace", "z", blocksize=0), [tensor("z", [1, 4, 1, 1], bytes(16))]),
        "depth-to-space-huge": (node("DepthToSpace", "z", blocksize=1 << 31), [tensor("z", [1, 4, 1, 1], bytes(16))]),
        "gemm-shapes": (node("Gemm", "x w"), [tensor("w", [5, 5], bytes(100))]),
        "matmul-shapes": (node("MatMul", "x w"), [tensor("w", [5, 5], bytes(100))]),
        "add-shapes": (node("Add", "x w"), [tensor("w", [5, 5], bytes(100))]),
        "outer-product": (
            node("Mul", "l r"),
            [tensor("l", [1 << 20, 1], bytes(4 << 20)), tensor("r", [1, 1 << 20], bytes(4 << 20))],
        ),
        "where-shapes": (node("Where", "b x x"), [tensor("b", [7], b"\1" * 7, TensorProto.BOOL)]),
        "cast-to-unknown": (node("Cast", to=99), []),
        "tfidf": (
            node(
                "TfIdfVectorizer",
                "i",
                mode="TF",
                min_gram_length=1,
                max_gram_length=1 << 62,
                max_skip_count=1 << 62,
                ngram_counts=[0, HUGE],
                ngram_indexes=[HUGE],
                pool_int64s=[1],
            ),
            [integers("i", 1, 2)],
        ),
    }
    for name, (each, constants) in plain.items():
        yield name, model([each], *constants)


def tables() -> Iterator[File]:
    """Yields files whose operators of `ai.onnx.ml` have attributes that do not fit together."""
    tree: Dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    deep = {
        "nodes_treeids": [0] * 200_001,
        "nodes_nodeids": list(range(200_001)),
        "nodes_featureids": [0] * 200_001,
        "nodes_values": [0.0] * 200_001,
        "nodes_modes": [*["BRANCH_LEQ", "LEAF"] * 100_000, "LEAF"],
        "nodes_truenodeids": [place + 2 if place % 2 == 0 and place < 200_000 else 0 for place in range(200_001)],
        "nodes_falsenodeids": [place + 1 if place % 2 == 0 and place < 200_000 else 0 for place in range(200_001)],
    }
    changes: Dict[str, Dict[str, Any]] = {
        "cycle": {"nodes_truenodeids": [0, 0, 0]},
        "child-outside": {"nodes_truenodeids": [HUGE, 0, 0]},
        "child-negative": {"nodes_falsenodeids": [-1, 0, 0]},
        "same-child": {"nodes_falsenodeids": [1, 0, 0]},
        "same-node-twice": {"nodes_nodeids": [0, 1, 1]},
        "feature-outside": {"nodes_featureids": [HUGE, 0, 0]},
        "feature-negative": {"nodes_featureids": [-3, 0, 0]},
        "feature-beyond-row": {"nodes_featureids": [3, 0, 0]},
        "shorter": {"nodes_values": [0.5]},
        "no-values": {"nodes_values": []},
        "mode": {"nodes_modes": ["BRANCH_WORSE", "LEAF", "LEAF"]},
        "all-leaves": {"nodes_modes": ["LEAF"] * 3},
        "no-leaves": {"nodes_modes": ["BRANCH_LT"] * 3},
        "target-outside": {"target_ids": [0, HUGE]},
        "target-negative": {"target_ids": [0, -1]},
        "targets-huge": {"n_targets": HUGE},
        "targets-negative": {"n_targets": -1},
        "targets-0": {"n_targets": 0},
        "weights-shorter": {"target_weights": [1.0]},
        "leaf-unknown": {"target_nodeids": [1, 77]},
        "leaf-of-another-tree": {"target_treeids": [0, 5]},
        "trees-huge": {"nodes_treeids": [HUGE, HUGE, HUGE], "target_treeids": [HUGE, HUGE]},
        "base-values": {"base_values": [1.0] * 7},
        "aggregate": {"aggregate_function": "WORST"},
        "transform": {"post_transform": "WORST"},
        "nan": {"nodes_values": [float("nan"), 0.0, 0.0], "target_weights": [float("inf"), float("-inf")]},
        "no-nodes": {name: [] for name in tree if name.startswith("nodes_")},
        "deep": deep,
    }
    for name, change in changes.items():
        attributes = {key: value for key, value in {**tree, **change}.items() if value != []}
        yield f"tree-{name}", model([node("TreeEnsembleRegressor", domain=ML, **attributes)])
    svm: Dict[str, Any] = {
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 3.0],
        "n_supports": 1,
        "coefficients": [1.0],
        "support_vectors": [1.0, 2.0, 3.0],
        "rho": [0.1],
    }
    for name, change in {
        "supports-huge": {"n_supports": HUGE},
        "supports-negative": {"n_supports": -1},
        "vectors-short": {"support_vectors": [1.0]},
        "vectors-missing": {"support_vectors": []},
        "coefficients-short": {"coefficients": []},
        "parameters-short": {"kernel_params": [0.5]},
        "kernel": {"kernel_type": "WORST"},
        "rho-missing": {"rho": []},
        "degree": {"kernel_type": "POLY", "kernel_params": [1e30, 1e30, 1e30]},
    }.items():
        attributes = {key: value for key, value in {**svm, **change}.items() if value != []}
        yield f"svm-{name}", model([node("SVMRegressor", domain=ML, **attributes)])
        classes = {"classlabels_ints": [0, 1], "vectors_per_class": [HUGE, -HUGE + 1], "prob_a": [1.0], "prob_b": [0.0]}
        yield f"svc-{name}", model([node("SVMClassifier", "x", "l y", domain=ML, **attributes, **classes)])
    others: List[Tuple[str, onnx.NodeProto]] = [
        ("linear-short", node("LinearRegressor", domain=ML, coefficients=[1.0], targets=3)),
        ("linear-huge", node("LinearRegressor", domain=ML, coefficients=[1.0], targets=HUGE)),
        ("linear-negative", node("LinearRegressor", domain=ML, coefficients=[1.0], targets=-3)),
        (
            "linear-classes",
            node("LinearClassifier", "x", "l y", domain=ML, coefficients=[1.0], classlabels_ints=[0] * 9),
        ),
        (
            "linear-both-labels",
            node(
                "LinearClassifier",
                "x",
                "l y",
                domain=ML,
                coefficients=[1.0] * 3,
                classlabels_ints=[0],
                classlabels_strings=["a"],
            ),
        ),
        ("scaler-short", node("Scaler", domain=ML, offset=[1.0, 2.0], scale=[1.0] * 5)),
        ("normalizer", node("Normalizer", domain=ML, norm="L99")),
        ("imputer-short", node("Imputer", domain=ML, imputed_value_floats=[1.0, 2.0])),
        ("imputer-none", node("Imputer", domain=ML)),
        ("extractor-outside", node("ArrayFeatureExtractor", "x i", domain=ML)),
        ("one-hot-encoder-none", node("OneHotEncoder", domain=ML)),
        ("label-encoder-lengths", node("LabelEncoder", domain=ML, keys_floats=[1.0], values_floats=[1.0, 2.0])),
        (
            "label-encoder-nan",
            node("LabelEncoder", domain=ML, keys_floats=[float("nan")] * 1000, values_floats=[1.0] * 1000),
        ),
        ("category-mapper", node("CategoryMapper", domain=ML, cats_int64s=[1], cats_strings=["a", "b"])),
        ("vectorizer-lengths", node("FeatureVectorizer", "x x", domain=ML, inputdimensions=[HUGE, -1])),
        ("zipmap-none", node("ZipMap", domain=ML)),
        ("zipmap-lengths", node("ZipMap", domain=ML, classlabels_int64s=list(range(100_000)))),
        ("tree-ensemble-empty", node("TreeEnsemble", domain=ML)),
        ("binarizer-type", node("Binarizer", domain=ML, threshold="x")),
    ]
    for name, each in others:
        yield name, model([each], integers("i", HUGE, -1))
    self_made = node("Relu")
    self_made.attribute.append(AttributeProto(name="a" * 5000, type=AttributeProto.INT))
    yield "long-attribute", model([self_made])
    repeated = node("Relu")
    repeated.attribute.extend(AttributeProto(name="a", type=AttributeProto.INT, i=i) for i in range(10_000))
    yield "many-attributes", model([repeated])


GROUPS: List[Callable[[], Iterator[File]]] = [damaged, tensors, graphs, sizes, tables]


def files() -> Dict[str, bytes]:
    """Returns all files by name."""
    found = [each for group in GROUPS for each in group()]
    assert len(found) == len(dict(found)), "two files have the same name"
    return dict(found)
