"""A script that starts several models."""

import argparse

from alexnet import AlexNet
from frames import Frames
from headers import Headers
from kserve import ModelServer, model_server
from tensors import Tensors

parser = argparse.ArgumentParser(parents=[model_server.parser])
parser.add_argument("--alias", default="second")
args, _ = parser.parse_known_args()

if __name__ == "__main__":
    models = [AlexNet("alexnet"), AlexNet(args.alias), Frames("frames"), Headers("headers"), Tensors("tensors")]
    for model in models:
        if not model.ready:
            model.load()
    ModelServer().start(models)
