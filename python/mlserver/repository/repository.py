"""Model repositories."""

import abc
import glob
import os
from typing import List

from .._validate import ValidationError
from ..errors import ModelNotFound
from ..logging import logger
from ..settings import ModelParameters, ModelSettings
from .load import load_model_settings

__all__ = ["DEFAULT_MODEL_SETTINGS_FILENAME", "ModelRepository", "SchemalessModelRepository"]

DEFAULT_MODEL_SETTINGS_FILENAME = "model-settings.json"


class ModelRepository(abc.ABC):
    """Finds models. A custom subclass is created with `root` and the arguments in the server's settings."""

    @abc.abstractmethod
    async def list(self) -> "List[ModelSettings]":
        """Returns the settings of all models."""

    @abc.abstractmethod
    async def find(self, name: str) -> "List[ModelSettings]":
        """Returns the settings of all versions of a model, or raises `ModelNotFound`."""


class SchemalessModelRepository(ModelRepository):
    """Finds every `model-settings.json` below a folder, except in hidden folders, in the order of the folders' names.

    If there is none, one model can be configured in the environment.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    async def list(self) -> "List[ModelSettings]":
        pattern = os.path.join(glob.escape(self._root), "**", DEFAULT_MODEL_SETTINGS_FILENAME)
        found = []
        for path in sorted(glob.glob(pattern, recursive=True)):
            try:
                found.append(load_model_settings(path))
            except (OSError, ValueError):
                logger.exception("Failed load model settings at %s.", path)
        if found:
            return found
        try:
            settings = ModelSettings()
        except ValidationError:
            return []
        settings.parameters = ModelParameters()
        return [settings]

    async def find(self, name: str) -> "List[ModelSettings]":
        found = [settings for settings in await self.list() if settings.name == name]
        if not found:
            raise ModelNotFound(name)
        return found
