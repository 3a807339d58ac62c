"""The models of the golden cases: single operators with many attributes, and pipelines of scikit-learn."""

import numpy as np
from onnx import TensorProto, helper

ML = "ai.onnx.ml"
TYPES = {
    np.dtype("float32"): TensorProto.FLOAT,
    np.dtype("float64"): TensorProto.DOUBLE,
    np.dtype("int64"): TensorProto.INT64,
    np.dtype("int32"): TensorProto.INT32,
    np.dtype("bool"): TensorProto.BOOL,
    np.dtype("object"): TensorProto.STRING,
}
# Relative to the value, for what calls `exp` and other functions that libraries compute differently.
CLOSE = 1e-6


def single(operator, inputs, outputs, opset=18, ml=3, domain="", fixed=False, **attributes):
    """Returns a model of one node. `outputs` are the element types; with `fixed`, the inputs have the shapes of the values."""
    feeds = {f"x{index}": value for index, value in enumerate(inputs)}
    names = [f"y{index}" for index in range(len(outputs))]
    node = helper.make_node(operator, list(feeds), names, domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TYPES[value.dtype], value.shape if fixed else [None] * value.ndim) for name, value in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, outputs)],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, ml), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return model, [feeds]


def objects(values):
    """Returns an array of texts."""
    return np.array(values, dtype=object)


def random_tree(rng, features, depth, modes, leaf):
    """Returns the nodes of a tree: (mode, feature, value, true, false, missing) or (None, weights)."""
    nodes = []

    def grow(level):
        place = len(nodes)
        nodes.append(None)
        if level == depth or rng.rand() < 0.15 and level > 0:
            nodes[place] = (None, leaf())
            return place
        mode = modes[rng.randint(len(modes))]
        value = float(np.float32(np.round(rng.randn() * 2) / 2))
        split = [mode, int(rng.randint(features)), value, grow(level + 1), grow(level + 1), int(rng.rand() < 0.3)]
        nodes[place] = tuple(split)
        return place

    grow(0)
    return nodes


def tree_attributes(trees, prefix, ids, double):
    """Returns the attributes of trees, in the form of the first operators."""
    columns = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    columns["missing_value_tracks_true"] = []
    weights = {name: [] for name in ("treeids", "nodeids", ids, "weights")}
    for tree, nodes in enumerate(trees):
        for node, content in enumerate(nodes):
            mode, *rest = content
            feature, value, true, false, missing = rest if mode else (0, 0.0, 0, 0, 0)
            row = (tree, node, feature, mode or "LEAF", value, true, false, missing)
            for column, item in zip(columns.values(), row):
                column.append(item)
            for target, weight in rest[0] if mode is None else []:
                for column, item in zip(weights.values(), (tree, node, target, weight)):
                    column.append(item)
    attributes = {f"nodes_{name}": column for name, column in columns.items()}
    attributes |= {f"{prefix}_{name}": column for name, column in weights.items()}
    if double:
        for name in ("nodes_values", f"{prefix}_weights"):
            values = attributes.pop(name)
            attributes[name + "_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(values)], values)
    return attributes


def rows(rng, count, features, dtype):
    """Returns rows near the thresholds of random trees, some missing."""
    values = np.round(rng.randn(count, features) * 4) / 4
    if dtype in (np.float32, np.float64):
        values[rng.rand(count, features) < 0.05] = np.nan
        values[0, 0] = np.inf
    return values.astype(dtype)


def random_ensemble(rng):
    """Returns a model of random trees with its rows."""
    features, count = int(rng.randint(1, 6)), int(rng.randint(1, 12))
    modes = [
        ["BRANCH_LEQ"],
        ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"],
        ["BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ"],
    ][rng.choice(3, p=[0.5, 0.3, 0.2])]
    depth = int(rng.randint(0, 6))
    dtype = [np.float32, np.float64, np.int64, np.int32][rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])]
    # Double thresholds are an attribute of opset 3.
    double = dtype == np.float64
    x = rows(rng, 80, features, dtype)
    transform = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"][rng.choice(4, p=[0.5, 0.2, 0.2, 0.1])]

    def weight():
        return float(np.float32(rng.randn()))

    if rng.rand() < 0.4:
        targets = int(rng.choice([1, 1, 2, 3]))
        every = rng.rand() < 0.5

        def leaf():
            chosen = range(targets) if every else [int(rng.randint(targets))]
            return [(target, weight()) for target in chosen]

        trees = [random_tree(rng, features, depth, modes, leaf) for _ in range(count)]
        attributes = tree_attributes(trees, "target", "ids", double)
        attributes["n_targets"] = targets
        attributes["aggregate_function"] = ["SUM", "AVERAGE", "MIN", "MAX"][rng.choice(4, p=[0.5, 0.2, 0.15, 0.15])]
        if targets == 1:
            transform = "NONE"
        # onnxruntime adds base values only to targets that have a weight in a row.
        if every and rng.rand() < 0.5:
            base = [weight() for _ in range(targets)]
            if double:
                attributes["base_values_as_tensor"] = helper.make_tensor("base", TensorProto.DOUBLE, [targets], base)
            else:
                attributes["base_values"] = base
        attributes["post_transform"] = transform
        model, feeds = single("TreeEnsembleRegressor", [x], [TensorProto.FLOAT], domain=ML, **attributes)
    else:
        classes = int(rng.choice([2, 2, 2, 3, 5]))
        form = rng.choice(["every", "one", "round"]) if classes == 2 else rng.choice(["every", "round"])
        positive = rng.rand() < 0.5

        def class_weight():
            value = weight()
            return abs(value) / count if positive else value

        def leaf_of(tree):
            def leaf():
                chosen = {"every": range(classes), "one": [0], "round": [tree % classes]}[form]
                return [(target, class_weight()) for target in chosen]

            return leaf

        if form == "round":
            count = max(count, classes)
        trees = [random_tree(rng, features, depth, modes, leaf_of(tree)) for tree in range(count)]
        attributes = tree_attributes(trees, "class", "ids", double)
        if rng.rand() < 0.5:
            attributes["classlabels_int64s"] = [int(value) for value in rng.permutation(classes * 3)[:classes]]
        else:
            attributes["classlabels_strings"] = [f"c{index}" for index in range(classes)]
        label = TensorProto.INT64 if "classlabels_int64s" in attributes else TensorProto.STRING
        if rng.rand() < 0.4:
            base = [weight() for _ in range(1 if form == "one" else classes)]
            if double:
                attributes["base_values_as_tensor"] = helper.make_tensor("base", TensorProto.DOUBLE, [len(base)], base)
            else:
                attributes["base_values"] = base
        attributes["post_transform"] = transform
        model, feeds = single("TreeEnsembleClassifier", [x], [label, TensorProto.FLOAT], domain=ML, **attributes)
    return model, [*feeds, {"x0": x[:1]}], 0.0 if transform == "NONE" else CLOSE


def random_linear(rng):
    """Returns a linear model with its rows."""
    features = int(rng.randint(1, 20))
    dtype = [np.float32, np.float64, np.int64, np.int32][rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])]
    x = np.round(rng.randn(40, features) * 3).astype(dtype) if dtype != np.float32 else rng.randn(40, features).astype(dtype)
    transform = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"][rng.randint(4)]
    if rng.rand() < 0.3:
        targets = int(rng.randint(1, 4))
        if targets == 1:
            transform = "NONE"
        attributes = {
            "coefficients": [float(value) for value in rng.randn(targets * features)],
            "targets": targets,
            "post_transform": transform,
        }
        if rng.rand() < 0.8:
            attributes["intercepts"] = [float(value) for value in rng.randn(targets)]
        model, feeds = single("LinearRegressor", [x.astype(np.float32)], [TensorProto.FLOAT], domain=ML, **attributes)
        return model, feeds, CLOSE * 10
    classes = int(rng.choice([2, 2, 3, 5]))
    targets = 1 if classes == 2 and rng.rand() < 0.5 else classes
    attributes = {
        "coefficients": [float(value) for value in rng.randn(targets * features)],
        "intercepts": [float(value) for value in rng.randn(targets)],
        "post_transform": transform,
        "multi_class": int(rng.randint(2)),
    }
    label = TensorProto.INT64
    if rng.rand() < 0.5:
        attributes["classlabels_ints"] = [int(value) for value in range(3, 3 + classes)]
    else:
        attributes["classlabels_strings"] = [f"c{index}" for index in range(classes)]
        label = TensorProto.STRING
    model, feeds = single("LinearClassifier", [x], [label, TensorProto.FLOAT], domain=ML, **attributes)
    return model, feeds, CLOSE * 10


def random_machine(rng):
    """Returns a support vector machine with its rows."""
    features, count = int(rng.randint(1, 12)), int(rng.randint(2, 15))
    x = rng.randn(30, features).astype(np.float32)
    kernel = ["LINEAR", "POLY", "RBF", "SIGMOID"][rng.randint(4)]
    attributes = {
        "kernel_type": kernel,
        "kernel_params": [float(np.float32(value)) for value in (0.1 + rng.rand() / 2, rng.rand(), rng.randint(2, 4))],
    }
    if rng.rand() < 0.3:
        attributes |= {
            "coefficients": [float(value) for value in rng.randn(count)],
            "support_vectors": [float(value) for value in rng.randn(count * features)],
            "n_supports": count,
            "rho": [float(rng.randn())],
            "one_class": int(rng.randint(2)),
        }
        model, feeds = single("SVMRegressor", [x], [TensorProto.FLOAT], domain=ML, **attributes)
        return model, feeds, 1e-5
    classes = int(rng.choice([2, 2, 3, 4]))
    per_class = [int(value) for value in rng.randint(1, 5, classes)]
    total, pairs = sum(per_class), classes * (classes - 1) // 2
    attributes |= {
        "vectors_per_class": per_class,
        "coefficients": [float(value) for value in rng.randn(total * (classes - 1))],
        "support_vectors": [float(value) for value in rng.randn(total * features)],
        "rho": [float(value) for value in rng.randn(pairs)],
        "post_transform": ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"][rng.choice(4, p=[0.5, 0.2, 0.2, 0.1])],
    }
    if rng.rand() < 0.5 or classes == 2 and attributes["post_transform"].startswith("SOFTMAX"):
        attributes["prob_a"] = [float(-abs(value)) for value in rng.randn(pairs)]
        attributes["prob_b"] = [float(value) for value in rng.randn(pairs) / 5]
    label = TensorProto.INT64
    if rng.rand() < 0.5:
        attributes["classlabels_ints"] = list(range(classes))
    else:
        attributes["classlabels_strings"] = [f"c{index}" for index in range(classes)]
        label = TensorProto.STRING
    model, feeds = single("SVMClassifier", [x], [label, TensorProto.FLOAT], domain=ML, **attributes)
    return model, feeds, 1e-4


def random_cases(start, count):
    """Yields random models, each from a seed of its own."""
    for seed in range(start, start + count):
        rng = np.random.RandomState(seed)
        kind = [random_ensemble, random_linear, random_machine][rng.choice(3, p=[0.6, 0.2, 0.2])]
        model, feeds, tolerance = kind(rng)
        yield f"{kind.__name__}_{seed}", model, feeds, tolerance


def newer_trees():
    """Yields the newer operator for trees."""
    for double in (False, True):
        dtype, kind = (np.float64, TensorProto.DOUBLE) if double else (np.float32, TensorProto.FLOAT)

        def numbers(name, values, kind=kind):
            return helper.make_tensor(name, kind, [len(values)], values)

        members = [1.0, 2.0, float("nan"), 0.0]
        attributes = {
            "n_targets": 2,
            "aggregate_function": 1,
            "membership_values": numbers("members", members),
            "nodes_falseleafs": [0, 1, 1],
            "nodes_falsenodeids": [2, 1, 3],
            "nodes_featureids": [0, 1, 0],
            "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, [3], [0, 6, 6]),
            "nodes_splits": numbers("splits", [0.5, 0.0, 0.0]),
            "nodes_trueleafs": [0, 1, 1],
            "nodes_truenodeids": [1, 0, 2],
            "tree_roots": [0],
            "leaf_targetids": [0, 1, 0, 1],
            "leaf_weights": numbers("weights", [5.0, -2.0, 10.0, 0.25]),
        }
        x = np.array([[0.5, 1], [0.5, 3], [2, 0], [0, 0], [-1, 2], [7, 7]], dtype)
        model, feeds = single("TreeEnsemble", [x], [kind], domain=ML, ml=5, **attributes)
        yield f"trees_members_{'f64' if double else 'f32'}", model, feeds, 0.0


def operators():
    """Yields single operators that prepare features."""
    rng = np.random.RandomState(7)
    x = np.round(rng.randn(12, 3) * 4).astype(np.float32) / 2
    texts = objects([["a", "b"], ["c", "a"], ["unknown", ""]])
    integers = np.array([[1, 2], [3, 7]], np.int64)
    floats, text, int64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
    for dtype in (np.float32, np.float64, np.int64, np.int32):
        name = np.dtype(dtype).name
        for count in (1, 3):
            attributes = {"offset": [0.3, -0.7, 2.0][:count], "scale": [1.7, 0.1, 3.3][:count]}
            yield f"scaler_{name}_{count}", *single("Scaler", [x.astype(dtype)], [floats], domain=ML, **attributes), 0.0
        for norm in ("MAX", "L1", "L2"):
            rows_ = np.concatenate([x, np.zeros((1, 3)), -np.abs(x[:1])]).astype(dtype)
            yield f"normalizer_{name}_{norm}", *single("Normalizer", [rows_], [floats], domain=ML, norm=norm), 1e-7
    missing = x.copy()
    missing[::3, 1] = np.nan
    yield (
        "imputer_nan",
        *single("Imputer", [missing], [floats], domain=ML, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=np.nan),
        0.0,
    )
    yield (
        "imputer_int",
        *single("Imputer", [integers], [int64], domain=ML, imputed_value_int64s=[9], replaced_value_int64=7),
        0.0,
    )
    yield "binarizer", *single("Binarizer", [x], [floats], domain=ML, threshold=0.5), 0.0
    for value, kind in ((x, floats), (texts, text), (integers, int64)):
        places = np.array([[1, 0, 1]], np.int64)
        yield f"extractor_{kind}", *single("ArrayFeatureExtractor", [value, places], [kind], domain=ML), 0.0
    yield (
        "vectorizer",
        *single("FeatureVectorizer", [x, x[:, :2]], [floats], domain=ML, inputdimensions=[3, 2]),
        0.0,
    )
    for zeros in (0, 1):
        known = texts[:2] if zeros == 0 else texts
        yield f"one_hot_text_{zeros}", *single("OneHotEncoder", [known], [floats], domain=ML, cats_strings=["a", "b", "c"], zeros=zeros), 0.0
    yield "one_hot_int", *single("OneHotEncoder", [integers], [floats], domain=ML, cats_int64s=[7, 1]), 0.0
    yield "one_hot_float", *single("OneHotEncoder", [np.array([[1.0, 7.9]], np.float32)], [floats], domain=ML, cats_int64s=[7, 1]), 0.0
    mapper = {"cats_int64s": [1, 2, 3], "cats_strings": ["a", "b", "c"]}
    yield "mapper_text", *single("CategoryMapper", [texts], [int64], domain=ML, default_int64=-5, **mapper), 0.0
    yield "mapper_int", *single("CategoryMapper", [integers], [text], domain=ML, default_string="?", **mapper), 0.0
    keys = {"strings": (["a", "c", "b"], texts), "int64s": ([1, 7, 2], integers), "floats": ([0.5, float("nan"), -0.0], missing)}
    values = {"strings": (["x", "y", "z"], text), "int64s": ([10, 20, 30], int64), "floats": ([0.1, 0.2, 0.3], floats)}
    for key, (left, value) in keys.items():
        for kind, (right, output) in values.items():
            attributes = {f"keys_{key}": left, f"values_{kind}": right}
            yield f"encoder_{key}_{kind}", *single("LabelEncoder", [value], [output], domain=ML, ml=2, **attributes), 0.0
    yield "encoder_classes", *single("LabelEncoder", [texts], [int64], domain=ML, ml=1, classes_strings=["b", "a"]), 0.0
    tensors = {
        "keys_tensor": helper.make_tensor("k", TensorProto.DOUBLE, [2], [0.5, float("nan")]),
        "values_tensor": helper.make_tensor("v", TensorProto.INT64, [2], [4, 5]),
        "default_tensor": helper.make_tensor("d", TensorProto.INT64, [1], [-9]),
    }
    yield "encoder_tensors", *single("LabelEncoder", [missing.astype(np.float64)], [int64], domain=ML, ml=4, **tensors), 0.0
    words = objects(["Hello", "the", "WORLD", "Straße", "the"])
    for case in ("NONE", "LOWER", "UPPER"):
        for sensitive in (0, 1):
            attributes = {"case_change_action": case, "is_case_sensitive": sensitive, "stopwords": ["THE"], "locale": "C"}
            yield f"normalizer_text_{case}_{sensitive}", *single("StringNormalizer", [words], [text], **attributes), 0.0
    yield "normalizer_text_none_left", *single("StringNormalizer", [objects([["the"]])], [text], fixed=True, stopwords=["the"], is_case_sensitive=1), 0.0
    grams = {
        "max_gram_length": 2,
        "min_gram_length": 1,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_strings": ["a", "b", "c", "a", "b", "c", "a"],
    }
    for mode in ("TF", "IDF", "TFIDF"):
        for skips in (0, 1, 5):
            items = objects([["a", "b", "c", "a", "a"], ["c", "x", "a", "b", "b"]])
            attributes = {**grams, "mode": mode, "max_skip_count": skips, "weights": [0.5, 1.5, 2.0, 3.0, 0.25]}
            yield f"grams_{mode}_{skips}", *single("TfIdfVectorizer", [items], [floats], **attributes), 0.0
    sentences = objects([["one two  three", "four"], ["", "five_5 six, seven"]])
    token = {"pad_value": "#", "mincharnum": 1}
    yield "tokenizer_space", *single("Tokenizer", [sentences], [text], domain="com.microsoft", mark=0, separators=[" "], **token), 0.0
    yield "tokenizer_marks", *single("Tokenizer", [sentences], [text], domain="com.microsoft", mark=1, separators=[" ", ","], **token), 0.0
    yield "tokenizer_letters", *single("Tokenizer", [sentences], [text], domain="com.microsoft", mark=0, separators=[""], **token), 0.0
    yield (
        "tokenizer_words",
        *single("Tokenizer", [sentences], [text], domain="com.microsoft", mark=0, tokenexp="[a-zA-Z0-9_]+", **token),
        0.0,
    )
    numbers = np.array([1.0, -0.1, 1e-5, 1.5e10, 123456.789, np.inf, 0.0], np.float32)
    yield "cast_float_text", *single("Cast", [numbers], [text], to=text), 0.0
    yield "cast_double_text", *single("Cast", [numbers.astype(np.float64)], [text], to=text), 0.0
    yield "cast_int_text", *single("Cast", [integers], [text], to=text), 0.0
    yield "cast_text_float", *single("Cast", [objects(["1.5", "-2e3", "NaN", "INF"])], [floats], to=floats), 0.0
    yield "cast_text_int", *single("Cast", [objects(["15", "-2"])], [int64], to=int64), 0.0
    wide = np.array([1.9, -1.9, 3e9, -3e9, 1e19, np.nan, np.inf], np.float64)
    for to in (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT):
        yield f"cast_double_{to}", *single("Cast", [wide], [to], to=to), 0.0


def pipelines():
    """Yields pipelines of scikit-learn, as its exporter writes them."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        IsolationForest,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
    from sklearn.svm import SVC
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    rng = np.random.RandomState(3)
    x = rng.randn(120, 4).astype(np.float32)
    two = (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(np.int64)
    three = two + (x[:, 2] > 0.3)
    names = np.array(["low", "middle", "high"])[three]
    target = (x[:, 0] * 2 + np.sin(x[:, 1])).astype(np.float32)
    rows_ = np.concatenate([rng.randn(20, 4), np.zeros((1, 4))]).astype(np.float32)
    models = {
        "linear": (LinearRegression(), target, CLOSE * 10),
        "scaled_logistic": (make_pipeline(StandardScaler(), LogisticRegression()), three, CLOSE * 10),
        "logistic_names": (LogisticRegression(), names, CLOSE * 10),
        "forest": (RandomForestClassifier(5, max_depth=4, random_state=0), three, 0.0),
        "forest_two": (RandomForestClassifier(5, max_depth=4, random_state=0), two, 0.0),
        "forest_regression": (RandomForestRegressor(5, max_depth=4, random_state=0), target, 0.0),
        "extra_trees": (ExtraTreesClassifier(4, max_depth=4, random_state=0), names, 0.0),
        "boosting": (GradientBoostingClassifier(n_estimators=8, random_state=0), two, CLOSE * 10),
        "boosting_three": (GradientBoostingClassifier(n_estimators=4, random_state=0), three, CLOSE * 10),
        "isolation_forest": (IsolationForest(n_estimators=5, random_state=0), None, CLOSE * 10),
        "bayes": (GaussianNB(), three, 1e-5),
        "perceptron": (MLPClassifier((6,), max_iter=200, random_state=0), three, 1e-5),
        "machine": (SVC(probability=True, random_state=0), three, 1e-4),
        "machine_scores": (SVC(decision_function_shape="ovo"), two, 1e-5),
        "polynomial": (make_pipeline(PolynomialFeatures(2), LinearRegression()), target, 1e-5),
    }
    for name, (model, y, tolerance) in models.items():
        model.fit(x, y)
        for zipmap in (True, False) if hasattr(model, "predict_proba") else (None,):
            options = None if zipmap is None else {id(model): {"zipmap": zipmap}}
            target_opset = {"": 21, ML: 3} if zipmap is not False else {"": 12, ML: 1}
            converted = to_onnx(model, x[:1], options=options, target_opset=target_opset)
            yield f"{name}{'_map' if zipmap else ''}", converted, [{"X": rows_}, {"X": rows_[:1]}], tolerance
    colors = rng.choice(["red", "green", "blue"], (120, 1)).astype(object)
    columns = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1]),
        ("colors", OneHotEncoder(handle_unknown="ignore"), [2]),
    ])
    import pandas

    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "color": colors[:, 0]})
    mixed = make_pipeline(columns, RandomForestClassifier(4, max_depth=3, random_state=0)).fit(frame, three)
    kinds = [("a", FloatTensorType([None, 1])), ("b", FloatTensorType([None, 1])), ("color", StringTensorType([None, 1]))]
    converted = to_onnx(mixed, initial_types=kinds, options={id(mixed): {"zipmap": False}}, target_opset={"": 21, ML: 3})
    feeds = {"a": x[:6, :1], "b": x[:6, 1:2], "color": objects([["red"], ["green"], ["blue"], ["pink"], ["red"], [""]])}
    yield "columns", converted, [feeds], CLOSE * 10
    sentences = ["the cat sat", "a dog ran away", "cat and dog", "the end", "ran the race", "sat down"] * 5
    text = make_pipeline(TfidfVectorizer(token_pattern="[a-zA-Z0-9_]+"), LogisticRegression())
    text.fit(sentences, [0, 1, 0, 1, 1, 0] * 5)
    converted = to_onnx(text, initial_types=[("text", StringTensorType([None, 1]))], options={id(text): {"zipmap": False}}, target_opset={"": 21, ML: 3})
    yield "text", converted, [{"text": objects([["the cat ran"], ["a dog"], [""], ["The CAT"]])}], CLOSE * 10


def cases():
    """Yields all cases: name, model, inputs, tolerance."""
    yield from operators()
    yield from newer_trees()
    yield from pipelines()
    yield from random_cases(0, 120)
