"""The tests of operators that the package `onnx` brings, and each operator with each type of numbers."""

import warnings

import numpy as np
import onnx
from casefile import DATATYPES, one_node, rng_for

#: Tensors of more bytes are left out, to keep the file small.
LARGEST = 6000
FLOATS = [np.float32, np.float16]
INTEGERS = [np.int32, np.int64]
QUANTIZED = [np.int8, np.uint8]
#: The operators whose inputs are some tensors of one type.
UNARY = {
    **dict.fromkeys(["Abs", "Neg"], FLOATS + INTEGERS),
    "Sign": INTEGERS,
    **dict.fromkeys(
        """Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Reciprocal Relu Round Sigmoid Sin Softplus Softsign Tan
        Tanh Atan Asinh Sinh Cosh LogSoftmax Softmax GlobalAveragePool GlobalMaxPool IsNaN""".split(),
        FLOATS,
    ),
    "Identity": [*FLOATS, *INTEGERS, *QUANTIZED, np.bool_],
    **dict.fromkeys(["Flatten", "Transpose", "Shape", "Size"], [*FLOATS, *INTEGERS, *QUANTIZED, np.bool_]),
    **dict.fromkeys(["ReduceMax", "ReduceMin", "ArgMax", "ArgMin"], FLOATS + INTEGERS),
    **dict.fromkeys(["ReduceSum", "ReduceL1", "ReduceSumSquare"], [np.float32, np.int32]),
    **dict.fromkeys(["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"], [np.float32]),
    "Not": [np.bool_],
    "NonZero": [np.float32, *INTEGERS, np.bool_],
    "Trilu": [np.float32, *INTEGERS],
}
BINARY = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Max", "Min"], FLOATS + INTEGERS),
    **dict.fromkeys(["Greater", "GreaterOrEqual", "Less", "LessOrEqual"], FLOATS + INTEGERS),
    "Equal": [*FLOATS, *INTEGERS, np.bool_],
    **dict.fromkeys(["And", "Or", "Xor"], [np.bool_]),
    **dict.fromkeys(["Pow", "MatMul", "PRelu", "Mean", "Sum"], [np.float32]),
    "Mod": INTEGERS,
    "Concat": [*FLOATS, *INTEGERS, np.bool_],
}
ATTRIBUTES = {"Concat": {"axis": 1}}


def numbers(name, element, shape):
    """Returns random numbers: small integers, both signs, and for types of floating point also fractions and ties."""
    rng = rng_for(name)
    if element is np.bool_:
        return rng.rand(*shape) < 0.5
    values = rng.randint(-9, 10, shape)
    values[values == 0] = 3
    if element in FLOATS:
        return (values / 4).astype(element)
    return np.abs(values).astype(element) if element is np.uint8 else values.astype(element)


def backend_cases(cases):
    """Adds the tests of the package whose operators and types networks may have."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        operators = {node.op_type for node in case.model.graph.node}
        if len(operators) != 1 or not case.model.graph.input or case.model.graph.node[0].domain:
            continue
        inputs, outputs = case.data_sets[0]
        arrays = [onnx.numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in (*inputs, *outputs)]
        is_carried = all(isinstance(a, (np.ndarray, np.generic)) and a.dtype in DATATYPES for a in arrays)
        if not is_carried or sum(array.nbytes for array in arrays) > LARGEST:
            continue
        if any(array.dtype in (np.float64, np.int16) for array in arrays):
            continue
        for opset in case.model.opset_import:
            opset.version = min(opset.version, 25)
        name = case.name.removeprefix("test_")
        steps = 1 if operators == {"DynamicQuantizeLinear"} else 0
        cases.add(f"{operators.pop()}-{name}", case.model.SerializeToString(), arrays[: len(inputs)], 1e-4, steps)


def typed_cases(cases):
    """Adds each operator with each of its types."""
    for operator, elements in UNARY.items():
        for element in elements:
            name = f"{operator}-of-{np.dtype(element).name}"
            shape = (5, 5) if operator == "Trilu" else (2, 3, 4)
            tolerance = 1e-2 if element is np.float16 else 1e-4
            cases.add(name, one_node(operator, [numbers(name, element, shape)], domain=""), [numbers(name, element, shape)], tolerance)
    for operator, elements in BINARY.items():
        for element in elements:
            name = f"{operator}-of-{np.dtype(element).name}"
            shapes = [(3, 4), (4, 3)] if operator == "MatMul" else [(3, 4), (3, 4) if operator == "Concat" else (4,)]
            inputs = [numbers(f"{name}-{index}", element, shape) for index, shape in enumerate(shapes)]
            if operator == "Pow":
                inputs[0] = np.abs(inputs[0])
            model = one_node(operator, inputs, domain="", **ATTRIBUTES.get(operator, {}))
            cases.add(name, model, inputs, 1e-2 if element is np.float16 else 1e-4)


def shaped_cases(cases):
    """Adds operators whose other inputs are positions and sizes, with each type of numbers."""
    list_of = lambda *values: np.array(values, np.int64)  # noqa: E731
    everything = [*FLOATS, *INTEGERS, *QUANTIZED, np.bool_]
    table = [
        ("Reshape", everything, [list_of(4, -1)], {}),
        ("Squeeze", everything, [list_of(0)], {}),
        ("Unsqueeze", everything, [list_of(0, 2)], {}),
        ("Slice", everything, [list_of(1), list_of(2**62), list_of(2)], {}),
        ("Gather", everything, [np.array([[0, -1], [1, 2]], np.int32)], {"axis": 2}),
        ("Gather", everything, [np.array([[0, -1], [1, 2]], np.int64)], {"axis": 2}),
        ("Expand", [*FLOATS, *INTEGERS, np.bool_], [list_of(2, 1, 1, 1)], {}),
        ("Tile", [np.float32, *INTEGERS], [list_of(1, 2, 2)], {}),
        ("Pad", [np.float32, *INTEGERS], [list_of(0, 1, 0, 1, 0, 2)], {}),
        ("Split", [np.float32, *INTEGERS], [list_of(1, 3)], {"axis": 2}),
        ("GatherElements", [np.float32, *INTEGERS], [np.zeros((1, 2, 4), np.int64)], {"axis": 1}),
        ("GatherND", [np.float32, *INTEGERS], [np.array([[0, 1], [0, 0]], np.int64)], {}),
        ("TopK", [np.float32, *INTEGERS], [list_of(2)], {"axis": -1}),
        ("CumSum", [np.float32, np.int32], [np.array(1, np.int64)], {}),
        ("ReduceSum", [np.float32, np.int32], [list_of(1)], {"keepdims": 0}),
        ("ReduceMax", [np.float32, *INTEGERS], [list_of(1)], {"keepdims": 0}),
        ("ReduceProd", [np.float32, np.int32], [list_of(1)], {"keepdims": 0}),
        ("ReduceMean", [np.float32], [list_of(-1)], {}),
    ]
    for operator, elements, others, attributes in table:
        for element in elements:
            for index, is_constant in enumerate((True, False)):
                name = f"{operator}-with-{np.dtype(element).name}-{others[0].dtype.name}-{index}"
                if not is_constant:
                    # Only constants may be outside of INT32.
                    others = [np.minimum(other, 2**20) for other in others]
                data = numbers(name, element, (1, 3, 4))
                inputs = [data] if is_constant else [data, *others]
                constants = [onnx.numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(others)] if is_constant else []
                outputs = 2 if operator in ("Split", "TopK") else 1
                model = one_node(operator, inputs, outputs, domain="", constants=constants, **attributes)
                cases.add(name, model, inputs, 1e-2 if element is np.float16 else 1e-4)
    for element in [*FLOATS, *INTEGERS, np.bool_]:
        name = f"Where-of-{np.dtype(element).name}"
        inputs = [numbers(name, np.bool_, (3, 4)), *(numbers(f"{name}-{i}", element, (3, 4)) for i in range(2))]
        cases.add(name, one_node("Where", inputs, domain=""), inputs)
    for element in [np.float32, *INTEGERS]:
        name = f"Clip-of-{np.dtype(element).name}"
        inputs = [numbers(name, element, (3, 4)), np.array(-2, element), np.array(1, element)]
        cases.add(name, one_node("Clip", inputs, domain=""), inputs)
        name = f"OneHot-of-{np.dtype(element).name}"
        inputs = [np.array([0, 2, -1, 7], np.int64), np.array([3], np.int64), np.array([2, 5], element)]
        cases.add(name, one_node("OneHot", inputs, domain=""), inputs)
        name = f"Range-of-{np.dtype(element).name}"
        inputs = [np.array(1, element), np.array(9, element), np.array(3, element)]
        cases.add(name, one_node("Range", inputs, domain=""), inputs)
        for operator, indices in (("ScatterElements", np.array([[0, 2]])), ("ScatterND", np.array([[1], [0]]))):
            name = f"{operator}-of-{np.dtype(element).name}"
            updates = numbers(f"{name}-u", element, (1, 2) if operator == "ScatterElements" else (2, 4))
            inputs = [numbers(name, element, (3, 4)), indices, updates]
            cases.add(name, one_node(operator, inputs, domain=""), inputs)


def cast_cases(cases):
    """Adds conversions between all types."""
    everything = [*FLOATS, *INTEGERS, *QUANTIZED, np.bool_]
    for of in everything:
        for to in everything:
            name = f"Cast-of-{np.dtype(of).name}-to-{np.dtype(to).name}"
            data = numbers(name, of, (3, 4))
            if of in FLOATS:
                data.ravel()[:4] = [0.5, -0.25, 0, 1.75]
                if to is np.uint8:
                    data = np.abs(data)
            elif of is not np.bool_:
                data.ravel()[0] = 0
            number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to))
            cases.add(name, one_node("Cast", [data], domain="", to=number), [data])
    data = np.array([[np.nan, np.inf, -np.inf, 0]], np.float32)
    cases.add("Cast-of-nan", one_node("Cast", [data], domain="", to=onnx.TensorProto.BOOL), [data])
    data = numbers("Softmax-old", np.float32, (2, 3, 4))
    for operator in ("Softmax", "LogSoftmax"):
        for axis in (0, 1, 2):
            model = one_node(operator, [data], domain="", opset=11, axis=axis)
            cases.add(f"{operator}-old-{axis}", model, [data], 1e-5)


def layer_cases(cases):
    """Adds convolutions and pools with their attributes."""
    rng = rng_for("layers")
    weights = lambda *shape: (rng.randint(-8, 9, shape) / 16).astype(np.float32)  # noqa: E731
    image, line = weights(2, 4, 9, 8), weights(1, 4, 11)
    conv = [
        ({}, weights(3, 4, 3, 3), None, image),
        ({"pads": [1, 0, 2, 1]}, weights(3, 4, 3, 3), weights(3), image),
        ({"strides": [2, 3], "dilations": [2, 1]}, weights(3, 4, 3, 2), weights(3), image),
        ({"group": 4, "pads": [1, 1, 1, 1]}, weights(4, 1, 3, 3), weights(4), image),
        ({"group": 2, "strides": [2, 2]}, weights(6, 2, 3, 3), None, image),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, weights(3, 4, 3, 3), None, image),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, weights(3, 4, 2, 2), None, image),
        ({"auto_pad": "VALID"}, weights(3, 4, 3, 3), None, image),
        ({"pads": [2, 1], "strides": [2]}, weights(3, 4, 3), weights(3), line),
        ({"group": 4, "dilations": [2]}, weights(4, 1, 3), None, line),
        ({}, weights(3, 4, 1, 1), weights(3), image),
    ]
    for index, (attributes, kernel, bias, data) in enumerate(conv):
        constants = [onnx.numpy_helper.from_array(a, f"w{i}") for i, a in enumerate((kernel, bias)) if a is not None]
        for has_shape in (True, False):
            more = {"kernel_shape": kernel.shape[2:]} if has_shape else {}
            model = one_node("Conv", [data], domain="", constants=constants, **attributes, **more)
            cases.add(f"Conv-{index}-{has_shape}", model, [data], 1e-5)
    transposed = [
        ({}, (4, 3, 3, 3), True, image),
        ({"strides": [2, 2]}, (4, 3, 2, 2), True, image),
        ({"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, (4, 3, 3, 3), False, image),
        ({"strides": [3, 2], "pads": [0, 1, 1, 0]}, (4, 3, 3, 3), False, image),
        ({"group": 2, "strides": [2, 2]}, (4, 3, 2, 2), False, image),
        ({"dilations": [2, 2]}, (4, 3, 2, 2), False, image),
        ({"strides": [2]}, (4, 3, 3), True, line),
    ]
    for index, (attributes, shape, has_bias, data) in enumerate(transposed):
        bias = [weights(shape[1] * attributes.get("group", 1))] if has_bias else []
        constants = [onnx.numpy_helper.from_array(a, f"w{i}") for i, a in enumerate([weights(*shape), *bias])]
        model = one_node("ConvTranspose", [data], domain="", constants=constants, **attributes)
        cases.add(f"ConvTranspose-{index}", model, [data], 1e-5)
    pools = [
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ]
    for index, attributes in enumerate(pools):
        for operator in ("MaxPool", "AveragePool"):
            if operator == "MaxPool" and "count_include_pad" in attributes:
                continue
            cases.add(f"{operator}-{index}", one_node(operator, [image], domain="", **attributes), [image], 1e-5)
    cases.add("MaxPool-line", one_node("MaxPool", [line], domain="", kernel_shape=[2], strides=[2]), [line])
    for mode in ("nearest", "linear"):
        for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for index, scales in enumerate(([1, 1, 2, 2], [1, 1, 0.6, 1.5])):
                for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
                    if mode == "linear" and nearest != "floor":
                        continue
                    small = image[:1, :1, :5, :4]
                    constants = [
                        onnx.numpy_helper.from_array(np.array([], np.float32), "roi"),
                        onnx.numpy_helper.from_array(np.array(scales, np.float32), "scales"),
                    ]
                    model = one_node(
                        "Resize",
                        [small],
                        domain="",
                        constants=constants,
                        mode=mode,
                        coordinate_transformation_mode=coordinates,
                        nearest_mode=nearest,
                    )
                    cases.add(f"Resize-{mode}-{coordinates}-{nearest}-{index}", model, [small], 1e-5)


def recurrent_cases(cases):
    """Adds LSTM and GRU in both directions."""
    rng = rng_for("recurrent")
    weights = lambda *shape: (rng.randint(-8, 9, shape) / 16).astype(np.float32)  # noqa: E731
    data = weights(5, 2, 3)
    for operator, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1)):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            arrays = [weights(count, gates * 4, 3), weights(count, gates * 4, 4), weights(count, gates * 8)]
            constants = [onnx.numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays)]
            more = [{"linear_before_reset": 1}, {"linear_before_reset": 0}] if operator == "GRU" else [{}]
            for index, attributes in enumerate(more):
                attributes = {**attributes, "direction": direction, "hidden_size": 4}
                model = one_node(operator, [data], states + 1, domain="", constants=constants, **attributes)
                cases.add(f"{operator}-{direction}-{index}", model, [data], 1e-5)


def quantized_cases(cases):
    """Adds the operators of quantized networks."""
    rng = rng_for("quantized")
    for a_type in QUANTIZED:
        for b_type in QUANTIZED:
            a = rng.randint(np.iinfo(a_type).min, np.iinfo(a_type).max, (5, 7)).astype(a_type)
            # Without VNNI, onnxruntime is only exact for INT8 weights of 7 bits.
            low, high = (-64, 65) if b_type is np.int8 else (0, 256)
            b = rng.randint(low, high, (7, 6)).astype(b_type)
            zeros = [np.array(3, a_type), np.array(5, b_type)]
            columns = [np.array(3, a_type), rng.randint(0, 9, 6).astype(b_type)]
            for index, points in enumerate(([], zeros[:1], zeros, columns)):
                for rows in (1, 5):
                    name = f"MatMulInteger-{np.dtype(a_type).name}-{np.dtype(b_type).name}-{index}-{rows}"
                    constants = [onnx.numpy_helper.from_array(each, f"c{i}") for i, each in enumerate([b, *points])]
                    data = a[:rows]
                    model = one_node("MatMulInteger", [data], domain="", constants=constants)
                    cases.add(name, model, [data])
    image = rng.randint(0, 255, (1, 3, 7, 6)).astype(np.uint8)
    for w_type in QUANTIZED:
        kernel = rng.randint(np.iinfo(w_type).min, np.iinfo(w_type).max, (4, 3, 3, 3)).astype(w_type)
        for index, points in enumerate(([], [np.array(3, np.uint8), np.array(5, w_type)], [np.array(3, np.uint8)])):
            constants = [onnx.numpy_helper.from_array(a, f"w{i}") for i, a in enumerate((kernel, *points))]
            for pads in ([0, 0, 0, 0], [1, 1, 1, 1]):
                model = one_node("ConvInteger", [image], domain="", constants=constants, pads=pads, kernel_shape=[3, 3])
                cases.add(f"ConvInteger-{np.dtype(w_type).name}-{index}-{pads[0]}", model, [image])
    data = (rng.randn(4, 5) * 3).astype(np.float32)
    cases.add("DynamicQuantizeLinear-0", one_node("DynamicQuantizeLinear", [data], 3, domain=""), [data], steps=1)
    for element in QUANTIZED:
        for index, scale in enumerate((np.array(0.1, np.float32), np.array([0.1, 0.2, 0.05, 0.3, 0.1], np.float32))):
            point = (np.zeros(scale.shape) + 3).astype(element)
            name = f"{np.dtype(element).name}-{index}"
            inputs = [data, scale, point]
            cases.add(f"QuantizeLinear-{name}", one_node("QuantizeLinear", inputs, domain=""), inputs)
            inputs = [rng.randint(0, 100, (4, 5)).astype(element), scale, point]
            cases.add(f"DequantizeLinear-{name}", one_node("DequantizeLinear", inputs, domain=""), inputs)


def add_cases(cases):
    """Adds all cases."""
    backend_cases(cases)
    typed_cases(cases)
    shaped_cases(cases)
    cast_cases(cases)
    layer_cases(cases)
    recurrent_cases(cases)
    quantized_cases(cases)
