"""`mlserver.load`: the child process, its memory, and the data that goes through it."""

import gc
import json
import math
import multiprocessing
import os
import pathlib
import pickle
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Dict, Iterator, List

import mlserver
import pytest
from executable import BINARY, needs_executable
from mlserver._scoring import batches, memory, processes
from mlserver.errors import InferenceError, ScoringError
from mlserver.scoring import OutputSchema, Scorer

QUICKSTART = pathlib.Path(__file__).resolve().parents[2] / "examples" / "quickstart"
CHILD = pathlib.Path(__file__).with_name("scoring_child.py")


@pytest.fixture
def child(tmp_path: pathlib.Path) -> str:
    """The path of an executable that doubles numbers."""
    script = tmp_path / "mlserver"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{CHILD}" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture
def scorer(child: str) -> Iterator[Scorer]:
    with mlserver.load("model", executable=child) as scorer:
        yield scorer


@pytest.fixture(autouse=True)
def _no_children() -> Iterator[None]:
    yield
    gc.collect()
    processes._end_all()


def pids() -> List[int]:
    """Returns the process ids of this process' children."""
    return [shared.child.pid for shared in processes._state.shared.values() if shared.child is not None]


def is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(question: Any) -> None:
    end = time.monotonic() + 20
    while not question():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_import_of_package_does_not_import_scoring() -> None:
    code = "import sys, mlserver; print([name for name in sys.modules if 'scoring' in name])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert run.stdout == "[]\n"


def test_scorer_imports_no_library(child: str) -> None:
    code = (
        f"import sys, mlserver; s = mlserver.load('m', executable={child!r}); print(s.predict({{'a': [1.5, None]}}));"
        "print([name for name in ('numpy', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert run.stdout == "{'a': [3.0, nan]}\n[]\n"


def _environment() -> Any:
    return {**os.environ, "PYTHONPATH": str(CHILD.parents[1])}


def test_lists_become_columns_of_their_kind(scorer: Scorer) -> None:
    found = scorer.predict({"a": [1.5, 2], "n": [1, 2], "t": ["x", "äß"], "b": [True, False], "u": [1, 1 << 63]})
    assert found == {"a": [3.0, 4.0], "n": [1, 2], "t": ["x", "äß"], "b": [True, False], "u": [1, 1 << 63]}
    found = scorer.predict({"n": [1, None], "t": [None, "x"]})
    assert found["n"][0] == 2.0
    assert math.isnan(found["n"][1])
    assert found["t"] == ["", "x"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, "x"], "column `c` mixes integer and text values: convert it to one type"),
        ([object()], "column `c` is object, which models do not take: convert it to numbers, text or booleans"),
        ([True, None], "row 1: column `c`: a missing value is not a valid BOOL"),
        ([None, (1 << 53) + 1], "row 1: column `c`: `9007199254740993` would lose digits as FP64"),
        ([1 << 70], "column `c` has integers that exceed 64 bits: use floats or text"),
        ("abc", "column `c` is str, which models do not take"),
    ],
)
def test_columns_without_datatype_are_rejected(scorer: Scorer, column: Any, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        scorer.predict({"c": column})
    assert str(raised.value).startswith(message)


def test_columns_of_different_lengths_are_rejected(scorer: Scorer) -> None:
    with pytest.raises(InferenceError, match="column `b` has 1 rows, but the first column has 2"):
        scorer.predict({"a": [1.0, 2.0], "b": [1.0]})


def test_missing_error_rejects_missing_values(child: str) -> None:
    with mlserver.load("model", executable=child, missing="error") as scorer:
        assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}
        with pytest.raises(InferenceError, match="column `a` has 1 missing values"):
            scorer.predict({"a": [1.0, None]})


def test_data_of_other_types_is_rejected(scorer: Scorer) -> None:
    with pytest.raises(InferenceError, match=r"cannot predict builtins.list: pass a DataFrame"):
        scorer.predict([[1.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"idle": 0}, "idle is 0"),
        ({"missing": "drop"}, "missing is `drop`"),
        ({"outputs": "predict"}, "outputs is `predict`"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mlserver.load("model", **arguments)
    with pytest.raises(ValueError, match="location is empty"):
        mlserver.load("")


def test_paths_become_absolute_and_uris_stay() -> None:
    assert mlserver.load("a/b").location == os.path.abspath("a/b")
    for uri in ("s3://models/churn", "models:/churn/1", "hf://org/model"):
        assert mlserver.load(uri).location == uri


def test_missing_executable_is_named() -> None:
    with pytest.raises(ScoringError, match=r"cannot run `/nowhere/mlserver score`"):
        mlserver.load("model", executable="/nowhere/mlserver").predict({"a": [1.0]})


def test_load_failure_has_message_of_child(child: str) -> None:
    with pytest.raises(ScoringError, match=r"^no model found in it$"):
        mlserver.load("missing", executable=child).predict({"a": [1.0]})
    assert not pids()


def test_other_version_of_executable_is_named(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORING_CHILD", json.dumps({"version": "0.1.2"}))
    with pytest.raises(ScoringError) as raised:
        mlserver.load("model", executable=child).predict({"a": [1.0]})
    assert "has version 0.1.2" in str(raised.value)
    assert mlserver.__version__ in str(raised.value)


def test_commit_of_executable_is_no_other_version(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORING_CHILD", json.dumps({"version": f"{mlserver.__version__} (0123456789)"}))
    with mlserver.load("model", executable=child) as scorer:
        assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


def test_pickled_scorer_predicts_with_the_same_child(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    before = pids()
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy.predict({"a": [2.0]}) == {"a": [4.0]}
    assert pids() == before


def test_scorer_pickled_by_another_version_is_rejected(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr("mlserver.scoring.__version__", "0.1.2")
        pickled = pickle.dumps(scorer)
    with pytest.raises(ScoringError) as raised:
        pickle.loads(pickled)
    assert "0.1.2" in str(raised.value)
    assert mlserver.__version__ in str(raised.value)


def test_error_has_message_and_status_of_server(scorer: Scorer) -> None:
    with pytest.raises(InferenceError, match=r"^a number exceeds 100$") as raised:
        scorer.predict({"raise": [101.0]})
    assert raised.value.status_code == 422
    assert scorer.predict({"raise": [1.0]}) == {"raise": [2.0]}


def test_dead_child_is_reported_with_its_log_and_replaced(scorer: Scorer) -> None:
    with pytest.raises(ScoringError) as raised:
        scorer.predict({"exit": [1.0]})
    assert "ended with exit code 3" in str(raised.value)
    assert str(raised.value).endswith("the end of its log:\nabout to exit")
    assert scorer.predict({"exit": [2.0]}) == {"exit": [4.0]}


def test_child_that_is_killed_in_a_call_is_reported(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(ScoringError, match="was killed by signal 9"):
        scorer.predict({"wait": [1.0]})
    timer.join()
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


def test_child_that_is_killed_between_calls_is_replaced(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}
    assert pids() != [pid]


def test_child_that_is_killed_before_it_reads_a_call_is_replaced(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    # As between a signal and the end of the process, when calls can still be sent.
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    timer.start()
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}
    timer.join()
    assert pids() != [pid]


def test_calls_of_several_threads_are_reported_if_the_child_is_killed(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    timer.start()

    def is_reported(_: int) -> bool:
        try:
            scorer.predict({"a": [1.0]})
        except ScoringError as error:
            return "was killed by signal 9" in str(error)
        return False

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(is_reported, range(2))) == [True, True]
    timer.join()
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


def test_child_that_has_closed_its_socket_is_replaced(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (child,) = (shared.child for shared in processes._state.shared.values() if shared.child is not None)
    # As between the end of its files and its exit.
    child._socket.shutdown(socket.SHUT_WR)
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


def test_log_of_child_is_passed_on(scorer: Scorer, capfd: pytest.CaptureFixture[str]) -> None:
    scorer.predict({"log": [1.0]})
    log = ""

    def has_line() -> bool:
        nonlocal log
        log += capfd.readouterr().err
        return "a line of the log\n" in log

    wait_until(has_line)


def test_close_ends_child_of_last_scorer(child: str) -> None:
    first, second = mlserver.load("model", executable=child), mlserver.load("model", executable=child)
    first.predict({"a": [1.0]})
    second.predict({"a": [1.0]})
    (pid,) = pids()
    first.close()
    assert is_running(pid)
    second.close()
    assert not is_running(pid)
    assert first.predict({"a": [1.0]}) == {"a": [2.0]}
    first.close()


def test_idle_child_ends(child: str) -> None:
    scorer = mlserver.load("model", executable=child, idle=0.3)
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    wait_until(lambda: not is_running(pid))
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}
    scorer.close()


def test_child_ends_with_its_process(child: str) -> None:
    code = (
        f"import mlserver, os, sys; s = mlserver.load('m', executable={child!r}); s.predict({{'a': [1.0]}});"
        "from mlserver._scoring import processes;"
        "print(*[each.child.pid for each in processes._state.shared.values()], flush=True);"
        "os.kill(os.getpid(), 9) if len(sys.argv) > 1 else None"
    )
    for arguments, code_of_exit in (([], 0), (["kill"], -9)):
        run = subprocess.run(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=_environment(), check=False
        )
        assert run.returncode == code_of_exit
        wait_until(lambda run=run: not is_running(int(run.stdout)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_process_has_a_child_of_its_own(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    before = pids()
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()

    def work() -> None:
        sender.send((scorer.predict({"a": [2.0]}), pids()))

    process = context.Process(target=work)
    process.start()
    found, forked = receiver.recv()
    process.join()
    assert found == {"a": [4.0]}
    assert len(forked) == 1
    assert forked != before
    wait_until(lambda: not is_running(forked[0]))
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}
    assert pids() == before


def test_threads_share_one_child(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small batches in shared memory, so that threads compete for its regions.
    monkeypatch.setattr(batches, "_SMALL_BYTES", 0)
    monkeypatch.setattr(batches.score, "__defaults__", (800, False))
    failures: List[Any] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                rows = [float(number + row) for row in range(1000)]
                assert scorer.predict({"a": rows}) == {"a": [2 * row for row in rows]}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures
    assert len(pids()) == 1


def test_failed_batch_leaves_memory_for_the_next_calls(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_SMALL_BYTES", 0)
    monkeypatch.setattr(batches.score, "__defaults__", (800, False))
    for _ in range(5):
        with pytest.raises(InferenceError, match="a number exceeds 100"):
            scorer.predict({"raise": [101.0] * 1000})
    assert scorer.predict({"raise": [1.0] * 1000}) == {"raise": [2.0] * 1000}


def test_interrupted_call_ends_the_child(scorer: Scorer) -> None:
    scorer.predict({"a": [1.0]})
    (pid,) = pids()
    # A shell has background jobs ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, _interrupt_main_thread)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            scorer.predict({"wait": [1.0]})
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_running(pid)
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


def _interrupt_main_thread() -> None:
    """Interrupts the thread that waits for the child.

    A signal for the process may reach another thread. Python would handle it in the main thread, but only after its wait.
    """
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt`; a shell has background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_interrupted_start_leaves_no_child(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    started: List[int] = []
    interrupted = threading.Event()
    popen = subprocess.Popen

    def interrupted_popen(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        started.append(process.pid)
        _interrupt_main_thread()
        assert interrupted.wait(20)
        return process

    with monkeypatch.context() as changed:
        changed.setattr(processes.subprocess, "Popen", interrupted_popen)
        with pytest.raises(KeyboardInterrupt) as raised:
            scorer.predict({"a": [1.0]})
        interrupted.set()
        # The traceback keeps the child's end of the socket open, as that of a notebook does.
        wait_until(lambda: started and not is_running(started[0]))
        assert raised.value is not None
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


@pytest.mark.usefixtures("interrupts")
def test_interrupted_close_ends_the_child(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer.predict({"wait": []})
    (pid,) = pids()
    (child,) = (shared.child for shared in processes._state.shared.values() if shared.child is not None)
    wait = child._process.wait

    def interrupted_wait(timeout: Any = None) -> int:
        monkeypatch.setattr(child._process, "wait", wait)
        raise KeyboardInterrupt

    os.kill(pid, signal.SIGSTOP)  # it does not notice that its socket has been closed
    monkeypatch.setattr(child._process, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        scorer.close()
    assert not is_running(pid)
    assert scorer.predict({"a": [1.0]}) == {"a": [2.0]}


@pytest.mark.usefixtures("interrupts")
def test_child_that_nobody_has_ends_with_its_process(child: str) -> None:
    # As if an interrupt came between the start of the process and the first use of the result.
    code = (
        "import sys, mlserver; from mlserver._scoring import processes;"
        "process = processes._state.spawn([sys.argv[1], '-c', 'import time; time.sleep(600)'], stdout=-3);"
        "print(process.pid, flush=True)"
    )
    command = [sys.executable, "-c", code, sys.executable]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=_environment(), check=True, timeout=60)
    wait_until(lambda: not is_running(int(run.stdout)))


def test_answer_outside_of_memory_is_rejected(scorer: Scorer) -> None:
    with pytest.raises(InferenceError, match="output `outside` is outside of the memory of its call"):
        scorer.predict({"outside": [1.0]})


@pytest.mark.parametrize("shared", ["memory", "a file", "nothing"])
def test_large_calls_are_split_and_assembled(
    child: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, shared: str
) -> None:
    if shared != "memory":
        monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path if shared == "a file" else tmp_path / "missing"))
    with mlserver.load("model", executable=child) as scorer:
        rows = [float(row) for row in range(1_500_000)]
        texts = [str(row) for row in range(len(rows))]
        found = scorer.predict({"a": rows, "t": texts})
        assert found["a"] == [2 * row for row in rows]
        assert found["t"] == texts


def test_memory_file_grows_to_its_limit() -> None:
    file = memory.MemoryFile(4096 * 2, 4096 * 8)
    first = file.take(4096)
    assert first is not None
    assert file.take(8192) is None, "a region is in use"
    second = file.take(10)
    assert second is not None
    assert file.take(1) is None
    assert {first.offset, second.offset} == {0, 4096}
    file.give_back(first)
    file.give_back(second)
    large = file.take(8193)
    assert large is not None
    assert large.size == 12288
    assert os.fstat(file.descriptor).st_size == 2 * large.size
    assert file.largest == 4096 * 4
    file.close()


def test_nothing_is_left_after_many_children(child: str) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def run() -> None:
        with mlserver.load("model", executable=child) as scorer:
            scorer.predict({"a": [1.0] * 10_000})

    threads = set(threading.enumerate())
    run()
    # One thread spawns and reaps all children of a process.
    wait_until(lambda: set(threading.enumerate()) - threads <= {processes._state.thread})
    before = descriptors()
    for _ in range(10):
        run()
    wait_until(lambda: descriptors() <= before)
    assert not pids()


def test_arguments_of_ended_children_are_forgotten(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_MOST_ENDED", 3)
    with mlserver.load("kept", executable=child) as kept:
        kept.predict({"a": [1.0]})
        for number in range(8):
            with mlserver.load(f"model-{number}", executable=child) as scorer:
                scorer.predict({"a": [1.0]})
        assert len(processes._state.shared) <= 3
        assert any(arguments.location.endswith("/kept") for arguments in processes._state.shared)


def test_columns_are_found_by_names(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORING_CHILD", json.dumps({"inputs": ["b", "a_c"]}))
    with mlserver.load("model", executable=child) as scorer:
        assert scorer.features() == ["b", "a_c"]
        found = scorer.predict({"a c": [1.0], "other": [object()], "b": [2.0]})
        assert list(found.items()) == [("b", [4.0]), ("a_c", [2.0])]
        assert scorer.predict({"x": [1.0], "y": [3.0]}, columns=["y", "x"]) == {"b": [6.0], "a_c": [2.0]}
        with pytest.raises(InferenceError) as raised:
            scorer.predict({"b": [1.0], "x": [1.0]})
        assert str(raised.value) == (
            "the data lacks the column `a_c` that the model expects; it has `b`, `x`. Rename them, or name the columns of the"
            " features in their order with `columns`"
        )
        with pytest.raises(InferenceError, match="there are 1 columns, but the model expects 2: `b`, `a_c`"):
            scorer.predict({"x": [1.0]}, columns=["x"])
        assert scorer.schema() == [OutputSchema("b", "FP64", (-1, 1)), OutputSchema("a_c", "FP64", (-1, 1))]


def test_columns_that_the_model_does_not_read_may_be_missing(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = {"features": ["a", "b", "c"], "unread_features": ["b"]}
    monkeypatch.setenv("SCORING_CHILD", json.dumps({"loaded": loaded}))
    with mlserver.load("model", executable=child) as scorer:
        assert scorer.predict({"c": [1.0], "a": [2.0]}) == {"a": [4.0], "c": [2.0]}
        assert scorer.predict({"c": [1.0], "b": [3.0], "a": [2.0]}) == {"a": [4.0], "b": [6.0], "c": [2.0]}
        assert scorer.chosen_columns(["x", "c", "a"]) == ["a", "c"]
        with pytest.raises(InferenceError, match="the data lacks the column `a` that the model expects"):
            scorer.predict({"b": [1.0], "c": [1.0]})
        with pytest.raises(InferenceError, match="there are 2 columns, but the model expects 3"):
            scorer.predict({"a": [1.0], "c": [1.0]}, columns=["a", "c"])


FRAME_COLUMNS = ("one", "two", "three", "four", "five")

MLFLOW_MODEL = """flavors:
  python_function:
    loader_module: mlflow.sklearn
    model_path: model.pkl
    predict_fn: predict
    python_version: 3.11.7
  sklearn:
    code: null
    pickled_model: model.pkl
    serialization_format: cloudpickle
    sklearn_version: 1.5.2
mlflow_version: 3.12.0
"""


def frame_pipeline() -> bytes:
    """Returns a pipeline that reads the columns `one`, `two` and `four` of `FRAME_COLUMNS`, and drops the others."""
    archive = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/sklearn/1.5.2.tar.gz"
    with tarfile.open(archive) as file:
        content = file.extractfile("compose/frame_names.joblib")
        assert content is not None
        return content.read()


def frame() -> Dict[str, List[float]]:
    random = Random(3)
    return {name: [random.gauss(1, 2) for _ in range(50)] for name in FRAME_COLUMNS}


@needs_executable
@pytest.mark.parametrize("is_mlflow", [False, True])
def test_columns_that_a_pipeline_drops_may_be_missing(tmp_path: pathlib.Path, is_mlflow: bool) -> None:
    location = tmp_path / ("model.pkl" if is_mlflow else "m.joblib")
    location.write_bytes(frame_pipeline())
    if is_mlflow:
        (tmp_path / "MLmodel").write_text(MLFLOW_MODEL)
        location = tmp_path / "MLmodel"
    columns = frame()
    with mlserver.load(location, executable=BINARY) as scorer:
        assert scorer.features() == list(FRAME_COLUMNS)
        wanted = scorer.predict(columns)
        assert len(set(next(iter(wanted.values())))) > 1
        read = {name: columns[name] for name in ("four", "two", "one")}
        assert scorer.predict({"another": [object()] * 50, **read}) == wanted
        with pytest.raises(InferenceError, match="the data lacks the column `two` that the model expects"):
            scorer.predict({name: columns[name] for name in ("one", "three", "four", "five")})


@needs_executable
def test_models_of_mlflow_need_all_columns_of_their_signature(tmp_path: pathlib.Path) -> None:
    inputs = json.dumps([{"type": "double", "name": name, "required": True} for name in FRAME_COLUMNS])
    (tmp_path / "model.pkl").write_bytes(frame_pipeline())
    (tmp_path / "MLmodel").write_text(f"{MLFLOW_MODEL}signature:\n  inputs: '{inputs}'\n  outputs: null\n  params: null\n")
    columns = frame()
    with mlserver.load(tmp_path / "MLmodel", executable=BINARY) as scorer:
        assert scorer.predict(dict(reversed(columns.items()))) == scorer.predict(columns)
        with pytest.raises(InferenceError, match="the data lacks the column `three` that the model expects"):
            scorer.predict({name: columns[name] for name in ("one", "two", "four", "five")})


def test_schema_needs_columns_if_the_model_declares_none(scorer: Scorer) -> None:
    with pytest.raises(InferenceError, match="the model does not declare its inputs"):
        scorer.schema()
    assert scorer.schema({"a": "FP64", "t": "BYTES"}) == [
        OutputSchema("a", "FP64", (-1, 1)),
        OutputSchema("t", "BYTES", (-1, 1)),
    ]


@pytest.mark.needs("numpy")
def test_numpy_arrays_become_arrays(scorer: Scorer) -> None:
    import numpy as np

    for values in (np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(2, 3).T, np.arange(6.0)[::2], np.zeros((0, 2))):
        found = scorer.predict(values)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, 2 * values)
    column = scorer.predict(np.arange(3.0).reshape(3, 1))
    assert column.shape == (3,)
    found = scorer.predict({"a": np.arange(3.0), "s": np.arange(3, dtype=">i2"), "t": np.array(["x", "y", "ä"])})
    assert found["a"].tolist() == [0.0, 2.0, 4.0]
    assert (found["s"].dtype, found["s"].tolist()) == (np.int32, [0, 1, 2])
    assert found["t"].tolist() == ["x", "y", "ä"]
    tensors = scorer.predict({"x": np.ones((2, 3, 4)), "n": np.ones(2, np.float16)})
    assert tensors["x"].shape == (2, 3, 4)
    assert (tensors["n"].dtype, tensors["n"].shape) == (np.float16, (2,))
    masked = np.ma.MaskedArray([1, 2], [False, True])
    assert np.array_equal(scorer.predict({"m": masked})["m"], [2.0, np.nan], equal_nan=True)
    with pytest.raises(InferenceError, match=r"column `d` is datetime64\[s\], which models do not take"):
        scorer.predict({"d": np.zeros(1, "datetime64[s]")})


@pytest.mark.needs("pandas")
def test_pandas_frames_become_frames(scorer: Scorer) -> None:
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame(
        {
            "f": [1.5, None],
            "i": pd.array([1, None], "Int64"),
            "o": ["x", None],
            "s": pd.array(["y", None], "string"),
            "c": pd.Categorical(["u", None]),
            "n": pd.Categorical([7, None]),
            "b": pd.array([True, False], "boolean"),
        },
        index=["first", "second"],
    )
    found = scorer.predict(frame)
    assert isinstance(found, pd.DataFrame)
    assert found.index.tolist() == ["first", "second"]
    assert found.iloc[0].tolist() == [3.0, 2.0, "x", "y", "u", 14.0, True]
    assert found.iloc[1].tolist()[2:5] == ["", "", ""]
    assert np.isnan(found.iloc[1, [0, 1, 5]].tolist()).all()
    wide = scorer.predict({"x": np.ones((2, 2))})
    assert wide["x"].shape == (2, 2)
    with pytest.raises(InferenceError, match=r"column `d` is datetime64"):
        scorer.predict(pd.DataFrame({"d": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(InferenceError, match="there are two columns `a`"):
        scorer.predict(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))


@pytest.mark.needs("pandas")
def test_columns_of_frames_are_found_by_any_label(scorer: Scorer) -> None:
    import pandas as pd

    frame = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=[7, "b", ("c", 1), True])
    assert scorer.predict(frame).to_dict("list") == {"7": [2.0], "b": [4.0], "('c', 1)": [6.0], "True": [8.0]}
    levels = pd.DataFrame([[1.0, 2.0]], columns=pd.MultiIndex.from_tuples([("x", "y"), ("x", "z")]))
    assert scorer.predict(levels).to_dict("list") == {"('x', 'y')": [2.0], "('x', 'z')": [4.0]}
    with pytest.raises(InferenceError, match="there are two columns `1`"):
        scorer.predict(pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]))


@pytest.mark.needs("pandas")
def test_frames_are_not_searched_by_place(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    # A series by its place takes pandas several times as long.
    monkeypatch.setattr(pd.DataFrame, "iloc", property(lambda _: pytest.fail("a column was looked up by its place")))
    frame = pd.DataFrame({f"c{place}": [float(place)] for place in range(28)})
    assert scorer.predict(frame)["c27"].tolist() == [54.0]


@pytest.mark.needs("pyarrow")
def test_arrow_tables_become_tables(scorer: Scorer) -> None:
    import pyarrow as pa

    table = pa.table(
        {
            "f": pa.array([1.5, None, 2.5]),
            "i": pa.array([None, 1, 2], pa.int32()),
            "h": pa.array([1, 2, 3], pa.int8()),
            "t": pa.array(["x", None, "äöü"]),
            "l": pa.array(["x", "y", "z"], pa.large_string()),
            "w": pa.array([b"x", None, b"\x00"], pa.large_binary()),
            "d": pa.array(["u", "v", None]).dictionary_encode(),
            "b": pa.array([True, False, True]),
            "e": pa.nulls(3),
        }
    )
    found = scorer.predict(table)
    assert isinstance(found, pa.Table)
    rows = found.to_pydict()
    assert rows["t"] == ["x", "", "äöü"]
    assert rows["w"] == ["x", "", "\x00"]
    assert (rows["l"], rows["d"], rows["b"]) == (["x", "y", "z"], ["u", "v", ""], [True, False, True])
    assert (found.schema.field("h").type, rows["h"]) == (pa.int32(), [1, 2, 3])
    assert (rows["f"][0], rows["i"][1:], rows["f"][2]) == (3.0, [2.0, 4.0], 5.0)
    assert all(math.isnan(number) for number in [rows["f"][1], rows["i"][0], *rows["e"]])
    # Slices and chunks have offsets.
    chunked = pa.concat_tables([table.slice(2), table.slice(0, 1), table.slice(1, 1)]).slice(1)
    assert scorer.predict(chunked).to_pydict()["t"] == ["x", ""]
    batch = scorer.predict(table.slice(1).to_batches()[0])
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pydict()["d"] == ["v", ""]
    assert scorer.predict(table.slice(0, 0)).num_rows == 0
    lists = scorer.predict(pa.table({"x": pa.array([[1.0, 2.0], [3.0, 4.0]])}))
    assert lists.to_pydict() == {"x": [[2.0, 4.0], [6.0, 8.0]]}


@pytest.mark.needs("pyarrow")
def test_one_column_of_lists_has_all_features(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import pyarrow as pa

    monkeypatch.setenv("SCORING_CHILD", json.dumps({"loaded": {"features": ["a", "b", "c"]}}))
    lists = pa.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with mlserver.load("model", executable=child) as scorer:
        assert scorer.chosen_columns(["id", "v"], ["v"], ["v"]) == ["v"]
        found = scorer.predict(pa.table({"id": ["x", "y"], "v": lists}), columns=["v"])
        assert found.to_pydict() == {"v": [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]}
        assert scorer.predict({"v": np.ones((2, 3))})["v"].tolist() == [[2.0] * 3] * 2
        assert scorer.schema({"v": "FP64[]"}, ["v"]) == [OutputSchema("v", "FP64", (-1, 3))]
        assert scorer.schema({"v": "FP32[5]"}, ["v"])[0].shape == (-1, 5)
        with pytest.raises(InferenceError, match="there are 1 columns, but the model expects 3"):
            scorer.predict({"v": [1.0]}, columns=["v"])
    monkeypatch.setenv("SCORING_CHILD", json.dumps({"loaded": {"features": []}}))
    message = "column `v` has lists, and the model does not declare how many"
    with mlserver.load("other", executable=child) as scorer, pytest.raises(InferenceError, match=message):
        scorer.schema({"v": "FP64[]"}, ["v"])


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1], lambda pa: pa.decimal128(5, 2), "column `c` is decimal128(5, 2), which models do not take"),
        ([1], lambda pa: pa.date32(), "column `c` is date32[day], which models do not take"),
        (
            [None, (1 << 53) + 1, 1 << 53],
            lambda pa: pa.int64(),
            "row 1: column `c`: `9007199254740993` would lose digits",
        ),
        ([True, None], lambda pa: pa.bool_(), "row 1: column `c`: a missing value is not a valid BOOL"),
        ([[1.0], [1.0, 2.0]], lambda pa: pa.list_(pa.float64()), "column `c` has lists that are from 1 to 2 long"),
    ],
)
def test_arrow_columns_without_datatype_are_rejected(scorer: Scorer, values: Any, kind: Any, message: str) -> None:
    import pyarrow as pa

    with pytest.raises(InferenceError) as raised:
        scorer.predict(pa.table({"c": pa.array(values, kind(pa))}))
    assert str(raised.value).startswith(message)


@pytest.mark.needs("pyarrow")
def test_failed_rows_are_null_and_have_their_reason(scorer: Scorer) -> None:
    import pyarrow as pa

    numbers: List[Any] = [float(row % 100) for row in range(1000)]
    numbers[7] = numbers[500] = numbers[999] = 101.0
    large: List[Any] = [1] * 1000
    large[3], large[4] = None, (1 << 53) + 1
    table = pa.table({"raise": numbers, "n": pa.array(large, pa.int64()), "t": [str(row) for row in range(1000)]})
    arrays, failed = scorer.score_arrow(table, batch_bytes=2000)
    assert sorted(failed) == [4, 7, 500, 999]
    assert failed[7] == "a number exceeds 100"
    assert failed[4].startswith("column `n`: `9007199254740993` would lose digits")
    wanted = [None if row in failed else 2 * number for row, number in enumerate(numbers)]
    assert arrays["raise"].to_pylist() == wanted
    assert arrays["t"].to_pylist() == [None if row in failed else str(row) for row in range(1000)]
    arrays, failed = scorer.score_arrow(pa.table({"raise": [101.0, 102.0]}))
    assert (arrays, sorted(failed)) == ({}, [0, 1])


@needs_executable
@pytest.mark.parametrize("name", ["iris-xgboost", "breast-cancer-lightgbm"])
def test_predictions_equal_those_of_infer(tmp_path: pathlib.Path, name: str) -> None:
    names = [f"c{place}" for place in range(4)]
    if "lightgbm" in name:
        text = (QUICKSTART / name / "model.bst").read_text()
        names = text.partition("\nfeature_names=")[2].partition("\n")[0].split()
    random = Random(7)
    values = [None, *(random.uniform(0, 30) for _ in range(50)), 1.0, 2.0]
    rows = [[random.choice(values) for _ in names] for _ in range(500)]
    lines = [",".join("" if value is None else repr(value) for value in row) for row in rows]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    command = [BINARY, "infer", "--embedded", QUICKSTART / name, "-i", "rows.csv", "-o", "answers.jsonl", "--quiet"]
    subprocess.run([str(part) for part in command], cwd=tmp_path, check=True)
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    wanted = [answer["outputs"][0]["data"][0] for answer in answers]
    columns = {each: [row[place] for row in rows] for place, each in enumerate(names)}
    with mlserver.load(QUICKSTART / name, executable=BINARY) as scorer:
        assert scorer.predict(columns, columns=names)["predict"] == wanted
        assert [each.name for each in scorer.schema()] == ["predict"]


@needs_executable
def test_model_that_cannot_be_loaded_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ScoringError, match=f"no model found in `{tmp_path}`"):
        mlserver.load(tmp_path, executable=BINARY).predict({"a": [1.0]})
