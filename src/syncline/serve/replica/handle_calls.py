"""`MethodCall`: a call of a method, with one result or a stream of items.

`HandleCall` is the call of a `DeploymentHandle`; `grpc_calls.GrpcCall` that of a gRPC client.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

from syncline.serve.exceptions import RequestCancelledError
from syncline.serve.replica.dispatcher import Caller, OngoingCall
from syncline.serve.replica.user_code import Method, MethodKind, UserCode
from syncline.serve.tracing import Carrier
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.shared_values import SharedPayload
from syncline.serve.wire.values import Parts, pack_failure, pack_value, split_call, unpack_value

_BUFFERED_BYTES = 65_536
"""Bytes of items that a sync generator may be ahead of the socket."""


class MethodCall(OngoingCall):
    """A call of a method; subclasses know its arguments and how results are encoded."""

    __slots__ = ("_method", "_user_code", "method_name")

    def __init__(self, caller: Caller, call_id: int, method_name: str, user_code: UserCode) -> None:
        super().__init__(caller, call_id)
        self.method_name = method_name
        self._user_code = user_code
        self._method: Method | None = None

    # -- for subclasses

    @abstractmethod
    def take_arguments(self, method: Method) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments; called once, so that they live as long as user code holds them."""

    @property
    @abstractmethod
    def streams(self) -> bool:
        """True if the caller expects the items of a generator."""

    @abstractmethod
    def pack_result(self, result: object) -> Parts:
        """Return the payload of a VALUE frame."""

    @abstractmethod
    def pack_item(self, item: object) -> Parts:
        """Return the payload of a CHUNK frame; also called in the threads of sync generators."""

    def pack_end(self) -> Parts:
        """Return the payload of the END frame."""
        return ()

    @abstractmethod
    def not_streaming(self, method: Method) -> TypeError:
        """Return the error of a generator that was called without `streams`."""

    @abstractmethod
    def no_stream(self, method: Method, result: object) -> TypeError:
        """Return the error of a method that returned a single result although `streams` is True."""

    # -- the call

    def label(self) -> str:
        """Return the name of the method."""
        return self.method_name

    async def handle(self) -> None:
        """Run the method and send its result or items."""
        method = self._method = self._user_code.method(self.method_name)
        args, kwargs = self.take_arguments(method)
        if self.streams:
            await self._send_items(method, args, kwargs)
            return
        if method.kind is MethodKind.ASYNC:
            result = await method.function(*args, **kwargs)
        elif method.kind is MethodKind.SYNC:
            result = await self._in_thread(partial(method.function, *args, **kwargs))
        else:
            raise self.not_streaming(method)
        if isinstance(result, (Generator, AsyncGenerator)):
            raise self.not_streaming(method)
        self.answer(Kind.VALUE, *self.pack_result(result))
        if not self.dispatcher.admission.ongoing:
            self.dispatcher.spinner.start()

    async def _in_thread(self, function: Callable[[], object]) -> Any:
        self.hold()
        return await self.dispatcher.threads.submit(function, self.release)

    # -- streams

    async def _send_items(
        self, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if method.kind is MethodKind.ASYNC:
            items = await method.function(*args, **kwargs)
        elif method.kind is MethodKind.SYNC:
            items = await self._in_thread(partial(method.function, *args, **kwargs))
        else:
            items = method.function(*args, **kwargs)
        if isinstance(items, AsyncGenerator):
            await self._send_async_items(items)
        elif isinstance(items, Generator):
            await self._send_sync_items(items)
        else:
            raise self.no_stream(method, items)
        self.answer(Kind.END, *self.pack_end())

    async def _send_async_items(self, items: AsyncGenerator[object, None]) -> None:
        try:
            async for item in items:
                await self._send_item(self.pack_item(item))
        finally:
            await items.aclose()

    async def _send_sync_items(self, items: Generator[object, None, None]) -> None:
        buffer = _ItemBuffer(self._wake, self.pack_item)
        self.hold()
        end = self.dispatcher.threads.submit(partial(buffer.fill, items), self.release)
        end.add_done_callback(self._thread_ended)
        try:
            while True:
                while (parts := buffer.take()) is not None:
                    await self._send_item(parts)
                if end.done():
                    break
                await self.wait()
            end.result()
        finally:
            buffer.close()

    async def _send_item(self, parts: Parts) -> None:
        if self.window <= 0:
            await self.wait_for_window()
        self.window -= sum([len(part) for part in parts])
        self.send(Kind.CHUNK, *parts)

    def _thread_ended(self, end: asyncio.Future[Any]) -> None:
        end.cancelled() or end.exception()  # a cancelled call does not look at it
        self.notify()

    def _wake(self) -> None:
        """Called by the generator's thread when an item is ready."""
        self.dispatcher.loop.call_soon_threadsafe(self.notify)


class HandleCall(MethodCall):
    """A CALL frame and its answer."""

    __slots__ = ("_arguments", "_streams", "_trace")

    def __init__(self, caller: Caller, call_id: int, payload: bytes, user_code: UserCode) -> None:
        meta, arguments = split_call(payload)
        super().__init__(caller, call_id, meta.method, user_code)
        self.request_id = meta.request_id
        self.route = meta.route
        self.app_name = meta.app
        self.multiplexed_model_id = meta.multiplexed_model_id
        self.session_id = meta.session_id
        self.deadline = None
        if meta.timeout_s is not None:
            self.limit_time(meta.timeout_s)
        self._streams = meta.stream
        self._trace = meta.trace
        self._arguments: memoryview | None = arguments

    def trace_carrier(self) -> Carrier | None:
        """Return the trace context of the handle."""
        return self._trace

    @property
    def streams(self) -> bool:
        """True if the handle has `stream=True`."""
        return self._streams

    def take_arguments(self, method: Method) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the handle."""
        payload, self._arguments = self._arguments, None
        assert payload is not None
        args, kwargs = unpack_value(payload)
        return args, kwargs

    def pack_result(self, result: object) -> Parts:
        """Pickle a result."""
        assert self._method is not None
        parts = pack_value(result, what=f"result of {self._method.label}", may_share=True)
        if isinstance(parts[0], SharedPayload):
            self.caller.own_file(parts[0].disown())
        return parts

    def pack_item(self, item: object) -> Parts:
        """Pickle an item."""
        return pack_value(item, what="item")

    def not_streaming(self, method: Method) -> TypeError:
        """Name the option that is missing."""
        return TypeError(
            f"{method.label} is a generator: call it with `handle.options(stream=True)`"
        )

    def no_stream(self, method: Method, result: object) -> TypeError:
        """Name the option that is wrong."""
        return TypeError(
            f"{method.label} was called with `stream=True`, but returned a "
            f"{type(result).__name__}: call it without `stream=True`, or make it a generator"
        )

    def answer_error(self, error: BaseException) -> None:
        """Send the error; it gets the name of the method if user code raised it."""
        if self.is_answered:
            self.log_error(error, f"background work of {self.method_name}")
            return
        self.note_failure(error)
        self.answer(Kind.ERROR, pack_failure(error, self._method.label if self._method else ""))

    def answer_cancelled(self) -> None:
        """Send the reason."""
        error: Exception = RequestCancelledError(self.request_id)
        if self.is_expired:
            error = TimeoutError(f"Request {self.request_id} timed out.")
        self.answer(Kind.ERROR, pack_failure(error))


class _ItemBuffer:
    """Packed items on their way from the thread of a sync generator to the loop."""

    def __init__(self, wake: Callable[[], None], pack: Callable[[Any], Parts]) -> None:
        self._wake = wake
        self._pack = pack
        self._items: deque[Parts] = deque()
        self._bytes = 0
        self._is_closed = False
        self._is_awake = False  # True from a wake-up until the loop has taken all items
        self._changed = threading.Condition()

    def fill(self, items: Generator[object, None, None]) -> None:
        """Run the generator, on its thread; return early after `close`."""
        try:
            for item in items:
                if not self._put(self._pack(item)):
                    return
        finally:
            items.close()

    def take(self) -> Parts | None:
        """Return the next item, on the loop's thread; None if it does not exist yet."""
        with self._changed:
            if not self._items:
                self._is_awake = False
                return None
            parts = self._items.popleft()
            self._bytes -= sum([len(part) for part in parts])
            self._changed.notify()
            return parts

    def close(self) -> None:
        """Let the generator end at its next item."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _put(self, parts: Parts) -> bool:
        with self._changed:
            while self._bytes >= _BUFFERED_BYTES and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return False
            self._items.append(parts)
            self._bytes += sum([len(part) for part in parts])
            wakes, self._is_awake = not self._is_awake, True
        if wakes:
            self._wake()
        return True
