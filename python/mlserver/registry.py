"""A registry of models in this process, for tests of runtimes. A running server has its own."""

from functools import cmp_to_key
from typing import Awaitable, Callable, Dict, List, Optional

from .context import model_context
from .errors import ModelNotFound
from .logging import logger
from .model import MLModel
from .settings import ModelSettings

__all__ = ["MultiModelRegistry", "SingleModelRegistry", "model_initialiser"]

ModelInitialiser = Callable[[ModelSettings], MLModel]
ModelHook = Callable[[MLModel], Awaitable[MLModel]]
ModelReloadHook = Callable[[MLModel, MLModel], Awaitable[MLModel]]


def model_initialiser(model_settings: ModelSettings) -> MLModel:
    """Returns a new instance of the class that the settings name."""
    return model_settings.implementation(model_settings)


class SingleModelRegistry:
    """The versions of one model."""

    def __init__(
        self,
        model_settings: ModelSettings,
        on_model_load: Optional[List[ModelHook]] = None,
        on_model_reload: Optional[List[ModelReloadHook]] = None,
        on_model_unload: Optional[List[ModelHook]] = None,
        model_initialiser: ModelInitialiser = model_initialiser,
    ) -> None:
        self._name = model_settings.name
        self._versions: Dict[Optional[str], MLModel] = {}
        self._on_model_load = on_model_load or []
        self._on_model_reload = on_model_reload or []
        self._on_model_unload = on_model_unload or []
        self._model_initialiser = model_initialiser

    @property
    def default(self) -> Optional[MLModel]:
        """The model without a version, else the one with the highest version."""
        if not self._versions:
            return None
        return self._versions[max(self._versions, key=cmp_to_key(_compare))]

    async def load(self, model_settings: ModelSettings) -> MLModel:
        """Loads a version. If it exists already, it is replaced once the new one has loaded."""
        previous = self._versions.get(model_settings.version)
        with model_context(model_settings):
            model = self._model_initialiser(model_settings)
            if previous is None:
                self._versions[model.version] = model
            try:
                if previous is None:
                    for on_load in self._on_model_load:
                        model = await on_load(model)
                else:
                    for on_reload in self._on_model_reload:
                        model = await on_reload(previous, model)
                model.ready = bool(await model.load())
            except BaseException:
                if previous is None:
                    logger.error("Couldn't load model '%s'. Model will be removed from registry.", model.name)
                    del self._versions[model_settings.version]
                raise
            self._versions[model_settings.version] = model
            if previous is not None:
                previous.ready = False
                await previous.unload()
        return model

    async def unload(self) -> None:
        """Unloads all versions."""
        for version in list(self._versions):
            await self.unload_version(version)

    async def unload_version(self, version: Optional[str] = None) -> None:
        """Unloads a version, or raises `ModelNotFound`."""
        model = await self.get_model(version)
        del self._versions[model.version]
        with model_context(model.settings):
            for on_unload in self._on_model_unload:
                model = await on_unload(model)
            model.ready = False
            await model.unload()

    async def get_model(self, version: Optional[str] = None) -> MLModel:
        """Returns a version, by default the default one, or raises `ModelNotFound`."""
        found = self._versions.get(version) if version else self.default
        if found is None:
            raise ModelNotFound(self._name, version)
        return found

    async def get_models(self) -> List[MLModel]:
        """Returns all versions."""
        return list(self._versions.values())

    def empty(self) -> bool:
        """Returns whether no version is left."""
        return not self._versions


class MultiModelRegistry:
    """Models by name and version."""

    def __init__(
        self,
        on_model_load: Optional[List[ModelHook]] = None,
        on_model_reload: Optional[List[ModelReloadHook]] = None,
        on_model_unload: Optional[List[ModelHook]] = None,
        model_initialiser: ModelInitialiser = model_initialiser,
    ) -> None:
        self._models: Dict[str, SingleModelRegistry] = {}
        self._on_model_load = on_model_load
        self._on_model_reload = on_model_reload
        self._on_model_unload = on_model_unload
        self._model_initialiser = model_initialiser

    async def load(self, model_settings: ModelSettings) -> MLModel:
        """Loads a version of a model; see `SingleModelRegistry.load`."""
        versions = self._models.get(model_settings.name)
        if versions is None:
            versions = self._models[model_settings.name] = SingleModelRegistry(
                model_settings,
                self._on_model_load,
                self._on_model_reload,
                self._on_model_unload,
                self._model_initialiser,
            )
        try:
            return await versions.load(model_settings)
        finally:
            if versions.empty():
                self._models.pop(model_settings.name, None)

    async def unload(self, name: str) -> None:
        """Unloads all versions of a model, or raises `ModelNotFound`."""
        await self._versions_of(name).unload()
        del self._models[name]

    async def unload_version(self, name: str, version: Optional[str] = None) -> None:
        """Unloads a version of a model, or raises `ModelNotFound`."""
        versions = self._versions_of(name, version)
        await versions.unload_version(version)
        if versions.empty():
            del self._models[name]

    async def get_model(self, name: str, version: Optional[str] = None) -> MLModel:
        """Returns a version of a model, by default the default one, or raises `ModelNotFound`."""
        return await self._versions_of(name, version).get_model(version)

    async def get_models(self, name: Optional[str] = None) -> List[MLModel]:
        """Returns all versions of a model, or of all models."""
        if name is not None:
            return await self._versions_of(name).get_models()
        return [model for versions in self._models.values() for model in await versions.get_models()]

    def _versions_of(self, name: str, version: Optional[str] = None) -> SingleModelRegistry:
        try:
            return self._models[name]
        except KeyError:
            raise ModelNotFound(name, version) from None


def _compare(one: Optional[str], other: Optional[str]) -> int:
    """Compares two versions: numbers by their value, others as text; no version is above all others."""
    if one is None or other is None:
        return (one is None) - (other is None)
    if one.isdecimal() and other.isdecimal():
        return int(one) - int(other)
    return (one > other) - (one < other)
