"""Leaves of trees as columns."""

import numpy as np
from casefile import asked, blobs, rng_for
from sklearn import linear_model
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.pipeline import make_pipeline


def write(out):
    for name, model in {
        "leaves": RandomTreesEmbedding(6, max_depth=3, random_state=0),
        "leaves_dense": RandomTreesEmbedding(4, max_leaf_nodes=5, sparse_output=False, random_state=0),
        "leaves_deep": RandomTreesEmbedding(2, max_depth=None, min_samples_leaf=4, random_state=0),
        "leaves_classified": make_pipeline(
            RandomTreesEmbedding(5, max_depth=4, random_state=0), linear_model.LogisticRegression()
        ),
    }.items():
        rng = rng_for(name)
        x, y = blobs(rng)
        rows = asked(rng, x)
        out.case(name, model.fit(x, y), [rows, rows.astype(np.float32)])
