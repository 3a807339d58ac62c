"""One `LitAPI` for each model, with dynamic batching ("Batching") and a worker for each core ("Autoscaling")."""

import sys

import litserve
import numpy
from predictors import LOADERS, PROCESSES, split


class Model(litserve.LitAPI):
    """Predicts rows."""

    def __init__(self, model, **options):
        self.model_name = model
        super().__init__(api_path=f"/{model}", **options)

    def setup(self, device):
        """Loads the model."""
        self.model = LOADERS[self.model_name]()

    def decode_request(self, request):
        """Reads the rows of a request."""
        return numpy.asarray(request["rows"], numpy.float64)

    def batch(self, inputs):
        """Joins the rows of several requests."""
        return numpy.concatenate(inputs), [len(one) for one in inputs]

    def predict(self, batch):
        """Predicts the rows of a batch."""
        rows, counts = batch
        return self.model(rows), counts

    def unbatch(self, output):
        """Cuts predictions into those of each request."""
        return split(*output)

    def encode_response(self, output):
        """Makes a list of an array."""
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    models = [Model(name, max_batch_size=16, batch_timeout=0.002) for name in LOADERS]
    server = litserve.LitServer(models, accelerator="cpu", workers_per_device=PROCESSES, fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
