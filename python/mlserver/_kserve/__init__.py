"""KServe's Python SDK for models and scripts, for environments without the `kserve` package.

`mlserver._kserve_imports` makes it importable as `kserve`. It has the names and signatures of `kserve` 0.21 that models and
scripts use, needs the standard library only, and NumPy or pandas where values are of their types.
"""

from . import errors, logging, metrics
from .constants import constants
from .inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from .model import Model
from .model_repository import ModelRepository
from .model_server import ModelServer
from .predictor_config import PredictorConfig
from .protocol.infer_type import InferInput, InferOutput, InferRequest, InferResponse
from .utils import utils

__all__ = [
    "InferInput",
    "InferOutput",
    "InferRequest",
    "InferResponse",
    "InferenceGRPCClient",
    "InferenceRESTClient",
    "Model",
    "ModelRepository",
    "ModelServer",
    "PredictorConfig",
    "RESTConfig",
    "constants",
    "errors",
    "logging",
    "metrics",
    "utils",
]
