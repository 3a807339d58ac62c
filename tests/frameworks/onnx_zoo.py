"""Compares the server with onnxruntime on a zoo of exported estimators and pipelines.

    MLSERVER_BIN=target/debug/mlserver python tests/frameworks/onnx_zoo.py             # 600 models
    python tests/frameworks/onnx_zoo.py --count 60 --only Forest --backend python      # a part of them
    python tests/frameworks/onnx_zoo.py --start 300                                    # from a number on

The packages are those of `requirements-onnx.txt`, and onnxmltools, xgboost, lightgbm and catboost for their models. Models
differ in their data, number of features, classes, opset, type of numbers, and in whether scores are maps (ZipMap). For each
model, the largest difference to onnxruntime is printed; at the end, why models are not native, and which ones differ. The exit
status is 1 if any does. onnxruntime runs with one thread: with several, its sums of trees differ in their last bits.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import sys
import tempfile
import warnings
from typing import Any, Dict, List, NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "clients"),
    str(HERE.parent / "goldens"),
    str(HERE.parents[1] / "examples"),
]

import numpy
from onnx import helper
from onnx_zoo_estimators import Estimator, estimators

IMPLEMENTATION = "mlserver_onnx.OnnxModel"
ROWS = 1000
TRAINED = 300
#: Scores may differ by this much, relative to the value or to the mean of all values.
TOLERANCE = 1e-6
FIRST_OPSET = 9
ML_OPSET = 3
#: Estimators whose exported graphs are invalid for labels that are texts.
NUMBERED = ("XGB", "OneVsOne")
WORDS = ["the", "a", "red", "green", "blue", "car", "house", "tree", "runs", "Très", "vite", "now", "ok", "42"]
KINDS = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "bool": "BOOL"}


class Exported(NamedTuple):
    """A model with its rows."""

    name: str
    estimator: Estimator
    model: Any
    inputs: Dict[str, Any]
    opset: int


class Failure(Exception):
    """A model that cannot be exported, or that onnxruntime does not run."""


def rows_of(data: str, features: int, count: int, random: Any) -> Any:
    """Returns rows: an array, a list of texts, or a data frame."""
    if data == "counts":
        return random.integers(0, 8, size=(count, features)).astype(numpy.float32)
    if data == "texts":
        words = numpy.array(WORDS)
        return [" ".join(random.choice(words, size=random.integers(1, 9))) for _ in range(count)]
    if data == "table":
        import pandas

        cities = random.choice(numpy.array(["Bonn", "Oslo", "Rome", "Łódź"], dtype=object), size=count)
        numbers = random.normal(size=(count, 2)).astype(numpy.float32)
        return pandas.DataFrame({"city": cities, "width": numbers[:, 0], "height": numbers[:, 1]})
    rows = random.normal(scale=2.0, size=(count, features)).astype(numpy.float32)
    if data == "gaps":
        rows[random.random(rows.shape) < 0.1] = numpy.nan
    return rows


def target_of(task: str, rows: Any, random: Any) -> Any:
    """Returns what an estimator is trained for."""
    first = numpy.nan_to_num(rows[:, 0]) if isinstance(rows, numpy.ndarray) else random.normal(size=len(rows))
    noisy = first + random.normal(scale=0.3, size=len(rows))
    if task == "none":
        return None
    if task == "two":
        return (noisy > 0).astype(numpy.int64)
    if task == "classes":
        return numpy.searchsorted(numpy.quantile(noisy, [0.3, 0.6]), noisy)
    if task == "positive":
        return numpy.exp(noisy / 4)
    return numpy.stack([noisy, noisy * 2 + 1], axis=1) if task == "targets" else noisy * 3


def types_of(rows: Any, is_double: bool) -> Any:
    """Returns the types of the inputs for the exporters."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

    if isinstance(rows, list):
        return [("text", StringTensorType([None, 1]))]
    if isinstance(rows, numpy.ndarray):
        return [("x", (DoubleTensorType if is_double else FloatTensorType)([None, rows.shape[1]]))]
    return [(name, (StringTensorType if name == "city" else FloatTensorType)([None, 1])) for name in rows.columns]


def inputs_of(rows: Any, is_double: bool) -> Dict[str, Any]:
    """Returns the arrays that a graph is fed with."""
    if isinstance(rows, list):
        return {"text": numpy.array(rows, dtype=object).reshape(-1, 1)}
    if isinstance(rows, numpy.ndarray):
        return {"x": rows.astype(numpy.float64) if is_double else rows}
    dtypes = {name: object if name == "city" else numpy.float32 for name in rows.columns}
    return {name: rows[name].to_numpy(dtype=dtype).reshape(-1, 1) for name, dtype in dtypes.items()}


def convert(fitted: Any, types: Any, opset: int, zip_map: bool, is_classifier: bool) -> Any:
    """Exports an estimator with the exporter of its library."""
    library = type(fitted).__module__.partition(".")[0]
    if library == "catboost":
        import onnx

        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            fitted.save_model(file.name, format="onnx")
            return onnx.load(file.name)
    if library in ("xgboost", "lightgbm"):
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [(name, FloatTensorType(kind.shape)) for name, kind in types]
        options = {"zipmap": zip_map} if library == "lightgbm" and is_classifier else {}
        return getattr(onnxmltools, f"convert_{library}")(fitted, initial_types=types, target_opset=opset, **options)
    from skl2onnx import convert_sklearn

    options = {"zipmap": zip_map} if is_classifier else None
    opsets = {"": opset, "ai.onnx.ml": ML_OPSET}
    try:
        model = convert_sklearn(fitted, "zoo", types, target_opset=opsets, options=options)
    except NameError:  # the converter has no such option
        model = convert_sklearn(fitted, "zoo", types, target_opset=opsets)
    for node in model.graph.node:
        if node.op_type == "StringNormalizer" and not any(each.name == "locale" for each in node.attribute):
            # onnxruntime refuses the default, `en_US`, on a machine that does not have it.
            node.attribute.append(helper.make_attribute("locale", "C.UTF-8"))
    return model


def export(estimator: Estimator, number: int) -> Exported:
    """Trains and exports a model. Raises `Failure` if no opset from the wanted one on is supported."""
    from skl2onnx import __max_supported_opset__ as newest

    random = numpy.random.default_rng(number)
    features = 3 + number % 9
    rows = rows_of(estimator.data, features, TRAINED, random)
    target = target_of(estimator.task, rows, random)
    if estimator.task == "classes" and number % 3 == 1 and not estimator.name.startswith(NUMBERED):
        target = numpy.array(["red", "green", "blue"])[target]
    fitted = estimator.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fitted.fit(rows, target) if target is not None else fitted.fit(rows)
    is_double = number % 5 == 3 and estimator.data == "numbers" and not estimator.trees
    wanted = FIRST_OPSET + number % (newest - FIRST_OPSET + 1)
    opsets = [*range(wanted, newest + 1), *range(wanted - 1, FIRST_OPSET - 1, -1)]
    # Some converters have no version for FP64 or for an opset.
    attempts = [(double, opset) for double in ([True, False] if is_double else [False]) for opset in opsets]
    error: Optional[Exception] = None
    for double, opset in attempts:
        is_classifier, zip_map = estimator.task in ("classes", "two"), number % 2 == 0 and not double
        try:
            model = convert(fitted, types_of(rows, double), opset, zip_map, is_classifier)
        except Exception as failure:
            error = error or failure
            continue
        tested = inputs_of(rows_of(estimator.data, features, ROWS, random), double)
        if len(tested) == 1:
            tested = {model.graph.input[0].name: next(iter(tested.values()))}
        return Exported(f"{number:03}-{estimator.name}", estimator, model, tested, opset)
    raise Failure(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")


def reference(exported: Exported) -> Dict[str, Any]:
    """Returns onnxruntime's outputs. Scores that are maps become a matrix, with columns in the order of the first map."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            exported.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        values = session.run(None, exported.inputs)
    except Exception as error:
        raise Failure(f"onnxruntime: {str(error).splitlines()[0]}") from error
    found = {}
    for output, value in zip(session.get_outputs(), values):
        if isinstance(value, list):
            found[f"{output.name} keys"] = list(value[0])
            value = numpy.array([[row[key] for key in value[0]] for row in value], dtype=numpy.float32)
        found[output.name] = value
    return found


def body_of(exported: Exported, outputs: List[str]) -> Dict[str, Any]:
    """Returns the request for all rows. Missing numbers are null."""
    inputs = []
    for name, array in exported.inputs.items():
        data = array.ravel().tolist()
        if array.dtype.kind == "f":
            data = [None if value != value else value for value in data]
        kind = "BYTES" if array.dtype.kind == "O" else KINDS[array.dtype.name]
        inputs.append({"name": name, "datatype": kind, "shape": list(array.shape), "data": data})
    return {"inputs": inputs, "outputs": [{"name": name} for name in outputs]}


def compare(output: Dict[str, Any], expected: Any, keys: Optional[List[Any]]) -> float:
    """Returns the largest relative difference of an output; infinity if its labels, its shape or its type differ."""
    shape = list(expected.shape)
    if output["shape"] != (shape if len(shape) > 1 else [*shape, 1]):
        return float("inf")
    if keys is not None and sorted(output["parameters"]["labels"]) != sorted(keys):
        return float("inf")
    if expected.dtype.kind != "f":
        data = [str(value) for value in output["data"]] if expected.dtype.kind in "OU" else output["data"]
        return 0.0 if data == expected.ravel().tolist() else float("inf")
    data = [float("nan") if value is None else value for value in output["data"]]
    found = numpy.array(data, dtype=expected.dtype).astype(numpy.float64).reshape(expected.shape)
    if keys is not None:
        found = found[:, [output["parameters"]["labels"].index(key) for key in keys]]
    wanted = expected.astype(numpy.float64)
    same = (found == wanted) | (numpy.isnan(found) & numpy.isnan(wanted))
    if same.all():
        return 0.0
    finite = numpy.abs(wanted[numpy.isfinite(wanted)])
    scale = numpy.maximum(numpy.abs(wanted), finite.mean() if finite.size else 1.0)
    with numpy.errstate(all="ignore"):
        difference = numpy.where(same, 0.0, numpy.abs(found - wanted) / scale)
    return float(numpy.where(numpy.isnan(difference), numpy.inf, difference).max())


class Report:
    """What was found."""

    def __init__(self) -> None:
        self.backends: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.failures: List[str] = []
        self.skipped: List[str] = []

    def add(self, exported: Exported, server: Any, expected: Dict[str, Any]) -> None:
        """Asks the server for all rows, and compares the outputs."""
        names = [name for name in expected if not name.endswith(" keys")]
        metadata = server.get(f"/v2/models/{exported.name}").json()
        parameters = metadata.get("parameters", {})
        backend = parameters.get("backend", "not loaded")
        self.backends[backend] += 1
        if "backend_reason" in parameters:
            self.refusals[_cause(parameters["backend_reason"])] += 1
        answer = server.post(f"/v2/models/{exported.name}/infer", body_of(exported, names))
        if answer.status != 200:
            return self._differs(exported, backend, answer.body.decode("utf-8", "replace")[:300])
        outputs = answer.json()["outputs"]
        found = {output["name"]: compare(output, expected[output["name"]], expected.get(f"{output['name']} keys"))
                 for output in outputs}  # fmt: skip
        largest = max(found.values())
        is_equal = largest == 0.0 or (largest <= TOLERANCE and not exported.estimator.trees)
        shown = f"largest difference {largest:.1e}, opset {exported.opset}"
        if not is_equal:
            return self._differs(exported, backend, f"{shown}: {found}")
        print(f"{exported.name}: {backend}, {shown}", flush=True)
        return None

    def _differs(self, exported: Exported, backend: str, why: str) -> None:
        self.failures.append(f"{exported.name}: {backend}, {why}")
        print(f"{self.failures[-1]}  <-- DIFFERS", flush=True)

    def print(self) -> None:
        """Prints the tables."""
        print(f"\n{sum(self.backends.values())} models: {dict(self.backends)}")
        for title, counts in (("why not native", self.refusals),):
            print(f"\n{title}:")
            for cause, count in counts.most_common():
                print(f"{count:5}  {cause}")
        for title, lines in (("not exported", self.skipped), ("different", self.failures)):
            print(f"\n{title}: {len(lines)}")
            print("\n".join(f"  {line}" for line in lines))


def _cause(reason: str) -> str:
    """Returns why a graph is not native, without the names of its file and nodes."""
    reason = re.sub(r"^`[^`]*` is not a model that can be served natively: ", "", reason)
    return re.sub(r"node `[^`]*`", "node", reason)


def run(batch: List[Exported], backend: str, report: Report) -> None:
    """Serves models in one server, and compares each with onnxruntime."""
    from support import serve, settings

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        expected = {}
        for exported in batch:
            try:
                expected[exported.name] = reference(exported)
            except Failure as failure:
                report.skipped.append(f"{exported.name}: {failure}")
                continue
            extra = {"backend": backend, "session_options": {"intra_op_num_threads": 1}}
            place = settings(folder / exported.name, IMPLEMENTATION, "./model.onnx", **extra)
            (place / "model.onnx").write_bytes(exported.model.SerializeToString())
        if not expected:
            return
        variables = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_EXIT_ON_LOAD_FAILURE": "false"}
        server = serve(folder, sys.executable, **variables)

        def loaded() -> bool:
            health = server.get("/v2/health/ready")
            models = health.json().get("models", []) if health.status != 200 else []
            return health.status == 200 or (bool(models) and not any(each["state"] == "LOADING" for each in models))

        try:
            server.wait_for(loaded, patience=600)
            for exported in batch:
                if exported.name in expected:
                    report.add(exported, server, expected[exported.name])
        finally:
            server.stop()


def main() -> None:
    """Runs the zoo, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600, help="how many models")
    parser.add_argument("--start", type=int, default=0, help="the number of the first model")
    parser.add_argument("--only", default="", help="a regular expression for the names of estimators")
    parser.add_argument("--backend", default="auto", choices=["auto", "native", "python"])
    parser.add_argument("--batch", type=int, default=100, help="how many models a server has")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = [each for each in estimators() if re.search(options.only, each.name)]
    if not chosen:
        raise SystemExit(f"no estimator has a name with `{options.only}`")
    report, batch = Report(), []
    for number in range(options.start, options.start + options.count):
        estimator = chosen[number % len(chosen)]
        try:
            batch.append(export(estimator, number))
        except Exception as failure:
            report.skipped.append(f"{number:03}-{estimator.name}: {failure}")
        if len(batch) == options.batch:
            run(batch, options.backend, report)
            batch = []
    run(batch, options.backend, report)
    report.print()
    print(json.dumps({"different": len(report.failures), **report.backends}))
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
