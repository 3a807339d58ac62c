"""Models that print, log, fork, start programs and crash. The id of a request names what they do."""

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings

from mlserver import MLModel
from mlserver.types import InferenceResponse

library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())
library.setLevel(logging.INFO)

separate = logging.getLogger("separate")
separate.addHandler(logging.StreamHandler())
separate.setLevel(logging.INFO)
separate.propagate = False


def print_json():
    print(json.dumps({"a": [1, 2]}, indent=1))


def print_long():
    print("\n".join(f"line {number}" for number in range(20_000)))


def print_wide():
    print("ä\x01" * 50_000)


def warn():
    warnings.warn("careful", stacklevel=1)


def log_twice():
    library.warning("only once")
    separate.warning("not propagated")


def unfinished_thread():
    thread = threading.Thread(target=lambda: print("from a thread", end=""))
    thread.start()
    thread.join()


def unfinished():
    print("at the end", end="")


def flush():
    print("flushed", end="", flush=True)


def progress():
    for number in range(100):
        sys.stderr.write(f"\r{number}%")
        sys.stderr.flush()
    sys.stderr.write("\n")


def stream():
    out = sys.stdout
    out.reconfigure(line_buffering=True, encoding="utf-8")
    print(out.name, out.mode, out.line_buffering, sys.stderr.name)


def terminate_program():
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    print(f"ended with {program.wait(10)}")


def terminate_process():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(10)
    print(f"ended with {process.exitcode}")


def fork_while_another_thread_writes():
    """Forks while one thread holds the lock of the stream, and another one has an unfinished line."""
    from mlserver._worker.output import _locks

    stop, held, begun = threading.Event(), threading.Event(), threading.Event()

    def hold():
        begun.wait()
        with _locks[1]:
            held.set()
            stop.wait()

    def begin():
        print("unfinished", end="")
        begun.set()
        stop.wait()

    threads = [threading.Thread(target=hold), threading.Thread(target=begin)]
    for thread in threads:
        thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        print("child")
        os._exit(0)
    end = time.monotonic() + 5
    while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < end:
        time.sleep(0.001)
    if not ended:
        os.kill(child, 9)
        os.waitpid(child, 0)
    stop.set()
    for thread in threads:
        thread.join()
    print("the child printed" if ended else "the child hung")


def fork_while_others_print():
    stop = threading.Event()

    def chatter():
        while not stop.is_set():
            print("chatter")

    threads = [threading.Thread(target=chatter) for _ in range(3)]
    for thread in threads:
        thread.start()
    stuck = 0
    for _ in range(12):
        child = os.fork()
        if child == 0:
            print("child")
            sys.stderr.write("child\n")
            os._exit(0)
        end = time.monotonic() + 5
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                stuck += 1
                os.kill(child, 9)
                os.waitpid(child, 0)
                break
            time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{stuck} children hung")


def fork_and_return():
    """The child returns into the worker, which must not answer the call a second time."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)


def hang():
    time.sleep(60)


class Noisy(MLModel):
    async def predict(self, payload):
        globals()[payload.id]()
        return InferenceResponse(model_name="m", outputs=[])


class PlainNoisy(MLModel):
    def predict(self, payload):
        globals()[payload.id]()
        return InferenceResponse(model_name="m", outputs=[])
