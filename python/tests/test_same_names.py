"""Two models of one worker whose folders have modules of the same names: each finds its own, however it imports."""

import json
import pathlib
from typing import Any, Dict

import pytest
from worker import ANSWER, LOAD, LOADED, PREDICT, Worker, frame

MODEL = '''
import concurrent.futures
import importlib
import multiprocessing
import pickle
import sys
import threading

import helper
from mlserver import MLModel
from mlserver.types import InferenceResponse


class Item:
    def __init__(self, who):
        self.who = who


def answer(text):
    import helper

    return f"{text} {helper.WHO}"


def made(_):
    return Item(helper.WHO)


def late():
    import extra

    return extra.WHO


def late_package():
    from package.part import WHO

    return WHO


def counted():
    import helper

    helper.count += 1
    return helper.count


def by_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def by_process(method, function, *arguments):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply_async(function, arguments).get(30)


CHECKS = {
    "at the top": lambda: helper.WHO,
    "in a function": lambda: answer("a"),
    "in a function, first of all": late,
    "of a package": late_package,
    "by name": lambda: importlib.import_module("helper").WHO,
    "of the class": lambda: sys.modules[Item.__module__].helper.WHO,
    "its class": lambda: sys.modules[Item.__module__].Item is Item,
    "a pickle": lambda: pickle.loads(pickle.dumps(Item(helper.WHO))).who,
    "the class of a pickle": lambda: type(pickle.loads(pickle.dumps(Item("")))) is Item,
    "a pickle on a thread": lambda: by_thread(lambda: type(pickle.loads(pickle.dumps(Item("")))) is Item),
    "a pickle of a function": lambda: pickle.loads(pickle.dumps(answer))("a"),
    "on a thread": lambda: by_thread(late),
    "on a thread of a pool": lambda: concurrent.futures.ThreadPoolExecutor(1).submit(late).result(30),
    "in a forked process": lambda: by_process("fork", answer, "a"),
    "in a new process": lambda: by_process("spawn", answer, "a"),
    "from a forked process": lambda: type(by_process("fork", made, 1)) is Item,
    "from a new process": lambda: by_process("spawn", made, 1).who,
    "its own state": counted,
}


class M(MLModel):
    async def load(self):
        from at_load import WHO

        self.at_load = WHO
        return True

    def predict(self, payload):
        found = {"at load": self.at_load}
        for name, check in CHECKS.items():
            try:
                found[name] = check()
            except BaseException as error:
                found[name] = repr(error)
        return InferenceResponse(model_name=self.name, outputs=[], parameters={"found": found})
'''


def folder(parent: pathlib.Path, who: str) -> pathlib.Path:
    found = parent / who
    (found / "package").mkdir(parents=True)
    (found / "models.py").write_text(MODEL)
    (found / "helper.py").write_text(f"WHO = {who!r}\ncount = 0\n")
    for name in ("extra", "at_load", "package/__init__", "package/part"):
        (found / f"{name}.py").write_text(f"WHO = {who!r}\n")
    (found / "json.py").write_text("raise ImportError('it is not the one of Python')\n")
    return found


def expected(who: str, count: int) -> Dict[str, Any]:
    answers = {"in a function", "a pickle of a function", "in a forked process", "in a new process"}
    same = {"its class", "the class of a pickle", "a pickle on a thread", "from a forked process"}
    checks = [line.split('"')[1] for line in MODEL.partition("CHECKS = {")[2].partition("\n}")[0].splitlines() if line]
    found: Dict[str, Any] = {name: f"a {who}" if name in answers else name in same or who for name in checks}
    return {**found, "at load": who, "its own state": count}


def load(worker: Worker, number: int, where: pathlib.Path) -> None:
    settings = {"name": where.name, "implementation": "models.M", "parameters": {}}
    worker.send(frame(LOAD, 256 * number, {"model": number, "settings": settings, "source": str(where / "x.json")}))
    loaded = worker.receive()
    assert loaded.kind == LOADED, loaded.head


def ask(worker: Worker, number: int) -> Any:
    worker.send(frame(PREDICT, 512, {"model": number, "id": "r", "inputs": []}))
    answer = worker.receive()
    assert answer.kind == ANSWER, answer.head
    return answer.head["parameters"]["found"]


@pytest.mark.parametrize("reverse", [False, True])
def test_each_folder_has_its_own_modules(reverse: bool, tmp_path: pathlib.Path) -> None:
    folders = {1: folder(tmp_path, "one"), 2: folder(tmp_path, "two")}
    with Worker() as worker:
        for number in (1, 2):
            load(worker, number, folders[number])
        for count in (1, 2):
            for number in sorted(folders, reverse=reverse):
                assert ask(worker, number) == expected(folders[number].name, count), json.dumps(count)
        # A reload sees a changed file, and disturbs no other folder.
        (folders[1] / "helper.py").write_text("WHO = 'changed'\ncount = 10\n")
        load(worker, 1, folders[1])
        assert ask(worker, 2) == expected("two", 3)
        assert ask(worker, 1)["a pickle"] == "changed"
