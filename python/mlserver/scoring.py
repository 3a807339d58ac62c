"""Predictions in this process, by the evaluators of the server, without a server: `mlserver.load`.

    with mlserver.load("s3://models/churn", outputs=["predict_proba"]) as scorer:
        scored = scorer.predict(frame)

A scorer starts the executable as a child process when it is first used. Data goes through shared memory. All models that
`mlserver start` serves can be loaded; those in Python run in their own environment, below the child.
"""

import json
import os
import re
import subprocess
from dataclasses import replace
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._executable import find_executable
from ._scoring import processes
from ._scoring.batches import BATCH_BYTES, score
from ._scoring.child import Child, ChildArguments
from ._scoring.inputs import LoadedModel, chosen, only_column, plan
from ._scoring.options import ScorerOptions
from ._scoring.outputs import Predictions
from ._scoring.tables import ArrayInput, ArrowTable, DictTable, PandasTable, Table, read_input
from ._tensor import NUMPY_NAMES
from .errors import InferenceError, ScoringError
from .version import __version__

__all__ = ["OutputSchema", "Scorer", "load"]

#: Names like `s3://bucket/model`, and MLflow's like `models:/churn/1`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class OutputSchema(NamedTuple):
    """An output of a model."""

    name: str
    #: The datatype of the protocol, such as `FP32`, or `BYTES` for text.
    datatype: str
    #: The shape for `-1` rows.
    shape: Tuple[int, ...]


class Scorer:
    """A model that predicts in a child process of this one.

    It consists of its arguments: it can be pickled, and starts its child where it is first used. Threads share one child for
    each set of arguments. The child ends `idle` seconds after the last call, when this process exits, and after `close`, which
    the end of a `with` block calls. A later call starts another one. A forked process starts its own.
    """

    def __init__(
        self,
        location: "str | os.PathLike[str]",
        options: Optional[ScorerOptions] = None,
        **arguments: Any,
    ) -> None:
        """Takes the arguments of `mlserver.load`, as `options` or by their names, without starting anything.

        Raises `ValueError` for an invalid argument.
        """
        location = os.fspath(location)
        if not location:
            raise ValueError("location is empty: pass a folder, a model file or a URI")
        #: The folder, model file or URI. Paths are absolute.
        self.location: str = location if _URI.match(location) else os.path.abspath(location)
        self.options = ScorerOptions(**arguments) if options is None else options
        self._arguments: Optional[ChildArguments] = None

    def __repr__(self) -> str:
        return f"<Scorer of {self.location}>"

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_arguments": None, "_pickled_by": __version__}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        found = state.pop("_pickled_by", "unknown")
        if found != __version__:
            raise ScoringError(
                f"the scorer was pickled by version {found} of the package `mlserver`, and this Python has {__version__}:"
                " install the same version in both"
            )
        self.__dict__.update(state)

    def predict(self, data: Any, columns: Optional[Sequence[str]] = None) -> Any:
        """Returns the predictions for all rows, in the form of the data.

        - A `DataFrame` of pandas: a frame with the same index and a column for each output, or for each element of a row of it
          (`predict_proba[0]`, `predict_proba[1]`, ...).
        - A `Table` or `RecordBatch` of pyarrow: the same with a column for each output; rows of several elements are lists.
        - An array of NumPy `[rows, ...]`: an array, `[rows]` if rows have one element; a dictionary of arrays if there are
          several outputs.
        - A dictionary of columns: a dictionary of arrays of NumPy or pyarrow, or of lists, as the columns are. If it has arrays
          of several dimensions, they are the tensors of these names.

        Columns are found by the names of the model's features, and others are ignored. Those that a pipeline of scikit-learn
        drops may be missing. `columns` names the columns in the order of the features instead. Of a model without names of
        features, all columns are sent.

        Raises `InferenceError` if the data does not fit the model, and `ScoringError` if the child cannot start or has died.
        """
        table = read_input(data, self.options.missing)

        def predict(child: Child) -> Predictions:
            model = _known(child, needs_names=isinstance(table, Table))
            return score(child, model, plan(model, table, columns), self.options.outputs)

        found = self._call(predict)
        return _like(data, table, found)

    def schema(
        self, columns: Optional[Dict[str, str]] = None, order: Optional[Sequence[str]] = None
    ) -> List[OutputSchema]:
        """Returns the names, datatypes and shapes of the outputs that predictions have.

        `columns` has the names and datatypes of the table that will be predicted; without it, the model must declare its
        inputs. The datatype of a column of lists is `FP64[3]`, or `FP64[]` for an element for each feature. `order` is what
        `columns` of `predict` will be. A native model is asked with a table without rows, or with one row of zeros and empty
        text if it rejects that. A model in Python that does not declare its outputs is asked with such a row.

        Raises `InferenceError` if the model does not take such columns.
        """
        with self._child() as child:
            model = _known(child)
            declared = _declared(model, self.options.outputs)
            if declared is not None and not model.is_native:
                return declared
            table = DictTable(_sample(model, columns, rows=1), self.options.missing)
            request = plan(model, table, order)
            try:
                found = score(child, model, request._replace(rows=0 if model.is_native else 1), self.options.outputs)
            except InferenceError:
                # Some estimators take no table without rows.
                try:
                    found = score(child, model, request, self.options.outputs)
                except InferenceError:
                    if declared is None:
                        raise
                    return declared
        return [OutputSchema(each.name, each.datatype, (-1, *each.row_shape)) for each in found.outputs]

    def chosen_columns(
        self, names: Sequence[str], columns: Optional[Sequence[str]] = None, lists: Collection[str] = ()
    ) -> List[str]:
        """Returns the columns of a table with these names that a prediction uses, in the order of the features.

        `lists` are the columns whose values are lists: one that alone is used has all features. Raises `InferenceError` if a
        column is missing.
        """
        only = only_column(names, columns)
        if only is not None and only in lists:
            return [only]
        with self._child() as child:
            return [column for column, _ in chosen(_known(child), names, columns)]

    def close(self) -> None:
        """Ends the child, unless another scorer with the same arguments uses it. The scorer can be used again."""
        if self._arguments is not None:
            processes.close(self._arguments, self)

    def score_arrow(
        self,
        data: Any,
        columns: Optional[Sequence[str]] = None,
        batch_bytes: int = BATCH_BYTES,
        keeps_failures: bool = True,
    ) -> Tuple[Dict[str, Any], Dict[int, str]]:
        """Returns a pyarrow array for each output, with nulls for failed rows, and the reason for each failed row.

        For engines: with `keeps_failures`, rows that the model rejects do not raise. Each of them costs some calls, because
        batches are halved until it is alone. If all rows failed, there are no outputs. Raises `ScoringError` like `predict`.
        """
        table = ArrowTable(data, self.options.missing)

        def predict(child: Child) -> Predictions:
            model = _known(child)
            return score(child, model, plan(model, table, columns), self.options.outputs, batch_bytes, keeps_failures)

        found = self._call(predict)
        return found.as_arrow(), found.failed

    def features(self) -> Optional[List[str]]:
        """Returns the names of the columns that the model takes, `None` if it declares none."""
        with self._child() as child:
            return _known(child).column_names

    @property
    def executable(self) -> str:
        """The path of `mlserver`. Raises `MLServerError` if there is none."""
        return os.fspath(self.options.executable or find_executable())

    def moved(self, location: Optional[str] = None, executable: Optional[str] = None) -> "Scorer":
        """Returns a scorer with the same arguments for a copy of the model, or with a copy of the executable."""
        options = self.options if executable is None else replace(self.options, executable=executable)
        return Scorer(location or self.location, options)

    def _call(self, predict: Callable[[Child], Predictions]) -> Predictions:
        """Calls a function with the child, or with another one if the child has ended unnoticed since the last call."""
        with self._child() as child:
            try:
                return predict(child)
            except ScoringError:
                if not child.ended_before_call:
                    raise
        with self._child() as child:
            return predict(child)

    def _child(self) -> Any:
        if self._arguments is None:
            options = self.options
            self._arguments = ChildArguments(
                self.executable,
                self.location,
                options.model_name,
                options.version,
                options.threads,
                float(options.idle),
            )
        return processes.use(self._arguments, self)


def load(
    location: "str | os.PathLike[str]",
    *,
    model_name: Optional[str] = None,
    version: Optional[str] = None,
    outputs: Optional[Sequence[str]] = None,
    threads: int = 1,
    missing: str = "nan",
    idle: float = 300,
    executable: "str | os.PathLike[str] | None" = None,
) -> Scorer:
    """Returns a scorer for a model. It is loaded when the scorer is first used.

    - `location`: what `mlserver start` and `parameters.uri` take: a folder, a model file, or a URI such as `s3://models/churn`.
    - `model_name`, `version`: the model to use if there are several.
    - `outputs`: the outputs to compute, such as `predict_proba`; the model's default if it is `None`.
    - `threads`: how many predictions run at a time, 1 to 256.
    - `missing`: `nan` sends missing values as NaN, and missing text as empty; `error` rejects them.
    - `idle`: after how many seconds without a call the child process ends.
    - `executable`: the path of `mlserver`; that of the wheel if it is `None`, or the one in `MLSERVER_BIN` or in `PATH`.

    Raises `ValueError` for an invalid argument.
    """
    options = ScorerOptions(
        model_name=model_name,
        version=version,
        outputs=outputs,
        threads=threads,
        missing=missing,
        idle=idle,
        executable=executable,
    )
    return Scorer(location, options)


def _like(data: Any, table: Any, found: Predictions) -> Any:
    """Returns predictions in the form of the data."""
    if isinstance(table, PandasTable):
        return found.as_frame(data.index)
    if isinstance(table, ArrayInput):
        return found.like_array()
    if isinstance(table, ArrowTable):
        arrays = found.as_arrow()
        return type(data).from_arrays(list(arrays.values()), names=list(arrays))
    kinds = {module.partition(".")[0] for module in {type(values).__module__ for values in data.values()}}
    if kinds <= {"pyarrow"}:
        return found.as_arrow()
    return found.as_lists() if kinds <= {"builtins"} else found.as_arrays()


def _known(child: Child, needs_names: bool = True) -> LoadedModel:
    """Returns what is known about the model of a child."""
    model: LoadedModel = child.known or LoadedModel(child.model)
    if needs_names and model.is_native and not model.inputs and "features" not in child.model:
        # Names that are not in the model itself, but in a part of it, such as the first step of a pipeline.
        child.model.update(_inspected(child.arguments))
        model = LoadedModel(child.model)
    child.known = model
    return model


def _inspected(arguments: ChildArguments) -> Dict[str, Any]:
    """Returns the features in the file of a native model: their names, those that it does not read, and their number."""
    command = [arguments.executable, "inspect", arguments.location, "--format", "json"]
    run = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    try:
        found = json.loads(run.stdout)
        shapes = [each["shape"] for each in found["inputs"]]
        width = shapes[0][1] if len(shapes) == 1 and len(shapes[0]) == 2 else 0
        features = {"features": list(found["columns"]), "unread_features": list(found["unread_columns"])}
        return {**features, "width": width}
    except (ValueError, KeyError, TypeError, IndexError):
        return {"features": []}  # a folder of several models, or a graph


def _declared(model: LoadedModel, names: Optional[Sequence[str]]) -> Optional[List[OutputSchema]]:
    """Returns the outputs that the model declares, `None` if it does not declare all that are asked for."""
    known = {output["name"]: output for output in model.outputs}
    wanted = list(known) if names is None else list(names)
    if not wanted or not all(name in known and known[name].get("shape") for name in wanted):
        return None
    found = [OutputSchema(name, known[name]["datatype"], (-1, *known[name]["shape"][1:])) for name in wanted]
    return found if all(min(each.shape[1:], default=0) >= 0 for each in found) else None


def _sample(model: LoadedModel, columns: Optional[Dict[str, str]], rows: int) -> Dict[str, Any]:
    """Returns rows of zeros and empty text."""
    if columns is None:
        names = model.column_names
        types = {declared["name"]: declared.get("datatype", "FP64") for declared in model.inputs}
        if names is None and model.is_matrix and model.inputs[0]["shape"][1] > 0:
            datatype = model.inputs[0].get("datatype", "FP64")
            columns = {f"{place}": datatype for place in range(model.inputs[0]["shape"][1])}
        elif names is None:
            raise InferenceError(
                "the model does not declare its inputs: pass the columns with their datatypes to `schema`"
            )
        else:
            columns = {name: types.get(name, "FP64") for name in names}
    return {name: _sample_column(model, name, datatype, rows) for name, datatype in columns.items()}


def _sample_column(model: LoadedModel, name: str, datatype: str, rows: int) -> Any:
    datatype, bracket, size = datatype.partition("[")
    zero: Any = {"BYTES": "", "BOOL": False}.get(datatype, 0.0 if datatype.startswith(("FP", "BF")) else 0)
    if not bracket:
        return [zero] * rows
    width = int(size.rstrip("]") or 0) or model.width
    if width is None:
        raise InferenceError(
            f"column `{name}` has lists, and the model does not declare how many elements a row has: declare its inputs in"
            " model-settings.json"
        )
    import pyarrow as pa

    return pa.array([[zero] * width] * rows, pa.list_(getattr(pa, NUMPY_NAMES[datatype])()))
