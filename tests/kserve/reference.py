"""KServe's own server with the same models. It takes the options of KServe, such as `--http_port`."""

from kserve import ModelServer
from models import MODELS

if __name__ == "__main__":
    loaded = []
    for name, cls in MODELS.items():
        model = cls(name)
        model.load()
        loaded.append(model)
    ModelServer(workers=1).start(loaded)
