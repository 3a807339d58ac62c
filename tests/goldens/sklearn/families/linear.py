"""Linear models."""

import numpy as np
from casefile import asked, blobs, line, pickled, rng_for
from sklearn import linear_model, svm


def write(out):
    # what is saved of these has not changed
    if out.version in [(0, 24), (1, 9)]:
        regressors(out)
    classifiers(out)
    containers(out)


def regressors(out):
    plain = {
        "linear": linear_model.LinearRegression(),
        "linear_no_intercept": linear_model.LinearRegression(fit_intercept=False),
        "ridge": linear_model.Ridge(),
        "ridge_cv": linear_model.RidgeCV(),
        "lasso": linear_model.Lasso(alpha=0.05),
        "lasso_cv": linear_model.LassoCV(cv=3),
        "elastic_net": linear_model.ElasticNet(alpha=0.05),
        "elastic_net_cv": linear_model.ElasticNetCV(cv=3),
        "lars": linear_model.Lars(),
        "lasso_lars": linear_model.LassoLars(alpha=0.01),
        "lasso_lars_ic": linear_model.LassoLarsIC(),
        "omp": linear_model.OrthogonalMatchingPursuit(n_nonzero_coefs=2),
        "bayesian_ridge": linear_model.BayesianRidge(),
        "ard": linear_model.ARDRegression(),
        "huber": linear_model.HuberRegressor(),
        "theil_sen": linear_model.TheilSenRegressor(random_state=0, max_subpopulation=200),
        "sgd_regressor": linear_model.SGDRegressor(random_state=0),
        "linear_svr": svm.LinearSVR(random_state=0),
    }
    if hasattr(linear_model, "PassiveAggressiveRegressor"):
        plain["passive_aggressive_regressor"] = linear_model.PassiveAggressiveRegressor(random_state=0)
    if hasattr(linear_model, "QuantileRegressor"):
        plain["quantile"] = linear_model.QuantileRegressor(alpha=0.01, solver="highs")
    for name, model in plain.items():
        rng = rng_for(name)
        x, y = line(rng)
        rows = asked(rng, x)
        out.case(name, model.fit(x, y), [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)])
    for name, model in {
        "poisson": linear_model.PoissonRegressor(),
        "gamma": linear_model.GammaRegressor(),
        "tweedie": linear_model.TweedieRegressor(power=1.5),
        "tweedie_normal": linear_model.TweedieRegressor(power=0),
        "tweedie_log": linear_model.TweedieRegressor(power=0, link="log"),
    }.items():
        rng = rng_for(name)
        x, y = line(rng)
        out.case(name, model.fit(x, np.exp(y / 4)), asked(rng, x, huge=20.0))
    several = {
        "several_linear": linear_model.LinearRegression(),
        "several_ridge": linear_model.Ridge(),
        "several_no_intercept": linear_model.Ridge(fit_intercept=False),
        "multi_task_lasso": linear_model.MultiTaskLasso(alpha=0.05),
        "multi_task_elastic_net": linear_model.MultiTaskElasticNet(alpha=0.05),
    }
    for name, model in several.items():
        rng = rng_for(name)
        x, y = line(rng, targets=3)
        out.case(name, model.fit(x, y), asked(rng, x))
    for name, model in {"single_linear": linear_model.LinearRegression(), "single_ridge": linear_model.Ridge()}.items():
        rng = rng_for(name)
        x, y = line(rng, dtype=np.float32)
        rows = asked(rng, x, huge=10.0)
        out.case(name, model.fit(x, y.astype(np.float32)), [rows, rows.astype(np.float64)])


def classifiers(out):
    logistic = linear_model.LogisticRegression
    common = {
        "logistic": logistic(),
        "logistic_liblinear": logistic(solver="liblinear"),
        "logistic_saga": logistic(solver="saga", penalty="l1", C=0.5, random_state=0)
        if out.version < (1, 8)
        else logistic(solver="saga", l1_ratio=1.0, C=0.5, random_state=0),
        "logistic_no_intercept": logistic(fit_intercept=False),
        "logistic_cv": linear_model.LogisticRegressionCV(cv=3, Cs=3),
        "ridge_classifier": linear_model.RidgeClassifier(),
        "ridge_classifier_cv": linear_model.RidgeClassifierCV(),
        "perceptron": linear_model.Perceptron(random_state=0),
        "linear_svc": svm.LinearSVC(random_state=0),
        "sgd_hinge": linear_model.SGDClassifier(random_state=0),
        "sgd_log": linear_model.SGDClassifier(loss="log_loss" if out.version >= (1, 1) else "log", random_state=0),
        "sgd_modified_huber": linear_model.SGDClassifier(loss="modified_huber", random_state=0),
    }
    if out.version < (1, 8):
        common["logistic_ovr"] = logistic(multi_class="ovr")
        common["logistic_multinomial"] = logistic(multi_class="multinomial")
    if out.version >= (1, 3):
        common["logistic_newton_cholesky"] = logistic(solver="newton-cholesky")
    if hasattr(linear_model, "PassiveAggressiveClassifier"):
        common["passive_aggressive"] = linear_model.PassiveAggressiveClassifier(random_state=0)
    for name, model in common.items():
        for classes in (2, 3):
            # LIBLINEAR became a solver of two classes
            if classes == 3 and name == "logistic_liblinear" and out.version >= (1, 8):
                continue
            full = f"{name}_{classes}"
            rng = rng_for(full)
            x, y = blobs(rng, classes=classes)
            rows = asked(rng, x)
            out.case(full, model.fit(x, y), [rows, rows.astype(np.float32)])
    labels = {
        "text": np.array(["no", "yes", "perhaps é"]),
        "object": np.array(["no", "yes", "maybe"], dtype=object),
        "bool": np.array([False, True]),
        "float": np.array([0.0, 1.0, -2.0]),
        "int8": np.array([-3, 7, 9], dtype=np.int8),
        "int32": np.array([-3, 7, 9], dtype=np.int32),
        "uint8": np.array([3, 200], dtype=np.uint8),
    }
    for kind, values in labels.items():
        name = f"labels_{kind}"
        rng = rng_for(name)
        x, y = blobs(rng, classes=len(values))
        out.case(name, logistic().fit(x, values[y]), asked(rng, x))
    name = "single_logistic"
    rng = rng_for(name)
    x, y = blobs(rng, dtype=np.float32)
    rows = asked(rng, x, huge=10.0)
    out.case(name, logistic().fit(x, y), [rows, rows.astype(np.float64)])
    name = "frame_logistic"
    rng = rng_for(name)
    import pandas

    x, y = blobs(rng)
    names = ["a", "b", "ü c", "d"]
    out.case(name, logistic().fit(pandas.DataFrame(x, columns=names), y), pandas.DataFrame(asked(rng, x), columns=names))
    if hasattr(linear_model, "SGDOneClassSVM"):
        name = "sgd_one_class"
        rng = rng_for(name)
        x, _ = blobs(rng)
        out.case(name, linear_model.SGDOneClassSVM(random_state=0).fit(x), asked(rng, x))


def containers(out):
    """One model in every form that a file may have."""
    rng = rng_for("containers")
    x, y = blobs(rng)
    model = linear_model.LogisticRegression().fit(x, np.array(["a", "b", "c"], dtype=object)[y])
    rows = asked(rng, x)
    for protocol in range(6):
        out.case(f"pickle_{protocol}", model, rows, dump=pickled(protocol))
    for method in ["zlib", "gzip", "bz2", "lzma", "xz", "lz4"]:
        out.case(f"joblib_{method}", model, rows, dump=(method, 3))
    out.case("joblib_plain", model, rows, dump=False)
