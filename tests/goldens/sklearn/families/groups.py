"""Clusters, outliers and embeddings."""

import numpy as np
from casefile import asked, blobs, rng_for
from sklearn import cluster, covariance, manifold, neighbors


def write(out):
    models = {
        "affinity": cluster.AffinityPropagation(random_state=0, damping=0.9, max_iter=1000),
        "birch": cluster.Birch(n_clusters=3, threshold=0.8),
        "birch_subclusters": cluster.Birch(n_clusters=None, threshold=1.0),
        "mean_shift": cluster.MeanShift(bandwidth=2.0),
        "agglomeration": cluster.FeatureAgglomeration(3),
        "envelope": covariance.EllipticEnvelope(random_state=0),
        "outlier_factor": neighbors.LocalOutlierFactor(novelty=True),
        "outlier_factor_few": neighbors.LocalOutlierFactor(5, novelty=True, algorithm="brute", contamination=0.2),
        "outlier_factor_manhattan": neighbors.LocalOutlierFactor(8, novelty=True, metric="manhattan"),
        "locally_linear": manifold.LocallyLinearEmbedding(n_neighbors=7, random_state=0),
        "locally_linear_modified": manifold.LocallyLinearEmbedding(n_neighbors=8, method="modified", random_state=0),
    }
    if out.version >= (1, 1):
        models["bisecting"] = cluster.BisectingKMeans(5, random_state=0)
        models["bisecting_largest"] = cluster.BisectingKMeans(4, random_state=0, bisecting_strategy="largest_cluster")
    for name, model in models.items():
        rng = rng_for(name)
        x, _ = blobs(rng, rows=70, columns=5)
        x += 1.0
        rows = asked(rng, x, huge=20.0)
        out.case(name, model.fit(x), [rows, np.round(rows).astype(np.int64)])
        # the library itself fails for bisecting k-means of another precision than the fit's
        if "bisecting" not in name:
            out.case(f"{name}_of_single", model, rows.astype(np.float32), single=True)
    for name, model in {
        "isomap": manifold.Isomap(n_neighbors=8),
        "isomap_three": manifold.Isomap(n_neighbors=12, n_components=3),
    }.items():
        rng = rng_for(name)
        x, _ = blobs(rng, rows=60)
        rows = asked(rng, x, huge=20.0)
        out.case(name, model.fit(x), [rows, np.round(rows).astype(np.int64)])
    x, _ = blobs(rng_for("outlier_factor_of_fit"), rows=40)
    out.refused("outlier_factor_of_fit", neighbors.LocalOutlierFactor().fit(x), "`novelty`")
    out.refused("agglomeration_largest", cluster.FeatureAgglomeration(2, pooling_func=np.max).fit(x), "`pooling_func`")
