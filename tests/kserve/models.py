"""Models of KServe, as users write them. Both servers serve this file, unchanged."""

import asyncio
from typing import Dict

import joblib
import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InvalidInput
from kserve.utils.utils import generate_uuid, get_predict_input, get_predict_response


class Classifier(Model):
    """A scikit-learn model, served as KServe's own server for scikit-learn does."""

    def __init__(self, name: str, path: str = "iris.joblib"):
        super().__init__(name)
        self.path = path

    def load(self) -> bool:
        self.model = joblib.load(self.path)
        self.ready = True
        return self.ready

    def predict(self, payload, headers: Dict[str, str] = None):
        rows = get_predict_input(payload)
        return get_predict_response(payload, self.model.predict(rows), self.name)


class Echo(Model):
    """Returns its inputs, in both protocols."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    def predict(self, payload, headers=None, response_headers=None):
        if isinstance(payload, InferRequest):
            outputs = []
            for tensor in payload.inputs:
                output = InferOutput(tensor.name, tensor.shape, tensor.datatype, parameters={"content_type": "np"})
                output.set_data_from_numpy(tensor.as_numpy(), binary_data=payload.use_binary_outputs)
                outputs.append(output)
            return InferResponse(
                payload.id or generate_uuid(), self.name, outputs, use_binary_outputs=payload.use_binary_outputs
            )
        return {"predictions": payload["instances"] if "instances" in payload else payload["inputs"]}


class Steps(Model):
    """Has all steps, some of them coroutines."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    async def preprocess(self, payload, headers: Dict[str, str] = None):
        await asyncio.sleep(0)
        if isinstance(payload, InferRequest):
            return payload
        return {"instances": [[value + 1 for value in row] for row in payload["instances"]]}

    def predict(self, payload, headers: Dict[str, str] = None):
        if isinstance(payload, InferRequest):
            values = payload.inputs[0].as_numpy().astype(np.float64) * 2
            output = InferOutput("doubled", list(values.shape), "FP64", data=values.flatten().tolist())
            return InferResponse(payload.id or "none", self.name, [output], parameters={"seen": len(payload.inputs)})
        return {"predictions": [[value * 2 for value in row] for row in payload["instances"]]}

    async def postprocess(self, result, headers: Dict[str, str] = None, response_headers: Dict[str, str] = None):
        if isinstance(result, dict):
            result["by"] = self.name
        return result

    def explain(self, payload, headers: Dict[str, str] = None):
        return {"explanations": [sum(row) for row in payload["instances"]]}


class Troubled(Model):
    """Fails as it is asked to."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    def predict(self, payload, headers: Dict[str, str] = None):
        action = payload["instances"][0]
        if action == "invalid":
            raise InvalidInput("the value is not valid")
        if action == "divide":
            return 1 / 0
        if action == "later":
            raise NotImplementedError("not yet")
        if action == "array":
            return {"predictions": np.array([[1.5, 2.0], [3.0, 4.0]])}
        if action == "nan":
            return {"predictions": [float("nan"), 1.0]}
        return {"predictions": [headers["user-agent"] != "", action]}


class Late(Model):
    """Is never ready."""

    def load(self) -> bool:
        return False


MODELS = {"iris": Classifier, "echo": Echo, "steps": Steps, "troubled": Troubled}
