"""Compares the server with onnxruntime on a zoo of exported estimators and pipelines, with 1,000 rows for each.

    MLSERVER_BIN=target/debug/mlserver python tests/frameworks/onnx_zoo.py --count 100
    python tests/frameworks/onnx_zoo.py --only 'Forest|SVC' --backend python --folder target/zoo
    python tests/frameworks/onnx_zoo.py --hummingbird hummingbird/bin/python

Labels must be equal, and sums of leaves are equal bit by bit. Scores agree to 1e-6 of the largest value of their output. Some
models enlarge rounding: a support vector machine with coefficients of 5,000, fed by a product of matrices, changes by 1e-4
when its inputs change in the last bit. So scores may also differ by a few times the change that onnxruntime's own answer shows
when all inputs move to the next number.

One server has all models. Prints a line for each model: how it is served, and the largest difference. The server's own
operators evaluate `native` models; each `network` has a native process of its own. At the end, a table counts the models by
converter, and a list names the operators for which models are not served natively. A folder keeps models, inputs and
onnxruntime's outputs for the next run.
"""

import argparse
import collections
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Counter, Dict, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent / "goldens")]

import numpy
import onnx_client
from conftest import BINARY
from onnx_zoo_hummingbird import NEWEST_OPSET, Converter, recipes
from onnx_zoo_models import Arrays, Model, export, zoo
from support import serve, settings

#: The largest difference of scores, as a part of the largest value of the output.
TOLERANCE = 1e-6
#: How many times the change of onnxruntime's own answer to inputs that moved by one unit in the last place is allowed.
ENLARGED = 8
#: Which part of the values of an output that change is taken of: at a step of the model, single values change by more.
USUAL = 0.99
#: How many rows are also sent in JSON.
JSON_ROWS = 20
IMPLEMENTATION = "mlserver_onnx.OnnxModel"
#: How long the models may take to load, in seconds.
PATIENCE = 600
#: What converts the estimators of a library.
CONVERTERS = {
    "sklearn": "skl2onnx",
    "xgboost": "onnxmltools (XGBoost)",
    "lightgbm": "onnxmltools (LightGBM)",
    "catboost": "CatBoost itself",
    "hummingbird": "hummingbird",
}
#: How models are served.
SERVED = ["native", "network", "python", "not served"]

#: Exports a trained model, with its inputs and an opset.
Export = Callable[[Model, Any, Arrays, int], bytes]


def newest_opset(library: str) -> int:
    """Returns the newest opset that the converter of a library writes."""
    import onnx
    import skl2onnx
    from onnxmltools.convert.common.onnx_ex import get_maximum_opset_supported

    if library == "hummingbird":
        return NEWEST_OPSET
    newest = min(skl2onnx.__max_supported_opset__, onnx.defs.onnx_opset_version())
    return newest if library == "sklearn" else min(newest, get_maximum_opset_supported())


def answers(path: Path, inputs: Arrays) -> Tuple[Arrays, Dict[str, List[Any]]]:
    """Returns onnxruntime's outputs, and the keys of those that are maps, whose values become columns."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays, keys = {}, {}
    for output, values in zip(session.get_outputs(), session.run(None, inputs)):
        if isinstance(values, list):
            keys[output.name] = list(values[0])
            values = numpy.array([[row[key] for key in keys[output.name]] for row in values], dtype=numpy.float32)
        arrays[output.name] = values.astype(str) if onnx_client.is_text(values) else values
    return arrays, keys


def usual_changes(path: Path, inputs: Arrays, outputs: Arrays) -> Dict[str, float]:
    """Returns how much the outputs change when all inputs move to the next larger or smaller number."""
    changes: Dict[str, float] = {}
    for direction in (numpy.inf, -numpy.inf):
        moved = {
            name: numpy.nextafter(values, values.dtype.type(direction)) if values.dtype.kind == "f" else values
            for name, values in inputs.items()
        }
        for name, values in answers(path, moved)[0].items():
            if values.dtype.kind == "f" and values.shape == outputs[name].shape:
                with numpy.errstate(invalid="ignore"):
                    change = numpy.nan_to_num(numpy.abs(values.astype(float) - outputs[name]), posinf=0)
                changes[name] = max(changes.get(name, 0), float(numpy.quantile(change, USUAL)) if change.size else 0.0)
    return changes


def prepare(model: Model, folder: Path, backend: str, export: Export) -> Optional[str]:
    """Writes a model, its inputs and onnxruntime's outputs, unless they are there. Returns why it cannot be made."""
    place = folder / model.name
    if not (place / "answers.json").exists():
        data = place.with_name(f".{model.name}")
        data.mkdir(parents=True, exist_ok=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted, inputs = model.train()
            if model.library == "catboost":  # It names the input itself.
                inputs = {"features": inputs["X"]}
            for opset in (model.opset, newest_opset(model.library)):  # some converters need a newer one
                try:
                    (data / "model.onnx").write_bytes(export(model, fitted, inputs, opset))
                    outputs, keys = answers(data / "model.onnx", inputs)
                    changes = usual_changes(data / "model.onnx", inputs, outputs)
                    break
                except Exception as error:
                    problem = error
            else:
                raise problem
        except Exception as error:
            shutil.rmtree(data)
            return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        numpy.savez(data / "inputs.npz", **{n: v.astype(str) if v.dtype == object else v for n, v in inputs.items()})
        numpy.savez(data / "outputs.npz", **outputs)
        (data / "answers.json").write_text(json.dumps({"opset": opset, "keys": keys, "changes": changes}))
        data.rename(place)
    (place / "model-settings.json").unlink(missing_ok=True)
    # Several threads add leaves in another order, which decides ties of labels.
    extra = {"backend": backend, "session_options": {"intra_op_num_threads": 1}}
    temporary = settings(folder / ".settings" / model.name, IMPLEMENTATION, "./model.onnx", **extra)
    (temporary / "model-settings.json").rename(place / "model-settings.json")
    temporary.rmdir()
    return None


def compare(found: numpy.ndarray, expected: numpy.ndarray, allowed: Optional[float]) -> Tuple[float, Optional[str]]:
    """Returns the largest difference, as a part of the largest value, and what is wrong.

    `allowed` is a difference of scores, at least `TOLERANCE` of the largest. Without it, scores must be equal.
    """
    if found.shape != expected.shape and found.shape != (*expected.shape, 1):
        return numpy.inf, f"shape {found.shape} instead of {expected.shape}"
    found = found.reshape(expected.shape)
    if expected.dtype.kind in "fc" and found.dtype == expected.dtype:
        if not numpy.array_equal(numpy.isnan(found), numpy.isnan(expected)):
            return numpy.inf, "other values are NaN"
        same = (found == expected) | numpy.isnan(expected)
        if same.all():
            return 0.0, None
        scale = max(float(numpy.abs(expected[numpy.isfinite(expected)]).max(initial=0)), 1e-30)
        with numpy.errstate(invalid="ignore"):
            largest = float(numpy.abs(found[~same].astype(float) - expected[~same].astype(float)).max() / scale)
        is_near = allowed is not None and largest <= max(TOLERANCE, allowed / scale)
        return largest, None if is_near else f"{int((~same).sum())} values differ by up to {largest:.1e}"
    if found.dtype != expected.dtype and not (onnx_client.is_text(found) and onnx_client.is_text(expected)):
        return numpy.inf, f"datatype {found.dtype} instead of {expected.dtype}"
    different = int((found.astype(expected.dtype) != expected).sum())
    return float(different), f"{different} labels differ" if different else None


def check(model: Model, place: Path, url: str) -> Tuple[float, List[str]]:
    """Sends the rows to a model that is served. Returns the largest difference, and what is wrong."""
    inputs, expected = dict(numpy.load(place / "inputs.npz")), dict(numpy.load(place / "outputs.npz"))
    about = json.loads((place / "answers.json").read_text())
    keys, changes = about["keys"], about["changes"]
    try:
        found = onnx_client.infer(url, model.name, inputs, list(expected))
        few = {name: values[:JSON_ROWS] for name, values in inputs.items()}
        texts = onnx_client.infer_json(url, model.name, few, list(expected))
    except (OSError, onnx_client.RefusedError) as error:
        return numpy.inf, [str(error)]
    largest, wrong = 0.0, []
    for name, values in expected.items():
        output = found[name]
        if name in keys:
            if output.labels is None or sorted(output.labels) != sorted(keys[name]):
                wrong.append(f"{name}: labels {output.labels} instead of {keys[name]}")
                continue
            values = values[:, [keys[name].index(label) for label in output.labels]]
        allowed = None if model.is_exact else ENLARGED * changes.get(name, 0.0)
        difference, fault = compare(output.values, values, allowed)
        largest = max(largest, difference)
        if fault:
            wrong.append(f"{name}: {fault}")
            continue
        if len(values) != len(next(iter(inputs.values()))):
            continue  # The rows are not along the first dimension.
        written = numpy.array([numpy.nan if v is None else v for v in texts[name]]).astype(values.dtype)
        # Other rows of a batch must not matter.
        _, fault = compare(written.reshape(values[:JSON_ROWS].shape), values[:JSON_ROWS], allowed)
        if fault:
            wrong.append(f"{name}, in JSON: {fault}")
    return largest, wrong


def inspect(place: Path) -> Dict[str, Any]:
    """Returns what the executable reports of a file."""
    command = [BINARY, "inspect", "--format", "json", place / "model.onnx"]
    report = subprocess.run(command, capture_output=True, text=True, check=False)
    if report.returncode != 0:
        return {"title": "", "not_native_because": report.stderr.strip()}
    return json.loads(report.stdout)


def kind_of_service(place: Path, backend: str) -> str:
    """Returns which of `SERVED` a model is, by the backend in its metadata."""
    # The metadata of a network says `native`, too.
    return "network" if backend == "native" and inspect(place)["title"].startswith("ONNX network") else backend


def operator(reason: str) -> str:
    """Returns the operator that a reason names, or the reason."""
    found = re.search(r"\(([^\s,()]+), opset", reason)
    return found[1] if found else reason[:80]


def run(chosen: List[Model], folder: Path, backend: str, exports: Dict[str, Export]) -> int:
    """Serves and compares models, which the function of their library exports. Returns the number of those that are wrong."""
    counts: Dict[str, Counter[str]] = {model.library: collections.Counter() for model in chosen}
    operators: Counter[str] = collections.Counter()
    ready = []
    for model in chosen:
        problem = prepare(model, folder, backend, exports.get(model.library, export))
        counts[model.library].update(asked=1, made=int(problem is None))
        if problem is None:
            ready.append(model)
        else:
            print(f"not made     {model.name}: {problem}", flush=True)
    for stale in folder.glob("*/model-settings.json"):
        if stale.parent.name not in {model.name for model in ready}:
            stale.unlink()
    server = serve(folder, sys.executable, MLSERVER_EXIT_ON_LOAD_FAILURE="false")
    try:
        failed = server.wait_for(lambda: [onnx_client.states(server.url)], PATIENCE)[0]
        while failed is None:
            failed = server.wait_for(lambda: [onnx_client.states(server.url)], PATIENCE)[0]
        for model in ready:
            place = folder / model.name
            if model.name in failed:
                served, largest, wrong = "not served", numpy.inf, [failed[model.name][:300]]
            else:
                metadata = onnx_client.metadata(server.url, model.name)["parameters"]
                served = kind_of_service(place, metadata["backend"])
                largest, wrong = check(model, place, server.url)
            if served not in ("native", "network") and backend != "python":
                operators[operator(inspect(place)["not_native_because"] or "it is native")] += 1
            counts[model.library].update([served, *(["wrong"] if wrong and served != "not served" else [])])
            problems = f"  WRONG: {'; '.join(wrong)}" if wrong else ""
            print(f"{served:<12} {model.name}  {largest:.1e}{problems}", flush=True)
    finally:
        server.stop()
    total = sum(counts.values(), collections.Counter())
    print_table(counts, total)
    if operators:
        print("not native because of:")
        for name, count in operators.most_common():
            print(f"  {count:4} {name}")
    return total["wrong"] + total["not served"]


def print_table(counts: Dict[str, Counter[str]], total: Counter[str]) -> None:
    """Prints how many models each converter has made, and how they are served."""
    columns = ["asked", "made", *SERVED, "wrong"]
    print("\n" + "".join([f"{'converter':<24}", *(f"{column:>12}" for column in columns)]))
    rows = {**{CONVERTERS[library]: row for library, row in counts.items()}, "all": total}
    for name, row in rows.items():
        print("".join([f"{name:<24}", *(f"{row[column]:>12}" for column in columns)]))


def main() -> int:
    """Runs the part of the zoo that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name has this regular expression")
    parser.add_argument("--count", type=int, help="at most this many models, evenly spread")
    parser.add_argument("--backend", choices=["auto", "native", "python"], default="auto")
    parser.add_argument("--folder", type=Path, help="keeps models and answers there")
    parser.add_argument(
        "--hummingbird",
        type=Path,
        metavar="PYTHON",
        help="adds the models of hummingbird, which this interpreter has",
    )
    arguments = parser.parse_args()
    models = zoo(newest_opset("sklearn"))
    if arguments.hummingbird:
        models += [recipe.model for recipe in recipes()]
    chosen = [model for model in models if re.search(arguments.only, model.name)]
    if arguments.count and arguments.count < len(chosen):
        chosen = [chosen[place * len(chosen) // arguments.count] for place in range(arguments.count)]
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        exports = {}
        if arguments.hummingbird:
            exports["hummingbird"] = stack.enter_context(Converter(arguments.hummingbird)).export
        return 1 if run(chosen, folder.resolve(), arguments.backend, exports) else 0


if __name__ == "__main__":
    sys.exit(main())
