"""`GrpcCall`: a call of a gRPC client, of any of the four kinds.

The method of the ingress gets a message, or a `gRPCInputStream` if the client streams, and returns
messages. The answer carries the values set on its `grpc_context`.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

from syncline.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RequestCancelledError,
)
from syncline.serve.grpc_util import RayServegRPCContext, gRPCInputStream
from syncline.serve.replica.dispatcher import Caller
from syncline.serve.replica.handle_calls import MethodCall
from syncline.serve.replica.user_code import Method, UserCode
from syncline.serve.tracing import Carrier, carrier_of
from syncline.serve.wire.frames import WINDOW_BYTES, Kind, encode_window
from syncline.serve.wire.grpc_frames import MESSAGE, Code, GrpcStatus, decode_head, encode_status
from syncline.serve.wire.values import Parts

CONTEXT_PARAMETER = "grpc_context"
LONGEST_DETAILS = 4096
"""Characters of a status text: HTTP/2 limits trailers to 8 kB."""


class GrpcCall(MethodCall):
    """A GRPC frame and its answer."""

    __slots__ = ("_client_gone", "_context", "_has_started", "_head", "_message")

    def __init__(self, caller: Caller, call_id: int, payload: bytes, user_code: UserCode) -> None:
        head, message = decode_head(payload)
        super().__init__(caller, call_id, head.method, user_code)
        self.request_id = head.request_id
        self.route = head.service_method
        self.app_name = head.app
        self.multiplexed_model_id = head.multiplexed_model_id
        self.session_id = head.session_id
        self.deadline = None
        if head.timeout_s is not None:
            self.limit_time(head.timeout_s)
        self._head = head
        self._message = message
        self._context = RayServegRPCContext._of_head(head)
        self._client_gone: asyncio.Event | None = None
        self._has_started = False

    def trace_carrier(self) -> Carrier | None:
        """Return the trace context in the metadata of the client."""
        return carrier_of(self._head.metadata)

    @property
    def streams(self) -> bool:
        """True if the client expects a stream of messages."""
        return self._head.streams_response

    def take_arguments(self, method: Method) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the message or the stream of messages, and the context if the method takes it."""
        deserialize = _deserializer(self._head.deserializer)
        message, self._message = self._message, b""
        if self._head.streams_request:
            self._client_gone = asyncio.Event()
            argument: object = gRPCInputStream(
                self._messages(deserialize), cancel_event=self._client_gone
            )
            self.send(Kind.WINDOW, encode_window(WINDOW_BYTES))
        else:
            argument = deserialize(message)
        args = (argument,) if method.takes_argument else ()
        if _takes_context(method.function):
            return args, {CONTEXT_PARAMETER: self._context}
        return args, {}

    async def _messages(self, deserialize: Callable[[bytes], object]) -> AsyncIterator[object]:
        while True:
            while (data := self.take_body()) is None:
                await self.wait()
            if data[:1] != MESSAGE:
                return
            yield deserialize(data[1:])

    # -- the answer

    def pack_result(self, result: object) -> Parts:
        """Return the status and the message."""
        return encode_status(self._context._status(), self._serialized(result))

    def pack_item(self, item: object) -> Parts:
        """Return a message of a stream."""
        return (self._serialized(item),)

    def pack_end(self) -> Parts:
        """Return the status."""
        return encode_status(self._context._status())

    def send(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send a frame; before the first message of a stream, its compression."""
        if kind == Kind.CHUNK and not self._has_started:
            self._has_started = True
            status = self._context._status()
            if status.compression is not None:
                super().send(Kind.START, *encode_status(status))
        super().send(kind, *parts)

    def _serialized(self, message: object) -> bytes:
        serialize = getattr(message, "SerializeToString", None)
        if serialize is None:
            raise TypeError(
                f"{self.method_name} answered {self._head.service_method} with a "
                f"{type(message).__name__}: return the message that the service declares"
            )
        data: bytes = serialize()
        return data

    def not_streaming(self, method: Method) -> TypeError:
        """Name the difference to the service."""
        return TypeError(
            f"{method.label} is a generator, but {self._head.service_method} has one reply: return "
            "a message, or declare the reply as a stream"
        )

    def no_stream(self, method: Method, result: object) -> TypeError:
        """Name the difference to the service."""
        return TypeError(
            f"{method.label} returned a {type(result).__name__}, but the reply of "
            f"{self._head.service_method} is a stream: make it a generator of messages"
        )

    def cancel(self, is_expired: bool = False) -> None:
        """Cancel user code, and end the stream of messages that it reads."""
        if self._client_gone is not None:
            self._client_gone.set()
        super().cancel(is_expired)

    def answer_error(self, error: BaseException) -> None:
        """Send the status that user code set before it raised, or that of the exception."""
        self.log_error(error, self._method.label if self._method else self.method_name)
        self.answer(Kind.ERROR, *encode_status(error_status(error, self._context._status())))

    def answer_cancelled(self) -> None:
        """Send the reason."""
        code, text = Code.CANCELLED, f"Request {self.request_id} was cancelled."
        if self.is_expired:
            text = f"Request timed out after {self._head.timeout_s:g}s."
            code = Code.DEADLINE_EXCEEDED
        self.answer(Kind.ERROR, *encode_status(GrpcStatus(int(code), text)))


def error_status(error: BaseException, given: GrpcStatus) -> GrpcStatus:
    """Return the status of an exception; `given` is what user code set before it."""
    code = given.code or int(_code(error))
    text = given.details or f"{type(error).__name__}: {error}"
    if len(text) > LONGEST_DETAILS:
        text = text[: LONGEST_DETAILS - 1] + "…"
    return given._replace(code=code, details=text)


def _code(error: BaseException) -> Code:
    """Return the code of an exception, which a call of another deployment may have raised."""
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return Code.DEADLINE_EXCEEDED
    if isinstance(error, (asyncio.CancelledError, RequestCancelledError)):
        return Code.CANCELLED
    if isinstance(error, BackPressureError):
        return Code.RESOURCE_EXHAUSTED
    if isinstance(error, DeploymentUnavailableError):
        return Code.UNAVAILABLE
    return Code.INTERNAL


@cache
def _deserializer(pickled: bytes) -> Callable[[bytes], object]:
    """Return the function of generated code; there is one for each method of the services."""
    function: Callable[[bytes], object] = pickle.loads(pickled)
    return function


@cache
def _takes_context(function: Callable[..., object]) -> bool:
    """Return True if a method of the ingress has the parameter `grpc_context`."""
    try:
        return CONTEXT_PARAMETER in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of an extension module
        return False
