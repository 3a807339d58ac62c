"""The models of a server."""

import os
from typing import Dict, Optional

from .model import BaseKServeModel

__all__ = ["MODEL_MOUNT_DIRS", "ModelRepository"]

MODEL_MOUNT_DIRS = "/mnt/models"


class ModelRepository:
    """Models by name. Subclasses override `load` to create them from the folder of models."""

    def __init__(self, models_dir: str = MODEL_MOUNT_DIRS) -> None:
        self.models: Dict[str, BaseKServeModel] = {}
        self.models_dir = models_dir

    def load_models(self) -> None:
        """Loads the model of each folder in the folder of models."""
        for name in sorted(os.listdir(self.models_dir)):
            if os.path.isdir(os.path.join(self.models_dir, name)):
                self.load_model(name)

    def set_models_dir(self, models_dir: str) -> None:
        """Sets the folder of models. It is used for unit tests."""
        self.models_dir = models_dir

    def get_model(self, name: str) -> Optional[BaseKServeModel]:
        """Returns the model, or `None` if no model has the name."""
        return self.models.get(name)

    def get_models(self) -> Dict[str, BaseKServeModel]:
        """Returns all models by name."""
        return self.models

    async def is_model_ready(self, name: str) -> bool:
        """Whether the model exists and is healthy."""
        model = self.get_model(name)
        return model is not None and await model.healthy()

    def update(self, model: BaseKServeModel, name: Optional[str] = None) -> None:
        """Adds a model under its name, or another one."""
        self.models[name or model.name] = model

    def load(self, name: str) -> bool:
        """Loads a model. For subclasses."""
        return False

    def load_model(self, name: str) -> bool:
        """Loads a model. For subclasses."""
        return self.load(name)

    def unload(self, name: str) -> None:
        """Removes a model, and stops it."""
        model = self.models.pop(name, None)
        if model is None:
            raise KeyError(f"model with name {name} does not exist")
        model.stop()
