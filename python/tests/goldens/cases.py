"""What the SDK is asked, by the original's public names alone.

`generate.py` asks the original, and writes its answers to `answers.json`; `test_goldens.py` asks ours, and compares. A case is
a function without arguments that returns, or raises, something that `describe` knows.
"""

import asyncio
import datetime
import importlib
import json
import os
import tempfile
from typing import Any, Callable, Dict, List, Tuple

import mlserver
from mlserver import MLModel, ModelSettings, types
from mlserver.codecs import (
    Base64Codec,
    DatetimeCodec,
    InputCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    RequestCodec,
    StringCodec,
    StringRequestCodec,
    base,
    decode_args,
    decode_inference_request,
    decode_request_input,
    encode_inference_response,
    encode_response_output,
    get_decoded,
    get_decoded_or_raw,
    has_decoded,
    lists,
    string,
    utils,
)
from mlserver.codecs import errors as codec_errors
from mlserver.codecs import json as codec_json
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
    TensorData,
)

Case = Callable[[], Any]

#: Cases by name, and the libraries that each needs.
CASES: Dict[str, Tuple[Case, Tuple[str, ...]]] = {}


def case(*needs: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        assert function.__name__ not in CASES
        CASES[function.__name__] = (function, needs)
        return function

    return add


def cases(name: str, functions: List[Case], *needs: str) -> None:
    for index, function in enumerate(functions):
        CASES[f"{name}_{index}"] = (function, needs)


def run(function: Case) -> Any:
    """Returns the description of what a case returns or raises."""
    try:
        return describe(function())
    except Exception as error:
        return describe_error(error)


def describe_error(error: Exception) -> Any:
    if hasattr(error, "status_code"):
        return {"raises": type(error).__name__, "status": error.status_code, "message": str(error)}
    if hasattr(error, "errors") and type(error).__name__ == "ValidationError":
        return {"invalid": [[list(problem["loc"]), problem["type"]] for problem in error.errors()]}
    return {"raises": type(error).__name__}


def describe(value: Any) -> Any:
    """Returns JSON that tells whatever users see of a value: its class, its order, its text."""
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if kind == "TensorData":
        return {"tensor": [describe(item) for item in value] if isinstance(value.root, list) else describe(value.root)}
    if hasattr(value, "model_dump_json"):
        return {"class": kind, "json": value.model_dump_json(), "set": sorted(value.model_fields_set)}
    if kind == "ndarray":
        return {"array": describe(value.tolist()), "dtype": str(value.dtype), "shape": list(value.shape)}
    if kind == "DataFrame":
        columns = [[name, describe_column(value[name])] for name in value]
        return {"frame": columns, "index": [describe(label) for label in value.index]}
    if isinstance(value, datetime.datetime):
        return {"time": value.isoformat()}
    if isinstance(value, dict):
        return {"dict": [[describe(name), describe(item)] for name, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    if isinstance(value, type):
        return f"class {value.__name__}"
    return f"a {kind}"


def describe_column(series: Any) -> Any:
    dtype = str(series.dtype)
    if dtype in ("object", "str", "string"):
        dtype = "object"  # which of them text is, depends on pandas' version
    if dtype.startswith("datetime64"):
        dtype = "datetime64"
    return [dtype, [describe(value) for value in series]]


def tensor(name: str, shape: List[int], datatype: str, data: Any, **parameters: Any) -> RequestInput:
    return RequestInput(name=name, shape=shape, datatype=datatype, data=data, parameters=parameters or None)


def request(*inputs: RequestInput, **fields: Any) -> InferenceRequest:
    return InferenceRequest(inputs=list(inputs), **fields)


def settings(**fields: Any) -> ModelSettings:
    return ModelSettings(**{"name": "m", "implementation": MLModel, **fields})


def model(**fields: Any) -> MLModel:
    return MLModel(settings(**fields))


NUMBERS = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}
FULL = {
    "id": "7",
    "parameters": {"content_type": "np", "extra": {"a": [1, None]}, "none": None},
    "inputs": [{**NUMBERS, "parameters": {"content_type": "np", "more": 1}}],
    "outputs": [{"name": "y"}],
}

# Types

cases(
    "type_invalid",
    [
        lambda: RequestInput(name=1, shape=[1], datatype="FP32", data=[1]),
        lambda: RequestInput(shape=[1], datatype="FP32", data=[1]),
        lambda: RequestInput(name="x", shape=[1.5], datatype="FP3", data=[1]),
        lambda: RequestInput(name="x", shape="12", datatype="FP32", data=[1]),
        lambda: RequestInput(name="x", shape=[None, "a"], datatype=5),
        lambda: RequestInput(name="x", shape=[1], datatype="fp32", data=None),
        lambda: InferenceRequest(),
        lambda: InferenceRequest(inputs={}),
        lambda: InferenceRequest(inputs=[{"name": "x"}], id=5),
        lambda: InferenceRequest(inputs=[5], parameters=[]),
        lambda: InferenceRequest(inputs=[], outputs=[{"parameters": {"content_type": 5}}]),
        lambda: InferenceRequest(inputs=[], parameters={"headers": []}),
        lambda: InferenceResponse(outputs=[]),
        lambda: InferenceRequest.model_validate([]),
        lambda: InferenceRequest.model_validate_json("[]"),
        lambda: InferenceRequest.model_validate_json("{"),
        lambda: types.RepositoryIndexResponse(root=[{"name": "a", "state": "GONE", "reason": ""}]),
        lambda: types.MetadataModelResponse(name="m"),
        lambda: types.RepositoryIndexRequest(ready="perhaps"),
    ],
)
cases(
    "type_valid",
    [
        lambda: RequestInput(**NUMBERS),
        lambda: RequestInput(**{**NUMBERS, "shape": ("2", 1.0, True)}),
        lambda: RequestInput(**{**NUMBERS, "datatype": types.Datatype.INT8, "unknown": 1}),
        lambda: RequestInput(**{**NUMBERS, "datatype": types.Datatype.INT8}).datatype,
        lambda: RequestInput(**{**NUMBERS, "data": {"any": ["thing"]}}),
        lambda: RequestInput(**{**NUMBERS, "data": TensorData(root=[b"a", "b", None])}),
        lambda: InferenceRequest(**FULL),
        lambda: InferenceRequest.model_validate(FULL),
        lambda: InferenceRequest.model_validate_json(json.dumps(FULL)),
        lambda: InferenceRequest.parse_obj(FULL),
        lambda: InferenceRequest.parse_raw(json.dumps(FULL)),
        lambda: InferenceRequest.parse_raw(json.dumps(FULL).encode()),
        lambda: InferenceRequest.construct(id=5, inputs=[]).id,
        lambda: InferenceRequest.model_construct(inputs=[]),
        lambda: InferenceResponse(model_name="m", outputs=[]),
        lambda: types.RepositoryIndexResponse(root=[{"name": "a", "state": "READY", "reason": ""}]),
        lambda: types.RepositoryIndexRequest(ready="yes"),
        lambda: types.MetadataModelResponse(
            name="m", platform="", inputs=[MetadataTensor(name="a", datatype="FP32", shape=[-1])]
        ),
        lambda: types.MetadataServerResponse(name="s", version="1", extensions=("a",)),
        lambda: types.InferenceErrorResponse(error="e"),
        lambda: Parameters(),
        lambda: Parameters(content_type=None, a=None, b={"c": None}),
        lambda: Parameters(a=1) == Parameters(a=1),
        lambda: Parameters(a=1) == Parameters(a=2),
        lambda: Parameters(a=1) == {"a": 1},
        lambda: TensorData([1, 2]) == TensorData([1, 2]),
        lambda: TensorData([1, 2]) == [1, 2],
    ],
)
FULL_REQUEST: Callable[[], InferenceRequest] = lambda: InferenceRequest(**FULL)  # noqa: E731
cases(
    "type_methods",
    [
        lambda: FULL_REQUEST().dict(),
        lambda: FULL_REQUEST().json(),
        lambda: FULL_REQUEST().dict(exclude_unset=True),
        lambda: FULL_REQUEST().dict(exclude_none=True),
        lambda: FULL_REQUEST().json(exclude_defaults=True),
        lambda: FULL_REQUEST().json(include={"id", "outputs"}),
        lambda: FULL_REQUEST().json(exclude={"inputs"}),
        lambda: FULL_REQUEST().json(exclude={"inputs": {0: {"data"}}}),
        lambda: FULL_REQUEST().json(exclude={"inputs": {"__all__": {"data", "shape"}}}),
        lambda: FULL_REQUEST().model_dump(),
        lambda: FULL_REQUEST().model_dump(exclude_unset=False, exclude_none=False),
        lambda: FULL_REQUEST().model_dump(include={"inputs": {0: {"name"}}}),
        lambda: FULL_REQUEST().model_dump(mode="json"),
        lambda: FULL_REQUEST().model_dump_json(),
        lambda: FULL_REQUEST().model_dump_json(indent=2),
        lambda: FULL_REQUEST().copy(update={"id": "new"}),
        lambda: FULL_REQUEST().model_copy(deep=True) == FULL_REQUEST(),
        lambda: FULL_REQUEST().copy().inputs is FULL_REQUEST().inputs,
        lambda: FULL_REQUEST() == FULL_REQUEST(),
        lambda: repr(FULL_REQUEST()),
        lambda: str(FULL_REQUEST()),
        lambda: repr(FULL_REQUEST().parameters),
        lambda: [name for name, _ in FULL_REQUEST()],
        lambda: sorted(FULL_REQUEST().model_fields_set),
        lambda: list(type(FULL_REQUEST()).model_fields),
        lambda: FULL_REQUEST().parameters.extra,
        lambda: FULL_REQUEST().parameters.missing,
        lambda: setattr(FULL_REQUEST(), "unknown", 1),
        lambda: setattr(FULL_REQUEST(), "id", 5),
        lambda: FULL_REQUEST().parameters.model_extra,
        lambda: TensorData(root=[1, 2]).model_dump(),
        lambda: TensorData(root=[b"\xc3\xa9", 1.0, float("nan"), True, None]).model_dump_json(),
        lambda: repr(TensorData(root=[1, 2])),
        lambda: [len(TensorData([1, 2])), TensorData([1, 2])[1], list(TensorData([1, 2])), TensorData([1, 2, 3])[1:]],
        lambda: [
            item.name for item in types.RepositoryIndexResponse(root=[{"name": "a", "state": "READY", "reason": ""}])
        ],
        lambda: types.State("READY").name,
    ],
)


@case()
def type_changed_parameters() -> Any:
    made = FULL_REQUEST()
    made.parameters.added = [1]
    made.parameters.content_type = None
    made.id = None
    made.inputs.append(RequestInput(**NUMBERS))
    return [made, made.parameters, made.model_dump_json(exclude_none=False)]


# Codecs

TEXT_DATA: List[Any] = [["a", b"b", None, 5, ["x"]], "abc", b"abc", [], ["é"]]
cases(
    "string_decode", [lambda data=data: StringCodec.decode_input(tensor("x", [1], "BYTES", data)) for data in TEXT_DATA]
)
cases(
    "string",
    [
        lambda: StringCodec.encode_output("o", ["a", "é"]),
        lambda: StringCodec.encode_output("o", ["a"], use_bytes=False).data,
        lambda: StringCodec.encode_output("o", ["é"]).data,
        lambda: StringCodec.encode_input("o", []),
        lambda: StringCodec.encode_output("o", [b"a"]),
        lambda: StringCodec.decode_input(tensor("x", [1], "BYTES", [b"\xff"])),
        lambda: [StringCodec.can_encode(value) for value in (["a"], [], ("a",), "a", ["a", 1], None)],
        lambda: StringRequestCodec.encode_request(["a"]),
        lambda: StringRequestCodec.encode_response("m", ["a"], "v"),
        lambda: string.decode_str(5),
        lambda: [string.encode_str("é"), string.decode_str(b"\xc3\xa9"), string.decode_str("é")],
    ],
)
BASE64_DATA: List[Any] = [["UHl0"], [b"UHl0"], ["not b64!!"], ["é"], "UHl0", [None], [""], ["UHl"]]
cases(
    "base64_decode",
    [lambda data=data: Base64Codec.decode_input(tensor("x", [1], "BYTES", data)) for data in BASE64_DATA],
)
cases(
    "base64",
    [
        lambda: Base64Codec.encode_output("o", [b"Python is fun"]),
        lambda: Base64Codec.encode_output("o", ["ab"], use_bytes=False).data,
        lambda: Base64Codec.encode_input("o", [b"ab"]).data,
        lambda: [Base64Codec.can_encode(value) for value in ([b"a"], [], ["a"], b"a")],
    ],
)
TIMES: List[Any] = [
    "2021-08-24T15:01:19",
    "2021-08-24",
    "2021-08-24T15:01:19Z",
    "2021-08-24T15:01:19.123+02:00",
    "2021-08-24 15:01:19.123456789",
    "2021-08-24T15:01:19,5-05:30",
    "20210824T150119",
    "2021-W34-2",
    "2021-W34",
    "20210824T1501",
    "2021-08-24T15",
    "2021-08-24T15:01:19+0200",
    b"2021-08-24",
    "x",
    "2021-13-01",
    "2021-08-24T25:00",
    "",
    "2021-08-24T15:01:19+02:00:30",
]
cases(
    "datetime_decode",
    [lambda text=text: DatetimeCodec.decode_input(tensor("x", [1], "BYTES", [text])) for text in TIMES],
)
cases(
    "datetime",
    [
        lambda: DatetimeCodec.encode_output("o", [datetime.datetime(2020, 1, 1)]),
        lambda: (
            DatetimeCodec.encode_output("o", ["2020", datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)]).data
        ),
        lambda: DatetimeCodec.encode_input("o", [datetime.datetime(2020, 1, 1)], use_bytes=False).data,
        lambda: DatetimeCodec.decode_input(tensor("x", [1], "BYTES", "2021-08-24")),
    ],
)
ARRAYS: List[Tuple[Any, List[int], str]] = [
    ([1, 2], [2], "INT32"),
    ([[1], [2]], [2, 1], "INT32"),
    ([1, 2, 3, 4], [-1, 2], "INT32"),
    ([5], [], "INT32"),
    (5, [1], "INT32"),
    ([1, None], [2], "FP32"),
    ([1, None], [2], "INT32"),
    ([1.9], [1], "INT64"),
    (["7"], [1], "INT64"),
    (["5.1", "NaN", "Infinity"], [3], "FP32"),
    ([300], [1], "INT8"),
    ([-1], [1], "UINT8"),
    ([2**63], [1], "INT64"),
    ([1, 0, "a"], [3], "BOOL"),
    ([1, 2, 3], [2, 3], "INT8"),
    (["a", "bcd"], [2], "BYTES"),
    (["a", "bcd"], [2, 1], "BYTES"),
    ([b"ab"], [2, 1], "BYTES"),
    ([], [0], "FP32"),
    ([1, 2], [2], "UINT64"),
    ([1.5], [1], "FP16"),
]
cases(
    "numpy_decode",
    [
        lambda data=data, shape=shape, datatype=datatype: NumpyCodec.decode_input(tensor("x", shape, datatype, data))
        for data, shape, datatype in ARRAYS
    ],
    "numpy",
)


def numpy_arrays() -> List[Any]:
    numpy = importlib.import_module("numpy")
    nan, inf = float("nan"), float("inf")
    return [
        numpy.array([1, 2]),
        numpy.array(5.5),
        numpy.array([[1.5, nan], [inf, 2]]),
        numpy.array(["a", "bé"]),
        numpy.array(["a", None], dtype=object),
        numpy.zeros((0,)),
        numpy.zeros((2, 0)),
        numpy.array([True, False]),
        numpy.arange(6).reshape(2, 3).T,
        numpy.arange(6)[::2],
        numpy.array([1.1], dtype="float32"),
        numpy.array([1.1], dtype="float16"),
        numpy.array([255], dtype="uint8"),
        numpy.array([2**64 - 1], dtype="uint64"),
        numpy.array([[b"a"], [b"b"]])[:1],
    ]


ARRAY_COUNT = 15
cases(
    "numpy_encode",
    [lambda index=index: NumpyCodec.encode_output("o", numpy_arrays()[index]) for index in range(ARRAY_COUNT)],
    "numpy",
)
cases(
    "numpy_round",
    [
        lambda index=index: NumpyCodec.decode_output(NumpyCodec.encode_output("o", numpy_arrays()[index]))
        for index in range(ARRAY_COUNT)
        if index not in (3, 4)
    ],
    "numpy",
)
cases(
    "numpy",
    [
        lambda: NumpyCodec.encode_input("o", numpy_arrays()[0], use_bytes=False),
        lambda: NumpyRequestCodec.encode_request(numpy_arrays()[0]),
        lambda: NumpyRequestCodec.encode_response("m", numpy_arrays()[0], "v"),
        lambda: NumpyRequestCodec.decode_request(request(tensor("x", [2], "INT32", [1, 2]))),
        lambda: NumpyRequestCodec.decode_request(request()),
        lambda: NumpyRequestCodec.decode_request(request(tensor("x", [1], "INT8", [1]), tensor("y", [1], "INT8", [1]))),
        lambda: NumpyRequestCodec.decode_response(InferenceResponse(model_name="m", outputs=[])),
        lambda: NumpyRequestCodec.decode_response(NumpyRequestCodec.encode_response("m", numpy_arrays()[2])),
        lambda: [NumpyCodec.can_encode(value) for value in (numpy_arrays()[0], [1], None)],
    ],
    "numpy",
)
cases(
    "lists",
    [
        lambda: [list(lists.as_list(value)) for value in ("abc", b"abc", ["a", b"b"], [["a"]], 5, None)],
        lambda: [lists.is_list_of(value, str) for value in (["a"], [], ("a",), "a", ["a", 1], None)],
        lambda: [utils.inject_batch_dimension(shape) for shape in ([], [3], [2, 3], [0])],
        lambda: [utils.DefaultInputPrefix, utils.DefaultOutputPrefix],
    ],
)
cases(
    "json",
    [
        lambda: codec_json.encode_to_json({"a": [1, 2.5, None], "é": "ü"}),
        lambda: codec_json.encode_to_json("x", use_bytes=False),
        lambda: codec_json.encode_to_json(float("nan")),
        lambda: codec_json.encode_to_json(b"x"),
        lambda: codec_json.encode_to_json_bytes({"a": b"x", "b": [float("inf")]}),
        lambda: [codec_json.decode_from_bytelike_json_to_dict(text) for text in ('{"a":1}', b"[1]", '"x"')],
        lambda: codec_json.decode_from_bytelike_json_to_dict("bad"),
    ],
)
cases(
    "json_numpy",
    [
        lambda: codec_json.encode_to_json({"a": numpy_arrays()[0], "b": numpy_arrays()[10][0]}),
        lambda: codec_json.encode_to_json([numpy_arrays()[8]], use_bytes=False),
    ],
    "numpy",
)


def frames() -> List[Any]:
    pandas = importlib.import_module("pandas")
    text = {"dtype": object}
    nan = float("nan")
    return [
        pandas.DataFrame({"A": pandas.Series(["a1", "a2"], **text), "B": [1, 2], "C": [1.5, nan], "D": [True, False]}),
        pandas.DataFrame({"A": ["a", 1]}, **text),
        pandas.DataFrame({"A": [b"a", b"b"]}, **text),
        pandas.DataFrame({"A": ["a", b"b"]}, **text),
        pandas.DataFrame({"A": [{"x": 1}, [1, None]]}, **text),
        pandas.DataFrame({"A": [["a", "é"], ["c"]]}, **text),
        pandas.DataFrame({"A": [numpy_arrays()[0], numpy_arrays()[0]]}, **text),
        pandas.DataFrame({"A": [1.5, float("inf")]}),
        pandas.DataFrame({"A": [1, 2]}, index=["x", "y"]),
        pandas.DataFrame(),
        pandas.DataFrame({0: [1]}),
    ]


FRAME_COUNT = 11
cases(
    "pandas_encode",
    [lambda index=index: PandasCodec.encode_outputs(frames()[index]) for index in range(FRAME_COUNT)],
    "pandas",
)
PANDAS_INPUTS: List[List[RequestInput]] = [
    [
        tensor("a", [2], "INT32", [1, 2]),
        tensor("b", [2, 1], "FP32", [1, None]),
        tensor("c", [2], "BYTES", ["x", "y"]),
        tensor("d", [2], "BYTES", ['{"a":1}', "2"], content_type="pd_json"),
        tensor("e", [2], "BYTES", ["YQ==", "YQ=="], content_type="base64"),
    ],
    [tensor("a", [2, 1], "INT32", [[1], [2]])],
    [tensor("a", [2, 2], "INT32", [1, 2, 3, 4])],
    [tensor("a", [2], "INT32", [1, 2]), tensor("b", [3], "INT32", [1, 2, 3])],
    [tensor("a", [2], "INT32", [1, 2]), tensor("a", [2], "INT32", [3, 4])],
    [tensor("a", [2], "INT32", [1, None])],
    [],
    [tensor("a", [2], "BOOL", [True, False])],
]
cases(
    "pandas_decode",
    [lambda inputs=inputs: PandasCodec.decode_request(request(*inputs)) for inputs in PANDAS_INPUTS],
    "pandas",
)
cases(
    "pandas_stacked",
    [
        lambda: model().decode_request(
            request(
                tensor("a", [2], "INT32", [1, 2], content_type="np"),
                tensor("b", [2], "BYTES", ["YQ==", "Yg=="], content_type="base64"),
                tensor("c", [2], "BYTES", ["2020-01-01", "2020-01-02"], content_type="datetime"),
                tensor("d", [2], "BYTES", ["x", "y"], content_type="str"),
                parameters={"content_type": "pd"},
            )
        ),
        lambda: model(parameters={"content_type": "pd"}).decode_request(request(tensor("a", [1], "INT8", [1]))),
        lambda: PandasCodec.encode_request(frames()[8]),
        lambda: PandasCodec.encode_response("m", frames()[0], "v", use_bytes=False),
        lambda: PandasCodec.decode_response(
            InferenceResponse(model_name="m", outputs=PandasCodec.encode_outputs(frames()[8]))
        ),
        lambda: model().encode_response(frames()[8]),
    ],
    "pandas",
)

# Finding codecs, and what models do with them

cases(
    "find",
    [
        lambda: [
            [base.find_input_codec(name), base.find_request_codec(name)]
            for name in ("np", "str", "base64", "pd", "zz", None)
        ],
        lambda: [base.find_input_codec_by_type_hint(hint) for hint in (List[str], List[bytes], List[int], int, list)],
        lambda: [base.find_request_codec_by_type_hint(hint) for hint in (List[str], List[bytes], int)],
        lambda: [base.find_input_codec_by_payload(value) for value in (["a"], [], [b"a"], {}, 5, None, ["a", 1])],
        lambda: [base.find_request_codec_by_payload(value) for value in (["a"], [b"a"], 5)],
        lambda: str(codec_errors.CodecNotFound()),
        lambda: str(codec_errors.CodecNotFound("n", "t", True, True)),
        lambda: str(codec_errors.CodecNotFound(payload_type="t", is_request=True)),
        lambda: str(codec_errors.OutputNotFound(0, int, [List[str]])),
        lambda: str(
            codec_errors.InputsNotFound([tensor("x", [], "INT8", []), tensor("y", [], "INT8", [])], {"a": 1, "b": 2})
        ),
        lambda: InputCodec.encode_output("a", 5),
        lambda: InputCodec.can_encode(5),
        lambda: RequestCodec.decode_request(request()),
    ],
)


@case()
def custom_codecs() -> Any:
    class Upper(InputCodec):
        ContentType = "upper"
        TypeHint = "upper text"

        @classmethod
        def can_encode(cls, payload: Any) -> bool:
            return isinstance(payload, str) and payload.isupper()

        @classmethod
        def encode_output(cls, name: str, payload: Any, **kwargs: Any) -> ResponseOutput:
            return ResponseOutput(name=name, shape=[1], datatype="BYTES", data=[payload])

        @classmethod
        def decode_input(cls, request_input: RequestInput) -> Any:
            return request_input.data[0].upper()

    registered = mlserver.codecs.register_input_codec(Upper)
    instance = mlserver.codecs.register_request_codec(utils.SingleInputRequestCodec())
    found = [
        registered is Upper,
        type(instance),
        base.find_input_codec("upper"),
        base.find_input_codec_by_payload("ABC"),
    ]
    decoded = model().decode(tensor("x", [1], "BYTES", ["abc"], content_type="upper"))
    encoded = model().encode("ABC", RequestOutput(name="o"))
    for codecs in (base._codec_registry._input_codecs,) if hasattr(base, "_codec_registry") else ():
        del codecs["upper"]
    return [found, decoded, encoded]


@case()
def decoded_values() -> Any:
    plain = tensor("x", [1], "BYTES", ["YQ=="])
    marked = tensor("x", [1], "BYTES", ["YQ=="], content_type="base64")
    before = [has_decoded(plain), has_decoded(marked), get_decoded(marked), get_decoded_or_raw(marked)]
    decoded = [decode_request_input(plain), decode_request_input(marked)]
    after = [has_decoded(plain), has_decoded(marked), get_decoded(marked), get_decoded_or_raw(marked)]
    return [before, decoded, after, marked, plain]


@case()
def decoded_requests() -> Any:
    whole = request(tensor("x", [1], "BYTES", ["YQ=="], content_type="base64"), parameters={"content_type": "str"})
    other = request(tensor("x", [1], "BYTES", ["a"]))
    return [
        decode_inference_request(whole),
        has_decoded(whole),
        decode_inference_request(other) is other,
        has_decoded(other),
        decode_inference_request(other, settings(parameters={"content_type": "str"})),
        whole,
    ]


@case()
def model_decodes() -> Any:
    made = model(inputs=[{"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "base64"}}])
    one, two = tensor("x", [1], "BYTES", ["YQ=="]), tensor("y", [1], "BYTES", ["YQ=="])
    seen = [made.decode(one), made.decode(two), made.decode(two, StringCodec)]
    seen += [
        made.decode(tensor("x", [1], "BYTES", ["YQ=="], content_type="str")),
        made.decode(tensor("x", [1], "BYTES", ["YQ=="], content_type="zz")),
    ]
    made.inputs = [MetadataTensor(name="y", datatype="BYTES", shape=[-1], parameters=Parameters(content_type="base64"))]
    return [
        *seen,
        made.decode(tensor("x", [1], "BYTES", ["YQ=="])),
        made.decode(tensor("y", [1], "BYTES", ["YQ=="])),
        made.settings.inputs,
    ]


@case()
def model_decodes_requests() -> Any:
    made = model()
    one = request(tensor("x", [1], "BYTES", ["a"]), parameters={"content_type": "zz"})
    first = made.decode_request(one, StringRequestCodec)
    one.inputs[0].data = TensorData(root=["b"])
    return [first, made.decode_request(one, StringRequestCodec), has_decoded(one), made.decode_request(one) is one]


cases(
    "model_encodes",
    [
        lambda: model().encode(["a"], RequestOutput(name="o")),
        lambda: model().encode(5, RequestOutput(name="o")),
        lambda: model().encode([5], RequestOutput(name="o", parameters={"content_type": "zz"})),
        lambda: model().encode([b"a"], RequestOutput(name="o", parameters={"content_type": "base64"})),
        lambda: model(
            outputs=[MetadataTensor(name="o", datatype="BYTES", shape=[1], parameters={"content_type": "base64"})]
        ).encode(["a"], RequestOutput(name="o")),
        lambda: model().encode((), RequestOutput(name="o"), StringCodec),
        lambda: model(parameters={"version": "3"}).encode_response(["a"]),
        lambda: model().encode_response([b"a"]),
        lambda: model().encode_response((), StringRequestCodec),
        lambda: encode_response_output(5, RequestOutput(name="o")),
        lambda: encode_inference_response(5, settings()),
    ],
)
cases(
    "model",
    [
        lambda: asyncio.run(model().predict(request())),
        lambda: [asyncio.run(model().load()), asyncio.run(model().unload()), model().ready],
        lambda: asyncio.run(model().metadata()),
        lambda: asyncio.run(
            model(
                parameters={"content_type": "np", "other": 1, "version": "1"},
                platform="p",
                versions=["a/1"],
                inputs=[{"name": "a", "datatype": "FP32", "shape": [-1]}],
            ).metadata()
        ),
        lambda: [model(parameters={"version": "2"}).version, model().version, model().name, model().inputs],
        lambda: setattr(model(), "name", "other"),
    ],
)


@case()
def model_streams() -> Any:
    class Answers(MLModel):
        async def predict(self, payload: InferenceRequest) -> InferenceResponse:
            return InferenceResponse(model_name=self.name, id=payload.id, outputs=[])

    async def requests() -> Any:
        yield request(id="1")
        yield request(id="2")

    async def collect() -> List[Any]:
        return [response async for response in Answers(settings()).predict_stream(requests())]

    return asyncio.run(collect())


# decode_args


def call(predict: Any, *inputs: RequestInput, **fields: Any) -> Any:
    class Decorated(MLModel):
        pass

    Decorated.predict = decode_args(predict)
    return asyncio.run(Decorated(settings()).predict(request(*inputs, **fields)))


A, B = tensor("a", [2], "BYTES", ["x", "y"]), tensor("b", [1], "BYTES", ["YQ=="])


@case()
def args_text() -> Any:
    async def predict(self: Any, a: List[str], b: List[bytes]) -> List[str]:
        return [text.upper() for text in a] + [b[0].decode()]

    return [call(predict, A, B), call(predict, B, A, id="7", outputs=[RequestOutput(name="z")])]


@case()
def args_missing() -> Any:
    async def predict(self: Any, a: List[str], b: List[bytes]) -> List[str]:
        return a

    return call(predict, A)


@case()
def args_unknown() -> Any:
    async def predict(self: Any, a: List[str]) -> List[str]:
        return a

    return call(predict, A, B, tensor("c", [1], "INT8", [1]))


@case()
def args_optional() -> Any:
    from typing import Optional

    async def predict(self: Any, a: List[str], b: Optional[List[bytes]] = None) -> List[str]:
        return [*a, "none" if b is None else b[0].decode()]

    return [call(predict, A), call(predict, A, B)]


@case()
def args_tuple() -> Any:
    async def predict(self: Any, a: List[str]) -> Tuple[List[str], List[bytes]]:
        return a, [b"1", b"2"]

    return call(predict, A)


@case()
def args_too_many_values() -> Any:
    async def predict(self: Any, a: List[str]) -> List[str]:
        return a, a

    return call(predict, A)


@case()
def args_wrong_value() -> Any:
    async def predict(self: Any, a: List[str]) -> Tuple[List[str], List[bytes]]:
        return a, {"a": 1}

    return call(predict, A)


@case()
def args_nothing() -> Any:
    async def predict(self: Any, a: List[str]):
        return None

    return call(predict, A)


@case()
def args_no_hint() -> Any:
    async def predict(self: Any, a: List[str]):
        return a

    return call(predict, A)


@case()
def args_unhinted_argument() -> Any:
    async def predict(self: Any, a: List[str], b) -> List[str]:
        return a

    return call(predict, A, B)


@case()
def args_unsupported_hint() -> Any:
    async def predict(self: Any, a: int) -> List[str]:
        return []

    return call(predict, A)


@case()
def args_unsupported_return() -> Any:
    async def predict(self: Any, a: List[str]) -> Dict[str, int]:
        return {}

    return call(predict, A)


@case()
def args_hints_as_text() -> Any:
    async def predict(self: Any, a: "List[str]") -> "List[str]":
        return a

    return call(predict, tensor("a", [1], "BYTES", ["YQ=="], content_type="base64"), parameters={"content_type": "np"})


@case("pandas")
def args_frame() -> Any:
    import pandas

    async def predict(self: Any, df: pandas.DataFrame) -> pandas.DataFrame:
        return df

    return [
        call(predict, tensor("a", [2], "INT32", [1, 2]), tensor("b", [2], "FP64", [1.5, 2])),
        run(lambda: call(predict, tensor("df", [2], "INT32", [1, 2]))),
    ]


@case("pandas")
def args_array_and_frame() -> Any:
    import numpy
    import pandas

    async def predict(self: Any, a: numpy.ndarray, df: pandas.DataFrame) -> Tuple[numpy.ndarray, pandas.DataFrame]:
        return a * 2, df

    return call(
        predict, tensor("a", [2], "INT32", [1, 2]), tensor("b", [1], "FP64", [1.5]), tensor("c", [1], "INT8", [1])
    )


# Settings, errors, helpers

cases(
    "settings",
    [
        lambda: settings(),
        lambda: settings().dict(),
        lambda: settings(parameters={"version": "1", "foo": 2, "extra": {"k": 1}}).dict(),
        lambda: settings(parameters={"version": "1", "foo": 2}).json(),
        lambda: settings(parameters={"version": "1", "foo": 2}).parameters.foo,
        lambda: settings(parameters={"foo": 2}).parameters.bar,
        lambda: settings().model_dump(by_alias=True),
        lambda: ModelSettings(),
        lambda: ModelSettings(name=5, implementation="a.B"),
        lambda: ModelSettings.model_validate({"name": "a"}),
        lambda: ModelSettings.parse_obj({"name": "a", "implementation": "mlserver.MLModel"}).implementation,
        lambda: settings(max_batch_size="5", max_batch_time=1, versions=["1"], unknown=5),
        lambda: settings(inputs=[{"name": "a", "datatype": "FP32"}]),
        lambda: settings(parameters={"version": 1}),
        lambda: settings(cache_enabled="perhaps"),
        lambda: setattr(settings(), "unknown", 1),
        lambda: mlserver.settings.ModelParameters(autogenerate_inference_pool_gid=True).inference_pool_gid.count("-"),
        lambda: mlserver.settings.ModelParameters(environment_path="~/x", inference_pool_gid="g"),
        lambda: mlserver.Settings(http_port="x", cors_settings={"max_age": "a"}),
        lambda: mlserver.Settings(cors_settings={"allow_origins": ["*"]}).cors_settings,
        lambda: sorted(set(mlserver.Settings.model_fields)),
    ],
)


@case()
def settings_of_a_file() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model-settings.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"name": "f", "implementation": "mlserver.MLModel", "parameters": {"uri": "./x.txt"}}, file)
        found = ModelSettings.parse_file(path)
        uri = mlserver.utils.get_model_uri
        missing = run(lambda: asyncio.run(uri(found)))
        missing["message"] = missing["message"].replace(folder, "FOLDER")
        with open(os.path.join(folder, "x.txt"), "w", encoding="utf-8"):
            pass
        there = asyncio.run(uri(found)).replace(folder, "FOLDER")
        found.parameters.uri = "."
        known = asyncio.run(uri(found, ["other", "x.txt"])).replace(folder, "FOLDER")
        plain = asyncio.run(uri(found)).replace(folder, "FOLDER")
        relative = mlserver.utils.to_absolute_path(found, "../y").replace(os.path.dirname(folder), "PARENT")
        return [missing, there, known, plain, relative]


cases(
    "uri",
    [
        lambda uri=uri: asyncio.run(mlserver.utils.get_model_uri(settings(parameters={"uri": uri})))
        for uri in (None, "", "s3://bucket/x", "file:///", "/", "/no/such/file")
    ],
)


@case()
def environment() -> Any:
    variables = {
        "MLSERVER_HTTP_PORT": "99",
        "mlserver_debug": "1",
        "MLSERVER_EXTENSIONS": '["a"]',
        "MLSERVER_MODEL_MAX_BATCH_SIZE": "7",
        "MLSERVER_MODEL_VERSION": "v9",
        "MLSERVER_MODEL_INPUTS": '[{"name":"a","datatype":"FP32","shape":[1]}]',
    }
    os.environ.update(variables)
    try:
        made = settings(parameters={})
        server = mlserver.Settings(debug=False)
        return [
            made.max_batch_size,
            made.version,
            made.inputs,
            settings(max_batch_size=3).max_batch_size,
            settings().parameters,
            server.http_port,
            server.debug,
            server.extensions,
        ]
    finally:
        for name in variables:
            del os.environ[name]


def errors() -> Any:
    return importlib.import_module("mlserver.errors")


cases(
    "error",
    [
        lambda: describe_error(errors().MLServerError("m")),
        lambda: describe_error(errors().MLServerError("m", 418)),
        lambda: describe_error(errors().InvalidModelURI("m")),
        lambda: describe_error(errors().InvalidModelURI("m", "/u")),
        lambda: describe_error(errors().ModelNotFound("m")),
        lambda: describe_error(errors().ModelNotFound("m", "1")),
        lambda: describe_error(errors().ModelNotReady("m")),
        lambda: describe_error(errors().ModelNotReady("m", "1")),
        lambda: describe_error(errors().InferenceError("m")),
        lambda: describe_error(errors().ModelParametersMissing("m")),
        lambda: describe_error(importlib.import_module("mlserver.codecs").CodecError("m")),
        lambda: describe_error(importlib.import_module("mlserver.metrics.errors").InvalidModelContext()),
        lambda: describe_error(importlib.import_module("mlserver.metrics.errors").MetricNotFound("m")),
        lambda: describe_error(importlib.import_module("mlserver.parallel.errors").WorkerStop(9)),
        lambda: describe_error(importlib.import_module("mlserver.parallel.errors").WorkerError(ValueError("m"))),
        lambda: describe_error(importlib.import_module("mlserver.kafka.errors").InvalidMessageHeaders("m")),
        lambda: mlserver.log(some_metric=1),
    ],
)


@case()
def headers() -> Any:
    made = request()
    mlserver.utils.insert_headers(made, {"a": "b"})
    answer = InferenceResponse(model_name="m", outputs=[], parameters={"headers": {"x": "y"}, "z": 1})
    taken = mlserver.utils.extract_headers(answer)
    bare = mlserver.utils.extract_headers(InferenceResponse(model_name="m", outputs=[]))
    return [made.parameters.headers, taken, answer, bare]


@case()
def custom_handlers() -> Any:
    handlers = importlib.import_module("mlserver.handlers")

    class Routed(MLModel):
        @handlers.custom_handler(rest_path="/a")
        async def first(self, text: str) -> str:
            return text

        @handlers.custom_handler(rest_path="/b", rest_method="GET")
        @handlers.custom_handler(rest_path="/c")
        def second(self) -> int:
            return 1

    return [
        [handler.rest_path, handler.rest_method, method.__name__]
        for handler, method in handlers.get_custom_handlers(Routed(settings()))
    ]


@case()
def repository() -> Any:
    module = importlib.import_module("mlserver.repository")
    files = {
        "a": {"implementation": "mlserver.MLModel"},
        "b/1": {"name": "b", "implementation": "mlserver.MLModel", "parameters": {"version": "1"}},
        "b/2": {"name": "b", "implementation": "mlserver.MLModel", "parameters": {"version": "2", "uri": "s3://x"}},
        ".hidden": {"implementation": "mlserver.MLModel"},
        "lacks": {"name": "x"},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            os.makedirs(os.path.join(folder, name))
            with open(os.path.join(folder, name, "model-settings.json"), "w", encoding="utf-8") as file:
                json.dump(content, file)
        made = module.SchemalessModelRepository(folder)
        listed = asyncio.run(made.list())
        listed.sort(key=lambda found: (found.name, found.version or ""))
        told = [json.loads(found.json().replace(folder, "FOLDER")) for found in listed]
        return [told, len(asyncio.run(made.find("b"))), run(lambda: asyncio.run(made.find("zz")))]


def converters() -> Any:
    return importlib.import_module("mlserver.grpc.converters")


def full_types() -> InferenceRequest:
    return InferenceRequest(
        id="7",
        parameters=Parameters(content_type="np", a=1, b=True, c=1.5, d=None, e="x"),
        inputs=[
            tensor("x", [2], "INT32", [1, 2], content_type="np"),
            tensor("y", [1], "BYTES", [b"ab"]),
            tensor("z", [1], "FP64", [1.5]),
        ],
        outputs=[RequestOutput(name="o", parameters={"content_type": "str"})],
    )


def answer_types() -> InferenceResponse:
    output = ResponseOutput(name="o", shape=[2, 1], datatype="FP32", data=[1.5, 2.0], parameters={"content_type": "np"})
    return InferenceResponse(model_name="m", model_version="v", id="1", parameters={"z": 1}, outputs=[output])


def message(made: Any) -> Any:
    json_format = importlib.import_module("google.protobuf.json_format")
    return json.loads(json.dumps(json_format.MessageToDict(made), sort_keys=True))


cases(
    "grpc",
    [
        lambda: message(converters().ModelInferRequestConverter.from_types(full_types(), "m")),
        lambda: message(converters().ModelInferRequestConverter.from_types(full_types(), "m", "v", use_raw=True)),
        lambda: json.loads(
            converters()
            .ModelInferRequestConverter.to_types(
                converters().ModelInferRequestConverter.from_types(full_types(), "m", use_raw=True)
            )
            .json()
        )["inputs"],
        lambda: json.loads(
            converters()
            .ModelInferRequestConverter.to_types(converters().ModelInferRequestConverter.from_types(full_types(), "m"))
            .json()
        )["inputs"],
        lambda: message(converters().ModelInferResponseConverter.from_types(answer_types())),
        lambda: message(converters().ModelInferResponseConverter.from_types(answer_types(), use_raw=True)),
        lambda: converters().ModelInferResponseConverter.to_types(
            converters().ModelInferResponseConverter.from_types(answer_types(), use_raw=True)
        ),
        lambda: message(
            converters().ModelMetadataResponseConverter.from_types(asyncio.run(model(platform="p").metadata()))
        ),
        lambda: converters().RepositoryIndexRequestConverter.from_types(types.RepositoryIndexRequest(ready=True)),
        lambda: message(
            converters().RepositoryIndexResponseConverter.from_types(
                types.RepositoryIndexResponse(root=[{"name": "a", "state": "READY", "reason": ""}])
            )
        ),
    ],
    "google.protobuf",
    "grpc",
)
cases(
    "raw",
    [
        lambda: importlib.import_module("mlserver.raw").pack(tensor("x", [2], "INT16", [1, -1])),
        lambda: importlib.import_module("mlserver.raw").pack(tensor("x", [2], "BYTES", [b"ab", b""])),
        lambda: importlib.import_module("mlserver.raw").unpack(tensor("x", [2], "INT16", []), b"\x01\x00\xff\xff"),
        lambda: importlib.import_module("mlserver.raw").unpack(
            tensor("x", [2], "BYTES", []), b"\x02\x00\x00\x00ab\x00\x00\x00\x00"
        ),
        lambda: importlib.import_module("mlserver.raw").unpack(tensor("x", [1], "FP16", []), b"\x00\x3e"),
    ],
)
