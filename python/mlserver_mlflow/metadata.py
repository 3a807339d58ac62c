"""Converts a model's signature to metadata of the V2 protocol."""

from typing import Any, List

from mlserver.codecs import Base64Codec, DatetimeCodec, NumpyCodec, PandasCodec, StringCodec
from mlserver.codecs.numpy import to_datatype
from mlserver.types import MetadataTensor, Parameters

from .codecs import TensorDictCodec

__all__ = ["DefaultInputPrefix", "DefaultOutputPrefix", "InputSpec", "to_metadata_tensors", "to_model_content_type"]

DefaultInputPrefix = "input-"
DefaultOutputPrefix = "output-"

#: A column or a tensor of a signature.
InputSpec = Any

#: Datatype and content type of columns of lists, objects and other types.
_JSON = ("BYTES", PandasCodec.JsonContentType)
#: Datatype and content type of scalar columns, by MLflow's name of their type.
_COLUMNS = {
    "boolean": ("BOOL", NumpyCodec.ContentType),
    "integer": ("INT32", NumpyCodec.ContentType),
    "long": ("INT64", NumpyCodec.ContentType),
    "float": ("FP32", NumpyCodec.ContentType),
    "double": ("FP64", NumpyCodec.ContentType),
    "string": ("BYTES", StringCodec.ContentType),
    "binary": ("BYTES", Base64Codec.ContentType),
    "datetime": ("BYTES", DatetimeCodec.ContentType),
}


def to_metadata_tensors(schema: Any, prefix: str = DefaultInputPrefix) -> List[MetadataTensor]:
    """Returns the tensors of a schema. Those without a name are named by `prefix` and their index."""
    tensors = []
    for index, spec in enumerate(schema.inputs):
        if schema.is_tensor_spec():
            datatype, content_type = to_datatype(spec.type).value, NumpyCodec.ContentType
            shape = list(spec.shape)
        else:
            datatype, content_type = _COLUMNS.get(getattr(spec.type, "name", ""), _JSON)
            shape = [-1, 1]
        tensors.append(
            MetadataTensor(
                name=f"{prefix}{index}" if spec.name is None else spec.name,
                datatype=datatype,
                shape=shape,
                parameters=Parameters(content_type=content_type),
            )
        )
    return tensors


def to_model_content_type(schema: Any) -> str:
    """Returns the default content type of requests."""
    if not schema.is_tensor_spec():
        return PandasCodec.ContentType
    return TensorDictCodec.ContentType if schema.has_input_names() else NumpyCodec.ContentType
