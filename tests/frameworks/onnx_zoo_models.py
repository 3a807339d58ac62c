"""The estimators and pipelines of the zoo: what is trained on which data, and how it is exported to ONNX."""

import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy

#: How many rows each model is compared on.
ROWS = 1000
TRAINED = 200
FEATURES = 5
#: The oldest opset of `ai.onnx` in the zoo.
OLDEST = 9
WORDS = ["red", "green", "blue", "warm rain", "cold wind", "Sun and rain", "wind from the sea", "GREEN hills", "a b c"]
CITIES = ["Bonn", "Oslo", "Rome", "Lima"]

Arrays = Dict[str, numpy.ndarray]


class Model(NamedTuple):
    """A model of the zoo."""

    name: str
    #: Trains the estimator, and returns it with the inputs of its graph: 1,000 rows.
    train: Callable[[], Tuple[Any, Arrays]]
    opset: int
    #: Whether probabilities pass a ZipMap; `None` for models without one.
    zipmap: Optional[bool]
    #: The library of the estimator, or "hummingbird", which converts those of several libraries.
    library: str
    #: Whether scores are sums of leaves, which are equal bit by bit.
    is_exact: bool


def numbers(rows: int, seed: int, positive: bool = False, double: bool = False) -> numpy.ndarray:
    """Returns numbers that FP32 represents, with a few ties."""
    values = numpy.random.default_rng(seed).normal(size=(rows, FEATURES)).round(2)
    values = numpy.abs(values) if positive else values
    return values if double else values.astype(numpy.float32)


def targets(rows: numpy.ndarray, kind: str) -> numpy.ndarray:
    """Returns the targets of a kind of problem."""
    total = rows[:, 0] * 2 - rows[:, 1] + rows[:, 2] * rows[:, 3]
    if kind == "binary":
        return (total > 0).astype(int)
    if kind == "classes":
        return numpy.digitize(total, [-1, 0.5])
    if kind == "words":
        return numpy.array(["low", "middle", "top"])[numpy.digitize(total, [-1, 0.5])]
    if kind == "several":
        return numpy.stack([total, rows[:, 4] - rows[:, 0]], axis=1)
    return numpy.abs(total) + 0.5 if kind == "positive" else total


def _on_numbers(make: Callable[[], Any], kind: str, double: bool, positive: bool) -> Callable[[], Tuple[Any, Arrays]]:
    def train() -> Tuple[Any, Arrays]:
        rows = numbers(TRAINED, 1, positive, double)
        return make().fit(rows, targets(rows, kind)), {"X": numbers(ROWS, 2, positive, double)}

    return train


def _on_texts(make: Callable[[], Any], kind: str) -> Callable[[], Tuple[Any, Arrays]]:
    def texts(rows: int, seed: int) -> numpy.ndarray:
        chosen = numpy.random.default_rng(seed).integers(0, len(WORDS), (rows, 2))
        return numpy.array([f"{WORDS[a]} {WORDS[b]}" for a, b in chosen], dtype=object)

    def train() -> Tuple[Any, Arrays]:
        return make().fit(texts(TRAINED, 1), targets(numbers(TRAINED, 1), kind)), {"X": texts(ROWS, 2).reshape(-1, 1)}

    return train


def _on_columns(make: Callable[[], Any], kind: str) -> Callable[[], Tuple[Any, Arrays]]:
    """One input for each column: text, two numbers and a whole number."""

    def columns(rows: int, seed: int) -> Arrays:
        random, values = numpy.random.default_rng(seed), numbers(rows, seed)
        cities = random.choice(CITIES, rows).astype(object)
        return {"city": cities, "a": values[:, 0], "b": values[:, 1], "n": random.integers(0, 4, rows)}

    def train() -> Tuple[Any, Arrays]:
        import pandas

        fitted = make().fit(pandas.DataFrame(columns(TRAINED, 1)), targets(numbers(TRAINED, 1), kind))
        return fitted, {name: values.reshape(-1, 1) for name, values in columns(ROWS, 2).items()}

    return train


def _on_categories(make: Callable[[], Any]) -> Callable[[], Tuple[Any, Arrays]]:
    def train() -> Tuple[Any, Arrays]:
        words = numpy.array(CITIES, dtype=object)
        rows = [
            words[numpy.random.default_rng(seed).integers(0, 4, (size, 2))] for seed, size in ((1, TRAINED), (2, ROWS))
        ]
        return make().fit(rows[0]), {"X": rows[1]}

    return train


def _linear_regressors() -> Iterator[Tuple[str, Callable[[], Any]]]:
    from sklearn import linear_model as linear
    from sklearn.cross_decomposition import PLSRegression

    for name in [
        "LinearRegression",
        "Ridge",
        "RidgeCV",
        "Lasso",
        "LassoCV",
        "LassoLars",
        "LassoLarsIC",
        "ElasticNet",
        "ElasticNetCV",
        "Lars",
        "LarsCV",
        "BayesianRidge",
        "ARDRegression",
        "HuberRegressor",
        "OrthogonalMatchingPursuit",
        "QuantileRegressor",
        "TheilSenRegressor",
        "RANSACRegressor",
    ]:
        yield name, getattr(linear, name)
    yield "SGDRegressor", lambda: linear.SGDRegressor(random_state=1)
    yield "PLSRegression", lambda: PLSRegression(2)


def _regressors() -> Iterator[Tuple[str, Callable[[], Any], bool]]:
    """Names, constructors, and whether scores are exact."""
    from sklearn import ensemble, gaussian_process, neighbors, neural_network, svm, tree

    for name, make in _linear_regressors():
        yield name, make, False
    yield "SVR", svm.SVR, False
    yield "SVR-poly", lambda: svm.SVR(kernel="poly"), False
    yield "SVR-sigmoid", lambda: svm.SVR(kernel="sigmoid"), False
    yield "NuSVR", svm.NuSVR, False
    yield "LinearSVR", lambda: svm.LinearSVR(random_state=1), False
    yield "KNeighborsRegressor", lambda: neighbors.KNeighborsRegressor(3), False
    yield (
        "MLPRegressor",
        lambda: neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=100, random_state=1),
        False,
    )
    yield "GaussianProcessRegressor", lambda: gaussian_process.GaussianProcessRegressor(alpha=0.1), False
    yield "DecisionTreeRegressor", lambda: tree.DecisionTreeRegressor(random_state=1), True
    yield "ExtraTreeRegressor", lambda: tree.ExtraTreeRegressor(random_state=1), True
    for name in ("RandomForestRegressor", "ExtraTreesRegressor", "GradientBoostingRegressor"):
        yield name, lambda name=name: getattr(ensemble, name)(n_estimators=20, random_state=1), True
    yield "AdaBoostRegressor", lambda: ensemble.AdaBoostRegressor(n_estimators=8, random_state=1), True
    yield "BaggingRegressor", lambda: ensemble.BaggingRegressor(n_estimators=5, random_state=1), False


def _classifiers() -> Iterator[Tuple[str, Callable[[], Any], bool, bool]]:
    """Names, constructors, whether scores are exact, and whether features must not be negative."""
    from sklearn import (
        calibration,
        discriminant_analysis,
        ensemble,
        linear_model,
        multiclass,
        naive_bayes,
        neighbors,
        neural_network,
        svm,
        tree,
    )

    logistic = linear_model.LogisticRegression
    yield "LogisticRegression", logistic, False, False
    yield "LogisticRegressionCV", lambda: linear_model.LogisticRegressionCV(Cs=3), False, False
    yield "SGDClassifier-log", lambda: linear_model.SGDClassifier(loss="log_loss", random_state=1), False, False
    yield "SGDClassifier-huber", lambda: linear_model.SGDClassifier(loss="modified_huber", random_state=1), False, False
    yield "Perceptron", lambda: linear_model.Perceptron(random_state=1), False, False
    yield "RidgeClassifier", linear_model.RidgeClassifier, False, False
    yield "PassiveAggressiveClassifier", lambda: linear_model.PassiveAggressiveClassifier(random_state=1), False, False
    yield "LinearSVC", lambda: svm.LinearSVC(random_state=1), False, False
    yield "SVC", svm.SVC, False, False
    yield "SVC-probability", lambda: svm.SVC(probability=True, random_state=1), False, False
    yield "SVC-linear", lambda: svm.SVC(kernel="linear"), False, False
    yield "NuSVC", lambda: svm.NuSVC(nu=0.2), False, False
    yield "LinearDiscriminantAnalysis", discriminant_analysis.LinearDiscriminantAnalysis, False, False
    yield "QuadraticDiscriminantAnalysis", discriminant_analysis.QuadraticDiscriminantAnalysis, False, False
    yield "GaussianNB", naive_bayes.GaussianNB, False, False
    yield "BernoulliNB", naive_bayes.BernoulliNB, False, False
    yield "MultinomialNB", naive_bayes.MultinomialNB, False, True
    yield "ComplementNB", naive_bayes.ComplementNB, False, True
    yield "KNeighborsClassifier", lambda: neighbors.KNeighborsClassifier(3), False, False
    yield "MLPClassifier", lambda: neural_network.MLPClassifier((8,), max_iter=100, random_state=1), False, False
    yield "OneVsRestClassifier", lambda: multiclass.OneVsRestClassifier(logistic()), False, False
    yield "OneVsOneClassifier", lambda: multiclass.OneVsOneClassifier(logistic()), False, False
    yield "CalibratedClassifierCV", lambda: calibration.CalibratedClassifierCV(logistic(), cv=2), False, False
    yield "DecisionTreeClassifier", lambda: tree.DecisionTreeClassifier(random_state=1), True, False
    yield "ExtraTreeClassifier", lambda: tree.ExtraTreeClassifier(random_state=1), True, False
    for name in ("RandomForestClassifier", "ExtraTreesClassifier"):
        yield name, lambda name=name: getattr(ensemble, name)(n_estimators=20, random_state=1), True, False
    yield "GradientBoostingClassifier", lambda: ensemble.GradientBoostingClassifier(n_estimators=8), False, False
    yield "AdaBoostClassifier", lambda: ensemble.AdaBoostClassifier(n_estimators=5, random_state=1), False, False
    yield "BaggingClassifier", lambda: ensemble.BaggingClassifier(n_estimators=4, random_state=1), False, False
    votes = [("l", logistic()), ("t", tree.DecisionTreeClassifier(max_depth=3, random_state=1))]
    yield "VotingClassifier", lambda: ensemble.VotingClassifier(votes, flatten_transform=False), False, False
    yield (
        "VotingClassifier-soft",
        lambda: ensemble.VotingClassifier(votes, voting="soft", flatten_transform=False),
        False,
        False,
    )
    yield "StackingClassifier", lambda: ensemble.StackingClassifier(votes, cv=2), False, False


def _transformers() -> Iterator[Tuple[str, Callable[[], Any]]]:
    from sklearn import cluster, decomposition, feature_selection, mixture, preprocessing, random_projection

    for name in [
        "StandardScaler",
        "MinMaxScaler",
        "MaxAbsScaler",
        "RobustScaler",
        "Normalizer",
        "Binarizer",
        "PowerTransformer",
    ]:
        yield name, getattr(preprocessing, name)
    yield "Normalizer-l1", lambda: preprocessing.Normalizer(norm="l1")
    yield "Normalizer-max", lambda: preprocessing.Normalizer(norm="max")
    yield "PolynomialFeatures", preprocessing.PolynomialFeatures
    yield "KBinsDiscretizer", lambda: preprocessing.KBinsDiscretizer(4, encode="ordinal")
    yield "KBinsDiscretizer-onehot", lambda: preprocessing.KBinsDiscretizer(4, encode="onehot-dense")
    yield "QuantileTransformer", lambda: preprocessing.QuantileTransformer(n_quantiles=20)
    yield "PCA", lambda: decomposition.PCA(2)
    yield "KernelPCA", lambda: decomposition.KernelPCA(2, kernel="rbf")
    yield "TruncatedSVD", lambda: decomposition.TruncatedSVD(2, random_state=1)
    yield "SelectKBest", lambda: feature_selection.SelectKBest(feature_selection.f_regression, k=2)
    yield "VarianceThreshold", feature_selection.VarianceThreshold
    yield "GaussianRandomProjection", lambda: random_projection.GaussianRandomProjection(2, random_state=1)
    yield "KMeans", lambda: cluster.KMeans(3, n_init=1, random_state=1)
    yield "GaussianMixture", lambda: mixture.GaussianMixture(2, random_state=1)


def _text_makers() -> Iterator[Tuple[str, Callable[[], Any]]]:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    for vectorizer in (CountVectorizer, TfidfVectorizer):
        yield vectorizer.__name__, vectorizer
        yield f"{vectorizer.__name__}-bigrams", lambda v=vectorizer: v(ngram_range=(1, 2))
        yield f"{vectorizer.__name__}-case", lambda v=vectorizer: v(lowercase=False)
        yield f"{vectorizer.__name__}-stop", lambda v=vectorizer: v(stop_words=["and", "the"])
    yield "TfidfVectorizer-sublinear", lambda: TfidfVectorizer(sublinear_tf=True, norm="l1")


def _column_makers(last: Callable[[], Any]) -> Iterator[Tuple[str, Callable[[], Any]]]:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    encoders = {"onehot": OneHotEncoder(handle_unknown="ignore"), "ordinal": OrdinalEncoder()}
    for encoding, encoder in encoders.items():
        for scaling, scaler in (("scaler", StandardScaler()), ("imputer", SimpleImputer()), ("as is", "passthrough")):
            columns = make_column_transformer((encoder, ["city"]), (scaler, ["a", "b", "n"]))
            yield f"columns-{encoding}-{scaling.replace(' ', '-')}", lambda c=columns: make_pipeline(c, last())


def _boosted() -> Iterator[Tuple[str, Callable[[], Any], str, str, bool]]:
    """Names, constructors, kinds of targets, libraries, and whether scores are exact."""
    import catboost
    import lightgbm
    import xgboost

    few, quiet = (
        {"n_estimators": 12},
        {"verbose": False, "allow_writing_files": False, "iterations": 12, "thread_count": 1},
    )
    for depth in (2, 4, 6):
        for kind in ("binary", "classes"):
            yield (
                f"XGBClassifier-{depth}",
                lambda d=depth: xgboost.XGBClassifier(max_depth=d, **few),
                kind,
                "xgboost",
                False,
            )
            yield (
                f"LGBMClassifier-{depth}",
                lambda d=depth: lightgbm.LGBMClassifier(max_depth=d, verbose=-1, **few),
                kind,
                "lightgbm",
                False,
            )
            yield (
                f"CatBoostClassifier-{depth}",
                lambda d=depth: catboost.CatBoostClassifier(depth=d, **quiet),
                kind,
                "catboost",
                False,
            )
        yield (
            f"XGBRegressor-{depth}",
            lambda d=depth: xgboost.XGBRegressor(max_depth=d, **few),
            "number",
            "xgboost",
            True,
        )
        yield (
            f"LGBMRegressor-{depth}",
            lambda d=depth: lightgbm.LGBMRegressor(max_depth=d, verbose=-1, **few),
            "number",
            "lightgbm",
            True,
        )
        yield (
            f"CatBoostRegressor-{depth}",
            lambda d=depth: catboost.CatBoostRegressor(depth=d, **quiet),
            "number",
            "catboost",
            True,
        )


#: What precedes an estimator: its name, and the names of the steps.
PREFIXES: List[Tuple[str, List[str]]] = [
    ("", []),
    ("scaler-", ["StandardScaler"]),
    ("minmax-pca-", ["MinMaxScaler", "PCA"]),
    ("poly-", ["PolynomialFeatures"]),
]


def pipeline(steps: List[str], last: Callable[[], Any]) -> Callable[[], Any]:
    """Returns the constructor of a pipeline: the names of transformers, and the estimator that follows them."""
    from sklearn.pipeline import make_pipeline

    makers = dict(_transformers())
    return last if not steps else lambda: make_pipeline(*(makers[step]() for step in steps), last())


def makers() -> Dict[str, Callable[[], Any]]:
    """Returns the constructors of transformers, regressors and classifiers by name."""
    return {name: make for name, make, *_ in [*_transformers(), *_regressors(), *_classifiers()]}


def zoo(newest: int) -> List[Model]:
    """Returns all models but those of hummingbird, with opsets from the oldest to `newest` in turn."""
    models: List[Model] = []

    def add(
        name: str, train: Callable[[], Any], zipmap: Optional[bool] = None, library="sklearn", is_exact=False
    ) -> None:
        opset = OLDEST + len(models) * 5 % (newest - OLDEST + 1)
        kept = {None: "", True: "-zipmap", False: "-tensor"}[zipmap]
        models.append(Model(f"{name}{kept}-opset{opset}", train, opset, zipmap, library, is_exact))

    for prefix, steps in PREFIXES:
        for name, make, is_exact in _regressors():
            made = pipeline(steps, make)
            add(f"{prefix}{name}", _on_numbers(made, "number", False, False), is_exact=is_exact and not steps)
            if not steps and not is_exact:  # the converter declares FP64 for trees, but they write FP32
                add(f"double-{name}", _on_numbers(made, "number", True, False))
        for name, make, is_exact, positive in _classifiers():
            made = pipeline([] if positive else steps, make)
            for kind in ("binary", "classes", "words") if not steps else ("classes",):
                # The converter of this one has no ZipMap.
                for zipmap in (None,) if name == "LinearSVC" else (True, False):
                    train = _on_numbers(made, kind, False, positive)
                    add(f"{prefix}{name}-{kind}", train, zipmap, is_exact=is_exact and not steps)
    for name, make in _transformers():
        add(name, _on_numbers(make, "number", False, False))
        add(f"double-{name}", _on_numbers(make, "number", True, False))
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    for name, make in _text_makers():
        add(name, _on_texts(make, "number"))
        for zipmap in (True, False):
            add(
                f"{name}-LogisticRegression",
                _on_texts(lambda m=make: make_pipeline(m(), LogisticRegression()), "words"),
                zipmap,
            )
    for name, make in _column_makers(LinearRegression):
        add(f"{name}-LinearRegression", _on_columns(make, "number"))
    for last in (LogisticRegression, lambda: RandomForestClassifier(10, random_state=1)):
        for name, make in _column_makers(last):
            for zipmap in (True, False):
                add(f"{name}-{type(last()).__name__}", _on_columns(make, "classes"), zipmap)
    for encoder in (OneHotEncoder, OrdinalEncoder):
        add(f"categories-{encoder.__name__}", _on_categories(encoder))
    for name, make, kind, library, is_exact in _boosted():
        # The converter of XGBoost never writes a ZipMap.
        for zipmap in (None,) if kind == "number" or library == "xgboost" else (True, False):
            add(f"{name}-{kind}", _on_numbers(make, kind, False, False), zipmap, library, is_exact)
    return models


def _input_types(library: Any, arrays: Arrays) -> List[Tuple[str, Any]]:
    types = {"float32": library.FloatTensorType, "float64": library.DoubleTensorType, "int64": library.Int64TensorType}
    return [
        (name, types.get(values.dtype.name, library.StringTensorType)([None, values.shape[1]]))
        for name, values in arrays.items()
    ]


def export(model: Model, fitted: Any, inputs: Arrays, opset: int) -> bytes:
    """Returns the file of a trained model. Raises what the converter raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.library == "sklearn":
            import skl2onnx
            from skl2onnx.common import data_types

            steps = [step for _, step in getattr(fitted, "steps", [(None, fitted)])]
            # onnxruntime does not start without the locale of the graph; every system has this one.
            options = {id(step): {"locale": "C.UTF-8"} for step in steps if hasattr(step, "ngram_range")}
            if model.zipmap is not None and hasattr(steps[-1], "classes_"):
                options[id(steps[-1])] = {"zipmap": model.zipmap}
            onnx_model = skl2onnx.to_onnx(
                fitted,
                initial_types=_input_types(data_types, inputs),
                options=options,
                target_opset={"": opset, "ai.onnx.ml": 3},
            )
        elif model.library == "catboost":
            onnx_model = _of_catboost(model, fitted)
        else:
            import onnxmltools
            from onnxmltools.convert.common import data_types

            given = {"initial_types": _input_types(data_types, inputs), "target_opset": opset}
            if model.library == "lightgbm":
                onnx_model = onnxmltools.convert_lightgbm(fitted, zipmap=bool(model.zipmap), **given)
            else:
                onnx_model = onnxmltools.convert_xgboost(fitted, **given)
    return onnx_model.SerializeToString()


def _of_catboost(model: Model, fitted: Any) -> Any:
    """Exports with CatBoost itself, which writes a ZipMap that is removed for models without one."""
    import tempfile
    from pathlib import Path

    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        fitted.save_model(str(path), format="onnx")
        onnx_model = onnx.load(path)
    graph = onnx_model.graph
    if model.zipmap is False:
        for node in [node for node in graph.node if node.op_type == "ZipMap"]:
            graph.node.remove(node)
            output = next(output for output in graph.output if output.name == node.output[0])
            output.CopyFrom(onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    return onnx_model
