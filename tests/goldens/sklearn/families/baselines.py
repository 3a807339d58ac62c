"""Dummy estimators, and naive Bayes of categories."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import dummy, naive_bayes


def write(out):
    classifiers(out)
    regressors(out)
    categories(out)


def without_checks(rng, x):
    """Returns rows that dummy estimators take as they are: with missing values, and of another width."""
    rows = asked(rng, x)
    rows[1, 2] = np.nan
    return [rows, np.array([["a", "b"], ["c", "d"]], dtype=object)]


def classifiers(out):
    texts = np.array(["no", "perhaps", "yes"])
    for name, labels, model in [
        ("prior", None, dummy.DummyClassifier()),
        ("prior_text", texts, dummy.DummyClassifier(strategy="prior")),
        ("most_frequent", None, dummy.DummyClassifier(strategy="most_frequent")),
        ("most_frequent_text", texts, dummy.DummyClassifier(strategy="most_frequent")),
        ("most_frequent_bool", np.array([False, True]), dummy.DummyClassifier(strategy="most_frequent")),
        ("constant", None, dummy.DummyClassifier(strategy="constant", constant=1)),
        ("constant_text", texts, dummy.DummyClassifier(strategy="constant", constant="perhaps")),
        ("constant_small", np.array([4, 5, 6], dtype=np.int32), dummy.DummyClassifier(strategy="constant", constant=6)),
    ]:
        name = f"dummy_{name}"
        rng = rng_for(name)
        x, y = blobs(rng, classes=3 if labels is None else len(labels))
        out.case(name, model.fit(x, y if labels is None else labels[y]), without_checks(rng, x))


    # these draw random numbers
    for strategy in ("stratified", "uniform"):
        name = f"dummy_{strategy}"
        x, y = blobs(rng_for(name))
        out.refused(name, dummy.DummyClassifier(strategy=strategy).fit(x, y), f"`_strategy` = `{strategy}`")


def regressors(out):
    for name, targets, model in [
        ("mean", 1, dummy.DummyRegressor()),
        ("median", 1, dummy.DummyRegressor(strategy="median")),
        ("quantile", 1, dummy.DummyRegressor(strategy="quantile", quantile=0.8)),
        ("constant", 1, dummy.DummyRegressor(strategy="constant", constant=2.5)),
        ("constant_int", 1, dummy.DummyRegressor(strategy="constant", constant=7)),
        ("mean_of_two", 2, dummy.DummyRegressor()),
        ("constant_of_two", 2, dummy.DummyRegressor(strategy="constant", constant=[1.5, -2.5])),
    ]:
        name = f"dummy_regressor_{name}"
        rng = rng_for(name)
        x, y = line(rng, targets=targets)
        out.case(name, model.fit(x, y), without_checks(rng, x))


def categories(out):
    for name, labels, model in [
        ("categories", None, naive_bayes.CategoricalNB()),
        ("categories_text", np.array(["a", "b", "c"]), naive_bayes.CategoricalNB(alpha=0.3, fit_prior=False)),
        ("categories_more", None, naive_bayes.CategoricalNB(min_categories=7)),
    ]:
        rng = rng_for(name)
        y = rng.randint(3, size=80)
        x = (rng.randint(4, size=(80, 3)) + y[:, None]) % 5
        x[:5] = np.arange(5)[:, None]
        rows = rng.randint(5, size=(8, 3))
        model.fit(x, y if labels is None else labels[y])
        # numbers are truncated to integers
        out.case(name, model, [rows, rows + 0.75, rows.astype(np.float32)])
