"""Settings of the server and of models.

Explicit values override the environment (`MLSERVER_…`, `MLSERVER_MODEL_…`), which overrides `.env` in the working directory,
which overrides defaults. Inside a worker, all values are explicit, because the server has resolved them.
"""

import json
import os
import typing
import uuid
from typing import Any, ClassVar, Dict, List, Optional, Type, TypeVar, Union

from ._imports import import_object
from ._model import BaseModel, Factory, FieldInfo
from ._text import read_file, read_json_file
from ._validate import Loc, Problems
from .types import MetadataTensor
from .version import __version__

if typing.TYPE_CHECKING:
    from .model import MLModel

__all__ = ["BaseSettings", "CORSSettings", "ModelParameters", "ModelSettings", "Settings"]

S = TypeVar("S", bound="BaseSettings")

ENV_FILE_SETTINGS = ".env"
ENV_PREFIX_SETTINGS = "MLSERVER_"
ENV_PREFIX_MODEL_SETTINGS = "MLSERVER_MODEL_"

DEFAULT_PARALLEL_WORKERS = 1

_SETTINGS_OPTIONS = frozenset(
    (
        "_case_sensitive",
        "_cli_parse_args",
        "_env_file",
        "_env_file_encoding",
        "_env_ignore_empty",
        "_env_nested_delimiter",
        "_env_parse_none_str",
        "_env_prefix",
        "_secrets_dir",
    )
)

_FOLDERS = {"DEFAULT_ENVIRONMENTS_DIR": ".envs", "DEFAULT_METRICS_DIR": ".metrics"}


def __getattr__(name: str) -> Any:
    """Returns a default folder in the working directory, which may change, or not exist at import."""
    if name in _FOLDERS:
        return os.path.join(os.getcwd(), _FOLDERS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BaseSettings(BaseModel):
    """The base class of settings. Missing values come from the environment."""

    _extra = "forbid"

    #: The prefix of fields' names in the environment. A subclass may set it in `model_config`, as with pydantic.
    _env_prefix: ClassVar[str] = ""

    #: The files of variables: one, several, or `None`.
    _env_file: ClassVar[Any] = ENV_FILE_SETTINGS

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._env_prefix = cls.model_config.get("env_prefix", cls._env_prefix)
        cls._env_file = cls.model_config.get("env_file", cls._env_file)

    def _fill(self, values: Dict[str, Any], loc: Loc, problems: Problems) -> None:
        # Options of pydantic-settings for one instance; the others have no counterpart here.
        options = {name: value for name, value in values.items() if name in _SETTINGS_OPTIONS}
        unknown = [name for name in options if options[name] is not None and name not in ("_env_file", "_env_prefix")]
        if unknown:
            raise TypeError(f"{type(self).__name__} does not support {', '.join(unknown)}")
        given = {name: value for name, value in values.items() if name not in options} if options else values
        super()._fill({**self._from_environment(given, loc, problems, **options), **given}, loc, problems)

    @classmethod
    def _from_environment(
        cls,
        values: Dict[str, Any],
        loc: Loc,
        problems: Problems,
        _env_file: Any = "",
        _env_prefix: Optional[str] = None,
        **_options: Any,
    ) -> Dict[str, Any]:
        """Returns the values in the environment of fields that are not in `values`."""
        chosen = cls._env_file if _env_file == "" else _env_file
        files = chosen if isinstance(chosen, (list, tuple)) else [] if chosen is None else [chosen]
        variables: Dict[str, str] = {}
        for file in files:
            variables.update(_read_env_file(file))
        variables.update((name.lower(), value) for name, value in os.environ.items())
        prefix = cls._env_prefix if _env_prefix is None else _env_prefix
        found = {}
        for name, field in cls._fields().items():
            shown, *others = field.names or (cls._aliases.get(name, name),)
            names = (shown, *others)
            wanted = [each.lower() for each in names] if field.names else [f"{prefix}{shown}".lower()]
            variable = next((each for each in wanted if each in variables), "")
            if not variable or any(each in values for each in names):
                continue
            text = variables[variable]
            if not _is_complex(field):
                found[shown] = text
                continue
            try:
                found[shown] = json.loads(text)
            except ValueError as error:
                message = f"{variable.upper()} is not valid JSON: {error}"
                problems.add("json_invalid", (*loc, shown), message, text)
        return found

    def dict(self, by_alias: bool = True, exclude_unset: bool = True, exclude_none: bool = True, **kwargs: Any) -> Any:
        """Returns the values that were set explicitly, as a dictionary."""
        return super().dict(by_alias=by_alias, exclude_unset=exclude_unset, exclude_none=exclude_none, **kwargs)

    def json(self, by_alias: bool = True, exclude_unset: bool = True, exclude_none: bool = True, **kwargs: Any) -> str:
        """Returns the values that were set explicitly, as JSON."""
        return super().json(by_alias=by_alias, exclude_unset=exclude_unset, exclude_none=exclude_none, **kwargs)


def _is_complex(field: FieldInfo) -> bool:
    """Returns whether a field's value is written as JSON in the environment."""
    hints = typing.get_args(field.annotation) or (field.annotation,)
    if typing.get_origin(field.annotation) not in (Union, None):
        return True
    if str in hints:
        return False
    return any(
        typing.get_origin(hint) is not None or (isinstance(hint, type) and issubclass(hint, (BaseModel, list, dict)))
        for hint in hints
    )


def _read_env_file(path: "Union[str, os.PathLike[str]]") -> Dict[str, str]:
    """Returns the variables of a `.env` file, with their names in lower case; empty if the file does not exist."""
    variables: Dict[str, str] = {}
    try:
        lines = read_file(path).splitlines()
    except OSError:
        return variables
    for line in lines:
        name, equals, value = line.strip().partition("=")
        name = name.replace("export ", "", 1).strip()
        if not equals or not name or name.startswith("#"):
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        else:
            value = value.split(" #", 1)[0].rstrip()
        variables[name.lower()] = value
    return variables


class CORSSettings(BaseSettings):
    """Configures which origins may call the server from a browser."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_SETTINGS

    allow_origins: Optional[List[str]] = []
    allow_origin_regex: Optional[str] = None
    allow_credentials: Optional[bool] = False
    allow_methods: Optional[List[str]] = ["GET"]
    allow_headers: Optional[List[str]] = []
    expose_headers: Optional[List[str]] = []
    max_age: Optional[int] = 600


class Settings(BaseSettings):
    """Settings of the server. The executable resolves them; user code can read them."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_SETTINGS

    _private = frozenset(
        ("_custom_grpc_server_settings", "_custom_metrics_server_settings", "_custom_rest_server_settings")
    )
    #: Kept for code that sets them. They configure the servers of the original.
    _custom_rest_server_settings: Optional[Dict[str, Any]] = None
    _custom_metrics_server_settings: Optional[Dict[str, Any]] = None
    _custom_grpc_server_settings: Optional[Dict[str, Any]] = None

    debug: bool = False
    parallel_workers: int = DEFAULT_PARALLEL_WORKERS
    parallel_workers_timeout: int = 5
    environments_dir: str = typing.cast(str, Factory(lambda: __getattr__("DEFAULT_ENVIRONMENTS_DIR")))
    model_repository_implementation: Optional[Any] = None
    model_repository_root: str = "."
    model_repository_implementation_args: Dict[str, Any] = {}
    load_models_at_startup: bool = True
    server_name: str = "mlserver"
    server_version: str = __version__
    extensions: List[str] = []
    host: str = "0.0.0.0"
    http_port: int = 8080
    root_path: str = ""
    grpc_port: int = 8081
    grpc_max_message_length: Optional[int] = None
    cors_settings: Optional[CORSSettings] = None
    metrics_endpoint: Optional[str] = "/metrics"
    metrics_port: int = 8082
    metrics_rest_server_prefix: str = "rest_server"
    metrics_dir: str = typing.cast(str, Factory(lambda: __getattr__("DEFAULT_METRICS_DIR")))
    use_structured_logging: bool = False
    logging_settings: Optional[Union[str, Dict[str, Any]]] = None
    kafka_enabled: bool = False
    kafka_servers: str = "localhost:9092"
    kafka_topic_input: Union[str, List[str]] = "mlserver-input"
    kafka_topic_output: str = "mlserver-output"
    tracing_server: Optional[str] = None
    cache_enabled: bool = False
    cache_size: int = 100
    gzip_enabled: bool = True


class ModelParameters(BaseSettings):
    """Parameters of a model: known ones, and any others, which runtimes read as attributes."""

    _extra = "allow"
    _env_prefix = ENV_PREFIX_MODEL_SETTINGS

    uri: Optional[str] = None
    version: Optional[str] = None
    environment_path: Optional[str] = None
    environment_tarball: Optional[str] = None
    inference_pool_gid: Optional[str] = None
    autogenerate_inference_pool_gid: bool = False
    format: Optional[str] = None
    content_type: Optional[str] = None
    extra: Optional[Dict[str, Any]] = {}

    def _fill(self, values: Dict[str, Any], loc: Loc, problems: Problems) -> None:
        super()._fill(values, loc, problems)
        if self.__dict__.get("autogenerate_inference_pool_gid") and self.__dict__.get("inference_pool_gid") is None:
            self.inference_pool_gid = str(uuid.uuid4())

    def __getattr__(self, name: str) -> Any:  # extras, for type checkers
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class ModelSettings(BaseSettings):
    """Settings of a model."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_MODEL_SETTINGS
    _aliases = {"implementation_": "implementation"}
    _private = frozenset(("_source", "_class"))

    implementation_: str
    name: str = ""
    platform: str = ""
    versions: List[str] = []
    inputs: List[MetadataTensor] = []
    outputs: List[MetadataTensor] = []
    parallel_workers: Optional[int] = None
    warm_workers: bool = False
    max_batch_size: int = 0
    max_batch_time: float = 0.0
    parameters: Optional[ModelParameters] = None
    cache_enabled: bool = False

    #: The file that the settings come from; relative paths in them are relative to its folder.
    _source: Optional[str] = None
    _class: Optional[Type["MLModel"]] = None

    def _fill(self, values: Dict[str, Any], loc: Loc, problems: Problems) -> None:
        implementation = values.get("implementation", values.get("implementation_"))
        if isinstance(implementation, type):
            object.__setattr__(self, "_class", implementation)
            implementation = _import_path(implementation)
        if implementation is not None:
            values = {**values, "implementation": implementation}
        if values.get("_source") is not None:
            object.__setattr__(self, "_source", str(values["_source"]))
        super()._fill(values, loc, problems)

    @classmethod
    def parse_file(cls: Type[S], path: Any, **_options: Any) -> S:
        """Reads a `model-settings.json`, and stores its path."""
        values = read_json_file(path)
        return typing.cast(S, typing.cast(Any, cls).from_source(values, str(path)))

    @classmethod
    def from_source(cls, values: Dict[str, Any], source: Optional[str]) -> "ModelSettings":
        """Creates settings from values that were read from the file `source`."""
        settings = cls.model_validate(values)
        object.__setattr__(settings, "_source", source)
        return settings

    @property
    def implementation(self) -> Type["MLModel"]:
        """The class of the model. It is imported on first access; the folder of the settings is searched first."""
        found = self._class
        if found is None:
            folder = os.path.dirname(os.path.abspath(self._source)) if self._source else None
            found = typing.cast(Type["MLModel"], import_object(self.implementation_, folder))
            object.__setattr__(self, "_class", found)
        return found

    @implementation.setter
    def implementation(self, value: Type["MLModel"]) -> None:
        object.__setattr__(self, "_class", value)
        self.__dict__["implementation_"] = _import_path(value)

    @property
    def version(self) -> Optional[str]:
        """The version of the model, from its parameters."""
        return self.parameters.version if self.parameters is not None else None


def _import_path(implementation: type) -> str:
    return f"{implementation.__module__}.{implementation.__qualname__}"
