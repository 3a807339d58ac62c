"""The Helm chart: its values and the objects that it renders.

Helm's library renders it, from a Python package. With the environment variable `MLSERVER_TEST_HELM`, that `helm` does.
"""

import json
import os
import subprocess

import jsonschema
import pytest
import yaml
from conftest import ROOT
from test_manifests import check_document

CHART = ROOT / "packaging/deploy/helm/mlserver"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}
EXAMPLES["default"] = {}


def merged(values, own):
    """Returns values with those of a file, as Helm merges them."""
    if not isinstance(values, dict) or not isinstance(own, dict):
        return own
    return {**values, **{name: merged(values.get(name), value) for name, value in own.items()}}


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_fit_the_schema(name):
    jsonschema.validate(merged(VALUES, EXAMPLES[name]), SCHEMA)


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"repository": ""}},
        {"models": {"claim": "a", "hostPath": "/b"}},
        {"models": {"claim": "a", "download": {"image": "b"}}},
        {"models": {"hostPath": "relative"}},
        {"models": {"claim": "a", "uri": "s3://b"}},
        {"models": {"uri": "/mnt/models"}},
        {"models": {"download": {"command": ["sh"]}}},
        {"settings": {"http_port": 80}},
        {"settings": {"api_keys_file": "keys.json"}},
        {"tls": {"issuer": {"kind": "ClusterIssuer"}}},
        {"podAnnotations": {"a": 1}},
        {"replica": 1},
    ],
    ids=str,
)
def test_invalid_values_are_rejected(values):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(VALUES, values), SCHEMA)


def render(name):
    """Returns the objects that the chart renders, by their kinds."""
    if "MLSERVER_TEST_HELM" in os.environ:
        # A helm that `go install` has built takes 1.20 for the version of Kubernetes.
        command = [os.environ["MLSERVER_TEST_HELM"], "template", "iris", CHART, "--namespace", "models", "--kube-version", "1.30.0"]
        if name != "default":
            command += ["--values", CHART / f"ci/{name}.yaml"]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        texts = [ran.stdout]
    else:
        from helm_python import Chart

        rendered = Chart.load(CHART).render(EXAMPLES[name], name="iris", namespace="models")
        texts = [text for path, text in rendered.items() if not path.endswith("NOTES.txt")]
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("name", EXAMPLES)
def test_rendered_objects_fit_the_schemas_and_each_other(name):
    objects = render(name)
    for document in objects.values():
        check_document(document)
    pod = objects["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    selector = objects["Service"]["spec"]["selector"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert selector == objects["Deployment"]["spec"]["selector"]["matchLabels"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} <= ports
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    for each in [container, *pod["spec"].get("initContainers", [])]:
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["serviceAccountName"] == objects.get("ServiceAccount", {"metadata": {"name": "models"}})["metadata"]["name"]


def settings(objects):
    return json.loads(objects["ConfigMap"]["data"]["settings.json"])


def test_rendered_default_has_no_security_and_no_models_volume():
    objects = render("default")
    assert set(objects) == {"ConfigMap", "Deployment", "Service", "ServiceAccount"}
    assert settings(objects)["shutdown_delay"] == 5
    assert not {"tls_certificate", "api_keys_file"} & settings(objects).keys()
    spec = objects["Deployment"]["spec"]
    assert spec["replicas"] == 1
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 36
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == f"mlserver:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    assert "MLSERVER_MODELS_DIR" not in [variable["name"] for variable in container["env"]]


def test_rendered_tls_and_keys():
    objects = render("secured")
    certificate, pod = objects["Certificate"]["spec"], objects["Deployment"]["spec"]["template"]["spec"]
    assert certificate["dnsNames"] == ["iris-mlserver", "iris-mlserver.models", "iris-mlserver.models.svc"]
    secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets["tls"]["secretName"] == certificate["secretName"]
    assert secrets["keys"]["secretName"] == "quickstart-keys"
    found = settings(objects)
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert found["tls_certificate"] == f"{mounts['tls']}/tls.crt"
    assert found["tls_key"] == f"{mounts['tls']}/tls.key"
    assert found["api_keys_file"] == f"{mounts['keys']}/keys.json"
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_rendered_models():
    volumes = {}
    for name in ["claim", "host", "download"]:
        pod = render(name)["Deployment"]["spec"]["template"]["spec"]
        (volumes[name],) = (volume for volume in pod["volumes"] if volume["name"] == "models")
        assert {"name": "MLSERVER_MODELS_DIR", "value": "/mnt/models"} in pod["containers"][0]["env"]
    assert volumes["claim"]["persistentVolumeClaim"] == {"claimName": "models"}
    assert volumes["host"]["hostPath"] == {"path": "/srv/models", "type": "Directory"}
    assert volumes["download"]["emptyDir"] == {}


def test_rendered_bucket():
    objects = render("bucket")
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    assert (variables["MLSERVER_MODELS_DIR"], variables["AWS_REGION"]) == ("s3://models/production", "eu-central-1")
    assert settings(objects)["storage_cache"] == "/tmp/models"
    assert "models" not in {volume["name"] for volume in pod["volumes"]}


def test_rendered_settings_and_scaling():
    objects = render("download")
    assert settings(objects)["shutdown_grace_period"] == 60
    pod = objects["Deployment"]["spec"]["template"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 64
    assert pod["metadata"]["annotations"]["prometheus.io/path"] == "/prometheus"
    assert pod["spec"]["initContainers"][0]["env"] == [{"name": "BUCKET", "value": "s3://models"}]
    scaled = render("claim")
    assert "replicas" not in scaled["Deployment"]["spec"]
    assert scaled["HorizontalPodAutoscaler"]["spec"]["maxReplicas"] == 8
