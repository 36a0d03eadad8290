"""The services of a gRPC proxy: methods that generated code declares, and how to call them.

`load_services` calls the generated `add_XServicer_to_server` functions with a recorder instead of a
server. The proxy keeps messages serialized, so it needs only the kind of each method, and a
reference to the function that makes the request from bytes, for the replica.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from syncline.records import dataclass
from syncline.serve.option_values import imported


@dataclass(frozen=True, kw_only=True)
class ServiceMethod:
    """A method of a service."""

    path: str
    """`/package.Service/Method`."""
    streams_request: bool
    streams_response: bool
    deserializer: bytes
    """The pickled function that makes a request from bytes."""

    @property
    def service(self) -> str:
        """Full name of the service."""
        return self.path.split("/")[1]

    @property
    def name(self) -> str:
        """Name of the method of the ingress."""
        return self.path.rsplit("/", 1)[1]


def load_services(paths: Iterable[str]) -> dict[str, ServiceMethod]:
    """Return the methods of all services by path.

    Raises ImportError or AttributeError for a wrong import path, TypeError for a function that adds
    no service, and ValueError for a method whose requests the replicas could not make.
    """
    methods: dict[str, ServiceMethod] = {}
    for path in paths:
        found = _methods_of(path, imported(path))
        if not found:
            raise TypeError(
                f"`grpc_servicer_functions` has {path!r}, which adds no service: give the "
                "generated function, such as 'module.add_ModelServicer_to_server'"
            )
        methods |= found
    return methods


class _Recorder:
    """Fake server that records the handlers added by generated code."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, generic_handlers: Iterable[object]) -> None:
        """Record the handlers of generated code without registered methods (grpcio < 1.65)."""
        for generic in generic_handlers:
            self.handlers |= getattr(generic, "_method_handlers", {})

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, object]
    ) -> None:
        """Record the handlers of a service."""
        for name, handler in method_handlers.items():
            self.handlers[f"/{service_name}/{name}"] = handler


class _AnyServicer:
    """Accepts every method call of generated code."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def _methods_of(source: str, add_to_server: object) -> dict[str, ServiceMethod]:
    if not callable(add_to_server):
        raise TypeError(f"`grpc_servicer_functions` has {source!r}, which is not a function")
    recorder = _Recorder()
    try:
        add_to_server(_AnyServicer(), recorder)
    except Exception as error:
        raise TypeError(
            f"`grpc_servicer_functions` has {source!r}, which failed: {type(error).__name__}: "
            f"{error}. Give the generated function, such as 'module.add_ModelServicer_to_server'"
        ) from error
    return {
        path: ServiceMethod(
            path=path,
            streams_request=handler.request_streaming,
            streams_response=handler.response_streaming,
            deserializer=_reference(path, handler.request_deserializer),
        )
        for path, handler in recorder.handlers.items()
    }


def _reference(path: str, deserializer: object) -> bytes:
    try:
        return pickle.dumps(bytes if deserializer is None else deserializer)
    except Exception as error:  # pickle raises several classes
        raise ValueError(
            f"the deserializer of {path} cannot be sent to replicas ({error}): it must be a method "
            "of an importable message class"
        ) from None
