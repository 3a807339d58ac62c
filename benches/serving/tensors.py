"""Compares one large tensor, 1000x256 FP32 in and out, over REST and gRPC, with MLServer 1.7.1's JSON.

    cargo build --profile dist
    python3.11 benches/serving/tensors.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

Our server has the identity model. The original has a model that decodes the tensor into a NumPy array and encodes that
again, which is the least that a model of it does. What comes back is compared before anything is timed.
"""

from __future__ import annotations

import argparse
import array
import base64
import http.client
import json
import random
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from infer_grpc import ask as ask_grpc
from infer_grpc import framed, h2load, request
from run import Failed, Program, install_peer, machine, running, wrk

PATH = "/v2/models/echo/infer"
SHAPE = [1000, 256]
LENGTH = "inference-header-content-length"
MODEL = """from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    async def predict(self, payload):
        arrays = [(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        outputs = [NumpyCodec.encode_output(name, one) for name, one in arrays]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""


LABELS = {
    "grpc": "mlserver, gRPC raw",
    "binary": "mlserver, REST binary data",
    "json": "mlserver, JSON",
    "peer": "MLServer 1.7.1, JSON, one worker",
}


@dataclass
class Case:
    """What `wrk` does for one line of the table: which server gets which body."""

    server: str
    body: bytes
    headers: dict[str, str]


def bodies(numbers: list[float]) -> tuple[bytes, bytes, int]:
    """The request as JSON and as binary data, and the length of the latter's JSON."""
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32"}
    text = json.dumps({"inputs": [{**tensor, "data": numbers}]}).encode()
    data = array.array("f", numbers).tobytes()
    sized = {**tensor, "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [sized], "parameters": {"binary_data_output": True}}).encode()
    return text, head + data, len(head)


def ask(port: int, case: Case) -> bytes:
    """Sends one request and returns the elements that came back, as FP32."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", PATH, case.body, case.headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{case.server} was answered {response.status}: {body[:300]!r}")
    if length := response.headers.get(LENGTH):
        return body[int(length) :]
    return array.array("f", json.loads(body)["outputs"][0]["data"]).tobytes()


def script(folder: Path, name: str, case: Case) -> Path:
    """Writes what `wrk` sends."""
    body, lua = folder / f"{name}.body", folder / f"{name}.lua"
    body.write_bytes(case.body)
    headers = "".join(f"wrk.headers['{key}'] = '{value}'\n" for key, value in case.headers.items())
    lua.write_text(f"wrk.method = 'POST'\nwrk.body = io.open('{body}', 'rb'):read('*a')\n{headers}")
    return lua


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures one large tensor, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--env", type=Path, help="folder for the peer's virtual environment")
    parser.add_argument("--peer", type=Path, help="the peer's `mlserver`, instead of --env")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4)
    args = parser.parse_args()
    try:
        if not (args.peer or args.env):
            raise Failed("--env or --peer says where MLServer 1.7.1 is")
        peer = args.peer or install_peer(args.env.resolve())
        seed = random.Random(1)
        numbers = array.array("f", (seed.uniform(-1, 1) for _ in range(SHAPE[0] * SHAPE[1])))
        text, binary, length = bodies(list(numbers))
        as_json = {"content-type": "application/json"}
        cases = {
            "binary": Case("ours", binary, {LENGTH: str(length)}),
            "json": Case("ours", text, as_json),
            "peer": Case("peer", text, as_json),
        }
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            ours = folder / "ours"
            shutil.copy2(args.ours.resolve(), ours)
            programs = {}
            for server, command, implementation in [
                ("ours", ours, "mlserver_identity.IdentityModel"),
                ("peer", peer, "echo.Echo"),
            ]:
                model = folder / f"{server}.models" / "echo"
                model.mkdir(parents=True)
                (model / "echo.py").write_text(MODEL)
                (model / "model-settings.json").write_text(
                    json.dumps({"name": "echo", "implementation": implementation})
                )
                start = [str(command), "start", str(model)]
                programs[server] = Program(
                    server, lambda port, start=start: start, environment={"MLSERVER_DEBUG": "false"}
                )
            servers = {name: stack.enter_context(running(program, folder)) for name, program in programs.items()}
            message = request("echo", "x", SHAPE, numbers.tobytes(), raw=True)
            answer, read = ask_grpc(peer, servers["ours"].grpc_port, message)
            if base64.b64decode(read["raw_output_contents"][0]) != numbers.tobytes():
                raise Failed(f"{LABELS['grpc']} answered other numbers")
            body = folder / "grpc.body"
            body.write_bytes(framed(message))
            scripts = {}
            for key, case in cases.items():
                if ask(servers[case.server].port, case) != numbers.tobytes():
                    raise Failed(f"{LABELS[key]} answered other numbers")
                scripts[key] = script(folder, key, case)
            print(f"{machine()}; {args.connections} connections, {args.rounds} rounds of {args.seconds} s")
            names = list(LABELS)
            found: dict[str, list[dict[str, float]]] = {key: [] for key in names}
            for turn in range(args.rounds):
                for place in range(len(names)):
                    key = names[(turn + place) % len(names)]
                    if key == "grpc":
                        load = (args.connections, 1)
                        found[key].append(h2load(servers["ours"].grpc_port, body, len(answer), load, args.seconds))
                    else:
                        port = servers[cases[key].server].port
                        found[key].append(wrk(port, scripts[key], args.connections, 1, args.seconds, PATH))
                    print(f"round {turn + 1}: {key} {found[key][-1]['rate']:.1f}/s", file=sys.stderr, flush=True)
        rates = {key: statistics.median(one["rate"] for one in rounds) for key, rounds in found.items()}
        print("\n| server | requests/s | min | max | vs. MLServer | target |\n|---|---:|---:|---:|---:|---:|")
        targets = {"grpc": "40", "binary": "40", "json": "10", "peer": ""}
        for key, rounds in found.items():
            every = [one["rate"] for one in rounds]
            print(
                f"| {LABELS[key]} | {rates[key]:.1f} | {min(every):.1f} | {max(every):.1f} "
                f"| {rates[key] / rates['peer']:.1f} | {targets[key]} |"
            )
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
