"""Decision trees, forests and gradient boosting."""

import numpy as np
import pandas
from casefile import asked, blobs, line, rng_for
from sklearn import ensemble, linear_model, tree


def missing_rows(rows):
    """Returns rows with some values missing, and one without any values."""
    rows = rows.copy()
    rows[::2, 0] = np.nan
    rows[1::3, 2] = np.nan
    rows[0] = np.nan
    return rows


def splits(model):
    """Returns rows at the thresholds of a tree, and next to them."""
    fitted = model.tree_
    used = [node for node in range(fitted.node_count) if fitted.children_left[node] >= 0][:3]
    rows = []
    for node in used:
        threshold = np.float64(fitted.threshold[node])
        for value in (threshold, np.nextafter(threshold, -np.inf), np.float64(np.float32(threshold)), threshold + 1e-9):
            row = np.zeros(fitted.n_features)
            row[fitted.feature[node]] = value
            rows.append(row)
    return np.array(rows)


def write(out):
    singles(out)
    forests(out)
    boosting(out)
    histograms(out)
    categories(out)
    takes_missing(out)


def singles(out):
    for name, model in {
        "tree": tree.DecisionTreeClassifier(max_depth=4, random_state=0),
        "tree_entropy": tree.DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=6, random_state=0),
        "tree_weighted": tree.DecisionTreeClassifier(max_depth=3, class_weight={0: 1, 1: 5, 2: 0.3}, random_state=0),
        "tree_stump": tree.DecisionTreeClassifier(max_depth=1, random_state=0),
        "extra_tree": tree.ExtraTreeClassifier(max_depth=4, random_state=0),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng)
        model.fit(x, y)
        rows = asked(rng, x)
        out.case(name, model, [rows, rows.astype(np.float32), splits(model), np.round(rows).astype(np.int64)])
    for name, model in {
        "tree_regressor": tree.DecisionTreeRegressor(max_depth=4, random_state=0),
        "extra_tree_regressor": tree.ExtraTreeRegressor(max_depth=4, random_state=0),
    }.items():
        rng = rng_for(name)
        x, y = line(rng)
        model.fit(x, y)
        out.case(name, model, [asked(rng, x), splits(model)])
    rng = rng_for("tree_regressor_several")
    x, y = line(rng, targets=3)
    out.case("tree_regressor_several", tree.DecisionTreeRegressor(max_depth=3).fit(x, y), asked(rng, x))
    rng = rng_for("tree_constant")
    x, _ = line(rng)
    out.case("tree_constant", tree.DecisionTreeRegressor().fit(x, np.ones(len(x))), asked(rng, x, count=1))


def forests(out):
    small = {"n_estimators": 7, "max_depth": 4, "random_state": 0}
    for name, model, classes in [
        ("forest_2", ensemble.RandomForestClassifier(**small), 2),
        ("forest_3", ensemble.RandomForestClassifier(**small), 3),
        ("forest_balanced", ensemble.RandomForestClassifier(class_weight="balanced_subsample", **small), 3),
        ("extra_trees", ensemble.ExtraTreesClassifier(**small), 3),
        ("forest_ties", ensemble.RandomForestClassifier(n_estimators=4, max_depth=2, random_state=1), 2),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        if name == "forest_ties":
            x = np.round(x)
        rows = asked(rng, x, count=10)
        out.case(name, model.fit(x, np.array(["a", "b", "c"])[y]), [rows, rows.astype(np.float32)])
    for name, model, targets in [
        ("forest_regressor", ensemble.RandomForestRegressor(**small), 1),
        ("forest_regressor_several", ensemble.RandomForestRegressor(**small), 2),
        ("extra_trees_regressor", ensemble.ExtraTreesRegressor(**small), 1),
    ]:
        rng = rng_for(name)
        x, y = line(rng, targets=targets)
        out.case(name, model.fit(x, y), asked(rng, x))


def boosting(out):
    small = {"n_estimators": 6, "max_depth": 2, "random_state": 0}
    classifier, regressor = ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor
    for name, model, classes in [
        ("boosting_2", classifier(**small), 2),
        ("boosting_3", classifier(**small), 3),
        ("boosting_exponential", classifier(loss="exponential", **small), 2),
        ("boosting_zero_2", classifier(init="zero", **small), 2),
        ("boosting_zero_3", classifier(init="zero", **small), 3),
        ("boosting_logistic_2", classifier(init=linear_model.LogisticRegression(), **small), 2),
        ("boosting_logistic_3", classifier(init=linear_model.LogisticRegression(), **small), 3),
        ("boosting_subsample", classifier(subsample=0.5, learning_rate=0.3, **small), 2),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        # the first estimator is fitted in single precision
        out.case(name, model.fit(x, y), asked(rng, x), single="logistic" in name)
    for name, model in [
        ("boosting_regressor", regressor(**small)),
        ("boosting_huber", regressor(loss="huber", **small)),
        ("boosting_quantile", regressor(loss="quantile", alpha=0.3, **small)),
        ("boosting_absolute", regressor(loss="absolute_error" if out.version >= (1, 0) else "lad", **small)),
        ("boosting_regressor_zero", regressor(init="zero", **small)),
        ("boosting_linear", regressor(init=linear_model.LinearRegression(), **small)),
    ]:
        rng = rng_for(name)
        x, y = line(rng)
        out.case(name, model.fit(x, y), asked(rng, x), single="linear" in name)


def histograms(out):
    if out.version < (1, 0):
        from sklearn.experimental import enable_hist_gradient_boosting  # noqa: F401
    small = {"max_iter": 5, "max_leaf_nodes": 5, "min_samples_leaf": 5, "random_state": 0}
    for name, classes in [("histogram_2", 2), ("histogram_3", 3)]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        rows = missing_rows(asked(rng, x, count=8))
        model = ensemble.HistGradientBoostingClassifier(**small)
        out.case(name, model.fit(missing_rows(x), y), [rows, rows.astype(np.float32)])
        model = ensemble.HistGradientBoostingClassifier(**small)
        out.case(name + "_none_missing", model.fit(x, y), rows)
    losses = ["squared_error", "absolute_error", "poisson"] if out.version >= (1, 0) else ["least_squares", "poisson"]
    if out.version >= (1, 1):
        losses.append("quantile")
    if out.version >= (1, 3):
        losses.append("gamma")
    for loss in losses:
        name = f"histogram_{loss}"
        rng = rng_for(name)
        x, y = line(rng)
        more = {"quantile": 0.3} if loss == "quantile" else {}
        model = ensemble.HistGradientBoostingRegressor(loss=loss, **small, **more)
        out.case(name, model.fit(x, np.abs(y) + 0.1), asked(rng, x, count=8))


def categories(out):
    """Columns of categories: numbered ones in all versions, and those of data frames in versions that encode them."""
    small = {"max_iter": 4, "max_leaf_nodes": 6, "min_samples_leaf": 3, "random_state": 0}
    classifier, regressor = ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor
    for name, classes, marked in [
        ("categories_2", 2, [1, 3]),
        ("categories_3", 3, [False, True, False, True]),
        ("categories_number", 0, [1]),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes or 2, rows=120)
        x[:, 1] = rng.randint(12, size=len(x))
        x[:, 3] = rng.randint(40, size=len(x)) * 6
        y = (y + (x[:, 1] % 3 == 1)) % classes if classes else y + (x[:, 1] % 3)
        x[::7, 1] = np.nan
        rows = missing_rows(asked(rng, x, count=12))
        rows[:, 1] = rng.randint(14, size=len(rows))
        rows[:, 3] = rng.randint(42, size=len(rows)) * 6
        odd = [-1.0, 255.0, 12.5, 3.999, 100.0] + ([] if out.version >= (1, 4) else [256.0, 300.0, 1e10, -250.0, -1e10])
        rows[: len(odd), 1] = odd
        rows[3:6, 3] = np.nan
        model = (classifier if classes else regressor)(categorical_features=marked, **small)
        out.case(name, model.fit(x, y), [rows, rows.astype(np.float32)])
    if out.version < (1, 4):
        return
    rng = rng_for("categories_frame")
    x, y = blobs(rng, rows=120)
    words = np.array(["red", "green", "blue", "white"])
    frame = pandas.DataFrame({"size": x[:, 0], "colour": words[rng.randint(4, size=120)], "shape": rng.randint(5, size=120)})
    frame["weight"] = x[:, 1]
    y = (y + (frame["colour"] == "red") + (frame["shape"] == 2)).to_numpy() % 3
    rows = frame[:12].copy()
    rows.loc[0, "size"] = np.nan
    rows.loc[1, "colour"] = "black"
    rows.loc[2, "shape"] = 17
    model = classifier(categorical_features=["colour", "shape"], **small)
    out.case("categories_frame", model.fit(frame, y), rows)
    if out.version >= (1, 6):
        typed = frame.astype({"colour": "category"})
        out.case("categories_typed", classifier(**small).fit(typed, y), rows.assign(colour=rows["colour"].astype(str)))


def takes_missing(out):
    """Missing values, in the versions that support them."""
    models = []
    if out.version >= (1, 3):
        models.append(("missing_tree", tree.DecisionTreeClassifier(max_depth=4, random_state=0)))
        models.append(("missing_tree_unseen", tree.DecisionTreeClassifier(max_depth=4, random_state=0)))
    if out.version >= (1, 4):
        models.append(("missing_forest", ensemble.RandomForestClassifier(7, max_depth=4, random_state=0)))
    if out.version >= (1, 6):
        models.append(("missing_extra_tree", tree.ExtraTreeClassifier(max_depth=4, random_state=0)))
        models.append(("missing_extra_trees", ensemble.ExtraTreesClassifier(7, max_depth=4, random_state=0)))
    for name, model in models:
        rng = rng_for(name)
        x, y = blobs(rng)
        rows = missing_rows(asked(rng, x))
        out.case(name, model.fit(x if name.endswith("unseen") else missing_rows(x), y), rows)
