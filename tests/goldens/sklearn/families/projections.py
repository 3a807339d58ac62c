"""Transformers that multiply rows by fitted or drawn matrices, and regressions onto components."""

import numpy as np
from casefile import asked, blobs, line, rng_for
from sklearn import cross_decomposition, decomposition, kernel_approximation, neighbors, neural_network, random_projection


def write(out):
    components(out)
    squares(out)
    draws(out)
    positive(out)


def kinds(rows):
    return [rows, rows.astype(np.float32), np.round(rows).astype(np.int64)]


def components(out):
    for name, model in {
        "factors": decomposition.FactorAnalysis(2),
        "factors_varimax": decomposition.FactorAnalysis(2, rotation="varimax"),
        "factors_exact": decomposition.FactorAnalysis(3, svd_method="lapack"),
        "sparse_components": decomposition.SparsePCA(3, alpha=0.5, random_state=0),
        "sparse_components_many": decomposition.SparsePCA(6, alpha=0.1, ridge_alpha=0.3, random_state=0),
        "sparse_components_batches": decomposition.MiniBatchSparsePCA(2, alpha=0.5, random_state=0),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng)
        x += 3.0
        out.case(name, model.fit(x), kinds(asked(rng, x)))
    name = "neighborhood_components"
    rng = rng_for(name)
    x, y = blobs(rng)
    model = neighbors.NeighborhoodComponentsAnalysis(2, random_state=0, max_iter=20)
    out.case(name, model.fit(x, y), kinds(asked(rng, x)))
    name = "boltzmann"
    rng = rng_for(name)
    x = rng.uniform(size=(60, 5))
    model = neural_network.BernoulliRBM(3, n_iter=3, random_state=0)
    out.case(name, model.fit(x), kinds(asked(rng, x, huge=20.0)))


def squares(out):
    for targets in (1, 2):
        for name, model in {
            "pls": cross_decomposition.PLSRegression(2 if targets == 1 else 3),
            "pls_unscaled": cross_decomposition.PLSRegression(2, scale=False),
            "pls_canonical": cross_decomposition.PLSCanonical(1),
            "pls_canonical_nipals": cross_decomposition.PLSCanonical(targets, algorithm="nipals"),
            "cca": cross_decomposition.CCA(1),
            "pls_svd": cross_decomposition.PLSSVD(targets),
        }.items():
            name = f"{name}_{targets}"
            rng = rng_for(name)
            x, y = line(rng, targets=targets)
            x += 2.0
            rows = asked(rng, x)
            # the differences from the means have the precision of the rows
            out.case(name, model.fit(x, y), [rows, np.round(rows).astype(np.int64)])
            out.case(f"{name}_single", model, rows.astype(np.float32), single=True)


def draws(out):
    for name, model in {
        "random_normal": random_projection.GaussianRandomProjection(3, random_state=0),
        "random_sparse": random_projection.SparseRandomProjection(5, random_state=0),
        "random_sparse_dense": random_projection.SparseRandomProjection(4, density=0.5, dense_output=True, random_state=0),
        "fourier": kernel_approximation.RBFSampler(gamma=0.3, n_components=12, random_state=0),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng, columns=8)
        rows = asked(rng, x, huge=20.0)
        double = [rows, np.round(rows).astype(np.int64)]
        out.case(name, model.fit(x), double)
        out.case(f"{name}_of_single", model, rows.astype(np.float32), single=True)


def positive(out):
    for name, model in {
        "chi2": kernel_approximation.AdditiveChi2Sampler(),
        "chi2_one": kernel_approximation.AdditiveChi2Sampler(sample_steps=1),
        "chi2_three": kernel_approximation.AdditiveChi2Sampler(sample_steps=3),
        "chi2_interval": kernel_approximation.AdditiveChi2Sampler(sample_steps=4, sample_interval=0.25),
        "chi2_skewed": kernel_approximation.SkewedChi2Sampler(skewedness=0.5, n_components=9, random_state=0),
    }.items():
        rng = rng_for(name)
        x = np.abs(rng.normal(size=(40, 4)))
        rows = np.abs(asked(rng, x, huge=20.0))
        rows[1, 2] = 0.0
        out.case(name, model.fit(x), [rows, np.round(rows).astype(np.int64)])
        out.case(f"{name}_of_single", model, rows.astype(np.float32), single=True)
