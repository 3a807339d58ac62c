"""The runtime of models of Spark MLlib (the package `pyspark.mllib`)."""

import os
import sys
import threading
from typing import Any, Dict, List, Tuple

from mlserver import MLModel
from mlserver._blocking import blocking
from mlserver._frameworks import import_framework, loading
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from mlserver.utils import get_model_uri

__all__ = ["MLlibModel"]

_OUTPUT = "predict"
_APP = "MLlibModel"

#: The module and the class of each `parameters.format`.
_FORMATS: Dict[str, Tuple[str, str]] = {
    "LogisticRegression": ("classification", "LogisticRegressionModel"),
    "NaiveBayes": ("classification", "NaiveBayesModel"),
    "SVM": ("classification", "SVMModel"),
    "KMeans": ("clustering", "KMeansModel"),
    "IsotonicRegression": ("regression", "IsotonicRegressionModel"),
    "LinearRegression": ("regression", "LinearRegressionModel"),
    "Lasso": ("regression", "LassoModel"),
    "RidgeRegression": ("regression", "RidgeRegressionModel"),
    "DecisionTree": ("tree", "DecisionTreeModel"),
    "GradientBoostedTrees": ("tree", "GradientBoostedTreesModel"),
    "RandomForest": ("tree", "RandomForestModel"),
}
_ISOTONIC = "IsotonicRegression"


class MLlibModel(MLModel):
    """A model of MLlib, with a single output `predict`."""

    #: The Spark model, while it is loaded.
    _model: Any = None

    @blocking
    async def load(self) -> bool:
        """Loads the model, and starts Spark if no other model of the worker has started it."""
        self._format = self._known_format()
        uri = await get_model_uri(self.settings)
        self._model = self._read(uri)
        return True

    @blocking
    async def unload(self) -> bool:
        """Frees the model, and stops Spark if it was the worker's last model."""
        if self._model is not None:
            self._model = None
            _Spark.leave()
        return True

    def _known_format(self) -> str:
        parameters = self.settings.parameters
        found = parameters.format if parameters is not None else None
        if found not in _FORMATS:
            expected = ", ".join(_FORMATS)
            described = f"`{found}`" if found else "missing"
            raise MLServerError(
                f"Invalid MLlib format for model {self.name}: `parameters.format` is {described}, expected one of {expected}"
            )
        return found

    def _read(self, uri: str) -> Any:
        module, name = _FORMATS[self._format]
        import_framework("numpy", "numpy")
        kind = getattr(import_framework(f"pyspark.mllib.{module}", "pyspark"), name)
        context = _Spark.join()
        try:
            with loading(uri):
                return kind.load(context, uri)
        except MLServerError as error:
            _Spark.leave()
            raise MLServerError(_shortened(str(error)), error.status_code) from error

    @blocking
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Returns a prediction for each row. A tensor of rank 1 is one row."""
        if len(payload.inputs) != 1:
            raise InferenceError(
                f"MLlibModel only supports a single input tensor ({len(payload.inputs)} were received)"
            )
        try:
            rows = self.decode(payload.inputs[0], default_codec=NumpyCodec)
            predicted = self._predict_rows(rows)
        except (ValueError, TypeError, LookupError, AssertionError) as error:
            raise InferenceError(str(error) or f"the model rejects the data: {type(error).__name__}") from error
        output = ResponseOutput(name=_OUTPUT, datatype="FP32", shape=[len(predicted)], data=predicted)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[output])

    def _predict_rows(self, rows: Any) -> List[float]:
        import numpy
        from py4j.protocol import Py4JJavaError  # type: ignore[import-not-found,unused-ignore]

        rows = numpy.asarray(rows)
        if rows.dtype.kind not in "biuf":
            raise InferenceError(f"MLlib's models take numbers, not elements of type {rows.dtype}")
        rows = rows.reshape(1, -1) if rows.ndim < 2 else rows.reshape(len(rows), -1)
        try:
            return [float(self._model.predict(self._point(row))) for row in rows.astype(float)]
        except Py4JJavaError as error:
            # Spark reports invalid data and its own errors by the same exception, with the text of a Java exception.
            if "IndexOutOfBounds" in str(error) or "IllegalArgument" in str(error):
                raise InferenceError(f"the model rejects a row of {rows.shape[1]}: {_shortened(str(error))}") from error
            raise

    def _point(self, row: Any) -> Any:
        """Returns the argument of `predict`: a number for isotonic regressions, a row for other models."""
        if self._format != _ISOTONIC:
            return row
        if len(row) != 1:
            raise InferenceError(f"an isotonic regression takes one number in a row, not {len(row)}")
        return float(row[0])


class _Spark:
    """The worker's only Spark context, and the number of models that use it."""

    _lock = threading.Lock()
    _users = 0

    @classmethod
    def join(cls) -> Any:
        """Returns the context, and creates it for the first model."""
        pyspark = import_framework("pyspark", "pyspark")
        configuration = pyspark.SparkConf().setAppName(_APP)
        # Runs locally, and listens only on the loopback interface, unless Spark's configuration files override it.
        for key, value in (("master", "local[*]"), ("driver.host", "127.0.0.1"), ("ui.enabled", "false")):
            configuration.setIfMissing(f"spark.{key}", value)
        # Processes that Spark starts use this interpreter and its packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with cls._lock:
            try:
                context = pyspark.SparkContext.getOrCreate(configuration)
            except Exception as error:
                raise MLServerError(
                    f"Spark does not start; it needs Java (17 or later): {_shortened(str(error))}", 500
                ) from error
            cls._users += 1
        return context

    @classmethod
    def leave(cls) -> None:
        """Stops the context if this was the last model."""
        with cls._lock:
            cls._users -= 1
            if cls._users == 0:
                import_framework("pyspark", "pyspark").SparkContext.getOrCreate().stop()


def _shortened(text: str) -> str:
    """Returns Java's message without the stack trace."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("at ", "... ", "Traceback", "File "))]
    return " ".join(kept)[:500]
