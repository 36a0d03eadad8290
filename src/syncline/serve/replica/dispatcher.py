"""`Dispatcher`: the frames of callers, from the socket to user code and back.

Each connection of a caller has a `Caller`, each call an `OngoingCall`. A call that is admitted is
written to the ledger, then its task runs user code with the call as its request context. It ends
with exactly one answer. Its slot of the ledger is used again once the socket has taken the answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from syncline import faults
from syncline.records import dataclass
from syncline.serve.context import RequestContext, request_context
from syncline.serve.monitoring.call_times import CallTimes
from syncline.serve.replica.admission import Admission, AdmissionStatistics
from syncline.serve.replica.ledger import Ledger
from syncline.serve.replica.threads import HandlerThreads
from syncline.serve.replica.user_frames import shortened_traceback
from syncline.serve.tracing import Carrier, Tracing
from syncline.serve.wire import shared_values
from syncline.serve.wire.connection import LoopConnection
from syncline.serve.wire.frames import WINDOW_BYTES, Kind, decode_window, encode_window
from syncline.serve.wire.loop_spinner import LoopSpinner

logger = logging.getLogger("syncline.serve")

_HTTP, _CALL, _BODY, _CANCEL = int(Kind.HTTP), int(Kind.CALL), int(Kind.BODY), int(Kind.CANCEL)
_GRPC, _WINDOW, _BUSY, _FREE = int(Kind.GRPC), int(Kind.WINDOW), int(Kind.BUSY), int(Kind.FREE)
# The first step of a task runs immediately, where Python can do that.
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
_CREDIT_BYTES = WINDOW_BYTES // 4
"""Bytes of a request body after which its sender is granted more."""

MakeCall = Callable[["Caller", int, bytes], "OngoingCall"]
"""`make(caller, call_id, payload)`; it must not start the call."""


_MOST_FILES = 32
"""Number of result files above which deleted ones are purged."""


@dataclass(frozen=True, kw_only=True)
class DispatcherStatistics:
    """Counters of a dispatcher."""

    admission: AdmissionStatistics
    callers: int
    running: int
    """Calls whose task has not ended, also after the answer."""
    answered: int
    failed: int
    cancelled: int


class OngoingCall(RequestContext):
    """One call, from its first frame to its answer. Subclasses run user code in `run`."""

    __slots__ = (
        "_credit",
        "_holds",
        "_received",
        "_timer",
        "_waiters",
        "call_id",
        "caller",
        "dispatcher",
        "has_begun",
        "is_answered",
        "is_cancelled",
        "is_expired",
        "received",
        "slot",
        "task",
        "window",
    )

    def __init__(self, caller: Caller, call_id: int) -> None:
        # The attributes of RequestContext are set by the subclasses, which know them.
        self.caller = caller
        self.dispatcher = caller.dispatcher
        self.call_id = call_id
        self.received = perf_counter()
        """Time of its first frame."""
        self.batch_wait_s = 0.0
        self.slot = -1
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_answered = False
        self.is_cancelled = False
        """True if the caller does not wait any more, or the deadline has passed."""
        self.is_expired = False
        """True if the deadline has passed."""
        self.window = WINDOW_BYTES
        """Bytes of chunks that may be sent; below zero after a large chunk."""
        self._children = None
        self._holds = 1  # the answer; and each thread that runs a method of this call
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: tuple[asyncio.Future[None], ...] = ()
        self._received: deque[bytes] | None = None  # unread BODY frames
        self._credit = 0  # bytes read, for which the sender got no WINDOW frame yet

    # -- for subclasses

    @abstractmethod
    async def handle(self) -> None:
        """Run user code and answer."""

    def label(self) -> str:
        """Return the method of the user's class, or HTTP method and route, for records."""
        return self.route

    def trace_carrier(self) -> Carrier | None:
        """Return the trace context of the caller; None without one."""
        return None

    def set_trace_carrier(self, carrier: Carrier) -> None:
        """Show the trace context of this call to libraries that read it from the request."""

    @abstractmethod
    def answer_error(self, error: BaseException) -> None:
        """Answer with an error that `handle` raised, unless the call is answered."""

    @abstractmethod
    def answer_cancelled(self) -> None:
        """Answer a call that was cancelled or is too late, unless it is answered."""

    async def run(self) -> None:
        """Run user code and answer in any case."""
        self.has_begun = True
        try:
            if self.is_cancelled:  # before the first step of this task
                raise asyncio.CancelledError
            await self.handle()
            assert self.is_answered, "a call ended without an answer"
        except BaseException as error:
            # Also SystemExit of user code, which would end the replica and its other calls.
            if self.is_cancelled:
                self.answer_cancelled()
            else:
                self.answer_error(error)
        finally:
            caller = self.caller
            del caller.calls[self.call_id]
            if caller.connection.is_closed:
                self.dispatcher.remove(caller)
            self.dispatcher.check_idle()

    def send(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send a frame that is not the answer's last."""
        self.caller.connection.send(kind, self.call_id, *parts)

    def answer(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send the last frame of the answer and give the slot back. Later answers are dropped."""
        if self.is_answered:
            return
        self.is_answered = True
        caller = self.caller
        faults.reach("serve.replica.before_answer")
        self.dispatcher.answered += 1
        # Before the answer is sent: the caller, which it wakes, may take this processor.
        self.dispatcher.times.answered(self)
        caller.connection.send(kind, self.call_id, *parts)
        caller.ended_slots.append(self.slot)
        if self._timer is not None:
            self._timer.cancel()
        self.release()

    def hold(self) -> None:
        """Keep the slot of the admission until `release`, also after the answer."""
        self._holds += 1

    def release(self) -> None:
        """Give the slot of the admission back if nothing else holds it."""
        self._holds -= 1
        if not self._holds:
            told = self.dispatcher.admission.release()
            for caller in told:
                caller.connection.send(_FREE)
            self.dispatcher.check_idle()

    def limit_time(self, timeout_s: float) -> None:
        """Cancel the call after `timeout_s` seconds."""
        loop = self.dispatcher.loop
        self.deadline = loop.time() + timeout_s
        self._timer = loop.call_later(timeout_s, self.cancel, True)

    def cancel(self, is_expired: bool = False) -> None:
        """Cancel user code and the calls that it made."""
        if self.is_cancelled or self.is_answered:
            return
        self.is_cancelled, self.is_expired = True, is_expired
        self.dispatcher.cancelled += 1
        self.dispatcher.times.cancelled += 1
        self.cancel_children()
        self.notify()
        if self.has_begun and self.task is not None:  # a task that has not begun would not answer
            self.task.cancel()

    def drain(self) -> None:
        """Handle that the replica drains: end a call that would last."""

    def log_error(self, error: BaseException, what: str) -> None:
        """Log an exception of user code with the id of the request."""
        self.note_failure(error)
        logger.error(
            "Request %s failed in %s:\n%s", self.request_id, what, shortened_traceback(error)
        )

    def note_failure(self, error: BaseException) -> None:
        """Count an exception of user code."""
        self.dispatcher.failed += 1
        self.dispatcher.times.note_failure(self, error)
        if self.dispatcher.tracing is not None:
            self.dispatcher.tracing.note_failure(error)

    # -- events

    def notify(self) -> None:
        """Wake `wait` for a piece of the body, a cancellation, or an item of a thread."""
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        waiter = self.dispatcher.loop.create_future()
        self._waiters = (*self._waiters, waiter)
        await waiter

    # -- flow of chunks to the caller

    def grant(self, count: int) -> None:
        """Add bytes to the window."""
        before, self.window = self.window, self.window + count
        if before <= 0 < self.window:
            self.notify()

    async def wait_for_window(self) -> None:
        """Wait until the caller accepts more bytes."""
        while self.window <= 0:
            await self.wait()

    # -- flow of the request body from the caller

    def receive_body(self, data: bytes) -> None:
        """Handle a BODY frame."""
        if self._received is None:
            self._received = deque()
        self._received.append(data)
        self.notify()

    def take_body(self) -> bytes | None:
        """Return the next piece of the body, empty at its end; None if none has arrived."""
        if not self._received:
            return None
        data = self._received.popleft()
        self._credit += len(data)
        if self._credit >= _CREDIT_BYTES:
            self.send(_WINDOW, encode_window(self._credit))
            self._credit = 0
        return data


class Caller:
    """The connection of one caller; receives its frames."""

    __slots__ = ("_files", "calls", "connection", "dispatcher", "ended_slots")

    def __init__(self, dispatcher: Dispatcher, connection: LoopConnection) -> None:
        self.dispatcher = dispatcher
        self.connection = connection
        self.calls: dict[int, OngoingCall] = {}
        self.ended_slots: list[int] = []
        """Ledger slots of calls whose answers the socket may not have taken yet."""
        self._files: list[str] = []

    def own_file(self, name: str) -> None:
        """Remove the file of a result when the caller is gone, unless it has done so."""
        self._files.append(name)
        if len(self._files) >= _MOST_FILES:
            self._files = [each for each in self._files if os.path.exists(each)]

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        """Handle a frame."""
        if kind == _HTTP:
            self.dispatcher.start(self, call_id, payload, self.dispatcher.make_http_call)
        elif kind == _CALL:
            self.dispatcher.spinner.stop()
            self.dispatcher.times.by_handle += 1
            self.dispatcher.start(self, call_id, payload, self.dispatcher.make_handle_call)
        elif kind == _GRPC:
            self.dispatcher.start(self, call_id, payload, self.dispatcher.make_grpc_call)
        else:
            call = self.calls.get(call_id)
            if call is None:  # it has just been answered
                return
            if kind == _WINDOW:
                call.grant(decode_window(payload))
            elif kind == _BODY:
                call.receive_body(payload)
            elif kind == _CANCEL:
                call.cancel()

    def on_closed(self) -> None:
        """Cancel the calls of a caller that is gone."""
        for call in list(self.calls.values()):
            call.cancel()
        for name in self._files:
            shared_values.remove(name)
        self.dispatcher.remove(self)


class Dispatcher:
    """Accepts connections of callers and starts their calls."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        ledger: Ledger,
        max_ongoing_requests: int,
        threads: HandlerThreads,
        app_name: str,
    ) -> None:
        self.loop = loop
        self.threads = threads
        self.app_name = app_name
        self.admission: Admission[Caller] = Admission(max_ongoing_requests)
        self.make_http_call: MakeCall = _unready
        self.make_handle_call: MakeCall = _unready
        self.make_grpc_call: MakeCall = _unready
        self.tracing: Tracing | None = None
        self.times = CallTimes()
        self.spinner = LoopSpinner(loop)
        self.cancelled = 0
        """Cancelled and expired calls."""
        self.failed = 0
        """Calls in which user code raised."""
        self.answered = 0
        """Calls with an answer, including errors."""
        self._ledger = ledger
        self._callers: dict[Caller, None] = {}
        self._idle: asyncio.Future[None] | None = None

    def on_ready(self, connection: LoopConnection) -> Caller:
        """Return the receiver of a new connection."""
        caller = Caller(self, connection)
        self._callers[caller] = None
        return caller

    def remove(self, caller: Caller) -> None:
        """Discard a caller whose connection has ended, once its calls have ended."""
        self.admission.forget(caller)
        self._callers = {other: None for other in self._callers if self._is_needed(other)}

    def start(self, caller: Caller, call_id: int, payload: bytes, make: MakeCall) -> None:
        """Start a call, or answer BUSY."""
        if not self.admission.admit(caller):
            caller.connection.send(_BUSY, call_id)
            return
        call = make(caller, call_id, payload)
        ledger = self._ledger
        if ledger.is_full:
            self._reclaim_all()
        call.slot = ledger.begin(call_id)
        faults.reach("serve.replica.after_begin")
        caller.calls[call_id] = call
        request_context.set(call)  # tasks copy the context
        run = call.run() if self.tracing is None else self.tracing.run(call)
        call.task = asyncio.Task(run, loop=self.loop, **_EAGER)
        request_context.set(None)

    async def idle(self) -> None:
        """Wait until no call runs, including background tasks and threads of answered ones."""
        while self.admission.ongoing or any(caller.calls for caller in self._callers):
            self._idle = self.loop.create_future()
            await self._idle

    def check_idle(self) -> None:
        """Let `idle` look again."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def drain(self) -> None:
        """Refuse further calls; let calls end that would last."""
        self.admission.drain()
        for call in self.calls():
            call.drain()

    def cancel_all(self) -> None:
        """Cancel all calls; those of sync methods run on."""
        for caller in list(self._callers):
            for call in list(caller.calls.values()):
                call.cancel()
                if call.is_answered and call.task is not None:  # a background task
                    call.task.cancel()

    def calls(self) -> list[OngoingCall]:
        """Return the calls that run, including answered ones with background tasks."""
        return [call for caller in self._callers for call in caller.calls.values()]

    def resize(self, max_ongoing_requests: int) -> None:
        """Change the limit of ongoing requests."""
        self.threads.resize(max_ongoing_requests)
        for caller in self.admission.resize(max_ongoing_requests):
            caller.connection.send(_FREE)

    def close(self) -> None:
        """Close the connections after the sent frames."""
        for caller in list(self._callers):
            caller.connection.close()

    @property
    def callers(self) -> int:
        """Number of connections."""
        return len(self._callers)

    def statistics(self) -> DispatcherStatistics:
        """Return the current counts."""
        return DispatcherStatistics(
            admission=self.admission.statistics(),
            callers=len(self._callers),
            running=sum(len(caller.calls) for caller in self._callers),
            answered=self.answered,
            failed=self.failed,
            cancelled=self.cancelled,
        )

    def _is_needed(self, caller: Caller) -> bool:
        if caller.connection.is_closed:
            self._reclaim(caller)
        return bool(caller.calls) or not caller.connection.is_closed

    def _reclaim_all(self) -> None:
        for caller in self._callers:
            # Calls that end in the turn of the loop in which they begin leave frames that wait.
            caller.connection.flush()
            self._reclaim(caller)

    def _reclaim(self, caller: Caller) -> None:
        """Free the slots of answers that the socket has taken."""
        connection = caller.connection
        if connection.is_closed or not connection.unsent_bytes:
            for slot in caller.ended_slots:
                self._ledger.end(slot)
            caller.ended_slots.clear()


def _unready(caller: Caller, call_id: int, payload: bytes) -> Any:
    raise AssertionError("a call came before the user's class was constructed")
