"""Creates the pipeline that a model's settings describe."""

import inspect
import os
from typing import Any, Dict, Optional

from mlserver._frameworks import import_framework, loading
from mlserver.errors import InvalidModelURI, MLServerError
from mlserver.logging import logger
from mlserver.settings import ModelSettings
from mlserver.utils import to_absolute_path

from .settings import HuggingFaceSettings

__all__ = ["load_pipeline", "model_name", "task_of"]

_CPU = -1


def task_of(settings: HuggingFaceSettings) -> str:
    """Returns the canonical name of the task; the settings may contain an alias such as `ner`.

    Raises `MLServerError` if transformers (or optimum, for its models) has no such task.
    """
    if settings.optimum_model:
        import_framework("optimum.pipelines", "optimum-onnx")
    pipelines = import_framework("transformers.pipelines", "transformers")
    known = pipelines.PIPELINE_REGISTRY
    kind = "optimum" if settings.optimum_model else "transformer"
    try:
        return str(known.check_task(settings.task_name)[0])
    except KeyError as error:
        available = known.get_supported_tasks()
        message = f"Invalid {kind} task: {settings.task_name}. Available tasks: {available}"
        raise MLServerError(message, 500) from error


def load_pipeline(settings: HuggingFaceSettings, model_settings: ModelSettings) -> Any:
    """Returns the pipeline, whose batch size is that of the model.

    Raises `MLServerError` if a library is missing, or if the model cannot be loaded.
    """
    _set_threads(settings)
    name = model_name(settings, model_settings)
    model = _resolved(name, model_settings)
    arguments: Dict[str, Any] = {
        "task": settings.task_name,
        "model": model,
        "tokenizer": _resolved(settings.pretrained_tokenizer, model_settings),
        "model_kwargs": settings.model_kwargs,
        "batch_size": max(model_settings.max_batch_size, 1),
        "device": _CPU if settings.device is None else settings.device,
    }
    make = _maker(settings, arguments)
    arguments = {key: value for key, value in arguments.items() if value is not None}
    with loading(model or f"the model that transformers has for `{settings.task_name}`"):
        pipeline = make(**arguments)
        if arguments["batch_size"] > 1 and not _can_pad(pipeline):
            logger.warning("The tokenizer has no padding token: model `%s` takes one element at a time.", name)
            pipeline = make(**{**arguments, "batch_size": 1})
    return pipeline


def model_name(settings: HuggingFaceSettings, model_settings: ModelSettings) -> Optional[str]:
    """Returns the folder or the name of the model, or `None` for the one that transformers has for the task.

    The `uri` defaults to the folder of the settings, which may contain no model.
    """
    uri = model_settings.parameters.uri if model_settings.parameters is not None else None
    if settings.pretrained_model or uri is None:
        return settings.pretrained_model
    path, own = (to_absolute_path(model_settings, each) for each in (uri.replace("file://", "", 1), "."))
    is_own = os.path.realpath(path) == os.path.realpath(own)
    return None if is_own and not os.path.exists(os.path.join(path, "config.json")) else uri


def _maker(settings: HuggingFaceSettings, arguments: Dict[str, Any]) -> Any:
    """Returns the function that creates the pipeline, and adds arguments that only some versions and kinds have."""
    if settings.optimum_model:
        make = import_framework("optimum.pipelines", "optimum-onnx").pipeline
        import_framework("onnxruntime", "onnxruntime")
        arguments["accelerator"] = "ort"
        # The ONNX runtime has its own kinds of devices, and defaults to the CPU.
        if settings.device is None:
            del arguments["device"]
        return make
    make = import_framework("transformers", "transformers").pipeline
    if settings.framework is not None and "framework" in inspect.signature(make).parameters:
        arguments["framework"] = settings.framework
    elif settings.framework not in (None, "pt"):
        message = f"the installed transformers does not support framework `{settings.framework}`, only `pt`"
        raise MLServerError(message, 500)
    if settings.framework != "tf":
        import_framework("torch", "torch")
    return make


def _resolved(name: Optional[str], model_settings: ModelSettings) -> Optional[str]:
    """Resolves a name to a folder next to the settings or in the working directory, else returns it as a name on the hub."""
    if name is None:
        return None
    plain = name.replace("file://", "", 1)
    path = to_absolute_path(model_settings, plain)
    for folder in (path, plain):
        if os.path.exists(folder):
            return folder
    if plain.startswith((".", "/")):
        raise InvalidModelURI(model_settings.name, path)
    return name


def _can_pad(pipeline: Any) -> bool:
    """Makes the end-of-text token the padding token if there is none. Returns whether there is a padding token."""
    tokenizer = getattr(pipeline, "tokenizer", None)
    if tokenizer is None or tokenizer.pad_token_id is not None:
        return True
    end = pipeline.model.config.eos_token_id
    end = end[0] if isinstance(end, list) and end else end
    if not isinstance(end, int):
        return False
    tokenizer.pad_token_id = end
    return True


def _set_threads(settings: HuggingFaceSettings) -> None:
    """Limits the threads of the framework in the settings, for the whole worker."""
    between, within = settings.inter_op_threads, settings.intra_op_threads
    if between is None and within is None:
        return
    if settings.framework is None:
        logger.warning("`inter_op_threads` and `intra_op_threads` need `framework`, and have no effect without it.")
    elif settings.framework == "tf":
        threading = import_framework("tensorflow", "tensorflow").config.threading
        if between is not None:
            threading.set_inter_op_parallelism_threads(between)
        if within is not None:
            threading.set_intra_op_parallelism_threads(within)
    else:
        torch = import_framework("torch", "torch")
        if between is not None and torch.get_num_interop_threads() != between:
            try:
                torch.set_num_interop_threads(between)
            except RuntimeError as error:  # can be set only before the first operation
                logger.warning("`inter_op_threads` has no effect, because this worker has run operations before: %s", error)
        if within is not None:
            torch.set_num_threads(within)
