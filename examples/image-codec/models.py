"""A custom codec: images as base64 of their files, with content type `img`."""

import base64
import io
from typing import Any, List

from mlserver import MLModel
from mlserver.codecs import InputCodec, get_decoded_or_raw, register_input_codec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestInput, RequestOutput, ResponseOutput
from PIL import Image


@register_input_codec
class ImageCodec(InputCodec):
    """A BYTES tensor as a list of Pillow images. They are written as BMP, which has the same bytes on all machines."""

    ContentType = "img"
    TypeHint = List[Image.Image]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list) and bool(payload) and all(isinstance(item, Image.Image) for item in payload)

    @classmethod
    def encode_output(cls, name: str, payload: List[Image.Image], **kwargs: Any) -> ResponseOutput:
        data = []
        for image in payload:
            file = io.BytesIO()
            image.save(file, format="BMP")
            data.append(base64.b64encode(file.getvalue()))
        return ResponseOutput(
            name=name,
            shape=[len(data), 1],
            datatype="BYTES",
            data=data,
            parameters=Parameters(content_type=cls.ContentType),
        )

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> List[Image.Image]:
        return [Image.open(io.BytesIO(base64.b64decode(item))) for item in request_input.data]


class ContentTypeEcho(MLModel):
    """Returns the decoded type of each input, and the inputs themselves; images are mirrored."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        outputs = []
        for tensor in payload.inputs:
            self.decode(tensor)
            value = get_decoded_or_raw(tensor)
            seen = type(value[0] if isinstance(value, list) else value).__name__
            outputs.append(self.encode([f"{tensor.name}: {seen}"], RequestOutput(name=f"type-of-{tensor.name}")))
            if ImageCodec.can_encode(value):
                value = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for image in value]
            if isinstance(value, list):
                outputs.append(self.encode(value, RequestOutput(name=tensor.name)))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
