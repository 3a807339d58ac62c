"""The estimators and pipelines of the zoo: constructors, and the kind of data that each takes."""

from typing import Any, Callable, List, NamedTuple


class Estimator(NamedTuple):
    """An estimator of the zoo."""

    name: str
    make: Callable[[], Any]
    #: `classes`, `two` classes, `target`, `targets`, or `none`.
    task: str
    #: `numbers`, `counts` (integers from 0 on), `gaps` (with missing values), `texts`, or `table` (one input per column).
    data: str = "numbers"
    #: Whether scores are sums of leaves, which are equal in all bits.
    trees: bool = False


def estimators() -> List[Estimator]:
    """Returns all estimators."""
    return [*_linear(), *_trees(), *_others(), *_regressors(), *_unsupervised(), *_pipelines(), *_libraries()]


def _linear() -> List[Estimator]:
    from sklearn import discriminant_analysis, linear_model, svm

    def of(name: str, make: Callable[[], Any], task: str = "classes") -> Estimator:
        return Estimator(name, make, task)

    return [
        of("LogisticRegression", linear_model.LogisticRegression),
        of("LogisticRegression-two", linear_model.LogisticRegression, "two"),
        of("LogisticRegressionCV", lambda: linear_model.LogisticRegressionCV(Cs=2, cv=2)),
        of("RidgeClassifier", linear_model.RidgeClassifier),
        of("RidgeClassifier-two", linear_model.RidgeClassifier, "two"),
        of("SGDClassifier", lambda: linear_model.SGDClassifier(loss="log_loss", random_state=0)),
        of("SGDClassifier-huber", lambda: linear_model.SGDClassifier(loss="modified_huber", random_state=0)),
        of("Perceptron", lambda: linear_model.Perceptron(random_state=0)),
        of("LinearSVC", lambda: svm.LinearSVC(random_state=0)),
        of("LinearSVC-two", lambda: svm.LinearSVC(random_state=0), "two"),
        of("LinearDiscriminantAnalysis", discriminant_analysis.LinearDiscriminantAnalysis),
        of("QuadraticDiscriminantAnalysis", discriminant_analysis.QuadraticDiscriminantAnalysis),
    ]


def _trees() -> List[Estimator]:
    from sklearn import ensemble, tree

    def of(name: str, make: Callable[[], Any], task: str = "classes", data: str = "numbers") -> Estimator:
        return Estimator(name, make, task, data, trees=True)

    few = {"n_estimators": 10, "random_state": 0}
    return [
        of("DecisionTreeClassifier", lambda: tree.DecisionTreeClassifier(random_state=0)),
        of("DecisionTreeClassifier-two", lambda: tree.DecisionTreeClassifier(max_depth=4, random_state=0), "two"),
        of("ExtraTreeClassifier", lambda: tree.ExtraTreeClassifier(random_state=0)),
        of("RandomForestClassifier", lambda: ensemble.RandomForestClassifier(**few)),
        of("RandomForestClassifier-two", lambda: ensemble.RandomForestClassifier(**few, max_depth=5), "two"),
        of("ExtraTreesClassifier", lambda: ensemble.ExtraTreesClassifier(**few, max_depth=6)),
        of("GradientBoostingClassifier", lambda: ensemble.GradientBoostingClassifier(**few)),
        of("GradientBoostingClassifier-two", lambda: ensemble.GradientBoostingClassifier(**few), "two"),
        of("HistGradientBoostingClassifier", lambda: ensemble.HistGradientBoostingClassifier(max_iter=10)),
        of("HistGradientBoostingClassifier-gaps", lambda: ensemble.HistGradientBoostingClassifier(max_iter=10), "two", "gaps"),
        of("DecisionTreeRegressor", lambda: tree.DecisionTreeRegressor(random_state=0), "target"),
        of("DecisionTreeRegressor-several", lambda: tree.DecisionTreeRegressor(max_depth=5, random_state=0), "targets"),
        of("ExtraTreeRegressor", lambda: tree.ExtraTreeRegressor(random_state=0), "target"),
        of("RandomForestRegressor", lambda: ensemble.RandomForestRegressor(**few), "target"),
        of("ExtraTreesRegressor", lambda: ensemble.ExtraTreesRegressor(**few), "target"),
        of("GradientBoostingRegressor", lambda: ensemble.GradientBoostingRegressor(**few), "target"),
        of("HistGradientBoostingRegressor", lambda: ensemble.HistGradientBoostingRegressor(max_iter=10), "target", "gaps"),
        of("IsolationForest", lambda: ensemble.IsolationForest(**few), "none"),
    ]  # fmt: skip


def _others() -> List[Estimator]:
    from sklearn import calibration, ensemble, gaussian_process, multiclass, naive_bayes, neighbors, neural_network, svm
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    def of(name: str, make: Callable[[], Any], task: str = "classes", data: str = "numbers") -> Estimator:
        return Estimator(name, make, task, data)

    def members() -> Any:
        return [("linear", LogisticRegression()), ("tree", DecisionTreeClassifier(max_depth=3, random_state=0))]

    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    return [
        of("SVC", lambda: svm.SVC(probability=True, random_state=0)),
        of("SVC-two", lambda: svm.SVC(), "two"),
        of("SVC-poly", lambda: svm.SVC(kernel="poly", degree=2, random_state=0)),
        of("NuSVC", lambda: svm.NuSVC(nu=0.2, random_state=0)),
        of("KNeighborsClassifier", neighbors.KNeighborsClassifier),
        of("KNeighborsClassifier-distance", lambda: neighbors.KNeighborsClassifier(3, weights="distance")),
        of("RadiusNeighborsClassifier", lambda: neighbors.RadiusNeighborsClassifier(50.0)),
        of("GaussianNB", naive_bayes.GaussianNB),
        of("BernoulliNB", naive_bayes.BernoulliNB, data="counts"),
        of("MultinomialNB", naive_bayes.MultinomialNB, data="counts"),
        of("ComplementNB", naive_bayes.ComplementNB, data="counts"),
        of("CategoricalNB", lambda: naive_bayes.CategoricalNB(min_categories=8), data="counts"),
        of("MLPClassifier", lambda: neural_network.MLPClassifier((8,), max_iter=30, random_state=0)),
        of("MLPClassifier-tanh", lambda: neural_network.MLPClassifier((8, 4), activation="tanh", max_iter=30), "two"),
        of("GaussianProcessClassifier", gaussian_process.GaussianProcessClassifier, "two"),
        of("BaggingClassifier", lambda: ensemble.BaggingClassifier(tree, n_estimators=4, random_state=0)),
        of("AdaBoostClassifier", lambda: ensemble.AdaBoostClassifier(tree, n_estimators=4, random_state=0)),
        of("VotingClassifier", lambda: ensemble.VotingClassifier(members(), voting="soft", flatten_transform=False)),
        of("VotingClassifier-hard", lambda: ensemble.VotingClassifier(members(), flatten_transform=False)),
        of("StackingClassifier", lambda: ensemble.StackingClassifier(members(), cv=2)),
        of("OneVsRestClassifier", lambda: multiclass.OneVsRestClassifier(LogisticRegression())),
        of("OneVsOneClassifier", lambda: multiclass.OneVsOneClassifier(LogisticRegression())),
        of("CalibratedClassifierCV", lambda: calibration.CalibratedClassifierCV(LogisticRegression(), cv=2)),
        of("CalibratedClassifierCV-isotonic", lambda: calibration.CalibratedClassifierCV(tree, method="isotonic", cv=2)),
    ]  # fmt: skip


def _regressors() -> List[Estimator]:
    from sklearn import (
        cross_decomposition,
        ensemble,
        gaussian_process,
        linear_model,
        multioutput,
        neighbors,
        neural_network,
        svm,
    )
    from sklearn.tree import DecisionTreeRegressor

    plain = "LinearRegression Ridge Lasso ElasticNet BayesianRidge ARDRegression HuberRegressor Lars LassoLars "
    plain += "OrthogonalMatchingPursuit TheilSenRegressor SGDRegressor RidgeCV LassoCV ElasticNetCV RANSACRegressor"
    positive = "PoissonRegressor GammaRegressor TweedieRegressor"
    found = [Estimator(name, getattr(linear_model, name), "target") for name in plain.split()]
    found += [Estimator(name, getattr(linear_model, name), "positive") for name in positive.split()]
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    members = [("linear", linear_model.LinearRegression()), ("tree", tree)]
    makers = {
        "QuantileRegressor": lambda: linear_model.QuantileRegressor(alpha=0.1),
        "SVR": svm.SVR,
        "NuSVR": svm.NuSVR,
        "LinearSVR": lambda: svm.LinearSVR(random_state=0),
        "KNeighborsRegressor": neighbors.KNeighborsRegressor,
        "KNeighborsRegressor-distance": lambda: neighbors.KNeighborsRegressor(weights="distance"),
        "RadiusNeighborsRegressor": lambda: neighbors.RadiusNeighborsRegressor(50.0),
        "MLPRegressor": lambda: neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=30, random_state=0),
        "GaussianProcessRegressor": lambda: gaussian_process.GaussianProcessRegressor(alpha=1.0),
        "PLSRegression": lambda: cross_decomposition.PLSRegression(2),
        "BaggingRegressor": lambda: ensemble.BaggingRegressor(tree, n_estimators=4, random_state=0),
        "AdaBoostRegressor": lambda: ensemble.AdaBoostRegressor(tree, n_estimators=4, random_state=0),
        "VotingRegressor": lambda: ensemble.VotingRegressor(members),
        "StackingRegressor": lambda: ensemble.StackingRegressor(members, cv=2),
    }
    found += [Estimator(name, make, "target") for name, make in makers.items()]
    several = lambda: multioutput.MultiOutputRegressor(linear_model.Ridge())  # noqa: E731
    return [*found, Estimator("MultiOutputRegressor", several, "targets")]


def _unsupervised() -> List[Estimator]:
    from sklearn import cluster, decomposition, mixture, neighbors, svm

    makers = {
        "KMeans": lambda: cluster.KMeans(4, n_init=1, random_state=0),
        "MiniBatchKMeans": lambda: cluster.MiniBatchKMeans(4, n_init=1, random_state=0),
        "GaussianMixture": lambda: mixture.GaussianMixture(3, random_state=0),
        "PCA": lambda: decomposition.PCA(2),
        "TruncatedSVD": lambda: decomposition.TruncatedSVD(2, random_state=0),
        "IncrementalPCA": lambda: decomposition.IncrementalPCA(2),
        "LocalOutlierFactor": lambda: neighbors.LocalOutlierFactor(novelty=True),
        "OneClassSVM": svm.OneClassSVM,
    }
    return [Estimator(name, make, "none") for name, make in makers.items()]


def _pipelines() -> List[Estimator]:
    from sklearn import compose, feature_extraction, feature_selection, impute, pipeline, preprocessing
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    def of(step: Callable[[], Any], **options: Any) -> Callable[[], Any]:
        return lambda: pipeline.make_pipeline(step(**options), LogisticRegression(max_iter=300))

    steps = {
        "StandardScaler": of(preprocessing.StandardScaler),
        "MinMaxScaler": of(preprocessing.MinMaxScaler),
        "MinMaxScaler-clip": of(preprocessing.MinMaxScaler, clip=True),
        "MaxAbsScaler": of(preprocessing.MaxAbsScaler),
        "RobustScaler": of(preprocessing.RobustScaler),
        "Normalizer": of(preprocessing.Normalizer),
        "Normalizer-l1": of(preprocessing.Normalizer, norm="l1"),
        "Binarizer": of(preprocessing.Binarizer, threshold=0.5),
        "KBinsDiscretizer": of(preprocessing.KBinsDiscretizer, n_bins=4, encode="ordinal"),
        "PolynomialFeatures": of(preprocessing.PolynomialFeatures),
        "PowerTransformer": of(preprocessing.PowerTransformer),
        "VarianceThreshold": of(feature_selection.VarianceThreshold),
        "SelectKBest": of(feature_selection.SelectKBest, k=2),
    }
    found = [Estimator(f"pipeline-{name}", make, "classes") for name, make in steps.items()]
    gaps = {"SimpleImputer": impute.SimpleImputer, "KNNImputer": impute.KNNImputer}
    found += [Estimator(f"pipeline-{name}", of(make), "classes", "gaps") for name, make in gaps.items()]
    text = feature_extraction.text
    words = {
        "TfidfVectorizer": of(text.TfidfVectorizer),
        "TfidfVectorizer-pairs": of(text.TfidfVectorizer, ngram_range=(1, 2), sublinear_tf=True),
        "CountVectorizer": of(text.CountVectorizer, binary=True),
        "CountVectorizer-plain": of(text.CountVectorizer, lowercase=False),
    }
    found += [Estimator(f"texts-{name}", make, "classes", "texts") for name, make in words.items()]

    def table(encoder: Callable[[], Any], estimator: Callable[[], Any]) -> Callable[[], Any]:
        columns = [("city", encoder(), ["city"]), ("numbers", preprocessing.StandardScaler(), ["width", "height"])]
        return lambda: pipeline.make_pipeline(compose.ColumnTransformer(columns), estimator())

    one_hot = lambda: preprocessing.OneHotEncoder(handle_unknown="ignore")  # noqa: E731
    few = lambda: RandomForestClassifier(5, random_state=0)  # noqa: E731
    tables = {
        "OneHotEncoder": table(one_hot, LogisticRegression),
        "OneHotEncoder-forest": table(one_hot, few),
        "OrdinalEncoder": table(preprocessing.OrdinalEncoder, few),
        "OrdinalEncoder-linear": table(preprocessing.OrdinalEncoder, LogisticRegression),
    }
    return [*found, *(Estimator(f"table-{name}", make, "classes", "table") for name, make in tables.items())]


def _libraries() -> List[Estimator]:
    """Returns the estimators of libraries that onnxmltools converts, and CatBoost's, as far as they are installed."""
    found = []

    def add(name: str, make: Callable[[], Any], task: str) -> None:
        found.append(Estimator(name, make, task, trees=True))

    try:
        import xgboost
    except ImportError:
        pass
    else:
        add("XGBClassifier", lambda: xgboost.XGBClassifier(n_estimators=8, max_depth=4), "classes")
        add("XGBClassifier-two", lambda: xgboost.XGBClassifier(n_estimators=8), "two")
        add("XGBRegressor", lambda: xgboost.XGBRegressor(n_estimators=8), "target")
    try:
        import lightgbm
    except ImportError:
        pass
    else:
        add("LGBMClassifier", lambda: lightgbm.LGBMClassifier(n_estimators=8, verbose=-1), "classes")
        add("LGBMClassifier-two", lambda: lightgbm.LGBMClassifier(n_estimators=8, verbose=-1), "two")
        add("LGBMRegressor", lambda: lightgbm.LGBMRegressor(n_estimators=8, verbose=-1), "target")
    try:
        import catboost
    except ImportError:
        pass
    else:
        few = {"iterations": 8, "depth": 3, "verbose": False, "allow_writing_files": False}
        add("CatBoostClassifier", lambda: catboost.CatBoostClassifier(**few), "classes")
        add("CatBoostClassifier-two", lambda: catboost.CatBoostClassifier(**few), "two")
        add("CatBoostRegressor", lambda: catboost.CatBoostRegressor(**few), "target")
    return found
