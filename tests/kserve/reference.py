"""KServe's own server with the same models. Arguments: the port of HTTP and that of gRPC."""

import sys

from kserve import ModelServer
from models import MODELS

if __name__ == "__main__":
    loaded = []
    for name, cls in MODELS.items():
        model = cls(name)
        model.load()
        loaded.append(model)
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1).start(loaded)
