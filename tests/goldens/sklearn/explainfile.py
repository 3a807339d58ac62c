"""Writes what features contribute to the predictions of the tree models of an archive.

Those of scikit-learn are computed from the definition of the Shapley value: over all subsets of features, where a tree whose split
tests an unknown feature takes the mean of both sides, weighted by the training rows. Where shap explains a model, it has to agree.
Those of XGBoost and LightGBM are the library's own.
"""

import json
import math

import joblib
import numpy as np
import pandas as pd
from casefile import DATATYPES, numbers

NAMES = {datatype: name for name, datatype in DATATYPES.items()}
# The rows of a case that are explained.
ROWS = 8
NATIVE = (
    "DecisionTree",
    "ExtraTree",
    "ExtraTrees",
    "RandomForest",
    "GradientBoosting",
    "HistGradientBoosting",
)
BOOSTED = ("XGB", "LGBM", "Booster")


def write(models, out):
    """Writes a line for each model that has contributions to `explained.jsonl`, and returns how many there are."""
    lines = []
    for cases in sorted(models.glob("*/cases.jsonl")):
        for text in cases.read_text(encoding="utf-8").splitlines():
            case = json.loads(text)
            if not case["asked"]:  # left to Python
                continue
            line = explained(joblib.load(cases.parent / case["model"]), rows_of(case["asked"][0]["input"]))
            if line is not None:
                lines.append(
                    json.dumps({"family": cases.parent.name, "name": case["name"], **line}, separators=(",", ":"))
                )
    (out / "explained.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def rows_of(value):
    """Returns the rows of a case as the library takes them."""
    if "frame" in value:
        return pd.DataFrame({column["name"]: array(column)[:, 0] for column in value["frame"]})[:ROWS]
    return array(value)[:ROWS]


def array(tensor):
    if tensor["datatype"] == "BYTES":
        return np.array(tensor["data"], dtype=object).reshape(tensor["shape"])
    values = [
        float(value) if isinstance(value, str) else np.nan if value is None else value for value in tensor["data"]
    ]
    return np.array(values, dtype=NAMES[tensor["datatype"]]).reshape(tensor["shape"])


def explained(model, rows):
    """Returns the expected contributions and leaves, `None` for models without them."""
    if hasattr(model, "best_estimator_"):
        return explained(model.best_estimator_, rows)
    if hasattr(model, "steps") and all(step in (None, "passthrough") for _, step in model.steps[:-1]):
        return explained(model.steps[-1][1], rows)
    name = type(model).__name__
    if name.startswith(BOOSTED):
        return line(*boosted(model, rows))
    if name.replace("Classifier", "").replace("Regressor", "") not in NATIVE:
        return None
    if not isinstance(getattr(model, "init_", "zero"), str) and type(model.init_).__module__ != "sklearn.dummy":
        return None
    trees, start = summed_trees(model, rows)
    contributions = subsets(trees, start, columns=rows.shape[1], rows=len(rows))
    check_sum(model, rows, contributions)
    oracle = "subsets" + (", shap" if agrees_with_shap(model, rows, contributions) else "")
    leaf = np.asarray(model.apply(rows)).astype(np.int64) if hasattr(model, "apply") else None
    return line(oracle, contributions, leaf if leaf is None else leaf.reshape(len(rows), -1))


def line(oracle, contributions, leaf):
    """Encodes answers. `contributions` has the shape rows, groups, features + 1."""
    return {
        "oracle": oracle,
        "shape": None if contributions is None else list(contributions.shape),
        "contributions": None if contributions is None else numbers(contributions),
        "leaf": None if leaf is None else [int(value) for value in leaf.ravel()],
    }


def boosted(model, rows):
    """Returns what XGBoost and LightGBM answer."""
    if "lightgbm" in type(model).__module__:
        contributions = np.asarray(model.predict(rows, pred_contrib=True))
        leaf = np.asarray(model.predict(rows, pred_leaf=True)).reshape(len(rows), -1)
        return "lightgbm", contributions.reshape(len(rows), -1, rows.shape[1] + 1), leaf
    import xgboost

    booster, matrix = model.get_booster(), xgboost.DMatrix(rows)
    if model.get_params().get("booster") == "gblinear":
        contributions = booster.predict(matrix, pred_contribs=True)
        return "xgboost", contributions.reshape(len(rows), -1, rows.shape[1] + 1), None
    best = getattr(model, "best_iteration", None) if booster.attr("best_iteration") else None
    if best is None:
        until = {}
    elif xgboost.__version__ < "1.4":
        until = {"ntree_limit": model.best_ntree_limit}
    else:
        until = {"iteration_range": (0, best + 1)}
    contributions = booster.predict(matrix, pred_contribs=True, **until)
    leaf = booster.predict(matrix, pred_leaf=True, **until).reshape(len(rows), -1)
    return "xgboost", contributions.reshape(len(rows), -1, rows.shape[1] + 1), leaf


class Tree:
    """A tree: children, the feature of each split, which rows go left at it, covers, and a value for each sum."""

    def __init__(self, left, right, feature, goes_left, cover, values):
        self.left, self.right, self.feature = left, right, feature
        self.goes_left, self.cover, self.values = goes_left, cover, values

    def expected(self, known):
        """Returns the expected value of each row and sum if these features are known."""
        found = np.zeros((len(self.left), self.goes_left.shape[1], self.values.shape[1]))
        for node in reversed(range(len(self.left))):  # children come after their parents
            left, right = self.left[node], self.right[node]
            if left < 0:
                found[node] = self.values[node]
            elif known >> int(self.feature[node]) & 1:
                found[node] = np.where(self.goes_left[node][:, None], found[left], found[right])
            else:
                both = self.cover[left] * found[left] + self.cover[right] * found[right]
                found[node] = both / self.cover[node]
        return found[0]


def subsets(trees, start, columns, rows):
    """Returns the Shapley value of each feature, and then the expected value."""
    values = [np.tile(start, (rows, 1)) + sum(tree.expected(known) for tree in trees) for known in range(1 << columns)]
    found = np.zeros((rows, len(start), columns + 1))
    found[:, :, columns] = values[0]
    for feature in range(columns):
        for known in range(1 << columns):
            if known >> feature & 1 == 0:
                size = bin(known).count("1")
                weight = math.factorial(size) * math.factorial(columns - size - 1) / math.factorial(columns)
                found[:, :, feature] += weight * (values[known | 1 << feature] - values[known])
    return found


def summed_trees(model, rows):
    """Returns the trees whose leaves are added up, and what the sums start with."""
    if hasattr(model, "_predictors"):
        return histogram_trees(model, rows)
    rows = np.asarray(rows, dtype=np.float32)
    if hasattr(model, "init_"):
        sums = model.estimators_.shape[1]
        trees = [
            fitted_tree(one.tree_, rows, model.learning_rate * np.eye(sums)[[index]])
            for stage in model.estimators_
            for index, one in enumerate(stage)
        ]
        return trees, np.asarray(model._raw_predict_init(rows[:1]), dtype=float)[0]
    estimators = getattr(model, "estimators_", [model])
    trees = [fitted_tree(one.tree_, rows, None, hasattr(model, "classes_")) for one in estimators]
    for one in trees:
        one.values = one.values / len(trees)
    return trees, np.zeros(trees[0].values.shape[1])


def fitted_tree(fitted, rows, places, fractions=False):
    """Reads a `tree_`. `places` multiplies the value of a leaf to one for each sum."""
    values = fitted.value.reshape(fitted.node_count, -1)
    if fractions:
        values = values / values.sum(axis=1, keepdims=True)
    goes_left = np.zeros((fitted.node_count, len(rows)), dtype=bool)
    missing_left = getattr(fitted, "missing_go_to_left", np.zeros(fitted.node_count))
    for node in np.flatnonzero(fitted.children_left >= 0):
        column = rows[:, fitted.feature[node]]
        goes_left[node] = np.where(np.isnan(column), bool(missing_left[node]), column <= fitted.threshold[node])
    values = values if places is None else values @ places
    covers = fitted.weighted_n_node_samples
    return Tree(fitted.children_left, fitted.children_right, fitted.feature, goes_left, covers, values)


def histogram_trees(model, rows):
    columns, places = np.asarray(rows), np.arange(rows.shape[1])
    if getattr(model, "_preprocessor", None) is not None:
        columns = model._preprocessor.transform(rows)
        categorical = np.asarray(model.is_categorical_, dtype=bool)
        places = np.concatenate([np.flatnonzero(categorical), np.flatnonzero(~categorical)])
    columns = np.ascontiguousarray(columns, dtype=np.float64)
    known = model._bin_mapper.make_known_categories_bitsets()
    sums = len(model._predictors[0])
    trees = []
    for iteration in model._predictors:
        for index, predictor in enumerate(iteration):
            nodes = predictor.nodes
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
            goes_left = np.zeros((len(nodes), len(columns)), dtype=bool)
            for node in np.flatnonzero(~leaf):
                goes_left[node] = side_of(predictor, node, columns, known)
            values = np.zeros((len(nodes), sums))
            values[:, index] = np.where(leaf, nodes["value"], 0)
            trees.append(
                Tree(left, right, places[nodes["feature_idx"]], goes_left, nodes["count"].astype(float), values)
            )
    return trees, np.ravel(model._baseline_prediction).astype(float)


def side_of(predictor, node, columns, known):
    """Asks the library which rows go left at a split: it predicts with a tree of this split and two leaves."""
    nodes = predictor.nodes[[node, node, node]].copy()
    nodes["left"][0], nodes["right"][0] = 1, 2
    nodes["is_leaf"][1:] = 1
    nodes["value"] = [0, 1, 0]
    split = type(predictor)(nodes, predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)
    try:
        found = split.predict(columns, *known, 1)
    except TypeError:  # before 1.1, without a number of threads
        found = split.predict(columns, *known)
    return found == 1


def check_sum(model, rows, contributions):
    """Contributions add up to what the library predicts."""
    if hasattr(model, "classes_"):
        wanted = model.decision_function(rows) if hasattr(model, "decision_function") else model.predict_proba(rows)
    else:
        wanted = model._raw_predict(rows) if hasattr(model, "_predictors") else model.predict(rows)
    found = contributions.sum(axis=2)
    wanted = np.asarray(wanted).reshape(found.shape)
    assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(contributions).max()), (type(model), found, wanted)


def agrees_with_shap(model, rows, contributions):
    """Returns whether shap explains the model; if it does, it has to agree.

    It takes categories for numbers, does not know several sums of gradient boosting, and forgets half of the start of the
    exponential loss.
    """
    categorical = getattr(model, "is_categorical_", None)
    if categorical is not None and np.any(categorical):
        return False
    try:
        import shap

        explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
        found = np.asarray(explainer.shap_values(np.asarray(rows), check_additivity=False))
    except ImportError:
        return False
    except Exception as error:
        print(f"{type(model).__name__} is not explained by shap: {str(error).splitlines()[0][:100]}", flush=True)
        return False
    found = found.transpose(0, 2, 1) if found.ndim == 3 else found[:, None, :]
    limit = 1e-12 * np.abs(contributions).max()
    assert np.abs(found - contributions[:, :, :-1]).max() <= limit, (type(model), found, contributions)
    if getattr(model, "loss", None) != "exponential":
        assert np.abs(np.ravel(explainer.expected_value) - contributions[:, :, -1]).max() <= limit, type(model)
    return True
