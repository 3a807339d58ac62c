"""The server of scripts that end in `ModelServer().start([...])`, and its command line."""

import argparse
import asyncio
import os
from typing import Any, Callable, Dict, List, Optional

from .constants.constants import (
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    DEFAULT_HTTPS_PORT,
    FASTAPI_APP_IMPORT_STRING,
    KSERVE_TLS_CERT_FILE_ENV,
    KSERVE_TLS_KEY_FILE_ENV,
    MAX_GRPC_MESSAGE_LENGTH,
    PredictorProtocol,
)
from .context import set_predictor_config
from .errors import NoModelReady
from .logging import logger
from .model import BaseKServeModel
from .model_repository import ModelRepository
from .predictor_config import PredictorConfig
from .utils.inference_client_factory import InferenceClientFactory
from .utils.utils import strtobool

__all__ = [
    "DEFAULT_GRPC_PORT",
    "DEFAULT_HTTPS_PORT",
    "DEFAULT_HTTP_PORT",
    "FASTAPI_APP_IMPORT_STRING",
    "InferenceClientFactory",
    "ModelServer",
    "args",
    "parser",
]

#: Called by `ModelServer.start` with the server and its models. `mlserver start SCRIPT.py` sets it.
_started: Optional[Callable[["ModelServer", List[BaseKServeModel]], None]] = None

_PROTOCOLS = [protocol.value for protocol in PredictorProtocol]


def _truth(text: str) -> bool:
    return bool(strtobool(text))


def _parser() -> argparse.ArgumentParser:
    defaults = argparse.ArgumentDefaultsHelpFormatter
    options = argparse.ArgumentParser(add_help=False, formatter_class=defaults)
    add = options.add_argument
    add("--http_port", default=DEFAULT_HTTP_PORT, type=int, help="port for HTTP")
    add("--grpc_port", default=DEFAULT_GRPC_PORT, type=int, help="port for gRPC")
    add("--workers", default=1, type=int, help="number of processes that run the models")
    add("--max_threads", default=4, type=int, help="accepted for scripts of KServe, without effect")
    add("--max_asyncio_workers", default=None, type=int, help="accepted for scripts of KServe, without effect")
    add("--enable_grpc", default=True, type=_truth, help="listen for gRPC")
    add("--enable_docs_url", default=False, type=_truth, help="serve the documentation of the API under /docs")
    add("--enable_latency_logging", default=True, type=_truth, help="log how long each step of a request takes")
    add("--configure_logging", default=True, type=_truth, help="configure the loggers of KServe")
    add("--log_config_file", default=None, type=str, help="JSON or YAML file with the configuration of the loggers")
    add("--access_log_format", default=None, type=str, help="accepted for scripts of KServe, without effect")
    loops = ["auto", "asyncio", "uvloop"]
    add("--event-loop", default="auto", type=str, choices=loops, help="event loop of the models")
    add("--timeout-keep-alive", default=65, type=int, help="seconds until an idle connection is closed")
    add("--model_name", default="model", type=str, help="name of the model in URLs")
    add("--predictor_host", default=None, type=str, help="host of the predictor of a transformer or explainer")
    add("--protocol", default="v1", type=str, choices=_PROTOCOLS, help="older name of --predictor_protocol")
    add("--predictor_protocol", default="v1", type=str, choices=_PROTOCOLS, help="protocol of the predictor")
    add("--predictor_use_ssl", default=False, type=_truth, help="call the predictor with TLS")
    add("--predictor_request_timeout_seconds", default=600, type=int, help="seconds that the predictor may take")
    size = "accepted for scripts of KServe, without effect"
    add("--grpc_max_send_message_length", default=MAX_GRPC_MESSAGE_LENGTH, type=int, help=size)
    add("--grpc_max_receive_message_length", default=MAX_GRPC_MESSAGE_LENGTH, type=int, help=size)
    add("--predictor_request_retries", default=0, type=int, help="retries of a request that was not sent")
    ready = "report ready only if the predictor is ready"
    add("--enable_predictor_health_check", action="store_true", help=ready)
    add("--ssl_certfile", default=None, type=str, help=f"certificate for HTTPS (default: ${KSERVE_TLS_CERT_FILE_ENV})")
    add("--ssl_keyfile", default=None, type=str, help=f"private key for HTTPS (default: ${KSERVE_TLS_KEY_FILE_ENV})")
    return options


#: The options of the server. Scripts use it as a parent of their own parser.
parser = _parser()

#: The options in the command line of this process, and the defaults of the others.
args = parser.parse_known_args()[0]


class _UnusedApp:
    """Stands for KServe's application of FastAPI where that is not installed: what a script adds to it has no effect."""

    def __init__(self) -> None:
        self.uses: List[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def use(*arguments: Any, **_options: Any) -> Any:
            shown = getattr(arguments[0], "__name__", arguments[0]) if arguments else ""
            self.uses.append(f"{name} {shown}".strip()[:100])
            return lambda function: function

        return use


def __getattr__(name: str) -> Any:
    # FastAPI is imported only for scripts that use the application.
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app: Any
    try:
        from fastapi import FastAPI  # type: ignore[import-not-found,unused-ignore]

        app = FastAPI(title="KServe ModelServer", docs_url=None, redoc_url=None)
    except ImportError:
        app = _UnusedApp()
    globals()["app"] = app
    return app


class ModelServer:
    """Serves models. In this SDK, `start` registers them with the server that runs the script."""

    def __init__(
        self,
        http_port: int = args.http_port,
        grpc_port: int = args.grpc_port,
        workers: int = args.workers,
        max_threads: int = args.max_threads,
        max_asyncio_workers: Optional[int] = args.max_asyncio_workers,
        registered_models: Optional[ModelRepository] = None,
        enable_grpc: bool = args.enable_grpc,
        enable_docs_url: bool = args.enable_docs_url,
        enable_latency_logging: bool = args.enable_latency_logging,
        access_log_format: Optional[str] = args.access_log_format,
        event_loop: str = args.event_loop,
        timeout_keep_alive: int = args.timeout_keep_alive,
        grace_period: int = 30,
        predictor_config: Optional[PredictorConfig] = None,
        ssl_certfile: Optional[str] = args.ssl_certfile,
        ssl_keyfile: Optional[str] = args.ssl_keyfile,
    ) -> None:
        self.registered_models = ModelRepository() if registered_models is None else registered_models
        self.ssl_certfile = ssl_certfile or os.environ.get(KSERVE_TLS_CERT_FILE_ENV) or None
        self.ssl_keyfile = ssl_keyfile or os.environ.get(KSERVE_TLS_KEY_FILE_ENV) or None
        self.http_port = http_port
        if self.ssl_certfile and self.ssl_keyfile and http_port == DEFAULT_HTTP_PORT:
            self.http_port = DEFAULT_HTTPS_PORT
        self.grpc_port = grpc_port
        self.workers = workers
        self.event_loop = event_loop
        self.max_threads = max_threads
        self.max_asyncio_workers = max_asyncio_workers
        self.timeout_keep_alive = timeout_keep_alive
        self.enable_grpc = enable_grpc
        self.enable_docs_url = enable_docs_url
        self.enable_latency_logging = enable_latency_logging
        self.grace_period = grace_period
        self.access_log_format = access_log_format
        self._custom_exception_handler: Optional[Callable[..., None]] = None
        if predictor_config is None:
            predictor_config = _predictor_of_command_line()
        if predictor_config is not None:
            set_predictor_config(predictor_config)

    def start(self, models: List[BaseKServeModel]) -> None:
        """Registers the models, and serves them. One of them, at least, must be ready."""
        self._register_and_check_atleast_one_model_is_ready(models)
        if _started is None:
            raise RuntimeError(
                "cannot start a server in this process: this `kserve` module is that of mlserver, which runs scripts in its"
                " workers (run `mlserver start SCRIPT.py` instead of `python SCRIPT.py`, or install the `kserve` package)"
            )
        _started(self, models)

    def stop(self, sig: int) -> None:
        """Stops the models. The server calls it when the worker exits."""
        for model in list(self.registered_models.get_models().values()):
            model.stop()
            if model.engine:
                model.stop_engine()

    def setup_event_loop(self) -> None:
        """Does nothing: workers have an event loop of their own."""

    def register_signal_handler(self) -> None:
        """Does nothing: the server handles signals."""

    def register_exception_handler(self, handler: Callable[[asyncio.AbstractEventLoop, Dict[str, Any]], None]) -> None:
        """Sets the handler of exceptions that no task handles."""
        self._custom_exception_handler = handler

    def default_exception_handler(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        """Logs an exception that no task handles."""
        logger.error("unhandled exception: %s", context.get("exception") or context.get("message"))

    def register_model(self, model: BaseKServeModel, name: Optional[str] = None) -> None:
        """Adds a model under its name, or another one."""
        if not (name or model.name):
            raise ValueError("Failed to register model, model.name must be provided.")
        self.registered_models.update(model, name)
        logger.info("Registering model: %s", name or model.name)

    def _register_and_check_atleast_one_model_is_ready(self, models: List[BaseKServeModel]) -> None:
        if not isinstance(models, list):
            raise RuntimeError("Unknown model collection type")
        for model in models:
            if not isinstance(model, BaseKServeModel):
                raise RuntimeError("Model type should be 'BaseKServeModel'")
        ready = False
        for model in models:
            if model.ready or model.engine:
                ready = True
                self.register_model(model)
                if isinstance(getattr(model, "enable_latency_logging", None), bool):
                    model.enable_latency_logging = self.enable_latency_logging  # type: ignore[attr-defined]
        if models and not ready:
            raise NoModelReady(models)


def _predictor_of_command_line() -> Optional[PredictorConfig]:
    if not args.predictor_host:
        return None
    return PredictorConfig(
        predictor_host=args.predictor_host,
        predictor_protocol=args.predictor_protocol if args.predictor_protocol != "v1" else args.protocol,
        predictor_use_ssl=args.predictor_use_ssl,
        predictor_request_timeout_seconds=args.predictor_request_timeout_seconds,
        predictor_request_retries=args.predictor_request_retries,
        predictor_health_check=args.enable_predictor_health_check,
    )
