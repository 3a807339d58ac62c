"""Modules and names of MLServer 1.x that have no counterpart in this SDK.

Code that only imports them keeps working. Constants have their values; every other name is a stand-in that raises an exception
that names the replacement, when it is called, subclassed, or asked for an attribute.
"""

import enum
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Callable, Dict, List, NamedTuple, NewType, Optional, Sequence, Union

__all__ = ["Internal", "install", "missing_names"]

_SERVER = "start the server with the command `mlserver start`, or with `mlserver.MLServer`"
_ROUTES = "add routes with `mlserver.handlers.custom_handler`"
_POOL = "set `parallel_workers` in the settings of the server or of a model"
_BATCHING = "set `max_batch_size` and `max_batch_time` in the settings of the model"
_CACHE = "set `cache_enabled` in the settings of the server and of the model"
_INFER = "use the command `mlserver infer`"
_BUILD = "use the commands `mlserver build` and `mlserver dockerfile`"
_METRICS = "use `mlserver.register` and `mlserver.log`, or the default registry of `prometheus_client`"
_KAFKA = "set `kafka_enabled` in the settings of the server, which reads and writes Kafka itself"
_ENVIRONMENT = "set `environment_path` or `environment_tarball` in the parameters of the model"
_DATA_PLANE = "send requests to the server over REST or gRPC"
_REPOSITORY = "use the repository API of the server"


class _Module(NamedTuple):
    """The names of one module that only the original has."""

    #: What to use instead of the stand-ins.
    instead: str
    #: The names of stand-ins, separated by spaces.
    internals: str = ""
    values: Dict[str, Any] = {}
    #: Names of other modules, as `module:name`.
    aliases: Dict[str, str] = {}


_EXPLAINERS = "use `mlserver_alibi_explain.AlibiExplainRuntime`"
_PIPELINES = "use `mlserver_huggingface.HuggingFaceRuntime`, or subclass `mlserver.codecs.RequestCodec`"
_ERROR = "mlserver.errors:MLServerError"
_VERSION = {"__version__": "mlserver.version:__version__"}
_RUNTIMES = "alibi_detect alibi_explain catboost huggingface lightgbm mlflow mllib onnx sklearn xgboost"

_CLOUD_EVENTS = {
    "CLOUDEVENTS_HEADER_ID": "Ce-Id",
    "CLOUDEVENTS_HEADER_SPECVERSION": "Ce-Specversion",
    "CLOUDEVENTS_HEADER_SOURCE": "Ce-Source",
    "CLOUDEVENTS_HEADER_TYPE": "Ce-Type",
    "CLOUDEVENTS_HEADER_SPECVERSION_DEFAULT": "0.3",
    "CLOUDEVENTS_HEADER_REQUEST_ID": "Ce-Requestid",
    "CLOUDEVENTS_HEADER_MODEL_ID": "Ce-Modelid",
    "CLOUDEVENTS_HEADER_INFERENCE_SERVICE": "Ce-Inferenceservicename",
    "CLOUDEVENTS_HEADER_NAMESPACE": "Ce-Namespace",
    "CLOUDEVENTS_HEADER_ENDPOINT": "Ce-Endpoint",
    "CloudEventsTypes": enum.Enum(
        "CloudEventsTypes",
        {
            "Request": "io.seldon.serving.inference.request",
            "Response": "io.seldon.serving.inference.response",
        },
        module="mlserver.cloudevents",
    ),
}

_DOCKER_NAMES = {"DockerfileName": "Dockerfile", "DockerignoreName": ".dockerignore"}
_SCHEMAS = "get_openapi_schema get_model_schema get_model_schema_uri"

#: By module. Modules that exist in this package take their missing names from here, too.
_MODULES: Dict[str, _Module] = {
    "mlserver.batch_processing": _Module(
        _INFER,
        "click_async BatchInputItem BatchOutputItem setup_logging get_headers TritonRequest infer_result_to_infer_response"
        " preprocess_items postprocess_items send_requests process_items produce consume finalize process_batch",
        {"CHOICES_TRANSPORT": ["rest", "grpc"], "FINALIZER_REPORT_FREQUENCY": 100, "RETRY_SLEEP_TIME": 1},
    ),
    "mlserver.batching": _Module(_BATCHING, "AdaptiveBatcher BatchedRequests load_batching"),
    "mlserver.batching.adaptive": _Module(_BATCHING, "AdaptiveBatcher"),
    "mlserver.batching.hooks": _Module(_BATCHING, "adaptive_batching not_implemented_warning load_batching"),
    "mlserver.batching.requests": _Module(_BATCHING, "BatchedRequests"),
    "mlserver.batching.shape": _Module(_BATCHING, "Shape"),
    "mlserver.cache": _Module(_CACHE, "ResponseCache LocalCache"),
    "mlserver.cache.cache": _Module(_CACHE, "ResponseCache"),
    "mlserver.cache.local": _Module(_CACHE, "LocalCache"),
    "mlserver.cache.local.local": _Module(_CACHE, "LocalCache"),
    "mlserver.cli.build": _Module(
        _BUILD,
        "DockerfileTemplate Dockerignore DefaultBaseImage generate_dockerfile write_dockerfile build_image",
        _DOCKER_NAMES,
    ),
    "mlserver.cli.constants": _Module(_BUILD, "DockerfileTemplate Dockerignore DefaultBaseImage", _DOCKER_NAMES),
    "mlserver.cli.init_project": _Module("use the command `mlserver init`", "init_cookiecutter_project"),
    "mlserver.cli.main": _Module("use the command `mlserver`", "click_async root", {"CHOICES_TRANSPORT": ["rest", "grpc"]}),
    "mlserver.cloudevents": _Module(
        "the server sends the headers of CloudEvents itself", "get_namespace CloudEventsMiddleware", _CLOUD_EVENTS
    ),
    "mlserver.env": _Module(_ENVIRONMENT, "compute_hash_of_file compute_hash_of_string Environment"),
    "mlserver.grpc": _Module(_SERVER, "GRPCServer"),
    "mlserver.grpc.interceptors": _Module(
        _SERVER, "LoggingInterceptor PromServerInterceptor wrap_async_iterator_inc_counter"
    ),
    "mlserver.grpc.logging": _Module(_SERVER, "", {"gRPCLoggerName": "mlserver.grpc"}),
    "mlserver.grpc.model_repository": _Module(_REPOSITORY, "ModelRepositoryServicer"),
    "mlserver.grpc.server": _Module(_SERVER, "GRPCServer", {"DefaultGrpcWorkers": 5}),
    "mlserver.grpc.servicers": _Module(_SERVER, "InferenceServicer"),
    "mlserver.grpc.utils": _Module(
        "raise `mlserver.errors.MLServerError` in the model", "handle_mlserver_error handle_mlserver_stream_error"
    ),
    "mlserver.handlers": _Module(_DATA_PLANE, "DataPlane ModelRepositoryHandlers"),
    "mlserver.handlers.dataplane": _Module(_DATA_PLANE, "DataPlane"),
    "mlserver.handlers.model_repository": _Module(
        _REPOSITORY, "ModelRepositoryHandlers", {"NO_VERSION_KEY": "__no_version__"}
    ),
    "mlserver.kafka": _Module(_KAFKA, "KafkaServer"),
    "mlserver.kafka.handlers": _Module(
        _KAFKA,
        "KafkaHandlers KafkaMessage",
        {"MLSERVER_MODEL_NAME_HEADER": "mlserver-model", "MLSERVER_MODEL_VERSION_HEADER": "mlserver-version"},
    ),
    "mlserver.kafka.logging": _Module(_KAFKA, "", {"loggerName": "mlserver.kafka"}),
    "mlserver.kafka.message": _Module(_KAFKA, "KafkaMessage"),
    "mlserver.kafka.server": _Module(_KAFKA, "KafkaMethodTypes KafkaServer"),
    "mlserver.metrics": _Module(_METRICS, "MetricsServer configure_metrics"),
    "mlserver.metrics.logging": _Module(_METRICS, "", {"loggerName": "mlserver.metrics"}),
    "mlserver.metrics.prometheus": _Module(
        _METRICS,
        "configure_metrics stop_metrics PrometheusEndpoint",
        {
            "CONTENT_TYPE_LATEST": "text/plain; version=0.0.4; charset=utf-8",
            "PROMETHEUS_MULTIPROC_DIR": "PROMETHEUS_MULTIPROC_DIR",
        },
    ),
    "mlserver.metrics.server": _Module(_METRICS, "MetricsServer"),
    "mlserver.middleware": _Module(
        "change requests and responses in the `predict` of the model", "InferenceMiddleware InferenceMiddlewares"
    ),
    "mlserver.parallel": _Module(_POOL, "InferencePoolRegistry configure_inference_pool Worker"),
    "mlserver.parallel.dispatcher": _Module(
        _POOL,
        "AsyncResponses Dispatcher",
        {"END_OF_QUEUE": None, "QUEUE_METRIC_NAME": "parallel_request_queue"},
    ),
    "mlserver.parallel.logging": _Module(_POOL, "", {"gRPCLoggerName": "mlserver.parallel"}),
    "mlserver.parallel.messages": _Module(
        _POOL, "ModelUpdateType Message ModelRequestMessage ModelResponseMessage ModelUpdateMessage"
    ),
    "mlserver.parallel.model": _Module(_POOL, "ModelMethods ParallelModel"),
    "mlserver.parallel.pool": _Module(_POOL, "WorkerRegistry InferencePool"),
    "mlserver.parallel.registry": _Module(_POOL, "InferencePoolRegistry", {"ENV_HASH_ATTR": "__env_hash__"}),
    "mlserver.parallel.utils": _Module(
        _POOL, "configure_inference_pool terminate_queue cancel_task", {"END_OF_QUEUE": None}
    ),
    "mlserver.parallel.worker": _Module(
        _POOL, "Worker", {"END_OF_QUEUE": None}, {"IGNORED_SIGNALS": "mlserver.server:HANDLED_SIGNALS"}
    ),
    "mlserver.rest": _Module(_SERVER, "RESTServer"),
    "mlserver.rest.app": _Module(_ROUTES, "APIRoute create_app"),
    "mlserver.rest.endpoints": _Module(_ROUTES, "Endpoints ModelRepositoryEndpoints"),
    "mlserver.rest.errors": _Module(
        "raise `mlserver.errors.MLServerError` in the model",
        "handle_mlserver_error",
        aliases={"APIErrorResponse": "mlserver.types:MetadataServerErrorResponse"},
    ),
    "mlserver.rest.logging": _Module(
        _SERVER, "HealthEndpointFilter disable_health_access_logs", {"loggerName": "mlserver.rest"}
    ),
    "mlserver.rest.openapi": _Module("read `/v2/docs/dataplane.json` of the server", _SCHEMAS),
    "mlserver.rest.openapi.schema": _Module(
        "read `/v2/docs/dataplane.json` of the server",
        _SCHEMAS,
        {"MODEL_NAME_PARAMETER": "model_name", "MODEL_VERSION_PARAMETER": "model_version"},
    ),
    "mlserver.rest.server": _Module(_SERVER, "RESTServer"),
    "mlserver.rest.utils": _Module(_ROUTES, "to_status_code matches to_scope"),
    "mlserver_alibi_detect.runtime": _Module(
        "the runtime imports alibi-detect by itself", "", {"ALIBI_MODULE_NAMES": {"alibi-detect", "alibi"}}
    ),
    "mlserver_alibi_explain.alibi_dependency_reference": _Module(
        _EXPLAINERS, "ExplainerDependencyReference get_mlmodel_class_as_str get_alibi_class_as_str"
    ),
    "mlserver_alibi_explain.common": _Module(
        _EXPLAINERS,
        "convert_from_bytes remote_predict remote_metadata construct_metadata_url import_and_get_class"
        " to_v2_inference_request",
        {"SELDON_SKIP_LOGGING_HEADER": "Seldon-Skip-Logging"},
        {
            "AlibiExplainSettings": "mlserver_alibi_explain.settings:AlibiExplainSettings",
            "ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS": "mlserver_alibi_explain.settings:ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS",
        },
    ),
    "mlserver_alibi_explain.errors": _Module(
        _EXPLAINERS, aliases={"InvalidExplanationShape": _ERROR, "RemoteInferenceError": _ERROR}
    ),
    "mlserver_alibi_explain.explainers": _Module(_EXPLAINERS),
    "mlserver_alibi_explain.explainers.black_box_runtime": _Module(_EXPLAINERS, "AlibiExplainBlackBoxRuntime"),
    "mlserver_alibi_explain.explainers.sklearn_api_runtime": _Module(_EXPLAINERS, "AlibiExplainSKLearnAPIRuntime"),
    "mlserver_alibi_explain.explainers.white_box_runtime": _Module(_EXPLAINERS, "AlibiExplainWhiteBoxRuntime"),
    "mlserver_huggingface.codecs": _Module(_PIPELINES, "EqualUtil MultiInputRequestCodec"),
    "mlserver_huggingface.codecs.base": _Module(
        _PIPELINES,
        "MultiInputRequestCodec",
        aliases={"HuggingfaceRequestCodec": "mlserver_huggingface.codecs:HuggingfaceRequestCodec"},
    ),
    "mlserver_huggingface.codecs.jsonlist": _Module(
        _PIPELINES,
        aliases={
            "HuggingfaceListJSONCodec": "mlserver_huggingface.codecs:HuggingfaceListJSONCodec",
            "HuggingfaceSingleJSONCodec": "mlserver_huggingface.codecs:HuggingfaceSingleJSONCodec",
        },
    ),
    "mlserver_huggingface.codecs.numpylist": _Module(
        _PIPELINES, aliases={"NumpyListCodec": "mlserver_huggingface.codecs:NumpyListCodec"}
    ),
    "mlserver_huggingface.codecs.utils": _Module(_PIPELINES, "EqualUtil"),
    "mlserver_huggingface.common": _Module(
        _PIPELINES,
        aliases={
            "NumpyEncoder": "mlserver.codecs.json:JSONEncoderWithArray",
            "load_pipeline_from_settings": "mlserver_huggingface.pipeline:load_pipeline",
        },
    ),
    "mlserver_huggingface.errors": _Module(
        _PIPELINES,
        aliases=dict.fromkeys(
            (
                "MissingHuggingFaceSettings",
                "InvalidTransformersTask",
                "InvalidTransformerTask",
                "InvalidOptimumTask",
                "InvalidModelParameter",
                "InvalidModelParameterType",
            ),
            _ERROR,
        ),
    ),
    "mlserver_huggingface.settings": _Module(
        "use `get_huggingface_settings`",
        "merge_huggingface_settings_extra",
        {"ExtraDict": NewType("ExtraDict", str)},
        aliases={"parse_parameters_from_env": "mlserver_huggingface.settings:_seldon_parameters"},
    ),
    "mlserver_mllib.errors": _Module("use `mlserver_mllib.MLlibModel`", aliases={"InvalidMLlibFormat": _ERROR}),
    "mlserver_mllib.utils": _Module("use `mlserver_mllib.MLlibModel`", "get_mllib_load"),
    **{f"mlserver_{name}.version": _Module("", aliases=_VERSION) for name in _RUNTIMES.split()},
    "mlserver.utils": _Module("use `install_uvloop_event_loop`", "EventLoopBackend"),
    # The path in the original's manual, and that of XGBoost in the same form.
    "mlserver.sklearn": _Module("", aliases={"SKLearnModel": "mlserver_sklearn:SKLearnModel"}),
    "mlserver.xgboost": _Module("", aliases={"XGBoostModel": "mlserver_xgboost:XGBoostModel"}),
    "mlserver.tracing": _Module(
        "set `tracing_server` in the settings of the server",
        "get_tracer_provider",
        {"SERVICE_NAME": "service.name", "SERVICE_VERSION": "service.version"},
    ),
}


class Internal:
    """A stand-in for a class or function of the original's server. It can be imported, and used in annotations."""

    def __init__(self, module: str, name: str, instead: str) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
        self._instead = instead

    def _error(self) -> NotImplementedError:
        return NotImplementedError(
            f"`{self.__module__}.{self.__name__}` is internal to the Python server that MLServer 1.x was: {self._instead}"
        )

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise self._error()

    def __mro_entries__(self, _bases: Any) -> Any:
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __instancecheck__(self, _instance: Any) -> bool:
        return False

    def __subclasscheck__(self, _subclass: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return Union[self, other]

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]

    def __repr__(self) -> str:
        return f"<{self.__module__}.{self.__name__}, internal to the server of MLServer 1.x>"


def missing_names(module: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module, for the names that only the original has."""
    known = _MODULES[module]
    internals = frozenset(known.internals.split())

    def find(name: str) -> Any:
        if name in known.values:
            return known.values[name]
        if name in known.aliases:
            other, _, attribute = known.aliases[name].partition(":")
            return getattr(importlib.import_module(other), attribute)
        if name in internals:
            return _internal(module, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find


_created: Dict[str, Internal] = {}


def _internal(module: str, name: str) -> Internal:
    """Returns the stand-in of a name. It is created once, so that `is` holds between two imports."""
    return _created.setdefault(f"{module}.{name}", Internal(module, name, _MODULES[module].instead))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the table that have no file."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[Union[bytes, str]]] = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in _MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in _MODULES)
        return importlib.util.spec_from_loader(fullname, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        known = _MODULES[module.__name__]
        names: List[str] = [*known.internals.split(), *known.values, *known.aliases]
        module.__doc__ = "A module of the server of MLServer 1.x, for code that imports it."
        module.__all__ = names  # type: ignore[attr-defined]
        module.__getattr__ = missing_names(module.__name__)  # type: ignore[method-assign]


def install() -> None:
    """Makes the modules of the table importable. They are found last, after all files."""
    if not any(type(finder).__qualname__ == "_Finder" and finder.__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
