"""The XGBoost cases; runs with the version that writes them.

An expectation is what the original serves for the file: the scikit-learn wrapper's answers. Versions before 1.7 have no
wrapper that tells the kinds apart when loading, so there the same rules are applied to the booster's own predictions;
from 1.7 both ways are computed and must agree to the bit.
"""

import json
import re
import sys
import traceback

import numpy as np
import xgboost as xgb

from casefile import edge_rows, explained, explained_rows, features, rng_for, signal, write_case

V = tuple(int(part) for part in re.findall(r"\d+", xgb.__version__)[:2])
CASES = []


# these write the same as their neighbors, so cases that depend on arithmetic alone are left out
BRIEF = V in ((1, 0), (1, 7), (2, 1))


def case(since=(0, 0), arithmetic=False):
    """Registers a function that emits cases, for the versions that have the feature."""

    def register(function):
        if since <= V and not (BRIEF and arithmetic):
            CASES.append(function)
        return function

    return register


def write_all(out, version):
    count, failed = 0, []
    for function in CASES:
        ctx = Context(out, version, function.__name__)
        try:
            function(ctx)
            assert ctx.count, "wrote nothing"
        except Exception:
            failed.append(function.__name__)
            traceback.print_exc()
        count += ctx.count
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    return count


# --- serving ---------------------------------------------------------------------------------------------------------


def load(path):
    booster = xgb.Booster()
    booster.load_model(str(path))
    return booster


def estimator_kind(booster):
    """`regressor` or `classifier`, by the attribute that wrappers write; the original refuses any other."""
    attribute = booster.attr("scikit_learn")
    found = re.search(r'"_estimator_type": "(\w+)"', attribute or "")
    kind = found.group(1) if found else "regressor"
    assert kind in ("regressor", "classifier"), kind
    return kind


def learner_config(booster):
    return json.loads(booster.save_config())["learner"] if V >= (1, 0) else None


def raw_predict(booster, x, margin, linear):
    """The booster's prediction, cut at `best_iteration` as the wrapper does."""
    best = booster.attr("best_iteration")
    cut = {}
    if best is not None and not linear:
        if V >= (1, 4):
            cut["iteration_range"] = (0, int(best) + 1)
        else:
            cut["ntree_limit"] = (int(best) + 1) * parallel_trees(booster)
    elif V < (1, 0) and not linear:
        cut["ntree_limit"] = 1 << 20  # without a limit this version drops trees of dart at random
    if V >= (1, 4) and not linear:
        kind = "margin" if margin else "value"
        return booster.inplace_predict(x, predict_type=kind, missing=np.nan, **cut)
    matrix = xgb.DMatrix(x, missing=np.nan)
    return booster.predict(matrix, output_margin=margin, validate_features=False, **cut)


def explanations(booster, x, linear):
    """Contributions and leaves by the trees of `predict`. Files of vector leaves have none, linear boosters no leaves."""
    none = {"contributions": None, "leaf": None}
    if linear:
        matrix = xgb.DMatrix(x[explained_rows(x)], missing=np.nan)
        return {"contributions": explained(lambda: booster.predict(matrix, pred_contribs=True)), "leaf": None}
    trees = trees_of(booster) if V >= (2, 0) else []
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees):
        return none
    cut = {}
    best = booster.attr("best_iteration")
    if best is not None and best != "-1":
        if V >= (1, 4):
            cut["iteration_range"] = (0, int(best) + 1)
        else:
            cut["ntree_limit"] = (int(best) + 1) * parallel_trees(booster)
    elif V < (1, 0):
        cut["ntree_limit"] = 1 << 20
    rows = x[explained_rows(x)]
    # columns of categories keep their order of numbers
    matrix = xgb.DMatrix(rows, missing=np.nan)

    def ask(**what):
        return booster.predict(matrix, validate_features=False, **what, **cut)

    # this version forgets the weights of dart's trees
    forgets = V < (1, 0) and b"dart" in bytes(booster.save_raw())[:400]
    contributions = None if forgets else explained(lambda: ask(pred_contribs=True))
    leaf = explained(lambda: ask(pred_leaf=True))
    return {
        "contributions": contributions,
        "leaf": None if leaf is None else np.asarray(leaf).reshape(len(rows), -1).astype(np.int32),
    }


def parallel_trees(booster):
    """`num_parallel_tree`; files before 1.0 do not say it, the best iteration and limit attributes together do."""
    if V >= (1, 0):
        found = re.search(r'"num_parallel_tree":\s*"(\d+)"', booster.save_config())
        return int(found.group(1)) if found else 1
    iteration, limit = booster.attr("best_iteration"), booster.attr("best_ntree_limit")
    return int(limit) // (int(iteration) + 1) if limit else 1


def derived(booster, x, linear):
    """The wrapper's rules over the booster's predictions."""
    raw = raw_predict(booster, x, False, linear)
    margin = raw_predict(booster, x, True, linear)
    if estimator_kind(booster) == "regressor":
        return {"predict": raw, "predict_proba": None, "margin": margin}
    config = learner_config(booster)
    objective = config["objective"]["name"]
    classes = max(int(config["learner_model_param"]["num_class"]), 2)
    if objective == "multi:softmax":
        shifted = np.exp(margin - margin.max(axis=1, keepdims=True))
        proba = shifted / shifted.sum(axis=1, keepdims=True)
        return {"predict": raw.astype(np.int32), "predict_proba": proba, "margin": margin}
    if raw.ndim == 2 and classes != 2:
        return {"predict": raw.argmax(axis=1), "predict_proba": raw, "margin": margin}
    if raw.ndim == 2 and raw.shape[1] != 1:
        return {"predict": (raw > 0.5).astype(np.float64), "predict_proba": raw, "margin": margin}
    raw = raw.reshape(-1)
    proba = np.vstack((np.float32(1.0) - raw, raw)).transpose()
    return {"predict": (raw > 0.5).astype(np.int64), "predict_proba": proba, "margin": margin}


def wrapped(path, x):
    """As the original: first a regressor, if that is a TypeError a classifier."""
    model = xgb.XGBRegressor()
    try:
        model.load_model(str(path))
    except TypeError:
        model = xgb.XGBClassifier()
        model.load_model(str(path))
    return {
        "predict": model.predict(x),
        "predict_proba": model.predict_proba(x) if hasattr(model, "predict_proba") else None,
        "margin": model.predict(x, output_margin=True),
    }


def same(left, right):
    for key in left:
        a, b = left[key], right[key]
        if (a is None) != (b is None):
            return False
        if a is not None:
            a, b = (v.reshape(-1, 1) if v.ndim == 1 else v for v in (np.asarray(a), np.asarray(b)))
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                return False
    return True


class Context:
    """One case function's name, randomness and output."""

    def __init__(self, out, version, function):
        self.out, self.version, self.function, self.count = out, version, function, 0

    def rng(self, suffix=""):
        return rng_for(self.function + suffix)

    def emit(self, model, x=None, name=None, forms=None, typical=None, linear=False, edit=None, note=None, extra=None):
        """Saves `model` (booster or wrapper) in `forms`, asks it about `x` (default: edge rows) and writes the case."""
        name = name or self.function
        booster = model if isinstance(model, xgb.Booster) else model.get_booster()
        if x is None:
            columns = booster.num_features() if V >= (1, 7) else typical.shape[1] if typical is not None else 4
            infinite = not linear or V < (1, 3)
            thresholds = {} if linear else split_values(booster)
            x = edge_rows(self.rng("rows" + name), thresholds, columns, infinite=infinite, typical=typical)
            if V == (1, 3) and not linear:  # that version refuses infinity
                x = x[~np.isinf(x).any(axis=1)]
            if linear:  # sums of huge numbers depend on the order of summation
                x = x[~(np.abs(x) > 1e6).any(axis=1)]
        if extra is not None:
            x = np.concatenate([x, np.asarray(extra, x.dtype)])
        models, answers = [], None
        for form in forms or default_forms():
            file = self.out / f"{name}.{form}"
            save(model, file)
            if edit:
                file.write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
            loaded = load(file)
            found = derived(loaded, x, linear)
            if V >= (2, 0) or (V >= (1, 7) and not linear):  # 1.7 cannot serve a linear model that it loads
                served = wrapped(file, x)
                if not same(found, served) and "softmax" not in learner_config(loaded)["objective"]["name"]:
                    raise AssertionError(f"{file.name}: wrapper and rules differ\n{found}\n{served}")
                found = served
            if answers is not None and not same(answers, found):
                raise AssertionError(f"{file.name}: forms differ")
            answers = found
            models.append(file.name)
        answers = {**answers, **explanations(loaded, x, linear)}
        write_case(self.out, name, "xgboost", self.version, models, x, answers, note)
        self.count += 1
        return answers


def default_forms():
    if V < (1, 0):
        return ["bin"]
    return ["json"]


def all_forms(unreadable=False):
    """Every form this version can write; `unreadable` is for models of which 1.0 does not read its own JSON."""
    if V == (1, 0) and unreadable:  # deleted nodes, bare nan
        return ["bin"]
    forms = ["bin"] if V < (3, 0) else []
    if V >= (1, 0):
        forms.insert(0, "json")
    if V >= (1, 7):
        forms.insert(1, "ubj")
    return forms


def save(model, file):
    """Saves in the form that the suffix names; the old binary form's own suffix depends on the version."""
    if file.suffix != ".bin":
        model.save_model(str(file))
        return
    other = file.with_suffix(".deprecated" if V >= (2, 1) else ".model")
    model.save_model(str(other))
    other.rename(file)


def trees_of(booster):
    """The trees as the JSON model has them."""
    found = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    return found.get("gbtree", found)["model"]["trees"]


def split_values(booster):
    """Thresholds by column."""
    if V >= (1, 7):  # the dump does not know vector leaves
        columns = {}
        for tree in trees_of(booster):
            for node, left in enumerate(tree["left_children"]):
                if left != -1:
                    columns.setdefault(tree["split_indices"][node], set()).add(tree["split_conditions"][node])
        return {column: sorted(np.float32(value) for value in values) for column, values in columns.items()}
    found = {}

    def walk(node):
        if "children" not in node:
            return
        value = node.get("split_condition")
        if isinstance(value, (int, float)):
            found.setdefault(node["split"], set()).add(np.float32(value))
        for child in node["children"]:
            walk(child)

    for tree in booster.get_dump(dump_format="json"):
        walk(json.loads(tree))
    names = booster.feature_names
    columns = {}
    for split, values in found.items():
        column = split if isinstance(split, int) else names.index(split) if names else int(split[1:])
        columns[column] = sorted(values)
    return columns


def train(params, x, y, rounds=4, evals=None, stop=None, obj=None, matrix=None, weight=None):
    """`xgb.train` with small trees, one thread and no output."""
    base = {"max_depth": 2, "eta": 0.4, "seed": 3, "nthread": 1}
    base["silent" if V < (1, 0) else "verbosity"] = 1 if V < (1, 0) else 0
    base.update(params)
    data = xgb.DMatrix(x, y, missing=np.nan, weight=weight) if matrix is None else matrix
    more = {} if evals is None else {"evals": evals, "verbose_eval": False}
    if stop is not None:
        more["early_stopping_rounds"] = stop
    if obj is not None:
        more["obj"] = obj
    return xgb.train(base, data, rounds, **more)


def wrapper(kind, **params):
    base = {"n_estimators": 4, "max_depth": 3, "learning_rate": 0.4, "random_state": 3, "n_jobs": 1}
    base.update(params)
    return getattr(xgb, kind)(**base)


def classes_of(rng, x, count):
    y = signal(rng, x)
    return np.digitize(y, np.quantile(y, np.linspace(0, 1, count + 1)[1:-1]))


# --- objectives ------------------------------------------------------------------------------------------------------


@case()
def reg_squarederror(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:squarederror", "max_depth": 4}, x, signal(rng, x)), typical=x, forms=all_forms())


@case(arithmetic=True)
def reg_linear(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:linear"}, x, signal(rng, x), rounds=2), typical=x)


@case(since=(1, 0), arithmetic=True)
def reg_squaredlogerror(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:squaredlogerror"}, x, np.exp(signal(rng, x) / 4)), typical=x)


@case(since=(1, 3), arithmetic=True)
def reg_pseudohubererror(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:pseudohubererror"}, x, signal(rng, x)), typical=x)


@case(since=(1, 7), arithmetic=True)
def reg_absoluteerror(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:absoluteerror"}, x, signal(rng, x)), typical=x)


@case(since=(2, 0), arithmetic=True)
def reg_quantileerror_one(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:quantileerror", "quantile_alpha": 0.7}, x, signal(rng, x)), typical=x)


@case(since=(2, 0))
def reg_quantileerror_several(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9], "tree_method": "hist"}
    ctx.emit(train(params, x, signal(rng, x), rounds=2), typical=x, forms=["json", "ubj"])


@case(arithmetic=True)
def reg_logistic(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:logistic"}, x, 1 / (1 + np.exp(-signal(rng, x)))), typical=x)


@case()
def binary_logistic(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "binary:logistic"}, x, signal(rng, x) > 1), typical=x, forms=all_forms())


@case(arithmetic=True)
def binary_logistic_saturated(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:logistic", "eta": 60, "lambda": 0, "max_depth": 4, "max_delta_step": 3}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=2), typical=x, note="margins beyond +-88")


@case(arithmetic=True)
def binary_logitraw(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "binary:logitraw"}, x, signal(rng, x) > 1), typical=x)


@case(arithmetic=True)
def binary_hinge(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "binary:hinge"}, x, signal(rng, x) > 1), typical=x)


@case()
def count_poisson(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = rng.poisson(np.exp(signal(rng, x) / 3))
    ctx.emit(train({"objective": "count:poisson"}, x, y), typical=x, forms=all_forms(), note="default max_delta_step")


@case()
def count_poisson_max_delta_step(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = rng.poisson(np.exp(signal(rng, x) / 3))
    params = {"objective": "count:poisson", "max_delta_step": 0.35}
    ctx.emit(train(params, x, y), typical=x, forms=all_forms())


@case(arithmetic=True)
def reg_gamma(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "reg:gamma"}, x, np.exp(signal(rng, x) / 4)), typical=x)


@case(arithmetic=True)
def reg_tweedie(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = np.maximum(signal(rng, x), 0)
    ctx.emit(train({"objective": "reg:tweedie", "tweedie_variance_power": 1.3}, x, y), typical=x)


@case(arithmetic=True)
def survival_cox(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = np.exp(-signal(rng, x) / 3) * np.where(rng.uniform(size=len(x)) < 0.2, -1, 1)
    ctx.emit(train({"objective": "survival:cox"}, x, y), typical=x)


@case(since=(1, 2), arithmetic=True)
def survival_aft(ctx):
    rng = ctx.rng()
    x = features(rng)
    low = np.exp(signal(rng, x) / 3)
    data = xgb.DMatrix(x, missing=np.nan)
    data.set_float_info("label_lower_bound", low)
    data.set_float_info("label_upper_bound", np.where(rng.uniform(size=len(x)) < 0.3, np.inf, low * 1.1))
    params = {"objective": "survival:aft", "aft_loss_distribution": "logistic", "aft_loss_distribution_scale": 1.1}
    ctx.emit(train(params, x, None, matrix=data), typical=x)


def ranking(ctx, objective, grades):
    rng = ctx.rng()
    x = features(rng)
    y = classes_of(rng, x, grades)
    data = xgb.DMatrix(x, y, missing=np.nan)
    data.set_group([16] * (len(x) // 16))
    ctx.emit(train({"objective": objective}, x, None, rounds=4, matrix=data), typical=x)


@case(arithmetic=True)
def rank_pairwise(ctx):
    ranking(ctx, "rank:pairwise", 4)


@case(arithmetic=True)
def rank_ndcg(ctx):
    ranking(ctx, "rank:ndcg", 4)


@case(arithmetic=True)
def rank_map(ctx):
    ranking(ctx, "rank:map", 2)


@case()
def multi_softprob(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=2), typical=x, forms=all_forms())


@case()
def multi_softmax(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softmax", "num_class": 4, "max_depth": 2}
    ctx.emit(train(params, x, classes_of(rng, x, 4), rounds=2), typical=x, forms=all_forms())


@case(arithmetic=True)
def custom_objective(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = (signal(rng, x) > 1).astype(np.float32)

    def logloss(predicted, data):
        p = 1 / (1 + np.exp(-predicted))
        return p - data.get_label(), p * (1 - p)

    ctx.emit(train({}, x, y, obj=logloss), typical=x)


@case(since=(1, 7), arithmetic=True)
def custom_objective_several(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = classes_of(rng, x, 3)

    def squares(predicted, data):
        grad = predicted.reshape(len(y), -1) - np.eye(3)[y]
        hess = np.ones_like(grad)
        return (grad, hess) if V >= (2, 1) else (grad.reshape(-1, 1), hess.reshape(-1, 1))

    ctx.emit(train({"num_class": 3}, x, y, rounds=2, obj=squares), typical=x)


# --- wrappers --------------------------------------------------------------------------------------------------------


@case()
def wrapper_regressor(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(wrapper("XGBRegressor", objective="reg:squarederror").fit(x, signal(rng, x)), typical=x, forms=all_forms())


@case()
def wrapper_classifier_binary(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(wrapper("XGBClassifier").fit(x, (signal(rng, x) > 1) * 1), typical=x, forms=all_forms())


@case(since=(1, 0), arithmetic=True)
def wrapper_classifier_logitraw(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBClassifier", objective="binary:logitraw")
    ctx.emit(model.fit(x, (signal(rng, x) > 1) * 1), typical=x)


@case(since=(1, 0), arithmetic=True)
def wrapper_classifier_hinge(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBClassifier", objective="binary:hinge")
    ctx.emit(model.fit(x, (signal(rng, x) > 1) * 1), typical=x)


@case()
def wrapper_classifier_softprob(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(
        wrapper("XGBClassifier", n_estimators=2, max_depth=2).fit(x, classes_of(rng, x, 3)),
        typical=x,
        forms=all_forms(),
    )


@case(since=(1, 0))
def wrapper_classifier_softmax(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBClassifier", n_estimators=2, max_depth=2, objective="multi:softmax")
    ctx.emit(model.fit(x, classes_of(rng, x, 4)), typical=x)


@case(since=(1, 7))
def wrapper_classifier_multilabel(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = np.stack([signal(rng, x) > 1, x[:, 0] > 0, signal(rng, x) > 2], axis=1) * 1
    model = wrapper("XGBClassifier", n_estimators=2, tree_method="hist").fit(x, y)
    ctx.emit(model, typical=x, forms=["json", "ubj"])


@case(since=(1, 0))
def wrapper_classifier_forest(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(wrapper("XGBRFClassifier", learning_rate=1.0).fit(x, (signal(rng, x) > 1) * 1), typical=x)


@case(since=(1, 0))
def wrapper_classifier_one_class_of_two(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softprob", "num_class": 2}
    model = wrapper("XGBClassifier", n_estimators=2)
    model.fit(x, (signal(rng, x) > 1) * 1)
    model._Booster = train(params, x, (signal(rng, x) > 1) * 1, rounds=2)
    ctx.emit(model, typical=x, note="softprob with two classes in a classifier's file")


# --- boosters --------------------------------------------------------------------------------------------------------


@case()
def dart_binary(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "dart", "objective": "binary:logistic", "rate_drop": 0.4, "skip_drop": 0.2}
    ctx.emit(train(params, x, signal(rng, x) > 1), typical=x, forms=all_forms())


@case(arithmetic=True)
def dart_multi(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {
        "booster": "dart",
        "objective": "multi:softprob",
        "num_class": 3,
        "max_depth": 2,
        "rate_drop": 0.5,
        "one_drop": 1,
    }
    params["normalize_type"] = "forest"
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=2), typical=x)


@case(since=(1, 7))
def dart_forest_early_stop(ctx):
    early(ctx, {"booster": "dart", "objective": "reg:squarederror", "rate_drop": 0.3, "num_parallel_tree": 2})


@case()
def gblinear_regression(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "gblinear", "objective": "reg:squarederror", "updater": "coord_descent", "base_score": 2.5}
    ctx.emit(train(params, x, signal(rng, x)), typical=x, linear=True, forms=all_forms())


@case(arithmetic=True)
def gblinear_binary(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "gblinear", "objective": "binary:logistic", "updater": "coord_descent"}
    ctx.emit(train(params, x, signal(rng, x) > 1), typical=x, linear=True)


@case()
def gblinear_multi(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "gblinear", "objective": "multi:softprob", "num_class": 3, "updater": "coord_descent"}
    ctx.emit(train(params, x, classes_of(rng, x, 3)), typical=x, linear=True, forms=all_forms())


@case(since=(1, 0))
def gblinear_early_stop(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "gblinear", "objective": "reg:squarederror", "updater": "coord_descent", "eta": 0.9}
    y = signal(rng, x)
    data = xgb.DMatrix(x[:100], y[:100], missing=np.nan)
    booster = train(params, None, None, matrix=data, rounds=4)
    booster.set_attr(best_iteration="1")
    ctx.emit(booster, typical=x, linear=True, note="best_iteration does not cut a linear model")


@case()
def forest_regression(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "reg:squarederror", "num_parallel_tree": 3, "subsample": 0.6, "colsample_bynode": 0.7}
    ctx.emit(train(params, x, signal(rng, x), rounds=2), typical=x, forms=all_forms())


@case(arithmetic=True)
def forest_multi(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2, "max_depth": 2, "subsample": 0.6}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=2), typical=x)


# --- missing values and inputs ---------------------------------------------------------------------------------------


@case()
def missing_directions(ctx):
    rng = ctx.rng()
    x = features(rng, rows=300, missing=0.35)
    y = signal(rng, x) + np.where(np.isnan(x[:, 1]), -3, 0) + np.where(np.isnan(x[:, 2]), 3, 0)
    rows = features(ctx.rng("rows"), rows=36, missing=0.5)
    ctx.emit(train({"objective": "reg:squarederror", "max_depth": 4}, x, y, rounds=4), x=rows)


@case(arithmetic=True)
def input_fp64(ctx):
    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "reg:squarederror"}, x, signal(rng, x))
    rows = []
    for column, values in split_values(booster).items():
        for value in values[:3]:
            for near in (np.float64(value), np.nextafter(np.float64(value), -np.inf), float(value) * (1 + 4e-8)):
                one = x[rng.randint(len(x))].astype(np.float64)
                one[column] = near
                rows.append(one)
    rows += [np.full(4, v) for v in (1e-300, -1e-300, 3.4028235677973366e38 * 0.9999999, 5e-324)]
    ctx.emit(booster, x=np.array(rows), note="float64 input is rounded to float32 before it is compared")


@case(arithmetic=True)
def input_int64(ctx):
    rng = ctx.rng()
    steps = np.array(
        [2**24 - 1, 2**24, 2**24 + 1, 2**25, 2**25 + 1, 2**25 + 3, 2**31, -(2**31), 2**53 + 1, 2**62 + 1, 0, -1]
    )
    x = np.stack([rng.choice(steps, 200), rng.choice(steps, 200)], axis=1)
    y = (x[:, 0] > 2**24) * 1.0 + (x[:, 1] > 2**25) * 2.0
    booster = train({"objective": "reg:squarederror", "max_depth": 4}, x.astype(np.float32), y, rounds=4)
    rows = np.concatenate([x[:20], np.stack([steps, steps], axis=1)])
    ctx.emit(booster, x=rows, note="integers are rounded to float32")


# --- categories ------------------------------------------------------------------------------------------------------


def categorical(ctx, name, count, params, objective="reg:squarederror", forms=None):
    rng = ctx.rng()
    x = features(rng, rows=400, columns=3, missing=0.05)
    x[:, 1] = rng.randint(0, count, size=len(x))
    x[rng.uniform(size=len(x)) < 0.05, 1] = np.nan
    effect = rng.normal(size=count) * 3
    known = np.where(np.isnan(x[:, 1]), 0, x[:, 1]).astype(int)
    y = effect[known] + np.nan_to_num(x[:, 0])
    if objective != "reg:squarederror":
        y = np.digitize(y, [-1.5, 1.5])
    data = xgb.DMatrix(x, y, missing=np.nan, feature_types=["q", "c", "q"], enable_categorical=True)
    base = {"tree_method": "hist", "objective": objective, **params}
    booster = train(base, None, None, matrix=data, rounds=2)
    codes = [*range(min(count, 14)), count - 1, count, count + 1, 63, 64, 1000, 2.0**24 - 1, 2.0**24, 3e9, np.inf]
    codes += [-1, -0.5, -0.0, 0.5, 1.999, 2.5, 1e-45, -1e-45, -np.inf, np.nan]
    rows = np.stack([[x[rng.randint(len(x)), 0], code, x[rng.randint(len(x)), 2]] for code in codes]).astype(np.float32)
    return booster, rows


def emit_categorical(ctx, booster, rows, forms=("json", "ubj")):
    ctx.emit(booster, x=rows, forms=list(forms), note="codes: known, unseen, negative, fractional, too large, missing")


@case(since=(1, 7))
def categorical_one_hot(ctx):
    emit_categorical(ctx, *categorical(ctx, "one_hot", 4, {"max_cat_to_onehot": 10}))


@case(since=(1, 7))
def categorical_partition(ctx):
    emit_categorical(ctx, *categorical(ctx, "partition", 40, {"max_cat_to_onehot": 2, "max_depth": 4}))


@case(since=(1, 7))
def categorical_partition_multi(ctx):
    params = {"max_cat_to_onehot": 2, "num_class": 3}
    emit_categorical(ctx, *categorical(ctx, "multi", 20, params, "multi:softprob"), forms=["json"])


@case(since=(1, 7))
def categorical_dart(ctx):
    params = {"max_cat_to_onehot": 4, "booster": "dart", "rate_drop": 0.5}
    emit_categorical(ctx, *categorical(ctx, "dart", 12, params), forms=["json"])


# --- several targets -------------------------------------------------------------------------------------------------


def targets(rng, x):
    return np.stack([signal(rng, x), np.nan_to_num(x[:, 1]) * 2 - 1, np.nan_to_num(x[:, 2]) ** 2 + 4], axis=1)


@case(since=(1, 7))
def multi_target_tree_per_output(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBRegressor", n_estimators=2, max_depth=2, tree_method="hist").fit(x, targets(rng, x))
    ctx.emit(model, typical=x, forms=["json", "ubj"])


@case(since=(2, 0))
def multi_target_vector_leaf(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBRegressor", multi_strategy="multi_output_tree", tree_method="hist")
    ctx.emit(model.fit(x, targets(rng, x)), typical=x, forms=["json", "ubj"])


@case(since=(2, 0))
def multi_label_vector_leaf(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = (targets(rng, x) > 1) * 1
    model = wrapper("XGBClassifier", multi_strategy="multi_output_tree", tree_method="hist")
    ctx.emit(model.fit(x, y), typical=x)


@case(since=(2, 0))
def multi_class_vector_leaf(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBClassifier", multi_strategy="multi_output_tree", tree_method="hist")
    ctx.emit(model.fit(x, classes_of(rng, x, 3)), typical=x)


@case(since=(2, 0))
def vector_leaf_forest_early_stop(ctx):
    params = {"objective": "reg:squarederror", "multi_strategy": "multi_output_tree", "tree_method": "hist"}
    early(ctx, {**params, "num_parallel_tree": 2, "subsample": 0.7}, label=targets)


# --- early stopping --------------------------------------------------------------------------------------------------


def early(ctx, params, label=signal, forms=None, edit=None, note=None, rounds=6):
    """Trains on labels that turn useless so that the best iteration is not the last one."""
    for attempt in range(20):
        rng = ctx.rng(str(attempt))
        x = features(rng, rows=240)
        y = label(rng, x)
        noisy = y[rng.permutation(len(y))]
        mixed = np.where((rng.uniform(size=len(y)) < 0.5).reshape([-1] + [1] * (y.ndim - 1)), y, noisy)
        held = xgb.DMatrix(x[160:], y[160:], missing=np.nan)
        data = xgb.DMatrix(x[:40], mixed[:40], missing=np.nan)
        base = {"eta": 0.9, "lambda": 0.1, "max_depth": 2, **params}
        booster = train(base, None, None, matrix=data, rounds=rounds, evals=[(held, "held")], stop=2)
        best = int(booster.attr("best_iteration"))
        whole = booster.copy()
        whole.set_attr(best_iteration=None)
        rows = features(rng, rows=12, missing=0.2)
        cut, uncut = (raw_predict(one, rows, True, False) for one in (booster, whole))
        if best > 0 and not np.array_equal(cut, uncut):
            break
    else:
        raise AssertionError("the cut never shows")
    ctx.emit(booster, typical=x, forms=forms, edit=edit, note=note or f"best_iteration {best}")


@case()
def early_stop_binary(ctx):
    early(ctx, {"objective": "binary:logistic"}, label=lambda rng, x: (signal(rng, x) > 1) * 1.0, forms=all_forms())


@case()
def early_stop_multi(ctx):
    params = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
    early(ctx, params, label=lambda rng, x: classes_of(rng, x, 3) * 1.0)


@case()
def early_stop_forest(ctx):
    early(ctx, {"objective": "reg:squarederror", "num_parallel_tree": 3, "subsample": 0.6})


@case(since=(1, 0))
def early_stop_forest_multi(ctx):
    params = {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2, "max_depth": 2, "subsample": 0.7}
    early(ctx, params, label=lambda rng, x: classes_of(rng, x, 3) * 1.0)


@case(since=(2, 0))
def early_stop_without_indptr(ctx):
    def edit(text):
        model = json.loads(text)
        del model["learner"]["gradient_booster"]["model"]["iteration_indptr"]
        return json.dumps(model, separators=(",", ":"))

    params = {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2, "max_depth": 2, "subsample": 0.7}
    note = "iteration_indptr taken out of the file, as old releases write it"
    early(ctx, params, label=lambda rng, x: classes_of(rng, x, 3) * 1.0, edit=edit, note=note)


@case(since=(1, 7))
def early_stop_wrapper(ctx):
    for attempt in range(20):
        rng = ctx.rng(str(attempt))
        x = features(rng, rows=240)
        y = (signal(rng, x) > 1) * 1
        flip = rng.uniform(size=len(y)) < 0.35
        model = wrapper("XGBClassifier", n_estimators=8, early_stopping_rounds=2, learning_rate=0.6, max_depth=2)
        model.fit(x[:60], np.where(flip, 1 - y, y)[:60], eval_set=[(x[60:], y[60:])], verbose=False)
        if 0 < model.best_iteration < model.get_booster().num_boosted_rounds() - 1:
            break
    else:
        raise AssertionError("the cut never shows")
    ctx.emit(model, typical=x, note=f"best_iteration {model.best_iteration}")


@case(since=(1, 7))
def sliced(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=5)[1:3], typical=x, note="rounds 1 and 2 of five")


# --- base score ------------------------------------------------------------------------------------------------------


@case()
def base_score_logistic(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:logistic", "base_score": 0.27}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=2), typical=x, forms=all_forms())


@case()
def base_score_poisson(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = rng.poisson(np.exp(signal(rng, x) / 3))
    ctx.emit(train({"objective": "count:poisson", "base_score": 2.6}, x, y, rounds=2), typical=x, forms=all_forms())


@case()
def base_score_squarederror(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "reg:squarederror", "base_score": -12.345}
    ctx.emit(train(params, x, signal(rng, x), rounds=2), typical=x, forms=all_forms())


@case(arithmetic=True)
def base_score_softprob(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multi:softprob", "num_class": 3, "base_score": 0.7, "max_depth": 2}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=2), typical=x)


@case(arithmetic=True)
def base_score_logitraw(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:logitraw", "base_score": 0.2}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=2), typical=x, forms=all_forms())


@case(arithmetic=True)
def base_score_hinge(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:hinge", "base_score": 0.4}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=2), typical=x)


@case(since=(3, 1))
def intercept_vector_multi_class(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = np.minimum(classes_of(rng, x, 6), 2)
    ctx.emit(
        wrapper("XGBClassifier", n_estimators=2, max_depth=2).fit(x, y), typical=x, forms=["json", "ubj"], note="fitted"
    )


@case(since=(3, 1))
def intercept_vector_multi_target(ctx):
    rng = ctx.rng()
    x = features(rng)
    model = wrapper("XGBRegressor", n_estimators=2, objective="count:poisson")
    ctx.emit(model.fit(x, np.abs(targets(rng, x))), typical=x, note="fitted, one for each target")


@case(since=(3, 1))
def intercept_vector_multi_label(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(
        wrapper("XGBClassifier", n_estimators=2, max_depth=2).fit(x, (targets(rng, x) > 1) * 1),
        typical=x,
        note="fitted",
    )


@case(since=(3, 1))
def intercept_vector_gblinear(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"booster": "gblinear", "objective": "multi:softprob", "num_class": 3, "updater": "coord_descent"}
    y = np.minimum(classes_of(rng, x, 6), 2)
    ctx.emit(train(params, x, y), typical=x, linear=True, note="a linear model takes the first entry for all groups")


# --- shapes of trees -------------------------------------------------------------------------------------------------


@case()
def single_leaf(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:logistic", "gamma": 1e9}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=2), x=features(rng, rows=12), forms=all_forms(unreadable=True))


@case(since=(1, 0))
def no_trees(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary:logistic", "base_score": 0.3}
    ctx.emit(train(params, x, signal(rng, x) > 1, rounds=0), x=features(rng, rows=4), forms=all_forms())


@case()
def pruned_nodes(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "reg:squarederror", "tree_method": "exact", "gamma": 6.0, "max_depth": 4, "eta": 0.6}
    ctx.emit(
        train(params, x, signal(rng, x), rounds=4),
        typical=x,
        forms=all_forms(unreadable=True),
        note="deleted nodes stay in the file",
    )


@case(since=(1, 0), arithmetic=True)
def leaf_wise_growth(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "reg:squarederror", "tree_method": "hist", "grow_policy": "lossguide"}
    ctx.emit(train({**params, "max_leaves": 6, "max_depth": 0}, x, signal(rng, x), rounds=4), typical=x)


@case(arithmetic=True)
def deep_chain(ctx):
    x = np.arange(40, dtype=np.float32).reshape(-1, 1)
    y = 3.0 ** np.arange(40) / 1e6
    params = {"objective": "reg:squarederror", "tree_method": "exact", "max_depth": 60, "min_child_weight": 0}
    params.update({"lambda": 1e-3, "eta": 1.0})
    booster = train(params, x, y, rounds=1)
    rows = np.concatenate([np.arange(-1, 41) - 0.5, [np.nan]]).astype(np.float32).reshape(-1, 1)
    ctx.emit(booster, x=rows, forms=all_forms(unreadable=True), note="one tree nearly forty levels deep, one column")


@case(arithmetic=True)
def extreme_thresholds(ctx):
    rng = ctx.rng()
    values = np.array([-3.4e38, -1e30, -1e-38, -1e-45, 0, 1e-45, 1e-38, 1e-20, 1e30, 3.4e38], np.float32)
    x = rng.choice(values, size=(200, 2)).astype(np.float32)
    y = np.searchsorted(values, x[:, 0]) * 1.0 + np.searchsorted(values, x[:, 1]) % 3
    params = {"objective": "reg:squarederror", "tree_method": "exact", "max_depth": 4}
    ctx.emit(train(params, x, y, rounds=4), typical=x, forms=all_forms(), note="splits at denormal and huge values")


@case(since=(1, 0))
def feature_names(ctx):
    rng = ctx.rng()
    x = features(rng)
    names = ["sepal length", "größe\U0001f33c", 'say "a"\\b', "名前"]
    data = xgb.DMatrix(x, signal(rng, x), missing=np.nan, feature_names=names)
    # the trees are dumped without these names, which that text form does not escape
    booster = train({"objective": "reg:squarederror"}, None, None, matrix=data, rounds=2)
    plain = booster.copy()
    plain.feature_names = None
    rows = edge_rows(rng, split_values(plain), 4, typical=x, infinite=V != (1, 3))
    if V < (1, 7):
        booster.feature_names = names
    ctx.emit(booster, x=rows, forms=[form for form in all_forms() if form != "bin"])


@case(arithmetic=True)
def many_features(ctx):
    rng = ctx.rng()
    x = features(rng, columns=37)
    y = signal(rng, x) + np.nan_to_num(x[:, 36]) * 3
    rows = features(ctx.rng("rows"), rows=12, columns=37)
    ctx.emit(train({"objective": "binary:logistic"}, x, y > np.median(y), rounds=4), x=rows)


# --- odd but valid files ---------------------------------------------------------------------------------------------


@case(since=(2, 0), arithmetic=True)
def odd_formatting(ctx):
    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "binary:logistic"}, x, signal(rng, x) > 1, rounds=2)

    def edit(text):
        model = json.loads(text)
        model["learner"]["a key of some later release"] = {"nested": [1, [2.5e-3, {"deep": None}], "x"]}
        return reverse_keys(json.dumps(model, indent=1, ensure_ascii=True))

    ctx.emit(booster, typical=x, edit=edit, note="indented, keys in reverse order, an unknown key")


def reverse_keys(text):
    def turn(value):
        if isinstance(value, dict):
            return {key: turn(item) for key, item in reversed(list(value.items()))}
        return [turn(item) for item in value] if isinstance(value, list) else value

    return json.dumps(turn(json.loads(text)), indent=1)


@case(since=(1, 7), arithmetic=True)
def odd_node_order(ctx):
    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "reg:squarederror"}, x, signal(rng, x), rounds=2)
    rows = edge_rows(rng, split_values(booster), 4, typical=x)
    straight = raw_predict(booster, rows, True, False)

    def edit(text):
        model = json.loads(text)
        for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
            shuffle_nodes(tree)
        return json.dumps(model, separators=(",", ":"))

    note = "pairs of nodes in reverse order after the root; the values are those of the straight file"
    answers = ctx.emit(booster, x=rows, edit=edit, note=note)
    assert np.array_equal(answers["margin"], straight)


def shuffle_nodes(tree):
    """Puts the pairs of siblings in reverse order; all versions but the newest take the right to follow the left."""
    count = len(tree["left_children"])
    order = [0]
    for left in range(count - 2, 0, -2):
        order += [left, left + 1]
    place = {old: new for new, old in enumerate(order)}
    for key, value in tree.items():
        if isinstance(value, list) and len(value) == count and not key.startswith("categories"):
            tree[key] = [value[old] for old in order]
    for key in ("left_children", "right_children", "parents"):
        tree[key] = [place.get(node, node) for node in tree[key]]


@case(since=(1, 7), arithmetic=True)
def odd_split_values(ctx):
    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "reg:squarederror"}, x, signal(rng, x), rounds=3)
    rows = edge_rows(rng, split_values(booster), 4, typical=x)

    def edit(text):
        model = json.loads(text)
        for index, tree in enumerate(model["learner"]["gradient_booster"]["model"]["trees"]):
            tree["split_conditions"][0] = ["INF", "NINF", 1e-46][index]
        text = json.dumps(model, separators=(",", ":"))
        return text.replace('"INF"', "Infinity").replace('"NINF"', "-Infinity")

    note = "splits at Infinity, at -Infinity and at a number too small for float32"
    ctx.emit(booster, x=rows, edit=edit, note=note)
