"""`ProxyConfig`: everything that the controller tells a proxy at its start."""

from __future__ import annotations

from syncline.records import dataclass
from syncline.serve.logging_config import LoggingConfig, TracingConfig
from syncline.serve.proxy_options import HTTPOptions, gRPCOptions
from syncline.serve.wire.routes import Address


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """Everything that a proxy needs to start. The controller makes it."""

    proxy_id: str
    http: HTTPOptions
    key: bytes
    """Key of the session."""
    controller: Address
    grpc: gRPCOptions | None = None
    """Services for gRPC clients; None, or no services: no gRPC."""
    tracing_config: TracingConfig | None = None
    logging_config: LoggingConfig | None = None
    """Logs of the proxy; None for those of other loggers."""
    fd_path: str | None = None
    """Unix socket at which the controller passes the listening socket (`listening.fd_path`); None:
    the proxy binds `http.host` and `http.port` itself.
    """
