"""Compares the server with TLS and an API key with a bare hyper server with the same TLS, in one run on one machine.

    cargo build --profile dist
    python3.11 benches/serving/tls.py --ours target/dist/mlserver

`POST infer` of one row to the quickstart's XGBoost model with `wrk`, over kept connections, the order of the servers
rotating with each round. `tls_echo.rs` reads each body and sends the bytes of our response; it uses our code for TLS, the
same certificate, and answers once with all of our headers, once with the content type only. All get the same requests,
with the key. Plain HTTP without a key is measured for comparison.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from run import (
    BODY,
    CONTENT_TYPE,
    HEADERS,
    INFER,
    MODELS,
    Failed,
    Program,
    build_example,
    check_answer,
    infer,
    machine,
    running,
    wrk,
)

TARGET = 0.75
LABELS = {
    "ours": "mlserver, TLS and a key",
    "echo": "bare hyper server, the same TLS, the same bytes with our headers",
    "bare": "bare hyper server, the same TLS, the same body with a content type only",
    "plain": "mlserver, neither TLS nor a key",
}


def certificate(folder: Path, days: int = 2) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    pem, key = folder / "server.pem", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days)]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True)
    return pem, key


def cipher(port: int, tls: ssl.SSLContext) -> tuple[str | None, object]:
    """The version and the cipher of a connection."""
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=tls)
    try:
        connection.connect()
        return connection.sock.version(), connection.sock.cipher()
    finally:
        connection.close()


def secured_infer(port: int, tls: ssl.SSLContext, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=tls)
    try:
        connection.request("POST", INFER, BODY, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def script(path: Path, headers: dict[str, str]) -> Path:
    body = BODY.decode().replace("'", "\\'")
    lines = ["wrk.method = 'POST'", f"wrk.body = '{body}'"]
    lines += [f"wrk.headers['{name}'] = '{value}'" for name, value in headers.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares TLS and a key with a bare server with TLS, in one run.")
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist`")
    parser.add_argument("--echo", type=Path, help="the bare hyper server (default: builds it)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of load for each server")
    parser.add_argument("--seconds", type=float, default=5, help="length of a round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="threads of wrk")
    args = parser.parse_args()
    try:
        if args.rounds < 5:
            raise Failed("--rounds: a median of fewer than five says little")
        echo = (args.echo or build_example("tls_echo")).resolve()
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            ours = folder / "ours"
            shutil.copy2(args.ours.resolve(), ours)
            pem, private = certificate(folder)
            tls = ssl.create_default_context(cafile=str(pem))
            keys = folder / "keys.json"
            create = [str(ours), "keys", "create", "--name", "bench", "--scope", "infer", "--file", str(keys)]
            key = subprocess.run(create, check=True, capture_output=True, text=True).stdout.strip()
            plain_headers = {"content-type": "application/json"}
            headers = {**plain_headers, "authorization": f"Bearer {key}"}
            secured = {
                "MLSERVER_TLS_CERTIFICATE": str(pem),
                "MLSERVER_TLS_KEY": str(private),
                "MLSERVER_API_KEYS_FILE": str(keys),
            }

            def serving(_: int) -> list[str]:
                return [str(ours), "start", str(MODELS)]

            def answering(port: int) -> list[str]:
                return [str(echo), f"127.0.0.1:{port}", str(folder / "answer.json"), str(pem), str(private)]

            servers = {
                "ours": stack.enter_context(running(Program("ours", serving, environment=secured, tls=tls), folder)),
                "plain": stack.enter_context(running(Program("plain", serving), folder)),
            }
            status, answer = secured_infer(servers["ours"].port, tls, headers)
            if status != 200 or check_answer("ours", answer) != check_answer("plain", infer(servers["plain"].port)):
                raise Failed(f"infer was answered {status}: {answer[:300]!r}")
            if secured_infer(servers["ours"].port, tls, plain_headers)[0] != 401:
                raise Failed("a request without a key was not refused")
            (folder / "answer.json").write_bytes(answer)
            for bare, own in (("echo", HEADERS), ("bare", [CONTENT_TYPE])):
                program = Program(bare, lambda port, own=own: [*answering(port), *own], tls=tls)
                servers[bare] = stack.enter_context(running(program, folder))
                if cipher(servers[bare].port, tls) != cipher(servers["ours"].port, tls):
                    raise Failed("the servers use different ciphers")
            requests = {label: script(folder / f"{label}.lua", headers) for label in ("ours", "echo", "bare")}
            requests["plain"] = script(folder / "plain.lua", plain_headers)

            def round_of(label: str, seconds: float) -> dict[str, float]:
                scheme = "http" if label == "plain" else "https"
                port, load = servers[label].port, requests[label]
                return wrk(port, load, args.connections, args.threads, seconds, scheme=scheme)

            version, suite = cipher(servers["ours"].port, tls)
            print(f"{machine()}; {time.strftime('%Y-%m-%d')}; {version}, {suite}")
            for label in LABELS:
                round_of(label, 2)
            results: dict[str, list[dict[str, float]]] = {label: [] for label in LABELS}
            for turn in range(args.rounds):
                for place in range(len(LABELS)):
                    label = list(LABELS)[(turn + place) % len(LABELS)]
                    results[label].append(round_of(label, args.seconds))
                    print(f"round {turn + 1}: {label} {results[label][-1]['rate']:.0f}/s", file=sys.stderr, flush=True)
    except Failed as error:
        sys.exit(f"error: {error}")
    print(f"\n### `POST infer`, 1x4 FP32, {args.connections} kept connections, {args.rounds} rounds of {args.seconds:g} s\n")
    print("| server | requests/s | min | max | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|---:|")
    rates = {}
    for label, rounds in results.items():
        every = [one["rate"] for one in rounds]
        rates[label] = statistics.median(every)
        middle = {name: statistics.median(one[name] for one in rounds) for name in ("50", "99")}
        print(
            f"| {LABELS[label]} | {rates[label]:.0f} | {min(every):.0f} | {max(every):.0f} "
            f"| {middle['50']:.3f} | {middle['99']:.3f} |"
        )
    print("\n| ratio | measured | target |\n|---|---:|---:|")
    print(f"| TLS and a key / bare hyper with TLS, same headers | {rates['ours'] / rates['echo']:.3f} | {TARGET} |")
    print(f"| TLS and a key / bare hyper with TLS, content type only | {rates['ours'] / rates['bare']:.3f} | |")
    print(f"| TLS and a key / neither | {rates['ours'] / rates['plain']:.3f} | |")


if __name__ == "__main__":
    main()
