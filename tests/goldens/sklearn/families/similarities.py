"""Sums of kernels with the rows of a fit, and labels that spread to similar rows."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import decomposition, kernel_approximation, kernel_ridge, semi_supervised

KERNELS = {
    "linear": {},
    "poly": {"degree": 2, "coef0": 0.5},
    "rbf": {"gamma": 0.3},
    "sigmoid": {"gamma": 0.05, "coef0": 0.2},
    "laplacian": {"gamma": 0.2},
    "cosine": {},
}


def write(out):
    for kernel, settings in KERNELS.items():
        # without the defaults, those of the kernels hold
        some = {} if kernel in ("poly", "laplacian") else settings
        cases(out, f"kernel_ridge_{kernel}", kernel_ridge.KernelRidge(kernel=kernel, alpha=0.5, **settings))
        if kernel != "laplacian":
            cases(out, f"kernel_components_{kernel}", decomposition.KernelPCA(2, kernel=kernel, **settings))
        count = 3 if kernel in ("linear", "cosine") else 8
        cases(out, f"nystroem_{kernel}", kernel_approximation.Nystroem(kernel, n_components=count, random_state=0, **some))
    cases(out, "kernel_ridge_two", kernel_ridge.KernelRidge(kernel="rbf"), targets=2)
    cases(out, "kernel_components_defaults", decomposition.KernelPCA(3, kernel="rbf", fit_inverse_transform=True))
    propagations(out)
    # kernels of histograms are not evaluated
    x = np.abs(rng_for("nystroem_chi2").normal(size=(40, 4)))
    out.refused("nystroem_chi2", kernel_approximation.Nystroem("chi2", n_components=8, random_state=0).fit(x), "`kernel` = `chi2`")


def cases(out, name, model, targets=1):
    rng = rng_for(name)
    x, y = line(rng, rows=40, targets=targets)
    x += 0.5
    rows = asked(rng, x, huge=10.0)
    out.case(name, model.fit(x, y), [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)])


def propagations(out):
    for name, model in {
        "propagation": semi_supervised.LabelPropagation(gamma=0.5),
        "propagation_narrow": semi_supervised.LabelPropagation(),
        "propagation_nearest": semi_supervised.LabelPropagation(kernel="knn", n_neighbors=5, max_iter=2000),
        "spreading": semi_supervised.LabelSpreading(gamma=0.5),
        "spreading_nearest": semi_supervised.LabelSpreading(kernel="knn", n_neighbors=4),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng, rows=60)
        rows = asked(rng, x, huge=20.0)
        y[rng.uniform(size=60) < 0.4] = -1
        y[:3] = np.arange(3)
        out.case(name, model.fit(x, y), [rows, np.round(rows).astype(np.int64)])
