"""A model that reads the headers of requests, and sets headers of responses."""

from typing import Dict

from kserve import Model


class Headers(Model):
    """Returns headers of the request."""

    def __init__(self, name: str):
        super().__init__(name, return_response_headers=True)
        self.ready = True

    def preprocess(self, payload: Dict, headers: Dict[str, str] = None) -> Dict:
        return {"instances": [headers.get(name) for name in payload["instances"]]}

    def predict(self, payload: Dict, headers: Dict[str, str] = None, response_headers: Dict[str, str] = None) -> Dict:
        response_headers.update({"x-model": self.name, "x-count": str(len(payload["instances"]))})
        return {"predictions": payload["instances"]}

    def postprocess(
        self, result: Dict, headers: Dict[str, str] = None, response_headers: Dict[str, str] = None
    ) -> Dict:
        response_headers["x-steps"] = "all"
        return result
