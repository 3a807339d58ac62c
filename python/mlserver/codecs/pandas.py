"""The codec of pandas data frames. Importing this module does not import pandas; only decoding does."""

import sys
from typing import TYPE_CHECKING, Any, List, Optional

from .._tensor import NUMPY_NAMES, BytesElements, FixedElements, TensorError, is_array
from ..types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
)
from .base import LoadedType, RequestCodec, register_request_codec
from .datetime import DatetimeCodec
from .json import decode_json_input_or_output, encode_to_json
from .numpy import datatype_name, encode_data
from .string import StringCodec
from .utils import InputOrOutput, as_input, get_decoded_or_raw, has_decoded, inject_batch_dimension

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PandasCodec"]


def _to_series(tensor: InputOrOutput) -> Any:
    """Returns a tensor as a column with the same name."""
    import pandas

    datatype = str(getattr(tensor.datatype, "value", tensor.datatype))
    if tensor.parameters is not None and tensor.parameters.content_type == PandasCodec.JsonContentType:
        return pandas.Series(decode_json_input_or_output(tensor))
    if has_decoded(tensor):
        payload = get_decoded_or_raw(tensor)
        series = pandas.Series(payload.reshape(-1) if is_array(payload) else payload)
        return series if datatype == "BYTES" else series.astype(NUMPY_NAMES[datatype])
    held = tensor.data.raw if isinstance(tensor.data, TensorData) else tensor.data
    if isinstance(held, (FixedElements, BytesElements)) and tensor.data.nested and max(tensor.shape[1:]) > 1:
        held = tensor.data.root  # a row of several elements is one value of the column
    if isinstance(held, FixedElements):
        return pandas.Series(held.numpy())
    if isinstance(held, BytesElements):
        held = held.tolist()
    elif isinstance(held, str) and datatype == "BYTES":
        held = [held]
    if isinstance(held, list) and held and all(isinstance(row, list) for row in held):
        return pandas.Series([tuple(row) for row in held])
    if datatype == "BYTES":
        return pandas.Series(held, dtype=None if held else object)
    return pandas.Series(held, dtype=NUMPY_NAMES[datatype])


def _to_output(series: Any, use_bytes: bool = True) -> ResponseOutput:
    """Returns a column as an output with the same name."""
    content_type: Optional[str] = None
    dtype = series.dtype
    if getattr(dtype, "name", "") == "category":
        series = series.astype(dtype.categories.dtype)
        dtype = series.dtype
    kind = getattr(dtype, "kind", "O")
    if kind in "mM":
        if kind == "m" or series.isna().any():
            raise TensorError(f"column '{series.name}' of dtype {dtype} cannot be encoded")
        content_type = DatetimeCodec.ContentType
        values: Any = [time.isoformat().encode() if use_bytes else time.isoformat() for time in series]
        datatype = "BYTES"
    elif _is_numeric_extension(dtype):
        array = (
            series.to_numpy(dtype="float64", na_value=float("nan"))
            if series.isna().any()
            else series.to_numpy(dtype.numpy_dtype)
        )
        datatype = datatype_name(array.dtype)
        values = encode_data(array, datatype)
    elif kind in "biuf":
        array = series.to_numpy()
        datatype = datatype_name(array.dtype)
        values = encode_data(array, datatype)
    else:
        datatype = "BYTES"
        values, content_type = _encode_objects(series, use_bytes)
    return ResponseOutput(
        name=series.name,
        shape=inject_batch_dimension(list(series.shape)),
        datatype=datatype,
        data=values,
        parameters=Parameters(content_type=content_type) if content_type else None,
    )


def _is_numeric_extension(dtype: Any) -> bool:
    """Returns whether it is a numeric extension dtype of pandas, which supports missing values."""
    return hasattr(dtype, "numpy_dtype") and dtype.numpy_dtype.kind in "biuf"


def _encode_objects(series: Any, use_bytes: bool) -> Any:
    """Returns the elements of a column of objects, and their content type: text as it is, other values as JSON.

    Missing values are `None`, and are sent as `null`.
    """
    values = [None if missing else value for value, missing in zip(series, _is_missing(series))]
    if all(value is None or isinstance(value, (str, bytes)) for value in values):
        encoded = [value.encode() if use_bytes and isinstance(value, str) else value for value in values]
        return encoded, StringCodec.ContentType
    return [encode_to_json(value, use_bytes) for value in values], PandasCodec.JsonContentType


def _is_missing(series: Any) -> List[bool]:
    """Returns for each value whether it is a missing one. In a column of objects, NaN is a number."""
    if series.dtype.kind == "O" and series.dtype.name == "object":
        import pandas

        return [value is None or value is pandas.NA or value is pandas.NaT for value in series]
    missing: List[bool] = series.isna().tolist()
    return missing


@register_request_codec
class PandasCodec(RequestCodec):
    """A request or response as a data frame, with a column for each tensor."""

    ContentType = "pd"
    JsonContentType = "pd_json"
    TypeHint = LoadedType("pandas", "DataFrame")

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        pandas = sys.modules.get("pandas")
        return pandas is not None and isinstance(payload, getattr(pandas, "DataFrame", ()))

    @classmethod
    def encode_response(
        cls,
        model_name: str,
        payload: "pd.DataFrame",
        model_version: Optional[str] = None,
        use_bytes: bool = True,
        **kwargs: Any,
    ) -> InferenceResponse:
        return InferenceResponse(
            model_name=model_name,
            model_version=model_version,
            parameters=Parameters(content_type=cls.ContentType),
            outputs=cls.encode_outputs(payload, use_bytes=use_bytes),
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> "pd.DataFrame":
        return _to_frame(response.outputs)

    @classmethod
    def encode_outputs(cls, payload: "pd.DataFrame", use_bytes: bool = True) -> List[ResponseOutput]:
        """Returns an output for each column."""
        return [_to_output(payload[name], use_bytes) for name in payload]

    @classmethod
    def encode_request(cls, payload: "pd.DataFrame", use_bytes: bool = True, **kwargs: Any) -> InferenceRequest:
        inputs: List[RequestInput] = [as_input(output) for output in cls.encode_outputs(payload, use_bytes=use_bytes)]
        return InferenceRequest(parameters=Parameters(content_type=cls.ContentType), inputs=inputs)

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> "pd.DataFrame":
        return _to_frame(request.inputs)


def _to_frame(tensors: List[Any]) -> Any:
    import pandas

    return pandas.DataFrame({tensor.name: _to_series(tensor) for tensor in tensors})
