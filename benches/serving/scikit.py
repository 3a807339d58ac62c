"""Compares scikit-learn's models with scikit-learn itself and MLServer 1.7.1, on digits, in one run.

    cargo build --profile dist
    python3.11 benches/serving/scikit.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench --out /tmp/scikit

Trains the models with the scikit-learn of the peer's environment and writes them to `--out`, with rows and what
`estimator.predict` says of them, listed in `manifest.json`. Both sides then work on the same files: ours in process by
`cargo run --profile dist --example sklearn -- FOLDER`, which checks its answers first, Python by `estimator.predict`, one thread
each, in alternating rounds of processor time, which what else the machine does hardly changes; and through the server, one row in a request, with `wrk`. Prints Markdown.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from run import Failed, Program, machine, running, wrk

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = [
    "mlserver==1.7.1",
    "mlserver-sklearn==1.7.1",
    # the newest uvloop no longer has what 1.7.1 starts with
    "uvloop<0.22",
    "scikit-learn==1.9.1",
    "numpy==2.4.6",
    "scipy==1.17.1",
    "joblib==1.6.0",
]
ROWS = 10_000
# how long one measurement of one round takes
BUDGET_S = 2.0
SERVED = ("logistic", "forest", "svc")
# what is asked of one row, and of many, in times of scikit-learn
ONE = {"logistic": 100, "ridge": 100, "tree": 100}
MANY = {name: 1 for name in ("logistic", "ridge", "forest", "boosting", "histogram", "svc", "neighbors")}


# --- inside scikit-learn's environment -------------------------------------------------------------------------------


def write_all(folder: Path) -> None:
    """Trains the models and writes everything that the manifest names."""
    import joblib
    import numpy as np
    import sklearn
    from sklearn import datasets, ensemble, linear_model, neighbors, pipeline, preprocessing, svm, tree

    x, y = datasets.load_digits(return_X_y=True)
    rng = np.random.default_rng(7)
    rows = np.clip(x[rng.integers(len(x), size=ROWS)] + rng.integers(-1, 2, size=(ROWS, x.shape[1])), 0, 16)
    rows.astype("<f8").tofile(folder / "rows.f64")
    models = {
        "logistic": linear_model.LogisticRegression(max_iter=300),
        "ridge": linear_model.Ridge(),
        "scaled": pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=300)),
        "tree": tree.DecisionTreeClassifier(random_state=0),
        "forest": ensemble.RandomForestClassifier(100, random_state=0),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=100, random_state=0),
        "histogram": ensemble.HistGradientBoostingClassifier(max_iter=100, random_state=0),
        "svc": svm.SVC(),
        "neighbors": neighbors.KNeighborsClassifier(),
    }
    cases = []
    for name, model in models.items():
        model.fit(x, y)
        joblib.dump(model, folder / f"{name}.joblib")
        expected = model.predict(rows)
        kind = "f64" if name == "ridge" else "i64"
        expected.astype("<f8" if kind == "f64" else "<i8").tofile(folder / f"{name}.expected.{kind}")
        files = {"model": f"{name}.joblib", "input": "rows.f64", "expected": f"{name}.expected.{kind}"}
        cases.append({"case": name, "rows": ROWS, "cols": x.shape[1], **files})
    (folder / "manifest.json").write_text(json.dumps(cases, indent=1) + "\n")
    print(json.dumps({"scikit-learn": sklearn.__version__, "numpy": np.__version__}))


def cpu_ns(call: Any) -> float:
    """The processor time of a call, as the mean over the budget."""
    call()
    calls, began, before = 0, time.perf_counter(), time.thread_time_ns()
    while time.perf_counter() - began < BUDGET_S or calls < 3:
        call()
        calls += 1
    return (time.thread_time_ns() - before) / calls


def measure_all(folder: Path) -> None:
    """Times `predict` of each case, for one row and for all; a line of JSON for each."""
    import joblib
    import numpy as np
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1):
        for case in json.loads((folder / "manifest.json").read_text()):
            model = joblib.load(folder / case["model"])
            x = np.fromfile(folder / case["input"]).reshape(case["rows"], case["cols"])
            for rows in (1, case["rows"]):
                some = x[:rows]
                took = cpu_ns(lambda model=model, some=some: model.predict(some))
                print(json.dumps({"case": case["case"], "rows": rows, "cpu_ns": took}), flush=True)


# --- outside ---------------------------------------------------------------------------------------------------------


def install(folder: Path) -> Path:
    """The peer's program; makes its environment if it is not there or was made from other pins."""
    made = folder / "made-from.txt"
    if not (made.exists() and made.read_text() == "\n".join(PINS)):
        print(f"installing MLServer 1.7.1 and scikit-learn into {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PINS], check=True)
        made.write_text("\n".join(PINS))
    return folder / "bin" / "mlserver"


def lines_of(command: list[str], environment: dict[str, str] | None = None) -> list[dict[str, Any]]:
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command[:6])} …` ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def in_process(inside: list[str], out: Path, args: argparse.Namespace) -> None:
    rust = [str(args.evaluate.resolve())] if args.evaluate else []
    rust = rust or ["cargo", "run", "--quiet", "--locked", "--profile", "dist", "--example", "sklearn", "--"]
    single = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    theirs: dict[Any, list[float]] = {}
    ours: dict[Any, list[float]] = {}
    for turn in range(args.rounds):
        print(f"in process, round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
        for found, command, environment in ((ours, [*rust, str(out)], None), (theirs, [*inside, "measure"], single)):
            for line in lines_of(command, environment):
                found.setdefault((line["case"], line["rows"]), []).append(line["cpu_ns"])

    def shown(nanoseconds: float) -> str:
        return f"{nanoseconds / 1e6:.2f} ms" if nanoseconds >= 1e6 else f"{nanoseconds / 1e3:.2f} µs"

    for rows, targets in ((1, ONE), (ROWS, MANY)):
        print(f"\n### In process, {rows} row{'s' if rows > 1 else ''}, one thread\n")
        print("| model | `estimator.predict` | ours | times faster | target |\n|---|---:|---:|---:|---|")
        for name, count in theirs:
            if count == rows:
                python, own = statistics.median(theirs[name, rows]), statistics.median(ours[name, rows])
                target = targets.get(name)
                verdict = "" if target is None else f"{target}" + ("" if python / own >= target else ", **missed**")
                print(f"| {name} | {shown(python)} | {shown(own)} | {python / own:.2f} | {verdict} |")


def answer(port: int, path: str, body: bytes) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{path} was answered {response.status}: {text[:300]!r}")
    output = json.loads(text)["outputs"][0]
    return output["name"], output["shape"], output["datatype"], output["data"]


def served(ours: Path, peer: Path, out: Path, folder: Path, args: argparse.Namespace) -> None:
    import array

    row = array.array("d", (out / "rows.f64").read_bytes()[: 64 * 8]).tolist()
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP64", "data": row}]})
    for name in SERVED:
        model = folder / "models" / name
        model.mkdir(parents=True)
        shutil.copy2(out / f"{name}.joblib", model / "model.joblib")
        settings: dict[str, Any] = {"name": name, "implementation": "mlserver_sklearn.SKLearnModel"}
        settings["parameters"] = {"uri": "./model.joblib"}
        (model / "model-settings.json").write_text(json.dumps(settings))
    start = ["start", str(folder / "models")]
    one = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_DEBUG": "false", "OMP_NUM_THREADS": "1"}
    programs = {
        "ours": Program("ours", lambda _: [str(ours), *start]),
        "peer": Program("peer", lambda _: [str(peer), *start], environment=one),
    }
    script = folder / "scikit.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.headers['content-type'] = 'application/json'\nwrk.body = [==[{body}]==]\n")
    rates: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(program, folder)) for name, program in programs.items()}
        for model in SERVED:
            path = f"/v2/models/{model}/infer"
            found = {name: answer(server.port, path, body.encode()) for name, server in servers.items()}
            if found["ours"] != found["peer"]:
                raise Failed(f"{model}: the answers differ: {found}")
            for turn in range(args.rounds):
                for name in ("ours", "peer") if turn % 2 else ("peer", "ours"):
                    round_ = wrk(servers[name].port, script, args.connections, 1, args.seconds, path)
                    rates.setdefault((model, name), []).append(round_)
                    print(f"{model}, round {turn + 1}: {name} {round_['rate']:.0f}/s", file=sys.stderr, flush=True)
    print(f"\n### Through the server, one row of 64 FP64 in a request, {args.connections} connections\n")
    print("| model | server | requests/s | min | max | p50 ms | p99 ms | vs. MLServer | target |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for model in SERVED:
        middle = {name: statistics.median(one["rate"] for one in rates[model, name]) for name in programs}
        for name, label in (("ours", "mlserver"), ("peer", "MLServer 1.7.1, one worker")):
            rounds = rates[model, name]
            every = [one["rate"] for one in rounds]
            p50, p99 = (statistics.median(one[key] for one in rounds) for key in ("50", "99"))
            ratio = middle[name] / middle["peer"]
            target = "" if name == "peer" else "50" if ratio >= 50 else "50, **missed**"
            times = f"{middle[name]:.0f} | {min(every):.0f} | {max(every):.0f} | {p50:.3f} | {p99:.3f}"
            print(f"| {model} | {label} | {times} | {ratio:.1f} | {target} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares scikit-learn's models with scikit-learn and MLServer 1.7.1.")
    parser.add_argument("--ours", type=Path, help="our binary, built with `--profile dist`; without it the server is not measured")
    parser.add_argument("--env", type=Path, help="folder for the peer's virtual environment")
    parser.add_argument("--peer", type=Path, help="MLServer's `mlserver`, installed next to scikit-learn, instead of the one in --env")
    parser.add_argument("--out", type=Path, required=True, help="folder for models, rows and the manifest")
    parser.add_argument("--evaluate", type=Path, help="our side's program (default: cargo run --example sklearn)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--inside", choices=["write", "measure"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = args.out.resolve()
    try:
        if args.inside:
            (write_all if args.inside == "write" else measure_all)(out)
            return
        if args.peer is None and args.env is None:
            raise Failed("give --env or --peer")
        peer = args.peer or install(args.env.resolve() / "scikit")
        out.mkdir(parents=True, exist_ok=True)
        inside = [str(peer.parent / "python"), str(Path(__file__).resolve()), "--out", str(out), "--inside"]
        versions = lines_of([*inside, "write"])[0]
        print(f"{machine()}; {args.rounds} rounds, medians; {versions}; {time.strftime('%Y-%m-%d')}", flush=True)
        in_process(inside, out, args)
        if args.ours is None:
            print("\nNot measured, without --ours: the server.")
            return
        if shutil.which("wrk") is None:
            raise Failed("`wrk` is not installed (apt-get install wrk)")
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            # copied, because the build folder may change during the run
            ours = Path(shutil.copy2(args.ours.resolve(), folder / "ours-binary"))
            served(ours, peer, out, folder, args)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
