"""How transformers and explainers reach their predictor."""

from .constants.constants import PredictorProtocol

__all__ = ["PredictorConfig", "PredictorProtocol"]


class PredictorConfig:
    """The address of a predictor, and how to call it."""

    def __init__(
        self,
        predictor_host: str,
        predictor_protocol: str = PredictorProtocol.REST_V1.value,
        predictor_use_ssl: bool = False,
        predictor_request_timeout_seconds: int = 600,
        predictor_request_retries: int = 0,
        predictor_health_check: bool = False,
    ) -> None:
        self._predictor_host = predictor_host
        self._predictor_protocol = predictor_protocol
        self._predictor_use_ssl = predictor_use_ssl
        self._predictor_request_timeout_seconds = predictor_request_timeout_seconds
        self._predictor_request_retries = predictor_request_retries
        self._predictor_health_check = predictor_health_check

    @property
    def predictor_host(self) -> str:
        """The host, with a port if it is not the default one."""
        return self._predictor_host

    @property
    def predictor_protocol(self) -> str:
        """One of `v1`, `v2` and `grpc-v2`."""
        return self._predictor_protocol

    @property
    def predictor_use_ssl(self) -> bool:
        """Whether to use TLS."""
        return self._predictor_use_ssl

    @property
    def predictor_request_timeout_seconds(self) -> int:
        """How long a request may take."""
        return self._predictor_request_timeout_seconds

    @property
    def predictor_request_retries(self) -> int:
        """How often a request that could not be sent is tried again."""
        return self._predictor_request_retries

    @property
    def predictor_health_check(self) -> bool:
        """Whether the transformer is ready only when its predictor is."""
        return self._predictor_health_check

    @property
    def predictor_base_url(self) -> str:
        """The URL of the host, without a path."""
        return f"{'https' if self.use_ssl else 'http'}://{self.predictor_host}"

    @property
    def protocol(self) -> str:
        """The same as `predictor_protocol`."""
        return self._predictor_protocol

    @property
    def timeout(self) -> int:
        """The same as `predictor_request_timeout_seconds`."""
        return self._predictor_request_timeout_seconds

    @property
    def retries(self) -> int:
        """The same as `predictor_request_retries`."""
        return self._predictor_request_retries

    @property
    def use_ssl(self) -> bool:
        """The same as `predictor_use_ssl`."""
        return self._predictor_use_ssl
