"""Components, clusters, mixtures and discriminants."""

import numpy as np
from casefile import asked, blobs, rng_for
from sklearn import cluster, decomposition, discriminant_analysis, mixture


def write(out):
    projections(out)
    clusters(out)
    mixtures(out)
    discriminants(out)


def projections(out):
    models = {
        "pca": decomposition.PCA(),
        "pca_two": decomposition.PCA(2),
        "pca_whiten": decomposition.PCA(3, whiten=True),
        "pca_randomized": decomposition.PCA(2, svd_solver="randomized", random_state=0),
        "pca_incremental": decomposition.IncrementalPCA(2, batch_size=30),
        "svd": decomposition.TruncatedSVD(2, random_state=0),
        "ica": decomposition.FastICA(2, random_state=0, max_iter=1000, **({"whiten": "unit-variance"} if out.version >= (1, 1) else {})),
    }
    for name, model in models.items():
        rng = rng_for(name)
        x, _ = blobs(rng)
        x += 3.0
        rows = asked(rng, x)
        out.case(name, model.fit(x), [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)])
    for name in ("pca_single", "pca_whiten_single"):
        rng = rng_for(name)
        x, _ = blobs(rng, dtype=np.float32)
        rows = asked(rng, x, huge=10.0)
        out.case(name, decomposition.PCA(2, whiten="whiten" in name).fit(x), [rows, rows.astype(np.float64)], single=True)


def clusters(out):
    for name, model in {
        "k_means": cluster.KMeans(3, n_init=1, random_state=0),
        "k_means_many": cluster.KMeans(12, n_init=1, random_state=0),
        "k_means_batches": cluster.MiniBatchKMeans(3, n_init=1, random_state=0),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng)
        rows = asked(rng, x)
        out.case(name, model.fit(x), [rows, np.round(rows).astype(np.int64)])


def mixtures(out):
    for kind in ("full", "tied", "diag", "spherical"):
        name = f"mixture_{kind}"
        rng = rng_for(name)
        x, _ = blobs(rng)
        rows = asked(rng, x, huge=20.0)
        model = mixture.GaussianMixture(3, covariance_type=kind, random_state=0)
        # of spheres the squares of single precision are summed in an order of NumPy's own
        out.case(name, model.fit(x), [rows] if kind == "spherical" else [rows, rows.astype(np.float32)])
        for prior in ("process", "distribution"):
            name = f"mixture_{kind}_{prior}"
            rng = rng_for(name)
            x, _ = blobs(rng)
            model = mixture.BayesianGaussianMixture(
                n_components=3, covariance_type=kind, weight_concentration_prior_type=f"dirichlet_{prior}", random_state=0, max_iter=300
            )
            out.case(name, model.fit(x), asked(rng, x, huge=20.0))


def discriminants(out):
    linear, quadratic = discriminant_analysis.LinearDiscriminantAnalysis, discriminant_analysis.QuadraticDiscriminantAnalysis
    for classes in (2, 3):
        for name, model in {
            "lda": linear(),
            "lda_eigen": linear(solver="eigen", shrinkage="auto"),
            "lda_lsqr": linear(solver="lsqr"),
            "lda_one": linear(n_components=1),
            "qda": quadratic(),
            "qda_regularised": quadratic(reg_param=0.2, priors=np.full(classes, 1 / classes)),
        }.items():
            name = f"{name}_{classes}"
            rng = rng_for(name)
            x, y = blobs(rng, classes=classes)
            rows = asked(rng, x, huge=20.0)
            out.case(name, model.fit(x, np.array(["a", "b", "c"])[y]), [rows, rows.astype(np.float32)])
