"""Writes the models of an archive as skops files, which must give the same answers."""

import io
import json
import zlib

import joblib
import numpy as np
import pandas as pd
import skops.io
from casefile import DATATYPES, METHODS, answer

NAMES = {datatype: name for name, datatype in DATATYPES.items()}


def write(models, out, limit):
    """Writes the models of the unpacked archive `models`.

    Models of more than `limit` bytes, compressed, are left out, except the smallest of each class.
    """
    written = set()
    for size, name, original, case, content in sorted(files(models), key=lambda file: file[:2]):
        model = skops.io.loads(content, trusted=skops.io.get_untrusted_types(data=content))
        kind = type(model).__name__
        if size > limit and kind in written:
            continue
        if not is_alike(model, original, case):
            print(f"{name} is left out: its skops file gives other answers", flush=True)
            continue
        written.add(kind)
        file = out / f"{name}.skops"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return sum(1 for _ in out.rglob("*.skops"))


def files(models):
    """Yields compressed size, name, model, case and skops file of each model."""
    for cases in models.glob("*/cases.jsonl"):
        for line in cases.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if "refused" in case:
                continue
            model = joblib.load(cases.parent / case["model"])
            content = io.BytesIO()
            skops.io.dump(model, content)
            content = content.getvalue()
            yield len(zlib.compress(content, 9)), f"{cases.parent.name}/{case['name']}", model, case, content


def is_alike(model, original, case):
    """Returns whether a model answers the rows of a case as the original model does."""
    for asked in case["asked"]:
        rows = decode(asked["input"])
        # A list of texts was written as one column.
        is_text = not hasattr(rows, "columns") and rows.dtype.kind == "O" and rows.shape[1] == 1
        lists = [rows.ravel()] if is_text else []
        for given in [rows, *lists]:
            if any(outcome(model, method, given) != outcome(original, method, given) for method in METHODS):
                return False
    return True


def outcome(model, method, rows):
    """Returns the answer of a method as text, so that missing values are equal, or its error."""
    try:
        return json.dumps(answer(getattr(model, method)(rows)))
    except Exception as error:
        return repr(error)


def decode(value):
    """Decodes what `casefile.encode` returns."""
    if "frame" in value:
        return pd.DataFrame({column["name"]: decode(column)[:, 0] for column in value["frame"]})
    name = NAMES.get(value["datatype"], "object")
    data = [float(item) if name.startswith("float") and item is not None else item for item in value["data"]]
    return np.array(data, dtype=name).reshape(value["shape"])
