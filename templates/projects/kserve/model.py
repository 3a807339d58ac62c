"""A model of KServe: `load` runs once, `predict` for each request."""

import json
from pathlib import Path

from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InvalidInput


class Line(Model):
    """Returns `slope * x + intercept`."""

    def load(self):
        line = json.loads((Path(__file__).parent / "line.json").read_text())
        self.slope, self.intercept = line["slope"], line["intercept"]
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None):
        if not isinstance(payload, InferRequest):
            return {"predictions": self.values(payload["instances"])}
        x = payload.get_input_by_name("x")
        if x is None:
            raise InvalidInput("expected an input `x`")
        y = self.values(x.data)
        return InferResponse(payload.id, self.name, [InferOutput("y", [len(y)], "FP64", y)])

    def values(self, xs):
        return [self.slope * x + self.intercept for x in xs]
