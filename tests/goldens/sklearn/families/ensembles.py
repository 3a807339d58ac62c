"""Estimators that are made of any others: bags, boosts, votes and stacks of them, calibration, thresholds, and what turns
classifiers of two classes into others."""

import numpy as np
import pandas
from casefile import asked, blobs, line, rng_for
from sklearn import (
    calibration,
    compose,
    ensemble,
    isotonic,
    linear_model,
    multiclass,
    multioutput,
    naive_bayes,
    preprocessing,
    semi_supervised,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline

LETTERS = np.array(["a", "b", "c", "d"])


def write(out):
    bagging(out)
    boosting(out)
    isolation(out)
    voting(out)
    stacking(out)
    calibrated(out)
    thresholds(out)
    several_classes(out)
    several_targets(out)
    targets(out)


def estimator(out, value):
    """Returns the parameter that was renamed in 1.2."""
    return {"estimator" if out.version >= (1, 2) else "base_estimator": value}


def shallow(depth=2):
    return tree.DecisionTreeClassifier(max_depth=depth, random_state=0)


def bagging(out):
    small = {"n_estimators": 4, "random_state": 0}
    for name, inner, classes, more in [
        ("bagging_trees", shallow(), 3, {}),
        ("bagging_features", shallow(), 3, {"max_features": 0.5}),
        ("bagging_drawn_features", naive_bayes.GaussianNB(), 2, {"bootstrap_features": True}),
        ("bagging_votes", linear_model.RidgeClassifier(), 3, {}),
        ("bagging_scores", linear_model.LogisticRegression(), 2, {}),
        ("bagging_scores_3", linear_model.LogisticRegression(), 3, {"max_features": 3}),
        ("bagging_few_rows", shallow(), 4, {"max_samples": 5}),
        ("bagging_pipelines", make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()), 3, {}),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        model = ensemble.BaggingClassifier(**estimator(out, inner), **small, **more)
        rows = asked(rng, x)
        out.case(name, model.fit(x, LETTERS[y]), [rows, rows.astype(np.float32)])
    for name, inner, more in [
        ("bagging_regressor", tree.DecisionTreeRegressor(max_depth=3, random_state=0), {"max_features": 2}),
        ("bagging_linear", linear_model.Ridge(), {}),
    ]:
        rng = rng_for(name)
        x, y = line(rng)
        out.case(name, ensemble.BaggingRegressor(**estimator(out, inner), **small, **more).fit(x, y), asked(rng, x))


def boosting(out):
    small = {"n_estimators": 5, "random_state": 0}
    algorithms = ["SAMME", "SAMME.R"] if out.version < (1, 6) else [None]
    for algorithm in algorithms:
        for classes in (2, 3):
            for kind, inner in [("stumps", shallow(1)), ("trees", shallow(2)), ("bayes", naive_bayes.GaussianNB())]:
                name = f"ada_{algorithm or 'newest'}_{kind}_{classes}".lower().replace(".", "_")
                rng = rng_for(name)
                x, y = blobs(rng, classes=classes)
                more = {"algorithm": algorithm} if algorithm else {}
                model = ensemble.AdaBoostClassifier(**estimator(out, inner), **small, **more)
                out.case(name, model.fit(x, LETTERS[y]), asked(rng, x))
    for loss in ("linear", "square", "exponential"):
        name = f"ada_regressor_{loss}"
        rng = rng_for(name)
        x, y = line(rng)
        inner = tree.DecisionTreeRegressor(max_depth=3, random_state=0)
        model = ensemble.AdaBoostRegressor(**estimator(out, inner), loss=loss, **small)
        out.case(name, model.fit(x, y), asked(rng, x, count=12))


def isolation(out):
    for name, more in [
        ("isolation", {}),
        ("isolation_contaminated", {"contamination": 0.2}),
        ("isolation_features", {"max_features": 2, "max_samples": 20}),
        ("isolation_bootstrap", {"bootstrap": True, "max_samples": 0.5}),
    ]:
        rng = rng_for(name)
        x, _ = blobs(rng, rows=60)
        rows = asked(rng, x, count=10)
        inputs = [rows, rows.astype(np.float32)]
        if out.version >= (1, 6):
            holes = rows.copy()
            holes[::2, 1] = np.nan
            inputs.append(holes)
        out.case(name, ensemble.IsolationForest(n_estimators=6, random_state=0, **more).fit(x), inputs)


def voting(out):
    def members():
        return [
            ("a", linear_model.LogisticRegression()),
            ("b", shallow()),
            ("c", make_pipeline(preprocessing.StandardScaler(), naive_bayes.GaussianNB())),
        ]

    for name, more in [
        ("voting_hard", {}),
        ("voting_hard_weights", {"weights": [1, 2, 0.5]}),
        ("voting_soft", {"voting": "soft"}),
        ("voting_soft_weights", {"voting": "soft", "weights": [3, 1, 2.5]}),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng)
        rows = asked(rng, x)
        out.case(name, ensemble.VotingClassifier(members(), **more).fit(x, LETTERS[y]), [rows, rows.astype(np.float32)])
    rng = rng_for("voting_dropped")
    x, y = blobs(rng)
    dropped = [members()[0], ("b", "drop"), members()[2]]
    model = ensemble.VotingClassifier(dropped, voting="soft", weights=[1, 7, 2])
    out.case("voting_dropped", model.fit(x, y), asked(rng, x))
    for name, more in [("voting_regressor", {}), ("voting_regressor_weights", {"weights": [1, 3]})]:
        rng = rng_for(name)
        x, y = line(rng)
        both = [("a", linear_model.LinearRegression()), ("b", tree.DecisionTreeRegressor(max_depth=3, random_state=0))]
        out.case(name, ensemble.VotingRegressor(both, **more).fit(x, y), asked(rng, x))
    if out.version >= (1, 0):
        names = ["one", "two", "three", "four"]
        rng = rng_for("voting_frame")
        x, y = blobs(rng)
        rows = pandas.DataFrame(asked(rng, x), columns=names)
        out.case("voting_frame", ensemble.VotingClassifier(members()).fit(pandas.DataFrame(x, columns=names), y), rows)


def stacking(out):
    def members():
        return [("a", shallow()), ("b", svm.LinearSVC(random_state=0)), ("c", naive_bayes.GaussianNB())]

    for name, classes, final, more in [
        ("stacking_2", 2, None, {}),
        ("stacking_3", 3, None, {}),
        ("stacking_passthrough", 3, None, {"passthrough": True}),
        ("stacking_predict", 3, shallow(3), {"stack_method": "predict"}),
        ("stacking_tree", 2, shallow(3), {"passthrough": True}),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        rows = asked(rng, x, huge=10.0)
        model = ensemble.StackingClassifier(members(), final, cv=2, **more)
        out.case(name, model.fit(x, LETTERS[y]), [rows, rows.astype(np.float32)])
    for name, more in [("stacking_regressor", {}), ("stacking_regressor_passthrough", {"passthrough": True})]:
        rng = rng_for(name)
        x, y = line(rng)
        both = [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3, random_state=0))]
        out.case(name, ensemble.StackingRegressor(both, cv=2, **more).fit(x, y), asked(rng, x))


def calibrated(out):
    inner = {
        "scores": svm.LinearSVC(random_state=0),
        "probabilities": naive_bayes.GaussianNB(),
        "forest": ensemble.RandomForestClassifier(3, max_depth=2, random_state=0),
    }
    methods = ["sigmoid", "isotonic"] + (["temperature"] if out.version >= (1, 8) else [])
    for kind in inner:
        for method in methods:
            for classes in (2, 3):
                name = f"calibrated_{kind}_{method}_{classes}"
                rng = rng_for(name)
                x, y = blobs(rng, classes=classes)
                model = calibration.CalibratedClassifierCV(**estimator(out, inner[kind]), method=method, cv=2)
                out.case(name, model.fit(x, LETTERS[y]), asked(rng, x))
    rng = rng_for("calibrated_one")
    x, y = blobs(rng)
    model = calibration.CalibratedClassifierCV(**estimator(out, shallow()), cv=3, ensemble=False)
    out.case("calibrated_one", model.fit(x, y), asked(rng, x))
    rng = rng_for("isotonic")
    x, y = line(rng, rows=40, columns=1)
    inside = np.clip(asked(rng, x, huge=1.0), x.min(), x.max())
    inside = np.vstack([inside, x[:3], [[x.min()], [x.max()]]])
    for outside in ("nan", "clip", "raise"):
        for increasing in (True, False):
            rows = inside if outside == "raise" else np.vstack([inside, asked(rng, x)])
            model = isotonic.IsotonicRegression(out_of_bounds=outside, increasing=increasing).fit(x[:, 0], y)
            out.case(f"isotonic_{outside}_{'up' if increasing else 'down'}", model, rows)
    model = isotonic.IsotonicRegression(out_of_bounds="clip").fit(x[:, 0].astype(np.float32), y.astype(np.float32))
    out.case("isotonic_single", model, inside, single=True)


def thresholds(out):
    rng = rng_for("self_training")
    x, y = blobs(rng)
    unknown = np.where(rng.rand(len(y)) < 0.3, -1, y)
    model = semi_supervised.SelfTrainingClassifier(linear_model.LogisticRegression())
    out.case("self_training", model.fit(x, unknown), asked(rng, x))
    if out.version >= (1, 6):
        from sklearn.frozen import FrozenEstimator

        x, y = blobs(rng)
        out.case("frozen", FrozenEstimator(linear_model.LogisticRegression().fit(x, y)), asked(rng, x))
        model = calibration.CalibratedClassifierCV(FrozenEstimator(shallow().fit(x, y))).fit(x, y)
        out.case("frozen_calibrated", model, asked(rng, x))
    if out.version < (1, 5):
        return
    from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

    logistic = linear_model.LogisticRegression
    for name, model, labels in [
        ("threshold", FixedThresholdClassifier(logistic(), threshold=0.3), LETTERS),
        ("threshold_auto", FixedThresholdClassifier(logistic()), LETTERS),
        ("threshold_first", FixedThresholdClassifier(logistic(), threshold=0.2, pos_label="a"), LETTERS),
        (
            "threshold_scores",
            FixedThresholdClassifier(logistic(), threshold=0.7, pos_label=5, response_method="decision_function"),
            np.array([5, 9]),
        ),
        ("threshold_ridge", FixedThresholdClassifier(linear_model.RidgeClassifier(), threshold=0.1), LETTERS),
        ("threshold_tuned", TunedThresholdClassifierCV(logistic(), cv=3), LETTERS),
        ("threshold_tuned_f1", TunedThresholdClassifierCV(logistic(), cv=3, scoring="f1"), np.array([1, 2])),
        ("threshold_tuned_balanced", TunedThresholdClassifierCV(logistic(), cv=3), np.array([1, 2])),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=2)
        out.case(name, model.fit(x, labels[y]), asked(rng, x, count=12))


def several_classes(out):
    for name, inner, classes in [
        ("ovr_logistic_2", linear_model.LogisticRegression(), 2),
        ("ovr_logistic_3", linear_model.LogisticRegression(), 3),
        ("ovr_svc", svm.SVC(gamma=0.5), 3),
        ("ovr_trees", shallow(3), 3),
        ("ovr_trees_2", shallow(3), 2),
        ("ovr_ridge", linear_model.Ridge(), 3),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        rows = asked(rng, x, count=10)
        out.case(name, multiclass.OneVsRestClassifier(inner).fit(x, LETTERS[y]), [rows, rows.astype(np.float32)])
    rng = rng_for("ovr_labels")
    x, y = blobs(rng)
    flags = np.stack([y == 0, y != 1, x[:, 0] > 0], axis=1).astype(int)
    out.case("ovr_labels", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()).fit(x, flags), asked(rng, x))
    for name, inner, classes in [
        ("ovo_logistic_2", linear_model.LogisticRegression(), 2),
        ("ovo_svc", svm.LinearSVC(random_state=0), 4),
        ("ovo_trees", shallow(3), 3),
        ("ovo_trees_2", shallow(3), 2),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        out.case(name, multiclass.OneVsOneClassifier(inner).fit(x, LETTERS[y]), asked(rng, x, count=10))
    for name, inner in [("codes", linear_model.LogisticRegression()), ("codes_trees", shallow(3))]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=4)
        model = multiclass.OutputCodeClassifier(inner, code_size=1.5, random_state=0)
        out.case(name, model.fit(x, LETTERS[y]), asked(rng, x, count=10))


def several_targets(out):
    rng = rng_for("several_targets")
    x, y = line(rng, targets=3)
    for name, model in {
        "targets_ridge": multioutput.MultiOutputRegressor(linear_model.Ridge()),
        "targets_boosting": multioutput.MultiOutputRegressor(
            ensemble.GradientBoostingRegressor(n_estimators=3, max_depth=2, random_state=0)
        ),
        "chain_ridge": multioutput.RegressorChain(linear_model.Ridge(), order=[2, 0, 1]),
        "chain_trees": multioutput.RegressorChain(tree.DecisionTreeRegressor(max_depth=3, random_state=0)),
    }.items():
        rows = asked(rng, x)
        out.case(name, model.fit(x, y), [rows, rows.astype(np.float32)], single=name == "chain_ridge")
    classes = np.stack([y[:, 0] > 0, y[:, 1] > 1, y[:, 2] > 0], axis=1).astype(int)
    for name, model in {
        "targets_classes": multioutput.MultiOutputClassifier(linear_model.LogisticRegression()),
        "targets_letters": multioutput.MultiOutputClassifier(shallow()),
        "chain_classes": multioutput.ClassifierChain(linear_model.LogisticRegression(), order=[1, 2, 0]),
        "chain_classes_trees": multioutput.ClassifierChain(shallow(3)),
    }.items():
        out.case(name, model.fit(x, LETTERS[classes] if name.endswith("letters") else classes), asked(rng, x))
    if out.version >= (1, 5):
        chain = multioutput.ClassifierChain(linear_model.LogisticRegression(), chain_method="predict_proba")
        out.case("chain_probabilities", chain.fit(x, classes), asked(rng, x))


def targets(out):
    rng = rng_for("targets")
    x, y = line(rng)
    y = np.abs(y) + 0.5
    target = compose.TransformedTargetRegressor
    for name, model in {
        "target_log": target(linear_model.LinearRegression(), func=np.log, inverse_func=np.exp),
        "target_log1p": target(tree.DecisionTreeRegressor(max_depth=3), func=np.log1p, inverse_func=np.expm1),
        "target_sqrt": target(linear_model.Ridge(), func=np.sqrt, inverse_func=np.square),
        "target_same": target(linear_model.Ridge()),
        "target_standard": target(linear_model.Ridge(), transformer=preprocessing.StandardScaler()),
        "target_min_max": target(linear_model.Ridge(), transformer=preprocessing.MinMaxScaler()),
        "target_robust": target(
            make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()), transformer=preprocessing.RobustScaler()
        ),
    }.items():
        out.case(name, model.fit(x, y), asked(rng, x, huge=10.0))
    model = target(linear_model.Ridge(), transformer=preprocessing.MaxAbsScaler())
    out.case("target_several", model.fit(x, np.stack([y, 2 * y + 1], axis=1)), asked(rng, x))
