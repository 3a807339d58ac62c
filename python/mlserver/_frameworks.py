"""What the runtimes of frameworks (`mlserver_sklearn` and its like) share."""

import importlib
import os
import re
import sys
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, List, Tuple, Type, TypeVar

from .codecs import NumpyCodec, NumpyRequestCodec
from .codecs.base import find_input_codec_by_payload
from .errors import InferenceError, MLServerError
from .logging import logger
from .model import MLModel
from .settings import BaseSettings
from .types import InferenceRequest, InferenceResponse, RequestOutput, ResponseOutput, ValidationError
from .utils import get_model_uri

__all__ = [
    "REQUEST_ERRORS",
    "artifact",
    "encode_array",
    "import_framework",
    "loading",
    "predict_only",
    "refusing",
    "runtime_settings",
]

S = TypeVar("S", bound=BaseSettings)

#: What frameworks raise when they cannot take a request's data.
REQUEST_ERRORS: Tuple[Type[Exception], ...] = (ValueError, TypeError, LookupError)


def import_framework(module: str, package: str) -> Any:
    """Returns a framework's module.

    Raises `MLServerError` that says where to install which package when it is not there.
    """
    top = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
        # A mere folder of that name, such as a model's, can be imported too.
        if getattr(found, "__file__", None) is None:
            del sys.modules[module]
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise MLServerError(f"`{package}` of {_interpreter()} is incomplete: {error}", 500) from error
        message = (
            f"the model needs `{package}`, which {_interpreter()} does not have; "
            f"install it there: {sys.executable} -m pip install {_what_to_install(package)}"
        )
        raise MLServerError(message, 500) from error
    except ImportError as error:
        raise MLServerError(f"`{package}` of {_interpreter()} cannot be imported: {error}", 500) from error
    return found


def _what_to_install(package: str) -> str:
    """Returns the extra of the installed `mlserver` that brings a package and all that is needed beside it, else the package.

    Where `mlserver` is not installed, as beside the executable alone, pip would take its name for another project's.
    """
    try:
        requirements = metadata.requires("mlserver") or []
    except metadata.PackageNotFoundError:
        return package
    for requirement in requirements:
        found = re.match(rf"""{re.escape(package)}(?![\w.-]).*extra == ["']([\w-]+)["']""", requirement)
        if found is not None:
            return f"'mlserver[{found[1]}]'"
    return package


def runtime_settings(kind: Type[S], values: Dict[str, Any]) -> S:
    """Returns a runtime's settings: those values, and what the environment has of the others.

    Raises `MLServerError` that names each setting that is wrong.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        wrong = "; ".join(f"`{'.'.join(map(str, each['loc']))}`: {each['msg']}" for each in error.errors())
        raise MLServerError(f"`parameters.extra` is wrong: {wrong}", 500) from error


def _interpreter() -> str:
    return f"{sys.executable} (Python {sys.version.split()[0]})"


async def artifact(model: MLModel, well_known_names: List[str]) -> str:
    """Returns the file of a model's artifact; in a folder, the first of the well-known names.

    Raises `InvalidModelURI` when there is nothing, and `MLServerError` for a folder without such a file.
    """
    uri = await get_model_uri(model.settings, wellknown_filenames=well_known_names)
    if os.path.isdir(uri):
        expected = ", ".join(well_known_names)
        raise MLServerError(f"`{uri}` is a directory without a model file: expected one of {expected}", 422)
    return uri


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Names the artifact in whatever fails while it is read."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"cannot load `{path}`: it needs the module `{error.name}`, which {_interpreter()} does not have"
        raise MLServerError(message, 500) from error
    except Exception as error:
        reason = str(error) or "no reason is given"
        raise MLServerError(f"cannot load `{path}`: {type(error).__qualname__}: {reason}", 500) from error


@contextmanager
def refusing(*errors: Type[Exception]) -> Iterator[None]:
    """Tells the client, with a 400, why its data cannot be taken; exceptions of other classes are the model's own."""
    try:
        yield
    except MLServerError:
        raise
    except (*REQUEST_ERRORS, *errors) as error:
        logger.debug("A request was refused.", exc_info=True)
        # The text of a `KeyError` is the key alone.
        message = f"KeyError: {error}" if isinstance(error, KeyError) else str(error)
        raise InferenceError(message or type(error).__qualname__) from error


def encode_array(model: MLModel, output: RequestOutput, value: Any) -> ResponseOutput:
    """Encodes what a framework predicted: by the content type that is wanted, by the value, or as an array.

    Raises `InferenceError` when the content type that the request wants does not suit the value.
    """
    if find_input_codec_by_payload(value) is None:
        import numpy

        # Sparse matrices are the one thing that only knows itself how to become an array.
        value = value.toarray() if hasattr(value, "toarray") else numpy.asarray(value)
    wanted = output.parameters.content_type if output.parameters is not None else None
    try:
        return model.encode(value, output, default_codec=NumpyCodec)
    except Exception as error:
        if wanted is None:
            raise
        message = f"output `{output.name}` cannot be encoded as `{wanted}`, for it is {type(value)}: {error}"
        raise InferenceError(message) from error


def predict_only(
    model: MLModel, payload: InferenceRequest, predict: Callable[[Any], Any], *errors: Type[Exception]
) -> InferenceResponse:
    """Answers with the one output `predict`, whatever the request asks for; `errors` are the framework's own."""
    with refusing(*errors):
        data = model.decode_request(payload, default_codec=NumpyRequestCodec)
        output = encode_array(model, RequestOutput(name="predict"), predict(data))
    return InferenceResponse(model_name=model.name, model_version=model.version, outputs=[output])
