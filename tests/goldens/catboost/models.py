"""Trains models of CatBoost, and writes what the library answers."""

import itertools
import json
import math
import tempfile
import zlib
from pathlib import Path

import catboost
import numpy as np
import pandas as pd

# What every model of a case sets: one thread, so that the same seed gives the same model.
BASE = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "random_seed": 1}
GROUPED = {"QueryRMSE", "QuerySoftMax", "YetiRank", "PairLogit", "YetiRankPairwise", "LambdaMart", "GroupQuantile"}
CLASSIFIERS = {
    "CrossEntropy",
    "Focal",
    "Logloss",
    "MultiClass",
    "MultiClassOneVsAll",
    "MultiCrossEntropy",
    "MultiLogloss",
}
POSITIVE = {"MAPE", "Poisson", "Tweedie", "SurvivalAft", "LogLinQuantile"}

# Loss functions that all three versions know, and those of newer versions.
LOSSES = [
    "RMSE",
    "MAE",
    "Quantile:alpha=0.3",
    "LogLinQuantile:alpha=0.6",
    "MAPE",
    "Lq:q=2",
    "Huber:delta=0.7",
    "Expectile:alpha=0.4",
    "Poisson",
    "Tweedie:variance_power=1.5",
    "RMSEWithUncertainty",
    "MultiRMSE",
    "QueryRMSE",
    "QuerySoftMax",
    "YetiRank",
    "PairLogit",
    "SurvivalAft:dist=Normal",
    "Logloss",
    "CrossEntropy",
    "MultiClass",
    "MultiClassOneVsAll",
]
NEWER = {
    "1.0.6": ["MultiCrossEntropy", "MultiLogloss", "LogCosh", "MultiRMSEWithMissingValues"],
    "1.2.10": [
        "MultiCrossEntropy",
        "MultiLogloss",
        "LogCosh",
        "MultiRMSEWithMissingValues",
        "MultiQuantile:alpha=0.2,0.5,0.9",
        "Focal:focal_alpha=0.4;focal_gamma=1.5",
        "Cox",
    ],
}


def losses(version):
    """Returns the loss functions of a version."""
    return LOSSES + NEWER.get(version, [])


class Data:
    """Columns of numbers and categories, and rows that are answered."""

    def __init__(self, rng, rows, asked, numbers=3, categories=2, values=8, missing=0.1, kinds=("text", "int")):
        names, columns, more = [], [], []
        self.categorical = []
        order = rng.permutation(numbers + categories)
        for place in order:
            if place < numbers:
                name = f"x{place}"
                column = rng.normal(size=rows).astype(np.float32) * np.float32(10.0 ** rng.randint(-1, 3))
                other = rng.choice(column, asked)
                other += rng.normal(size=asked).astype(np.float32) * (rng.uniform(size=asked) < 0.5)
                if missing:
                    column[rng.uniform(size=rows) < missing] = np.nan
                    other[rng.uniform(size=asked) < missing] = np.nan
            else:
                name = f"c{place - numbers}"
                self.categorical.append(name)
                count = max(2, int(rng.randint(2, values + 1)))
                codes = rng.randint(0, count, rows)
                # some values that the model has not seen
                others = rng.randint(0, count + max(1, count // 5), asked)
                if kinds[rng.randint(len(kinds))] == "int":
                    column, other = codes * 7 - 20, others * 7 - 20
                else:
                    words = ["", "ä", "日本", "a longer text of more than thirty-two bytes, hashed in another way"]
                    text = lambda code: words[code] if code < len(words) else f"value {code * code}"  # noqa: E731
                    column = np.array([text(code) for code in codes], object)
                    other = np.array([text(code) for code in others], object)
            names.append(name)
            columns.append(column)
            more.append(other)
        self.train = pd.DataFrame(dict(zip(names, columns)))
        self.asked = pd.DataFrame(dict(zip(names, more)))

    def score(self, rng):
        """Returns a number per row that depends on all columns."""
        total = rng.normal(size=len(self.train)) * 0.3
        for name in self.train:
            column = self.train[name]
            if name in self.categorical:
                effect = {value: rng.normal() for value in sorted(set(column), key=str)}
                total += column.map(effect).astype(float).to_numpy()
            else:
                filled = column.fillna(1.0).to_numpy(dtype=np.float64)
                total += filled / (np.abs(filled).max() + 1e-9) * rng.choice([-2.0, 1.0, 2.0])
        return total


def target(rng, loss, score, labels=None, classes=3):
    """Returns a target for a loss function, and further arguments of the pool."""
    name = loss.split(":")[0]
    rows = len(score)
    extra = {}
    if name in GROUPED:
        extra["group_id"] = np.arange(rows) // 8
    if name in ("Logloss", "Focal"):
        y = (score > np.median(score)).astype(int)
    elif name == "CrossEntropy":
        y = 1 / (1 + np.exp(-score))
    elif name in ("MultiClass", "MultiClassOneVsAll"):
        y = np.searchsorted(np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]), score)
    elif name == "MultiLogloss":
        y = np.stack([score > level for level in np.linspace(-1, 1, classes)], 1).astype(int)
    elif name == "MultiCrossEntropy":
        y = 1 / (1 + np.exp(-np.stack([score, -score, 0.5 * score], 1)))
    elif name in ("MultiRMSE", "MultiRMSEWithMissingValues"):
        y = np.stack([score, score**2, -score], 1)
    elif name == "SurvivalAft":
        y = np.stack([np.exp(score), np.exp(score) + 0.5], 1)
    elif name == "Cox":
        y = np.exp(score) * rng.choice([-1, 1], rows)
    elif name == "QuerySoftMax":
        y = (score > np.median(score)).astype(float)
    elif name == "PairLogit":
        y = np.round(score)
    elif name in ("YetiRank", "YetiRankPairwise", "LambdaMart"):
        y = 1 / (1 + np.exp(-score))
    elif name in POSITIVE:
        y = np.exp(score)
    else:
        y = score
    if labels is not None:
        y = np.array(labels, dtype=object if isinstance(labels[0], str) else None)[y]
    return y, extra


def train(loss, data, y, extra, params):
    """Trains a model."""
    pool = catboost.Pool(data.train, y, cat_features=data.categorical, **extra)
    options = dict(BASE, loss_function=loss, **params)
    model = catboost.CatBoost(options)
    if loss.split(":")[0] in CLASSIFIERS:
        model = catboost.CatBoostClassifier(**options)
    model.fit(pool)
    return model, pool


def tensor(values):
    """Encodes an array; one dimension becomes a column."""
    values = np.asarray(values)
    if values.ndim == 1:
        values = values.reshape(-1, 1)
    kind = {"f": "FP64", "i": "INT64", "u": "INT64", "b": "BOOL"}.get(values.dtype.kind, "BYTES")
    return {"datatype": kind, "shape": list(values.shape), "data": [element(value) for value in values.ravel()]}


def element(value):
    """Encodes a value so that it reads back as the same."""
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    value = float(value)
    if np.isnan(value):
        return None
    return value if np.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def answers(file, form, data):
    """Returns what the library answers for a file."""
    plain = catboost.CatBoost()
    plain.load_model(str(file), format=form)
    served = catboost.CatBoostClassifier()
    served.load_model(str(file), format=form)
    is_classifier = len(served.classes_) > 0
    if not is_classifier:
        served = catboost.CatBoostRegressor()
        served.load_model(str(file), format=form)
    leaves = plain.calc_leaf_indexes(catboost.Pool(data.asked, cat_features=data.categorical), thread_count=1)
    found = {
        "raw": tensor(plain.predict(data.asked, thread_count=1)),
        "predict": tensor(served.predict(data.asked, thread_count=1)),
        "predict_proba": tensor(served.predict_proba(data.asked, thread_count=1)) if is_classifier else None,
        "leaf": dict(tensor(leaves.astype(int)), datatype="INT32"),
    }
    found["contributions"] = contributions(plain, data, np.array(found["raw"]["data"], dtype=float))
    return found


def contributions(model, data, raw):
    """Returns the SHAP values, or `None` for models that the server refuses: those with categories, those that the library has
    no values for, those whose values do not add up to all raw values, and those whose values depend on other rows of a call.

    The library's values for trees whose leaves have different depths do not add up. Those of small models are computed from all
    subsets of features, and others are only known to add up."""
    if data.categorical or not np.isfinite(raw).all():
        return None
    try:
        found = model.get_feature_importance(data=catboost.Pool(data.asked), type="ShapValues", thread_count=1)
    except catboost.CatBoostError:
        return None
    trees = uneven_trees(model)
    if trees and raw.size == found.sum(-1).size:
        return of_subsets(trees, data.asked) if data.asked.shape[1] <= 5 else "additive"
    sums = found.sum(-1).ravel()
    if sums.shape != raw.shape or np.abs(sums - raw).max() > 1e-9 * max(np.abs(found).max(), 1e-300):
        return None
    first = model.get_feature_importance(data=catboost.Pool(data.asked[:1]), type="ShapValues", thread_count=1)
    if np.abs(first - found[:1]).max() > 1e-9 * np.abs(found).max():
        return None
    return tensor(found)


def export(model):
    """Returns the export of a model as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        model.save_model(str(file), format="json")
        return json.loads(file.read_text(encoding="utf-8"))


def depths(node, above=0):
    """Returns the depths of the leaves below a node."""
    if "left" not in node:
        return {above}
    return depths(node["left"], above + 1) | depths(node["right"], above + 1)


def uneven_trees(model):
    """Returns the export of a model if it has trees whose leaves have different depths."""
    document = export(model)
    has_uneven = any(len(depths(tree)) > 1 for tree in document.get("trees", []))
    return document if has_uneven and document["scale_and_bias"][0] == 1 else None


def of_subsets(document, rows):
    """Returns the contributions by their definition: from the expected value of each tree for each subset of known features."""
    infos = document["features_info"]["float_features"]
    columns = [info["flat_feature_index"] for info in infos]
    treats_as_true = [info.get("nan_value_treatment") == "AsTrue" for info in infos]
    bias = np.atleast_1d(document["scale_and_bias"][1])

    def cover(node):
        return cover(node["left"]) + cover(node["right"]) if "left" in node else node["weight"]

    def features(node):
        if "left" not in node:
            return set()
        return {node["split"]["float_feature_index"]} | features(node["left"]) | features(node["right"])

    def expected(node, row, known):
        if "left" not in node:
            return np.atleast_1d(node["value"]).astype(float)
        feature = node["split"]["float_feature_index"]
        if feature in known:
            value = row[columns[feature]]
            passes = treats_as_true[feature] if np.isnan(value) else value > np.float32(node["split"]["border"])
            return expected(node["right" if passes else "left"], row, known)
        covers = [cover(node[side]) for side in ("left", "right")]
        if sum(covers) == 0:
            return 0 * bias
        sides = [expected(node[side], row, known) for side in ("left", "right")]
        return (covers[0] * sides[0] + covers[1] * sides[1]) / sum(covers)

    found = np.zeros((len(rows), len(bias), rows.shape[1] + 1))
    for place, row in enumerate(rows.to_numpy(dtype=np.float32)):
        found[place, :, -1] = bias
        for tree in document["trees"]:
            own = sorted(features(tree))
            values = {}
            for size in range(len(own) + 1):
                for known in itertools.combinations(own, size):
                    values[frozenset(known)] = expected(tree, row, known)
            found[place, :, -1] += values[frozenset()]
            for known, value in values.items():
                for feature in set(own) - known:
                    before, after = len(known), len(own) - len(known) - 1
                    orders = math.factorial(before) * math.factorial(after) / math.factorial(len(own))
                    found[place, :, columns[feature]] += orders * (values[known | {feature}] - value)
    return tensor(found[:, 0] if len(bias) == 1 else found)


def write(folder, name, model, data, pool, has_json):
    """Writes a model in one or both formats, and what the library answers."""
    folder = Path(folder)
    files = [f"{name}.cbm"]
    model.save_model(str(folder / files[0]))
    if has_json:
        files.append(f"{name}.json")
        model.save_model(str(folder / files[1]), format="json", pool=pool)
    expect = answers(folder / files[0], "cbm", data)
    expect_json = None
    if has_json:
        # The export has no numbers of binarizations of the target, so that some exports are another model, and it does not
        # number leaves as the model does.
        expect_json = answers(folder / files[1], "json", data)
        raw, other = (np.array([found["raw"]["data"]], dtype=float) for found in (expect, expect_json))
        if np.allclose(raw, other, rtol=1e-9, atol=1e-12):
            leaf = expect_json["leaf"]
            expect_json = None if leaf == expect["leaf"] else dict(expect, leaf=leaf)
    columns = []
    asked = data.asked
    for column in asked:
        values = asked[column]
        kind = "FP32" if column not in data.categorical else "INT64" if values.dtype.kind == "i" else "BYTES"
        columns.append({"name": column, "datatype": kind, "data": [element(value) for value in values.tolist()]})
    case = {"version": catboost.__version__, "models": files, "columns": columns, "expect": expect}
    if expect_json:
        case["expect_json"] = expect_json
    text = json.dumps(case, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.case.json").write_text(text + "\n", encoding="utf-8")


def generator(name):
    """Returns a generator that is seeded by a name, so that cases do not affect each other."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


ASKED = 24


def case(folder, name, loss="Logloss", labels=None, classes=3, tune=None, data=None, has_json=False, **params):
    """Trains and writes a small model."""
    rng = generator(name)
    options = {"rows": 160, "asked": ASKED, "numbers": 2, "categories": 1, "values": 6}
    options.update(data or {})
    found = Data(rng, **options)
    y, extra = target(rng, loss, found.score(rng), labels, classes)
    model, pool = train(loss, found, y, extra, dict({"iterations": 3, "depth": 2}, **params))
    if tune:
        model = tune(model) or model
    write(folder, name, model, found, pool, has_json)


def with_values_of_empty_leaves(model):
    """Returns the model with values in the leaves that no training row has reached."""
    document = export(model)
    for tree in document["oblivious_trees"]:
        count = len(tree["leaf_values"]) // len(tree["leaf_weights"])
        for leaf, weight in enumerate(tree["leaf_weights"]):
            if weight == 0:
                tree["leaf_values"][leaf * count : (leaf + 1) * count] = [leaf + 0.5] * count
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        file.write_text(json.dumps(document), encoding="utf-8")
        edited = catboost.CatBoost()
        edited.load_model(str(file), format="json")
        return edited


def shared_cases():
    """Returns the cases that all versions answer."""
    cases = {}
    for policy in ("SymmetricTree", "Depthwise", "Lossguide"):
        cases[f"{policy.lower()}_rmse"] = {"loss": "RMSE", "grow_policy": policy, "depth": 4, "has_json": True}
        cases[f"{policy.lower()}_multiclass"] = {"loss": "MultiClass", "grow_policy": policy, "depth": 3}
    for ctr in ("Borders", "Buckets", "BinarizedTargetMeanValue", "Counter"):
        cases[f"ctr_{ctr.lower()}"] = {
            "loss": "MultiClass",
            "simple_ctr": ctr,
            "combinations_ctr": ctr,
            "one_hot_max_size": 1,
            "data": {"categories": 2},
            # The library's reader of JSON replaces sums with fractions by 0.
            "has_json": ctr != "BinarizedTargetMeanValue",
        }
    cases["ctr_mean_of_two"] = {
        "simple_ctr": "BinarizedTargetMeanValue",
        "one_hot_max_size": 1,
        "has_json": True,
    }
    cases["ctr_several_borders"] = {
        "loss": "RMSE",
        "simple_ctr": "Borders:TargetBorderCount=3:Prior=0.3:Prior=2",
        "one_hot_max_size": 1,
    }
    cases["combinations_4"] = {"max_ctr_complexity": 4, "one_hot_max_size": 3, "depth": 4, "data": {"categories": 4}}
    cases["one_hot"] = {"one_hot_max_size": 255, "has_json": True}
    for mode in ("Min", "Max"):
        cases[f"nan_{mode.lower()}"] = {"nan_mode": mode, "data": {"missing": 0.3}}
    cases["labels_text"] = {"labels": ["no", "yes"]}
    cases["threshold"] = {"tune": lambda model: model.set_probability_threshold(0.3), "has_json": True}
    for loss in ("RMSEWithUncertainty", "Poisson", "Logloss", "CrossEntropy", "MultiClassOneVsAll", "MultiRMSE"):
        cases[f"loss_{loss.lower()}"] = {"loss": loss}
    return cases


def newest_cases():
    """Returns the cases of the newest version only."""
    cases = {}
    for loss in losses("1.2.10"):
        name = loss.split(":")[0]
        cases[f"loss_{name.lower()}"] = {"loss": loss, "has_json": name in ("MultiRMSE", "MultiLogloss")}
    cases["ctr_several_buckets"] = {
        "loss": "RMSE",
        "simple_ctr": "Buckets:TargetBorderCount=2",
        "one_hot_max_size": 1,
    }
    cases["combinations_2"] = {"max_ctr_complexity": 2, "one_hot_max_size": 2, "data": {"categories": 3}}
    cases["one_hot_in_lossguide"] = {"one_hot_max_size": 255, "grow_policy": "Lossguide", "data": {"numbers": 1}}
    cases["deep"] = {"depth": 9, "iterations": 1, "data": {"categories": 0}}
    cases["many_borders"] = {
        "border_count": 1000,
        "iterations": 30,
        "depth": 2,
        "data": {"categories": 0, "numbers": 1, "rows": 2000},
    }
    cases["many_categories"] = {
        "one_hot_max_size": 255,
        "depth": 1,
        "iterations": 40,
        "data": {"values": 250, "rows": 900},
    }
    cases["nan_unseen"] = {"data": {"missing": 0}}
    cases["labels_float"] = {"labels": [-0.5, 2.5]}
    cases["labels_integer"] = {"labels": [3, 8]}
    cases["labels_bool"] = {"labels": [False, True], "has_json": True}
    cases["labels_of_three_texts"] = {"loss": "MultiClass", "labels": ["rose", "lily", "ä"]}
    cases["labels_of_three_floats"] = {"loss": "MultiClass", "labels": [0.5, 1.0, -2.25], "has_json": True}
    cases["labels_that_are_absent"] = {"loss": "MultiClass", "class_names": [0, 1, 2, 3]}
    cases["labels_counted"] = {"loss": "MultiClassOneVsAll", "classes_count": 5}
    cases["weights"] = {"class_weights": [1, 5]}
    cases["weights_balanced"] = {"loss": "MultiClass", "auto_class_weights": "Balanced"}
    numbers = {"numbers": 5, "categories": 0}
    for policy, depth in (("SymmetricTree", 6), ("Depthwise", 3), ("Lossguide", 2)):
        cases[f"contributions_{policy.lower()}"] = {"loss": "RMSE", "grow_policy": policy, "depth": depth, "data": numbers}
    # The library's contributions to such trees do not add up.
    cases["contributions_uneven"] = {"loss": "RMSE", "grow_policy": "Depthwise", "depth": 6, "data": numbers}
    uneven = {"grow_policy": "Lossguide", "max_leaves": 11, "depth": 9, "has_json": True}
    cases["contributions_uneven_multiclass"] = {"loss": "MultiClass", "data": {**numbers, "missing": 0.3}, **uneven}
    cases["contributions_uneven_repeated"] = {"loss": "RMSE", "data": {"numbers": 1, "categories": 0}, **uneven}
    cases["contributions_uneven_logloss"] = {"data": {**numbers, "missing": 0.2}, "nan_mode": "Max", **uneven}
    cases["contributions_deep"] = {"loss": "MultiClass", "depth": 8, "has_json": True, "data": {**numbers, "missing": 0.3}}
    cases["contributions_repeated"] = {"depth": 7, "data": {"numbers": 1, "categories": 0}, "iterations": 5}
    cases["contributions_biased"] = {"loss": "MultiRMSE", "tune": lambda model: model.set_scale_and_bias(1.0, [0.5, 2.0, -7.0])}
    cases["contributions_biased"]["data"] = numbers
    cases["contributions_weighted"] = {"class_weights": [0, 0.3], "depth": 4, "data": numbers}
    cases["contributions_scaled"] = {"tune": lambda model: model.set_scale_and_bias(2.0, 0.0), "data": numbers}
    cases["contributions_uncertain"] = {"loss": "RMSEWithUncertainty", "data": numbers}
    cases["contributions_absent_label"] = {"loss": "MultiClass", "class_names": [0, 1, 2, 3], "data": numbers}
    for loss in ("RMSE", "MultiClass"):
        cases[f"contributions_empty_leaves_{loss.lower()}"] = {
            "loss": loss,
            "depth": 6,
            "tune": with_values_of_empty_leaves,
            "data": numbers,
        }
    cases["scaled"] = {"loss": "RMSE", "tune": lambda model: model.set_scale_and_bias(1.7, -0.3), "has_json": True}
    return cases


def write_all(folder, version):
    """Writes the cases of a version, and returns their number."""
    cases = shared_cases()
    if version == "1.2.10":
        cases |= newest_cases()
    for name, options in cases.items():
        case(folder, name, **options)
    return len(cases)


def random_case(folder, number, version, has_categories=True):
    """Trains and writes a random model."""
    rng = np.random.RandomState(number)
    pick = lambda *values: values[rng.randint(len(values))]  # noqa: E731
    loss = pick(*losses(version), "Logloss", "MultiClass", "RMSE")
    categories = int(pick(0, 1, 2, 3, 5, 10, 20)) if has_categories else 0
    data = Data(
        rng,
        rows=int(pick(100, 300, 1000)),
        asked=int(pick(1, 24, 80, 1000)),
        numbers=int(pick(1, 3, 10)) if categories else int(pick(2, 5, 20)),
        categories=categories,
        values=int(pick(2, 10, 100, 1000)),
        missing=float(pick(0, 0.1, 0.5)),
    )
    labels = None
    if loss == "Logloss":
        labels = pick(None, ["no", "yes"], [0.5, -1.5], [4, 2], [False, True])
    if loss.startswith("MultiClass"):
        labels = pick(None, ["a", "b", "c"], [0.5, -1.5, 9.0], [4, 2, 17])
    ctr = lambda: pick(
        "Borders",
        "Buckets",
        "BinarizedTargetMeanValue",
        "Counter",
        "Borders:Prior=0.1:Prior=2",
        "Borders:TargetBorderCount=4",
    )
    params = {
        "iterations": int(pick(1, 5, 20, 60)),
        "depth": int(pick(1, 3, 6, 8, 10)),
        "grow_policy": pick("SymmetricTree", "SymmetricTree", "Depthwise", "Lossguide"),
        "border_count": int(pick(5, 32, 254, 600)),
        "nan_mode": pick("Min", "Max"),
        "learning_rate": float(pick(0.03, 0.3, 1.0)),
    }
    if loss.split(":")[0] in (
        "YetiRank",
        "PairLogit",
        "QuerySoftMax",
        "Cox",
        "SurvivalAft",
        "MultiCrossEntropy",
        "MultiLogloss",
    ):
        params["grow_policy"] = "SymmetricTree"
    if params["depth"] == 10:
        params["iterations"] = min(params["iterations"], 5)
    if categories:
        params["one_hot_max_size"] = int(pick(1, 2, 10, 255))
        params["max_ctr_complexity"] = int(pick(1, 2, 3, 4))
        if rng.uniform() < 0.6:
            params["simple_ctr"] = [ctr() for _ in range(rng.randint(1, 3))]
            params["combinations_ctr"] = [ctr() for _ in range(rng.randint(1, 3))]
        if rng.uniform() < 0.2:
            params["counter_calc_method"] = pick("Full", "SkipTest")
    if loss == "Logloss" and rng.uniform() < 0.3:
        params["class_weights"] = [1.0, float(rng.uniform(0.1, 9))]
    y, extra = target(rng, loss, data.score(rng), labels)
    model, pool = train(loss, data, y, extra, params)
    if loss == "Logloss" and rng.uniform() < 0.3 and hasattr(model, "set_probability_threshold"):
        model.set_probability_threshold(float(rng.uniform(0.05, 0.95)))
    write(folder, f"random_{number}", model, data, pool, has_json=True)


def write_random(folder, version, start, count, has_categories=True):
    """Writes random models, and returns their number. Combinations of parameters that the library rejects are skipped."""
    written = 0
    for number in range(start, start + count):
        try:
            random_case(folder, number, version, has_categories)
            written += 1
        except catboost.CatBoostError as error:
            print(f"random_{number}: {str(error).splitlines()[0][:150]}", flush=True)
            for file in Path(folder).glob(f"random_{number}.*"):
                file.unlink()
    return written
