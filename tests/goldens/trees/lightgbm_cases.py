"""The LightGBM cases; runs with the version that writes them.

The original serves `Booster.predict` of the loaded file.
"""

import re
import sys
import traceback

import lightgbm as lgb
import numpy as np

from casefile import edge_rows, explained, explained_rows, features, rng_for, signal, write_case

V = tuple(int(part) for part in re.findall(r"\d+", lgb.__version__)[:2])
CASES = []


# these write the same as 4.7, so cases that depend on arithmetic alone are left out
BRIEF = V in ((3, 3), (4, 5))
# files that keep the list of training parameters at their end, 3 KB that do not affect answers
WHOLE = ("regression", "binary_objective", "multiclass", "dart", "forest_regression", "categorical_many", "linear_tree")


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


class Context:
    """One case function's name, randomness and output."""

    def __init__(self, out, version, function):
        self.out, self.version, self.function, self.count = out, version, function, 0

    def rng(self, suffix=""):
        return rng_for(self.function + suffix)

    def emit(self, booster, x=None, name=None, typical=None, dtype=np.float32, edit=None, note=None, extra=None):
        """Saves `booster`, asks the loaded file about `x` (default: edge rows) and writes the case."""
        name = name or self.function
        if x is None:
            columns = booster.num_feature()
            x = edge_rows(self.rng("rows" + name), thresholds(booster, dtype), columns, dtype, typical=typical)
        if extra is not None:
            x = np.concatenate([x, np.asarray(extra, x.dtype)])
        file = self.out / f"{name}.txt"
        booster.save_model(str(file))
        if name not in WHOLE:
            text = file.read_bytes().decode()
            file.write_bytes(re.sub(r"\nparameters:\n.*end of parameters\n", "", text, flags=re.DOTALL).encode())
        if edit:
            # bytes: line ends are part of what a case may be about
            file.write_bytes(edit(file.read_bytes().decode()).encode())
        loaded = lgb.Booster(model_file=str(file))
        answers = {
            "predict": loaded.predict(x),
            "predict_proba": None,
            "margin": loaded.predict(x, raw_score=True),
            **explanations(loaded, x),
        }
        write_case(self.out, name, "lightgbm", self.version, [file.name], x, answers, note)
        self.count += 1
        return answers


def explanations(booster, x):
    """Contributions and leaves. Models with linear leaves have no contributions."""
    rows = x[explained_rows(x)]
    linear = "is_linear=1" in booster.model_to_string()
    leaf = explained(lambda: booster.predict(rows, pred_leaf=True))
    return {
        "contributions": None if linear else explained(lambda: booster.predict(rows, pred_contrib=True)),
        "leaf": None if leaf is None else np.asarray(leaf).reshape(len(rows), -1).astype(np.int32),
    }


def thresholds(booster, dtype):
    """Split values by column, rounded to `dtype`; of categorical splits none."""
    found = {}

    def walk(node):
        if "split_feature" not in node:
            return
        if node["decision_type"] == "<=":
            found.setdefault(node["split_feature"], set()).add(dtype(node["threshold"]))
        walk(node["left_child"])
        walk(node["right_child"])

    for tree in booster.dump_model()["tree_info"]:
        walk(tree["tree_structure"])
    return {column: sorted(values) for column, values in found.items()}


def train(params, x, y, rounds=4, weight=None, group=None, categorical="auto", names="auto", **more):
    """`lgb.train` with small trees, one thread and no output."""
    base = {"num_leaves": 5, "min_data_in_leaf": 5, "learning_rate": 0.3, "num_threads": 1, "verbose": -1}
    base.update({"seed": 3, "deterministic": True, "force_row_wise": True} if V >= (3, 0) else {"seed": 3})
    base.update(params)
    shared = {key: base[key] for key in ("zero_as_missing", "use_missing", "linear_tree", "verbose") if key in base}
    data = lgb.Dataset(
        x, y, weight=weight, group=group, categorical_feature=categorical, feature_name=names, params=shared
    )
    return lgb.train(base, data, rounds, **more)


def classes_of(rng, x, count):
    y = signal(rng, x)
    return np.digitize(y, np.quantile(y, np.linspace(0, 1, count + 1)[1:-1]))


# --- objectives ------------------------------------------------------------------------------------------------------


def objective(ctx, params, label, dtype=np.float32, rounds=4, note=None):
    rng = ctx.rng()
    x = features(rng)
    y = label(signal(rng, x), rng)
    ctx.emit(train(params, x, y, rounds=rounds), typical=x, dtype=dtype, note=note)


def plain(y, rng):
    return y


def positive(y, rng):
    return np.exp(y / 4)


def binary(y, rng):
    return (y > 1) * 1


@case()
def regression(ctx):
    objective(ctx, {"objective": "regression"}, plain)


@case(arithmetic=True)
def regression_fp64(ctx):
    objective(ctx, {"objective": "regression"}, plain, dtype=np.float64)


@case()
def regression_sqrt(ctx):
    objective(ctx, {"objective": "regression", "reg_sqrt": True}, plain, note="negative sums too")


@case(arithmetic=True)
def regression_l1(ctx):
    objective(ctx, {"objective": "regression_l1"}, plain)


@case(arithmetic=True)
def huber(ctx):
    objective(ctx, {"objective": "huber", "alpha": 0.8}, plain)


@case(arithmetic=True)
def fair(ctx):
    objective(ctx, {"objective": "fair", "fair_c": 1.5}, plain)


@case(arithmetic=True)
def quantile(ctx):
    objective(ctx, {"objective": "quantile", "alpha": 0.8}, plain)


@case(arithmetic=True)
def mape(ctx):
    objective(ctx, {"objective": "mape"}, positive)


@case(arithmetic=True)
def poisson(ctx):
    objective(ctx, {"objective": "poisson"}, lambda y, rng: rng.poisson(np.exp(y / 3)))


@case(arithmetic=True)
def gamma(ctx):
    objective(ctx, {"objective": "gamma"}, positive)


@case(arithmetic=True)
def tweedie(ctx):
    objective(ctx, {"objective": "tweedie", "tweedie_variance_power": 1.4}, lambda y, rng: np.maximum(y, 0))


@case()
def binary_objective(ctx):
    objective(ctx, {"objective": "binary"}, binary)


@case(arithmetic=True)
def binary_fp64(ctx):
    objective(ctx, {"objective": "binary"}, binary, dtype=np.float64)


@case(arithmetic=True)
def binary_sigmoid(ctx):
    objective(ctx, {"objective": "binary", "sigmoid": 2.3, "boost_from_average": False}, binary)


@case(arithmetic=True)
def binary_saturated(ctx):
    params = {"objective": "binary", "learning_rate": 900.0, "is_unbalance": True}
    objective(ctx, params, binary, rounds=3, note="margins in the hundreds")


@case(arithmetic=True)
def cross_entropy(ctx):
    objective(ctx, {"objective": "cross_entropy"}, lambda y, rng: 1 / (1 + np.exp(-y)))


@case(arithmetic=True)
def cross_entropy_lambda(ctx):
    objective(ctx, {"objective": "cross_entropy_lambda"}, lambda y, rng: 1 / (1 + np.exp(-y)))


@case()
def multiclass(ctx):
    rng = ctx.rng()
    x = features(rng)
    ctx.emit(train({"objective": "multiclass", "num_class": 3}, x, classes_of(rng, x, 3), rounds=2), typical=x)


@case()
def multiclassova(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "multiclassova", "num_class": 3, "sigmoid": 1.7}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=2), typical=x)


@case(arithmetic=True)
def multiclass_absent_class(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = classes_of(rng, x, 2) * 2
    ctx.emit(
        train({"objective": "multiclass", "num_class": 4}, x, y, rounds=2), typical=x, note="classes 1, 3 not seen"
    )


@case(arithmetic=True)
def lambdarank(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "lambdarank"}
    ctx.emit(train(params, x, classes_of(rng, x, 4), group=[16] * (len(x) // 16)), typical=x)


@case(since=(3, 0), arithmetic=True)
def rank_xendcg(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "rank_xendcg"}
    ctx.emit(train(params, x, classes_of(rng, x, 4), group=[16] * (len(x) // 16)), typical=x)


@case()
def custom_objective(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = (signal(rng, x) > 1) * 1.0

    def logloss(predicted, data):
        p = 1 / (1 + np.exp(-predicted))
        return p - data.get_label(), p * (1 - p)

    booster = train({"objective": logloss}, x, y) if V >= (4, 0) else train({}, x, y, fobj=logloss)
    ctx.emit(booster, typical=x)


@case()
def custom_objective_several(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = classes_of(rng, x, 3)
    wanted = np.eye(3)[y]

    def squares(predicted, data):
        if V >= (4, 0):
            return predicted - wanted, np.ones_like(predicted)
        grad = predicted - wanted.T.ravel()
        return grad, np.ones_like(grad)

    if V >= (4, 0):
        booster = train({"objective": squares, "num_class": 3}, x, y, rounds=2)
    else:
        booster = train({"objective": "none", "num_class": 3}, x, y, rounds=2, fobj=squares)
    ctx.emit(booster, typical=x)


# --- boosting types --------------------------------------------------------------------------------------------------


@case()
def dart(ctx):
    objective(ctx, {"boosting": "dart", "objective": "regression", "drop_rate": 0.5, "skip_drop": 0.1}, plain, rounds=6)


@case()
def goss(ctx):
    params = {"boosting": "goss"} if V < (4, 0) else {"data_sample_strategy": "goss"}
    objective(ctx, {**params, "objective": "regression", "learning_rate": 0.6}, plain)


FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.8}


@case()
def forest_regression(ctx):
    objective(ctx, {**FOREST, "objective": "regression"}, plain, note="average_output")


@case()
def forest_binary(ctx):
    objective(ctx, {**FOREST, "objective": "binary"}, binary, note="average_output")


@case()
def forest_multiclass(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {**FOREST, "objective": "multiclass", "num_class": 3}
    ctx.emit(train(params, x, classes_of(rng, x, 3), rounds=3), typical=x, note="average_output")


@case()
def early_stop(ctx):
    for attempt in range(20):
        rng = ctx.rng(str(attempt))
        x = features(rng, rows=300)
        y = binary(signal(rng, x) + rng.normal(size=len(x)), rng)
        data = lgb.Dataset(x[:80], y[:80], params={"verbose": -1})
        held = lgb.Dataset(x[80:], y[80:], reference=data)
        params = {"objective": "binary", "num_leaves": 8, "learning_rate": 0.5, "min_data_in_leaf": 5, "verbose": -1}
        params.update({"num_threads": 1, "seed": 3})
        more = {"early_stopping_rounds": 2, "verbose_eval": False}
        if V >= (3, 3):
            more = {"callbacks": [lgb.early_stopping(2, verbose=False)]}
        booster = lgb.train(params, data, 30, valid_sets=[held], **more)
        if 1 < booster.best_iteration < 28:
            break
    else:
        raise AssertionError("never stopped early")
    ctx.emit(booster, typical=x, note=f"saved at best_iteration {booster.best_iteration}")


# --- missing values and zeros ----------------------------------------------------------------------------------------


def gaps(ctx, params, zeros, missing, dtype=np.float64, note=None):
    rng = ctx.rng()
    x = features(rng, rows=400, columns=3, missing=missing).astype(np.float64)
    x[rng.uniform(size=x.shape) < zeros] = 0.0
    y = signal(rng, x) + np.where(x[:, 1] == 0, -4, 0) + np.where(np.isnan(x[:, 2]), 4, 0)
    booster = train({"objective": "regression", "num_leaves": 10, **params}, x, y)
    # what counts as zero: up to 1e-35 rounded to float32
    edge = float(np.float32(1e-35))
    near = [edge, np.nextafter(edge, 0), np.nextafter(edge, 1), 1e-35, 1.1e-35, 9e-36, 1e-40, 1e-34]
    extra = [[x[rng.randint(400), 0], value, x[rng.randint(400), 2]] for value in [*near, *(-v for v in near)]]
    extra += [[value, 0.0, np.nan] for value in near[:3]]
    ctx.emit(booster, typical=x, dtype=dtype, extra=extra, note=note)


@case()
def missing_nan(ctx):
    gaps(ctx, {}, 0.2, 0.3)


@case()
def missing_none_in_training(ctx):
    gaps(ctx, {}, 0.2, 0.0, note="missing type none: NaN is zero")


@case(arithmetic=True)
def missing_fp32(ctx):
    gaps(ctx, {}, 0.2, 0.3, dtype=np.float32)


@case()
def zero_as_missing(ctx):
    gaps(ctx, {"zero_as_missing": True}, 0.3, 0.2)


@case(arithmetic=True)
def zero_as_missing_fp32(ctx):
    gaps(ctx, {"zero_as_missing": True}, 0.3, 0.0, dtype=np.float32)


@case()
def use_missing_false(ctx):
    gaps(ctx, {"use_missing": False}, 0.2, 0.3)


# --- inputs of other types -------------------------------------------------------------------------------------------

STEPS = [2**24 - 1, 2**24, 2**24 + 1, 2**25, 2**25 + 1, 2**25 + 2, 2**25 + 3, 2**31, -(2**31), 2**53 + 1, 0, -1, 1]


def steps(ctx):
    """Returns a model that splits between neighboring large integers."""
    rng = ctx.rng()
    x = np.stack([rng.choice(STEPS, 400), rng.choice(STEPS, 400)], axis=1)
    y = np.array([STEPS.index(value) for value in x[:, 0]]) % 5 + np.array([STEPS.index(v) for v in x[:, 1]]) % 3
    params = {"objective": "regression", "num_leaves": 16, "min_data_in_leaf": 1, "min_data_in_bin": 1}
    return train(params, x.astype(np.float64), y), np.stack([STEPS, rng.permutation(STEPS)], axis=1)


@case()
def input_int64(ctx):
    booster, rows = steps(ctx)
    ctx.emit(booster, x=rows.astype(np.int64), note="whole numbers become float32")


@case(arithmetic=True)
def input_int32(ctx):
    booster, rows = steps(ctx)
    rows = rows[(np.abs(rows) < 2**31).all(axis=1)]
    ctx.emit(booster, x=rows.astype(np.int32), note="whole numbers become float32")


@case(arithmetic=True)
def input_whole_fp64(ctx):
    booster, rows = steps(ctx)
    ctx.emit(booster, x=rows.astype(np.float64), note="the same whole numbers as FP64 stay as they are")


@case(arithmetic=True)
def input_small_types(ctx):
    rng = ctx.rng()
    x = rng.randint(0, 2, size=(200, 3)).astype(np.float64)
    booster = train({"objective": "binary"}, x, (x @ [1, 2, 4] + rng.normal(size=200) > 3) * 1, rounds=3)
    rows = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    for dtype in (np.bool_, np.uint8):
        ctx.emit(booster, x=rows.astype(dtype), name=f"input_{np.dtype(dtype).name}")


# --- categories ------------------------------------------------------------------------------------------------------


def categorical(ctx, count, params, dtype=np.float64, rounds=4, labels=None):
    rng = ctx.rng()
    x = features(rng, rows=1200, columns=3, missing=0.05).astype(np.float64)
    x[:, 1] = np.floor(rng.uniform(size=len(x)) ** 2 * count)
    x[rng.uniform(size=len(x)) < 0.05, 1] = np.nan
    effect = rng.normal(size=count) * 3
    y = effect[np.nan_to_num(x[:, 1]).astype(int)] + np.nan_to_num(x[:, 0])
    if labels:
        y = labels(y)
    base = {"objective": "regression", "num_leaves": 6, "min_data_per_group": 5, "cat_smooth": 1.0, **params}
    booster = train(base, x, y, rounds=rounds, categorical=[1])
    codes = [*range(min(count, 20)), 31, 32, 33, 63, 64, count - 1, count, count + 1, 1000]
    codes += [-1, -0.5, -0.999, -1.0, -0.0, 0.5, 1.999, 2.5, 1e-36, np.nan, 2**24, 2**31 - 1, -(2**31)]
    rows = [[x[rng.randint(len(x)), 0], code, x[rng.randint(len(x)), 2]] for code in codes]
    return booster, np.array(rows).astype(dtype)


NOTE = "codes: known, unseen, negative, fractional, missing"


@case()
def categorical_many(ctx):
    booster, rows = categorical(ctx, 120, {})
    ctx.emit(booster, x=rows, note=NOTE)


@case(arithmetic=True)
def categorical_many_fp32(ctx):
    booster, rows = categorical(ctx, 120, {}, dtype=np.float32)
    ctx.emit(booster, x=rows, note=NOTE)


@case()
def categorical_few(ctx):
    booster, rows = categorical(ctx, 4, {"max_cat_to_onehot": 8})
    ctx.emit(booster, x=rows, note=NOTE)


@case(arithmetic=True)
def categorical_int64(ctx):
    booster, rows = categorical(ctx, 40, {})
    rows[:, [0, 2]] = np.nan_to_num(rows[:, [0, 2]])
    ctx.emit(booster, x=np.nan_to_num(rows, nan=-1).astype(np.int64), note=NOTE)


@case()
def categorical_multiclass(ctx):
    params = {"objective": "multiclass", "num_class": 3}
    booster, rows = categorical(ctx, 30, params, rounds=2, labels=lambda y: np.digitize(y, [-1.5, 1.5]))
    ctx.emit(booster, x=rows, note=NOTE)


@case(arithmetic=True)
def categorical_too_large(ctx):
    booster, rows = categorical(ctx, 40, {})
    codes = [2.0**31, 2.0**32 - 1, 2.0**32, 2.0**32 + 1, 2.0**32 + 7, 3e9, 1e20, 2.0**63, 1e300, np.inf]
    codes += [-(2.0**31) - 1, -(2.0**32) + 3, -1e20, -np.inf]
    rows = np.array([[rows[0, 0], code, rows[0, 2]] for code in [*codes, *range(8)]])
    ctx.emit(booster, x=rows, note="codes that fit no 32-bit integer")


@case()
def categorical_pandas_header(ctx):
    booster, rows = categorical(ctx, 6, {})

    def edit(text):
        return text.replace("pandas_categorical:null", 'pandas_categorical:[["a", "b,=c", "größe", 4.5]]')

    ctx.emit(booster, x=rows, edit=edit, note="trained on a data frame: its values do not matter for codes")


# --- linear trees ----------------------------------------------------------------------------------------------------


def linear(ctx, params=None, dtype=np.float32, columns=4, note=None):
    rng = ctx.rng()
    x = features(rng, rows=300, columns=columns, missing=0.05)
    y = signal(rng, x) * np.where(np.nan_to_num(x[:, 0]) > 0, 2, -1)
    base = {"objective": "regression", "linear_tree": True, "linear_lambda": 0.01, "min_data_in_leaf": 20}
    booster = train({**base, **(params or {})}, x, y, rounds=4)
    rows = edge_rows(rng, thresholds(booster, dtype), columns, dtype, typical=x)
    ctx.emit(booster, x=rows, note=note)


@case(since=(3, 3))
def linear_tree(ctx):
    linear(ctx, note="a leaf's plain value where one of its columns is NaN or infinite")


@case(since=(3, 3), arithmetic=True)
def linear_tree_fp64(ctx):
    linear(ctx, dtype=np.float64)


@case(since=(3, 3))
def linear_tree_binary(ctx):
    rng = ctx.rng()
    x = features(rng, rows=300, missing=0.1)
    params = {"objective": "binary", "linear_tree": True, "min_data_in_leaf": 20}
    ctx.emit(train(params, x, binary(signal(rng, x), rng)), x=features(rng, rows=30, missing=0.2))


@case(since=(3, 3))
def linear_tree_categorical(ctx):
    booster, rows = categorical(ctx, 8, {"linear_tree": True, "min_data_in_leaf": 20})
    ctx.emit(booster, x=rows[np.abs(np.nan_to_num(rows[:, 1])) < 1e6], note=NOTE)


# --- shapes of trees -------------------------------------------------------------------------------------------------


@case(arithmetic=True)
def constant_trees(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "regression", "min_data_in_leaf": 500}
    ctx.emit(train(params, x, signal(rng, x)), x=features(rng, rows=6), note="no split was possible")


@case(arithmetic=True)
def constant_trees_binary(ctx):
    rng = ctx.rng()
    x = features(rng)
    params = {"objective": "binary", "min_data_in_leaf": 500}
    ctx.emit(train(params, x, binary(signal(rng, x), rng)), x=features(rng, rows=6), note="no split was possible")


@case(arithmetic=True)
def deep_chain(ctx):
    x = np.arange(200, dtype=np.float64).reshape(-1, 1)
    params = {"objective": "regression", "num_leaves": 40, "min_data_in_leaf": 1, "min_data_in_bin": 1}
    params.update({"learning_rate": 1.0, "min_sum_hessian_in_leaf": 0, "max_bin": 400})
    booster = train(params, x, 1.5 ** np.arange(200), rounds=1)
    rows = np.concatenate([np.arange(150, 201) - 0.5, [np.nan, -1, 1e9]]).reshape(-1, 1)
    ctx.emit(booster, x=rows, note="one tree nearly forty levels deep, one column")


@case(arithmetic=True)
def extreme_thresholds(ctx):
    rng = ctx.rng()
    values = np.array([-1.7e308, -1e300, -1e-30, -1e-34, 0, 1e-34, 1e-30, 1e-20, 1e300, 1.7e308])
    x = rng.choice(values, size=(400, 2))
    y = np.searchsorted(values, x[:, 0]) * 1.0 + np.searchsorted(values, x[:, 1]) % 3
    params = {"objective": "regression", "num_leaves": 12, "min_data_in_leaf": 1, "min_data_in_bin": 1}
    ctx.emit(train(params, x, y), typical=x, dtype=np.float64)


@case()
def feature_names(ctx):
    rng = ctx.rng()
    x = features(rng)
    names = ["sepal_length", "größe\U0001f33c", "a/b(c)%d", "名前"]
    if V < (3, 0):  # ASCII only
        names = ["sepal_length", "a/b(c)%d", "x=y", "Tree"]
    ctx.emit(train({"objective": "regression"}, x, signal(rng, x), names=names), typical=x)


@case(arithmetic=True)
def many_features(ctx):
    rng = ctx.rng()
    x = features(rng, columns=41)
    y = signal(rng, x) + np.nan_to_num(x[:, 40]) * 3
    ctx.emit(train({"objective": "binary"}, x, (y > np.median(y)) * 1), x=features(rng, rows=12, columns=41))


@case()
def continued(ctx):
    rng = ctx.rng()
    x = features(rng)
    y = signal(rng, x)
    first = train({"objective": "regression"}, x, y, rounds=2)
    first.save_model(str(ctx.out / "first.tmp"))
    booster = train({"objective": "regression"}, x, y, rounds=2, init_model=str(ctx.out / "first.tmp"))
    (ctx.out / "first.tmp").unlink()
    ctx.emit(booster, typical=x, note="training went on from a saved model")


# --- odd but valid files ---------------------------------------------------------------------------------------------


@case(arithmetic=True)
def odd_without_sizes(ctx):
    def edit(text):
        text = re.sub(r"tree_sizes=.*\n", "", text)
        return text.replace("Tree=0\n", "Tree=0\na_key_of_some_later_release=1 2 3\n", 1)

    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "regression"}, x, signal(rng, x))
    ctx.emit(booster, typical=x, edit=edit, note="no tree_sizes, an unknown key in a tree")


@case(arithmetic=True)
def odd_number_forms(ctx):
    def edit(text):
        def rewrite(match):
            return match.group(1) + " ".join(f"{float(value):+.16e}" for value in match.group(2).split())

        text = re.sub(r"tree_sizes=.*\n", "", text)
        return re.sub(r"(?m)^(leaf_value=)(.*)$", rewrite, text)

    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "regression"}, x, signal(rng, x))
    ctx.emit(booster, typical=x, edit=edit, note="leaf values as +1.2345678901234567e+00")


@case(arithmetic=True)
def odd_cut_after_trees(ctx):
    def edit(text):
        return text[: text.index("end of trees")] + "end of trees\n"

    rng = ctx.rng()
    x = features(rng)
    booster = train({"objective": "binary"}, x, binary(signal(rng, x), rng))
    ctx.emit(booster, typical=x, edit=edit, note="nothing after the trees: no importances, no parameters")
