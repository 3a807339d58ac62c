"""Where models come from: folders, or a repository class of one's own."""

from .factory import ModelRepositoryFactory
from .repository import DEFAULT_MODEL_SETTINGS_FILENAME, ModelRepository, SchemalessModelRepository

__all__ = ["DEFAULT_MODEL_SETTINGS_FILENAME", "ModelRepository", "ModelRepositoryFactory", "SchemalessModelRepository"]
