"""A model whose answers are generated from a number, and one that returns the request as it sees it."""

import dataclasses
import datetime
import decimal
import enum
import random
import uuid

import numpy
from mlserver import MLModel
from mlserver.types import InferenceResponse, Parameters, ResponseOutput

INTEGERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]
FLOATS = ["FP16", "FP32", "FP64"]
DATATYPES = ["BOOL", *INTEGERS, *FLOATS, "BYTES"]


class Color(enum.Enum):
    RED = "red"
    TWO = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float


def _times(pick):
    zone = pick([None, datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=2))])
    microsecond = pick([0, 120000, 123456])
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, microsecond, zone)
    length = datetime.timedelta(days=pick([0, 1, -1]), seconds=pick([0, 1, 3661]), microseconds=pick([0, 5]))
    return pick([moment, moment.date(), moment.timetz(), length])


def _objects(pick):
    kind = pick(["object", "nested object", "list in object", "number", "none", "boolean", "time", "uuid", "enum", "decimal", "data class", "set", "numpy"])
    if kind == "object":
        return {"label": pick(["a", "é", '"']), "score": pick([0.5, 1, 1e300, float("nan")])}
    if kind == "nested object":
        return {"a": {"b": [1, 2.5, None, {"c": True}]}}
    if kind == "list in object":
        return {"values": [[1, 2], []], "when": _times(pick)}
    if kind == "number":
        return pick([0, -1, 2.5, 1e20, 10**18])
    if kind == "none":
        return None
    if kind == "boolean":
        return pick([True, False])
    if kind == "time":
        return _times(pick)
    if kind == "uuid":
        return uuid.UUID(int=5)
    if kind == "enum":
        return pick(list(Color))
    if kind == "decimal":
        return decimal.Decimal(pick(["1.50", "-0.1", "1E+3"]))
    if kind == "data class":
        return Point(1, 2.5)
    if kind == "set":
        return {1}
    return pick([numpy.float32(1.1), numpy.int64(3), numpy.array([[1, 2], [3, 4]]), numpy.bool_(True), numpy.float64(2.5)])


def _element(datatype, odd, pick, number):
    """Returns an element of a datatype, or one that does not suit it if `odd` is true."""
    if datatype == "BYTES":
        return _objects(pick) if odd else pick(["calm", "", "é\n", "a,b", b"bytes", "日本"])
    if odd:
        return pick([None, "word", 2.5, 1e300, -1, 300, 2**40, True, False, 1, 0, float("nan"), float("inf"), -float("inf"), 70000.0, {"a": 1}, decimal.Decimal("1.5")])
    if datatype == "BOOL":
        return pick([True, False])
    if datatype in FLOATS:
        return pick([0.5, -2.0, 1.1, 3, 0.0, 100.25])
    return number(0, 100)


def _nested(shape, make):
    return make() if not shape else [_nested(shape[1:], make) for _ in range(shape[0])]


DTYPES = ["float32", "float64", "float16", "int64", "int8", "uint16", "bool", "object", "datetime64[s]", "<U3", "S3"]


def data(datatype, rng):
    """Returns a shape and data for it, in one of many forms."""
    pick, number = rng.choice, rng.randint
    form = pick(["flat", "flat", "rows", "rows", "deep", "one", "text", "array", "array", "tuple", "ragged", "empty", "other shape", "other shape", "open shape", "masked"])
    oddness = pick([0.0, 0.0, 0.2, 1.0])

    def make():
        return _element(datatype, rng.random() < oddness, pick, number)

    length = number(1, 4)
    if form == "flat":
        return [length], _nested([length], make)
    if form == "rows":
        shape = [length, number(1, 3)]
        return shape, _nested(shape, make)
    if form == "deep":
        shape = [number(1, 2), number(1, 3), number(1, 2)]
        return shape, _nested(shape, make)
    if form == "one":
        return pick([[1], [], [3]]), make()
    if form == "text":
        return pick([[1], [7], [2, 2]]), pick(["a summary", b"bytes", ""])
    if form in ("array", "masked"):
        shape = [length, number(1, 3)][: number(1, 2)]
        dtype = pick(DTYPES[:7] if form == "masked" else DTYPES)
        array = numpy.array(_nested(shape, lambda: number(0, 3)), dtype=dtype)
        if form == "masked":
            array = numpy.ma.masked_array(array, array == array.flat[0])
        return pick([shape, shape, [array.size], [array.size + 1]]), array
    if form == "tuple":
        return [length], tuple(make() for _ in range(length))
    if form == "ragged":
        return [2, 2], pick([[[make(), make()], [make()]], [make(), [make()]], [[make()], make()]])
    if form == "empty":
        return pick([[0], [0, 3], [2, 0], [1]]), pick([[], [[]], [[], []]])
    shape = [length, number(1, 3)]
    if form == "open shape":
        return pick([[-1], [-1, shape[1]], [-1, -1], [length, -1]]), pick([_nested(shape, make), _nested([shape[0] * shape[1]], make)])
    other = pick([[shape[0] * shape[1]], [shape[1], shape[0]], [1], [9, 9], [], [shape[0] * shape[1], 1]])
    return other, pick([_nested(shape, make), _nested([shape[0] * shape[1]], make)])


def parameters(rng):
    pick = rng.choice
    return pick([
        None, None, Parameters(), {}, Parameters(content_type="np"), {"content_type": "str", "more": [1, {"a": None}]},
        {"when": _times(pick)}, {"n": None, "x": 1.5}, {"numpy": numpy.float32(1.5)}, {"copy": 1, "dict": 2, "json": 3}, {"content_type": None},
    ])


def response(number):
    """Returns the answer with this number."""
    rng = random.Random(number)
    pick = rng.choice
    outputs = []
    for index in range(pick([1, 1, 1, 2, 0] if number % 10 == 0 else [1, 1, 2])):
        datatype = DATATYPES[(number + index) % len(DATATYPES)]
        shape, values = data(datatype, rng)
        given = parameters(rng)
        fields = {} if given is None else {"parameters": given}
        name = pick(["y", "y", f"output-{index}", "", "é", 'a"b'])
        outputs.append(ResponseOutput(name=name, shape=shape, datatype=datatype, data=values, **fields))
    fields = {}
    if rng.random() < 0.3:
        fields["model_version"] = pick(["v1", "", None, "1.2.3"])
    if rng.random() < 0.1:
        fields["id"] = "an id of its own"
    given = parameters(rng)
    if given is not None:
        fields["parameters"] = given
    if rng.random() < 0.1:
        fields["parameters"] = {"headers": {"x-answer": pick(["1", "é", "a b"]), "X-Other": "2"}, "kept": 1}
    return InferenceResponse(model_name=pick(["answers", "answers", "another"]), outputs=outputs, **fields)


class Answers(MLModel):
    async def predict(self, payload):
        return response(int(payload.id))


class Seen(MLModel):
    """Returns the request as it sees it."""

    async def predict(self, payload):
        dumped = payload.model_dump()
        seen = [repr(dumped), repr(payload.outputs), repr(payload.parameters is None)]
        for one in payload.inputs:
            seen.append(repr(one.parameters is None))
            seen.append(repr(one.data.root))
            seen.append(type(one.parameters.copy).__name__ if one.parameters is not None else "")
        return InferenceResponse(
            model_name=self.name, outputs=[ResponseOutput(name="seen", shape=[len(seen)], datatype="BYTES", data=seen)]
        )
