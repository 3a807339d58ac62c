"""Headers: those of the client are in the request's parameters, those for the client in the response's parameters."""

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters


class HeadersModel(MLModel):
    """Returns the headers whose names start with `x-`, in a tensor and as headers."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        received = payload.parameters.headers if payload.parameters and payload.parameters.headers else {}
        wanted = {name: value for name, value in sorted(received.items()) if name.startswith("x-")}
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            parameters=Parameters(headers={f"{name}-seen": value for name, value in wanted.items()}, count=len(wanted)),
            outputs=[StringCodec.encode_output("headers", [f"{name}: {value}" for name, value in wanted.items()])],
        )
