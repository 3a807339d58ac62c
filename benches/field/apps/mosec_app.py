"""One worker for each model and core, with dynamic batching, as mosec's README recommends."""

import numpy
from mosec import Runtime, Server, Worker
from predictors import LOADERS, PROCESSES, split


class Model(Worker):
    """Predicts the rows of a batch of requests."""

    model = ""

    def __init__(self):
        super().__init__()
        self.predict = LOADERS[self.model]()

    def forward(self, data):
        """Receives a list of requests, and returns a list of responses."""
        rows = [numpy.asarray(one["rows"], numpy.float64) for one in data]
        found = split(self.predict(numpy.concatenate(rows)), [len(one) for one in rows])
        return [{"predictions": one.tolist()} for one in found]


class XGBoost(Model):
    """The ensemble of trees."""

    model = "xgboost"


class Sklearn(Model):
    """The pipeline."""

    model = "sklearn"


class Echo(Model):
    """The echo."""

    model = "echo"


if __name__ == "__main__":
    server = Server()
    workers = {"xgboost": XGBoost, "sklearn": Sklearn, "echo": Echo}
    server.register_runtime(
        {
            f"/{name}": [Runtime(worker, num=PROCESSES, max_batch_size=16, max_wait_time=1, timeout=10)]
            for name, worker in workers.items()
        }
    )
    server.run()
