"""Helpers shared by the framework runtimes (`mlserver_sklearn` and others)."""

import importlib
import os
import re
import sys
import weakref
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type, TypeVar

from ._interpreter import how_to_install, interpreter
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
    "arranged",
    "artifact",
    "encode_array",
    "has_named_columns",
    "import_framework",
    "inference_errors",
    "lightgbm_features",
    "loading",
    "predict_only",
    "runtime_settings",
]

S = TypeVar("S", bound=BaseSettings)

#: The exceptions that frameworks raise for invalid data of a request.
REQUEST_ERRORS: Tuple[Type[Exception], ...] = (ValueError, TypeError, LookupError)


def import_framework(module: str, package: str) -> Any:
    """Imports a framework's module.

    If it is not installed, raises `MLServerError` with instructions to install `package`.
    """
    top = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
        # A plain folder of that name, such as a model's, can be imported too.
        if getattr(found, "__file__", None) is None:
            del sys.modules[module]
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise MLServerError(f"`{package}` of {interpreter()} is incomplete: {error}", 500) from error
        message = (
            f"the model needs `{package}`, which {interpreter()} does not have; "
            f"{how_to_install(_what_to_install(package))}"
        )
        raise MLServerError(message, 500) from error
    except ImportError as error:
        raise MLServerError(f"cannot import `{package}` of {interpreter()}: {error}", 500) from error
    return found


def _what_to_install(package: str) -> str:
    """Returns the argument of `pip install`: the extra of the installed `mlserver` that requires a package, or the package.

    Returns the package if `mlserver` is not installed in this environment, because pip would install another project of
    that name.
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
    """Returns a runtime's settings from `values`, and from the environment for the others.

    Raises `MLServerError` with each invalid setting.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        reasons = "; ".join(f"`{'.'.join(map(str, each['loc']))}`: {each['msg']}" for each in error.errors())
        raise MLServerError(f"invalid `parameters.extra`: {reasons}", 500) from error


async def artifact(model: MLModel, well_known_names: List[str]) -> str:
    """Returns the path of a model's artifact. In a folder, this is the first file with a well-known name.

    Raises `InvalidModelURI` if the path does not exist, and `MLServerError` for a folder without such a file.
    """
    uri = await get_model_uri(model.settings, wellknown_filenames=well_known_names)
    if os.path.isdir(uri):
        expected = ", ".join(well_known_names)
        raise MLServerError(f"`{uri}` is a directory without a model file: expected one of {expected}", 422)
    return uri


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Adds the path of the artifact to exceptions that are raised while it is read."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"cannot load `{path}`: it needs the module `{error.name}`, which {interpreter()} does not have"
        raise MLServerError(message, 500) from error
    except Exception as error:
        reason = str(error) or "no reason given"
        raise MLServerError(f"cannot load `{path}`: {type(error).__qualname__}: {reason}", 500) from error


@contextmanager
def inference_errors(*errors: Type[Exception]) -> Iterator[None]:
    """Converts exceptions for invalid data to `InferenceError` (status 400). Other exceptions are errors of the model."""
    try:
        yield
    except MLServerError:
        raise
    except (*REQUEST_ERRORS, *errors) as error:
        _log_rejection(error)
        # The text of a `KeyError` is only the key.
        message = f"KeyError: {error}" if isinstance(error, KeyError) else str(error)
        raise InferenceError(message or type(error).__qualname__) from error


#: Where exceptions of rejected requests were raised: their types, files and lines.
_rejections: Set[Tuple[type, str, int]] = set()
_MAX_REJECTIONS = 100


def _log_rejection(error: Exception) -> None:
    """Logs the first exception of each place as a warning, and further ones at DEBUG.

    Frameworks raise the same exceptions for invalid data and for models that are broken, for example by another version of
    a package. For the client, both are invalid requests; the log shows the difference.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (type(error), trace.tb_frame.f_code.co_filename if trace else "", trace.tb_lineno if trace else 0)
    if place in _rejections or len(_rejections) >= _MAX_REJECTIONS:
        logger.debug("A request was rejected.", exc_info=True)
        return
    _rejections.add(place)
    logger.warning(
        "A request was rejected because of an exception of the framework. If the data is valid, the model does not fit its "
        "environment. Further ones from the same place are logged at DEBUG.",
        exc_info=True,
    )


def encode_array(model: MLModel, output: RequestOutput, value: Any) -> ResponseOutput:
    """Encodes a prediction with the codec of the requested content type, else that of the value's type, else as an array.

    Raises `InferenceError` if the value cannot be encoded with the requested content type.
    """
    if find_input_codec_by_payload(value) is None:
        import numpy

        # Sparse matrices have a method of their own for this.
        value = value.toarray() if hasattr(value, "toarray") else numpy.asarray(value)
    content_type = output.parameters.content_type if output.parameters is not None else None
    try:
        return model.encode(value, output, default_codec=NumpyCodec)
    except Exception as error:
        if content_type is None:
            raise
        message = f"cannot encode output `{output.name}` of {type(value)} as `{content_type}`: {error}"
        raise InferenceError(message) from error


#: The models whose requests had columns with other names than their features.
_warned_of_columns: "weakref.WeakSet[MLModel]" = weakref.WeakSet()


def has_named_columns(payload: InferenceRequest) -> bool:
    """Returns whether the client has named the columns of a request: a table over the V1 protocol, or of `mlserver infer`."""
    extra = payload.parameters.model_extra if payload.parameters is not None else None
    return (extra or {}).get("named_columns") is True


def arranged(model: MLModel, data: Any, features: Optional[Sequence[str]], named: bool) -> Any:
    """Returns a data frame whose columns have the order of a LightGBM model's features.

    LightGBM itself takes columns by position, so another order would silently be a wrong prediction. If no column has the name
    of a feature, they are taken by position, with a warning, unless the client has named them. Raises `InferenceError` if only
    some have.
    """
    pandas = sys.modules.get("pandas")
    if not features or pandas is None or not isinstance(data, pandas.DataFrame):
        return data
    names = [name.replace(" ", "_") if isinstance(name, str) else None for name in data.columns]
    wanted = [name.replace(" ", "_") for name in features]
    generated = [f"Column_{index}" for index in range(len(wanted))]
    if len(names) != len(wanted) or None in names or wanted in (names, generated):
        return data
    if set(names) == set(wanted):
        return data.iloc[:, [names.index(name) for name in wanted]]
    if not named and not set(names) & set(wanted):
        if model not in _warned_of_columns:
            _warned_of_columns.add(model)
            logger.warning(
                "The columns of a request have other names than the features of model '%s', such as '%s', and are taken in "
                "their order. Name them as the features, and their order does not matter. This is logged once.",
                model.name,
                features[0],
            )
        return data
    index = next(index for index, name in enumerate(names) if name not in wanted)
    missing = next(name for name in features if name.replace(" ", "_") not in names)
    raise InferenceError(
        f"column {index} is `{data.columns[index]}`, which this model does not have: expected its features by name, of which "
        f"`{missing}` is missing"
    )


def lightgbm_features(estimator: Any) -> Optional[List[str]]:
    """Returns the names of the features of a LightGBM model, or `None` for models of other libraries, which compare names.

    The model may also be the first step of scikit-learn's pipelines, or the result of its searches.
    """
    for _ in range(8):
        module = type(estimator).__module__.partition(".")[0]
        if module == "lightgbm":
            found = estimator.feature_name() if hasattr(estimator, "feature_name") else estimator.feature_name_
            return list(found)
        if module != "sklearn":
            return None
        steps = getattr(estimator, "steps", None)
        inner = [step for _, step in steps if step not in (None, "passthrough")] if isinstance(steps, list) else []
        estimator = inner[0] if inner else getattr(estimator, "best_estimator_", None)
    return None


def predict_only(
    model: MLModel,
    payload: InferenceRequest,
    predict: Callable[[Any], Any],
    *errors: Type[Exception],
    features: Optional[Sequence[str]] = None,
) -> InferenceResponse:
    """Answers with only the output `predict`, regardless of the requested outputs.

    `errors` are exceptions of the framework for invalid data, and `features` those of a model that takes columns by position.
    """
    with inference_errors(*errors):
        data = model.decode_request(payload, default_codec=NumpyRequestCodec)
        data = arranged(model, data, features, has_named_columns(payload))
        output = encode_array(model, RequestOutput(name="predict"), predict(data))
    return InferenceResponse(model_name=model.name, model_version=model.version, outputs=[output])
