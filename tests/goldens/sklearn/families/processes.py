"""Gaussian processes."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import gaussian_process
from sklearn.gaussian_process import kernels


def write(out):
    regressors(out)
    classifiers(out)


def regressors(out):
    noise = kernels.WhiteKernel(0.1)
    for name, kernel, settings in [
        ("default", None, {"alpha": 0.1}),
        ("rbf", kernels.RBF() + noise, {}),
        ("rbf_anisotropic", 2.0 * kernels.RBF([1.0, 2.0, 0.5, 1.0]) + noise, {}),
        ("matern_1", kernels.Matern(nu=0.5) + noise, {}),
        ("matern_3", kernels.ConstantKernel(3.0) * kernels.Matern(nu=1.5) + noise, {}),
        ("matern_5", kernels.Matern(nu=2.5, length_scale=[1.0, 2.0, 3.0, 4.0]) + noise, {}),
        ("matern_smooth", kernels.Matern(nu=np.inf) + noise, {}),
        ("rational", kernels.RationalQuadratic(alpha=0.7) + noise, {}),
        ("sine", kernels.ExpSineSquared(1.3, 5.0), {"alpha": 10.0, "optimizer": None}),
        ("inner", kernels.DotProduct() + noise, {}),
        ("power", kernels.DotProduct(0.5) ** 2 + noise, {}),
        ("normalized", kernels.RBF() + noise, {"normalize_y": True}),
        ("unfitted_kernel", kernels.RBF(1.5) * kernels.RationalQuadratic(2.0, 0.5), {"alpha": 0.2, "optimizer": None}),
    ]:
        for targets in (1, 2) if name in ("rbf", "normalized") else (1,):
            name = f"process_{name}_{targets}"
            rng = rng_for(name)
            x, y = line(rng, rows=40, targets=targets)
            rows = asked(rng, x, huge=10.0)
            model = gaussian_process.GaussianProcessRegressor(kernel, **settings).fit(x, y)
            out.case(name, model, [rows, np.round(rows).astype(np.int64)])
    out.case("process_of_single", model, rows.astype(np.float32), single=True)
    # without noise, large weights cancel each other
    name = "process_exact"
    x = rng_for(name).normal(size=(40, 1))
    model = gaussian_process.GaussianProcessRegressor(kernels.RBF()).fit(x, np.sin(x[:, 0]))
    out.refused(name, model, "lose digits")
    name = "process_bessel"
    x, y = line(rng_for(name), rows=40)
    model = gaussian_process.GaussianProcessRegressor(kernels.Matern(nu=2.0), alpha=0.1, optimizer=None).fit(x, y)
    out.refused(name, model, "`nu` = `2`")


def classifiers(out):
    texts = np.array(["a", "b", "c"])
    for classes, name, kernel, mode in [
        (2, "default", None, "one_vs_rest"),
        (2, "rbf", 1.5 * kernels.RBF(2.0), "one_vs_rest"),
        (2, "sum", kernels.DotProduct() + kernels.WhiteKernel(0.3), "one_vs_rest"),
        (3, "matern", kernels.Matern(nu=1.5), "one_vs_rest"),
        (3, "pairs", 2.0 * kernels.RBF(1.5), "one_vs_one"),
    ]:
        name = f"process_{name}_of_{classes}"
        rng = rng_for(name)
        x, y = blobs(rng, rows=50, classes=classes)
        model = gaussian_process.GaussianProcessClassifier(kernel, multi_class=mode).fit(x, texts[y])
        rows = asked(rng, x, huge=10.0)
        # probabilities of pairs are not defined
        without = ["predict_proba"] if mode == "one_vs_one" else []
        out.case(name, model, [rows, np.round(rows).astype(np.int64)], without=without)
