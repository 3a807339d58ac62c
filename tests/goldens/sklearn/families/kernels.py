"""Support vector machines, naive Bayes and perceptrons."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import naive_bayes, neural_network, svm


def write(out):
    machines(out)
    bayes(out)
    networks(out)


def machines(out):
    for name, model, classes in [
        ("svc_2", svm.SVC(), 2),
        ("svc_3", svm.SVC(), 3),
        ("svc_4_ovo", svm.SVC(decision_function_shape="ovo"), 4),
        ("svc_break_ties", svm.SVC(break_ties=True), 4),
        ("svc_linear", svm.SVC(kernel="linear"), 3),
        ("svc_poly", svm.SVC(kernel="poly", degree=2, coef0=0.5), 3),
        ("svc_sigmoid", svm.SVC(kernel="sigmoid", gamma=0.05), 2),
        ("svc_probability_2", svm.SVC(probability=True, random_state=0), 2),
        ("svc_probability_3", svm.SVC(probability=True, random_state=0, gamma=0.1), 3),
        ("nu_svc", svm.NuSVC(nu=0.3), 3),
    ]:
        if "probability" in name and out.version > (1, 9):
            continue
        rng = rng_for(name)
        x, y = blobs(rng, rows=50, classes=classes)
        rows = asked(rng, x, huge=3.0)
        out.case(name, model.fit(x, np.array(["a", "b", "c", "d"])[y]), [rows, rows.astype(np.float32)])
    for name, model in [("svr", svm.SVR()), ("svr_poly", svm.SVR(kernel="poly")), ("nu_svr", svm.NuSVR())]:
        rng = rng_for(name)
        x, y = line(rng, rows=50)
        out.case(name, model.fit(x, y), asked(rng, x, huge=3.0))
    rng = rng_for("one_class")
    x, _ = blobs(rng, rows=50)
    out.case("one_class", svm.OneClassSVM(nu=0.3).fit(x), asked(rng, x, huge=3.0))


def bayes(out):
    for classes in (2, 3):
        rng = rng_for(f"gaussian_{classes}")
        x, y = blobs(rng, classes=classes)
        rows = asked(rng, x, huge=20.0)
        out.case(f"gaussian_{classes}", naive_bayes.GaussianNB().fit(x, y), [rows, rows.astype(np.float32)])
        for name, model in {
            "multinomial": naive_bayes.MultinomialNB(),
            "complement": naive_bayes.ComplementNB(),
            "complement_norm": naive_bayes.ComplementNB(norm=True),
            "bernoulli": naive_bayes.BernoulliNB(),
            "bernoulli_binarize": naive_bayes.BernoulliNB(binarize=2.5),
        }.items():
            rng = rng_for(f"{name}_{classes}")
            y = rng.randint(classes, size=60)
            x = rng.poisson(1.0 + 2.0 * rng.rand(classes, 5)[y])
            rows = rng.poisson(2.0, size=(8, 5))
            out.case(f"{name}_{classes}", model.fit(x, y), [rows, rows.astype(np.float64)])


def networks(out):
    for name, model, classes in [
        ("mlp_2", neural_network.MLPClassifier(hidden_layer_sizes=(6,), max_iter=60, random_state=0), 2),
        ("mlp_3", neural_network.MLPClassifier(hidden_layer_sizes=(6, 4), max_iter=60, random_state=0), 3),
        ("mlp_tanh", neural_network.MLPClassifier(hidden_layer_sizes=(5,), activation="tanh", max_iter=60, random_state=0), 3),
        ("mlp_logistic", neural_network.MLPClassifier(hidden_layer_sizes=(5,), activation="logistic", max_iter=60, random_state=0), 2),
        ("mlp_identity", neural_network.MLPClassifier(hidden_layer_sizes=(5,), activation="identity", max_iter=60, random_state=0), 3),
    ]:
        rng = rng_for(name)
        x, y = blobs(rng, classes=classes)
        out.case(name, model.fit(x, np.array(["a", "b", "c"])[y]), asked(rng, x, huge=20.0))
    for targets in (1, 2):
        rng = rng_for(f"mlp_regressor_{targets}")
        x, y = line(rng, targets=targets)
        model = neural_network.MLPRegressor(hidden_layer_sizes=(6,), max_iter=60, random_state=0)
        out.case(f"mlp_regressor_{targets}", model.fit(x, y), asked(rng, x, huge=20.0))
    rng = rng_for("mlp_single")
    x, y = blobs(rng, dtype=np.float32)
    model = neural_network.MLPClassifier(hidden_layer_sizes=(6,), max_iter=60, random_state=0)
    rows = asked(rng, x, huge=5.0)
    out.case("mlp_single", model.fit(x, y), [rows, rows.astype(np.float64)])
