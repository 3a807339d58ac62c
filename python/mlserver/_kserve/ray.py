"""Models that are deployed with Ray Serve."""

from typing import Any, Dict, List, Optional

from .model import InferenceModel, InferenceVerb

__all__ = ["RayModel"]


class RayModel(InferenceModel):
    """Passes all calls to the handle of a deployment."""

    def __init__(self, name: str, handle: Any) -> None:
        super().__init__(name)
        self._handle = handle

    def __call__(
        self,
        body: Any,
        headers: Optional[Dict[str, str]] = None,
        verb: InferenceVerb = InferenceVerb.PREDICT,
    ) -> Any:
        """Returns the deployment's response, which can be awaited."""
        return self._handle.remote(body, headers=headers)

    def load(self) -> bool:
        """Has the deployment load its model."""
        self._handle.load.remote()
        self.ready = True
        return self.ready

    async def get_input_types(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """Asks the deployment."""
        return await self._handle.get_input_types.remote()  # type: ignore[no-any-return]

    async def get_output_types(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """Asks the deployment."""
        return await self._handle.get_output_types.remote()  # type: ignore[no-any-return]
