"""A custom model that classifies images, as in KServe's documentation, with a small network in place of AlexNet."""

import base64
import io
from typing import Dict, Union

import numpy as np
from kserve import InferRequest, InferResponse, Model
from kserve.utils.utils import get_predict_response
from PIL import Image


class AlexNet(Model):
    """Classifies images."""

    def __init__(self, name: str):
        super().__init__(name)
        self.weights = None
        self.ready = False
        self.load()

    def load(self):
        self.weights = np.random.default_rng(7).normal(size=(8 * 8 * 3, 10))
        self.ready = True

    def pixels(self, content: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(content)).convert("RGB").resize((8, 8), Image.Resampling.NEAREST)
        return np.asarray(image, np.float64).ravel() / 255

    def predict(self, payload: Union[Dict, InferRequest], headers: Dict[str, str] = None) -> Union[Dict, InferResponse]:
        if isinstance(payload, InferRequest):
            contents = payload.inputs[0].as_numpy().ravel().tolist()
        else:
            contents = [base64.b64decode(instance["image"]["b64"]) for instance in payload["instances"]]
        scores = np.stack([self.pixels(content) for content in contents]) @ self.weights
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = scores / scores.sum(axis=1, keepdims=True)
        if isinstance(payload, InferRequest):
            return get_predict_response(payload, probabilities, self.name)
        best = np.argsort(-probabilities, axis=1)[:, :5]
        return {
            "predictions": [
                [[int(label), float(row[label])] for label in labels] for labels, row in zip(best, probabilities)
            ]
        }
