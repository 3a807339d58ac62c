"""The requests that both servers get.

Each is a `Request`; `intended` says in one word why the answers may differ, and in what. A difference in a part that is
not listed there counts as a bug.
"""

import gzip
import json
from dataclasses import dataclass, field

IRIS = "/v2/models/iris-xgboost"
CANCER = "/v2/models/breast-cancer-lightgbm"
VERSION = "/versions/v1.0.0"


@dataclass
class Request:
    name: str
    method: str
    path: str
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    # Part ("status", "body", or a header's name) -> the reason why it may differ.
    intended: dict = field(default_factory=dict)


# All our errors are {"error": ...}; the original also has {"detail": ...} and plain text.
ERROR = {"body": "one error shape"}
ERROR_TYPE = {**ERROR, "content-type": "one error shape"}
# The original passes unchecked tensors to the model, which fails with 500.
CHECKED = {"status": "checked before the model", **ERROR_TYPE}
CE = ["ce-specversion", "ce-source", "ce-type", "ce-modelid", "ce-inferenceservicename", "ce-endpoint", "ce-id", "ce-requestid"]
# Answered by the original, however it interprets the request.
REFUSED = {"status": "refused rather than guessed", **ERROR, **dict.fromkeys(CE, "refused rather than guessed")}
HEALTH = {"body": "health routes answer with JSON", "content-type": "health routes answer with JSON"}
BACKEND = {"body": "metadata names the backend"}


def row(data="[6.2,2.8,4.8,1.8]", shape="[1,4]", datatype="FP32", name="input-0", more="", before=""):
    tensor = f'{{"name":"{name}","shape":{shape},"datatype":"{datatype}",{more}"data":{data}}}'
    return f'{{{before}"inputs":[{tensor}]}}'.encode()


def infer(name, body, path=IRIS + "/infer", headers=None, **rest):
    if isinstance(body, str):
        body = body.encode()
    headers = {"content-type": "application/json"} if headers is None else headers
    return Request(name, "POST", path, body, headers, **rest)


def get(name, path, **rest):
    return Request(name, "GET", path, **rest)


def frame(content_type):
    columns = [{"name": f"c{i}", "shape": [2, 1], "datatype": "FP32", "data": [v, v]} for i, v in enumerate([6.2, 2.8, 4.8, 1.8])]
    return json.dumps({"parameters": {"content_type": content_type}, "inputs": columns})


def many(rows):
    return row(json.dumps([6.2, 2.8, 4.8, 1.8] * rows), f"[{rows},4]")


def post(name, path, body=b"", **rest):
    return Request(name, "POST", path, body, {"content-type": "application/json"}, **rest)


def repository():
    """Returns the requests of the repository API, in order: each depends on those before it."""
    index, model = "/v2/repository/index", "/v2/repository/models/iris-xgboost"
    ready = [("true", {}), ("false", {}), ("null", {}), ('"yes"', {}), ("1", {}), ("5", ERROR), ("[]", ERROR)]
    return [
        get("GET index", index, intended=ERROR),
        get("GET load", model + "/load", intended=ERROR),
        post("index", index, b"{}"),
        *(post(f"index, ready {value}", index, f'{{"ready":{value}}}'.encode(), intended=why) for value, why in ready),
        post("index, list", index, b"[]", intended=ERROR),
        post("index, null", index, b"null", intended=ERROR),
        post("index, broken JSON", index, b"{", intended=ERROR),
        post("index without body", index, intended={"status": "Triton's client sends none", **ERROR}),
        post("load unknown", "/v2/repository/models/nope/load"),
        post("unload unknown", "/v2/repository/models/nope/unload"),
        post("load a version", model + "/versions/v1.0.0/load", intended=ERROR),
        post("load again", model + "/load"),
        post("load with a body", model + "/load", b'{"parameters":{}}'),
        infer("infer after load", row()),
        post("unload", model + "/unload", b'{"parameters":{"unload_dependents":false}}'),
        post("unload again", model + "/unload"),
        infer("infer after unload", row()),
        get("ready after unload", IRIS + "/ready"),
        get("server ready after unload", "/v2/health/ready", intended=HEALTH),
        post("index after unload", index, b"{}"),
        post("index after unload, ready", index, b'{"ready":true}'),
        post("load after unload", model + "/load"),
        infer("infer after load after unload", row(), IRIS + VERSION + "/infer"),
    ]


def quickstart(folder):
    """Returns the requests to the quickstart's models."""
    iris = (folder / "iris-request.json").read_bytes()
    cancer = (folder / "breast-cancer-request.json").read_bytes()
    json_type = {"content-type": "application/json"}
    gzipped = {**json_type, "content-encoding": "gzip"}
    requests = [
        get("live", "/v2/health/live", intended=HEALTH),
        get("ready", "/v2/health/ready", intended=HEALTH),
        get("server metadata", "/v2", intended={"body": "another version"}),
        get("model metadata", IRIS, intended=BACKEND),
        get("model metadata, version", IRIS + VERSION, intended=BACKEND),
        get("model metadata, query", IRIS + "?model_version=v1.0.0", intended=BACKEND),
        get("model ready", IRIS + "/ready", intended=HEALTH),
        get("model ready, version", IRIS + VERSION + "/ready", intended=HEALTH),
        get("unknown model", "/v2/models/nope"),
        get("unknown model ready", "/v2/models/nope/ready"),
        get("unknown version", IRIS + "/versions/7"),
        get("unknown version, query", IRIS + "?model_version=7"),
        get("unknown path", "/nope", intended=ERROR),
        get("list of models", "/v2/models", intended=ERROR),
        get("trailing slash", "/v2/", intended={"location": "relative redirect"}),
        get("GET infer", IRIS + "/infer", intended=ERROR),
        Request("POST metadata", "POST", "/v2", intended={**ERROR, "allow": "HEAD is served"}),
        Request("HEAD metadata", "HEAD", "/v2", intended={"status": "HEAD is served", "content-type": "HEAD is served", "allow": "HEAD is served"}),
        infer("quickstart iris", iris),
        infer("quickstart breast cancer", cancer, CANCER + "/infer"),
        infer("generate", iris, IRIS + "/generate"),
        infer("infer, version", row(), IRIS + VERSION + "/infer"),
        infer("infer, query", row(), IRIS + "/infer?model_version=v1.0.0"),
        infer("infer, unknown model", row(), "/v2/models/nope/infer"),
        infer("infer, unknown version", row(), IRIS + "/versions/7/infer"),
        infer("infer, unknown version, query", row(), IRIS + "/infer?model_version=7"),
        infer("own id", row(before='"id":"my-id",')),
        infer("empty id", row(before='"id":"",')),
        infer("null id", row(before='"id":null,')),
        infer("id of another type", row(before='"id":7,'), intended=ERROR),
        infer("parameters are kept from the answer", row(before='"parameters":{"own":1},')),
        infer("headers in parameters", row(before='"parameters":{"headers":{"x-a":"b"}},')),
        infer("no content type", row(), headers={}),
        infer("json with charset", row(), headers={"content-type": "application/json; charset=utf-8"}),
        infer("json by suffix", row(), headers={"content-type": "application/vnd.a+json"}),
        infer("text/plain", row(), headers={"content-type": "text/plain"}, intended=ERROR),
        infer("nested data", row("[[6.2,2.8,4.8,1.8]]")),
        infer("nested otherwise than the shape", row("[[6.2,2.8],[4.8,1.8]]")),
        infer("open dimension", row(shape="[-1,4]")),
        infer("shape as text", row(shape='["1",4]')),
        infer("shape with a float", row(shape="[1.0,4]")),
        infer("null is missing", row("[6.2,null,4.8,1.8]")),
        infer("all null", row("[null,null,null,null]")),
        infer("long mantissas", row("[6.20000000000000017763568394002504646778106689453125,2.8,4.8,1.8]")),
        infer("tiny and huge", row("[1e-46,3e38,-3e38,5e-324]")),
        infer("two rows", many(2)),
        infer("no rows", row("[]", "[0,4]")),
        infer("long answer", many(200)),
        infer("long answer, gzip", many(200), headers={**json_type, "accept-encoding": "gzip"}),
        infer("short answer, gzip", row(), headers={**json_type, "accept-encoding": "gzip"}),
        infer("gzip request", gzip.compress(row()), headers=gzipped),
        infer("corrupt gzip", row(), headers=gzipped, intended=ERROR),
        infer("unknown encoding", row(), headers={**json_type, "content-encoding": "br"}, intended=REFUSED),
        infer("predict_proba", row(before='"outputs":[{"name":"predict_proba"}],')),
        infer("both outputs", row(before='"outputs":[{"name":"predict_proba"},{"name":"predict"}],')),
        infer("output twice", row(before='"outputs":[{"name":"predict"},{"name":"predict"}],')),
        infer("no outputs", row(before='"outputs":[],')),
        infer("unknown output", row(before='"outputs":[{"name":"nope"}],')),
        infer("output without name", row(before='"outputs":[{}],'), intended=ERROR),
        infer("output parameters", row(before='"outputs":[{"name":"predict","parameters":{"content_type":"np"}}],')),
        infer("unknown output of LightGBM", cancer.replace(b'"predict"', b'"nope"'), CANCER + "/infer"),
        infer("pd", frame("pd")),
        infer("pd of one column", row(before='"parameters":{"content_type":"pd"},', shape="[4]"), intended=CHECKED),
        infer("pd of columns of different length", frame("pd").replace("[2, 1]", "[1, 2]", 1)),
        infer("pd with a column of one dimension", frame("pd").replace("[2, 1]", "[2]")),
        infer("np with four inputs", frame("np")),
        infer("unknown content type", row(before='"parameters":{"content_type":"nope"},')),
        infer("content type of the input", row(more='"parameters":{"content_type":"np"},')),
        infer("unknown keys", row(before='"later":{"a":[1]},', more='"later":null,')),
        infer("no inputs", '{"inputs":[]}', intended=CHECKED),
        infer("empty body", b"", intended=ERROR),
        infer("null body", b"null", intended=ERROR),
        infer("list body", b"[]", intended=ERROR),
        infer("broken JSON", b'{"inputs":[', intended=ERROR),
        infer("trailing JSON", row() + b"{}", intended=ERROR),
        infer("NaN literal", row("[NaN,1,1,1]"), intended=ERROR),
        infer("no inputs field", b"{}", intended=ERROR),
        infer("no name", row().replace(b'"name":"input-0",', b""), intended=ERROR),
        infer("no data", row().replace(b',"data":[6.2,2.8,4.8,1.8]', b""), intended=ERROR),
        infer("datatype in lower case", row(datatype="fp32"), intended=ERROR),
        infer("unknown datatype", row(datatype="FP99"), intended=ERROR),
        infer("fractional shape", row(shape="[1,2.5]"), intended=ERROR),
        infer("negative shape", row(shape="[-2,4]"), intended=REFUSED),
        infer("too few elements", row("[1,2,3]"), intended=CHECKED),
        infer("too many elements", row("[1,2,3,4,5]"), intended=CHECKED),
        infer("ragged data", row("[[1,2],[3]]"), intended=CHECKED),
        infer("text as number", row('["a",1,2,3]'), intended=CHECKED),
        infer("numeric text as number", row('["1",1,2,3]')),
        infer("three columns", row("[1,2,3]", "[1,3]"), intended=CHECKED),
        infer("five columns", row("[1,2,3,4,5]", "[1,5]"), intended=CHECKED),
        infer("one dimension", row(shape="[4]"), intended=CHECKED),
        infer("three dimensions", row(shape="[1,2,2]"), intended=CHECKED),
        infer("out of range", row("[1,2,3,256]", datatype="UINT8"), intended=CHECKED),
        infer("negative unsigned", row("[1,2,3,-1]", datatype="UINT8"), intended=CHECKED),
        infer("fraction as integer", row("[1,2,3,2.5]", datatype="INT32"), intended=REFUSED),
        infer("null as integer", row("[1,2,3,null]", datatype="INT32"), intended=CHECKED),
        infer("infinite FP32", row("[1,2,3,1e39]"), intended=REFUSED),
        infer("beyond FP64", row("[1,2,3,1e400]", datatype="FP64"), intended=CHECKED),
        infer("beyond FP16", row("[1,2,3,70000]", datatype="FP16"), intended=REFUSED),
        infer("text of special values", row('["NaN","Infinity","-Infinity",1]')),
        infer("33 dimensions", row(shape=f"[{'1,' * 32}4]"), intended={**CHECKED, "status": "at most 32 dimensions"}),
        infer("BYTES as one string", row('"text"', "[1]", "BYTES"), intended=CHECKED),
        infer("bool as number", row("[true,2,3,4]"), intended=REFUSED),
        infer("number as bool", row("[1,0,2,1]", datatype="BOOL"), intended=REFUSED),
        infer("null data", row("null"), intended=CHECKED),
        infer("scalar data", row("7"), intended=CHECKED),
        infer("object data", row('{"a":1}'), intended=CHECKED),
        infer("BF16", row(datatype="BF16"), intended={"status": "BF16 is read", "body": "BF16 is read", **dict.fromkeys(CE, "BF16 is read")}),
        infer("bytes", row('["a","b","c","d"]', datatype="BYTES"), intended=CHECKED),
        infer("LightGBM with too few columns", row(), CANCER + "/infer", intended=CHECKED),
    ]
    for datatype in ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP64"]:
        requests.append(infer(f"as {datatype}", row("[6,3,5,2]", datatype=datatype)))
    requests.append(infer("as BOOL", row("[true,false,true,true]", datatype="BOOL")))
    return requests

