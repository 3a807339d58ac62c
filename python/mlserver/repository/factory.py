"""Creates the model repository that the settings name."""

from .._imports import import_object
from ..settings import Settings
from .repository import ModelRepository, SchemalessModelRepository

__all__ = ["ModelRepositoryFactory"]


class ModelRepositoryFactory:
    """Creates the model repository that the settings name."""

    @staticmethod
    def resolve_model_repository(settings: Settings) -> ModelRepository:
        """Returns an instance of the repository class (or import path) in the settings, else of the default class."""
        implementation = settings.model_repository_implementation or SchemalessModelRepository
        if isinstance(implementation, str):
            implementation = import_object(implementation)
        repository: ModelRepository = implementation(
            root=settings.model_repository_root, **settings.model_repository_implementation_args
        )
        return repository
