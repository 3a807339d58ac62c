"""Models behind Triton with its dynamic batcher ("Binding Model to Triton"), and an instance for each core."""

import sys

import numpy
from predictors import LOADERS, PROCESSES
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

TYPES = {
    "xgboost": (numpy.float32, Tensor(name="predict", dtype=numpy.float32, shape=(1,))),
    "sklearn": (numpy.float64, Tensor(name="predict", dtype=numpy.int64, shape=(1,))),
    "echo": (numpy.float64, Tensor(name="predict", dtype=numpy.float64, shape=(-1,))),
}


def function(name):
    """A function that predicts a batch."""
    model = LOADERS[name]()

    @batch
    def infer(x):
        found = model(x)
        return [found if found.ndim == 2 else found.reshape(-1, 1)]

    return infer


if __name__ == "__main__":
    port, grpc_port, metrics_port = (int(one) for one in sys.argv[1:4])
    config = TritonConfig(
        http_address="127.0.0.1", http_port=port, grpc_port=grpc_port, metrics_port=metrics_port, log_verbose=0
    )
    with Triton(config=config) as triton:
        for name, (dtype, output) in TYPES.items():
            triton.bind(
                model_name=name,
                infer_func=[function(name) for _ in range(PROCESSES)],
                inputs=[Tensor(name="x", dtype=dtype, shape=(20,))],
                outputs=[output],
                config=ModelConfig(max_batch_size=4096, batcher=DynamicBatcher(max_queue_delay_microseconds=100)),
            )
        triton.serve()
