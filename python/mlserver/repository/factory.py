"""Which repository the settings name."""

from .._imports import import_object
from ..settings import Settings
from .repository import ModelRepository, SchemalessModelRepository

__all__ = ["ModelRepositoryFactory"]


class ModelRepositoryFactory:
    """Makes the repository of the settings."""

    @staticmethod
    def resolve_model_repository(settings: Settings) -> ModelRepository:
        """Returns a repository of the class that the settings name, a class or an import path, else the default one."""
        implementation = settings.model_repository_implementation or SchemalessModelRepository
        if isinstance(implementation, str):
            implementation = import_object(implementation)
        repository: ModelRepository = implementation(
            root=settings.model_repository_root, **settings.model_repository_implementation_args
        )
        return repository
