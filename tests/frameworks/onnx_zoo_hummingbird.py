"""The models of the zoo that hummingbird converts with PyTorch, so that trees become operators on tensors.

    python tests/frameworks/onnx_zoo.py --hummingbird hummingbird/bin/python

Hummingbird needs older versions of XGBoost and onnx than the rest of the zoo, so it has an environment of its own, with
`requirements-onnx-zoo-hummingbird.txt`. The zoo imports this module for the list of models, and runs it as a script in that
environment, which trains and converts them.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import onnx_zoo_models
from onnx_zoo_models import OLDEST, ROWS, TRAINED, Arrays, Model, numbers, targets

#: What trees become: products of matrices, steps from node to node, or such steps in trees that are padded to be perfect.
STRATEGIES = ["gemm", "tree_trav", "perf_tree_trav"]
#: The newest opset that PyTorch 1.12 writes.
NEWEST_OPSET = 16
#: Estimators of the rest of the zoo, and the kinds of their targets. SVC with more than two classes is converted to a constant.
ESTIMATORS = {
    "LogisticRegression": "classes",
    "SVC": "binary",
    "GaussianNB": "classes",
    "BernoulliNB": "binary",
    "MLPClassifier": "classes",
    "LinearRegression": "number",
}
TRANSFORMERS = ["StandardScaler", "PolynomialFeatures", "KBinsDiscretizer-onehot", "PCA", "KMeans"]
#: Pipelines: their steps, and what they end with.
PIPELINES = [
    (["MinMaxScaler", "PCA"], "LogisticRegression"),
    (["PolynomialFeatures"], "LinearRegression"),
    (["StandardScaler"], "RandomForestClassifier-10-trees"),
    (["RobustScaler", "SelectKBest"], "GradientBoostingRegressor"),
]


class ConversionError(Exception):
    """Hummingbird did not convert a model."""


class Recipe(NamedTuple):
    """A model, and how hummingbird gets it."""

    model: Model
    #: Trains the estimator, in the environment of hummingbird.
    fit: Callable[[], Any]
    #: Options of the conversion.
    options: Dict[str, Any]


def _trees() -> Iterator[Tuple[str, Callable[[], Any], str, bool]]:
    """Names, constructors, kinds of targets, and whether scores are exact: all but those of softmax are."""

    def sklearn(name: str, **options: Any) -> Callable[[], Any]:
        def make() -> Any:
            from sklearn import ensemble, tree

            return getattr(tree if name.startswith("DecisionTree") else ensemble, name)(random_state=1, **options)

        return make

    def boosted(library: str, name: str, **options: Any) -> Callable[[], Any]:
        def make() -> Any:
            return getattr(__import__(library), name)(n_estimators=12, max_depth=4, n_jobs=1, **options)

        return make

    forest = "RandomForestClassifier"
    yield "DecisionTreeClassifier-depth-3", sklearn("DecisionTreeClassifier", max_depth=3), "classes", True
    yield "DecisionTreeClassifier-depth-9", sklearn("DecisionTreeClassifier", max_depth=9), "binary", True
    yield "DecisionTreeRegressor-depth-6", sklearn("DecisionTreeRegressor", max_depth=6), "number", True
    yield f"{forest}-10-trees", sklearn(forest, n_estimators=10, max_depth=4), "classes", True
    yield f"{forest}-60-trees", sklearn(forest, n_estimators=60, max_depth=8), "binary", True
    yield "RandomForestRegressor-30-trees", sklearn("RandomForestRegressor", n_estimators=30, max_depth=6), "number", True
    yield "ExtraTreesClassifier-20-trees", sklearn("ExtraTreesClassifier", n_estimators=20, max_depth=5), "classes", True
    yield "GradientBoostingClassifier", sklearn("GradientBoostingClassifier", n_estimators=12), "binary", True
    yield "GradientBoostingRegressor", sklearn("GradientBoostingRegressor", n_estimators=40), "number", True
    histograms = "HistGradientBoostingClassifier"
    yield histograms, sklearn(histograms, max_iter=8, max_depth=5), "classes", False
    yield "IsolationForest", sklearn("IsolationForest", n_estimators=10), "number", True
    yield "XGBClassifier", boosted("xgboost", "XGBClassifier"), "classes", False
    yield "XGBRegressor", boosted("xgboost", "XGBRegressor"), "number", True
    yield "LGBMClassifier", boosted("lightgbm", "LGBMClassifier", verbose=-1), "binary", True
    yield "LGBMRegressor", boosted("lightgbm", "LGBMRegressor", verbose=-1), "number", True


def recipes() -> List[Recipe]:
    """Returns all models, with opsets from the oldest to the newest in turn."""
    found: List[Recipe] = []

    def add(name: str, make: Callable[[], Any], kind: str, is_exact: bool = False, **options: Any) -> None:
        def fit() -> Any:
            rows = numbers(TRAINED, 1)
            return make().fit(rows, targets(rows, kind))

        opset = OLDEST + len(found) * 5 % (NEWEST_OPSET - OLDEST + 1)
        named = f"hummingbird-{name}-{kind}-opset{opset}"
        # The estimator stays in the other process.
        model = Model(named, lambda: (None, {"X": numbers(ROWS, 2)}), opset, None, "hummingbird", is_exact)
        found.append(Recipe(model, fit, options))

    known = {}
    for name, make, kind, is_exact in _trees():
        known[name] = (make, kind)
        for strategy in STRATEGIES:
            add(f"{name}-{strategy}", make, kind, is_exact, tree_implementation=strategy)
    makers = onnx_zoo_models.makers()
    for name, kind in ESTIMATORS.items():
        known[name] = (makers[name], kind)
        add(name, makers[name], kind)
    for name in TRANSFORMERS:
        add(name, makers[name], "number")
    for steps, last in PIPELINES:
        make, kind = known[last]
        add("-".join([*steps, last]), onnx_zoo_models.pipeline(steps, make), kind)
    return found


class Converter:
    """Trains and converts models in a process of hummingbird's environment."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen([python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Converter":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def export(self, model: Model, _fitted: Any, _inputs: Arrays, opset: int) -> bytes:
        """Returns the file of a model. Raises `ConversionError` with the error of hummingbird."""
        try:
            print(json.dumps({"name": model.name, "opset": opset}), file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise ConversionError(f"the process of hummingbird ended with {self._process.wait()}")
        if "problem" in answer:
            raise ConversionError(answer["problem"])
        return base64.b64decode(answer["file"])


def convert(recipe: Recipe, opset: int) -> bytes:
    """Returns the file of a model. Raises what hummingbird raises."""
    import hummingbird.ml

    options = {"onnx_target_opset": opset, "input_names": ["X"], "container": False, "n_threads": 1, **recipe.options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = hummingbird.ml.convert(recipe.fit(), "onnx", numbers(TRAINED, 1), extra_config=options)
    return converted.SerializeToString()


def main() -> None:
    """Answers a line with the name and the opset of a model by a line with its file, until there are no more."""
    # What the libraries print goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    known = {recipe.model.name: recipe for recipe in recipes()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # Hummingbird writes files into the working directory.
        for line in sys.stdin:
            request = json.loads(line)
            try:
                converted = convert(known[request["name"]], request["opset"])
                answer = {"file": base64.b64encode(converted).decode()}
            except Exception as error:
                answer = {"problem": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
