"""Clusters understand the manifests: every field is known to Kubernetes' own client, or to the sources of KServe and Seldon."""

import subprocess

import pytest
import yaml
from conftest import BINARY, ROOT
from kubernetes import client

#: The fields of custom resources, from the models of KServe's package 0.21.0 on PyPI (v1alpha1, v1beta1) and from Seldon Core's
#: `seldondeployment_types.go` (v1); other names are rejected. A capitalized name is an object of Kubernetes.
FIELDS = {
    "ClusterServingRuntime.spec": {
        "annotations": {str: str},
        "protocolVersions": [str],
        "supportedModelFormats": [{"name": str, "version": str, "autoSelect": bool, "priority": int}],
        "containers": ["V1Container"],
    },
    "InferenceService.spec": {"predictor": {"minReplicas": int, "containers": ["V1Container"]}},
    "SeldonDeployment.spec": {
        "protocol": str,
        "predictors": [
            {
                "name": str,
                "replicas": int,
                "graph": {"name": str, "type": str},
                "componentSpecs": [{"spec": "V1PodSpec"}],
            }
        ],
    },
}


def check(value, kind, where):
    """Fails unless a value matches a type, a list, a dictionary of fields, or the name of a Kubernetes object."""
    if isinstance(kind, list):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            check(item, kind[0], f"{where}[{index}]")
    elif isinstance(kind, dict):
        assert isinstance(value, dict), where
        for name, item in value.items():
            assert str in kind or name in kind, f"{where} has no field {name}"
            check(item, kind.get(str) if str in kind else kind[name], f"{where}.{name}")
    elif isinstance(kind, type):
        assert type(value) is kind, f"{where} is {value!r}, not {kind}"
    else:
        check_known(value, kind, where)


def check_known(value, kind, where):
    """Checks a value against a type of Kubernetes' client, such as `List[V1Container]`, `Dict[str, str]`, `V1Pod` or `str`."""
    plain = {"str": str, "int": int, "bool": bool, "object": object}
    if kind.startswith("List["):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            check_known(item, kind[5:-1], f"{where}[{index}]")
    elif kind.startswith("Dict["):
        assert isinstance(value, dict), where
        for name, item in value.items():
            check_known(item, kind[5:-1].split(", ", 1)[1], f"{where}.{name}")
    elif kind in plain:
        # A number or a string, such as a port or its name.
        assert plain[kind] is object or type(value) is plain[kind], f"{where} is {value!r}, not {kind}"
    else:
        model = getattr(client, kind)
        fields = {model.attribute_map[name]: inner for name, inner in model.openapi_types.items()}
        for name, item in value.items():
            assert name in fields, f"{where}: {kind} has no field {name}"
            check_known(item, fields[name], f"{where}.{name}")
        # Reports which required fields are missing.
        model.from_dict(value)


def documents(text):
    found = list(yaml.safe_load_all(text))
    assert found
    return found


def check_document(document):
    kind = document["kind"]
    own = {"Deployment": "V1Deployment", "Service": "V1Service"}
    if kind in own:
        check_known(document, own[kind], kind)
        return
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    check_known(document["metadata"], "V1ObjectMeta", f"{kind}.metadata")
    check(document["spec"], FIELDS[f"{kind}.spec"], f"{kind}.spec")


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").glob("*.yaml")), ids=lambda path: path.name)
def test_manifest_has_only_known_fields(path):
    for document in documents(path.read_text()):
        check_document(document)


@pytest.mark.parametrize("kind", ["kubernetes", "kserve", "seldon"])
def test_manifest_follows_the_settings_of_the_folder(kind, tmp_path):
    (tmp_path / "settings.json").write_text('{"http_port": 9090, "metrics_endpoint": null, "shutdown_grace_period": 90}')
    command = [BINARY, "manifest", tmp_path, "--image", "r.io/m:1", "--kind", kind, "--name", "m", "--replicas", "3"]
    printed = documents(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for document in printed:
        check_document(document)
    text = str(printed)
    assert "r.io/m:1" in text
    assert "metrics" not in text
    if kind == "kubernetes":
        pod = printed[0]["spec"]["template"]["spec"]
        assert (printed[0]["spec"]["replicas"], printed[1]["spec"]["ports"][0]["port"]) == (3, 9090)
        assert pod["terminationGracePeriodSeconds"] > 90


def test_unknown_field_is_detected():
    with pytest.raises(AssertionError, match="V1Container has no field imagePolicy"):
        check([{"name": "c", "imagePolicy": "x"}], ["V1Container"], "containers")
    with pytest.raises(AssertionError, match="is '80', not int"):
        check([{"name": "c", "ports": [{"containerPort": "80"}]}], ["V1Container"], "containers")
    with pytest.raises(ValueError, match="validation error for V1Container"):
        check([{"image": "x"}], ["V1Container"], "containers")
