"""A deployment with a replica for each core, in the mode for high throughput that "Performance Tuning" describes."""

import signal
import sys
import threading

import ray
from predictors import LOADERS, PROCESSES
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=PROCESSES, max_ongoing_requests=100, ray_actor_options={"num_cpus": 0.5})
class Models:
    """All three models, by the path of the request."""

    def __init__(self):
        self.models = {f"/{name}": load() for name, load in LOADERS.items()}

    async def __call__(self, request: Request):
        """Predicts the rows of a request."""
        body = await request.json()
        return {"predictions": self.models[request.url.path](body["rows"]).tolist()}


if __name__ == "__main__":
    ray.init(include_dashboard=False, num_cpus=4, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Models.bind(), name="field", route_prefix="/")
    print("running", flush=True)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    serve.shutdown()
    ray.shutdown()
