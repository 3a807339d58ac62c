"""Model repositories: folders, or a custom repository class."""

from .factory import ModelRepositoryFactory
from .repository import DEFAULT_MODEL_SETTINGS_FILENAME, ModelRepository, SchemalessModelRepository

__all__ = ["DEFAULT_MODEL_SETTINGS_FILENAME", "ModelRepository", "ModelRepositoryFactory", "SchemalessModelRepository"]
