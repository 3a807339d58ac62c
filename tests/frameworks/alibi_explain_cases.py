"""Explainers of alibi, and the requests to them."""

import pathlib
from typing import Any, Dict, List

from blackbox import ADDRESS, serving
from casefile import Case, infer, metadata, settings, tensor

__all__ = ["CASES", "models", "serving"]

IMPLEMENTATION = "mlserver_alibi_explain.AlibiExplainRuntime"
FLOWERS = f"{ADDRESS}/v2/models/flowers/infer"


def models(folder: pathlib.Path) -> None:
    """Creates and saves the explainers, and the models that they inspect."""
    import joblib
    import numpy
    from alibi.explainers import AnchorTabular, KernelShap, TreePartialDependence, TreeShap
    from sklearn.datasets import load_iris
    from sklearn.ensemble import GradientBoostingRegressor

    rows, _ = load_iris(return_X_y=True)
    names = ["a", "b", "c", "d"]

    # The rule of the black box, which is only asked later: explainers are saved with what they were made of.
    def ask(data: Any) -> Any:
        first, second = numpy.array([0.8, 0.1, 0.1]), numpy.array([0.1, 0.8, 0.1])
        third = numpy.array([0.1, 0.2, 0.7])
        return numpy.stack([first if row[2] < 2.5 else second if row[3] < 1.7 else third for row in data])

    def write(name, explainer, kind, infer_uri=FLOWERS, **extra):
        target = settings(folder / name, IMPLEMENTATION, "./explainer", infer_uri=infer_uri, explainer_type=kind, **extra)
        explainer.save(target / "explainer")

    anchors = AnchorTabular(ask, names, seed=1)
    anchors.fit(rows[::5])
    write("anchors", anchors, "anchor_tabular")
    shap = KernelShap(ask, feature_names=names, seed=1)
    shap.fit(rows[::10])
    write("shap", shap, "kernel_shap")
    write("together", shap, "kernel_shap", explainer_batch=True)
    trees = GradientBoostingRegressor(n_estimators=3, max_depth=2, random_state=1).fit(rows[:, :3], rows[:, 3])
    inside = TreeShap(trees, model_output="raw", feature_names=names[:3], task="regression")
    inside.fit()
    write("trees", inside, "tree_shap", "./trees/model.joblib", explainer_batch=True)
    joblib.dump(trees, folder / "trees/model.joblib")
    dependence = TreePartialDependence(trees, feature_names=names[:3])
    write("dependence", dependence, "tree_partial_dependence", "./trees/model.joblib", explainer_batch=True)
    picture: Dict[str, Any] = {"image_shape": [4, 4, 1], "segmentation_fn": "slic", "segmentation_kwargs": {"n_segments": 2}}
    settings(folder / "picture", IMPLEMENTATION, ".", infer_uri=FLOWERS, explainer_type="anchor_image",
             init_parameters={**picture, "seed": 1})  # fmt: skip


ONE = tensor("x", "FP64", [1, 4], [5.1, 3.5, 1.4, 0.2])
TWO = tensor("x", "FP64", [2, 4], [5.1, 3.5, 1.4, 0.2, 6.7, 3.0, 5.2, 2.3])
THREE = tensor("x", "FP64", [2, 3], [5.1, 3.5, 1.4, 6.7, 3.0, 5.2])


def explain(model: str, what: str, *inputs: Dict[str, Any], **arguments: Any) -> Case:
    """Returns a request that has arguments for the explainer."""
    return infer(model, what, *inputs, parameters={"explain_parameters": arguments} if arguments else None)


CASES: List[Case] = [
    metadata("shap"),
    explain("shap", "one", ONE),
    explain("shap", "the first of two", TWO),
    explain("together", "two", TWO),
    explain("trees", "two", THREE),
    explain("dependence", "of rows", THREE, features=[0], grid_resolution=3),
    # Invalid requests.
    explain("shap", "no such argument", ONE, nonsense=1),
    explain("shap", "no inputs"),
]  # fmt: skip
