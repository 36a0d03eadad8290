"""Options of proxies and of the controller: addresses, limits, TLS, gRPC services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from syncline.records import dataclass
from syncline.serve import option_values as check
from syncline.suggestions import suggest_arguments


class ProxyLocation(str, Enum):
    """Nodes that run a proxy."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"
    """Every node that has replicas."""

    @classmethod
    def of(cls, value: object) -> ProxyLocation:
        """Return the member for a value of a program; "NoServer" is an older name.

        Raises TypeError or ValueError for other values.
        """
        if value == "NoServer":
            return cls.Disabled
        return check.member("proxy_location", value, cls)


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class HTTPOptions:
    """Address, timeouts, TLS and limits of the HTTP proxies."""

    host: str | None = "127.0.0.1"
    """Address to listen on; "0.0.0.0" for all network interfaces; None: no HTTP."""
    port: int = 8000
    """Port to listen on; 0: a free one."""
    root_path: str = ""
    """Path below which a reverse proxy publishes the applications."""
    request_timeout_s: float | None = None
    """Seconds until a request is answered with 408; None: no limit."""
    keep_alive_timeout_s: float = 90
    """Seconds that an idle connection stays open."""
    ssl_keyfile: str | None = None
    """File with the private key; with `ssl_certfile`, it enables TLS."""
    ssl_certfile: str | None = None
    """File with the certificate chain."""
    ssl_keyfile_password: str | None = None
    """Password of `ssl_keyfile`."""
    ssl_ca_certs: str | None = None
    """File with the certificate authorities of clients, which then must have a certificate."""
    location: ProxyLocation | None = None
    """Older place of `proxy_location` of `start`."""
    root_url: str = ""
    """Accepted as in Ray, without effect."""
    middlewares: Sequence[object] = ()
    """Not supported: use middlewares of the ingress application."""
    num_cpus: float = 0
    """Not supported: proxies reserve no CPU."""
    max_body_bytes: int = 1 << 30
    """Largest request body; 413 beyond."""
    max_header_bytes: int = 65_536
    """Largest request line and headers; 431 beyond."""
    max_target_bytes: int = 16_384
    """Longest path with query string; 414 beyond."""
    header_timeout_s: float = 10.0
    """Seconds from the first byte of the headers to the last; 408 beyond."""
    body_timeout_s: float = 30.0
    """Seconds without a byte of an unfinished body; 408 beyond."""
    max_connections: int = 10_000
    """Open connections of a proxy; more wait until one is closed."""

    def __post_init__(self) -> None:
        if self.middlewares:
            raise ValueError(
                "`middlewares` are not supported: add them to the ingress application, such as "
                "`app.add_middleware(...)` of FastAPI"
            )
        if self.num_cpus:
            raise ValueError(
                f"`num_cpus={self.num_cpus!r}` is not supported: proxies reserve no CPU; omit it"
            )
        object.__setattr__(self, "middlewares", ())
        if self.location is not None:
            object.__setattr__(self, "location", ProxyLocation.of(self.location))
        check.text("host", self.host, optional=True, empty=False)
        check.integer("port", self.port, least=0, most=65_535)
        check.text("root_path", self.root_path)
        check.text("root_url", self.root_url)
        check.number("request_timeout_s", self.request_timeout_s, least=0, optional=True)
        for name in ("keep_alive_timeout_s", "header_timeout_s", "body_timeout_s"):
            check.number(name, getattr(self, name), above=0)
        for name in ("max_body_bytes", "max_header_bytes", "max_target_bytes", "max_connections"):
            check.integer(name, getattr(self, name), least=1)
        self._check_root_path()
        self._check_tls()

    def _check_root_path(self) -> None:
        path = self.root_path
        if path and (not path.startswith("/") or path.endswith("/")):
            raise ValueError(
                f"`root_path={path!r}` must start with '/' and not end with it, such as '/models'"
            )

    def _check_tls(self) -> None:
        for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_keyfile_password"):
            check.text(name, getattr(self, name), optional=True, empty=False)
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            given, missing = (
                ("ssl_keyfile", "ssl_certfile")
                if self.ssl_certfile is None
                else ("ssl_certfile", "ssl_keyfile")
            )
            raise ValueError(f"`{given}` needs `{missing}` as well: TLS takes both files")
        if self.ssl_certfile is None:
            for name in ("ssl_ca_certs", "ssl_keyfile_password"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"`{name}` has no effect without TLS: set `ssl_keyfile` and `ssl_certfile`"
                    )

    @property
    def is_enabled(self) -> bool:
        """False if no proxy is wanted."""
        return self.host is not None and self.location is not ProxyLocation.Disabled


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class gRPCOptions:
    """Port and services of the gRPC proxies, which start only if there are services."""

    port: int = 9000
    """Port to listen on."""
    grpc_servicer_functions: tuple[str, ...] = ()
    """Import paths of generated functions, such as "module.add_ModelServicer_to_server"."""
    request_timeout_s: float | None = None
    """Seconds until a request ends with DEADLINE_EXCEEDED; None: no limit."""
    enable_reflection: bool = True
    """True to answer questions of clients about the services."""

    def __post_init__(self) -> None:
        check.integer("port", self.port, least=0, most=65_535)
        name = "grpc_servicer_functions"
        functions = check.texts(name, self.grpc_servicer_functions)
        for path in functions:
            if "." not in path:
                raise ValueError(
                    f"`{name}` has {path!r}, which is not an import path: give "
                    "'module.add_ModelServicer_to_server'"
                )
        object.__setattr__(self, name, functions)
        check.number("request_timeout_s", self.request_timeout_s, above=0, optional=True)
        check.boolean("enable_reflection", self.enable_reflection)


@suggest_arguments
@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """Options of the process of the controller."""

    runtime_env: Mapping[str, object] | None = None
    """`{"env_vars": {...}}`: environment variables of the process; no other fields."""

    def __post_init__(self) -> None:
        if self.runtime_env is None:
            return
        env = check.mapping("runtime_env", self.runtime_env)
        unknown = env.keys() - {"env_vars"}
        if unknown:
            raise ValueError(
                f"`runtime_env` of the controller has {min(unknown)!r}: it takes 'env_vars' only"
            )
        variables = check.mapping("env_vars", env.get("env_vars", {}))
        for name, value in variables.items():
            check.text("a name in `env_vars`", name, empty=False)
            check.text(f"env_vars[{name!r}]", value)
        object.__setattr__(self, "runtime_env", {"env_vars": variables})


def check_route_prefix(prefix: object) -> None:
    """Raise TypeError or ValueError for a `route_prefix` that is neither a path nor None."""
    if prefix is None:
        return
    check.text("route_prefix", prefix, optional=True)
    path = str(prefix)
    if not path.startswith("/"):
        problem = "does not start with '/'"
    elif path != "/" and path.endswith("/"):
        problem = "ends with '/'"
    elif "{" in path or "}" in path:
        problem = "has wildcards, which only routes of the application may have"
    elif path == "/-" or path.startswith("/-/"):
        problem = "is reserved for pages of serve, such as /-/routes"
    elif any(part in ("", ".", "..") for part in path[1:].split("/")) and path != "/":
        problem = "has an empty segment, '.' or '..'"
    elif not path.isprintable() or any(c in " ?#%\\" for c in path):
        problem = "has a character that a path cannot have"
    else:
        return
    raise ValueError(
        f"`route_prefix={path!r}` {problem}: give a path such as '/models', or None for no HTTP"
    )
