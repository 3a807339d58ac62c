"""Helpers for models: values of requests, responses from values, CloudEvents."""

import json
import os
import uuid
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional, Tuple, Union

from ..constants.constants import PredictorProtocol
from ..errors import InvalidInput
from ..protocol.infer_type import InferOutput, InferRequest, InferResponse, _plain
from .numpy_codec import from_np_dtype

__all__ = [
    "cpu_count",
    "create_response_cloudevent",
    "from_np_dtype",
    "generate_uuid",
    "get_current_k8s_namespace",
    "get_default_target_namespace",
    "get_ig_namespace",
    "get_isvc_namespace",
    "get_predict_input",
    "get_predict_response",
    "is_running_in_k8s",
    "is_structured_cloudevent",
    "is_v1",
    "is_v2",
    "strtobool",
    "to_headers",
]

_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_EVENT_FIELDS = ("time", "type", "source", "id", "specversion", "data")


def is_running_in_k8s() -> bool:
    """Whether this process runs in a pod."""
    return os.path.isdir("/var/run/secrets/kubernetes.io/")


def get_current_k8s_namespace() -> str:
    """Returns the namespace of this pod."""
    with open(_NAMESPACE_FILE, encoding="utf-8") as file:
        return file.readline().strip()


def get_default_target_namespace() -> str:
    """Returns the namespace of this pod, or `default` outside of a pod."""
    return get_current_k8s_namespace() if is_running_in_k8s() else "default"


def get_isvc_namespace(inferenceservice: Any) -> str:
    """Returns the namespace of an `InferenceService`."""
    return inferenceservice.metadata.namespace or get_default_target_namespace()


def get_ig_namespace(inferencegraph: Any) -> str:
    """Returns the namespace of an `InferenceGraph`."""
    return inferencegraph.metadata.namespace or get_default_target_namespace()


def cpu_count() -> int:
    """Returns the number of CPUs that this process may use, within the limit of its container."""
    # Only Linux and FreeBSD have a set of CPUs for each process.
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    return available if quota is None else max(1, min(available, quota))


def _cpu_quota() -> Optional[int]:
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return None if quota == "max" else int(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def is_structured_cloudevent(body: Dict[str, Any]) -> bool:
    """Whether a body has all fields of a structured CloudEvent."""
    return all(field in body for field in _EVENT_FIELDS)


def create_response_cloudevent(
    model_name: str, response: Any, req_attributes: Dict[str, Any], binary_event: bool = False
) -> Tuple[Dict[str, str], bytes]:
    """Returns the headers and the body of the event that answers a request with the given attributes.

    The environment variables `CE_SOURCE` and `CE_TYPE` replace its source and type. With `CE_MERGE=true`, it keeps the other
    attributes of the request.
    """
    attributes: Dict[str, Any] = {"specversion": "1.0"}
    if os.environ.get("CE_MERGE", "false").lower() == "true":
        dropped = {"id", "time"} | ({"datacontenttype"} if binary_event else set())
        attributes.update({name: value for name, value in req_attributes.items() if name not in dropped})
    attributes["id"] = generate_uuid()
    attributes["source"] = os.environ.get("CE_SOURCE", f"io.kserve.inference.{model_name}")
    attributes["type"] = os.environ.get("CE_TYPE", "io.kserve.inference.response")
    attributes["time"] = datetime.now(timezone.utc).isoformat()
    if binary_event:
        return {f"ce-{name}": str(value) for name, value in attributes.items()}, json.dumps(response).encode()
    event = {**attributes, "data": response}
    return {"content-type": "application/cloudevents+json"}, json.dumps(event).encode()


def generate_uuid() -> str:
    """Returns a random UUID."""
    return str(uuid.uuid4())


def to_headers(context: Any) -> Dict[str, str]:
    """Returns the metadata of a gRPC call."""
    return dict(context.invocation_metadata() or ())


def get_predict_input(payload: Any, columns: Optional[List[Any]] = None) -> Any:
    """Returns the values of a request.

    V1: the instances as an array, a list of strings as it is, and objects as the rows of a data frame.
    V2: the first input as an array, or all inputs as the columns of a data frame if the request's content type is `pd`.
    """
    if isinstance(payload, dict):
        instances = payload["inputs"] if "inputs" in payload else payload["instances"]
        if len(instances) == 0:
            import numpy as np

            return np.array(instances)
        if isinstance(instances[0], str):
            return instances
        first = instances[0]
        if isinstance(first, dict) or (isinstance(first, list) and first and isinstance(first[0], dict)):
            import pandas as pd

            return pd.concat([pd.DataFrame(instance, columns=columns) for instance in instances], axis=0)
        import numpy as np

        return np.array(instances)
    if isinstance(payload, InferRequest):
        if payload.parameters and _plain(payload.parameters.get("content_type", "")) == "pd":
            return payload.as_dataframe()
        tensor = payload.inputs[0]
        if tensor.datatype == "BYTES" and tensor._raw_data is None:
            data = tensor.data
            if isinstance(data, list) and data and isinstance(data[0], str):
                return data
        return tensor.as_numpy()
    return None


def get_predict_response(payload: Any, result: Any, model_name: str) -> Union[Dict[str, Any], InferResponse]:
    """Returns the response with a model's result, in the protocol of the request."""
    columns = _frame_columns(result)
    if isinstance(payload, dict):
        if columns is not None:
            return {"predictions": result.to_dict(orient="records")}
        return {"predictions": result.tolist() if _is_array(result) else result}
    if not isinstance(payload, InferRequest):
        raise InvalidInput(f"unsupported payload type {type(payload)}")
    tensors = [("output-0", result)] if columns is None else columns
    outputs = [_output(name, values, payload.use_binary_outputs) for name, values in tensors]
    return InferResponse(
        model_name=model_name,
        infer_outputs=outputs,
        response_id=payload.id if payload.id else generate_uuid(),
        use_binary_outputs=payload.use_binary_outputs,
        requested_outputs=payload.request_outputs,
    )


def _is_array(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "ndim") and value.ndim > 0


def _frame_columns(value: Any) -> Optional[List[Tuple[str, Any]]]:
    """Returns the columns of a data frame, and `None` for any other value."""
    if type(value).__module__.partition(".")[0] != "pandas" or not hasattr(value, "columns"):
        return None
    return [(name, value[name]) for name in value.columns]


def _output(name: str, values: Any, binary: bool) -> InferOutput:
    import numpy as np

    if _is_array(values):
        array = values
    elif isinstance(values, (list, tuple)) and len(values) > 0 and isinstance(values[0], (str, bytes)):
        array = np.array(values, dtype=np.object_)
    else:
        array = np.asarray(values)
    if array.dtype.kind not in "biufcSUO":  # dates, for instance
        array = array.astype(np.object_)
    datatype = from_np_dtype(array.dtype)
    if datatype is None:
        raise InvalidInput(f"output {name!r} has values of {array.dtype}, which the protocol does not support")
    output = InferOutput(name=str(name), shape=list(array.shape), datatype=datatype)
    output.set_data_from_numpy(array, binary_data=binary)
    return output


def strtobool(val: str) -> bool:
    """Reads a truth value: y, yes, t, true, on, 1, and n, no, f, false, off, 0."""
    word = val.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return True
    if word in ("n", "no", "f", "false", "off", "0"):
        return False
    raise ValueError(f"invalid truth value {val!r}")


def is_v1(protocol: Union[str, PredictorProtocol]) -> bool:
    """Whether a protocol is V1 over REST."""
    return _is(protocol, PredictorProtocol.REST_V1)


def is_v2(protocol: Union[str, PredictorProtocol]) -> bool:
    """Whether a protocol is V2 over REST."""
    return _is(protocol, PredictorProtocol.REST_V2)


def _is(protocol: Any, expected: PredictorProtocol) -> bool:
    return protocol is expected or (isinstance(protocol, str) and protocol.lower() == expected.value)
