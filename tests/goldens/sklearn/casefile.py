"""Helpers that the families share: training data, rows to predict, and case files."""

import json
import pickle
import shutil
import zlib
from pathlib import Path

import joblib
import numpy as np

DATATYPES = {
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
}
METHODS = ["predict", "predict_proba", "decision_function", "transform"]


def rng_for(name):
    """Returns a generator seeded by the case's name, so that cases do not affect each other."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def blobs(rng, rows=90, columns=4, classes=3, dtype=np.float64):
    """Returns rows of overlapping classes."""
    y = rng.randint(classes, size=rows)
    y[:classes] = np.arange(classes)
    x = rng.normal(size=(rows, columns)) + 1.5 * rng.normal(size=(classes, columns))[y]
    return x.astype(dtype), y


def line(rng, rows=90, columns=4, targets=1, dtype=np.float64):
    """Returns rows and targets that depend on them."""
    x = rng.normal(size=(rows, columns))
    y = x @ rng.normal(size=(columns, targets)) + np.abs(x[:, :1]) + 0.2 * rng.normal(size=(rows, targets))
    return x.astype(dtype), y[:, 0] if targets == 1 else y


def asked(rng, x, count=6, huge=1e3):
    """Returns rows to predict: some like the training rows, and edge cases of evaluators."""
    x = np.asarray(x)
    like = x[rng.randint(len(x), size=count)] + 0.1 * rng.normal(size=(count, x.shape[1]))
    constant = [np.full(x.shape[1], value) for value in (0.0, huge, -huge, 1e-30)]
    return np.vstack([like, x[:1], *constant]).astype(x.dtype)


class Writer:
    """Writes the cases of one family and version: a model each, and a line of answers in `cases.jsonl`."""

    def __init__(self, folder, version):
        self.folder = folder
        self.version = version
        self.lines = []
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def case(self, name, model, inputs, dump=None, single=False, without=()):
        """Saves a fitted model, and its answers to each of the inputs (an array or data frame, or a list of them).

        `single` says that single precision is involved, though the answer has double. `without` has methods that the class
        defines, but that fail with these parameters.
        """
        file = name + (".pickle" if callable(dump) else ".joblib")
        if callable(dump):
            (self.folder / file).write_bytes(dump(model))
        else:
            joblib.dump(model, self.folder / file, compress=("zlib", 9) if dump is None else dump)
        loaded = joblib.load(self.folder / file)
        asked = []
        for rows in inputs if isinstance(inputs, list) else [inputs]:
            answers = {}
            for method in METHODS:
                if method in without or not hasattr(loaded, method):
                    continue
                try:
                    answers[method] = answer(getattr(loaded, method)(rows))
                except NotImplementedError:  # available only with other parameters
                    pass
            asked.append({"input": encode(rows), "expect": answers})
        self.lines.append({"name": name, "model": file, **({"single": True} if single else {}), "asked": asked})

    def refused(self, name, model, reason):
        """Saves a fitted model that the server leaves to the library, and a part of the message that says why."""
        file = name + ".joblib"
        joblib.dump(model, self.folder / file, compress=("zlib", 9))
        self.lines.append({"name": name, "model": file, "refused": reason, "asked": []})

    def close(self):
        text = "\n".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in self.lines) + "\n"
        (self.folder / "cases.jsonl").write_text(text, encoding="utf-8")
        return len(self.lines), sum(file.stat().st_size for file in self.folder.iterdir())


def pickled(protocol):
    """Returns a function that dumps a model as a pickle of the given protocol, without joblib."""
    return lambda model: pickle.dumps(model, protocol)


def encode(value):
    """Encodes an array as one tensor, and a data frame as one tensor per column."""
    if hasattr(value, "columns"):
        return {"frame": [{"name": str(name), **tensor(value[name].to_numpy())} for name in value.columns]}
    return tensor(value)


def answer(value):
    """Encodes a result, sparse ones as dense; `None` if the original cannot send it either."""
    if hasattr(value, "columns"):
        return encode(value)
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, (list, tuple)) or not isinstance(value, np.ndarray):
        return None
    return tensor(value)


def tensor(array):
    """Encodes a V2-like tensor; one dimension becomes a column, as in the original's codec."""
    array = np.asarray(array)
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.dtype.name in DATATYPES:
        return {"datatype": DATATYPES[array.dtype.name], "shape": list(array.shape), "data": numbers(array)}
    return {"datatype": "BYTES", "shape": list(array.shape), "data": [text(value) for value in array.ravel()]}


def text(value):
    return None if value is None or value != value else str(value)


def numbers(array):
    return [number(value) for value in array.ravel()]


def number(value):
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if np.isnan(value):
        return None
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # the shortest text that reads back as the same float32 or float64
    return float(np.format_float_scientific(value, unique=True, trim="0"))
