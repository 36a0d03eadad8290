"""Responses of handle calls: of one call, of a stream, and of a broadcast to all replicas.

A response may be waited for in any thread (`result()`, iteration) and on any event loop (`await`,
`async for`), repeatedly. Values are unpickled by the first that waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

from syncline.core.api import ObjectRef, put
from syncline.core.embedded.segments import Mapped
from syncline.core.embedded.shared_reactor import Waiter
from syncline.serve import tracing
from syncline.serve.context import RequestContext
from syncline.serve.exceptions import (
    RayServeException,
    ReplicaUnavailableError,
    RequestCancelledError,
)
from syncline.serve.routing.link import Link, LoopLink, RequestTimeoutError
from syncline.serve.routing.loop_reader import LoopReader
from syncline.serve.routing.router import Call
from syncline.serve.routing.thread_link import ThreadLink
from syncline.serve.wire import shared_values
from syncline.serve.wire.frames import Kind, encode_window
from syncline.serve.wire.routes import DeploymentId
from syncline.serve.wire.spinning import SPIN_S
from syncline.serve.wire.values import unpack_failure, unpack_value

R = TypeVar("R")

_VALUE, _CHUNK = int(Kind.VALUE), int(Kind.CHUNK)

GRANT_BYTES = 65_536
"""Consumed bytes of a stream that are granted to the replica again in one frame."""


class HandleCall(Call):
    """A method call of a handle and its answer."""

    is_done = False
    is_cancelled = False
    timeout_s: float | None = None
    """Seconds that the call may take; None: no limit."""
    _value_payload: bytes | None = None
    _mapped: Mapped | None = None
    _value: Any = None
    _error: BaseException | None = None
    span: Any = None
    """Span of OpenTelemetry; None without traces."""
    trace: dict[str, str] | None = None
    """Context of the span."""
    _callbacks: Sequence[Callable[[], None]] = ()
    _items: deque[bytes] | tuple[()] = ()
    """Items of a stream that arrived and were not taken."""
    _owed = 0
    """Consumed bytes of a stream that were not granted again."""

    def __init__(
        self,
        link: Link,
        deployment: DeploymentId,
        method: str,
        request_id: str,
        context: RequestContext | None,
    ) -> None:
        super().__init__(deployment, Kind.CALL, ())
        self.method = method
        self.request_id = request_id
        self.context = context
        """The request during which the call was made."""
        self._link = link
        if context is not None:
            context.add_child(self)

    # -- from the link

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Store a part of the answer."""
        if kind == _VALUE:
            self._store_value(payload)
            self._finish()
        elif kind == _CHUNK:
            self.can_resend = False
            if not isinstance(self._items, deque):
                self._items = deque()
            self._items.append(payload)
            self._wake()
        elif kind == Kind.ERROR:
            self._error = unpack_failure(payload)
            self._finish()
        elif kind == Kind.END:
            self._finish()

    def _store_value(self, payload: bytes) -> None:
        if not shared_values.is_shared(payload):
            self._value_payload = payload
            return
        try:
            self._mapped = shared_values.open_payload(payload, take=True)
        except OSError as error:
            self._error = ReplicaUnavailableError(
                f"the result of `{self.method}` of {self.deployment} (request {self.request_id}) "
                f"could not be read from shared memory, because its replica died: {error}"
            )

    def on_failed(self, error: BaseException) -> None:
        """Store an error of serve."""
        if isinstance(error, RequestTimeoutError):
            error = TimeoutError(
                f"the call of `{self.method}` of {self.deployment} (request {self.request_id}) had "
                f"no answer after {self.timeout_s} s"
            )
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self.parts = ()  # arguments may be large
        if self.context is not None:
            self.context.remove_child(self)
        if self.span is not None and (traces := tracing.current()) is not None:
            traces.end_call(self.span, self._error)
        if self._callbacks:
            self._wake()

    def _wake(self) -> None:
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback()

    # -- from any thread

    def cancel(self) -> None:
        """Cancel the call if it is not done."""
        self._link.run(self._cancel)

    def _cancel(self) -> None:
        if not self.is_done:
            self.is_cancelled = True
            self._link.cancel(self)
            self.on_failed(RequestCancelledError(self.request_id))

    def call_back(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the link's thread, when there is a result or an item."""

        def register() -> None:
            if self.is_done or self._items:
                callback()
            else:
                self._callbacks = [*self._callbacks, callback]

        self._link.run(register)

    def wait(self, timeout_s: float | None) -> bool:
        """Block until there is a result or an item; return False after the timeout."""
        if self.is_done or self._items:
            return True
        if isinstance(self._link, ThreadLink):
            if self._receive(self._link):
                return True
            waiter = Waiter()
            with self._link.guard:  # `call_back` without its function calls
                if self.is_done or self._items:
                    return True
                self._callbacks = [*self._callbacks, waiter.settle]
            return self._link.wait(waiter, timeout_s)
        event = threading.Event()
        self.call_back(event.set)
        return event.wait(timeout_s)

    def _receive(self, link: ThreadLink) -> bool:
        """Look at the replica's socket, for a moment; return True if the answer came."""
        receive = link.receiver(self)
        if receive is None:
            return False
        receive()
        if self.is_done or self._items:
            return True
        if not link.spins.allows():
            return False
        end = time.perf_counter() + SPIN_S
        try:
            while time.perf_counter() < end:
                receive()
                if self.is_done or self._items:
                    break
        finally:
            found = self.is_done or bool(self._items)
            link.spins.note(found=found)
        return found

    async def wait_async(self) -> None:
        """Wait like `wait` on any event loop; the call is cancelled if the wait is."""
        if self.is_done or self._items:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        def settle_there() -> None:
            if asyncio._get_running_loop() is loop:
                settle()
            else:
                loop.call_soon_threadsafe(settle)

        reader = _reader(self._link, loop)
        if reader is not None:
            reader.enter()
        try:
            self.call_back(settle_there)
            await future
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if reader is not None:
                reader.leave()

    def value(self) -> Any:
        """Return the value of a call that is done, or raise its error."""
        if self._error is not None:
            raise self._error
        if self._value_payload is not None:
            self._value = unpack_value(self._value_payload)
            self._value_payload = None
        if self._mapped is not None:
            self._value = shared_values.unpack(self._mapped)
            self._mapped = None
        return self._value

    def take_item(self) -> tuple[bool, Any]:
        """Return (True, the next item of a stream), or (False, None) at its end.

        Call it after a wait.
        """
        if not self._items:
            if self._error is not None:
                raise self._error
            return False, None
        payload = self._items.popleft()
        self._owed += len(payload)
        if self._owed >= GRANT_BYTES and not self.is_done:
            owed, self._owed = self._owed, 0
            self._link.run(lambda: self._link.send(self, Kind.WINDOW, encode_window(owed)))
        return True, unpack_value(payload)


class _Response:
    """Common methods of responses."""

    def __init__(self, call: HandleCall) -> None:
        self._call = call

    @property
    def request_id(self) -> str:
        """Id of the request in logs."""
        return self._call.request_id

    def cancel(self) -> None:
        """Cancel the call, and the calls that it made.

        A call that was not sent is dropped; a running async handler gets CancelledError; a running
        sync handler runs on, and its result is ignored. Waiting then raises RequestCancelledError.
        """
        self._call.cancel()

    def cancelled(self) -> bool:
        """Return True if the call was cancelled before it was done."""
        return self._call.is_cancelled

    def __reduce__(self) -> Any:
        raise RayServeException(
            f"a {type(self).__name__} cannot be sent inside another value: pass it as an argument "
            f"of the call itself, or wait for its value first"
        )


class DeploymentResponse(_Response, Generic[R]):
    """The value of a call that exists or will exist.

    `await` it, call `result()`, or pass it as an argument to another call.
    """

    def __await__(self) -> Generator[Any, None, R]:
        """Return the value, or raise the error of the call."""
        yield from self._call.wait_async().__await__()
        value: R = self._call.value()
        return value

    def result(self, *, timeout_s: float | None = None, _skip_asyncio_check: bool = False) -> R:
        """Wait for the value.

        Raises the error of the call; TimeoutError after `timeout_s`, while the call continues; and
        RuntimeError on an event loop, which it would block.
        """
        if not _skip_asyncio_check:
            check_not_on_loop("result()", "await response")
        if not self._call.wait(timeout_s):
            raise TimeoutError(
                f"the call of `{self._call.method}` of {self._call.deployment} has no result after "
                f"{timeout_s} s and continues: call `cancel()` to end it"
            )
        value: R = self._call.value()
        return value

    async def _to_object_ref(self) -> ObjectRef[R]:
        """Return a reference to the value, for tasks and actors."""
        return put(await self)

    def _to_object_ref_sync(
        self, _timeout_s: float | None = None, _allow_running_in_asyncio_loop: bool = False
    ) -> ObjectRef[R]:
        """Return a reference to the value, for tasks and actors."""
        return put(
            self.result(timeout_s=_timeout_s, _skip_asyncio_check=_allow_running_in_asyncio_loop)
        )


class DeploymentResponseGenerator(_Response, Generic[R]):
    """The items of a streaming call: iterate with `for` or `async for`."""

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        check_not_on_loop("iteration with `for`", "`async for`")
        self._call.wait(None)
        found, item = self._call.take_item()
        if not found:
            raise StopIteration
        value: R = item
        return value

    def __aiter__(self) -> AsyncIterator[R]:
        return self

    async def __anext__(self) -> R:
        await self._call.wait_async()
        found, item = self._call.take_item()
        if not found:
            raise StopAsyncIteration
        value: R = item
        return value

    def __await__(self) -> Any:
        raise TypeError("a streaming response cannot be awaited: iterate with `async for`")

    def result(self, *_args: object, **_kwargs: object) -> Any:
        """Raise TypeError: a stream has no single result."""
        raise TypeError("a streaming response has no `result()`: iterate over it")

    def __del__(self) -> None:
        call = self._call
        if not call.is_done:
            call.cancel()


class DeploymentBroadcastResponse:
    """The values of one call on every replica of a deployment, in no certain order."""

    def __init__(self, listing: HandleCall, responses: list[DeploymentResponse[Any]]) -> None:
        """`responses` is complete when `listing` ends."""
        self._listing = listing
        self._responses = responses

    def results(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all values.

        With `return_exceptions`, errors are in the list instead of raised. Raises TimeoutError
        after `timeout_s` for all together, and RuntimeError on an event loop.
        """
        check_not_on_loop("results()", "await response.results_async()")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._listing.wait(timeout_s):
            raise TimeoutError(f"not all replicas answered within {timeout_s} s")
        self._listing.value()  # raises its error
        found: list[Any] = []
        for response in self._responses:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                found.append(response.result(timeout_s=left))
            except Exception as error:
                if not return_exceptions or isinstance(error, TimeoutError):
                    raise
                found.append(error)
        return found

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all values on an event loop; see `results`."""

        async def value(response: DeploymentResponse[Any]) -> Any:
            return await response

        async def values() -> list[Any]:
            await self._listing.wait_async()
            self._listing.value()  # raises its error
            each = map(value, self._responses)
            return list(await asyncio.gather(*each, return_exceptions=return_exceptions))

        try:
            return await asyncio.wait_for(values(), timeout_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"not all replicas answered within {timeout_s} s") from None


def _reader(link: Link, loop: asyncio.AbstractEventLoop) -> LoopReader | LoopLink | None:
    """Return the object that reads answers on this loop; None if another thread does."""
    if isinstance(link, ThreadLink):
        return link.reader(loop)
    return link if isinstance(link, LoopLink) and link.loop is loop else None


def check_not_on_loop(what: str, instead: str) -> None:
    """Raise RuntimeError if an event loop runs in this thread."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(f"{what} would block the running event loop: use {instead}")
