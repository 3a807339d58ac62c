"""Measures what metrics and the response cache cost, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/options.py --ours target/dist/mlserver

`POST infer` of one row to the quickstart's XGBoost model with `wrk`, one server with each setting, rounds in turning
order. Metrics: the endpoint on, as by default, and off. Cache: off, as by default; on with the same request always; on
with a request that was never sent before each time, which has to be built each time and so makes `wrk` slower too, as the
line with the cache off and such requests shows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from run import BODY, MODELS, Failed, Program, check_answer, infer, machine, running, wrk

MODEL = "iris-xgboost"
# the number in the body makes a request that was not sent before; `wrk` starts each round with another seed
NEW_BODIES = """
math.randomseed(os.time() * 1000 + tonumber(tostring({}):sub(-4), 16) % 1000)
local start, count = math.random(1, 2000000), 0
request = function()
  count = count + 1
  local body = string.format('{"inputs":[{"name":"input-0","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,%d.%d]}]}', start, count)
  return wrk.format('POST', nil, {['content-type'] = 'application/json'}, body)
end
"""
SAME_BODY = """
wrk.method = 'POST'
wrk.body = '%s'
wrk.headers['content-type'] = 'application/json'
"""
# label -> the server's settings, whether the model is cached, the requests
CASES = {
    "as by default": ({}, False, "same"),
    "metrics off": ({"metrics_endpoint": None}, False, "same"),
    "cache on, hits": ({"cache_enabled": True}, True, "same"),
    "as by default, new requests": ({}, False, "new"),
    "cache on, misses": ({"cache_enabled": True}, True, "new"),
}
RATIOS = [
    ("metrics on / metrics off", "as by default", "metrics off"),
    ("cache hits / no cache", "cache on, hits", "as by default"),
    ("cache misses / no cache, new requests", "cache on, misses", "as by default, new requests"),
]


def models(folder: Path, settings: dict[str, object], *, cached: bool) -> Path:
    """A folder with the quickstart's XGBoost model and these settings."""
    shutil.copytree(MODELS / MODEL, folder / MODEL)
    (folder / "settings.json").write_text(json.dumps(settings))
    path = folder / MODEL / "model-settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cache_enabled": cached}))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what options cost, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            ours = folder / "ours"
            shutil.copy2(args.ours.resolve(), ours)
            scripts = {"same": folder / "same.lua", "new": folder / "new.lua"}
            scripts["same"].write_text(SAME_BODY % BODY.decode())
            scripts["new"].write_text(NEW_BODIES)
            ports = {}
            for place, (label, (settings, cached, _)) in enumerate(CASES.items()):
                served = models(folder / str(place), settings, cached=cached)
                program = Program(f"server-{place}", lambda port, served=served: [str(ours), "start", str(served)])
                ports[label] = stack.enter_context(running(program, folder)).port
                check_answer(label, infer(ports[label]))
            print(f"{machine()}; {args.connections} connections, {args.rounds} rounds of {args.seconds} s")
            labels = list(CASES)
            rates: dict[str, list[float]] = {label: [] for label in labels}
            for turn in range(args.rounds):
                for place in range(len(labels)):
                    label = labels[(turn + place) % len(labels)]
                    script = scripts[CASES[label][2]]
                    rates[label].append(wrk(ports[label], script, args.connections, 1, args.seconds)["rate"])
                    print(f"round {turn + 1}: {label} {rates[label][-1]:.0f}/s", file=sys.stderr, flush=True)
        print("\n| server | requests/s | min | max |\n|---|---:|---:|---:|")
        for label, every in rates.items():
            print(f"| {label} | {statistics.median(every):.0f} | {min(every):.0f} | {max(every):.0f} |")
        print("\n| ratio | of medians | median of the rounds' |\n|---|---:|---:|")
        for label, above, below in RATIOS:
            of_medians = statistics.median(rates[above]) / statistics.median(rates[below])
            each = [one / other for one, other in zip(rates[above], rates[below], strict=True)]
            print(f"| {label} | {of_medians:.3f} | {statistics.median(each):.3f} |")
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
