"""Topics of documents."""

import numpy as np
from casefile import rng_for
from families.texts import ODD, documents, series
from sklearn import linear_model
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline


def write(out):
    for name, model in {
        "topics": LatentDirichletAllocation(3, random_state=0),
        "topics_online": LatentDirichletAllocation(
            4, learning_method="online", doc_topic_prior=0.02, batch_size=20, random_state=0
        ),
        "topics_few_steps": LatentDirichletAllocation(2, max_doc_update_iter=3, topic_word_prior=0.7, random_state=0),
        "topics_many_steps": LatentDirichletAllocation(5, max_doc_update_iter=400, mean_change_tol=1e-9, random_state=0),
        "topics_one": LatentDirichletAllocation(1, random_state=0),
    }.items():
        rng = rng_for(name)
        x = rng.poisson(rng.gamma(0.5, 2.0, size=(3, 9))[rng.randint(3, size=60)])
        rows = np.vstack([rng.poisson(1.5, size=(8, 9)), np.zeros((1, 9)), np.eye(9)[:2] * 40]).astype(np.int64)
        out.case(name, model.fit(x), [rows, rows / 3, (rows / 4).astype(np.float32)])
    for name, model in {
        "topics_of_texts": make_pipeline(CountVectorizer(), LatentDirichletAllocation(4, random_state=0)),
        "topics_of_weights": make_pipeline(TfidfVectorizer(max_features=15), LatentDirichletAllocation(3, random_state=0)),
    }.items():
        rng = rng_for(name)
        out.case(name, model.fit(documents(rng)), series(documents(rng, rows=6) + ODD[:3]))
    rng = rng_for("topics_classified")
    texts = documents(rng)
    model = make_pipeline(CountVectorizer(), LatentDirichletAllocation(3, random_state=0), linear_model.LogisticRegression())
    out.case("topics_classified", model.fit(texts, [len(text) % 2 for text in texts]), series(documents(rng, rows=6)))
    if out.version >= (1, 2):
        x = rng.poisson(2.0, size=(40, 4)).astype(np.float32)
        out.refused("topics_single", LatentDirichletAllocation(2, random_state=0).fit(x), "a matrix of double precision")
