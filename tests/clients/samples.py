"""Arrays of every datatype, with the values that are easily lost."""

import ml_dtypes
import numpy as np

INTEGERS = {
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
}  # fmt: skip
FLOATS = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64}
DATATYPES = ["BOOL", *INTEGERS, *FLOATS, "BYTES"]


def array(datatype: str) -> np.ndarray:
    """Returns an array of shape [2, n] with the edge cases of the datatype."""
    if datatype == "BOOL":
        row = np.array([True, False, True])
    elif datatype in INTEGERS:
        limits = np.iinfo(INTEGERS[datatype])
        row = np.array([limits.min, 0, 1, limits.max - 1, limits.max], dtype=INTEGERS[datatype])
    elif datatype in FLOATS:
        limits = ml_dtypes.finfo(FLOATS[datatype])
        edges = [0.0, -0.0, 0.1, 1.0, limits.max, limits.min, limits.tiny, limits.smallest_subnormal]
        row = np.array([*edges, np.inf, -np.inf, np.nan], dtype=FLOATS[datatype])
    else:
        row = np.array(["", "text", "Grüße, 世界 🎉", "a\0b\"\\\n"], dtype=np.object_)
        row = np.array([text.encode() for text in row], dtype=np.object_)
    return np.stack([row, row[::-1]])


def assert_same(found: np.ndarray | None, sent: np.ndarray) -> None:
    """Compares shapes, types and bits."""
    assert found is not None
    assert found.shape == sent.shape
    if sent.dtype == np.object_:
        # JSON returns text, binary data returns bytes.
        decoded = [item.encode() if isinstance(item, str) else item for item in found.flatten()]
        assert decoded == list(sent.flatten())
        return
    assert found.dtype == sent.dtype
    assert found.tobytes() == sent.tobytes()
