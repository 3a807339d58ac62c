"""The settings of pipelines: from `parameters.extra`, the environment, and Seldon Core's variable."""

import json
import os
from typing import Any, Callable, Dict, Optional, Union

from mlserver._frameworks import runtime_settings
from mlserver._legacy import missing_names
from mlserver.errors import MLServerError
from mlserver.settings import BaseSettings, ModelSettings

__all__ = ["ENV_PREFIX_HUGGINGFACE_SETTINGS", "PARAMETERS_ENV_NAME", "HuggingFaceSettings", "get_huggingface_settings"]

__getattr__ = missing_names(__name__)

ENV_PREFIX_HUGGINGFACE_SETTINGS = "MLSERVER_MODEL_HUGGINGFACE_"
#: Seldon Core's parameters of a model, which override its settings.
PARAMETERS_ENV_NAME = "PREDICTIVE_UNIT_PARAMETERS"


class HuggingFaceSettings(BaseSettings):
    """The settings of a pipeline."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_HUGGINGFACE_SETTINGS

    #: The name of a transformers task.
    task: str = ""
    #: A suffix of `translation`, such as `_en_to_fr`.
    task_suffix: str = ""
    #: A folder, or a name on the hub. Defaults to the model's `uri`.
    pretrained_model: Optional[str] = None
    #: A folder, or a name on the hub, of the tokenizer. Defaults to that of the model.
    pretrained_tokenizer: Optional[str] = None
    #: Further arguments of the model's `from_pretrained`.
    model_kwargs: Optional[Dict[str, Any]] = None
    #: `pt` or `tf`.
    framework: Optional[str] = None
    #: Runs the model in the ONNX runtime, through optimum.
    optimum_model: bool = False
    #: The number of a GPU, or a name such as `cuda:1`. -1 and `None` mean the CPU.
    device: Optional[Union[int, str]] = None
    #: Threads across independent operations, and within one operation. Both need `framework`.
    inter_op_threads: Optional[int] = None
    intra_op_threads: Optional[int] = None

    @property
    def task_name(self) -> str:
        """The task with its suffix."""
        return self.task + self.task_suffix if self.task == "translation" else self.task


def _boolean(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    return known[text.lower()]


_TYPES: Dict[str, Callable[[str], Any]] = {"INT": int, "FLOAT": float, "DOUBLE": float, "STRING": str, "BOOL": _boolean}


def get_huggingface_settings(model_settings: ModelSettings) -> HuggingFaceSettings:
    """Returns the settings of a model's pipeline.

    Raises `MLServerError` if there are none, or if one of them is invalid.
    """
    parameters = _seldon_parameters()
    given = model_settings.parameters.extra if model_settings.parameters is not None else None
    if not given and not parameters and not _in_environment():
        raise MLServerError("Missing HuggingFace Runtime settings.")
    found = runtime_settings(HuggingFaceSettings, {**(given or {}), **parameters})
    if isinstance(found.device, str) and found.device.lstrip("-").isdigit():
        found.device = int(found.device)
    return found


def _in_environment() -> bool:
    return any(name.upper().startswith(ENV_PREFIX_HUGGINGFACE_SETTINGS) for name in os.environ)


def _seldon_parameters() -> Dict[str, Any]:
    """Returns the values in Seldon Core's variable, which is a list of names, values and types."""
    text = os.environ.get(PARAMETERS_ENV_NAME)
    if not text:
        return {}
    try:
        return {each["name"]: _seldon_value(each["name"], each["value"], each["type"]) for each in json.loads(text)}
    except (ValueError, TypeError, KeyError) as error:
        expected = 'a JSON list of objects with "name", "value" and "type"'
        raise MLServerError(f"{PARAMETERS_ENV_NAME} is not {expected}: {type(error).__name__}: {error}") from error


def _seldon_value(name: str, value: Any, kind: str) -> Any:
    if kind not in _TYPES:
        raise MLServerError(f"Bad model parameter type: {kind}. Only valid types are {', '.join(_TYPES)}.")
    try:
        return _TYPES[kind](value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"Bad model parameter: {name} with value {value} can't be parsed as a {kind}"
        raise MLServerError(message) from error
