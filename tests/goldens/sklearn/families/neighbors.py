"""Nearest neighbors."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import neighbors


def grid(rng, classes=3):
    """Returns integers with many ties in their distances."""
    y = rng.randint(classes, size=80)
    x = rng.randint(-3, 4, size=(80, 3)).astype(np.float64)
    return x, y


def write(out):
    classifiers(out)
    regressors(out)
    radius(out)
    centroids(out)


def classifiers(out):
    for name, model in {
        "knn": neighbors.KNeighborsClassifier(),
        "knn_distance": neighbors.KNeighborsClassifier(weights="distance"),
        "knn_one": neighbors.KNeighborsClassifier(1),
        "knn_brute": neighbors.KNeighborsClassifier(7, algorithm="brute"),
        "knn_ball": neighbors.KNeighborsClassifier(algorithm="ball_tree", leaf_size=5),
        "knn_kd": neighbors.KNeighborsClassifier(algorithm="kd_tree", leaf_size=3),
        "knn_manhattan": neighbors.KNeighborsClassifier(p=1, leaf_size=5),
        "knn_minkowski": neighbors.KNeighborsClassifier(p=3, leaf_size=5),
        "knn_chebyshev": neighbors.KNeighborsClassifier(metric="chebyshev", leaf_size=5),
        "knn_ball_manhattan": neighbors.KNeighborsClassifier(algorithm="ball_tree", metric="manhattan", leaf_size=5),
        "knn_brute_manhattan": neighbors.KNeighborsClassifier(algorithm="brute", metric="manhattan", weights="distance"),
        "knn_cosine": neighbors.KNeighborsClassifier(metric="cosine", weights="distance"),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng, rows=60)
        rows = asked(rng, x, huge=20.0)[:-1]
        if "cosine" in name:
            # parallel rows, and rows without direction, differ only by rounding
            rows = rows[:6]
        out.case(name, model.fit(x, np.array(["a", "b", "c"])[y]), [rows, rows.astype(np.float32)])
    for name, model in {
        "knn_ties_kd": neighbors.KNeighborsClassifier(algorithm="kd_tree", leaf_size=4),
        "knn_ties_ball": neighbors.KNeighborsClassifier(algorithm="ball_tree", leaf_size=4),
        "knn_ties_distance": neighbors.KNeighborsClassifier(8, weights="distance", leaf_size=6),
        "knn_ties_manhattan": neighbors.KNeighborsClassifier(algorithm="kd_tree", p=1, leaf_size=4),
        "knn_ties_brute": neighbors.KNeighborsClassifier(algorithm="brute"),
    }.items():
        # before 1.1 the order is that of a partial sort, which is unspecified
        if name.endswith("brute") and out.version < (1, 1):
            continue
        rng = rng_for(name)
        x, y = grid(rng)
        out.case(name, model.fit(x, y), rng.randint(-3, 4, size=(40, 3)).astype(np.float64))
    rng = rng_for("knn_single")
    x, y = blobs(rng, rows=60, dtype=np.float32)
    rows = asked(rng, x, huge=20.0)[:-1]
    model = neighbors.KNeighborsClassifier(weights="distance", algorithm="kd_tree")
    out.case("knn_single", model.fit(x, y), [rows, rows.astype(np.float64)])


def regressors(out):
    for name, model, targets in [
        ("knn_regressor", neighbors.KNeighborsRegressor(), 1),
        ("knn_regressor_distance", neighbors.KNeighborsRegressor(10, weights="distance"), 1),
        ("knn_regressor_brute", neighbors.KNeighborsRegressor(9, algorithm="brute"), 1),
        ("knn_regressor_several", neighbors.KNeighborsRegressor(weights="distance"), 3),
    ]:
        rng = rng_for(name)
        x, y = line(rng, rows=60, targets=targets)
        out.case(name, model.fit(x, y), asked(rng, x, huge=20.0)[:-1])
    for kind in ("float32", "int64"):
        rng = rng_for(f"knn_regressor_{kind}")
        x, y = line(rng, rows=60)
        out.case(f"knn_regressor_{kind}", neighbors.KNeighborsRegressor().fit(x, (9 * y).astype(kind)), asked(rng, x, huge=20.0))


def radius(out):
    for name, model in {
        "radius": neighbors.RadiusNeighborsClassifier(radius=2.5, outlier_label="most_frequent"),
        "radius_distance": neighbors.RadiusNeighborsClassifier(radius=2.5, outlier_label=9, weights="distance"),
        "radius_brute": neighbors.RadiusNeighborsClassifier(radius=30.0, algorithm="brute"),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng, rows=60)
        out.case(name, model.fit(x, y), asked(rng, x, huge=10.0)[:-1])
    rng = rng_for("radius_regressor")
    x, y = line(rng, rows=60)
    model = neighbors.RadiusNeighborsRegressor(radius=1.5, weights="distance")
    out.case("radius_regressor", model.fit(x, y), asked(rng, x, huge=10.0)[:-1])


def centroids(out):
    for classes in (2, 3):
        for name, model in {
            "centroid": neighbors.NearestCentroid(),
            "centroid_manhattan": neighbors.NearestCentroid(metric="manhattan"),
            "centroid_shrunk": neighbors.NearestCentroid(shrink_threshold=0.4),
        }.items():
            rng = rng_for(f"{name}_{classes}")
            x, y = blobs(rng)
            y = y % classes
            out.case(f"{name}_{classes}", model.fit(x, np.array(["a", "b", "c"])[y]), asked(rng, x, huge=5.0))
    if out.version >= (1, 6):
        rng = rng_for("centroid_priors")
        x, y = blobs(rng)
        model = neighbors.NearestCentroid(priors="empirical")
        out.case("centroid_priors", model.fit(x, np.minimum(y, 1)), asked(rng, x, huge=5.0))
