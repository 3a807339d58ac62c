"""A model that takes an `InferRequest` and returns an `InferResponse` with parameters and two outputs."""

from typing import Dict

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InvalidInput
from kserve.utils.utils import generate_uuid


class Tensors(Model):
    """Returns the length of vectors."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    def get_input_types(self):
        return [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]

    def get_output_types(self):
        return [{"name": "norm", "datatype": "FP32", "shape": [-1]}]

    def predict(self, payload: InferRequest, headers: Dict[str, str] = None) -> InferResponse:
        if not isinstance(payload, InferRequest):
            raise InvalidInput("this model takes requests of the V2 protocol")
        tensor = payload.get_input_by_name("x") or payload.inputs[0]
        values = tensor.as_numpy()
        if values.ndim != 2 or values.shape[1] != 2:
            raise InvalidInput(f"expected pairs, got {list(values.shape)}")
        norm = np.sqrt((values.astype(np.float32) ** 2).sum(axis=1))
        first = InferOutput("norm", list(norm.shape), "FP32", parameters={"unit": "cm"})
        first.set_data_from_numpy(norm, binary_data=False)
        second = InferOutput("label", [len(norm)], "BYTES")
        labels = np.array([b"far" if value > 5 else b"near" for value in norm], dtype=object)
        second.set_data_from_numpy(labels, binary_data=False)
        parameters = {"inputs": len(payload.inputs), "id": payload.id or "none"}
        return InferResponse(payload.id or generate_uuid(), self.name, [first, second], parameters=parameters)
