"""Helpers that the case modules share: writing model folders, and requests."""

import json
import pathlib
from typing import Any, Dict, List, Optional

Case = Dict[str, Any]


def settings(folder: pathlib.Path, implementation: str, uri: str = ".", **extra: Any) -> pathlib.Path:
    """Creates the folder of a model, with the model's name, and returns it."""
    folder.mkdir(parents=True)
    parameters: Dict[str, Any] = {"uri": uri}
    if extra:
        parameters["extra"] = extra
    text = {"name": folder.name, "implementation": implementation, "parameters": parameters}
    (folder / "model-settings.json").write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return folder


def tensor(name: str, datatype: str, shape: List[int], data: Any, content_type: Optional[str] = None) -> Dict[str, Any]:
    """Returns an input."""
    tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return tensor if content_type is None else {**tensor, "parameters": {"content_type": content_type}}


def infer(
    model: str,
    what: str,
    *inputs: Dict[str, Any],
    outputs: Optional[List[Any]] = None,
    content_type: Optional[str] = None,
    parameters: Optional[Dict[str, Any]] = None,
    ours: Any = None,
    same_as: Optional[str] = None,
) -> Case:
    """Returns an inference request.

    `ours` is the answer that differs from the original's on purpose, or the one to the case that `same_as` names.
    """
    body: Dict[str, Any] = {"id": "1", "inputs": list(inputs)}
    if outputs is not None:
        body["outputs"] = [{"name": output} if isinstance(output, str) else output for output in outputs]
    parameters = {**(parameters or {}), **({"content_type": content_type} if content_type else {})}
    if parameters:
        body["parameters"] = parameters
    case: Case = {"name": f"{model}: {what}", "path": f"/v2/models/{model}/infer", "body": body}
    if same_as is not None:
        return {**case, "same_as": same_as}
    return case if ours is None else {**case, "ours": ours}


def metadata(model: str) -> Case:
    """Returns the request for a model's metadata."""
    return {"name": f"{model}: metadata", "path": f"/v2/models/{model}"}


def refused(error: str) -> Dict[str, Any]:
    """Returns our answer to an invalid request."""
    return {"status": 400, "body": {"error": error}}


def answered(model: str, *outputs: Dict[str, Any]) -> Dict[str, Any]:
    """Returns our answer if the original cannot answer: outputs as the framework itself computes them."""
    named = [{**output, "parameters": {"content_type": "np"}} for output in outputs]
    return {"status": 200, "body": {"model_name": model, "id": "1", "parameters": {}, "outputs": named}}
