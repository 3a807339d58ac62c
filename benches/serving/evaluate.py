"""Compares the native evaluators with the C++ libraries, one thread each, on models both read.

    python3.11 benches/serving/evaluate.py --env ~/.cache/mlserver-bench --out /tmp/evaluate
    python3.11 benches/serving/evaluate.py --env ~/.cache/mlserver-bench --out /tmp/evaluate --only onnx

Writes to `--out` what both sides work on: models, matrices and expected answers, listed in `manifest.json`. Then, in
alternating rounds, times XGBoost, LightGBM, CatBoost and onnxruntime through every Python path worth the name and our side by
`cargo run --profile dist --example evaluate -- FOLDER`, which also checks its answers against the expected ones. Prints
Markdown. The libraries are installed into `--env` the first time; the script itself needs Python alone.

A manifest is a list of cases: `case`, `library`, `model` (file), `input` (file: `rows` x `cols` numbers of `dtype`,
little endian, row by row), `expected` (file: one number for each row, float32 for XGBoost, float64 for the others; raw values for
CatBoost; the scores of classes in float32 for ONNX, whose `labels` are int64). A case with `contributions` has those of the features instead, `cols` + 1 numbers for each row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluate_onnx

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = ["xgboost==3.2.0", "lightgbm==4.7.0", "numpy==2.4.4", "scipy==1.17.1", "narwhals==2.28.0"]
# CatBoost imports pandas
PINS += ["catboost==1.2.10", "pandas==2.3.3", "python-dateutil==2.9.0.post0", "pytz==2024.1", "six==1.16.0"]
PINS += ["tzdata==2024.1", *evaluate_onnx.PINS]
ROWS, COLUMNS = 10_000, 25
# XGBoost takes seconds for the contributions of as many rows as predictions have
EXPLAINED = 1000
TREES = (100, 500)
# how long one measurement of one round takes
BUDGET_S = 1.0
# how long a group of short calls takes that is timed at once
GROUP_NS = 1_000_000


class Failed(Exception):
    """The run cannot continue, for the reason in the message."""


# --- inside the libraries' environment -------------------------------------------------------------------------------


def write_all(folder: Path, only: str | None) -> None:
    """Trains the models and writes everything that the manifest names."""
    import numpy as np

    rng = np.random.default_rng(11)

    def rows(count: int) -> Any:
        x = rng.normal(size=(count, COLUMNS)).astype(np.float32)
        x[rng.uniform(size=x.shape) < 0.02] = np.nan
        return x

    x = rows(20_000)
    filled = np.nan_to_num(x.astype(np.float64), nan=0.5)
    # effects of one and of two columns, so that trees stay full up to the last one
    score = np.sin(filled[:, :10] * 2).sum(axis=1) + (filled[:, 10:17] * filled[:, 17:24]).sum(axis=1)
    score += rng.normal(size=len(x))
    test = rows(ROWS)
    cases = []
    if only != "onnx":
        cases += write_trees(folder, x, (score > 0).astype(np.float32), test)
    if only != "trees":
        filled_test = np.nan_to_num(test, nan=0.5)
        cases += evaluate_onnx.write_cases(folder, filled.astype(np.float32), score, filled_test)
    (folder / "manifest.json").write_text(json.dumps(cases, indent=1) + "\n")
    (folder / "made-from.txt").write_text(made_from(only))


def write_trees(folder: Path, x: Any, y: Any, test: Any) -> list[dict[str, Any]]:
    """Writes the models of the tree libraries with their answers to the rows of `test`, and returns their cases."""
    import catboost
    import lightgbm as lgb
    import numpy as np
    import xgboost as xgb

    test.astype("<f4").tofile(folder / "rows.f32")
    test.astype("<f8").tofile(folder / "rows.f64")
    cases = []
    for trees in TREES:
        params = {"objective": "binary:logistic", "max_depth": 6, "eta": 0.1, "seed": 1, "nthread": 1}
        model = xgb.train(params, xgb.DMatrix(x, y), trees)
        name = f"xgboost-{trees}"
        model.save_model(folder / f"{name}.json")
        expected = xgb.Booster(model_file=folder / f"{name}.json").inplace_predict(test)
        expected.astype("<f4").tofile(folder / f"{name}.expected.f32")
        cases.append(
            {
                "case": name,
                "library": "xgboost",
                "model": f"{name}.json",
                "input": "rows.f32",
                "dtype": "float32",
                "rows": ROWS,
                "cols": COLUMNS,
                "expected": f"{name}.expected.f32",
                "trees": trees,
            }
        )
        params = {"objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "seed": 1, "num_threads": 1}
        booster = lgb.train({**params, "verbose": -1}, lgb.Dataset(x.astype(np.float64), y), trees)
        name = f"lightgbm-{trees}"
        booster.save_model(folder / f"{name}.txt")
        expected = np.asarray(lgb.Booster(model_file=folder / f"{name}.txt").predict(test.astype(np.float64)))
        expected.astype("<f8").tofile(folder / f"{name}.expected.f64")
        cases.append(
            {
                "case": name,
                "library": "lightgbm",
                "model": f"{name}.txt",
                "input": "rows.f64",
                "dtype": "float64",
                "rows": ROWS,
                "cols": COLUMNS,
                "expected": f"{name}.expected.f64",
                "trees": trees,
            }
        )
        name = f"catboost-{trees}"
        params = {"iterations": trees, "depth": 6, "learning_rate": 0.1, "random_seed": 1, "thread_count": 1}
        oblivious = catboost.CatBoostClassifier(**params, verbose=False, allow_writing_files=False).fit(x, y)
        oblivious.save_model(str(folder / f"{name}.cbm"))
        expected = catboost_model(str(folder / f"{name}.cbm")).predict(test, thread_count=1)
        expected.astype("<f8").tofile(folder / f"{name}.expected.f64")
        cases.append(
            {
                "case": name,
                "library": "catboost",
                "model": f"{name}.cbm",
                "input": "rows.f32",
                "dtype": "float32",
                "rows": ROWS,
                "cols": COLUMNS,
                "expected": f"{name}.expected.f64",
                "answers": "float64",
                "trees": trees,
            }
        )
    for case in [case for case in cases if case["trees"] == 100]:
        name, rows = f"{case['library']}-contributions", test[:EXPLAINED]
        path = str(folder / case["model"])
        if case["library"] == "xgboost":
            expected = xgb.Booster(model_file=path).predict(xgb.DMatrix(rows), pred_contribs=True)
        elif case["library"] == "catboost":
            [(_, call, _)] = catboost_contributions(path, rows)
            expected = call()
        else:
            expected = np.asarray(lgb.Booster(model_file=path).predict(rows.astype(np.float64), pred_contrib=True))
        file = f"{name}.expected"
        expected.astype(case.get("answers", case["dtype"])).tofile(folder / file)
        cases.append({**case, "case": name, "rows": EXPLAINED, "expected": file, "contributions": True})
    return cases


def made_from(only: str | None) -> str:
    """Identifies what the files depend on: if it changes, they are written again."""
    sources = [Path(__file__), Path(evaluate_onnx.__file__)]
    return "\n".join([*PINS, only or "all", *[hashlib.sha256(source.read_bytes()).hexdigest() for source in sources]])


def median_ns(call: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    """Median processor time of a call; calls that are too short for the clock are timed in groups."""

    def nanoseconds(calls: int) -> int:
        start = time.thread_time_ns()
        for _ in range(calls):
            call()
        return time.thread_time_ns() - start

    if isinstance(call, evaluate_onnx.NativeCalls):
        nanoseconds = call.nanoseconds
    for _ in range(3):
        if before:
            before()
        single = nanoseconds(1)
    group = 1 if before else max(1, min(10_000, GROUP_NS // max(single, 1)))
    times: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < BUDGET_S or len(times) < 5:
        if before:
            before()
        times.append(nanoseconds(group) / group)
    return statistics.median(times)


def measure_all(folder: Path) -> None:
    """Times each path of each case; a line of JSON for each."""
    import numpy as np

    for case in json.loads((folder / "manifest.json").read_text()):
        x = np.fromfile(folder / case["input"], dtype=case["dtype"]).reshape(-1, case["cols"])[: case["rows"]]
        expected = np.fromfile(folder / case["expected"], dtype=case.get("answers", case["dtype"]))
        predictions, contributions = PATHS[case["library"]]
        paths = contributions if case.get("contributions") else predictions
        width = case["cols"] + 1 if case.get("contributions") else case.get("answer_width", 1)
        for count in (1, case["rows"]):
            for path, call, before in paths(str(folder / case["model"]), np.ascontiguousarray(x[:count])):
                if before:
                    before()
                answer, wanted = np.asarray(call()).ravel(), expected[: count * width]
                # onnxruntime sums products in another order if it has fewer rows
                allowed = 1e-6 * np.abs(wanted).max() if case["library"] == "onnx" else 0
                if answer.shape != wanted.shape or not (np.abs(answer - wanted) <= allowed).all():
                    raise Failed(f"{case['case']}: {path} does not give the expected answers")
                found = median_ns(call, before)
                print(json.dumps({"case": case["case"], "rows": count, "path": path, "median_ns": found}), flush=True)


def xgboost_paths(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import ctypes

    import numpy as np
    import xgboost as xgb
    from xgboost import core

    booster = xgb.Booster({"nthread": 1}, model_file=model)
    booster.set_param({"nthread": 1})
    # the C function behind inplace_predict, with everything made beforehand
    interface = json.dumps(
        {"data": [x.ctypes.data, True], "shape": list(x.shape), "typestr": "<f4", "version": 3}
    ).encode()
    config = json.dumps(
        {
            "type": 0,
            "training": False,
            "iteration_begin": 0,
            "iteration_end": 0,
            "missing": float("nan"),
            "strict_shape": False,
            "cache_id": 0,
        }
    ).encode()
    shape = ctypes.POINTER(ctypes.c_uint64)()
    dim = ctypes.c_uint64()
    result = ctypes.POINTER(ctypes.c_float)()
    references = (ctypes.byref(shape), ctypes.byref(dim), ctypes.byref(result))
    function, handle = core._LIB.XGBoosterPredictFromDense, booster.handle

    def c_function() -> Any:
        if function(handle, interface, config, None, *references) != 0:
            raise Failed("XGBoosterPredictFromDense failed")
        # nothing is copied while this is timed: the answer stays where the library put it
        return answer

    if function(handle, interface, config, None, *references) != 0:
        raise Failed("XGBoosterPredictFromDense failed")
    answer = np.ctypeslib.as_array(result, (len(x),))
    matrix: list[Any] = []

    def fresh() -> None:
        # a matrix that was predicted before is answered from a cache
        matrix[:] = [xgb.DMatrix(x, nthread=1)]

    return [
        ("Booster.inplace_predict", lambda: booster.inplace_predict(x), None),
        ("inplace_predict, validate_features=False", lambda: booster.inplace_predict(x, validate_features=False), None),
        ("XGBoosterPredictFromDense by ctypes", c_function, None),
        ("Booster.predict of a ready DMatrix", lambda: booster.predict(matrix[0]), fresh),
    ]


def xgboost_contributions(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import xgboost as xgb

    booster = xgb.Booster({"nthread": 1}, model_file=model)
    booster.set_param({"nthread": 1})
    matrix: list[Any] = []

    def fresh() -> None:
        matrix[:] = [xgb.DMatrix(x, nthread=1)]

    return [("Booster.predict(pred_contribs=True)", lambda: booster.predict(matrix[0], pred_contribs=True), fresh)]


def lightgbm_contributions(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import lightgbm as lgb

    booster = lgb.Booster(model_file=model)
    return [
        ("Booster.predict(pred_contrib=True)", lambda: booster.predict(x, pred_contrib=True, num_threads=1), None),
    ]


def lightgbm_paths(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import ctypes

    import lightgbm as lgb
    import numpy as np

    booster = lgb.Booster(model_file=model)
    library, handle = lgb.basic._LIB, booster._handle  # type: ignore[attr-defined]
    rows, columns = x.shape
    answer = np.zeros(rows)
    length = ctypes.c_int64()
    data = ctypes.c_void_p(x.ctypes.data)
    out = answer.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    double, normal, row_major = ctypes.c_int(1), ctypes.c_int(0), ctypes.c_int(1)
    first, every, wide, parameters = ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int32(columns), b"num_threads=1"
    size = ctypes.byref(length)

    def checked(status: int) -> Any:
        if status != 0:
            raise Failed("LightGBM: " + library.LGBM_GetLastError().decode())
        return answer

    paths: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
        ("Booster.predict, num_threads=1", lambda: booster.predict(x, num_threads=1), None),
    ]
    if rows == 1:
        fast = ctypes.c_void_p()
        checked(
            library.LGBM_BoosterPredictForMatSingleRowFastInit(
                handle, normal, first, every, double, wide, parameters, ctypes.byref(fast)
            )
        )
        function = library.LGBM_BoosterPredictForMatSingleRowFast

        def one_row() -> Any:
            return checked(function(fast, data, size, out))

        paths.append(("LGBM_BoosterPredictForMatSingleRowFast by ctypes", one_row, None))
    else:
        whole, tall = library.LGBM_BoosterPredictForMat, ctypes.c_int32(rows)

        def all_rows() -> Any:
            return checked(
                whole(handle, data, double, tall, wide, row_major, normal, first, every, parameters, size, out)
            )

        paths.append(("LGBM_BoosterPredictForMat by ctypes", all_rows, None))
    return paths


def catboost_model(model: str) -> Any:
    import catboost

    found = catboost.CatBoost()
    found.load_model(model)
    return found


def catboost_paths(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import catboost

    found, pool = catboost_model(model), catboost.Pool(x)
    return [
        ("CatBoost.predict, thread_count=1", lambda: found.predict(x, thread_count=1), None),
        ("CatBoost.predict of a ready Pool", lambda: found.predict(pool, thread_count=1), None),
    ]


def catboost_contributions(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    import catboost

    found, pool = catboost_model(model), catboost.Pool(x)

    def explain() -> Any:
        return found.get_feature_importance(data=pool, type="ShapValues", thread_count=1)

    return [('get_feature_importance(type="ShapValues") of a ready Pool', explain, None)]


# the paths of predictions and of contributions
PATHS = {
    "xgboost": (xgboost_paths, xgboost_contributions),
    "lightgbm": (lightgbm_paths, lightgbm_contributions),
    "catboost": (catboost_paths, catboost_contributions),
    "onnx": (evaluate_onnx.paths, None),
}


# --- outside ---------------------------------------------------------------------------------------------------------


def install(folder: Path) -> Path:
    """The Python of the libraries' environment; made if it is not there or was made from other pins."""
    python = folder / "libraries" / "bin" / "python"
    made = folder / "libraries" / "made-from.txt"
    if not (python.exists() and made.exists() and made.read_text() == "\n".join(PINS)):
        print(f"installing XGBoost, LightGBM, CatBoost and onnxruntime into {folder / 'libraries'}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "libraries")], check=True)
        # without dependencies: XGBoost would bring in GPU libraries
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, *PINS], check=True)
        made.write_text("\n".join(PINS))
    return python


def lines_of(command: list[str], environment: dict[str, str] | None = None) -> list[dict[str, Any]]:
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command[:6])} …` ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(cases: list[dict[str, Any]], theirs: dict[Any, list[float]], ours: dict[Any, list[float]]) -> None:
    def shown(nanoseconds: float) -> str:
        return f"{nanoseconds / 1e6:.2f} ms" if nanoseconds >= 1e6 else f"{nanoseconds / 1e3:.2f} µs"

    fastest = {}
    print("\n| case | rows | C++ library, path | median | |\n|---|---:|---|---:|---|")
    for case in cases:
        for rows in (1, case["rows"]):
            paths = {
                key[2]: statistics.median(found) for key, found in theirs.items() if key[:2] == (case["case"], rows)
            }
            best = min(paths, key=lambda path: paths[path])
            fastest[case["case"], rows] = paths[best]
            for path, found in paths.items():
                print(f"| {case['case']} | {rows} | {path} | {shown(found)} | {'fastest' if path == best else ''} |")
    print("\n| case | rows | C++, fastest path | ours | ratio | target |\n|---|---:|---:|---:|---:|---|")
    for rows in sorted({row for _, row in fastest}):
        for case in cases:
            key = (case["case"], rows)
            if key not in fastest:
                continue
            if key not in ours:
                raise Failed(f"our side gave no figure for {key}")
            mine = statistics.median(ours[key])
            target = ""
            if case.get("contributions"):
                target = "at least 5" if case["library"] == "xgboost" else ""
            elif case["library"] == "onnx":
                target = "at least 2" if case["is_fast"][rows != 1] else "at least 1"
            elif case["library"] == "catboost":
                target = "at least 1.5" if rows != 1 else "at least 100, under 3 µs" if case["trees"] == 100 else ""
            elif rows == 1 and case["trees"] == 100:
                target = "over 1, at most 3 µs"
            elif rows != 1 and case["trees"] == 500:
                target = "at least 1"
            ratio = fastest[key] / mine
            print(f"| {case['case']} | {rows} | {shown(fastest[key])} | {shown(mine)} | {ratio:.2f} | {target} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the native evaluators with the C++ libraries.")
    parser.add_argument("--env", type=Path, help="folder for the libraries' virtual environment")
    parser.add_argument("--out", type=Path, required=True, help="folder for models, matrices and the manifest")
    parser.add_argument("--only", choices=["trees", "onnx"], help="models of the tree libraries, or models of ONNX")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each of both sides")
    parser.add_argument("--evaluate", type=Path, help="our side's program (default: cargo run --example evaluate)")
    parser.add_argument("--write-only", action="store_true", help="write the files and measure nothing")
    parser.add_argument("--inside", choices=["write", "measure"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = args.out.resolve()
    try:
        if args.inside:
            if args.inside == "write":
                write_all(out, args.only)
            else:
                measure_all(out)
            return
        if args.env is None:
            raise Failed("--env is needed: the folder for the libraries' environment")
        python = install(args.env.resolve())
        out.mkdir(parents=True, exist_ok=True)
        inside = [str(python), str(Path(__file__).resolve()), "--out", str(out)]
        inside += ["--only", args.only] if args.only else []
        inside.append("--inside")
        made = out / "made-from.txt"
        if not (made.exists() and made.read_text() == made_from(args.only)):
            print("training the models", file=sys.stderr, flush=True)
            subprocess.run([*inside, "write"], check=True)
        if args.write_only:
            print(f"wrote {out / 'manifest.json'}; nothing was measured, by --write-only")
            return
        cases = json.loads((out / "manifest.json").read_text())
        rust = [str(args.evaluate.resolve())] if args.evaluate else []
        rust = rust or ["cargo", "run", "--quiet", "--profile", "dist", "--example", "evaluate", "--"]
        single = dict(os.environ, OMP_NUM_THREADS="1")
        theirs: dict[Any, list[float]] = {}
        ours: dict[Any, list[float]] = {}
        load = os.getloadavg()[0]
        for turn in range(args.rounds):
            print(f"round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
            for line in lines_of([*rust, str(out)]):
                ours.setdefault((line["case"], line["rows"]), []).append(line["median_ns"])
            for line in lines_of([*inside, "measure"], single):
                theirs.setdefault((line["case"], line["rows"], line["path"]), []).append(line["median_ns"])
        cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        print(f"{cpu.group(1) if cpu else 'unknown processor'}, one thread, load {load:.1f} at the start")
        table(cases, theirs, ours)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
