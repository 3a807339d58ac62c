"""Compares this server with other model servers, in one run on one machine: same models, same rows, same client.

    apt-get install wrk
    cargo build --profile dist
    python3.11 benches/field/run.py --ours target/dist/mlserver --work ~/.cache/mlserver-field

Creates an environment for each server (`requirements/`) and trains the models the first time. In each round, the servers run
one after the other, alone on the machine, in rotating order. Each is started, its answers are compared with those of the
libraries, and `wrk` sends requests with one row and with 1,000 rows to each model. Every figure is written to `results.json` at
once. The same command resumes an interrupted run. Prints Markdown.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serving"))
sys.path.insert(1, str(Path(__file__).resolve().parent))

from peers import APPS, HERE, LEFT_OUT, MODELS, PEERS, PROCESSES, ROW_COUNTS, Peer, Setup
from run import Failed, free_ports, machine, tree, wrk

JSON = {"content-type": "application/json"}
#: Connections of `wrk`, by the rows of a request.
CONNECTIONS = {1: 16, 1000: 4}
TITLES = {"xgboost": "XGBoost, 100 trees", "sklearn": "scikit-learn pipeline", "echo": "echo in Python"}
#: What pip installs for the models themselves, and is not part of a server.
LIBRARIES = {"xgboost", "xgboost_cpu", "nvidia_nccl_cu12", "scikit_learn", "scipy", "numpy", "joblib", "threadpoolctl"}
MIB = 1024 * 1024
TRAINED_BY = "fastapi"
WRK = """wrk.method = 'POST'
wrk.body = io.open('{body}', 'rb'):read('*a')
wrk.headers['content-type'] = 'application/json'
"""


# --- setting up ------------------------------------------------------------------------------------------------------


def interpreter(peer: Peer) -> str:
    """The Python of a server: this one, unless the server needs one with a shared library."""
    if peer.shared_library and not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return "/usr/bin/python3"
    return sys.executable


def environment(work: Path, name: str) -> Path:
    """The virtual environment of a server; makes it if it is not there or was made from other pins."""
    home = work / name
    wanted = (HERE / "requirements" / f"{name}.txt").read_text()
    made = home / "made-from.txt"
    if not (made.exists() and made.read_text() == wanted):
        print(f"installing {name}", file=sys.stderr, flush=True)
        subprocess.run([interpreter(PEERS[name]), "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--requirement"]
        done = subprocess.run(
            [*pip, str(HERE / "requirements" / f"{name}.txt")], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Failed(f"does not install: {done.stderr.strip().splitlines()[-1]}")
        made.write_text(wanted)
    return home


def installed_size(home: Path) -> dict[str, int]:
    """Bytes of the packages of an environment: of the server, and of the libraries of the models."""
    site = next((home / "lib").glob("python3*/site-packages"))
    sizes = {"server": 0, "libraries": 0}
    for record in site.glob("*.dist-info/RECORD"):
        name = record.parent.name.split("-")[0].lower()
        if name in ("pip", "setuptools"):
            continue
        kind = "libraries" if name in LIBRARIES else "server"
        for line in record.read_text().splitlines():
            path = site / line.rsplit(",", 2)[0].strip('"')
            if path.suffix != ".pyc" and path.is_file():
                sizes[kind] += path.stat().st_size
    return sizes


def train(work: Path) -> Path:
    """The folder of trained models and payloads."""
    folder = work / "models"
    made, wanted = folder / "made-from.txt", (APPS / "train.py").read_text()
    if not (made.exists() and made.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        python = environment(work, TRAINED_BY) / "bin" / "python"
        subprocess.run([str(python), str(APPS / "train.py"), str(folder)], check=True)
        made.write_text(wanted)
    return folder


# --- a server --------------------------------------------------------------------------------------------------------


@dataclass
class Payloads:
    """Rows, and what the libraries predict for them."""

    rows: list[list[float]]
    expected: dict[str, list]


class Running:
    """A started server, whose memory is watched."""

    def __init__(self, peer: Peer, setup: Setup, log: Path) -> None:
        self.peer, self.setup, self.log = peer, setup, log
        variables = {
            key: value for key, value in os.environ.items() if not key.startswith(("MLSERVER_", "RAY_", "MLFLOW_"))
        }
        variables |= {
            "FIELD_MODELS": str(setup.models),
            "FIELD_PROCESSES": str(PROCESSES),
            "PYTHONPATH": str(APPS),
            # one process for each core, of which each has one thread for computations
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **peer.environment(setup),
        }
        self.work = log.with_suffix(".work")
        self.work.mkdir(parents=True, exist_ok=True)
        self.began = time.perf_counter()
        with log.open("wb") as sink:
            self.processes = [
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    env=variables,
                    cwd=self.work,
                    start_new_session=True,
                )
                for command in peer.commands(setup)
            ]
        self.peak = 0
        self.ended = threading.Event()
        self.watching = threading.Thread(target=self.watch)
        self.watching.start()

    def pids(self) -> list[int]:
        """All processes of the server."""
        return [pid for process in self.processes for pid in tree(process.pid)]

    def memory(self, name: str, file: str) -> int:
        """Bytes of memory of all processes, summed."""
        total = 0
        for pid in self.pids():
            try:
                for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
                    if line.startswith(name):
                        total += int(line.split()[1]) * 1024
            except OSError:
                continue
        return total

    def processor(self) -> float:
        """Seconds of processor time that all processes have used."""
        total = 0.0
        for pid in self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # with those of children that have ended
            total += sum(int(one) for one in fields[11:15]) / os.sysconf("SC_CLK_TCK")
        return total

    def watch(self) -> None:
        """Remembers the highest resident memory."""
        while not self.ended.wait(0.25):
            self.peak = max(self.peak, self.memory("VmRSS:", "status"))

    def target(self, model: str) -> tuple[int, str]:
        """The port and path of a model."""
        return self.setup.ports[self.peer.port(model)], self.peer.path(model)

    def ask(self, connection: http.client.HTTPConnection, model: str, rows: list[list[float]]) -> object:
        """Asks a model for predictions."""
        connection.request("POST", self.target(model)[1], self.peer.write(model, rows), JSON)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Failed(f"{model} was answered {response.status}: {body[:300]!r}")
        return self.peer.read(json.loads(body))

    def wait(self, payloads: Payloads, limit: float) -> float:
        """Waits until all models answer; returns the seconds since the start."""
        for model in MODELS:
            while True:
                connection = http.client.HTTPConnection("127.0.0.1", self.target(model)[0], timeout=30)
                try:
                    self.ask(connection, model, payloads.rows[:1])
                    break
                except (OSError, http.client.HTTPException, Failed, ValueError, KeyError) as error:
                    if any(process.poll() is not None for process in self.processes):
                        raise Failed(f"ended before it was ready\n{self.tail()}") from error
                    if time.perf_counter() - self.began > limit:
                        raise Failed(f"not ready after {limit:.0f} s: {error}\n{self.tail()}") from error
                    time.sleep(0.01)
                finally:
                    connection.close()
        return time.perf_counter() - self.began

    def settle(self, limit: float = 30.0) -> None:
        """Waits until the processes are idle: the first one answers while others still start."""
        until = time.perf_counter() + limit
        while time.perf_counter() < until:
            before = self.processor()
            time.sleep(0.5)
            if self.processor() - before < 0.1:
                return

    def tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])

    def stop(self) -> None:
        """Ends the server and everything that it has started."""
        self.ended.set()
        self.watching.join()
        started = self.pids()
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in started:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.work, ignore_errors=True)


@contextmanager
def running(peer: Peer, setup: Setup, log: Path) -> Iterator[Running]:
    """Starts a server, and ends it afterwards."""
    server = Running(peer, setup, log)
    try:
        yield server
    finally:
        server.stop()


# --- answers ---------------------------------------------------------------------------------------------------------


def flat(value: object) -> list[float]:
    """The numbers of nested lists."""
    if isinstance(value, list):
        return [number for one in value for number in flat(one)]
    return [float(value)]  # type: ignore[arg-type]


def difference(found: object, wanted: list, model: str) -> str | None:
    """What is wrong with an answer. Predictions of FP32 may have been rounded when they were written."""
    numbers, others = flat(found), flat(wanted)
    if len(numbers) != len(others):
        return f"{len(numbers)} numbers instead of {len(others)}"
    tolerance = 1e-6 if model == "xgboost" else 0.0
    for at, (one, other) in enumerate(zip(numbers, others)):
        if abs(one - other) > tolerance * max(1.0, abs(other)):
            return f"{one} instead of {other} at {at}"
    return None


def compare(server: Running, payloads: Payloads) -> dict[str, str]:
    """Compares answers with those of the libraries: one by one, all rows, and many different requests at once."""
    found = {}

    def different(model: str, start: int) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", server.target(model)[0], timeout=60)
        try:
            for at in range(start, start + 12):
                answer = server.ask(connection, model, payloads.rows[at : at + 1])
                if wrong := difference(answer, payloads.expected[model][at : at + 1], model):
                    return f"row {at}: {wrong}"
        finally:
            connection.close()
        return None

    for model in MODELS:
        connection = http.client.HTTPConnection("127.0.0.1", server.target(model)[0], timeout=60)
        try:
            wrong = difference(server.ask(connection, model, payloads.rows), payloads.expected[model], model)
            with ThreadPoolExecutor(16) as pool:
                every = [wrong, *pool.map(different, [model] * 16, range(0, 16 * 12, 12))]
            found[model] = next((one for one in every if one), "equal")
        except (Failed, OSError, http.client.HTTPException, ValueError, KeyError) as error:
            found[model] = f"{type(error).__name__}: {error}"[:300]
        finally:
            connection.close()
    return found


# --- the run ---------------------------------------------------------------------------------------------------------


class Results:
    """Figures by round, server and cell, in a file that is written after each of them."""

    def __init__(self, path: Path, settings: dict[str, object], *, report: bool) -> None:
        self.path = path
        self.content: dict = {
            "settings": settings,
            "machine": machine(),
            "date": time.strftime("%Y-%m-%d"),
            "rounds": {},
            "failed": {},
            "sizes": {},
        }
        old = json.loads(path.read_text()) if path.exists() else {"rounds": {}}
        if old["rounds"]:
            if old["settings"] != settings and not report:
                raise Failed(f"{path} was measured with {old['settings']}; --fresh discards it")
            self.content = old

    def save(self) -> None:
        """Writes the file."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.content, indent=1) + "\n")
        part.replace(self.path)

    def of(self, turn: int, name: str) -> dict:
        """The figures of a server in a round."""
        return self.content["rounds"].setdefault(str(turn), {}).setdefault(name, {"cells": {}})


def cells() -> list[tuple[str, int]]:
    """What is measured for each server."""
    return [(model, count) for model in MODELS for count in ROW_COUNTS]


def measure(
    results: Results, turn: int, peer: Peer, setup: Setup, payloads: Payloads, args: argparse.Namespace
) -> None:
    """One start of a server with all its cells that are not there yet."""
    found = results.of(turn, peer.name)
    missing = [(model, count) for model, count in cells() if f"{model}/{count}" not in found["cells"]]
    if not missing:
        return
    with running(peer, setup, args.work / "logs" / f"{peer.name}.log") as server:
        found["ready_s"] = server.wait(payloads, args.limit)
        server.settle()
        found["answers"] = compare(server, payloads)
        found["ready_pss"] = server.memory("Pss:", "smaps_rollup")
        results.save()
        for model, count in missing:
            port, path = server.target(model)
            body, script = args.work / "body", args.work / "wrk.lua"
            body.write_bytes(peer.write(model, payloads.rows[:count]))
            script.write_text(WRK.format(body=body))
            before = server.processor()
            try:
                cell: dict = wrk(port, script, CONNECTIONS[count], 1, args.seconds, path)
                cell["cpu_us"] = (server.processor() - before) / (cell["rate"] * args.seconds) * 1e6
            except Failed as error:
                cell = {"failed": str(error)[:500]}
            found["cells"][f"{model}/{count}"] = cell
            found["peak_rss"] = max(server.peak, found.get("peak_rss", 0))
            results.save()
            print(
                f"round {turn}: {peer.name}, {model}, {count}: {cell.get('rate', 'failed')}",
                file=sys.stderr,
                flush=True,
            )
        found["pss"] = server.memory("Pss:", "smaps_rollup")
        results.save()


def run(args: argparse.Namespace) -> Results:
    """Installs, trains and measures what is missing."""
    args.work.mkdir(parents=True, exist_ok=True)
    (args.work / "logs").mkdir(exist_ok=True)
    if args.fresh:
        args.out.unlink(missing_ok=True)
    settings = {"seconds": args.seconds, "rounds": args.rounds, "processes": PROCESSES}
    results = Results(args.out, settings, report=args.report)
    if args.report:
        return results
    models = train(args.work)
    payloads = Payloads(**json.loads((models / "payloads.json").read_text()))
    executable = args.work / "ours"
    if results.content["rounds"] == {} or not executable.exists():
        # copied, because the build folder may change during the run
        executable.unlink(missing_ok=True)
        shutil.copy2(args.ours.resolve(), executable)
    homes: dict[str, Path] = {}
    for name in args.only:
        results.content["failed"].pop(name, None)
        try:
            homes[name] = environment(args.work, TRAINED_BY if name == "ours" else name)
            for script in PEERS[name].prepare:
                if not (models / f"made-{script}").exists():
                    subprocess.run([str(homes[name] / "bin" / "python"), str(APPS / script), str(models)], check=True)
                    (models / f"made-{script}").touch()
            size = (
                {"server": executable.stat().st_size, "libraries": 0} if name == "ours" else installed_size(homes[name])
            )
            results.content["sizes"][name] = size
        except (Failed, subprocess.CalledProcessError) as error:
            results.content["failed"][name] = str(error)[:1000]
            homes.pop(name, None)
    results.save()
    if args.install:
        return results
    began = time.monotonic()
    names = list(homes)
    for turn in range(1, args.rounds + 1):
        for place in range(len(names)):
            name = names[(turn - 1 + place) % len(names)]
            if name in results.content["failed"]:
                continue
            setup = Setup(homes[name], models, free_ports(4), executable)
            try:
                measure(results, turn, PEERS[name], setup, payloads, args)
            except Failed as error:
                results.content["failed"][name] = str(error)[:1000]
                results.save()
                print(f"{name}: {error}", file=sys.stderr, flush=True)
    print(f"measured for {(time.monotonic() - began) / 60:.1f} minutes", file=sys.stderr)
    return results


# --- tables ----------------------------------------------------------------------------------------------------------


def medians(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Medians over the rounds, by server and cell; the figures of the whole server are in the cell `""`."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in PEERS:
        rounds = [one[name] for one in results.content["rounds"].values() if name in one]
        of_server = found.setdefault(name, {})
        for model, count in cells():
            good = [
                one["cells"][f"{model}/{count}"] for one in rounds if "rate" in one["cells"].get(f"{model}/{count}", {})
            ]
            if good:
                of_server[f"{model}/{count}"] = {
                    key: statistics.median(one[key] for one in good) for key in ("rate", "50", "99", "cpu_us")
                }
                of_server[f"{model}/{count}"] |= {
                    "min": min(one["rate"] for one in good),
                    "max": max(one["rate"] for one in good),
                }
        whole = {}
        for key in ("ready_s", "peak_rss", "pss"):
            if values := [one[key] for one in rounds if key in one]:
                whole[key] = statistics.median(values)
        of_server[""] = whole
    return {name: figures for name, figures in found.items() if len(figures) > 1 or figures[""]}


def short(value: float) -> str:
    """A number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ahead(found: dict[str, dict[str, dict[str, float]]], sizes: dict[str, dict[str, int]]) -> list[str]:
    """The figures in which other servers are ahead of ours."""
    lines = []
    others = {name: figures for name, figures in found.items() if name != "ours"}
    mine = found["ours"]

    def add(title: str, own: float, theirs: dict[str, float], unit: str, higher: bool, notes: dict[str, str]) -> None:
        better = {name: value for name, value in theirs.items() if ((value > own) if higher else (value < own))}
        if better:
            order = sorted(better, key=better.__getitem__, reverse=higher)
            names = ", ".join(f"{PEERS[name].label} {short(better[name])}{notes.get(name, '')}" for name in order)
            lines.append(f"- {title} (mlserver {short(own)} {unit}): {names}")

    for model, count in cells():
        cell = f"{model}/{count}"
        if cell not in mine:
            continue
        with_cell = {name: figures[cell] for name, figures in others.items() if cell in figures}
        overlap = {name: " (ranges overlap)" for name, one in with_cell.items() if one["min"] < mine[cell]["max"]}
        for key, what, unit in (
            ("rate", "throughput", "requests/s"),
            ("50", "p50", "ms"),
            ("99", "p99", "ms"),
            ("cpu_us", "processor time", "µs"),
        ):
            values = {name: one[key] for name, one in with_cell.items()}
            title = f"{TITLES[model]}, {count:,} row{'s' * (count > 1)}, {what}"
            add(title, mine[cell][key], values, unit, key == "rate", overlap if key == "rate" else {})
    for key, what, unit, scale in (("ready_s", "Start to ready", "s", 1), ("peak_rss", "Peak memory", "MiB", MIB)):
        values = {name: figures[""][key] / scale for name, figures in others.items() if key in figures[""]}
        if key in mine[""]:
            add(what, mine[""][key] / scale, values, unit, False, {})
    values = {name: sizes[name]["server"] / 1e6 for name in others}
    add("Installed size", sizes["ours"]["server"] / 1e6, values, "MB", False, {})
    return lines


def wrong_answers(results: Results, name: str) -> dict[str, str]:
    """The models of a server with wrong answers, and what was wrong."""
    found: dict[str, str] = {}
    for one in results.content["rounds"].values():
        for model, text in one.get(name, {}).get("answers", {}).items():
            if text != "equal":
                found.setdefault(model, text)
    return found


def tables(results: Results) -> str:
    """The results as Markdown. What another server does better is said first."""
    found, sizes = medians(results), results.content["sizes"]
    settings = results.content["settings"]
    measured = f"{results.content['machine']}; {results.content['date']}"
    rounds = f"medians of {settings['rounds']} rounds of {settings['seconds']} s, one server at a time"
    load = "`wrk` with one thread on the same cores, 16 connections for one row, 4 for 1,000 rows"
    lines = [f"{measured}; {rounds}; {load}.", ""]
    if "ours" in found:
        behind = ahead(found, sizes)
        lines += [
            "Another server is ahead in these figures:" if behind else "No other server is ahead in any figure.",
            "",
            *behind,
            "",
        ]
    wrong = {name: wrong_answers(results, name) for name in found}
    for name, models in wrong.items():
        lines += [
            f"- **Wrong answers**: {PEERS[name].label}, {TITLES[model]}: {text}" for model, text in models.items()
        ]
    for model, count in cells():
        cell = f"{model}/{count}"
        lines += [
            f"\n**{TITLES[model]}, {count:,} row{'s' * (count > 1)} in a request**\n",
            "| server | requests/s | min | max | p50 ms | p99 ms | processor time, µs | mlserver is |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        own = found.get("ours", {}).get(cell)
        order = sorted(found, key=lambda name: -found[name].get(cell, {}).get("rate", 0.0))
        for name in order:
            label = PEERS[name].label + (" (**wrong answers**)" if model in wrong[name] else "")
            if cell not in found[name]:
                lines.append(f"| {label} | failed | | | | | | |")
                continue
            figures = found[name][cell]
            ratio = f"{short(own['rate'] / figures['rate'])} times" if own and name != "ours" else ""
            lines.append(
                f"| {label} | {figures['rate']:,.0f} | {figures['min']:,.0f} | {figures['max']:,.0f} "
                f"| {figures['50']:.2f} | {figures['99']:.2f} | {figures['cpu_us']:,.0f} | {ratio} |"
            )
    lines += [
        "\n| server | start to ready, s | peak memory, MiB | shared pages once | installed, MB | libraries, MB | answers |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, figures in found.items():
        whole = figures[""]
        ready, peak, pss = whole.get("ready_s", 0), whole.get("peak_rss", 0) / MIB, whole.get("pss", 0) / MIB
        answers = "**wrong**" if wrong[name] else "equal"
        lines.append(
            f"| {PEERS[name].label} | {ready:.2f} | {peak:,.0f} | {pss:,.0f} | {sizes[name]['server'] / 1e6:,.0f} "
            f"| {sizes[name]['libraries'] / 1e6:,.0f} | {answers} |"
        )
    lines += ["\n| server | configuration for throughput | page of its documentation |", "|---|---|---|"]
    lines += [f"| {peer.label} | {peer.configuration} | {peer.page} |" for name, peer in PEERS.items() if name in found]
    missing = {PEERS[name].label: text.splitlines()[0] for name, text in results.content["failed"].items()}
    lines += ["\nNot measured:\n", *(f"- {name}: {text}" for name, text in (missing | LEFT_OUT).items())]
    return "\n".join(lines)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description="Compares this server with other model servers.")
    parser.add_argument("--ours", type=Path, help="our binary, built with `--profile dist`")
    parser.add_argument("--work", type=Path, required=True, help="folder for environments, models, logs and results")
    parser.add_argument("--out", type=Path, help="file of the results (default: results.json in --work)")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each server")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), help="servers to measure")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a server may take to start")
    parser.add_argument("--install", action="store_true", help="only make the environments and train the models")
    parser.add_argument("--fresh", action="store_true", help="discard the results that are there")
    parser.add_argument("--report", action="store_true", help="only print the tables of the results that are there")
    args = parser.parse_args()
    args.work = args.work.resolve()
    args.out = (args.out or args.work / "results.json").resolve()
    try:
        if not args.report:
            if shutil.which("wrk") is None:
                raise Failed("`wrk` is not installed (apt-get install wrk)")
            if args.ours is None or not args.ours.is_file():
                raise Failed(f"--ours: there is no file `{args.ours}`")
        results = run(args)
        if not args.install:
            print(tables(results))
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
