"""Transformers and an explainer, whose predictor the options `--predictor_host` and `--predictor_protocol` name."""

import argparse
import base64
import io
from typing import Dict, Union

import numpy as np
from kserve import InferInput, InferRequest, InferResponse, Model, ModelServer, model_server
from kserve.utils.utils import get_predict_response
from PIL import Image


class Transformer(Model):
    """Sends rows to the predictor, in the form that its protocol needs."""

    def __init__(self, name: str, protocol: str):
        super().__init__(name)
        self.is_v1 = protocol == "v1"
        self.ready = True

    def request_of(self, rows: np.ndarray) -> Union[Dict, InferRequest]:
        if self.is_v1:
            return {"instances": rows.tolist()}
        tensor = InferInput("input-0", list(rows.shape), "FP64")
        tensor.set_data_from_numpy(rows, binary_data=True)
        return InferRequest(self.name, [tensor])

    def labels_of(self, result: Union[Dict, InferResponse]) -> list:
        if isinstance(result, InferResponse):
            return result.outputs[0].as_numpy().ravel().tolist()
        return result["predictions"]


class ImageTransformer(Transformer):
    """Turns images into rows of pixels, as the transformer for images in KServe's documentation."""

    def preprocess(self, payload: Union[Dict, InferRequest], headers: Dict[str, str] = None):
        if isinstance(payload, InferRequest):
            contents = payload.inputs[0].as_numpy().ravel().tolist()
        else:
            headers["request-type"] = "v1"
            contents = [base64.b64decode(instance["image"]["b64"]) for instance in payload["instances"]]
        images = [Image.open(io.BytesIO(content)).convert("L") for content in contents]
        rows = np.stack([np.asarray(image, np.float64).ravel() // 15 for image in images])
        return self.request_of(rows)

    def postprocess(self, result, headers: Dict[str, str] = None, response_headers: Dict[str, str] = None):
        labels = self.labels_of(result)
        if headers.get("request-type") == "v1":
            return {"predictions": labels, "by": self.name}
        return get_predict_response(InferRequest(self.name, []), np.array(labels), self.name)


class DriverTransformer(Transformer):
    """Looks up the features of drivers, as the transformer for Feast in KServe's documentation."""

    FEATURES = {1001: [5.1, 3.5, 1.4, 0.2], 1002: [6.7, 3.0, 5.2, 2.3], 1003: [5.9, 3.0, 4.2, 1.5]}

    def preprocess(self, payload: Union[Dict, InferRequest], headers: Dict[str, str] = None):
        ids = payload.inputs[0].data if isinstance(payload, InferRequest) else payload["instances"]
        return self.request_of(np.array([self.FEATURES[int(np.ravel(driver)[0])] for driver in ids]))


class Explainer(ImageTransformer):
    """Explains a prediction by asking for it without parts of the image, as LIME in KServe's sample of AIX."""

    async def explain(self, payload, headers: Dict[str, str] = None) -> Dict:
        row = np.array(payload["instances"][0] if self.is_v1 else payload.inputs[0].as_numpy()[0]).reshape(8, 8)
        changed = [row]
        for top, left in ((0, 0), (0, 4), (4, 0), (4, 4)):
            without = row.copy()
            without[top : top + 4, left : left + 4] = 0
            changed.append(without)
        result = await self.predict(self.request_of(np.stack(changed).reshape(5, 64)), headers)
        whole, *parts = self.labels_of(result)
        return {"predictions": [{"label": whole, "needs": [label != whole for label in parts]}]}


parser = argparse.ArgumentParser(parents=[model_server.parser])
args, _ = parser.parse_known_args()

if __name__ == "__main__":
    protocol = args.predictor_protocol
    models = [
        ImageTransformer("digits", protocol),
        DriverTransformer("drivers", protocol),
        Explainer("explained", protocol),
    ]
    # These pass requests on as they are.
    models += [Transformer(name, protocol) for name in ("seen", "failing", "unknown")]
    ModelServer().start(models)
