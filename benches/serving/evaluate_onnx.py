"""The models of ONNX that `evaluate.py` compares, and onnxruntime's side: its Python calls, and its C function."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINS = ["onnxruntime==1.32.0", "onnx==1.19.1", "skl2onnx==1.20.0", "scikit-learn==1.9.1", "protobuf==6.33.6"]
PINS += ["flatbuffers==25.12.19", "joblib==1.6.0", "ml_dtypes==0.6.0", "threadpoolctl==3.8.0", "typing_extensions==4.16.0"]
# as many rows as give a support vector machine a few hundred vectors
VECTOR_ROWS = 400
# scikit-learn's boosting takes a minute for all rows
ROWS = 5000
# positions in the table of functions of the C interface, which never change
CREATE_ENV, CREATE_SESSION, RUN, CREATE_SESSION_OPTIONS, SET_INTRA_OP_THREADS = 3, 7, 9, 10, 24
CREATE_TENSOR_WITH_DATA, CREATE_CPU_MEMORY_INFO = 49, 69
# the numbers of element types
ELEMENTS = {"float32": 1, "int64": 7}


def estimators(x: Any, score: Any) -> dict[str, Any]:
    """Returns fitted estimators by name. `score` is what the classes and the numbers to predict are made of."""
    import numpy as np
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    def classes(count: int) -> Any:
        return np.digitize(score, np.quantile(score, np.arange(1, count) / count))

    x, score = x[:ROWS], score[:ROWS]
    few = slice(VECTOR_ROWS)
    return {
        "forest-6": RandomForestClassifier(100, max_depth=6, random_state=1).fit(x, classes(2)),
        "forest-10": RandomForestClassifier(100, max_depth=10, random_state=1).fit(x, classes(2)),
        "boosted-3": GradientBoostingClassifier(n_estimators=100, max_depth=3, random_state=1).fit(x, classes(2)),
        "boosted-regressor-6": GradientBoostingRegressor(n_estimators=100, max_depth=6, random_state=1).fit(x, score),
        "logistic-2": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, classes(2)),
        "logistic-10": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, classes(10)),
        "svc-3": SVC(gamma=0.02).fit(x[few], classes(3)[few]),
    }


def write_cases(folder: Path, x: Any, score: Any, test: Any) -> list[dict[str, Any]]:
    """Writes the models with the answers of onnxruntime to the rows of `test`, and returns their cases."""
    import numpy as np
    from skl2onnx import to_onnx
    from sklearn.base import is_classifier

    test.astype("<f4").tofile(folder / "filled.f32")
    cases = []
    for name, estimator in estimators(x, score).items():
        name = f"onnx-{name}"
        options = {"zipmap": False} if is_classifier(estimator) else None
        model = to_onnx(estimator, test[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        case = {"case": name, "library": "onnx", "model": f"{name}.onnx", "input": "filled.f32", "dtype": "float32"}
        *labels, scores = session_of(str(folder / f"{name}.onnx")).run(None, {"X": test})
        np.asarray(scores).astype("<f4").tofile(folder / f"{name}.expected.f32")
        case |= {"rows": len(test), "cols": test.shape[1], "expected": f"{name}.expected.f32"}
        if labels:
            labels[0].astype("<i8").tofile(folder / f"{name}.labels.i64")
            case["labels"] = f"{name}.labels.i64"
        # whether one row, and many rows, take half of onnxruntime's time at most
        case["is_fast"] = ["svc" not in name and "logistic" not in name, name.endswith(("-3", "-6")) and "svc" not in name]
        cases.append({**case, "answer_width": int(np.asarray(scores).size // len(test))})
    return cases


def session_of(model: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class NativeCalls:
    """Calls of onnxruntime's C function with everything allocated beforehand, in a loop in C."""

    def __init__(self, model: str, x: Any) -> None:
        import ctypes
        import ctypes as c

        import numpy as np
        import onnxruntime

        session = session_of(model)
        names = [output.name for output in session.get_outputs()]
        self.outputs = [np.ascontiguousarray(output) for output in session.run(names, {"X": x})]
        folder = Path(onnxruntime.__file__).parent / "capi"
        library = ctypes.CDLL(str(next(folder.glob("libonnxruntime.so.*"))))
        library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(library.OrtGetApiBase()[0])
        functions = get_api(17)

        def make(position: int, *arguments: Any) -> Any:
            made = c.c_void_p()
            if c.CFUNCTYPE(c.c_void_p)(functions[position])(*arguments, c.byref(made)):
                raise RuntimeError(f"function {position} of onnxruntime's C interface failed")
            return made

        def tensor(array: Any) -> Any:
            shape = (c.c_int64 * array.ndim)(*array.shape)
            data, size = c.c_void_p(array.ctypes.data), c.c_size_t(array.nbytes)
            element = ELEMENTS[array.dtype.name]
            return make(CREATE_TENSOR_WITH_DATA, memory, data, size, shape, c.c_size_t(array.ndim), element)

        def pointers(items: list[Any]) -> Any:
            return (c.c_void_p * len(items))(*[item.value for item in items])

        def texts(items: list[str]) -> Any:
            return (c.c_char_p * len(items))(*[item.encode() for item in items])

        memory = make(CREATE_CPU_MEMORY_INFO, 1, 0)
        environment = make(CREATE_ENV, 3, b"evaluate")
        options = make(CREATE_SESSION_OPTIONS)
        c.CFUNCTYPE(c.c_void_p)(functions[SET_INTRA_OP_THREADS])(options, 1)
        handle = make(CREATE_SESSION, environment, model.encode(), options)
        inputs, outputs = pointers([tensor(x)]), pointers([tensor(output) for output in self.outputs])
        counts = (c.c_size_t(1), c.c_size_t(len(names)))
        run = c.c_void_p(functions[RUN])
        self.arguments = (run, handle, texts(["X"]), inputs, counts[0], texts(names), counts[1], outputs)
        self.kept = (x, library, memory, environment, options)
        self.function = repeat_function()

    def __call__(self) -> Any:
        for output in self.outputs:
            output.fill(0)
        self.nanoseconds(1)
        return self.outputs[-1]

    def nanoseconds(self, calls: int) -> int:
        """Returns the processor time of some calls."""
        import ctypes

        found: int = self.function(*self.arguments, ctypes.c_int64(calls))
        if found < 0:
            raise RuntimeError("Run of onnxruntime's C interface failed")
        return found


def repeat_function() -> Any:
    """Compiles `repeat.c` and returns its function."""
    import ctypes
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "repeat.so")
        source = Path(__file__).with_name("repeat.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        function = ctypes.CDLL(str(library)).repeat
    function.restype = ctypes.c_int64
    return function


def paths(model: str, x: Any) -> list[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    """Returns the ways of calling onnxruntime."""
    import numpy as np

    session = session_of(model)

    def run() -> Any:
        return np.asarray(session.run(None, {"X": x})[-1])

    return [
        ("InferenceSession.run", run, None),
        ("Run of the C interface, tensors made beforehand", NativeCalls(model, x), None),
    ]
