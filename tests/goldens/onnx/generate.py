"""Writes the golden cases of ONNX models with onnxruntime, on one thread.

    python3.11 tests/goldens/onnx/generate.py [--envs FOLDER]
    python3.11 tests/goldens/onnx/generate.py --random 500 [--start 0]

Makes a virtual environment (outside the repository), then runs itself inside. The archive `onnxruntime-<version>.tar.gz` is replaced.
`--random` writes `random-<start>.tar.gz` instead, which git ignores and the test of golden cases reads: delete it afterwards.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environments  # noqa: E402
from archive import pack  # noqa: E402

VERSION = "1.32.0"
REQUIREMENTS = [
    f"onnxruntime=={VERSION}",
    "onnx==1.23.2",
    "skl2onnx==1.20.0",
    "scikit-learn==1.9.1",
    "numpy==2.4.6",
    "pandas==3.1.1",
]
DATATYPES = {
    "float32": "FP32",
    "float64": "FP64",
    "float16": "FP16",
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def tensor(array):
    """Encodes an array as a tensor of the V2 protocol; texts that are not numbers stand for those that JSON lacks."""
    import numpy as np

    array = np.asarray(array)
    datatype = DATATYPES.get(array.dtype.name, "BYTES")
    return {"datatype": datatype, "shape": list(array.shape), "data": [number(value, datatype) for value in array.ravel()]}


def number(value, datatype):
    """Encodes an element."""
    import numpy as np

    if datatype == "BYTES":
        return value if isinstance(value, str) else bytes(value).decode()
    if datatype == "BOOL":
        return bool(value)
    if not datatype.startswith("FP"):
        return int(value)
    if np.isnan(value):
        return None
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # the shortest text that reads back as the same number
    return float(re.sub(r"^np\.float\d+\((.*)\)$", r"\1", repr(value)))


def answers(model, feeds):
    """Returns what onnxruntime computes for each output. A list of maps becomes a matrix."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)
    return [
        np.array([list(row.values()) for row in output], np.float32) if isinstance(output, list) else np.asarray(output)
        for output in outputs
    ]


def write_case(folder, name, model, feeds, tolerance=0.0):
    """Writes a model and what it answers to all rows, and to the first one."""
    model = model if isinstance(model, bytes) else model.SerializeToString()
    calls = []
    for inputs in feeds:
        outputs = answers(model, inputs)
        calls.append({"inputs": [tensor(value) for value in inputs.values()], "outputs": [tensor(value) for value in outputs]})
    Path(folder, name + ".onnx").write_bytes(model)
    case = {"tolerance": tolerance, "calls": calls}
    text = json.dumps(case, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    Path(folder, name + ".case.json").write_text(text + "\n", encoding="utf-8")


def inside(out, random, start):
    """Writes the cases; runs in the environment."""
    warnings.filterwarnings("ignore")
    import cases

    with tempfile.TemporaryDirectory() as folder:
        count = 0
        source = cases.random_cases(start, random) if random else cases.cases()
        for name, model, feeds, tolerance in source:
            try:
                write_case(folder, name, model, feeds, tolerance)
                count += 1
            except Exception as error:
                # what onnxruntime itself refuses
                print(f"{name}: {str(error).splitlines()[0][:150]}", flush=True)
        name = f"random-{start}" if random else f"onnxruntime-{VERSION}"
        size = pack(Path(folder), Path(out, name + ".tar.gz"))
        print(f"{count} cases, {size} bytes")


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=Path, default=environments.FOLDER, help="where the environment lives")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        sys.path.insert(0, str(HERE))
        inside(HERE, options.random, options.start)
        return
    python = environments.environment(options.envs / f"onnxruntime-{VERSION}", REQUIREMENTS, has_dependencies=True)
    command = [python, __file__, "--inside", "--random", str(options.random), "--start", str(options.start)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
