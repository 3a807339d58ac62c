"""Codecs: intended improvements over the original."""

import asyncio
import sys
from array import array
from typing import Any, List, Optional

import pytest
from mlserver import MLModel, ModelSettings
from mlserver._payload import tensor_input
from mlserver._tensor import FixedElements
from mlserver.codecs import InputCodec, NumpyCodec, PandasCodec, decode_args, get_decoded
from mlserver.codecs.base import find_input_codec_by_type_hint
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, RequestInput, ResponseOutput


def tensor(name: str, datatype: str, data: List[Any], **parameters: Any) -> RequestInput:
    return RequestInput(name=name, shape=[len(data)], datatype=datatype, data=data, parameters=parameters or None)


def test_decode_args_accepts_plain_functions_and_both_hint_spellings() -> None:
    class Upper(MLModel):
        @decode_args
        def predict(self, a: List[str], b: Optional[List[bytes]] = None) -> List[str]:
            return [text.upper() for text in a]

    predict: Any = Upper(ModelSettings(name="m", implementation=Upper)).predict
    response = asyncio.run(predict(InferenceRequest(inputs=[tensor("a", "BYTES", ["x"])])))
    assert response.outputs[0].data.root == [b"X"]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the spellings are newer")
def test_codecs_accept_builtin_generic_hints() -> None:
    scope: Any = {}
    source = """
hints = [list[str], list[bytes]]
def predict(self, a: list[str], b: list[bytes] | None = None) -> list[str]:
    return a
"""
    exec(source, scope)
    assert [find_input_codec_by_type_hint(hint).ContentType for hint in scope["hints"]] == ["str", "base64"]  # type: ignore[union-attr]
    assert callable(decode_args(scope["predict"]))


@pytest.mark.needs("numpy")
def test_numpy_codec_accepts_ndarray_type_hints() -> None:
    import numpy
    from numpy.typing import NDArray

    assert find_input_codec_by_type_hint(NDArray[numpy.float32]) is NumpyCodec


@pytest.mark.needs("numpy")
def test_numpy_codec_decodes_byte_strings_as_elements() -> None:
    import numpy

    output = NumpyCodec.encode_output("o", numpy.array([b"ab", b"c"]))
    assert output.data.root == [b"ab", b"c"]
    assert NumpyCodec.decode_output(output).tolist() == [[b"ab"], [b"c"]]


@pytest.mark.needs("pandas")
def test_pandas_codec_encodes_extension_dtypes() -> None:
    import pandas

    frame = pandas.DataFrame(
        {
            "text": pandas.array(["a", "é"], dtype="string"),
            "kind": pandas.Categorical(["x", "y"]),
            "whole": pandas.array([1, 2], dtype="Int64"),
            "missing": pandas.array([1, None], dtype="Int64"),
            "time": pandas.to_datetime(["2020-01-01T00:00:00", "2020-01-02T03:04:05"]),
        }
    )
    outputs = {output.name: output for output in PandasCodec.encode_outputs(frame)}
    assert [(name, output.datatype) for name, output in outputs.items()] == [
        ("text", "BYTES"),
        ("kind", "BYTES"),
        ("whole", "INT64"),
        ("missing", "FP64"),
        ("time", "BYTES"),
    ]
    assert outputs["text"].data.root == [b"a", "é".encode()]
    assert outputs["kind"].parameters.content_type == "str"
    assert outputs["missing"].model_dump(mode="json")["data"] == [1.0, None]
    assert outputs["time"].data.root == [b"2020-01-01T00:00:00", b"2020-01-02T03:04:05"]
    assert outputs["time"].parameters.content_type == "datetime"


@pytest.mark.needs("pandas")
def test_pandas_codec_encodes_missing_text_as_none() -> None:
    import numpy
    import pandas

    columns = [
        pandas.Series(["a", None], dtype=object),
        pandas.Series(["a", pandas.NA], dtype=object),
        pandas.Series(["a", None], dtype="string"),
    ]
    if pandas.__version__ >= "3":
        columns.append(pandas.Series(["a", numpy.nan], dtype="str"))
    for column in columns:
        (output,) = PandasCodec.encode_outputs(pandas.DataFrame({"A": column}))
        assert output.data.root == [b"a", None]
        assert output.parameters.content_type == "str"
        assert output.model_dump(mode="json")["data"] == ["a", None]
        assert PandasCodec.decode_request(InferenceRequest(inputs=[_as_input(output)]))["A"].isna().tolist() == [False, True]
    (mixed,) = PandasCodec.encode_outputs(pandas.DataFrame({"A": pandas.Series([{"b": 1}, None], dtype=object)}))
    assert (mixed.data.root, mixed.parameters.content_type) == ([b'{"b":1}', b"null"], "pd_json")


def _as_input(output: ResponseOutput) -> RequestInput:
    return RequestInput(**dict(output))


@pytest.mark.needs("pandas", "numpy")
def test_pandas_codec_reads_nested_rows_as_tuples() -> None:
    elements = FixedElements("FP32", memoryview(array("f", range(4))).cast("B"))
    nested = tensor_input("x", "FP32", [2, 2], None, elements, nested=True)
    assert PandasCodec.decode_request(InferenceRequest(inputs=[nested]))["x"].tolist() == [(0.0, 1.0), (2.0, 3.0)]
    column = tensor_input("x", "FP32", [4, 1], None, elements, nested=True)
    assert PandasCodec.decode_request(InferenceRequest(inputs=[column]))["x"].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.needs("numpy")
def test_numpy_codec_names_tensor_that_does_not_match_its_shape() -> None:
    for data in (["a", "b"], ["a", None]):
        with pytest.raises(ValueError, match="tensor 'x'") as caught:
            NumpyCodec.decode_input(RequestInput(name="x", datatype="BYTES", shape=[2, 11], data=data))
        assert caught.value.status_code == 400


def test_codec_without_method_names_missing_method():
    class OnlyDecodes(InputCodec):
        """Has no methods of its own."""

    with pytest.raises(NotImplementedError, match=r"the codec .*OnlyDecodes does not implement `encode_output`"):
        OnlyDecodes.encode_output("x", 1)


@pytest.mark.needs("numpy", "pandas")
def test_decode_args_accepts_tuple_of_types_as_return_hint() -> None:
    import numpy
    import pandas

    class Two(MLModel):
        @decode_args
        async def predict(self, a: numpy.ndarray) -> (numpy.ndarray, pandas.DataFrame):  # type: ignore[syntax]
            return a, pandas.DataFrame({"b": [1]})

    predict: Any = Two(ModelSettings(name="m", implementation=Two)).predict
    response = asyncio.run(predict(InferenceRequest(inputs=[tensor("a", "FP32", [1])])))
    assert [output.name for output in response.outputs] == ["output-0", "b"]


def test_decode_args_names_missing_input() -> None:
    class Adder(MLModel):
        @decode_args
        async def predict(self, a: List[str], b: List[str], c: Optional[List[str]] = None) -> List[str]:
            return a + b + (c or [])

    predict: Any = Adder(ModelSettings(name="m", implementation=Adder)).predict
    with pytest.raises(MLServerError, match=r"Input 'b' is missing\. Expected inputs are 'a', 'b', 'c'\.") as caught:
        asyncio.run(predict(InferenceRequest(inputs=[tensor("a", "BYTES", ["x"])])))
    assert caught.value.status_code == 400
    both = InferenceRequest(inputs=[tensor("a", "BYTES", ["x"]), tensor("b", "BYTES", ["y"])])
    assert asyncio.run(predict(both)).outputs[0].data.root == [b"x", b"y"]


def test_private_names_of_original_exist() -> None:
    from mlserver.codecs.base64 import _decode_base64
    from mlserver.codecs.lists import ListElement
    from mlserver.codecs.numpy import _encode_data, _to_ndarray
    from mlserver.codecs.utils import Codec, _save_decoded

    request_input = tensor("a", "BYTES", ["x"])
    _save_decoded(request_input, 5)
    assert get_decoded(request_input) == 5
    assert _decode_base64(b"YQ==") == b"a"
    assert all((ListElement, Codec, _encode_data, _to_ndarray))
