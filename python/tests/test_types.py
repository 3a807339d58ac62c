"""Payload types: behavior that the golden answers do not cover."""

import collections
import copy
import dataclasses
import datetime
import decimal
import ipaddress
import json
import pathlib
import pickle
import re
import sys
import types
import uuid
from typing import Any, Dict, List, Optional

import pytest
from mlserver._dump import jsonable
from mlserver._imports import import_object
from mlserver._model import BaseModel
from mlserver.codecs import get_decoded, has_decoded
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    ResponseOutput,
    TensorData,
    ValidationError,
)

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


def test_unset_fields_are_null_in_the_methods_of_pydantic_1_only() -> None:
    """The original's manual says that they are left out; its types do this."""
    output = ResponseOutput(name="x", shape=[1], datatype="INT32", data=[1])
    response = InferenceResponse(model_name="m", outputs=[output])
    tensor = {"name": "x", "shape": [1], "datatype": "INT32", "data": [1]}
    whole = {"model_name": "m", "model_version": None, "id": None, "parameters": None}
    assert response.dict() == {**whole, "outputs": [{**tensor, "parameters": None}]}
    assert json.loads(response.json()) == response.dict()
    assert response.model_dump() == {"model_name": "m", "outputs": [tensor]}
    assert json.loads(response.model_dump_json()) == response.model_dump()


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
    assert json.loads(made.model_dump_json())["request"] == InferenceRequest(**REQUEST).model_dump(
        mode="json", exclude_unset=False, exclude_none=False
    )
    with pytest.raises(pydantic.ValidationError, match="inputs"):
        Envelope(request={"id": "5"})


def test_tensor_data_accepts_any_value() -> None:
    value: Any = {"free": ["form"]}
    tensor = RequestInput(name="x", shape=[1], datatype="BYTES", data=value)
    assert tensor.data.root == value
    assert tensor.data["free"] == ["form"]


def test_private_parameter_is_kept_outside_of_data() -> None:
    for made in (Parameters(_decoded_payload=5, a=1), Parameters.model_validate({"_decoded_payload": 5, "a": 1})):
        tensor = RequestInput(name="x", shape=[1], datatype="INT8", data=[1], parameters=made)
        assert has_decoded(tensor)
        assert get_decoded(tensor) == 5
        assert made.model_dump() == {"a": 1}


def test_json_of_values_that_handlers_return() -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        where: Any = None

    value = {
        "point": Point(1, [Point(2)]),
        "whole": decimal.Decimal("2"),
        "fraction": decimal.Decimal("2.5"),
        "delta": datetime.timedelta(minutes=1, milliseconds=500),
        "generator": (number for number in range(2)),
        "queue": collections.deque([1]),
        "keys": {"a": 1}.keys(),
        "id": uuid.UUID(int=5),
        "address": ipaddress.ip_address("127.0.0.1"),
        "pattern": re.compile("a+"),
        "when": datetime.datetime(2020, 1, 2),
    }
    assert jsonable(value) == {
        "point": {"x": 1, "where": [{"x": 2, "where": None}]},
        "whole": 2,
        "fraction": 2.5,
        "delta": 60.5,
        "generator": [0, 1],
        "queue": [1],
        "keys": ["a"],
        "id": "00000000-0000-0000-0000-000000000005",
        "address": "127.0.0.1",
        "pattern": "a+",
        "when": "2020-01-02T00:00:00",
    }

    class HasDict:
        def dict(self) -> None:
            raise AssertionError("called by accident")

    with pytest.raises(TypeError, match="HasDict"):
        jsonable(HasDict())


def test_fields_of_standard_types_are_parsed() -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        y: float = 0.5

    class Model(BaseModel):
        point: Point
        points: List[Point] = []
        when: Optional[datetime.datetime] = None
        day: Optional[datetime.date] = None
        id: Optional[uuid.UUID] = None
        price: Optional[decimal.Decimal] = None

    made = Model(
        point={"x": "1"},
        points=[{"x": 1, "y": 2}],
        when="2020-01-02T03:04:05Z",
        day="2020-01-02",
        id="00000000-0000-0000-0000-000000000005",
        price=2.5,
    )
    assert (made.point, made.points) == (Point(1, 0.5), [Point(1, 2.0)])
    assert made.when == datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    assert (made.day, made.id, made.price) == (datetime.date(2020, 1, 2), uuid.UUID(int=5), decimal.Decimal("2.5"))
    for invalid in ({"point": {}}, {"point": {"x": "a"}}, {"point": 5}, {"point": {"x": 1}, "when": "yesterday"}):
        with pytest.raises(ValidationError):
            Model(**invalid)


def test_annotations_as_text_use_names_of_their_scope() -> None:
    class Inner(BaseModel):
        size: int

    class Outer(BaseModel):
        inner: "Optional[Inner]" = None
        children: Optional[List["Outer"]] = None

    made = Outer(inner={"size": "5"}, children=[{"inner": {"size": 1}}])
    assert made.inner is not None
    assert made.children is not None
    assert (made.inner.size, made.children[0].inner) == (5, Inner(size=1))

    class Broken(BaseModel):
        field: "NoSuchName" = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"cannot evaluate the annotation 'NoSuchName' of `.*Broken\.field`"):
        Broken()


def test_annotations_as_text_outlive_their_module(tmp_path: pathlib.Path) -> None:
    (tmp_path / "texts.py").write_text(
        "from __future__ import annotations\nimport typing\nfrom typing import ClassVar, Optional\n"
        "from mlserver._model import BaseModel\nclass Own:\n    pass\n"
        "class Model(BaseModel):\n    count: Optional[int] = None\n    kind: typing.ClassVar[int] = 5\n    own: Own = None\n"
    )
    made = import_object("texts.Model", str(tmp_path))
    sys.modules["texts"] = types.ModuleType("texts")
    try:
        assert made(count="5").count == 5
        assert list(made.model_fields) == ["count", "own"]
        with pytest.raises(ValidationError):
            made(own=5)
    finally:
        del sys.modules["texts"]
