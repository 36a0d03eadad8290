"""Arguments of gRPC ingress methods besides messages: the context and the input stream.

A method with a parameter `grpc_context` gets a `RayServegRPCContext`; a method of a client or
bidirectional stream gets a `gRPCInputStream` instead of a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from syncline.serve.wire.grpc_frames import HIGHEST_CODE, GrpcHead, GrpcStatus, Metadata

if TYPE_CHECKING:
    import grpc

T = TypeVar("T")

REQUEST_ID = "request_id"
"""Key of the request id in the client's and in the trailing metadata."""


class gRPCInputStream(AsyncIterator[T]):
    """The messages of a client: iterate with `async for`."""

    def __init__(
        self, request_iterator: AsyncIterator[T], *, cancel_event: asyncio.Event | None = None
    ) -> None:
        """`cancel_event` is set when the client disconnects."""
        self._messages = request_iterator
        self._cancelled = cancel_event or asyncio.Event()
        self._is_exhausted = False

    def __aiter__(self) -> gRPCInputStream[T]:
        return self

    async def __anext__(self) -> T:
        if self._is_exhausted or self._cancelled.is_set():
            raise StopAsyncIteration
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            self._is_exhausted = True
            raise

    def is_cancelled(self) -> bool:
        """Return True if the client has disconnected or `cancel` was called."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End the iteration before the client's last message."""
        self._cancelled.set()

    @property
    def is_exhausted(self) -> bool:
        """True after the client's last message."""
        return self._is_exhausted


class RayServegRPCContext:
    """Information about a gRPC call, and the status and metadata of its answer.

    It has the methods of `grpc.ServicerContext` that do not need the connection, and can be
    pickled.
    """

    def __init__(self, grpc_context: Any) -> None:
        """Copy a `grpc.aio.ServicerContext`."""
        self._auth_context: Mapping[str, Iterable[bytes]] = grpc_context.auth_context()
        self._code = grpc_context.code()
        self._details: str = grpc_context.details()
        self._invocation_metadata = [(key, value) for key, value in _pairs(grpc_context)]
        self._peer: str = grpc_context.peer()
        self._peer_identities = grpc_context.peer_identities()
        self._peer_identity_key = grpc_context.peer_identity_key()
        self._trailing_metadata: Metadata = [*(grpc_context.trailing_metadata() or ())]
        self._compression: grpc.Compression | None = None

    @classmethod
    def _of_head(cls, head: GrpcHead) -> RayServegRPCContext:
        return cls(_ServicerFacts(head))

    # -- the call

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return the properties of an authenticated client."""
        return self._auth_context

    def invocation_metadata(self) -> list[tuple[str, str | bytes]]:
        """Return the metadata that the client sent."""
        return self._invocation_metadata

    def peer(self) -> str:
        """Return the address of the client."""
        return self._peer

    def peer_identities(self) -> Iterable[bytes] | None:
        """Return the identities of an authenticated client; None for others."""
        identities: Iterable[bytes] | None = self._peer_identities
        return identities

    def peer_identity_key(self) -> str | None:
        """Return the key of `auth_context` that identifies the client; None without one."""
        key: str | None = self._peer_identity_key
        return key

    def application(self) -> str | None:
        """Return the application that the client named; None without one."""
        return self._sent("application")

    def request_id(self) -> str | None:
        """Return the request id that the client sent; None if serve made one."""
        return self._sent(REQUEST_ID)

    def multiplexed_model_id(self) -> str | None:
        """Return the model that the client named; None without one."""
        return self._sent("multiplexed_model_id")

    def traceparent(self) -> str | None:
        """Return the trace context (W3C) of the client."""
        return self._sent("traceparent")

    def tracestate(self) -> str | None:
        """Return the trace state (W3C) of the client."""
        return self._sent("tracestate")

    # -- the answer

    def code(self) -> grpc.StatusCode | None:
        """Return the status code that was set."""
        code: grpc.StatusCode | None = self._code
        return code

    def details(self) -> str:
        """Return the text of the status that was set."""
        return self._details

    def trailing_metadata(self) -> list[tuple[str, str | bytes]]:
        """Return the metadata that is sent after the answer."""
        return [*self._trailing_metadata]

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status code of the answer, or of an exception that is raised afterwards.

        Raises TypeError if `code` is not a status code.
        """
        _code_number(code)
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of the status."""
        self._details = details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Set the compression of the answer; before the first message of a stream."""
        self._compression = compression

    def set_trailing_metadata(self, trailing_metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Set the metadata that is sent after the answer; the request id is added to it."""
        kept = [(key, value) for key, value in self._trailing_metadata if key == REQUEST_ID]
        self._trailing_metadata = [*kept, *((key, value) for key, value in trailing_metadata)]

    def _sent(self, name: str) -> str | None:
        found = None
        for key, value in self._invocation_metadata:
            if key == name and isinstance(value, str):
                found = value
        return found

    def _status(self) -> GrpcStatus:
        compression = None if self._compression is None else int(self._compression)
        details = self._details or ""
        return GrpcStatus(
            None if not self._code else _code_number(self._code),
            details if isinstance(details, str) else str(details),
            self._trailing_metadata,
            compression,
        )


class _ServicerFacts:
    """The side of `grpc.ServicerContext` that `RayServegRPCContext` copies."""

    def __init__(self, head: GrpcHead) -> None:
        self._head = head

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return self._head.auth_context

    def code(self) -> None:
        return None

    def details(self) -> str:
        return ""

    def invocation_metadata(self) -> Metadata:
        return self._head.metadata

    def peer(self) -> str:
        return self._head.peer

    def peer_identities(self) -> None:
        return None

    def peer_identity_key(self) -> None:
        return None

    def trailing_metadata(self) -> Metadata:
        return [(REQUEST_ID, self._head.request_id)]


def _pairs(grpc_context: Any) -> Iterable[tuple[str, str | bytes]]:
    pairs: Iterable[tuple[str, str | bytes]] = grpc_context.invocation_metadata() or ()
    return pairs


def _code_number(code: object) -> int:
    """Return the number of a `grpc.StatusCode`, which this module does not import."""
    value = getattr(code, "value", code)
    number = value[0] if isinstance(value, tuple) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= HIGHEST_CODE:
        raise TypeError(f"{code!r} is not a status code: give a member of `grpc.StatusCode`")
    return number
