"""Writes schemas.json: the types and required fields of the objects in our manifests, from packages on PyPI.

The packages take hundreds of megabytes and are only read here, so the tests use the extract:

    python3 -m venv target/schemas
    target/schemas/bin/pip install --no-deps kserve==0.21.0 seldon-deploy-sdk==2.4.0
    target/schemas/bin/pip install kubernetes==37.0.2
    target/schemas/bin/python tests/clients/schemas.py
"""

import ast
import importlib.metadata
import importlib.util
import json
import re
from pathlib import Path

from kubernetes import client

#: The objects that manifests contain, by their kind.
ROOTS = {
    "Deployment": "V1Deployment",
    "Service": "V1Service",
    "ConfigMap": "V1ConfigMap",
    "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler",
    "ServiceAccount": "V1ServiceAccount",
    "ClusterServingRuntime": "V1alpha1ClusterServingRuntime",
    "InferenceService": "V1beta1InferenceService",
    "SeldonDeployment": "SeldonDeployment",
}
#: Seldon's package declares no field as required. These are not optional in Seldon Core's `seldondeployment_types.go`.
REQUIRED_BY_SELDON = {
    "SeldonDeploymentSpec": ["predictors"],
    "PredictorSpec": ["graph", "name"],
    "PredictiveUnit": ["name"],
}
#: Seldon's own copies of Kubernetes' objects are older than Kubernetes' package, which is used instead.
OF_KUBERNETES = {"PodSpec": "V1PodSpec", "ObjectMeta": "V1ObjectMeta", "ResourceRequirements": "V1ResourceRequirements"}
NAME = re.compile(r"[A-Z]\w*")


def unified(kind):
    """Returns the name of a type in one notation: `list[X]`, `dict(str, X)`, `X`."""
    kind = re.sub(r"^List\[", "list[", kind)
    kind = re.sub(r"^Dict\[str, (.*)\]$", r"dict(str, \1)", kind)
    return NAME.sub(lambda name: OF_KUBERNETES.get(name[0], name[0]), kind)


def of_kubernetes(name):
    """Returns the schema of an object of Kubernetes."""
    model = getattr(client, name)
    fields = {model.attribute_map[own]: unified(kind) for own, kind in model.openapi_types.items()}
    required = [model.attribute_map[own] for own, field in model.model_fields.items() if field.is_required()]
    return {"fields": fields, "required": sorted(required)}


def of_source(path, name):
    """Returns the schema of a class from its source, which is generated, so that its package need not be importable."""
    source = path.read_text()
    tree = ast.parse(source)
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name).body
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.Constant)
    }
    types = values.get("openapi_types", values.get("swagger_types"))
    names = values["attribute_map"]
    if not types:
        return {"values": sorted(value for value in values.values() if isinstance(value, str))}
    required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", source)
    required = [names[own] for own in required] + REQUIRED_BY_SELDON.get(name, [])
    return {"fields": {names[own]: unified(kind) for own, kind in types.items()}, "required": sorted(set(required))}


def sources(package):
    """Returns the files of a package's models by the name of the class in each."""
    folder = Path(importlib.util.find_spec(package).submodule_search_locations[0]) / "models"
    found = {}
    for path in folder.glob("*.py"):
        if match := re.search(r"^class (\w+)\(object\):", path.read_text(), re.MULTILINE):
            found[match[1]] = path
    return found


def main():
    custom = {**sources("seldon_deploy_sdk"), **sources("kserve")}
    schemas, waiting = {}, set(ROOTS.values())
    while waiting:
        name = waiting.pop()
        if hasattr(client, name):
            schema = of_kubernetes(name)
        elif name in custom:
            schema = of_source(custom[name], name)
        else:
            # Quantities, times and the like, which are strings or numbers.
            schema = {"values": []}
        schemas[name] = schema
        inner = {found for kind in schema.get("fields", {}).values() for found in NAME.findall(kind)}
        waiting |= inner - set(schemas)
    packages = ["kubernetes", "kserve", "seldon-deploy-sdk"]
    versions = {package: importlib.metadata.version(package) for package in packages}
    document = {"packages": versions, "roots": ROOTS, "schemas": dict(sorted(schemas.items()))}
    path = Path(__file__).with_name("schemas.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
