"""Payload types: behavior that the golden answers do not cover."""

import copy
import json
import pickle
from typing import Any, Dict, List, Optional

import pytest
from mlserver._model import BaseModel
from mlserver.types import InferenceRequest, Parameters, RequestInput, TensorData, ValidationError

REQUEST = {
    "id": "1",
    "inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}],
    "parameters": {"a": 1},
}


def test_validation_error_names_fields() -> None:
    with pytest.raises(
        ValueError, match=r"2 validation errors for InferenceRequest\nid\n.*\ninputs.0.shape.1\n"
    ) as caught:
        InferenceRequest(id=5, inputs=[{"name": "x", "shape": [1, "a"], "datatype": "FP32", "data": []}])
    assert isinstance(caught.value, ValidationError)
    assert caught.value.error_count() == 2
    assert json.loads(caught.value.json())[0]["loc"] == ["id"]


def test_validation_error_shortens_values() -> None:
    with pytest.raises(ValidationError) as caught:
        InferenceRequest(inputs=[{"data": list(range(100000))}])
    assert len(str(caught.value)) < 1000


def test_payload_types_can_be_pickled_and_copied() -> None:
    request = InferenceRequest(**REQUEST)
    for twin in (pickle.loads(pickle.dumps(request)), copy.copy(request), copy.deepcopy(request), request.copy()):
        assert twin == request
        assert twin.model_fields_set == request.model_fields_set
    deep = request.model_copy(deep=True)
    deep.inputs[0].data.root.append(3)
    assert request.inputs[0].data.root == [1, 2]
    empty = RequestInput(name="x", shape=[0], datatype="INT8", data=None)
    assert pickle.loads(pickle.dumps(empty)) == empty


def test_payload_types_compare_class_and_values() -> None:
    assert Parameters(a=1) != Parameters(a=1, b=2)
    assert Parameters() != TensorData(None)
    with pytest.raises(TypeError):
        hash(Parameters())


def test_json_rejects_bytes_that_are_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        TensorData([b"\xff"]).model_dump_json()


def test_pydantic_v1_method_names_work() -> None:
    request = InferenceRequest.parse_raw(json.dumps(REQUEST))
    assert request.__fields_set__ == {"id", "inputs", "parameters"}
    assert sorted(request.__fields__) == ["id", "inputs", "outputs", "parameters"]
    assert request.inputs[0].data.__root__ == [1, 2]
    assert dict(request)["id"] == "1"


def test_assigned_fields_count_as_set() -> None:
    request = InferenceRequest(inputs=[])
    request.id = "5"
    assert request.model_dump() == {"id": "5", "inputs": []}
    request.parameters = Parameters()
    request.parameters.headers = {"a": "b"}
    assert request.dict(exclude_unset=True) == {"id": "5", "parameters": {"headers": {"a": "b"}}, "inputs": []}


def test_custom_models_are_validated() -> None:
    class Inner(BaseModel):
        size: int = 1

    class Outer(BaseModel):
        names: List[str]
        inner: Optional[Inner] = None
        table: Dict[str, float] = {}

    made = Outer(names=("a",), inner={"size": "5"}, table={"x": 1})
    assert made.dict() == {"names": ["a"], "inner": {"size": 5}, "table": {"x": 1.0}}
    assert Outer(names=[]).table is not Outer(names=[]).table
    with pytest.raises(ValidationError, match=r"table\.x"):
        Outer(names=[], table={"x": "y"})


@pytest.mark.needs("pydantic")
def test_payload_types_work_as_pydantic_fields() -> None:
    import pydantic

    class Envelope(pydantic.BaseModel):
        request: InferenceRequest
        note: Optional[str] = None

    made = Envelope(request=REQUEST)
    assert made.request == InferenceRequest(**REQUEST)
    assert json.loads(made.model_dump_json())["request"] == InferenceRequest(**REQUEST).model_dump(mode="json")
    with pytest.raises(pydantic.ValidationError, match="inputs"):
        Envelope(request={"id": "5"})


def test_tensor_data_accepts_any_value() -> None:
    value: Any = {"free": ["form"]}
    tensor = RequestInput(name="x", shape=[1], datatype="BYTES", data=value)
    assert tensor.data.root == value
    assert tensor.data["free"] == ["form"]
