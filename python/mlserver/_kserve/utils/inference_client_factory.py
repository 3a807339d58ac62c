"""The clients of this process."""

import threading
from typing import Any, Dict, List, Optional, Tuple

from ..inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from .utils import is_v2

__all__ = ["InferenceClientFactory", "is_v2"]


class InferenceClientFactory:
    """Creates each client once, so that models share connections. There is one factory."""

    _instance: Optional["InferenceClientFactory"] = None
    _lock = threading.Lock()
    _grpc_clients: Dict[Tuple[Any, ...], InferenceGRPCClient] = {}
    _rest_clients: Dict[Tuple[Any, ...], InferenceRESTClient] = {}

    def __new__(cls) -> "InferenceClientFactory":
        """Returns the factory."""
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
            return cls._instance

    def get_grpc_client(self, url: str, **kwargs: Any) -> InferenceGRPCClient:
        """Returns the client of a server. The arguments are those of `InferenceGRPCClient`."""
        with self._lock:
            key = (url, *((name, repr(value)) for name, value in sorted(kwargs.items())))
            if key not in self._grpc_clients:
                self._grpc_clients[key] = InferenceGRPCClient(url, **kwargs)
            return self._grpc_clients[key]

    def get_rest_client(self, config: Optional[RESTConfig] = None) -> InferenceRESTClient:
        """Returns the client for a configuration."""
        config = RESTConfig() if config is None else config
        key = tuple((name, repr(value)) for name, value in sorted(vars(config).items()))
        with self._lock:
            if key not in self._rest_clients:
                self._rest_clients[key] = InferenceRESTClient(config)
            return self._rest_clients[key]

    async def close(self) -> None:
        """Closes all clients. Later calls create new ones."""
        with self._lock:
            clients: List[Any] = [*self._grpc_clients.values(), *self._rest_clients.values()]
            self._grpc_clients.clear()
            self._rest_clients.clear()
        for client in clients:
            await client.close()
