"""Clusters understand the manifests: their fields, types and required fields are those of Kubernetes, KServe and Seldon Core.

`schemas.py` extracts the schemas from the packages of these projects.
"""

import copy
import json
import re
import subprocess
import time
import urllib.request

import pytest
import yaml
from conftest import BINARY, ROOT

DOCUMENT = json.loads((ROOT / "tests/clients/schemas.json").read_text())
SCHEMAS = DOCUMENT["schemas"]
ROOTS = DOCUMENT["roots"]
WITHOUT_SPEC = ["ConfigMap", "ServiceAccount"]
PLAIN = {"str": str, "int": int, "bool": bool, "float": float}
#: RFC 1035, as Services demand it.
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check(value, kind, where):
    """Fails unless a value has a type of the schemas, such as `list[V1Container]`, `dict(str, str)`, `V1Pod` or `str`."""
    if kind.startswith("list["):
        assert isinstance(value, list), f"{where} is {value!r}, not a list"
        for index, item in enumerate(value):
            check(item, kind[5:-1], f"{where}[{index}]")
    elif kind.startswith("dict("):
        assert isinstance(value, dict), f"{where} is {value!r}, not an object"
        for name, item in value.items():
            assert isinstance(name, str), f"{where} has the key {name!r}"
            check(item, kind[5:-1].split(", ", 1)[1], f"{where}.{name}")
    elif kind in PLAIN:
        # `bool` is a subclass of `int`.
        assert type(value) is PLAIN[kind], f"{where} is {value!r}, not {kind}"
    elif kind == "object":
        # A number or a string, such as a port or its name.
        assert isinstance(value, int | str | dict), f"{where} is {value!r}"
    elif "fields" not in SCHEMAS[kind]:
        assert isinstance(value, str), f"{where} is {value!r}, not {kind}"
    else:
        assert isinstance(value, dict), f"{where} is {value!r}, not {kind}"
        fields = SCHEMAS[kind]["fields"]
        for name, item in value.items():
            assert name in fields, f"{where}: {kind} has no field {name}"
            check(item, fields[name], f"{where}.{name}")
        for name in SCHEMAS[kind]["required"]:
            assert name in value, f"{where}: {kind} needs {name}"


def check_document(document):
    for field in ["apiVersion", "kind", "metadata"] + ["spec"] * (document["kind"] not in WITHOUT_SPEC):
        assert field in document, f"the document has no {field}"
    if document["kind"] == "Certificate":
        check_certificate(document)
        return
    check(document, ROOTS[document["kind"]], document["kind"])
    assert LABEL.fullmatch(document["metadata"]["name"]), document["metadata"]["name"]
    for pod in pods(document):
        check_pod(pod)


def check_certificate(document):
    """Checks a certificate of cert-manager, which has no package with its schema, against its documentation."""
    spec = document["spec"]
    assert document["apiVersion"] == "cert-manager.io/v1"
    assert set(spec) == {"secretName", "dnsNames", "issuerRef"}
    assert spec["secretName"] and spec["dnsNames"]
    assert set(spec["issuerRef"]) == {"name", "kind"}


def pods(document):
    """Returns the specifications of the pods in a document."""
    spec = document.get("spec")
    return {
        "Deployment": lambda: [spec["template"]["spec"]],
        "Service": lambda: [],
        "ConfigMap": lambda: [],
        "HorizontalPodAutoscaler": lambda: [],
        "ServiceAccount": lambda: [],
        "ClusterServingRuntime": lambda: [spec],
        "InferenceService": lambda: [spec["predictor"]],
        "SeldonDeployment": lambda: [
            component["spec"] for predictor in spec["predictors"] for component in predictor["componentSpecs"]
        ],
    }[document["kind"]]()


def check_pod(pod):
    """Checks what every container of ours has to have, and that its parts fit together."""
    (container,) = pod["containers"]
    ports = {port["containerPort"] for port in container.get("ports", [])}
    names = {port["name"] for port in container.get("ports", [])}
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"]:
        port = container[probe]["httpGet"]["port"]
        assert not ports or port in ports | names, f"{probe} of port {port}"
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    variables = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    delay = int(variables.get("MLSERVER_SHUTDOWN_DELAY", 0))
    grace = int(variables.get("MLSERVER_SHUTDOWN_GRACE_PERIOD", 30))
    assert pod.get("terminationGracePeriodSeconds", 30) > delay + grace


def manifest(folder, *flags):
    command = [BINARY, "manifest", folder, "--image", "r.io/m:1", *flags]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    documents = list(yaml.safe_load_all(ran.stdout))
    assert documents
    return documents


@pytest.mark.parametrize("path", sorted((ROOT / "packaging/deploy").glob("*.yaml")), ids=lambda path: path.name)
def test_manifest_of_the_repository_fits_the_schemas(path):
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        check_document(document)


def test_runtime_has_the_versions_that_the_server_reads():
    runtime = yaml.safe_load((ROOT / "packaging/deploy/kserve-runtime.yaml").read_text())
    formats = [(found["name"], found["version"]) for found in runtime["spec"]["supportedModelFormats"]]
    expected = {"sklearn": "01", "xgboost": "0123", "lightgbm": "234", "mlflow": "123", "catboost": "1"}
    expected["onnx"] = "1"
    assert formats == [(name, version) for name, versions in expected.items() for version in versions]
    assert runtime["spec"]["annotations"]["prometheus.io/port"] == "8082"
    assert runtime["spec"]["protocolVersions"] == ["v1", "v2"]


def test_runtime_serves_a_model_file_under_the_name_of_the_service(tmp_path):
    """KServe fills in the variables, and mounts a file: V1 has no label `modelClass`, which then is `<no value>`."""
    runtime = yaml.safe_load((ROOT / "packaging/deploy/kserve-runtime.yaml").read_text())
    (container,) = runtime["spec"]["containers"]
    values = {"{{.Name}}": "iris", "{{.Labels.modelClass}}": "<no value>", "/mnt/models": str(tmp_path)}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    variables = {name: values.get(value, value) for name, value in variables.items()}
    ports = {"MLSERVER_HTTP_PORT": "0", "MLSERVER_GRPC_PORT": "0", "MLSERVER_METRICS_PORT": "0"}
    (tmp_path / "model.json").write_bytes((ROOT / "examples/quickstart/iris-xgboost/model.json").read_bytes())
    addresses = tmp_path / "addresses"
    server = subprocess.Popen(
        [BINARY, "start", "--port-file", addresses],
        env={**variables, **ports, "MLSERVER_HOST": "127.0.0.1", "MLSERVER_SHUTDOWN_DELAY": "0"},
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if addresses.exists() or server.poll() is not None:
                break
            time.sleep(0.05)
        http = json.loads(addresses.read_text())["http"]
        with urllib.request.urlopen(f"http://{http}/v2/models/iris/ready") as answer:
            assert answer.status == 200
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("kind", ["kubernetes", "kserve", "seldon"])
def test_manifest_follows_the_settings_of_the_folder(kind, tmp_path):
    (tmp_path / "settings.json").write_text('{"http_port": 9090, "metrics_endpoint": null, "shutdown_grace_period": 90}')
    documents = manifest(tmp_path, "--kind", kind, "--name", "m", "--replicas", "3", "--cpu", "500m", "--memory", "1Gi")
    for document in documents:
        check_document(document)
    text = str(documents)
    assert "r.io/m:1" in text
    assert "metrics" not in text and "prometheus" not in text
    (pod,) = pods(documents[0])
    (container,) = pod["containers"]
    assert 9090 in [port["containerPort"] for port in container["ports"]]
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    # The delay is ours, as the settings do not set it.
    assert {"name": "MLSERVER_SHUTDOWN_DELAY", "value": "5"} in container["env"]
    assert pod["terminationGracePeriodSeconds"] == 96
    if kind == "kubernetes":
        assert (documents[0]["spec"]["replicas"], documents[1]["spec"]["ports"][0]["port"]) == (3, 9090)


@pytest.mark.parametrize("kind", ["kubernetes", "kserve", "seldon"])
def test_manifest_scrapes_metrics_and_keeps_the_delay_of_the_settings(kind, tmp_path):
    (tmp_path / "settings.json").write_text('{"shutdown_delay": 12, "metrics_endpoint": "/prometheus"}')
    documents = manifest(tmp_path, "--kind", kind, "--name", "m")
    for document in documents:
        check_document(document)
    (pod,) = pods(documents[0])
    (container,) = pod["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [8080, 8081, 8082]
    assert "MLSERVER_SHUTDOWN_DELAY" not in str(documents)
    assert pod["terminationGracePeriodSeconds"] == 43
    spec = documents[0]["spec"]
    annotations = {
        "kubernetes": lambda: spec["template"]["metadata"]["annotations"],
        "kserve": lambda: documents[0]["metadata"]["annotations"],
        "seldon": lambda: spec["predictors"][0]["componentSpecs"][0]["metadata"]["annotations"],
    }[kind]()
    assert annotations["prometheus.io/port"] == "8082"
    assert annotations["prometheus.io/path"] == "/prometheus"
    if kind == "kserve":
        assert annotations["serving.kserve.io/deploymentMode"] == "RawDeployment"
        # Otherwise, KServe's webhook replaces the port with 9091, that of Knative's proxy.
        assert annotations["serving.kserve.io/enable-prometheus-scraping"] == "false"


@pytest.mark.parametrize("kind", ["kubernetes", "kserve", "seldon"])
def test_name_of_the_resources_is_valid(kind, tmp_path):
    for folder in ["2024-churn", "My Model_v2", f"{'x' * 80}"]:
        (tmp_path / folder).mkdir()
        for document in manifest(tmp_path / folder, "--kind", kind):
            check_document(document)


def changed(document, path, value):
    """Returns a copy with a value replaced, or removed if it is `None`."""
    document = copy.deepcopy(document)
    target = document
    for key in path[:-1]:
        target = target[key]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("kubernetes", ("spec", "replicas"), "3", r"Deployment.spec.replicas is '3', not int"),
        ("kubernetes", ("spec", "selector"), None, r"Deployment.spec: V1DeploymentSpec needs selector"),
        ("kserve", ("spec", "predictor", "minReplicas"), True, r"minReplicas is True, not int"),
        ("kserve", ("spec", "predictor", "containers", 0, "name"), None, r"V1Container needs name"),
        ("kserve", ("spec", "predictor", "imagePolicy"), "x", r"V1beta1PredictorSpec has no field imagePolicy"),
        ("kserve", ("metadata", "annotations", "prometheus.io/port"), 8082, r"prometheus.io/port is 8082, not str"),
        ("kserve", ("metadata", "name"), "1m", r"^1m"),
        ("seldon", ("spec", "predictors", 0, "graph"), None, r"PredictorSpec needs graph"),
        ("seldon", ("spec", "predictors", 0, "replicas"), "1", r"replicas is '1', not int"),
    ],
)
def test_invalid_manifest_is_detected(kind, path, value, message):
    document = next(yaml.safe_load_all((ROOT / f"packaging/deploy/{kind}.yaml").read_text()))
    check_document(document)
    with pytest.raises(AssertionError, match=message):
        check_document(changed(document, path, value))
