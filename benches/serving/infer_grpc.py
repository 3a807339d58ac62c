"""Compares `ModelInfer` with a bare tonic service and MLServer 1.7.1, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/infer_grpc.py --ours target/dist/mlserver --env ~/.cache/mlserver-bench

One row of four FP32 for the quickstart's XGBoost model, 16 calls in flight: as streams of one connection, as clients that
share a channel do, and on 16 connections. What the servers answer is compared first. Needs `h2load` (Debian's package
nghttp2-client), which takes less of the two cores than any client in the servers' own languages would.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from run import CONTENT_TYPE, HEADERS, MODELS, Failed, Program, build_example, install_peer, machine, running

PATH = "/inference.GRPCInferenceService/ModelInfer"
ROW = (6.2, 2.8, 4.8, 1.8)
# sends the message on standard input and prints the answer, as it came and as JSON; runs in the peer's environment
CLIENT = f"""
import base64, json, sys, grpc
from google.protobuf.json_format import MessageToDict
from mlserver.grpc.dataplane_pb2 import ModelInferResponse
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
with grpc.insecure_channel(sys.argv[1], options=options) as channel:
    answer = channel.unary_unary("{PATH}")(sys.stdin.buffer.read(), timeout=60)
message = base64.b64encode(answer).decode()
print(json.dumps([message, MessageToDict(ModelInferResponse.FromString(answer), preserving_proto_field_name=True)]))
"""
# how 16 calls are in flight: connections and streams of each
SHAPES = {"16 streams of one connection": (1, 16), "16 connections": (16, 1)}


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message whose value has a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def request(model: str, name: str, shape: list[int], numbers: bytes, *, raw: bool) -> bytes:
    """A `ModelInferRequest` with one input of FP32."""
    tensor = field(1, name.encode()) + field(2, b"FP32") + field(3, b"".join(map(varint, shape)))
    if not raw:
        tensor += field(5, field(6, numbers))
    return field(1, model.encode()) + field(5, tensor) + (field(7, numbers) if raw else b"")


def ask(peer: Path, port: int, message: bytes) -> tuple[bytes, dict[str, object]]:
    """Makes one call with the peer's grpcio; returns the answer's message, as it came and as JSON."""
    python = peer.resolve().parent / "python"
    done = subprocess.run(
        [str(python), "-c", CLIENT, f"127.0.0.1:{port}"], input=message, capture_output=True, timeout=90
    )
    if done.returncode != 0:
        raise Failed(f"the call failed: {done.stderr.decode(errors='replace')[-500:]}")
    answer, read = json.loads(done.stdout)
    return base64.b64decode(answer), read


def h2load(port: int, body: Path, answer: int, load: tuple[int, int], seconds: int) -> dict[str, float]:
    """One round of load; calls per second and the mean time of one in milliseconds.

    A call that fails has no message, so all is well when as much data came back as the messages of `answer` bytes take.
    """
    connections, streams = load
    command = ["h2load", f"-c{connections}", f"-m{streams}", "-t1", f"-D{seconds}", "-w30", "-W30", "-d", str(body)]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers", f"http://127.0.0.1:{port}{PATH}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    text = done.stdout
    rate = re.search(r"^finished in .*?, ([\d.]+) req/s", text, re.MULTILINE)
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    data = re.search(r"\((\d+)\) data$", text, re.MULTILINE)
    mean = re.search(r"^time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", text, re.MULTILINE)
    if done.returncode != 0 or not (rate and counts and data and mean):
        raise Failed(f"h2load: {text}{done.stderr}")
    made, succeeded, *wrong = map(int, counts.groups())
    missing = made * (answer + 5) - int(data.group(1))
    # calls that were in flight at the end count with neither or with data only
    if any(wrong) or succeeded != made or missing > 0 or -missing > 2 * connections * streams * (answer + 5):
        raise Failed(f"h2load: not all calls were answered alike: {text}")
    return {
        "rate": float(rate.group(1)),
        "mean": float(mean.group(1)) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[mean.group(2)],
    }


def framed(message: bytes) -> bytes:
    """A message with what gRPC puts before it."""
    return struct.pack(">BI", 0, len(message)) + message


LABELS = {
    "ours": "mlserver",
    "echo": "bare tonic service, the same bytes with our metadata",
    "bare": "bare tonic service, the same message without metadata",
    "peer": "MLServer 1.7.1, one worker",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares ModelInfer with others, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--echo", type=Path, help="the bare tonic service (default: builds it)")
    parser.add_argument("--env", type=Path, required=True, help="folder for the peer's virtual environment")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    args = parser.parse_args()
    try:
        if shutil.which("h2load") is None:
            raise Failed("`h2load` is not installed (apt-get install nghttp2-client)")
        peer = install_peer(args.env.resolve())
        echo = (args.echo or build_example("grpc_echo")).resolve()
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            ours, answer, body = folder / "ours", folder / "answer", folder / "body"
            shutil.copy2(args.ours.resolve(), ours)

            def answering(port: int) -> list[str]:
                return [str(echo), f"127.0.0.1:{port}", str(answer)]

            # the request has no id, and so the answer none
            without = (CONTENT_TYPE, "ce-id:", "ce-requestid:")
            metadata = [header for header in HEADERS if not header.startswith(without)]
            one_worker = {"MLSERVER_PARALLEL_WORKERS": "1", "MLSERVER_DEBUG": "false"}
            programs = {
                "ours": Program("ours", lambda port: [str(ours), "start", str(MODELS)]),
                "peer": Program("peer", lambda port: [str(peer), "start", str(MODELS)], environment=one_worker),
                "echo": Program("echo", lambda port: [*answering(port), *metadata], ready_path="/"),
                "bare": Program("bare", answering, ready_path="/"),
            }
            message = request("iris-xgboost", "input-0", [1, 4], struct.pack("<4f", *ROW), raw=False)
            body.write_bytes(framed(message))
            ports, lengths, outputs = {}, {}, {}
            for key in ("ours", "peer", "echo", "bare"):
                server = stack.enter_context(running(programs[key], folder))
                ports[key] = server.grpc_port if key in ("ours", "peer") else server.port
                found, read = ask(peer, ports[key], message)
                lengths[key], outputs[key] = len(found), read["outputs"]
                if key == "ours":
                    answer.write_bytes(found)
            for key in ("echo", "bare", "peer"):
                if outputs[key] != outputs["ours"]:
                    raise Failed(f"the servers do not agree: {outputs}")
            print(f"{machine()}; {args.rounds} rounds of {args.seconds} s")
            for label, load in SHAPES.items():
                measure(label, load, ports, lengths, body, args)
    except Failed as error:
        sys.exit(f"error: {error}")


def measure(
    label: str,
    load: tuple[int, int],
    ports: dict[str, int],
    lengths: dict[str, int],
    body: Path,
    args: argparse.Namespace,
) -> None:
    """Rounds of load, one server after the other, in an order that turns with each round."""
    names = list(LABELS)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name in names:
        h2load(ports[name], body, lengths[name], load, 1)
    for turn in range(args.rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            results[name].append(h2load(ports[name], body, lengths[name], load, args.seconds))
            print(f"round {turn + 1}: {name} {results[name][-1]['rate']:.0f}/s", file=sys.stderr, flush=True)
    rates = {name: statistics.median(one["rate"] for one in rounds) for name, rounds in results.items()}
    print(
        f"\n### `ModelInfer`, 1x4 FP32, {label}\n\n| server | calls/s | min | max | mean ms |\n|---|---:|---:|---:|---:|"
    )
    for name, rounds in results.items():
        every, mean = [one["rate"] for one in rounds], statistics.median(one["mean"] for one in rounds)
        print(f"| {LABELS[name]} | {rates[name]:.0f} | {min(every):.0f} | {max(every):.0f} | {mean:.3f} |")
    print("\n| ratio | measured | target |\n|---|---:|---:|")
    print(f"| ours / bare tonic, same metadata | {rates['ours'] / rates['echo']:.2f} | 0.80 |")
    print(f"| ours / bare tonic, no metadata | {rates['ours'] / rates['bare']:.2f} | |")
    print(f"| ours / MLServer 1.7.1 | {rates['ours'] / rates['peer']:.0f} | 40 |")


if __name__ == "__main__":
    main()
