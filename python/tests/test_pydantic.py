"""Subclasses with features of pydantic, and the SDK's types in pydantic and FastAPI. Expected values are the original's."""

import asyncio
import copy
import json
import pathlib
import pickle
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

import pytest
from mlserver import MLModel, ModelSettings
from mlserver.settings import BaseSettings, ModelParameters
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RepositoryIndexResponse,
    RequestInput,
    TensorData,
    ValidationError,
)

pydantic: Any = pytest.importorskip("pydantic", minversion="2")

Field: Any = pydantic.Field

TENSOR = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}
REQUEST = {"id": "1", "parameters": {"a": 1}, "inputs": [TENSOR]}


def problems(function: Any) -> List[Tuple[str, Tuple[Any, ...]]]:
    with pytest.raises(ValidationError) as caught:
        function()
    return [(problem["type"], problem["loc"]) for problem in caught.value.errors()]


class Constrained(ModelParameters):
    threshold: float = Field(0.5, ge=0)
    required: int = Field(...)
    items: List[int] = Field(default_factory=lambda: [1])


def test_field_has_default_constraint_and_factory() -> None:
    made = Constrained(required="2")
    assert (made.threshold, made.required, made.items) == (0.5, 2, [1])
    assert made.items is not Constrained(required=1).items
    assert made.model_fields_set == {"required"}
    assert made.dict() == {"required": 2}
    assert problems(lambda: Constrained(required=1, threshold=-1)) == [("greater_than_equal", ("threshold",))]
    assert problems(Constrained) == [("missing", ("required",))]
    other = Constrained(required=1, other=5, uri="u")
    assert (other.other, other.model_extra, other.uri) == (5, {"other": 5}, "u")
    assert Constrained.model_validate_json('{"required": 1}').required == 1
    assert Constrained.model_fields["threshold"].default == 0.5


def test_constrained_instances_can_be_copied_and_pickled() -> None:
    made = Constrained(required=3, other=1)
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), made.model_copy()):
        assert twin == made
        assert twin.model_fields_set == {"required", "other"}
    assert made.model_copy(update={"required": 5}).required == 5
    assert Constrained.model_construct(required="x").required == "x"


class Validated(ModelParameters):
    a: int = 1
    b: int = 2

    @pydantic.field_validator("a")
    @classmethod
    def check_a(cls, value: int) -> int:
        if value > 10:
            raise ValueError("too big")
        return value * 2

    @pydantic.model_validator(mode="after")
    def check_both(self) -> "Validated":
        if self.b < 0:
            raise ValueError("negative")
        self.b += self.offset()
        return self

    def offset(self) -> int:
        return 100

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return self.a + self.b


class Derived(Validated):
    z: int = Field(1, description="of the derived class")


def test_validators_run_and_computed_fields_are_dumped() -> None:
    made = Validated(a=3)
    assert (type(made), made.a, made.b, made.total) == (Validated, 6, 102, 108)
    assert made.model_dump()["total"] == 108
    assert made.dict() == {"a": 6, "b": 102, "total": 108}
    assert json.loads(made.model_dump_json())["total"] == 108
    assert "total=108" in repr(made)
    assert list(Validated.model_computed_fields) == ["total"]
    assert problems(lambda: Validated(a=11)) == [("value_error", ("a",))]
    assert problems(lambda: Validated(b=-1)) == [("value_error", ())]
    derived = Derived(a=2)
    assert (derived.a, derived.total, derived.z) == (4, 106, 1)
    assert problems(lambda: Derived(a=11)) == [("value_error", ("a",))]


def test_nested_classes_report_locations() -> None:
    class Outer(ModelParameters):
        one: Optional[Constrained] = None
        many: List[Validated] = []

    made = Outer(one={"required": 3}, many=[{"a": 1}])
    assert made.one is not None
    assert (made.one.threshold, made.many[0].a) == (0.5, 2)
    found = problems(lambda: Outer(one={"threshold": -1}, many=[{"a": 100}]))
    assert found == [
        ("greater_than_equal", ("one", "threshold")),
        ("missing", ("one", "required")),
        ("value_error", ("many", 0, "a")),
    ]


def test_aliases_name_values_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    class Aliased(BaseSettings):
        model_config = {"env_prefix": "ALIASED_"}

        name: str = Field("n", alias="the_name")
        value: int = Field(1, validation_alias=pydantic.AliasChoices("v1", "v2"))
        plain: int = 3

    monkeypatch.setenv("ALIASED_PLAIN", "9")
    monkeypatch.setenv("ALIASED_NAME", "unused")
    monkeypatch.setenv("THE_NAME", "from the environment")
    made = Aliased()
    assert (made.name, made.value, made.plain) == ("from the environment", 1, 9)
    assert Aliased(v2=7, the_name="x").model_dump() == {"name": "x", "value": 7, "plain": 9}
    assert Aliased(v2=7, the_name="x").dict() == {"the_name": "x", "value": 7, "plain": 9}
    assert problems(lambda: Aliased(name="x")) == [("extra_forbidden", ("name",))]

    class ByName(ModelParameters):
        model_config = {"populate_by_name": True}

        a: int = Field(1, alias="A")

    assert (ByName(a=3).a, ByName(A=4).a) == (3, 4)


def test_private_attributes_belong_to_instances() -> None:
    class Private(ModelParameters):
        x: int = 1
        _p: int = pydantic.PrivateAttr(5)
        _q: List[int] = pydantic.PrivateAttr(default_factory=list)
        _r: Dict[str, int] = {}

        def model_post_init(self, context: Any, /) -> None:
            super().model_post_init(context)
            self._p = self.x + 1

    one, two = Private(x=4), Private()
    one._q.append(1)
    one._r["a"] = 1
    assert (one._p, one._q, two._p, two._q, two._r) == (5, [1], 2, [], {})
    assert "_p" not in one.model_dump()
    assert one.model_copy()._p == 5

    class Both(Private):
        y: int = Field(2, gt=0)

    both = Both(x=1, y=3)
    both._q.append(2)
    assert (both._p, both._q, Both()._q, both.dict()) == (2, [2], [], {"x": 1, "y": 3})


def test_post_init_runs_once_and_may_change_fields() -> None:
    class Counting(ModelParameters):
        a: int = 1

        def model_post_init(self, context: Any, /) -> None:
            self.a += 1

    class Checked(Counting):
        b: int = Field(1, gt=0)

    assert (Counting(a=4).a, Checked(a=4).a, Counting.model_validate({"a": 1}).a) == (5, 5, 2)


def test_old_config_class_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(BaseSettings):
        class Config:
            env_prefix = "OLD_"

        y: int = 1

    monkeypatch.setenv("OLD_Y", "77")
    assert Old().y == 77


def test_assignments_are_validated_or_rejected() -> None:
    class Assigned(ModelParameters):
        model_config = {"validate_assignment": True}

        a: int = Field(5, ge=0)

    made = Assigned()
    made.a = "6"  # type: ignore[assignment]
    assert made.a == 6
    assert problems(lambda: setattr(made, "a", -1)) == [("greater_than_equal", ("a",))]
    assert made.a == 6

    class Frozen(ModelParameters):
        model_config = {"frozen": True}

        a: int = 5

    assert problems(lambda: setattr(Frozen(), "a", 6)) == [("frozen_instance", ("a",))]

    class OneFrozen(ModelParameters):
        a: int = Field(5, frozen=True)
        b: int = 1

    one = OneFrozen()
    one.b = 2
    assert problems(lambda: setattr(one, "a", 6)) == [("frozen_field", ("a",))]
    assert (one.a, one.b) == (5, 2)


def test_serializers_and_exclusion_apply_to_dumps() -> None:
    class Serialized(ModelParameters):
        hidden: float = Field(1.5, exclude=True)
        v: int = 3

        @pydantic.field_serializer("v")
        def serialize_v(self, value: int) -> str:
            return f"<{value}>"

    dumped = Serialized(extra={"k": 1}, other=2).model_dump()
    assert "hidden" not in dumped
    assert (dumped["v"], dumped["other"]) == ("<3>", 2)
    assert json.loads(Serialized().model_dump_json())["v"] == "<3>"


def test_annotated_constraints_and_types_of_pydantic_apply() -> None:
    class Typed(ModelSettings):
        count: pydantic.PositiveInt = 1
        secret: pydantic.SecretStr = pydantic.SecretStr("x")

    made = Typed(name="n", implementation=MLModel, count="4", parameters={"version": "1"})
    assert (made.count, made.implementation, made.version) == (4, MLModel, "1")
    assert made.dict()["implementation"] == "mlserver.model.MLModel"
    assert Typed(name="n", implementation="a.B", secret="s").secret.get_secret_value() == "s"
    assert problems(lambda: Typed(name="n", implementation="a.B", count=-4)) == [("greater_than", ("count",))]
    assert problems(lambda: Typed(name="n")) == [("missing", ("implementation",))]


def test_payload_types_can_be_extended() -> None:
    class Extended(InferenceRequest):
        factor: int = Field(3, gt=0)

        @pydantic.field_validator("inputs")
        @classmethod
        def check_inputs(cls, value: List[RequestInput]) -> List[RequestInput]:
            if not value:
                raise ValueError("empty")
            return value

    made = Extended(inputs=[TENSOR])
    assert made.inputs[0].data.root == [[1, 2], [3, 4]]
    assert made.inputs[0].datatype == "FP32"
    assert made.model_dump() == {"inputs": [TENSOR]}
    assert made.dict()["factor"] == 3
    assert problems(lambda: Extended(inputs=[])) == [("value_error", ("inputs",))]
    assert problems(lambda: Extended(inputs=[TENSOR], factor=0)) == [("greater_than", ("factor",))]
    missing = [("missing", ("inputs", 0, name)) for name in ("shape", "datatype", "data")]
    assert problems(lambda: Extended(inputs=[{"name": "x"}])) == missing

    class Level(Parameters):
        level: int = Field(1, le=5)

    assert Level(level=2, other=3).model_dump() == {"level": 2, "other": 3}
    assert problems(lambda: Level(level=6)) == [("less_than_equal", ("level",))]


def test_unsupported_features_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="`env_nested_delimiter`, which is not supported"):
        type("Nested", (BaseSettings,), {"model_config": {"env_nested_delimiter": "__"}})
    with pytest.raises(TypeError, match="settings_customise_sources"):
        type("Sources", (BaseSettings,), {"settings_customise_sources": classmethod(lambda cls: ())})


def test_features_without_pydantic_are_refused_by_name() -> None:
    code = """
import sys
sys.modules["pydantic"] = None
from mlserver.settings import ModelParameters

class Works(ModelParameters):
    a: int = 1
    _private: list = []

    class Config:
        extra = "forbid"

    def model_post_init(self, context):
        self._private.append(self.a)

assert Works(a="2")._private == [2]
try:
    class Frozen(ModelParameters):
        model_config = {"frozen": True}
except TypeError as error:
    print(error)
try:
    Works.model_json_schema()
except TypeError as error:
    print(error)
"""
    package = pathlib.Path(__file__).resolve().parents[1]
    run = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.splitlines() == [
        "`Frozen` uses `frozen` in `model_config`, which needs pydantic 2: install it, or remove it",
        "`Works` uses a JSON schema, which needs pydantic 2: install it, or remove it",
    ]


# The SDK's types in pydantic


def test_type_adapter_validates_and_dumps() -> None:
    adapter = pydantic.TypeAdapter(InferenceRequest)
    with pytest.raises(pydantic.ValidationError) as caught:
        adapter.validate_python({"inputs": [{"name": "x"}]})
    assert [problem["loc"] for problem in caught.value.errors()] == [
        ("inputs", 0, "shape"),
        ("inputs", 0, "datatype"),
        ("inputs", 0, "data"),
    ]
    request = adapter.validate_python(REQUEST)
    assert isinstance(request, InferenceRequest)
    full = {
        "id": "1",
        "parameters": {"content_type": None, "headers": None, "a": 1},
        "inputs": [{**TENSOR, "parameters": None}],
        "outputs": None,
    }
    assert adapter.dump_python(request) == full
    assert json.loads(adapter.dump_json(request)) == full
    assert adapter.dump_python(request, exclude_none=True) == REQUEST


def test_json_schema_refers_to_nested_types() -> None:
    schema = InferenceRequest.model_json_schema()
    assert sorted(schema["$defs"]) == ["Datatype", "Parameters", "RequestInput", "RequestOutput", "TensorData"]
    assert schema["properties"]["inputs"] == {
        "items": {"$ref": "#/$defs/RequestInput"},
        "title": "Inputs",
        "type": "array",
    }
    assert (schema["required"], schema["title"], schema["type"]) == (["inputs"], "InferenceRequest", "object")
    assert schema["$defs"]["TensorData"] == {"anyOf": [{"items": {}, "type": "array"}, {}], "title": "TensorData"}
    assert schema["$defs"]["Parameters"]["additionalProperties"] is True
    assert InferenceRequest.schema() == schema
    assert json.loads(InferenceRequest.schema_json()) == schema
    assert RepositoryIndexResponse.model_json_schema()["items"] == {"$ref": "#/$defs/RepositoryIndexResponseItem"}
    assert Constrained.model_json_schema()["properties"]["threshold"]["minimum"] == 0


def test_classes_have_members_of_pydantic_models() -> None:
    import inspect

    assert InferenceRequest.model_config == {"protected_namespaces": (), "use_enum_values": True}
    assert InferenceRequest.model_computed_fields == {}
    assert InferenceRequest.model_rebuild()
    assert InferenceRequest.validate(REQUEST) == InferenceRequest.model_validate_strings(REQUEST)
    assert list(inspect.signature(InferenceRequest).parameters) == ["id", "parameters", "inputs", "outputs"]
    assert "implementation" in inspect.signature(ModelSettings).parameters

    class Holder:
        inputs = [TENSOR]

    assert InferenceRequest.from_orm(Holder()).inputs[0].name == "x"


# FastAPI


async def call(app: Any, path: str, body: Any) -> Tuple[int, Any]:
    """Sends a request over ASGI, without a client library."""
    content = json.dumps(body).encode()
    sent: List[Dict[str, Any]] = []

    async def receive() -> Dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"n=3",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "server": ("localhost", 80),
        "client": ("localhost", 1),
        "state": {},
    }
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(answer)


@pytest.mark.needs("fastapi")
def test_fastapi_reads_and_answers_payload_types() -> None:
    import fastapi

    app = fastapi.FastAPI()

    @app.post("/name")
    def name(payload: InferenceRequest) -> str:
        return payload.inputs[0].name

    @app.post("/plain")
    def plain(payload: InferenceRequest):  # type: ignore[no-untyped-def]
        return payload

    @app.post("/declared")
    def declared(payload: InferenceRequest) -> InferenceRequest:
        return payload

    @app.post("/data")
    def data(payload: InferenceRequest):  # type: ignore[no-untyped-def]
        return payload.inputs[0].data

    @app.post("/many")
    def many(payload: List[InferenceRequest]):  # type: ignore[no-untyped-def]
        return payload

    @app.post("/two")
    def two(payload: InferenceRequest, n: int, other: Optional[Parameters] = None):  # type: ignore[no-untyped-def]
        return {"payload": payload.inputs, "n": n, "other": other}

    @app.post("/index")
    def index():  # type: ignore[no-untyped-def]
        return RepositoryIndexResponse(root=[{"name": "a", "state": "READY", "reason": ""}])

    full_tensor = {**TENSOR, "parameters": None}
    full = {
        "id": "1",
        "parameters": {"content_type": None, "headers": None, "a": 1},
        "inputs": [full_tensor],
        "outputs": None,
    }

    def post(path: str, body: Any) -> Any:
        status, answer = asyncio.run(call(app, path, body))
        assert status == 200, answer
        return answer

    assert post("/name", REQUEST) == "x"
    assert post("/plain", REQUEST) == full
    assert post("/declared", REQUEST) == full
    assert post("/data", REQUEST) == [[1, 2], [3, 4]]
    assert post("/many", [REQUEST]) == [full]
    other = {"content_type": None, "headers": None, "z": 1}
    assert post("/two", {"payload": REQUEST, "other": {"z": 1}}) == {"payload": [full_tensor], "n": 3, "other": other}
    assert post("/index", None) == [{"name": "a", "version": None, "state": "READY", "reason": ""}]
    status, answer = asyncio.run(call(app, "/name", {"inputs": [{"name": "x"}]}))
    assert status == 422
    assert answer["detail"][0]["loc"] == ["body", "inputs", 0, "shape"]
    body = app.openapi()["paths"]["/name"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/InferenceRequest"}


@pytest.mark.needs("fastapi")
def test_fastapi_encodes_payload_types() -> None:
    from fastapi.encoders import jsonable_encoder
    from mlserver._payload import tensor_input
    from mlserver._tensor import pack

    request = InferenceRequest(**REQUEST)
    assert jsonable_encoder(request)["inputs"][0]["data"] == [[1, 2], [3, 4]]
    assert jsonable_encoder(request, exclude_none=True) == REQUEST
    assert jsonable_encoder(request.inputs[0].data) == [[1, 2], [3, 4]]
    assert jsonable_encoder({"deep": [TensorData([[1, 2]])]}) == {"deep": [[[1, 2]]]}
    received = tensor_input("x", "INT8", [2, 2], {"a": 1}, pack([1, 2, 3, 4], "INT8"), nested=True)
    encoded = jsonable_encoder(InferenceRequest(inputs=[received]))["inputs"][0]
    assert (encoded["data"], encoded["parameters"]["a"]) == ([[1, 2], [3, 4]], 1)
    response = InferenceResponse(model_name="m", outputs=[{"name": "y", "shape": [1], "datatype": "BYTES", "data": [b"a"]}])
    assert jsonable_encoder(response)["outputs"][0]["data"] == ["a"]


@pytest.mark.needs("fastapi")
@pytest.mark.parametrize("first", ["mlserver.types", "fastapi.encoders"])
def test_fastapi_encodes_data_in_any_order_of_imports(first: str) -> None:
    code = f"import {first}; from mlserver.types import TensorData; from fastapi.encoders import jsonable_encoder;"
    package = pathlib.Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", f"{code} print(jsonable_encoder(TensorData([[1, 2]])))"]
    run = subprocess.run(command, cwd=package, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "[[1, 2]]\n"
