"""The custom model repository, wrapped as a model that only the server calls."""

from typing import Any, Dict, List

from ..errors import ModelNotFound
from ..handlers import custom_handler
from ..model import MLModel
from ..repository import ModelRepository, ModelRepositoryFactory
from ..settings import ModelSettings, Settings


class Repository(MLModel):
    """Lists the models of the class that `model_repository_implementation` names."""

    _repository: ModelRepository

    async def load(self) -> bool:
        """Creates the repository, whose settings are in the parameters of this model."""
        parameters = self.settings.parameters
        extra: Dict[str, Any] = (parameters.extra if parameters is not None else None) or {}
        settings = Settings(
            model_repository_implementation=extra["implementation"],
            model_repository_root=extra["root"],
            model_repository_implementation_args=extra["args"],
        )
        self._repository = ModelRepositoryFactory.resolve_model_repository(settings)
        return True

    @custom_handler(rest_path="/models", rest_method="GET")
    async def list(self) -> Any:
        """Returns all versions of all models."""
        return [_listed(settings) for settings in await self._repository.list()]

    @custom_handler(rest_path="/models/{name:path}", rest_method="GET")
    async def find(self, name: str) -> Any:
        """Returns all versions of one model."""
        try:
            found: List[ModelSettings] = await self._repository.find(name)
        except ModelNotFound:
            found = []
        return [_listed(settings) for settings in found]


def _listed(settings: ModelSettings) -> Dict[str, Any]:
    dumped = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"settings": dumped, "source": settings._source}
