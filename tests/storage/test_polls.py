"""`repository_poll_interval`: changed, new and deleted models of folders and stores."""

import json
import os
import shutil
import threading
import time

import pytest
from conftest import wait_until
from test_repositories import fill, predict, ready, settings, states, write_model
from test_serving import MODEL, serving, write_settings

FAST = {"MLSERVER_REPOSITORY_POLL_INTERVAL": "0.1"}
PAIR = (
    "from pathlib import Path\n"
    "from mlserver import MLModel\n"
    "from mlserver.codecs import StringCodec\n"
    "from mlserver.types import InferenceResponse\n\n\n"
    "class Model(MLModel):\n"
    "    async def load(self):\n"
    "        folder = Path(__file__).parent\n"
    "        self.pair = [(folder / name).read_text() for name in ('a.txt', 'b.txt')]\n"
    "        return True\n\n"
    "    async def predict(self, payload):\n"
    "        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output('a', self.pair)])\n"
)


def variants():
    """Two models with other answers: each class of the second is the next one of the first."""
    model = json.loads(MODEL.read_bytes())
    trees = model["learner"]["gradient_booster"]["model"]
    trees["tree_info"] = [(label + 1) % 3 for label in trees["tree_info"]]
    return MODEL.read_bytes(), json.dumps(model).encode()


def replace(path, data):
    path.with_name(".next").write_bytes(data)
    path.with_name(".next").replace(path)


class Load:
    """Clients that ask a model without a pause, and keep all answers and errors."""

    def __init__(self, server, name, clients=3):
        self.answers, self.errors, self.count = set(), [], 0
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(server, name)) for _ in range(clients)]

    def run(self, server, name):
        while not self.stopped.is_set():
            try:
                self.answers.add(tuple(predict(server, name)))
                self.count += 1
            except OSError as error:
                self.errors.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def switch(server, put, switches):
    """Switches between two models under load. No request may fail, and each answer is of one of them."""
    first, second = variants()
    before = predict(server, "iris")
    expected = [before, [(before[0] + 1) % 3]]
    with Load(server, "iris") as load:
        for number in range(1, switches + 1):
            put([first, second][number % 2])
            wait_until(lambda answer=expected[number % 2]: predict(server, "iris") == answer, f"switch {number}")
    assert load.errors == []
    assert load.answers == {tuple(answer) for answer in expected} and load.count > switches


def test_changed_models_of_folders_are_switched_under_load(tmp_path):
    folder = tmp_path / "models" / "iris"
    write_model(folder)
    with serving(tmp_path / "models", **FAST) as server:
        ready(server, "iris")
        switch(server, lambda data: replace(folder / "model.json", data), 100)


@pytest.mark.parametrize("place", ["repository", "uri"])
def test_changed_models_of_stores_are_switched_under_load(s3, prefix, tmp_path, cache, place):
    fill(s3, prefix)
    target = s3.uri(prefix)
    if place == "uri":
        (tmp_path / "models").mkdir()
        write_settings(tmp_path / "models" / "iris", s3.uri(f"{prefix}/iris/model.json"))
        target = tmp_path / "models"
    with serving(target, tmp_path, **FAST, **s3.variables(), **cache) as server:
        ready(server, "iris")
        switch(server, lambda data: s3.put(f"{prefix}/iris/model.json", data), 10)


def test_new_models_are_loaded_and_deleted_ones_unloaded(tmp_path):
    folder = tmp_path / "models"
    iris, new = folder / "iris", folder / "new"
    write_model(iris)
    write_model(tmp_path / "later", "new")
    with serving(folder, **FAST) as server:
        ready(server, "iris")
        (tmp_path / "later").rename(new)
        ready(server, "new")
        server.call("/v2/repository/models/iris/unload", {})
        shutil.rmtree(new)
        wait_until(lambda: "new" not in states(server), "the unload of a deleted model")
        assert "Model 'new' is no longer in the repository, so it is unloaded" in server.log.read_text()
        # What was unloaded by request stays so, also when it changes.
        os.utime(iris / "model.json")
        time.sleep(0.5)
        assert states(server)["iris"] == "UNAVAILABLE"
        # A folder that is gone as a whole is not a folder without models.
        server.call("/v2/repository/models/iris/load", {})
        folder.rename(tmp_path / "elsewhere")
        wait_until(lambda: "Couldn't search the repository" in server.log.read_text(), "the warning")
        assert predict(server, "iris")


def test_deleted_models_of_stores_are_unloaded(s3, prefix, tmp_path, cache):
    fill(s3, prefix)
    with serving(s3.uri(prefix), tmp_path, **FAST, **s3.variables(), **cache) as server:
        ready(server, "iris", "second", "code")
        for name in ("model-settings.json", "model.json"):
            s3.client.delete_object(Bucket=s3.bucket, Key=f"{prefix}/iris/{name}")
        wait_until(lambda: "iris" not in states(server), "the unload of a deleted model")
        s3.put(f"{prefix}/new/model-settings.json", settings("new", uri="model.json"))
        s3.put(f"{prefix}/new/model.json", MODEL.read_bytes())
        ready(server, "new", "second")
        # A model outside of the folder of its settings counts, too.
        before = predict(server, "second")
        s3.put(f"{prefix}/shared/trees/iris.json", variants()[1])
        wait_until(lambda: predict(server, "second") == [(before[0] + 1) % 3], "the change of a shared file")


def test_half_written_models_are_not_served(tmp_path):
    folder = tmp_path / "models"
    pair = folder / "pair"
    pair.mkdir(parents=True)
    (pair / "model-settings.json").write_bytes(settings("pair", "model.Model"))
    (pair / "model.py").write_text(PAIR)
    for name in ("a.txt", "b.txt"):
        (pair / name).write_text("0")
    with serving(folder, **FAST) as server:
        ready(server, "pair")
        with Load(server, "pair", clients=2) as load:
            for number in range(1, 16):
                (pair / "a.txt").write_text(str(number))
                time.sleep(0.01 * (number % 8))
                (pair / "b.txt").write_text(str(number))
                wait_until(lambda text=str(number): predict(server, "pair") == [text, text], f"state {number}")
        assert load.errors == []
        assert all(first == second for first, second in load.answers)


def test_failed_loads_keep_the_old_model_and_wait_for_a_change(tmp_path):
    folder = tmp_path / "models" / "iris"
    write_model(folder)
    with serving(tmp_path / "models", **FAST) as server:
        ready(server, "iris")
        before = predict(server, "iris")

        def failures():
            return server.log.read_text().count("Couldn't load model 'iris'")

        replace(folder / "model.json", MODEL.read_bytes()[:5000])
        wait_until(failures, "the failure")
        time.sleep(0.5)
        assert failures() == 1 and predict(server, "iris") == before
        assert "The previous version keeps serving." in server.log.read_text()
        (folder / "model-settings.json").write_text("{")
        wait_until(lambda: failures() == 2, "the failure of the settings")
        write_settings(folder, "./model.json")
        replace(folder / "model.json", variants()[1])
        wait_until(lambda: predict(server, "iris") == [(before[0] + 1) % 3], "the repaired model")
