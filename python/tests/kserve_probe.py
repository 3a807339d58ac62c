"""Reports the members of a `kserve` package, and its results for given cases, as JSON.

Run with an interpreter that has the real package, and with one that has ours: `kserve_probe.py CASES`.
"""

import asyncio
import enum
import functools
import http.server
import importlib
import inspect
import json
import pkgutil
import re
import sys
import threading
import types

#: Public names, other than imported ones, are compared of these modules.
MODULES = [
    "kserve",
    "kserve.constants.constants",
    "kserve.context",
    "kserve.errors",
    "kserve.inference_client",
    "kserve.logging",
    "kserve.metrics",
    "kserve.model",
    "kserve.model_repository",
    "kserve.model_server",
    "kserve.predictor_config",
    "kserve.protocol.infer_type",
    "kserve.utils.inference_client_factory",
    "kserve.utils.numpy_codec",
    "kserve.utils.utils",
]

#: Special methods that are part of the interface.
SPECIAL = {"__aenter__", "__aexit__", "__call__", "__eq__", "__init__", "__repr__", "__str__"}


def main() -> None:
    if "--ours" in sys.argv:
        from mlserver import _kserve_imports

        _kserve_imports.install()
    import kserve

    with open(sys.argv[1]) as file:
        cases = json.load(file)
    report = {
        "file": kserve.__file__,
        "names": module_names(kserve),
        "modules": {name: members_of(importlib.import_module(name)) for name in MODULES},
        "options": options(),
        "results": [results(case) for case in cases],
    }
    json.dump(report, sys.stdout)


def module_names(package):
    """The modules of the package, without generated ones of Kubernetes' API."""
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "kserve.", onerror=lambda name: None)]
    return [name for name in names if not name.startswith(("kserve.models", "kserve.api"))]


def home(value):
    return str(getattr(value, "__module__", "")).replace("mlserver._kserve", "kserve")


def members_of(module):
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value):
            # Elsewhere, the name alone is compared.
            own = home(value) == home_of(module)
            if own or (home(value).startswith("kserve.") and not home(value).startswith("kserve.models.")):
                found[name] = describe_class(value) if own else "class"
        elif inspect.isfunction(value):
            if home(value).startswith("kserve."):
                found[name] = signature(value) if home(value) == home_of(module) else "function"
        elif isinstance(value, types.ModuleType):
            if module.__name__ in ("kserve", "mlserver._kserve"):
                found[name] = "module"
        elif isinstance(value, (str, int, float, list, dict, set, frozenset)):
            found[name] = plain(value)
        elif type(value).__module__ not in ("typing", "types", "builtins", "__future__"):
            found[name] = type(value).__name__
    return found


def home_of(module):
    return module.__name__.replace("mlserver._kserve", "kserve")


def describe_class(cls):
    if issubclass(cls, enum.Enum):
        return {"enum": [[member.name, member.value] for member in cls]}
    members = {}
    for name in dir(cls):
        if (name.startswith("_") and name not in SPECIAL) or (name in SPECIAL and not defined(cls, name)):
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property):
            members[name] = ["property", "settable" if value.fset else "read-only"]
        elif isinstance(value, (staticmethod, classmethod)):
            members[name] = [type(value).__name__, signature(value.__func__)]
        elif inspect.isfunction(value):
            members[name] = ["method", signature(value) if name not in ("__eq__", "__aexit__") else ""]
        else:
            members[name] = ["value", plain(value)]
    return {
        "bases": sorted(public_bases(cls)),
        "abstract": sorted(getattr(cls, "__abstractmethods__", ())),
        "hashable": cls.__hash__ is not None,
        "members": members,
    }


def defined(cls, name):
    return any(name in vars(base) for base in cls.__mro__ if home(base).startswith("kserve"))


def public_bases(cls):
    """The bases, with those of private ones in their place."""
    for base in cls.__bases__:
        if base.__name__.startswith("_"):
            yield from public_bases(base)
        else:
            yield f"{home(base)}.{base.__name__}"


def signature(function):
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        parameters.append(
            [parameter.name, parameter.kind.name, "required" if default is parameter.empty else plain(default)]
        )
    return ["async" if inspect.iscoroutinefunction(function) else "plain", parameters]


def plain(value):
    if value is None or isinstance(value, (str, int, float)):
        return repr(value)
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, enum.Enum):
        return str(value)
    return type(value).__name__.lstrip("_")  # of our replacements for types of other packages


def options():
    """The options of the command line: names, type of the value, default, choices."""
    from kserve import model_server

    return {
        action.dest: [
            action.option_strings,
            type(action).__name__,
            plain(action.default),
            plain(action.choices),
            plain(action.type("False"))
            if callable(action.type) and action.type not in (int, str)
            else repr(action.type),
        ]
        for action in model_server.parser._actions
    }


# Results.


def results(case):
    """The outcome of each operation on the objects of a case."""
    found = {}
    try:
        operations = KINDS[case["kind"]](case)
    except Exception as error:
        return {"make": failure(error)}
    for name, operation in operations.items():
        try:
            value = operation()
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
            found[name] = {"value": show(value)}
        except Exception as error:
            found[name] = failure(error)
    return found


def failure(error):
    ours = home(type(error)) == "kserve.errors"
    return {"error": type(error).__name__, "kserve": ours, "message": str(error)}


UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def show(value):
    """A value as JSON, with types where they matter."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return [
            "array",
            value.dtype.kind,
            value.dtype.itemsize if value.dtype.kind not in "OU" else 0,
            show(value.tolist()),
        ]
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.name, show(value.item())]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", UUID.sub("<uuid>", value.decode("latin-1"))]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return [type(value).__name__, repr(value)]
    if isinstance(value, str):
        return UUID.sub("<uuid>", value)
    if isinstance(value, tuple):
        return ["tuple", *map(show, value)]
    if isinstance(value, list):
        return [show(item) for item in value]
    if isinstance(value, dict):
        return {str(name): show(item) for name, item in value.items()}
    if hasattr(value, "SerializeToString"):
        return [type(value).__name__, value.SerializeToString(deterministic=True).hex()]
    if hasattr(value, "to_records"):  # a data frame
        return ["frame", [str(name) for name in value.columns], [show(row) for row in value.values.tolist()]]
    if home(type(value)).startswith("kserve"):
        return [type(value).__name__, {name: show(item) for name, item in vars(value).items()}]
    if hasattr(value, "items"):  # a map of messages
        return {str(name): show(item) for name, item in sorted(value.items())}
    return type(value).__name__


NUMPY = {
    "BOOL": "bool",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
}


def array_of(case):
    import numpy as np

    dtype = case.get("dtype") or ("object" if case["datatype"] == "BYTES" else NUMPY[case["datatype"]])
    values = elements(case)
    if dtype != "object":
        return np.array(values, dtype=dtype).reshape(case["shape"])
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(case["shape"])


def elements(case):
    """The elements, where {"hex": ...} stands for bytes."""
    return [bytes.fromhex(item["hex"]) if isinstance(item, dict) else item for item in case["values"]]


def tensor_of(case, cls):
    form = case["form"]
    parameters = dict(case["parameters"]) if case.get("parameters") is not None else None
    if form == "none":
        return cls("t", case["shape"], case["datatype"], parameters=parameters)
    if form == "numpy":
        return cls("t", case["shape"], case["datatype"], array_of(case), parameters)
    if form in ("raw", "json"):
        tensor = cls("t", case["shape"], case["datatype"], parameters=parameters)
        tensor.set_data_from_numpy(array_of(case), binary_data=form == "raw")
        return tensor
    return cls("t", case["shape"], case["datatype"], elements(case), parameters)


def tensor_operations(case):
    from kserve.protocol import infer_type as it

    requested = [it.RequestedOutput("t", given) for given in case["requested"]] or None
    arguments = {
        "parameters": case["message_parameters"],
        "request_outputs": requested,
        "model_version": case["version"],
    }

    def of_input():
        return tensor_of(case, it.InferInput)

    def of_output():
        return tensor_of(case, it.InferOutput)

    def request():
        return it.InferRequest("m", [of_input()], request_id=case["id"], **arguments)

    def response():
        return it.InferResponse(
            "7",
            "m",
            [of_output()],
            parameters=case["message_parameters"],
            model_version=case["version"],
            use_binary_outputs=case["binary"],
            requested_outputs=requested,
        )

    def both(tensor):
        tensor.set_data_from_numpy(array_of(case), True)
        tensor.data = elements(case)
        return tensor

    def again(message, read, *more):
        body, length = message.to_rest()
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return read(body, len(body) if length is None else length, *more)

    def set_in_place(cls, binary):
        tensor = cls("t", case["shape"], case["datatype"], parameters={"a": 1, "binary_data_size": 3})
        tensor.set_data_from_numpy(array_of(case), binary)
        return tensor

    return {
        "input": of_input,
        "input.repr": lambda: repr(of_input()),
        "input.to_dict": lambda: of_input().to_dict(),
        "input.as_numpy": lambda: of_input().as_numpy(),
        "input.as_string": lambda: of_input().as_string(),
        "input.set_raw": lambda: set_in_place(it.InferInput, True),
        "input.set_json": lambda: set_in_place(it.InferInput, False),
        "input.equal": lambda: of_input() == of_input(),
        "input.equal_other": lambda: [
            of_input() == it.InferInput("u", case["shape"], case["datatype"]),
            of_input() == 3,
        ],
        "output": of_output,
        "output.repr": lambda: repr(of_output()),
        "output.to_dict": lambda: of_output().to_dict(),
        "output.as_numpy": lambda: of_output().as_numpy(),
        "output.set_raw": lambda: set_in_place(it.InferOutput, True),
        "output.set_json": lambda: set_in_place(it.InferOutput, False),
        "request": request,
        "request.repr": lambda: repr(request()),
        "request.to_dict": lambda: request().to_dict(),
        "request.to_rest": lambda: request().to_rest(),
        "request.both_to_rest": lambda: it.InferRequest("m", [both(of_input())]).to_rest()[1],
        "request.from_bytes": lambda: again(request(), it.InferRequest.from_bytes, "m"),
        "request.to_grpc": lambda: request().to_grpc(),
        "request.from_grpc": lambda: it.InferRequest.from_grpc(request().to_grpc()),
        "request.grpc_to_rest": lambda: parts(it.InferRequest.from_grpc(request().to_grpc()).to_rest()),
        "request.grpc_as_numpy": lambda: it.InferRequest.from_grpc(request().to_grpc()).inputs[0].as_numpy(),
        "request.as_dataframe": lambda: request().as_dataframe(),
        "request.use_binary_outputs": lambda: request().use_binary_outputs,
        "request.equal": lambda: request() == request(),
        "response": response,
        "response.repr": lambda: repr(response()),
        "response.to_dict": lambda: response().to_dict(),
        "response.to_rest": lambda: response().to_rest(),
        "response.from_bytes": lambda: again(response(), it.InferResponse.from_bytes),
        "response.from_rest": lambda: it.InferResponse.from_rest(json.loads(json.dumps(response().to_rest()[0]))),
        "response.to_grpc": lambda: response().to_grpc(),
        "response.from_grpc": lambda: it.InferResponse.from_grpc(response().to_grpc()),
        "response.equal": lambda: response() == response(),
        "get_predict_input": lambda: utils().get_predict_input(request()),
        "get_predict_response": lambda: utils().get_predict_response(request(), array_of(case), "m"),
        "get_predict_response.list": lambda: utils().get_predict_response(request(), elements(case), "m"),
        "get_predict_response.v1": lambda: utils().get_predict_response({}, array_of(case), "m"),
        "from_np_dtype": lambda: utils().from_np_dtype(array_of(case).dtype),
        "serialize": lambda: it.serialize_byte_tensor(array_of(case)),
        "deserialize": lambda: it.deserialize_bytes_tensor(it.serialize_byte_tensor(array_of(case)).item()),
    }


def parts(sent):
    """A body in binary format, with its JSON parsed: the order of a message's parameters is random."""
    body, length = sent
    return [json.loads(body[:length]), body[length:]] if isinstance(body, bytes) else body


def utils():
    return importlib.import_module("kserve.utils.utils")


def bytes_operations(case):
    from kserve.protocol import infer_type as it

    text = case["json"] if isinstance(case["json"], str) else json.dumps(case["json"])
    length = len(text.encode()) + case["more"]
    body = text.encode() + bytes.fromhex(case["tail"])

    def request():
        return it.InferRequest.from_bytes(body, length, "m")

    def response():
        return it.InferResponse.from_bytes(body, length)

    return {
        "request": request,
        "request.as_numpy": lambda: [tensor.as_numpy() for tensor in request().inputs],
        "response": response,
        "response.as_numpy": lambda: [tensor.as_numpy() for tensor in response().outputs],
        "response.from_rest": lambda: it.InferResponse.from_rest(json.loads(text)),
    }


def v1_operations(case):
    body = case["body"]
    return {
        "get_predict_input": lambda: utils().get_predict_input(body),
        "get_predict_input.columns": lambda: utils().get_predict_input(body, columns=["b", "a"]),
        "is_structured_cloudevent": lambda: utils().is_structured_cloudevent(body),
    }


def frame_operations(case):
    import pandas as pd
    from kserve.protocol import infer_type as it

    frame = pd.DataFrame(case["columns"])
    request = it.InferRequest("m", [], request_id="7", parameters=case["message_parameters"])
    columns = [it.InferInput(name, [len(data)], kind, data) for name, kind, data in case["inputs"]]
    asked = it.InferRequest("m", columns, parameters={"content_type": "pd"})
    return {
        "v1": lambda: utils().get_predict_response({}, frame, "m"),
        "v2": lambda: utils().get_predict_response(request, frame, "m"),
        "input": lambda: utils().get_predict_input(asked),
        "as_dataframe": lambda: asked.as_dataframe(),
    }


def error_operations(case):
    from kserve import errors

    def make():
        arguments = case["arguments"]
        if case["class"] == "NoModelReady":
            arguments = [[types.SimpleNamespace(name=name) for name in arguments[0]], *arguments[1:]]
        return getattr(errors, case["class"])(*arguments)

    return {
        "str": lambda: str(make()),
        "attributes": lambda: attributes(make()),
        "mro": lambda: [cls.__name__ for cls in type(make()).__mro__],
        "answer": lambda: answer(errors, make()),
    }


def attributes(error):
    str(error)  # which sets some
    return {name: value for name, value in vars(error).items() if name != "models"}


def answer(errors, error):
    """The status and message that a server answers."""
    if not hasattr(errors, "generic_exception_handler"):
        from mlserver._kserve_adapter.failures import translated

        found = translated(error)
        return [found.status_code, str(found)]
    import logging

    logging.disable(logging.CRITICAL)
    handlers = {
        "InferenceError": "inference_error_handler",
        "InvalidInput": "invalid_input_handler",
        "ModelNotFound": "model_not_found_handler",
        "ModelNotReady": "model_not_ready_handler",
        "ServerNotLive": "server_not_live_handler",
        "ServerNotReady": "server_not_ready_handler",
        "UnsupportedProtocol": "unsupported_protocol_error_handler",
    }
    handler = getattr(errors, handlers.get(type(error).__name__, "generic_exception_handler"))
    response = asyncio.run(handler(None, error))
    return [int(response.status_code), json.loads(response.body)["error"]]


def call_operations(case):
    """Calls of models whose steps record their arguments."""
    from kserve import Model
    from kserve.model import InferenceVerb, append_forwardable_headers

    def run(verb):
        seen = []

        class Recorder(Model):
            def __init__(self):
                super().__init__("m", return_response_headers=case["response_headers"])

            async def preprocess(self, payload, headers=None):
                seen.append(["preprocess", payload, headers])
                return payload

            def predict(self, payload, headers=None, response_headers=None):
                seen.append(["predict", payload, headers, response_headers])
                if response_headers is not None:
                    response_headers["x"] = "1"
                return {"predictions": []}

            def explain(self, payload, headers=None):
                seen.append(["explain", payload, headers])
                return {"explanations": []}

            async def postprocess(self, result, headers=None, response_headers=None):
                seen.append(["postprocess", result, headers, dict(response_headers) if response_headers else None])
                return result

        model = Recorder()
        ready = [model.ready, model.load(), model.ready, asyncio.run(model.healthy())]
        result = asyncio.run(model(case["body"], case["headers"], verb))
        model.stop()
        return [ready, result, seen, model.ready, model.get_input_types(), model.get_output_types(), vars(model)]

    return {
        "predict": lambda: run(InferenceVerb.PREDICT),
        "explain": lambda: run(InferenceVerb.EXPLAIN),
        "unknown verb": lambda: run("predict"),
        "forwarded": lambda: append_forwardable_headers(case["headers"], {"a": "b", "x-request-id": "base"}),
        "base predict": lambda: Model("m")(case["body"], case["headers"]),
        "base explain": lambda: Model("m").explain(case["body"], case["headers"]),
    }


def server_operations(case):
    """Servers, repositories and predictors."""
    import kserve
    from kserve.context import get_predictor_config, set_predictor_config

    def server(**arguments):
        made = vars(kserve.ModelServer(**arguments))
        return {
            name: value for name, value in made.items() if isinstance(value, (int, str, type(None))) and name[0] != "_"
        }

    def config(*arguments):
        made = kserve.PredictorConfig(*arguments)
        return {name: getattr(made, name) for name in dir(made) if not name.startswith("_")}

    def repository():
        made, model = kserve.ModelRepository(), kserve.Model("m")
        model.ready = True
        made.update(model)
        made.update(model, "other")
        state = [made.models_dir, sorted(made.get_models()), made.get_model("none") is None]
        state.append([asyncio.run(made.is_model_ready(name)) for name in ("m", "none")])
        made.unload("m")
        made.set_models_dir("/x")
        return [state, sorted(made.get_models()), model.ready, made.models_dir]

    def validate(protocol, payload):
        set_predictor_config(kserve.PredictorConfig("h", protocol))
        try:
            return [get_predictor_config().predictor_protocol, kserve.Model("m").validate(payload)]
        finally:
            set_predictor_config(None)

    def start(models):
        import logging

        logging.disable(logging.CRITICAL)
        return kserve.ModelServer().start(models)

    operations = {
        "server": lambda: server(),
        "server arguments": lambda: server(http_port=1, grpc_port=2, workers=3, enable_grpc=False, grace_period=5),
        "server tls": lambda: server(ssl_certfile="a", ssl_keyfile="b"),
        "server tls port": lambda: server(ssl_certfile="a", ssl_keyfile="b", http_port=99),
        "server half tls": lambda: server(ssl_certfile="a"),
        "config": lambda: config("h"),
        "config all": lambda: config("h:1", "grpc-v2", True, 5, 2, True),
        "repository": repository,
        "unload": lambda: kserve.ModelRepository().unload("x"),
        "load": lambda: kserve.ModelRepository().load("x"),
        "load_model": lambda: kserve.ModelRepository().load_model("x"),
        "nameless": lambda: kserve.ModelServer().register_model(kserve.Model("")),
        "start none": lambda: start(None),
        "start numbers": lambda: start([1]),
        "start dictionary": lambda: start({}),
        "start class": lambda: start([kserve.Model]),
        "start not ready": lambda: start([kserve.Model("a"), kserve.Model("b")]),
        "uuid": lambda: utils().generate_uuid(),
    }
    for word in ("y", "YES", "t", "True", "on", "1", "n", "no", "f", "False", "off", "0", "", "2"):
        operations[f"strtobool {word}"] = lambda word=word: utils().strtobool(word)
    for word in ("v1", "V1", "v2", "V2", "grpc-v2", "", None):
        operations[f"is_v1 {word}"] = lambda word=word: utils().is_v1(word)
        operations[f"is_v2 {word}"] = lambda word=word: utils().is_v2(word)
    for protocol in ("v1", "v2", "grpc-v2"):
        for number, payload in enumerate(({"instances": 1}, {"inputs": 1}, {"instances": [], "inputs": []}, {}, [1])):
            operations[f"validate {protocol} {number}"] = lambda p=protocol, x=payload: validate(p, x)
    codec = importlib.import_module("kserve.utils.numpy_codec")
    for name in ("BOOL", "INT8", "UINT64", "FP16", "FP32", "FP64", "BYTES", "fp32", "X", None):
        operations[f"to_np_dtype {name}"] = lambda name=name: str(codec.to_np_dtype(name))
    return operations


class Recorder(http.server.BaseHTTPRequestHandler):
    """A predictor that answers as the case says, and records requests."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet
    answer = (200, "application/json", b"{}")
    seen = []

    def do_POST(self):
        size = int(self.headers.get("content-length", 0))
        sent = {name.lower(): value for name, value in self.headers.items()}
        # KServe does not count the requests that lead to one another.
        about_client = ("host", "accept", "accept-encoding", "connection", "user-agent", "request-depth")
        headers = {name: value for name, value in sorted(sent.items()) if name not in about_client}
        body = self.rfile.read(size)
        if UUID.search(body.decode("latin-1")):
            headers.pop("content-length")
        self.seen.append([self.command, self.path, headers, UUID.sub("<uuid>", body.decode("latin-1"))])
        status, kind, content = self.answer
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("x-seen", "yes")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@functools.lru_cache(maxsize=None)
def recorder():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"


def http_operations(case):
    """Calls of a predictor or explainer, and the requests that it received."""
    import kserve
    import numpy as np
    from kserve.context import set_predictor_config
    from kserve.inference_client import InferenceRESTClient, RESTConfig
    from kserve.protocol import infer_type as it

    host = recorder()

    def payload():
        if case["payload"] == "v1":
            return {"instances": [[1, 2.5, "x", None]]}
        if case["payload"] == "bytes":
            return b'{"instances":[]}'
        tensor = it.InferInput("n", [2], "FP32", [1, 2])
        if case["payload"] == "raw":
            tensor = it.InferInput("n", [2], "FP32")
            tensor.set_data_from_numpy(np.array([1, 2], dtype=np.float32))
        return it.InferRequest("other", [tensor], request_id=case["id"], parameters={"k": 1})

    async def recorded(call):
        Recorder.seen.clear()
        Recorder.answer = (case["status"], case["type"], case["answer"].encode())
        try:
            result = await call()
        except Exception as error:
            result = failure(error)
            result["message"] = result["message"].replace(host, "HOST")
            # Its own class, as httpx is not needed.
            result["kserve"] = result["error"] == "HTTPStatusError"
        return [result, list(Recorder.seen)]

    async def model(method):
        set_predictor_config(kserve.PredictorConfig(host, case["protocol"]))
        made = kserve.Model("m")
        made.explainer_host, made.use_ssl = host, False
        headers = {}
        try:
            if method == "predict":
                found = await recorded(lambda: made.predict(payload(), case["headers"], headers))
            else:
                found = await recorded(lambda: made.explain(payload(), case["headers"]))
        finally:
            await made._http_client.close()
            set_predictor_config(None)
            factory = importlib.import_module("kserve.utils.inference_client_factory").InferenceClientFactory()
            factory._rest_v1_client = factory._rest_v2_client = None  # the original's
            getattr(factory, "_rest_clients", {}).clear()  # ours
        own = ("server", "date", "content-length")
        return [*found, {name: value for name, value in headers.items() if name not in own}]

    async def client(call):
        # Reading the certificates takes the original longer than all else.
        config = RESTConfig(protocol=case["protocol"], retries=1, verify=False)
        async with InferenceRESTClient(config) as made:
            return await recorded(lambda: call(made, f"http://{host}/base/"))

    return {
        "predict": lambda: model("predict"),
        "explain": lambda: model("explain"),
        "infer": lambda: client(lambda made, url: made.infer(url, payload(), "m", headers=case["headers"])),
        "graph": lambda: client(lambda made, url: made.infer(url, payload(), is_graph_endpoint=True)),
        "nameless": lambda: client(lambda made, url: made.infer(url, payload())),
        "client explain": lambda: client(lambda made, url: made.explain(url, "m", {"instances": []})),
        "is_server_live": lambda: client(lambda made, url: made.is_server_live(url)),
        "is_server_ready": lambda: client(lambda made, url: made.is_server_ready(url)),
        "is_model_ready": lambda: client(lambda made, url: made.is_model_ready(url, "m")),
    }


def event_operations(case):
    import os

    def event():
        before = {name: os.environ.pop(name, None) for name in ("CE_SOURCE", "CE_TYPE", "CE_MERGE")}
        os.environ.update(case["environment"])
        try:
            headers, body = utils().create_response_cloudevent(
                "m", {"predictions": [1]}, case["attributes"], case["binary"]
            )
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        body = json.loads(body)
        for part, name in ((headers, "ce-time"), (body, "time")):
            if name in part:
                part[name] = re.sub(r"\d", "0", part[name])
        return [dict(headers), body]

    return {"event": event}


KINDS = {
    "tensor": tensor_operations,
    "bytes": bytes_operations,
    "v1": v1_operations,
    "frame": frame_operations,
    "error": error_operations,
    "call": call_operations,
    "server": server_operations,
    "event": event_operations,
    "http": http_operations,
}

if __name__ == "__main__":
    main()
