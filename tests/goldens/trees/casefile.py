"""Helpers that both libraries' generators share: input rows and the case file."""

import json
import re
import zlib
from pathlib import Path

import numpy as np

DATATYPES = {
    "float32": "FP32",
    "float64": "FP64",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "bool": "BOOL",
}


def rng_for(name):
    """Returns a generator seeded by the case's name, so that cases do not affect each other."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def features(rng, rows=160, columns=4, missing=0.1):
    """Returns normally distributed data of float32 precision with some values missing."""
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    x[rng.uniform(size=x.shape) < missing] = np.nan
    return x


def signal(rng, x):
    """Returns a number per row that depends on every column, including missing values."""
    filled = np.where(np.isnan(x), np.float32(1.5), x).astype(np.float64)
    weights = np.linspace(1.0, 0.4, x.shape[1])
    return filled @ weights + np.abs(filled[:, 0]) + 0.3 * rng.normal(size=len(x))


def edge_rows(rng, thresholds, columns, dtype=np.float32, infinite=True, typical=None, most=34):
    """Returns edge cases of evaluators: thresholds and their neighbors, missing, zero and huge values.

    `thresholds` maps a column to the split values of the model; `typical` is data to fill the other columns from.
    """
    dtype = np.dtype(dtype)
    if typical is None:
        typical = rng.normal(size=(64, columns))
    typical = np.asarray(typical, dtype=dtype)

    def row():
        return typical[rng.randint(len(typical))].copy()

    rows = [row() for _ in range(8)]
    tiny = np.array(1e-45 if dtype == np.float32 else 5e-324, dtype)
    big = np.finfo(dtype).max
    constants = [np.nan, 0.0, -0.0, tiny, -tiny, big, -big] + ([np.inf, -np.inf] if infinite else [])
    rows += [np.full(columns, value, dtype) for value in constants]
    for column in range(min(columns, 4)):
        one = row()
        one[column] = np.nan
        rows.append(one)
    if infinite:
        for value in (np.inf, -np.inf):
            one = row()
            one[rng.randint(columns)] = value
            rows.append(one)
    edges = [(column, value) for column, values in sorted(thresholds.items()) for value in values]
    order = rng.permutation(len(edges))
    for index in order:
        if len(rows) + 3 > most:
            break
        column, value = edges[index]
        value = dtype.type(value)
        for near in (value, np.nextafter(value, dtype.type(-np.inf)), np.nextafter(value, dtype.type(np.inf))):
            one = row()
            one[column] = near
            rows.append(one)
    return np.array(rows, dtype)


def tensor(array):
    """Encodes a V2-like tensor; one dimension becomes a column, as in the original's codec."""
    array = np.asarray(array)
    if array.ndim != 2:
        array = array.reshape(len(array), -1)
    return {
        "datatype": DATATYPES[array.dtype.name],
        "shape": list(array.shape),
        "data": [_number(value) for value in array.ravel()],
    }


def _number(value):
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if np.isnan(value):
        return None
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # the shortest text that reads back as the same float32 or float64
    return float(re.sub(r"^np\.float\d+\((.*)\)$", r"\1", repr(value)))


def explained_rows(x, most=12):
    """Returns the indexes of rows whose contributions and leaves are compared. Some versions refuse infinite values there."""
    return [index for index in range(len(x)) if not np.isinf(x[index]).any()][:most]


def explained(answer):
    """Returns what `answer` returns, or `None` where this version of the library fails."""
    try:
        return answer()
    except Exception as error:
        # the libraries have types of their own for errors
        print(f"  not explained: {str(error).splitlines()[0][:100]}", flush=True)
        return None


def write_case(folder, name, library, version, models, x, expect, note=None):
    """Writes `<name>.case.json`, with one line for each part.

    `contributions` and `leaf` of `expect` have the rows of `explained_rows`.
    """
    answers = {key: None if value is None else tensor(value) for key, value in expect.items()}
    answers["predict_proba_error"] = expect["predict_proba"] is None
    parts = {"library": library, "version": version, "models": models}
    if note:
        parts["note"] = note
    parts["input"] = tensor(x)
    parts["explained_rows"] = explained_rows(x)
    lines = [f"{json.dumps(key)}:{_compact(value)}" for key, value in parts.items()]
    inner = ",\n  ".join(f"{json.dumps(key)}:{_compact(value)}" for key, value in answers.items())
    lines.append(f'"expect":{{\n  {inner}\n }}')
    text = "{\n " + ",\n ".join(lines) + "\n}\n"
    json.loads(text)
    Path(folder, name + ".case.json").write_text(text, encoding="utf-8")


def _compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
