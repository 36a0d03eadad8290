"""`ray.client`, `ray.util.connect` and `ray.util.client`: older ways to call `init("ray://…")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.core import api
from syncline.core import engine as engines
from syncline.core.lifecycle import InitContext, init, is_initialized, shutdown

_SCHEME = "ray://"


class ClientBuilder:
    """Settings of a connection; `connect` makes it."""

    def __init__(self, address: str | None = None) -> None:
        """`address` is the "host:port" of Ray Client; None: this machine."""
        self.address = address
        self._arguments: dict[str, Any] = {}

    def env(self, env: Mapping[str, Any]) -> ClientBuilder:
        """Set the runtime environment of the program."""
        self._arguments["runtime_env"] = dict(env)
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Set the namespace of actor names."""
        self._arguments["namespace"] = namespace
        return self

    def connect(self) -> InitContext:
        """Connect like `init`; RuntimeError if syncline is already running."""
        address = None if self.address in (None, "local") else _with_scheme(str(self.address))
        return init(address, **self._arguments)


def client(address: str | None = None) -> ClientBuilder:
    """Return the settings of a connection to the "host:port" of Ray Client; None: this machine."""
    return ClientBuilder(address)


def connect(
    conn_str: str,
    secure: bool = False,
    metadata: object = None,
    connection_retries: int = 3,
    job_config: Any = None,
    namespace: str | None = None,
    *,
    ignore_version: bool = False,
    _credentials: object = None,
    ray_init_kwargs: Mapping[str, Any] | None = None,
) -> InitContext:
    """Connect to the "host:port" of Ray Client: an older spelling of `init("ray://host:port")`.

    `metadata`, `connection_retries` and `ignore_version` have no effect. Raises ValueError for
    `secure` and credentials, which `init` takes from Ray's TLS variables; RuntimeError if syncline
    runs already.
    """
    if secure or _credentials is not None:
        raise ValueError(
            "`connect` takes no credentials: set Ray's variables RAY_USE_TLS, RAY_TLS_SERVER_CERT, "
            "RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT, and leave out `secure` and `_credentials`"
        )
    arguments = dict(ray_init_kwargs or {})
    if job_config is not None:
        arguments["job_config"] = job_config
    if namespace is not None:
        arguments["namespace"] = namespace
    return init(_with_scheme(conn_str), **arguments)


def disconnect() -> None:
    """End the connection: an older spelling of `shutdown()`."""
    shutdown()


class RayAPIStub:
    """`ray.util.client.ray`: the functions of `syncline`, and the connection."""

    def connect(self, conn_str: str, *args: Any, **kwargs: Any) -> InitContext:
        """See `connect`."""
        return connect(conn_str, *args, **kwargs)

    def disconnect(self) -> None:
        """See `disconnect`."""
        disconnect()

    def is_connected(self) -> bool:
        """Return True if this program is connected by Ray Client."""
        engine = engines.current
        return engine is not None and engine.address.startswith(_SCHEME)

    def is_initialized(self) -> bool:
        """Return True if syncline runs."""
        return is_initialized()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in api.__all__:
            raise AttributeError(f"`syncline.util.client.ray` has no attribute {name!r}")
        return getattr(api, name)


ray = RayAPIStub()


def num_connected_contexts() -> int:
    """Return the number of connections by Ray Client: 0 or 1."""
    return int(ray.is_connected())


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"{_SCHEME}{address}"
