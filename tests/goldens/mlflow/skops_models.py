"""Saves the models of other folders once more, in the format `skops`, which newer versions of MLflow write by default.

python tests/goldens/mlflow/skops_models.py    # in an environment with requirements.txt, but MLflow 3.17.2, and skops 0.16.0
"""

import os
import pathlib
import shutil

from generate import BESIDE

HERE = pathlib.Path(__file__).resolve().parent
#: The folders, and the method that predicts, unless it is `predict`.
MODELS = {
    "column": None,
    "lightgbm_classifier": None,
    "linear": None,
    "pipeline": None,
    "plain": None,
    "probabilities": "predict_proba",
}


def main():
    """Writes the folders in `skops`."""
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "true"
    import mlflow.lightgbm
    import mlflow.sklearn
    from mlflow.models import Model

    shutil.rmtree(HERE / "skops", ignore_errors=True)
    for name, method in MODELS.items():
        library = mlflow.lightgbm if name.startswith("lightgbm") else mlflow.sklearn
        source, target = HERE / name / "model", HERE / "skops" / name / "model"
        options = {"pyfunc_predict_fn": method} if method else {}
        signature = Model.load(source).signature
        model = library.load_model(str(source))
        library.save_model(model, str(target), signature=signature, pip_requirements=["mlflow"], **options)
        for file in BESIDE:
            (target / file).unlink()


if __name__ == "__main__":
    main()
