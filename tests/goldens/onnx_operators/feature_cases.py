"""Cases of the operators that prepare features, and of those on text."""

import numpy as np
from casefile import one_node, rng_for
from onnx import numpy_helper

NUMBERS = (np.float32, np.float64, np.int32, np.int64)


def numbers(rng, *shape, dtype=np.float32):
    """Returns random numbers."""
    x = rng.normal(size=shape) * 3
    return (np.round(x) if np.issubdtype(dtype, np.integer) else x).astype(dtype)


def scalers(cases):
    """Adds operators on numbers."""
    for dtype in NUMBERS:
        kind = np.dtype(dtype).name
        x = numbers(rng_for(kind), 8, 3, dtype=dtype)
        x[2] = 0
        for count in (1, 3):
            attributes = {"offset": [0.5, -1.25, 0.1][:count], "scale": [2.0, 0.3, 7.0][:count]}
            cases.add(f"Scaler-{kind}-{count}", one_node("Scaler", [x], **attributes), [x])
        cases.add(f"Scaler-{kind}-list", one_node("Scaler", [x[0]], **attributes), [x[0]])
        for norm in ("MAX", "L1", "L2"):
            cases.add(f"Normalizer-{kind}-{norm}", one_node("Normalizer", [x], norm=norm), [x])
            cases.add(f"Normalizer-{kind}-{norm}-list", one_node("Normalizer", [x[0]], norm=norm), [x[0]])
        if dtype == np.float32:
            cases.add(f"Binarizer-{kind}", one_node("Binarizer", [x], threshold=0.5), [x])
        y = numbers(rng_for(f"{kind} y"), 8, 2, dtype=dtype)
        for sizes in ([3, 2], [2, 2], [4, 3]):
            name = f"FeatureVectorizer-{kind}-{'-'.join(map(str, sizes))}"
            cases.add(name, one_node("FeatureVectorizer", [x, y], ml=1, inputdimensions=sizes), [x, y])
        positions = numpy_helper.from_array(np.array([2, 0, 2], np.int64), "positions")
        for array, shape in ((x, "rows"), (x[0], "list"), (x.reshape(2, 4, 3), "cube")):
            name = f"ArrayFeatureExtractor-{kind}-{shape}"
            cases.add(name, one_node("ArrayFeatureExtractor", [array], constants=[positions]), [array])
    texts = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    cases.add("ArrayFeatureExtractor-texts", one_node("ArrayFeatureExtractor", [texts], constants=[positions]), [texts])
    x = numbers(rng_for("imputer"), 8, 3)
    x[1], x[2, 1] = np.nan, 5
    whole = numbers(rng_for("imputer whole"), 8, 3, dtype=np.int64)
    whole[1] = -7
    for count in (1, 3):
        for replaced in (np.nan, 5.0):
            attributes = {"imputed_value_floats": [1.5, 2.5, 3.5][:count], "replaced_value_float": replaced}
            cases.add(f"Imputer-fp32-{replaced}-{count}", one_node("Imputer", [x], **attributes), [x], 0.0)
        attributes = {"imputed_value_int64s": [1, 2, 3][:count], "replaced_value_int64": -7}
        cases.add(f"Imputer-int64-{count}", one_node("Imputer", [whole], **attributes), [whole], 0.0)


def encoders(cases):
    """Adds operators on categories."""
    texts = np.array([["a", "zebra"], ["", "b"], ["é", "a"]], object)
    for zeros in (0, 1):
        for dtype in (np.float32, np.float64, np.int64):
            x = np.array([[1, 2], [3, 1], [7, 2 if zeros else 3]], dtype)
            attributes = {"cats_int64s": [3, 1, 2] if zeros else [3, 1, 2, 7], "zeros": zeros}
            cases.add(
                f"OneHotEncoder-{np.dtype(dtype).name}-{zeros}", one_node("OneHotEncoder", [x], **attributes), [x]
            )
        attributes = {"cats_strings": ["a", "b", "é"] if zeros else ["a", "b", "é", "", "zebra"], "zeros": zeros}
        for array, shape in ((texts, "rows"), (texts[:, 0], "list"), (texts.reshape(1, 3, 2), "cube")):
            cases.add(f"OneHotEncoder-texts-{zeros}-{shape}", one_node("OneHotEncoder", [array], **attributes), [array])
    fractions = np.array([[1.5, 2.0, -0.5, 2.9]], np.float32)
    cases.add(
        "OneHotEncoder-fractions", one_node("OneHotEncoder", [fractions], cats_int64s=[0, 1, 2], zeros=1), [fractions]
    )
    whole = np.array([[1, 2], [3, 9]], np.int64)
    for defaults in ({}, {"default_string": "none", "default_int64": -9}):
        kind = "default" if defaults else "built-in"
        attributes = {"cats_strings": ["a", "b", "zebra"], "cats_int64s": [1, 2, 3], **defaults}
        cases.add(f"CategoryMapper-texts-{kind}", one_node("CategoryMapper", [texts], **attributes), [texts])
        cases.add(f"CategoryMapper-ints-{kind}", one_node("CategoryMapper", [whole], **attributes), [whole])
        attributes = {"classes_strings": ["a", "b", "zebra"], **defaults}
        cases.add(f"LabelEncoder-1-texts-{kind}", one_node("LabelEncoder", [texts], ml=1, **attributes), [texts])
        cases.add(f"LabelEncoder-1-ints-{kind}", one_node("LabelEncoder", [whole], ml=1, **attributes), [whole])


def label_encoders(cases):
    """Adds encoders of every pair of types."""
    keys = {
        "float": np.array([1.0, np.nan, -2.5], np.float32),
        "int64": np.array([1, 5, -3], np.int64),
        "string": np.array(["a", "é", ""], object),
    }
    inputs = {
        "float": np.array([[1.0, 2.0], [np.nan, -2.5], [0.0, -0.0]], np.float32),
        "int64": np.array([[1, 5], [0, -3]], np.int64),
        "string": np.array([["a", "b"], ["", "é"]], object),
    }
    values = {"float": [0.5, 1.5, np.nan], "int64": [7, 8, 9], "string": ["x", "y", ""]}
    defaults = {"float": {"default_float": 4.5}, "int64": {"default_int64": -4}, "string": {"default_string": "none"}}
    for key, key_values in keys.items():
        for value, list_of in values.items():
            for default in (False, True):
                attributes = {f"keys_{key}s": list(key_values), f"values_{value}s": list_of}
                attributes.update(defaults[value] if default else {})
                for ml in (2, 4):
                    name = f"LabelEncoder-{ml}-{key}-{value}-{'default' if default else 'built-in'}"
                    cases.add(name, one_node("LabelEncoder", [inputs[key]], ml=ml, **attributes), [inputs[key]], 0.0)
    types = {
        "float": np.float32,
        "double": np.float64,
        "int64": np.int64,
        "int32": np.int32,
        "int16": np.int16,
        "string": object,
    }
    for key, key_type in types.items():
        for value, value_type in types.items():
            source = keys["string"] if key == "string" else np.array([1, 5, -3], key_type)
            target = np.array(["x", "y", "z"], object) if value == "string" else np.array([7, 8, 9], value_type)
            x = inputs["string"] if key == "string" else np.array([[1, 5], [0, -3]], key_type)
            default = np.array(["none"], object) if value == "string" else np.array([3], value_type)
            for has_default in (False, True):
                attributes = {
                    "keys_tensor": numpy_helper.from_array(source, "keys"),
                    "values_tensor": numpy_helper.from_array(target, "values"),
                }
                if has_default:
                    attributes["default_tensor"] = numpy_helper.from_array(default, "default")
                name = f"LabelEncoder-tensor-{key}-{value}-{'default' if has_default else 'built-in'}"
                cases.add(name, one_node("LabelEncoder", [x], ml=4, **attributes), [x], 0.0)


def texts(cases):
    """Adds operators on text."""
    words = np.array(["Monday", "the", "ÉCOLE", "straße", "The", ""], object)
    for action in ("LOWER", "UPPER", "NONE"):
        for sensitive in (0, 1):
            for stopwords in (["the", "monday"], []):
                attributes = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C.UTF-8"}
                attributes.update({"stopwords": stopwords} if stopwords else {})
                name = f"StringNormalizer-{action}-{sensitive}-{len(stopwords)}"
                for array, shape in ((words, "list"), (words[None], "row")):
                    model = one_node("StringNormalizer", [array], domain="", fixed=True, **attributes)
                    cases.add(f"{name}-{shape}", model, [array])
    only = np.array(["the", "The"], object)
    attributes = {"case_change_action": "LOWER", "is_case_sensitive": 0, "stopwords": ["the"], "locale": "C.UTF-8"}
    model = one_node("StringNormalizer", [only], domain="", **attributes)
    cases.add("StringNormalizer-nothing-left", model, [only])
    x = np.array([[2, 3, 5, 4, 5, 6, 7, 8], [5, 6, 7, 8, 2, 3, 2, 3]], np.int32)
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
    for mode in ("TF", "IDF", "TFIDF"):
        for low, high in ((1, 1), (2, 2), (1, 2)):
            for skip in (0, 1, 5):
                attributes = {
                    "mode": mode,
                    "min_gram_length": low,
                    "max_gram_length": high,
                    "max_skip_count": skip,
                    "ngram_counts": [0, 4],
                    "ngram_indexes": list(range(7)),
                    "weights": [0.5, 1.0, 2.0, 0.25, 3.0, 4.0, 5.0],
                    "pool_int64s": pool,
                }
                name = f"TfIdfVectorizer-{mode}-{low}-{high}-{skip}"
                cases.add(name, one_node("TfIdfVectorizer", [x], domain="", **attributes), [x])
                del attributes["pool_int64s"]
                attributes["pool_strings"] = [str(each) for each in pool]
                text = x.astype(str).astype(object)
                cases.add(f"{name}-texts", one_node("TfIdfVectorizer", [text], domain="", **attributes), [text])
                if mode == "TF":
                    attributes["ngram_indexes"] = list(reversed(range(7)))
                    del attributes["weights"]
                    model = one_node("TfIdfVectorizer", [text], domain="", **attributes)
                    cases.add(f"{name}-texts-reversed", model, [text])
    cases.add("TfIdfVectorizer-list", one_node("TfIdfVectorizer", [text[0]], domain="", **attributes), [text[0]])
    sentences = np.array(["a bc, d", "éa;b", "", "  x  ", "a-b-c word"], object)
    for mark in (0, 1):
        for least in (1, 2):
            for kind, attributes in (
                ("separators", {"separators": [" ", ",", ";"]}),
                ("words", {"tokenexp": r"[a-zA-Z0-9_]+"}),
                ("characters", {"separators": [""]}),
            ):
                for array, shape in ((sentences, "list"), (sentences.reshape(1, 5), "row")):
                    name = f"Tokenizer-{kind}-{mark}-{least}-{shape}"
                    more = {"mark": mark, "mincharnum": least, "pad_value": "#", **attributes}
                    cases.add(name, one_node("Tokenizer", [array], domain="com.microsoft", **more), [array])


def sums(cases):
    """Adds sums, whose last bits depend on the order of the additions, and Sigmoid, which is a quotient of polynomials."""
    # A shape, and the axes: whole tensors, rows, columns, and what lies between kept or reduced dimensions.
    forms = [
        ([1], [0]),
        ([5], [0]),
        ([37], [0]),
        ([1000], [0]),
        ([3, 5, 7], [0, 1, 2]),
        ([5, 3], [1]),
        ([7, 8], [1]),
        ([9, 21], [1]),
        ([4, 129], [1]),
        ([1, 30], [1]),
        ([5, 6, 11], [2]),
        ([3, 4, 5, 6], [2, 3]),
        ([3, 9], [0]),
        ([400, 5], [0]),
        ([50, 2, 3], [0]),
        ([1, 9, 4], [1]),
        ([2, 2, 3], [1]),
        ([2, 3, 3], [1]),
        ([3, 7, 5], [1]),
        ([4, 13, 1], [1]),
        ([2, 300, 9], [1]),
        ([2, 600, 1], [1]),
        ([2, 530, 16], [1]),
        ([2, 280, 17], [1]),
        ([2, 270, 32], [1]),
        ([2, 135, 33], [1]),
        ([2, 135, 140], [1]),
        ([2, 3, 10, 7], [1, 2]),
        ([3, 1, 9], [0, 2]),
        ([3, 2, 9], [0, 2]),
        ([4, 5, 3], [0, 2]),
        ([4, 3, 2, 11], [0, 3]),
        ([2, 3, 4, 5, 2], [0, 1, 4]),
        ([4, 3, 5, 7], [1, 3]),
        ([4, 3, 5, 7], [0, 2]),
        ([2, 3, 2, 3, 7], [0, 2, 4]),
    ]
    for dtype in (np.float32, np.float64):
        kind = np.dtype(dtype).name
        for shape, axes in forms:
            form = f"{'x'.join(map(str, shape))}-{''.join(map(str, axes))}"
            # Few different values, so that the file stays small.
            rng = rng_for(form)
            x = rng.normal(size=16)[rng.randint(16, size=shape)].astype(dtype)
            list_of = numpy_helper.from_array(np.array(axes, np.int64), "axes")
            for operator in ("ReduceSum", "ReduceMean"):
                model = one_node(operator, [x], domain="", constants=[list_of], keepdims=len(axes) % 2)
                cases.add(f"{operator}-{kind}-{form}", model, [x], 0.0)
    edges = np.array([0.0, -0.0, 1e-40, -1e-30, 17.844, 18, -18, 30, -30, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([edges, rng_for("Sigmoid").uniform(-19, 19, 2000).astype(np.float32)])
    cases.add("Sigmoid-float32", one_node("Sigmoid", [x], domain=""), [x], 0.0)


def add_cases(cases):
    """Adds the cases of this file."""
    scalers(cases)
    encoders(cases)
    label_encoders(cases)
    texts(cases)
    sums(cases)
