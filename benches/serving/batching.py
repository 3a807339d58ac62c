"""Compares adaptive batching of a scikit-learn forest in Python with the same forest unbatched and MLServer 1.7.1.

    cargo build --profile dist
    python3.11 benches/serving/batching.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

Both servers run the same class on the same interpreter, with one worker. What comes back is compared before anything is
timed. `floor` is what the forest alone needs for a full batch: no server can be faster with it. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from run import Failed, Program, install_peer, machine, running, wrk

INFER = "/v2/models/forest/infer"
CONNECTIONS = 64
COLUMNS = 20
BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, COLUMNS], "datatype": "FP32", "data": [0.1 * i for i in range(COLUMNS)]}]}
).encode()

MODEL = '''import pathlib
import pickle

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, NumpyRequestCodec
from mlserver.types import InferenceResponse


class Forest(MLModel):
    async def load(self):
        self._model = pickle.loads((pathlib.Path(__file__).parent / "forest.pickle").read_bytes())
        return True

    async def predict(self, payload):
        rows = self.decode_request(payload, default_codec=NumpyRequestCodec)
        outputs = [NumpyCodec.encode_output("predict", self._model.predict(rows))]
        return InferenceResponse(model_name=self.name, outputs=outputs)
'''

# Trains, keeps, and says how many milliseconds a full batch takes.
TRAIN = '''import pickle, sys, time
import numpy
from sklearn.ensemble import RandomForestClassifier

target, trees, columns, rows = sys.argv[1], *map(int, sys.argv[2:])
random = numpy.random.default_rng(0)
x = random.normal(size=(2000, columns))
model = RandomForestClassifier(n_estimators=trees, random_state=0).fit(x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int))
pickle.dump(model, open(target, "wb"))
times = []
for _ in range(50):
    start = time.perf_counter()
    model.predict(x[:rows])
    times.append(time.perf_counter() - start)
print(sorted(times)[25] * 1000)
'''


def answer(port: int) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", INFER, BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"infer was answered {response.status}: {body[:300]!r}")
    output = json.loads(body)["outputs"][0]
    return output["shape"], output["data"]


def measure(trees: int, ours: Path, peer: Path, folder: Path, args: argparse.Namespace) -> None:
    python = peer.parent / "python"
    home = folder / f"forest-{trees}"
    programs = {}
    for name, batched in (("off", False), ("on", True)):
        model = home / name / "forest"
        model.mkdir(parents=True)
        (model / "bench_forest.py").write_text(MODEL)
        settings: dict[str, object] = {"name": "forest", "implementation": "bench_forest.Forest"}
        if batched:
            settings |= {"max_batch_size": args.size, "max_batch_time": args.time}
        (model / "model-settings.json").write_text(json.dumps(settings))
    train = [str(python), "-c", TRAIN, str(home / "forest.pickle"), str(trees), str(COLUMNS), str(CONNECTIONS)]
    took = float(subprocess.run(train, capture_output=True, text=True, check=True).stdout)
    for name in ("off", "on"):
        shutil.copy2(home / "forest.pickle", home / name / "forest" / "forest.pickle")
        variables = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_DEBUG": "false", "OMP_NUM_THREADS": "1"}
        start = ["start", str(home / name)]
        own = {**variables, "MLSERVER_PYTHON_EXECUTABLE": str(python)}
        programs[f"ours {name}"] = Program(f"ours-{name}", lambda _, s=start: [str(ours), *s], environment=own)
        programs[f"peer {name}"] = Program(f"peer-{name}", lambda _, s=start: [str(peer), *s], environment=variables)
    script = folder / "batching.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.headers['content-type'] = 'application/json'\nwrk.body = [==[{BODY.decode()}]==]\n")
    found: dict[str, dict[int, list[dict[str, float]]]] = {name: {CONNECTIONS: [], 1: []} for name in programs}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(program, folder)) for name, program in programs.items()}
        answers = {name: answer(server.port) for name, server in servers.items()}
        if any(one != answers["peer off"] for one in answers.values()):
            raise Failed(f"the answers differ: {answers}")
        for server in servers.values():
            wrk(server.port, script, CONNECTIONS, 1, 1, INFER)
        names = list(programs)
        for turn in range(args.rounds):
            for place in range(len(names)):
                name = names[(turn + place) % len(names)]
                for connections, rounds in found[name].items():
                    rounds.append(wrk(servers[name].port, script, connections, 1, args.seconds, INFER))
                print(f"round {turn + 1}: {name} {found[name][CONNECTIONS][-1]['rate']:.1f}/s", file=sys.stderr, flush=True)

    def middle(name: str, connections: int, key: str) -> float:
        return statistics.median(one[key] for one in found[name][connections])

    print(f"\n### {trees} trees; `max_batch_size` {args.size}, `max_batch_time` {args.time:g}\n")
    print(f"| server | requests/s at {CONNECTIONS} | p50 ms | p99 ms | p50 ms at 1 connection |\n|---|---:|---:|---:|---:|")
    labels = {"ours on": "mlserver, batching", "ours off": "mlserver", "peer on": "MLServer 1.7.1, batching", "peer off": "MLServer 1.7.1"}
    for name, label in labels.items():
        values = (middle(name, CONNECTIONS, "rate"), middle(name, CONNECTIONS, "50"), middle(name, CONNECTIONS, "99"))
        print(f"| {label} | {values[0]:.1f} | {values[1]:.2f} | {values[2]:.2f} | {middle(name, 1, '50'):.2f} |")
    print(f"| floor: the forest's {took:.2f} ms for {CONNECTIONS} rows | {CONNECTIONS / took * 1000:.1f} | | | |\n")
    rates = {name: middle(name, CONNECTIONS, "rate") for name in programs}
    added = middle("ours on", 1, "50") - middle("ours off", 1, "50")
    print(f"- on against off: {rates['ours on'] / rates['ours off']:.1f} times (8)")
    print(f"- against MLServer 1.7.1 with the same settings: {rates['ours on'] / rates['peer on']:.1f} times (10)")
    print(f"- added p50 at 1 connection: {added:.3f} ms (0.2)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares adaptive batching with others, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, help="folder for the peer's virtual environment")
    parser.add_argument("--peer", type=Path, help="MLServer's `mlserver`, installed next to scikit-learn, instead of the one in --env")
    parser.add_argument("--trees", type=int, nargs="+", default=[100, 10])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--time", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    try:
        if shutil.which("wrk") is None:
            raise Failed("`wrk` is not installed (apt-get install wrk)")
        if args.peer is None and args.env is None:
            raise Failed("give --env or --peer")
        peer = args.peer or install_peer(args.env.resolve())
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name:
            folder = Path(name)
            ours = folder / "ours-binary"
            # copied, because the build folder may change during the run
            shutil.copy2(args.ours.resolve(), ours)
            print(f"{machine()}; {args.rounds} rounds of {args.seconds:g} s, medians; one worker each")
            for trees in args.trees:
                measure(trees, ours, peer, folder, args)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
