"""XGBoost's and LightGBM's wrappers for scikit-learn, by themselves and within pipelines and ensembles."""

import lightgbm
import numpy as np
import pandas
import xgboost
from casefile import asked, blobs, line, pickled, rng_for
from sklearn import compose, ensemble, linear_model, model_selection, multiclass, multioutput, preprocessing
from sklearn.pipeline import make_pipeline

LETTERS = np.array(["a", "b", "c"])


def holes(rows):
    rows = rows.copy()
    rows[::2, 0] = np.nan
    rows[1::3, 2] = np.nan
    return rows


def write(out):
    boosters(out)
    stopped(out)
    composed(out)
    if out.version >= (1, 9):
        sparse(out)


def boosters(out):
    small = {"n_estimators": 4, "max_depth": 3, "random_state": 0, "n_jobs": 1}
    light = {"n_estimators": 4, "num_leaves": 5, "min_child_samples": 5, "random_state": 0, "n_jobs": 1, "verbose": -1}
    encoded = {"use_label_encoder": False} if xgboost.__version__ < "1.6" else {}
    for name, model, classes in [
        ("xgb_2", xgboost.XGBClassifier(**small, **encoded), 2),
        ("xgb_3", xgboost.XGBClassifier(**small, **encoded), 3),
        ("xgb_forest_2", xgboost.XGBRFClassifier(**small, **encoded), 2),
        ("xgb_forest_3", xgboost.XGBRFClassifier(**small, **encoded), 3),
        ("xgb_dart", xgboost.XGBClassifier(booster="dart", rate_drop=0.3, **small, **encoded), 2),
        ("xgb_linear", xgboost.XGBClassifier(booster="gblinear", n_estimators=3, n_jobs=1, **encoded), 3),
        ("lgbm_2", lightgbm.LGBMClassifier(**light), 2),
        ("lgbm_3", lightgbm.LGBMClassifier(**light), 3),
        ("lgbm_forest", lightgbm.LGBMClassifier(boosting_type="rf", bagging_freq=1, bagging_fraction=0.6, **light), 2),
        ("lgbm_ova", lightgbm.LGBMClassifier(objective="multiclassova", **light), 3),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        rows = asked(rng, x)
        # XGBoost refuses labels that are not numbered, since 1.6
        target = LETTERS[y] if name.startswith("lgbm") else y
        inputs = [rows, rows.astype(np.float32)] + ([] if name == "xgb_linear" else [holes(rows)])
        out.case(name, model.fit(x, target), inputs, single=name.startswith("xgb"))
    if xgboost.__version__ < "1.6":
        rng = rng_for("xgb_letters")
        x, y = blobs(rng)
        out.case("xgb_letters", xgboost.XGBClassifier(**small).fit(x, LETTERS[y]), asked(rng, x), single=True)
    for name, model in [
        ("xgb_regressor", xgboost.XGBRegressor(**small)),
        ("xgb_poisson", xgboost.XGBRegressor(objective="count:poisson", **small)),
        ("xgb_forest_regressor", xgboost.XGBRFRegressor(**small)),
        ("lgbm_regressor", lightgbm.LGBMRegressor(**light)),
        ("lgbm_quantile", lightgbm.LGBMRegressor(objective="quantile", alpha=0.3, **light)),
        ("lgbm_gamma", lightgbm.LGBMRegressor(objective="gamma", **light)),
    ]:
        rng = rng_for(name)
        x, y = line(rng)
        rows = asked(rng, x)
        out.case(name, model.fit(x, np.abs(y) + 0.1), [rows, rows.astype(np.float32), holes(rows)], single="xgb" in name)
    bare_boosters(out)
    rng = rng_for("lgbm_whole_numbers")
    x, y = blobs(rng)
    x = np.round(x * 10).astype(np.int64)
    out.case("lgbm_whole_numbers", lightgbm.LGBMClassifier(**light).fit(x, y), asked(rng, x))
    model = xgboost.XGBClassifier(**small, **encoded).fit(x, y)
    out.case("xgb_whole_numbers", model, asked(rng, x), dump=pickled(2), single=True)
    names = ["one", "two", "three", "four"]
    frame = pandas.DataFrame(asked(rng, x.astype(float)), columns=names)
    x = pandas.DataFrame(x.astype(float), columns=names)
    out.case("xgb_frame", xgboost.XGBClassifier(**small, **encoded).fit(x, y), frame, single=True)
    out.case("lgbm_frame", lightgbm.LGBMClassifier(**light).fit(x, y), frame, dump=pickled(4))


def bare_boosters(out):
    """Boosters without a wrapper, whose `predict` returns what the wrapper's methods return, or probabilities."""
    few = {"num_leaves": 5, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1, "seed": 0}
    for objective, classes in [("regression", 0), ("binary", 2), ("multiclass", 3)]:
        name = f"lgbm_booster_{objective}"
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes) if classes else line(rng)
        rows = asked(rng, x)
        parameters = {**few, "objective": objective, **({"num_class": classes} if classes > 2 else {})}
        model = lightgbm.train(parameters, lightgbm.Dataset(x, y), 6)
        out.case(name, model, [rows, rows.astype(np.float32), holes(rows)])
    rng = rng_for("lgbm_booster_stopped")
    x, y = blobs(rng, classes=2)
    noise = rng.randint(2, size=len(y))
    model = lightgbm.train(
        {**few, "objective": "binary", "learning_rate": 0.5},
        lightgbm.Dataset(x, y),
        30,
        valid_sets=[lightgbm.Dataset(x, noise)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
    )
    out.case("lgbm_booster_stopped", model, asked(rng, x))


def stopped(out):
    """Models with more rounds than they use."""
    rng = rng_for("stopped")
    x, y = blobs(rng, classes=2)
    rows = asked(rng, x)
    noise = rng.randint(2, size=len(y))
    many = {"n_estimators": 30, "learning_rate": 0.5, "random_state": 0, "n_jobs": 1}
    model = lightgbm.LGBMClassifier(num_leaves=5, min_child_samples=5, verbose=-1, **many)
    model.fit(x, y, eval_set=[(x, noise)], callbacks=[lightgbm.early_stopping(3, verbose=False)])
    out.case("lgbm_stopped", model, rows)
    if xgboost.__version__ < "1.6":
        model = xgboost.XGBClassifier(max_depth=2, use_label_encoder=False, eval_metric="logloss", **many)
        model.fit(x, y, eval_set=[(x, noise)], early_stopping_rounds=3, verbose=False)
    else:
        model = xgboost.XGBClassifier(max_depth=2, eval_metric="logloss", early_stopping_rounds=3, **many)
        model.fit(x, y, eval_set=[(x, noise)], verbose=False)
    out.case("xgb_stopped", model, rows, single=True)


def composed(out):
    small = {"n_estimators": 3, "random_state": 0, "n_jobs": 1}
    light = {"num_leaves": 4, "min_child_samples": 5, "verbose": -1, **small}
    rng = rng_for("composed")
    x, y = blobs(rng)
    rows = asked(rng, x)
    models = {
        "lgbm_pipeline": make_pipeline(preprocessing.StandardScaler(), lightgbm.LGBMClassifier(**light)),
        "lgbm_search": model_selection.GridSearchCV(lightgbm.LGBMClassifier(**light), {"num_leaves": [3, 4]}, cv=2),
    }
    # the newest scikit-learn and older versions of XGBoost do not support each other's tags
    if out.version < (1, 6) or xgboost.__version__ >= "2.1.4":
        encoded = {"use_label_encoder": False} if xgboost.__version__ < "1.6" else {}
        inner = xgboost.XGBClassifier(max_depth=2, **small, **encoded)
        models["xgb_pipeline"] = make_pipeline(preprocessing.StandardScaler(), inner)
        members = [("a", inner), ("b", lightgbm.LGBMClassifier(**light))]
        models["voting_boosters"] = ensemble.VotingClassifier(members, voting="soft")
    for name, model in models.items():
        out.case(name, model.fit(x, y), rows, single=not name.startswith("lgbm"))


def sparse(out):
    """Absent values of sparse rows are missing for XGBoost and zero for others, whatever is in between."""
    rng = rng_for("sparse")
    x = rng.randint(3, size=(120, 4)).astype(float)
    y = (x.sum(axis=1) + rng.randint(2, size=120)).astype(int) % 3
    number = x @ [1.0, -2.0, 0.5, 3.0] + 5.0
    rows = np.vstack([x[:8], np.full((1, 4), 7.0)])
    settings = {"n_estimators": 3, "max_depth": 3, "random_state": 0, "n_jobs": 1}
    inner, line_ = xgboost.XGBClassifier(**settings), linear_model.LogisticRegression()
    regressor = xgboost.XGBRegressor(**settings)
    both = [("xgb", inner), ("line", line_)]
    stack = ensemble.StackingClassifier(both, final_estimator=xgboost.XGBClassifier(**settings), cv=2, passthrough=True)
    for name, model, target in [
        ("bagging", ensemble.BaggingRegressor(regressor, 2, max_features=0.7, random_state=0), number),
        ("voting", ensemble.VotingClassifier(both, voting="soft"), y),
        ("boosting", ensemble.AdaBoostClassifier(inner, n_estimators=2, random_state=0), y),
        ("rest", multiclass.OneVsRestClassifier(inner), y),
        ("pairs", multiclass.OneVsOneClassifier(inner), y),
        ("codes", multiclass.OutputCodeClassifier(inner, random_state=0), y),
        ("stacking", stack, y),
        ("target", compose.TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp), np.abs(number) + 1.0),
        ("each", multioutput.MultiOutputRegressor(regressor), np.column_stack([number, y])),
        ("chain", multioutput.RegressorChain(regressor), np.column_stack([number, y])),
    ]:
        pipeline = make_pipeline(preprocessing.OneHotEncoder(handle_unknown="ignore"), model)
        out.case(f"sparse_{name}", pipeline.fit(x, target), rows, single=True)
