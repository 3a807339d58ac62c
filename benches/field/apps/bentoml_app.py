"""A service with adaptive batching ("Adaptive batching") and a worker for each core ("Parallelize requests handling")."""

from typing import Annotated

import bentoml
import numpy
from bentoml.validators import DType
from predictors import LOADERS, PROCESSES

Rows = Annotated[numpy.ndarray, DType("float64")]


@bentoml.service(
    workers=PROCESSES, traffic={"timeout": 60}, metrics={"enabled": False}, logging={"access": {"enabled": False}}
)
class Field:
    """All three models."""

    def __init__(self) -> None:
        self.models = {name: load() for name, load in LOADERS.items()}

    @bentoml.api(batchable=True, max_batch_size=4000, max_latency_ms=1000)
    def xgboost(self, rows: Rows) -> numpy.ndarray:
        """Predicts rows by the ensemble of trees."""
        return self.models["xgboost"](rows)

    @bentoml.api(batchable=True, max_batch_size=4000, max_latency_ms=1000)
    def sklearn(self, rows: Rows) -> numpy.ndarray:
        """Predicts rows by the pipeline."""
        return self.models["sklearn"](rows)

    @bentoml.api(batchable=True, max_batch_size=4000, max_latency_ms=1000)
    def echo(self, rows: Rows) -> numpy.ndarray:
        """Returns rows."""
        return self.models["echo"](rows)
