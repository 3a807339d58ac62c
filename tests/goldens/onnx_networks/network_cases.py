"""Networks with few channels: of vision, of sequences, encoders, and their quantized forms, with dynamic batch and length."""

import numpy as np
from casefile import rng_for
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Builder:
    """A graph that is built node by node. Weights are multiples of 1/32, so that they compress well."""

    def __init__(self, name, opset=17):
        self.name, self.opset = name, opset
        self.rng = rng_for(name)
        self.nodes, self.constants = [], []

    def constant(self, array):
        """Adds a constant, and returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def list(self, *values):
        """Adds a list of sizes or positions."""
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape):
        """Adds random weights, smaller if there are more for an output."""
        scale = 32 * max(1, int(np.sqrt(np.prod(shape[1:] or shape) / 4)))
        return self.constant((self.rng.randint(-16, 17, shape) / scale).astype(np.float32))

    def positive(self, *shape):
        """Adds random positive weights."""
        return self.constant((self.rng.randint(8, 33, shape) / 32).astype(np.float32))

    def add(self, operator, *inputs, outputs=1, **attributes):
        """Adds a node, and returns the names of its outputs."""
        names = [f"n{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, inputs, outputs):
        """Returns the bytes of the model. Inputs and outputs are (name, type, dimensions), outputs with the name of a value."""
        for name, value, *_ in outputs:
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info(name, element, shape) for name, _, element, shape in outputs],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return model.SerializeToString()

    def unsqueeze(self, x, *axes):
        """Adds dimensions. The axes became an input in opset 13."""
        if self.opset < 13:
            return self.add("Unsqueeze", x, axes=axes)
        return self.add("Unsqueeze", x, self.list(*axes))

    # Layers.

    def dense(self, x, size_in, size_out):
        """Returns a dense layer, as PyTorch's exporter writes it."""
        return self.add("Gemm", x, self.weight(size_out, size_in), self.weight(size_out), transB=1)

    def conv(self, x, channels_in, channels_out, kernel=3, relu=True, **attributes):
        """Returns a convolution with a batch normalization."""
        group = attributes.get("group", 1)
        attributes.setdefault("pads", [kernel // 2] * 4)
        weight = self.weight(channels_out, channels_in // group, kernel, kernel)
        x = self.add("Conv", x, weight, kernel_shape=[kernel] * 2, **attributes)
        statistics = [self.positive(channels_out), self.weight(channels_out), self.weight(channels_out)]
        x = self.add("BatchNormalization", x, *statistics, self.positive(channels_out), epsilon=1e-5)
        return self.add("Relu", x) if relu else x

    def residual(self, x, channels_in, channels_out, stride):
        """Returns a block of a ResNet."""
        y = self.conv(x, channels_in, channels_out, strides=[stride] * 2)
        y = self.conv(y, channels_out, channels_out, relu=False)
        if stride > 1 or channels_in != channels_out:
            x = self.conv(x, channels_in, channels_out, 1, relu=False, strides=[stride] * 2)
        return self.add("Relu", self.add("Add", x, y))

    def matrix(self, x, size_in, size_out):
        """Returns a product with weights and a bias, as in encoders."""
        return self.add("Add", self.add("MatMul", x, self.weight(size_in, size_out)), self.weight(size_out))

    def layer_norm(self, x, size, is_one_node):
        """Returns a layer normalization, as one node or as exporters wrote it before opset 17."""
        scale, bias = self.positive(size), self.weight(size)
        if is_one_node:
            return self.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
        centered = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        two = self.constant(np.array(2, np.float32))
        variance = self.add("ReduceMean", self.add("Pow", centered, two), axes=[-1])
        deviation = self.add("Sqrt", self.add("Add", variance, self.constant(np.array(1e-5, np.float32))))
        return self.add("Add", self.add("Mul", self.add("Div", centered, deviation), scale), bias)

    def gelu(self, x):
        """Returns the GELU by its error function."""
        half, one, root = (self.constant(np.array(value, np.float32)) for value in (0.5, 1, np.sqrt(2)))
        erf = self.add("Erf", self.add("Div", x, root))
        return self.add("Mul", self.add("Mul", x, self.add("Add", erf, one)), half)

    def heads(self, x, count, size, is_key):
        """Splits the last dimension into heads; the lengths are computed, as exporters write them."""
        shape = self.add("Shape", x)
        sizes = [self.unsqueeze(self.add("Gather", shape, self.constant(np.array(i))), 0) for i in (0, 1)]
        sizes = self.add("Concat", *sizes, self.list(count), self.list(size), axis=0)
        return self.add("Transpose", self.add("Reshape", x, sizes), perm=[0, 2, 3, 1] if is_key else [0, 2, 1, 3])

    def attention(self, x, mask, size, count):
        """Returns self-attention with a mask."""
        query, key, value = (self.heads(self.matrix(x, size, size), count, size // count, i == 1) for i in range(3))
        scores = self.add("MatMul", query, key)
        scores = self.add("Div", scores, self.constant(np.array(np.sqrt(size // count), np.float32)))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        merged = self.add("Transpose", self.add("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.matrix(self.add("Reshape", merged, self.list(0, 0, size)), size, size)


def images(name, *shape):
    """Returns random images."""
    return (rng_for(name).randint(-64, 65, shape) / 64).astype(np.float32)


def signals(name, *shape):
    """Returns random numbers that lie on no boundary of a quantization."""
    return rng_for(name).randn(*shape).astype(np.float32)


def mlp(cases):
    """Adds a multilayer perceptron."""
    build = Builder("mlp")
    x = "x"
    for size_in, size_out in ((20, 32), (32, 16)):
        x = build.add("Relu", build.dense(x, size_in, size_out))
    scores = build.add("Softmax", build.dense(build.add("Dropout", x), 16, 3), axis=1)
    labels = build.add("ArgMax", scores, axis=1, keepdims=0)
    outputs = [("label", labels, INT64, ["n"]), ("scores", scores, FLOAT, ["n", 3])]
    model = build.model([("x", FLOAT, ["n", 20])], outputs)
    for rows in (1, 7):
        cases.add(f"mlp-{rows}", model, [images(f"mlp-{rows}", rows, 20)], 1e-4)


def embeddings(cases):
    """Adds a network of tables: categories are numbers among the features, with an offset for each."""
    build = Builder("categories")
    ids = build.add("Add", "ids", build.list(0, 5, 12))
    embedded = build.add("Flatten", build.add("Gather", build.weight(20, 4), ids), axis=1)
    column = build.add("Cast", build.add("Gather", "x", build.constant(np.array(0)), axis=1), to=INT64)
    other = build.add("Gather", build.weight(6, 4), column)
    x = build.add("Concat", embedded, other, "x", axis=1)
    score = build.add("Sigmoid", build.dense(build.add("Relu", build.dense(x, 12 + 4 + 3, 8)), 8, 1))
    model = build.model([("ids", INT64, ["n", 3]), ("x", FLOAT, ["n", 3])], [("score", score, FLOAT, ["n", 1])])
    rng = rng_for("categories")
    for rows in (1, 5):
        ids = np.stack([rng.randint(0, 5, rows), rng.randint(0, 7, rows), rng.randint(0, 8, rows)], 1)
        x = images(f"categories-{rows}", rows, 3)
        x[:, 0] = rng.randint(0, 6, rows)
        cases.add(f"categories-{rows}", model, [ids, x], 1e-4)


def resnet(cases):
    """Adds the shape of a ResNet-18."""
    build = Builder("resnet")
    x = build.conv("x", 3, 4, 7, strides=[2, 2])
    x = build.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for size_in, size_out, stride in ((4, 4, 1), (4, 4, 1), (4, 6, 2), (6, 6, 1), (6, 8, 2), (8, 8, 1), (8, 12, 2), (12, 12, 1)):
        x = build.residual(x, size_in, size_out, stride)
    x = build.dense(build.add("Flatten", build.add("GlobalAveragePool", x), axis=1), 12, 10)
    model = build.model([("x", FLOAT, ["n", 3, "h", "w"])], [("y", x, FLOAT, ["n", 10])])
    for index, shape in enumerate(((1, 3, 32, 32), (3, 3, 40, 33))):
        cases.add(f"resnet-{index}", model, [images(f"resnet-{index}", *shape)], 1e-4)


def mobilenet(cases):
    """Adds blocks of a MobileNet: depthwise convolutions, squeeze and excitation."""
    build = Builder("mobilenet")
    x = build.conv("x", 3, 8, strides=[2, 2], relu=False)
    x = build.add("Clip", x, build.constant(np.array(0, np.float32)), build.constant(np.array(6, np.float32)))
    for stride in (1, 2):
        y = build.add("HardSwish", build.conv(x, 8, 16, 1, relu=False))
        y = build.conv(y, 16, 16, 3, relu=False, group=16, strides=[stride] * 2)
        squeezed = build.add("ReduceMean", y, axes=[2, 3])
        squeezed = build.add("Relu", build.add("Conv", squeezed, build.weight(4, 16, 1, 1), build.weight(4)))
        scale = build.add("HardSigmoid", build.add("Conv", squeezed, build.weight(16, 4, 1, 1)), alpha=1 / 6)
        y = build.conv(build.add("Mul", y, scale), 16, 8, 1, relu=False)
        x = build.add("Add", x, y) if stride == 1 else y
    x = build.add("Reshape", build.add("GlobalAveragePool", x), build.list(0, -1))
    model = build.model([("x", FLOAT, ["n", 3, "h", "w"])], [("y", build.dense(x, 8, 5), FLOAT, ["n", 5])])
    for index, shape in enumerate(((1, 3, 24, 24), (2, 3, 17, 20))):
        cases.add(f"mobilenet-{index}", model, [images(f"mobilenet-{index}", *shape)], 1e-4)


def unet(cases):
    """Adds a U-Net, with transposed convolutions or with resizing."""
    for is_resized in (False, True):
        build = Builder(f"unet-{is_resized}")
        first = build.conv("x", 1, 4)
        second = build.conv(build.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 4, 8)
        if is_resized:
            scales = build.constant(np.array([1, 1, 2, 2], np.float32))
            up = build.add("Resize", second, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
            up = build.conv(up, 8, 4, 1)
        else:
            weight = build.weight(8, 4, 2, 2)
            up = build.add("ConvTranspose", second, weight, build.weight(4), kernel_shape=[2, 2], strides=[2, 2])
        x = build.conv(build.add("Concat", up, first, axis=1), 8, 4)
        x = build.add("Sigmoid", build.add("Conv", x, build.weight(1, 4, 1, 1), kernel_shape=[1, 1]))
        model = build.model([("x", FLOAT, ["n", 1, "h", "w"])], [("y", x, FLOAT, ["n", 1, "h", "w"])])
        for index, shape in enumerate(((1, 1, 16, 16), (2, 1, 8, 12))):
            name = f"unet-{is_resized}-{index}"
            cases.add(name, model, [images(name, *shape)], 1e-4)


def recurrent(cases):
    """Adds a classifier of sequences with an LSTM or a GRU, in both directions."""
    for operator, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1)):
        build = Builder(operator.lower())
        size = 6
        x = build.add("Transpose", build.add("Gather", build.weight(30, 5), "tokens"), perm=[1, 0, 2])
        rows = build.add("Gather", build.add("Shape", x), build.list(1))
        initial = build.add("ConstantOfShape", build.add("Concat", build.list(2), rows, build.list(size), axis=0))
        weights = [build.weight(2, gates * size, 5), build.weight(2, gates * size, size), build.weight(2, 2 * gates * size)]
        more = {"linear_before_reset": 1} if operator == "GRU" else {}
        arguments = [x, *weights, "", *[initial] * states]
        y, *_ = build.add(operator, *arguments, outputs=states + 1, hidden_size=size, direction="bidirectional", **more)
        y = build.add("Transpose", y, perm=[2, 0, 1, 3])
        y = build.add("Reshape", y, build.list(0, 0, -1))
        y = build.add("ReduceMax", y, axes=[1], keepdims=0)
        scores = build.add("LogSoftmax", build.dense(y, 2 * size, 3), axis=1)
        model = build.model([("tokens", INT64, ["n", "length"])], [("scores", scores, FLOAT, ["n", 3])])
        for index, shape in enumerate(((1, 4), (3, 9))):
            name = f"{operator.lower()}-{index}"
            cases.add(name, model, [rng_for(name).randint(0, 30, shape)], 1e-4)


def encoder(cases):
    """Adds an encoder of tokens: BERT, as exporters of several opsets write it, and positions computed as by RoBERTa."""
    size, count, tokens, length = 16, 4, 40, 24
    for opset, is_one_node in ((11, False), (14, False), (17, True)):
        build = Builder(f"encoder-{opset}", opset)
        used = build.add("Not", build.add("Equal", "ids", build.constant(np.array(1))))
        used = build.add("Cast", used, to=TensorProto.INT32)
        positions = build.add("Mul", build.add("CumSum", used, build.constant(np.array(1))), used)
        positions = build.add("Add", build.add("Cast", positions, to=INT64), build.constant(np.array(1)))
        x = build.add("Gather", build.weight(tokens, size), "ids")
        x = build.add("Add", x, build.add("Gather", build.weight(length, size), positions))
        x = build.layer_norm(x, size, is_one_node)
        mask = build.unsqueeze("mask", 1, 2)
        mask = build.add("Cast", mask, to=FLOAT)
        mask = build.add("Sub", build.constant(np.array(1, np.float32)), mask)
        mask = build.add("Mul", mask, build.constant(np.array(-10000, np.float32)))
        for _ in range(2):
            x = build.layer_norm(build.add("Add", x, build.attention(x, mask, size, count)), size, is_one_node)
            inner = build.gelu(build.matrix(x, size, 2 * size))
            x = build.layer_norm(build.add("Add", x, build.matrix(inner, 2 * size, size)), size, is_one_node)
        pooled = build.add("Gather", x, build.constant(np.array(0)), axis=1)
        pooled = build.add("Tanh", build.dense(pooled, size, size))
        outputs = [("states", x, FLOAT, ["n", "length", size]), ("pooled", pooled, FLOAT, ["n", size])]
        model = build.model([("ids", INT64, ["n", "length"]), ("mask", INT64, ["n", "length"])], outputs)
        for index, (rows, columns) in enumerate(((1, 5), (3, 12))):
            rng = rng_for(f"encoder-{index}")
            ids = rng.randint(2, tokens, (rows, columns))
            mask = np.ones_like(ids)
            if rows > 1:
                ids[1, 7:], mask[1, 7:] = 1, 0
            cases.add(f"encoder-{opset}-{index}", model, [ids, mask], 1e-4)


def quantized(cases):
    """Adds dynamically quantized layers, as onnxruntime's tool writes them."""
    build = Builder("dynamic-int8")
    x = build.add("Relu", dynamic_matrix(build, "x", 16, 24))
    y = dynamic_matrix(build, x, 24, 4)
    model = build.model([("x", FLOAT, ["n", 16])], [("y", y, FLOAT, ["n", 4])])
    for rows in (1, 6):
        name = f"int8_matrix-{rows}"
        cases.add(name, model, [signals(name, rows, 16)], 1e-4)
    build = Builder("dynamic-int8-conv")
    values, scale, zero = build.add("DynamicQuantizeLinear", "x", outputs=3)
    weight = build.constant(build.rng.randint(0, 255, (6, 3, 3, 3)).astype(np.uint8))
    sums = build.add("ConvInteger", values, weight, zero, build.constant(np.array(128, np.uint8)), kernel_shape=[3, 3], pads=[1] * 4)
    scale = build.add("Mul", scale, build.constant(np.array(1 / 256, np.float32)))
    y = build.add("Relu", build.add("Mul", build.add("Cast", sums, to=FLOAT), scale))
    model = build.model([("x", FLOAT, ["n", 3, "h", "w"])], [("y", y, FLOAT, ["n", 6, "h", "w"])])
    for index, shape in enumerate(((1, 3, 8, 8), (2, 3, 7, 9))):
        name = f"int8_conv-{index}"
        cases.add(name, model, [signals(name, *shape)], 1e-4)
    build = Builder("static-int8")
    point = [build.constant(np.array(1 / 64, np.float32)), build.constant(np.array(0, np.int8))]
    x = build.add("DequantizeLinear", build.add("QuantizeLinear", "x", *point), *point)
    weight = build.constant(build.rng.randint(-64, 65, (16, 5)).astype(np.int8))
    scales = build.constant((build.rng.randint(1, 9, 5) / 1024).astype(np.float32))
    weight = build.add("DequantizeLinear", weight, scales, build.constant(np.zeros(5, np.int8)), axis=1)
    y = build.add("MatMul", x, weight)
    model = build.model([("x", FLOAT, ["n", 16])], [("y", y, FLOAT, ["n", 5])])
    cases.add("int8_static-0", model, [signals("int8_static", 3, 16)], 1e-4)


def dynamic_matrix(build, x, size_in, size_out):
    """Returns a dynamically quantized dense layer."""
    values, scale, zero = build.add("DynamicQuantizeLinear", x, outputs=3)
    # 7 bits: with more, onnxruntime is not exact without VNNI.
    weight = build.constant(build.rng.randint(-64, 65, (size_in, size_out)).astype(np.int8))
    sums = build.add("MatMulInteger", values, weight, zero, build.constant(np.array(0, np.int8)))
    scale = build.add("Mul", scale, build.constant(np.array(1 / 512, np.float32)))
    return build.add("Add", build.add("Mul", build.add("Cast", sums, to=FLOAT), scale), build.weight(size_out))


def half(cases):
    """Adds a network of FP16, with inputs and outputs of FP32."""
    build = Builder("fp16")
    half = lambda *shape: build.constant((build.rng.randint(-16, 17, shape) / 64).astype(np.float16))  # noqa: E731
    x = build.add("Cast", "x", to=TensorProto.FLOAT16)
    x = build.add("Relu", build.add("Add", build.add("MatMul", x, half(12, 8)), half(8)))
    y = build.add("Cast", build.add("MatMul", x, half(8, 2)), to=FLOAT)
    model = build.model([("x", FLOAT, ["n", 12])], [("y", y, FLOAT, ["n", 2])])
    cases.add("fp16-0", model, [images("fp16", 4, 12)], 2e-3)


def add_cases(cases):
    """Adds all networks."""
    for group in (mlp, embeddings, resnet, mobilenet, unet, recurrent, encoder, quantized, half):
        group(cases)
