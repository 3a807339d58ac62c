"""JSON in, JSON out: a BYTES tensor contains a document."""

import json

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class JsonModel(MLModel):
    """Returns the document in the request, with facts about it."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        documents = {tensor.name: json.loads("".join(self.decode(tensor, StringCodec))) for tensor in payload.inputs}
        answer = {
            "request": documents,
            "fields": {name: sorted(document) for name, document in documents.items()},
            "server_response": "Got your request. Hello from the server.",
        }
        encoded = json.dumps(answer).encode("UTF-8")
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            # As in MLServer's documentation: the shape is the length of the document, the data is one element.
            outputs=[ResponseOutput(name="echo_response", shape=[len(encoded)], datatype="BYTES", data=[encoded])],
        )
