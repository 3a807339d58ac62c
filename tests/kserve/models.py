"""Models of KServe, as users write them. Both servers serve this file, unchanged."""

import asyncio
import json
from typing import Dict

import joblib
import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InferenceError, InvalidInput, ModelNotFound, UnsupportedProtocol
from kserve.model import InferenceVerb
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


class Fields(Model):
    """Answers with the fields of its request, or fails as it is asked to."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    async def predict(self, payload, headers: Dict[str, str] = None):
        action = payload.inputs[0].data[0]
        action = action.decode() if isinstance(action, bytes) else action
        error = ERRORS.get(action)
        if error is not None:
            raise error("the reason")
        outputs = [{"name": "o", "shape": [1], "datatype": "INT64", "data": [1], "parameters": {"b": True}}]
        if action == "dictionary":
            fields = {"model_name": "another", "model_version": "3", "parameters": {"a": 1}}
            return {"id": payload.id, **fields, "outputs": outputs}
        if action == "named":
            output = InferOutput("o", [1], "INT64", [1], {"k": 1})
            return InferResponse(payload.id, "another", [output], model_version="9", parameters={"p": "q"})
        parameters = payload.parameters
        if payload.from_grpc:
            parameters = {name: [value.WhichOneof("parameter_choice"), str(value)] for name, value in parameters.items()}
        seen = {
            "from_grpc": payload.from_grpc,
            "model_name": payload.model_name,
            "parameters": parameters,
            "input": payload.inputs[0].parameters,
            "outputs": [[output.name, output.parameters or {}] for output in payload.request_outputs],
        }
        return InferResponse(payload.id, self.name, [InferOutput("o", [1], "BYTES", [json.dumps(seen, sort_keys=True)])])


ERRORS = {
    "invalid": InvalidInput,
    "not found": ModelNotFound,
    "failed": InferenceError,
    "unsupported": UnsupportedProtocol,
    "value": ValueError,
}


class OwnCall(Model):
    """Overrides what runs the steps."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    async def __call__(self, body, headers=None, verb=InferenceVerb.PREDICT):
        if isinstance(body, dict):
            return {"predictions": [verb.name, len(body["instances"])]}, {}
        output = InferOutput("o", [1], "INT64", [len(body.inputs)])
        return InferResponse(body.id, self.name, [output]), {}


class Late(Model):
    """Is never ready."""

    def load(self) -> bool:
        return False


MODELS = {"iris": Classifier, "echo": Echo, "steps": Steps, "troubled": Troubled, "fields": Fields, "own_call": OwnCall}
