"""Random models of both libraries; runs with the version that writes them.

Each model has a number, from which everything about it is drawn, so any of them can be made again.
"""

import sys
import traceback

import numpy as np

from casefile import rng_for, signal

OBJECTIVES = {
    "xgboost": {
        "values": ["reg:squarederror", "reg:pseudohubererror", "reg:absoluteerror"],
        "positive": ["count:poisson", "reg:gamma", "reg:tweedie"],
        "binary": ["binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic"],
        "classes": ["multi:softprob", "multi:softmax"],
    },
    "lightgbm": {
        "values": ["regression", "regression_l1", "huber", "fair", "quantile", "mape"],
        "positive": ["poisson", "gamma", "tweedie"],
        "binary": ["binary", "cross_entropy", "cross_entropy_lambda"],
        "classes": ["multiclass", "multiclassova"],
    },
}


def write_random(library, cases, out, version, start, count):
    """Writes the cases of random models with these numbers, and returns how many the library could train."""
    written = 0
    for number in range(start, start + count):
        ctx = cases.Context(out, version, f"random_{number}")
        rng = rng_for(ctx.function)
        data = Table(rng, OBJECTIVES[library])
        try:
            (of_xgboost if library == "xgboost" else of_lightgbm)(cases, ctx, rng, data)
            written += 1
        except AssertionError:
            traceback.print_exc()
            sys.exit(f"{ctx.function}: the library's own answers differ")
        except Exception as error:
            # some parameters do not go together
            print(f"  {ctx.function} is left out: {str(error).splitlines()[0][:120]}", flush=True)
    return written


class Table:
    """Random rows and labels: how many columns, which of them are categories, what is missing, and what is predicted."""

    def __init__(self, rng, objectives):
        self.columns = rng.randint(1, 13)
        rows = rng.randint(40, 400)
        self.x = rng.normal(size=(rows, self.columns)).astype(np.float32)
        if rng.uniform() < 0.2:
            self.x = np.round(self.x * 2) / np.float32(2)
        self.categories = [column for column in range(self.columns) if rng.uniform() < 0.15]
        self.y = signal(rng, self.x)
        for column in self.categories:
            self.x[:, column] = rng.randint(0, rng.choice([3, 10, 60]), rows)
            self.y = self.y + (self.x[:, column] % 3)
        self.x[rng.uniform(size=self.x.shape) < rng.choice([0, 0.05, 0.4])] = np.nan
        kind = rng.choice(sorted(objectives))
        self.objective = rng.choice(objectives[kind])
        self.classes = rng.randint(3, 6)
        if kind == "positive":
            self.y = np.exp(self.y / 6)
        elif kind == "binary":
            self.y = (self.y > np.median(self.y)) * 1
        elif kind == "classes":
            self.y = np.digitize(self.y, np.quantile(self.y, np.linspace(0, 1, self.classes + 1)[1:-1]))
        self.kind = kind
        self.weight = rng.uniform(0.2, 3, rows) if rng.uniform() < 0.2 else None


def of_xgboost(cases, ctx, rng, data):
    params = {
        "objective": data.objective,
        "max_depth": rng.choice([1, 2, 3, 6, 10]),
        "eta": rng.choice([0.1, 0.4, 1.0]),
        "booster": rng.choice(["gbtree", "gbtree", "gbtree", "dart"]),
        "num_parallel_tree": rng.choice([1, 1, 1, 3]),
        "min_child_weight": rng.choice([0, 1]),
        "lambda": rng.choice([0.0, 1.0]),
        "subsample": rng.choice([0.6, 1.0]),
        "tree_method": rng.choice(["hist", "approx"] if data.categories else ["hist", "approx", "exact"]),
        "max_cat_to_onehot": rng.choice([1, 4, 100]),
        "seed": int(rng.randint(1000)),
    }
    if params["booster"] == "dart":
        params.update({"rate_drop": 0.3, "one_drop": 1})
    if params["tree_method"] == "hist" and rng.uniform() < 0.3:
        params.update({"grow_policy": "lossguide", "max_leaves": int(rng.randint(2, 40)), "max_depth": 0})
    if data.kind == "classes":
        params["num_class"] = data.classes
    if rng.uniform() < 0.2 and data.kind in ("values", "positive"):
        params["base_score"] = float(rng.uniform(0.2, 3))
    types = ["c" if column in data.categories else "q" for column in range(data.columns)]
    matrix = cases.xgb.DMatrix(
        data.x, data.y, weight=data.weight, missing=np.nan, feature_types=types, enable_categorical=True
    )
    booster = cases.train(params, data.x, data.y, rounds=int(rng.randint(1, 15)), matrix=matrix)
    # rows like those of training: neighbors of thresholds are no categories, and the library refuses others
    ctx.emit(booster, x=data.x[:40] if data.categories else None, typical=data.x)


def of_lightgbm(cases, ctx, rng, data):
    params = {
        "objective": data.objective,
        "num_leaves": int(rng.choice([2, 5, 31])),
        "max_depth": int(rng.choice([-1, 2, 8])),
        "min_data_in_leaf": int(rng.choice([1, 5, 20])),
        "learning_rate": float(rng.choice([0.1, 0.5])),
        "boosting": str(rng.choice(["gbdt", "gbdt", "dart", "rf"])),
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "use_missing": bool(rng.uniform() < 0.8),
        "zero_as_missing": bool(rng.uniform() < 0.2),
        "max_cat_to_onehot": int(rng.choice([1, 4, 100])),
        "min_data_per_group": 1,
        "cat_smooth": 1.0,
        "linear_tree": bool(rng.uniform() < 0.1),
        "seed": int(rng.randint(1000)),
    }
    if params["linear_tree"]:
        # the library refuses both together
        params["zero_as_missing"] = False
    if data.kind == "classes":
        params["num_class"] = int(data.classes)
    dtype = np.float64 if rng.uniform() < 0.5 else np.float32
    booster = cases.train(
        params,
        data.x.astype(dtype),
        data.y,
        rounds=int(rng.randint(1, 15)),
        weight=data.weight,
        categorical=data.categories or "auto",
    )
    ctx.emit(booster, typical=data.x.astype(dtype), dtype=dtype)
