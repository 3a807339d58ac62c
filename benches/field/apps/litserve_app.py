"""One `LitAPI` for each model, and a worker for each core ("Autoscaling").

Batches of 16 within 2 ms ("Batching") took more processor time for a request and gave no more throughput for these models.
"""

import sys

import litserve
import numpy
from predictors import LOADERS, PROCESSES


class Model(litserve.LitAPI):
    """Predicts rows."""

    def __init__(self, model):
        self.model_name = model
        super().__init__(api_path=f"/{model}")

    def setup(self, device):
        """Loads the model."""
        self.model = LOADERS[self.model_name]()

    def decode_request(self, request):
        """Reads the rows of a request."""
        return numpy.asarray(request["rows"], numpy.float64)

    def predict(self, rows):
        """Predicts the rows of a request."""
        return self.model(rows)

    def encode_response(self, output):
        """Makes a list of an array."""
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    models = [Model(name) for name in LOADERS]
    server = litserve.LitServer(models, accelerator="cpu", workers_per_device=PROCESSES, fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
