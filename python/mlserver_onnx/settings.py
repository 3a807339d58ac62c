"""The settings of ONNX models, and onnxruntime's options that they describe."""

from typing import Any, Dict, List, Optional, Union

from mlserver.errors import MLServerError
from mlserver.logging import logger
from mlserver.settings import BaseSettings

__all__ = ["OnnxSettings", "providers", "run_options", "session_options"]

_CPU = "CPUExecutionProvider"
#: The enumerations of session options, which settings name or number.
_ENUMERATIONS = {
    "execution_mode": "ExecutionMode",
    "execution_order": "ExecutionOrder",
    "graph_optimization_level": "GraphOptimizationLevel",
}


class OnnxSettings(BaseSettings):
    """The settings of a model: `parameters.extra`, and the environment (`MLSERVER_MODEL_ONNX_…`) for those not in it."""

    _extra = "ignore"
    _env_prefix = "MLSERVER_MODEL_ONNX_"

    #: The execution providers, in the order of preference. By default, the processor.
    providers: Optional[List[str]] = None
    #: The options of each provider, or of the first one if it is an object.
    provider_options: Optional[Union[List[Dict[str, Any]], Dict[str, Any]]] = None
    #: Attributes of `onnxruntime.SessionOptions`.
    session_options: Dict[str, Any] = {}
    #: Entries of `SessionOptions.add_session_config_entry`.
    session_config_entries: Dict[str, Any] = {}
    #: Attributes of `onnxruntime.RunOptions`. Keys with a dot are entries of `add_run_config_entry`.
    run_options: Dict[str, Any] = {}


def providers(runtime: Any, settings: OnnxSettings) -> Dict[str, Any]:
    """Returns the arguments `providers` and `provider_options` of a session.

    Providers that the installed onnxruntime does not have are logged and left out. Raises `MLServerError` if none remains, or
    if the options do not fit the providers.
    """
    names = settings.providers or [_CPU]
    options = settings.provider_options
    if options is None:
        options = []
    elif isinstance(options, dict):
        options = [options]
    elif len(options) != len(names):
        raise MLServerError(
            f"`parameters.extra.provider_options` has {len(options)} entries for {len(names)} providers: "
            "give one for each provider, or one object for the first provider",
            500,
        )
    options = [*options, *({} for _ in names[len(options) :])]
    available = set(runtime.get_available_providers())
    missing = [name for name in names if name not in available]
    if len(missing) == len(names):
        raise MLServerError(
            f"onnxruntime has none of the providers {names}, only {sorted(available)}: "
            "install the package of onnxruntime that has them, or change `parameters.extra.providers`",
            500,
        )
    if missing:
        logger.warning("onnxruntime does not have the providers %s, which are ignored.", missing)
    used = [index for index, name in enumerate(names) if name in available]
    return {
        "providers": [names[index] for index in used],
        "provider_options": [{key: _text(value) for key, value in options[index].items()} for index in used],
    }


def session_options(runtime: Any, settings: OnnxSettings) -> Any:
    """Returns the options of a session. Raises `MLServerError` for an unknown option or an invalid value."""
    options = runtime.SessionOptions()
    for name, value in settings.session_options.items():
        enumeration = _ENUMERATIONS.get(name)
        if enumeration is not None:
            value = _member(getattr(runtime, enumeration), f"session_options.{name}", value)
        _set(options, "session_options", name, value)
    for name, value in settings.session_config_entries.items():
        options.add_session_config_entry(name, _text(value))
    return options


def run_options(runtime: Any, settings: OnnxSettings) -> Any:
    """Returns the options of a run, or `None` without any. Raises `MLServerError` for an unknown option."""
    if not settings.run_options:
        return None
    options = runtime.RunOptions()
    for name, value in settings.run_options.items():
        if "." in name:
            options.add_run_config_entry(name, _text(value))
        else:
            _set(options, "run_options", name, value)
    return options


def _set(options: Any, where: str, name: str, value: Any) -> None:
    if name.startswith("_") or not hasattr(type(options), name) or callable(getattr(options, name)):
        raise MLServerError(f"`parameters.extra.{where}.{name}` is not an option of {type(options).__name__}", 500)
    try:
        setattr(options, name, value)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise MLServerError(f"`parameters.extra.{where}.{name}`: invalid value {value!r}: {reason}", 500) from error


def _member(enumeration: Any, name: str, value: Any) -> Any:
    """Returns the member of an enumeration with a name or a number."""
    members = enumeration.__members__
    for key, member in members.items():
        if value == key or (isinstance(value, int) and not isinstance(value, bool) and value == int(member)):
            return member
    raise MLServerError(
        f"`parameters.extra.{name}`: invalid value {value!r}: expected one of {', '.join(members)}", 500
    )


def _text(value: Any) -> str:
    """Returns a value as onnxruntime expects it: numbers and flags as text."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
