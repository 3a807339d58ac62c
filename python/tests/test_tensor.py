"""Tensor elements in buffers, and the conversion of models' results to them."""

import copy
import datetime
import decimal
import json
import math
import pickle
import struct
import uuid
from array import array
from typing import Any, Dict, List

import pytest
from mlserver._payload import inference_request, parameters, requested_output, tensor_input, wire_outputs
from mlserver._tensor import WIDTHS, BytesElements, FixedElements, TensorError, pack
from mlserver.codecs import Base64Codec, NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestInput, ResponseOutput, TensorData


def fixed(datatype: str, content: bytes) -> FixedElements:
    return FixedElements(datatype, memoryview(bytearray(content)))


def text(*elements: str) -> BytesElements:
    packed = pack(list(elements), "BYTES")
    assert isinstance(packed, BytesElements)
    return BytesElements(packed.buffer, packed.offsets, text=True)


@pytest.mark.parametrize(
    ("datatype", "values", "content"),
    [
        ("BOOL", [True, False], b"\x01\x00"),
        ("INT8", [1, -1], b"\x01\xff"),
        ("UINT16", [1, 65535], b"\x01\x00\xff\xff"),
        ("INT32", [-2], b"\xfe\xff\xff\xff"),
        ("UINT64", [2**64 - 1], b"\xff" * 8),
        ("INT64", [-(2**63)], b"\x00" * 7 + b"\x80"),
        ("FP16", [1.5, math.inf], b"\x00\x3e\x00\x7c"),
        ("BF16", [1.0, -2.0], b"\x80\x3f\x00\xc0"),
        ("FP32", [0.5], b"\x00\x00\x00\x3f"),
        ("FP64", [0.5], b"\x00" * 6 + b"\xe0\x3f"),
    ],
)
def test_pack_writes_little_endian_numbers(datatype: str, values: List[Any], content: bytes) -> None:
    packed = pack(values, datatype)
    assert isinstance(packed, FixedElements)
    assert bytes(packed.buffer) == content
    assert packed.tolist() == values
    assert list(packed) == values
    assert len(packed) == len(values)
    assert packed[-1] == values[-1]
    assert packed[0:1] == values[0:1]


@pytest.mark.parametrize("datatype", sorted(WIDTHS))
def test_fixed_elements_read_unaligned_buffer(datatype: str) -> None:
    content = bytes(pack([1, 0, 1], datatype).buffer)
    shifted = memoryview(b"x" + content)[1:]
    assert FixedElements(datatype, shifted).tolist() == [1, 0, 1]


def test_pack_rounds_bf16_to_nearest_even() -> None:
    exact = struct.unpack("<f", b"\x00\x80\x80\x3f")[0]  # halfway between two of them
    assert bytes(pack([exact], "BF16").buffer) == b"\x80\x3f"
    above = struct.unpack("<f", b"\x01\x80\x80\x3f")[0]
    assert bytes(pack([above], "BF16").buffer) == b"\x81\x3f"
    assert math.isnan(pack([math.nan], "BF16").tolist()[0])


def test_pack_flattens_nested_lists_by_row() -> None:
    assert pack([[1, 2], [3, (4,)]], "INT8").tolist() == [1, 2, 3, 4]
    assert pack([["a"], [b"b"]], "BYTES").tolist() == [b"a", b"b"]
    assert pack(5, "INT8").tolist() == [5]
    assert pack(range(3), "INT16").tolist() == [0, 1, 2]
    assert pack(array("d", [1, 2]), "FP32").tolist() == [1.0, 2.0]


def test_pack_converts_other_types_without_loss() -> None:
    assert pack([1.0, True], "INT64").tolist() == [1, 1]
    assert math.isnan(pack([None], "FP32").tolist()[0])
    assert pack([1e6], "FP16").tolist() == [math.inf]
    assert pack([-1e300], "FP32").tolist() == [-math.inf]
    assert pack([1, 0, 2], "BOOL").tolist() == [True, False, True]
    assert pack(fixed("INT8", b"\x01\x02"), "FP64").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "datatype", "told"),
    [
        ([1, 2.5], "INT32", "element 1, 2.5, is not a valid INT32"),
        ([1, 300], "UINT8", "element 1, 300, does not fit UINT8"),
        ([-1], "UINT64", "does not fit UINT64"),
        ([1, "x"], "FP32", "element 1, 'x', is not a valid FP32"),
        ([None], "INT8", "is not a valid INT8"),
        ([math.nan], "INT8", "is not a valid INT8"),
        ([1], "INT128", "'INT128' is not a datatype"),
        ([object()], "BYTES", "cannot be an element of a BYTES tensor"),
    ],
)
def test_pack_rejects_invalid_element_with_index(values: List[Any], datatype: str, told: str) -> None:
    with pytest.raises(TensorError, match=told):
        pack(values, datatype)


def test_pack_joins_bytes_elements() -> None:
    packed = pack(["a", b"", "é", {"k": [1, None]}, 5], "BYTES")
    assert isinstance(packed, BytesElements)
    assert bytes(packed.buffer) == b'a\xc3\xa9{"k":[1,null]}5'
    assert packed.offsets.tolist() == [0, 1, 1, 3, 17, 18]
    assert packed[2] == "é".encode()
    assert packed[-1] == b"5"
    assert packed[1:3] == [b"", "é".encode()]
    with pytest.raises(IndexError):
        packed[5]
    assert pack("one text", "BYTES").tolist() == [b"one text"]


def test_bytes_elements_are_text_only_from_json() -> None:
    for elements in (["a", "bc", ""], ["é", "日本", "z"]):
        assert text(*elements).tolist() == elements
        assert [text(*elements)[index] for index in range(3)] == elements
    assert pack(["a"], "BYTES").tolist() == [b"a"]


def received(name: str, elements: Any, shape: List[int], **values: Any) -> RequestInput:
    return tensor_input(name, elements.datatype, shape, values or None, elements)


def test_received_request_equals_constructed_request() -> None:
    tensor = received("x", fixed("INT8", b"\x01\x02"), [2], content_type="np", more=1)
    output = requested_output("y", {"content_type": "str"})
    request = inference_request("7", {"a": 1}, [tensor, received("t", text("a"), [1])], [output])
    made = InferenceRequest(
        id="7",
        parameters={"a": 1},
        inputs=[
            {
                "name": "x",
                "shape": [2],
                "datatype": "INT8",
                "parameters": {"content_type": "np", "more": 1},
                "data": [1, 2],
            },
            {"name": "t", "shape": [1], "datatype": "BYTES", "data": ["a"]},
        ],
        outputs=[{"name": "y", "parameters": {"content_type": "str"}}],
    )
    assert request == made
    assert request.model_dump_json() == made.model_dump_json()
    assert repr(request) == repr(made)
    assert request.model_fields_set == made.model_fields_set
    assert inference_request(None, None, []).model_fields_set == {"inputs"}


def test_parameter_cannot_set_cached_decoded_value() -> None:
    tensor = received("x", text("a"), [1], _decoded_payload="forged")
    assert StringCodec.decode_input(tensor) == ["a"]
    assert not hasattr(tensor.parameters, "_decoded_payload")
    assert not hasattr(parameters({"_decoded_payload": 1}), "_decoded_payload")


def test_tensor_data_list_keeps_changes() -> None:
    data = TensorData.from_buffer("INT8", memoryview(b"\x01\x02"))
    assert data.elements is not None
    data.root[0] = 5
    assert data.root == [5, 2]
    assert data.elements is None


def test_codecs_decode_buffers() -> None:
    assert StringCodec.decode_input(received("x", pack(["a", "é"], "BYTES"), [2])) == ["a", "é"]
    assert StringCodec.decode_input(received("x", fixed("INT8", b"\x01"), [1])) == [""]
    assert Base64Codec.decode_input(received("x", text("YQ=="), [1])) == [b"a"]


@pytest.mark.needs("numpy")
def test_numpy_codec_decodes_in_place() -> None:
    import numpy

    memory = bytearray(struct.pack("<4f", 1, 2, 3, 4))
    decoded = NumpyCodec.decode_input(received("x", FixedElements("FP32", memoryview(memory)), [2, 2]))
    assert decoded.tolist() == [[1, 2], [3, 4]]
    assert decoded.dtype == numpy.float32
    decoded[0, 0] = 9
    assert struct.unpack_from("<f", memory)[0] == 9

    # Read-only memory is copied, because user code may change arrays.
    copied = NumpyCodec.decode_input(received("x", FixedElements("FP32", memoryview(bytes(memory))), [4]))
    copied += 1
    assert copied.tolist() == [10, 3, 4, 5]


@pytest.mark.needs("numpy")
def test_numpy_codec_round_trips_every_datatype() -> None:
    for datatype in WIDTHS:
        elements = pack([0, 1], datatype)
        array_ = NumpyCodec.decode_input(received("x", elements, [2]))
        assert array_.tolist() == [0, 1], datatype
        output = NumpyCodec.encode_output("x", array_)
        assert output.datatype == ("FP32" if datatype == "BF16" else datatype)
        assert output.data.root == [0, 1]


@pytest.mark.needs("numpy")
def test_numpy_codec_decodes_text_and_bytes() -> None:
    assert NumpyCodec.decode_input(received("x", text("a", "bcd"), [2, 1])).tolist() == [["a"], ["bcd"]]
    assert NumpyCodec.decode_input(received("x", pack([b"a", b"bcd"], "BYTES"), [2])).tolist() == [b"a", b"bcd"]
    assert NumpyCodec.decode_input(received("x", pack([b"a\0", b""], "BYTES"), [2])).tolist() == [b"a\0", b""]
    assert NumpyCodec.decode_input(received("x", text(), [0])).shape == (0,)


@pytest.mark.needs("numpy")
def test_encoded_array_is_copied() -> None:
    import numpy

    values = numpy.array([1.0, 2.0])
    output = NumpyCodec.encode_output("o", values)
    values *= 2
    assert output.data.root == [1.0, 2.0]


@pytest.mark.needs("numpy")
def test_pack_converts_array_order_and_width() -> None:
    import numpy

    assert pack(numpy.array([1, 2], dtype=">i4"), "INT32").tolist() == [1, 2]
    assert pack(numpy.arange(6).reshape(2, 3).T, "INT8").tolist() == [0, 3, 1, 4, 2, 5]
    assert pack([numpy.float32(1.5), numpy.int64(2)], "FP64").tolist() == [1.5, 2.0]
    assert pack([numpy.array([1, 2]), [3]], "INT8").tolist() == [1, 2, 3]
    with pytest.raises(TensorError, match="complex128"):
        NumpyCodec.encode_output("o", numpy.array([1j]))


def answer(*outputs: ResponseOutput) -> InferenceResponse:
    return InferenceResponse(model_name="m", outputs=list(outputs))


def test_wire_outputs_returns_buffers() -> None:
    first = ResponseOutput(
        name="a", shape=(2,), datatype="INT16", data=[1, 2], parameters={"content_type": None, "k": 1}
    )
    second = ResponseOutput(name="b", shape=[1], datatype="BYTES", data=["é"])
    wire = wire_outputs(answer(first, second))
    assert [(one.name, one.datatype, one.shape, one.parameters) for one in wire] == [
        ("a", "INT16", [2], {"k": 1}),
        ("b", "BYTES", [1], None),
    ]
    assert bytes(wire[0].packed.elements.buffer) == b"\x01\x00\x02\x00"
    assert bytes(wire[1].packed.elements.buffer) == "é".encode()


def test_wire_outputs_does_not_copy_echoed_tensor() -> None:
    elements = fixed("INT8", b"\x01")
    output = ResponseOutput(name="o", shape=[1], datatype="INT8", data=received("x", elements, [1]).data)
    assert wire_outputs(answer(output))[0].packed.elements is elements


def test_wire_outputs_rejects_invalid_output_with_name() -> None:
    odd = ResponseOutput.construct(name="o", shape=[None], datatype="INT8", data=TensorData([1]))
    with pytest.raises(TensorError, match="output 'o'"):
        wire_outputs(answer(odd))


def test_wire_outputs_keeps_unknown_dimensions() -> None:
    output = ResponseOutput(name="o", shape=[-1, 2], datatype="INT8", data=[1, 2, 3, 4])
    wire = wire_outputs(answer(output))[0]
    assert (wire.shape, wire.fits, wire.packed.sent) == ([-1, 2], True, None)
    for shape in ([-1, 3], [-1, -1], [-2], [-1, 0]):
        wire = wire_outputs(answer(ResponseOutput(name="o", shape=shape, datatype="INT8", data=[1, 2, 3, 4])))[0]
        assert (wire.shape, wire.fits, wire.packed.elements, wire.packed.sent) == (shape, False, None, b"[1,2,3,4]")
        assert wire.packed.reason == f"its shape {shape} cannot hold 4 elements"


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "elements", "nested", "sent"),
    [
        ("FP32", [2], [1.5, 2], [1.5, 2.0], False, None),
        ("FP32", [1, 2], [[1.5, 2]], [1.5, 2.0], True, None),
        ("INT8", [-1, 2], [[1, 2], [3, 4]], [1, 2, 3, 4], True, None),
        ("FP32", [2], [1.0, None], None, False, None),
        ("FP32", [2], [1.0, 1e300], None, False, b"[1.0,1e+300]"),
        ("FP16", [2], [1.0, 1e300], None, False, b"[1.0,1e+300]"),
        ("FP32", [2], [float("inf"), 1e300], None, False, b"[null,1e+300]"),
        ("FP32", [1], [True], [1.0], False, b"[true]"),
        ("INT8", [1], [True], [1], False, b"[true]"),
        ("BOOL", [1], [1], [True], False, b"[1]"),
        ("BOOL", [2], [True, None], None, False, b"[true,null]"),
        ("BOOL", [1], [2], None, False, b"[2]"),
        ("INT8", [1], [300], None, False, b"[300]"),
        ("INT8", [1], [2.5], None, False, b"[2.5]"),
        ("INT8", [1], [None], None, False, b"[null]"),
        ("INT8", [], 5, [5], False, b"5"),
        ("INT8", [4], [[1, 2], [3, 4]], [1, 2, 3, 4], False, b"[[1,2],[3,4]]"),
        ("INT8", [3], [1, 2], None, False, b"[1,2]"),
        ("BYTES", [1], "one", [b"one"], False, b'"one"'),
        ("BYTES", [7], b"one", [b"one"], False, b'"one"'),
        ("BYTES", [1], [{"a": 1}], [b'{"a":1}'], False, b'[{"a":1}]'),
        ("BYTES", [2, 1], [["a"], [b"b"]], [b"a", b"b"], True, None),
        ("BYTES", [2], ["a", None], None, False, b'["a",null]'),
        ("BYTES", [1], [], None, False, b"[]"),
    ],
)
def test_outputs_are_packed_as_the_model_gave_them(datatype, shape, data, elements, nested, sent) -> None:
    packed = wire_outputs(answer(ResponseOutput(name="o", shape=shape, datatype=datatype, data=data)))[0].packed
    found = None if packed.elements is None else packed.elements.tolist()
    if datatype == "FP32" and None in (data or ()):
        assert (found[0], math.isnan(found[1])) == (1.0, True)
        found = None
    assert (found, packed.nested, packed.sent) == (elements, nested, sent)
    assert (packed.elements is None) == bool(packed.reason)


def test_values_of_answers_have_the_json_of_the_original() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    for value, text in [
        (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), "2026-01-02T03:04:05Z"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, 120000, zone), "2026-01-02T03:04:05.120000+02:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.time(1, 2, 3, tzinfo=datetime.timezone.utc), "01:02:03Z"),
        (datetime.timedelta(days=-1, seconds=5, microseconds=7), "-PT23H59M54.999993S"),
        (datetime.timedelta(days=3, hours=25), "P4DT1H"),
        (datetime.timedelta(), "PT0S"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ]:
        packed = wire_outputs(answer(ResponseOutput(name="o", shape=[1], datatype="BYTES", data=[value])))[0].packed
        assert packed.sent == json.dumps([text]).encode()


def test_masked_arrays_and_lossy_arrays_keep_their_elements() -> None:
    numpy = pytest.importorskip("numpy")

    def sent(datatype, array):
        output = ResponseOutput(name="o", shape=list(array.shape), datatype=datatype, data=array)
        return wire_outputs(answer(output))[0].packed

    assert sent("INT8", numpy.ma.masked_array([1, 2], [False, True])).sent == b"[1,null]"
    assert sent("INT8", numpy.array([1.0, 2.5])).sent == b"[1.0,2.5]"
    assert sent("INT8", numpy.array([1.0, 2.0])).elements.tolist() == [1, 2]
    assert sent("INT8", numpy.array([300])).sent == b"[300]"
    assert sent("BOOL", numpy.array([2])).sent == b"[2]"
    assert sent("FP32", numpy.array([1e300, 1.0])).sent == b"[1e+300,1.0]"
    assert sent("FP32", numpy.array([[1.1], [2.0]])).elements.numpy().tolist() == numpy.float32([1.1, 2.0]).tolist()


def test_parameters_do_not_hide_methods() -> None:
    names = sorted(name for name in dir(Parameters) if not name.startswith("__"))
    # `_fields_set` is an argument of `model_construct`, and `_decoded_payload` is private.
    values = {name: 1 for name in names if name not in (*Parameters.model_fields, "_fields_set", "_decoded_payload")}
    for made in (parameters(values), Parameters.model_validate(values), Parameters.model_construct(**values)):
        for one in (made, made.model_copy(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert callable(one.copy)
            assert callable(one.dict)
            assert one.model_dump() == values
            assert one.copy().model_dump() == one.model_dump()


def test_data_can_be_assigned_without_wrapper() -> None:
    output = ResponseOutput(name="o", shape=[1], datatype="INT8", data=[0])
    output.data = [7]  # type: ignore[assignment]
    output.parameters = {"a": 1}  # type: ignore[assignment]
    wire = wire_outputs(answer(output))[0]
    assert (wire.packed.elements.tolist(), wire.parameters) == ([7], {"a": 1})
    assert Parameters(a=1).a == 1


# Rows, and arrays


def nested(shape: List[int], datatype: str = "FP32") -> RequestInput:
    count = math.prod(shape)
    return tensor_input("x", datatype, shape, None, pack(list(range(count)), datatype), nested=True)


def test_nested_data_is_shown_as_rows() -> None:
    rows = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert nested([2, 2, 3]).data.root == rows
    assert list(nested([2, 2, 3]).data) == rows
    assert nested([2, 2, 3]).data[1][0] == [6, 7, 8]
    assert nested([2, 2, 3]).data[-1:] == rows[1:]
    assert len(nested([2, 2, 3]).data) == 2
    assert nested([2, 2, 3]).model_dump()["data"] == rows
    assert json.loads(nested([2, 2, 3]).model_dump_json())["data"] == rows
    assert nested([2, 2, 3]).data == TensorData(rows)
    assert nested([3]).data.root == [0, 1, 2]
    assert nested([0, 2]).data.root == []
    assert nested([2, 0]).data.root == [[], []]
    words = tensor_input("x", "BYTES", [2, 1], None, text("a", "b"), nested=True)
    assert words.data.root == [["a"], ["b"]]
    assert StringCodec.decode_input(tensor_input("x", "BYTES", [2, 1], None, text("a", "b"), nested=True)) == ["a", "b"]


def test_changes_to_nested_rows_are_kept() -> None:
    tensor = nested([2, 2])
    tensor.data[0][1] = 9
    assert tensor.data.root == [[0, 9], [2, 3]]
    for row in tensor.data:
        row.append(5)
    assert tensor.data[1] == [2, 3, 5]


def test_rows_given_in_python_are_kept() -> None:
    rows = [[1, 2], [3, 4]]
    assert RequestInput(name="x", shape=[2, 2], datatype="FP32", data=rows).data.root == rows


def test_nested_data_survives_copies() -> None:
    tensor = nested([2, 2])
    for twin in (copy.copy(tensor), copy.deepcopy(tensor), tensor.model_copy(deep=True)):
        assert twin.data.nested
        assert twin.data.root == [[0, 1], [2, 3]]
    assert TensorData(nested([2, 2]).data).nested


def test_deep_copies_have_memory_of_their_own() -> None:
    request = inference_request(None, None, [nested([2, 2])])
    for twin in (copy.deepcopy(request), request.model_copy(deep=True), request.copy(deep=True)):
        elements = twin.inputs[0].data.elements
        assert isinstance(elements, FixedElements)
        elements.buffer[:] = bytes(len(elements.buffer))
        assert request.inputs[0].data.raw.tolist() == [0, 1, 2, 3]


@pytest.mark.needs("numpy")
def test_tensor_data_is_an_array_of_python_numbers() -> None:
    import numpy

    for datatype, dtype in [("FP32", "float64"), ("INT8", "int64"), ("UINT64", "int64"), ("BOOL", "bool")]:
        array_of = numpy.array(nested([1, 2], datatype).data)
        assert (str(array_of.dtype), array_of.tolist()) == (dtype, [[0, 1]])
    largest = tensor_input("x", "UINT64", [1], None, pack([2**64 - 1], "UINT64"))
    assert numpy.array(largest.data).tolist() == [2**64 - 1]
    assert numpy.array(TensorData([[1, 2], [3, 4]])).shape == (2, 2)
    assert numpy.array(tensor_input("x", "BYTES", [2], None, text("a", "bc")).data).tolist() == ["a", "bc"]
    assert numpy.stack([nested([2]).data, nested([2]).data]).shape == (2, 2)


@pytest.mark.needs("numpy")
def test_tensor_data_is_an_array_without_a_copy() -> None:
    import numpy

    tensor = tensor_input("x", "FP64", [2], None, fixed("FP64", bytes(16)))
    shared = numpy.asarray(tensor.data)
    shared[0] = 5
    assert tensor.data[0] == 5
    copied = numpy.array(tensor.data)
    copied[1] = 7
    assert tensor.data[1] == 0
    assert numpy.shares_memory(shared, numpy.asarray(tensor.data))
    single = tensor_input("x", "FP32", [2], None, fixed("FP32", bytes(8)))
    assert numpy.shares_memory(numpy.asarray(single.data, numpy.float32), numpy.asarray(single.data, numpy.float32))
    if int(numpy.__version__.partition(".")[0]) >= 2:
        assert numpy.array(tensor.data, copy=False).tolist() == [5, 0]
        for data in (single.data, TensorData([1])):
            with pytest.raises(ValueError, match="without a copy"):
                numpy.array(data, copy=False)


# Data that its datatype cannot hold


@pytest.mark.parametrize(
    ("datatype", "data", "expected", "described"),
    [
        ("BYTES", ["a", None], b'["a",null]', {"json": True, "size": 10}),
        ("BYTES", ["a", 1], b'["a",1]', {"count": 2, "sent": 7, "size": 14}),
        ("INT8", [["a"], [None]], b'[["a"],[null]]', {"json": True, "size": 14}),
        ("FP32", "[[1.0, 2.0]]", b'"[[1.0, 2.0]]"', {"json": True, "size": 14}),
    ],
)
def test_irregular_output_is_sent_as_json(datatype: str, data: Any, expected: bytes, described: Dict[str, Any]) -> None:
    from mlserver._worker.frames import write_response

    output = ResponseOutput(name="y", shape=[2, 1], datatype=datatype, data=data)
    head, tail = write_response(InferenceResponse(model_name="m", outputs=[output]), "m")
    (found,) = json.loads(head)["outputs"]
    assert bool(found.pop("reason", "")) == ("json" in described)
    assert found == {"name": "y", "datatype": datatype, "shape": [2, 1], **described}
    assert expected in tail
    assert sum(map(len, tail)) % 8 == 0


def test_irregular_output_that_is_not_json_names_output() -> None:
    output = ResponseOutput(name="y", shape=[2], datatype="BYTES", data=[None, object()])
    with pytest.raises(TensorError, match="output 'y'"):
        wire_outputs(InferenceResponse(model_name="m", outputs=[output]))


def test_irregular_input_is_received_as_parsed_json() -> None:
    from mlserver._worker.frames import read_request

    value = ["a", None, 1, {"b": [True]}]
    content = json.dumps(value).encode()
    regular = {"name": "z", "datatype": "FP32", "shape": [1, 2], "nested": True, "size": 8}
    head = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "json": True, "size": len(content)}, regular]}
    tail = content + bytes(-len(content) % 8) + struct.pack("<ff", 1, 2)
    first, second = read_request(head, bytearray(tail)).inputs
    assert first.data.root == value
    assert list(first.data) == value
    assert StringCodec.decode_input(first) == ["a", None, "", ""]
    assert second.data.root == [[1.0, 2.0]]
