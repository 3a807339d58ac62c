"""Texts as words, and sparse rows through other estimators."""

import numpy as np
import pandas
from casefile import rng_for
from sklearn import compose, decomposition, ensemble, feature_selection, linear_model, naive_bayes, neighbors, pipeline, preprocessing, svm, tree
from sklearn.feature_extraction import text as vectorizers
from sklearn.pipeline import make_pipeline

WORDS = (
    "the of apple pear plum cherry red green blue Fast slow good fine nice bad awful poor don't re-do x1 a_b 3 42 "
    "naïve façade Ärger straße ΣΊΣΥΦΟΣ Éa ½ x² ⅷ Ⓐb नमस्ते ไทย 中文 हिन्दी ok\u0301ay ﬁsh e\u0301t\u00e9 İstanbul"
).split()
ODD = ["", " ", "the", "the of", "a b c", "good\tfine\n\n nice  \u00a0end", "GOOD Good gOOd", "x1_y2 don't-stop", "é" * 3, "ab", "日本語 テキスト", "\u2460 \u24b6b 1\u0301a \U0001f130c"]


def documents(rng, rows=40):
    lengths = rng.randint(1, 9, size=rows)
    separators = np.array([" ", "  ", ", ", "\n", ". "])
    return ["".join(WORDS[rng.randint(len(WORDS))] + separators[rng.randint(5)] for _ in range(length)) for length in lengths]


def series(texts):
    return pandas.Series(texts, dtype=object)


def write(out):
    counts(out)
    weights(out)
    flows(out)


def counts(out):
    count, hashing = vectorizers.CountVectorizer, vectorizers.HashingVectorizer
    for name, model in {
        "count": count(),
        "count_case": count(lowercase=False),
        "count_binary": count(binary=True, dtype=np.float32),
        "count_english": count(stop_words="english"),
        "count_stop": count(stop_words=["good", "bad"]),
        "count_pairs": count(ngram_range=(1, 2)),
        "count_triples": count(ngram_range=(2, 3), min_df=1),
        "count_limited": count(min_df=2, max_df=0.5, max_features=10),
        "count_characters": count(analyzer="char", ngram_range=(1, 3), max_features=150),
        "count_in_words": count(analyzer="char_wb", ngram_range=(2, 4), max_features=150),
        "count_ascii": count(strip_accents="ascii"),
        "count_unicode": count(strip_accents="unicode"),
        "count_single_letters": count(token_pattern=r"(?u)\b\w+\b"),
        "count_visible": count(token_pattern=r"\S+"),
        "count_given": count(vocabulary=["good", "bad", "fine", "red"]),
        "hashing": hashing(n_features=32),
        "hashing_unsigned": hashing(n_features=20, alternate_sign=False, norm="l1"),
        "hashing_plain": hashing(n_features=50, norm=None, ngram_range=(1, 2), binary=True),
        "hashing_characters": hashing(n_features=64, analyzer="char", norm=None, ngram_range=(2, 3)),
    }.items():
        rng = rng_for(name)
        out.case(name, model.fit(documents(rng)), series(documents(rng, rows=8) + ODD))


def weights(out):
    tfidf = vectorizers.TfidfVectorizer
    for name, model in {
        "tfidf": tfidf(),
        "tfidf_sublinear": tfidf(sublinear_tf=True, norm="l1"),
        "tfidf_no_norm": tfidf(norm=None, smooth_idf=False),
        "tfidf_no_idf": tfidf(use_idf=False),
        "tfidf_pairs": tfidf(ngram_range=(1, 2), stop_words="english", strip_accents="unicode"),
        "tfidf_single": tfidf(dtype=np.float32),
        "tfidf_two_steps": make_pipeline(vectorizers.CountVectorizer(), vectorizers.TfidfTransformer()),
        "tfidf_hashed": make_pipeline(vectorizers.HashingVectorizer(n_features=64, alternate_sign=False, norm=None), vectorizers.TfidfTransformer()),
    }.items():
        rng = rng_for(name)
        out.case(name, model.fit(documents(rng)), series(documents(rng, rows=8) + ODD), single=name == "tfidf_single")
    rng = rng_for("tfidf_dense")
    x = rng.poisson(1.0, size=(30, 6))
    out.case("tfidf_dense", vectorizers.TfidfTransformer().fit(x), [rng.poisson(1.0, size=(6, 6)), rng.rand(4, 6)])


def flows(out):
    tfidf = vectorizers.TfidfVectorizer
    classifiers = {
        "logistic": linear_model.LogisticRegression(),
        "sgd": linear_model.SGDClassifier(random_state=0),
        "ridge": linear_model.RidgeClassifier(),
        "linear_svc": svm.LinearSVC(random_state=0),
        "multinomial": naive_bayes.MultinomialNB(),
        "complement": naive_bayes.ComplementNB(),
        "bernoulli": naive_bayes.BernoulliNB(),
        "tree": tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        "forest": ensemble.RandomForestClassifier(5, max_depth=5, random_state=0),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0),
        "max_abs": make_pipeline(preprocessing.MaxAbsScaler(), linear_model.LogisticRegression()),
        "standard": make_pipeline(preprocessing.StandardScaler(with_mean=False), linear_model.LogisticRegression()),
        "normalized": make_pipeline(preprocessing.Normalizer("l1"), linear_model.LogisticRegression()),
        "binarized": make_pipeline(preprocessing.Binarizer(threshold=0.2), naive_bayes.BernoulliNB()),
        "svd": make_pipeline(decomposition.TruncatedSVD(4, random_state=0), linear_model.LogisticRegression()),
        "best": make_pipeline(feature_selection.SelectKBest(feature_selection.chi2, k=8), linear_model.LogisticRegression()),
        "variance": make_pipeline(feature_selection.VarianceThreshold(0.001), naive_bayes.MultinomialNB()),
        "logarithm": make_pipeline(preprocessing.FunctionTransformer(np.log1p), linear_model.LogisticRegression()),
    }
    for name, model in classifiers.items():
        name = f"text_{name}"
        rng = rng_for(name)
        texts = documents(rng)
        y = np.array([f"label {len(text) % 3}" for text in texts])
        out.case(name, make_pipeline(tfidf(), model).fit(texts, y), series(documents(rng, rows=8) + ODD[:4]))
    rng = rng_for("text_regressor")
    texts = documents(rng)
    model = make_pipeline(vectorizers.HashingVectorizer(), linear_model.Ridge())
    out.case("text_regressor", model.fit(texts, [float(len(text)) for text in texts]), series(documents(rng, rows=5)))
    rng = rng_for("text_union")
    texts = documents(rng)
    union = pipeline.make_union(tfidf(), vectorizers.CountVectorizer(analyzer="char", max_features=20))
    model = make_pipeline(union, linear_model.LogisticRegression(max_iter=500))
    out.case("text_union", model.fit(texts, [len(text) % 2 for text in texts]), series(documents(rng, rows=5) + ODD[:4]))
    rng = rng_for("text_frame")
    texts = documents(rng)
    frame = pandas.DataFrame({"text": texts, "size": rng.rand(40), "kind": np.array(["a", "b"])[rng.randint(2, size=40)]})
    frame = frame.astype({"text": object, "kind": object})
    preparation = compose.make_column_transformer(
        (tfidf(), "text"), (preprocessing.StandardScaler(), ["size"]), (preprocessing.OneHotEncoder(), ["kind"])
    )
    rows = pandas.DataFrame({"text": documents(rng, rows=6), "size": rng.rand(6), "kind": list("abbaab")})
    rows = rows.astype({"text": object, "kind": object})
    y = rng.randint(2, size=40)
    out.case("text_frame", make_pipeline(preparation, linear_model.LogisticRegression()).fit(frame, y), rows)
    out.case("text_frame_features", preparation.fit(frame), rows)
