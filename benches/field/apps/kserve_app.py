"""Custom models of KServe, with a process for each core (`--workers`)."""

import sys

from kserve import Model, ModelServer
from kserve.utils.utils import get_predict_input, get_predict_response
from predictors import LOADERS, PROCESSES


class Field(Model):
    """Predicts rows, as KServe's own servers for scikit-learn and XGBoost do."""

    def load(self):
        """Loads the model."""
        self.model = LOADERS[self.name]()
        self.ready = True
        return self.ready

    async def predict(self, payload, headers=None, response_headers=None):
        """Predicts the rows of a request of V1."""
        return get_predict_response(payload, self.model(get_predict_input(payload)), self.name)


if __name__ == "__main__":
    models = [Field(name) for name in LOADERS]
    for model in models:
        model.load()
    port = int(sys.argv[1])
    ModelServer(http_port=port, workers=PROCESSES, enable_grpc=False, enable_latency_logging=False).start(models)
