"""The errors of framework runtimes that cannot load their model."""

import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import golden_models, need, reasons, serve, settings

PACKAGES = {
    "sklearn": ("mlserver_sklearn.SKLearnModel", "iris", "scikit-learn"),
    "xgboost": ("mlserver_xgboost.XGBoostModel", "classes", "xgboost"),
    "lightgbm": ("mlserver_lightgbm.LightGBMModel", "classes", "lightgbm"),
    "catboost": ("mlserver_catboost.CatboostModel", "classes", "catboost"),
}
ALL = {
    **PACKAGES,
    "mlflow": ("mlserver_mlflow.MLflowRuntime", "free", "mlflow"),
    "alibi_explain": ("mlserver_alibi_explain.AlibiExplainRuntime", "shap", "alibi"),
    "alibi_detect": ("mlserver_alibi_detect.AlibiDetectRuntime", "drift", "alibi-detect"),
    "huggingface": ("mlserver_huggingface.HuggingFaceRuntime", "feelings", "transformers"),
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Returns an interpreter without any package."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


def test_missing_framework_names_the_package(tmp_path, bare):
    for name, (_, model, _) in ALL.items():
        shutil.copytree(golden_models(name) / model, tmp_path / name)
        file = tmp_path / name / "model-settings.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "name": name}))
    found = reasons(tmp_path, bare)
    version = ".".join(map(str, sys.version_info[:3]))
    for name, (_, _, package) in ALL.items():
        # A model of MLflow could be native: the reason why it is not comes first.
        reason = found[name].rpartition("; Python cannot serve it either: ")[2] if name == "mlflow" else found[name]
        assert reason == (
            f"the model needs `{package}`, which {bare} (Python {version}) does not have; "
            f"install it there: {bare} -m pip install {package}"
        )


def test_unsupported_native_model_needs_the_framework(tmp_path, bare):
    shutil.copytree(golden_models("xgboost") / "ranks", tmp_path / "ranks")
    reason = reasons(tmp_path, bare)["ranks"]
    artifact = tmp_path / "ranks/model.json"
    assert reason.startswith(
        f"`{artifact}` is not a model that can be served natively: estimator type `ranker` is not supported; "
        "Python cannot serve it either: the model needs `xgboost`, which"
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_invalid_artifact_is_reported_with_the_reason(name, tmp_path):
    need(name)
    implementation = PACKAGES[name][0]
    (settings(tmp_path / "nonsense", implementation, "./a file", backend="python") / "a file").write_text("no model")
    settings(tmp_path / "empty", implementation, backend="python")
    settings(tmp_path / "missing", implementation, "./nope", backend="python")
    found = reasons(tmp_path, Path(sys.executable))
    assert re.match(rf"cannot load `{tmp_path}/nonsense/a file`: \w+: .+", found["nonsense"]), found
    assert found["empty"].startswith(f"`{tmp_path}/empty` is a directory without a model file: expected one of model.")
    assert found["missing"] == f"Invalid URI specified for model missing ({tmp_path}/missing/nope)"


def test_folder_without_mlmodel_is_reported(tmp_path):
    need("mlflow")
    settings(tmp_path / "empty", ALL["mlflow"][0])
    reason = reasons(tmp_path, Path(sys.executable))["empty"]
    assert reason.startswith(f"cannot read `{tmp_path}/empty/MLmodel`: No such file or directory")


class Elsewhere:
    """Pickled as an object of a module that does not exist."""

    def __reduce__(self):
        return (eval, ("__import__('gone_since').model",))


def test_skops_file_needs_types_that_are_trusted(tmp_path):
    need("sklearn")
    import skops.io
    from sklearn.linear_model import LinearRegression
    from sklearn.tree import DecisionTreeClassifier

    implementation = PACKAGES["sklearn"][0]
    tree = DecisionTreeClassifier(random_state=0).fit([[0.0], [1.0]], [3, 4])
    kind = "sklearn.tree._tree.Tree"
    models = {"linear": LinearRegression().fit([[0.0], [1.0]], [3, 4]), "refused": tree, "trusted": tree}
    for name, model in models.items():
        extra = {"skops_trusted_types": [kind]} if name == "trusted" else {}
        skops.io.dump(model, settings(tmp_path / name, implementation, backend="python", **extra) / "model.skops")
    found = reasons(tmp_path, Path(sys.executable))
    assert found["refused"] == (
        f"cannot load `{tmp_path}/refused/model.skops`: skops does not trust `{kind}`; "
        "if you do, add the names to `parameters.extra.skops_trusted_types` of the model's settings"
    )
    shutil.rmtree(tmp_path / "refused")
    with serve(tmp_path, Path(sys.executable)) as server:
        server.wait_until_ready()
        rows = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP64", "data": [0, 1]}]}
        for name in ("linear", "trusted"):
            answer = server.post(f"/v2/models/{name}/infer", rows).json()
            assert answer["outputs"][0]["data"] == pytest.approx([3, 4]), answer


def test_pickle_with_missing_module_names_it(tmp_path):
    need("sklearn")
    implementation = PACKAGES["sklearn"][0]
    (settings(tmp_path / "moved", implementation, backend="python") / "model.pkl").write_bytes(
        pickle.dumps(Elsewhere())
    )
    shutil.copytree(golden_models("sklearn") / "iris", tmp_path / "iris")
    settings(tmp_path / "mistyped", implementation, "../iris", predict_fn="predic", backend="python")
    (tmp_path / "iris/model-settings.json").unlink()
    found = reasons(tmp_path, Path(sys.executable))
    assert re.fullmatch(
        rf"cannot load `{tmp_path}/moved/model.pkl`: it needs the module `gone_since`, which \S+ \(Python \S+\) "
        "does not have",
        found["moved"],
    )
    assert found["mistyped"] == (
        "`parameters.extra.predict_fn` is `predic`, which "
        "<class 'sklearn.linear_model._logistic.LogisticRegression'> "
        f"of `{tmp_path}/iris/model.joblib` does not have"
    )
