"""Models in Apache Beam: a `ModelHandler` for `RunInference`.

    handler = mlserver.beam.ModelHandler("s3://models/churn", outputs=["predict_proba"])
    predictions = rows | RunInference(handler)

Elements are dictionaries of columns, and a prediction's `inference` is a dictionary of outputs. Each process of a worker starts
one child process, which evaluates the model; see `mlserver.scoring`. Workers need the wheel `mlserver`, and the model at its
location.
"""

from typing import Any, Dict, Iterable, List, Optional, Sequence

from apache_beam.ml.inference.base import ModelHandler as BeamModelHandler
from apache_beam.ml.inference.base import PredictionResult

from .scoring import Scorer

__all__ = ["ModelHandler"]


class ModelHandler(BeamModelHandler):  # type: ignore[misc]
    """A model for `RunInference`."""

    def __init__(
        self, location: str, *, min_batch_size: int = 1, max_batch_size: int = 10_000, **arguments: Any
    ) -> None:
        """Takes the arguments of `mlserver.load`, and the number of elements in a batch.

        Raises `ValueError` for an invalid argument.
        """
        self._scorer = Scorer(location, **arguments)
        self._batch = {"min_batch_size": min_batch_size, "max_batch_size": max_batch_size}
        self._env_vars: Dict[str, str] = {}

    def load_model(self) -> Scorer:
        """Starts the child, and loads the model. Raises `ScoringError` if that fails."""
        self._scorer.features()
        return self._scorer

    def run_inference(
        self, batch: Sequence[Dict[str, Any]], model: Scorer, inference_args: Optional[Dict[str, Any]] = None
    ) -> Iterable[PredictionResult]:
        """Returns a prediction for each element.

        `inference_args` may have `columns`, the columns of the features in their order.

        Raises `InferenceError` if elements lack a column, or if the model rejects one.
        """
        names = list(dict.fromkeys(name for element in batch for name in element))
        columns = {name: [element.get(name) for element in batch] for name in names}
        found = model.predict(columns, **(inference_args or {}))
        rows: List[Dict[str, Any]] = [dict(zip(found, values)) for values in zip(*found.values())]
        return [PredictionResult(element, row, self._scorer.location) for element, row in zip(batch, rows)]

    def batch_elements_kwargs(self) -> Dict[str, Any]:
        """Returns the sizes of batches."""
        return self._batch

    def get_metrics_namespace(self) -> str:
        """Returns the name of Beam's metrics of this model."""
        return "mlserver"

    def share_model_across_processes(self) -> bool:
        """Reports that each process has a child of its own."""
        return False
