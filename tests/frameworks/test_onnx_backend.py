"""The tests of operators that the package `onnx` brings, through the server."""

import collections
import copy
import re
import sys
import warnings

import pytest
from support import need, serve, settings, suite

suite("onnx")
numpy = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
import onnx_client

#: The operators of `ai.onnx` and `ai.onnx.ml` that the server evaluates itself.
_NAMES = """
ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder
LinearClassifier LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble
TreeEnsembleClassifier TreeEnsembleRegressor ZipMap

Abs Add And ArgMax ArgMin Cast Ceil Clip Compress Concat Constant ConstantOfShape CumSum Div Einsum Equal Erf Exp Expand
Flatten Floor Gather GatherElements GatherND Gemm Greater GreaterOrEqual Identity IsNaN Less LessOrEqual Log LogSoftmax
LpNormalization MatMul Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceL1 ReduceL2
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements
ScatterND Shape Sigmoid Sign Size Slice Softmax Split Sqrt Squeeze StringNormalizer Sub Sum Tanh TfIdfVectorizer Tile TopK
Transpose Unsqueeze Where
"""
OPERATORS = set(_NAMES.split())
IMPLEMENTATION = "mlserver_onnx.OnnxModel"
#: The newest opset of `ai.onnx` that is served natively.
NEWEST = 26
#: Why cases of these operators are not served natively: the reasons of the server, as patterns.
REFUSALS = [
    r"inputs of type \S+ are not evaluated",
    r"the equation `.*` is not evaluated",
    r"opset [1-6] of the domain",
    r"CastMap|DictVectorizer",
]


def carried(value):
    """Returns an array that the protocol can carry, or the name of what it cannot."""
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, dict)):
        return None, {list: "sequences", dict: "maps"}.get(type(value), "optional values")
    array = numpy.asarray(value)
    if onnx_client.is_text(array) or array.dtype.name in onnx_client.DATATYPES:
        return array, None
    return None, array.dtype.name


class Case:
    """A test of the package whose tensors the protocol can carry."""

    def __init__(self, case, inputs, outputs):
        self.name = case.name
        self.model = copy.deepcopy(case.model)  # the package keeps its own
        self.rtol, self.atol = case.rtol, case.atol
        self.inputs = dict(zip((value.name for value in case.model.graph.input), inputs))
        self.outputs = dict(zip((value.name for value in case.model.graph.output), outputs))

    def lower(self):
        """Declares the newest opset that is served, and returns whether the case means the same there.

        New opsets often only add datatypes to an operator. The judge is onnxruntime, which does not know the newest ones.
        """
        for opset in self.model.opset_import:
            if opset.domain in ("", "ai.onnx") and opset.version > NEWEST:
                opset.version = NEWEST
                theirs = self.onnxruntime()
                return theirs is not None and self.matches(theirs)
        return True

    def matches(self, arrays):
        """Returns whether arrays are the expected outputs."""
        return not self.difference(
            {name: onnx_client.Output(numpy.asarray(v), None) for name, v in arrays.items()}, self.outputs
        )

    def onnxruntime(self):
        """Returns onnxruntime's own outputs, or `None` if it does not take the model."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(self.model.SerializeToString(), options)
            return dict(zip(self.outputs, session.run(list(self.outputs), self.inputs)))
        except Exception:
            return None

    def difference(self, found, expected):
        """Returns what differs, or `None`."""
        for name, wanted in expected.items():
            wanted, values = numpy.asarray(wanted), found[name].values
            if values.shape != wanted.shape and values.shape != (*wanted.shape, 1):
                return f"{name}: shape {values.shape} instead of {wanted.shape}"
            values = values.reshape(wanted.shape)
            if onnx_client.is_text(wanted):
                if values.astype(str).tolist() != wanted.astype(str).tolist():
                    return f"{name}: {values.tolist()} instead of {wanted.tolist()}"
            elif values.dtype != wanted.dtype:
                return f"{name}: {values.dtype} instead of {wanted.dtype}"
            elif not numpy.allclose(values, wanted, self.rtol, self.atol, equal_nan=True):
                return f"{name}: {values.ravel()[:6].tolist()} instead of {wanted.ravel()[:6].tolist()}"
        return None


def collect():
    """Returns the cases, and the names of those with tensors that the protocol cannot carry, by what they have."""
    from onnx.backend.test.case.node import collect_testcases

    cases, left_out = [], collections.defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        if not {node.op_type for node in case.model.graph.node} <= OPERATORS:
            continue
        if not case.model.graph.input:
            left_out["graphs without inputs"].append(case.name)
            continue
        for number, (inputs, outputs) in enumerate(case.data_sets):
            assert number == 0, case.name
            arrays = [carried(value) for value in (*inputs, *outputs)]
            reason = next((reason for _, reason in arrays if reason), None)
            if reason:
                left_out[reason].append(case.name)
                continue
            arrays = [array for array, _ in arrays]
            found = Case(case, arrays[: len(inputs)], arrays[len(inputs) :])
            if found.lower():
                cases.append(found)
            else:
                left_out[f"opsets after {NEWEST}"].append(case.name)
    return cases, left_out


@pytest.mark.parametrize("backend", ["native", "python"])
def test_operators_answer_as_the_tests_of_onnx(backend, tmp_path, capsys):
    need("onnx")
    cases, left_out = collect()
    assert len(cases) > 500
    for case in cases:
        onnx.save(
            case.model, settings(tmp_path / case.name, IMPLEMENTATION, "./model.onnx", backend=backend) / "model.onnx"
        )
    wrong, alone, refused = {}, [], collections.defaultdict(list)
    with serve(tmp_path, sys.executable, MLSERVER_EXIT_ON_LOAD_FAILURE="false") as server:
        failed = server.wait_for(
            lambda: [states] if (states := onnx_client.states(server.url)) is not None else None, 300
        )[0]
        for case in cases:
            theirs = case.onnxruntime()
            if case.name in failed:
                reason = failed[case.name].partition("natively: ")[2]
                if backend == "python" and theirs is None:
                    alone.append(case.name)
                elif backend == "native" and any(re.search(pattern, reason) for pattern in REFUSALS):
                    refused[re.sub(r"node `\S*` |input `\S*` |output `\S*` ", "", reason)].append(case.name)
                else:
                    wrong[case.name] = failed[case.name]
                continue
            try:
                found = onnx_client.infer(server.url, case.name, case.inputs, list(case.outputs))
            except (OSError, onnx_client.RefusedError) as error:
                if backend == "python" and theirs is None:
                    alone.append(case.name)
                else:
                    wrong[case.name] = str(error)
                continue
            difference = case.difference(found, case.outputs)
            # Where onnxruntime differs from the standard's text, it is followed.
            if difference and (theirs is None or case.difference(found, theirs)):
                wrong[case.name] = difference
    with capsys.disabled():
        print(
            f"\n{backend}: {len(cases)} cases, {len(wrong)} wrong; onnxruntime refuses {len(alone)}: {', '.join(alone)}"
        )
        for what, names in [*left_out.items(), *refused.items()]:
            print(f"  left out, {what}: {len(names)} cases: {', '.join(names)}")
    assert not wrong, "\n".join(f"{name}: {reason}" for name, reason in wrong.items())
