"""Transformers of numbers: quantiles, powers, products, splines, bins, selections, imputers."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import ensemble, feature_selection, impute, linear_model, preprocessing, svm
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.pipeline import make_pipeline


def holes(rng, x, share=0.25):
    x = x.copy()
    x[rng.rand(*x.shape) < share] = np.nan
    return x


def write(out):
    quantiles(out)
    powers(out)
    products(out)
    if out.version >= (1, 0):
        splines(out)
    bins(out)
    selections(out)
    imputers(out)


def quantiles(out):
    for name, model in {
        "quantile": preprocessing.QuantileTransformer(n_quantiles=20),
        "quantile_normal": preprocessing.QuantileTransformer(n_quantiles=20, output_distribution="normal"),
        "quantile_all": preprocessing.QuantileTransformer(n_quantiles=60),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng, rows=60)
        x[:, 2] = np.round(x[:, 2])
        x[:, 3] = 5.0
        rows = np.vstack([asked(rng, x, count=12), x[:5], np.sort(x, axis=0)[[0, -1]]])
        gaps = rows.copy()
        gaps[::2, 1] = np.nan
        out.case(name, model.fit(x), [rows, rows.astype(np.float32), np.round(rows).astype(np.int64), gaps])


def powers(out):
    for method in ("yeo-johnson", "box-cox"):
        for standardize in (True, False):
            name = f"power_{method}_{standardize}"
            rng = rng_for(name)
            x, _ = blobs(rng, rows=60)
            # of tiny numbers 1 + x keeps few digits, which versions lose in their own ways
            rows = asked(rng, x, huge=20.0)[:-1]
            if method == "box-cox":
                x, rows = np.exp(x / 2), np.exp(rows / 4)
            gaps = rows.copy()
            gaps[::2, 1] = np.nan
            model = preprocessing.PowerTransformer(method, standardize=standardize)
            out.case(name, model.fit(x), [rows, gaps])
    rng = rng_for("power_edges")
    x, _ = blobs(rng, rows=60)
    model = preprocessing.PowerTransformer(standardize=False).fit(x)
    model.lambdas_ = np.array([0.0, 2.0, 1.0, -1.5])
    out.case("power_edges", model, asked(rng, x, huge=20.0)[:-1])


def products(out):
    polynomial = preprocessing.PolynomialFeatures
    models = {
        "polynomial": polynomial(),
        "polynomial_3": polynomial(3),
        "polynomial_interaction": polynomial(3, interaction_only=True),
        "polynomial_no_bias": polynomial(2, include_bias=False),
        "polynomial_0": polynomial(1, interaction_only=True),
    }
    if out.version >= (1, 0):
        models["polynomial_range"] = polynomial((2, 3))
        models["polynomial_range_no_bias"] = polynomial((2, 4), include_bias=False, interaction_only=True)
    for name, model in models.items():
        rng = rng_for(name)
        x, _ = blobs(rng)
        rows = asked(rng, x)
        out.case(name, model.fit(x), [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)])


def splines(out):
    spline = preprocessing.SplineTransformer
    for extrapolation in ("constant", "linear", "continue", "periodic"):
        for degree in (0, 1, 2, 3):
            name = f"spline_{extrapolation}_{degree}"
            if extrapolation == "periodic" and degree == 0:
                continue
            rng = rng_for(name)
            x, _ = blobs(rng, columns=3)
            rows = np.vstack([asked(rng, x, huge=10.0), np.sort(x, axis=0)[[0, -1]]])
            if extrapolation == "constant" and degree == 0:
                rows = x[:6]  # scikit-learn fails beyond the knots
            model = spline(degree=degree, extrapolation=extrapolation, n_knots=5)
            out.case(name, model.fit(x), rows)
    for name, model in {
        "spline_no_bias": spline(include_bias=False),
        "spline_quantile": spline(knots="quantile", extrapolation="linear"),
        "spline_error": spline(extrapolation="error"),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng, columns=3)
        rows = x[:8] if name == "spline_error" else asked(rng, x, huge=10.0)
        out.case(name, model.fit(x), [rows] if name == "spline_error" else [rows, np.round(rows).astype(np.int64)])


def bins(out):
    for encode in ("onehot", "onehot-dense", "ordinal"):
        for strategy in ("uniform", "quantile", "kmeans"):
            name = f"bins_{encode}_{strategy}"
            rng = rng_for(name)
            x, _ = blobs(rng, rows=60)
            x = np.round(x, 1)
            rows = np.vstack([asked(rng, x), x[:6]])
            more = {"quantile_method": "linear"} if out.version >= (1, 7) and strategy == "quantile" else {}
            model = preprocessing.KBinsDiscretizer([3, 4, 5, 2], encode=encode, strategy=strategy, **more)
            model.fit(x)
            edges = np.array([[edge[min(1 + i, len(edge) - 2)] for edge in model.bin_edges_] for i in range(3)])
            out.case(name, model, [rows, edges, rows.astype(np.float32)])
    name = "bins_single"
    rng = rng_for(name)
    x, _ = blobs(rng, rows=60)
    out.case(name, preprocessing.KBinsDiscretizer(4, encode="ordinal", strategy="uniform", dtype=np.float32).fit(x), asked(rng, x))


def selections(out):
    select = feature_selection
    classifier = linear_model.LogisticRegression()
    sparse = {"solver": "saga", "max_iter": 1000, "penalty": "l1", "C": 0.2} if out.version < (1, 8) else {"solver": "saga", "max_iter": 1000, "l1_ratio": 1.0, "C": 0.2}
    models = {
        "variance": select.VarianceThreshold(1.0),
        "variance_zero": select.VarianceThreshold(),
        "best": select.SelectKBest(k=3),
        "best_all": select.SelectKBest(k="all"),
        "best_mutual": select.SelectKBest(lambda x, y: np.array([1.0, np.nan, 3.0, 3.0, 2.0, 1.0]), k=2),
        "percentile": select.SelectPercentile(percentile=40),
        "percentile_ties": select.SelectPercentile(percentile=50),
        "fpr": select.SelectFpr(alpha=0.01),
        "fdr": select.SelectFdr(alpha=0.01),
        "fwe": select.SelectFwe(alpha=0.01),
        "generic_best": select.GenericUnivariateSelect(mode="k_best", param=2),
        "generic_percentile": select.GenericUnivariateSelect(mode="percentile", param=30),
        "generic_fdr": select.GenericUnivariateSelect(mode="fdr", param=0.05),
        "rfe": select.RFE(classifier, n_features_to_select=3),
        "rfe_cv": select.RFECV(svm.LinearSVC(random_state=0), cv=3),
        "model": select.SelectFromModel(classifier),
        "model_median": select.SelectFromModel(classifier, threshold="1.25*median"),
        "model_number": select.SelectFromModel(classifier, threshold=0.5, norm_order=2),
        "model_most": select.SelectFromModel(classifier, threshold=-np.inf, max_features=2),
        "model_l1": select.SelectFromModel(linear_model.LogisticRegression(random_state=0, **sparse)),
        "model_lasso": select.SelectFromModel(linear_model.Lasso(alpha=0.1)),
        "model_forest": select.SelectFromModel(ensemble.RandomForestClassifier(5, max_depth=3, random_state=0)),
        "model_extra": select.SelectFromModel(ensemble.ExtraTreesRegressor(5, max_depth=3, random_state=0), threshold="median"),
        "model_boosting": select.SelectFromModel(ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0)),
        "sequential": select.SequentialFeatureSelector(classifier, n_features_to_select=2, cv=2),
    }
    for name, model in models.items():
        rng = rng_for(name)
        x, y = blobs(rng, columns=6)
        x[:, 1] = 4.0
        x[:, 4] *= 0.3
        if name == "percentile_ties":
            x[:, 3] = x[:, 5] = x[:, 0]
        rows = asked(rng, x)
        model.fit(x, y)
        if name == "best_mutual":
            model.score_func = select.f_classif
        out.case(name, model, [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)])
    rng = rng_for("select_pipeline")
    x, y = blobs(rng, columns=6)
    model = make_pipeline(select.SelectKBest(k=2), linear_model.LogisticRegression())
    out.case("select_pipeline", model.fit(x, y), asked(rng, x))


def imputers(out):
    simple = impute.SimpleImputer
    for name, model in {
        "impute_mean": simple(),
        "impute_median": simple(strategy="median"),
        "impute_frequent": simple(strategy="most_frequent"),
        "impute_constant": simple(strategy="constant", fill_value=-1.5),
        "impute_indicator": simple(add_indicator=True),
        "impute_empty": simple(),
        "impute_empty_constant": simple(strategy="constant", fill_value=2.0),
        "indicator": impute.MissingIndicator(error_on_new=False),
        "indicator_all": impute.MissingIndicator(features="all"),
        "indicator_sparse": impute.MissingIndicator(features="all", sparse=True),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng, columns=5)
        x[:, 1] = np.round(x[:, 1])
        x = holes(rng, x)
        x[:, 3] = 1.5
        if "empty" in name:
            x[:, 2] = np.nan
        rows = holes(rng, asked(rng, np.nan_to_num(x)), 0.4)
        inputs = [rows, rows.astype(np.float32)]
        if "constant" not in name:  # newer versions do not put floats among integers
            inputs.append(np.round(np.nan_to_num(rows)).astype(np.int64))
        out.case(name, model.fit(x), inputs)
    rng = rng_for("impute_zero")
    x = rng.randint(-1, 4, size=(30, 4))
    rows = rng.randint(-1, 4, size=(8, 4))
    model = simple(missing_values=-1, strategy="most_frequent")
    out.case("impute_zero", model.fit(x), [rows, rows.astype(np.float64)])
    if out.version >= (1, 2):
        rng = rng_for("impute_keep")
        x, _ = blobs(rng)
        x[:, 2] = np.nan
        rows = holes(rng, asked(rng, np.nan_to_num(x)))
        out.case("impute_keep", simple(keep_empty_features=True).fit(x), rows)
        out.case("impute_knn_keep", impute.KNNImputer(n_neighbors=3, keep_empty_features=True).fit(holes(rng, x)), rows)
    for name, model in {
        "impute_knn": impute.KNNImputer(n_neighbors=3),
        "impute_knn_distance": impute.KNNImputer(n_neighbors=4, weights="distance", add_indicator=True),
        "impute_iterative": impute.IterativeImputer(random_state=0, max_iter=4),
        "impute_iterative_forest": impute.IterativeImputer(
            ensemble.ExtraTreesRegressor(3, max_depth=3, random_state=0), random_state=0, max_iter=2, n_nearest_features=2
        ),
    }.items():
        rng = rng_for(name)
        x, _ = line(rng, columns=5)
        x = holes(rng, x, 0.15)
        x[:, 4] = np.nan if name == "impute_knn" else x[:, 4]
        rows = holes(rng, asked(rng, np.nan_to_num(x), huge=20.0), 0.3)
        rows[0, 0] = rows[1, 1] = 0.5
        rows[np.isnan(rows).all(axis=1), 0] = 0.25
        out.case(name, model.fit(x), [rows])
